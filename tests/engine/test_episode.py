from __future__ import annotations

import datetime
import enum
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pytest_maatml.rollout import (
    EpisodeError,
    Labels,
    RolloutEnvError,
    StepResult,
    Verification,
)
from tests.engine.scripted import (
    NAN,
    SECOND,
    Fixed,
    Scripted,
    episode_of,
    only_second_failed,
    raising,
    run,
)

if TYPE_CHECKING:
    from tests.engine.scripted import Answer

CONCURRENCIES = pytest.mark.parametrize("concurrency", [1, 3])
AB = [{"id": "a"}, {"id": "b"}]
ABM = [*AB, {"id": "m", "valid": False}]


@dataclass
class Point:
    x: int = 1


class Colour(enum.Enum):
    RED = "red"


def only(environment: Scripted, policy: Any = None, **config: Any) -> dict[str, Any]:
    return episode_of(run(environment, policy, **config)[0])


# The rules of the rollout.


def test_an_unlabelled_episode_goes_reset_candidates_step_verify_close() -> None:
    world = Scripted(length=2)
    episode = only(world)
    assert [op for op, _ in world.calls if op != "hello"] == [
        "reset", "candidates", "step", "candidates", "step", "verify", "close",
    ]  # fmt: skip
    assert [d["observation"] for d in episode["decisions"]] == [{"at": 0}, {"at": 1}]
    assert episode["outcome"] == {
        "status": "success",
        "success": True,
        "reward": 1.0,
        "decisions": 2,
        "truncated": None,
        "detail": {"n": 1},
    }


def test_a_labelled_episode_asks_for_a_label_in_every_state() -> None:
    world = Scripted(length=3)
    episode = only(world, label=True)
    assert world.count("label", "rollout-r0-000000") == 3
    assert [d["teacher_valid"] for d in episode["decisions"]] == [["b"]] * 3


def test_without_labels_teacher_valid_is_null() -> None:
    assert [d["teacher_valid"] for d in only(Scripted())["decisions"]] == [None, None]


def test_the_verdict_is_the_environments_whatever_the_steps_said() -> None:
    failed = Verification(False, "wrong_finish", 0.25, {"why": ["x"]})
    outcome = only(Scripted(verify=lambda *_: failed))["outcome"]
    assert (outcome["success"], outcome["status"]) == (False, "wrong_finish")
    assert (outcome["reward"], outcome["detail"]) == (0.25, {"why": ["x"]})


@pytest.mark.parametrize("terminal", ["success", "gave_up", ""])
def test_any_text_in_terminal_ends_the_episode(terminal: str) -> None:
    end = StepResult({}, True, terminal, 0.0)
    assert len(only(Scripted(length=9, step=lambda *_: end))["decisions"]) == 1


def test_a_masked_first_choice_is_passed_over_and_recorded() -> None:
    world = Scripted(length=1, candidates=lambda *_: [{"id": "a", "valid": False}, {"id": "b"}])
    decision = only(world)["decisions"][0]
    assert (decision["chosen"], decision["policy_choice"], decision["top_valid"]) == (
        "b",
        "b",
        False,
    )
    assert decision["candidates"] == [{"id": "a", "valid": False}, {"id": "b"}]
    assert len(decision["logp"]) == 2


@pytest.mark.parametrize("valid", [None, 0, "", [], True, 0.0])
def test_what_is_not_false_masks_nothing(valid: Any) -> None:
    world = Scripted(length=1, candidates=lambda *_: [{"id": "a", "valid": valid}, {"id": "b"}])
    decision = only(world)["decisions"][0]
    assert (decision["chosen"], decision["top_valid"]) == ("a", True)


def test_the_teacher_takes_its_first_id_and_the_policys_choice_is_kept() -> None:
    world = Scripted(length=1, label=lambda *_: Labels(("b", "a")))
    decision = only(world, label=True, teacher_mix=1.0)["decisions"][0]
    assert (decision["chosen"], decision["actor"]) == ("b", "teacher")
    assert decision["policy_choice"] == "a"
    assert decision["teacher_valid"] == ["b", "a"]
    assert world.chosen == ["b"]


