from __future__ import annotations

import json
import random
from hashlib import blake2b
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, binom

from pytest_maatml.errors import ConfigurationError
from pytest_maatml.gating.family import FamilyGate, GatePolicy, GateReport, OverallGate
from tests.records.samples import episode, error, plans

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pytest_maatml.engine.record import Episode, EpisodeError

STOPPING = ["off", "exact", "risk", "risk:0.2"]
OUTCOMES: dict[str, Callable[[int], Episode | EpisodeError]] = {
    "s": lambda index: episode(index),
    "f": lambda index: episode(index, success=False),
    "e": lambda index: error(index),
    "u": lambda index: episode(index, success=False, truncated="unlabelled:lost"),
}

outcomes = st.text("ssssffeu", min_size=1, max_size=24)
policies = st.builds(
    GatePolicy,
    rates=st.sampled_from(["0", "0.3", "0.5", "0.9", "1"]).map(lambda rate: {"default": rate}),
    kind=st.sampled_from(["point", "guard"]),
    stopping=st.sampled_from(STOPPING),
    max_errors=st.integers(0, 2),
)


def ended(text: str) -> list[Episode | EpisodeError]:
    """Episode or error of each index: s succeeded, f failed, e errored, u was not labelled."""
    return [OUTCOMES[letter](index) for index, letter in enumerate(text)]


def gate(text: str, policy: GatePolicy, **how: Any) -> FamilyGate:
    return FamilyGate.plan(policy, "near", plans(len(text)), **{"seed": 7, **how})


def judge(text: str, policy: GatePolicy, **how: Any) -> GateReport:
    """The report where the episodes run one at a time in judged order, until it is enough."""
    family, results = gate(text, policy, **how), ended(text)
    for plan in family.order:
        if family.feed(results[plan.index]):
            break
    return family.finish()


def in_flight(text: str, policy: GatePolicy, slots: int, seed: int) -> GateReport:
    """The same with many episodes at once, which end in a random order."""
    family, results, chance = gate(text, policy), ended(text), random.Random(seed)
    waiting = [plan.index for plan in family.order]
    running: list[int] = []
    enough = False
    while running or (waiting and not enough):
        while waiting and not enough and len(running) < slots:
            running.append(waiting.pop(0))
        enough |= family.feed(results[running.pop(chance.randrange(len(running)))])
    return family.finish()


@given(outcomes, policies, st.integers(1, 32), st.integers(0, 9))
def test_verdict_and_kept_episodes_do_not_depend_on_how_many_are_in_flight(
    text: str, policy: GatePolicy, slots: int, seed: int
) -> None:
    assert in_flight(text, policy, slots, seed) == judge(text, policy)


@given(outcomes, policies, st.randoms(use_true_random=False))
def test_verdict_and_kept_episodes_do_not_depend_on_the_order_of_completion(
    text: str, policy: GatePolicy, chance: random.Random
) -> None:
    family, results = gate(text, policy), ended(text)
    chance.shuffle(results)
    for result in results:
        family.feed(result)
    assert family.finish() == judge(text, policy)


@given(outcomes, policies)
def test_the_kept_episodes_are_the_first_ones_in_judged_order(
    text: str, policy: GatePolicy
) -> None:
    report, order = judge(text, policy), [plan.index for plan in gate(text, policy).order]
    assert sorted(order[report.stopped_at or len(order) :]) == list(report.skipped)
    assert report.ended == len(text) - len(report.skipped)


@given(st.text("sf", min_size=1, max_size=30), st.integers(0, 10))
def test_exact_stopping_gives_the_verdict_of_the_full_run(text: str, tenths: int) -> None:
    rates = {"default": f"{tenths / 10:.1f}"}
    verdict = "PASS" if 10 * text.count("s") >= tenths * len(text) else "FAIL"
    assert judge(text, GatePolicy(rates=rates, stopping="exact")).verdict == verdict
    assert judge(text, GatePolicy(rates=rates)).verdict == verdict


