"""`pytest-maatml serve`: a Python environment as a program over stdin and stdout."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("serve", help="serve an environment over stdin and stdout")
    parser.add_argument("env", metavar="ENV", help="a registered name, MODULE:ATTR, FILE.py:ATTR")
    parser.add_argument("--model", type=Path, metavar="DIR", help="run this folder's plugins first")
    parser.add_argument(
        "--plugin", action="append", default=[], metavar="MODULE", help="import it first"
    )
    parser.set_defaults(run=_run)


def _run(chosen: argparse.Namespace) -> int:
    import importlib

    from pytest_maatml.engine.server import serve
    from pytest_maatml.errors import ConfigurationError, describe
    from pytest_maatml.harness.rig import make_environment
    from pytest_maatml.models import load_plugins, read_model
    from pytest_maatml.registry import resolve_reference

    if chosen.model is not None:
        load_plugins(read_model(chosen.model))
    for module in chosen.plugin:
        try:
            importlib.import_module(module)
        except Exception as error:
            raise ConfigurationError(f"--plugin {module}: {describe(error)}") from error
    target = resolve_reference(chosen.env, kind="environment", base=Path.cwd())
    serve(make_environment(target, chosen.env))
    return 0
