from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from pytest_maatml.engine.candidates import read_candidates
from pytest_maatml.engine.policy import choose, select
from pytest_maatml.errors import PolicyError

peer: Any = importlib.import_module("maatml.rollout")

FINITE = st.floats(-1e6, 1e6)
#: Few values, so that ties are common.
TIED = st.sampled_from([-1.0, 0.0, -0.0, 1.0])


@st.composite
def scored(draw: st.DrawFn, score: st.SearchStrategy[float] = FINITE | TIED) -> Any:
    """Candidates, at least one of which is not masked, and their scores."""
    names = draw(st.lists(st.text("abAB19é", min_size=1, max_size=3), unique=True, min_size=1))
    candidates: list[dict[str, Any]] = [{"id": name} for name in names]
    for candidate in candidates[1:]:
        candidate |= draw(st.sampled_from([{}, {"valid": True}, {"valid": False}, {"valid": None}]))
    return draw(st.permutations(candidates)), draw(
        st.lists(score, min_size=len(names), max_size=len(names))
    )


def best(candidates: list[dict[str, str]], scores: list[float]) -> str:
    """The definition, word for word: the highest score, and of these the smaller id."""
    top = max(scores)
    return min(c["id"] for c, score in zip(candidates, scores, strict=True) if score == top)


@given(case=scored())
@settings(max_examples=200, deadline=None)
def test_the_best_unmasked_is_chosen_and_ties_go_to_the_smaller_id(case: Any) -> None:
    candidates, scores = case
    free = [(c, s) for c, s in zip(candidates, scores, strict=True) if c.get("valid") is not False]
    expected = best([c for c, _ in free], [s for _, s in free])
    assert choose(read_candidates(candidates), scores).chosen == expected
    assert select(candidates, scores) == expected
    assert peer.select(candidates, scores) == expected


@given(case=scored())
@settings(max_examples=200, deadline=None)
def test_top_valid_says_whether_the_first_choice_was_unmasked(case: Any) -> None:
    candidates, scores = case
    first = best(candidates, scores)
    masked = {c["id"] for c in candidates if c.get("valid") is False}
    assert choose(read_candidates(candidates), scores).top_valid is (first not in masked)


@given(case=scored())
@settings(max_examples=200, deadline=None)
def test_logp_is_log_softmax_over_all_candidates(case: Any) -> None:
    candidates, scores = case
    logp = orjson.loads(choose(read_candidates(candidates), scores).logp)
    assert logp == pytest.approx(special.log_softmax(scores).tolist(), rel=1e-12, abs=1e-12)
    assert math.fsum(map(math.exp, logp)) == pytest.approx(1, abs=1e-9)


def test_a_tie_with_a_masked_candidate_goes_by_id() -> None:
    masked_first = read_candidates([{"id": "b"}, {"id": "a", "valid": False}])
    choice = choose(masked_first, [1.0, 1.0])
    assert (choice.chosen, choice.top_valid) == ("b", False)
    masked_second = read_candidates([{"id": "a"}, {"id": "b", "valid": False}])
    choice = choose(masked_second, [1.0, 1.0])
    assert (choice.chosen, choice.top_valid) == ("a", True)


def test_ids_are_compared_as_text() -> None:
    candidates = [{"id": 9}, {"id": 10}]
    assert choose(read_candidates(candidates), [0.0, 0.0]).chosen == "10"
    assert select(candidates, [0.0, 0.0]) == peer.select(candidates, [0.0, 0.0]) == "10"


def test_select_gives_none_where_all_are_masked() -> None:
    candidates = [{"id": "a", "valid": False}]
    assert select(candidates, [1.0]) is None
    assert peer.select(candidates, [1.0]) is None


def test_scores_far_apart_but_finite_overflow_nothing() -> None:
    two = read_candidates([{"id": "a"}, {"id": "b"}])
    assert orjson.loads(choose(two, [1e300, 0.0]).logp) == [0.0, -1e300]
    assert orjson.loads(choose(two, [1e308, -5e307]).logp) == [0.0, -1.5e308]


class Cell:
    """A number that can change, as a tensor's element can."""

    def __init__(self, value: float) -> None:
        self.value = float(value)

    def __float__(self) -> float:
        return self.value


