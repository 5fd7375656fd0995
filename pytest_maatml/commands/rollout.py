"""`pytest-maatml rollout`: a collection job that is not a test."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from pytest_maatml.engine.record import Episode, EpisodeError
    from pytest_maatml.harness.choices import RolloutChoices
    from pytest_maatml.harness.results import FamilyTally
    from pytest_maatml.harness.spec import RolloutSpec


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "rollout", help="act with a checkpoint in an environment and keep the episodes"
    )
    parser.add_argument("model_dir", type=Path, metavar="MODEL_DIR", help="model folder")
    parser.add_argument("--env", metavar="REF", help="a registered name, MODULE:ATTR, FILE.py:ATTR")
    parser.add_argument("--env-command", metavar="CMD", help="a program that serves over stdio")
    parser.add_argument("--tasks", default="{}", metavar="JSON", help="query, array, or @FILE")
    parser.add_argument("--checkpoint", metavar="RUN", help="run id or folder")
    parser.add_argument("--device")
    parser.add_argument("--label", action="store_true", help="record the teacher's valid ids")
    parser.add_argument("--teacher-mix", metavar="SHARE", help="needs --label")
    parser.add_argument("--option", action="append", default=[], metavar="K=V", help="for resets")
    parser.add_argument("--source", metavar="NAME", help="dagger with --label, else rollout")
    parser.add_argument("--round", type=int, metavar="N", help="of collection")
    parser.add_argument("--seed", type=int, metavar="N")
    parser.add_argument("--max-decisions", type=int, metavar="N")
    parser.add_argument("--timeout", type=float, metavar="SECONDS")
    parser.add_argument("--out", type=Path, metavar="DIR")
    parser.add_argument("--workers", type=int, metavar="N", help="processes")
    parser.add_argument("--resume", action="store_true", help="go on with an unfinished run")
    parser.add_argument("--overwrite", action="store_true", help="replace another run's collection")
    parser.set_defaults(run=_run)


def _spec_of(chosen: argparse.Namespace) -> RolloutSpec:
    from pytest_maatml.models import load_plugins, read_model

    choices = _choices(chosen)
    choices.check(needs_environment=True)
    model = read_model(chosen.model_dir)
    load_plugins(model)
    return choices.spec(base=choices.started_in, model=model)


def _choices(chosen: argparse.Namespace) -> RolloutChoices:
    from pytest_maatml.arguments import read_options, read_tasks
    from pytest_maatml.harness.choices import RolloutChoices

    here = Path.cwd()
    return RolloutChoices(
        started_in=here,
        env=chosen.env or None,
        env_command=chosen.env_command or None,
        tasks=read_tasks(chosen.tasks, option="--tasks", base=here),
        options=read_options(chosen.option, option="--option"),
        checkpoint=chosen.checkpoint,
        device=chosen.device,
        label=chosen.label,
        collects=True,
        teacher_mix=chosen.teacher_mix,
        source=chosen.source or None,
        round=chosen.round,
        seed=chosen.seed,
        max_decisions=chosen.max_decisions,
        timeout=chosen.timeout,
        out=chosen.out.resolve() if chosen.out else None,
        workers=chosen.workers,
        resume=chosen.resume,
        overwrite=chosen.overwrite,
    )


def _run(chosen: argparse.Namespace) -> int:
    from pytest_maatml.harness.results import run_family
    from pytest_maatml.harness.rig import Rig, open_environment
    from pytest_maatml.harness.wording import shown_path, summary_table
    from pytest_maatml.records.folder import RunFolder

    spec = _spec_of(chosen)
    carrier = open_environment(spec, warn=lambda text: print(f"warning: {text}", file=sys.stderr))
    try:
        rig = Rig(spec, carrier)
        with RunFolder.open(
            spec.out, rig.identity, rig.plans, overwrite=spec.overwrite, resume=spec.resume
        ) as folder:
            results = [
                run_family(rig, family, folder, suite=rig.hello.name, watch=_Ticker(family))
                for family in rig.families
            ]
            summary = folder.finish(gates={})
    finally:
        carrier.shutdown()
    print("\n".join(summary_table(results)))
    for result in results:
        for error in result.errored:
            print(f"error: {error}", file=sys.stderr)
    print(f"episodes  {shown_path(spec.out / 'episodes.jsonl', Path.cwd())}")
    return 1 if summary["errors"] else 0


class _Ticker:
    """A line every ten seconds, for jobs that take long."""

    def __init__(self, family: str) -> None:
        self._family = family
        self._due = time.monotonic() + 10

    def __call__(self, tally: FamilyTally, ended: Episode | EpisodeError) -> None:
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + 10
            print(f"{self._family}: {tally.ended} episodes ended, {tally.success} verified")
