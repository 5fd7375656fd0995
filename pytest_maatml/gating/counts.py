"""What a gate is judged on: counts, the interval that they allow, and the report on both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_maatml.gates.binomial import lower_tail
from pytest_maatml.gates.intervals import anytime_beta_binomial, curtailed_exact, wilson
from pytest_maatml.gating.report import UNGATED, VERDICTS, BaselineReport, GateReport, worst

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_maatml.gates.threshold import Outcome, ThresholdRule
    from pytest_maatml.gating.policy import GatePolicy

#: The error rate of every interval that is shown.
_ALPHA = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class GateCounts:
    """Episodes by how they ended; those cut for want of a label could have been either."""

    success: int
    failures: int
    errors: int
    unlabelled: int

    @classmethod
    def total(cls, reports: Iterable[GateReport]) -> GateCounts:
        parts = list(reports)
        return cls(
            success=sum(part.success for part in parts),
            failures=sum(part.failures for part in parts),
            errors=sum(part.errors for part in parts),
            unlabelled=sum(part.unlabelled for part in parts),
        )

    @property
    def completed(self) -> int:
        return self.success + self.failures

    @property
    def ended(self) -> int:
        return self.completed + self.errors + self.unlabelled

    def judged(self, rule: ThresholdRule, *, max_errors: int) -> Outcome:
        """What they say of `rule`; whatever they do not count could be either."""
        return rule.judge(
            successes=self.success,
            failures=self.failures,
            errors=self.errors,
            max_errors=max_errors,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RateInterval:
    """An interval of 95 % for the success rate, by its kind, and an estimate within it."""

    kind: str
    bounds: tuple[float, float]
    estimate: float | None

    @classmethod
    def of_full_run(cls, counts: GateCounts) -> RateInterval:
        """Wilson's, for a number of episodes that was fixed in advance."""
        bounds = wilson(counts.success, counts.completed)
        return cls(kind="wilson", bounds=bounds, estimate=_rate(counts))

    @classmethod
    def whenever_stopped(cls, counts: GateCounts) -> RateInterval:
        """One that holds for whatever reason the run ended."""
        bounds = anytime_beta_binomial(counts.success, counts.completed, alpha=_ALPHA)
        return cls(kind="anytime", bounds=bounds, estimate=_rate(counts))

    @classmethod
    def at_exact_stop(cls, counts: GateCounts, rule: ThresholdRule) -> RateInterval:
        """The exact one, for a run that ended where exact stopping decided `rule`."""
        found = curtailed_exact(
            required=rule.required,
            planned=rule.planned,
            successes=counts.success,
            observed=counts.completed,
        )
        return cls(
            kind="curtailed-exact", bounds=(found.lower, found.upper), estimate=found.estimate
        )


def _rate(counts: GateCounts) -> float | None:
    return counts.success / counts.completed if counts.completed else None


@dataclass(frozen=True, slots=True, kw_only=True)
class GateFacts:
    """What was fixed of a gate before its first episode ran."""

    policy: GatePolicy
    family: str
    #: the rate as it was written, and the rule of it; None where only a baseline is asked
    threshold: str | None
    rule: ThresholdRule | None
    planned: int
    stopping: str
    seed: int
    alarms: int = 1

    def report(
        self,
        counts: GateCounts,
        outcome: Outcome | None,
        interval: RateInterval,
        *,
        skipped: Sequence[int] = (),
        baseline: BaselineReport | None = None,
    ) -> GateReport:
        """The report on `counts`; an `outcome` of None is that of a gate not judged here."""
        rule, policy = self.rule, self.policy
        verdict = UNGATED if outcome is None else VERDICTS[outcome]
        p = self._guard_p(counts)
        return GateReport(
            family=self.family,
            verdict=worst((verdict, UNGATED if baseline is None else baseline.verdict)),
            threshold_verdict=verdict,
            kind=policy.kind,
            threshold=self.threshold,
            rule=None if rule is None else str(rule),
            planned=self.planned,
            required=None if rule is None else rule.required,
            alpha=policy.alpha,
            alarms=self.alarms,
            stopping=self.stopping,
            seed=self.seed,
            max_errors=policy.max_errors,
            success=counts.success,
            failures=counts.failures,
            errors=counts.errors,
            unlabelled=counts.unlabelled,
            interval_kind=interval.kind,
            interval=interval.bounds,
            estimate=interval.estimate,
            stopped_at=self.planned - len(skipped) if skipped else None,
            skipped=tuple(skipped),
            p=p,
            adjusted_p=p,
            baseline=baseline,
        )

    def _guard_p(self, counts: GateCounts) -> float | None:
        """The greatest that it could be, had all that did not complete succeeded."""
        if self.rule is None or self.rule.kind != "guard":
            return None
        return lower_tail(self.planned - counts.failures, self.planned, self.rule.threshold)
