from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pytest_maatml.gates.intervals import clopper_pearson_lower
from pytest_maatml.gates.threshold import (
    GateKind,
    ImpossibleGate,
    Outcome,
    threshold_rule,
    zero_failure_episodes,
)

THRESHOLDS = st.integers(1, 99).map(lambda percent: f"0.{percent:02}")
ALPHAS = st.sampled_from([0.01, 0.025, 0.05, 0.1, 0.25])


def required(kind: GateKind, threshold: float | str, planned: int, alpha: float = 0.05) -> int:
    """The required count; one more than planned where the gate cannot pass."""
    try:
        return threshold_rule(kind, threshold, planned, alpha=alpha).required
    except ImpossibleGate:
        return planned + 1


def test_required_counts_have_their_reference_values(oracles: dict[str, Any]) -> None:
    for (planned, threshold), (point, certify, _, guard) in oracles["kstar"]:
        found = [required(kind, threshold, planned) for kind in ("point", "certify", "guard")]
        assert found == [point, certify, guard]


def test_point_takes_decimals_as_written() -> None:
    assert ceil(0.55 * 100) == 56
    assert required("point", 0.55, 100) == 55
    assert required("point", "0.55", 100) == 55
    assert required("point", "9/10", 200) == 180
    assert required("point", "1/3", 3) == 1


@given(percent=st.integers(0, 1000), planned=st.integers(1, 3000))
@settings(max_examples=150, deadline=None)
def test_point_is_the_least_count_that_reaches_the_rate(percent: int, planned: int) -> None:
    k = required("point", str(percent / 1000), planned)
    assert 1000 * k >= percent * planned
    assert 1000 * (k - 1) < percent * planned


@given(threshold=THRESHOLDS, planned=st.integers(1, 500), alpha=ALPHAS)
@settings(max_examples=80, deadline=None)
def test_certify_and_guard_are_the_exact_binomial_tests(
    threshold: str, planned: int, alpha: float
) -> None:
    p0 = float(threshold)
    k = required("certify", threshold, planned, alpha)
    assert stats.binom.sf(k - 1, planned, p0) <= alpha * (1 + 1e-9)
    assert stats.binom.sf(k - 2, planned, p0) > alpha * (1 - 1e-9)
    g = required("guard", threshold, planned, alpha)
    assert stats.binom.cdf(g, planned, p0) > alpha * (1 - 1e-9)
    assert stats.binom.cdf(g - 1, planned, p0) <= alpha * (1 + 1e-9)


@given(threshold=THRESHOLDS, planned=st.integers(1, 200), alpha=ALPHAS)
@settings(max_examples=40, deadline=None)
def test_certify_is_a_clopper_pearson_bound_at_the_threshold(
    threshold: str, planned: int, alpha: float
) -> None:
    k = required("certify", threshold, planned, alpha)
    bounds = [clopper_pearson_lower(s, planned, alpha=alpha) for s in range(planned + 1)]
    assert sum(bound < float(threshold) - 1e-12 for bound in bounds) == k


@given(
    thresholds=st.tuples(THRESHOLDS, THRESHOLDS),
    alphas=st.tuples(ALPHAS, ALPHAS),
    planned=st.integers(1, 300),
)
@settings(max_examples=80, deadline=None)
def test_required_counts_rise_with_threshold_and_strictness(
    thresholds: tuple[str, str], alphas: tuple[float, float], planned: int
) -> None:
    low, high = sorted(thresholds)
    strict, lax = sorted(alphas)
    for kind in ("point", "certify", "guard"):
        assert required(kind, low, planned) <= required(kind, high, planned)
    assert required("certify", low, planned, lax) <= required("certify", low, planned, strict)
    assert required("guard", low, planned, strict) <= required("guard", low, planned, lax)
    assert required("guard", low, planned) <= required("certify", low, planned)


def test_a_tie_with_alpha_certifies_and_alarms() -> None:
    # P(Bin(4, 1/2) >= 4) = P(Bin(4, 1/2) <= 0) = 1/16 exactly.
    assert required("certify", 0.5, 4, alpha=0.0625) == 4
    assert required("guard", 0.5, 4, alpha=0.0625) == 1
    # P(Bin(2, 9/10) >= 2) = 0.81, which no binary float holds.
    assert required("certify", 0.9, 2, alpha=0.81) == 2


@pytest.mark.parametrize(
    ("threshold", "episodes"),
    [(0.5, 5), (0.7, 9), (0.8, 14), (0.9, 29), (0.95, 59), (0.98, 149), (0.99, 299), (0.999, 2995)],
)
def test_a_gate_that_cannot_pass_says_how_many_episodes_it_needs(
    threshold: float, episodes: int
) -> None:
    assert zero_failure_episodes(threshold) == episodes
    with pytest.raises(ImpossibleGate, match=f"needs at least {episodes} episodes") as caught:
        threshold_rule("certify", threshold, episodes - 1)
    assert caught.value.needed == episodes
    assert threshold_rule("certify", threshold, episodes).required == episodes


