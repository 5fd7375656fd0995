from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from statsmodels.stats.multitest import multipletests

from pytest_maatml.errors import ConfigurationError
from pytest_maatml.gating.again import judge_again
from pytest_maatml.gating.baseline import Baseline, BaselineTask
from pytest_maatml.gating.family import FamilyGate, GatePolicy
from pytest_maatml.gating.report import GateReport, adjust
from pytest_maatml.records.episodes import RecordError
from pytest_maatml.records.identity import digest_tasks
from tests.gating.test_again import as_rows
from tests.gating.test_family import ended
from tests.records.samples import IDENTITY, episode, error, plans, run


def recorded(folder: Path, text: str) -> Baseline:
    """A run in `folder` that ended as the letters say, read as a baseline."""
    run(folder, ended(text), replace(IDENTITY, planned=len(text)))
    return Baseline.read(folder)


def judge(before: Baseline, text: str, **asked: Any) -> GateReport:
    policy = GatePolicy(baseline=Path(before.file), **asked)
    gate = FamilyGate.plan(policy, "near", plans(len(text)), seed=7, baseline=before)
    results = ended(text)
    for plan in gate.order:
        if gate.feed(results[plan.index]):
            break
    return gate.finish()


def figures(report: GateReport) -> Any:
    assert report.baseline is not None
    return report.baseline


def test_five_losses_to_none_are_the_least_that_can_alarm(tmp_path: Path) -> None:
    before = recorded(tmp_path, "s" * 20)
    assert judge(before, "f" * 5 + "s" * 15).verdict == "FAIL"
    assert judge(before, "f" * 4 + "s" * 16).verdict == "PASS"


def test_the_figures_are_those_of_the_pairs(tmp_path: Path) -> None:
    before = recorded(tmp_path, "sssssfffee")
    found = figures(judge(before, "ffssssfsse", max_errors=1))
    assert (found.both_passed, found.wins, found.losses, found.both_failed) == (3, 2, 2, 1)
    assert (found.unpaired, found.difference, found.lost) == (2, 0.0, ("t0", "t1"))
    assert found.p == pytest.approx(binomtest(2, 4, alternative="greater").pvalue)


def test_six_outages_of_a_candidate_are_no_regression(tmp_path: Path) -> None:
    before = recorded(tmp_path, "s" * 20)
    report = judge(before, "e" * 6 + "s" * 14)
    assert (report.verdict, figures(report).losses, figures(report).unpaired) == (
        "NOT DECIDED",
        0,
        6,
    )
    assert judge(before, "e" * 6 + "s" * 14, max_errors=6).verdict == "PASS"


@pytest.mark.parametrize("margin", [None, "0"])
def test_six_outages_of_a_baseline_are_no_regression(tmp_path: Path, margin: str | None) -> None:
    before = recorded(tmp_path, "e" * 6 + "s" * 14)
    report = judge(before, "f" * 6 + "s" * 14, margin=margin)
    assert (report.verdict, figures(report).losses, figures(report).unpaired) == ("PASS", 0, 6)


def test_outages_of_a_candidate_never_fail_a_margin_gate(tmp_path: Path) -> None:
    before = recorded(tmp_path, "s" * 20)
    assert judge(before, "e" * 6 + "s" * 14, margin="0.1").verdict == "NOT DECIDED"


def test_a_margin_is_a_share_of_the_tasks_that_completed_in_the_baseline(tmp_path: Path) -> None:
    before = recorded(tmp_path, "s" * 48 + "ff" + "e" * 7)
    report = judge(before, "f" * 5 + "s" * 52, margin="0.1")  # 48 - 5 of 50, and 45 succeed
    assert (figures(report).required, figures(report).paired_tasks) == (43, 50)
    assert report.verdict == "PASS"
    assert judge(before, "f" * 8 + "s" * 42 + "s" * 7, margin="0.1").verdict == "FAIL"


@given(
    st.text("sfe", min_size=12, max_size=12).filter(lambda text: text.strip("e")),
    st.text("ssffe", min_size=12, max_size=12),
    st.sampled_from([None, "0", "0.1"]),
    st.integers(0, 2),
)
def test_the_verdict_of_a_stopped_run_is_that_of_the_full_run(
    before: str, now: str, margin: str | None, seed: int
) -> None:
    baseline = Baseline(
        file="before",
        tasks={
            plan.task_id: replace(_TASK, passed={"s": True, "f": False}[letter], content=content)
            for plan, content, letter in zip(plans(12), _contents(12), before, strict=True)
            if letter != "e"
        },
    )
    full = judge(baseline, now, margin=margin, max_errors=12)
    stopped = judge(baseline, now, margin=margin, max_errors=12, stopping="exact")
    if full.verdict != "NOT DECIDED":
        assert stopped.verdict == full.verdict
    assert figures(stopped).p >= figures(full).p - 1e-12


def _contents(count: int) -> list[str]:
    return [digest_tasks([plan.task]) for plan in plans(count)]


_TASK = BaselineTask(content="", passed=True, family="near")


def test_a_family_runs_on_until_the_baseline_is_decided_too(tmp_path: Path) -> None:
    before = recorded(tmp_path, "s" * 20)
    text = "s" * 20
    alone = GatePolicy(rates={"default": "0.1"}, stopping="exact")
    gate = FamilyGate.plan(alone, "near", plans(20), seed=0)
    assert [gate.feed(result) for result in ended(text)].index(True) == 1
    report = judge(before, text, rates={"default": "0.1"}, stopping="exact")
    assert report.stopped_at == 16  # with four tasks left there cannot be five losses
    assert report.verdict == "PASS"


