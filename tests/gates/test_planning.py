from __future__ import annotations

from typing import Any

import pytest
from scipy import stats

from pytest_maatml.gates.planning import certifying_episodes, expected_episodes, powered_rule
from pytest_maatml.gates.stopping import Exact, Off, Risk
from pytest_maatml.gates.threshold import threshold_rule

RULE = threshold_rule("point", 0.9, 200)


def test_episodes_for_failures_have_their_reference_values(oracles: dict[str, Any]) -> None:
    for (threshold, alpha), expected in oracles["n_for_c_failures"]:
        found = [certifying_episodes(failures, threshold, alpha=alpha) for failures in range(6)]
        assert found == expected


@pytest.mark.parametrize("failures", [0, 3, 20])
def test_episodes_for_failures_are_the_fewest(failures: int) -> None:
    n = certifying_episodes(failures, 0.7, alpha=0.01)
    assert stats.binom.cdf(failures, n, 0.3) <= 0.01 < stats.binom.cdf(failures, n - 1, 0.3)


def test_powered_gates_have_their_reference_values(oracles: dict[str, Any]) -> None:
    for (threshold, truth, power), expected in oracles["n_certify"]:
        rule = powered_rule("certify", threshold, truth, power=power)
        assert [rule.planned, rule.required] == expected


@pytest.mark.parametrize(
    ("truth", "power", "episodes"),
    [(0.95, 0.8, 179), (0.95, 0.95, 298), (0.99, 0.8, 46), (0.99, 0.95, 61)],
)
def test_episodes_to_certify_nine_tenths(truth: float, power: float, episodes: int) -> None:
    rule = powered_rule("certify", 0.9, truth, power=power)
    assert rule.planned == episodes
    assert stats.binom.sf(rule.required - 1, episodes, truth) >= power


def test_a_powered_point_gate_is_the_first_with_that_power() -> None:
    found = powered_rule("point", 0.9, 0.93, power=0.95).planned
    powers = [
        stats.binom.sf(threshold_rule("point", 0.9, n).required - 1, n, 0.93)
        for n in range(1, found + 1)
    ]
    assert powers[-1] >= 0.95
    assert max(powers[:-1]) < 0.95


def test_a_gate_without_the_power_is_refused() -> None:
    with pytest.raises(ValueError, match="lower the threshold or the power"):
        powered_rule("certify", 0.9, 0.9, power=0.01)
    with pytest.raises(ValueError, match="up to 50 episodes"):
        powered_rule("certify", 0.9, 0.95, power=0.8, limit=50)


def test_curtailed_walks_have_their_reference_values(oracles: dict[str, Any]) -> None:
    for truth, expected in oracles["curtailed_point_200_180"]:
        found = expected_episodes(RULE, Exact(), truth)
        assert (found.pass_probability, found.expected_episodes) == pytest.approx(
            expected, rel=1e-10
        )


@pytest.mark.parametrize(
    ("truth", "risk", "exact"),
    [
        (0.5, 11, 42),
        (0.8, 66, 105),
        (0.9, 173, 186),
        (0.95, 116, 189),
        (0.99, 54, 182),
        (1.0, 43, 180),
    ],
)
def test_expected_episodes_to_the_printed_digits(truth: float, risk: int, exact: int) -> None:
    assert round(expected_episodes(RULE, Risk(0.01), truth).expected_episodes) == risk
    assert round(expected_episodes(RULE, Exact(), truth).expected_episodes) == exact
    assert expected_episodes(RULE, Off(), truth).expected_episodes == pytest.approx(200)


@pytest.mark.parametrize("truth", [0.5, 0.8, 0.9, 0.95, 0.99, 1.0])
def test_early_stops_keep_the_error_rates_of_the_full_run(truth: float) -> None:
    full = float(stats.binom.sf(179, 200, truth))
    assert expected_episodes(RULE, Exact(), truth).pass_probability == pytest.approx(
        full, abs=1e-12
    )
    assert expected_episodes(RULE, Off(), truth).pass_probability == pytest.approx(full, abs=1e-12)
    assert expected_episodes(RULE, Risk(0.01), truth).pass_probability == pytest.approx(
        full, abs=1e-3
    )


@pytest.mark.parametrize(
    ("truth", "saved"), [(0.5, 0.79), (0.7, 0.65), (0.8, 0.48), (0.85, 0.30), (1.0, 0.10)]
)
def test_what_curtailment_saves(truth: float, saved: float) -> None:
    run = expected_episodes(RULE, Exact(), truth).expected_episodes
    assert 1 - run / 200 == pytest.approx(saved, abs=0.0051)


def test_plans_refuse_what_cannot_be() -> None:
    with pytest.raises(ValueError, match="failures="):
        certifying_episodes(-1, 0.9)
    with pytest.raises(ValueError, match="truth="):
        expected_episodes(RULE, Off(), 1.5)
    with pytest.raises(ValueError, match="power="):
        powered_rule("point", 0.9, 0.95, power=1)
    with pytest.raises(ValueError, match="certified"):
        powered_rule("certify", 1, 1.0, power=0.5)
