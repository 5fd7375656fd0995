"""A program's raw pipes: lines in, lines out, and never a wait without an end."""

from __future__ import annotations

import os
import select
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pytest_maatml.engine.child import Child, Guard

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_GLANCE: Final = 0.02
#: Seconds that a program has to end after its input has, before it is ended.
_GRACE: Final = 0.2


class Silent(Exception):
    """The program has not done in time what it was to do, or it has ended."""


class Pipe:
    """A running program. Raises RolloutEnvError for a command that cannot be started."""

    def __init__(
        self, command: Sequence[str], *, cwd: Path | None, env: Mapping[str, str] | None
    ) -> None:
        self._watcher = Guard()
        self._child = Child(
            command, env=env, cwd=None if cwd is None else os.fspath(cwd), watcher=self._watcher
        )
        self._lines: deque[bytes] = deque()
        self._partial = b""
        self._log_open = True
        self._output_open = True
        self._open = True

    def write(self, data: bytes, seconds: float | None) -> None:
        """Write all of `data`. Raises Silent where the program does not take it in time."""
        deadline = _deadline(seconds)
        pending = memoryview(data)
        while pending:
            pending = pending[self._child.write(pending) :]
            if pending and not self._wait(deadline, writing=True):
                raise Silent(f"it took no more input for {seconds:g} s")

    def read_line(self, seconds: float | None) -> bytes:
        """The next line that is not blank. Raises Silent where there is none in time."""
        deadline = _deadline(seconds)
        while not self._lines and self._output_open and self._wait(deadline):
            pass
        if self._lines and (seconds is None or seconds > 0):
            return self._lines.popleft()
        if not self._output_open:
            raise Silent(self._end())
        raise Silent("no reply came in time")

    def end_input(self) -> None:
        self._child.end_input()

    def ends_within(self, seconds: float) -> bool:
        """Whether the program ends by itself in that time."""
        deadline = time.monotonic() + seconds
        while not self._child.has_exited() and time.monotonic() < deadline:
            if self._output_open or self._log_open:
                self._wait(min(deadline, time.monotonic() + _GLANCE))
            else:
                time.sleep(_GLANCE)
        return self._child.has_exited()

    def shut(self) -> None:
        if self._open:
            self._open = False
            self._child.stop(_GRACE)
            self._watcher.dismiss()

    def _wait(self, deadline: float | None, *, writing: bool = False) -> bool:
        """Take in what the program writes; False once the time is up."""
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return False
        open_pipes = ((self._child.stdout, self._output_open), (self._child.log.fd, self._log_open))
        reading = [fd for fd, is_open in open_pipes if is_open]
        ready, _, _ = select.select(reading, [self._child.stdin] if writing else [], [], left)
        if self._child.log.fd in ready:
            self._log_open = self._child.log.read() != b""
        if self._child.stdout in ready:
            self._take(self._child.read())
        return True

    def _take(self, chunk: bytes | None) -> None:
        if chunk is None:
            return
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        if not chunk:
            self._output_open = False
            lines, self._partial = [self._partial], b""
        self._lines += [line for line in lines if line.strip()]

    def _end(self) -> str:
        with suppress(Silent):
            self.ends_within(_GRACE)
        log = "".join(f"\n          {line}" for line in self._child.log.tail()[-5:])
        how = "has ended" if self._child.has_exited() else "has closed its output"
        return f"the program {how}" + (f"; its last words on stderr:{log}" if log else "")


def _deadline(seconds: float | None) -> float | None:
    return None if seconds is None else time.monotonic() + seconds
