from __future__ import annotations

from itertools import product
from random import Random
from typing import TYPE_CHECKING, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pytest_maatml.gates.lattice import operating_characteristic
from pytest_maatml.gates.stopping import (
    EpisodeResult,
    Exact,
    Judge,
    Off,
    Risk,
    StoppingRule,
    ThresholdJudge,
    Verdict,
    parse_stopping,
)
from pytest_maatml.gates.threshold import Outcome, ThresholdRule, threshold_rule

if TYPE_CHECKING:
    from collections.abc import Iterable

RESULTS: tuple[EpisodeResult, ...] = get_args(EpisodeResult)


def a_rule(required: int, planned: int) -> ThresholdRule:
    return threshold_rule("point", f"{required}/{planned}", planned)


def judged(
    stopping: StoppingRule,
    rule: ThresholdRule,
    results: Iterable[EpisodeResult],
    *,
    max_errors: int = 0,
) -> Verdict | None:
    judge: Judge = ThresholdJudge(stopping.boundaries(rule), max_errors=max_errors)
    for result in results:
        judge.feed(result)
    return judge.verdict


def full_run(rule: ThresholdRule, results: tuple[EpisodeResult, ...], max_errors: int) -> Outcome:
    return rule.judge(
        successes=results.count("success"),
        failures=results.count("failure"),
        errors=results.count("error"),
        max_errors=max_errors,
    )


@pytest.mark.parametrize("planned", [1, 2, 5])
def test_off_says_what_the_counts_say_and_only_at_the_end(planned: int) -> None:
    for required, results in product(range(planned + 1), product(RESULTS, repeat=planned)):
        rule = a_rule(required, planned)
        for max_errors in (0, planned):
            verdict = judged(Off(), rule, results, max_errors=max_errors)
            assert verdict == Verdict(outcome=full_run(rule, results, max_errors), observed=planned)
        assert judged(Off(), rule, results[:-1]) is None


@pytest.mark.parametrize("planned", [1, 2, 5])
def test_exact_says_what_the_full_run_says_in_any_order(planned: int) -> None:
    for required, results in product(range(planned + 1), product(RESULTS, repeat=planned)):
        rule = a_rule(required, planned)
        verdict = judged(Exact(), rule, results, max_errors=planned)
        assert verdict is not None
        assert verdict.outcome is full_run(rule, results, planned)


@pytest.mark.parametrize("planned", [1, 4, 6])
def test_exact_stops_as_soon_as_the_rest_cannot_matter(planned: int) -> None:
    for required, results in product(range(planned + 1), product(RESULTS[:2], repeat=planned)):
        rule = a_rule(required, planned)
        verdict = judged(Exact(), rule, results)
        assert verdict is not None
        earliest = next(
            n
            for n in range(1, planned + 1)
            if results[:n].count("success") >= required
            or results[:n].count("failure") > planned - required
        )
        assert verdict.observed == earliest


def test_exact_stops_at_the_required_success_and_at_the_failure_too_many() -> None:
    rule = a_rule(180, 200)
    passed = judged(Exact(), rule, ["success"] * 200)
    assert passed == Verdict(outcome=Outcome.PASSED, observed=180)
    failed = judged(Exact(), rule, ["failure"] * 200)
    assert failed == Verdict(outcome=Outcome.FAILED, observed=21)


def test_risk_stops_a_perfect_policy_after_43_of_200() -> None:
    verdict = judged(Risk(0.01), a_rule(180, 200), ["success"] * 200)
    assert verdict == Verdict(outcome=Outcome.PASSED, observed=43)


@given(
    planned=st.integers(1, 60), share=st.floats(0.3, 1), truth=st.floats(0.2, 1), seed=st.integers()
)
@settings(max_examples=80, deadline=None)
def test_risk_is_never_later_than_exact(
    planned: int, share: float, truth: float, seed: int
) -> None:
    draw, rule = Random(seed), a_rule(round(share * planned), planned)
    results: list[EpisodeResult] = [
        "success" if draw.random() < truth else "failure" for _ in range(planned)
    ]
    risky, exact = judged(Risk(0.05), rule, results), judged(Exact(), rule, results)
    assert risky is not None
    assert exact is not None
    assert risky.observed <= exact.observed


def with_errors_as(
    result: EpisodeResult, results: tuple[EpisodeResult, ...]
) -> tuple[EpisodeResult, ...]:
    return tuple(result if r == "error" else r for r in results)


def earliest(*verdicts: Verdict | None) -> int:
    return min((verdict.observed for verdict in verdicts if verdict), default=10**6)


def only(outcome: Outcome, verdict: Verdict | None) -> Verdict | None:
    return verdict if verdict and verdict.outcome is outcome else None


def errors_are_failures_to_the_pass_and_successes_to_the_fail(
    stopping: StoppingRule, rule: ThresholdRule, results: tuple[EpisodeResult, ...]
) -> None:
    """A run with errors stops where one of the two runs without them does, or by its count."""
    found = judged(stopping, rule, results, max_errors=len(results))
    passing, failing = with_errors_as("failure", results), with_errors_as("success", results)
    passed = earliest(
        only(Outcome.PASSED, judged(stopping, rule, passing)),
        only(Outcome.PASSED, judged(Exact(), rule, passing)),
    )
    failed = earliest(
        only(Outcome.FAILED, judged(stopping, rule, failing)),
        only(Outcome.FAILED, judged(Exact(), rule, failing)),
    )
    assert found is not None
    if min(passed, failed) > rule.planned:
        assert found == Verdict(outcome=Outcome.UNDECIDED, observed=rule.planned)
    else:
        outcome = Outcome.PASSED if passed < failed else Outcome.FAILED
        assert found == Verdict(outcome=outcome, observed=min(passed, failed))


