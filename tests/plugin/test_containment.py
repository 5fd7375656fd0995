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


def test_an_error_whose_message_cannot_be_read_is_still_described(tmp_path: Path) -> None:
    class Unreadable(Exception):
        def __str__(self) -> str:
            raise ValueError

    assert describe(Unreadable()) == "Unreadable: (an error without a readable message)"
