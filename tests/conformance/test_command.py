"""`pytest-maatml check-env`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from pytest_maatml.cli import main
from pytest_maatml.conformance.rules import rules_for

from .findings import PROGRAM, ROOT

if TYPE_CHECKING:
    from pathlib import Path

FAULTY = "tests.conformance.faults:TeacherStays"


@pytest.fixture(autouse=True)
def _started_in_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def test_an_environment_that_keeps_all_rules_exits_with_0(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["check-env", "--env", "line_world", "--tasks", '{"count": 2}']) == 0
    count = len(rules_for(over_stdio=False))
    assert f"{count} rules: {count} passed" in capsys.readouterr().out


def test_a_broken_rule_exits_with_1_and_shows_what_came(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["check-env", "--env", FAULTY, "--rule", "teacher_succeeds"]) == 1
    shown = capsys.readouterr().out
    assert "FAILED" in shown
    assert '"success":false' in shown


def test_a_program_is_checked_by_the_rules_of_the_pipe_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = f"{sys.executable} -I -S {PROGRAM} answers-blank-lines"
    rules = ["--rule", "blank_lines_are_skipped", "--rule", "end_of_file_ends_the_program"]
    assert main(["check-env", "--env-command", command, *rules]) == 1
    assert "2 rules: 1 passed, 1 failed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give --env or --env-command, one of the two"),
        (
            ["--env", "line_world", "--env-command", "x"],
            "give --env or --env-command, one of the two",
        ),
        (["--env", "line_wordl"], "did you mean 'line_world'"),
        (["--env", "line_world", "--tasks", "count"], "--tasks is not JSON"),
        (["--env", "line_world", "--option", "steps"], "--option wants KEY=VALUE"),
        (["--env", "line_world", "--rule", "helo"], "the rules are hello, "),
        (["--env-command", "no-such-program"], "cannot be started"),
        (["--env-command", f"{sys.executable} -c 1/0"], "ZeroDivisionError"),
    ],
)
def test_what_cannot_be_asked_exits_with_2_and_says_why(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check-env", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_options_reach_every_reset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "wanting.py").write_text(
        "from pytest_maatml.environments.line_world import LineWorld\n"
        "class Wanting(LineWorld):\n"
        "    def reset(self, episode, task, options):\n"
        "        assert options == {'extra_steps': 2}\n"
        "        return super().reset(episode, task, options)\n"
    )
    environment = f"{tmp_path / 'wanting.py'}:Wanting"
    assert main(["check-env", "--env", environment, "--option", "extra_steps=2"]) == 0
    assert main(["check-env", "--env", environment]) == 1
