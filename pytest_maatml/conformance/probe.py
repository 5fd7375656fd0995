"""What a rule is handed: the environment to ask, tasks to play, and a place for what it saw."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from pytest_maatml.conformance.exchange import Broken, Exchange
from pytest_maatml.conformance.play import Play, first_valid, last_valid, random_valid

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType
    from typing import Self

    from pytest_maatml.conformance.instance import Instance, ProgramInstance
    from pytest_maatml.conformance.play import Choice
    from pytest_maatml.conformance.subject import Subject
    from pytest_maatml.engine.protocol import JSONObject

#: Tasks that are played, taken from the families in turn.
SAMPLE: Final = 16


class Probe:
    """One rule's own view of the environment: what it opens is its own, and shut at the end."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.notes: list[str] = []
        self.warnings: list[str] = []
        self.compared = 0
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    def open(self) -> Instance:
        """A fresh instance, or a fresh process."""
        instance = self.subject.open()
        self._open.callback(instance.shut)
        return instance

    def start(self) -> ProgramInstance:
        """A fresh process, whatever the carrier."""
        instance = self.subject.start()
        self._open.callback(instance.shut)
        return instance

    def note(self, text: str) -> None:
        """Keep what is no fault and still worth knowing."""
        self.notes.append(text)

    def warn(self, text: str) -> None:
        """Keep what is no fault and will cost something."""
        self.warnings.append(text)

    def tasks(self, instance: Instance, most: int = SAMPLE) -> list[JSONObject]:
        """At most so many tasks, of all families in turn.

        Raises Broken where the environment gives none.
        """
        listed = all_tasks(self.subject, instance)
        families: dict[str, list[JSONObject]] = {}
        for task in listed:
            if isinstance(task, dict):
                families.setdefault(str(task.get("family")), []).append(task)
        in_turn = [
            tasks[place]
            for place in range(len(listed))
            for tasks in families.values()
            if place < len(tasks)
        ]
        return in_turn[:most]

    def plan(self, episode: str, task: JSONObject, choose: Choice, **how: Any) -> Play:
        """An episode of `task`, still to be played."""
        return Play(
            episode=episode,
            task=task,
            options=self.subject.options,
            limit=self.subject.max_decisions,
            choose=choose,
            **how,
        )

    def plays(
        self, tasks: Sequence[JSONObject], prefix: str = "check", **how: Any
    ) -> Iterator[tuple[str, Play]]:
        """Each task under random, first-valid and last-valid play, with the name of the play."""
        for place, task in enumerate(tasks):
            for name, choose in (
                ("random", random_valid(place)),
                ("first-valid", first_valid),
                ("last-valid", last_valid),
            ):
                yield name, self.plan(f"{prefix}-{name}-{place}", task, choose, **how)

    def reset(self, instance: Instance, episode: str, task: JSONObject) -> Exchange:
        return instance.ask("reset", episode=episode, task=task, options=self.subject.options)


def capabilities(instance: Instance) -> list[Any]:
    """What hello names as optional and there; nothing where it names nothing that can be read."""
    named = instance.ask("hello").get("capabilities")
    return named if isinstance(named, list) else []


def all_tasks(subject: Subject, instance: Instance) -> list[Any]:
    """The tasks that were given, else those that the environment makes of the query.

    Raises Broken where it makes none.
    """
    if isinstance(subject.tasks, list):
        return subject.tasks
    came = instance.ask("tasks", query=subject.tasks)
    listed = came.get("tasks")
    if not came.ok or not isinstance(listed, list) or not listed:
        raise Broken(
            "a list of tasks to examine the environment with; give it a query that it makes tasks "
            "of, or, where it makes none, an array of tasks",
            came,
        )
    return listed


def accepted(came: Exchange, wanted: str) -> Exchange:
    """What came, if it is no refusal. Raises Broken."""
    if not came.ok:
        raise Broken(wanted, came)
    return came
