from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_maatml.engine.config import RolloutConfig
from pytest_maatml.engine.driver import drive, plan_episode
from pytest_maatml.engine.record import Episode, EpisodeError
from pytest_maatml.engine.stdio import StdioEnvironment
from pytest_maatml.errors import RolloutEnvError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PROGRAM = Path(__file__).parent / "misbehaving" / "program.py"
CONFIG = RolloutConfig(label=True)


class Up:
    def score(
        self, observation: dict[str, Any], candidates: Sequence[dict[str, Any]]
    ) -> list[float]:
        return [1.0 if candidate["id"] == "up" else 0.0 for candidate in candidates]


@pytest.fixture(autouse=True)
def groups(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The process groups that were started; each must be empty when the test ends."""
    started: list[int] = []

    class Recorded(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            started.append(self.pid)

    monkeypatch.setattr("pytest_maatml.engine.child.subprocess.Popen", Recorded)
    yield started
    monkeypatch.undo()
    assert started
    assert living(started) == []


def living(groups: Sequence[int]) -> list[str]:
    """The processes of these groups that `ps` shows, but for those that wait to be reaped."""
    for _ in range(20):
        table = subprocess.run(
            ["ps", "-A", "-o", "pgid=,stat=,args="], capture_output=True, text=True, check=True
        )
        rows = [line.split(None, 2) for line in table.stdout.splitlines()]
        left = [" ".join(row) for row in rows if int(row[0]) in groups and row[1][0] != "Z"]
        if not left:
            break
        time.sleep(0.02)  # SIGKILL takes effect a moment later
    return left


def program(habit: str, *poisoned: str, **options: Any) -> StdioEnvironment:
    command = [sys.executable, "-S", str(PROGRAM), habit, *poisoned]
    return StdioEnvironment(command, **{"timeout": 1.0, "grace": 0.2, **options})


def run(
    environment: StdioEnvironment,
    *,
    count: int = 12,
    concurrency: int = 6,
    policy: Up | None = None,
) -> tuple[dict[str, Episode], dict[str, EpisodeError]]:
    tasks = [{"id": f"t{index}", "family": "f"} for index in range(count)]
    plans = (plan_episode(task, index, CONFIG) for index, task in enumerate(tasks))
    with environment:
        ended = list(
            drive(environment, policy or Up(), plans, config=CONFIG, concurrency=concurrency)
        )
    episodes = {end.task_id: end for end in ended if isinstance(end, Episode)}
    errors = {end.task_id: end for end in ended if isinstance(end, EpisodeError)}
    assert len(episodes) + len(errors) == count == len(ended)
    return episodes, errors


FATAL = [
    ("hang", "timeout", "no reply within 1 s"),
    ("exit", "exited", "exited with status 3"),
    ("crash", "exited", "was ended by signal SIGSEGV"),
    ("close-output", "exited", "closed its output"),
    ("not-an-object", "protocol", "not an object with ok true or false: '[1, 2]'"),
    ("no-ok", "protocol", "the reply has no 'ok': '{\"observation\": {\"count\": 1}}'"),
    ("lacks-a-field", "protocol", "the reply has no 'observation'"),
    ("debug-line", "protocol", "the reply is not JSON: 'DEBUG: stepping"),
    ("half-a-line", "exited", 'its last line has no end: \'{"ok": true, "obser\''),
    ("half-a-line-and-hang", "timeout", 'its last line has no end: \'{"ok": true, "obser\''),
    ("not-utf8", "protocol", "the reply is not JSON"),
    ("child-keeps-output", "exited", "exited with status 4"),
    ("ignores-everything", "timeout", "no reply within 1 s"),
]


@pytest.mark.parametrize("concurrency", [1, 6])
@pytest.mark.parametrize(("habit", "kind", "message"), FATAL)
def test_one_bad_task_costs_one_error(
    habit: str, kind: str, message: str, concurrency: int
) -> None:
    episodes, errors = run(program(habit, "t4"), concurrency=concurrency)
    assert list(errors) == ["t4"]
    error = errors["t4"]
    assert (error.op, error.decision, error.kind) == ("step", 0, kind)
    assert message in error.message
    assert error.message.startswith("task t4, decision 0, step: ")
    assert all(episode.success and episode.decisions == 3 for episode in episodes.values())


def test_the_offending_line_is_cut_at_200_characters() -> None:
    _, errors = run(program("debug-line", "t4"))
    line = "DEBUG: stepping, and saying so at length " + "x" * 300
    assert repr(line[:200]) in errors["t4"].message
    assert line[:201] not in errors["t4"].message


def test_the_error_carries_the_last_lines_of_stderr() -> None:
    _, errors = run(program("exit", "t4"))
    assert errors["t4"].stderr[-1] == "about to give up"


@pytest.mark.parametrize("concurrency", [1, 6])
def test_a_refusal_is_the_error_of_its_own_episode_and_the_program_lives_on(
    concurrency: int, groups: list[int]
) -> None:
    episodes, errors = run(program("refuse", "t4", "t7"), concurrency=concurrency)
    assert {name: error.kind for name, error in errors.items()} == {
        "t4": "environment",
        "t7": "environment",
    }
    assert errors["t7"].message == "task t7, decision 0, step: no such move"
    assert len(episodes) == 10
    assert len(groups) == 2  # the program and the guard


@pytest.mark.parametrize("concurrency", [1, 6])
def test_three_bad_tasks_cost_three_errors_and_three_restarts(
    concurrency: int, groups: list[int]
) -> None:
    _, errors = run(program("exit", "t2", "t5", "t8"), concurrency=concurrency)
    assert sorted(errors) == ["t2", "t5", "t8"]
    assert len(groups) == 5  # four starts and the guard


@pytest.mark.parametrize("habit", ["hang", "exit"])
def test_episodes_that_wait_for_their_scores_begin_again_too(habit: str) -> None:
    class Batched(Up):
        def score_batch(self, observations: Any, candidates: Any) -> list[list[float]]:
            return [self.score(*pair) for pair in zip(observations, candidates, strict=True)]

    episodes, errors = run(program(habit, "t4"), concurrency=6, policy=Batched())
    assert list(errors) == ["t4"]
    assert all(episode.success and episode.decisions == 3 for episode in episodes.values())


def test_past_the_restarts_the_rest_are_errors_that_say_so(groups: list[int]) -> None:
    episodes, errors = run(program("exit", "t2", "t3", "t4", restarts=1), count=40, concurrency=1)
    assert sorted(episodes) == ["t0", "t1"]
    assert "exited with status 3" in errors["t3"].message
    assert "failed 2 times" not in errors["t3"].message
    for task in ("t4", "t39"):
        assert "the environment program failed 2 times" in errors[task].message
        assert "at most 1 restarts" in errors[task].message
    assert len(groups) == 3


def test_with_many_in_flight_the_last_failure_ends_all_of_them() -> None:
    episodes, errors = run(program("hang", "t1", restarts=0), count=40, concurrency=8)
    assert len(errors) == 40 - len(episodes)
    assert errors["t1"].message.endswith("no reply within 1 s")
    assert "it is not started again" in errors["t39"].message


def test_a_bad_task_in_one_process_of_a_pool_leaves_the_others_alone(groups: list[int]) -> None:
    episodes, errors = run(program("hang", "t4", processes=3), concurrency=6)
    assert list(errors) == ["t4"]
    assert len(episodes) == 11
    assert len(groups) == 5


def test_a_pool_keeps_going_when_one_of_its_processes_is_spent() -> None:
    # Whether another episode of that process ends before a second death is a matter of luck, so
    # there is one death only.
    episodes, errors = run(program("exit", "t1", processes=3, restarts=0), concurrency=6)
    assert sorted(errors) == ["t1", "t10", "t4", "t7"]
    assert len(episodes) == 8


@pytest.mark.parametrize("habit", ["stderr-flood", "huge", "crlf-and-blanks"])
@pytest.mark.parametrize("concurrency", [1, 6])
def test_what_is_unusual_but_right_costs_nothing(
    habit: str, concurrency: int, capsys: pytest.CaptureFixture[str]
) -> None:
    episodes, errors = run(program(habit, "t4", timeout=10.0), concurrency=concurrency)
    assert errors == {}
    assert len(episodes) == 12


def test_a_reply_that_nobody_asked_for_is_the_error_of_the_one_that_was_answered() -> None:
    episodes, errors = run(program("twice", "t4"), concurrency=1)
    assert list(errors) == ["t4"]
    assert errors["t4"].kind == "protocol"
    assert len(episodes) == 11


@pytest.mark.parametrize("habit", ["twice", "debug-line-after"])
def test_with_many_in_flight_it_may_hit_another_once_and_then_its_own(habit: str) -> None:
    episodes, errors = run(program(habit, "t4"), concurrency=6)
    assert "t4" in errors
    assert len(errors) <= 2
    assert {error.kind for error in errors.values()} == {"protocol"}
    assert all(episode.success and episode.decisions == 3 for episode in episodes.values())


def test_a_request_that_waits_behind_others_is_not_late() -> None:
    # 16 in flight at 0.05 s a step: the last of them waits for 0.8 s.
    slow = program("slow", *(f"t{index}" for index in range(16)), timeout=0.6)
    episodes, errors = run(slow, count=16, concurrency=16)
    assert errors == {}
    assert len(episodes) == 16


def test_the_clock_does_not_run_while_the_policy_scores() -> None:
    class Slow(Up):
        def score(self, observation: dict[str, Any], candidates: Any) -> list[float]:
            time.sleep(1.2 if observation["count"] == 0 else 0.0)
            return super().score(observation, candidates)

    episodes, errors = run(program("none", "t0"), count=2, concurrency=2, policy=Slow())
    assert errors == {}
    assert len(episodes) == 2


@pytest.mark.parametrize("concurrency", [1, 6])
def test_a_verdict_stands_whatever_close_does(concurrency: int) -> None:
    warnings: list[str] = []
    environment = program("dies-in-close", "t4", warn=warnings.append)
    episodes, errors = run(environment, concurrency=concurrency)
    assert errors == {}
    assert len(episodes) == 12
    assert [warning.split(": ")[0] for warning in warnings] == [
        "close of episode rollout-r0-000004 failed"
    ]


def test_closing_the_iterator_closes_the_episodes_under_way() -> None:
    plans = (plan_episode({"id": f"t{index}"}, index, CONFIG) for index in range(20))
    with program("none") as environment:
        under_way = drive(environment, Up(), plans, config=CONFIG, concurrency=4)
        next(under_way)
        under_way.close()
        with pytest.raises(RolloutEnvError, match="candidates: KeyError"):
            environment.candidates("rollout-r0-000001")


def test_a_policy_that_ends_the_test_leaves_the_environment_usable() -> None:
    class Quits(Up):
        def score(self, observation: dict[str, Any], candidates: Any) -> list[float]:
            if observation["count"] == 2:
                pytest.fail("enough")
            return super().score(observation, candidates)

    with program("none") as environment:
        plans = [plan_episode({"id": f"t{index}"}, index, CONFIG) for index in range(20)]
        with pytest.raises(pytest.fail.Exception, match="enough"):
            list(drive(environment, Quits(), plans, config=CONFIG, concurrency=4))
        ended = list(drive(environment, Up(), plans, config=CONFIG, concurrency=4))
    assert len(ended) == 20
    assert all(isinstance(end, Episode) and end.success for end in ended)


def test_after_a_failure_the_program_can_be_asked_by_hand() -> None:
    plans = [plan_episode({"id": f"t{index}"}, index, CONFIG) for index in range(20)]
    with program("exit", "t1") as environment:
        under_way = drive(environment, Up(), plans, config=CONFIG, concurrency=6)
        assert isinstance(next(under_way), EpisodeError)
        assert environment.hello().name == "counting"
        assert len(list(under_way)) == 19


def test_a_banner_is_quoted() -> None:
    with program("banner") as environment, pytest.raises(RolloutEnvError) as caught:
        environment.hello()
    # It may come before or after we have asked.
    assert str(caught.value) in {
        "hello: the reply is not JSON: 'Welcome to counting 1.0'",
        "hello: the program wrote a line that nobody asked for: 'Welcome to counting 1.0'",
    }
    assert caught.value.kind == "protocol"


def test_a_program_that_ends_at_once_says_how_and_what_it_logged() -> None:
    with program("exit") as environment, pytest.raises(RolloutEnvError) as caught:
        environment.hello()
    assert "hello: the environment program exited with status 3" in str(caught.value)
    assert "about to give up" in str(caught.value)


def test_a_program_is_ended_where_its_guard_cannot_be_started(
    monkeypatch: pytest.MonkeyPatch, groups: list[int]
) -> None:
    python = sys.executable
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(RolloutEnvError) as caught:
        StdioEnvironment([python, "-S", str(PROGRAM), "hang"])
    assert "the process that guards it cannot be started: " in str(caught.value)
    assert "/no/such/python" in str(caught.value)
    assert len(groups) == 1
    assert living(groups) == []


def test_stderr_goes_where_the_tests_own_output_goes(capsys: pytest.CaptureFixture[str]) -> None:
    run(program("stderr-flood", "t4", timeout=10.0))
    assert capsys.readouterr().err.count("noise") == 3 * 20 * 20_000
