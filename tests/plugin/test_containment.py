"""What would pass for an outcome of pytest's, or for the end of the process, is never a success."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_maatml.cli import main
from pytest_maatml.errors import describe

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import ModelFolder

MODEL = "--maatml-model=walker"
ENV = "--maatml-env=leaving.py:Env"
TASKS = '--maatml-tasks={"count": 6, "seed": 1}'
LEAVING = """\
import sys
import pytest
from pytest_maatml.environments.line_world import LineWorld

class Env(LineWorld):
    def METHOD(self, *arguments):
        STATEMENT
"""
STATEMENTS = {
    "sys.exit(0)": "SystemExit: 0",
    "pytest.skip('no display')": "Skipped: no display",
    "pytest.xfail('known')": "XFailed: known",
    "raise type('Gone', (BaseException,), {})('no display')": "Gone: no display",
}


def leaving(method: str, statement: str) -> str:
    return LEAVING.replace("METHOD", method).replace("STATEMENT", statement)


@pytest.mark.parametrize("statement", STATEMENTS)
def test_an_environment_that_leaves_fails_its_items_with_its_line(
    pytester: pytest.Pytester, walker: ModelFolder, statement: str
) -> None:
    pytester.makepyfile(leaving=leaving("step", statement))
    result = pytester.runpytest(MODEL, ENV, TASKS)
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines([f"*raised {STATEMENTS[statement]} (*leaving.py:7)*"])
    assert "runner.py" not in result.stdout.str()


@pytest.mark.parametrize("statement", STATEMENTS)
def test_in_a_worker_process_it_says_the_same(
    pytester: pytest.Pytester, walker: ModelFolder, statement: str
) -> None:
    pytester.makepyfile(leaving=leaving("step", statement))
    result = pytester.runpytest(MODEL, ENV, TASKS, "--maatml-workers=2", "-k", "near")
    result.assert_outcomes(failed=1, deselected=1)
    result.stdout.fnmatch_lines([f"*raised {STATEMENTS[statement]} (*leaving.py:7)*"])


@pytest.mark.parametrize("method", ["hello", "tasks"])
@pytest.mark.parametrize("statement", STATEMENTS)
def test_one_that_leaves_at_once_is_an_error_of_the_collection(
    pytester: pytest.Pytester, walker: ModelFolder, method: str, statement: str
) -> None:
    pytester.makepyfile(leaving=leaving(method, statement), test_other="def test_other(): pass")
    result = pytester.runpytest(MODEL, ENV, TASKS)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.assert_outcomes(errors=1)
    text = result.stdout.str() + result.stderr.str()
    assert f"raised {STATEMENTS[statement]} (" in text
    assert "INTERNALERROR" not in text


@pytest.mark.parametrize("place", ["", "    "], ids=["plugin", "score"])
def test_a_gate_is_not_skipped_where_the_policy_lacks_a_module(
    pytester: pytest.Pytester, walker: ModelFolder, place: str
) -> None:
    need = "import pytest; pytest.importorskip('no_such_module')\n"
    text = (walker.path / "walker_plugin.py").read_text()
    if place:
        text = text.replace("        gap =", f"        {need}        gap =")
    walker.write("walker_plugin.py", text if place else need + text)
    result = pytester.runpytest(MODEL, "--maatml-env=line_world", TASKS)
    assert result.ret in (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED)
    assert "skipped" not in result.parseoutcomes()


@pytest.mark.parametrize("where", ["step", "hello"])
def test_a_marked_test_fails_where_its_environment_skips(
    pytester: pytest.Pytester, walker: ModelFolder, where: str
) -> None:
    pytester.makepyfile(
        leaving=leaving(where, "pytest.skip('no display')"),
        test_it="import pytest\n@pytest.mark.maatml(model='walker', env='leaving.py:Env')\n"
        "def test_it(rollout): pass",
    )
    result = pytester.runpytest()
    assert result.ret in (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED)
    assert "skipped" not in result.parseoutcomes()
    assert "raised Skipped: no display (" in result.stdout.str()


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_rule_that_the_environment_leaves_is_not_kept(
    pytester: pytest.Pytester, statement: str
) -> None:
    pytester.makepyfile(leaving=leaving("step", statement))
    result = pytester.runpytest("--maatml-check-env", ENV, TASKS, "-k", "steps_have_a_result")
    result.assert_outcomes(failed=1, deselected=21)


def test_a_command_that_is_left_is_no_success(
    pytester: pytest.Pytester, walker: ModelFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    pytester.makepyfile(leaving=leaving("step", "sys.exit(0)"))
    arguments = ["--env=leaving.py:Env", '--tasks={"count": 6}']
    assert main(["rollout", "walker", *arguments]) == 2
    assert "cut short by SystemExit: 0 (" in capsys.readouterr().err
    assert main(["check-env", *arguments]) == 2


def test_a_failure_stays_what_it_is(pytester: pytest.Pytester, walker: ModelFolder) -> None:
    pytester.makepyfile(leaving=leaving("step", "pytest.fail('too late', pytrace=False)"))
    result = pytester.runpytest(MODEL, ENV, TASKS)
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["too late"])
    result.stdout.no_fnmatch_line("*decides nothing*")


def status_of(*arguments: str) -> int:
    """The exit status of a command; an outcome that passes would be this test's own."""
    try:
        return main(arguments)
    except (pytest.skip.Exception, pytest.xfail.Exception) as outcome:
        raise AssertionError(f"it let {outcome!r} pass") from None


@pytest.mark.parametrize("method", ["hello", "step"])
@pytest.mark.parametrize("statement", list(STATEMENTS)[1:])
def test_a_command_says_in_a_line_what_cut_it_short(
    pytester: pytest.Pytester,
    walker: ModelFolder,
    capsys: pytest.CaptureFixture[str],
    method: str,
    statement: str,
) -> None:
    pytester.makepyfile(leaving=leaving(method, statement))
    arguments = ["--env=leaving.py:Env", '--tasks={"count": 6}']
    for command in (["rollout", "walker"], ["check-env"]):
        assert status_of(*command, *arguments) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"pytest-maatml {command[0]}: cut short by {STATEMENTS[statement]}")
        assert line.endswith("leaving.py:7)")


def test_a_command_says_which_line_of_a_plugin_cut_it_short(
    walker: ModelFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    walker.write("walker_plugin.py", "import pytest\npytest.importorskip('no_such_module')\n")
    assert status_of("rollout", "walker", "--env=line_world") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "cut short by Skipped: could not import 'no_such_module'" in line
    assert line.endswith("walker_plugin.py:2)")


def test_an_interrupt_ends_a_command_as_one(pytester: pytest.Pytester, walker: ModelFolder) -> None:
    pytester.makepyfile(leaving=leaving("step", "raise KeyboardInterrupt"))
    assert main(["rollout", "walker", "--env=leaving.py:Env"]) == 130


def test_an_error_whose_message_cannot_be_read_is_still_described(tmp_path: Path) -> None:
    class Unreadable(Exception):
        def __str__(self) -> str:
            raise ValueError

    assert describe(Unreadable()) == "Unreadable: (an error without a readable message)"
