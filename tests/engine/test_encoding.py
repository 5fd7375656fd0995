from __future__ import annotations

import datetime
import decimal
import enum
import json
import math
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_maatml.engine.encoding import decode, duplicate, encode, has_long_number, snapshot
from pytest_maatml.errors import RolloutEnvError

if TYPE_CHECKING:
    from collections.abc import Callable

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**70), 2**70)
    | st.integers(10**60, 10**90)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([-0.0, 5e-324, 1e308, 1e16, 2**53 + 1, 2**63, 2**64, -(2**63) - 1])
    | TEXT
)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4)
)


@dataclass
class Point:
    x: int = 1


class Colour(enum.Enum):
    RED = "red"


class Pair(NamedTuple):
    left: int
    right: int


def nested(depth: int, leaf: Any = 1) -> Any:
    value = leaf
    for level in range(depth):
        value = [value] if level % 2 else {"k": value}
    return value


@given(value=JSON)
@settings(max_examples=300, deadline=None)
def test_json_comes_back_to_the_last_bit(value: Any) -> None:
    # repr tells 1 from 1.0 and True, 0.0 from -0.0, and shows the order of keys.
    assert repr(decode(encode(value, "v"))) == repr(value)
    assert repr(decode(snapshot(value, "v"))) == repr(value)


@given(value=JSON)
@settings(max_examples=300, deadline=None)
def test_what_is_written_and_read_is_what_json_would(value: Any) -> None:
    assert repr(json.loads(encode(value, "v"))) == repr(json.loads(json.dumps(value)))
    assert repr(decode(json.dumps(value))) == repr(json.loads(json.dumps(value)))
    assert repr(decode(json.dumps(value, ensure_ascii=False))) == repr(value)


@given(value=JSON)
@settings(max_examples=100, deadline=None)
def test_a_line_is_compact_and_one_line(value: Any) -> None:
    line = encode({"value": value}, "v")
    assert b"\n" not in line
    assert line.startswith(b'{"value":')


def test_tuples_become_lists_and_subclasses_their_plain_kind() -> None:
    assert snapshot({"a": (1, (2, Pair(3, 4)))}, "v") == b'{"a":[1,[2,[3,4]]]}'
    assert snapshot({"a": np.float64(0.1), "b": 2**70}, "v") == (
        b'{"a":0.1,"b":1180591620717411303424}'
    )


class Word(str, enum.Enum):  # noqa: UP042 - a StrEnum is its value in str() too
    RED = "red"


@pytest.mark.parametrize("value", [{"a": Word.RED}, {Word.RED: 1}, [Word.RED]])
def test_an_enum_of_text_is_its_value_as_json_has_it(value: Any) -> None:
    expected = json.loads(json.dumps(value))
    assert json.loads(snapshot(value, "v")) == expected


@pytest.mark.parametrize("leaf", [1, None, 2**70, "x"])
@pytest.mark.parametrize("write", [encode, snapshot])
def test_two_hundred_levels_are_kept(leaf: Any, write: Callable[[Any, str], bytes]) -> None:
    value = nested(200, leaf)
    assert decode(write(value, "v")) == value


@pytest.mark.parametrize("depth", [201, 240, 300, 3000])
@pytest.mark.parametrize("leaf", [1, None, 2**70])
def test_deeper_than_two_hundred_levels_is_refused(depth: int, leaf: Any) -> None:
    with pytest.raises(
        RolloutEnvError, match=r"^obs[.k\[0\]]+\.\.\. is nested deeper than 200 levels"
    ):
        snapshot(nested(depth, leaf), "obs")


def test_what_holds_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(RolloutEnvError, match="deeper than 200 levels"):
        encode({"loop": loop}, "obs")


REFUSED = [
    (math.nan, "NaN"),
    (math.inf, "Infinity"),
    (-math.inf, "-Infinity"),
    (np.float64("nan"), "NaN"),
    ("bad \ud800", "lone surrogate at character 4"),
    (np.zeros(2), "numpy.ndarray"),
    (np.int64(3), "numpy.int64"),
    (np.float32(3), "numpy.float32"),
    (np.True_, "numpy.bool"),
    (datetime.date(2026, 1, 1), "datetime.date"),
    (datetime.datetime(2026, 1, 1), "datetime.datetime"),
    (datetime.time(1), "datetime.time"),
    (Point(), "Point"),
    (Colour.RED, "Colour"),
    (uuid.UUID(int=1), "uuid.UUID"),
    (decimal.Decimal(1), "decimal.Decimal"),
    (b"bytes", "bytes"),
    ({1, 2}, "set"),
    (1j, "complex"),
    (object(), "object"),
    (10**5000, "digits"),
]


