"""The carrier to environments that run as programs of their own, over pipes."""

from __future__ import annotations

import os
import selectors
import time
import warnings
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from pytest_maatml.engine.candidates import identifier
from pytest_maatml.engine.child import Child, Guard, split_command
from pytest_maatml.engine.conversation import Conversation
from pytest_maatml.engine.program import Program
from pytest_maatml.engine.protocol import PROTOCOL, Hello, Labels, StepResult, Verification
from pytest_maatml.engine.wire import Call
from pytest_maatml.errors import ConfigurationError, RolloutEnvError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_maatml.engine.protocol import JSONObject
    from pytest_maatml.engine.requests import Answer, EnvironmentRequest

#: The ticket of a request outside any episode that is driven.
_OUTSIDE: Final = -1
#: Seconds after which we look whether a silent program is still there.
_GLANCE: Final = 0.25
#: Episodes in flight by default, over all processes.
_CONCURRENCY: Final = 32


class StdioEnvironment:
    """An environment served by `command`: one JSON request a line in, one reply a line out.

    It is a carrier for `drive`, with many episodes in flight, and it has the eight methods of an
    environment, each of which waits for its reply. `command` is a list, or text that is split as a
    shell would. `timeout` is in seconds, for the oldest unanswered request alone and not counted
    while the policy scores; None or 0 is none. `env` is added to our environment variables.
    `processes` copies of the program share the episodes, dealt by index; each is started again at
    most `restarts` times. `concurrency` is the number of episodes in flight; 1 is strict
    request-reply. At `shutdown` a program has `grace` seconds to end at the end of its input.

    What the program logs to stderr goes to sys.stderr. `warn` is told when a close fails after a
    verdict; by default it is a RuntimeWarning.

    Raises RolloutEnvError for a command that cannot be started, ConfigurationError for less than
    one process.
    """

    def __init__(
        self,
        command: Sequence[str] | str,
        *,
        timeout: float | None = 60.0,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        processes: int = 1,
        restarts: int = 3,
        concurrency: int = _CONCURRENCY,
        grace: float = 5.0,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        words = split_command(command) if isinstance(command, str) else list(command)
        if not words:
            raise RolloutEnvError("the environment command is empty")
        if processes < 1:
            raise ConfigurationError(f"there must be at least 1 process, not {processes}")
        self._answers: list[Answer] = []
        self._selector = selectors.DefaultSelector()
        self._placed: dict[str, int] = {}
        self._dealt = 0
        watcher = Guard()
        start = partial(
            Child, words, env=env, cwd=None if cwd is None else os.fspath(cwd), watcher=watcher
        )
        self._conversations = [Conversation(self._answers, warn or _warn) for _ in range(processes)]
        self._programs = [
            Program(
                start,
                conversation,
                self._answers,
                self._selector,
                timeout=timeout or None,
                restarts=restarts,
            )
            for conversation in self._conversations
        ]
        self.concurrency = concurrency
        self._finalizer = weakref.finalize(
            self, _shut, self._programs, self._selector, watcher, grace, os.getpid()
        )
        for program in self._programs:
            program.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def shutdown(self) -> None:
        """End all processes, and whatever they have started. Twice is harmless."""
        self._finalizer()

    # As a carrier.

    @property
    def concurrency(self) -> int:
        return self._concurrency

    @concurrency.setter
    def concurrency(self, episodes: int) -> None:
        self._concurrency = episodes
        for program in self._programs:
            program.begin(one_at_a_time=episodes == 1)
        self._answers.clear()

    def send(self, batch: Sequence[tuple[int, EnvironmentRequest | Call]]) -> None:
        self._check_open()
        programs, conversations = self._programs, self._conversations
        count = len(programs)
        for ticket, request in batch:
            place = ticket % count
            if conversations[place].awaiting:  # so the program is there
                conversations[place].ask(ticket, request)
            else:
                programs[place].ask(ticket, request)
        for program in programs:
            program.flush()

    def receive(self, *, wait: bool) -> list[Answer]:
        self._check_open()
        self._read()
        while wait and not self._answers and any(program.outstanding for program in self._programs):
            self._wait()
        answers = self._answers[:]
        self._answers.clear()
        return answers

    def _read(self) -> None:
        for program in self._programs:
            if program.outstanding:
                program.read()

    def _wait(self) -> None:
        waiting = [program for program in self._programs if program.outstanding]
        patience = [left for program in waiting if (left := program.patience) is not None]
        started = time.monotonic()
        events = self._selector.select(min([_GLANCE, *patience]))
        waited = time.monotonic() - started
        for program in waiting:
            program.waited += waited
        for key, _ in events:
            key.data()
        for program in waiting:
            program.check(glance=not events)

    def _check_open(self) -> None:
        if not self._finalizer.alive:
            raise RolloutEnvError("the environment is shut down")

    # As an environment.

    def hello(self) -> Hello:
        """What the program says about itself. Raises RolloutEnvError for another protocol."""
        reply = self._call(0, "hello")
        capabilities = reply.get("capabilities") or ()
        if not isinstance(capabilities, list | tuple):
            raise _breach("hello", f"capabilities must be a list, not {capabilities!r:.200}")
        hello = Hello(
            name=_text(reply.get("name")),
            version=_text(reply.get("version")),
            protocol=_text(reply.get("protocol")),
            capabilities=tuple(map(str, capabilities)),
        )
        if hello.protocol != PROTOCOL:
            raise _breach(
                "hello",
                f"the environment speaks {hello.protocol!r}, this driver speaks {PROTOCOL!r}",
            )
        return hello

    def tasks(self, query: JSONObject) -> list[JSONObject]:
        tasks = self._call(0, "tasks", query=query).get("tasks")
        if tasks is not None and not isinstance(tasks, list):
            raise _breach("tasks", f"tasks must be a list, not {tasks!r:.200}")
        return tasks or []

    def reset(self, episode: str, task: JSONObject, options: JSONObject) -> JSONObject:
        self._placed[episode] = self._dealt
        self._dealt += 1
        reply = self._ask("reset", episode, task=task, options=options)
        observation: JSONObject = reply["observation"]
        return observation

    def candidates(self, episode: str) -> list[JSONObject]:
        listed: list[JSONObject] = self._ask("candidates", episode)["candidates"]
        return listed

    def label(self, episode: str) -> Labels:
        reply = self._ask("label", episode)
        valid = reply.get("valid_ids")
        if isinstance(valid, list):
            valid = tuple(identifier(value) or value for value in valid)
        return Labels(valid_ids=valid, reason=reply.get("reason"))

    def step(self, episode: str, candidate_id: str) -> StepResult:
        reply = self._ask("step", episode, id=candidate_id)
        return StepResult(
            observation=reply["observation"],
            applied=reply["applied"],
            terminal=reply.get("terminal"),
            reward=_or(reply.get("reward"), 0.0),
        )

    def verify(self, episode: str) -> Verification:
        reply = self._ask("verify", episode)
        return Verification(
            success=reply["success"],
            status=_or(reply.get("status"), ""),
            reward=_or(reply.get("reward"), 0.0),
            detail=_or(reply.get("detail"), {}),
        )

    def close(self, episode: str) -> None:
        self._ask("close", episode)
        self._placed.pop(episode, None)

    def _ask(self, op: str, episode: str, **fields: Any) -> JSONObject:
        return self._call(self._placed.get(episode, 0), op, episode=episode, **fields)

    def _call(self, place: int, op: str, **fields: Any) -> JSONObject:
        """The reply to one request by itself, from the process that `place` falls to."""
        ticket = _OUTSIDE - place
        self.send([(ticket, Call(op, fields))])
        others: dict[int, Any] = {}
        while ticket not in others:
            others.update(self.receive(wait=True))
        answer = others.pop(ticket)
        self._answers.extend(others.items())
        if isinstance(answer, RolloutEnvError):
            raise _outside(answer, op)
        reply: JSONObject = answer
        return reply


def _outside(fault: RolloutEnvError, op: str) -> RolloutEnvError:
    """The fault with its op and what the program logged in the message: no record will have it."""
    log = "".join(f"\n    {line}" for line in fault.stderr)
    message = f"{op}: {fault}" + (f"\n  its last words on stderr:{log}" if log else "")
    return RolloutEnvError(message, op=op, kind=fault.kind, stderr=fault.stderr)


def _breach(op: str, message: str) -> RolloutEnvError:
    return RolloutEnvError(f"{op}: {message}", op=op, kind="protocol")


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=2)


def _shut(
    programs: Sequence[Program],
    selector: selectors.BaseSelector,
    watcher: Guard,
    grace: float,
    owner: int,
) -> None:
    if os.getpid() != owner:  # a fork of ours has nothing to end
        return
    for program in programs:
        program.end_input()
    deadline = time.monotonic() + grace
    for program in programs:
        program.stop(max(0.0, deadline - time.monotonic()))
    watcher.dismiss()
    selector.close()
