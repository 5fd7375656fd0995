"""A policy's scores, and the choice that follows from them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from math import exp, isfinite, log
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

import orjson

from pytest_maatml.engine.candidates import read_candidates
from pytest_maatml.engine.encoding import shown
from pytest_maatml.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_maatml.engine.candidates import CandidateSet
    from pytest_maatml.engine.protocol import JSONObject


#: Scores in the choices that are remembered with one set of candidates.
_REMEMBERED: Final = 256
_are_floats: Final = frozenset({float}).issuperset
#: What can be walked through, but gives keys, or no order: its numbers would be taken for scores.
_NO_ROW: Final = (dict, set, frozenset)


@runtime_checkable
class Policy(Protocol):
    """Scores candidates: one finite number each, higher is better.

    The interface has no memory, and what it is given may be the environment's own: it is read, and
    not changed. Optional, each found by its presence: `score_batch(observations,
    candidates) -> list[list[float]]` for many episodes at once, and `start_episode(episode_id,
    task) -> policy` for a policy that remembers: what it returns scores that episode only.
    """

    def score(
        self, observation: JSONObject, candidates: Sequence[JSONObject]
    ) -> Sequence[float]: ...


@dataclass(slots=True)
class Choice:
    """What the policy would do, how sure it is, and what a record says of it."""

    chosen: str
    #: Whether the first choice was valid before masking.
    top_valid: bool
    #: The natural logarithm of softmax(scores) over all candidates, as JSON.
    logp: bytes
    #: What a decision's record says between the candidates and `teacher_valid`, as JSON.
    act: bytes

    def act_of_teacher(self, taken: str) -> bytes:
        """The same where the teacher acts and takes `taken`."""
        return _act(taken, b"teacher", self.chosen, self.top_valid, self.logp)


_ACT: Final = (
    b',"chosen":%b,"actor":"%b","policy_choice":%b,"logp":%b,"top_valid":%b,"teacher_valid":'
)


def _act(taken: str, actor: bytes, choice: str, top_valid: bool, logp: bytes) -> bytes:
    valid = b"true" if top_valid else b"false"
    return _ACT % (orjson.dumps(taken), actor, orjson.dumps(choice), logp, valid)


def row_of(scores: Any) -> Any:
    """What a policy gave, computed where it is lazy, so that what it raises is the policy's.

    What is no row comes back as it is, for `choose` to refuse.
    """
    if type(scores) is list or isinstance(scores, _NO_ROW):
        return scores
    try:
        walk = iter(scores)
    except TypeError:
        return scores
    return list(walk)


def choose(candidates: CandidateSet, scores: Any) -> Choice:
    """The highest-scoring candidate that is not masked; ties go to the smaller id.

    `candidates` has at least one that is not masked. Raises PolicyError for a wrong number of
    scores, scores that are not finite numbers, and log-probabilities that are not finite.

    A choice depends on the scores alone, and scripted and tabular policies give the same scores
    over and over, so choices are remembered with the set: by floats, to which other numbers of the
    same value are equal.
    """
    if type(scores) is not list and isinstance(scores, _NO_ROW):
        raise _not_a_row(scores, "what it holds has no place beside a candidate")
    try:
        key = tuple(scores)
        return candidates.choices.get(key) or _choose_anew(candidates, key)
    except TypeError:  # no row at all, or one whose numbers cannot be looked up, as 0-d arrays
        return _choose_anew(candidates, scores)


def _choose_anew(candidates: CandidateSet, scores: Any) -> Choice:
    try:
        values = tuple(scores)
        if not _are_floats(map(type, values)):
            values = tuple(map(_number, values))
    except (TypeError, ValueError, OverflowError) as error:
        raise _not_a_row(scores, error) from None
    choice = _choose(candidates, values)
    if (len(candidates.choices) + 1) * len(values) <= _REMEMBERED:
        candidates.choices[values] = choice
    return choice


def _not_a_row(scores: Any, reason: object) -> PolicyError:
    return PolicyError(f"score must return one number a candidate, not {shown(scores)} ({reason})")


def _wrong_number(scores: Sequence[float], candidates: CandidateSet) -> PolicyError:
    given, wanted = len(scores), len(candidates.ids)
    return PolicyError(
        f"{given} score{'s' * (given != 1)} for {wanted} candidate{'s' * (wanted != 1)}"
    )


def _number(score: Any) -> float:
    if isinstance(score, str | bytes):  # which float() would read
        raise TypeError(f"{type(score).__name__} is not a number")
    return float(score)


def _choose(candidates: CandidateSet, values: Sequence[float]) -> Choice:
    if len(values) != len(candidates.ids):
        raise _wrong_number(values, candidates)
    top = max(candidates.by_id, key=values.__getitem__)  # max keeps the first of equals
    chosen = top
    if not candidates.valid[top]:
        chosen = max(candidates.valid_by_id, key=values.__getitem__)
    logp = orjson.dumps(_log_softmax(values, values[top], candidates))
    name, top_valid = candidates.ids[chosen], candidates.valid[top]
    return Choice(name, top_valid, logp, _act(name, b"policy", name, top_valid, logp))


def _log_softmax(values: Sequence[float], top: float, candidates: CandidateSet) -> list[float]:
    """Natural logarithms of softmax(values), shifted by the maximum so that exp cannot overflow."""
    total = 0.0
    try:
        for value in values:
            total += exp(value - top)
        shift = log(total)
    except (ValueError, OverflowError):  # scores that are not numbers; the next lines say which
        shift = math.nan
    logp = [value - top - shift for value in values]
    if not isfinite(sum(logp)):
        _refuse_scores(values, logp, candidates)
    return logp


def _refuse_scores(values: Sequence[float], logp: list[float], candidates: CandidateSet) -> None:
    for name, value in zip(candidates.ids, values, strict=True):
        if not isfinite(value):
            raise PolicyError(f"the score of candidate {name!r} is {value}, not a finite number")
    for name, value in zip(candidates.ids, logp, strict=True):
        if not isfinite(value):
            raise PolicyError(
                f"the scores lie so far apart ({min(values)} to {max(values)}) that the "
                f"log-probability of candidate {name!r} is not finite"
            )


def select(candidates: Sequence[JSONObject], scores: Sequence[float]) -> str | None:
    """The id of the highest-scoring candidate that is not masked, or None if all are.

    Ties go to the smaller id. Raises PolicyError for a wrong number of scores or one that is not
    finite, RolloutEnvError for candidates that break the protocol.
    """
    known = read_candidates(list(candidates))
    if len(scores) != len(known.ids):
        raise _wrong_number(scores, known)
    values = list(map(float, scores))
    if not all(map(isfinite, values)):
        _refuse_scores(values, values, known)
    if not known.valid_by_id:
        return None
    return known.ids[max(known.valid_by_id, key=values.__getitem__)]