def test_where_the_policy_acts_its_choice_is_what_was_chosen() -> None:
    for decision in only(Scripted(length=5), label=True)["decisions"]:
        assert (decision["actor"], decision["chosen"], decision["policy_choice"]) == (
            "policy", "a", "a",
        )  # fmt: skip


@pytest.mark.parametrize("ids", [(), []])
def test_a_teacher_that_accepts_nothing_does_not_act_and_cuts_nothing(ids: Any) -> None:
    episode = only(Scripted(label=lambda *_: Labels(ids)), label=True, teacher_mix=1.0)
    assert episode["outcome"]["truncated"] is None
    assert [(d["actor"], d["teacher_valid"]) for d in episode["decisions"]] == [("policy", [])] * 2


@pytest.mark.parametrize("limit", [1, 4])
def test_an_episode_is_cut_at_max_decisions_and_verified(limit: int) -> None:
    world = Scripted(length=100)
    episode = only(world, max_decisions=limit)
    assert episode["outcome"]["truncated"] == "max_decisions"
    assert episode["outcome"]["decisions"] == len(episode["decisions"]) == limit
    assert world.count("candidates", "rollout-r0-000000") == limit
    assert world.count("verify", "rollout-r0-000000") == 1


def test_an_end_at_the_last_allowed_decision_is_no_cut() -> None:
    assert only(Scripted(length=3), max_decisions=3)["outcome"]["truncated"] is None


@pytest.mark.parametrize("empty", [[], ()])
def test_no_candidates_cuts_and_the_teacher_is_not_heard(empty: Any) -> None:
    def label(episode: str, k: int) -> Labels:
        if k == 1:
            raise OSError("nothing to label")
        return Labels(("a",))

    world = Scripted(candidates=lambda _, k: AB if k < 1 else empty, label=label)
    episode = only(world, label=True)
    assert episode["outcome"]["truncated"] == "no_candidates"
    assert episode["outcome"]["decisions"] == 1


def test_no_valid_candidate_cuts() -> None:
    masked = [{"id": "a", "valid": False}]
    episode = only(Scripted(candidates=lambda *_: masked))
    assert (episode["outcome"]["truncated"], episode["decisions"]) == ("no_valid_candidate", [])


@pytest.mark.parametrize(
    ("reason", "why"),
    [("off_path", "off_path"), ("é\U0001f600", "é\U0001f600"), (None, "unknown"), ("", "unknown")],
)
def test_a_state_without_label_cuts_with_its_reason(reason: Any, why: str) -> None:
    world = Scripted(label=lambda _, k: Labels(("a",)) if k < 1 else Labels(None, reason))
    episode = only(world, label=True)
    assert episode["outcome"]["truncated"] == f"unlabelled:{why}"
    assert len(episode["decisions"]) == 1
    assert world.count("verify", "rollout-r0-000000") == 1


def test_with_stop_unlabelled_false_the_policy_goes_on_alone() -> None:
    world = Scripted(length=3, label=lambda *_: Labels(None, "off_path"))
    episode = only(world, label=True, teacher_mix=1.0, stop_unlabelled=False)
    assert episode["outcome"]["truncated"] is None
    assert [(d["actor"], d["teacher_valid"]) for d in episode["decisions"]] == [
        ("policy", None)
    ] * 3


def test_a_cut_episode_is_success_if_the_environment_says_so() -> None:
    assert only(Scripted(length=100), max_decisions=1)["outcome"]["success"] is True


# Lenience.


def test_ids_may_be_numbers_and_are_taken_as_text() -> None:
    world = Scripted(
        length=1,
        candidates=lambda *_: [{"id": 10}, {"id": 9}],
        label=lambda *_: Labels((9,)),  # type: ignore[arg-type]
    )
    decision = only(world, Fixed([0, 0]), label=True)["decisions"][0]
    assert (decision["chosen"], decision["teacher_valid"]) == ("10", ["9"])
    assert decision["candidates"] == [{"id": 10}, {"id": 9}]
    assert world.chosen == ["10"]


