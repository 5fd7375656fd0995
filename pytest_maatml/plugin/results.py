"""What the reports brought: results by folder, whichever process they came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_maatml.records.identity import RunIdentity
from pytest_maatml.results import NOT_DECIDED, FamilyResult

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
    #: What the folder's summary says, once it is written, or why it could not be.
    summary: Mapping[str, Any] | None = None
    problem: str | None = None
    #: What processes began; a family without a result was cut short.
    begun: dict[str, Announced] = field(default_factory=dict)

    def complete(self) -> None:
        """Add the families that were cut short, with what the summary has of them."""
        assert self.summary is not None
        for family, announced in self.begun.items():
            if family not in self.families:
                counts = self.summary["families"].get(family, {})
                self.families[family] = _cut_short(announced, counts)

    def gates(self) -> dict[str, dict[str, Any]]:
        """Family -> rule and verdict, for the summary file."""
        return {
            family: {"rule": result.rule, "required": result.required, "verdict": result.verdict}
            for family, result in self.families.items()
            if result.rule is not None
        }


class SessionResults:
    """Results by the folder that their episodes are in."""

    def __init__(self) -> None:
        self.suites: dict[Path, SuiteResults] = {}

    def add(self, result: FamilyResult, identity: Mapping[str, Any], place: Location) -> None:
        """Take in a family; one that ran again replaces what was there."""
        suite = self._suite(Path(result.folder), identity)
        suite.families[result.family] = result
        suite.places[result.family] = place

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
        rule=None,
        required=None,
        verdict=NOT_DECIDED,
        failed=(),
        errored=(),
        folder=str(announced.folder),
    )
