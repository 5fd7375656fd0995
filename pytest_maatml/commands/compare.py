"""`pytest-maatml compare`: whether a run is worse than an earlier one of the same tasks."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pytest_maatml.arguments import OVERALL_GATE
from pytest_maatml.errors import ConfigurationError
from pytest_maatml.table import aligned, counted

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from pytest_maatml.gates.stopping import EpisodeResult
    from pytest_maatml.gating.baseline import Baseline
    from pytest_maatml.gating.policy import GatePolicy
    from pytest_maatml.gating.report import BaselineReport, GateReport

_HEAD: Final = (
    "family",
    "pairs",
    "wins",
    "losses",
    "unpaired",
    "difference",
    "Newcombe 95%",
    "p",
    "Holm p",
    "verdict",
)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "compare",
        help="whether a run is worse than an earlier one of the same tasks",
        description="Exit status: 0 held, 1 regressed, 2 could not be decided.",
    )
    parser.add_argument("baseline", type=Path, metavar="BASELINE", help="episodes.jsonl, or folder")
    parser.add_argument("candidate", type=Path, metavar="CANDIDATE", help="the same")
    parser.add_argument(
        "--margin", metavar="SHARE", help="successes may fall short by this share of the tasks"
    )
    parser.add_argument("--alpha", type=float, default=0.05, metavar="P")
    parser.add_argument(
        "--max-errors", type=int, default=0, metavar="N", help="errors that leave it decided"
    )
    parser.add_argument("--json", action="store_true", help="JSON in place of a table")
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Print the comparison; 0 held, 1 regressed, 2 could not be decided.

    Raises RecordError for a file that cannot be read, ConfigurationError for two runs of different
    tasks.
    """
    from pytest_maatml.gating.policy import GatePolicy
    from pytest_maatml.gating.report import FAIL, PASS, worst

    policy = GatePolicy(
        alpha=chosen.alpha,
        baseline=chosen.baseline,
        margin=chosen.margin,
        max_errors=chosen.max_errors,
        stopping="exact",
    )
    reports = compare(policy, chosen.baseline, chosen.candidate)
    verdict = worst(report.verdict for report in reports)
    status = {PASS: 0, FAIL: 1}.get(verdict, 2)
    outcome = ("held", "regressed", "could not be decided")[status]
    if chosen.json:
        print(json.dumps(_as_json(reports, policy, outcome), indent=2))
    else:
        print("\n".join(_lines(reports, outcome)))
    return status


def compare(policy: GatePolicy, baseline_path: Path, candidate_path: Path) -> list[GateReport]:
    """A report for each family, and one for all together where there are several.

    A task that the candidate did not run could be either, one that errored is never a loss; one
    that is not in the baseline pairs with nothing. Raises as `run`.
    """
    from pytest_maatml.gating.baseline import Baseline
    from pytest_maatml.gating.report import adjust

    baseline = Baseline.read(baseline_path)
    pairs = _pairs(baseline, Baseline.read(candidate_path), _errors_beside(candidate_path))
    families: dict[str, list[_Pair]] = {}
    for pair in pairs:
        families.setdefault(pair.family, []).append(pair)
    groups = sorted(families.items())
    if len(groups) > 1:
        groups.append((OVERALL_GATE, pairs))
    alarms = len(groups)
    return adjust([_judge(policy, name, group, baseline.file, alarms) for name, group in groups])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """A task of either run; None stands for what is not known."""

    task_id: str
    family: str
    before: bool | None
    now: EpisodeResult | None


def _pairs(baseline: Baseline, candidate: Baseline, errors: dict[str, str]) -> list[_Pair]:
    """The candidate's tasks in its order, those that errored, then those of the baseline alone."""
    families = {task_id: task.family for task_id, task in candidate.tasks.items()} | errors
    only = {i: task.family for i, task in baseline.tasks.items() if i not in families}
    return [
        _Pair(
            task_id=task_id,
            family=family,
            before=_before(baseline, candidate, task_id),
            now=None if task_id in only else _now(candidate, task_id),
        )
        for task_id, family in (families | only).items()
    ]


