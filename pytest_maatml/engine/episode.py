"""One episode, from reset to verdict, as a generator that yields requests and is sent answers.

Every rule of a rollout stands here, once. There is no I/O: who answers a request, and when, is the
driver's business, so the same lines run in process, over a pipe with many episodes in flight, and
with the scores of all waiting episodes computed in one call.
"""

from __future__ import annotations

from math import inf, isfinite
from typing import TYPE_CHECKING, Any, TypeAlias

import orjson

from pytest_maatml.engine.candidates import CandidateReader, CandidateSet, identifier
from pytest_maatml.engine.draws import draw
from pytest_maatml.engine.encoding import duplicate, encode, shown, snapshot
from pytest_maatml.engine.policy import choose
from pytest_maatml.engine.record import (
    Episode,
    Provenance,
    RolloutPlan,
    encode_decision,
    encode_record,
)
from pytest_maatml.engine.requests import Close, Look, Request, Reset, Score, Step, Verify
from pytest_maatml.errors import RolloutEnvError

if TYPE_CHECKING:
    from collections.abc import Generator

    from pytest_maatml.engine.config import RolloutConfig
    from pytest_maatml.engine.protocol import Labels, Verification
    from pytest_maatml.engine.scoring import Ask

EpisodeGenerator: TypeAlias = "Generator[Request, Any, Episode]"


def run_episode(
    plan: RolloutPlan,
    config: RolloutConfig,
    provenance: Provenance,
    reader: CandidateReader,
    ask: Ask | None = None,
) -> EpisodeGenerator:
    """The episode of `plan`. A fault is thrown in where it happened, and comes out again.

    `ask` is the policy, where there is nothing to gain by waiting; without it the scores are
    requested too, and whoever drives can have those of many episodes computed in one call.
    `close` is always asked for: with the verdict, or after a fault. The fault that comes out
    carries the number of the decision.
    """
    decisions: list[bytes] = []
    closed = False
    try:
        task = snapshot(plan.task, "task", "tasks")
        last_action, truncated = yield from _decide(plan, config, reader, ask, decisions)
        verdict = yield Verify(plan.episode_id)
        closed = True
        outcome = _outcome(verdict, len(decisions), truncated)
    except RolloutEnvError as fault:
        fault.decision = len(decisions)
        if not closed:
            yield Close(plan.episode_id)
        raise
    return Episode(
        index=plan.index,
        episode_id=plan.episode_id,
        task_id=plan.task_id,
        task_family=plan.task_family,
        success=outcome["success"],
        status=outcome["status"],
        truncated=truncated,
        decisions=len(decisions),
        last_action=last_action,
        line=encode_record(plan, provenance, task, decisions, outcome),
    )


def _decide(
    plan: RolloutPlan,
    config: RolloutConfig,
    reader: CandidateReader,
    ask: Ask | None,
    decisions: list[bytes],
) -> Generator[Request, Any, tuple[str | None, str | None]]:
    """Fill `decisions` until the episode ends; the last id stepped, and why it was cut, or None."""
    episode_id, label = plan.episode_id, config.label
    chosen = accepted = None
    observation = yield Reset(
        episode_id, plan.task, duplicate(config.options) if config.options else {}
    )
    if not isinstance(observation, dict):
        raise _breach("reset", f"the observation must be an object, not {shown(observation)}")
    seen = snapshot(observation, "observation", "reset")
    look, step = Look(episode_id, label), Step(episode_id, "")
    for number in range(config.max_decisions):
        listed, labels = yield look
        candidates = reader.read(listed)
        if not candidates.ids:
            return chosen, "no_candidates"
        if label:
            accepted = _accepted(labels, candidates)
            if accepted is None and config.stop_unlabelled:
                return chosen, f"unlabelled:{_reason(labels)}"
        if not candidates.valid_by_id:
            return chosen, "no_valid_candidate"
        if ask is None:
            scores = yield Score(observation, listed)
        else:
            scores = ask(observation, listed)
        choice = choose(candidates, scores)
        chosen, act = choice.chosen, choice.act
        if accepted and draw(config.seed, episode_id, number) < config.teacher_mix:
            chosen = accepted[0]
            act = choice.act_of_teacher(chosen)
        step.candidate = chosen
        observation, applied, terminal, reward = yield step
        if (
            type(observation) is not dict
            or type(applied) is not bool
            or (terminal is not None and type(terminal) is not str)
            or type(reward) is not float
            or not isfinite(reward)
        ):
            reward = _check_step(observation, applied, terminal, reward)
        after = snapshot(observation, "observation", "step")
        decisions.append(encode_decision(seen, candidates.encoded, act, accepted, applied, reward))
        if terminal is not None:
            return chosen, None
        seen = after
    return chosen, "max_decisions"


