"""Gates on a number of episodes fixed in advance: each is one integer, the successes required."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Literal, get_args

from pytest_maatml.gates.binomial import (
    check_open_unit,
    least,
    lower_tail_at_most,
    upper_tail_at_most,
)

GateKind = Literal["point", "certify", "guard"]


class ImpossibleGate(ValueError):
    """A gate that no number of successes among its episodes could pass."""

    def __init__(self, *, threshold: float, alpha: float, planned: int, needed: int | None) -> None:
        self.planned = planned
        #: episodes that the gate needs at least; None where no number would do
        self.needed = needed
        advice = (
            f"it needs at least {needed} episodes; declare more tasks, lower the threshold, or"
            if needed
            else "no number of episodes proves certain success; lower the threshold, or"
        )
        super().__init__(
            f"a certify gate at {threshold:g} (alpha {alpha:g}) cannot pass with {planned}"
            f" episodes: {advice} use a point gate"
        )


class Outcome(Enum):
    """What became of a gate."""

    PASSED = "passed"
    FAILED = "failed"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdRule:
    """A gate of `planned` episodes that passes iff `required` of them succeed."""

    kind: GateKind
    threshold: float
    planned: int
    required: int
    alpha: float

    def judge(self, *, successes: int, failures: int, errors: int, max_errors: int = 0) -> Outcome:
        """What the counts say; episodes not counted (skipped, or never run) could be either.

        PASSED if enough succeeded and no more than `max_errors` errored; FAILED if too many
        failed even if all others succeed; else UNDECIDED. Raises ValueError where the counts
        are negative or exceed the planned episodes.
        """
        if min(successes, failures, errors) < 0 or successes + failures + errors > self.planned:
            raise ValueError(
                f"{successes} successes, {failures} failures and {errors} errors cannot be of"
                f" {self.planned} planned episodes"
            )
        if successes >= self.required:
            return Outcome.PASSED if errors <= max_errors else Outcome.UNDECIDED
        out_of_reach = self.planned - failures < self.required
        return Outcome.FAILED if out_of_reach else Outcome.UNDECIDED

    def __str__(self) -> str:
        """The rule in one line, such as `>= 90% (45/50)`."""
        aim = {"point": ">=", "certify": "certified >=", "guard": "not below"}[self.kind]
        level = "" if self.kind == "point" else f", alpha {self.alpha:g}"
        never = "" if self.required else ", cannot fail"
        percent = 100 * as_fraction("threshold", self.threshold)
        return f"{aim} {float(percent):.6g}% ({self.required}/{self.planned}{level}{never})"


def threshold_rule(
    kind: GateKind, threshold: float | str, planned: int, *, alpha: float = 0.05
) -> ThresholdRule:
    """The rule of a gate at success rate `threshold` over `planned` episodes.

    `point` requires ceil(N p0) successes and says nothing of the probability behind them.
    `certify` requires the least k with P(Bin(N, p0) >= k) <= alpha, the same as a one-sided
    Clopper-Pearson lower bound of at least p0: a false pass has at most probability alpha.
    `guard` requires the least k with P(Bin(N, p0) <= k) > alpha: a false alarm has at most
    probability alpha. Decimal thresholds are taken as written: 0.55 of 100 requires 55.

    Raises ImpossibleGate where a certify gate could not pass, ValueError for a threshold
    outside [0, 1], an alpha outside (0, 1), an unknown kind or no planned episode. Source:
    Clopper and Pearson 1934, Biometrika 26; the exact binomial test.
    """
    exact = as_fraction("threshold", threshold)
    if not 0 <= exact <= 1:
        raise ValueError(f"threshold={threshold}: give a rate from 0 to 1")
    if planned < 1:
        raise ValueError(f"planned={planned}: a gate needs at least one episode")
    check_open_unit("alpha", alpha)
    required = _required(kind, exact, planned, as_fraction("alpha", alpha))
    if required > planned:
        needed = zero_failure_episodes(threshold, alpha=alpha) if exact < 1 else None
        raise ImpossibleGate(threshold=float(exact), alpha=alpha, planned=planned, needed=needed)
    return ThresholdRule(
        kind=kind, threshold=float(exact), planned=planned, required=required, alpha=alpha
    )


def zero_failure_episodes(threshold: float | str, *, alpha: float = 0.05) -> int:
    """The least n with p0^n <= alpha: episodes that certify p0 if none of them fails.

    Raises ValueError unless 0 <= threshold < 1 and 0 < alpha < 1. Source: n = ceil(ln alpha /
    ln p0), Hanley and Lippman-Hand 1983, JAMA 249.
    """
    p0 = as_fraction("threshold", threshold)
    check_open_unit("alpha", alpha)
    if not 0 <= p0 < 1:
        raise ValueError(f"threshold={threshold}: only a rate in [0, 1) can be certified")
    if not p0:
        return 1
    bound = as_fraction("alpha", alpha)
    about = math.ceil(math.log(alpha) / math.log(p0))
    start = max(1, about - 1)
    return next(n for n in range(start, about + 2) if upper_tail_at_most(n, n, p0, bound))


def as_fraction(name: str, number: float | str) -> Fraction:
    """The number that its decimal text says, without the rounding of binary floats.

    Raises ValueError, with the name, where it is no finite number.
    """
    try:
        return Fraction(str(number))
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"{name}={number!r}: give a number, such as 0.9") from None


def _required(kind: GateKind, p0: Fraction, planned: int, alpha: Fraction) -> int:
    if kind == "point":
        return math.ceil(planned * p0)
    if kind == "certify":
        return least(lambda k: upper_tail_at_most(k, planned, p0, alpha), 0, planned + 1)
    if kind == "guard":
        return least(lambda k: not lower_tail_at_most(k, planned, p0, alpha), 0, planned)
    raise ValueError(f"kind={kind!r}: give one of {', '.join(get_args(GateKind))}")
