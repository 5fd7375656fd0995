"""Early stopping by simulation, beside its exact figures and those of the manual.

    python benchmarks/gates_simulation.py --runs 50000

For each true success probability and way of stopping: the episodes run, how often the gate
passes, and how often its verdict differs from that of the full run of the same episodes.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np

from pytest_maatml.gates.planning import expected_episodes
from pytest_maatml.gates.stopping import Exact, Off, Risk, StoppingRule
from pytest_maatml.gates.threshold import ThresholdRule, threshold_rule

PLANNED, THRESHOLD, GAMMA = 200, 0.9, 0.01
TRUTHS = (0.5, 0.8, 0.9, 0.95, 0.99, 1.0)
#: Expected episodes that the manual prints for this gate, by way of stopping.
PRINTED = {
    "off": (200, 200, 200, 200, 200, 200),
    "exact": (42, 105, 186, 190, 182, 180),
    "risk:0.01": (11, 66, 173, 116, 54, 43),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    episodes: float
    passed: float
    differed: float


def simulate(
    rule: ThresholdRule, stopping: StoppingRule, truth: float, runs: int, seed: int
) -> Simulated:
    """Means over runs of independent episodes, stopped where the gate's bounds are met."""
    draws = np.random.default_rng(seed).random((runs, rule.planned)) < truth
    successes = np.cumsum(draws, axis=1)
    bounds = stopping.boundaries(rule)
    passes = successes >= np.array(bounds.passing[1:])
    stops = passes | (successes <= np.array(bounds.failing[1:]))
    last = stops.argmax(axis=1)
    passed = passes[np.arange(runs), last]
    full = successes[:, -1] >= rule.required
    return Simulated(
        episodes=float(last.mean()) + 1,
        passed=float(passed.mean()),
        differed=float((passed != full).mean()),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=20_000, help="runs a cell (default: 20000)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the draws (default: 1)")
    options = parser.parse_args()
    rule = threshold_rule("point", THRESHOLD, PLANNED)
    print(f"point {rule}, {options.runs} runs a cell, seed {options.seed}")
    print(f"{'':16} {'expected episodes':^27} {'passes':^17} {'differs from':>13}")
    print(
        f"{'p':>5} {'stopping':10} {'simulated':>9} {'exact':>8} {'printed':>8}"
        f" {'simulated':>9} {'exact':>7} {'the full run':>13}"
    )
    ways: tuple[StoppingRule, ...] = (Off(), Exact(), Risk(GAMMA))
    for column, truth in enumerate(TRUTHS):
        for stopping in ways:
            seen = simulate(rule, stopping, truth, options.runs, options.seed)
            exact = expected_episodes(rule, stopping, truth)
            print(
                f"{truth:5} {stopping!s:10} {seen.episodes:9.2f} {exact.expected_episodes:8.2f}"
                f" {PRINTED[str(stopping)][column]:8} {seen.passed:9.4f}"
                f" {exact.pass_probability:7.4f} {seen.differed:13.4f}"
            )


if __name__ == "__main__":
    main()
