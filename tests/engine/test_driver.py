from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from pytest_maatml.errors import ConfigurationError
from pytest_maatml.rollout import (
    PROTOCOL,
    Episode,
    Hello,
    InProcess,
    Labels,
    PolicyError,
    RolloutConfig,
    RolloutEnvError,
    StepResult,
    drive,
    plan_episode,
    rollout,
)
from tests.engine.scripted import NAN, Fixed, Scripted, raising, run

if TYPE_CHECKING:
    from collections.abc import Iterator

CONFIG = RolloutConfig()


def plans(count: int) -> list[Any]:
    return [plan_episode({"id": f"t{n}"}, n, CONFIG) for n in range(count)]


def test_a_task_gives_its_plan_and_without_family_it_is_unknown() -> None:
    plan = plan_episode({"id": "line-0-1", "family": "far", "x": 1}, 7, CONFIG)
    assert (plan.task_id, plan.task_family) == ("line-0-1", "far")
    assert plan.task == {"id": "line-0-1", "family": "far", "x": 1}
    for task in ({"id": "t"}, {"id": "t", "family": None}, {"id": "t", "family": ""}):
        assert plan_episode(task, 0, CONFIG).task_family == "unknown"
    numbered = plan_episode({"id": 12, "family": 3}, 0, CONFIG)
    assert (numbered.task_id, numbered.task_family) == ("12", "3")


@pytest.mark.parametrize("task", [None, "t", 3, ["id"]])
def test_a_task_that_is_no_object_is_refused_with_its_place(task: Any) -> None:
    with pytest.raises(RolloutEnvError, match=r"tasks\[5\] must be an object, not") as error:
        plan_episode(task, 5, CONFIG)
    assert (error.value.op, error.value.kind) == ("tasks", "protocol")


@pytest.mark.parametrize(
    ("hello", "what"),
    [
        (Hello("x", "1", protocol="maatml.rollout_env/2"), f"'maatml.rollout_env/2'.*'{PROTOCOL}'"),
        (Hello("x", "1", protocol=""), PROTOCOL),
        (Hello("", "1"), "hello must give a name, not ''"),
        (Hello(cast("str", None), "1"), "hello must give a name, not None"),
        (None, "not None"),
        ({"name": "x", "protocol": PROTOCOL}, "not {"),
        (Hello("mute", "1", capabilities=None), "capabilities as a list, not None"),  # type: ignore[arg-type]
        (Hello("mute", "1", capabilities="label"), "capabilities as a list, not 'label'"),  # type: ignore[arg-type]
    ],
)
def test_a_bad_hello_is_refused_before_anything_runs(hello: Any, what: str) -> None:
    world = Scripted(hello=lambda *_: hello)
    for start in (
        lambda: drive(InProcess(world), Fixed(), plans(1), config=CONFIG),
        lambda: rollout(world, Fixed(), [{"id": "t"}]),
    ):
        with pytest.raises(RolloutEnvError, match=what) as error:
            start()
        assert (error.value.op, error.value.kind) == ("hello", "protocol")
    assert {op for op, _ in world.calls} == {"hello"}


def test_labels_of_an_environment_without_a_teacher_are_refused_at_once() -> None:
    mute = Scripted(hello=lambda *_: Hello("mute", "1", capabilities=("tasks",)))
    labelled = RolloutConfig(label=True)
    with pytest.raises(RolloutEnvError, match="'mute' cannot label states") as error:
        rollout(mute, Fixed(), [], config=labelled)
    assert error.value.op == "hello"
    with pytest.raises(RolloutEnvError, match="'mute' cannot label states"):
        drive(InProcess(mute), Fixed(), [], config=labelled)
    assert len(run(mute, tasks=2)) == 2


def test_a_hello_that_raises_is_an_error_of_the_environment() -> None:
    with pytest.raises(RolloutEnvError, match="the environment raised OSError: no") as error:
        rollout(Scripted(hello=raising(OSError("no"))), Fixed(), [])
    assert error.value.op == "hello"


