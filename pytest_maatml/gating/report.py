"""What became of a gate, in builtins: for the summary, for reports, and to be judged again."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pytest_maatml.gates.paired import holm
from pytest_maatml.gates.threshold import Outcome
from pytest_maatml.records.catalog import from_spans, spans

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_maatml.engine.protocol import JSONObject
    from pytest_maatml.gates.threshold import GateKind

PASS: Final = "PASS"
FAIL: Final = "FAIL"
NOT_DECIDED: Final = "NOT DECIDED"
#: Nothing was asked, or it is not judged here.
UNGATED: Final = "-"

VERDICTS: Final = {
    Outcome.PASSED: PASS,
    Outcome.FAILED: FAIL,
    Outcome.UNDECIDED: NOT_DECIDED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineReport:
    """One family against a baseline, over the episodes that stay.

    Only episodes that completed on both sides pair. `required` and `paired_tasks` are of a margin
    gate: successes it asks for among the tasks that completed in the baseline.
    """

    file: str
    margin: str | None
    alpha: float
    verdict: str
    required: int | None
    #: tasks of the family that completed in the baseline
    paired_tasks: int
    both_passed: int
    wins: int
    losses: int
    both_failed: int
    unpaired: int
    #: (wins - losses) / pairs, None without pairs
    difference: float | None
    #: Newcombe's, 95 %
    interval: tuple[float, float]
    #: one-sided exact p of "worse"; the greatest it could be where tasks were left out
    p: float
    adjusted_p: float
    #: ids of the tasks that the baseline passed and this run failed
    lost: tuple[str, ...]

    @property
    def pairs(self) -> int:
        return self.both_passed + self.wins + self.losses + self.both_failed


@dataclass(frozen=True, slots=True, kw_only=True)
class GateReport:
    """The rule of a family's gates, what it was judged on, and the verdict.

    Counts are of the episodes that stay. `interval` is for the success rate, at 95 %:
    `wilson` of a full run, `curtailed-exact` where exact stopping ended it, `anytime` wherever
    else a run ended before its last episode.
    """

    family: str
    verdict: str
    #: the verdict of the threshold alone
    threshold_verdict: str
    kind: GateKind
    #: as it was written; None where only the baseline is asked
    threshold: str | None
    #: the rule in one line, such as `>= 90% (45/50)`
    rule: str | None
    planned: int
    required: int | None
    alpha: float
    #: gates of the suite that can raise an alarm, among which alpha is divided
    alarms: int
    stopping: str
    seed: int
    max_errors: int
    success: int
    failures: int
    errors: int
    #: cut for want of a label: they count for no gate
    unlabelled: int
    interval_kind: str
    interval: tuple[float, float]
    estimate: float | None
    #: episodes in judged order after which everything was decided; None for a run to the end
    stopped_at: int | None
    #: indexes past the stopping point, whether or not they ran
    skipped: tuple[int, ...]
    #: of a guard: P(Bin(N, p0) <= s), the greatest it could be; else None
    p: float | None
    adjusted_p: float | None
    baseline: BaselineReport | None

    @property
    def asks(self) -> bool:
        """Whether there is a threshold or a baseline at all."""
        return self.rule is not None or self.baseline is not None

    @property
    def ended(self) -> int:
        return self.success + self.failures + self.errors + self.unlabelled

    @property
    def saved(self) -> int:
        """Episodes that stopping left out."""
        return 0 if self.stopped_at is None else self.planned - self.stopped_at

    def as_dict(self) -> JSONObject:
        """All of it in JSON values; `skipped` as spans."""
        record = asdict(self)
        record["interval"] = list(self.interval)
        record["skipped"] = spans(self.skipped)
        record["saved"] = self.saved
        if self.baseline is not None:
            record["baseline"]["interval"] = list(self.baseline.interval)
            record["baseline"]["lost"] = list(self.baseline.lost)
        return record

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> GateReport:
        """The report that `as_dict` gave."""
        parts = {name: value for name, value in record.items() if name != "saved"}
        baseline = parts["baseline"]
        if baseline is not None:
            parts["baseline"] = BaselineReport(
                **{
                    **baseline,
                    "interval": tuple(baseline["interval"]),
                    "lost": tuple(baseline["lost"]),
                }
            )
        parts["interval"] = tuple(parts["interval"])
        parts["skipped"] = tuple(sorted(from_spans(parts["skipped"])))
        return cls(**parts)


def worst(verdicts: Iterable[str]) -> str:
    """The verdict of several gates that must all pass; UNGATED where there is none."""
    found = set(verdicts)
    return next((word for word in (FAIL, NOT_DECIDED, PASS) if word in found), UNGATED)


def adjust(reports: Sequence[GateReport]) -> list[GateReport]:
    """The reports of a suite with the alarms of guards and baselines weighed by Holm's method.

    Each was judged at alpha divided by the number of alarms, which settles whether there is
    any; where there is, Holm's steps may add more. So no FAIL is taken back, and a suite
    without one stays without. Source: Holm 1979, Scand. J. Stat. 6.
    """
    places = [(i, name) for i, report in enumerate(reports) for name in _alarms(report)]
    adjusted = holm([_p_of(reports[i], name) for i, name in places])
    changed = list(reports)
    for (i, name), p in zip(places, adjusted, strict=True):
        changed[i] = _with_adjusted(changed[i], name, p)
    return changed


def _alarms(report: GateReport) -> list[str]:
    """The tests of a report that were judged and can raise an alarm."""
    guard = report.p is not None and report.threshold_verdict != UNGATED
    baseline = report.baseline
    exact = baseline is not None and baseline.margin is None and baseline.verdict != UNGATED
    return ["guard"] * guard + ["baseline"] * exact


def _p_of(report: GateReport, name: str) -> float:
    if name == "baseline":
        assert report.baseline is not None
        return report.baseline.p
    assert report.p is not None
    return report.p


def _with_adjusted(report: GateReport, name: str, p: float) -> GateReport:
    alarm = p <= report.alpha
    if name == "baseline":
        assert report.baseline is not None
        verdict = FAIL if alarm else report.baseline.verdict
        report = replace(report, baseline=replace(report.baseline, adjusted_p=p, verdict=verdict))
    else:
        verdict = FAIL if alarm else report.threshold_verdict
        report = replace(report, adjusted_p=p, threshold_verdict=verdict)
    return replace(report, verdict=worst((report.verdict, verdict)))