def test_the_zero_failure_count_is_exact_at_ties() -> None:
    for n in (1, 2, 5, 12):
        alpha = 0.5**n
        assert zero_failure_episodes(0.5, alpha=alpha) == n
    assert zero_failure_episodes(0.9, alpha=0.729) == 3
    assert zero_failure_episodes(0) == 1


def test_certain_success_cannot_be_certified() -> None:
    with pytest.raises(ImpossibleGate, match="no number of episodes") as caught:
        threshold_rule("certify", 1, 10_000)
    assert caught.value.needed is None
    with pytest.raises(ValueError, match="certified"):
        zero_failure_episodes(1)


def test_thresholds_at_the_edges() -> None:
    assert required("point", 0, 7) == 0
    assert required("point", 1, 7) == 7
    assert required("guard", 0, 7) == 0
    assert required("guard", 1, 7) == 7
    assert required("certify", 0, 7) == 1


@pytest.mark.parametrize("threshold", [-0.1, 1.0001, "nan", "inf", "high", "1/0", float("nan"), ""])
def test_what_is_no_rate_is_refused(threshold: float | str) -> None:
    with pytest.raises(ValueError, match="threshold="):
        threshold_rule("point", threshold, 10)


@pytest.mark.parametrize("alpha", [0, 1, -1, 2])
def test_alpha_is_between_zero_and_one(alpha: float) -> None:
    with pytest.raises(ValueError, match="alpha="):
        threshold_rule("certify", 0.9, 100, alpha=alpha)


def test_a_gate_has_episodes_and_a_known_kind() -> None:
    with pytest.raises(ValueError, match="at least one episode"):
        threshold_rule("point", 0.9, 0)
    with pytest.raises(ValueError, match="point, certify, guard"):
        threshold_rule("median", 0.9, 10)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "threshold", "text"),
    [
        ("point", 0.9, ">= 90% (45/50)"),
        ("point", "0.875", ">= 87.5% (44/50)"),
        ("certify", 0.9, "certified >= 90% (49/50, alpha 0.05)"),
        ("guard", 0.9, "not below 90% (41/50, alpha 0.05)"),
        ("point", 0, ">= 0% (0/50, cannot fail)"),
    ],
)
def test_a_rule_is_said_in_one_line(kind: GateKind, threshold: float | str, text: str) -> None:
    assert str(threshold_rule(kind, threshold, 50)) == text


def test_counts_are_judged_by_what_the_others_could_still_change() -> None:
    rule = threshold_rule("point", 0.9, 10)
    for s in range(11):
        for f in range(11 - s):
            for e in range(11 - s - f):
                found = rule.judge(successes=s, failures=f, errors=e, max_errors=10)
                worst, best = s, 10 - f
                expected = (
                    Outcome.PASSED
                    if worst >= 9
                    else Outcome.FAILED
                    if best < 9
                    else Outcome.UNDECIDED
                )
                assert found is expected


@pytest.mark.parametrize(
    ("errors", "max_errors", "expected"),
    [
        (0, 0, Outcome.PASSED),
        (1, 0, Outcome.UNDECIDED),
        (1, 1, Outcome.PASSED),
        (2, 1, Outcome.UNDECIDED),
    ],
)
def test_no_gate_passes_with_more_errors_than_allowed(
    errors: int, max_errors: int, expected: Outcome
) -> None:
    rule = threshold_rule("point", 0.8, 10)
    found = rule.judge(successes=8, failures=0, errors=errors, max_errors=max_errors)
    assert found is expected


@pytest.mark.parametrize("counts", [(8, 3, 0), (0, 0, 11), (-1, 0, 0), (0, -1, 0), (0, 0, -1)])
def test_counts_that_do_not_fit_the_plan_are_refused(counts: tuple[int, int, int]) -> None:
    successes, failures, errors = counts
    with pytest.raises(ValueError, match="10 planned"):
        threshold_rule("point", 0.9, 10).judge(
            successes=successes, failures=failures, errors=errors
        )


def test_figures_of_the_manual() -> None:
    # A point gate at .9 passes 23 % of the time at .88; one-sided Wilson passes 25/25.
    assert stats.binom.sf(required("point", 0.9, 200) - 1, 200, 0.88) == pytest.approx(
        0.23, abs=0.005
    )
    assert round(0.9**25, 3) == 0.072
    assert required("certify", 0.9, 25) == 26
    # Eight uncorrected guards of 200 episodes raise 30 % false alarms.
    alarm = stats.binom.cdf(required("guard", 0.9, 200) - 1, 200, 0.9)
    assert 1 - (1 - alarm) ** 8 == pytest.approx(0.30, abs=0.005)
    # The false-pass rate is exact: one success fewer would pass too often.
    p0 = Fraction(9, 10)
    assert required("certify", float(p0), 29) == 29
    assert p0**29 <= Fraction(1, 20) < p0**28
