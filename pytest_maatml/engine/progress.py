"""How far a server has come: a number in a file that client and server share.

A server that answers many requests before it flushes takes those answers with it when it dies. So
that the client blames the request that it died of, and not the oldest without an answer, it counts
the requests that it has begun where the client can see them. No other program needs to.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from contextlib import suppress
from typing import Final

#: The environment variable that names the file.
VARIABLE: Final = "PYTEST_MAATML_PROGRESS"
_SIZE: Final = 8


class Progress:
    """The client's side: makes the file and reads it."""

    def __init__(self) -> None:
        self._fd, self.path = tempfile.mkstemp(prefix="pytest-maatml-")
        os.write(self._fd, bytes(_SIZE))

    def begun(self) -> int:
        """Requests that the server has begun; 0 if it does not count them."""
        return int.from_bytes(os.pread(self._fd, _SIZE, 0), "little")

    def close(self) -> None:
        os.close(self._fd)
        with suppress(FileNotFoundError):  # the server removes it once it has it open
            os.unlink(self.path)


def counter() -> memoryview | None:
    """The server's side: one unsigned integer to write to, if a client wants to know."""
    path = os.environ.pop(VARIABLE, None)
    if path is None or not os.path.exists(path) or os.path.getsize(path) != _SIZE:
        return None
    with open(path, "r+b") as file:
        view = memoryview(mmap.mmap(file.fileno(), _SIZE)).cast("Q")
    os.unlink(path)
    return view
