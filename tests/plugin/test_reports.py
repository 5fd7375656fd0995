"""Results for other readers: JUnit, the page of a GitHub job, other plugins, reruns."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest

from pytest_maatml.plugin import reports

if TYPE_CHECKING:
    from .conftest import ModelFolder

RUN = ("--maatml-model=walker", "--maatml-env=line_world", '--maatml-tasks={"count": 9}')
#: Nine walks of seed 0: six are near; the three far ones take 6, 6 and 8 steps.
FAR = {
    "maatml_success": "0",
    "maatml_episodes": "3",
    "maatml_planned": "3",
    "maatml_rate": "0.0%",
    "maatml_wilson95": "[0.0%, 56.1%]",
    "maatml_gate": ">= 100% (3/3)",
    "maatml_verdict": "FAIL",
    "maatml_errors": "0",
    "maatml_attempt": "1",
}

#: Runs a failed item again, twice at most, as plugins for reruns do.
RERUNS = """\
from _pytest.runner import runtestprotocol

def pytest_runtest_protocol(item, nextitem):
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for attempt in (1, 2, 3):
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        again = attempt < 3 and any(report.failed for report in reports)
        for report in reports:
            if again and report.failed:
                report.outcome = "rerun"
            item.ihook.pytest_runtest_logreport(report=report)
        if not again:
            break
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True

def pytest_report_teststatus(report):
    if report.outcome == "rerun":
        return "rerun", "R", "RERUN"
"""

#: Reaches one step further each time that it is loaded or a family begins.
LEARNING = """\
from pytest_maatml.registry import register_predictor

@register_predictor("scripted_walker")
class Learner:
    failures = 0

    def score(self, observation, candidates):
        gap = observation["target"] - observation["position"]
        if gap and observation["steps"] >= 5 and type(self).failures < 3:
            type(self).failures += 1
            gap = 0
        wanted = "finish" if gap == 0 else ("right" if gap > 0 else "left")
        return [float(candidate["id"] == wanted) for candidate in candidates]
"""


@pytest.fixture
def failing(walker: ModelFolder) -> ModelFolder:
    return walker.reach(4)


def junit(pytester: pytest.Pytester) -> dict[str, list[tuple[str, str]]]:
    """The properties of each case that has some, by its name."""
    root = ElementTree.parse(pytester.path / "junit.xml").getroot()
    return {
        case.attrib["name"]: [(p.attrib["name"], p.attrib["value"]) for p in case.iter("property")]
        for case in root.iter("testcase")
        if case.find("properties") is not None
    }


@pytest.mark.parametrize("more", [[], ["-n2"], ["-p", "no:terminal"]])
def test_junit_has_the_counts_of_each_family(
    pytester: pytest.Pytester, failing: ModelFolder, more: list[str]
) -> None:
    pytester.runpytest_subprocess(*RUN, *more, "--junitxml=junit.xml")
    found = junit(pytester)
    assert set(found) == {"near", "far"}
    file = str(failing.output() / "episodes.jsonl")
    assert dict(found["far"]) == {**FAR, "maatml_episodes_file": file}
    assert dict(found["near"])["maatml_verdict"] == "PASS"


def test_junit_has_the_counts_of_marked_functions(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
import pytest

class Finisher:
    def score(self, observation, candidates):
        return [float(c["id"] == "finish") for c in candidates]

@pytest.mark.maatml(policy=Finisher, env="line_world", tasks={"count": 9})
def test_walks(rollout, record_property):
    record_property("mine", 1)
"""
    )
    pytester.runpytest("--junitxml=junit.xml", "-o", "junit_family=xunit1")
    found = junit(pytester)
    assert set(found) == {"test_walks[near]", "test_walks[far]"}
    assert dict(found["test_walks[far]"])["maatml_planned"] == "3"
    assert dict(found["test_walks[far]"])["mine"] == "1"


@pytest.mark.parametrize("more", [[], ["-n2"]])
def test_attempts_are_kept_apart_and_said(
    pytester: pytest.Pytester,
    walker: ModelFolder,
    monkeypatch: pytest.MonkeyPatch,
    more: list[str],
) -> None:
    walker.write("walker_plugin.py", LEARNING)
    pytester.makeconftest(RERUNS)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "page.md")
    # The three far walks fail in the first attempt and in no other.
    result = pytester.runpytest_subprocess(*RUN, *more, "--junitxml=junit.xml")
    assert result.ret == pytest.ExitCode.OK
    said = "far ran 2 times (FAIL, PASS): the last attempt counts, and its gate is one of the best"
    result.stdout.fnmatch_lines([f"{said}*"])
    assert f"\n{said}" in (pytester.path / "page.md").read_text()
    assert "near ran" not in result.stdout.str()
    assert len(walker.episodes()) == 9
    assert walker.summary()["success"] == 9
    far = junit(pytester)["far"]
    assert [value for name, value in far if name == "maatml_attempt"][-1] == "2"
    assert len({name for name, _ in far[-10:]}) == 10


