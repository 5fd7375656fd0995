"""The server half of the stdio carrier: a Python environment as a program of its own."""

from __future__ import annotations

import io
import os
import sys
from contextlib import contextmanager
from math import isfinite
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import orjson

from pytest_maatml.engine.candidates import NO_LOOKALIKES, identifier
from pytest_maatml.engine.encoding import decode, snapshot
from pytest_maatml.engine.progress import counter
from pytest_maatml.errors import MaatmlError, describe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pytest_maatml.engine.protocol import Environment, JSONObject

_CHUNK: Final = 1 << 16
#: Seconds that a reply may wait for those to the other requests that have arrived.
_PATIENCE: Final = 0.002
#: Lists of candidates whose encoding has been found to be JSON.
_REMEMBERED: Final = 4096
_OK: Final = b'{"ok":true}'


def serve(environment: Environment, *, input_stream: Any = None, output_stream: Any = None) -> int:
    """The number of requests answered, once the input has ended.

    One JSON request a line comes in, one reply a line goes out: all that have arrived are answered
    before the output is flushed, unless that takes longer than a few milliseconds. Whatever goes
    wrong with one request is the reply to it, `{"ok":false,"error":...}`. The streams may be text
    or binary; by default they are standard input and output, and then what the environment prints
    goes to standard error.
    """
    source = sys.stdin if input_stream is None else input_stream
    with _output(sys.stdout if output_stream is None else output_stream) as write:
        return _answer_all(Responder(environment), _arrivals(source), write)


def _answer_all(
    responder: Responder, arrivals: Iterable[list[bytes]], write: Callable[[bytes], None]
) -> int:
    answered = 0
    begun = counter()
    replies: list[bytes] = []
    try:
        for lines in arrivals:
            flushed = perf_counter()
            for line in lines:
                if not line or line.isspace():
                    continue
                answered += 1
                if begun is not None:
                    begun[0] = answered
                replies.append(responder.reply(line))
                if perf_counter() - flushed > _PATIENCE:
                    _flush(replies, write)
                    flushed = perf_counter()
            _flush(replies, write)
    finally:  # an environment that ends the program has answered up to there
        _flush(replies, write)
    return answered


def _flush(replies: list[bytes], write: Callable[[bytes], None]) -> None:
    if replies:
        replies.append(b"")
        data = b"\n".join(replies)
        replies.clear()
        write(data)


def _arrivals(source: Any) -> Iterator[list[bytes]]:
    """The lines that have arrived, whenever there are any, until end of file."""
    read = getattr(getattr(source, "buffer", source), "read1", None)
    if read is None:
        for line in source:
            yield [line.encode("utf-8", "surrogatepass") if isinstance(line, str) else line]
        return
    partial = b""
    while chunk := read(_CHUNK):
        *lines, rest = chunk.split(b"\n")
        if lines:
            lines[0] = partial + lines[0]
            partial = rest
            yield lines
        else:
            partial += rest
    if partial:
        yield [partial]


@contextmanager
def _output(sink: Any) -> Iterator[Callable[[bytes], None]]:
    """What writes replies to `sink`; where that is standard output, prints go to stderr."""
    if _descriptor(sink) != 1:
        yield _writer(sink)
        return
    sink.flush()
    stdout, replies = sys.stdout, os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    try:
        with os.fdopen(os.dup(replies), "wb", 0) as raw:
            yield _writer(raw)
    finally:
        sys.stdout = stdout
        sink.flush()
        os.dup2(replies, 1)
        os.close(replies)


def _descriptor(stream: Any) -> int | None:
    try:
        number: int = stream.fileno()
    except (AttributeError, OSError, ValueError):
        return None
    return number


def _writer(sink: Any) -> Callable[[bytes], None]:
    binary = isinstance(sink, io.RawIOBase | io.BufferedIOBase)

    def write(data: bytes) -> None:
        left: Any = data if binary else data.decode()
        while left:
            written = sink.write(left)
            left = left[len(left) if written is None else written :]
        if hasattr(sink, "flush"):
            sink.flush()

    return write


