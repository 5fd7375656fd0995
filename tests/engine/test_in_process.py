from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from pytest_maatml.errors import MaatmlError
from pytest_maatml.rollout import (
    Environment,
    InProcess,
    Labels,
    RolloutConfig,
    RolloutEnvError,
    drive,
    plan_episode,
    rollout,
)
from tests.engine.scripted import Fixed, Scripted, episode_of, raising, run


def drive_one(environment: Any, **carrier: Any) -> Any:
    config = RolloutConfig()
    (result,) = drive(
        InProcess(environment, **carrier),
        Fixed(),
        [plan_episode({"id": "t0"}, 0, config)],
        config=config,
    )
    return result


def test_a_plain_object_with_the_eight_methods_is_an_environment() -> None:
    assert isinstance(Scripted(), Environment)
    assert not isinstance(Fixed(), Environment)


def test_a_close_that_fails_after_the_verdict_is_a_warning() -> None:
    warnings: list[str] = []
    result = drive_one(Scripted(close=raising(OSError("stuck"))), warn=warnings.append)
    assert episode_of(result)["outcome"]["success"] is True
    assert len(warnings) == 1
    assert warnings[0].startswith("close of episode rollout-r0-000000 failed: OSError: stuck")


def test_a_close_that_fails_after_a_fault_hides_nothing() -> None:
    warnings: list[str] = []
    world = Scripted(step=raising(ValueError("first")), close=raising(OSError("second")))
    error = drive_one(world, warn=warnings.append)
    assert (error.op, error.kind) == ("step", "environment")
    assert "ValueError: first" in error.message
    assert "second" not in error.message


def test_a_fault_keeps_what_the_environment_said_of_it() -> None:
    told = RolloutEnvError("timed out", op="label", kind="timeout", stderr=["last words"])
    error = drive_one(Scripted(step=raising(told)))
    assert (error.op, error.kind, error.stderr) == ("label", "timeout", ("last words",))
    assert told.decision is None


def test_one_exception_raised_for_many_episodes_is_not_shared_between_their_errors() -> None:
    told = RolloutEnvError("no such map")

    def candidates(episode: str, k: int) -> Any:
        if k == int(episode[-1]):
            raise told
        return [{"id": "a"}]

    results: Any = run(Scripted(length=9, candidates=candidates), tasks=3, concurrency=3)
    assert [error.decision for error in results] == [0, 1, 2]


def test_what_is_raised_names_where_in_the_environment_it_was_raised() -> None:
    error = drive_one(Scripted(step=lambda *_: 1 / 0))
    assert "ZeroDivisionError" in error.message
    assert "test_in_process.py:" in error.message


def test_of_what_a_library_raises_the_users_own_line_is_named() -> None:
    error = drive_one(Scripted(step=lambda *_: json.loads("{")))
    assert "JSONDecodeError" in error.message
    assert "test_in_process.py:" in error.message


@pytest.mark.parametrize("op", ["hello", "tasks"])
def test_faults_outside_an_episode_name_their_op(op: str) -> None:
    answers: dict[str, Any] = {op: raising(KeyError("x"))}
    carrier = InProcess(Scripted(**answers))
    with pytest.raises(MaatmlError, match="the environment raised KeyError: 'x'") as error:
        carrier.hello() if op == "hello" else carrier.tasks({})
    assert isinstance(error.value, RolloutEnvError)
    assert error.value.op == op


def test_tasks_come_through_as_the_environment_gave_them() -> None:
    tasks = [{"id": 1, "z": 2**70}, {"id": "b"}]
    assert InProcess(Scripted(tasks=lambda *_: tasks)).tasks({"count": 2}) == tasks


def test_the_label_is_not_asked_for_unless_wanted() -> None:
    world = Scripted(label=raising(AssertionError("not wanted")))
    assert len(list(rollout(world, Fixed(), [{"id": "t"}]))) == 1


def test_what_interrupts_the_run_is_not_an_episodes_error() -> None:
    with pytest.raises(KeyboardInterrupt):
        run(Scripted(step=raising(KeyboardInterrupt())))
    with pytest.raises(SystemExit):
        run(Scripted(label=raising(SystemExit(3))), label=True)


def test_candidates_whose_truth_cannot_be_told_are_an_error_of_the_environment() -> None:
    error = drive_one(Scripted(candidates=lambda *_: np.zeros(2), label=lambda *_: Labels(())))
    assert error.op == "candidates"


def test_shutting_down_leaves_the_environment_alone() -> None:
    world = Scripted()
    carrier = InProcess(world)
    carrier.shutdown()
    carrier.shutdown()
    assert world.calls == []
    assert carrier.hello().name == "scripted"
