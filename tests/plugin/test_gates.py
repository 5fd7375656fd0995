"""Gates through the plugin: what they decide, where they are given, and what is said of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from scipy.stats import binom

from .walks import before_scoring, stumbling, verdicts, walks, walks_option

if TYPE_CHECKING:
    from .conftest import ModelFolder

RUN = ("--maatml-model=walker", "--maatml-env=line_world")


def run(pytester: pytest.Pytester, *more: str) -> pytest.RunResult:
    return pytester.runpytest(*RUN, *more)


@pytest.mark.parametrize("stop", ["off", "exact", "risk:0.01"])
def test_nineteen_errors_and_one_success_are_not_decided(
    pytester: pytest.Pytester, walker: ModelFolder, stop: str
) -> None:
    stumbling(walker)
    tasks = walks_option(early="s" + "e" * 19, late="e" * 19 + "s", none="e" * 20)
    result = run(pytester, tasks, "--maatml-min-success=0.5", f"--maatml-stop={stop}")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(failed=3)
    assert set(verdicts(walker.summary()).values()) == {"NOT DECIDED"}
    assert walker.summary()["success"] == 2
    result.stdout.fnmatch_lines(
        [
            "early: the gate is >= 50% (10/20); 1 of 1 episodes verified*NOT DECIDED.",
            "The gate could not be decided: 19 episodes errored. That is neither*",
            "*FAILED *::early*",
        ]
    )


def test_errors_alone_never_end_well(pytester: pytest.Pytester, walker: ModelFolder) -> None:
    stumbling(walker)
    errors = walks_option(none="e" * 6)
    for more in (["--maatml-min-success=0"], ["--label"], ["--maatml-stop=exact"]):
        assert run(pytester, errors, *more).ret == pytest.ExitCode.TESTS_FAILED
    assert walker.summary()["errors"] == 6


def test_more_failures_than_the_gate_bears_fail_in_spite_of_errors(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    stumbling(walker)
    run(pytester, walks_option(bad="f" * 11 + "e" * 9), "--maatml-min-success=0.5")
    assert verdicts(walker.summary()) == {"bad": "FAIL"}


@pytest.mark.parametrize(("allowed", "verdict"), [("0", "NOT DECIDED"), ("2", "PASS")])
def test_max_errors_says_how_many_errors_leave_a_gate_decided(
    pytester: pytest.Pytester, walker: ModelFolder, allowed: str, verdict: str
) -> None:
    stumbling(walker)
    more = ("--maatml-min-success=0.9", f"--maatml-max-errors={allowed}")
    result = run(pytester, walks_option(near="ee" + "s" * 18), *more)
    assert verdicts(walker.summary()) == {"near": verdict}
    assert result.ret == (0 if verdict == "PASS" else 1)


GATE = {"min_success": "0.7", "alpha": "0.1", "stop": "exact", "max_errors": "1", "seed": "5"}


def by_option(pytester: pytest.Pytester, folder: ModelFolder, gate: dict[str, str]) -> None:
    given = [f"--maatml-{name.replace('_', '-')}={value}" for name, value in gate.items()]
    run(pytester, walks_option(near="s" * 30), *given).assert_outcomes(passed=1)


def by_ini(pytester: pytest.Pytester, folder: ModelFolder, gate: dict[str, str]) -> None:
    lines = [f"maatml_{name} = {value}" for name, value in gate.items()]
    pytester.makeini("\n".join(["[pytest]", *lines]))
    run(pytester, walks_option(near="s" * 30)).assert_outcomes(passed=1)


def by_model_file(pytester: pytest.Pytester, folder: ModelFolder, gate: dict[str, str]) -> None:
    lines = ", ".join(f"{name}: {value}" for name, value in gate.items())
    tasks = json.dumps(walks(near="s" * 30))
    folder.suite(f"- {{env: line_world, tasks: {tasks}, {lines}}}")
    pytester.runpytest("--maatml-model=walker").assert_outcomes(passed=1)


def by_marker(pytester: pytest.Pytester, folder: ModelFolder, gate: dict[str, str]) -> None:
    values = {**gate, "alpha": 0.1, "max_errors": 1, "seed": 5}
    pytester.makepyfile(
        f"""
import pytest

@pytest.mark.maatml(
    model="walker", env="line_world", tasks={walks(near="s" * 30)!r}, **{values!r}
)
def test_walks(rollout):
    assert rollout.verdict == "PASS"
