from __future__ import annotations

from fractions import Fraction
from math import comb

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from pytest_maatml.gates.binomial import (
    least,
    lower_tail,
    lower_tail_at_most,
    regularised_beta,
    turning_point,
    upper_tail,
    upper_tail_at_most,
)

PROBABILITIES = st.floats(0.001, 0.999)


@given(total=st.integers(0, 2000), share=st.floats(0, 1), p=PROBABILITIES)
@settings(max_examples=150, deadline=None)
def test_tails_agree_with_scipy(total: int, share: float, p: float) -> None:
    successes = round(share * total)
    expected = stats.binom.sf(successes - 1, total, p)
    assert upper_tail(successes, total, p) == pytest.approx(expected, rel=1e-9, abs=1e-13)
    expected = stats.binom.cdf(successes, total, p)
    assert lower_tail(successes, total, p) == pytest.approx(expected, rel=1e-9, abs=1e-13)


@given(a=st.integers(1, 500), b=st.integers(1, 500), x=st.floats(0, 1))
@settings(max_examples=150, deadline=None)
def test_incomplete_beta_agrees_with_scipy(a: int, b: int, x: float) -> None:
    expected = special.betainc(a, b, x)
    assert regularised_beta(a, b, x) == pytest.approx(expected, rel=1e-9, abs=1e-13)


def test_tails_at_the_edges() -> None:
    assert upper_tail(0, 5, 0.3) == 1
    assert upper_tail(6, 5, 0.3) == 0
    assert upper_tail(5, 5, 1.0) == 1
    assert upper_tail(1, 5, 0.0) == 0
    assert lower_tail(5, 5, 0.3) == 1
    assert lower_tail(-1, 5, 0.3) == 0


@given(
    total=st.integers(1, 30),
    successes=st.integers(0, 31),
    tenths=st.integers(1, 9),
    alpha=st.fractions(Fraction(1, 1000), Fraction(1, 2), max_denominator=1000),
)
@settings(max_examples=150, deadline=None)
def test_bounds_on_tails_agree_with_rational_sums(
    total: int, successes: int, tenths: int, alpha: Fraction
) -> None:
    p = Fraction(tenths, 10)
    pmf = [comb(total, k) * p**k * (1 - p) ** (total - k) for k in range(total + 1)]
    upper, lower = sum(pmf[successes:]), sum(pmf[: successes + 1])
    assert upper_tail_at_most(successes, total, p, alpha) is (upper <= alpha)
    assert lower_tail_at_most(successes, total, p, alpha) is (lower <= alpha)


@pytest.mark.parametrize("total", [1, 4, 10, 20])
def test_a_tail_that_equals_its_bound_is_within_it(total: int) -> None:
    for p in (Fraction(1, 2), Fraction(9, 10), Fraction(1, 3)):
        tie = p**total
        assert upper_tail_at_most(total, total, p, tie)
        assert not upper_tail_at_most(total, total, p, tie - Fraction(1, 10**40))
        assert lower_tail_at_most(0, total, 1 - p, tie)


def test_searches_find_where_a_predicate_turns() -> None:
    assert turning_point(lambda x: x * x >= 2, 0.0, 2.0) == pytest.approx(2**0.5, abs=1e-15)
    assert turning_point(lambda _: False, 0.0, 1.0) == 1.0
    assert least(lambda k: k * k >= 50, 0, 100) == 8
    assert least(lambda _: False, 0, 7) == 7
    assert least(lambda _: True, 3, 7) == 3
