from __future__ import annotations

from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, Any

import pytest

from pytest_maatml.engine.workers import spread
from pytest_maatml.rollout import EpisodeError, RolloutConfig, RolloutEnvError, plan_episode

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_maatml.rollout import Episode

DEADLY = "deadly"


class OneProcess:
    """An executor whose process dies of deadly tasks, or as soon as it has nothing to do."""

    def __init__(self, *, dies_idle: bool = False) -> None:
        self._dies_idle = dies_idle
        self._dead = False
        self.dismissed = 0

    def submit(self, job: Callable[[list[Any]], Any], batch: list[Any]) -> Future[Any]:
        if self._dead:
            raise BrokenProcessPool("it died before")
        future: Future[Any] = Future()
        if any(plan.task_family == DEADLY for plan in batch):
            self._dead = True
            future.set_exception(BrokenProcessPool("killed"))
        else:
            future.set_result(job(batch))
            self._dead = self._dies_idle
        return future


def error_of(plan: Any) -> EpisodeError:
    """What stands for an episode that came back."""
    return EpisodeError.of(plan, RolloutEnvError("back"), seed=0)


def run(
    *families: str, executors: int = 1, dies_idle: bool = False
) -> tuple[list[Episode | EpisodeError], list[OneProcess]]:
    """What came back for a task of each family, and the executors that were made."""
    tasks = [{"id": f"t{n}", "family": family} for n, family in enumerate(families)]
    plans = [plan_episode(task, n, RolloutConfig()) for n, task in enumerate(tasks)]
    made: list[OneProcess] = []

    def make() -> Any:
        made.append(OneProcess(dies_idle=dies_idle))
        return made[-1]

    def dismiss(executor: Any) -> None:
        executor.dismissed += 1

    ended = spread(
        plans,
        executors=executors,
        make_executor=make,
        job=lambda batch: [error_of(plan) for plan in batch],
        dismiss=dismiss,
    )
    return sorted(ended, key=lambda end: end.index), made


def lost(ended: list[Episode | EpisodeError]) -> list[int]:
    return [end.index for end in ended if isinstance(end, EpisodeError) and end.kind == "exited"]


@pytest.mark.parametrize("executors", [1, 3, 20])
def test_each_episode_comes_back_once_and_each_executor_is_dismissed_once(executors: int) -> None:
    ended, made = run(*["calm"] * 12, executors=executors)
    assert [end.index for end in ended] == list(range(12))
    assert lost(ended) == []
    assert len(made) <= executors
    assert [executor.dismissed for executor in made] == [1] * len(made)


@pytest.mark.parametrize("executors", [1, 2])
def test_a_process_that_dies_costs_the_episode_that_it_was_running_alone(executors: int) -> None:
    ended, made = run(*["calm"] * 5, DEADLY, *["calm"] * 9, executors=executors)
    assert [end.index for end in ended] == list(range(15))
    assert lost(ended) == [5]
    assert [executor.dismissed for executor in made] == [1] * len(made)


def test_a_process_that_dies_between_two_batches_costs_no_episode() -> None:
    ended, made = run(*["calm"] * 9, dies_idle=True)
    assert [end.index for end in ended] == list(range(9))
    assert lost(ended) == []
    assert len(made) > 1
    assert [executor.dismissed for executor in made] == [1] * len(made)


def test_where_every_process_dies_the_rest_are_errors_soon() -> None:
    ended, made = run(*[DEADLY] * 50)
    assert lost(ended) == list(range(50))
    assert len(made) < 10
