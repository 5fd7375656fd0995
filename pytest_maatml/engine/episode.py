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
from pytest_maatml.engine.encoding import encode, snapshot
from pytest_maatml.engine.policy import choose
from pytest_maatml.engine.record import Episode, Provenance, RolloutPlan, encode_record
from pytest_maatml.engine.requests import Close, Look, Request, Reset, Score, Step, Verify
from pytest_maatml.errors import RolloutEnvError

if TYPE_CHECKING:
    from collections.abc import Generator

    from pytest_maatml.engine.config import RolloutConfig
    from pytest_maatml.engine.protocol import JSONObject, Labels, StepResult, Verification

EpisodeGenerator: TypeAlias = "Generator[Request, Any, Episode]"


def run_episode(
    plan: RolloutPlan, config: RolloutConfig, provenance: Provenance, reader: CandidateReader
) -> EpisodeGenerator:
    """The episode of `plan`. A fault is thrown in where it happened, and comes out again.

    `close` is always asked for: with the verdict, or after a fault. The fault that comes out
    carries the number of the decision.
    """
    decisions: list[dict[str, Any]] = []
    try:
        task = orjson.Fragment(encode(plan.task, "task", op="tasks", strict=True))
        truncated = yield from _decide(plan, config, reader, decisions)
        verdict = yield Verify(plan.episode_id)
        outcome = _outcome(verdict, len(decisions), truncated)
    except RolloutEnvError as fault:
        fault.decision = len(decisions)
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
        last_action=decisions[-1]["chosen"] if decisions else None,
        line=encode_record(plan, provenance, task, decisions, outcome),
    )


def _decide(
    plan: RolloutPlan,
    config: RolloutConfig,
    reader: CandidateReader,
    decisions: list[dict[str, Any]],
) -> Generator[Request, Any, str | None]:
    """Fill `decisions` until the environment ends the episode; return why it was cut, or None."""
    episode_id = plan.episode_id
    observation: JSONObject = yield Reset(episode_id, plan.task, config.options)
    if not isinstance(observation, dict):
        raise _breach("reset", f"the observation must be an object, not {observation!r:.200}")
    seen = orjson.Fragment(encode(observation, "observation", op="reset", strict=True))
    look, score, step = Look(episode_id, config.label), Score(observation, []), Step(episode_id, "")
    while len(decisions) < config.max_decisions:
        listed, labels = yield look
        candidates = reader.read(listed)
        if not candidates.ids:
            return "no_candidates"
        accepted = None if labels is None else _accepted(labels, candidates)
        if config.label and accepted is None and config.stop_unlabelled:
            return f"unlabelled:{labels.reason or 'unknown'}"
        if not candidates.valid_by_id:
            return "no_valid_candidate"
        score.observation, score.candidates = observation, listed
        choice = choose(candidates, (yield score))
        chosen, actor = choice.chosen, "policy"
        if accepted and draw(config.seed, episode_id, len(decisions)) < config.teacher_mix:
            chosen, actor = accepted[0], "teacher"
        step.candidate = chosen
        result: StepResult = yield step
        reward = _checked_reward(result)
        decisions.append(
            {
                "observation": seen,
                "candidates": candidates.encoded,
                "chosen": chosen,
                "actor": actor,
                "policy_choice": choice.chosen,
                "logp": choice.logp,
                "top_valid": choice.top_valid,
                "teacher_valid": accepted,
                "applied": result.applied,
                "reward": reward,
            }
        )
        if result.terminal is not None:
            return None
        observation = result.observation
        seen = snapshot(observation, "observation", "step")
    return "max_decisions"


def _accepted(labels: Labels, candidates: CandidateSet) -> list[str] | None:
    """The teacher's ids as text, checked against the candidates; None if it has no label."""
    if labels.valid_ids is None:
        if labels.reason is not None and not isinstance(labels.reason, str):
            raise _breach("label", f"the reason must be text or null, not {labels.reason!r:.200}")
        return None
    if not isinstance(labels.valid_ids, list | tuple):
        raise _breach("label", f"valid_ids must be a list or null, not {labels.valid_ids!r:.200}")
    accepted = []
    for value in labels.valid_ids:
        name = identifier(value)
        if name is None:
            raise _breach("label", f"valid_ids must hold ids, not {value!r:.200}")
        if name not in candidates.valid_ids:
            state = "masked" if name in candidates.ids else "not among the candidates"
            raise _breach("label", f"the teacher's id {name!r} is {state}")
        accepted.append(name)
    return accepted


def _checked_reward(result: StepResult) -> float:
    """The reward as a float, once the rest of the result has the right shape."""
    if result.applied is not True and result.applied is not False:
        raise _breach("step", f"applied must be true or false, not {result.applied!r:.200}")
    if result.terminal is not None and not isinstance(result.terminal, str):
        raise _breach("step", f"terminal must be null or text, not {result.terminal!r:.200}")
    if not isinstance(result.observation, dict):
        raise _breach("step", f"the observation must be an object, not {result.observation!r:.200}")
    reward = result.reward
    if reward.__class__ is float and isfinite(reward):
        return reward
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
    raise _breach(op, f"reward must be a finite number, not {value!r:.200}")


def _outcome(verdict: Verification, decisions: int, truncated: str | None) -> dict[str, Any]:
    if not isinstance(verdict.success, bool):
        raise _breach("verify", f"success must be true or false, not {verdict.success!r:.200}")
    status = "" if verdict.status is None else verdict.status
    if not isinstance(status, str):
        raise _breach("verify", f"status must be text, not {status!r:.200}")
    detail = {} if verdict.detail is None else verdict.detail
    if not isinstance(detail, dict):
        raise _breach("verify", f"detail must be an object, not {detail!r:.200}")
    return {
        "status": status,
        "success": verdict.success,
        "reward": _reward(verdict.reward, "verify"),
        "decisions": decisions,
        "truncated": truncated,
        "detail": orjson.Fragment(encode(detail, "detail", op="verify", strict=True)),
    }


def _breach(op: str, message: str) -> RolloutEnvError:
    return RolloutEnvError(message, op=op, kind="protocol")
