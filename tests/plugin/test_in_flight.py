"""How many episodes are in flight, how they are scored and carried changes no byte."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

POLICIES: Final = """
import numpy as np

IDS = ("finish", "jump", "left", "right")

def features(observation, candidate):
    gap = observation["target"] - observation["position"]
    here = [gap / 7, observation["steps"] / 9, float(gap == 0), 1.0]
    return [value * (candidate["id"] == name) for name in IDS for value in here]

class Rows:
    '''Each row is computed by itself.'''
    weights = [0.2, 0.1, 3.0, -1.0, 0, 0, 0, 0, -2.0, 0.3, 0, 0.1, 2.0, -0.2, 0, 0]

    def score(self, observation, candidates):
        return [
            sum(w * x for w, x in zip(self.weights, features(observation, candidate)))
            for candidate in candidates
        ]

class BatchedRows(Rows):
    def score_batch(self, observations, candidates):
        return [self.score(o, c) for o, c in zip(observations, candidates)]

class Blas:
    '''A net of two layers, whose sums BLAS may add up in another order for another batch.'''
    def __init__(self):
        rng = np.random.default_rng(5)
        self.first, self.second = rng.normal(size=(16, 256)), rng.normal(size=256) / 16

    def net(self, rows):
        return np.tanh(np.asarray(rows) @ self.first) @ self.second

    def score(self, observation, candidates):
        return self.net([features(observation, c) for c in candidates]).tolist()

class BatchedBlas(Blas):
    def score_batch(self, observations, candidates):
        rows = [features(o, c) for o, listed in zip(observations, candidates) for c in listed]
        scores = iter(self.net(rows).tolist())
        return [[next(scores) for _ in listed] for listed in candidates]
"""
TASKS: Final = '--maatml-tasks={"count": 70, "seed": 11, "slack": 2}'
ISOLATED: Final = ("--maatml-isolate", "--maatml-env-processes=3")
LABELLED: Final = ("--label", "--teacher-mix=0.3", "--maatml-source=rollout")


@pytest.fixture
def run(pytester: pytest.Pytester) -> Any:
    pytester.makepyfile(policies=POLICIES)

    def run(policy: str, concurrency: int, *more: str) -> bytes:
        given = (f"--maatml-policy=policies:{policy}", "--maatml-env=line_world", TASKS)
        result = pytester.runpytest(*given, f"--maatml-concurrency={concurrency}", *more)
        assert "0 errors" in result.stdout.str()
        file = pytester.path / "output" / "episodes" / "rollout-r0" / "episodes.jsonl"
        # The version of such a policy is its name.
        found = file.read_bytes().replace(b"policies:Batched", b"policies:")
        file.unlink()
        return found

    return run


@pytest.mark.parametrize("label", [(), LABELLED], ids=["checked", "labelled"])
def test_a_batched_policy_gives_the_bytes_of_the_same_one_by_one(
    run: Any, label: tuple[str, ...]
) -> None:
    alone = run("Rows", 1, *label)
    assert len(alone.splitlines()) == 70
    successes = [json.loads(line)["outcome"]["success"] for line in alone.splitlines()]
    assert {*successes} == {True, False}
    for policy, concurrency, more in (
        ("Rows", 64, ()),
        ("BatchedRows", 1, ()),
        ("BatchedRows", 7, ()),
        ("BatchedRows", 64, ()),
        ("BatchedRows", 1, ISOLATED[:1]),
        ("BatchedRows", 7, ISOLATED),
        ("BatchedRows", 64, ISOLATED),
        ("Rows", 7, ISOLATED),
    ):
        assert run(policy, concurrency, *label, *more) == alone, (policy, concurrency, more)


def logps(lines: bytes) -> Iterator[float]:
    for line in lines.splitlines():
        for decision in json.loads(line)["decisions"]:
            yield from decision["logp"]


def without_logp(lines: bytes) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in lines.splitlines()]
    for record in records:
        for decision in record["decisions"]:
            del decision["logp"]
    return records


def test_a_policy_on_blas_moves_nothing_but_the_last_bits_of_logp(run: Any) -> None:
    alone = run("Blas", 1, *LABELLED)
    for concurrency, more in ((1, ()), (7, ISOLATED), (64, ())):
        batched = run("BatchedBlas", concurrency, *LABELLED, *more)
        assert without_logp(batched) == without_logp(alone)
        assert list(logps(batched)) == pytest.approx(list(logps(alone)), rel=0, abs=1e-9)
