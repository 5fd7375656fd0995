"""Whoever drives may leave in the middle; the next to drive finds nothing of theirs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_maatml.engine.stdio import StdioEnvironment
from pytest_maatml.rollout import Episode, InProcess, RolloutConfig, drive, plan_episode
from tests.engine.scripted import Fixed, Scripted, episode_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CONFIG = RolloutConfig()
PROGRAM = Path(__file__).parent / "misbehaving" / "program.py"
PLANS = [plan_episode({"id": f"t{n}", "family": "f"}, n, CONFIG) for n in range(40)]


class Leaves(Fixed):
    """Raises at its twentieth call."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error
        self.calls = 0

    def score(
        self, observation: dict[str, Any], candidates: Sequence[dict[str, Any]]
    ) -> Sequence[float]:
        self.calls += 1
        if self.calls == 20:
            raise self.error
        return super().score(observation, candidates)


@pytest.fixture
def program(request: pytest.FixtureRequest) -> Iterator[StdioEnvironment]:
    words = [sys.executable, "-S", str(PROGRAM), *request.param]
    with StdioEnvironment(words, timeout=5.0, grace=0.2, restarts=1) as environment:
        yield environment


def drive_again(environment: StdioEnvironment) -> None:
    """Another round, of which each episode must be whole."""
    again = list(drive(environment, Fixed(), PLANS[20:30], config=CONFIG))
    assert sorted(end.index for end in again) == list(range(20, 30))
    for end in again:
        counts = [d["observation"]["count"] for d in episode_of(end)["decisions"]]
        assert counts == [0, 1, 2]


@pytest.mark.parametrize("program", [("good",)], indirect=True)
@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1)])
def test_an_exit_in_the_middle_leaves_nothing_to_the_next(
    program: StdioEnvironment, error: BaseException
) -> None:
    for _ in range(3):  # more often than it may be started again
        with pytest.raises(type(error)):
            list(drive(program, Leaves(error), PLANS, config=CONFIG, concurrency=8))
        drive_again(program)


@pytest.mark.parametrize("program", [("exit", "t2")], indirect=True)
@pytest.mark.parametrize("taken", [1, 2, 3])
def test_leaving_after_a_crash_leaves_nothing_to_the_next(
    program: StdioEnvironment, taken: int
) -> None:
    ended = drive(program, Fixed(), PLANS, config=CONFIG, concurrency=8)
    for _ in range(taken):
        next(ended)
    ended.close()
    drive_again(program)


class Fussy(Fixed):
    """Would have no episode but the last."""

    def start_episode(self, episode_id: str, task: dict[str, Any]) -> Fixed:
        if task["id"] != "t39":
            raise ValueError("not this one")
        return self


@pytest.mark.parametrize("program", [("good",)], indirect=True)
def test_plans_are_taken_lazily_where_the_policy_refuses_them(program: StdioEnvironment) -> None:
    for carrier in (program, InProcess(Scripted())):
        for concurrency in (1, 4):
            left = iter(PLANS)
            ended = drive(carrier, Fussy(), left, config=CONFIG, concurrency=concurrency)
            assert not isinstance(next(ended), Episode)
            ended.close()
            assert len(list(left)) > 30
