"""One family's rollout: run, counted as its episodes end, and judged by its gates."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pytest_maatml.engine.record import Episode, EpisodeError
from pytest_maatml.gates.intervals import wilson
from pytest_maatml.gating.report import FAIL, NOT_DECIDED, PASS, UNGATED, GateReport

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pytest_maatml.gating.family import FamilyGate
    from pytest_maatml.harness.rig import Rig
    from pytest_maatml.harness.spec import RolloutSpec
    from pytest_maatml.records.folder import RunFolder

#: Failed episodes and errors that are kept with their particulars; all are counted.
SHOWN: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedEpisode:
    """An episode that ran properly and did not succeed, or that could not be labelled."""

    task_id: str
    status: str
    decisions: int
    last_action: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyResult:
    """What became of one family: counts over the episodes that stay, and the verdict.

    `unlabelled` episodes were cut for want of a label: they count for no gate. `as_dict` gives
    builtins alone, which can cross process borders.
    """

    suite: str
    family: str
    #: Episodes that were to run here: all of the family, or those that were selected.
    planned: int
    episodes: int
    success: int
    errors: int
    unlabelled: int
    decisions: int
    truncated: int
    verdict: str
    #: What the gates say; None where the family is only a part of its tasks.
    gate: GateReport | None
    failed: tuple[FailedEpisode, ...]
    errored: tuple[str, ...]
    folder: str
    #: Index of the first episode of the family: families stand in the order of their tasks.
    first: int

    @property
    def ok(self) -> bool:
        """Whether the item passes: the gates are met, or there are none and nothing errored."""
        return self.verdict == PASS or (self.verdict == UNGATED and not self.errors)

    @property
    def failures(self) -> int:
        return self.episodes - self.success

    @property
    def rule(self) -> str | None:
        """The threshold's rule in one line, such as `>= 90% (45/50)`; None without a threshold."""
        if self.gate is None or self.gate.threshold_verdict == UNGATED:
            return None
        return self.gate.rule

    @property
    def judges_tasks(self) -> bool:
        """Whether single tasks were judged, each by itself, and no rate."""
        unasked = self.gate is not None and self.gate.verdict == UNGATED
        return unasked and self.verdict != UNGATED

    @property
    def skipped(self) -> tuple[int, ...]:
        """Indexes that early stopping leaves out."""
        return () if self.gate is None else self.gate.skipped

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of the success rate of the episodes that ran."""
        return wilson(self.success, self.episodes)

    def as_dict(self) -> dict[str, Any]:
        record = asdict(self)
        record["failed"] = [asdict(episode) for episode in self.failed]
        record["errored"] = list(self.errored)
        record["gate"] = None if self.gate is None else self.gate.as_dict()
        return record

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> FamilyResult:
        gate = record["gate"]
        return cls(
            **{
                **record,
                "failed": tuple(FailedEpisode(**episode) for episode in record["failed"]),
                "errored": tuple(record["errored"]),
                "gate": None if gate is None else GateReport.from_dict(gate),
            }
        )


@dataclass(slots=True)
class FamilyTally:
    """The counts so far."""

    episodes: int = 0
    success: int = 0
    errors: int = 0
    unlabelled: int = 0
    decisions: int = 0
    truncated: int = 0
    failed: list[tuple[int, FailedEpisode]] = field(default_factory=list)
    errored: list[tuple[int, str]] = field(default_factory=list)

    @property
    def ended(self) -> int:
        return self.episodes + self.errors

    def add(self, ended: Episode | EpisodeError) -> None:
        if isinstance(ended, EpisodeError):
            self.errors += 1
            _keep(self.errored, (ended.index, _error_text(ended)))
            return
        self.episodes += 1
        self.decisions += ended.decisions
        self.success += ended.success
        if ended.truncated is not None:
            self.truncated += 1
            self.unlabelled += ended.truncated.startswith("unlabelled:")
        if not ended.success:
            _keep(self.failed, (ended.index, _failed(ended)))


def _keep(shown: list[Any], entry: tuple[int, Any]) -> None:
    """Keep the first of the list in index order, whatever order they come in."""
    shown.append(entry)
    if len(shown) > 2 * SHOWN:
        shown.sort(key=lambda kept: kept[0])
        del shown[SHOWN:]


def _first(shown: list[tuple[int, Any]]) -> tuple[Any, ...]:
    return tuple(kept for _, kept in sorted(shown, key=lambda kept: kept[0])[:SHOWN])


def _failed(episode: Episode) -> FailedEpisode:
    return FailedEpisode(
        task_id=episode.task_id,
        status=episode.truncated or episode.status,
        decisions=episode.decisions,
        last_action=episode.last_action,
    )


def _error_text(error: EpisodeError) -> str:
    tail = "".join(f"\n    stderr: {line}" for line in error.stderr[-SHOWN:])
    return f"{error.episode_id}: {error.message}{tail}"


def run_family(
    rig: Rig,
    family: str,
    folder: RunFolder,
    *,
    suite: str,
    shard: str = "main",
    watch: Callable[[FamilyTally, Episode | EpisodeError], None],
) -> FamilyResult:
    """Run the episodes of `family`, each into the journal as it ends, and judge them.

    Episodes that a resumed run has already are counted and not run; no more are begun once every
    gate is decided. `watch` is called as each ends. Raises ModelError where the policy cannot be
    loaded.
    """
    gate = rig.gate(family)
    tally = FamilyTally()
    _run(rig, family, folder.done(), gate, tally, folder.journal(shard).append, watch)
    report = gate.finish(judged=rig.spec.selection.is_sample)
    if report.skipped:
        tally = _recount(folder, rig, family, frozenset(report.skipped))
    return FamilyResult(
        suite=suite,
        family=family,
        planned=len(rig.families[family]),
        episodes=tally.episodes,
        success=tally.success,
        errors=tally.errors,
        unlabelled=tally.unlabelled,
        decisions=tally.decisions,
        truncated=tally.truncated,
        verdict=_verdict(report, tally, rig.spec),
        gate=report,
        failed=_first(tally.failed),
        errored=_first(tally.errored),
        folder=str(rig.spec.out),
        first=rig.families[family][0].index,
    )


def _run(
    rig: Rig,
    family: str,
    done: Mapping[int, Episode],
    gate: FamilyGate,
    tally: FamilyTally,
    record: Callable[[Episode | EpisodeError], None],
    watch: Callable[[FamilyTally, Episode | EpisodeError], None],
) -> None:
    decided = False
    for plan in rig.families[family]:
        if plan.index in done:
            episode = done[plan.index]
            tally.add(episode)
            decided = gate.feed(episode)
    if decided:
        return
    takes = rig.spec.selection.takes
    todo = (plan for plan in gate.order if takes(plan) and plan.index not in done)
    with closing(rig.run(todo)) as episodes:
        for ended in episodes:
            record(ended)
            tally.add(ended)
            watch(tally, ended)
            if gate.feed(ended):
                return


def _recount(folder: RunFolder, rig: Rig, family: str, skipped: Collection[int]) -> FamilyTally:
    """The counts of the episodes that stay, whatever else was in flight when it stopped."""
    tally = FamilyTally()
    indexes = [plan.index for plan in rig.families[family] if plan.index not in skipped]
    for ended in folder.ended(indexes):
        tally.add(ended)
    return tally


def _verdict(report: GateReport, tally: FamilyTally, spec: RolloutSpec) -> str:
    """Single tasks are no sample: they pass if they succeed, and no rate is judged."""
    if spec.selection.tasks and spec.gates.asks:
        if tally.errors:
            return NOT_DECIDED
        return PASS if tally.success == tally.episodes else FAIL
    return report.verdict