class Responder:
    """Answers one request at a time with one line, whatever the request is."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._known_candidates: set[bytes] = set()
        self._answers: Final[dict[Any, Callable[[JSONObject], bytes]]] = {
            "hello": self._hello,
            "tasks": self._tasks,
            "reset": self._reset,
            "candidates": self._candidates,
            "label": self._label,
            "step": self._step,
            "verify": self._verify,
            "close": self._close,
        }

    def reply(self, line: bytes) -> bytes:
        """The reply to one request, without a newline."""
        try:
            request = decode(line)
            if not isinstance(request, dict):
                return _refusal(f"a request is an object, not {request!r:.200}")
            op = request.get("op")
            answer = self._answers.get(op) if isinstance(op, str) else None
            if answer is None:
                return _refusal(f"unknown op {op!r:.200}; known are {', '.join(self._answers)}")
            return answer(request)
        except MaatmlError as error:
            return _refusal(f"{type(error).__name__}: {error}")
        except Exception as error:
            return _refusal(describe(error))

    def _hello(self, request: JSONObject) -> bytes:
        hello = self._environment.hello()
        return _reply(
            "hello",
            protocol=hello.protocol,
            name=hello.name,
            version=hello.version,
            capabilities=list(hello.capabilities),
        )

    def _tasks(self, request: JSONObject) -> bytes:
        return _reply("tasks", tasks=self._environment.tasks(dict(request.get("query") or {})))

    def _reset(self, request: JSONObject) -> bytes:
        observation = self._environment.reset(
            _text(request, "episode"),
            dict(request.get("task") or {}),
            dict(request.get("options") or {}),
        )
        return _reply("reset", observation=observation)

    def _candidates(self, request: JSONObject) -> bytes:
        candidates = self._environment.candidates(_text(request, "episode"))
        encoded = _plainly(candidates)
        if encoded not in self._known_candidates:
            encoded = snapshot(candidates, "candidates", op="candidates")
            if len(self._known_candidates) >= _REMEMBERED:
                self._known_candidates.clear()
            if b"null" not in encoded:  # it may stand for a NaN, which is to be refused each time
                self._known_candidates.add(encoded)
        return b'{"ok":true,"candidates":%b}' % encoded

    def _label(self, request: JSONObject) -> bytes:
        labels = self._environment.label(_text(request, "episode"))
        valid = None if labels.valid_ids is None else list(labels.valid_ids)
        return _reply("label", valid_ids=valid, reason=labels.reason)

    def _step(self, request: JSONObject) -> bytes:
        result = self._environment.step(_text(request, "episode"), _text(request, "id"))
        observation = snapshot(result.observation, "observation", op="step")
        return b'{"ok":true,"observation":%b,"applied":%b,"terminal":%b,"reward":%b}' % (
            observation,
            _scalar(result.applied, "applied"),
            _scalar(result.terminal, "terminal"),
            _scalar(result.reward, "reward"),
        )

    def _verify(self, request: JSONObject) -> bytes:
        verdict = self._environment.verify(_text(request, "episode"))
        return _reply(
            "verify",
            success=verdict.success,
            status=verdict.status,
            reward=verdict.reward,
            detail=verdict.detail,
        )

    def _close(self, request: JSONObject) -> bytes:
        self._environment.close(_text(request, "episode"))
        return _OK


def _text(request: JSONObject, name: str) -> str:
    """An id out of a request; numbers are taken as their text."""
    return identifier(request.get(name)) or ""


_SCALARS: Final = {None: b"null", True: b"true", False: b"false"}


def _scalar(value: Any, name: str) -> bytes:
    kind = type(value)
    if kind is bool or value is None:
        return _SCALARS[value]
    if kind is float and isfinite(value):
        return orjson.dumps(value)
    return snapshot(value, name, op="step")


def _plainly(candidates: Any) -> bytes | None:
    """The JSON of a list of candidates, if orjson needs no help with it."""
    try:
        return orjson.dumps(candidates, None, NO_LOOKALIKES)
    except TypeError:
        return None


def _reply(op: str, **fields: Any) -> bytes:
    parts = [
        b',"%b":%b' % (name.encode(), snapshot(value, name, op=op))
        for name, value in fields.items()
    ]
    return b'{"ok":true%b}' % b"".join(parts)


def _refusal(message: str) -> bytes:
    printable = message.encode("utf-8", "backslashreplace").decode()
    return orjson.dumps({"ok": False, "error": printable})
