"""`pytest-maatml summarize`: what episode files say, recounted from their rows."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_maatml.table import aligned, counted

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("summarize", help="count the episodes of files, or of folders")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--json", action="store_true", help="as JSON, with all counts")
    parser.set_defaults(run=_run)


def _run(chosen: argparse.Namespace) -> int:
    from pytest_maatml.records.episodes import read_episodes
    from pytest_maatml.records.summary import summarize

    summary = summarize(chain.from_iterable(map(read_episodes, map(_file_of, chosen.files))))
    print(json.dumps(summary, indent=2, sort_keys=True) if chosen.json else _text(summary))
    return 0


def _file_of(path: Path) -> Path:
    from pytest_maatml.records.episodes import RecordError

    if not path.is_dir():
        return path
    file = path / "episodes.jsonl"
    if not file.exists():
        raise RecordError(
            f"{path} has no episodes.jsonl; give the folder of one run, such as "
            "MODEL_DIR/output/episodes/rollout-r0"
        )
    return file


def _text(summary: Mapping[str, Any]) -> str:
    rows: list[tuple[str, ...]] = [("family", "verified", "rate", "Wilson 95%")]
    rows += [_row(family, counts) for family, counts in summary["families"].items()]
    lines = aligned([*rows, _row("overall", summary)])
    decisions = counted(summary["decisions"], "decision")
    lines.append(f"{decisions}, {counted(summary['truncated'], 'episode')} truncated")
    if summary["labelled_decisions"]:
        labelled = counted(summary["labelled_decisions"], "decision")
        lines.append(
            f"{labelled} labelled; the policy agrees with the "
            f"teacher on {summary['policy_agrees_with_teacher']:.1%}"
        )
    return "\n".join(lines)


def _row(name: str, counts: Mapping[str, Any]) -> tuple[str, ...]:
    low, high = counts["wilson95"]
    return (
        name,
        f"{counts['success']}/{counts['episodes']}",
        f"{counts['success_rate']:.1%}",
        f"[{low:.1%}, {high:.1%}]",
    )
