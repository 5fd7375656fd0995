"""What trying again does to the odds."""

from __future__ import annotations

import math

from pytest_maatml.gates.binomial import check_counts, check_open_unit


def pass_any(attempts: int, successes: int, k: int) -> float:
    """pass@k: the chance that at least one of k of the attempts, drawn at random, succeeded.

    Unbiased for fresh attempts. Raises ValueError unless 0 <= successes <= attempts and
    1 <= k <= attempts. Source: Chen et al. 2021, arXiv:2107.03374, equation 1.
    """
    _check_draw(attempts, successes, k)
    return 1 - math.comb(attempts - successes, k) / math.comb(attempts, k)


def pass_all(attempts: int, successes: int, k: int) -> float:
    """pass^k: the chance that all of k of the attempts, drawn at random, succeeded.

    Unbiased for fresh attempts. Raises ValueError unless 0 <= successes <= attempts and
    1 <= k <= attempts. Source: Yao et al. 2024, arXiv:2406.12045, section 3.
    """
    _check_draw(attempts, successes, k)
    return math.comb(successes, k) / math.comb(attempts, k)


def false_pass_of_tries(tries: int, *, alpha: float) -> float:
    """The false-pass rate of "again until green": 1 - (1 - alpha)^tries.

    Raises ValueError for negative tries or an alpha outside (0, 1).
    """
    check_counts(0, tries)
    check_open_unit("alpha", alpha)
    return -math.expm1(tries * math.log1p(-alpha))


def _check_draw(attempts: int, successes: int, k: int) -> None:
    check_counts(successes, attempts)
    if not 1 <= k <= attempts:
        raise ValueError(f"k={k} of attempts={attempts}: give 1 <= k <= attempts")
