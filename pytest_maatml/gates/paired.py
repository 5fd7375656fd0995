"""Against a baseline, on the same tasks: exact tests, a judge, a margin gate, intervals.

Of the tasks that completed on both sides, a *win* failed in the baseline and passes now, a
*loss* passed in the baseline and fails now. Only these speak.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from pytest_maatml.gates.binomial import (
    check_open_unit,
    least,
    turning_point,
    upper_tail,
    upper_tail_at_most,
)
from pytest_maatml.gates.intervals import normal_quantile, wilson
from pytest_maatml.gates.stopping import EpisodeResult, Verdict
from pytest_maatml.gates.threshold import Outcome, ThresholdRule, as_fraction

if TYPE_CHECKING:
    from collections.abc import Sequence

_HALF = Fraction(1, 2)


def regression_p(wins: int, losses: int) -> float:
    """The one-sided p of "worse than the baseline": P(Bin(wins + losses, 1/2) >= losses).

    Source: McNemar 1947, Psychometrika 12, in its exact conditional form.
    """
    _check_pairs(wins=wins, losses=losses)
    return upper_tail(losses, wins + losses, 0.5)


def mcnemar_p(wins: int, losses: int) -> float:
    """The two-sided exact p of "differs from the baseline": twice the smaller tail, at most 1.

    Source: McNemar 1947, Psychometrika 12, in its exact conditional form.
    """
    return min(1.0, 2 * regression_p(min(wins, losses), max(wins, losses)))


def mcnemar_mid_p(wins: int, losses: int) -> float:
    """The two-sided mid-p: the exact p less the probability of what was observed.

    Less conservative than the exact p, without its guarantee. At a tie the exact p is capped at
    1 before, which others halve instead. Without any discordant pair it is 1. Source: Fagerland,
    Lydersen and Laake 2013, BMC Med. Res. Methodol. 13.
    """
    exact, pairs = mcnemar_p(wins, losses), wins + losses
    if not pairs:
        return exact
    return exact - (upper_tail(wins, pairs, 0.5) - upper_tail(wins + 1, pairs, 0.5))


@lru_cache(maxsize=4096)
def least_alarming_losses(wins: int, *, alpha: float = 0.05) -> int:
    """The least number of losses that raise the alarm beside so many wins: p <= alpha.

    Raises ValueError for negative wins or an alpha outside (0, 1).
    """
    _check_pairs(wins=wins)
    check_open_unit("alpha", alpha)
    bound = as_fraction("alpha", alpha)

    def alarms(losses: int) -> bool:
        return upper_tail_at_most(losses, wins + losses, _HALF, bound)

    high = 1
    while not alarms(high):
        high *= 2
    return least(alarms, 0, high)


class BaselineJudge:
    """The judge of "no worse than the baseline", stopped once the full run would say the same.

    `baseline` has, for each position in judged order, whether the baseline passed that task,
    or None where it did not complete there. An errored episode pairs with nothing and is
    never a loss; more than `max_errors` of them leave a gate that raised no alarm UNDECIDED.

    Later errors could not turn an early verdict; only their own number could have undone a pass.
    """

    __slots__ = (
        "_alpha",
        "_baseline",
        "_max_errors",
        "_remaining",
        "_stops",
        "errors",
        "losses",
        "observed",
        "unpaired",
        "verdict",
        "wins",
    )

    def __init__(
        self,
        baseline: Sequence[bool | None],
        *,
        alpha: float = 0.05,
        max_errors: int = 0,
        stops_early: bool = True,
    ) -> None:
        check_open_unit("alpha", alpha)
        self._baseline = tuple(baseline)
        self._alpha = alpha
        self._max_errors = max_errors
        self._stops = stops_early
        self._remaining = {passed: self._baseline.count(passed) for passed in (True, False)}
        self.observed = 0
        self.wins = 0
        self.losses = 0
        self.errors = 0
        #: observed episodes that did not complete on both sides
        self.unpaired = 0
        self.verdict: Verdict | None = None

    def feed(self, result: EpisodeResult) -> Verdict | None:
        """The verdict after one more result, or None; results after a verdict are ignored."""
        if self.verdict is None:
            self._count(self._baseline[self.observed], result)
            if self._stops or self.observed == len(self._baseline):
                self.verdict = self._look()
        return self.verdict

    def _count(self, baseline: bool | None, result: EpisodeResult) -> None:
        self.observed += 1
        self.errors += result == "error"
        self.unpaired += result == "error" or baseline is None
        self.wins += baseline is False and result == "success"
        self.losses += baseline is True and result == "failure"
        if baseline is not None:
            self._remaining[baseline] -= 1

    def _look(self) -> Verdict | None:
        most_wins = self.wins + self._remaining[False]
        most_losses = self.losses + self._remaining[True]
        if self.losses >= least_alarming_losses(most_wins, alpha=self._alpha):
            return Verdict(outcome=Outcome.FAILED, observed=self.observed)
        if most_losses < least_alarming_losses(self.wins, alpha=self._alpha):
            clean = self.errors <= self._max_errors
            outcome = Outcome.PASSED if clean else Outcome.UNDECIDED
            return Verdict(outcome=outcome, observed=self.observed)
        return None


def margin_rule(*, baseline_successes: int, margin: int, planned: int) -> ThresholdRule:
    """The rule that passes with at most `margin` successes fewer than the baseline had.

    Raises ValueError where the margin is negative or the baseline has more successes than
    there are planned episodes.
    """
    if margin < 0 or not 0 <= baseline_successes <= planned or planned < 1:
        raise ValueError(
            f"margin={margin} below {baseline_successes} baseline successes of {planned}: give a"
            " margin of 0 or more and a baseline of the same tasks"
        )
    required = max(0, baseline_successes - margin)
    return ThresholdRule(
        kind="point", threshold=required / planned, planned=planned, required=required, alpha=0.05
    )


def newcombe(
    *, both_passed: int, wins: int, losses: int, both_failed: int, confidence: float = 0.95
) -> tuple[float, float]:
    """The interval for (wins - losses) / pairs from the Wilson limits of both rates.

    (-1, 1) without pairs. Raises ValueError for negative counts or a confidence outside
    (0, 1). Source: Newcombe 1998, Stat. Med. 17:2635, method 10.
    """
    _check_pairs(both_passed=both_passed, wins=wins, losses=losses, both_failed=both_failed)
    pairs = both_passed + wins + losses + both_failed
    if not pairs:
        return -1.0, 1.0
    now, before = both_passed + wins, both_passed + losses
    low_now, high_now = wilson(now, pairs, confidence=confidence)
    low_before, high_before = wilson(before, pairs, confidence=confidence)
    phi = _corrected_phi(both_passed, wins, losses, both_failed)
    change, p_now, p_before = (wins - losses) / pairs, now / pairs, before / pairs
    below = _hybrid(p_now - low_now, high_before - p_before, phi)
    above = _hybrid(high_now - p_now, p_before - low_before, phi)
    return max(-1.0, change - below), min(1.0, change + above)


def tango(*, wins: int, losses: int, pairs: int, confidence: float = 0.95) -> tuple[float, float]:
    """The score interval for (wins - losses) / pairs; (-1, 1) without pairs.

    Raises ValueError for negative counts, more wins and losses than pairs, or a confidence
    outside (0, 1). Source: Tango 1998, Stat. Med. 17:891.
    """
    _check_pairs(wins=wins, losses=losses, rest=pairs - wins - losses)
    z = normal_quantile(confidence)
    if not pairs:
        return -1.0, 1.0
    return (
        _tango_lower(wins, losses, pairs, z),
        -_tango_lower(losses, wins, pairs, z),
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values adjusted for their number, in the order given.

    Rejecting those at most alpha raises any false alarm with at most probability alpha.
    Raises ValueError for a p outside [0, 1]. Source: Holm 1979, Scand. J. Stat. 6.
    """
    adjusted, running = list(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if not 0 <= p_values[index] <= 1:
            raise ValueError(f"p_values[{index}]={p_values[index]}: give p-values from 0 to 1")
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = running
    return adjusted


def _check_pairs(**counts: int) -> None:
    for name, value in counts.items():
        if value < 0:
            raise ValueError(f"{name}={value}: give counts of 0 or more that fit the pairs")


def _corrected_phi(both_passed: int, wins: int, losses: int, both_failed: int) -> float:
    """Newcombe's correlation of the pairs, shrunk towards 0 where it is positive."""
    now, before = both_passed + wins, both_passed + losses
    margins = now * before * (losses + both_failed) * (wins + both_failed)
    if not margins:
        return 0.0
    product = both_passed * both_failed - wins * losses
    pairs = now + losses + both_failed
    shrunk = max(product - pairs / 2, 0) if product > 0 else product
    return shrunk / math.sqrt(margins)


def _hybrid(first: float, second: float, phi: float) -> float:
    return math.sqrt(max(0.0, first**2 - 2 * phi * first * second + second**2))


def _tango_lower(wins: int, losses: int, pairs: int, z: float) -> float:
    change = (wins - losses) / pairs
    return turning_point(lambda d: _within(wins, losses, pairs, d, z), -1.0, change)


def _within(wins: int, losses: int, pairs: int, change: float, z: float) -> bool:
    """Whether Tango's statistic of a true change is at most z.

    The loss rate is its maximum-likelihood estimate given the change: the root of a quadratic.
    """
    a = 2 * pairs
    b = (2 * pairs - wins + losses) * change - wins - losses
    c = -losses * change * (1 - change)
    loss_rate = (math.sqrt(max(0.0, b * b - 4 * a * c)) - b) / (2 * a)
    distance = wins - losses - pairs * change
    variance = pairs * (2 * loss_rate + change * (1 - change))
    return distance <= z * math.sqrt(max(0.0, variance))
