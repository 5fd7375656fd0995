"""What the reports brought: results by folder, whichever process they came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_maatml.records.identity import RunIdentity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_maatml.results import FamilyResult


@dataclass(slots=True)
class SuiteResults:
    """The families of one folder."""

    identity: RunIdentity
    families: dict[str, FamilyResult] = field(default_factory=dict)
    #: What the folder's summary says, once it is written, or why it could not be.
    summary: Mapping[str, Any] | None = None
    problem: str | None = None

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

    def add(self, result: FamilyResult, identity: Mapping[str, Any]) -> None:
        """Take in a family; one that ran again replaces what was there."""
        path = Path(result.folder)
        if path not in self.suites:
            self.suites[path] = SuiteResults(RunIdentity.from_dict(identity))
        self.suites[path].families[result.family] = result
