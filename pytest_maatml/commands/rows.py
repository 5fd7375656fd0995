"""`pytest-maatml rows`: labelled episodes become training rows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from pytest_maatml.errors import ConfigurationError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from pytest_maatml.engine.protocol import JSONObject
    from pytest_maatml.models import ModelDefinition
    from pytest_maatml.records.formats import EpisodeFormat

    Commands: TypeAlias = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(commands: Commands) -> None:
    """Add the command; what it parses has its function as `run`."""
    parser = commands.add_parser("rows", help="turn labelled episodes into training rows")
    parser.add_argument(
        "episodes", nargs="+", type=Path, metavar="EPISODES", help="folders of runs, or files"
    )
    parser.add_argument("--model", required=True, type=Path, metavar="DIR")
    parser.add_argument("--format", metavar="NAME", help="by default dataset.format of the model")
    parser.add_argument("--split", default="train", help="the split that each task must carry")
    parser.add_argument("--out", required=True, type=Path, metavar="FILE")
    parser.set_defaults(run=_run)


def _run(chosen: argparse.Namespace) -> int:
    from pytest_maatml.models import load_plugins, read_model
    from pytest_maatml.records.rows import RowUnion, write_rows

    model = read_model(chosen.model)
    load_plugins(model)
    chosen_format = find_episode_format(model, chosen.format)
    union = RowUnion()
    rows = converted(chosen_format, chosen.episodes, split=chosen.split)
    written = write_rows(union.new(rows), chosen.out)
    print(f"rows      {chosen.out}: {written} ({union.duplicates} exact duplicates dropped)")
    return 0


def find_episode_format(model: ModelDefinition, name: str | None) -> EpisodeFormat:
    """The format of that name, by default that of `dataset.format`.

    Raises ConfigurationError where there is none, and for one that prepares seed files for maatml
    and knows no episodes.
    """
    from pytest_maatml.records.formats import as_format
    from pytest_maatml.records.splits import dataset_settings
    from pytest_maatml.registry import find

    wanted = name or dataset_settings(model).get("format")
    if not isinstance(wanted, str):
        raise ConfigurationError(
            f"{model.model_file} has no dataset.format that names a format; add one, or give "
            "--format"
        )
    found = find("format", wanted)
    if found.from_peer:
        raise ConfigurationError(
            f"the format {wanted!r} is maatml's own and prepares seed files; episodes need one "
            "that is registered with pytest_maatml.registry.register_format: give it as --format"
        )
    return as_format(found.target, name=wanted)


def converted(
    chosen_format: EpisodeFormat, places: Sequence[Path], *, split: str = "train"
) -> Iterator[JSONObject]:
    """Yield the rows of all episodes in `places`, which are folders of runs or files.

    What errored is not there to be learned from; stderr says how many those are. Raises RowError
    as `EpisodeFormat.convert`, RecordError for a file that cannot be read.
    """
    from pytest_maatml.records.episodes import read_episodes
    from pytest_maatml.table import counted

    for place in places:
        file = place / "episodes.jsonl" if place.is_dir() else place
        if errors := _count_errors(file.with_name("errors.jsonl")):
            give = "gives" if errors == 1 else "give"
            print(
                f"{place}: {counted(errors, 'episode')} errored and {give} no rows", file=sys.stderr
            )
        yield from chosen_format.convert(read_episodes(file), split=split)


def _count_errors(path: Path) -> int:
    if not path.is_file():
        return 0
    with path.open("rb") as lines:
        return sum(1 for line in lines if line.strip())
