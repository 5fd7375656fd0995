"""Results for other readers: JUnit properties, and the summary page of a GitHub job."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_maatml.harness.wording import interval_text, rate_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_maatml.gating.report import GateReport
    from pytest_maatml.harness.results import FamilyResult
    from pytest_maatml.plugin.results import SessionResults, SuiteResults

#: GitHub takes 1,024 kB a step, all writers together.
_LIMIT: Final = 1000 * 1024
_HEAD: Final = "| family | verified | rate | Wilson 95% | gate | verdict | errors |"


def properties_of(result: FamilyResult, *, attempt: int) -> list[tuple[str, object]]:
    """The result as JUnit properties; names are constant, since nobody escapes them."""
    return [
        ("maatml_success", result.success),
        ("maatml_episodes", result.episodes),
        ("maatml_planned", result.planned),
        ("maatml_rate", rate_text(result.success, result.episodes)),
        ("maatml_wilson95", interval_text(result.success, result.episodes)),
        ("maatml_gate", result.rule or ""),
        ("maatml_verdict", result.verdict),
        ("maatml_errors", result.errors),
        ("maatml_attempt", attempt),
        ("maatml_episodes_file", str(Path(result.folder) / "episodes.jsonl")),
    ]


def write_step_summary(results: SessionResults) -> None:
    """Append a table to the page that GITHUB_STEP_SUMMARY names, if it does.

    Raises OSError where that cannot be written.
    """
    target = os.environ.get("GITHUB_STEP_SUMMARY")
    if not target or not results.suites:
        return
    text = "\n".join(_lines(results)) + "\n"
    path = Path(target)
    room = _LIMIT - (path.stat().st_size if path.exists() else 0)
    encoded = text.encode()
    if len(encoded) > room:
        note = b"\n\n(cut: the page is full)\n"
        kept = encoded[: max(0, room - len(note))].decode(errors="ignore").encode()
        encoded = kept + note if room > len(note) else b""
    with path.open("ab") as page:
        page.write(encoded)


def attempts_lines(suite: SuiteResults) -> list[str]:
    """A sentence for each family that was run again: the best of several is not the gate's rate."""
    return [
        f"{family} ran {len(verdicts)} times ({', '.join(verdicts)}): the last attempt counts, and "
        f"its gate is one of the best of {len(verdicts)}"
        for family, verdicts in suite.attempts.items()
        if len(verdicts) > 1
    ]


def _lines(results: SessionResults) -> Iterator[str]:
    yield "### closed-loop success"
    for folder, suite in results.suites.items():
        yield from ("", _HEAD, "|---|--:|--:|---|---|---|--:|")
        for result in suite.families.values():
            yield _row(result)
        if suite.overall is not None:
            yield _overall_row(suite, suite.overall)
        yield from _failures(suite)
        yield from (f"\n{line}" for line in attempts_lines(suite))
        yield from ("", f"episodes: `{folder / 'episodes.jsonl'}`")


def _row(result: FamilyResult) -> str:
    counts = (result.success, result.episodes)
    return _cells(result.family, *counts, result.rule or "-", result.verdict, result.errors)


def _overall_row(suite: SuiteResults, overall: GateReport) -> str:
    results = suite.families.values()
    success, errors = sum(r.success for r in results), sum(r.errors for r in results)
    episodes = sum(r.episodes for r in results)
    return _cells("overall", success, episodes, str(overall.rule), overall.verdict, errors)


def _cells(name: str, success: int, episodes: int, rule: str, verdict: str, errors: int) -> str:
    counted = (f"{success}/{episodes}", rate_text(success, episodes))
    cells = (name, *counted, interval_text(success, episodes), rule, verdict, str(errors))
    safe = (" ".join(cell.split()).replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(safe)} |"


def _failures(suite: SuiteResults) -> Iterator[str]:
    for family, result in suite.families.items():
        if not result.ok:
            file, line, name = suite.places.get(family, ("", None, family))
            at = f"{file}:{line + 1}" if line is not None else file
            yield f"\n**{result.verdict}** `{name}` ({at})"