def test_reward_defaults_to_zero_and_detail_to_an_empty_object() -> None:
    world = Scripted(
        length=1,
        step=lambda *_: StepResult({}, True, "end", None),  # type: ignore[arg-type]
        verify=lambda *_: Verification(True, None, None, None),  # type: ignore[arg-type]
    )
    episode = only(world)
    assert json.dumps(episode["decisions"][0]["reward"]) == "0.0"
    assert episode["outcome"]["reward"] == 0
    assert (episode["outcome"]["detail"], episode["outcome"]["status"]) == ({}, "")


def test_a_reward_may_be_an_integer_and_a_float_is_kept_to_the_last_bit() -> None:
    rewards = [3, 5e-324, -0.0, 0.1 + 0.2, np.float64(0.7)]
    world = Scripted(
        length=5, step=lambda _, k: StepResult({}, True, "end" if k == 5 else None, rewards[k - 1])
    )
    recorded = [repr(d["reward"]) for d in only(world)["decisions"]]
    assert recorded == ["3.0", "5e-324", "-0.0", "0.30000000000000004", "0.7"]


def test_applied_is_recorded_as_it_was() -> None:
    world = Scripted(length=2, step=lambda _, k: StepResult({}, k == 2, "end" if k == 2 else None))
    assert [d["applied"] for d in only(world)["decisions"]] == [False, True]


def test_anything_json_passes_through_unchanged() -> None:
    odd = {"z": 2**70, "a": (1, [None]), "é\U0001f600": "\u2028", "f": [-0.0, 5e-324], "n": {}}
    kept = {**odd, "a": [1, [None]]}
    world = Scripted(
        length=2,
        reset=lambda *_: odd,
        candidates=lambda *_: ({"id": "a", **odd}, {"id": "b"}),
        step=lambda _, k: StepResult(odd, True, "end" if k == 2 else None),
        verify=lambda *_: Verification(True, "é", 0.0, odd),
    )
    episode = episode_of(run(world, tasks=[{"id": "t", **odd}])[0])
    for part in (
        episode["task"],
        episode["outcome"]["detail"],
        *(d["observation"] for d in episode["decisions"]),
        *(d["candidates"][0] for d in episode["decisions"]),
    ):
        assert repr({key: part[key] for key in part if key != "id"}) == repr(kept)


def test_what_changes_in_place_later_is_recorded_as_it_was() -> None:
    seen: dict[str, Any] = {"path": [0]}
    listed: list[dict[str, Any]] = [{"id": "a"}, {"id": "b", "n": 0}]

    def step(episode: str, k: int) -> StepResult:
        seen["path"].append(k)
        listed[1]["n"] = k
        return StepResult(seen, True, "end" if k == 3 else None)

    world = Scripted(reset=lambda *_: seen, candidates=lambda *_: listed, step=step)
    decisions = only(world)["decisions"]
    assert [d["observation"]["path"] for d in decisions] == [[0], [0, 1], [0, 1, 2]]
    assert [d["candidates"][1]["n"] for d in decisions] == [0, 1, 2]


def test_the_task_is_recorded_as_it_was_before_reset() -> None:
    class Consumes(Scripted):
        def reset(self, episode: str, task: dict[str, Any], options: dict[str, Any]) -> Any:
            task.clear()
            return super().reset(episode, task, options)

    episode = episode_of(run(Consumes(), tasks=[{"id": "t", "family": "f", "x": 1}])[0])
    assert episode["task"] == {"id": "t", "family": "f", "x": 1}


def test_options_reach_every_reset_alike_even_if_one_takes_them_apart() -> None:
    received = []

    class Consumes(Scripted):
        def reset(self, episode: str, task: dict[str, Any], options: dict[str, Any]) -> Any:
            received.append(options.pop("extra_steps", None))
            return super().reset(episode, task, options)

    run(Consumes(), tasks=3, options={"extra_steps": 4})
    assert received == [4, 4, 4]


# Strictness: each breach is an error of its own episode, and the others go on.


def failing_in_second(op: str, answer: Answer, decision: int) -> Scripted:
    """Two decisions an episode; `op` has this answer at one decision of the second of three."""

    def twisted(episode: str, k: int) -> Any:
        steps_before = k - 1 if op == "step" else k
        if episode == SECOND and steps_before == decision:
            return answer(episode, k)
        return {
            "reset": {"at": 0},
            "candidates": AB,
            "label": Labels(("b",)),
            "step": StepResult({"at": k}, True, "end" if k == 2 else None),
            "verify": Verification(True, "success"),
        }[op]

    answers: dict[str, Any] = {"candidates": lambda *_: ABM, op: twisted}
    return Scripted(**answers)


