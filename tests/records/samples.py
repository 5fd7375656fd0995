"""Episodes, errors and identities, written by hand from the specification."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_maatml.engine.record import Episode, EpisodeError, RolloutPlan
from pytest_maatml.records.folder import RunFolder
from pytest_maatml.records.identity import RunIdentity

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

IDENTITY = RunIdentity(
    policy="walker@1",
    checkpoint=None,
    environment={"name": "line_world", "version": "1", "protocol": "maatml.rollout_env/1"},
    options={"extra_steps": 4},
    seed=0,
    label=False,
    teacher_mix=0.0,
    max_decisions=256,
    tasks="00ff",
    planned=6,
    source="rollout",
    round=0,
)
OTHER = replace(IDENTITY, seed=1)
LABELLED = replace(IDENTITY, label=True, seed=2)


def decision(**changed: Any) -> dict[str, Any]:
    return {
        "observation": {"text": "Grüße\n", "big": 2**70},
        "candidates": [{"id": "a"}, {"id": "b"}],
        "chosen": "a",
        "actor": "policy",
        "policy_choice": "a",
        "logp": [-0.6931471805599453, -0.6931471805599453],
        "top_valid": True,
        "teacher_valid": None,
        "applied": True,
        "reward": 0.0,
        **changed,
    }


def record(
    index: int,
    *,
    family: str = "near",
    success: bool = True,
    mark: str = "",
    decisions: list[dict[str, Any]] | None = None,
    truncated: str | None = None,
) -> dict[str, Any]:
    steps = [decision()] if decisions is None else decisions
    return {
        "kind": "maatml.rollout_episode/1",
        "episode_id": f"rollout-r0-{index:06d}",
        "task_id": f"t{index}",
        "task_family": family,
        "task": {"id": f"t{index}", "family": family},
        "source": "rollout",
        "policy_version": "walker@1",
        "round": 0,
        "environment": dict(IDENTITY.environment),
        "decisions": steps,
        "outcome": {
            "status": "success" if success else "exhausted",
            "success": success,
            "reward": 0.0,
            "decisions": len(steps),
            "truncated": truncated,
            "detail": {"mark": mark},
        },
    }


def episode(index: int, **changed: Any) -> Episode:
    row = record(index, **changed)
    steps, outcome = row["decisions"], row["outcome"]
    return Episode(
        index=index,
        episode_id=row["episode_id"],
        task_id=row["task_id"],
        task_family=row["task_family"],
        success=outcome["success"],
        status=outcome["status"],
        truncated=outcome["truncated"],
        decisions=len(steps),
        last_action=steps[-1]["chosen"] if steps else None,
        line=json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode(),
    )


def error(index: int, *, family: str = "near", message: str = "gone") -> EpisodeError:
    return EpisodeError(
        index=index,
        episode_id=f"rollout-r0-{index:06d}",
        task_id=f"t{index}",
        task_family=family,
        op="step",
        decision=3,
        kind="environment",
        message=message,
    )


def plans(planned: int = IDENTITY.planned) -> list[RolloutPlan]:
    return [
        RolloutPlan(
            index=index,
            episode_id=f"rollout-r0-{index:06d}",
            task={"id": f"t{index}", "family": "near"},
            task_id=f"t{index}",
            task_family="near",
        )
        for index in range(planned)
    ]


def run(
    path: Path,
    results: Iterable[Episode | EpisodeError],
    identity: RunIdentity = IDENTITY,
    **how: Any,
) -> dict[str, Any]:
    """The summary of a session that records `results` and finishes."""
    finish = {"gates": how.pop("gates", {}), "skipped": how.pop("skipped", ())}
    with RunFolder.open(path, identity, plans(identity.planned), **how) as folder:
        for result in results:
            folder.journal().append(result)
        return folder.finish(**finish)


def files(path: Path) -> dict[str, bytes]:
    """What is in a folder, by name."""
    return {file.name: file.read_bytes() for file in sorted(path.iterdir())}


def rows(path: Path) -> list[bytes]:
    return (path / "episodes.jsonl").read_bytes().splitlines()
