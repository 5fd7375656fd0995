"""Signals, disks and programs that misbehave: clean words, nothing left behind."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from pytest_maatml.plugin import progress

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import ModelFolder

MODEL = "--maatml-model=walker"
TASKS = '--maatml-tasks={"count": 9}'
RUN = (MODEL, "--maatml-env=line_world", TASKS)
NO_TEMPORARY_FOLDER = "import tempfile\ntempfile.tempdir = '/no/such/folder'\n"
#: A test of the user's own, and one whose rollout no option speaks of.
MARKED = """\
from pathlib import Path
from tempfile import gettempdir
import pytest

def test_own(): pass

@pytest.mark.maatml(model="walker", env="line_world", tasks={"count": 1})
def test_it(rollout):
    assert rollout.planned == 1
"""

#: Logs every step, leaves its pid in a file, and is as slow as it is told.
PROGRAM = """\
import os, pathlib, sys, time
from pytest_maatml.environments.line_world import LineWorld
from pytest_maatml.rollout import serve

class Logging(LineWorld):
    def step(self, episode, candidate_id):
        print("stepped", candidate_id, file=sys.stderr, flush=True)
        time.sleep(float(os.environ.get("STEP", "0")))
        return super().step(episode, candidate_id)

pathlib.Path("pid").write_text(str(os.getpid()))
serve(Logging())
"""

BAD_CLOSE = """\
from pytest_maatml.environments.line_world import LineWorld

class BadClose(LineWorld):
    def close(self, episode):
        raise RuntimeError("the door is stuck")