@pytest.mark.parametrize("stopping", STOPPING)
def test_nineteen_errors_and_one_success_are_not_decided(stopping: str) -> None:
    policy = GatePolicy(rates={"default": "0.5"}, stopping=stopping)
    for place in range(20):
        text = "e" * place + "s" + "e" * (19 - place)
        assert judge(text, policy).verdict == "NOT DECIDED"


@pytest.mark.parametrize("stopping", STOPPING)
@pytest.mark.parametrize("rate", ["0", "0.5", "1"])
def test_errors_alone_never_pass(stopping: str, rate: str) -> None:
    report = judge("e" * 10, GatePolicy(rates={"default": rate}, stopping=stopping))
    assert (report.verdict, report.success, report.failures) == ("NOT DECIDED", 0, 0)


def test_as_many_errors_as_are_allowed_do_not_keep_a_gate_from_passing() -> None:
    rates = {"default": "0.5"}
    assert judge("ssssee", GatePolicy(rates=rates, max_errors=2)).verdict == "PASS"
    assert judge("ssssee", GatePolicy(rates=rates, max_errors=1)).verdict == "NOT DECIDED"
    assert judge("ffffee", GatePolicy(rates=rates)).verdict == "FAIL"


def test_an_episode_that_could_not_be_labelled_could_be_either_and_is_no_error() -> None:
    policy = GatePolicy(rates={"default": "0.5"})
    assert judge("ssu", policy).verdict == "PASS"
    assert judge("sfu", policy).verdict == "NOT DECIDED"
    assert judge("ffu", policy).verdict == "FAIL"
    report = judge("sfu", policy)
    assert (report.success, report.failures, report.errors, report.unlabelled) == (1, 1, 0, 1)


def test_an_error_past_the_stopping_point_is_left_out_and_does_not_count() -> None:
    report = judge("sssseeee", GatePolicy(rates={"default": "0.5"}, stopping="exact"))
    assert (report.verdict, report.stopped_at, report.saved, report.errors) == ("PASS", 4, 4, 0)
    assert report.skipped == (4, 5, 6, 7)


def test_without_stopping_no_episode_is_ever_enough() -> None:
    family = gate("s" * 9, GatePolicy(rates={"default": "0.1"}))
    assert not any(family.feed(result) for result in ended("s" * 9))


def test_risk_permutes_by_the_draw_of_seed_and_episode_id() -> None:
    def drawn(index: int) -> bytes:
        return blake2b(f"3\0rollout-r0-{index:06d}\0order".encode()).digest()[:8]

    family = gate("s" * 40, GatePolicy(rates={"default": "1"}, stopping="risk"), seed=3)
    assert [plan.index for plan in family.order] == sorted(range(40), key=drawn)


@pytest.mark.parametrize("stopping", ["off", "exact"])
def test_other_modes_judge_in_the_declared_order(stopping: str) -> None:
    policy = GatePolicy(rates={"default": "1"}, stopping=stopping)
    family = FamilyGate.plan(policy, "near", plans(9)[::-1], seed=3)
    assert [plan.index for plan in family.order] == list(range(9))


def test_a_certify_gate_that_cannot_pass_says_before_any_episode_how_many_would_do() -> None:
    policy = GatePolicy(rates={"near": "0.9"}, kind="certify")
    with pytest.raises(ConfigurationError, match=r"gate of near: .* at least 29 episodes"):
        gate("s" * 28, policy)
    assert judge("s" * 29, policy).verdict == "PASS"


def test_a_certify_gate_that_stops_at_a_risk_reports_the_rule_that_keeps_its_alpha() -> None:
    policy = GatePolicy(rates={"default": "0.9"}, kind="certify", stopping="risk")
    report = judge("s" * 298, policy)
    assert (report.required, report.planned, report.verdict) == (278, 298, "PASS")


