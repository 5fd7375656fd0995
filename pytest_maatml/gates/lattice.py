"""The verdict lattice and walks over it: exact probabilities by dynamic programming."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictLattice:
    """Bounds on the successes among the first n of N permuted outcomes, for n = 0..N.

    Pass at `passing[n]` or more, fail at `failing[n]` or less; n + 1 and -1 stand for never.
    """

    passing: tuple[int, ...]
    failing: tuple[int, ...]
    #: greatest probability, over all lists, of an early pass where the full run fails
    wrong_pass: float
    #: greatest probability, over all lists, of an early fail where the full run passes
    wrong_fail: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatingCharacteristic:
    """What a stopping rule does with independent episodes of one success probability."""

    pass_probability: float
    fail_probability: float
    expected_episodes: float


def verdict_lattice(*, planned: int, required: int, gamma: float) -> VerdictLattice:
    """The bounds that agree with the full run but for a probability of at most gamma.

    The promise is over the permutation alone and holds for every fixed list of outcomes. Two
    vectors carry the path probabilities of the worst list that just fails, with `required` - 1
    successes, and of the one that just passes; by step n at most gamma * sqrt(n / N) of
    each may have been stopped on the wrong side. These two lists are the worst, since turning
    a success of a list into a failure can only lower the count of every prefix.

    Raises ValueError unless 1 <= required <= planned. Sources: the hypergeometric walk of
    sampling without replacement; the budget is an error-spending function, Lan and DeMets
    1983, Biometrika 70.
    """
    if not 1 <= required <= planned:
        raise ValueError(f"required={required} of planned={planned}: give 1 <= required <= planned")
    just_fails, just_passes = _start(planned), _start(planned)
    wrong_pass = wrong_fail = 0.0
    passing, failing = [1], [-1]
    for n in range(1, planned + 1):
        left = planned - n + 1
        just_fails = _draw(just_fails, required - 1, left)
        just_passes = _draw(just_passes, required, left)
        budget = gamma * math.sqrt(n / planned)
        upper, lower = required, n - (planned - required + 1)
        if just_fails.any():  # else every path has stopped, and only certainty is left
            removed = _removed_from_top(just_fails[: n + 1], budget - wrong_pass)
            upper = max(min(removed, required), lower + 1)
            removed = n - _removed_from_top(just_passes[n::-1], budget - wrong_fail)
            lower = min(max(removed, lower), upper - 1)
        wrong_pass += float(just_fails[upper:].sum())
        wrong_fail += float(just_passes[: lower + 1].sum())
        for mass in (just_fails, just_passes):
            mass[upper:] = mass[: lower + 1] = 0.0
        passing.append(min(upper, n + 1))
        failing.append(max(lower, -1))
    return VerdictLattice(
        passing=tuple(passing),
        failing=tuple(failing),
        wrong_pass=wrong_pass,
        wrong_fail=wrong_fail,
    )


def operating_characteristic(
    passing: Sequence[int], failing: Sequence[int], truth: float
) -> OperatingCharacteristic:
    """Pass and fail probability and expected episodes at success probability `truth`.

    `passing` and `failing` are bounds for n = 0..N as in VerdictLattice.
    """
    planned = len(passing) - 1
    mass = _start(planned)
    passed = failed = expected = 0.0
    for n in range(1, planned + 1):
        mass = _step(mass, mass * truth)
        upper, lower = passing[n], failing[n] + 1
        now_passed, now_failed = float(mass[upper:].sum()), float(mass[:lower].sum())
        mass[upper:] = mass[:lower] = 0.0
        passed, failed = passed + now_passed, failed + now_failed
        expected += n * (now_passed + now_failed)
    return OperatingCharacteristic(
        pass_probability=passed, fail_probability=failed, expected_episodes=expected
    )


def _start(planned: int) -> Vector:
    mass = np.zeros(planned + 1)
    mass[0] = 1.0
    return mass


def _draw(mass: Vector, successes: int, left: int) -> Vector:
    """One draw without replacement where `left` outcomes are left of a list with `successes`."""
    remaining = np.clip(successes - np.arange(mass.size), 0, left)
    return _step(mass, mass * remaining / left)


def _step(mass: Vector, succeeded: Vector) -> Vector:
    after = mass - succeeded
    after[1:] += succeeded[:-1]
    return after


def _removed_from_top(mass: Vector, budget: float) -> int:
    """The least index from which on the mass is within the budget."""
    above = np.cumsum(mass[::-1])
    return mass.size - int(np.searchsorted(above, budget, side="right"))
