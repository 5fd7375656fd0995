"""One session a folder: a lock that the system takes back from a process that is gone."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pytest_maatml.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

LOCK_NAME: Final = "episodes.lock"
#: How often, and how many seconds apart, a worker asks to join its party.
_TRIES: Final = 200
_PAUSE: Final = 0.01
#: How often another party's name may be what a crash left behind, before it is taken for true.
_DOUBTS: Final = 20


class FolderError(ConfigurationError):
    """A run may not write to the folder that it was given."""


class FolderLock:
    """The right to write to a folder, held until `release` or the end of the process.

    The processes of one `party`, the workers of one session, hold it together.
    """

    def __init__(self, folder: Path, party: str | None = None) -> None:
        """Take it. Raises FolderError with the holder if it is taken, OSError if it cannot be."""
        self._path = folder / LOCK_NAME
        self._party = party
        self._handle = self._take()

    def release(self) -> None:
        """Give it back; a second time does nothing."""
        if self._handle < 0:
            return
        with suppress(BlockingIOError):  # the others of the party still hold it
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._path.unlink(missing_ok=True)
        os.close(self._handle)
        self._handle = -1

    def _take(self) -> int:
        while True:
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                self._lock(handle)
                if self._is_current(handle):
                    return handle
            except BaseException:
                os.close(handle)
                raise
            os.close(handle)

    def _lock(self, handle: int) -> None:
        """Lock the file alone, and let the party in afterwards; or join the party."""
        for attempt in range(_TRIES):
            with suppress(BlockingIOError):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._sign(handle)
                if self._party is None:
                    return
            holder, party = self._read(handle)
            ours = self._party is not None and party in (None, self._party)
            if self._party is None or (not ours and attempt >= _DOUBTS):
                break
            with suppress(BlockingIOError):
                if ours:
                    fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    return
            time.sleep(_PAUSE)  # the first of the party has not signed, or not let us in yet
        raise FolderError(self._refusal(holder))

    @staticmethod
    def _read(handle: int) -> tuple[str, str | None]:
        """Who holds it, and for which party; None as long as that is not written."""
        lines = os.pread(handle, 400, 0).decode(errors="replace").split("\n")
        return (lines[0], lines[1]) if len(lines) == 3 else ("", None)

    def _sign(self, handle: int) -> None:
        with suppress(OSError):  # on a full disk the lock holds, and names nobody
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{_this_process()}\n{self._party or ''}\n".encode(), 0)

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
