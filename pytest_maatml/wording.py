"""Results in words and tables, for the terminal."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from pytest_maatml.gates.intervals import wilson
from pytest_maatml.results import NOT_DECIDED, SHOWN, UNGATED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pytest_maatml.results import FamilyResult

_HEAD: Final = ("family", "verified", "rate", "Wilson 95%", "gate", "verdict")


def rate_text(success: int, total: int) -> str:
    return f"{success / total:.1%}" if total else "-"


def interval_text(success: int, total: int) -> str:
    low, high = wilson(success, total)
    return f"[{low:.1%}, {high:.1%}]"


def summary_table(results: Sequence[FamilyResult]) -> list[str]:
    """The families of one suite as lines: a row each, a total, and what the run cost."""
    success = sum(result.success for result in results)
    episodes = sum(result.episodes for result in results)
    rows = [_HEAD, *(_row(result) for result in results)]
    rows.append(
        (
            "overall",
            f"{success}/{episodes}",
            rate_text(success, episodes),
            interval_text(success, episodes),
            "",
            "",
        )
    )
    return [*_align(rows), _cost(results)]


def _row(result: FamilyResult) -> tuple[str, ...]:
    return (
        result.family,
        f"{result.success}/{result.episodes}",
        rate_text(result.success, result.episodes),
        interval_text(result.success, result.episodes),
        result.rule or UNGATED,
        result.verdict,
    )


def _align(rows: Iterable[Sequence[str]]) -> list[str]:
    table = list(rows)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    left = (True, False, False, True, True, True)
    return [
        "   ".join(
            cell.ljust(width) if keep else cell.rjust(width)
            for cell, width, keep in zip(row, widths, left, strict=True)
        ).rstrip()
        for row in table
    ]


def _cost(results: Sequence[FamilyResult]) -> str:
    decisions = sum(result.decisions for result in results)
    truncated = sum(result.truncated for result in results)
    errors = sum(result.errors for result in results)
    return f"{decisions} decisions · {truncated} truncated · {errors} errors"


def shown_path(path: Path, start: Path) -> str:
    """`path` as somebody in `start` would write it."""
    try:
        return str(path.relative_to(start))
    except ValueError:
        relative = os.path.relpath(path, start)
        return str(path) if relative.startswith(os.path.join("..", "..")) else relative


def failure_text(result: FamilyResult, *, again: str) -> str:
    """Why the item of `result` does not pass, and the command that runs it again."""
    lines = [_headline(result)]
    if result.failed:
        failures = result.failures
        more = "" if failures <= SHOWN else f", the first {SHOWN} of them"
        lines += ["", f"{failures} episodes did not succeed{more}:", *_failed_rows(result)]
    if result.errored:
        more = "" if result.errors <= SHOWN else f", the first {SHOWN} of them"
        lines += ["", f"{result.errors} episodes errored{more}:"]
        lines += [f"  {line}" for line in result.errored]
    return "\n".join([*lines, "", "run it again:", f"  {again}"])


def _headline(result: FamilyResult) -> str:
    counts = (
        f"{result.success} of {result.episodes} episodes verified as success "
        f"({rate_text(result.success, result.episodes)}), {result.errors} errors, "
        f"{result.planned} planned"
    )
    if result.verdict == UNGATED:
        return f"{result.family}: {counts}. No gate was given, but an error always fails."
    text = f"{result.family}: the gate is {result.rule}; {counts}: {result.verdict}."
    if result.verdict == NOT_DECIDED:
        text += f"\n{_why_undecided(result)}"
    return text


def _why_undecided(result: FamilyResult) -> str:
    reasons = []
    if result.errors:
        reasons.append(f"{result.errors} episodes errored")
    if result.unlabelled:
        reasons.append(f"{result.unlabelled} were cut for want of a label")
    missing = result.planned - result.episodes - result.errors
    if missing:
        reasons.append(f"{missing} did not run")
    return (
        f"The gate could not be decided: {' and '.join(reasons)}. That is neither success nor "
        f"failure; mend what went wrong and run again."
    )


def _failed_rows(result: FamilyResult) -> list[str]:
    rows = [("task", "status", "decisions", "last action")]
    rows += [
        (episode.task_id, episode.status, str(episode.decisions), episode.last_action or "-")
        for episode in result.failed
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  "
        + "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
