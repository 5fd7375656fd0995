"""`maatml.rollout_env/1`: what an environment is asked, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

PROTOCOL: Final = "maatml.rollout_env/1"

#: Statuses that all environments share; each may have more of its own.
SUCCESS: Final = "success"
EXHAUSTED: Final = "exhausted"

#: A JSON object, passed through unread.
JSONObject: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Hello:
    """Who the environment is and what it can do (`label`, `tasks`)."""

    name: str
    version: str
    protocol: str = PROTOCOL
    capabilities: tuple[str, ...] = ()

    def supports(self, capability: str) -> bool:
        return capability in self.capabilities


@dataclass(frozen=True, slots=True)
class Labels:
    """The ids that the teacher accepts in a state, or None and the reason why it has none."""

    valid_ids: tuple[str, ...] | None
    reason: str | None = None

    @property
    def labelled(self) -> bool:
        return self.valid_ids is not None


@dataclass(frozen=True, slots=True)
class StepResult:
    """The state after a step: `applied` if it had an effect, `terminal` the status at the end."""

    observation: JSONObject
    applied: bool
    terminal: str | None = None
    reward: float = 0.0


@dataclass(frozen=True, slots=True)
class Verification:
    """The environment's verdict on an episode. Nobody else decides what success is."""

    success: bool
    status: str
    reward: float = 0.0
    detail: JSONObject = field(default_factory=dict)


@runtime_checkable
class Environment(Protocol):
    """An environment in process: hosts many episodes at once, each named by the driver."""

    def hello(self) -> Hello: ...

    def tasks(self, query: JSONObject) -> list[JSONObject]: ...

    def reset(self, episode: str, task: JSONObject, options: JSONObject) -> JSONObject: ...

    def candidates(self, episode: str) -> list[JSONObject]: ...

    def label(self, episode: str) -> Labels: ...

    def step(self, episode: str, candidate_id: str) -> StepResult: ...

    def verify(self, episode: str) -> Verification: ...

    def close(self, episode: str) -> None: ...