def test_an_interrupted_run_is_decided_only_by_arithmetic() -> None:
    for stopping in STOPPING:
        family = gate("s" * 10, GatePolicy(rates={"default": "0.5"}, stopping=stopping))
        for result in ended("ssss"):
            family.feed(result)
        report = family.finish()
        assert (report.verdict, report.skipped) == ("NOT DECIDED", ())
        assert report.interval_kind == "anytime"


def test_a_part_of_the_episodes_is_not_judged() -> None:
    family = gate("s" * 10, GatePolicy(rates={"default": "0.2"}, stopping="exact"))
    for result in ended("sssss"):
        family.feed(result)
    report = family.finish(judged=False)
    assert (report.verdict, report.success, report.skipped) == ("-", 5, ())


@pytest.mark.parametrize("stopping", STOPPING)
def test_nothing_is_judged_or_stopped_where_nothing_is_asked(stopping: str) -> None:
    report = judge("sfsefs", GatePolicy(stopping=stopping))
    assert (report.verdict, report.rule, report.ended) == ("-", None, 6)


def test_a_family_that_is_not_named_must_reach_the_default_which_is_one() -> None:
    assert GatePolicy(rates={"far": "0.8"}).rate_of("near") == "1"
    assert GatePolicy(rates={"far": "0.8", "default": "0.5"}).rate_of("near") == "0.5"
    assert GatePolicy(rates={"far": "0.8", "default": "0.5"}).rate_of("far") == "0.8"