BREACHES: list[tuple[str, Any, int, str]] = [
    ("reset", None, 0, "the observation must be an object, not None"),
    ("reset", [1], 0, r"the observation must be an object, not \[1\]"),
    ("reset", "text", 0, "the observation must be an object, not 'text'"),
    ("reset", {"x": [0, NAN]}, 0, r"observation\.x\[1\] is NaN"),
    ("reset", {"x": math.inf}, 0, r"observation\.x is Infinity"),
    ("reset", {"x": -math.inf}, 0, r"observation\.x is -Infinity"),
    ("reset", {"x": "\ud800"}, 0, r"observation\.x holds a lone surrogate"),
    ("reset", {"x": np.zeros(2)}, 0, r"observation\.x is a numpy.ndarray"),
    ("reset", {"x": np.int64(2)}, 0, r"observation\.x is a numpy.int64"),
    ("reset", {"x": datetime.date(2026, 1, 1)}, 0, r"observation\.x is a datetime.date"),
    ("reset", {"x": Point()}, 0, r"observation\.x is a .*Point"),
    ("reset", {"x": Colour.RED}, 0, r"observation\.x is a .*Colour"),
    ("reset", {"x": {1: 2}}, 0, r"observation\.x has the key 1, which is not text"),
    ("candidates", None, 1, "candidates must be a list, not None"),
    ("candidates", {"id": "a"}, 1, "candidates must be a list"),
    ("candidates", ["a"], 1, r"candidates\[0\] must be an object"),
    ("candidates", [{"name": "a"}], 1, r"candidates\[0\] must have an id"),
    ("candidates", [{"id": None}], 1, r"candidates\[0\] must have an id"),
    ("candidates", [{"id": "a"}, {"id": "a"}], 1, "unique ids; 'a'"),
    ("candidates", [{"id": "a", "p": NAN}], 1, r"candidates\[0\]\.p is NaN"),
    ("candidates", [{"id": "a", "p": np.ones(1)}], 1, r"candidates\[0\]\.p is a numpy"),
    ("label", Labels(("c",)), 1, "the teacher's id 'c' is not among the candidates"),
    ("label", Labels(("b", "c")), 1, "the teacher's id 'c' is not among the candidates"),
    ("label", Labels(("m",)), 1, "the teacher's id 'm' is masked"),
    ("label", Labels("b"), 1, "valid_ids must be a list or null, not 'b'"),  # type: ignore[arg-type]
    ("label", Labels({"b": 1}), 1, "valid_ids must be a list or null"),  # type: ignore[arg-type]
    ("label", Labels((None,)), 1, "valid_ids must hold ids, not None"),  # type: ignore[arg-type]
    ("label", Labels((True,)), 1, "valid_ids must hold ids, not True"),  # type: ignore[arg-type]
    ("label", Labels(None, 7), 1, "reason must be text or null, not 7"),  # type: ignore[arg-type]
    ("label", Labels(None, "\ud800"), 1, "reason holds a lone surrogate"),
    ("label", None, 1, "not None"),
    ("label", ["b"], 1, r"not \['b'\]"),
    ("step", StepResult(None, True), 1, "the observation must be an object, not None"),  # type: ignore[arg-type]
    ("step", StepResult([1], True), 1, "the observation must be an object"),  # type: ignore[arg-type]
    ("step", StepResult({}, 1), 1, "applied must be true or false, not 1"),  # type: ignore[arg-type]
    ("step", StepResult({}, None), 1, "applied must be true or false, not None"),  # type: ignore[arg-type]
    ("step", StepResult({}, "yes"), 1, "applied must be true or false, not 'yes'"),  # type: ignore[arg-type]
    ("step", StepResult({}, True, False), 1, "terminal must be null or text, not False"),  # type: ignore[arg-type]
    ("step", StepResult({}, True, 1), 1, "terminal must be null or text, not 1"),  # type: ignore[arg-type]
    ("step", StepResult({}, True, None, NAN), 1, "reward must be a finite number, not nan"),
    ("step", StepResult({}, True, None, math.inf), 1, "reward must be a finite number, not inf"),
    ("step", StepResult({}, True, None, "1"), 1, "reward must be a finite number, not '1'"),  # type: ignore[arg-type]
    ("step", StepResult({}, True, None, True), 1, "reward must be a finite number, not True"),
    ("step", StepResult({}, True, None, 10**400), 1, "reward must be a finite number"),
    ("step", StepResult({"x": NAN}, True), 1, r"observation\.x is NaN"),
    ("step", StepResult({"x": np.zeros(1)}, True), 1, r"observation\.x is a numpy"),
    ("step", StepResult({"x": Colour.RED}, True), 1, r"observation\.x is a .*Colour"),
    ("step", StepResult({"x": Point()}, True), 1, r"observation\.x is a .*Point"),
    ("step", StepResult({"\ud800": 1}, True), 1, "lone surrogate"),
    ("step", None, 1, "not None"),
    ("step", ({}, True, None, 0.0), 1, "not \\("),
    ("verify", Verification(1, "x"), 2, "success must be true or false, not 1"),  # type: ignore[arg-type]
    ("verify", Verification(None, "x"), 2, "success must be true or false, not None"),  # type: ignore[arg-type]
    ("verify", Verification("true", "x"), 2, "success must be true or false, not 'true'"),  # type: ignore[arg-type]
    ("verify", Verification(np.True_, "x"), 2, "success must be true or false"),  # type: ignore[arg-type]
    ("verify", Verification(True, 7), 2, "status must be text, not 7"),  # type: ignore[arg-type]
    ("verify", Verification(True, "\ud800"), 2, "status holds a lone surrogate"),
    ("verify", Verification(True, "x", NAN), 2, "reward must be a finite number, not nan"),
    ("verify", Verification(True, "x", 0.0, [1]), 2, r"detail must be an object, not \[1\]"),  # type: ignore[arg-type]
    ("verify", Verification(True, "x", 0.0, {"d": [NAN]}), 2, r"detail\.d\[0\] is NaN"),
    ("verify", Verification(True, "x", 0.0, {"d": Colour.RED}), 2, r"detail\.d is a .*Colour"),
    ("verify", None, 2, "not None"),
    ("verify", True, 2, "not True"),
    ("verify", {"success": True}, 2, "not {"),
]  # fmt: skip


