"""One family's rollout: counted as its episodes end, and judged by its gate."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pytest_maatml.engine.record import Episode, EpisodeError
from pytest_maatml.gates.intervals import wilson
from pytest_maatml.gates.threshold import Outcome, ThresholdRule, threshold_rule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_maatml.records.folder import RunFolder
    from pytest_maatml.rig import Rig
    from pytest_maatml.spec import RolloutSpec

#: Failed episodes and errors that are kept with their particulars; all are counted.
SHOWN: Final = 10

PASS: Final = "PASS"
FAIL: Final = "FAIL"
NOT_DECIDED: Final = "NOT DECIDED"
#: Nothing was asked of the family.
UNGATED: Final = "-"

_VERDICTS: Final = {
    Outcome.PASSED: PASS,
    Outcome.FAILED: FAIL,
    Outcome.UNDECIDED: NOT_DECIDED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedEpisode:
    """An episode that ran properly and did not succeed, or that could not be labelled."""

    task_id: str
    status: str
    decisions: int
    last_action: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyResult:
    """What became of one family. Holds builtins alone, so that it can cross process borders.

    `unlabelled` episodes were cut for want of a label: they count for no gate. `decisions`,
    `truncated` and `success` are counted over all episodes that ran.
    """

    suite: str
    family: str
    planned: int
    episodes: int
    success: int
    errors: int
    unlabelled: int
    decisions: int
    truncated: int
    #: The rule in one line, such as `>= 90% (45/50)`; None where there is no gate.
    rule: str | None
    required: int | None
    verdict: str
    failed: tuple[FailedEpisode, ...]
    errored: tuple[str, ...]
    folder: str

    @property
    def ok(self) -> bool:
        """Whether the item passes: the gate is met, or there is none and nothing errored."""
        return self.verdict == PASS or (self.verdict == UNGATED and not self.errors)

    @property
    def failures(self) -> int:
        return self.episodes - self.success

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of the success rate of the episodes that ran."""
        return wilson(self.success, self.episodes)

    def as_dict(self) -> dict[str, Any]:
        record = asdict(self)
        record["failed"] = [asdict(episode) for episode in self.failed]
        record["errored"] = list(self.errored)
        return record

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> FamilyResult:
        return cls(
            **{
                **record,
                "failed": tuple(FailedEpisode(**episode) for episode in record["failed"]),
                "errored": tuple(record["errored"]),
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
    failed: list[FailedEpisode] = field(default_factory=list)
    errored: list[str] = field(default_factory=list)

    def add(self, ended: Episode | EpisodeError) -> None:
        if isinstance(ended, EpisodeError):
            self.errors += 1
            if len(self.errored) < SHOWN:
                self.errored.append(_error_text(ended))
            return
        self.episodes += 1
        self.decisions += ended.decisions
        self.success += ended.success
        if ended.truncated is not None:
            self.truncated += 1
            self.unlabelled += ended.truncated.startswith("unlabelled:")
        if not ended.success and len(self.failed) < SHOWN:
            self.failed.append(
                FailedEpisode(
                    task_id=ended.task_id,
                    status=ended.truncated or ended.status,
                    decisions=ended.decisions,
                    last_action=ended.last_action,
                )
            )

    @property
    def ended(self) -> int:
        return self.episodes + self.errors


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

    Episodes that a resumed run has already are counted and not run. `watch` is called as each
    ends. Raises ModelError where the policy cannot be loaded.
    """
    plans = rig.families[family]
    done, journal = folder.done(), folder.journal(shard)
    tally = FamilyTally()
    for plan in plans:
        if plan.index in done:
            tally.add(done[plan.index])
    for ended in rig.run(plan for plan in plans if plan.index not in done):
        journal.append(ended)
        tally.add(ended)
        watch(tally, ended)
    rate = rig.spec.gate_of(family) if rig.spec.selection.is_sample else None
    rule = None if rate is None else threshold_rule("point", rate, len(plans))
    return FamilyResult(
        suite=suite,
        family=family,
        planned=len(plans),
        episodes=tally.episodes,
        success=tally.success,
        errors=tally.errors,
        unlabelled=tally.unlabelled,
        decisions=tally.decisions,
        truncated=tally.truncated,
        rule=None if rule is None else str(rule),
        required=None if rule is None else rule.required,
        verdict=_verdict(rule, tally, rig.spec),
        failed=tuple(tally.failed),
        errored=tuple(tally.errored),
        folder=str(rig.spec.out),
    )


def _verdict(rule: ThresholdRule | None, tally: FamilyTally, spec: RolloutSpec) -> str:
    """Single tasks are no sample: they pass if they succeed, and no rate is judged."""
    if rule is not None:
        return _judge(rule, tally)
    if spec.selection.tasks and spec.gates:
        if tally.errors:
            return NOT_DECIDED
        return PASS if tally.success == tally.episodes else FAIL
    return UNGATED


def _judge(rule: ThresholdRule, tally: FamilyTally) -> str:
    """Episodes cut for want of a label could have been either, so they are left uncounted."""
    outcome = rule.judge(
        successes=tally.success,
        failures=tally.episodes - tally.success - tally.unlabelled,
        errors=tally.errors,
    )
    return _VERDICTS[outcome]
