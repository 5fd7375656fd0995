"""What pytest's own options do to rollouts: the same as to any other test."""

from __future__ import annotations

import re
import shlex
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .conftest import ModelFolder

RUN = ("--maatml-model=walker", "--maatml-env=line_world", '--maatml-tasks={"count": 9}')
NEAR, FAR = "walker/model.yml::line_world::near", "walker/model.yml::line_world::far"
OWN = "test_own.py::test_own"
SERVED = f"--maatml-env-command={shlex.quote(sys.executable)} -m pytest_maatml serve line_world"

#: One episode a family that fails without a step, under names that no id can hold.
ODD = """\
import pytest

class Finisher:
    def score(self, observation, candidates):
        return [float(c["id"] == "finish") for c in candidates]

FAMILIES = ["a b", "a[b]", "a::b", "größe", "a/b", "-k", ""]
TASKS = [{"id": f"t{i}", "family": family, "start": 0, "target": 0, "max_steps": 5}
         for i, family in enumerate(FAMILIES)]

@pytest.mark.maatml(policy=Finisher, env="line_world", tasks=TASKS)
def test_walks(rollout):
    assert rollout.success_rate == 1

class TestMore:
    @pytest.mark.parametrize("n", [1, 2])
    @pytest.mark.maatml(policy=Finisher, env="line_world", tasks=TASKS[:2])
    def test_walks(self, rollout, n):
        assert rollout.success_rate == 1
"""


@pytest.fixture
def project(pytester: pytest.Pytester, walker: ModelFolder) -> ModelFolder:
    """A model whose long walks fail, and a test of the user's own."""
    pytester.makeini("[pytest]\n")
    pytester.makepyfile(test_own="def test_own(): pass")
    return walker.reach(4)


def verdicts(result: pytest.RunResult) -> list[tuple[str, str]]:
    """Ids with their outcomes, in the order that they ran in."""
    found = (re.match(r"(\S+::\S+) (PASSED|FAILED)", line) for line in result.outlines)
    return [(match[1], match[2]) for match in found if match]


def ids(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if "::" in line]


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("--lf", [(FAR, "FAILED")]),
        ("--ff", [(FAR, "FAILED"), (OWN, "PASSED"), (NEAR, "PASSED")]),
        ("--sw", [(FAR, "FAILED")]),
    ],
)
def test_what_failed_last_time_is_found_again(
    pytester: pytest.Pytester, project: ModelFolder, option: str, expected: list[tuple[str, str]]
) -> None:
    pytester.runpytest(*RUN, *(["--sw"] if option == "--sw" else []))
    assert verdicts(pytester.runpytest(*RUN, option, "-v")) == expected


def test_new_files_first_keeps_every_item(pytester: pytest.Pytester, project: ModelFolder) -> None:
    found = verdicts(pytester.runpytest(*RUN, "--nf", "-v"))
    assert sorted(found) == [(OWN, "PASSED"), (FAR, "FAILED"), (NEAR, "PASSED")]


