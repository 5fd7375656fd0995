"""`--maatml-baseline`: whether this run is worse than an earlier one of the same tasks."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from scipy.stats import binomtest

from .walks import before_scoring, verdicts, walks

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import ModelFolder

RUN = ("--maatml-model=walker", "--maatml-env=line_world")
#: The outcomes are the policy's, since the tasks of two runs are the same.
FATE = """\
        from pathlib import Path
        end = Path("ends.txt").read_text()[observation["max_steps"] - 50]
        if end == "e":
            raise OSError("the scorer is down")
        if end == "f":
            return [float(candidate["id"] == "left") for candidate in candidates]
"""


@pytest.fixture
def run(pytester: pytest.Pytester, walker: ModelFolder) -> Callable[..., pytest.RunResult]:
    """Run one family whose episodes end as the letters say."""
    before_scoring(walker, FATE)

    def run(ends: str, *more: str) -> pytest.RunResult:
        (pytester.path / "ends.txt").write_text(ends)
        tasks = [{**task, "max_steps": 50 + i} for i, task in enumerate(walks(near="s" * 25))]
        return pytester.runpytest(*RUN, f"--maatml-tasks={json.dumps(tasks)}", *more)

    return run


@pytest.fixture
def baseline(
    pytester: pytest.Pytester, walker: ModelFolder, run: Callable[..., Any]
) -> Callable[[str], Path]:
    """The folder of an earlier run that ended so."""

    def baseline(ends: str) -> Path:
        run(ends)
        return shutil.copytree(walker.output(), pytester.path / "before", dirs_exist_ok=True)

    return baseline


@pytest.mark.parametrize(
    ("before", "now", "verdict"),
    [
        ("s" * 25, "s" * 21 + "ffff", "PASS"),
        ("s" * 25, "s" * 20 + "fffff", "FAIL"),
        ("s" * 20 + "fffff", "f" * 6 + "s" * 19, "PASS"),  # 6 losses, 5 wins
        ("s" * 23 + "ff", "f" * 9 + "s" * 16, "FAIL"),  # 9 losses, 2 wins: p 0.0327
    ],
)
@pytest.mark.parametrize("stop", ["off", "exact"])
def test_the_exact_test_alone_fails_what_chance_would_not_bring(
    baseline: Any, run: Any, walker: ModelFolder, before: str, now: str, verdict: str, stop: str
) -> None:
    result = run(now, f"--maatml-baseline={baseline(before)}", f"--maatml-stop={stop}")
    assert result.ret == (0 if verdict == "PASS" else 1)
    report = walker.summary()["gates"]["near"]
    assert (report["verdict"], report["threshold"]) == (verdict, None)
    found = report["baseline"]
    assert found["verdict"] == verdict
    if stop == "off":
        losses = [f"near-{i}" for i in range(25) if (before[i], now[i]) == ("s", "f")]
        wins = sum((before[i], now[i]) == ("f", "s") for i in range(25))
        assert (found["wins"], found["lost"]) == (wins, losses)
        p = binomtest(len(losses), len(losses) + wins, alternative="greater").pvalue
        assert found["p"] == pytest.approx(p)
        assert (p <= 0.05) == (verdict == "FAIL")


@pytest.mark.parametrize("more", [[], ["--maatml-margin=0.02"], ["--maatml-stop=exact"]])
def test_six_outages_are_never_a_regression(
    baseline: Any, run: Any, walker: ModelFolder, more: list[str]
) -> None:
    before = f"--maatml-baseline={baseline('s' * 25)}"
    result = run("s" * 10 + "e" * 6 + "s" * 9, before, *more, "--maatml-explain")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert verdicts(walker.summary()) == {"near": "NOT DECIDED"}
    found = walker.summary()["gates"]["near"]["baseline"]
    assert (found["losses"], found["lost"], found["unpaired"]) == (0, [], 6)
    result.stdout.no_fnmatch_line("  near is worse*")
    result.stdout.fnmatch_lines(["  That is no regression: errors are never losses."])


def test_outages_of_the_baseline_pair_with_nothing(
    baseline: Any, run: Any, walker: ModelFolder
) -> None:
    before = f"--maatml-baseline={baseline('e' * 6 + 's' * 19)}"
    for now in ("s" * 25, "f" * 6 + "s" * 19):
        assert run(now, before).ret == pytest.ExitCode.OK
        found = walker.summary()["gates"]["near"]["baseline"]
        assert (found["wins"], found["losses"], found["unpaired"]) == (0, 0, 6)
        assert found["paired_tasks"] == 19


@pytest.mark.parametrize(
    ("margin", "lost", "verdict"),
    [("0.1", 2, "PASS"), ("0.1", 3, "FAIL"), ("0", 0, "PASS"), ("0", 1, "FAIL")],
)
def test_a_margin_allows_so_many_successes_fewer_rounded_down(
    baseline: Any, run: Any, walker: ModelFolder, margin: str, lost: int, verdict: str
) -> None:
    before = f"--maatml-baseline={baseline('s' * 25)}"
    result = run("f" * lost + "s" * (25 - lost), before, f"--maatml-margin={margin}")
    assert verdicts(walker.summary()) == {"near": verdict}
    assert result.ret == (0 if verdict == "PASS" else 1)
    found = walker.summary()["gates"]["near"]["baseline"]
    assert (found["required"], found["paired_tasks"]) == (25 - int(25 * float(margin)), 25)


def test_the_report_names_rule_figures_and_lost_tasks(baseline: Any, run: Any) -> None:
    result = run("f" * 9 + "s" * 16, f"--maatml-baseline={baseline('s' * 25)}", "--maatml-explain")
    result.stdout.fnmatch_lines(
        [
            "near: FAIL",
            "  no worse than the baseline */before (exact McNemar test); alpha 0.05; stopping off*",
            "  16 of 25 verified, 9 failed, 0 errored",
            "  against */before: 0 wins, 9 losses, 0 unpaired: FAIL",
            # 1/2^9
            "  difference -36.0%, 95% interval [[]*[]] (Newcombe), p 0.001953",
            "  lost: near-0, near-1, near-2, near-3, near-4, near-5, near-6, near-7, near-8",
            "  near is worse than the baseline */before: 9 tasks were lost and 0 won, p 0.001953.",
            "  That does not mean that each lost task is worse: some would be lost by chance.",
        ]
    )


def test_a_threshold_beside_a_baseline_is_asked_as_well(
    baseline: Any, run: Any, walker: ModelFolder
) -> None:
    before = f"--maatml-baseline={baseline('s' * 20 + 'fffff')}"
    run("s" * 20 + "fffff", before, "--maatml-min-success=0.9")
    gate = walker.summary()["gates"]["near"]
    assert gate["threshold_verdict"] == gate["verdict"] == "FAIL"
    assert gate["baseline"]["verdict"] == "PASS"


@pytest.mark.parametrize("kind", ["file", "folder"])
@pytest.mark.parametrize("door", ["option", "ini", "model", "marker"])
def test_a_baseline_is_a_file_or_a_folder_wherever_it_is_given(
    pytester: pytest.Pytester, walker: ModelFolder, door: str, kind: str
) -> None:
    tasks = walks(near="s" * 6)
    run = (*RUN, f"--maatml-tasks={json.dumps(tasks)}")
    pytester.runpytest(*run).assert_outcomes(passed=1)
    shutil.copytree(walker.output(), walker.path / "before")
    below = "before" if kind == "folder" else "before/episodes.jsonl"
    from_root = f"walker/{below}"
    if door == "option":
        result = pytester.runpytest(*run, f"--maatml-baseline={from_root}")
    elif door == "ini":
        pytester.makeini(f"[pytest]\nmaatml_baseline = {from_root}\nmaatml_margin = 0.02\n")
        result = pytester.runpytest(*run)
    elif door == "model":  # relative to the model folder
        walker.suite(f"- {{env: line_world, tasks: {json.dumps(tasks)}, baseline: {below}}}")
        result = pytester.runpytest("--maatml-model=walker")
    else:
        pytester.makepyfile(
            f"""
