"""Rules of what an episode survives: masked and unknown candidates, unknown episodes, its end."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pytest_maatml.conformance.check import rule
from pytest_maatml.conformance.exchange import Broken, Exchange, Inapplicable, same
from pytest_maatml.conformance.play import (
    first_valid,
    listed_candidates,
    masked_ids,
    play,
    recorded,
    valid_ids,
)
from pytest_maatml.conformance.probe import accepted

if TYPE_CHECKING:
    from pytest_maatml.conformance.instance import Instance
    from pytest_maatml.conformance.play import Play, Trace
    from pytest_maatml.conformance.probe import Probe

#: A name that no environment will have given to anything.
_UNKNOWN: Final = "no-such-thing-7f3a"


@rule(unit="masked candidates that were stepped")
def masked_candidates_do_no_harm(probe: Probe) -> None:
    """A mask is advice to the policy: who steps it all the same neither ends the episode nor wins.

    Refusing the step and answering `"applied": false` are both fine.
    """
    instance = probe.open()
    for place, (_, how) in enumerate(probe.plays(probe.tasks(instance))):
        masks = _masks(play(instance, how))
        if masks:
            decision, names, actions = masks[place % len(masks)]
            again = replace(how, choose=recorded(actions[:decision]), close=False)
            play(instance, again)
            _step_masked(instance, how.episode, names[place % len(names)])
            instance.ask("close", episode=how.episode)
            probe.compared += 1
    if not probe.compared:
        raise Inapplicable(
            "no candidate was masked in any state, which is optional; it costs this rule alone"
        )


def _masks(trace: Trace) -> list[tuple[int, list[str], list[str]]]:
    """The decisions at which something was masked, what, and the actions that led on.

    The last one is left out if there is another: a step too many may end an episode by its limit.
    """
    states = [
        (decision, masked_ids(looked), trace.actions)
        for decision, looked in enumerate(trace.of("candidates"))
        if masked_ids(looked)
    ]
    return states[:-1] or states


def _step_masked(instance: Instance, episode: str, name: str) -> None:
    before = instance.ask("verify", episode=episode)
    stepped = instance.ask("step", episode=episode, id=name)
    if stepped.ok and stepped.get("terminal") is not None:
        raise Broken("a masked candidate to leave the episode alive: terminal null", stepped)
    after = instance.ask("verify", episode=episode)
    if after.get("success") and not before.get("success"):
        raise Broken("a masked candidate not to bring success", before, stepped, after)
    _goes_on(instance, episode, stepped)


def _goes_on(instance: Instance, episode: str, cause: Exchange) -> None:
    """Raises Broken where the episode does not take a step after `cause`."""
    looked = instance.ask("candidates", episode=episode)
    if not listed_candidates(looked):
        raise Broken("the episode to go on after it, with candidates", cause, looked)
    ids = valid_ids(looked)
    if ids:
        stepped = instance.ask("step", episode=episode, id=ids[0])
        accepted_after(cause, stepped)


def accepted_after(cause: Exchange, came: Exchange) -> None:
    """Raises Broken where what comes after `cause` is refused."""
    if not came.ok:
        raise Broken("everything to go on after it", cause, came)


@rule(unit="unknown candidates that were stepped")
def unknown_candidate_is_refused(probe: Probe) -> None:
    """A candidate that was not listed is refused, or not applied; the episode goes on."""
    instance = probe.open()
    for place, task in enumerate(probe.tasks(instance)):
        episode = f"check-{place}"
        probe.reset(instance, episode, task)
        looked = instance.ask("candidates", episode=episode)
        stepped = instance.ask("step", episode=episode, id=_UNKNOWN)
        if stepped.ok and (stepped.get("applied") or stepped.get("terminal") is not None):
            raise Broken(
                "a candidate that is not listed to be refused, or applied false and terminal null",
                stepped,
            )
        if listed_candidates(looked):
            _goes_on(instance, episode, stepped)
        instance.ask("close", episode=episode)
        probe.compared += 1


@rule(unit="requests for unknown episodes")
def unknown_episode_is_refused(probe: Probe) -> None:
    """An episode that was never reset has no state: an answer would be some other episode's."""
    instance = probe.open()
    (task,) = probe.tasks(instance, most=1)
    accepted(probe.reset(instance, "check-0", task), "a reset to be answered")
    ids = valid_ids(instance.ask("candidates", episode="check-0"))
    for op, fields in (
        ("candidates", {}),
        ("step", {"id": ids[0] if ids else _UNKNOWN}),
        ("verify", {}),
    ):
        came = instance.ask(op, episode=_UNKNOWN, **fields)
        if came.ok:
            raise Broken("a request for an episode that was never reset to be refused", came)
        accepted_after(came, instance.ask("candidates", episode="check-0"))
        probe.compared += 1


@rule(unit="steps after the end")
def step_after_the_end_is_refused(probe: Probe) -> None:
    """What has ended stays as it was: a late step is refused or not applied, the verdict stands."""
    instance = probe.open()
    for _, how in probe.plays(probe.tasks(instance), close=False):
        trace = play(instance, how)
        if trace.ended in ("terminal", "no_candidates"):
            _step_late(instance, how, trace)
            probe.compared += 1
        instance.ask("close", episode=how.episode)


def _step_late(instance: Instance, how: Play, trace: Trace) -> None:
    verdict = trace.of("verify")[-1]
    name = trace.actions[-1] if trace.actions else _UNKNOWN
    late = instance.ask("step", episode=how.episode, id=name)
    if late.ok and late.get("applied"):
        raise Broken(
            "a step after the end to be refused, or applied false", trace.exchanges[-2], late
        )
    after = instance.ask("verify", episode=how.episode)
    if bool(after.get("success")) is not trace.success:
        raise Broken("the verdict to stand after a step that came too late", verdict, late, after)


@rule(unit="closed episodes")
def close_frees(probe: Probe) -> None:
    """A long run would fill the memory else. Closing twice is harmless: a driver may be unsure.

    Closed means unknown: what is asked of it is refused, its name is free for another episode.
    """
    instance = probe.open()
    tasks = probe.tasks(instance)
    probe.reset(instance, "check-open", tasks[0])
    before = instance.ask("candidates", episode="check-open")
    for place, task in enumerate(tasks):
        episode = f"check-{place}"
        play(instance, probe.plan(episode, task, first_valid, close=False))
        closed = accepted(instance.ask("close", episode=episode), "close of an open episode")
        came = instance.ask("candidates", episode=episode)
        if came.ok:
            raise Broken("an episode that was closed to be unknown", closed, came)
        twice = instance.ask("close", episode=episode)
        accepted_after(twice, probe.reset(instance, episode, task))
        after = instance.ask("candidates", episode="check-open")
        if not same(before.reply, after.reply):
            raise Broken("other episodes to stay as they are", before, twice, after)
        instance.ask("close", episode=episode)
        probe.compared += 1
