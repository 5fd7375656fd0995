from __future__ import annotations

from itertools import product
from math import comb
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests

from pytest_maatml.gates.paired import (
    BaselineJudge,
    holm,
    least_alarming_losses,
    margin_rule,
    mcnemar_mid_p,
    mcnemar_p,
    newcombe,
    regression_p,
    tango,
)
from pytest_maatml.gates.stopping import EpisodeResult, Exact, Judge, ThresholdJudge
from pytest_maatml.gates.threshold import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence


RESULTS: tuple[EpisodeResult, ...] = get_args(EpisodeResult)
COUNTS = st.integers(0, 60)


def exact_p(wins: int, losses: int) -> float:
    pairs = wins + losses
    return sum(comb(pairs, k) for k in range(losses, pairs + 1)) / (1 << pairs)


def test_mcnemar_reference_values(oracles: dict[str, Any]) -> None:
    for (wins, losses), expected in oracles["mcnemar_p"]:
        found = (
            regression_p(wins, losses),
            mcnemar_p(wins, losses),
            mcnemar_mid_p(wins, losses),
        )
        assert found == pytest.approx(expected, abs=1e-10)


@given(wins=COUNTS, losses=COUNTS)
@settings(max_examples=80, deadline=None)
def test_mcnemar_agrees_with_sums_and_statsmodels(wins: int, losses: int) -> None:
    assert regression_p(wins, losses) == pytest.approx(exact_p(wins, losses), abs=1e-12)
    table = [[0, wins], [losses, 0]]
    expected = mcnemar(table, exact=True).pvalue if wins + losses else 1.0
    assert mcnemar_p(wins, losses) == pytest.approx(expected, abs=1e-12)
    assert mcnemar_p(wins, losses) == mcnemar_p(losses, wins)


@given(wins=COUNTS, losses=COUNTS)
@settings(max_examples=60, deadline=None)
def test_mid_p_leaves_out_what_was_observed(wins: int, losses: int) -> None:
    pairs = wins + losses
    observed = comb(pairs, wins) / 2**pairs if pairs else 0.0
    expected = stats.binomtest(wins, pairs, 0.5).pvalue - observed if pairs else 1.0
    assert mcnemar_mid_p(wins, losses) == pytest.approx(expected, abs=1e-12)


def test_five_losses_to_none_is_the_least_that_can_alarm() -> None:
    assert least_alarming_losses(0) == 5
    assert regression_p(0, 5) <= 0.05 < regression_p(0, 4)
    assert least_alarming_losses(0, alpha=0.0625) == 4  # a tie with 1/16


@pytest.mark.parametrize("alpha", [0.001, 0.05, 0.3])
def test_the_least_alarming_losses_are_where_p_falls_to_alpha(alpha: float) -> None:
    for wins in range(40):
        losses = least_alarming_losses(wins, alpha=alpha)
        assert exact_p(wins, losses) <= alpha < exact_p(wins, losses - 1)


def fed(judge: Judge, results: Sequence[EpisodeResult]) -> Judge:
    for result in results:
        judge.feed(result)
    return judge


@pytest.mark.parametrize("stops_early", [True, False])
def test_a_baseline_is_judged_as_the_full_run_would(stops_early: bool) -> None:
    """Every baseline and every run of five; at alpha .3 two losses to none alarm."""
    for baseline, results in product(
        product([True, False, None], repeat=5), product(RESULTS, repeat=5)
    ):
        judge = BaselineJudge(baseline, alpha=0.3, max_errors=5, stops_early=stops_early)
        verdict = fed(judge, results).verdict
        pairs = list(zip(baseline, results, strict=True))
        wins, losses = pairs.count((False, "success")), pairs.count((True, "failure"))
        alarm = exact_p(wins, losses) <= 0.3
        assert verdict is not None
        assert verdict.outcome is (Outcome.FAILED if alarm else Outcome.PASSED)
        assert stops_early or verdict.observed == 5


def test_a_baseline_judge_stops_at_the_loss_that_no_win_can_mend() -> None:
    judge = BaselineJudge([True] * 20)
    fed(judge, ["failure"] * 20)
    assert judge.verdict is not None
    assert (judge.verdict.outcome, judge.verdict.observed) == (Outcome.FAILED, 5)
    judge = BaselineJudge([True] * 20)
    fed(judge, ["success"] * 20)
    assert judge.verdict is not None
    assert (judge.verdict.outcome, judge.verdict.observed) == (Outcome.PASSED, 16)


def test_errors_are_never_losses_but_leave_a_baseline_undecided() -> None:
    baseline = [True] * 8 + [None]
    results: tuple[EpisodeResult, ...] = (*("error",) * 8, "failure")
    judge = BaselineJudge(baseline, stops_early=False)
    verdict = fed(judge, results).verdict
    assert verdict is not None
    assert verdict.outcome is Outcome.UNDECIDED
    assert (judge.wins, judge.losses, judge.errors, judge.unpaired) == (0, 0, 8, 9)
    forgiving = BaselineJudge(baseline, max_errors=8, stops_early=False)
    verdict = fed(forgiving, results).verdict
    assert verdict is not None
    assert verdict.outcome is Outcome.PASSED


def test_a_margin_gate_is_a_count_below_the_baseline() -> None:
    rule = margin_rule(baseline_successes=45, margin=2, planned=50)
    assert (rule.required, rule.planned) == (43, 50)
    assert str(rule) == ">= 86% (43/50)"
    judge = ThresholdJudge(Exact().boundaries(rule))
    verdict = fed(judge, ["success"] * 43).verdict
    assert verdict is not None
    assert verdict.outcome is Outcome.PASSED
    assert margin_rule(baseline_successes=1, margin=5, planned=10).required == 0


