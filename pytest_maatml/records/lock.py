"""One session a folder: a lock that the system takes back from a process that is gone."""

from __future__ import annotations

import fcntl
import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pytest_maatml.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

LOCK_NAME: Final = "episodes.lock"


class FolderError(ConfigurationError):
    """A run may not write to the folder that it was given."""


class FolderLock:
    """The right to write to a folder, held until `release` or the end of the process."""

    def __init__(self, folder: Path) -> None:
        """Take it. Raises FolderError with the holder if it is taken, OSError if it cannot be."""
        self._path = folder / LOCK_NAME
        self._handle = self._take()
        with suppress(OSError):  # on a full disk the lock holds, and names nobody
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, f"{_this_process()}\n".encode(), 0)

    def release(self) -> None:
        """Give it back; a second time does nothing."""
        if self._handle >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._handle)
            self._handle = -1

    def _take(self) -> int:
        while True:
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._is_current(handle):
                    return handle
            except BlockingIOError:
                holder = os.pread(handle, 300, 0).decode(errors="replace").strip()
                os.close(handle)
                raise FolderError(self._refusal(holder)) from None
            except OSError:
                os.close(handle)
                raise
            os.close(handle)

    def _is_current(self, handle: int) -> bool:
        """Whether the file locked is still the one at the path: its last holder removed it."""
        try:
            there, here = self._path.stat(), os.fstat(handle)
        except FileNotFoundError:
            return False
        return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)

    def _refusal(self, holder: str) -> str:
        if holder == _this_process():
            holder = "another run of this session"
        return (
            f"{self._path.parent} is being written to by {holder or 'another session'}; "
            "wait for it to end, or write elsewhere with --maatml-out"
        )


def _this_process() -> str:
    return f"pid {os.getpid()} on {socket.gethostname()}"
