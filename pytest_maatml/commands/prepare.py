"""`pytest-maatml prepare`: seed rows, benchmark and rounds become the data of one training."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_maatml.commands.rows import converted, find_episode_format
from pytest_maatml.errors import ConfigurationError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from pytest_maatml.commands.rows import Commands
    from pytest_maatml.engine.protocol import JSONObject
    from pytest_maatml.models import ModelDefinition


def add_parser(commands: Commands) -> None:
    """Add the command; what it parses has its function as `run`."""
    parser = commands.add_parser(
        "prepare", help="split the seed rows, and let rounds of episodes join the training split"
    )
    parser.add_argument("model_dir", type=Path, metavar="MODEL_DIR")
    parser.add_argument(
        "--episodes",
        action="extend",
        nargs="+",
        default=[],
        type=Path,
        metavar="ROUND_DIR",
        help="folders of labelled runs, or files",
    )
    parser.add_argument("--format", metavar="NAME", help="by default dataset.format of the model")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="by default MODEL_DIR/output/prepared"
    )
    parser.set_defaults(run=_run)


def _run(chosen: argparse.Namespace) -> int:
    from pytest_maatml.models import load_plugins, read_model
    from pytest_maatml.records.rows import prepare_rows

    model = read_model(chosen.model_dir)
    train_rows: Iterator[JSONObject] | None = None
    if chosen.episodes:
        load_plugins(model)
        train_rows = converted(find_episode_format(model, chosen.format), chosen.episodes)
    card = prepare_rows(
        model,
        _declared_rows(model, "seed_samples", required=True),
        train_rows=train_rows,
        benchmark_rows=_declared_rows(model, "benchmark_samples"),
        out_dir=chosen.out,
    )
    _report(card)
    return 0


def _declared_rows(
    model: ModelDefinition, key: str, *, required: bool = False
) -> Iterator[JSONObject]:
    """The rows of the file that `dataset.<key>` names, relative to the model folder."""
    from pytest_maatml.records.rows import read_rows
    from pytest_maatml.records.splits import dataset_settings

    declared = dataset_settings(model).get(key)
    if declared is None and not required:
        return iter(())
    if not isinstance(declared, str) or not declared:
        raise ConfigurationError(
            f"{model.model_file}: dataset.{key} must name a file of rows, not {declared!r}"
        )
    return read_rows(model.resolve(declared))


def _report(card: JSONObject) -> None:
    for split, count in card["split_counts"].items():
        print(f"{split:<9} {card['splits'][split]}: {count} rows")
    shares = dict(zip(("train", "val", "test"), card["split_ratios"], strict=True))
    for split, share in shares.items():
        if share and not card["split_counts"][split]:
            print(
                f"{split} is empty: no group of the seed rows fell there; with a share of {share} "
                "it takes more groups",
                file=sys.stderr,
            )
    dropped = sum(card["duplicates_dropped"].values())
    print(f"card      {card['card']} ({dropped} exact duplicates dropped)")