@CONCURRENCIES
@pytest.mark.parametrize(
    ("op", "answer", "decision", "what"), BREACHES, ids=[f"{b[0]}-{b[3]}" for b in BREACHES]
)
def test_a_breach_of_the_protocol_is_the_error_of_its_episode_alone(
    op: str, answer: Any, decision: int, what: str, concurrency: int
) -> None:
    world = failing_in_second(op, lambda *_: answer, decision)
    error = only_second_failed(run(world, tasks=3, label=True, concurrency=concurrency))
    assert (error.op, error.decision, error.kind) == (op, decision, "protocol")
    assert error.message.startswith("task t1, ")
    assert f"decision {decision}" in error.message
    assert op in error.message
    with pytest.raises(RolloutEnvError, match=what):
        raise RolloutEnvError(error.message)
    assert world.count("close") == 1
    error.message.encode()


@CONCURRENCIES
@pytest.mark.parametrize(
    ("op", "decision"),
    [("reset", 0), ("candidates", 1), ("label", 1), ("step", 1), ("verify", 2)],
)
@pytest.mark.parametrize(
    ("error", "what"),
    [
        (RolloutEnvError("the map is gone"), "the map is gone"),
        (KeyError("seat"), "the environment raised KeyError: 'seat'"),
        (ValueError(), "the environment raised ValueError"),
        (RecursionError("deep"), "the environment raised RecursionError: deep"),
    ],
    ids=["ours", "key", "empty", "recursion"],
)
def test_what_the_environment_raises_is_the_error_of_its_episode_alone(
    op: str, decision: int, error: Exception, what: str, concurrency: int
) -> None:
    world = failing_in_second(op, raising(error), decision)
    found = only_second_failed(run(world, tasks=3, label=True, concurrency=concurrency))
    assert (found.op, found.decision, found.kind) == (op, decision, "environment")
    assert found.message.startswith(f"task t1, decision {decision}, {op}: {what}")
    assert world.count("close") == 1