@pytest.mark.parametrize("policy", [object(), None, type("P", (), {"score": 3})()])
def test_a_policy_that_cannot_score_is_refused_before_anything_runs(policy: Any) -> None:
    world = Scripted()
    for start in (
        lambda: drive(InProcess(world), policy, plans(1), config=CONFIG),
        lambda: rollout(world, policy, [{"id": "t"}]),
    ):
        with pytest.raises(PolicyError, match=r"needs a method score\(observation, candidates\)"):
            start()
    assert {op for op, _ in world.calls} <= {"hello"}


@pytest.mark.parametrize("concurrency", [0, -1])
def test_no_episodes_in_flight_are_refused(concurrency: int) -> None:
    with pytest.raises(ConfigurationError, match="concurrency must be at least 1"):
        drive(InProcess(Scripted()), Fixed(), plans(1), config=CONFIG, concurrency=concurrency)


def test_a_known_hello_is_not_asked_again() -> None:
    world = Scripted()
    list(drive(InProcess(world), Fixed(), plans(1), config=CONFIG, hello=Hello("given", "3")))
    assert ("hello", "") not in world.calls


def test_no_tasks_give_no_episodes() -> None:
    assert run(Scripted(), tasks=0) == []
    assert run(Scripted(), tasks=0, concurrency=5) == []
    assert list(rollout(Scripted(), Fixed(), [])) == []


class Open(Scripted):
    """Counts the episodes that are open, and how many there ever were at once."""

    def __init__(self, lengths: dict[str, int] | None = None, **answers: Any) -> None:
        super().__init__(**answers)
        self.open: list[str] = []
        self.most = 0
        self.lengths = lengths or {}

    def reset(self, episode: str, task: dict[str, Any], options: dict[str, Any]) -> Any:
        self.open.append(episode)
        self.most = max(self.most, len(self.open))
        return super().reset(episode, task, options)

    def step(self, episode: str, candidate_id: str) -> Any:
        self.length = self.lengths.get(episode, 2)
        return super().step(episode, candidate_id)

    def close(self, episode: str) -> None:
        super().close(episode)
        self.open.remove(episode)


@pytest.mark.parametrize("concurrency", [1, 2, 7, 64])
def test_no_more_episodes_are_open_than_were_allowed(concurrency: int) -> None:
    world = Open()
    assert len(run(world, tasks=20, concurrency=concurrency)) == 20
    assert world.most == min(concurrency, 20)
    assert world.open == []


@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("taken", [1, 2, 5])
def test_closing_the_iterator_early_closes_every_open_episode(concurrency: int, taken: int) -> None:
    world = Open(lengths={f"rollout-r0-{n:06d}": 1 + 3 * (n % 4) for n in range(50)})
    ended = drive(InProcess(world), Fixed(), plans(50), config=CONFIG, concurrency=concurrency)
    for _ in range(taken):
        next(ended)
    assert len(world.open) >= (concurrency > 1)
    ended.close()
    assert world.open == []
    started = [episode for op, episode in world.calls if op == "reset"]
    assert len(started) < 20
    assert [world.count("close", episode) for episode in started] == [1] * len(started)


def test_a_free_slot_takes_the_next_task_at_once() -> None:
    # One long episode holds its slot while all the others pass through the second.
    world = Open(lengths={"rollout-r0-000000": 200})
    ended = [
        e.index for e in drive(InProcess(world), Fixed(), plans(20), config=CONFIG, concurrency=2)
    ]
    assert ended == [*range(1, 20), 0]
    resets = [place for place, (op, _) in enumerate(world.calls) if op == "reset"]
    closes = [place for place, (op, _) in enumerate(world.calls) if op == "close"]
    # Between an end and the next beginning the long one makes at most a turn of two requests.
    for close, reset in zip(closes[:18], resets[2:], strict=True):
        assert 0 < reset - close <= 3