"""
    )
    pytester.runpytest().assert_outcomes(passed=1)


@pytest.mark.parametrize("kind", ["point", "certify", "guard"])
@pytest.mark.parametrize("given", [by_option, by_ini, by_model_file, by_marker])
def test_a_gate_is_the_same_wherever_it_is_given(
    pytester: pytest.Pytester, walker: ModelFolder, given: Any, kind: str
) -> None:
    given(pytester, walker, {"gate": kind, **GATE})
    (file,) = (walker.path / "output").rglob("episodes.summary.json")
    gate = json.loads(file.read_text())["gates"]["near"]
    law = binom(30, 0.7)
    required = {
        "point": 21,
        "certify": min(k for k in range(31) if law.sf(k - 1) <= 0.1),
        "guard": min(k for k in range(31) if law.cdf(k) > 0.1),
    }[kind]
    assert (gate["kind"], gate["required"], gate["threshold"]) == (kind, required, "0.7")
    assert (gate["alpha"], gate["stopping"]) == (0.1, "exact")
    assert (gate["max_errors"], gate["seed"]) == (1, 5)
    assert gate["stopped_at"] == required


def test_the_command_line_goes_before_the_ini_file_and_that_before_the_model_file(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    tasks = json.dumps(walks(near="s" * 30))
    suite = f"tasks: {tasks}, min_success: 0.5, gate: certify, alpha: 0.2, stop: exact"
    walker.suite(f"- {{env: line_world, {suite}}}")
    pytester.makeini("[pytest]\nmaatml_gate = guard\nmaatml_alpha = 0.1\n")
    pytester.runpytest("--maatml-model=walker", "--maatml-gate=point").assert_outcomes(passed=1)
    gate = walker.summary()["gates"]["near"]
    assert gate["kind"] == "point"
    assert (gate["alpha"], gate["stopping"], gate["threshold"]) == (0.1, "exact", "0.5")


@pytest.mark.parametrize("door", ["option", "model", "marker"])
def test_a_gate_that_cannot_pass_is_found_before_any_episode_runs(
    pytester: pytest.Pytester, walker: ModelFolder, door: str
) -> None:
    before_scoring(walker, "        import pathlib; pathlib.Path('ran').touch()\n")
    tasks = walks(near="s" * 20, far="s" * 60)
    if door == "option":
        more = ("--maatml-gate=certify", "--maatml-min-success=0.9")
        result = run(pytester, f"--maatml-tasks={json.dumps(tasks)}", *more)
    elif door == "model":
        walker.suite(
            f"- {{env: line_world, tasks: {json.dumps(tasks)}, gate: certify, min_success: 0.9}}"
        )
        result = pytester.runpytest("--maatml-model=walker")
    else:
        pytester.makepyfile(
            f"""
import pytest

