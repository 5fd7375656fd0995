"""A program that serves an environment, kept going: followed, timed, ended and started again."""

from __future__ import annotations

import selectors
from functools import partial
from typing import TYPE_CHECKING, Final

from pytest_maatml.engine.encoding import has_long_number
from pytest_maatml.engine.requests import Close
from pytest_maatml.engine.wire import Call, Misfit, op_of, shown
from pytest_maatml.errors import RolloutEnvError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_maatml.engine.child import Child
    from pytest_maatml.engine.conversation import Conversation
    from pytest_maatml.engine.requests import Answer, EnvironmentRequest

#: Bytes in a line at which a program is taken to write no lines at all.
_LONGEST_LINE: Final = 1 << 28
#: Seconds in which a program that has closed its output should have ended.
_LAST_MOMENTS: Final = 0.5


class Program:
    """One copy of the environment's program. `start` starts it, the first time and again.

    When it hangs, ends or cannot be followed, the episode whose request is the oldest unanswered
    one gets the fault, and the next request starts the program again, up to `restarts` times;
    after that every request is answered with a fault. Where the program counts the requests that
    it begins, the one that it was at is the one to blame.
    """

    def __init__(
        self,
        start: Callable[[], Child],
        conversation: Conversation,
        answers: list[Answer],
        selector: selectors.BaseSelector,
        *,
        timeout: float | None,
        restarts: int,
    ) -> None:
        self._start_child = start
        self._conversation = conversation
        self._answers = answers
        self._selector = selector
        self._timeout = timeout
        self._restarts = restarts
        self._starts = 0
        self._spent: Callable[[], RolloutEnvError] | None = None
        self._child: Child | None = None
        self._unwritten = bytearray()
        self._partial = bytearray()
        self._log_open = False
        #: A fault that nobody was waiting for: the next to ask is told.
        self._grudge: RolloutEnvError | None = None
        #: Seconds that we have waited for the reply to the oldest request.
        self.waited = 0.0

    @property
    def outstanding(self) -> int:
        """Requests that have not been answered."""
        return len(self._conversation.awaiting)

    @property
    def patience(self) -> float | None:
        """Seconds that are left for the oldest request."""
        return None if self._timeout is None else max(0.0, self._timeout - self.waited)

    def start(self) -> None:
        """Raises RolloutEnvError if it cannot be started, or has failed too often."""
        if self._spent is not None:
            raise self._spent()
        self._child = child = self._start_child()
        self._starts += 1
        self.waited = 0.0
        self._log_open = True
        self._selector.register(child.stdout, selectors.EVENT_READ, self.read)
        self._selector.register(child.log.fd, selectors.EVENT_READ, self._read_log)

    def begin(self, *, one_at_a_time: bool) -> None:
        """Be ready for other episodes; who drove those before may have left in a hurry."""
        if self._conversation.awaiting:
            self.stop(0.0)
            self._conversation.forget()
            self._starts -= 1
        self._conversation.begin(one_at_a_time=one_at_a_time)

    def ask(self, ticket: int, request: EnvironmentRequest | Call) -> None:
        if not self._conversation.awaiting:
            self.read()  # nobody has asked for what comes now
        if self._child is None or self._grudge is not None:
            try:
                self._bear(request)
            except RolloutEnvError as fault:
                fault.op = op_of(request)
                self._answers.append((ticket, fault))
                return
        self._conversation.ask(ticket, request)

    def _bear(self, request: EnvironmentRequest | Call) -> None:
        """See to it that the program runs. Raises what the request is to be answered with."""
        if isinstance(request, Close):  # it is the answer to a fault already
            return
        grudge, self._grudge = self._grudge, None
        if grudge is not None:
            raise grudge
        self.start()

    def flush(self) -> None:
        """Write what there is to write, as far as the pipe takes it."""
        self._conversation.post_queued()
        outgoing = self._conversation.outgoing
        if not outgoing or self._child is None:
            return
        lines = b"".join(outgoing)
        outgoing.clear()
        taken = 0
        if not self._unwritten:
            taken = self._child.write(lines)
            if taken == len(lines):
                return
            self._selector.register(self._child.stdin, selectors.EVENT_WRITE, self._write)
        self._unwritten += lines[taken:]

    def _write(self) -> None:
        if self._child is None:
            return
        with memoryview(self._unwritten) as pending:
            taken = self._child.write(pending)
        del self._unwritten[:taken]
        if not self._unwritten:
            self._selector.unregister(self._child.stdin)

    def read(self) -> None:
        """Take in the replies that have come."""
        chunk = None if self._child is None else self._child.read()
        if chunk is None:
            return
        *lines, rest = chunk.split(b"\n")
        plain = not self._partial and not has_long_number(chunk)
        if lines and self._partial:
            lines[0] = bytes(self._partial) + lines[0]
            self._partial.clear()
        self._partial += rest
        try:
            if lines:
                self._take(lines, plain=plain)
            if len(self._partial) > _LONGEST_LINE:
                raise Misfit("the program wrote a line without end", bytes(self._partial[:1000]))
        except Misfit as misfit:
            self._fail("protocol", str(misfit), op=misfit.op)
        else:
            if not chunk:
                self._fail("exited", "")

    def _take(self, lines: list[bytes], *, plain: bool) -> None:
        taken = self._conversation.taken
        self._conversation.take(lines, plain=plain)
        if self._conversation.taken > taken:
            self.waited = 0.0
        self.flush()

    def _read_log(self) -> None:
        if self._child is not None and self._child.log.read() == b"":
            self._log_open = False
            self._selector.unregister(self._child.log.fd)

    def check(self, *, glance: bool) -> None:
        """End the program if its time is up; with `glance`, if it has gone with its output open."""
        if self._child is None or not self.outstanding:
            return
        if self.patience == 0:
            self._fail("timeout", f"no reply within {self._timeout:g} s")
        elif glance and self._child.has_exited():
            self._fail("exited", "")

    def _fail(self, kind: str, what: str, *, op: str | None = None) -> None:
        """End the program, tell the one to blame, and have the others begin again."""
        place = self._place_of_blame() if kind != "protocol" else 0
        half = f"; its last line has no end: {shown(self._partial)}" if self._partial else ""
        how, log = self.stop(_LAST_MOMENTS if kind == "exited" else 0.0)
        what = what or f"the environment program {how or 'closed its output'}"
        fault = RolloutEnvError(what + half, op=op, kind=kind, stderr=log)
        if self._starts > self._restarts:
            self._spent = partial(
                RolloutEnvError,
                f"the environment program failed {self._starts} times, at last so: {fault}; "
                f"it is not started again (at most {self._restarts} restarts are allowed)",
                kind=kind,
                stderr=log,
            )
        if not self._conversation.lose(fault, place=place, last=self._spent):
            self._grudge = fault

    def _place_of_blame(self) -> int:
        """Which of the unanswered requests the program was at."""
        begun = 0 if self._child is None else self._child.begun()
        return max(0, begun - self._conversation.taken - 1)

    def end_input(self) -> None:
        """Tell the program that no more requests will come."""
        if self._child is not None:
            self._forget_unwritten(self._child)
            self._child.end_input()

    def stop(self, grace: float) -> tuple[str, tuple[str, ...]]:
        """End the program; how it ended by itself, and the last lines of its log."""
        child, self._child = self._child, None
        if child is None:
            return "", ()
        self._forget_unwritten(child)
        self._partial.clear()
        self._selector.unregister(child.stdout)
        if self._log_open:
            self._selector.unregister(child.log.fd)
        return child.stop(grace), child.log.tail()

    def _forget_unwritten(self, child: Child) -> None:
        if self._unwritten:
            self._unwritten.clear()
            self._selector.unregister(child.stdin)
