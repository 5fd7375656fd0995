"""How many episodes a gate needs, and how many early stopping will run."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Literal

from pytest_maatml.gates.binomial import check_open_unit, upper_tail, upper_tail_at_most
from pytest_maatml.gates.lattice import OperatingCharacteristic, operating_characteristic
from pytest_maatml.gates.threshold import (
    ThresholdRule,
    as_fraction,
    threshold_rule,
    zero_failure_episodes,
)

if TYPE_CHECKING:
    from pytest_maatml.gates.stopping import StoppingRule

__all__ = [
    "certifying_episodes",
    "expected_episodes",
    "powered_rule",
    "zero_failure_episodes",
]


def certifying_episodes(failures: int, threshold: float | str, *, alpha: float = 0.05) -> int:
    """The least n that certify `threshold` even with so many failures among them.

    Raises ValueError for negative failures and as `zero_failure_episodes`. Source: the exact
    binomial test, P(Bin(n, p0) >= n - failures) <= alpha.
    """
    if failures < 0:
        raise ValueError(f"failures={failures}: give 0 or more")
    start = zero_failure_episodes(threshold, alpha=alpha) + failures
    p0, bound = as_fraction("threshold", threshold), as_fraction("alpha", alpha)
    return next(n for n in count(start) if upper_tail_at_most(n - failures, n, p0, bound))


def powered_rule(
    kind: Literal["point", "certify"],
    threshold: float | str,
    truth: float,
    *,
    power: float,
    alpha: float = 0.05,
    limit: int = 10_000,
) -> ThresholdRule:
    """The gate of the fewest episodes that passes with probability `power` at `truth`.

    More episodes need not have more power: required counts are whole numbers. Raises
    ValueError where no number of episodes up to `limit` will do, among them all certify gates
    at a threshold of `truth` or more, and as `threshold_rule`. Source: power of the exact
    binomial test.
    """
    check_open_unit("power", power)
    _check_truth(truth)
    certifies = kind == "certify"
    start = zero_failure_episodes(threshold, alpha=alpha) if certifies else 1
    if certifies and as_fraction("truth", truth) <= as_fraction("threshold", threshold):
        start = limit + 1
    for planned in range(start, limit + 1):
        rule = threshold_rule(kind, threshold, planned, alpha=alpha)
        if upper_tail(rule.required, planned, truth) >= power:
            return rule
    raise ValueError(
        f"no {kind} gate at {threshold} of up to {limit} episodes passes with probability"
        f" {power:g} where the true rate is {truth:g}: lower the threshold or the power"
    )


def expected_episodes(
    rule: ThresholdRule, stopping: StoppingRule, truth: float
) -> OperatingCharacteristic:
    """What the gate does, and how many episodes it runs, at success probability `truth`.

    Exact, by dynamic programming over independent episodes; errors are left out. Raises
    ValueError for a truth outside [0, 1].
    """
    _check_truth(truth)
    bounds = stopping.boundaries(rule)
    return operating_characteristic(bounds.passing, bounds.failing, truth)


def _check_truth(truth: float) -> None:
    if not 0 <= truth <= 1:
        raise ValueError(f"truth={truth}: give a rate from 0 to 1")
