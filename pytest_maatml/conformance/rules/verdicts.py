"""Rules of how an episode ends, and of the verdict on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_maatml.conformance.check import rule
from pytest_maatml.conformance.exchange import Broken, Exchange, same
from pytest_maatml.conformance.play import differences, label_ids, listed_candidates, play, teacher
from pytest_maatml.conformance.probe import accepted, capabilities
from pytest_maatml.conformance.rules.states import check_reward

if TYPE_CHECKING:
    from pytest_maatml.conformance.instance import Instance
    from pytest_maatml.conformance.probe import Probe
    from pytest_maatml.engine.protocol import JSONObject


@rule(unit="episodes")
def episodes_end(probe: Probe) -> None:
    """Under random, first-valid and last-valid play each episode ends within the limit.

    The limit (`--maatml-max-decisions`, `--max-decisions`) cuts what does not end by itself, and
    a policy that goes in circles would be judged by where it was cut.
    """
    instance = probe.open()
    longest = 0
    for name, how in probe.plays(probe.tasks(instance)):
        trace = play(instance, how)
        if trace.ended == "limit":
            raise Broken(
                f"each episode to end within {how.limit} decisions; under {name} play the one of "
                f"task {how.task.get('id')!r} did not (raise the limit if it takes more)",
                trace.of("step")[-1],
            )
        longest = max(longest, len(trace.actions))
        probe.compared += 1
    limit = probe.subject.max_decisions
    probe.note(f"the longest episode had {longest} decisions; the limit is {limit}")


@rule(unit="tasks that the teacher labels to the end", needs="label")
def teacher_succeeds(probe: Probe) -> None:
    """Acting alone, a teacher that labels every state on its way reaches verified success.

    Where it cannot, it says so: `valid_ids` null with a reason, and the task does not count here.
    """
    instance = probe.open()
    failed: list[tuple[JSONObject, Exchange]] = []
    tasks = probe.tasks(instance)
    for place, task in enumerate(tasks):
        trace = play(instance, probe.plan(f"check-{place}", task, teacher, label=True))
        if trace.ended in ("terminal", "limit", "no_candidates"):
            probe.compared += 1
            if trace.actions and not trace.success:
                failed.append((task, trace.of("verify")[-1]))
    succeeded = probe.compared - len(failed)
    probe.note(
        f"the teacher succeeded on {succeeded} of {probe.compared} tasks that it labels, of "
        f"{len(tasks)} that it was given"
    )
    if failed:
        task, verdict = failed[0]
        raise Broken(
            f"success on every task that the teacher labels to the end; on {task.get('id')!r} it "
            f"had none (where it sees none to be had, valid_ids is null, with a reason)",
            verdict,
        )


@rule(unit="verdicts")
def verify_is_true_or_false(probe: Probe) -> None:
    """A verdict is true or false: what is neither would be counted as one of them."""
    instance = probe.open()
    for _, how in probe.plays(probe.tasks(instance)):
        for came in play(instance, how).of("verify"):
            accepted(came, "verify of an episode that has ended to be answered")
            if not isinstance(came.get("success"), bool):
                raise Broken("success: true or false", came)
            if not isinstance(came.get("status") or "", str):
                raise Broken("status: text", came)
            if not isinstance(came.get("detail") or {}, dict):
                raise Broken("detail: an object", came)
            check_reward(came)
            probe.compared += 1


@rule(unit="first states")
def verify_is_false_before_any_step(probe: Probe) -> None:
    """A task that is solved before anything was done measures nothing.

    One that needs no step lists no candidates at reset, or its teacher has nothing to label.
    """
    instance = probe.open()
    solved = 0
    for place, task in enumerate(probe.tasks(instance)):
        episode = f"check-{place}"
        reset = probe.reset(instance, episode, task)
        came = accepted(instance.ask("verify", episode=episode), "verify before any step")
        if came.get("success"):
            need = _need_of_a_step(probe, instance, episode, task)
            if need is not None:
                raise Broken(
                    "success: false before any step of a task that needs one", reset, came, need
                )
            solved += 1
        instance.ask("close", episode=episode)
        probe.compared += 1
    if solved:
        probe.note(f"{solved} tasks are solved at reset: a policy that does nothing succeeds there")


def _need_of_a_step(
    probe: Probe, instance: Instance, episode: str, task: JSONObject
) -> Exchange | None:
    """What shows that the task is not solved yet: a teacher's step, or an episode that fails."""
    looked = instance.ask("candidates", episode=episode)
    if not listed_candidates(looked):
        return None
    if "label" in capabilities(instance):
        labelled = instance.ask("label", episode=episode)
        return labelled if label_ids(labelled) else None
    for _, how in probe.plays([task], prefix="need"):
        trace = play(instance, how)
        if not trace.success:
            return trace.of("verify")[-1]
    return None


@rule(unit="verdicts")
def verify_changes_nothing(probe: Probe) -> None:
    """Asking for the verdict is no step: twice gives the same, and the episode goes on."""
    instance = probe.open()
    tasks = probe.tasks(instance)
    plays = zip(
        probe.plays(tasks, prefix="plain"),
        probe.plays(tasks, prefix="verified", verify_often=True),
        strict=True,
    )
    for (_, plain), (_, often) in plays:
        alone, asked = play(instance, plain), play(instance, often)
        verdicts = asked.of("verify")
        for one, other in zip(verdicts[::2], verdicts[1::2], strict=True):
            if not same(one.reply, other.reply):
                raise Broken("the same verdict when it is asked for twice", one, other)
            probe.compared += 2
        asked.exchanges = [*asked.of("reset", "candidates", "step"), *asked.of("verify")[-1:]]
        for before, now in differences(alone, asked):
            raise Broken("an episode that goes on as it would without verify", before, now)
