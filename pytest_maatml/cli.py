"""`pytest-maatml`: the jobs that are not tests."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from pytest_maatml import __version__
from pytest_maatml.commands import (
    check_env,
    compare,
    merge,
    plan,
    prepare,
    rollout,
    rows,
    serve,
    summarize,
)
from pytest_maatml.errors import MaatmlError, describe

if TYPE_CHECKING:
    from collections.abc import Sequence

#: In the order in which help lists them.
_COMMANDS = (rollout, serve, check_env, summarize, merge, compare, plan, rows, prepare)

_LIKE_PYTEST = ("rollout", "check-env")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status; 2 is a command that could not run."""
    parser = argparse.ArgumentParser(prog="pytest-maatml", description=__doc__)
    parser.add_argument("--version", action="version", version=f"pytest-maatml {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in _COMMANDS:
        command.add_parser(commands)
    chosen = parser.parse_args(arguments)
    try:
        status: int = chosen.run(chosen)
    except MaatmlError as error:
        print(f"pytest-maatml {chosen.command}: {_named_here(chosen, error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except Exception:
        raise
    except BaseException as left:  # of an environment or a policy: no success of ours
        print(f"pytest-maatml {chosen.command}: cut short by {describe(left)}", file=sys.stderr)
        code = left.code if isinstance(left, SystemExit) else None
        return code if isinstance(code, int) and code else 2
    return status


def _named_here(chosen: argparse.Namespace, error: MaatmlError) -> str:
    """The message; two commands have pytest's options under names without the prefix."""
    text = str(error)
    return text.replace("--maatml-", "--") if chosen.command in _LIKE_PYTEST else text
