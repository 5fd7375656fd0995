from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from pytest_maatml.gates.intervals import (
    anytime_beta_binomial,
    clopper_pearson,
    clopper_pearson_lower,
    clopper_pearson_upper,
    curtailed_exact,
    wilson,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    Interval = Callable[[int, int], tuple[float, float]]


@st.composite
def counts(draw: st.DrawFn) -> tuple[int, int]:
    total = draw(st.integers(1, 400))
    return draw(st.integers(0, total)), total


CONFIDENCES = st.sampled_from([0.5, 0.8, 0.9, 0.95, 0.99, 0.999])


def anytime(successes: int, total: int) -> tuple[float, float]:
    return anytime_beta_binomial(successes, total, alpha=0.05)


INTERVALS: list[Interval] = [wilson, clopper_pearson, anytime]


def test_wilson_reference_values(oracles: dict[str, Any]) -> None:
    for (successes, total), expected in oracles["wilson_two_sided_95"]:
        assert wilson(successes, total) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize(
    ("successes", "total", "expected"),
    [
        (0, 10, (0, 0.2775)),
        (10, 10, (0.7225, 1)),
        (9, 10, (0.5958, 0.9821)),
        (1, 1, (0.2065, 1)),
    ],
)
def test_wilson_to_the_printed_digits(
    successes: int, total: int, expected: tuple[float, float]
) -> None:
    assert wilson(successes, total) == pytest.approx(expected, abs=5e-5)


def test_clopper_pearson_reference_values(oracles: dict[str, Any]) -> None:
    for (successes, total), expected in oracles["clopper_pearson_two_sided_95"]:
        assert clopper_pearson(successes, total) == pytest.approx(expected, abs=1e-10)
    for (successes, total), bound in oracles["cp_lower_one_sided_95"]:
        lower = clopper_pearson_lower(successes, total, alpha=0.05)
        assert lower == pytest.approx(bound, abs=1e-10)
    for (successes, total), bound in oracles["cp_upper_one_sided_95"]:
        upper = clopper_pearson_upper(successes, total, alpha=0.05)
        assert upper == pytest.approx(bound, abs=1e-10)


def test_anytime_reference_values(oracles: dict[str, Any]) -> None:
    for (successes, total), expected in oracles["beta_binomial_cs_95_beta11"]:
        assert anytime(successes, total) == pytest.approx(expected, abs=1e-8)


def test_anytime_of_one_success_by_hand() -> None:
    # B(2, 1) = 1/2, so that 1 / (2 p) < 1 / alpha is p > alpha / 2.
    assert anytime_beta_binomial(1, 1, alpha=0.2) == pytest.approx((0.1, 1), abs=1e-12)
    assert anytime_beta_binomial(0, 1, alpha=0.2) == pytest.approx((0, 0.9), abs=1e-12)


@given(counted=counts(), confidence=CONFIDENCES)
@settings(max_examples=100, deadline=None)
def test_wilson_and_clopper_pearson_agree_with_statsmodels(
    counted: tuple[int, int], confidence: float
) -> None:
    for ours, method in ((wilson, "wilson"), (clopper_pearson, "beta")):
        expected = proportion_confint(*counted, alpha=1 - confidence, method=method)
        assert ours(*counted, confidence=confidence) == pytest.approx(expected, abs=1e-10)


@given(counted=counts(), alpha=st.floats(0.001, 0.5))
@settings(max_examples=60, deadline=None)
def test_one_sided_bounds_agree_with_scipy(counted: tuple[int, int], alpha: float) -> None:
    for alternative, end, bound in (
        ("greater", 0, clopper_pearson_lower),
        ("less", 1, clopper_pearson_upper),
    ):
        test = stats.binomtest(*counted, alternative=alternative)
        expected = test.proportion_ci(1 - alpha, method="exact")[end]
        assert bound(*counted, alpha=alpha) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("interval", INTERVALS)
def test_intervals_of_nothing_are_everything(interval: Interval) -> None:
    assert interval(0, 0) == (0, 1)


@pytest.mark.parametrize("interval", INTERVALS)
@pytest.mark.parametrize("total", [1, 2, 7, 30])
def test_intervals_hold_the_rate_rise_with_successes_and_mirror(
    interval: Interval, total: int
) -> None:
    found = [interval(successes, total) for successes in range(total + 1)]
    for successes, (lower, upper) in enumerate(found):
        assert 0 <= lower <= successes / total <= upper <= 1
        mirrored = found[total - successes]
        assert (lower, upper) == pytest.approx((1 - mirrored[1], 1 - mirrored[0]), abs=1e-12)
    for before, after in pairwise(found):
        assert before[0] < after[0]
        assert before[1] < after[1]
    assert found[0][0] == 0
    assert found[-1][1] == 1


@given(counted=counts())
@settings(max_examples=50, deadline=None)
def test_more_confidence_is_a_wider_interval(counted: tuple[int, int]) -> None:
    for interval in (wilson, clopper_pearson):
        narrow, wide = interval(*counted, confidence=0.8), interval(*counted, confidence=0.99)
        assert wide[0] <= narrow[0] <= narrow[1] <= wide[1]
    narrow = anytime_beta_binomial(*counted, alpha=0.2)
    wide = anytime_beta_binomial(*counted, alpha=0.01)
    assert wide[0] <= narrow[0] <= narrow[1] <= wide[1]


@given(counted=counts())
@settings(max_examples=50, deadline=None)
def test_the_anytime_interval_holds_the_fixed_one(counted: tuple[int, int]) -> None:
    exact, always = clopper_pearson(*counted), anytime(*counted)
    assert always[0] <= exact[0]
    assert exact[1] <= always[1]


def test_curtailed_reference_values(oracles: dict[str, Any]) -> None:
    for (planned, required, observed, successes), expected in oracles["curtailed_exact_ci95"]:
        found = curtailed_exact(
            required=required, planned=planned, successes=successes, observed=observed
        )
        assert (found.lower, found.upper) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("p", [0.2, 0.5, 0.9, 1.0])
@pytest.mark.parametrize(("planned", "required"), [(1, 1), (6, 4), (5, 5), (5, 1)])
def test_the_curtailed_estimate_is_unbiased_and_its_interval_covers(
    planned: int, required: int, p: float
) -> None:
    """Every path of a curtailed run, weighted with its probability."""
    expectation = coverage = total = 0.0
    paths = [(0, 0, 1.0)]
    while paths:
        s, f, weight = paths.pop()
        if s < required and f < planned - required + 1:
            paths += [(s + 1, f, weight * p), (s, f + 1, weight * (1 - p))]
            continue
        found = curtailed_exact(
            required=required, planned=planned, successes=s, observed=s + f, confidence=0.9
        )
        expectation += weight * found.estimate
        coverage += weight * (found.lower <= p <= found.upper)
        total += weight
    assert total == pytest.approx(1)
    assert expectation == pytest.approx(p)
    assert coverage >= 0.9 - 1e-12


@pytest.mark.parametrize(("successes", "expected"), [(1, 1.0), (0, 0.0)])
def test_the_curtailed_estimate_of_one_episode(successes: int, expected: float) -> None:
    found = curtailed_exact(required=1, planned=1, successes=successes, observed=1)
    assert found.estimate == expected
    assert 0 <= found.lower <= found.upper <= 1


@pytest.mark.parametrize(("successes", "observed"), [(3, 5), (0, 0), (5, 9), (4, 12)])
def test_counts_that_are_no_stopping_point_are_refused(successes: int, observed: int) -> None:
    with pytest.raises(ValueError, match="stopped at its exact bound"):
        curtailed_exact(required=4, planned=6, successes=successes, observed=observed)


@pytest.mark.parametrize("interval", INTERVALS)
@pytest.mark.parametrize("counted", [(-1, 3), (4, 3), (0, -1)])
def test_impossible_counts_are_refused(interval: Interval, counted: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="successes"):
        interval(*counted)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, 1.5, float("nan")])
def test_levels_outside_the_open_unit_interval_are_refused(level: float) -> None:
    with pytest.raises(ValueError, match="confidence"):
        wilson(1, 2, confidence=level)
    with pytest.raises(ValueError, match="confidence"):
        clopper_pearson(1, 2, confidence=level)
    for bound in (clopper_pearson_lower, clopper_pearson_upper, anytime_beta_binomial):
        with pytest.raises(ValueError, match="alpha"):
            bound(1, 2, alpha=level)


def test_intervals_thresholds_and_judges_need_no_numpy() -> None:
    program = (
        "import sys, pytest_maatml.gates.intervals, pytest_maatml.gates.threshold;"
        "import pytest_maatml.gates.stopping, pytest_maatml.gates.paired;"
        "print([name for name in ('numpy', 'scipy', 'pytest') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout.strip() == "[]", run.stderr
