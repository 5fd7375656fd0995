"""What makes two runs the same run: only then may their rows stand in one file."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_maatml.engine.protocol import JSONObject

_ABSENT = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunIdentity:
    """All that decides what the episodes of a run are; nothing that changes from run to run."""

    policy: str
    #: run id or digest of the checkpoint; None for a policy without one
    checkpoint: str | None
    #: name, version and protocol
    environment: Mapping[str, str]
    options: Mapping[str, Any]
    seed: int
    label: bool
    teacher_mix: float
    max_decisions: int
    #: `digest_tasks` of the whole list
    tasks: str
    #: the number of tasks in the whole list
    planned: int
    source: str
    round: int

    def as_dict(self) -> JSONObject:
        """The identity as it would be read back from JSON."""
        plain: JSONObject = json.loads(json.dumps(asdict(self)))
        plain["teacher_mix"] = float(plain["teacher_mix"])
        return plain

    @classmethod
    def from_dict(cls, record: Any) -> RunIdentity:
        """The identity that `as_dict` gave. Raises ValueError for anything else."""
        names = {field.name for field in fields(cls)}
        if not isinstance(record, dict) or record.keys() != names:
            raise ValueError(f"not the identity of a run: {record!r:.200}")
        return cls(**record)

    def digest(self) -> str:
        """Sixteen hex digits that only the same identity has."""
        return blake2b(_canonical(self.as_dict()), digest_size=8).hexdigest()

    def differences(self, other: RunIdentity) -> list[str]:
        """What `other` has differently, a line each (`seed: 0 there, 1 here`); [] if the same."""
        here, there = dict(_leaves(self.as_dict())), dict(_leaves(other.as_dict()))
        return [
            f"{'.'.join(name)}: {_shown(there.get(name, _ABSENT))} there, "
            f"{_shown(here.get(name, _ABSENT))} here"
            for name in {**there, **here}
            if _canonical(there.get(name, "")) != _canonical(here.get(name, ""))
            or (name in there) != (name in here)
        ]


def digest_tasks(tasks: Sequence[JSONObject]) -> str:
    """Thirty-two hex digits that stand for the tasks and their order, whatever their key order."""
    digest = blake2b(digest_size=16)
    for task in tasks:
        digest.update(_canonical(task) + b"\n")
    return digest.hexdigest()


def _canonical(value: Any) -> bytes:
    try:
        return json.dumps(
            value, sort_keys=True, separators=(",", ":"), default=_name_of_type
        ).encode()
    except (TypeError, ValueError, RecursionError):
        # Not JSON at all: the engine makes an error of that episode, the others still run.
        return _name_of_type(value).encode()


def _name_of_type(value: Any) -> str:
    return f"<{type(value).__qualname__}>"


def _leaves(
    record: Mapping[str, Any], above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each value that is no object, with its path; an empty object within another counts as one."""
    for name, value in record.items():
        if isinstance(value, dict) and (value or not above):
            yield from _leaves(value, (*above, name))
        else:
            yield (*above, name), value


def _shown(value: Any) -> str:
    return "absent" if value is _ABSENT else json.dumps(value, ensure_ascii=False)
