"""Binomial tails to ten digits up to 10,000 episodes, and exactly where digits cannot decide."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from fractions import Fraction

#: Continued fractions stop when a factor differs from one by less than this.
_CONVERGED = 4e-15
#: A tail this close to its bound, relative to it, is computed again without rounding.
_TOO_CLOSE = 1e-8


def check_counts(successes: int, total: int) -> None:
    """Raise ValueError unless 0 <= successes <= total."""
    if not 0 <= successes <= total:
        raise ValueError(
            f"successes={successes} of total={total}: give counts with 0 <= successes <= total"
        )


def check_open_unit(name: str, value: float) -> None:
    """Raise ValueError unless 0 < value < 1."""
    if not 0 < value < 1:
        raise ValueError(f"{name}={value}: give a number between 0 and 1, both excluded")


def upper_tail(successes: int, total: int, p: float) -> float:
    """P(S >= successes) for S ~ Bin(total, p), as the incomplete beta I_p(s, n - s + 1).

    Source: DLMF 8.17.5.
    """
    if successes <= 0:
        return 1.0
    if successes > total:
        return 0.0
    return regularised_beta(successes, total - successes + 1, p)


def lower_tail(successes: int, total: int, p: float) -> float:
    """P(S <= successes) for S ~ Bin(total, p)."""
    return upper_tail(total - successes, total, 1 - p)


def upper_tail_at_most(successes: int, total: int, p: Fraction, alpha: Fraction) -> bool:
    """Whether P(S >= successes) <= alpha for S ~ Bin(total, p), ties decided exactly."""
    tail, bound = upper_tail(successes, total, float(p)), float(alpha)
    if successes <= 0 or abs(tail - bound) > _TOO_CLOSE * bound:
        return tail < bound
    return _exactly_at_most(successes, total, p, alpha)


def lower_tail_at_most(successes: int, total: int, p: Fraction, alpha: Fraction) -> bool:
    """Whether P(S <= successes) <= alpha for S ~ Bin(total, p), ties decided exactly."""
    return upper_tail_at_most(total - successes, total, 1 - p, alpha)


def log_beta(a: int, b: int) -> float:
    """The natural logarithm of the beta function B(a, b)."""
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def regularised_beta(a: int, b: int, x: float) -> float:
    """I_x(a, b) for whole a, b >= 1, by its continued fraction.

    Source: DLMF 8.17.22, evaluated by Lentz's method; 8.17.4 for the half where that is slow.
    For whole parameters no denominator of it vanishes in the other half.
    """
    if x <= 0 or x >= 1:
        return float(x >= 1)
    front = math.exp(a * math.log(x) + b * math.log1p(-x) - log_beta(a, b))
    if x < (a + 1) / (a + b + 2):
        return front / (a * _beta_fraction(a, b, x))
    return 1 - front / (b * _beta_fraction(b, a, 1 - x))


def turning_point(holds: Callable[[float], bool], low: float, high: float) -> float:
    """The least float of [low, high] where `holds` is true, for a `holds` that turns once.

    Bisects down to neighbouring floats; `high` where it never holds.
    """
    while low < (middle := (low + high) / 2) < high:
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def least(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The least integer of [low, high) where `holds` is true, else `high`; it turns once."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def _beta_fraction(a: int, b: int, x: float) -> float:
    value = numerator = 1.0
    step, denominator, factor = 0, 0.0, 0.0
    while abs(factor - 1) >= _CONVERGED:
        step += 1
        term = _beta_term(a, b, x, step)
        numerator = 1 + term / numerator
        denominator = 1 / (1 + term * denominator)
        factor = numerator * denominator
        value *= factor
    return value


def _beta_term(a: int, b: int, x: float, step: int) -> float:
    m, odd = divmod(step, 2)
    if odd:
        return -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
    return m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))


def _exactly_at_most(successes: int, total: int, p: Fraction, alpha: Fraction) -> bool:
    """P(S >= successes) <= alpha in integers over a common denominator, for successes >= 1."""
    hit, miss = p.numerator, p.denominator - p.numerator
    term: int = hit**total
    tail = 0
    for k in range(total, successes - 1, -1):
        tail += term
        term = term * k * miss // ((total - k + 1) * hit)
    whole: int = p.denominator**total
    return tail * alpha.denominator <= alpha.numerator * whole
