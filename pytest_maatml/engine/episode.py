"""One episode, from reset to verdict, as a generator that yields requests and is sent answers.

Every rule of a rollout stands here, once. There is no I/O: who answers a request, and when, is the
driver's business, so the same lines run in process, over a pipe with many episodes in flight, and
with the scores of all waiting episodes computed in one call.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, TypeAlias

import orjson

from pytest_maatml.engine.candidates import CandidateReader, CandidateSet, identifier
from pytest_maatml.engine.draws import draw
from pytest_maatml.engine.encoding import encode, shown, snapshot
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
    from pytest_maatml.engine.protocol import JSONObject, Labels, StepResult, Verification

EpisodeGenerator: TypeAlias = "Generator[Request, Any, Episode]"


@dataclass(slots=True)
class _Trace:
    """The decisions so far, each as JSON, and the id that was stepped last."""

    decisions: list[bytes] = field(default_factory=list)
    last_action: str | None = None


def run_episode(
    plan: RolloutPlan, config: RolloutConfig, provenance: Provenance, reader: CandidateReader
) -> EpisodeGenerator:
    """The episode of `plan`. A fault is thrown in where it happened, and comes out again.

    `close` is always asked for: with the verdict, or after a fault. The fault that comes out
    carries the number of the decision.
    """
    trace = _Trace()
    closed = False
    try:
        task = encode(plan.task, "task", op="tasks", strict=True)
        truncated = yield from _decide(plan, config, reader, trace)
        verdict = yield Verify(plan.episode_id)
        closed = True
        outcome = _outcome(verdict, len(trace.decisions), truncated)
    except RolloutEnvError as fault:
        fault.decision = len(trace.decisions)
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
        decisions=len(trace.decisions),
        last_action=trace.last_action,
        line=encode_record(plan, provenance, task, trace.decisions, outcome),
    )


def _decide(
    plan: RolloutPlan,
    config: RolloutConfig,
    reader: CandidateReader,
    trace: _Trace,
) -> Generator[Request, Any, str | None]:
    """Fill `trace` until the environment ends the episode; return why it was cut, or None."""
    episode_id = plan.episode_id
    observation: JSONObject = yield Reset(episode_id, plan.task, dict(config.options))
    if not isinstance(observation, dict):
        raise _breach("reset", f"the observation must be an object, not {shown(observation)}")
    seen = encode(observation, "observation", op="reset", strict=True)
    look, score, step = Look(episode_id, config.label), Score(observation, []), Step(episode_id, "")
    for number in range(config.max_decisions):
        listed, labels = yield look
        candidates = reader.read(listed)
        if not candidates.ids:
            return "no_candidates"
        accepted = _accepted(labels, candidates) if config.label else None
        if config.label and accepted is None and config.stop_unlabelled:
            return f"unlabelled:{_reason(labels)}"
        if not candidates.valid_by_id:
            return "no_valid_candidate"
        score.observation, score.candidates = observation, listed
        choice = choose(candidates, (yield score))
        chosen, act = choice.chosen, choice.act
        if accepted and draw(config.seed, episode_id, number) < config.teacher_mix:
            chosen = accepted[0]
            act = choice.act_of_teacher(chosen)
        step.candidate = chosen
        observation, applied, terminal, reward = _checked((yield step))
        after = snapshot(observation, "observation", "step")
        trace.decisions.append(
            encode_decision(seen, candidates.encoded, act, accepted, applied, reward)
        )
        trace.last_action = chosen
        if terminal is not None:
            return None
        seen = after
    return "max_decisions"


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
    encode(reason, "reason", op="label")
    return reason


def _checked(result: StepResult) -> tuple[JSONObject, bool, str | None, float]:
    """Observation, applied, terminal and reward of a result, once each has the right shape."""
    try:
        observation, applied = result.observation, result.applied
        terminal, reward = result.terminal, result.reward
    except AttributeError:
        raise _breach("step", f"the answer must be a StepResult, not {shown(result)}") from None
    if applied is not True and applied is not False:
        raise _breach("step", f"applied must be true or false, not {shown(applied)}")
    if terminal is not None and not isinstance(terminal, str):
        raise _breach("step", f"terminal must be null or text, not {shown(terminal)}")
    if not isinstance(observation, dict):
        raise _breach("step", f"the observation must be an object, not {shown(observation)}")
    if reward.__class__ is not float or not isfinite(reward):
        reward = _reward(reward, "step")
    return observation, applied, terminal, reward


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
        "detail": orjson.Fragment(encode(detail, "detail", op="verify", strict=True)),
    }


def _breach(op: str, message: str) -> RolloutEnvError:
    return RolloutEnvError(message, op=op, kind="protocol")
