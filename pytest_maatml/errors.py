"""The errors of the package: each message says what was wrong, where, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ConfigurationError", "MaatmlError", "ModelError", "PolicyError", "RolloutEnvError"]


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


def describe(error: BaseException) -> str:
    """Type, message and, where it is known, the file and line that raised `error`."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    if frame is None:
        return text
    return f"{text} ({frame.tb_frame.f_code.co_filename}:{frame.tb_lineno})"