def _accepted(labels: Labels, candidates: CandidateSet) -> list[str] | None:
    """The teacher's ids as text, checked against the candidates; None if it has no label."""
    if not hasattr(labels, "valid_ids"):
        raise _breach("label", f"the answer must be Labels, not {shown(labels)}")
    if labels.valid_ids is None:
        return None
    if not isinstance(labels.valid_ids, list | tuple):
        raise _breach("label", f"valid_ids must be a list or null, not {shown(labels.valid_ids)}")
    accepted = []
    for value in labels.valid_ids:
        name = identifier(value)
        if name is None:
            raise _breach("label", f"valid_ids must hold ids, not {shown(value)}")
        if name not in candidates.valid_ids:
            state = "masked" if name in candidates.ids else "not among the candidates"
            raise _breach("label", f"the teacher's id {name!r} is {state}")
        accepted.append(name)
    return accepted


def _reason(labels: Labels) -> str:
    """Why the teacher has no label."""
    reason = getattr(labels, "reason", None) or "unknown"
    if not isinstance(reason, str):
        raise _breach("label", f"the reason must be text or null, not {shown(reason)}")
    encode(reason, "reason", "label")
    return str.__str__(reason)  # an enum's own str() would be its name


def _check_step(observation: Any, applied: Any, terminal: Any, reward: Any) -> float:
    """Raise for what no step may answer; the reward as a number."""
    if not isinstance(applied, bool):
        raise _breach("step", f"applied must be true or false, not {shown(applied)}")
    if terminal is not None and not isinstance(terminal, str):
        raise _breach("step", f"terminal must be null or text, not {shown(terminal)}")
    if not isinstance(observation, dict):
        raise _breach("step", f"the observation must be an object, not {shown(observation)}")
    return _reward(reward, "step")


def _reward(value: Any, op: str) -> float:
    if value is None:
        return 0.0
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            reward = float(value)
        except OverflowError:
            reward = inf
        if isfinite(reward):
            return reward
    raise _breach(op, f"reward must be a finite number, not {shown(value)}")


def _outcome(verdict: Verification, decisions: int, truncated: str | None) -> dict[str, Any]:
    try:
        success, status = verdict.success, verdict.status
        reward, detail = verdict.reward, verdict.detail
    except AttributeError:
        raise _breach(
            "verify", f"the answer must be a Verification, not {shown(verdict)}"
        ) from None
    if not isinstance(success, bool):
        raise _breach("verify", f"success must be true or false, not {shown(success)}")
    status = "" if status is None else status
    if not isinstance(status, str):
        raise _breach("verify", f"status must be text, not {shown(status)}")
    encode(status, "status", op="verify")
    detail = {} if detail is None else detail
    if not isinstance(detail, dict):
        raise _breach("verify", f"detail must be an object, not {shown(detail)}")
    return {
        "status": status,
        "success": success,
        "reward": _reward(reward, "verify"),
        "decisions": decisions,
        "truncated": truncated,
        "detail": orjson.Fragment(snapshot(detail, "detail", op="verify")),
    }


def _breach(op: str, message: str) -> RolloutEnvError:
    return RolloutEnvError(message, op=op, kind="protocol")