@pytest.mark.parametrize("option", ["-x", "--maxfail=1"])
def test_a_failed_family_stops_the_run(
    pytester: pytest.Pytester, project: ModelFolder, option: str
) -> None:
    result = pytester.runpytest(*RUN, option, FAR, NEAR)
    result.assert_outcomes(failed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_deselect_takes_an_id_as_printed(pytester: pytest.Pytester, project: ModelFolder) -> None:
    result = pytester.runpytest(*RUN, f"--deselect={FAR}")
    result.assert_outcomes(passed=2, deselected=1)
    assert result.ret == pytest.ExitCode.OK


def test_collect_only_counts_families_and_quietly_prints_ids_alone(
    pytester: pytest.Pytester, project: ModelFolder
) -> None:
    full = pytester.runpytest(*RUN, "--collect-only")
    full.stdout.fnmatch_lines(["*3 tests collected in*"])
    quiet = pytester.runpytest(*RUN, "--collect-only", "-q")
    listed, _, count = "\n".join(quiet.outlines).partition("\n\n")
    assert sorted(listed.splitlines()) == sorted([OWN, NEAR, FAR])
    assert count.startswith("3 tests collected in")
    counts = pytester.runpytest(*RUN, "--collect-only", "-qq")
    assert {"walker/model.yml: 2", "test_own.py: 1"} <= set(counts.outlines)


@pytest.mark.parametrize(
    "options",
    [
        ["-p", "no:terminal"],
        ["-p", "no:capture"],
        ["-p", "no:cacheprovider"],
        ["-p", "no:xdist"],
        ["-p", "no:randomly"],
        ["-p", "no:junitxml"],
        ["-p", "no:warnings"],
        ["--import-mode=importlib"],
        ["--strict-markers", "--strict-config"],
        ["-W", "error"],
        ["-n2"],
        ["-n2", "--dist=loadgroup"],
        ["-n2", "--dist=loadfile"],
    ],
)
def test_verdicts_and_files_are_the_same_under_other_options(
    pytester: pytest.Pytester, project: ModelFolder, options: list[str]
) -> None:
    result = pytester.runpytest_subprocess(*RUN, *options)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()
    gates = project.summary()["gates"]
    assert {name: gate["verdict"] for name, gate in gates.items()} == {
        "near": "PASS",
        "far": "FAIL",
    }
    assert len(project.episodes()) == 9


def test_warnings_of_the_interpreter_as_errors_change_nothing(
    pytester: pytest.Pytester, project: ModelFolder
) -> None:
    result = pytester.run(sys.executable, "-W", "error", "-m", "pytest", *RUN)
    result.assert_outcomes(passed=2, failed=1)


def test_each_level_of_verbosity_shows_more(
    pytester: pytest.Pytester, project: ModelFolder
) -> None:
    introduction = "maatml: walker@1.2.3 · line_world 1 · 9 tasks, 2 families"
    shown = {level: pytester.runpytest(*RUN, *level.split()) for level in ("-q", "", "-v", "-vv")}
    assert introduction not in shown["-q"].outlines
    assert all(introduction in shown[level].outlines for level in ("", "-v", "-vv"))
    for level, result in shown.items():
        episodes = [
            line for line in result.outlines if re.match(r"  line-0-\d  \w+  \d+ dec", line)
        ]
        assert len(episodes) == (9 if level == "-vv" else 0)
        result.stdout.fnmatch_lines(["*= closed-loop success =*"])


def test_ids_of_marked_functions_run_again_as_printed_whatever_the_family(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeini("[pytest]\n")
    pytester.makepyfile(test_odd=ODD)
    found = ids(pytester.runpytest("--collect-only", "-q"))
    assert len(found) == len(set(found)) == 7 + 2 * 2
    for name in found:
        assert ids(pytester.runpytest("--collect-only", "-q", name)) == [name]
    pytester.runpytest(*found).assert_outcomes(passed=11)


def test_ids_of_odd_families_of_a_model_run_again_as_printed(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    pytester.path.joinpath("tasks.json").write_text(
        '[{"id": "1", "family": "a b", "start": 0, "target": 0, "max_steps": 5},'
        ' {"id": "2", "family": "a::b[c]", "start": 0, "target": 0, "max_steps": 5},'
        ' {"id": "3", "family": "größe/2", "start": 0, "target": 0, "max_steps": 5}]'
    )
    run = (*RUN[:2], "--maatml-tasks=@tasks.json")
    found = ids(pytester.runpytest(*run, "--collect-only", "-q"))
    assert len(found) == 3
    for name in found:
        pytester.runpytest(*run, name).assert_outcomes(passed=1)
        result = pytester.runpytest(*run, f"--deselect={name}")
        result.assert_outcomes(passed=2, deselected=1)


def test_ids_of_a_named_suite_run_again_as_printed(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    walker.suite('- name: "smoke test: ü"', "  env: line_world", "  tasks: {count: 9}")
    for name in ids(pytester.runpytest("--collect-only", "-q")):
        pytester.runpytest(name).assert_outcomes(passed=1)


@pytest.mark.parametrize("name", ["with space", "größe", "a=b", "a'b"])
def test_folders_of_any_name_keep_ids_and_commands_that_run(
    pytester: pytest.Pytester, project: ModelFolder, name: str
) -> None:
    project.path.rename(pytester.path / name)
    run = (f"--maatml-model={name}", *RUN[1:])
    first = pytester.runpytest(*run)
    first.assert_outcomes(passed=2, failed=1)
    command = re.search(r"run it again:\n +pytest (.*)", first.stdout.str())
    assert command is not None
    pytester.runpytest(*shlex.split(command[1])).assert_outcomes(failed=1)
    pytester.runpytest(*run, "--lf").assert_outcomes(failed=1)


@pytest.mark.parametrize(
    ("typed", "ini"),
    [
        (["walker", "--maatml-model", "walker"], ""),
        (["--maatml-model", "walker", "walker"], ""),
        (["--maatml-model", "walker"], "testpaths = walker"),
        (["-v", ".", "-k", "far", "--maatml-model", "walker"], ""),
        (["-k", "walker", "walker", "--maatml-model", "walker"], ""),
    ],
)
def test_the_printed_command_keeps_values_that_are_spelt_like_a_path(
    pytester: pytest.Pytester, project: ModelFolder, typed: list[str], ini: str
) -> None:
    pytester.makeini(f"[pytest]\n{ini}\n")
    result = pytester.runpytest(*typed, *RUN[1:])
    command = re.search(r"run it again:\n +pytest (.*)", result.stdout.str())
    assert command is not None
    assert "--maatml-model walker" in command[1]
    assert command[1].endswith(f" {FAR}")
    again = pytester.runpytest(*shlex.split(command[1]), "-v")
    assert verdicts(again) == [(FAR, "FAILED")]


def test_workers_print_the_command_that_was_typed(
    pytester: pytest.Pytester, project: ModelFolder
) -> None:
    alone = pytester.runpytest(*RUN).stdout.str()
    shared = pytester.runpytest_subprocess(*RUN, "-n2").stdout.str()
    found = [re.search(r"run it again:\n +pytest (.*)", text) for text in (alone, shared)]
    first, second = (
        sorted(word for word in shlex.split(match[1]) if not word.startswith("--basetemp"))
        for match in found
        if match
    )
    assert [word for word in second if word != "-n2"] == first


def test_a_model_folder_outside_the_rootdir_is_found_again(
    pytester: pytest.Pytester, project: ModelFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = pytester.mkdir("inside")
    inside.joinpath("pytest.ini").write_text("[pytest]\n")
    monkeypatch.chdir(inside)
    run = ("--maatml-model=../walker", *RUN[1:])
    far = f"{project.path.as_posix()}/model.yml::line_world::far"
    assert (far, "FAILED") in verdicts(pytester.runpytest(*run, "-v"))
    assert verdicts(pytester.runpytest(*run, "--lf", "-v")) == [(far, "FAILED")]
    pytester.runpytest(*run, f"--deselect={far}").assert_outcomes(passed=1, deselected=1)


@pytest.mark.parametrize("more", [[], ["-p", "no:xdist"], ["-n2"]])
def test_marked_functions_and_suites_need_no_option_in_any_number_of_processes(
    pytester: pytest.Pytester, walker: ModelFolder, more: list[str]
) -> None:
    walker.suite("- env: line_world", "  tasks: {count: 9}")
    pytester.makepyfile(test_odd=ODD)
    result = pytester.runpytest_subprocess(*more)
    result.assert_outcomes(passed=13)
    result.stdout.fnmatch_lines(["*= closed-loop success =*", "overall*9/9*"])
    assert walker.summary()["complete"] is True
    out = pytester.path / "output" / "episodes" / "rollout-r0"
    assert len((out / "test_odd.test_walks" / "episodes.jsonl").read_text().splitlines()) == 7


def test_a_worker_that_dies_in_a_run_without_options_is_in_the_table(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    walker.suite("- env: line_world", "  tasks: {count: 9}")
    plugin = (walker.path / "walker_plugin.py").read_text()
    walker.write(
        "walker_plugin.py",
        plugin.replace("        gap =", "        import os; os._exit(3)\n        gap ="),
    )
    result = pytester.runpytest_subprocess("-n1", "--max-worker-restart=0")
    assert result.ret != pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["*NOT DECIDED*"])
    assert walker.summary()["missing"] == 9


@pytest.mark.parametrize("more", [[], ["-n2"]])
def test_a_run_with_xdist_and_no_rollout_leaves_nothing_behind(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, more: list[str]
) -> None:
    pytester.makepyfile("def test_own(): pass")
    monkeypatch.setenv("TMPDIR", str(pytester.mkdir("temporary")))
    pytester.runpytest_subprocess(*more, "-p", "no:cacheprovider").assert_outcomes(passed=1)
    assert not list((pytester.path / "temporary").glob("maatml-*"))


@pytest.mark.parametrize(
    "option", ["--maatml-env=line_world", "--maatml-env-command=cat", "--label", "--maatml-task=x"]
)
def test_an_option_typed_in_vain_is_a_usage_error(pytester: pytest.Pytester, option: str) -> None:
    pytester.makepyfile("def test_own(): pass")
    result = pytester.runpytest(option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: maatml: {option.partition('=')[0]} is given, but no*"])


def test_an_option_is_not_in_vain_where_its_items_are_deselected_or_an_ini_key(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    pytester.makepyfile(test_own="def test_own(): pass", test_odd=ODD)
    result = pytester.runpytest("--label", "-k", "test_own")
    result.assert_outcomes(passed=1, deselected=11)
    pytester.makeini("[pytest]\nmaatml_env = line_world\naddopts = --maatml-label\n")
    pytester.runpytest("test_own.py").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("ini", "given"),
    [
        (("maatml_model = walker", "maatml_env_command = gone"), "--maatml-env=line_world"),
        (("maatml_model = walker", "maatml_env = gone"), SERVED),
        (("maatml_policy = gone", "maatml_env = line_world"), "--maatml-model=walker"),
    ],
)
def test_the_command_line_stands_against_a_rival_in_the_ini_file(
    pytester: pytest.Pytester, walker: ModelFolder, ini: tuple[str, str], given: str
) -> None:
    pytester.makeini("\n".join(["[pytest]", *ini]))
    pytester.runpytest(given).assert_outcomes(passed=1)
    assert len(walker.episodes()) == 1


@pytest.mark.parametrize("more", [[], ["-n2"]])
def test_a_wrong_option_is_a_usage_error_where_only_markers_would_use_it(
    pytester: pytest.Pytester, more: list[str]
) -> None:
    pytester.makepyfile(test_odd=ODD)
    result = pytester.runpytest_subprocess("--maatml-round=-1", *more)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()
    pytester.makeini("[pytest]\nmaatml_round = -1\n")
    assert pytester.runpytest_subprocess(*more).ret == pytest.ExitCode.USAGE_ERROR


def test_a_blocked_plugin_leaves_a_project_with_a_suite_alone(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    walker.suite("- env: line_world", "  tasks: {count: 9}")
    pytester.makepyfile("def test_own(): pass")
    pytester.runpytest_subprocess("-p", "no:maatml").assert_outcomes(passed=1)
