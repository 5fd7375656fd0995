"""What an episode leaves behind: `maatml.rollout_episode/1`, or an error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from pytest_maatml.engine.encoding import decode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_maatml.engine.protocol import JSONObject
    from pytest_maatml.errors import RolloutEnvError

EPISODE_KIND: Final = "maatml.rollout_episode/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutPlan:
    """One episode that is to run: its place in the task list, its id and its task."""

    index: int
    episode_id: str
    task: JSONObject
    task_id: str
    task_family: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """An episode that ran to a verdict; `line` is its record, JSON without a newline."""

    index: int
    episode_id: str
    task_id: str
    task_family: str
    success: bool
    status: str
    truncated: str | None
    decisions: int
    last_action: str | None
    line: bytes

    def as_dict(self) -> JSONObject:
        """The record as a new dict of plain JSON values."""
        record: JSONObject = decode(self.line)
        return record


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeError:
    """An episode that did not run properly: neither success nor failure."""

    index: int
    episode_id: str
    task_id: str
    task_family: str
    op: str | None
    decision: int | None
    kind: str
    message: str
    stderr: tuple[str, ...] = ()

    @classmethod
    def of(cls, plan: RolloutPlan, error: RolloutEnvError, *, seed: int) -> EpisodeError:
        """What `error` did to the episode of `plan`; the message says where it happened."""
        place = f"task {plan.task_id}"
        if error.kind == "policy":
            place += f", seed {seed}"
        if error.decision is not None:
            place += f", decision {error.decision}"
        if error.op is not None:
            place += f", {error.op}"
        return cls(
            index=plan.index,
            episode_id=plan.episode_id,
            task_id=plan.task_id,
            task_family=plan.task_family,
            op=error.op,
            decision=error.decision,
            kind=error.kind,
            message=f"{place}: {error}",
            stderr=error.stderr,
        )

    @classmethod
    def from_dict(cls, index: int, record: Mapping[str, Any]) -> EpisodeError:
        """The error that `as_dict` gave."""
        return cls(index=index, **{**record, "stderr": tuple(record["stderr"])})

    def as_dict(self) -> JSONObject:
        """The error as `errors.jsonl` keeps it."""
        return {
            "episode_id": self.episode_id,
            "task_id": self.task_id,
            "task_family": self.task_family,
            "op": self.op,
            "decision": self.decision,
            "kind": self.kind,
            "message": self.message,
            "stderr": list(self.stderr),
        }


class Provenance(NamedTuple):
    """What all episodes of a run have in common."""

    source: str
    policy_version: str
    round: int
    environment: Mapping[str, str]


def encode_decision(
    observation: bytes,
    candidates: bytes,
    act: bytes,
    accepted: list[str] | None,
    applied: bool,
    reward: float,
) -> bytes:
    """One decision of a record, of parts that are JSON already; `act` is as `Choice` has it."""
    return b"".join(
        (
            b'{"observation":',
            observation,
            b',"candidates":',
            candidates,
            act,
            b"null" if accepted is None else orjson.dumps(accepted),
            b',"applied":true,"reward":' if applied else b',"applied":false,"reward":',
            orjson.dumps(reward),
            b"}",
        )
    )


def encode_record(
    plan: RolloutPlan,
    provenance: Provenance,
    task: bytes,
    decisions: list[bytes],
    outcome: dict[str, Any],
) -> bytes:
    """One line of `maatml.rollout_episode/1`; the parts that came encoded go in as they are."""
    head = orjson.dumps(
        {
            "kind": EPISODE_KIND,
            "episode_id": plan.episode_id,
            "task_id": plan.task_id,
            "task_family": plan.task_family,
            "task": orjson.Fragment(task),
            "source": provenance.source,
            "policy_version": provenance.policy_version,
            "round": provenance.round,
            "environment": provenance.environment,
        }
    )
    tail = b'],"outcome":%b}' % orjson.dumps(outcome)
    return b"".join((head[:-1], b',"decisions":[', b",".join(decisions), tail))
