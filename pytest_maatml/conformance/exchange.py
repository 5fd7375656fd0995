"""What was asked, what came, and how both are shown and compared."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pytest_maatml.engine.protocol import JSONObject

_WIDTH: Final = 400


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its reply, `{"ok": ...}` as it stands on the wire, in process too.

    A request that is no JSON object is the text that was written; a reply of None: none came.
    """

    request: JSONObject | str
    reply: JSONObject | None

    @property
    def ok(self) -> bool:
        return self.reply is not None and self.reply.get("ok") is True

    @property
    def op(self) -> str:
        return str(self.request["op"]) if isinstance(self.request, dict) else ""

    def get(self, field: str) -> Any:
        """A field of the reply; None where it has none."""
        return None if self.reply is None else self.reply.get(field)

    def lines(self) -> tuple[str, str]:
        came = "no reply" if self.reply is None else shown(self.reply)
        return f"sent    {shown(self.request)}", f"came    {came}"


class Broken(Exception):
    """A rule is broken: what the protocol wants, and the exchanges that show it is not so."""

    def __init__(self, wanted: str, *exchanges: Exchange) -> None:
        lines = [line for exchange in exchanges for line in exchange.lines()]
        super().__init__("\n".join([f"wanted  {wanted}", *lines]))


class Lost(Broken):
    """The program is gone, or silent, for the reason given: nothing more can be asked of it."""

    def __init__(self, reason: str, request: JSONObject | str) -> None:
        super().__init__(f"one line of reply to each request; {reason}", Exchange(request, None))
        self.reason = reason


class Inapplicable(Exception):
    """The environment lacks what the rule is about, and may do so."""


def shown(value: Any) -> str:
    """`value` as JSON in one line of limited length; what is not JSON by its repr."""
    text = value if isinstance(value, str) else _dumped(value, sort_keys=False)
    if len(text) <= _WIDTH:
        return text
    return f"{text[: _WIDTH - 60]} ... {text[-40:]} ({len(text)} characters)"


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal as JSON: 1 is neither 1.0 nor true; keys have no order."""
    return _dumped(one, sort_keys=True) == _dumped(other, sort_keys=True)


def same_reply(one: Exchange, other: Exchange) -> bool:
    """Whether two replies say the same; of two refusals, only that they refuse."""
    return (not one.ok and not other.ok) or same(one.reply, other.reply)


def _dumped(value: Any, *, sort_keys: bool) -> str:
    try:
        return json.dumps(value, sort_keys=sort_keys, separators=(",", ":"), default=repr)
    except (TypeError, ValueError, RecursionError):  # keys that are not text, cycles
        return repr(value)