def test_an_overall_rate_alone_asks_nothing_of_a_single_family() -> None:
    assert GatePolicy(rates={"overall": "0.9"}).rate_of("near") is None
    assert GatePolicy().rate_of("near") is None


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ({"kind": "sharp"}, "point, certify, guard"),
        ({"alpha": 0.0}, "alpha"),
        ({"stopping": "soon"}, "off, exact, risk"),
        ({"max_errors": -1}, "0 or more"),
        ({"margin": "0.1"}, "--maatml-baseline"),
    ],
)
def test_a_policy_that_cannot_be_judged_is_refused(asked: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        GatePolicy(**asked)


def overall(policy: GatePolicy, *families: str) -> tuple[list[GateReport], GateReport]:
    whole = OverallGate.plan(policy, sum(map(len, families)), seed=7)
    assert whole is not None
    reports = [judge(text, policy, overall=whole) for text in families]
    return reports, whole.finish(reports)


def test_the_overall_gate_counts_all_families() -> None:
    policy = GatePolicy(rates={"overall": "0.7", "default": "0.5"})
    assert overall(policy, "sssss", "ssfff")[1].verdict == "PASS"
    assert overall(policy, "ssssf", "ssfff")[1].verdict == "FAIL"
    assert overall(policy, "ssssf", "sssee")[1].verdict == "NOT DECIDED"


@pytest.mark.parametrize("stopping", ["exact", "risk"])
def test_a_family_whose_episodes_do_not_decide_the_overall_gate_runs_to_its_end(
    stopping: str,
) -> None:
    policy = GatePolicy(rates={"overall": "0.5", "default": "0.5"}, stopping=stopping)
    reports, whole = overall(policy, "s" * 20, "f" * 20)
    assert [report.saved for report in reports] == [0, 0]
    assert (whole.verdict, whole.success, whole.required) == ("PASS", 20, 20)


def test_a_family_that_decides_the_overall_gate_by_itself_may_stop() -> None:
    policy = GatePolicy(rates={"overall": "0.9", "default": "0.5"}, stopping="exact")
    reports, whole = overall(policy, "f" * 20, "s" * 20)
    assert [report.stopped_at for report in reports] == [11, None]
    assert (whole.verdict, whole.failures) == ("FAIL", 11)


@given(st.lists(st.text("sf", min_size=1, max_size=9), min_size=1, max_size=4), st.integers(0, 10))
def test_the_overall_verdict_is_that_of_the_full_run(families: list[str], tenths: int) -> None:
    rates = {"overall": f"{tenths / 10:.1f}", "default": "0.5"}
    text = "".join(families)
    verdict = "PASS" if 10 * text.count("s") >= tenths * len(text) else "FAIL"
    for stopping in STOPPING:
        whole = overall(GatePolicy(rates=rates, stopping=stopping), *families)[1]
        assert whole.verdict == verdict


def test_a_family_that_did_not_run_leaves_the_overall_gate_undecided() -> None:
    policy = GatePolicy(rates={"overall": "0.9"})
    whole = OverallGate.plan(policy, 20, seed=0)
    assert whole is not None
    assert whole.finish([judge("s" * 10, policy)]).verdict == "NOT DECIDED"
    assert whole.finish([judge("f" * 10, policy)]).verdict == "FAIL"


def test_no_overall_gate_is_made_where_none_is_asked() -> None:
    assert OverallGate.plan(GatePolicy(rates={"default": "1"}), 20, seed=0) is None


def test_a_full_run_shows_wilsons_interval() -> None:
    report = judge("s" * 9 + "f", GatePolicy(rates={"default": "0.5"}))
    assert report.interval_kind == "wilson"
    assert report.interval == pytest.approx((0.5958, 0.9821), abs=5e-5)  # from gates.md
    assert report.estimate == 0.9


def test_an_exact_stop_shows_the_interval_and_the_estimate_of_curtailed_sampling() -> None:
    report = judge("ssfssss" + "f" * 5, GatePolicy(rates={"default": "0.5"}, stopping="exact"))
    assert (report.stopped_at, report.interval_kind) == (7, "curtailed-exact")
    lower, upper = beta.ppf(0.025, 6, 2), beta.ppf(0.975, 5 + 1, 1)
    assert report.interval == pytest.approx((lower, upper), abs=1e-9)
    assert report.estimate == pytest.approx(5 / 6)


def test_a_stop_at_a_risk_shows_an_interval_that_holds_wherever_it_stops() -> None:
    report = judge("s" * 60, GatePolicy(rates={"default": "0.5"}, stopping="risk"))
    assert report.interval_kind == "anytime"
    assert report.success == report.stopped_at
    count = report.success  # all succeeded: B(1 + n, 1) = 1 / (n + 1), so p^n = alpha / (n + 1)
    assert report.interval == pytest.approx(((0.05 / (count + 1)) ** (1 / count), 1), abs=1e-9)


def test_alpha_is_divided_among_the_guards_of_a_suite() -> None:
    policy = GatePolicy(rates={"default": "0.9"}, kind="guard")
    assert policy.alarms(["a", "b", "c", "d", "e", "f", "g", "h"]) == 8
    report = judge("s" * 50, policy, alarms=8)
    assert report.required == 1 + max(k for k in range(50) if binom.cdf(k, 50, 0.9) <= 0.05 / 8)


def test_only_guards_and_exact_baselines_can_raise_an_alarm(tmp_path: Any) -> None:
    rates = {"default": "0.9"}
    assert GatePolicy(rates=rates).alarms(["a", "b"]) == 0
    assert GatePolicy(rates=rates, baseline=tmp_path).alarms(["a", "b"]) == 2
    assert GatePolicy(rates=rates, baseline=tmp_path, margin="0").alarms(["a", "b"]) == 0
    assert GatePolicy(rates=rates, baseline=tmp_path, kind="guard").alarms(["a", "b"]) == 4


@given(outcomes, policies)
def test_a_report_survives_json(text: str, policy: GatePolicy) -> None:
    report = judge(text, policy)
    assert GateReport.from_dict(json.loads(json.dumps(report.as_dict()))) == report


def test_an_overall_gate_is_made_again_from_its_record() -> None:
    policy = GatePolicy(rates={"overall": "0.7", "default": "0.5"})
    reports, whole = overall(policy, "sssss", "ssfff")
    again = OverallGate.of_record(json.loads(json.dumps(whole.as_dict())))
    assert again is not None
    assert again.finish(reports) == whole
