"""`pytest --maatml-model=DIR --maatml-env=line_world`, from the command to the files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import maatml.rollout as peer
from maatml.rollout.example import LineWorld

if TYPE_CHECKING:
    import pytest

    from .conftest import ModelFolder

RUN = ("--maatml-model=walker", "--maatml-env=line_world")
TASKS = '--maatml-tasks={"count": 50, "seed": 1}'


def test_one_item_a_family_passes_where_every_verdict_is_a_success(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    result = pytester.runpytest(*RUN, TASKS, "-v")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        ["walker/model.yml::line_world::far PASSED*", "walker/model.yml::line_world::near PASSED*"]
    )
    assert result.ret == 0


def test_the_header_names_policy_environment_and_tasks(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    result = pytester.runpytest(*RUN, TASKS)
    result.stdout.fnmatch_lines(["maatml: walker@1.2.3 · line_world 1 · 50 tasks, 2 families"])


def test_the_table_counts_what_the_environment_verified(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    # The walks of this query, by hand from the peer's tasks: those within reach succeed.
    tasks = LineWorld().tasks({"count": 50, "seed": 1})
    far = [t for t in tasks if t["family"] == "far"]
    reached = [t for t in far if abs(t["target"] - t["start"]) <= 6]
    assert 0 < len(reached) < len(far)
    walker.reach(6)
    result = pytester.runpytest(*RUN, TASKS, "--maatml-min-success=0")
    result.stdout.re_match_lines(
        [
            r"=+ closed-loop success =+",
            r"family +verified +rate +Wilson 95% +gate +verdict",
            rf"far +{len(reached)}/{len(far)} .*PASS",
            rf"near +{50 - len(far)}/{50 - len(far)} +100\.0%.*PASS",
            rf"overall +{50 - len(far) + len(reached)}/50 ",
            r"\d+ decisions · 0 truncated · 0 errors",
            r"episodes  walker/output/episodes/rollout-r0/episodes\.jsonl",
        ]
    )


def test_the_episodes_are_those_of_the_peer_and_its_summary_is_ours(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    pytester.runpytest(*RUN, TASKS)
    episodes, summary = walker.episodes(), walker.summary()
    assert [e["episode_id"] for e in episodes] == [f"rollout-r0-{i:06d}" for i in range(50)]
    assert {e["policy_version"] for e in episodes} == {"walker@1.2.3"}
    assert summary["planned"] == 50
    assert summary["complete"] is True
    theirs = peer.summarize(episodes)
    assert _rounded({key: summary[key] for key in theirs}) == _rounded(theirs)


def _rounded(value: Any) -> Any:
    """Floats to 12 digits: at the ends of an interval the peer's arithmetic misses 0 and 1."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return round(value, 12) if isinstance(value, float) else value


def test_a_family_below_its_gate_fails_with_rule_counts_tasks_and_command(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    walker.reach(6)
    result = pytester.runpytest(*RUN, TASKS, "--maatml-min-success=far=0.9")
    assert result.ret == 1
    result.assert_outcomes(passed=1, failed=1)
    text = result.stdout.str()
    assert "far: the gate is >= 90%" in text
    assert re.search(r"line-1-\d+ +wrong_finish +7 +finish", text)
    assert "Traceback" not in text
    assert "pytest_maatml/" not in text
    command = re.search(r"run it again:\n +pytest (.*)", text)
    assert command is not None
    assert command[1].endswith("walker/model.yml::line_world::far")


def test_the_printed_command_runs_the_failed_item_alone(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    import shlex

    walker.reach(6)
    text = pytester.runpytest(*RUN, TASKS, "--maatml-min-success=0.99").stdout.str()
    command = re.search(r"run it again:\n +pytest (.*)", text)
    assert command is not None
    again = pytester.runpytest(*shlex.split(command[1]))
    again.assert_outcomes(failed=1)


def test_two_runs_write_the_same_bytes(pytester: pytest.Pytester, walker: ModelFolder) -> None:
    file = walker.output() / "episodes.jsonl"
    pytester.runpytest(*RUN, TASKS)
    first = file.read_bytes()
    pytester.runpytest(*RUN, TASKS)
    assert file.read_bytes() == first


def test_two_families_in_sessions_of_their_own_write_the_same_bytes(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    file = walker.output() / "episodes.jsonl"
    pytester.runpytest(*RUN, TASKS)
    together = file.read_bytes()
    for name in (file.name, "episodes.summary.json"):
        (walker.output() / name).unlink()
    for family in ("near", "far"):
        result = pytester.runpytest(*RUN, TASKS, f"walker/model.yml::line_world::{family}")
        result.assert_outcomes(passed=1)
    assert file.read_bytes() == together


def test_labels_are_collected_under_dagger_and_nothing_is_gated(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    walker.reach(2)
    result = pytester.runpytest(*RUN, TASKS, "--label")
    result.assert_outcomes(passed=2)
    decisions = [d for e in walker.episodes("dagger-r0") for d in e["decisions"]]
    assert all(d["teacher_valid"] for d in decisions)
    assert {d["actor"] for d in decisions} == {"policy"}
    summary = walker.summary("dagger-r0")
    assert summary["labelled_decisions"] == len(decisions)
    assert summary["policy_agrees_with_teacher"] == sum(
        d["chosen"] in d["teacher_valid"] for d in decisions
    ) / len(decisions)


def test_the_teacher_acts_everywhere_at_a_mix_of_one(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    walker.reach(2)
    pytester.runpytest(*RUN, TASKS, "--label", "--teacher-mix=1", "--maatml-round=3")
    episodes = walker.episodes("dagger-r3")
    assert {d["actor"] for e in episodes for d in e["decisions"]} == {"teacher"}
    assert all(e["outcome"]["success"] and e["round"] == 3 for e in episodes)


def test_seed_round_source_and_out_go_where_they_belong(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    pytester.runpytest(
        *RUN, TASKS, "--maatml-source=nightly", "--maatml-round=2", "--maatml-out=kept"
    )
    out = ModelFolderOutput(pytester)
    assert out.episode_ids()[0] == "nightly-r2-000000"


class ModelFolderOutput:
    def __init__(self, pytester: pytest.Pytester) -> None:
        self.file = pytester.path / "kept" / "episodes.jsonl"

    def episode_ids(self) -> list[str]:
        return re.findall(r'"episode_id":"([^"]+)"', self.file.read_text())


def test_options_reach_reset_as_json_or_text(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    walker.reach(2)
    pytester.runpytest(*RUN, TASKS, "--maatml-option=extra_steps=4", "--maatml-option=note=x y")
    first = walker.episodes()[0]
    budget = first["decisions"][0]["observation"]["max_steps"]
    assert budget == first["task"]["max_steps"] + 4
    assert walker.summary()["identity"]["options"] == {"extra_steps": 4, "note": "x y"}