@pytest.mark.maatml(
    model="walker", env="line_world", tasks={tasks!r}, gate="certify", min_success=0.9
)
def test_walks(rollout): pass
"""
        )
        result = pytester.runpytest()
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.assert_outcomes(errors=1)
    # ceil(ln 0.05 / ln 0.9) = 29
    result.stdout.fnmatch_lines(
        ["*the gate of near: a certify gate at 0.9*cannot pass with 20*needs at least 29 episodes*"]
    )
    result.stdout.no_fnmatch_line("*Traceback*")
    assert not (pytester.path / "ran").exists()


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--maatml-gate=often", "*gate 'often': give one of point, certify, guard*"),
        ("--maatml-stop=soon", "*stopping='soon': give off, exact, risk*"),
        ("--maatml-alpha=2", "*alpha*"),
        ("--maatml-max-errors=-1", "*max-errors must be at least 0*"),
        ("--maatml-margin=3", "*margin=3: give the share*"),
    ],
)
def test_what_no_run_could_be_judged_by_is_a_usage_error(
    pytester: pytest.Pytester, walker: ModelFolder, option: str, message: str
) -> None:
    result = run(pytester, option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([message])


def test_a_teacher_mix_and_a_gate_exclude_one_another(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    labelled = ("--label", "--teacher-mix=0.5")
    result = run(pytester, *labelled, "--maatml-min-success=0.5")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--maatml-min-success and a --teacher-mix above 0 exclude*"])
    walker.suite("- {env: line_world, tasks: {count: 4}, min_success: 0.5, teacher_mix: 0.5, "
                 "label: true}")  # fmt: skip
    suite = pytester.runpytest("--maatml-model=walker")
    assert suite.ret == pytest.ExitCode.INTERRUPTED
    suite.stdout.fnmatch_lines(["*a gate and a teacher mix above 0 exclude one another*"])


def test_labels_and_a_gate_go_together_where_the_policy_acts(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    tasks = walks_option(near="s" * 9 + "f", far="s" * 6 + "f" * 4)
    run(pytester, tasks, "--label", "--maatml-min-success=0.9").assert_outcomes(passed=1, failed=1)
    summary = walker.summary("dagger-r0")
    assert verdicts(summary) == {"near": "PASS", "far": "FAIL"}
    assert summary["labelled_decisions"] == summary["decisions"]
    assert summary["wilson95_of"] == "all planned episodes"


def test_explain_says_what_was_decided_what_not_and_what_would(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    stumbling(walker)
    ends = {"near": "s" * 18 + "ff", "bad": "s" * 9 + "f" * 11, "lost": "s" * 9 + "f" + "e" * 10}
    tasks = walks_option(**ends)
    quiet = run(pytester, tasks, "--maatml-min-success=0.5")
    quiet.stdout.no_fnmatch_line("*That does not mean*")
    result = run(pytester, tasks, "--maatml-min-success=0.5", "--maatml-explain")
    result.stdout.fnmatch_lines(
        [
            "near: PASS",
            "  point gate >= 50% (10/20), N 20, k* 10; alpha 0.05; stopping off; declared order",
            "  18 of 20 verified, 2 failed, 0 errored",
            "  Of the 20 tasks of near, at least 10 succeed.",
            "  That does not mean that the rate behind them is 50%: another list of tasks*",
            "  A certify gate, had it been asked, would have passed on these episodes.",
            "bad: FAIL",
            "  Of the 20 tasks of bad, fewer than 10 succeed.",
            "  That does not mean that the rate behind them is below 50%: another list may pass.",
            "lost: NOT DECIDED",
            "  Whether lost meets its gate was not decided: 10 episodes errored.",
            "  That does not mean that the policy failed, nor that it would pass.",
            "  Of the 10 episodes without an outcome, 1 success passes it and 10 failures fail it.",
        ]
    )


#: 40 + 24 + 6 successes of 100.
TOGETHER = {"good": "s" * 40, "fair": "sssff" * 8, "poor": "sss" + "f" * 7 + "sss" + "f" * 7}
OVERALL = ("--maatml-min-success=overall=0.7", "--maatml-min-success=0.3")


def test_the_overall_gate_is_an_item_of_its_own_under_xdist_too(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    tasks, found = walks_option(**TOGETHER), []
    for more in ([], ["-n2"], ["-n4", "--maatml-stop=exact"]):
        result = pytester.runpytest_subprocess(*RUN, tasks, *OVERALL, *more, "-v")
        result.assert_outcomes(passed=4)
        result.stdout.fnmatch_lines(["*walker/model.yml::line_world::overall*"])
        found.append(walker.summary())
        found[-1]["gates"]["overall"].pop("stopping")
    # Two families decide the overall gate by none of their own: nothing may be left out.
    assert [summary["skipped"] for summary in found] == [0, 0, 0]
    overall = [summary["gates"]["overall"] for summary in found]
    assert overall == [overall[0]] * 3
    assert (overall[0]["rule"], overall[0]["success"]) == (">= 70% (70/100)", 70)
    assert found[0]["gates"] == found[1]["gates"]
    short = run(pytester, tasks, "--maatml-min-success=overall=0.71")
    short.assert_outcomes(passed=3, failed=1)
    short.stdout.fnmatch_lines(["FAILED *::overall*"])


@pytest.mark.parametrize("hook", ["tryfirst=True", "trylast=True", "wrapper=True"])
def test_the_overall_gate_comes_last_whatever_reorders_the_items(
    pytester: pytest.Pytester, walker: ModelFolder, hook: str
) -> None:
    body = "yield; " if hook.startswith("wrapper") else ""
    pytester.makeconftest(
        f"""
import pytest

@pytest.hookimpl({hook})
def pytest_collection_modifyitems(items):
    {body}items.sort(key=lambda item: item.name != "overall")
"""
    )
    pytester.makepyfile("def test_own(): pass")
    result = run(pytester, walks_option(**TOGETHER), *OVERALL, "-v")
    result.assert_outcomes(passed=5)
    ran = [line for line in result.outlines if "::" in line and "PASSED" in line]
    assert "::overall" in ran[-1]


def test_after_x_the_overall_gate_is_not_decided(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    tasks = walks_option(poor="f" * 4, good="s" * 40)
    result = run(pytester, tasks, *OVERALL, "-x")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(failed=1)
    assert walker.summary()["missing"] == 40
    alone = run(pytester, tasks, *OVERALL, "walker/model.yml::line_world::overall")
    alone.assert_outcomes(failed=1)
    alone.stdout.fnmatch_lines(["overall: NOT DECIDED", "*44 did not run*"])


def test_a_family_that_died_leaves_the_overall_gate_undecided(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    before_scoring(
        walker,
        "        import os\n        if observation['max_steps'] == 2:\n            os._exit(3)\n",
    )
    tasks = walks_option(good="s" * 10, lethal="s" * 5 + "f", fair="s" * 10)
    result = pytester.runpytest_subprocess(
        *RUN, tasks, "--maatml-min-success=overall=0.9", "-n2", timeout=40
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["overall: NOT DECIDED", "*6 did not run*"])
    assert walker.summary()["gates"]["overall"]["verdict"] == "NOT DECIDED"


def test_the_overall_gate_waits_for_families_behind_another_workers_long_tests(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    pytester.makeconftest("from pytest_maatml.plugin import distributed as d\nd._PATIENCE = 0.2\n")
    pytester.makepyfile("import time\ndef test_long(): time.sleep(1.5)\n")
    result = pytester.runpytest_subprocess(*RUN, walks_option(**TOGETHER), *OVERALL, "-n2")
    result.assert_outcomes(passed=5)
