from __future__ import annotations

import datetime
import enum
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_maatml.engine.candidates import CandidateReader
from pytest_maatml.errors import RolloutEnvError

UNMASKED: list[Any] = [True, None, 0, 0.0, "", "false", "no", [], {}, 1]


@dataclass
class Record:
    id: str = "a"


class Kind(enum.Enum):
    FAST = "fast"


def refusal(candidates: Any) -> RolloutEnvError:
    with pytest.raises(RolloutEnvError) as error:
        CandidateReader().read(candidates)
    assert (error.value.op, error.value.kind) == ("candidates", "protocol")
    return error.value


@pytest.mark.parametrize("valid", UNMASKED, ids=repr)
def test_only_false_masks(valid: Any) -> None:
    known = CandidateReader().read([{"id": "a", "valid": valid}, {"id": "b", "valid": False}])
    assert known.valid == (True, False)
    assert known.valid_ids == {"a"}


def test_what_a_candidate_holds_besides_is_kept_as_it_came() -> None:
    candidates = [{"z": 2**70, "id": "a", "n": -0.0, "é": [None, {"k": "\U0001f600"}]}]
    encoded = CandidateReader().read(candidates).encoded.decode()
    assert (
        encoded == '[{"z":1180591620717411303424,"id":"a","n":-0.0,"é":[null,{"k":"\U0001f600"}]}]'
    )


def test_numbers_are_taken_as_their_text_and_recorded_as_numbers() -> None:
    known = CandidateReader().read([{"id": 10}, {"id": 9}, {"id": 1.5}, {"id": 2**70}])
    assert known.ids == ("10", "9", "1.5", str(2**70))
    assert known.encoded == b'[{"id":10},{"id":9},{"id":1.5},{"id":%d}]' % 2**70


@given(names=st.lists(st.text(st.characters(exclude_categories=["Cs"])), unique=True, max_size=8))
@settings(deadline=None)
def test_order_by_id_is_the_order_of_the_text(names: list[str]) -> None:
    known = CandidateReader().read([{"id": name} for name in names])
    assert [known.ids[place] for place in known.by_id] == sorted(names)


@pytest.mark.parametrize(
    ("candidates", "what"),
    [
        (None, "must be a list, not None"),
        ({"id": "a"}, "must be a list"),
        ("ab", "must be a list, not 'ab'"),
        (7, "must be a list, not 7"),
        ([None], r"candidates\[0\] must be an object, not None"),
        ([{"id": "a"}, "b"], r"candidates\[1\] must be an object, not 'b'"),
        ([[("id", "a")]], r"candidates\[0\] must be an object"),
        ([{"id": "a"}, {"name": "b"}], r"candidates\[1\] must have an id"),
        ([{"id": None}], r"candidates\[0\] must have an id"),
        ([{"id": True}], r"candidates\[0\] must have an id"),
        ([{"id": ["a"]}], r"candidates\[0\] must have an id"),
        ([{"id": "a"}, {"id": "b"}, {"id": "a"}], "unique ids; 'a'"),
        ([{"id": "1"}, {"id": 1}], "unique ids; '1'"),
        ([{"id": "a", "x": [math.nan]}], r"^candidates\[0\]\.x\[0\] is NaN"),
        ([{"id": "a", "x": np.zeros(1)}], r"^candidates\[0\]\.x is a numpy.ndarray"),
        ([{"id": "a", "x": Kind.FAST}], r"^candidates\[0\]\.x is a .*Kind"),
        ([{"id": "a", 1: 2}], r"^candidates\[0\] has the key 1"),
        ([{"id": "\ud800"}], r"^candidates\[0\]\.id holds a lone surrogate"),
        ([{"id": 10**5000}], r"^candidates\[0\]"),
        ([Record()], r"candidates\[0\] must be an object"),
    ],
)  # fmt: skip
def test_what_breaks_the_protocol_is_refused_by_name(candidates: Any, what: str) -> None:
    assert refusal(candidates).args[0] == str(refusal(candidates))
    with pytest.raises(RolloutEnvError, match=what):
        CandidateReader().read(candidates)


@pytest.mark.parametrize(
    ("plain", "lookalike"),
    [
        ({"id": "a", "x": "2026-01-01"}, {"id": "a", "x": datetime.date(2026, 1, 1)}),
        ({"id": "a"}, Record()),
        ({"id": "a", "x": None}, {"id": "a", "x": math.nan}),
    ],
)
def test_a_set_seen_before_lets_no_lookalike_through(plain: Any, lookalike: Any) -> None:
    reader = CandidateReader()
    reader.read([plain])
    with pytest.raises(RolloutEnvError):
        reader.read([lookalike])
    assert reader.read([plain]).ids == ("a",)


def test_reading_again_gives_the_same_whether_remembered_or_not() -> None:
    reader = CandidateReader()
    sets = [[{"id": str(n)}, {"id": "b", "valid": n % 2 == 0}] for n in range(5000)]
    for _ in range(2):
        for n, candidates in enumerate(sets):
            known = reader.read(candidates)
            assert known.ids == (str(n), "b")
            assert known.valid == (True, n % 2 == 0)


def test_a_list_changed_in_place_is_read_anew() -> None:
    reader, candidates = CandidateReader(), [{"id": "a"}, {"id": "b"}]
    before = reader.read(candidates)
    candidates[0]["id"] = "c"
    assert (before.ids, reader.read(candidates).ids) == (("a", "b"), ("c", "b"))
    assert before.encoded == b'[{"id":"a"},{"id":"b"}]'
