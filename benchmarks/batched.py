"""A numpy policy of two hidden layers, scored for all waiting episodes in one call.

    python benchmarks/batched.py

The observation holds 64 numbers; the layers have 256 units. In process, against the peer's driver
on the same policy, which it can only ask for one episode at a time. BLAS has one thread for both.
"""

from __future__ import annotations

import itertools
import os
import random
from functools import partial
from typing import TYPE_CHECKING, Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before numpy reads it

import maatml.rollout as peer
import numpy as np
from interleaved import in_new_folder, rates, report, timed, write

from pytest_maatml.engine.record import Episode
from pytest_maatml.rollout import (
    Hello,
    InProcess,
    Labels,
    RolloutConfig,
    StepResult,
    Verification,
    drive,
    plan_episode,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

EPISODES, STEPS, NUMBERS, UNITS = 200, 20, 64, 256
CANDIDATES = [{"id": name} for name in "abcd"]
OURS, PEER = "our driver, score_batch", "the peer's driver, score"


class Drift:
    """Walks of a fixed length over 64 numbers, which are drawn before: the policy is what costs."""

    def __init__(self) -> None:
        chance = random.Random(0)
        self._seen = [[chance.random() for _ in range(NUMBERS)] for _ in range(997)]
        self._walks: dict[str, int] = {}

    def hello(self) -> Hello:
        return Hello("drift", "1", capabilities=("tasks",))

    def tasks(self, query: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"id": str(index), "family": "drift"} for index in range(query["count"])]

    def reset(self, episode: str, task: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
        self._walks[episode] = 0
        return self._observe(episode)

    def candidates(self, episode: str) -> list[dict[str, Any]]:
        return CANDIDATES

    def label(self, episode: str) -> Labels:
        return Labels(None)

    def step(self, episode: str, candidate_id: str) -> StepResult:
        steps = self._walks[episode] = self._walks[episode] + 1
        ended = "success" if steps == STEPS else None
        return StepResult(self._observe(episode), True, ended, 0.0)

    def verify(self, episode: str) -> Verification:
        return Verification(True, "success", 1.0)

    def close(self, episode: str) -> None:
        del self._walks[episode]

    def _observe(self, episode: str) -> dict[str, Any]:
        place = (31 * int(episode[-6:]) + self._walks[episode]) % len(self._seen)
        return {"numbers": self._seen[place]}


class Network:
    def __init__(self) -> None:
        chance = np.random.default_rng(0)
        sizes = (NUMBERS, UNITS, UNITS, len(CANDIDATES))
        self._layers = [
            chance.standard_normal((a, b)) / a**0.5 for a, b in itertools.pairwise(sizes)
        ]

    def score(
        self, observation: dict[str, Any], candidates: Sequence[dict[str, Any]]
    ) -> Sequence[float]:
        return self.score_batch([observation], [list(candidates)])[0]

    def score_batch(
        self, observations: Sequence[dict[str, Any]], candidates: Sequence[Sequence[dict[str, Any]]]
    ) -> list[list[float]]:
        values = np.array([observation["numbers"] for observation in observations])
        for layer in self._layers[:-1]:
            values = np.maximum(values @ layer, 0)
        scores: list[list[float]] = (values @ self._layers[-1]).tolist()
        return scores


def ours(policy: Network, tasks: list[dict[str, Any]], out: Path) -> None:
    config = RolloutConfig()
    plans = (plan_episode(task, index, config) for index, task in enumerate(tasks))
    with (out / "ours.jsonl").open("wb", buffering=0) as file:
        for ended in drive(InProcess(Drift()), policy, plans, config=config):
            assert isinstance(ended, Episode)
            file.write(ended.line + b"\n")


def theirs(policy: Network, tasks: list[dict[str, Any]], out: Path) -> None:
    peer.write_episodes(peer.rollout(Drift(), policy, tasks), out)


def main() -> None:
    policy, tasks = Network(), Drift().tasks({"count": EPISODES})
    found = rates(
        {
            OURS: in_new_folder(timed(partial(ours, policy, tasks))),
            PEER: in_new_folder(timed(partial(theirs, policy, tasks))),
        },
        count=EPISODES * STEPS,
    )
    aims = {f"{OURS} / {PEER}": (OURS, PEER, 5.0)}
    write("batched", [report("a network of 2 x 256", found, aims, "decisions/s")])


if __name__ == "__main__":
    main()