def test_tasks_are_taken_lazily() -> None:
    taken = []

    def endless() -> Iterator[Any]:
        n = 0
        while True:
            taken.append(n)
            yield plan_episode({"id": f"t{n}"}, n, CONFIG)
            n += 1

    for concurrency in (1, 3):
        taken.clear()
        ended = drive(
            InProcess(Scripted()), Fixed(), endless(), config=CONFIG, concurrency=concurrency
        )
        next(ended)
        ended.close()
        assert len(taken) <= 2 * concurrency + 1


def test_an_error_takes_its_slot_from_nobody() -> None:
    world = Scripted(reset=raising(OSError("x")))
    results = run(world, tasks=9, concurrency=3)
    assert [result.index for result in results] == list(range(9))
    assert not any(isinstance(result, Episode) for result in results)


# rollout: the same, lazily, in task order, raising on the first error.


def test_rollout_gives_dicts_in_task_order_one_at_a_time() -> None:
    world = Scripted()
    episodes = rollout(world, Fixed(), ({"id": f"t{n}", "family": "f"} for n in range(4)))
    assert world.count("reset", "rollout-r0-000000") == 0
    first = next(episodes)
    assert type(first) is dict
    assert (first["task_id"], first["outcome"]["success"]) == ("t0", True)
    assert world.count("reset") == 0
    assert [episode["task_id"] for episode in episodes] == ["t1", "t2", "t3"]


def test_rollout_gives_what_drive_gives() -> None:
    driven: Any = run(Scripted(), tasks=3, label=True, teacher_mix=0.5)
    config = RolloutConfig(label=True, teacher_mix=0.5)
    tasks = [{"id": f"t{n}", "family": "f"} for n in range(3)]
    assert list(rollout(Scripted(), Fixed(), tasks, config=config)) == [e.as_dict() for e in driven]


def test_rollout_raises_the_first_error_and_closes_its_episode() -> None:
    world = Scripted(step=lambda *_: StepResult({"x": NAN}, True))
    episodes = rollout(world, Fixed(), [{"id": "t0"}, {"id": "t1"}])
    with pytest.raises(RolloutEnvError, match=r"observation\.x is NaN") as error:
        next(episodes)
    assert (error.value.op, error.value.decision, error.value.kind) == ("step", 0, "protocol")
    assert world.count("close", "rollout-r0-000000") == 1
    assert world.count("reset", "rollout-r0-000001") == 0


def test_rollout_raises_a_policy_error_if_the_policy_is_to_blame() -> None:
    episodes = rollout(Scripted(), Fixed([1.0]), [{"id": "t0"}], config=RolloutConfig(seed=42))
    where = "^task t0, seed 42, decision 0, score: "
    with pytest.raises(PolicyError, match=where + "1 scores? for 2 candidates"):
        next(episodes)


def test_what_rollout_raises_says_where_it_happened() -> None:
    world = Scripted(label=raising(OSError("teacher asleep")))
    with pytest.raises(RolloutEnvError) as raised:
        next(rollout(world, Fixed(), [{"id": "t0"}], config=RolloutConfig(label=True)))
    error: Any = run(Scripted(label=raising(OSError("teacher asleep"))), label=True)[0]
    assert str(raised.value) == error.message
    assert str(raised.value).startswith("task t0, decision 0, label: ")


def test_rollout_keeps_labels_that_are_numbers() -> None:
    world = Scripted(
        candidates=lambda *_: [{"id": 1}], label=lambda *_: Labels(cast("tuple[str]", (1,)))
    )
    episode = next(rollout(world, Fixed(), [{"id": "t"}], config=RolloutConfig(label=True)))
    assert episode["decisions"][0]["teacher_valid"] == ["1"]


@pytest.mark.parametrize("concurrency", [1, 3])
def test_an_interrupt_closes_what_is_open(concurrency: int) -> None:
    def step(*_: object) -> StepResult:
        raise KeyboardInterrupt

    world = Scripted(step=step)
    with pytest.raises(KeyboardInterrupt):
        list(drive(InProcess(world), Fixed(), plans(3), config=CONFIG, concurrency=concurrency))
    opened = [episode for op, episode in world.calls if op == "reset"]
    assert [episode for op, episode in world.calls if op == "close"] == opened
    assert len(opened) == concurrency
