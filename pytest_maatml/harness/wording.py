"""Results in words and tables, for the terminal."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from pytest_maatml.gates.intervals import wilson
from pytest_maatml.gating.explain import explain_lines, rule_line, verdict_lines
from pytest_maatml.gating.report import NOT_DECIDED, UNGATED
from pytest_maatml.harness.results import SHOWN
from pytest_maatml.table import aligned, counted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pytest_maatml.gating.report import GateReport
    from pytest_maatml.harness.results import FamilyResult

_HEAD: Final = ("family", "verified", "rate", "Wilson 95%", "gate", "verdict")
_LEFT: Final = (True, False, False, True, True, True)


def rate_text(success: int, total: int) -> str:
    return f"{success / total:.1%}" if total else "-"


def interval_text(success: int, total: int) -> str:
    low, high = wilson(success, total)
    return f"[{low:.1%}, {high:.1%}]"


def summary_table(results: Sequence[FamilyResult], overall: GateReport | None = None) -> list[str]:
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
            "" if overall is None else str(overall.rule),
            "" if overall is None else overall.verdict,
        )
    )
    return [*aligned(rows, left=_LEFT), _cost(results)]


def _row(result: FamilyResult) -> tuple[str, ...]:
    return (
        result.family,
        f"{result.success}/{result.episodes}",
        rate_text(result.success, result.episodes),
        interval_text(result.success, result.episodes),
        result.rule or ("each task" if result.judges_tasks else UNGATED),
        result.verdict,
    )


def _cost(results: Sequence[FamilyResult]) -> str:
    decisions = sum(result.decisions for result in results)
    truncated = sum(result.truncated for result in results)
    errors = sum(result.errors for result in results)
    cost = f"{counted(decisions, 'decision')} · {truncated} truncated · {counted(errors, 'error')}"
    if skipped := sum(len(result.skipped) for result in results):
        cost += f" · {skipped} skipped: rates and intervals are of the episodes that ran"
    return cost


def shown_path(path: Path, start: Path) -> str:
    """`path` as somebody in `start` would write it."""
    try:
        return str(path.relative_to(start))
    except ValueError:
        relative = os.path.relpath(path, start)
        return str(path) if relative.startswith(os.path.join("..", "..")) else relative


def failure_text(result: FamilyResult, *, again: Callable[..., str]) -> str:
    """Why the item of `result` does not pass, and the commands that run it again.

    `again` gives the command for the item, with more arguments if it is given any.
    """
    lines = [_headline(result)]
    if result.gate is not None and result.gate.asks:
        lines += [f"  {rule_line(result.gate)}", *verdict_lines(result.gate)[1:]]
    if result.failed:
        failures = result.failures
        more = "" if failures <= SHOWN else f", the first {SHOWN} of them"
        episodes = counted(failures, "episode")
        lines += ["", f"{episodes} did not succeed{more}:", *_failed_rows(result)]
    if result.errored:
        more = "" if result.errors <= SHOWN else f", the first {SHOWN} of them"
        lines += ["", f"{counted(result.errors, 'episode')} errored{more}:"]
        lines += [f"  {line}" for line in result.errored]
    lines += ["", "run it again:", f"  {again()}"]
    if result.failed:
        one = again(f"--maatml-task={result.failed[0].task_id}")
        lines += ["one of its tasks alone:", f"  {one}"]
    return "\n".join(lines)


def _headline(result: FamilyResult) -> str:
    counts = (
        f"{result.success} of {result.episodes} episodes verified as success "
        f"({rate_text(result.success, result.episodes)}), {counted(result.errors, 'error')}, "
        f"{result.planned} planned"
    )
    if result.verdict == UNGATED:
        return f"{result.family}: {counts}. No gate was given, but an error always fails."
    rule = f"the gate is {result.rule}; " if result.rule is not None else ""
    text = f"{result.family}: {rule}{counts}: {result.verdict}."
    if result.verdict == NOT_DECIDED:
        text += f"\n{_why_undecided(result)}"
    return text


def gate_lines(report: GateReport, *, explain: bool) -> list[str]:
    """A gate in full: the rule first, then the verdict and its figures, then what they mean."""
    lines = [*verdict_lines(report)[:1], f"  {rule_line(report)}", *verdict_lines(report)[1:]]
    if explain:
        lines += [f"  {sentence}" for sentence in explain_lines(report)]
    return lines


def _why_undecided(result: FamilyResult) -> str:
    reasons = []
    if result.errors:
        reasons.append(f"{counted(result.errors, 'episode')} errored")
    if result.unlabelled:
        were = "was" if result.unlabelled == 1 else "were"
        reasons.append(f"{result.unlabelled} {were} cut for want of a label")
    missing = result.planned - result.episodes - result.errors - len(result.skipped)
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
    return [f"  {line}" for line in aligned(rows, left=(True, True, False, True))]
