from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from scipy.stats import binom

from pytest_maatml.gating.explain import explain_lines, rule_line, verdict_lines
from pytest_maatml.gating.family import GatePolicy
from pytest_maatml.gating.report import adjust
from tests.gating import test_baseline as paired
from tests.gating.test_family import gate, judge, outcomes, policies

if TYPE_CHECKING:
    from pathlib import Path


def asked(**how: Any) -> GatePolicy:
    return GatePolicy(rates={"default": how.pop("rate", "0.5")}, **how)


def test_the_rule_says_all_that_the_verdict_depends_on() -> None:
    report = judge("s" * 50, asked(rate="0.9", stopping="risk:0.02", kind="certify", alpha=0.1))
    line = rule_line(report)
    for part in ("certify", "90%", "N 50", "k* 49", "alpha 0.1", "stopping risk:0.02", "seed 7"):
        assert part in line


def test_the_rule_shows_a_point_gate_as_the_table_does() -> None:
    assert ">= 80% (19/23)" in rule_line(judge("s" * 23, asked(rate="0.8")))


def test_the_rule_says_among_how_many_alarms_alpha_is_shared() -> None:
    line = rule_line(judge("s" * 50, asked(kind="guard"), alarms=8))
    assert "alpha 0.05 shared by 8 alarms" in line


def test_the_rule_says_when_a_baseline_can_raise_no_alarm(tmp_path: Path) -> None:
    few = paired.recorded(tmp_path / "few", "ssss")
    many = paired.recorded(tmp_path / "many", "sssss")
    assert "cannot alarm" in rule_line(paired.judge(few, "ffff"))
    assert "cannot alarm" not in rule_line(paired.judge(many, "sssss"))


def test_without_a_gate_there_is_no_rule() -> None:
    assert rule_line(judge("s", GatePolicy())) == "no gate"


def test_the_verdict_comes_with_all_counts() -> None:
    lines = verdict_lines(judge("ssfeu", asked()))
    assert lines[0] == "near: NOT DECIDED"
    assert lines[1].strip() == ("2 of 5 verified, 1 failed, 1 errored, 1 cut for want of a label")


def test_the_verdict_says_what_did_not_run() -> None:
    assert "10 did not run" in verdict_lines(gate("s" * 10, asked()).finish())[1]


def test_the_verdict_says_what_stopping_saved_and_what_it_promises() -> None:
    exact = "\n".join(verdict_lines(judge("s" * 20, asked(stopping="exact"))))
    assert "stopped after 10 of 20 episodes, 10 saved" in exact
    assert "the verdict is that of the full run" in exact
    risk = "\n".join(verdict_lines(judge("s" * 200, asked(stopping="risk:0.02"))))
    assert "differs from the full run with probability at most 0.02" in risk


def test_the_verdict_names_the_lost_tasks(tmp_path: Path) -> None:
    before = paired.recorded(tmp_path, "s" * 20)
    text = "\n".join(verdict_lines(paired.judge(before, "fsfsf" + "s" * 15)))
    assert "0 wins, 3 losses, 0 unpaired: PASS" in text
    assert "lost: t0, t2, t4" in text


def test_a_long_list_of_lost_tasks_is_cut_and_says_so(tmp_path: Path) -> None:
    before = paired.recorded(tmp_path, "s" * 25)
    last = verdict_lines(paired.judge(before, "f" * 25))[-1]
    assert last.endswith("t19 and 5 more")


@given(outcomes, policies)
def test_an_explanation_is_three_sentences(text: str, policy: GatePolicy) -> None:
    lines = explain_lines(judge(text, policy))
    assert len(lines) == 3
    assert all(re.fullmatch(r"[A-Za-z].*[.)]", line) for line in lines)


@pytest.mark.parametrize("margin", [None, "0.1"])
@pytest.mark.parametrize("now", ["s" * 20, "f" * 20, "e" * 20])
def test_an_explanation_of_a_baseline_is_three_sentences(
    tmp_path: Path, margin: str | None, now: str
) -> None:
    before = paired.recorded(tmp_path, "s" * 20)
    assert len(explain_lines(paired.judge(before, now, margin=margin))) == 3


def test_errors_are_explained_as_no_regression(tmp_path: Path) -> None:
    before = paired.recorded(tmp_path, "s" * 20)
    assert "errors are never losses" in explain_lines(paired.judge(before, "e" * 20))[1]


def test_a_point_pass_is_not_called_a_rate() -> None:
    sentences = explain_lines(judge("s" * 18 + "f" * 2, asked(rate="0.9")))
    assert sentences[0] == "Of the 20 tasks of near, at least 18 succeed."
    assert "does not mean that the rate behind them is 90%" in sentences[1]


def test_what_is_not_decided_says_what_would_decide_it() -> None:
    sentences = explain_lines(judge("ssssfeeeee", asked()))
    assert sentences[0].endswith("was not decided: 5 episodes errored.")
    assert "1 success passes it and 5 failures fail it" in sentences[2]
    enough = explain_lines(judge("sssssseeee", asked()))[2]
    assert "once no more than 0 episodes error" in enough


@pytest.mark.parametrize("failures", [0, 1, 3, 6])
def test_the_episodes_that_would_certify_a_rate_do_so_and_one_fewer_do_not(failures: int) -> None:
    report = judge("f" * failures + "s" * (20 - failures), asked(rate="0.9"))
    found = re.search(r"takes (\d+) more .* (\d+) in all", explain_lines(report)[2])
    assert found is not None
    more, needed = int(found[1]), int(found[2])
    assert more == needed - 20
    assert binom.sf(needed - failures - 1, needed, 0.9) <= 0.05
    assert binom.sf(needed - 1 - failures - 1, needed - 1, 0.9) > 0.05


def test_a_rate_of_one_is_said_never_to_be_certified() -> None:
    assert (
        "No number of episodes shows a rate of 100%"
        in explain_lines(judge("ss", asked(rate="1")))[2]
    )


def test_risk_is_part_of_the_explanation() -> None:
    first = explain_lines(judge("s" * 200, asked(stopping="risk")))[0]
    assert "might say otherwise, with probability at most 0.01" in first


def test_a_certified_rate_needs_no_more_episodes() -> None:
    sentences = explain_lines(judge("s" * 29, asked(rate="0.9", kind="certify")))
    assert sentences[2] == "No more episodes are needed."


def test_an_alarm_after_holms_correction_shows_both_p(tmp_path: Path) -> None:
    before = paired.recorded(tmp_path, "s" * 20)
    reports = [paired.judge(before, "f" * losses + "s" * (20 - losses)) for losses in (6, 0)]
    text = "\n".join(verdict_lines(adjust(reports)[0]))
    found = re.search(r"p ([\d.]+), ([\d.]+) after Holm's correction", text)
    assert found is not None
    assert [float(p) for p in found.groups()] == pytest.approx([1 / 64, 1 / 32], rel=1e-3)


def test_one_of_anything_is_said_in_the_singular() -> None:
    sentences = explain_lines(judge("ssssufffff", asked()))
    assert sentences[0].endswith("was not decided: 1 episode was cut for want of a label.")
    assert sentences[2] == (
        "Of the 1 episode without an outcome, 1 success passes it and 1 failure fails it."
    )