def _before(baseline: Baseline, candidate: Baseline, task_id: str) -> bool | None:
    before, now = baseline.tasks.get(task_id), candidate.tasks.get(task_id)
    if before is None:
        return None
    if now is not None and before.content != now.content:
        raise ConfigurationError(
            f"task {task_id!r} of {candidate.file} is another task in {baseline.file}: the two "
            "have the same id and differ in content; compare runs of the same tasks"
        )
    return before.passed


def _now(candidate: Baseline, task_id: str) -> EpisodeResult:
    task = candidate.tasks.get(task_id)
    if task is None or task.passed is None:
        return "error"
    return "success" if task.passed else "failure"


def _errors_beside(path: Path) -> dict[str, str]:
    """Family by task id of the episodes that errored, from the file beside the candidate's."""
    from pytest_maatml.engine.encoding import decode
    from pytest_maatml.records.episodes import RecordError
    from pytest_maatml.records.run_records import EPISODES_NAME, ERRORS_NAME

    folder = path if path.is_dir() else path.parent
    file = folder / ERRORS_NAME
    if not file.exists() or (path != folder and path.name != EPISODES_NAME):
        return {}
    try:
        rows = [decode(line) for line in file.read_bytes().splitlines() if line.strip()]
        return {row["task_id"]: row["task_family"] for row in rows}
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise RecordError(f"{file} cannot be read: {error}; mend or remove it") from None


def _judge(
    policy: GatePolicy, name: str, pairs: Sequence[_Pair], file: str, alarms: int
) -> GateReport:
    from pytest_maatml.gating.baseline import BaselineGate
    from pytest_maatml.gating.counts import GateCounts, GateFacts, RateInterval
    from pytest_maatml.gating.report import NOT_DECIDED

    gate = BaselineGate(
        policy,
        [pair.before for pair in pairs],
        task_ids=[pair.task_id for pair in pairs],
        file=file,
        alarms=alarms,
    )
    results = [pair.now for pair in pairs]
    for result in results:
        if result is not None:  # those that did not run come last
            gate.feed(result)
    counts = GateCounts(
        success=results.count("success"),
        failures=results.count("failure"),
        errors=results.count("error"),
        unlabelled=0,
    )
    figures = gate.report(results, errors=counts.errors, judged=True)
    if not figures.pairs:
        figures = replace(figures, verdict=NOT_DECIDED)
    return GateFacts(
        policy=policy,
        family=name,
        threshold=None,
        rule=None,
        planned=len(pairs),
        stopping="off",
        seed=0,
        alarms=alarms,
    ).report(
        counts,
        None,
        RateInterval.of_full_run(counts),
        baseline=figures,
    )


def _figures(report: GateReport) -> BaselineReport:
    assert report.baseline is not None
    return report.baseline


def _lines(reports: Sequence[GateReport], outcome: str) -> list[str]:
    lines = aligned([_HEAD, *(_row(report) for report in reports)])
    for report in reports:
        if report.family != OVERALL_GATE and (lost := _figures(report).lost):
            lines.append(f"lost in {report.family}: {', '.join(lost)}")
    errors = sum(report.errors for report in reports if report.family != OVERALL_GATE)
    if errors:
        episodes = counted(errors, "episode")
        lines.append(f"{episodes} of the candidate errored; an error is never a loss")
    return [*lines, outcome]


def _row(report: GateReport) -> tuple[str, ...]:
    figures = _figures(report)
    low, high = figures.interval
    return (
        report.family,
        str(figures.pairs),
        str(figures.wins),
        str(figures.losses),
        str(report.planned - figures.pairs),
        "-" if figures.difference is None else f"{figures.difference:+.1%}",
        f"[{low:+.1%}, {high:+.1%}]",
        f"{figures.p:.4f}",
        f"{figures.adjusted_p:.4f}",
        figures.verdict,
    )


def _as_json(reports: Sequence[GateReport], policy: GatePolicy, outcome: str) -> dict[str, Any]:
    """All figures; `overall` is None where there is one family."""
    figures = {
        report.family: {
            **asdict(_figures(report)),
            "pairs": _figures(report).pairs,
            "unpaired": report.planned - _figures(report).pairs,
            "errors": report.errors,
        }
        for report in reports
    }
    overall = figures.pop(OVERALL_GATE, None)
    return {
        "outcome": outcome,
        "alpha": policy.alpha,
        "margin": policy.margin,
        "families": figures,
        "overall": overall,
    }
