"""The errors of the package: each message says what was wrong, where, and what to do."""

from __future__ import annotations

import difflib
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "ConfigurationError",
    "MaatmlError",
    "ModelError",
    "PolicyError",
    "RolloutEnvError",
    "describe",
    "did_you_mean",
]


class MaatmlError(Exception):
    """Everything that we raise for what a user, an environment or a policy did."""


class ConfigurationError(MaatmlError, ValueError):
    """An option, an ini key, a marker or a suite asks for what cannot be."""


class ModelError(MaatmlError):
    """A model folder cannot be read, or its policy cannot be loaded."""


class RolloutEnvError(MaatmlError, RuntimeError):
    """The environment refused a request, broke the protocol, or is gone.

    `op` is the request that went wrong, `decision` the number of the decision (from 0), `kind`
    one word for the sort of fault, `stderr` the last lines that the environment logged.
    """

    kind = "environment"

    def __init__(
        self,
        message: str,
        *,
        op: str | None = None,
        kind: str | None = None,
        stderr: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.op = op
        self.decision: int | None = None
        self.stderr = tuple(stderr)
        if kind is not None:
            self.kind = kind


class PolicyError(RolloutEnvError):
    """The policy raised, or gave scores that no choice can be made from.

    A `RolloutEnvError` too, since a program written for the peer catches that one alone around
    a rollout.
    """

    kind = "policy"

    def __init__(self, message: str, *, op: str = "score") -> None:
        super().__init__(message, op=op)


_OURS: Final = os.path.dirname(os.path.abspath(__file__)) + os.sep
_STANDARD: Final = os.path.dirname(os.__file__) + os.sep


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """`; did you mean 'word'?` with the nearest of the known ones, or nothing if none is near."""
    nearest = difflib.get_close_matches(str(word), list(known), n=1)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""


def describe(error: BaseException) -> str:
    """`Type: message (file:line)`: the innermost line not hidden, nor ours or a library's.

    Where all lines are in libraries, it is the innermost of those.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"{type(error).__name__}: {error.msg} ({error.filename}:{error.lineno})"
    text = ": ".join(filter(None, (type(error).__name__, _message(error))))
    place, own = "", False
    traceback = error.__traceback__
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        hidden = traceback.tb_frame.f_locals.get("__tracebackhide__") is True
        theirs = not file.startswith(("<", _OURS)) and f"{os.sep}importlib{os.sep}" not in file
        if theirs and not hidden:
            of_library = file.startswith(_STANDARD) or f"{os.sep}site-packages{os.sep}" in file
            if not of_library or not own:
                place, own = f" ({file}:{traceback.tb_lineno})", not of_library
        traceback = traceback.tb_next
    return text + place


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # of a class with a fault of its own
        return "(an error without a readable message)"
