"""Single tasks and shards: some episodes of the list, which keep their places in it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .conftest import ModelFolder

RUN = ["--maatml-model=walker", "--maatml-env=line_world", '--maatml-tasks={"count": 30}']


def test_a_task_by_id_keeps_its_index_and_passes_if_it_succeeds(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    result = pytester.runpytest(*RUN, "--maatml-task=line-0-7", "-v")
    result.assert_outcomes(passed=1)
    (episode,) = walker.episodes()
    assert (episode["episode_id"], episode["task_id"]) == ("rollout-r0-000007", "line-0-7")


def test_tasks_by_glob_and_repeated(pytester: pytest.Pytester, walker: ModelFolder) -> None:
    pytester.runpytest(*RUN, "--maatml-task=line-0-1?", "--maatml-task=line-0-3")
    assert [e["task_id"] for e in walker.episodes()] == [
        "line-0-3",
        *(f"line-0-{i}" for i in range(10, 20)),
    ]


def test_a_failed_task_fails_whatever_the_gate(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    walker.reach(1)
    whole = pytester.runpytest(*RUN, "--maatml-min-success=0")
    whole.assert_outcomes(passed=2)
    failed = next(e["task_id"] for e in walker.episodes() if not e["outcome"]["success"])
    one = pytester.runpytest(*RUN, "--maatml-min-success=0", f"--maatml-task={failed}")
    one.assert_outcomes(failed=1)
    one.stdout.fnmatch_lines([f"*{failed} *wrong_finish*"])


def test_the_failure_text_names_the_command_for_one_task(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    walker.reach(1)
    result = pytester.runpytest(*RUN)
    result.stdout.fnmatch_lines(["*--maatml-task=line-0-*"])


def test_a_task_that_nobody_has_is_an_error(pytester: pytest.Pytester, walker: ModelFolder) -> None:
    result = pytester.runpytest(*RUN, "--maatml-task=line-9-9")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*--maatml-task=line-9-9: no task is called so*line-0-0*"])


def test_shards_merged_are_the_whole_run_byte_for_byte(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    walker.reach(6)
    pytester.runpytest(*RUN, "--maatml-out=whole")
    for shard in (1, 2, 3):
        result = pytester.runpytest(
            *RUN, f"--maatml-shard={shard}/3", f"--maatml-out=part{shard}", "--maatml-min-success=1"
        )
        assert result.ret == pytest.ExitCode.OK
    merged = pytester.run(
        sys.executable, "-m", "pytest_maatml", "merge", "merged", "part1", "part2", "part3"
    )
    assert merged.ret == 1
    assert (pytester.path / "merged" / "episodes.jsonl").read_bytes() == (
        pytester.path / "whole" / "episodes.jsonl"
    ).read_bytes()
    merged.stdout.fnmatch_lines(["*far*FAIL*"])


@pytest.mark.parametrize("families", [(), ("--maatml-min-success=0",)], ids=["alone", "besides"])
@pytest.mark.parametrize(("rate", "status"), [("0.1", 0), ("1", 1)])
def test_the_gate_over_all_families_is_judged_when_shards_are_merged(
    pytester: pytest.Pytester,
    walker: ModelFolder,
    rate: str,
    status: int,
    families: tuple[str, ...],
) -> None:
    walker.reach(6)
    gates = (f"--maatml-min-success=overall={rate}", *families)
    for shard in (1, 2):
        result = pytester.runpytest(
            *RUN, f"--maatml-shard={shard}/2", f"--maatml-out=part{shard}", *gates
        )
        assert result.ret == pytest.ExitCode.OK
    whole = pytester.runpytest(*RUN, "--maatml-out=whole", *gates)
    assert whole.ret == status
    merged = pytester.run(sys.executable, "-m", "pytest_maatml", "merge", "all", "part1", "part2")
    assert merged.ret == status
    found, expected = (
        json.loads((pytester.path / run / "episodes.summary.json").read_text())["gates"]
        for run in ("all", "whole")
    )
    assert found == expected


def test_merging_says_what_is_missing_or_of_another_run(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    for shard in (1, 2):
        pytester.runpytest(*RUN, f"--maatml-shard={shard}/3", f"--maatml-out=part{shard}")
    pytester.runpytest(*RUN, "--maatml-seed=8", "--maatml-shard=3/3", "--maatml-out=other")
    missing = pytester.run(
        sys.executable, "-m", "pytest_maatml", "merge", "merged", "part1", "part2"
    )
    assert missing.ret == 2
    missing.stderr.fnmatch_lines(["*missing*"])
    other = pytester.run(
        sys.executable, "-m", "pytest_maatml", "merge", "merged", "part1", "part2", "other"
    )
    assert other.ret == 2
    other.stderr.fnmatch_lines(["*seed*"])


@pytest.mark.parametrize("shard", ["0/3", "4/3", "1", "a/b"])
def test_a_shard_that_cannot_be_is_a_usage_error(
    pytester: pytest.Pytester, walker: ModelFolder, shard: str
) -> None:
    result = pytester.runpytest(*RUN, f"--maatml-shard={shard}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
