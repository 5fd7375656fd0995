from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from pytest_maatml.rollout import EpisodeError, StepResult
from tests.engine.scripted import (
    NAN,
    SECOND,
    Fixed,
    Scripted,
    lines,
    only_second_failed,
    run,
)

CONCURRENCIES = pytest.mark.parametrize("concurrency", [1, 3])


def named(length: int = 2) -> Scripted:
    """Its observations name their episode."""

    def step(episode: str, k: int) -> StepResult:
        return StepResult({"me": episode, "k": k}, True, "end" if k >= length else None)

    return Scripted(reset=lambda episode, _: {"me": episode}, step=step)


class Batched(Fixed):
    """Scores many at once and counts how many at a time."""

    def __init__(self, rows: Any = None) -> None:
        super().__init__()
        self.rows = rows
        self.sizes: list[int] = []
        self.single = 0

    def score(self, observation: dict[str, Any], candidates: Any) -> Any:
        self.single += 1
        return super().score(observation, candidates)

    def score_batch(self, observations: list[Any], candidates: list[Any]) -> Any:
        assert len(observations) == len(candidates)
        self.sizes.append(len(observations))
        if self.rows is not None:
            return self.rows(observations, candidates)
        return [Fixed().score(o, c) for o, c in zip(observations, candidates, strict=True)]


def test_all_that_wait_are_scored_in_one_call() -> None:
    policy = Batched()
    run(Scripted(length=3), policy, tasks=8, concurrency=8)
    assert policy.sizes == [8, 8, 8]
    assert policy.single == 0


def test_each_observation_comes_with_its_own_candidates() -> None:
    def rows(observations: list[Any], candidates: list[Any]) -> Any:
        for observation, listed in zip(observations, candidates, strict=True):
            assert listed[0]["of"] == observation["me"]
        return [[1.0, 0.0] for _ in observations]

    world = named()
    world.answers["candidates"] = lambda episode, _: [{"id": "a", "of": episode}, {"id": "b"}]
    results = run(world, Batched(rows), tasks=6, concurrency=6)
    assert len(lines(results)) == 6


def test_rows_may_be_an_array() -> None:
    policy = Batched(lambda observations, _: np.zeros((len(observations), 2)))
    assert lines(run(Scripted(), policy, tasks=4, concurrency=4)) == lines(
        run(Scripted(), Fixed([0.0, 0.0]), tasks=4)
    )


def test_where_the_batch_raises_each_is_scored_by_itself() -> None:
    def rows(observations: list[Any], candidates: list[Any]) -> Any:
        raise RuntimeError("out of memory")

    policy = Batched(rows)
    assert lines(run(Scripted(), policy, tasks=4, concurrency=4)) == lines(run(Scripted(), tasks=4))
    assert policy.single == 8


def test_the_error_behind_a_failed_batch_lands_on_its_own_episode() -> None:
    class OneBad(Batched):
        def score(self, observation: dict[str, Any], candidates: Any) -> Any:
            if observation["me"] == SECOND:
                raise ZeroDivisionError("bad seat")
            return super().score(observation, candidates)

        def score_batch(self, observations: list[Any], candidates: list[Any]) -> Any:
            return [self.score(o, c) for o, c in zip(observations, candidates, strict=True)]

    error = only_second_failed(run(named(), OneBad(), tasks=3, seed=9, concurrency=3))
    assert error.message.startswith("task t1, seed 9, decision 0, score: the policy raised ZeroDiv")
    assert error.kind == "policy"


@pytest.mark.parametrize("row", [[1.0], [1.0, NAN], [math.inf, 1.0], None, 3.0])
def test_a_bad_row_is_the_error_of_its_own_episode(row: Any) -> None:
    def rows(observations: list[Any], candidates: list[Any]) -> Any:
        return [row if o["me"] == SECOND else [1.0, 0.0] for o in observations]

    error = only_second_failed(run(named(), Batched(rows), tasks=3, concurrency=3))
    assert (error.kind, error.decision) == ("policy", 0)


@pytest.mark.parametrize("count", [0, 2, 4])
def test_a_wrong_number_of_rows_is_a_policy_error(count: int) -> None:
    policy = Batched(lambda *_: [[1.0, 0.0]] * count)
    world = Scripted()
    results = run(world, policy, tasks=3, concurrency=3)
    for result in results:
        assert isinstance(result, EpisodeError)
        assert (result.op, result.kind, result.decision) == ("score_batch", "policy", 0)
        assert f"score_batch gave {count} rows for 3 observations" in result.message
    assert world.count("close") == 1


class Remembers:
    """Has a memory of its own for each episode, in which it counts."""

    def __init__(self, *, refuse: str = "", without_score: str = "") -> None:
        self.refuse = refuse
        self.without_score = without_score
        self.started: list[tuple[str, Any]] = []
        self.seen: dict[str, list[Any]] = {}

    def start_episode(self, episode_id: str, task: dict[str, Any]) -> Any:
        self.started.append((episode_id, dict(task)))
        if episode_id == self.refuse:
            raise LookupError("no memory left")
        if episode_id == self.without_score:
            return object()
        mine = self.seen[episode_id] = []

        class Memory(Fixed):
            def score(self, observation: dict[str, Any], candidates: Any) -> Any:
                mine.append(observation)
                return [float(len(mine) % 2), 0.5]

        return Memory()


@CONCURRENCIES
def test_a_policy_with_memory_is_started_before_reset_and_scores_that_episode_only(
    concurrency: int,
) -> None:
    policy, world = Remembers(), named(length=3)
    order: list[str] = []
    started = policy.start_episode

    def start(episode_id: str, task: dict[str, Any]) -> Any:
        order.append(f"start {episode_id}")
        return started(episode_id, task)

    policy.start_episode = start  # type: ignore[method-assign]
    world.answers["reset"] = lambda e, _: order.append(f"reset {e}") or {"me": e}  # type: ignore[func-returns-value]
    results = run(world, policy, tasks=3, concurrency=concurrency)
    assert len(lines(results)) == 3
    assert policy.started == [
        (f"rollout-r0-00000{n}", {"id": f"t{n}", "family": "f"}) for n in range(3)
    ]
    for episode, seen in policy.seen.items():
        assert order.index(f"start {episode}") < order.index(f"reset {episode}")
        assert [observation["me"] for observation in seen] == [episode] * 3
    assert world.chosen.count("a") == 6  # the first and third of each


@CONCURRENCIES
def test_a_memory_that_cannot_start_is_the_error_of_its_episode(concurrency: int) -> None:
    world = named()
    error = only_second_failed(
        run(world, Remembers(refuse=SECOND), tasks=3, seed=5, concurrency=concurrency)
    )
    assert (error.op, error.kind) == ("start_episode", "policy")
    assert error.message.startswith("task t1, seed 5, start_episode: the policy raised LookupError")
    assert world.count("reset") == 0


@CONCURRENCIES
def test_a_memory_that_cannot_score_is_the_error_of_its_episode(concurrency: int) -> None:
    results = run(named(), Remembers(without_score=SECOND), tasks=3, concurrency=concurrency)
    error = only_second_failed(results)
    assert error.kind == "policy"
    assert "needs a method score" in error.message


def test_a_policy_with_memory_is_not_asked_in_batches() -> None:
    asked = []

    class Both(Remembers):
        def score_batch(self, observations: list[Any], candidates: list[Any]) -> Any:
            asked.append(observations)
            return [[0.0, 0.0] for _ in observations]

    assert len(lines(run(named(), Both(), tasks=4, concurrency=4))) == 4
    assert asked == []
