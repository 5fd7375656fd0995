"""One child process: its pipes, its log, and its end."""

from __future__ import annotations

import codecs
import os
import select
import shlex
import signal
import subprocess
import sys
import time
from collections import deque
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Final

from pytest_maatml.engine import guard
from pytest_maatml.engine.progress import VARIABLE, Progress
from pytest_maatml.errors import ConfigurationError, RolloutEnvError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_CHUNK: Final = 1 << 16
#: Lines of stderr that are kept for messages, and the characters of each.
_TAIL: Final = 20
_WIDTH: Final = 500
#: Seconds between SIGTERM and SIGKILL.
_PATIENCE: Final = 1.0
#: Seconds between two looks at whether a program that is to end has ended.
_GLANCE: Final = 0.005


def split_command(command: str) -> list[str]:
    """The words of a command, as a shell would split it. Raises ConfigurationError."""
    try:
        return shlex.split(command)
    except ValueError as error:
        raise ConfigurationError(
            f"the environment command {command!r} cannot be split into words: {error}"
        ) from None


class Guard:
    """The process that ends our children should we be killed; started with the first of them."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def tell(self, change: str) -> None:
        """Raises OSError where the guard cannot be started."""
        if self._process is None:
            if change.startswith("-"):  # nobody was told that there is such a group
                return
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", guard.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                start_new_session=True,
            )
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(f"{change}\n".encode())

    def dismiss(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()


class Log:
    """What a child writes to stderr: passed on to ours at once, and the last lines kept."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._lines: deque[str] = deque(maxlen=_TAIL)
        self._rest = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def read(self) -> bytes | None:
        """Take in what is there; None if there is nothing yet, b"" at end of file."""
        try:
            raw = os.read(self.fd, _CHUNK)
        except BlockingIOError:
            return None
        self._keep(self._decoder.decode(raw))
        return raw

    def _keep(self, text: str) -> None:
        # sys.stderr and not descriptor 2, so that it lands in the capture of whoever captures.
        with suppress(OSError, ValueError, AttributeError):
            sys.stderr.write(text)
            sys.stderr.flush()
        *lines, self._rest = (self._rest + text).split("\n")
        self._lines.extend(line[:_WIDTH] for line in lines[-_TAIL:])
        self._rest = self._rest[-_CHUNK:]

    def tail(self) -> tuple[str, ...]:
        lines = [*self._lines, self._rest[:_WIDTH]] if self._rest else list(self._lines)
        return tuple(lines[-_TAIL:])


class Child:
    """A running program in a process group of its own; its pipes do not block.

    Raises RolloutEnvError for a command that cannot be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None,
        cwd: str | None,
        watcher: Guard,
    ) -> None:
        self._progress = Progress()
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env={**os.environ, **(env or {}), VARIABLE: self._progress.path},
                cwd=cwd,
                process_group=0,
            )
        except (OSError, ValueError) as error:
            self._progress.close()
            raise RolloutEnvError(
                f"the environment command {command[0]!r} cannot be started: {error}", kind="exited"
            ) from None
        self._watcher = watcher
        self.stdin, self.stdout, log = map(_number, self._pipes())
        self.log = Log(log)
        for fd in (self.stdin, self.stdout, log):
            os.set_blocking(fd, False)
        self._have_watched(command[0])

    def _have_watched(self, name: str) -> None:
        """Tell the guard; a program that nobody would end should we be killed is ended now."""
        try:
            self._watcher.tell(f"+{self._process.pid}")
        except BaseException as error:
            self.stop(0.0)
            if not isinstance(error, OSError):
                raise
            raise RolloutEnvError(
                f"the environment command {name!r} was ended: the process that guards it cannot "
                f"be started: {error}",
                kind="exited",
            ) from None

    def _pipes(self) -> tuple[IO[bytes], IO[bytes], IO[bytes]]:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        return process.stdin, process.stdout, process.stderr

    def read(self) -> bytes | None:
        """What the program has written; None if there is nothing yet, b"" at end of file."""
        try:
            return os.read(self.stdout, _CHUNK)
        except BlockingIOError:
            return None

    def write(self, pending: bytes | memoryview) -> int:
        """How many bytes the pipe took; all of them if nobody will ever read them."""
        try:
            return os.write(self.stdin, pending)
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            return len(pending)

    def begun(self) -> int:
        """Requests that the program says it has begun, or 0."""
        return self._progress.begun()

    def has_exited(self) -> bool:
        return self._process.poll() is not None

    def end_input(self) -> None:
        """Tell the program that no more requests will come."""
        self._pipes()[0].close()

    def stop(self, grace: float) -> str:
        """End the program and all that it has started; return how it ended by itself, or "".

        It has `grace` seconds to end at the end of its input, then a second to end at SIGTERM.
        """
        self.end_input()
        self._drain(grace)
        end = describe_end(self._process.poll())
        group = self._process.pid
        if guard.signal_group(group, signal.SIGTERM):
            self._drain(_PATIENCE, group)
            guard.signal_group(group, signal.SIGKILL)
        self._process.wait()
        self._drain(0)
        self._watcher.tell(f"-{group}")
        for pipe in self._pipes():
            pipe.close()
        self._progress.close()
        return end

    def _drain(self, seconds: float, group: int | None = None) -> None:
        """Read until the program (with `group` all that is in it) has ended, or time is up."""
        deadline = time.monotonic() + seconds
        pipes = {self.stdout: self.read, self.log.fd: self.log.read}
        while True:
            over = self.has_exited() and (group is None or not guard.signal_group(group, 0))
            left = 0.0 if over else max(0.0, deadline - time.monotonic())
            ready, _, _ = select.select(list(pipes), [], [], min(left, _GLANCE))
            for fd in ready:
                if pipes[fd]() == b"":
                    del pipes[fd]
            if not left:
                return


def _number(pipe: IO[bytes]) -> int:
    return pipe.fileno()


def describe_end(status: int | None) -> str:
    """How a process ended, by the status that subprocess and multiprocessing give it."""
    if status is None:
        return ""
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"was ended by signal {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"
