"""Format plugins: what an episode teaches, as rows that a model can be trained on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

from pytest_maatml.engine.candidates import identifier
from pytest_maatml.engine.record import Episode, EpisodeError
from pytest_maatml.errors import ConfigurationError, MaatmlError, describe
from pytest_maatml.records.episodes import RecordError, check_episode
from pytest_maatml.records.splits import TRAIN, RowError, group_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from pytest_maatml.engine.protocol import JSONObject

__all__ = [
    "EpisodeFormat",
    "LabelledDecision",
    "RowError",
    "as_format",
    "group_of",
    "labelled_decisions",
]

AnyEpisode: TypeAlias = "Episode | EpisodeError | Mapping[str, Any]"

_ERROR_KEYS: Final = frozenset({"episode_id", "op", "message"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledDecision:
    """A state of an episode, and all that the teacher accepts there."""

    #: Its place among the decisions of the episode, from 0.
    index: int
    observation: JSONObject
    candidates: list[JSONObject]
    #: The teacher's whole valid set, in its order; never empty.
    valid_ids: tuple[str, ...]
    #: What was done, and who did it: `policy` or `teacher`.
    chosen: str
    actor: str
    #: Who acted on the decision before, and so led here; `policy` for the first state.
    reached_by: str

    def target(self) -> list[float]:
        """A probability a candidate: the same for each that the teacher accepts, else 0."""
        share = 1 / len(set(self.valid_ids))
        accepted = {*self.valid_ids}
        return [
            share if identifier(candidate.get("id")) in accepted else 0.0
            for candidate in self.candidates
        ]

    def weight(self, *, policy: float = 1.0, teacher: float = 1.0) -> float:
        """The weight of a state that the policy, or the teacher, led to."""
        return teacher if self.reached_by == "teacher" else policy


def labelled_decisions(episode: Mapping[str, Any]) -> Iterator[LabelledDecision]:
    """Yield each decision on which the teacher accepts something, in order.

    Those on which the teacher acted are among them, and those where the policy's first choice was
    masked. Raises RowError for a teacher's id that is none of the candidates.
    """
    reached_by = "policy"
    for index, decision in enumerate(episode["decisions"]):
        valid_ids = tuple(decision["teacher_valid"] or ())
        if valid_ids:
            known = {identifier(candidate.get("id")) for candidate in decision["candidates"]}
            if strange := [name for name in valid_ids if name not in known]:
                raise RowError(
                    f"episode {episode['episode_id']}, decision {index}: the teacher accepts "
                    f"{strange[0]!r}, which is none of the candidates; the record is damaged"
                )
            yield LabelledDecision(
                index=index,
                observation=decision["observation"],
                candidates=decision["candidates"],
                valid_ids=valid_ids,
                chosen=decision["chosen"],
                actor=decision["actor"],
                reached_by=reached_by,
            )
        reached_by = decision["actor"]


class EpisodeFormat(ABC):
    """A format plugin: a subclass says what a row is, `convert` what may become one."""

    #: Whether an episode without a single label is refused.
    needs_labels: ClassVar[bool] = True
    #: The fields of a task that make its start state: see `group_of`.
    group_fields: ClassVar[Collection[str] | None] = None

    @abstractmethod
    def rows(self, episode: JSONObject) -> Iterable[JSONObject]:
        """The rows of one episode, at most one a decision.

        Each says in `decision` which one it is of. `labelled_decisions` is the way to them.
        """

    def convert(
        self, episodes: Iterable[AnyEpisode], *, split: str = TRAIN
    ) -> Iterator[JSONObject]:
        """Yield the rows of `episodes`, stamped with where they come from.

        A row gets `sample_id` (`<episode_id>:<decision>`), `group` (`group_of` its task), `split`
        and `episode_id`; `family`, `source`, `round` and `policy_version` where the format gives
        none of its own.

        Raises RowError, with the episode and the reason, for an episode whose task does not carry
        `split`, that errored, that has no label though `needs_labels`, or that is of another kind
        than we know; and for rows that are not one a decision.
        """
        for episode in episodes:
            where = f"episode {_episode_id(episode)}"
            record = _whole(episode, where)
            _check_split(record["task"], split, where)
            if self.needs_labels:
                _check_labels(record["decisions"], where)
            yield from self._stamped(record, split, where)

    def _stamped(self, record: JSONObject, split: str, where: str) -> Iterator[JSONObject]:
        provenance = {
            "family": record["task_family"],
            **{name: record.get(name) for name in ("source", "round", "policy_version")},
        }
        identity = {
            "group": group_of(record["task"], fields=self.group_fields),
            "split": split,
            "episode_id": record["episode_id"],
        }
        seen: set[int] = set()
        for row in self._made(record, where):
            place = _decision_of(row, len(record["decisions"]), where)
            if place in seen:
                raise RowError(f"{where}: two rows of decision {place}; a decision is one row")
            seen.add(place)
            own = {"sample_id": f"{record['episode_id']}:{place}", **identity}
            if taken := [name for name in own if row.get(name, own[name]) != own[name]]:
                raise RowError(
                    f"{where}, decision {place}: the row has a field {taken[0]!r} of its own, "
                    "which says where a row comes from; give it another name"
                )
            yield {**own, **provenance, **row}

    def _made(self, record: JSONObject, where: str) -> Iterator[JSONObject]:
        try:
            yield from self.rows(record)
        except MaatmlError:
            raise
        except Exception as error:
            raise RowError(f"{where}: the format failed: {describe(error)}") from error


class _FunctionFormat(EpisodeFormat):
    def __init__(self, function: Callable[[JSONObject], Iterable[JSONObject]]) -> None:
        self._function = function

    def rows(self, episode: JSONObject) -> Iterable[JSONObject]:
        return self._function(episode)


def as_format(target: Any, *, name: str) -> EpisodeFormat:
    """The format that was registered by `name` as `target`.

    That is a subclass of EpisodeFormat, an object of one, or a function from an episode to its
    rows, to which the same rules apply. Raises ConfigurationError for anything else.
    """
    if isinstance(target, EpisodeFormat):
        return target
    if isinstance(target, type) and issubclass(target, EpisodeFormat):
        return target()
    if callable(target) and not isinstance(target, type):
        return _FunctionFormat(target)
    raise ConfigurationError(
        f"the format {name!r} is {target!r}; register a subclass of EpisodeFormat, or a function "
        "from an episode to its rows"
    )


def _episode_id(episode: AnyEpisode) -> str:
    if isinstance(episode, Episode | EpisodeError):
        return episode.episode_id
    return str(episode.get("episode_id")) if isinstance(episode, Mapping) else repr(episode)[:80]


def _whole(episode: AnyEpisode, where: str) -> JSONObject:
    """The record of an episode that ran to a verdict, checked."""
    record = episode.as_dict() if isinstance(episode, Episode | EpisodeError) else episode
    if isinstance(record, Mapping) and record.keys() >= _ERROR_KEYS and "outcome" not in record:
        raise RowError(f"{where} errored, so nothing is to be learned: {record['message']}")
    try:
        return check_episode(record, where)
    except RecordError as error:
        raise RowError(str(error)) from None


def _check_split(task: Any, split: str, where: str) -> None:
    found = task.get("split") if isinstance(task, Mapping) else None
    if found is None:
        raise RowError(
            f"{where}: its task carries no `split`, so nothing says that it may be trained on; "
            f"collect from tasks on which the environment stamps split {split!r}"
        )
    if found != split:
        raise RowError(
            f"{where}: its task is of split {found!r}, and {split!r} was asked for; what is held "
            "out must not become rows, so leave the episode out"
        )


def _check_labels(decisions: list[JSONObject], where: str) -> None:
    if decisions and all(decision["teacher_valid"] is None for decision in decisions):
        raise RowError(f"{where} has no labels; collect with --label")


def _decision_of(row: Any, decisions: int, where: str) -> int:
    if not isinstance(row, dict):
        raise RowError(f"{where}: a row must be an object, not {row!r:.80}")
    place = row.get("decision")
    if isinstance(place, bool) or not isinstance(place, int) or not 0 <= place < decisions:
        raise RowError(
            f"{where}: `decision` of a row must be the number of one of the {decisions} decisions, "
            f"from 0, not {place!r}; a LabelledDecision has it as `index`"
        )
    return place
