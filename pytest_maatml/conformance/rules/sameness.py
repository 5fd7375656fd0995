"""Rules without which no number can be measured twice: the same comes of the same."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pytest_maatml.conformance.check import rule
from pytest_maatml.conformance.exchange import Broken, same_reply
from pytest_maatml.conformance.play import (
    differences,
    first_valid,
    interleave,
    play,
    random_valid,
    recorded,
)
from pytest_maatml.conformance.probe import accepted

if TYPE_CHECKING:
    from pytest_maatml.conformance.exchange import Exchange
    from pytest_maatml.conformance.play import Trace
    from pytest_maatml.conformance.probe import Probe

_IN_FLIGHT: Final = (2, 16)


@rule(unit="first observations")
def reset_is_repeatable(probe: Probe) -> None:
    """A task starts in the same state whoever ran before, or what is measured is the order.

    Under another episode's name, after other episodes, and under a second instance.
    """
    instance = probe.open()
    tasks = probe.tasks(instance)
    first: list[Exchange] = []
    for place, task in enumerate(tasks):
        first.append(accepted(probe.reset(instance, f"first-{place}", task), "a reset"))
        instance.ask("close", episode=f"first-{place}")
    for place, task in enumerate(tasks):
        other = tasks[(place + 1) % len(tasks)]
        play(instance, probe.plan(f"between-{place}", other, first_valid))
        _same_start(probe, first[place], probe.reset(instance, f"again-{place}", task))
        instance.ask("close", episode=f"again-{place}")
    if not probe.subject.over_stdio and not probe.subject.separate:
        probe.note("the environment was given as an object, so there was no second instance")
        return
    second = probe.open()
    for place, task in enumerate(tasks):
        _same_start(probe, first[place], probe.reset(second, f"second-{place}", task))


def _same_start(probe: Probe, before: Exchange, now: Exchange) -> None:
    if not same_reply(before, now):
        raise Broken("the same first observation of the same task", before, now)
    probe.compared += 1


@rule(unit="replies")
def interleaved_episodes_are_apart(probe: Probe) -> None:
    """Many episodes are in flight at once, and none may feel the others.

    2 and 16 of them, each in turn one request, give exactly what each gives alone.
    """
    instance = probe.open()
    tasks = probe.tasks(instance)
    for number in _IN_FLIGHT:
        chosen = [tasks[place % len(tasks)] for place in range(number)]
        plans = [
            probe.plan(f"alone-{number}-{place}", task, random_valid(place))
            for place, task in enumerate(chosen)
        ]
        alone = [play(instance, plan) for plan in plans]
        renamed = [
            replace(plan, episode=f"among-{number}-{place}") for place, plan in enumerate(plans)
        ]
        for one, other in zip(alone, interleave(instance, renamed), strict=True):
            _same_course(
                probe, one, other, f"with {number} episodes in flight what each gives alone"
            )


@rule(unit="replies")
def replay_is_equal(probe: Probe) -> None:
    """The recorded actions again give the same observations again, at every step."""
    instance = probe.open()
    observations = 0
    for _, how in probe.plays(probe.tasks(instance)):
        before = play(instance, how)
        now = play(instance, replace(how, choose=recorded(before.actions)))
        _same_course(probe, before, now, "a replay to give what the recorded actions gave")
        observations += len(before.of("step"))
    probe.note(f"compared {observations} observations of steps")


@rule(unit="replies")
def replay_in_a_fresh_process_is_equal(probe: Probe) -> None:
    """The same in another process, whose hashes, addresses and clock are others."""
    one, other = probe.start(), probe.start()
    observations = 0
    for _, how in probe.plays(probe.tasks(one)):
        before = play(one, how)
        now = play(other, replace(how, choose=recorded(before.actions)))
        _same_course(probe, before, now, "a replay in a fresh process to give what was recorded")
        observations += len(before.of("step"))
    probe.note(f"compared {observations} observations of steps")


def _same_course(probe: Probe, one: Trace, other: Trace, wanted: str) -> None:
    """First observations apart: they are `reset_is_repeatable`'s matter."""
    for before, now in differences(one, other):
        raise Broken(wanted, before, now)
    if one.actions != other.actions:
        raise Broken(wanted, one.exchanges[-2], other.exchanges[-2])
    probe.compared += sum(exchange.ok for exchange in one.of("candidates", "step", "verify"))