import pytest

@pytest.mark.maatml(
    model="walker", env="line_world", tasks={tasks!r}, baseline={from_root!r}, margin="0.02"
)
def test_walks(rollout): pass
"""
        )
        result = pytester.runpytest()
    result.assert_outcomes(passed=1)
    summaries = (walker.path / "output").rglob("episodes.summary.json")
    file = max(summaries, key=lambda summary: summary.stat().st_mtime_ns)
    found = json.loads(file.read_text())["gates"]["near"]
    assert found["baseline"]["file"] == str(walker.path / below)
    assert found["baseline"]["both_passed"] == 6
    assert found["baseline"]["margin"] == ("0.02" if door in ("ini", "marker") else None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": 9}, "*task 'near-0' is another task in the baseline*"),
        (None, "*none of the 4 tasks of near completed in the baseline*"),
    ],
)
def test_a_baseline_of_other_tasks_is_found_at_collection(
    pytester: pytest.Pytester, walker: ModelFolder, change: Any, message: str
) -> None:
    tasks = walks(near="s" * 4)
    pytester.runpytest(*RUN, f"--maatml-tasks={json.dumps(tasks)}").assert_outcomes(passed=1)
    shutil.copytree(walker.output(), pytester.path / "before")
    others = [
        {**task, **change} if change else {**task, "id": f"other-{number}"}
        for number, task in enumerate(tasks)
    ]
    result = pytester.runpytest(
        *RUN, f"--maatml-tasks={json.dumps(others)}", "--maatml-baseline=before"
    )
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines([message])


def test_a_baseline_that_is_not_there_and_a_margin_without_one_say_so(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    gone = pytester.runpytest(*RUN, "--maatml-baseline=gone")
    assert gone.ret == pytest.ExitCode.INTERRUPTED
    gone.stdout.fnmatch_lines(["--maatml-baseline: *gone cannot be read*"])
    margin = pytester.runpytest(*RUN, "--maatml-margin=0.02")
    assert margin.ret == pytest.ExitCode.INTERRUPTED
    margin.stdout.fnmatch_lines(["*a margin of 0.02 is to a baseline, and none is given*"])


def test_a_baseline_that_is_not_there_is_said_with_where_it_was_given(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    pytester.makeini("[pytest]\nmaatml_baseline = gone\n")
    ini = pytester.runpytest(*RUN)
    ini.stdout.fnmatch_lines(["maatml_baseline in */tox.ini: */gone cannot be read*"])
    pytester.makeini("[pytest]\n")
    walker.suite("- {env: line_world, baseline: gone}")
    suite = pytester.runpytest("walker/model.yml")
    suite.stdout.fnmatch_lines(
        ["*ERROR collecting walker/model.yml*", "baseline: */walker/gone cannot be read*"]
    )
    pytester.makepyfile(
        test_it="import pytest\n@pytest.mark.maatml(model='walker', env='line_world', "
        "baseline='gone')\ndef test_it(rollout): pass"
    )
    marker = pytester.runpytest("test_it.py")
    marker.stdout.fnmatch_lines(["test_it.py::test_it: baseline: */gone cannot be read*"])


def test_shards_are_judged_against_the_baseline_when_they_are_merged(
    pytester: pytest.Pytester, walker: ModelFolder, baseline: Any, run: Any, capsys: Any
) -> None:
    from pytest_maatml.cli import main

    before = f"--maatml-baseline={baseline('s' * 25)}"
    now = "f" * 9 + "s" * 16
    run(now, before)
    whole = walker.output()
    for shard in ("1", "2"):
        run(now, before, f"--maatml-shard={shard}/2", f"--maatml-out=shard{shard}")
    assert main(["merge", "merged", "shard2", "shard1"]) == 1
    for name in ("episodes.jsonl", "episodes.summary.json"):
        assert (pytester.path / "merged" / name).read_bytes() == (whole / name).read_bytes()
