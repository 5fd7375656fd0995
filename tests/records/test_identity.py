from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_maatml.records.identity import RunIdentity, digest_tasks
from tests.records.samples import IDENTITY

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.text(), json_values))
def test_an_identity_comes_back_from_json_the_same(options: dict[str, Any]) -> None:
    identity = replace(IDENTITY, options=options)
    back = RunIdentity.from_dict(json.loads(json.dumps(identity.as_dict())))
    assert identity.differences(back) == []
    assert identity.digest() == back.digest()


@given(st.dictionaries(st.text("a."), json_values), st.dictionaries(st.text("a."), json_values))
def test_identities_differ_where_their_digests_do(here: Any, there: Any) -> None:
    one, two = replace(IDENTITY, options=here), replace(IDENTITY, options=there)
    assert bool(one.differences(two)) == (one.digest() != two.digest())


@pytest.mark.parametrize(
    ("here", "there"), [({"x": {}}, {}), ({"a.b": 1}, {"a": {"b": 1}}), ({"a": ""}, {})]
)
def test_small_differences_count(here: Any, there: Any) -> None:
    assert replace(IDENTITY, options=here).differences(replace(IDENTITY, options=there))


def test_tuples_and_whole_numbers_are_what_json_makes_of_them() -> None:
    given_so = replace(IDENTITY, options={"sizes": (1, 2)}, teacher_mix=0)
    read_so = replace(IDENTITY, options={"sizes": [1, 2]}, teacher_mix=0.0)
    assert given_so.differences(read_so) == []
    assert given_so.digest() == read_so.digest()


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"seed": 1}, "seed: 1 there, 0 here"),
        ({"checkpoint": "run-7"}, 'checkpoint: "run-7" there, null here'),
        ({"label": True}, "label: true there, false here"),
        ({"options": {}}, "options.extra_steps: absent there, 4 here"),
        ({"options": {"extra_steps": 4.0}}, "options.extra_steps: 4.0 there, 4 here"),
        (
            {"environment": {**IDENTITY.environment, "version": "2"}},
            'environment.version: "2" there, "1" here',
        ),
    ],
)
def test_a_difference_says_what_is_there_and_what_is_here(
    changes: dict[str, Any], difference: str
) -> None:
    other = replace(IDENTITY, **changes)
    assert IDENTITY.differences(other) == [difference]
    assert IDENTITY.digest() != other.digest()


def test_true_is_not_1_in_an_option() -> None:
    flag, number = replace(IDENTITY, options={"x": True}), replace(IDENTITY, options={"x": 1})
    assert flag.differences(number) == ["options.x: 1 there, true here"]


@pytest.mark.parametrize("record", [None, [], {}, {**IDENTITY.as_dict(), "more": 1}])
def test_what_is_not_an_identity_is_refused(record: Any) -> None:
    with pytest.raises(ValueError, match="not the identity of a run"):
        RunIdentity.from_dict(record)


def test_the_digest_of_tasks_knows_their_order_and_not_the_order_of_keys() -> None:
    one, two = {"id": "a", "size": 2**80}, {"id": "b"}
    assert digest_tasks([one, two]) == digest_tasks([{"size": 2**80, "id": "a"}, two])
    assert digest_tasks([one, two]) != digest_tasks([two, one])
    assert digest_tasks([one, two]) != digest_tasks([one])
    assert digest_tasks([]) != digest_tasks([{}])


@given(st.lists(st.dictionaries(st.text(), json_values), max_size=4))
def test_the_digest_survives_a_round_trip_through_json(tasks: list[dict[str, Any]]) -> None:
    assert digest_tasks(tasks) == digest_tasks(json.loads(json.dumps(tasks)))


@pytest.mark.parametrize("strange", [math.nan, {1: 2, "a": 3}, {1, 2}, object(), "\ud800"])
def test_a_task_that_is_not_json_has_a_digest_that_stays(strange: Any) -> None:
    assert digest_tasks([{"x": strange}]) == digest_tasks([{"x": strange}])


def test_a_task_that_holds_itself_has_a_digest() -> None:
    task: dict[str, Any] = {}
    task["me"] = task
    assert len(digest_tasks([task])) == 32
