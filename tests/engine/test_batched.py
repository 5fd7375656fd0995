"""The number of episodes in flight, and scoring in batches, change no episode."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_maatml.environments.line_world import LineWorld
from pytest_maatml.rollout import Episode, EpisodeError, StepResult
from tests.engine.scripted import NAN, Scripted, lines, run

TASKS = LineWorld().tasks({"count": 70, "seed": 11, "slack": 2})


class Walker:
    """Walks to the target, and now and then takes a liking to something else."""

    def score(self, observation: dict[str, Any], candidates: Any) -> list[float]:
        gap = observation["target"] - observation["position"]
        mood = (observation["steps"] * 7 + observation["target"]) % 5 / 3
        wanted = "finish" if gap == 0 else "right" if gap > 0 else "left"
        return [
            1.1 if c["id"] == wanted else mood if c["id"] == "jump" else 0.1 for c in candidates
        ]


class BatchedWalker(Walker):
    def score_batch(self, observations: list[Any], candidates: list[Any]) -> list[list[float]]:
        return [self.score(o, c) for o, c in zip(observations, candidates, strict=True)]


class MemoryWalker:
    def start_episode(self, episode_id: str, task: dict[str, Any]) -> Walker:
        return Walker()


@pytest.fixture(scope="module")
def alone() -> list[bytes]:
    return lines(run(LineWorld(), Walker(), TASKS, label=True, teacher_mix=0.3, seed=5))


@pytest.mark.parametrize("policy", [Walker, BatchedWalker, MemoryWalker])
@pytest.mark.parametrize("concurrency", [None, 1, 7, 64, 1000])
def test_lines_are_the_same_whatever_is_in_flight(
    policy: Any, concurrency: int | None, alone: list[bytes]
) -> None:
    together = run(
        LineWorld(), policy(), TASKS, concurrency=concurrency, label=True, teacher_mix=0.3, seed=5
    )
    assert len(alone) == 70
    assert lines(together) == alone


class Reuses(Scripted):
    """Hands out one object an episode and changes it in place, candidates too."""

    def __init__(self) -> None:
        super().__init__(length=4)
        self.held: dict[str, dict[str, Any]] = {}

    def reset(self, episode: str, task: dict[str, Any], options: dict[str, Any]) -> Any:
        super().reset(episode, task, options)
        self.held[episode] = {"me": episode, "trail": [0], "options": [{"id": "a"}, {"id": "b"}]}
        return self.held[episode]

    def candidates(self, episode: str) -> Any:
        listed = self.held[episode]["options"]
        listed[1]["n"] = self.steps[episode]
        return listed

    def step(self, episode: str, candidate_id: str) -> Any:
        result = super().step(episode, candidate_id)
        self.held[episode]["trail"].append(self.steps[episode])
        return StepResult(self.held[episode], True, result.terminal)


@pytest.mark.parametrize("concurrency", [1, 7, 64])
def test_an_environment_that_changes_what_it_handed_out_changes_no_record(concurrency: int) -> None:
    results = run(Reuses(), tasks=20, concurrency=concurrency)
    assert lines(results) == lines(run(Reuses(), tasks=20))
    for result in results:
        assert isinstance(result, Episode)
        decisions = result.as_dict()["decisions"]
        assert [d["observation"]["trail"] for d in decisions] == [
            list(range(n + 1)) for n in range(4)
        ]
        assert [d["candidates"][1]["n"] for d in decisions] == [0, 1, 2, 3]


class Numbers(Scripted):
    """Hands out subclasses of JSON's types, and what cannot be copied."""

    def __init__(self, value: Any) -> None:
        super().__init__(length=2)
        self.value = value

    def step(self, episode: str, candidate_id: str) -> Any:
        result = super().step(episode, candidate_id)
        return StepResult(self.value, True, result.terminal)


class Locked(dict[str, Any]):
    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("it holds a lock")


class Adds:
    """Adds up what it sees, which must be numbers."""

    def score(self, observation: dict[str, Any], candidates: Any) -> list[float]:
        return [float(sum(observation.values())), 0.5]

    def score_batch(self, observations: list[Any], candidates: list[Any]) -> list[list[float]]:
        return [self.score(o, c) for o, c in zip(observations, candidates, strict=True)]


@pytest.mark.parametrize(
    "value", [{"x": np.float64(0.25)}, {np.str_("x"): True}, Locked(x=1.5), {"x": 2**70}]
)
def test_what_is_no_plain_json_is_scored_alike_in_a_batch_and_alone(value: Any) -> None:
    alone = run(Numbers(value), Adds(), 3, concurrency=1)
    assert len(lines(alone)) == 3
    assert lines(run(Numbers(value), Adds(), 3, concurrency=3)) == lines(alone)


class Shares(Scripted):
    """Hands out one observation and one list of candidates for all episodes."""

    def __init__(self) -> None:
        super().__init__(length=3)
        self.shared: dict[str, Any] = {}
        self.listed: list[dict[str, Any]] = [{}, {}]

    def reset(self, episode: str, task: dict[str, Any], options: dict[str, Any]) -> Any:
        self.steps[episode] = 0
        self.shared.update(who=episode, at=0)
        return self.shared

    def candidates(self, episode: str) -> Any:
        for place, candidate in enumerate(self.listed):
            candidate["id"] = f"{episode}-{place}"
        return self.listed

    def step(self, episode: str, candidate_id: str) -> Any:
        self.steps[episode] += 1
        self.shared.update(who=episode, at=self.steps[episode])
        terminal = "success" if self.steps[episode] == 3 else None
        return StepResult(self.shared, True, terminal)


class Echo:
    """Scores by what it sees, so that its log-probabilities tell which episode that was."""

    def score(self, observation: dict[str, Any], candidates: Any) -> list[float]:
        return [float(observation["who"][-1]) + observation["at"], 0.0]

    def score_batch(self, observations: list[Any], candidates: list[Any]) -> list[list[float]]:
        return [self.score(o, c) for o, c in zip(observations, candidates, strict=True)]


@pytest.mark.parametrize("concurrency", [None, 3, 32])
def test_what_all_episodes_share_is_recorded_and_scored_as_it_was(concurrency: int | None) -> None:
    alone = lines(run(Shares(), Echo(), 6, concurrency=1))
    assert len(set(alone)) == 6
    assert lines(run(Shares(), Echo(), 6, concurrency=concurrency)) == alone


@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=12),
    failing=st.sets(st.integers(0, 11)),
    concurrency=st.integers(1, 13),
    batched=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_each_task_ends_once_as_it_does_alone(
    lengths: list[int], failing: set[int], concurrency: int, batched: bool
) -> None:
    def step(episode: str, k: int) -> StepResult:
        index = int(episode[-6:])
        seen = {"k": NAN if index in failing and k == lengths[index] else k}
        return StepResult(seen, True, "end" if k >= lengths[index] else None)

    class Even:
        def score(self, observation: dict[str, Any], candidates: Any) -> list[float]:
            return [0.0 for _ in candidates]

    class Batch(Even):
        def score_batch(self, observations: list[Any], candidates: list[Any]) -> Any:
            return [[0.0] * len(listed) for listed in candidates]

    def ended(in_flight: int, policy: Any) -> list[Any]:
        world = Scripted(step=step)
        results = run(world, policy, tasks=len(lengths), concurrency=in_flight)
        assert [op for op, _ in world.calls].count("close") == len(lengths)
        return results

    together = ended(concurrency, Batch() if batched else Even())
    assert together == ended(1, Even())
    assert [type(result) for result in together] == [
        EpisodeError if index in failing else Episode for index in range(len(lengths))
    ]
