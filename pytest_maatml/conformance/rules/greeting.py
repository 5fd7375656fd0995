"""Rules of what is asked before any episode: `hello` and `tasks`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_maatml.conformance.check import rule
from pytest_maatml.conformance.exchange import Broken, Inapplicable, same
from pytest_maatml.conformance.probe import accepted, all_tasks
from pytest_maatml.engine.candidates import identifier
from pytest_maatml.engine.protocol import PROTOCOL

if TYPE_CHECKING:
    from pytest_maatml.conformance.probe import Probe


@rule(unit="fields")
def hello(probe: Probe) -> None:
    """Every episode records who the environment was, and the driver goes by what it says it can."""
    came = accepted(probe.open().ask("hello"), "hello to be answered")
    if came.get("protocol") != PROTOCOL:
        raise Broken(f"protocol {PROTOCOL!r}", came)
    if not isinstance(came.get("name"), str) or not came.get("name"):
        raise Broken("name: text that is not empty", came)
    if identifier(came.get("version")) in (None, ""):
        raise Broken("version: text that is not empty, or a number", came)
    capabilities = came.get("capabilities")
    if capabilities is not None and not _are_texts(capabilities):
        raise Broken("capabilities: a list of text, of which 'label' and 'tasks' are known", came)
    probe.compared += 4


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


@rule(unit="tasks", needs="tasks")
def tasks_are_equal(probe: Probe) -> None:
    """Equal queries give equal tasks, or two policies would not be measured on the same ones."""
    query = probe.subject.tasks
    if isinstance(query, list):
        raise Inapplicable("the tasks were given as an array, so that no query is asked")
    instance = probe.open()
    tasks = all_tasks(probe.subject, instance)
    first = instance.ask("tasks", query=query)
    others = [instance.ask("tasks", query=query)]
    others.append(probe.open().ask("tasks", query=query))
    for other in others:
        if not same([tasks, first.reply], [other.get("tasks"), other.reply]):
            raise Broken("equal tasks for equal queries, under any instance", first, other)
        probe.compared += len(tasks)


@rule(unit="tasks")
def tasks_have_ids(probe: Probe) -> None:
    """Episodes are found again by their task's id, and items are made of the families."""
    instance = probe.open()
    seen: dict[str, int] = {}
    for place, task in enumerate(all_tasks(probe.subject, instance)):
        where = f"tasks[{place}]"
        if not isinstance(task, dict):
            raise Broken(f"{where} to be an object, not {task!r:.200}")
        name = identifier(task.get("id"))
        if not name:
            raise Broken(f"{where} to have an id, text or a number: {task!r:.200}")
        if name in seen:
            raise Broken(
                f"an id of its own for each task; tasks[{seen[name]}] and {where} are both {name!r}"
            )
        if task.get("family") is not None and not isinstance(task["family"], str):
            raise Broken(f"the family of {where} to be text: {task!r:.200}")
        seen[name] = place
        probe.compared += 1
