"""What an episode asks of the world around it, and who answers.

The requests are not frozen: an episode has one Look and one Step, which it sends again and again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_maatml.engine.protocol import Hello, JSONObject


#: Episodes in flight where it is worth having many: over a pipe, or with a batched policy.
MANY: Final = 32


@dataclass(slots=True)
class Reset:
    """Answered with the first observation."""

    episode: str
    task: JSONObject
    options: JSONObject


@dataclass(slots=True)
class Look:
    """Answered with (candidates, Labels), or (candidates, None) where no label is wanted.

    Where the candidates are empty the labels are None too, whatever the environment says.
    """

    episode: str
    label: bool


@dataclass(slots=True)
class Score:
    """Answered by the policy: one number a candidate."""

    observation: JSONObject
    candidates: list[JSONObject]


@dataclass(slots=True)
class Step:
    """Answered with (observation, applied, terminal, reward), as a StepResult has them."""

    episode: str
    candidate: str


@dataclass(slots=True)
class Verify:
    """Answered with a Verification; the carrier closes the episode in the same breath."""

    episode: str


@dataclass(slots=True)
class Close:
    """Answered with None, whatever the environment says: the episode is lost already."""

    episode: str


EnvironmentRequest: TypeAlias = Reset | Look | Step | Verify | Close
Request: TypeAlias = EnvironmentRequest | Score


class Restarted(Exception):
    """The answer to an episode that lost its state through no fault of its own: begin again."""


#: (ticket, answer): the ticket is the sender's, the answer a reply, a fault, or `Restarted`.
Answer: TypeAlias = "tuple[int, Any]"


class Pipe(Protocol):
    """Takes requests to an environment elsewhere and brings the answers back, in any order.

    It never judges an answer beyond what it needs to read it; that is the episode's part.
    """

    #: How many episodes it is worth having in flight.
    concurrency: int

    def hello(self) -> Hello: ...

    def tasks(self, query: JSONObject) -> list[JSONObject]: ...

    def send(self, batch: Sequence[tuple[int, EnvironmentRequest]]) -> None:
        """Take over the requests; each ticket has at most one request under way."""
        ...

    def receive(self, *, wait: bool) -> list[Answer]:
        """The answers that are there; with `wait` at least one, if a request is under way."""
        ...

    def shutdown(self) -> None:
        """End what is at the other end. Twice is harmless."""
        ...
