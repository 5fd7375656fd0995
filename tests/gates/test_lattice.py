from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pytest_maatml.gates.lattice import operating_characteristic, verdict_lattice

if TYPE_CHECKING:
    from pytest_maatml.gates.lattice import VerdictLattice


def verdict_of(lattice: VerdictLattice, outcomes: tuple[int, ...]) -> bool:
    successes = 0
    for n, outcome in enumerate(outcomes, start=1):
        successes += outcome
        if successes >= lattice.passing[n]:
            return True
        if successes <= lattice.failing[n]:
            return False
    raise AssertionError("no verdict at the end")


def pass_probabilities(lattice: VerdictLattice) -> list[float]:
    """Of every list with K = 0..N successes in random order, by its hypergeometric walk.

    Where the walk stands with s of n, the next is a success with chance (K - s) / (N - n).
    """
    planned = len(lattice.passing) - 1
    of_list = np.arange(planned + 1)[:, None]
    s = np.arange(planned + 1)[None, :]
    mass = np.zeros((planned + 1, planned + 1))
    mass[:, 0] = 1
    passed = np.zeros(planned + 1)
    for n in range(planned):
        hit = mass * np.clip((of_list - s) / (planned - n), 0, 1)
        mass = mass - hit
        mass[:, 1:] += hit[:, :-1]
        passes = s[0] >= lattice.passing[n + 1]
        passed += mass[:, passes].sum(axis=1)
        mass[:, passes | (s[0] <= lattice.failing[n + 1])] = 0
    assert mass.sum() == pytest.approx(0, abs=1e-12)
    return [float(p) for p in passed]


def test_lattices_have_their_reference_values(oracles: dict[str, Any]) -> None:
    for (planned, required, gamma), (upper, lower, *errors) in oracles["verdict_lattice"]:
        lattice = verdict_lattice(planned=planned, required=required, gamma=gamma)
        passing = [bound if bound <= n else None for n, bound in enumerate(lattice.passing)]
        failing = [bound if bound >= 0 else None for bound in lattice.failing]
        assert passing[1:] == upper
        assert failing[1:] == lower
        assert (lattice.wrong_pass, lattice.wrong_fail) == pytest.approx(errors, abs=1e-12)


def test_operating_characteristics_have_their_reference_values(oracles: dict[str, Any]) -> None:
    for (planned, required, gamma, truth), expected in oracles["verdict_lattice_rho.5_iid_OC"]:
        lattice = verdict_lattice(planned=planned, required=required, gamma=gamma)
        found = operating_characteristic(lattice.passing, lattice.failing, truth)
        assert (found.pass_probability, found.expected_episodes) == pytest.approx(
            expected, rel=1e-10, abs=1e-10
        )
        assert found.pass_probability + found.fail_probability == pytest.approx(1, abs=1e-10)


@pytest.mark.parametrize("gamma", [0.01, 0.05, 0.2, 0.45])
@pytest.mark.parametrize("planned", [1, 2, 3, 4, 5, 6, 8])
def test_every_list_in_every_order_keeps_the_promise(planned: int, gamma: float) -> None:
    for required in range(1, planned + 1):
        lattice = verdict_lattice(planned=planned, required=required, gamma=gamma)
        keeps_the_promise(lattice, required, gamma)


@pytest.mark.parametrize(("required", "gamma"), [(1, 0.05), (6, 0.1), (10, 0.2), (12, 0.3)])
def test_every_list_of_twelve_keeps_the_promise(required: int, gamma: float) -> None:
    lattice = verdict_lattice(planned=12, required=required, gamma=gamma)
    keeps_the_promise(lattice, required, gamma)


def keeps_the_promise(lattice: VerdictLattice, required: int, gamma: float) -> None:
    """Of a list with K successes all placements of them are equally likely: try them all."""
    planned = len(lattice.passing) - 1
    for successes in range(planned + 1):
        verdicts = [
            verdict_of(lattice, tuple(int(n in places) for n in range(planned)))
            for places in combinations(range(planned), successes)
        ]
        wrong = sum(verdict != (successes >= required) for verdict in verdicts)
        assert wrong <= gamma * len(verdicts) + 1e-9


