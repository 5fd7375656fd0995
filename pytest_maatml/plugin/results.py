"""What the reports brought: results by folder, whichever process they came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_maatml.gating.report import NOT_DECIDED, GateReport, adjust
from pytest_maatml.harness.results import FamilyResult
from pytest_maatml.records.identity import RunIdentity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_maatml.plugin.distributed import Announced

#: A report's own place: file, line from 0, and name.
Location = tuple[str, "int | None", str]


@dataclass(slots=True)
class SuiteResults:
    """The families of one folder."""

    identity: RunIdentity
    families: dict[str, FamilyResult] = field(default_factory=dict)
    places: dict[str, Location] = field(default_factory=dict)
    #: Verdicts of a family whose item ran again, in order; the last one counts.
    attempts: dict[str, list[str]] = field(default_factory=dict)
    #: The gate over all families together, where there is one.
    overall: GateReport | None = None
    #: What the folder's summary says, once it is written, or why it could not be.
    summary: Mapping[str, Any] | None = None
    problem: str | None = None
    #: What processes began; a family without a result was cut short.
    begun: dict[str, Announced] = field(default_factory=dict)

    @property
    def reports(self) -> list[GateReport]:
        """What the gates say, alarms of several families weighed together; the overall one last."""
        found = [result.gate for result in self.families.values() if result.gate is not None]
        return adjust(found) + ([] if self.overall is None else [self.overall])

    def gates(self) -> dict[str, dict[str, Any]]:
        """Family -> all that its gates say, for the summary file."""
        return {report.family: report.as_dict() for report in self.reports if report.asks}

    def skipped(self) -> set[int]:
        """Indexes that early stopping leaves out."""
        return {index for result in self.families.values() for index in result.skipped}

    def complete(self) -> None:
        """Add the families that were cut short, with what the summary has of them."""
        assert self.summary is not None
        for family, announced in self.begun.items():
            if family not in self.families:
                counts = self.summary["families"].get(family, {})
                self.families[family] = _cut_short(announced, counts)


class SessionResults:
    """Results by the folder that their episodes are in."""

    def __init__(self) -> None:
        self.suites: dict[Path, SuiteResults] = {}

    def add(
        self, result: FamilyResult, identity: Mapping[str, Any], place: Location, attempt: int
    ) -> None:
        """Take in a family; one that ran again replaces what was there."""
        suite = self._suite(Path(result.folder), identity)
        suite.families[result.family] = result
        suite.families = dict(sorted(suite.families.items(), key=lambda entry: entry[1].first))
        suite.places[result.family] = place
        before = suite.attempts.get(result.family, []) if attempt > 1 else []
        suite.attempts[result.family] = [*before, result.verdict]

    def add_overall(self, report: GateReport, folder: Path, identity: Mapping[str, Any]) -> None:
        """Take in the gate over all families of a folder."""
        self._suite(folder, identity).overall = report

    def expect(self, announced: Announced) -> None:
        """Take in that a process began a family."""
        self._suite(announced.folder, announced.identity).begun[announced.family] = announced

    def _suite(self, path: Path, identity: Mapping[str, Any]) -> SuiteResults:
        if path not in self.suites:
            self.suites[path] = SuiteResults(RunIdentity.from_dict(identity))
        return self.suites[path]


def _cut_short(announced: Announced, counts: Mapping[str, Any]) -> FamilyResult:
    return FamilyResult(
        suite=announced.suite,
        family=announced.family,
        planned=announced.planned,
        episodes=counts.get("episodes", 0),
        success=counts.get("success", 0),
        errors=0,
        unlabelled=0,
        decisions=0,
        truncated=0,
        verdict=NOT_DECIDED,
        gate=None if announced.gate is None else GateReport.from_dict(announced.gate),
        failed=(),
        errored=(),
        folder=str(announced.folder),
        first=announced.planned,
    )
