"""Gates judged again, from what a run has recorded of them and of its episodes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_maatml.engine.record import RolloutPlan
from pytest_maatml.errors import ConfigurationError
from pytest_maatml.gating.baseline import Baseline
from pytest_maatml.gating.family import FamilyGate, how_completed
from pytest_maatml.gating.policy import GatePolicy
from pytest_maatml.gating.report import GateReport

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_maatml.gating.family import HowItEnded, OverallGate


def judge_again(
    record: Mapping[str, Any],
    rows: Iterable[Mapping[str, Any]],
    errors: Iterable[Mapping[str, Any]] = (),
    *,
    baseline: Baseline | None = None,
    overall: OverallGate | None = None,
) -> GateReport:
    """The report on a family's merged `rows` and `errors`, by the rule that `record` holds.

    `record` is `GateReport.as_dict`, of any shard; rows and errors are those of `episodes.jsonl`
    and `errors.jsonl`, in any order. The baseline is read from where it was, unless given. Raises
    ConfigurationError where episodes are missing that no stopping left out.
    """
    recorded = GateReport.from_dict(record)
    ended = _endings(rows, errors)
    if len(ended) == recorded.stopped_at:
        return recorded
    if len(ended) != recorded.planned:
        raise ConfigurationError(
            f"the gate of {recorded.family} is of {recorded.planned} episodes, and {len(ended)} are"
            " here: merge all shards of the run"
        )
    if baseline is None and recorded.baseline is not None:
        baseline = Baseline.read(Path(recorded.baseline.file))
    gate = FamilyGate.plan(
        GatePolicy.of_report(recorded),
        recorded.family,
        [plan for plan, _ in ended],
        seed=recorded.seed,
        baseline=baseline,
        overall=overall,
        alarms=recorded.alarms,
    )
    return _finished(gate, ended)


def count_ungated(
    family: str, rows: Iterable[Mapping[str, Any]], errors: Iterable[Mapping[str, Any]] = ()
) -> GateReport:
    """The counts of a family of which nothing is asked by itself, for the gate over all."""
    ended = _endings(rows, errors)
    gate = FamilyGate.plan(GatePolicy(), family, [plan for plan, _ in ended], seed=0)
    return _finished(gate, ended)


def _endings(
    rows: Iterable[Mapping[str, Any]], errors: Iterable[Mapping[str, Any]]
) -> list[tuple[RolloutPlan, HowItEnded]]:
    ended = [(_plan_of(row), _how_recorded(row["outcome"])) for row in rows]
    return ended + [(_plan_of(row), "error") for row in errors]


def _finished(gate: FamilyGate, ended: Iterable[tuple[RolloutPlan, HowItEnded]]) -> GateReport:
    for plan, how in ended:
        gate.note(plan.index, how)
    return gate.finish()


def _plan_of(row: Mapping[str, Any]) -> RolloutPlan:
    """The plan of a recorded episode or error; the id ends in the index (see `plan_episode`)."""
    return RolloutPlan(
        index=int(row["episode_id"].rpartition("-")[2]),
        episode_id=row["episode_id"],
        task=row.get("task", {}),
        task_id=row["task_id"],
        task_family=row["task_family"],
    )


def _how_recorded(outcome: Mapping[str, Any]) -> HowItEnded:
    return how_completed(success=outcome["success"], truncated=outcome["truncated"])