def page(pytester: pytest.Pytester) -> str:
    return (pytester.path / "page.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("more", [[], ["-n2"], ["-p", "no:terminal"]])
def test_the_page_of_a_job_gets_one_table_with_the_line_of_each_failure(
    pytester: pytest.Pytester,
    failing: ModelFolder,
    monkeypatch: pytest.MonkeyPatch,
    more: list[str],
) -> None:
    failing.suite("- env: line_world", "  tasks: {count: 9}", "  min_success: {overall: 0.9}")
    failing.write("model.yml", (failing.path / "model.yml").read_text() + "training: {reach: 4}\n")
    line = 1 + (failing.path / "model.yml").read_text().splitlines().index(
        "      - env: line_world"
    )
    pytester.path.joinpath("page.md").write_text("# what was there\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(pytester.path / "page.md"))
    result = pytester.runpytest_subprocess("--maatml-model=walker", *more)
    text = page(pytester)
    assert text.startswith("# what was there\n### closed-loop success\n")
    assert text.count("| family |") == 1
    assert "| far | 0/3 | 0.0% | [0.0%, 56.1%] |" in text
    assert "| overall | 6/9 | 66.7% | [35.4%, 87.9%] |" in text
    assert text.count("FAIL |") == 1
    if "no:terminal" not in more:
        result.stdout.fnmatch_lines([f"walker/model.yml:{line}: GateNotMet"])


def test_the_page_names_file_and_line_of_a_family_that_fails(
    pytester: pytest.Pytester, failing: ModelFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(pytester.path / "page.md"))
    pytester.runpytest(*RUN)
    assert "\n**FAIL** `line_world::far` (walker/model.yml:1)\n" in page(pytester)


def test_the_page_is_cut_at_its_limit_between_characters(
    pytester: pytest.Pytester, failing: ModelFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = pytester.path / "page.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(target))
    tasks = [
        {"id": str(i), "family": "ü" * 40 + f"{i}|\nx", "start": 0, "target": 0, "max_steps": 5}
        for i in range(3)
    ]
    run = (*RUN[:2], f"--maatml-tasks={json.dumps(tasks)}")
    pytester.runpytest(*run)
    whole = page(pytester)
    assert f"| {'ü' * 40}0\\| x |" in whole
    for limit in range(len(whole.encode()) - 300, len(whole.encode()) - 290):
        target.unlink()
        monkeypatch.setattr(reports, "_LIMIT", limit)
        pytester.runpytest_inprocess(*run)
        assert 0 < target.stat().st_size <= limit
        assert page(pytester).endswith("\n\n(cut: the page is full)\n")
    before = target.read_bytes()
    pytester.runpytest_inprocess(*run)
    assert target.read_bytes() == before


def test_without_rollouts_the_page_is_left_alone(
    pytester: pytest.Pytester, walker: ModelFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(pytester.path / "page.md"))
    pytester.makepyfile("def test_own(): pass")
    pytester.runpytest(*RUN, "-m", "not maatml").assert_outcomes(passed=1, deselected=2)
    assert not (pytester.path / "page.md").exists()


@pytest.mark.parametrize("more", [[], ["-n2"]])
def test_other_plugins_read_the_result_on_the_report_in_builtins_alone(
    pytester: pytest.Pytester, failing: ModelFolder, more: list[str]
) -> None:
    pytester.makeconftest(
        "import json\n"
        "def pytest_runtest_logreport(report):\n"
        "    if hasattr(report, 'maatml'):\n"
        "        with open('seen.jsonl', 'a') as seen:\n"
        "            json.dump([report.nodeid, report.when, report.maatml], seen)\n"
        "            seen.write('\\n')\n"
    )
    pytester.makepyfile("def test_own(): pass")
    gates = ("--maatml-min-success=default=1", "--maatml-min-success=overall=0.5")
    pytester.runpytest_subprocess(*RUN, *gates, *more)
    lines = (pytester.path / "seen.jsonl").read_text().splitlines()
    seen: dict[str, Any] = {}
    for nodeid, when, carried in map(json.loads, lines):
        assert when == "call"
        seen[nodeid.rpartition("::")[2]] = carried
    assert set(seen) == {"near", "far", "overall"}
    assert seen["far"]["result"]["success"] == 0
    assert seen["far"]["result"]["verdict"] == "FAIL"
    assert seen["far"]["folder"] == str(failing.output())
    assert seen["overall"]["overall"]["verdict"] == "PASS"
    assert seen["overall"]["result"] is None


def test_what_the_report_carries_is_builtins_at_every_depth(
    pytester: pytest.Pytester, failing: ModelFolder
) -> None:
    pytester.makeconftest(
        "def walk(value):\n"
        "    assert type(value) in (dict, list, str, int, float, bool, type(None)), repr(value)\n"
        "    inner = value.items() if type(value) is dict else [(0, v) for v in value] "
        "if type(value) is list else []\n"
        "    for key, item in inner:\n"
        "        walk(key), walk(item)\n"
        "def pytest_runtest_logreport(report):\n"
        "    if hasattr(report, 'maatml'):\n"
        "        walk(report.maatml)\n"
        "        print('WALKED')\n"
    )
    result = pytester.runpytest_subprocess(*RUN, "-s", "--maatml-stop=exact")
    assert result.stdout.str().count("WALKED") == 2
    assert "INTERNALERROR" not in result.stdout.str()