@CONCURRENCIES
@pytest.mark.parametrize(
    ("task", "what"),
    [
        ({"id": "t1", "x": NAN}, r"task\.x is NaN"),
        ({"id": "t1", "x": np.zeros(1)}, r"task\.x is a numpy.ndarray"),
        ({"id": "t1", "x": Colour.RED}, r"task\.x is a .*Colour"),
        ({"id": "t1", 5: 1}, "task has the key 5"),
        ({"id": "t1", "x": "\ud800"}, r"task\.x holds a lone surrogate"),
    ],
)
def test_a_task_that_is_not_json_is_the_error_of_its_episode_alone(
    task: Any, what: str, concurrency: int
) -> None:
    world = Scripted()
    error = only_second_failed(run(world, tasks=[{"id": "t0"}, task, {"id": "t2"}],
                                   concurrency=concurrency))  # fmt: skip
    assert (error.op, error.kind, error.task_id) == ("tasks", "protocol", "t1")
    with pytest.raises(RolloutEnvError, match=what):
        raise RolloutEnvError(error.message)


class Twisted(Fixed):
    """Answers as it is told in the second episode's decision 1, known by its observation."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer

    def score(self, observation: dict[str, Any], candidates: Any) -> Any:
        if observation.get("twist"):
            return self.answer() if callable(self.answer) else self.answer
        return super().score(observation, candidates)


def twist(episode: str, k: int) -> StepResult:
    return StepResult({"twist": episode == SECOND}, True, "end" if k == 2 else None)


def fall() -> Any:
    raise ZeroDivisionError("division by zero")


@CONCURRENCIES
@pytest.mark.parametrize(
    ("answer", "what"),
    [
        ([1.0], "1 scores? for 2 candidates"),
        ([1.0, NAN], "candidate 'b' is nan"),
        ([math.inf, 0.0], "candidate 'a' is inf"),
        ([0.0, -math.inf], "candidate 'b' is -inf"),
        ([1e308, -1e308], "so far apart .*candidate 'b'"),
        (None, "one number a candidate, not None"),
        (fall, "the policy raised ZeroDivisionError: division by zero"),
    ],
)
def test_a_policy_error_names_task_seed_decision_and_candidate(
    answer: Any, what: str, concurrency: int
) -> None:
    world = Scripted(step=twist)
    results = run(world, Twisted(answer), tasks=3, seed=42, concurrency=concurrency)
    error = only_second_failed(results)
    assert (error.op, error.decision, error.kind) == ("score", 1, "policy")
    assert error.message.startswith("task t1, seed 42, decision 1, score: ")
    with pytest.raises(RolloutEnvError, match=what):
        raise RolloutEnvError(error.message)
    assert world.count("close") == 1
    assert world.count("verify") == 0


def test_every_episode_is_closed_once_whatever_came_of_it() -> None:
    broken = raising(OSError("x"))
    worlds = [
        Scripted(),
        Scripted(length=99),
        Scripted(candidates=lambda *_: []),
        Scripted(reset=broken),
        Scripted(step=broken),
        Scripted(verify=broken),
        Scripted(verify=lambda *_: None),
        Scripted(close=broken),
    ]
    for world in worlds:
        for concurrency in (1, 3):
            world.calls.clear()
            assert len(run(world, tasks=3, concurrency=concurrency)) == 3
            assert [world.count("close", f"rollout-r0-00000{n}") for n in range(3)] == [1, 1, 1]


def test_a_close_that_fails_never_changes_the_outcome() -> None:
    broken = run(Scripted(close=raising(OSError("stuck"))))[0]
    assert episode_of(broken) == episode_of(run(Scripted())[0])


def test_an_error_is_neither_success_nor_failure() -> None:
    error = run(Scripted(reset=raising(OSError("x"))))[0]
    assert isinstance(error, EpisodeError)
    assert not hasattr(error, "success")
