"""`--maatml-check-env`: one item a rule, with the rule's name as its id."""

from __future__ import annotations

import sys

import pytest

# pytester forgets the modules that a run in this process imported first.
import pytest_maatml.plugin.conformance  # noqa: F401
from pytest_maatml.conformance.rules import rules_for

from .findings import PROGRAM

ENVIRONMENT = """\
from pytest_maatml.environments.line_world import LineWorld
from pytest_maatml.rollout import Labels

class Right(LineWorld):
    pass

class Wrong(LineWorld):
    def label(self, episode):
        super().label(episode)
        return Labels(("jump",))

class Mute(LineWorld):
    def hello(self):
        import dataclasses
        return dataclasses.replace(super().hello(), capabilities=("tasks",))
"""
RULES = [rule.name for rule in rules_for(over_stdio=False)]
PROGRAM_RULES = [rule.name for rule in rules_for(over_stdio=True)]
CHECK = "--maatml-check-env"
WRONG = "--maatml-env=walks.py:Wrong"


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeini("[pytest]\n")
    pytester.makepyfile(walks=ENVIRONMENT, test_own="def test_own(): pass")
    return pytester


def collected(project: pytest.Pytester, *arguments: str) -> list[str]:
    result = project.runpytest("--collect-only", "-q", *arguments)
    return [line for line in result.outlines if "::" in line]


@pytest.mark.parametrize(
    ("environment", "file", "rules"),
    [
        ("--maatml-env=walks.py:Right", "walks.py", RULES),
        ("--maatml-env=walks:Right", "walks.py", RULES),
        ("--maatml-env=line_world", "tox.ini", RULES),
        (f"--maatml-env-command={sys.executable} {PROGRAM}", "tox.ini", PROGRAM_RULES),
        (f"--maatml-env-command={sys.executable} walks.py", "walks.py", PROGRAM_RULES),
    ],
)
def test_there_is_one_item_a_rule_beside_the_tests_of_the_project(
    project: pytest.Pytester, environment: str, file: str, rules: list[str]
) -> None:
    ids = [f"{file}::{rule}" for rule in rules]
    assert sorted(collected(project, CHECK, environment)) == sorted([*ids, "test_own.py::test_own"])


@pytest.mark.parametrize("environment", ["walks.py:Right", "line_world"])
def test_an_id_can_be_run_again_as_printed(project: pytest.Pytester, environment: str) -> None:
    run = (CHECK, f"--maatml-env={environment}")
    ids = [name for name in collected(project, *run) if name.endswith("::close_frees")]
    assert collected(project, *run, *ids) == ids
    project.runpytest(*run, *ids).assert_outcomes(passed=1)


@pytest.mark.parametrize("more", [[], ["-n2"]])
def test_a_right_environment_passes(project: pytest.Pytester, more: list[str]) -> None:
    result = project.runpytest(CHECK, "--maatml-env=walks.py:Right", "-m", "maatml", *more)
    result.assert_outcomes(passed=len(RULES), deselected=0 if more else 1)


def test_a_broken_rule_fails_its_item_without_a_traceback(project: pytest.Pytester) -> None:
    result = project.runpytest(CHECK, WRONG, "walks.py::labels_are_valid", "walks.py::hello")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "wanted  ids of valid candidates; 'jump' is masked",
            'sent    {"op":"label","episode":"check-random-0"}',
            'came    {"ok":true,"valid_ids":*"jump"*',
            "The rule labels_are_valid:",
            "A teacher's ids are what the policy learns*",
            "FAILED walks.py::labels_are_valid - wanted  ids of valid candidates*",
        ]
    )
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*conformance/*.py*")


def test_the_last_failed_rule_runs_again(project: pytest.Pytester) -> None:
    project.runpytest(CHECK, WRONG, "-k", "labels or hello").assert_outcomes(
        passed=1, failed=1, deselected=len(RULES) - 1
    )
    again = project.runpytest(CHECK, WRONG, "--lf", "-v")
    again.assert_outcomes(failed=1)
    again.stdout.fnmatch_lines(["walks.py::labels_are_valid FAILED*"])


def test_a_missing_capability_is_a_skip_with_what_it_costs(project: pytest.Pytester) -> None:
    result = project.runpytest(CHECK, "--maatml-env=walks.py:Mute", "-k", "teacher", "-rs")
    result.assert_outcomes(skipped=1, deselected=len(RULES))
    result.stdout.fnmatch_lines(["SKIPPED*names no capability 'label'*labels_are_valid, teacher*"])


def test_what_was_compared_is_shown_on_request(project: pytest.Pytester) -> None:
    run = (CHECK, "--maatml-env=walks.py:Right", '--maatml-tasks={"count": 3}')
    result = project.runpytest(*run, "-k", "teacher_succeeds", "-rP")
    result.stdout.fnmatch_lines(["the teacher succeeded on 3 of 3 tasks*"])


def test_without_an_environment_it_is_a_usage_error(project: pytest.Pytester) -> None:
    result = project.runpytest(CHECK)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--maatml-check-env needs to know which environment*"])


@pytest.mark.parametrize(
    ("environment", "message"),
    [("line_wordl", "*did you mean 'line_world'*"), ("wlaks:Right", "*no module 'wlaks'*")],
)
def test_an_environment_that_is_not_there_is_a_usage_error(
    project: pytest.Pytester, environment: str, message: str
) -> None:
    result = project.runpytest(CHECK, f"--maatml-env={environment}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([message])


def test_an_environment_that_cannot_be_made_fails_with_its_own_message(
    project: pytest.Pytester,
) -> None:
    run = (CHECK, "--maatml-env=walks.py:Lost", "-k", "hello")
    result = project.runpytest(*run)
    result.assert_outcomes(failed=1, deselected=len(RULES))
    result.stdout.fnmatch_lines(["*has no 'Lost'*"])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_a_program_that_does_not_start_is_said_in_one_line_a_rule(
    project: pytest.Pytester,
) -> None:
    result = project.runpytest(CHECK, f"--maatml-env-command={sys.executable} -c 1/0", "-m maatml")
    result.assert_outcomes(failed=len(PROGRAM_RULES), deselected=1)
    result.stdout.fnmatch_lines(["FAILED tox.ini::hello - the environment does not answer hello:*"])


def test_from_the_ini_file_the_rules_join_only_runs_that_name_no_test(
    project: pytest.Pytester,
) -> None:
    project.makeini("[pytest]\nmaatml_check_env = true\nmaatml_env = walks.py:Right\n")
    assert len(collected(project)) == len(RULES) + 1
    assert collected(project, "test_own.py") == ["test_own.py::test_own"]
