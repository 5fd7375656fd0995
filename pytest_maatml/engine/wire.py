"""`maatml.rollout_env/1` as lines: how requests are written, and what is wrong with a reply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from pytest_maatml.engine.encoding import decode, snapshot
from pytest_maatml.engine.requests import Close, Look, Reset, Step, Verify

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_maatml.engine.protocol import JSONObject
    from pytest_maatml.engine.requests import EnvironmentRequest

_OPS: Final[dict[type, str]] = {
    Reset: "reset",
    Look: "candidates",
    Step: "step",
    Verify: "verify",
    Close: "close",
}
#: What a reply cannot do without; one that lacks it was meant for another request.
NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "reset": ("observation",),
    "candidates": ("candidates",),
    "step": ("observation", "applied"),
    "verify": ("success",),
}


@dataclass(frozen=True, slots=True)
class Call:
    """One request by itself, answered with the reply as it came."""

    op: str
    fields: JSONObject


class Misfit(Exception):
    """A line that is no reply to what was asked; the program can no longer be followed."""

    def __init__(self, message: str, line: bytes, *, op: str | None = None) -> None:
        super().__init__(f"{message}: {shown(line)}")
        self.op = op


class Hosted:
    """An episode that the program knows, and the lines that ask for it."""

    __slots__ = ("candidates", "close", "label", "step", "verify")

    def __init__(self, episode: str) -> None:
        name = orjson.dumps(episode)
        self.candidates = b'{"op":"candidates","episode":%b}\n' % name
        self.label = b'{"op":"label","episode":%b}\n' % name
        #: To be followed by the id's JSON and the end of the object.
        self.step = b'{"op":"step","episode":%b,"id":' % name
        self.verify = b'{"op":"verify","episode":%b}\n' % name
        self.close = b'{"op":"close","episode":%b}\n' % name


def op_of(request: EnvironmentRequest | Call) -> str:
    """The op that a request begins with."""
    return request.op if isinstance(request, Call) else _OPS[type(request)]


def line_of(op: str, fields: JSONObject) -> bytes:
    """A request as a line. Raises RolloutEnvError for fields that are not JSON, with their path."""
    parts = [b'{"op":%b' % orjson.dumps(op)]
    for name, value in fields.items():
        parts.append(b',"%b":%b' % (name.encode(), snapshot(value, name, op=op)))
    return b"".join(parts) + b"}\n"


class NotJSON:
    """In place of what a line that is not JSON would hold."""


def read_carefully(line: bytes) -> Any:
    """The value of a line, or NotJSON."""
    try:
        return decode(line)
    except ValueError:
        return NotJSON()


def complaint_about(reply: Any) -> str:
    """What is wrong with a reply that does not say ok true or false."""
    if isinstance(reply, NotJSON):
        return "the reply is not JSON"
    return "the reply is not an object with ok true or false"


def shown(line: bytes | bytearray) -> str:
    """The beginning of a line, for a message."""
    return repr(line[:1000].decode("utf-8", "backslashreplace")[:200])
