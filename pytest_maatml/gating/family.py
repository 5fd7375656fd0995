"""From episodes as they end to verdicts: a family's gates, and the one over all families.

Every gate is fixed before the first episode runs, and judged in an order that does not depend on
how many were in flight: the declared one, or the seed's permutation where a risk is taken.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeAlias

from pytest_maatml.arguments import OVERALL_GATE
from pytest_maatml.engine.draws import draw
from pytest_maatml.engine.record import EpisodeError, RolloutPlan
from pytest_maatml.gates.stopping import Exact, Off, Risk, ThresholdJudge
from pytest_maatml.gates.threshold import Outcome
from pytest_maatml.gating.baseline import UNLABELLED, Baseline, BaselineGate
from pytest_maatml.gating.counts import GateCounts, GateFacts, RateInterval
from pytest_maatml.gating.policy import GatePolicy
from pytest_maatml.gating.report import GateReport

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_maatml.engine.record import Episode
    from pytest_maatml.gates.stopping import EpisodeResult
    from pytest_maatml.gates.threshold import ThresholdRule
    from pytest_maatml.gating.report import BaselineReport

HowItEnded: TypeAlias = Literal["success", "failure", "error", "unlabelled"]

_ENDINGS: Final[tuple[HowItEnded, ...]] = (
    "error",  # 0 is an episode that has not ended
    "success",
    "failure",
    "unlabelled",
    "error",
)
_CODES: Final[dict[HowItEnded, int]] = {how: code for code, how in enumerate(_ENDINGS) if code}

__all__ = ["FamilyGate", "GatePolicy", "GateReport", "OverallGate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OverallGate:
    """The gate over all families together.

    Families are judged apart, maybe in different processes, so none may lean on what another did.
    A family stops early only where its own episodes alone decide this gate, by arithmetic, whatever
    the others do; so the verdict is always the full run's, and no risk is taken with it.
    """

    policy: GatePolicy
    rule: ThresholdRule
    seed: int

    @classmethod
    def plan(cls, policy: GatePolicy, planned: int, *, seed: int) -> Self | None:
        """The gate over the `planned` episodes of all families; None where none is asked.

        Raises ConfigurationError for a gate that cannot pass, with the episodes that would do.
        """
        rule = policy.rule(policy.rates.get(OVERALL_GATE), planned, name=OVERALL_GATE)
        return None if rule is None else cls(policy=policy, rule=rule, seed=seed)

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Self | None:
        """The gate of which `record` is a report, as `GateReport.as_dict` gives it."""
        report = GateReport.from_dict(record)
        return cls.plan(GatePolicy.of_report(report), report.planned, seed=report.seed)

    def judge(self) -> ThresholdJudge:
        """A judge for one family, which knows of no other."""
        return ThresholdJudge(Exact().boundaries(self.rule), max_errors=self.rule.planned)

    def finish(self, reports: Iterable[GateReport], *, judged: bool = True) -> GateReport:
        """The verdict over the families' reports; of one that is missing nothing is known."""
        families = list(reports)
        counts = GateCounts.total(families)
        full = counts.ended == self.rule.planned
        interval = RateInterval.of_full_run if full else RateInterval.whenever_stopped
        outcome = counts.judged(self.rule, max_errors=self.policy.max_errors)
        return GateFacts(
            policy=self.policy,
            family=OVERALL_GATE,
            threshold=self.policy.rates[OVERALL_GATE],
            rule=self.rule,
            planned=self.rule.planned,
            stopping=str(Off() if self.policy.stopping == "off" else Exact()),
            seed=self.seed,
        ).report(
            counts,
            outcome if judged else None,
            interval(counts),
            skipped=sorted(index for report in families for index in report.skipped),
        )


