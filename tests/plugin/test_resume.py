"""A run that was cut short goes on where it stopped, and ends in the same bytes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .conftest import ModelFolder

RUN = ["--maatml-model=walker", "--maatml-env=line_world", '--maatml-tasks={"count": 120}']

#: In the policy of the folder: a decision takes as long as the environment variable says.
SLOW = """\
        import os, time
        time.sleep(float(os.environ.get("WALKER_SLEEP", "0")))
        gap ="""


@pytest.fixture
def slow(walker: ModelFolder) -> ModelFolder:
    text = (walker.path / "walker_plugin.py").read_text()
    walker.write("walker_plugin.py", text.replace("        gap =", SLOW))
    return walker


@contextmanager
def running(folder: Path, *more: str, sleep: float = 0.001) -> Iterator[subprocess.Popen[bytes]]:
    """A run in a process group of its own, which is gone at the end, however it ends."""
    run = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *RUN, *more],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env={**os.environ, "WALKER_SLEEP": str(sleep)},
    )
    try:
        yield run
    finally:
        with suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
        run.communicate()


def journal_size(folder: ModelFolder) -> int:
    return sum(file.stat().st_size for file in folder.output().glob("episodes.journal.*"))


def clear(folder: ModelFolder) -> None:
    for path in folder.output().iterdir():
        path.unlink()


def wait_for_episodes(folder: ModelFolder, run: subprocess.Popen[bytes], size: int) -> None:
    deadline = time.monotonic() + 30
    while journal_size(folder) < size and run.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)


@pytest.fixture
def whole(pytester: pytest.Pytester, slow: ModelFolder) -> bytes:
    """The bytes of a run that nothing cut short."""
    pytester.runpytest_subprocess(*RUN).assert_outcomes(passed=2)
    file = slow.output() / "episodes.jsonl"
    whole = file.read_bytes()
    clear(slow)
    return whole


@pytest.mark.slow
def test_a_run_killed_at_twenty_random_moments_resumes_to_the_same_bytes(
    pytester: pytest.Pytester, slow: ModelFolder, whole: bytes
) -> None:
    chance = random.Random(20261130)
    unfinished = 0
    for _ in range(20):
        with running(pytester.path) as run:
            wait_for_episodes(slow, run, chance.randrange(1, len(whole)))
        unfinished += journal_size(slow) > 0
        pytester.runpytest_inprocess(*RUN, "--maatml-resume").assert_outcomes(passed=2)
        assert (slow.output() / "episodes.jsonl").read_bytes() == whole
        assert slow.summary()["complete"] is True
        clear(slow)
    assert unfinished > 10


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_keeps_what_ran_says_how_much_is_missing_and_resumes(
    pytester: pytest.Pytester, slow: ModelFolder, whole: bytes, number: int
) -> None:
    with running(pytester.path) as run:
        wait_for_episodes(slow, run, len(whole) // 4)
        run.send_signal(number)
        output = run.communicate(timeout=30)[0].decode()
    if number == signal.SIGINT:
        assert run.returncode == pytest.ExitCode.INTERRUPTED
        summary = slow.summary()
        assert summary["complete"] is False
        assert 0 < summary["missing"] < 120
        assert summary["missing"] + summary["episodes"] == 120
        assert "NOT DECIDED" in output
    else:
        assert run.returncode not in (0, None)
        assert journal_size(slow) > 0
    resumed = pytester.runpytest_subprocess(*RUN, "--maatml-resume")
    resumed.assert_outcomes(passed=2)
    assert (slow.output() / "episodes.jsonl").read_bytes() == whole


def test_errors_run_again_and_whole_episodes_do_not(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    text = (walker.path / "walker_plugin.py").read_text()
    guard = (
        "        import os\n"
        "        if os.path.exists('broken') and observation['target'] == 2:\n"
        "            raise OSError('down')\n"
        "        open('calls', 'a').write('x')\n"
        "        gap ="
    )
    walker.write("walker_plugin.py", text.replace("        gap =", guard))
    pytester.path.joinpath("broken").touch()
    pytester.runpytest_subprocess(*RUN).assert_outcomes(failed=2)
    errors = len(walker.errors())
    assert errors == walker.summary()["errors"] > 0
    pytester.path.joinpath("broken").unlink()
    pytester.path.joinpath("calls").unlink()
    pytester.runpytest_subprocess(*RUN, "--maatml-resume").assert_outcomes(passed=2)
    episodes = walker.episodes()
    again = [e for e in episodes if e["task"]["target"] == 2]
    assert len(again) == errors
    calls = len(pytester.path.joinpath("calls").read_text())
    assert calls == sum(len(e["decisions"]) for e in again)
    assert walker.summary()["complete"] is True
    assert not (walker.output() / "errors.jsonl").exists()


def test_resuming_another_run_is_refused_with_what_differs(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    pytester.runpytest(*RUN)
    result = pytester.runpytest(*RUN, "--maatml-seed=3", "--maatml-resume")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*holds another run, which cannot be resumed*seed: 0 there, 3*"])


def test_a_labelled_collection_is_overwritten_on_request_alone(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    pytester.runpytest(*RUN, "--label").assert_outcomes(passed=2)
    refused = pytester.runpytest(*RUN, "--label", "--maatml-seed=3")
    refused.stdout.fnmatch_lines(["*labelled collection of another run*--maatml-overwrite*"])
    assert walker.summary("dagger-r0")["identity"]["seed"] == 0
    replaced = pytester.runpytest(*RUN, "--label", "--maatml-seed=3", "--maatml-overwrite")
    replaced.assert_outcomes(passed=2)
    assert walker.summary("dagger-r0")["identity"]["seed"] == 3


def test_a_check_of_another_run_is_replaced(pytester: pytest.Pytester, walker: ModelFolder) -> None:
    pytester.runpytest(*RUN).assert_outcomes(passed=2)
    pytester.runpytest(*RUN, "--maatml-seed=3").assert_outcomes(passed=2)
    assert walker.summary()["identity"]["seed"] == 3


@pytest.mark.slow
def test_two_sessions_do_not_write_to_one_folder(
    pytester: pytest.Pytester, slow: ModelFolder
) -> None:
    for more in ([], ["-n2"]):
        with running(pytester.path, *more, sleep=0.1) as run:
            wait_for_episodes(slow, run, 500)
            for theirs in ([], ["-n2"]):
                second = pytester.runpytest_subprocess(*RUN, *theirs)
                assert second.ret == pytest.ExitCode.TESTS_FAILED
                second.stdout.fnmatch_lines(["*is being written to by pid*--maatml-out*"])
        clear(slow)


def test_a_folder_that_cannot_be_written_is_found_at_the_start(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    pytester.path.joinpath("taken").write_text("a file")
    result = pytester.runpytest(*RUN, "--maatml-out=taken/below")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*taken/below cannot be written*--maatml-out*"])


def test_x_stops_after_the_first_family_and_the_rest_resumes(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    walker.reach(4)
    first = pytester.runpytest_subprocess(*RUN, "-x")
    assert first.ret == pytest.ExitCode.TESTS_FAILED
    first.assert_outcomes(failed=1)
    assert walker.summary()["missing"] > 0
    pytester.runpytest_subprocess(*RUN, "--maatml-resume").assert_outcomes(failed=2)
    assert walker.summary()["complete"] is True
