"""One running environment that can be asked, in this process or as a program of its own."""

from __future__ import annotations

import json
from collections import deque
from contextlib import suppress
from copy import deepcopy
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Protocol

from pytest_maatml.conformance.exchange import Exchange, Lost, shown
from pytest_maatml.conformance.pipe import Pipe, Silent
from pytest_maatml.engine.encoding import decode, snapshot
from pytest_maatml.errors import RolloutEnvError, describe

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_maatml.engine.protocol import Environment, JSONObject

#: Seconds for a reply once something that is no reply has come in its place.
_LITTLE_LONGER: Final = 3.0


class Instance(Protocol):
    def ask(self, op: str, /, **fields: Any) -> Exchange:
        """What came of one request; a refusal is a reply too. Raises Lost where nothing came."""
        ...

    def shut(self) -> None:
        """Let go of it. Twice is harmless."""
        ...


class InProcessInstance:
    """An environment in this process; its answers are kept as they would stand on the wire."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def ask(self, op: str, /, **fields: Any) -> Exchange:
        # Over stdio an environment gets a copy of its own; so it does here.
        request = {"op": op, **deepcopy(fields)}
        try:
            reply = _METHODS[op](self._environment, deepcopy(fields))
        except Exception as error:
            return Exchange(request, {"ok": False, "error": describe(error)})
        return Exchange(request, {"ok": True, **{key: _kept(reply[key]) for key in reply}})

    def shut(self) -> None:
        """Nothing is held."""


def _kept(value: Any) -> Any:
    """`value` as it is at this moment, whatever the environment does to it later."""
    try:
        return decode(snapshot(value, "value"))
    except RolloutEnvError:
        with suppress(Exception):
            return deepcopy(value)
        return value


def _hello(environment: Environment, fields: JSONObject) -> JSONObject:
    hello = environment.hello()
    return {
        "protocol": hello.protocol,
        "name": hello.name,
        "version": hello.version,
        "capabilities": hello.capabilities,
    }


def _tasks(environment: Environment, fields: JSONObject) -> JSONObject:
    return {"tasks": environment.tasks(fields["query"])}


def _reset(environment: Environment, fields: JSONObject) -> JSONObject:
    return {"observation": environment.reset(fields["episode"], fields["task"], fields["options"])}


def _candidates(environment: Environment, fields: JSONObject) -> JSONObject:
    return {"candidates": environment.candidates(fields["episode"])}


def _label(environment: Environment, fields: JSONObject) -> JSONObject:
    labels = environment.label(fields["episode"])
    return {"valid_ids": labels.valid_ids, "reason": labels.reason}


def _step(environment: Environment, fields: JSONObject) -> JSONObject:
    result = environment.step(fields["episode"], fields["id"])
    return {
        "observation": result.observation,
        "applied": result.applied,
        "terminal": result.terminal,
        "reward": result.reward,
    }


def _verify(environment: Environment, fields: JSONObject) -> JSONObject:
    verdict = environment.verify(fields["episode"])
    return {
        "success": verdict.success,
        "status": verdict.status,
        "reward": verdict.reward,
        "detail": verdict.detail,
    }


def _close(environment: Environment, fields: JSONObject) -> JSONObject:
    environment.close(fields["episode"])
    return {}


_METHODS: Final[dict[str, Callable[[Environment, JSONObject], JSONObject]]] = {
    "hello": _hello,
    "tasks": _tasks,
    "reset": _reset,
    "candidates": _candidates,
    "label": _label,
    "step": _step,
    "verify": _verify,
    "close": _close,
}


class ProgramInstance:
    """An environment over raw pipes; each reply must come within `timeout` seconds.

    A line that is no reply is kept in `stray` and passed over.
    """

    def __init__(self, pipe: Pipe, *, timeout: float | None) -> None:
        self.pipe = pipe
        self.stray: list[str] = []
        self._timeout = timeout

    def ask(self, op: str, /, **fields: Any) -> Exchange:
        return self.ask_line(json.dumps({"op": op, **fields}, separators=(",", ":")))

    def ask_line(self, line: str) -> Exchange:
        """As `ask`, for a request that is written as it stands."""
        request = _request(line)
        self.write(line, request)
        return Exchange(request, self._reply(request))

    def ask_ahead(self, requests: list[JSONObject]) -> list[Exchange]:
        """What came of requests that were all written before the first reply was read."""
        lines = [json.dumps(request, separators=(",", ":")) for request in requests]
        self.write("\n".join(lines), requests[0])
        waiting = deque(requests)
        replies = []
        while waiting:
            replies.append(Exchange(waiting[0], self._reply(waiting[0])))
            waiting.popleft()
        return replies

    def write(self, text: str, request: JSONObject | str) -> None:
        try:
            self.pipe.write(f"{text}\n".encode(), self._timeout)
        except Silent as silence:
            raise Lost(str(silence), request) from None

    def _reply(self, request: JSONObject | str) -> JSONObject:
        deadline = inf if self._timeout is None else monotonic() + self._timeout
        strays = len(self.stray)
        while True:
            try:
                line = self.pipe.read_line(None if deadline == inf else deadline - monotonic())
            except Silent as silence:
                wrote = self.stray[strays:]
                instead = f"it wrote {shown(wrote[-1])}; " if wrote else ""
                raise Lost(f"{instead}{silence}", request) from None
            reply = _reply_in(line)
            if reply is not None:
                return reply
            self.stray.append(line.decode("utf-8", "backslashreplace"))
            if len(self.stray) == strays + 1:
                deadline = min(deadline, monotonic() + _LITTLE_LONGER)

    def listen(self, seconds: float) -> None:
        """Keep the next line that is written in so many seconds although nothing was asked."""
        with suppress(Silent):
            self.stray.append(self.pipe.read_line(seconds).decode("utf-8", "backslashreplace"))

    def shut(self) -> None:
        self.pipe.shut()


def _request(line: str) -> JSONObject | str:
    try:
        request = json.loads(line)
    except ValueError:
        return line
    return request if isinstance(request, dict) and "op" in request else line


def _reply_in(line: bytes) -> JSONObject | None:
    try:
        reply = decode(line)
    except ValueError:
        return None
    return reply if isinstance(reply, dict) and isinstance(reply.get("ok"), bool) else None
