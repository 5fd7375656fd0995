"""The environment and the policies that the benchmarks have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_maatml.rollout import Environment

QUERY = {"count": 1000, "seed": 1, "span": 50}


class Trivial:
    """Knows the way: what is measured is everything else."""

    def score(
        self, observation: dict[str, Any], candidates: Sequence[dict[str, Any]]
    ) -> list[float]:
        gap = observation["target"] - observation["position"]
        wanted = "finish" if gap == 0 else "right" if gap > 0 else "left"
        return [1.0 if candidate["id"] == wanted else 0.0 for candidate in candidates]


def bare_loop(environment: Environment, policy: Trivial, tasks: list[dict[str, Any]]) -> int:
    """Rollouts as somebody would write them by hand, recording nothing; returns the decisions."""
    decisions = 0
    for index, task in enumerate(tasks):
        episode = str(index)
        observation = environment.reset(episode, task, {})
        while True:
            candidates = environment.candidates(episode)
            scores = policy.score(observation, candidates)
            best = None
            for candidate, score in zip(candidates, scores, strict=True):
                if candidate.get("valid") is not False and (best is None or score > best[0]):
                    best = (score, candidate["id"])
            assert best is not None
            result = environment.step(episode, best[1])
            decisions += 1
            observation = result.observation
            if result.terminal is not None:
                break
        environment.verify(episode)
        environment.close(episode)
    return decisions