class FamilyGate:
    """The gates of one family: its threshold, a baseline, and its share of the overall gate."""

    def __init__(
        self,
        policy: GatePolicy,
        family: str,
        order: Sequence[RolloutPlan],
        *,
        seed: int,
        baseline: Baseline | None,
        overall: OverallGate | None,
        alarms: int,
    ) -> None:
        """Use `plan`, which puts the episodes in judged order."""
        self._order = tuple(order)
        self._stopping = policy.stopping_rule
        rate, planned = policy.rate_of(family), len(self._order)
        rule = policy.rule(rate, planned, name=family, alarms=alarms)
        boundaries = None if rule is None else self._stopping.boundaries(rule)
        self._facts = GateFacts(
            policy=policy,
            family=family,
            threshold=rate,
            rule=None if boundaries is None else boundaries.rule,
            planned=planned,
            stopping=str(self._stopping),
            seed=seed,
            alarms=alarms,
        )
        # How many errors are too many is for the report: the judges see unlabelled ones too.
        self._threshold = (
            None if boundaries is None else ThresholdJudge(boundaries, max_errors=planned)
        )
        self._baseline = (
            None
            if baseline is None
            else BaselineGate(
                policy,
                baseline.outcomes(self._order, family=family),
                task_ids=[plan.task_id for plan in self._order],
                file=baseline.file,
                alarms=alarms,
            )
        )
        self._overall = None if overall is None else overall.judge()
        # By place in judged order, a byte each: there may be hundreds of thousands.
        self._place = _places(self._order)
        self._ended = bytearray(planned)
        #: episodes in judged order that the gates have seen
        self._seen = 0
        self._stopped = False

    @classmethod
    def plan(
        cls,
        policy: GatePolicy,
        family: str,
        plans: Sequence[RolloutPlan],
        *,
        seed: int,
        baseline: Baseline | None = None,
        overall: OverallGate | None = None,
        alarms: int = 1,
    ) -> Self:
        """The gates of `family` over all its `plans`, before any of them runs.

        `alarms` is `policy.alarms` of the suite's families, among which alpha is divided. Raises
        ConfigurationError for a gate that cannot pass, with the episodes that would do, and for a
        baseline of other tasks.
        """
        order = sorted(plans, key=lambda plan: plan.index)
        if isinstance(policy.stopping_rule, Risk):
            order.sort(key=lambda plan: draw(seed, plan.episode_id, "order"))
        return cls(
            policy,
            family,
            order,
            seed=seed,
            baseline=baseline,
            overall=overall,
            alarms=max(alarms, 1),
        )

    @property
    def order(self) -> list[RolloutPlan]:
        """The plans in judged order, which is the best to run them in."""
        return list(self._order)

    @property
    def rule(self) -> ThresholdRule | None:
        """The rule of the threshold, None without one."""
        return self._facts.rule

    @property
    def gated(self) -> bool:
        """Whether anything is asked of this family by itself."""
        return self._threshold is not None or self._baseline is not None

    def feed(self, ended: Episode | EpisodeError) -> bool:
        """Whether every gate is decided, so that no more episodes are needed.

        Episodes come as they end, in any order, and each is looked at in its turn.
        """
        return self.note(ended.index, _how(ended))

    def note(self, index: int, how: HowItEnded) -> bool:
        """The same, for an episode of which only this is known."""
        self._ended[self._place[index]] = _CODES[how]
        while not self._stopped and self._seen < len(self._order):
            following = self._ended[self._seen]
            if not following:
                break
            self._see(_as_result(_ENDINGS[following]))
        return self._stopped

    def finish(self, *, judged: bool = True) -> GateReport:
        """The report on all that was fed; `judged` is False for a part of the tasks, as a shard."""
        kept = self._seen if self._stopped and judged else len(self._order)
        ended = self._ended[:kept]
        counts = GateCounts(
            success=ended.count(_CODES["success"]),
            failures=ended.count(_CODES["failure"]),
            errors=ended.count(_CODES["error"]),
            unlabelled=ended.count(_CODES["unlabelled"]),
        )
        return self._facts.report(
            counts,
            self._outcome(counts) if judged else None,
            self._interval(counts) if judged else RateInterval.whenever_stopped(counts),
            skipped=sorted(plan.index for plan in self._order[kept:]),
            baseline=self._against_baseline(ended, counts.errors, judged=judged),
        )

    def _against_baseline(
        self, ended: bytearray, errors: int, *, judged: bool
    ) -> BaselineReport | None:
        if self._baseline is None:
            return None
        results = [_as_result(_ENDINGS[code]) if code else None for code in ended]
        return self._baseline.report(results, errors=errors, judged=judged)

    def _see(self, result: EpisodeResult) -> None:
        self._seen += 1
        if self._threshold is not None:
            self._threshold.feed(result)
        if self._baseline is not None:
            self._baseline.feed(result)
        if self._overall is not None:
            self._overall.feed(result)
        self._stopped = not isinstance(self._stopping, Off) and self.gated and self._decided()

    def _decided(self) -> bool:
        return (
            (self._threshold is None or self._threshold.verdict is not None)
            and (self._baseline is None or self._baseline.decided)
            and (self._overall is None or self._overall.verdict is not None)
        )

    def _outcome(self, counts: GateCounts) -> Outcome | None:
        if self._threshold is None or self.rule is None:
            return None
        limit = self._facts.policy.max_errors
        if self._threshold.verdict is None:
            return counts.judged(self.rule, max_errors=limit)
        outcome = self._threshold.verdict.outcome
        too_many = outcome is Outcome.PASSED and counts.errors > limit
        return Outcome.UNDECIDED if too_many else outcome

    def _interval(self, counts: GateCounts) -> RateInterval:
        whole = counts.ended == len(self._order)
        if whole and (isinstance(self._stopping, Off) or not self.gated):
            return RateInterval.of_full_run(counts)
        if self.rule is not None and self._ended_at_exact_stop():
            return RateInterval.at_exact_stop(counts, self.rule)
        return RateInterval.whenever_stopped(counts)

    def _ended_at_exact_stop(self) -> bool:
        verdict = None if self._threshold is None else self._threshold.verdict
        return (
            self._stopped
            and isinstance(self._stopping, Exact)
            and verdict is not None
            and verdict.outcome is not Outcome.UNDECIDED
            and verdict.observed == self._seen
            and self.rule is not None
            and self.rule.required > 0
        )


def _places(order: Sequence[RolloutPlan]) -> Sequence[int]:
    """By index, the place of an episode in `order`; what is at other indexes means nothing."""
    places = array("i", bytes(4 * (max(plan.index for plan in order) + 1)))
    for place, plan in enumerate(order):
        places[plan.index] = place
    return places


def _how(ended: Episode | EpisodeError) -> HowItEnded:
    if isinstance(ended, EpisodeError):
        return "error"
    return how_completed(success=ended.success, truncated=ended.truncated)


def how_completed(*, success: bool, truncated: str | None) -> HowItEnded:
    """How an episode ended that ran to a verdict."""
    if truncated is not None and truncated.startswith(UNLABELLED):
        return "unlabelled"
    return "success" if success else "failure"


def _as_result(how: HowItEnded) -> EpisodeResult:
    """What the judges see: what could have been either is to them an error."""
    return "error" if how == "unlabelled" else how
