"""A command that only defines an environment: the message says how to serve it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from pytest_maatml.cli import main

if TYPE_CHECKING:
    from .conftest import ModelFolder

COMMAND = f"{sys.executable} maze.py"
DERIVED = """\
from pytest_maatml.environments.line_world import LineWorld

class Maze(LineWorld):
    pass
"""
WHOLE = """\
class Cell: ...

class Maze:
    def reset(self, episode, task, options): ...
    def step(self, episode, candidate_id): ...
"""
ADVICE = (
    "; maze.py seems to define an environment that nobody serves: give --maatml-env=maze.py:Maze "
    "in its place, or the command `pytest-maatml serve maze.py:Maze`"
)


@pytest.mark.parametrize("source", [DERIVED, WHOLE], ids=["derived", "whole"])
def test_a_program_that_only_defines_its_class_is_told_how_it_is_served(
    pytester: pytest.Pytester, walker: ModelFolder, source: str
) -> None:
    pytester.makepyfile(maze=source)
    result = pytester.runpytest("--maatml-model=walker", f"--maatml-env-command={COMMAND}")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    said = f"hello: the environment program exited with status 0{ADVICE}"
    assert said in result.outlines


def test_what_is_told_works(pytester: pytest.Pytester, walker: ModelFolder) -> None:
    pytester.makepyfile(maze=DERIVED)
    run = ("--maatml-model=walker", '--maatml-tasks={"count": 1}')
    served = f"--maatml-env-command={sys.executable} -m pytest_maatml serve maze.py:Maze"
    for environment in ("--maatml-env=maze.py:Maze", served):
        pytester.runpytest(*run, environment).assert_outcomes(passed=1)


@pytest.mark.parametrize("command", [["rollout", "walker"], ["check-env"]])
def test_the_commands_tell_it_with_their_own_options(
    pytester: pytest.Pytester,
    walker: ModelFolder,
    capsys: pytest.CaptureFixture[str],
    command: list[str],
) -> None:
    pytester.makepyfile(maze=DERIVED)
    assert main([*command, "--env-command", COMMAND]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(ADVICE.replace("--maatml-env", "--env"))


@pytest.mark.parametrize(
    "source",
    [
        "class One: ...\nclass Two: ...\n",
        "class Maze: ...\nraise SystemExit('no display')\n",
        "import sys\nclass Maze: ...\nsys.stdin.close()\n",
        "from pytest_maatml.rollout import serve\nclass Maze: ...\n",
        "print\n",
    ],
    ids=["several", "last-words", "reads", "serves", "no-class"],
)
def test_no_class_is_named_that_may_not_be_meant(
    pytester: pytest.Pytester, walker: ModelFolder, source: str
) -> None:
    pytester.makepyfile(maze=source)
    result = pytester.runpytest("--maatml-model=walker", f"--maatml-env-command={COMMAND}")
    text = result.stdout.str()
    assert "hello: the environment program exited with status" in text
    assert "maze.py:Maze" not in text
    assert ("maze.py:CLASS" in text) == ("One" in source)
