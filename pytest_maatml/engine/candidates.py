"""Candidates as the environment lists them, checked, and read once where they come again."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import orjson

from pytest_maatml.engine.encoding import shown, snapshot
from pytest_maatml.errors import RolloutEnvError

if TYPE_CHECKING:
    from pytest_maatml.engine.policy import Choice
    from pytest_maatml.engine.protocol import JSONObject

#: Sets that are remembered, each with some choices, and the longest encoding that is.
_REMEMBERED: Final = 1024
_LONGEST: Final = 4096
#: What orjson would write as the JSON of something else, as far as it can be told not to.
NO_LOOKALIKES: Final = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME


@dataclass(frozen=True, slots=True)
class CandidateSet:
    """The parts of a list of candidates that a choice needs.

    `by_id` holds all positions in order of the ids, `valid_by_id` those that are not masked.
    """

    encoded: bytes
    ids: tuple[str, ...]
    valid: tuple[bool, ...]
    by_id: tuple[int, ...]
    valid_by_id: tuple[int, ...]
    valid_ids: frozenset[str]
    #: What was chosen for which scores; the policy's part fills it.
    choices: dict[tuple[float, ...], Choice] = field(default_factory=dict, compare=False)


class CandidateReader:
    """Reads lists of candidates; one that was seen before costs its encoding and a look-up."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[bytes, CandidateSet] = {}

    def read(self, candidates: Any) -> CandidateSet:
        """Raises RolloutEnvError for what is not a list of objects with unique ids."""
        try:
            encoded = orjson.dumps(candidates, None, NO_LOOKALIKES)
        except TypeError:
            return read_candidates(candidates)
        known = self._known.get(encoded)
        if known is None:
            known = read_candidates(candidates)
            self._remember(encoded, known)
        return known

    def _remember(self, encoded: bytes, known: CandidateSet) -> None:
        # null may stand for a NaN, which is to be refused each time.
        if len(encoded) <= _LONGEST and b"null" not in encoded:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[encoded] = known


def read_candidates(candidates: Any) -> CandidateSet:
    """The set without memory. Raises RolloutEnvError as `CandidateReader.read` does."""
    if not isinstance(candidates, list | tuple):
        raise _breach(f"candidates must be a list, not {shown(candidates)}")
    ids = tuple(_identify(candidate, place) for place, candidate in enumerate(candidates))
    if len(set(ids)) != len(ids):
        twice = next(name for place, name in enumerate(ids) if name in ids[:place])
        raise _breach(f"candidates must have unique ids; {twice!r} is there more than once")
    valid = tuple(candidate.get("valid") is not False for candidate in candidates)
    by_id = tuple(sorted(range(len(ids)), key=ids.__getitem__))
    return CandidateSet(
        encoded=snapshot(candidates, "candidates", op="candidates"),
        ids=ids,
        valid=valid,
        by_id=by_id,
        valid_by_id=tuple(place for place in by_id if valid[place]),
        valid_ids=frozenset(name for name, free in zip(ids, valid, strict=True) if free),
    )


def identifier(value: Any) -> str | None:
    """An id as text: text stays, a number becomes its text; None for anything else."""
    # An enum's own str() would be its name.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, float):
        return float.__repr__(value)
    if isinstance(value, int) and not isinstance(value, bool):
        with suppress(ValueError):  # an integer of more digits than Python will write
            return int.__repr__(value)
    return None


def _identify(candidate: JSONObject, place: int) -> str:
    if not isinstance(candidate, dict):
        raise _breach(f"candidates[{place}] must be an object, not {shown(candidate)}")
    name = identifier(candidate.get("id"))
    if name is None:
        raise _breach(f"candidates[{place}] must have an id, text or a number: {shown(candidate)}")
    return name


def _breach(message: str) -> RolloutEnvError:
    return RolloutEnvError(message, op="candidates", kind="protocol")
