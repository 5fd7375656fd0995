"""Corridors that look odd, and are right."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Final

from pytest_maatml.rollout import Hello, Labels, StepResult

from .corridor import Corridor, Walk


class OneCandidate(Corridor):
    moves: ClassVar[dict[str, int]] = {"forward": 1}


class ThousandsOfCandidates(Corridor):
    moves: ClassVar[dict[str, int]] = Corridor.moves | {f"look-{n}": 0 for n in range(2000)}


class ChangingCandidates(Corridor):
    """The number of the step is in each id."""

    def candidate(self, walk: Walk, name: str) -> dict[str, Any]:
        return super().candidate(walk, name) | {"id": f"{walk.steps}:{name}"}

    def label(self, episode: str) -> Labels:
        return Labels((f"{self.walk(episode).steps}:forward",))

    def step(self, episode: str, candidate_id: str) -> StepResult:
        steps, _, name = candidate_id.partition(":")
        return super().step(episode, name if steps == str(self.walk(episode).steps) else "?")


class UnicodeIds(Corridor):
    forward = 'vorwärts 前へ 🚶 "\\\n'
    moves: ClassVar[dict[str, int]] = {"zurück\u202e": -1, forward: 1, "": 0}

    def label(self, episode: str) -> Labels:
        self.walk(episode)
        return Labels((self.forward,))


class NumbersForIds(Corridor):
    def candidate(self, walk: Walk, name: str) -> dict[str, Any]:
        return super().candidate(walk, name) | {"id": list(self.moves).index(name)}

    def label(self, episode: str) -> Labels:
        self.walk(episode)
        number: Any = 1
        return Labels((number,))

    def step(self, episode: str, candidate_id: str) -> StepResult:
        names = dict(zip("012", self.moves, strict=True))
        return super().step(episode, names.get(candidate_id, "?"))


class EndsAtReset(Corridor):
    """Without a teacher: there is nothing to do."""

    def hello(self) -> Hello:
        return Hello("corridor", "1", capabilities=("tasks",))

    def reset(self, episode: str, task: dict[str, Any], options: dict[str, Any]) -> Any:
        first = super().reset(episode, task, options)
        self.walks[episode].terminal = "success"
        return first


class SomeEndAtReset(Corridor):
    def reset(self, episode: str, task: dict[str, Any], options: dict[str, Any]) -> Any:
        first = super().reset(episode, task, options)
        if task["length"] == 1:
            self.walks[episode].terminal = "cut off"
        return first


class EndsWithoutCandidates(Corridor):
    """Never says that it has ended; there is nothing left to choose."""

    def step(self, episode: str, candidate_id: str) -> StepResult:
        return replace(super().step(episode, candidate_id), terminal=None)


class NoTeacher(Corridor):
    def hello(self) -> Hello:
        return Hello("corridor", "1", capabilities=("tasks",))

    def label(self, episode: str) -> Labels:
        raise NotImplementedError


class TeacherGivesUp(Corridor):
    """Sees no way on where the budget does not reach."""

    def label(self, episode: str) -> Labels:
        walk = self.walk(episode)
        reaches = walk.length - walk.at <= walk.budget - walk.steps
        return Labels(("forward",)) if reaches else Labels(None, "too late")


class RefusesMasked(Corridor):
    def step(self, episode: str, candidate_id: str) -> StepResult:
        result = super().step(episode, candidate_id)
        if not result.applied:
            raise ValueError(candidate_id)
        return result


class RefusesToCloseTwice(Corridor):
    def close(self, episode: str) -> None:
        self.walk(episode)
        super().close(episode)


class ChangesInPlace(Corridor):
    """Hands over the same object each time, and changes it later."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: dict[str, dict[str, Any]] = {}

    def seen(self, walk: Walk) -> Any:
        shown = self.shown.setdefault(walk.episode, {})
        shown.update(super().seen(walk))
        return shown

    def close(self, episode: str) -> None:
        self.shown.pop(episode, None)
        super().close(episode)


class NoTasksOfItsOwn(Corridor):
    def hello(self) -> Hello:
        return Hello("corridor", "1", capabilities=("label",))

    def tasks(self, query: dict[str, Any]) -> list[dict[str, Any]]:
        raise NotImplementedError


ODD: Final[tuple[type[Corridor], ...]] = (
    Corridor,
    OneCandidate,
    ThousandsOfCandidates,
    ChangingCandidates,
    UnicodeIds,
    NumbersForIds,
    EndsAtReset,
    SomeEndAtReset,
    EndsWithoutCandidates,
    NoTeacher,
    TeacherGivesUp,
    RefusesMasked,
    RefusesToCloseTwice,
    ChangesInPlace,
)
