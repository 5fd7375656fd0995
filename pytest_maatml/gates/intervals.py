"""Intervals for a success probability: what may be printed beside a verdict, and when."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pytest_maatml.gates.binomial import (
    check_counts,
    check_open_unit,
    log_beta,
    turning_point,
    upper_tail,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CurtailedEstimate:
    """What a run that stopped at its exact bound says of the success probability."""

    lower: float
    upper: float
    #: unbiased under the stopping rule
    estimate: float


def normal_quantile(confidence: float) -> float:
    """The z with P(|Z| <= z) = confidence, for a standard normal Z.

    Raises ValueError unless 0 < confidence < 1.
    """
    # `statistics` brings in `random` and `decimal`: several times the cost of this package.
    from statistics import NormalDist

    check_open_unit("confidence", confidence)
    return NormalDist().inv_cdf((1 + confidence) / 2)


def wilson(successes: int, total: int, *, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's two-sided score interval; (0, 1) where total is 0.

    To be shown, never to decide: a one-sided gate on it passes too often. Raises ValueError
    unless 0 <= successes <= total and 0 < confidence < 1. Source: Wilson 1927, JASA 22.
    """
    check_counts(successes, total)
    z = normal_quantile(confidence)
    if not total:
        return 0.0, 1.0
    rate, z2 = successes / total, z * z
    centre = (rate + z2 / (2 * total)) / (1 + z2 / total)
    half = z * math.sqrt(rate * (1 - rate) / total + z2 / (4 * total**2)) / (1 + z2 / total)
    lower = max(0.0, centre - half) if successes else 0.0
    upper = min(1.0, centre + half) if successes < total else 1.0
    return lower, upper


def clopper_pearson(successes: int, total: int, *, confidence: float = 0.95) -> tuple[float, float]:
    """The exact two-sided interval, half of the error on each side; (0, 1) where total is 0.

    Raises ValueError unless 0 <= successes <= total and 0 < confidence < 1. Source: Clopper
    and Pearson 1934, Biometrika 26.
    """
    check_open_unit("confidence", confidence)
    alpha = (1 - confidence) / 2
    return (
        clopper_pearson_lower(successes, total, alpha=alpha),
        clopper_pearson_upper(successes, total, alpha=alpha),
    )


def clopper_pearson_lower(successes: int, total: int, *, alpha: float) -> float:
    """The one-sided lower bound: the p at which P(S >= successes) is alpha; 0 for none.

    Raises ValueError unless 0 <= successes <= total and 0 < alpha < 1. Source: Clopper and
    Pearson 1934, Biometrika 26.
    """
    check_counts(successes, total)
    check_open_unit("alpha", alpha)
    if not successes:
        return 0.0
    return turning_point(lambda p: upper_tail(successes, total, p) >= alpha, 0.0, 1.0)


def clopper_pearson_upper(successes: int, total: int, *, alpha: float) -> float:
    """The one-sided upper bound: the p at which P(S <= successes) is alpha; 1 for all.

    Raises ValueError unless 0 <= successes <= total and 0 < alpha < 1. Source: Clopper and
    Pearson 1934, Biometrika 26.
    """
    check_counts(successes, total)
    return 1 - clopper_pearson_lower(total - successes, total, alpha=alpha)


def curtailed_exact(
    *, required: int, planned: int, successes: int, observed: int, confidence: float = 0.95
) -> CurtailedEstimate:
    """Exact interval and unbiased estimate of a run that stopped where its gate was decided.

    The gate passes at `required` successes of `planned` and fails at the failure that puts
    them out of reach; `observed` counts successes and failures, no errors. With s successes
    in m: [L(s, m), U(s - 1, m - 1)] and (s - 1) / (m - 1) at a pass, [L(s, m - 1), U(s, m)]
    and s / (m - 1) at a fail, where L and U are Clopper-Pearson's; the estimate of a single
    episode is 1 or 0.

    Raises ValueError where the counts are no stopping point of the gate. Sources: Girshick,
    Mosteller and Savage 1946, Ann. Math. Stat. 17 (the estimate); Jennison and Turnbull 1983,
    Technometrics 25 (the interval: outcomes ordered by where the path ended).
    """
    check_counts(successes, observed)
    check_open_unit("confidence", confidence)
    passed = 0 < successes == required
    failed = observed - successes == planned - required + 1
    if passed + failed != 1 or observed > planned:
        raise ValueError(
            f"{successes} successes of {observed} do not decide a gate of {required} of {planned}:"
            " use this only for a run that stopped at its exact bound"
        )
    alpha, before = (1 - confidence) / 2, observed - 1
    lower_of, upper_of = (observed, before) if passed else (before, observed)
    known = successes - passed
    return CurtailedEstimate(
        lower=clopper_pearson_lower(successes, lower_of, alpha=alpha),
        upper=clopper_pearson_upper(known, upper_of, alpha=alpha),
        estimate=known / before if before else float(passed),
    )


def anytime_beta_binomial(successes: int, total: int, *, alpha: float) -> tuple[float, float]:
    """The interval of a confidence sequence: valid wherever a run was interrupted, and why.

    With f failures it holds the p with ln B(1 + s, 1 + f) - s ln p - f ln(1 - p) < ln(1 / alpha);
    (0, 1) where total is 0. Raises ValueError unless 0 <= successes <= total and 0 < alpha < 1.
    Sources: Robbins 1970, Ann. Math. Stat. 41 (mixtures, here the uniform one); Ville 1939.
    """
    check_counts(successes, total)
    check_open_unit("alpha", alpha)
    if not total:
        return 0.0, 1.0
    return (
        _anytime_lower(successes, total - successes, alpha),
        1 - _anytime_lower(total - successes, successes, alpha),
    )


def _anytime_lower(successes: int, failures: int, alpha: float) -> float:
    if not successes:
        return 0.0
    bound = log_beta(1 + successes, 1 + failures) + math.log(alpha)

    def inside(p: float) -> bool:
        return bound < successes * math.log(p) + (failures and failures * math.log1p(-p))

    return turning_point(inside, 0.0, successes / (successes + failures))