"""


@pytest.fixture
def command(pytester: pytest.Pytester, walker: ModelFolder) -> str:
    pytester.path.joinpath("program.py").write_text(PROGRAM)
    return f"--maatml-env-command={sys.executable} program.py"


def is_there(pid: int) -> bool:
    with suppress(OSError):
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    return False


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 20
    while is_there(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_there(pid)


def started(file: Path) -> int:
    deadline = time.monotonic() + 30
    while not (file.exists() and file.read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return int(file.read_text())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_to_pytest_alone_leaves_no_program(
    pytester: pytest.Pytester, command: str, number: int
) -> None:
    run = subprocess.Popen(
        [sys.executable, "-m", "pytest", MODEL, TASKS, command],
        cwd=pytester.path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "STEP": "0.2"},
    )
    pid = started(pytester.path / "pid")
    assert is_there(pid)
    run.send_signal(number)
    output = run.communicate(timeout=60)[0].decode()
    wait_until_gone(pid)
    assert run.returncode == (2 if number == signal.SIGINT else -number)
    assert "INTERNALERROR" not in output


def test_a_program_logs_live_without_capture_and_else_into_the_report(
    pytester: pytest.Pytester, walker: ModelFolder, command: str
) -> None:
    walker.reach(4)
    live = pytester.runpytest_subprocess(MODEL, TASKS, command, "-s")
    assert "stepped right" in live.stdout.str() + live.stderr.str()
    assert "Captured stderr" not in live.stdout.str()
    kept = pytester.runpytest_subprocess(MODEL, TASKS, command)
    text = kept.stdout.str()
    assert "stepped" not in text.partition("= FAILURES =")[0] + kept.stderr.str()
    kept.stdout.fnmatch_lines(["*Captured stderr call*", "stepped *"])


def on_a_terminal(folder: Path, *arguments: str) -> str:
    ours, theirs = pty.openpty()
    program = (
        "import sys, pytest\n"
        "from pytest_maatml.plugin import progress\n"
        "progress._FIRST = progress._EVERY = 0.0\n"
        "sys.exit(pytest.main(sys.argv[1:]))"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", program, *RUN, *arguments],
        cwd=folder,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120", "PY_COLORS": "1", "CI": ""},
    )
    os.close(theirs)
    output = b""
    with suppress(OSError):  # the other end is closed
        while part := os.read(ours, 4096):
            output += part
    os.close(ours)
    run.wait(timeout=60)
    return output.decode()


def test_a_terminal_has_one_line_that_changes_and_then_goes(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    lines = re.findall(
        r"\r\x1b\[K(maatml: near \d/6 episodes, \d verified, 0 errors)?",
        on_a_terminal(pytester.path),
    )
    shown = [line for line in lines if line]
    assert shown[0] == "maatml: near 1/6 episodes, 1 verified, 0 errors"
    assert len(shown) == 6
    assert lines[6] == ""
    assert "episodes, " not in on_a_terminal(pytester.path, "-n2")


def test_without_a_terminal_plain_lines_come_with_v_alone(
    pytester: pytest.Pytester, walker: ModelFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_PLAIN", 0.0)
    verbose = pytester.runpytest_inprocess(*RUN, "-v")
    assert "maatml: near 6/6 episodes, 6 verified, 0 errors" in verbose.outlines
    assert "\x1b[K" not in verbose.stdout.str()
    assert "episodes, " not in pytester.runpytest_inprocess(*RUN).stdout.str()


def test_a_close_that_fails_is_one_warning_a_family_and_changes_no_verdict(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    pytester.path.joinpath("doors.py").write_text(BAD_CLOSE)
    result = pytester.runpytest_subprocess(MODEL, "--maatml-env=doors.py:BadClose", TASKS)
    result.assert_outcomes(passed=2, warnings=2)
    result.stdout.fnmatch_lines(["*RuntimeError: the door is stuck*(and 5 more)*"])
    assert "pytest_maatml/" not in result.stdout.str()


def test_a_warning_as_an_error_fails_its_item_once_all_is_recorded(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    pytester.path.joinpath("doors.py").write_text(BAD_CLOSE)
    run = (MODEL, "--maatml-env=doors.py:BadClose", TASKS, "-W", "error")
    result = pytester.runpytest(*run)
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["maatml: close of episode*the door is stuck*"])
    assert "Traceback" not in result.stdout.str()
    assert "def warn" not in result.stdout.str()
    assert len(walker.episodes()) == 9
    assert walker.summary()["complete"] is True


@pytest.mark.parametrize("more", [[], ["-n2"]])
def test_a_page_that_cannot_be_written_is_a_warning(
    pytester: pytest.Pytester,
    walker: ModelFolder,
    monkeypatch: pytest.MonkeyPatch,
    more: list[str],
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "/dev/full/page.md")
    for strict in ([], ["-W", "error"]):
        result = pytester.runpytest_subprocess(*RUN, *more, *strict)
        assert result.ret == pytest.ExitCode.OK
        result.stdout.fnmatch_lines(["*GITHUB_STEP_SUMMARY cannot be written*"])
        assert "Traceback" not in result.stderr.str()


def test_no_temporary_folder_for_the_workers_is_a_usage_error(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    pytester.makeconftest(NO_TEMPORARY_FOLDER)
    result = pytester.runpytest_subprocess(*RUN, "-n1")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: maatml: */no/such/folder/*No such file*TMPDIR*"])


def test_without_one_the_rollouts_that_a_worker_finds_fail_in_words(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    pytester.makeconftest(NO_TEMPORARY_FOLDER)
    pytester.makepyfile(test_it=MARKED)
    result = pytester.runpytest_subprocess("test_it.py", "-n1")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*where the workers meet, cannot be written: No such file*TMPDIR"])
    assert "Traceback" not in result.stdout.str()
    assert "INTERNALERROR" not in result.stdout.str()


@pytest.mark.parametrize("arguments", [(*RUN, "walker"), ("test_it.py",)], ids=["option", "marker"])
def test_the_folder_where_the_workers_meet_is_gone_afterwards(
    pytester: pytest.Pytester,
    walker: ModelFolder,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
) -> None:
    temporary = pytester.mkdir("temporary")
    monkeypatch.setenv("TMPDIR", str(temporary))
    pytester.makepyfile(test_it=MARKED + "    assert list(Path(gettempdir()).glob('maatml-*/*'))\n")
    pytester.runpytest_subprocess(*arguments, "-n1").assert_outcomes(passed=2)
    assert list(temporary.glob("maatml*")) == []


def test_a_board_that_cannot_be_written_fails_the_items_in_words(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    pytester.makeconftest(
        "import pathlib\n"
        "real = pathlib.Path.write_text\n"
        "def full(self, *args, **kwargs):\n"
        "    if self.suffix == '.draft':\n"
        "        raise OSError(28, 'No space left on device')\n"
        "    return real(self, *args, **kwargs)\n"
        "pathlib.Path.write_text = full\n"
    )
    result = pytester.runpytest_subprocess(*RUN, "-n2")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*where the workers meet, cannot be written: No space left*"])
    assert "Traceback" not in result.stdout.str()


def test_a_summary_hook_that_raises_loses_no_record(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    walker.suite(
        "- {name: one, env: line_world, tasks: {count: 4}}",
        "- {name: two, env: line_world, tasks: {count: 4}}",
    )
    pytester.makeconftest("def pytest_maatml_summary(summary):\n    raise LookupError('theirs')\n")
    result = pytester.runpytest_subprocess(MODEL)
    assert result.ret != pytest.ExitCode.OK
    assert "LookupError: theirs" in result.stdout.str() + result.stderr.str()
    for name in ("one", "two"):
        assert walker.summary(f"rollout-r0/{name}")["complete"] is True


def test_an_environment_that_nobody_knows_is_said_once_by_the_workers(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    result = pytester.runpytest_subprocess(MODEL, "--maatml-env=nobody", "-n2")
    assert result.ret not in (pytest.ExitCode.OK, pytest.ExitCode.INTERNAL_ERROR)
    assert result.stdout.str().count("ERROR collecting walker/model.yml") == 1
    assert "One without a name is given as" in result.stdout.str()
    assert "INTERNALERROR" not in result.stdout.str()