def test_both_gates_of_a_family_must_pass(tmp_path: Path) -> None:
    before = recorded(tmp_path, "s" * 20)
    report = judge(before, "f" * 6 + "s" * 14, rates={"default": "0.5"})
    assert (report.threshold_verdict, figures(report).verdict) == ("PASS", "FAIL")
    assert report.verdict == "FAIL"


def test_a_task_that_differs_under_the_same_id_is_refused(tmp_path: Path) -> None:
    before = recorded(tmp_path, "ss")
    changed = [replace(plan, task={**plan.task, "goal": 9}) for plan in plans(2)]
    with pytest.raises(ConfigurationError, match="'t0' is another task"):
        FamilyGate.plan(GatePolicy(), "near", changed, seed=0, baseline=before)


def test_a_baseline_without_any_task_of_the_family_is_refused(tmp_path: Path) -> None:
    before = recorded(tmp_path, "ss")
    others = [replace(plan, task_id=f"x{plan.index}") for plan in plans(3)]
    with pytest.raises(ConfigurationError, match="none of the 3 tasks of near"):
        FamilyGate.plan(GatePolicy(), "near", others, seed=0, baseline=before)


def test_a_baseline_file_is_read_as_its_folder_is(tmp_path: Path) -> None:
    before = recorded(tmp_path, "sf")
    assert Baseline.read(tmp_path / "episodes.jsonl").tasks == before.tasks


def test_a_baseline_with_a_task_twice_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "two.jsonl"
    file.write_bytes((episode(0).line + b"\n") * 2)
    with pytest.raises(RecordError, match="episode 2 is of task 't0'"):
        Baseline.read(file)


@pytest.mark.parametrize("content", [None, b""])
def test_a_baseline_that_holds_nothing_is_refused(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "episodes.jsonl"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(RecordError, match=r"episodes\.jsonl"):
        Baseline.read(tmp_path)


def test_an_episode_without_a_label_pairs_with_nothing(tmp_path: Path) -> None:
    before = recorded(tmp_path, "u" * 6 + "s" * 6)
    assert figures(judge(before, "f" * 6 + "s" * 6)).unpaired == 6


def test_shards_are_judged_again_with_their_baseline(tmp_path: Path) -> None:
    before = recorded(tmp_path, "s" * 20)
    text = "f" * 6 + "s" * 14
    report = judge(before, text, stopping="exact")
    rows, errors = as_rows(ended(text))
    assert judge_again(report.as_dict(), rows, errors) == report


def alarmed(p: float, *, alarms: int, before: GateReport) -> GateReport:
    verdict = "FAIL" if p <= 0.05 / alarms else "PASS"
    return replace(
        before,
        verdict=verdict,
        alarms=alarms,
        baseline=replace(figures(before), verdict=verdict, p=p, adjusted_p=p),
    )


@given(st.lists(st.floats(0.0001, 1), min_size=1, max_size=8))
def test_alarms_of_several_families_are_weighed_by_holms_method(p_values: list[float]) -> None:
    template = judge(Baseline(file="b", tasks=_all_passed(6)), "s" * 6)
    reports = [alarmed(p, alarms=len(p_values), before=template) for p in p_values]
    adjusted = adjust(reports)
    rejected, expected, _, _ = multipletests(p_values, alpha=0.05, method="holm")
    assert [figures(report).adjusted_p for report in adjusted] == pytest.approx(list(expected))
    assert [report.verdict == "FAIL" for report in adjusted] == list(rejected)
    # What is told of an item at once, by the divided alpha, agrees on whether there is any.
    assert any(r.verdict == "FAIL" for r in reports) == bool(rejected.any())


def _all_passed(count: int) -> dict[str, Any]:
    return {
        plan.task_id: replace(_TASK, content=content)
        for plan, content in zip(plans(count), _contents(count), strict=True)
    }


def test_reports_without_alarms_are_left_as_they_are() -> None:
    policy = GatePolicy(rates={"default": "0.5"})
    gate = FamilyGate.plan(policy, "near", plans(2), seed=0)
    for result in (episode(0), error(1)):
        gate.feed(result)
    assert adjust([gate.finish()]) == [gate.finish()]


def test_guards_of_several_families_are_adjusted_too() -> None:
    policy = GatePolicy(rates={"default": "0.9"}, kind="guard")
    reports = []
    for failures in (8, 12, 2):  # P(Bin(50, .9) <= 42, 38, 48) = .12, .0025, .97
        gate = FamilyGate.plan(policy, "near", plans(50), seed=0, alarms=3)
        for result in ended("f" * failures + "s" * (50 - failures)):
            gate.feed(result)
        reports.append(gate.finish())
    expected = multipletests([report.p for report in reports], method="holm")[1]
    adjusted = adjust(reports)
    assert [report.adjusted_p for report in adjusted] == pytest.approx(list(expected))
    assert [report.verdict for report in adjusted] == ["PASS", "FAIL", "PASS"]


def test_an_interrupted_run_is_not_decided_against_its_baseline(tmp_path: Path) -> None:
    before = recorded(tmp_path, "s" * 20)
    policy = GatePolicy(baseline=tmp_path)
    gate = FamilyGate.plan(policy, "near", plans(20), seed=0, baseline=before)
    for result in ended("s" * 12):
        gate.feed(result)
    assert gate.finish().verdict == "NOT DECIDED"
