from __future__ import annotations

import errno
import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from pytest_maatml.records.folder import RunFolder
from pytest_maatml.records.lock import FolderError, FolderLock
from tests.records.samples import IDENTITY, files, plans

if TYPE_CHECKING:
    from pathlib import Path

HOLDER = """\
import pathlib, sys, time
from pytest_maatml.records.folder import RunFolder
from pytest_maatml.records.lock import FolderLock
lock = FolderLock(pathlib.Path(sys.argv[1]))
print("held", flush=True)
time.sleep(600)
"""


def test_a_second_process_is_refused_until_the_first_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE
    ) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"held\n"
            named = re.escape(f"pid {holder.pid} on {socket.gethostname()}")
            with pytest.raises(FolderError, match=f"{named}.*--maatml-out"):
                FolderLock(tmp_path)
        finally:
            os.kill(holder.pid, signal.SIGKILL)
    FolderLock(tmp_path).release()


def test_a_second_run_of_the_same_session_is_refused_as_that(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path)
    with pytest.raises(FolderError, match="another run of this session"):
        FolderLock(tmp_path)
    lock.release()


def test_a_lock_that_was_released_leaves_nothing(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path)
    lock.release()
    lock.release()
    assert files(tmp_path) == {}


def test_a_lock_file_that_its_holder_removed_is_no_lock(tmp_path: Path) -> None:
    first = FolderLock(tmp_path)
    handle = os.open(tmp_path / "episodes.lock", os.O_RDWR)
    first.release()
    second = FolderLock(tmp_path)
    assert os.fstat(handle).st_ino != (tmp_path / "episodes.lock").stat().st_ino
    os.close(handle)
    second.release()


def test_a_lock_taken_as_its_holder_let_go_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fcntl.flock
    raced: list[int] = []

    def race(handle: int, how: int) -> None:
        if not raced:
            raced.append(handle)
            (tmp_path / "episodes.lock").unlink()
        real(handle, how)

    monkeypatch.setattr(fcntl, "flock", race)
    lock = FolderLock(tmp_path)
    with pytest.raises(FolderError):
        FolderLock(tmp_path)
    lock.release()


def test_a_file_system_without_locks_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(handle: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(FolderError, match=r"No locks available.*--maatml-out"):
        RunFolder.open(tmp_path, IDENTITY, plans())


def test_the_workers_of_one_party_hold_it_together_and_nobody_else(tmp_path: Path) -> None:
    first, second = FolderLock(tmp_path, "session-a"), FolderLock(tmp_path, "session-a")
    for outsider in ("session-b", None):
        with pytest.raises(FolderError, match="is being written to"):
            FolderLock(tmp_path, outsider)
    first.release()
    with pytest.raises(FolderError, match="is being written to"):
        FolderLock(tmp_path, "session-b")
    second.release()
    FolderLock(tmp_path, "session-b").release()
    assert files(tmp_path) == {}


def test_a_party_is_refused_where_one_session_writes_alone(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path)
    with pytest.raises(FolderError, match="another run of this session"):
        FolderLock(tmp_path, "session-a")
    lock.release()


def test_what_a_crash_left_in_the_file_keeps_no_worker_of_a_new_party_out(tmp_path: Path) -> None:
    (tmp_path / "episodes.lock").write_text("pid 1 on elsewhere\nsession-of-old\n")
    script = (
        "import pathlib, sys, time\n"
        "from pytest_maatml.records.lock import FolderLock\n"
        "lock = FolderLock(pathlib.Path(sys.argv[1]), 'session-new')\n"
        "time.sleep(0.2)\n"
    )
    workers = [subprocess.Popen([sys.executable, "-c", script, str(tmp_path)]) for _ in range(4)]
    assert [worker.wait() for worker in workers] == [0, 0, 0, 0]