@pytest.mark.parametrize("gamma", [0.01, 0.05])
@pytest.mark.parametrize(
    ("planned", "required"),
    [(20, 18), (20, 20), (20, 1), (50, 45), (50, 25), (200, 180), (200, 188), (200, 100)],
)
def test_every_list_keeps_the_promise_by_its_walk(
    planned: int, required: int, gamma: float
) -> None:
    lattice = verdict_lattice(planned=planned, required=required, gamma=gamma)
    passed = pass_probabilities(lattice)
    assert max(passed[:required]) <= gamma + 1e-12
    assert min(passed[required:]) >= 1 - gamma - 1e-12
    # The nearest lists are the worst, and the lattice knows what it risks on them.
    assert passed[required - 1] == max(passed[:required])
    assert lattice.wrong_pass == pytest.approx(passed[required - 1], abs=1e-12)
    assert lattice.wrong_fail == pytest.approx(1 - passed[required], abs=1e-12)


@given(planned=st.integers(1, 60), share=st.floats(0, 1), gamma=st.sampled_from([0.001, 0.05, 0.4]))
@settings(max_examples=60, deadline=None)
def test_bounds_are_in_order_and_no_later_than_certainty(
    planned: int, share: float, gamma: float
) -> None:
    required = max(1, round(share * planned))
    lattice = verdict_lattice(planned=planned, required=required, gamma=gamma)
    for n in range(1, planned + 1):
        assert lattice.failing[n] < lattice.passing[n]
        assert lattice.passing[n] <= max(required, n - planned + required)
        assert lattice.failing[n] >= n - (planned - required + 1)
    assert (lattice.passing[planned], lattice.failing[planned]) == (required, required - 1)


def test_a_mass_equal_to_the_budget_is_within_it() -> None:
    # The first of four is the one success with chance 1/4; the budget is 0.5 * sqrt(1/4).
    assert verdict_lattice(planned=4, required=2, gamma=0.5).passing[1] == 1
    assert verdict_lattice(planned=4, required=2, gamma=0.499).passing[1] == 2


def test_where_every_path_has_stopped_only_certainty_is_left() -> None:
    # Five failures of seven: 2/7 is within 0.4 * sqrt(5/7), and nothing is left to walk on.
    lattice = verdict_lattice(planned=7, required=1, gamma=0.4)
    assert lattice.failing == (-1, -1, -1, -1, -1, 0, -1, 0)
    assert lattice.passing == (1, 1, 1, 1, 1, 1, 1, 1)


def test_an_easy_first_list_is_passed_wrongly_in_its_own_order() -> None:
    lattice = verdict_lattice(planned=200, required=180, gamma=0.01)
    easy_first = (1,) * 150 + (0,) * 50
    assert verdict_of(lattice, easy_first)
    assert pass_probabilities(lattice)[150] < 1e-5


def test_a_walk_without_early_stops_is_the_binomial() -> None:
    passing, failing = (*range(1, 31), 25), (*[-1] * 30, 24)
    found = operating_characteristic(passing, failing, 0.8)
    assert found.pass_probability == pytest.approx(stats.binom.sf(24, 30, 0.8), abs=1e-13)
    assert found.expected_episodes == pytest.approx(30)


@pytest.mark.parametrize("required", [0, 11])
def test_a_lattice_needs_both_verdicts_possible(required: int) -> None:
    with pytest.raises(ValueError, match="required="):
        verdict_lattice(planned=10, required=required, gamma=0.01)


def test_peeking_at_a_fixed_rule_passes_too_often() -> None:
    """9.4 % by n = 200 where 2.5 % is nominal: why there is a lattice at all."""
    z = stats.norm.ppf(0.975)

    def lower(s: int, n: int) -> float:
        rate = s / n
        half = z * np.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
        return float((rate + z * z / (2 * n) - half) / (1 + z * z / n))

    passing = [
        next((s for s in range(n + 1) if n and lower(s, n) >= 0.9), n + 1) for n in range(201)
    ]
    found = operating_characteristic(passing, [-1] * 201, 0.9)
    assert found.pass_probability == pytest.approx(0.094, abs=0.0005)
