"""Rules of what a state shows: observations, candidates, labels."""

from __future__ import annotations

from itertools import pairwise
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from pytest_maatml.conformance.check import rule
from pytest_maatml.conformance.exchange import Broken, Exchange, shown
from pytest_maatml.conformance.play import label_ids, masked_ids, play, valid_ids
from pytest_maatml.conformance.probe import accepted
from pytest_maatml.engine.candidates import read_candidates
from pytest_maatml.engine.encoding import snapshot
from pytest_maatml.errors import RolloutEnvError

if TYPE_CHECKING:
    from pytest_maatml.conformance.probe import Probe

#: Bytes of one observation, and of one state's candidates, that are worth a warning: each
#: decision is recorded with both.
_ENORMOUS: Final = 256 * 1024


@rule(unit="resets")
def reset_gives_an_object(probe: Probe) -> None:
    """An observation is a JSON object: it is what the policy is given."""
    instance = probe.open()
    for place, task in enumerate(probe.tasks(instance)):
        came = accepted(
            probe.reset(instance, f"check-{place}", task), "a reset of each task to be answered"
        )
        if not isinstance(came.get("observation"), dict):
            raise Broken("observation: an object", came)
        instance.ask("close", episode=f"check-{place}")
        probe.compared += 1


@rule(unit="lists of candidates")
def candidates_are_unique(probe: Probe) -> None:
    """A choice is recorded by its id, so no two candidates of a state may have the same."""
    instance = probe.open()
    empty = 0
    for _, how in probe.plays(probe.tasks(instance)):
        for came in play(instance, how).of("candidates"):
            _check_candidates(accepted(came, "candidates of an episode that goes on"))
            empty += came.get("candidates") == []
            probe.compared += 1
    if empty:
        probe.note(f"an empty list of candidates ended {empty} episodes, as it may")


def _check_candidates(came: Exchange) -> None:
    listed = came.get("candidates")
    if not isinstance(listed, list):
        raise Broken("candidates: a list", came)
    # What is not JSON in them is another rule's matter, so only what is read is looked at.
    plain = [
        {key: candidate[key] for key in ("id", "valid") if key in candidate}
        if isinstance(candidate, dict)
        else candidate
        for candidate in listed
    ]
    try:
        read_candidates(plain)
    except RolloutEnvError as error:
        raise Broken(f"objects with an id each, no two alike; {error}", came) from None


@rule(unit="steps")
def steps_have_a_result(probe: Probe) -> None:
    """A step says what is seen now, whether it had an effect, and whether the episode ended."""
    instance = probe.open()
    for _, how in probe.plays(probe.tasks(instance)):
        trace = play(instance, how)
        if trace.ended in ("no_candidates", "no_valid_candidate") and not trace.actions:
            probe.compared += 1  # it ended at reset, correctly
        for came in trace.of("step"):
            _check_step(accepted(came, "a step with a valid candidate to be answered"))
            probe.compared += 1


def _check_step(came: Exchange) -> None:
    if not isinstance(came.get("observation"), dict):
        raise Broken("observation: an object", came)
    if not isinstance(came.get("applied"), bool):
        raise Broken("applied: true or false", came)
    if came.get("terminal") is not None and not isinstance(came.get("terminal"), str):
        raise Broken("terminal: null, or text at the end of the episode", came)
    check_reward(came)


def check_reward(came: Exchange) -> None:
    """Raises Broken for a reward that is there and no finite number."""
    reward = came.get("reward")
    number = isinstance(reward, int | float) and not isinstance(reward, bool)
    if reward is not None and not (number and isfinite(reward)):
        raise Broken("reward: a finite number", came)


@rule(unit="labels", needs="label")
def labels_are_valid(probe: Probe) -> None:
    """A teacher's ids are what the policy learns to choose: it must be able to choose them."""
    instance = probe.open()
    without: dict[str, int] = {}
    for _, how in probe.plays(probe.tasks(instance), label=True):
        exchanges = play(instance, how).of("candidates", "label")
        for looked, labelled in pairwise(exchanges):
            if labelled.op != "label":
                continue
            reason = _check_label(looked, accepted(labelled, "label to be answered at each state"))
            if reason is None:
                probe.compared += 1
            else:
                without[reason] = without.get(reason, 0) + 1
    for reason, states in without.items():
        probe.note(f"no label at {states} states, for the reason {reason}")


def _check_label(looked: Exchange, labelled: Exchange) -> str | None:
    """The reason where there is no label. Raises Broken."""
    ids, reason = labelled.get("valid_ids"), labelled.get("reason")
    if ids is None:
        if reason is not None and not isinstance(reason, str):
            raise Broken("reason: text, where valid_ids is null", labelled)
        return reason or "(none given)"
    if not isinstance(ids, list) or len(label_ids(labelled)) != len(ids):
        raise Broken("valid_ids: a list of ids, or null with a reason", labelled)
    for name in label_ids(labelled):
        if name not in valid_ids(looked):
            state = "is masked" if name in masked_ids(looked) else "is not among the candidates"
            raise Broken(f"ids of valid candidates; {name!r} {state}", looked, labelled)
    return None


@rule(unit="values")
def values_are_json(probe: Probe) -> None:
    """What is not JSON cannot be recorded, and would be another thing over another carrier."""
    instance = probe.open()
    largest: dict[str, int] = {}
    tasks = probe.tasks(instance)
    for task in tasks:
        _size("task", task)
    for _, how in probe.plays(tasks):
        for came in play(instance, how).exchanges:
            for name in ("observation", "candidates", "detail"):
                if came.get(name) is not None:
                    size = _size(name, came.get(name), came)
                    largest[name] = max(size, largest.get(name, 0))
                    probe.compared += 1
    for name, size in largest.items():
        if size > _ENORMOUS:
            probe.warn(f"the largest {name} has {size:,} bytes, and each decision records one")


def _size(name: str, value: Any, *came: Exchange) -> int:
    try:
        return len(snapshot(value, name))
    except RolloutEnvError as error:
        sources = came or (Exchange(f"(the task {shown(value)})", None),)
        raise Broken(f"values that JSON has, and text in Unicode; {error}", *sources) from None