@given(
    results=st.lists(st.sampled_from(RESULTS), min_size=30, max_size=30).map(tuple),
    required=st.integers(1, 30),
)
@settings(max_examples=100, deadline=None)
def test_errors_are_failures_to_the_pass_and_successes_to_the_fail(
    results: tuple[EpisodeResult, ...], required: int
) -> None:
    for stopping in (Exact(), Risk(0.1), Risk(0.4)):
        errors_are_failures_to_the_pass_and_successes_to_the_fail(
            stopping, a_rule(required, 30), results
        )


@pytest.mark.parametrize("planned", [3, 6])
def test_errors_anywhere_keep_that_rule(planned: int) -> None:
    for required in range(1, planned + 1):
        rule, stopping = a_rule(required, planned), Risk(0.4)
        for results in product(RESULTS, repeat=planned):
            errors_are_failures_to_the_pass_and_successes_to_the_fail(stopping, rule, results)


def test_a_run_without_a_success_does_not_pass_for_its_errors() -> None:
    results: tuple[EpisodeResult, ...] = ("error", *("failure",) * 6)
    found = judged(Risk(0.4), a_rule(1, 7), results, max_errors=1)
    assert found == Verdict(outcome=Outcome.UNDECIDED, observed=7)


def test_errors_delay_a_pass_and_a_fail_but_turn_neither() -> None:
    rule = a_rule(2, 4)
    passed = judged(Exact(), rule, ["success", "error", "success"], max_errors=1)
    assert passed == Verdict(outcome=Outcome.PASSED, observed=3)
    failed = judged(Exact(), rule, ["failure", "error", "failure", "failure"])
    assert failed == Verdict(outcome=Outcome.FAILED, observed=4)
    open_to_the_end = judged(Exact(), rule, ["failure", "error", "failure", "success"])
    assert open_to_the_end == Verdict(outcome=Outcome.UNDECIDED, observed=4)


def test_a_pass_with_too_many_errors_is_undecided() -> None:
    rule = a_rule(2, 4)
    found = judged(Exact(), rule, ["error", "success", "success"])
    assert found == Verdict(outcome=Outcome.UNDECIDED, observed=3)


def test_a_verdict_stands_whatever_comes_after() -> None:
    judge = ThresholdJudge(Exact().boundaries(a_rule(1, 3)))
    verdict = judge.feed("success")
    assert verdict == Verdict(outcome=Outcome.PASSED, observed=1)
    assert judge.feed("error") == verdict
    assert (judge.successes, judge.failures, judge.errors) == (1, 0, 0)


@pytest.mark.parametrize("stopping", [Off(), Exact(), Risk()])
def test_a_gate_that_requires_nothing_needs_an_episode_all_the_same(
    stopping: StoppingRule,
) -> None:
    rule = threshold_rule("point", 0, 2)
    assert judged(stopping, rule, []) is None
    verdict = judged(stopping, rule, ["failure", "failure"])
    assert verdict is not None
    assert verdict.outcome is Outcome.PASSED


def test_certify_under_risk_keeps_its_alpha() -> None:
    """277 of 298 passes .0494 of the time at .9; with early stops .0505, so 278 it is."""
    rule = threshold_rule("certify", 0.9, 298)
    assert rule.required == 277
    assert stats.binom.sf(276, 298, 0.9) == pytest.approx(0.0494, abs=5e-5)
    as_asked = Risk(0.01).boundaries(a_rule(277, 298))
    careless = operating_characteristic(as_asked.passing, as_asked.failing, 0.9)
    assert careless.pass_probability == pytest.approx(0.0505, abs=5e-5)
    bounds = Risk(0.01).boundaries(rule)
    assert bounds.rule.required == 278
    careful = operating_characteristic(bounds.passing, bounds.failing, 0.9)
    assert careful.pass_probability <= 0.05


@pytest.mark.parametrize("planned", [29, 30, 46, 61, 100, 200])
@pytest.mark.parametrize("gamma", [0.01, 0.1])
def test_certify_never_passes_falsely_more_than_alpha(planned: int, gamma: float) -> None:
    rule = threshold_rule("certify", 0.9, planned)
    bounds = Risk(gamma).boundaries(rule)
    found = operating_characteristic(bounds.passing, bounds.failing, 0.9)
    assert found.pass_probability <= 0.05 + 1e-12
    assert bounds.rule.required >= rule.required


def test_certify_without_a_spare_success_stops_as_exact_does() -> None:
    rule = threshold_rule("certify", 0.9, 29)
    assert rule.required == 29
    assert Risk(0.2).boundaries(rule) == Exact().boundaries(rule)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("off", Off()),
        ("exact", Exact()),
        ("risk", Risk(0.01)),
        ("risk:0.05", Risk(0.05)),
        ("risk:1e-3", Risk(0.001)),
    ],
)
def test_stopping_rules_are_read_and_written(text: str, rule: StoppingRule) -> None:
    assert parse_stopping(text) == rule
    assert parse_stopping(str(rule)) == rule


@pytest.mark.parametrize(
    "text", ["", "on", "exact:0.1", "risk:", "risk:0", "risk:1", "risk:x", "off:", "risk:nan"]
)
def test_other_stopping_rules_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="risk:GAMMA"):
        parse_stopping(text)