@pytest.mark.parametrize(("value", "what"), REFUSED, ids=[what for _, what in REFUSED])
@pytest.mark.parametrize("beside", [0, None, 2**70], ids=["plain", "null", "big"])
def test_what_json_lacks_is_refused_with_its_place(value: Any, what: str, beside: Any) -> None:
    observation = {"at": beside, "deep": [0, {"x": value}]}
    with pytest.raises(RolloutEnvError, match=what) as refusal:
        snapshot(observation, "observation", op="reset")
    assert str(refusal.value).startswith("observation.deep[1].x ")
    assert (refusal.value.op, refusal.value.kind) == ("reset", "protocol")
    with pytest.raises(RolloutEnvError, match=rf"^observation\.x .*{what}"):
        snapshot({"at": beside, "x": value}, "observation", op="reset")


@pytest.mark.parametrize("key", [1, None, True, 1.5, (1,), Colour.RED])
def test_keys_that_are_not_text_are_refused_with_their_place(key: Any) -> None:
    with pytest.raises(RolloutEnvError, match=r"^observation\.deep\[0\] has the key .* not text"):
        snapshot({"deep": [{key: 1}]}, "observation", op="step")


def test_a_key_with_a_lone_surrogate_is_refused_in_printable_words() -> None:
    with pytest.raises(RolloutEnvError, match="lone surrogate") as refusal:
        encode({"deep": {"\ud800": {"x": 1}}}, "observation")
    str(refusal.value).encode()
    with pytest.raises(RolloutEnvError, match="NaN") as inside:
        encode({"é\U0001f600": math.nan}, "observation")
    assert "observation.é\U0001f600" in str(inside.value)


def test_null_itself_is_no_ground_for_refusal() -> None:
    assert encode({"a": None, "b": "null"}, "v") == b'{"a":null,"b":"null"}'


@pytest.mark.parametrize(
    ("line", "long"),
    [
        (b"[0.0012345678901234567,-1.2345678901234567890123e-7]", False),
        (b"[9223372036854775807]", True),
        (b"[18446744073709551616]", True),
        (b"[0.0012345678901234567,18446744073709551616]", True),
        (b"[18446744073709551616.0012345678901234567]", True),
        (b"[0." + b"7" * 100 + b"]", True),  # no harm: it is read the slower way
        (b'{"reward":0.25,"step":123456789012345678}', False),
    ],
)
def test_the_digits_of_a_fraction_are_no_long_integer(line: bytes, long: bool) -> None:
    assert has_long_number(line) is long
    assert repr(decode(line)) == repr(json.loads(line))


def test_a_duplicate_shares_nothing_that_can_change() -> None:
    for value in ({"path": [1, {"x": None}]}, {"path": [Word.RED, {"x": 2**70}]}):
        copied = duplicate(value)
        assert copied == value
        assert type(copied["path"][0]) is type(value["path"][0])
        copied["path"][1]["x"] = 0
        assert value["path"][1]["x"] != 0  # type: ignore[index]


def test_a_snapshot_is_what_the_value_was() -> None:
    value = {"path": [1]}
    taken = snapshot(value, "observation", op="step")
    value["path"].append(2)
    assert taken == b'{"path":[1]}'


@pytest.mark.parametrize("line", ['{"a":NaN}', '{"a":Infinity}', '{"a":-Infinity}', '{"a":1e400}'])
def test_what_json_lacks_can_be_read_and_is_then_refused(line: str) -> None:
    with pytest.raises(RolloutEnvError, match=r"^observation\.a is"):
        encode(decode(line.encode()), "observation")


@pytest.mark.parametrize("line", ['{"a":"\\ud800"}', '{"\\ud800":1}'])
def test_lone_surrogates_can_be_read_and_are_then_refused(line: str) -> None:
    with pytest.raises(RolloutEnvError, match="lone surrogate"):
        encode(decode(line), "observation")


@pytest.mark.parametrize(
    "line",
    [b"", b"hello", b'{"a":1', b"{'a':1}", b"\xff", b'{"a":1}{', b"[" * 100_000, b"9" * 5000],
    ids=["empty", "word", "cut", "quotes", "bytes", "two", "deep", "digits"],
)
def test_a_line_that_is_not_json_is_a_value_error(line: bytes) -> None:
    with pytest.raises(ValueError):
        decode(line)


@pytest.mark.parametrize(
    "number", [10**18, 10**19, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63) - 1]
)
def test_long_integers_are_read_exactly(number: int) -> None:
    assert decode(b"[%d]" % number) == [number]
    assert decode(f'{{"a":{number},"b":"{number}"}}') == {"a": number, "b": str(number)}
