"""What one program was asked, and whose the replies are.

There is no I/O and no clock here. Replies carry no ids: they come in the order of the requests.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import orjson

from pytest_maatml.engine.encoding import decode, encode
from pytest_maatml.engine.protocol import Labels, Verification
from pytest_maatml.engine.requests import Close, Look, Reset, Restarted, Step, Verify
from pytest_maatml.engine.wire import (
    NEEDED,
    Call,
    Hosted,
    Misfit,
    complaint_about,
    line_of,
    op_of,
    read_carefully,
)
from pytest_maatml.errors import RolloutEnvError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_maatml.engine.protocol import JSONObject
    from pytest_maatml.engine.requests import Answer, EnvironmentRequest

    Reader: TypeAlias = Callable[[int, Any, JSONObject], None]
    #: op, ticket, request, and who reads the reply.
    Awaited: TypeAlias = tuple[str, int, EnvironmentRequest | Call, Reader]

#: Candidates' ids whose JSON is remembered.
_REMEMBERED: Final = 4096


class Conversation:
    """What one program was asked and has not answered yet.

    Lines to be written gather in `outgoing`, answers in the list given, which the conversations
    of a pool share. Whatever can be sent is sent: `label` with `candidates`, `close` with `verify`.
    With `one_at_a_time` a request is sent when the one before it has been answered. So it is after
    the program was lost, and then one episode at a time too, until as many have ended as began
    again: should it happen once more, it is clear whose fault it was.
    """

    def __init__(self, answers: list[Answer], warn: Callable[[str], None]) -> None:
        self.outgoing: list[bytes] = []
        self.awaiting: deque[Awaited] = deque()
        #: Replies since the program was started.
        self.taken = 0
        self._answers = answers
        self._warn = warn
        #: Answers that were there before the last lines were taken in.
        self._delivered = 0
        self._one_at_a_time = False
        self._strict = False
        #: Episodes that are to end one by one, and the ticket of the one that is under way.
        self._careful = 0
        self._alone: int | None = None
        self._queue: deque[tuple[int, EnvironmentRequest | Call]] = deque()
        self._hosted: dict[int, Hosted] = {}
        self._held: dict[int, Any] = {}
        self._ids: dict[str, bytes] = {}
        self._posts: dict[type, Callable[[int, Any, Any], None]] = {
            Reset: self._reset,
            Look: self._look,
            Step: self._step,
            Verify: self._verify,
            Close: self._close,
            Call: self._call,
        }

    def begin(self, *, one_at_a_time: bool) -> None:
        """Forget what earlier episodes, which nobody drives any more, may have left behind."""
        self._one_at_a_time = one_at_a_time
        self._alone = None
        self._take_care(0)
        self._queue.clear()

    def _take_care(self, episodes: int) -> None:
        self._careful = episodes
        self._strict = self._one_at_a_time or episodes > 0

    def ask(self, ticket: int, request: EnvironmentRequest | Call) -> None:
        hosted = self._hosted.get(ticket)
        if hosted is None and isinstance(request, Look | Step | Verify | Close):
            self._answer_stranger(ticket, request)
        elif self._strict and not self._is_next(ticket, request):
            self._queue.append((ticket, request))
        else:
            self._posts[type(request)](ticket, request, hosted)

    def _is_next(self, ticket: int, request: EnvironmentRequest | Call) -> bool:
        if self.awaiting or isinstance(request, Call):
            return not self.awaiting
        if self._careful and self._alone is None:
            self._alone = ticket
        return not self._careful or self._alone == ticket

    def _answer_stranger(self, ticket: int, request: EnvironmentRequest) -> None:
        """Answer for an episode that the program does not know, or no longer."""
        if isinstance(request, Close):
            self._queue = deque(entry for entry in self._queue if entry[0] != ticket)
            self._release(ticket)
            self._answer(ticket, None)
        else:
            self._answer(ticket, Restarted())

    def post_queued(self) -> None:
        """Post what had to wait, as far as it may go now."""
        left = len(self._queue)
        while left and not self.awaiting:
            self.ask(*self._queue.popleft())
            left -= 1

    def take(self, lines: Sequence[bytes], *, plain: bool) -> None:
        """Match lines to the oldest requests. Raises Misfit for one that is no reply to its own.

        `plain` says that the lines are known to hold no long numbers.
        """
        awaiting = self.awaiting
        self._delivered = len(self._answers)
        op = None
        for line in lines:
            try:
                reply = orjson.loads(line) if plain else decode(line)
            except ValueError:
                if not line.strip():
                    continue
                reply = read_carefully(line)
            if not awaiting:
                raise Misfit("the program wrote a line that nobody asked for", line, op=op)
            op, ticket, request, read = awaiting[0]
            try:
                ok = reply["ok"] if type(reply) is dict else None
                if ok is True:
                    read(ticket, request, reply)
                elif ok is False:
                    self._refused(op, ticket, request, reply)
                else:
                    raise Misfit(complaint_about(reply), line)
            except KeyError as missing:
                raise Misfit(f"the reply has no {missing.args[0]!r}", line) from None
            awaiting.popleft()
            self.taken += 1
            if self._queue and not awaiting:
                self.post_queued()

    def _release(self, ticket: int) -> None:
        """The episode has ended: it may be another's turn."""
        if self._careful:
            self._take_care(self._careful - 1)
        if self._alone == ticket:
            self._alone = None

    def lose(
        self,
        fault: RolloutEnvError,
        *,
        place: int = 0,
        last: Callable[[], RolloutEnvError] | None = None,
    ) -> bool:
        """The program is gone: the request at `place` of those that wait gets the fault.

        Where none waits, the fault is the answer to the one that `take` answered last. The others
        begin again, or get `last` if that is how it ends. A verdict that was in already stands.
        Whether there was somebody to tell.
        """
        culprit = self._blame(fault, place)
        waiting = {ticket: request for _, ticket, request, _ in self.awaiting}
        waiting.update(self._queue)
        for ticket, request in waiting.items():
            if ticket == culprit or isinstance(request, Call):
                answer: Any = fault
            elif last is not None:
                answer = last()
                answer.op = op_of(request)
            else:
                answer = Restarted()
            if isinstance(request, Verify) and isinstance(self._held.get(ticket), Verification):
                self._warn(f"close of episode {request.episode} failed: {fault}")
                answer = self._held[ticket]
            self._answer(ticket, None if isinstance(request, Close) else answer)
        self._alone = None
        self._take_care(len(self._hosted.keys() | waiting.keys()))
        self.forget()
        return culprit is not None

    def forget(self) -> None:
        """The program is gone, and with it what it knew and what it had been asked."""
        self.taken = 0
        for lost in (self.outgoing, self.awaiting, self._queue, self._hosted, self._held):
            lost.clear()

    def _blame(self, fault: RolloutEnvError, place: int) -> int | None:
        if self.awaiting:
            fault.op, culprit, *_ = self.awaiting[place if place < len(self.awaiting) else 0]
            return culprit
        if len(self._answers) > self._delivered:
            culprit, _ = self._answers[-1]
            self._answers[-1] = (culprit, fault)
            return culprit
        return None

    def _answer(self, ticket: int, answer: Any) -> None:
        self._answers.append((ticket, answer))

    # Asking.

    def _reset(self, ticket: int, request: Reset, _: Hosted | None) -> None:
        """Raises RolloutEnvError for a task that is not JSON."""
        fields = {"episode": request.episode, "task": request.task, "options": request.options}
        self._send("reset", ticket, request, line_of("reset", fields), self._on_reset)
        self._hosted[ticket] = Hosted(request.episode)

    def _call(self, ticket: int, request: Call, _: Hosted | None) -> None:
        """Raises RolloutEnvError for fields that are not JSON."""
        line = line_of(request.op, request.fields)
        self._send(request.op, ticket, request, line, self._on_call)

    def _look(self, ticket: int, request: Look, hosted: Hosted) -> None:
        self._send("candidates", ticket, request, hosted.candidates, self._on_candidates)
        if request.label and not self._strict:
            self._send("label", ticket, request, hosted.label, self._on_label)

    def _verify(self, ticket: int, request: Verify, hosted: Hosted) -> None:
        self._send("verify", ticket, request, hosted.verify, self._on_verify)
        if not self._strict:
            self._send("close", ticket, request, hosted.close, self._on_close)

    def _close(self, ticket: int, request: Close, hosted: Hosted) -> None:
        self._send("close", ticket, request, hosted.close, self._on_close)

    def _send(
        self,
        op: str,
        ticket: int,
        request: EnvironmentRequest | Call,
        line: bytes,
        read: Reader,
    ) -> None:
        self.awaiting.append((op, ticket, request, read))
        self.outgoing.append(line)

    def _step(self, ticket: int, request: Step, hosted: Hosted) -> None:
        end = self._ids.get(request.candidate)
        if end is None:
            end = encode(request.candidate, "id", op="step") + b"}\n"
            if len(self._ids) >= _REMEMBERED:
                self._ids.clear()
            self._ids[request.candidate] = end
        self._send("step", ticket, request, hosted.step + end, self._on_step)

    # Being answered.

    def _has_partner(self, ticket: int) -> bool:
        """Whether the second request of two that were sent together waits behind the oldest."""
        return len(self.awaiting) > 1 and self.awaiting[1][1] == ticket

    def _on_call(self, ticket: int, request: Call, reply: JSONObject) -> None:
        for name in NEEDED.get(request.op, ()):
            reply[name]
        self._answer(ticket, reply)

    def _on_reset(self, ticket: int, request: Reset, reply: JSONObject) -> None:
        self._answer(ticket, reply["observation"])

    def _on_candidates(self, ticket: int, request: Look, reply: JSONObject) -> None:
        candidates = reply["candidates"]
        if not request.label:
            self._answers.append((ticket, (candidates, None)))
        elif self._has_partner(ticket):
            self._held[ticket] = candidates
        elif candidates:
            self._held[ticket] = candidates
            self._send("label", ticket, request, self._hosted[ticket].label, self._on_label)
        else:
            self._answer(ticket, (candidates, None))

    def _on_label(self, ticket: int, request: Look, reply: JSONObject) -> None:
        if "valid_ids" not in reply and ("candidates" in reply or "observation" in reply):
            raise KeyError("valid_ids")
        self._labelled(ticket, Labels(reply.get("valid_ids"), reply.get("reason")))

    def _labelled(self, ticket: int, labels: Labels | RolloutEnvError) -> None:
        candidates = self._held.pop(ticket)
        if isinstance(candidates, RolloutEnvError):
            self._answer(ticket, candidates)
        elif candidates and isinstance(labels, RolloutEnvError):
            self._answer(ticket, labels)
        else:
            self._answer(ticket, (candidates, labels if candidates else None))

    def _on_step(self, ticket: int, request: Step, reply: JSONObject) -> None:
        observation, applied = reply["observation"], reply["applied"]
        stepped = (observation, applied, reply.get("terminal"), reply.get("reward"))
        self._answers.append((ticket, stepped))

    def _on_verify(self, ticket: int, request: Verify, reply: JSONObject) -> None:
        success: Any = reply["success"]
        fields: dict[str, Any] = {key: reply.get(key) for key in ("status", "reward", "detail")}
        self._held[ticket] = Verification(success, **fields)
        if not self._has_partner(ticket):
            self._send("close", ticket, request, self._hosted[ticket].close, self._on_close)

    def _on_close(self, ticket: int, request: Verify | Close, reply: JSONObject) -> None:
        self._closed(ticket, request, None)

    def _closed(self, ticket: int, request: Verify | Close, fault: RolloutEnvError | None) -> None:
        verdict = self._held.pop(ticket, None)
        if fault is not None and isinstance(verdict, Verification):
            self._warn(f"close of episode {request.episode} failed: {fault}")
        self._hosted.pop(ticket, None)
        self._release(ticket)
        self._answer(ticket, verdict)

    def _refused(
        self, op: str, ticket: int, request: EnvironmentRequest | Call, reply: JSONObject
    ) -> None:
        text = reply.get("error")
        fault = RolloutEnvError("refused without a reason" if text is None else f"{text}", op=op)
        if op == "close" and isinstance(request, Verify | Close):
            self._closed(ticket, request, fault)
        elif op == "label" and not isinstance(request, Call):
            self._labelled(ticket, fault)
        elif self._has_partner(ticket):
            self._held[ticket] = fault
        else:
            self._answer(ticket, fault)
