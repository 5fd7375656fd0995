"""`pytest-maatml merge`: shards of one run become one, and its gates are judged."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_maatml.gating.report import FAIL, NOT_DECIDED, GateReport, adjust

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Mapping

#: Exit status: every gate met, one not met, one not decided.
_HELD, _FAILED, _UNDECIDED = 0, 1, 2


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "merge",
        help="make one run of its shards and judge its gates",
        description="Exit status: 0 every gate is met, 1 one is not, 2 one is not decided, or the "
        "parts do not make one run.",
    )
    parser.add_argument("out", type=Path, metavar="OUT", help="folder of the whole run")
    parser.add_argument("inputs", nargs="+", type=Path, metavar="IN", help="folder or file")
    parser.add_argument("--overwrite", action="store_true", help="replace a collection in OUT")
    parser.set_defaults(run=_run)


def _run(chosen: argparse.Namespace) -> int:
    from pytest_maatml.errors import ConfigurationError
    from pytest_maatml.harness.wording import gate_lines
    from pytest_maatml.records.merge import merge_runs
    from pytest_maatml.table import counted

    if missing := [path for path in chosen.inputs if not path.exists()]:
        raise ConfigurationError(f"there is no file or folder {missing[0]}")
    recorded = _recorded_gates(chosen.inputs)
    reports: list[GateReport] = []

    def judge(summary: Mapping[str, Any]) -> dict[str, Any]:
        reports[:] = _judge(recorded, summary["families"], chosen.out)
        return {report.family: report.as_dict() for report in reports}

    summary = merge_runs(chosen.out, chosen.inputs, judge=judge, overwrite=chosen.overwrite)
    skipped = {index for report in reports for index in report.skipped}
    if skipped:
        summary = _leave_out(skipped, summary, chosen.out)
    for report in reports:
        print("\n".join(gate_lines(report, explain=False)))
    print(
        f"{summary['success']} of {summary['episodes']} episodes verified as success, "
        f"{counted(summary['errors'], 'error')}, in {chosen.out}"
    )
    if not any(map(_summary_of, chosen.inputs)):
        print(
            "pytest-maatml merge: no part has a summary that says what was asked, so no gate was "
            "judged: merge the folders of runs that ended",
            file=sys.stderr,
        )
        return _UNDECIDED
    return _status(reports, errors=summary["errors"])


def _leave_out(skipped: set[int], summary: Mapping[str, Any], out: Path) -> dict[str, Any]:
    """Take out what a whole run would not have kept: shards cannot know where it stops."""
    from pytest_maatml.records.folder import RunFolder
    from pytest_maatml.records.identity import RunIdentity

    identity = RunIdentity.from_dict(summary["identity"])
    with RunFolder.open(out, identity, ()) as folder:
        return folder.finish(gates=summary["gates"], skipped=skipped)


def _status(reports: Iterable[GateReport], *, errors: int) -> int:
    verdicts = {report.verdict for report in reports}
    if FAIL in verdicts:
        return _FAILED
    if NOT_DECIDED in verdicts or (errors and not verdicts):
        return _UNDECIDED
    return _HELD


def _recorded_gates(inputs: Iterable[Path]) -> dict[str, dict[str, Any]]:
    """The rule of each gate, as the shards wrote it into their summaries."""
    gates: dict[str, dict[str, Any]] = {}
    for path in inputs:
        gates.update(_summary_of(path).get("gates", {}))
    return gates


def _summary_of(path: Path) -> dict[str, Any]:
    from pytest_maatml.records.run_records import SUMMARY_NAME, read_summary

    return read_summary((path if path.is_dir() else path.parent) / SUMMARY_NAME)


def _judge(
    recorded: Mapping[str, Mapping[str, Any]], families: Iterable[str], out: Path
) -> list[GateReport]:
    """The gates over the merged rows; alarms of several families weighed together."""
    from pytest_maatml.arguments import OVERALL_GATE
    from pytest_maatml.gating.again import count_ungated, judge_again
    from pytest_maatml.gating.family import OverallGate

    overall = None
    if OVERALL_GATE in recorded:
        overall = OverallGate.of_record(recorded[OVERALL_GATE])
    reports = []
    for family, record in recorded.items():
        if family != OVERALL_GATE:
            rows = _rows(out / "episodes.jsonl", family)
            errors = _rows(out / "errors.jsonl", family)
            reports.append(judge_again(record, rows, errors, overall=overall))
    reports = adjust(reports)
    if overall is None:
        return reports
    others = [
        count_ungated(name, _rows(out / "episodes.jsonl", name), _rows(out / "errors.jsonl", name))
        for name in families
        if name not in recorded
    ]
    return [*reports, overall.finish([*reports, *others])]


def _rows(path: Path, family: str) -> Iterator[dict[str, Any]]:
    """The rows of a family, without their decisions."""
    from pytest_maatml.engine.encoding import decode

    if not path.exists():
        return
    with path.open("rb") as lines:
        for line in lines:
            row = decode(line)
            if row["task_family"] == family:
                row.pop("decisions", None)
                yield row