@pytest.mark.parametrize(
    "scores",
    [
        [0, 2, 1],
        (0.0, 2.0, 1.0),
        np.array([0.0, 2.0, 1.0]),
        np.array([0, 2, 1], dtype=np.float32),
        [np.float64(0), np.float32(2), np.int64(1)],
        [np.array(0.0), np.array(2.0), np.array(1.0)],
        [Cell(0), Cell(2), Cell(1)],
        (float(n) for n in (0, 2, 1)),
    ],
    ids=["ints", "tuple", "array", "float32", "numpy", "zero-dimensional", "cells", "generator"],
)
def test_scores_may_be_any_numbers_in_a_row(scores: Any) -> None:
    choice = choose(read_candidates([{"id": name} for name in "abc"]), scores)
    assert choice.chosen == "b"
    logp = orjson.loads(choice.logp)
    assert logp == pytest.approx(special.log_softmax([0, 2, 1]).tolist(), abs=1e-12)


def test_scores_changed_in_place_are_read_anew() -> None:
    candidates, cells = read_candidates([{"id": "a"}, {"id": "b"}]), [Cell(1), Cell(0)]
    assert choose(candidates, cells).chosen == "a"
    cells[1].value = 2.0
    assert choose(candidates, cells).chosen == "b"


def test_many_different_scores_stay_apart() -> None:
    candidates = read_candidates([{"id": "a"}, {"id": "b"}])
    for _ in range(2):
        for n in range(1000):
            expected = [float(n), 499.5]
            choice = choose(candidates, list(expected))
            assert choice.chosen == ("a" if n > 499 else "b")
            logp = orjson.loads(choice.logp)
            assert logp == pytest.approx(special.log_softmax(expected).tolist(), abs=1e-12)


@pytest.mark.parametrize(
    ("scores", "what"),
    [
        ([], "0 scores for 2 candidates"),
        ([1.0], "1 scores? for 2 candidates"),
        ([1.0, 2.0, 3.0], "3 scores for 2 candidates"),
        ([1.0, math.nan], "candidate 'b' is nan"),
        ([math.nan, 1.0], "candidate 'a' is nan"),
        ([math.nan, math.nan], "candidate 'a' is nan"),
        ([1.0, math.inf], "candidate 'b' is inf"),
        ([-math.inf, 1.0], "candidate 'a' is -inf"),
        ([math.inf, -math.inf], "candidate 'a' is inf"),
        ([1e308, -1e308], "so far apart .*candidate 'b'"),
        ([-1.7e308, 1.7e308], "so far apart .*candidate 'a'"),
        (None, "one number a candidate, not None"),
        ("12", "one number a candidate, not .*str is not a number"),
        (["1", "2"], "str is not a number"),
        (3.0, "one number a candidate, not 3.0"),
        (["x", "y"], "one number a candidate"),
        ([None, 1.0], "one number a candidate"),
        ([[1.0], [2.0]], "one number a candidate"),
        ([10**400, 0], "one number a candidate"),
        ([1j, 0], "one number a candidate"),
        ({"a": 0.1, "b": 0.9}, "one number a candidate"),
        ({0: 0.9, 1: 0.1}, "one number a candidate"),
        ({"0": 0.9, "1": 0.1}, "one number a candidate"),
        ({0.1, 0.9}, "one number a candidate"),
    ],
)
def test_scores_that_no_choice_can_be_made_from_are_refused(scores: Any, what: str) -> None:
    for candidates in ([{"id": "a"}, {"id": "b"}], [{"id": "a"}, {"id": "b", "valid": False}]):
        known = read_candidates(candidates)
        for _ in range(2):
            with pytest.raises(PolicyError, match=what) as error:
                choose(known, scores)
            assert (error.value.op, error.value.kind) == ("score", "policy")


@pytest.mark.parametrize("scores", [[1.0], [1.0, math.nan], [math.inf, 1.0]])
def test_select_refuses_what_the_peer_refuses(scores: list[float]) -> None:
    candidates = [{"id": "a"}, {"id": "b"}]
    with pytest.raises(peer.RolloutEnvError):
        peer.select(candidates, scores)
    with pytest.raises(PolicyError):
        select(candidates, scores)