@pytest.mark.parametrize("counts", [(5, -1, 10), (11, 0, 10), (-1, 0, 10), (0, 0, 0)])
def test_a_margin_needs_a_baseline_of_the_same_tasks(counts: tuple[int, int, int]) -> None:
    successes, margin, planned = counts
    with pytest.raises(ValueError, match="margin="):
        margin_rule(baseline_successes=successes, margin=margin, planned=planned)


def test_newcombe_reference_values(oracles: dict[str, Any]) -> None:
    for (both, wins, losses, neither), expected in oracles["newcombe_paired_95"]:
        found = newcombe(both_passed=both, wins=wins, losses=losses, both_failed=neither)
        assert found == pytest.approx(expected, abs=1e-10)


def test_tango_reference_values(oracles: dict[str, Any]) -> None:
    for (wins, losses, pairs), expected in oracles["tango_95"]:
        assert tango(wins=wins, losses=losses, pairs=pairs) == pytest.approx(expected, abs=1e-8)


def score_by_maximum_likelihood(wins: int, losses: int, pairs: int, change: float) -> float:
    """Tango's statistic with the loss rate found by maximising the likelihood itself."""

    def minus_log_likelihood(loss_rate: float) -> float:
        rates = np.array([loss_rate + change, loss_rate, 1 - 2 * loss_rate - change])
        return -float(np.array([wins, losses, pairs - wins - losses]) @ np.log(rates))

    edges = max(0.0, -change) + 1e-12, (1 - change) / 2 - 1e-12
    found = optimize.minimize_scalar(
        minus_log_likelihood, bounds=edges, method="bounded", options={"xatol": 1e-13}
    )
    variance = 2 * found.x + change - change**2
    return float((wins - losses - pairs * change) / np.sqrt(pairs * variance))


@pytest.mark.parametrize("counts", [(3, 12, 200), (1, 7, 21), (6, 1, 15), (9, 9, 40)])
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_tango_limits_are_where_the_score_is_z(
    counts: tuple[int, int, int], confidence: float
) -> None:
    wins, losses, pairs = counts
    z = float(stats.norm.ppf((1 + confidence) / 2))
    limits = tango(wins=wins, losses=losses, pairs=pairs, confidence=confidence)
    found = [score_by_maximum_likelihood(*counts, limit) for limit in limits]
    assert found == pytest.approx([z, -z], abs=1e-4)


@st.composite
def tables(draw: st.DrawFn) -> dict[str, int]:
    names = ("both_passed", "wins", "losses", "both_failed")
    table = {name: draw(st.integers(0, 40)) for name in names}
    return table if sum(table.values()) else {**table, "both_passed": 1}


def swapped(table: dict[str, int]) -> dict[str, int]:
    return {**table, "wins": table["losses"], "losses": table["wins"]}


@given(table=tables())
@settings(max_examples=100, deadline=None)
def test_difference_intervals_hold_the_difference_and_mirror(table: dict[str, int]) -> None:
    wins, losses, pairs = table["wins"], table["losses"], sum(table.values())
    found: list[tuple[tuple[float, float], tuple[float, float]]] = [
        (newcombe(**table), newcombe(**swapped(table))),
        (
            tango(wins=wins, losses=losses, pairs=pairs),
            tango(wins=losses, losses=wins, pairs=pairs),
        ),
    ]
    for (lower, upper), mirrored in found:
        assert -1 <= lower <= (wins - losses) / pairs <= upper <= 1
        assert (lower, upper) == pytest.approx((-mirrored[1], -mirrored[0]), abs=1e-9)


def test_difference_intervals_at_the_edges() -> None:
    assert newcombe(both_passed=0, wins=0, losses=0, both_failed=0) == (-1, 1)
    assert tango(wins=0, losses=0, pairs=0) == (-1, 1)
    # Without discordant pairs N d^2 / (|d| (1 - |d|)) = z^2, so |d| = z^2 / (N + z^2).
    z2 = float(stats.norm.ppf(0.975)) ** 2
    expected = z2 / (20 + z2)
    assert tango(wins=0, losses=0, pairs=20) == pytest.approx((-expected, expected), abs=1e-10)
    assert tango(wins=4, losses=0, pairs=4)[1] == pytest.approx(1)


def test_holm_reference_values(oracles: dict[str, Any]) -> None:
    for p_values, expected in oracles["holm_adjusted"]:
        assert holm(p_values) == pytest.approx(expected, abs=1e-10)


@given(p_values=st.lists(st.floats(0, 1), min_size=1, max_size=12))
@settings(max_examples=20, deadline=None)
def test_holm_agrees_with_statsmodels(p_values: list[float]) -> None:
    expected = multipletests(p_values, method="holm")[1]
    assert holm(p_values) == pytest.approx(list(expected), abs=1e-12)


def test_holm_of_nothing_is_nothing() -> None:
    assert holm([]) == []


@pytest.mark.parametrize("p", [-0.1, 1.1, float("nan")])
def test_holm_takes_probabilities(p: float) -> None:
    with pytest.raises(ValueError, match="p_values"):
        holm([0.1, p])


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        (regression_p, {"wins": -1, "losses": 0}),
        (regression_p, {"wins": 0, "losses": -1}),
        (tango, {"wins": 3, "losses": 3, "pairs": 5}),
        (newcombe, {"both_passed": -1, "wins": 0, "losses": 0, "both_failed": 2}),
        (least_alarming_losses, {"wins": -1}),
    ],
)
def test_counts_that_do_not_fit_are_refused(call: Any, arguments: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="0 or more"):
        call(**arguments)
