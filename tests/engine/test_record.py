from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_maatml.rollout import (
    EPISODE_KIND,
    EpisodeError,
    PolicyError,
    RolloutConfig,
    RolloutEnvError,
    plan_episode,
)
from tests.engine.scripted import Scripted, episode_of, lines, raising, run

EPISODE_FIELDS = [
    "kind", "episode_id", "task_id", "task_family", "task", "source", "policy_version", "round",
    "environment", "decisions", "outcome",
]  # fmt: skip
DECISION_FIELDS = {
    "observation", "candidates", "chosen", "actor", "logp", "top_valid", "teacher_valid",
    "applied", "reward", "policy_choice",
}  # fmt: skip
OUTCOME_FIELDS = {"status", "success", "reward", "decisions", "truncated", "detail"}


def test_an_episode_has_the_fields_of_the_contract_and_no_others() -> None:
    episode = episode_of(run(Scripted(), label=True)[0])
    assert list(episode) == EPISODE_FIELDS
    assert set(episode["decisions"][0]) == DECISION_FIELDS
    assert set(episode["outcome"]) == OUTCOME_FIELDS


def test_provenance_comes_from_the_configuration_and_the_hello() -> None:
    episode = episode_of(run(Scripted(), source="dagger", round=3, policy_version="walker@2")[0])
    assert episode["kind"] == EPISODE_KIND == "maatml.rollout_episode/1"
    assert (episode["source"], episode["round"]) == ("dagger", 3)
    assert episode["policy_version"] == "walker@2"
    assert episode["environment"] == {
        "name": "scripted", "version": "7", "protocol": "maatml.rollout_env/1",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("index", "episode_id"),
    [(0, "dagger-r2-000000"), (41, "dagger-r2-000041"), (1234567, "dagger-r2-1234567")],
)
def test_the_id_is_source_round_and_index_in_six_digits(index: int, episode_id: str) -> None:
    plan = plan_episode({"id": "t"}, index, RolloutConfig(source="dagger", round=2))
    assert (plan.episode_id, plan.index) == (episode_id, index)


def test_two_runs_give_the_same_bytes() -> None:
    first, second = (lines(run(Scripted(), tasks=5, label=True)) for _ in range(2))
    assert first == second
    assert len(first) == 5
    assert all(b"\n" not in line for line in first)


def test_the_episode_says_of_itself_what_its_record_says() -> None:
    result: Any = run(Scripted(length=9), tasks=2, max_decisions=3)[1]
    record = result.as_dict()
    assert (result.index, result.episode_id) == (1, record["episode_id"])
    assert (result.task_id, result.task_family) == (record["task_id"], record["task_family"])
    assert (result.success, result.status) == (
        record["outcome"]["success"], record["outcome"]["status"],
    )  # fmt: skip
    assert result.truncated == record["outcome"]["truncated"] == "max_decisions"
    assert result.decisions == len(record["decisions"]) == 3
    assert result.last_action == record["decisions"][-1]["chosen"] == "a"
    assert json.loads(result.line) == record


def test_an_episode_without_decisions_has_no_last_action() -> None:
    result: Any = run(Scripted(candidates=lambda *_: []))[0]
    assert (result.last_action, result.decisions) == (None, 0)


def test_an_error_has_the_fields_of_the_contract() -> None:
    error = run(Scripted(step=raising(OSError("no seat"))))[0]
    assert isinstance(error, EpisodeError)
    assert error.as_dict() == {
        "episode_id": "rollout-r0-000000",
        "task_id": "t0",
        "task_family": "f",
        "op": "step",
        "decision": 0,
        "kind": "environment",
        "message": error.message,
        "stderr": [],
    }
    assert "OSError: no seat" in error.message


def test_an_error_keeps_the_tail_of_the_environments_log() -> None:
    fault = RolloutEnvError("gone", op="step", kind="exit", stderr=["one", "two"])
    plan = plan_episode({"id": "t9", "family": "far"}, 4, RolloutConfig())
    error = EpisodeError.of(plan, fault, seed=1)
    assert error.as_dict()["stderr"] == ["one", "two"]
    assert (error.index, error.kind, error.decision) == (4, "exit", None)
    assert error.message == "task t9, step: gone"


def test_only_the_policys_errors_name_the_seed() -> None:
    plan = plan_episode({"id": "t9"}, 4, RolloutConfig())
    fault = PolicyError("2 scores for 3 candidates")
    fault.decision = 0
    assert "seed 17" in EpisodeError.of(plan, fault, seed=17).message
    assert "seed" not in EpisodeError.of(plan, RolloutEnvError("gone"), seed=17).message
