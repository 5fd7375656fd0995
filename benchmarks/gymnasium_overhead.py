"""What our driver costs over a plain Gymnasium loop, on CartPole and Taxi.

Both play the same tasks with the same scripted policy, in turns so that a noisy machine hits both
alike; the plain loop masks as we do but records nothing, where we check and encode each decision.
Prints microseconds a decision and the ratio, the median of five rounds.

    python benchmarks/gymnasium_overhead.py
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

import gymnasium

from pytest_maatml.environments.gymnasium import GymnasiumEnvironment
from pytest_maatml.rollout import InProcess, RolloutConfig, drive, plan_episode

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 5
EPISODES = {"CartPole-v1": 20, "Taxi-v4": 50}


def cartpole_scores(observation: Any, actions: range) -> list[float]:
    push = float(observation[2] + 0.3 * observation[3] > 0)
    return [1.0 - push, push]


def taxi_scores(observation: Any, actions: range) -> list[float]:
    return [float((observation * 7 + action * 13) % 11) for action in actions]


SCORES: dict[str, Callable[[Any, range], list[float]]] = {
    "CartPole-v1": cartpole_scores,
    "Taxi-v4": taxi_scores,
}


class Scripted:
    def __init__(self, env_id: str) -> None:
        self._scores = SCORES[env_id]

    def score(self, observation: dict[str, Any], candidates: list[dict[str, Any]]) -> list[float]:
        return self._scores(observation["observation"], range(len(candidates)))


def play_plainly(env: Any, env_id: str, tasks: list[dict[str, Any]]) -> float:
    """The sum of all rewards."""
    scores, actions, total = SCORES[env_id], range(int(env.action_space.n)), 0.0
    for task in tasks:
        observation, info = env.reset(seed=task["seed"])
        over = False
        while not over:
            values = scores(observation, actions)
            mask = info.get("action_mask")
            allowed = actions if mask is None else [a for a in actions if mask[a]]
            action = max(allowed, key=values.__getitem__)
            observation, reward, terminated, truncated, info = env.step(action)
            total += float(reward)
            over = terminated or truncated
    return total


def play_driven(
    environment: GymnasiumEnvironment, env_id: str, tasks: list[dict[str, Any]]
) -> list[Any]:
    """The episodes."""
    config = RolloutConfig(max_decisions=500)
    plans = [plan_episode(task, index, config) for index, task in enumerate(tasks)]
    return list(drive(InProcess(environment), Scripted(env_id), plans, config=config))


def timed(play: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    start = time.perf_counter()
    result = play(*arguments)
    return time.perf_counter() - start, result


def compare(env_id: str) -> None:
    environment, env = GymnasiumEnvironment(), gymnasium.make(env_id)
    tasks = environment.tasks({"families": {env_id: EPISODES[env_id]}, "seed": 1})
    plain_times, driven_times = [], []
    for _ in range(ROUNDS):
        plain, reward = timed(play_plainly, env, env_id, tasks)
        driven, episodes = timed(play_driven, environment, env_id, tasks)
        rewards = sum(episode.as_dict()["outcome"]["reward"] for episode in episodes)
        assert rewards == reward, "the two did not play the same episodes"
        decisions = sum(episode.decisions for episode in episodes)
        plain_times.append(plain / decisions * 1e6)
        driven_times.append(driven / decisions * 1e6)
    ratio = statistics.median(d / p for d, p in zip(driven_times, plain_times, strict=True))
    print(
        f"{env_id:12} {decisions:6} decisions   plain {statistics.median(plain_times):6.1f} us   "
        f"driven {statistics.median(driven_times):6.1f} us   ratio {ratio:.2f}"
    )


if __name__ == "__main__":
    for name in EPISODES:
        compare(name)
