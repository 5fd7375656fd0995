"""Gymnasium's own environments through our driver, held against a loop without it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import pytest

from pytest_maatml.environments.gymnasium import GymnasiumEnvironment
from tests.engine.scripted import episode_of, lines, run

if TYPE_CHECKING:
    from collections.abc import Sequence

CARTPOLE_SEEDS = 200


class Tabular:
    """Scores actions by a table of values over states and actions."""

    def __init__(self, values: np.ndarray[Any, Any]) -> None:
        self.values = values

    def score(self, observation: dict[str, Any], candidates: Sequence[Any]) -> list[float]:
        row = self.values[observation["observation"]]
        return [float(row[candidate["action"]]) for candidate in candidates]


class Random:
    def start_episode(self, episode_id: str, task: dict[str, Any]) -> Random:
        own = Random()
        own.rng = random.Random(task["id"])
        return own

    rng = random.Random(0)

    def score(self, observation: dict[str, Any], candidates: Sequence[Any]) -> list[float]:
        return [self.rng.random() for _ in candidates]


class Balance:
    """Pushes the cart to the side where the pole falls."""

    def score(self, observation: dict[str, Any], candidates: Sequence[Any]) -> list[float]:
        push = float(push_right(observation["observation"]))
        return [1 - push, push]


def push_right(observation: Any) -> bool:
    """A controller that leans a little to one side, and so fails on some starts."""
    _, _, angle, turn = map(float, observation)
    return angle + 0.3 * turn > 0.03


def optimal_values(env_id: str) -> np.ndarray[Any, Any]:
    """Q* by value iteration over the environment's own table of transitions (discount 0.99)."""
    table = gymnasium.make(env_id).unwrapped.P
    values = np.zeros((len(table), len(table[0])))
    while True:
        best = values.max(axis=1)
        updated = np.array(
            [
                [
                    sum(p * (reward + 0.99 * best[to] * (not done)) for p, to, reward, done in ways)
                    for ways in table[at].values()
                ]
                for at in range(len(table))
            ]
        )
        if np.abs(updated - values).max() < 1e-9:
            return updated
        values = updated


def tasks(env_id: str, count: int) -> list[dict[str, Any]]:
    return GymnasiumEnvironment().tasks({"families": {env_id: count}, "seed": 1})


def outcomes(results: Any) -> list[dict[str, Any]]:
    return [episode_of(result)["outcome"] for result in results]


def test_an_optimal_policy_for_taxi_succeeds_each_time_within_the_masks() -> None:
    taxi = tasks("Taxi-v4", 100)
    records = [
        episode_of(result)
        for result in run(GymnasiumEnvironment(), Tabular(optimal_values("Taxi-v4")), taxi)
    ]
    assert all(record["outcome"]["success"] for record in records)
    decisions = [decision for record in records for decision in record["decisions"]]
    assert any(not candidate["valid"] for d in decisions for candidate in d["candidates"])
    for decision in decisions:
        chosen = next(c for c in decision["candidates"] if c["id"] == decision["chosen"])
        assert chosen["valid"]
        assert decision["applied"]


def test_a_random_policy_for_taxi_does_not() -> None:
    verdicts = outcomes(run(GymnasiumEnvironment(), Random(), tasks("Taxi-v4", 20)))
    assert sum(verdict["success"] for verdict in verdicts) < 10
    assert {verdict["status"] for verdict in verdicts if not verdict["success"]} == {"truncated"}


def test_cartpole_gives_the_returns_of_a_plain_loop_episode_by_episode() -> None:
    cartpole = tasks("CartPole-v1", CARTPOLE_SEEDS)
    verdicts = outcomes(run(GymnasiumEnvironment(), Balance(), cartpole, max_decisions=500))
    env = gymnasium.make("CartPole-v1")
    expected = []
    for task in cartpole:
        observation, _ = env.reset(seed=task["seed"])
        total, over = 0.0, False
        while not over:
            observation, reward, terminated, truncated, _ = env.step(int(push_right(observation)))
            total += float(reward)
            over = terminated or truncated
        expected.append((total, terminated, truncated))
    got = [(v["reward"], v["detail"]["terminated"], v["detail"]["truncated"]) for v in verdicts]
    assert got == expected
    assert [v["success"] for v in verdicts] == [total >= 475 for total, *_ in expected]
    assert {total >= 475 for total, *_ in expected} == {True, False}


def test_slippery_frozen_lake_is_reproducible_by_its_seeds() -> None:
    lake = tasks("FrozenLake-v1", 30)
    policy = Tabular(optimal_values("FrozenLake-v1"))
    once, again = (lines(run(GymnasiumEnvironment(), policy, lake)) for _ in range(2))
    assert once == again
    assert len({line.split(b'"decisions"')[1] for line in once}) > 15
    assert {
        verdict["success"] for verdict in outcomes(run(GymnasiumEnvironment(), policy, lake))
    } == {
        True,
        False,
    }


@pytest.mark.parametrize("env_id", ["Taxi-v4", "FrozenLake-v1", "Blackjack-v1"])
def test_one_and_32_in_flight_give_the_same_bytes(env_id: str) -> None:
    listed = tasks(env_id, 64)
    one = lines(run(GymnasiumEnvironment(), Random(), listed))
    many = lines(run(GymnasiumEnvironment(), Random(), listed, concurrency=32))
    assert len(one) == 64
    assert one == many
