from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_maatml.errors import ConfigurationError
from pytest_maatml.gating.again import judge_again
from pytest_maatml.gating.policy import GatePolicy
from tests.gating.test_family import ended, gate, judge, outcomes, policies

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence


def as_rows(results: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    rows = [json.loads(result.line) for result in results if hasattr(result, "line")]
    return rows, [result.as_dict() for result in results if not hasattr(result, "line")]


@given(outcomes, policies, st.randoms(use_true_random=False))
def test_merged_shards_are_judged_as_one_run(
    text: str, policy: GatePolicy, chance: random.Random
) -> None:
    shard, results = gate(text, policy), ended(text)
    for result in results[::2]:
        shard.feed(result)
    record = json.loads(json.dumps(shard.finish(judged=False).as_dict()))
    chance.shuffle(results)
    rows, errors = as_rows(results)
    assert judge_again(record, rows, errors) == judge(text, policy)


@given(outcomes, policies)
def test_a_run_that_stopped_is_judged_the_same_from_the_rows_that_stayed(
    text: str, policy: GatePolicy
) -> None:
    report = judge(text, policy)
    rows, errors = as_rows([e for e in ended(text) if e.index not in report.skipped])
    assert judge_again(report.as_dict(), rows, errors) == report


def test_shards_that_are_not_the_whole_run_cannot_be_judged() -> None:
    report = judge("s" * 10, GatePolicy(rates={"default": "0.5"}))
    rows, _ = as_rows(ended("s" * 6))
    with pytest.raises(ConfigurationError, match="10 episodes, and 6 are here"):
        judge_again(report.as_dict(), rows)
