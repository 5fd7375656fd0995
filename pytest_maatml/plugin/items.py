"""The items of a suite: a family each, and the gate over all of them."""

from __future__ import annotations

import shlex
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from pytest_maatml.errors import MaatmlError
from pytest_maatml.gating.report import PASS, UNGATED
from pytest_maatml.harness.wording import failure_text, gate_lines, shown_path
from pytest_maatml.plugin.session import MaatmlWarning, session_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pytest_maatml.harness.spec import RolloutSpec


class GateNotMet(Exception):
    """A gate that is not met, or not decided, in words."""


class GateItem(pytest.Item):
    """An item that passes if a gate does."""

    def __init__(self, *, spec: RolloutSpec, **node: Any) -> None:
        super().__init__(**node)
        self.spec = spec
        self.add_marker(pytest.mark.maatml)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """What a user or an environment did, without a traceback of ours."""
        error = excinfo.value
        if isinstance(error, GateNotMet | MaatmlError | MaatmlWarning):
            place = shown_path(self.path, self.config.invocation_params.dir)
            return f"{error}\n\n{place}:{self.spec.line}: {type(error).__name__}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        assert self.parent is not None
        return self.path, self.spec.line - 1, f"{self.parent.name}::{self.name}"


class FamilyItem(GateItem):
    """The episodes of one task family, judged by the family's gates."""

    def __init__(self, *, family: str, **node: Any) -> None:
        super().__init__(**node)
        self.family = family

    def runtest(self) -> None:
        # The policy is loaded here and not in setup, whose failures pytest shows by traceback.
        assert self.parent is not None
        session = session_of(self.config)
        result = session.run(self, self.spec, self.family, suite=self.parent.name)
        if not result.ok:
            raise GateNotMet(failure_text(result, again=partial(command_for, self)))


class OverallItem(GateItem):
    """The gate over all families together; their items run before it.

    In a shard it is for `merge` to judge, which finds here what was asked.
    """

    def runtest(self) -> None:
        assert self.parent is not None
        report = session_of(self.config).judge_overall(self, self.spec)
        if report.verdict not in (PASS, UNGATED):
            again = command_for(self.parent)
            lines = [
                *gate_lines(report, explain=False),
                "",
                "run its families again:",
                f"  {again}",
            ]
            raise GateNotMet("\n".join(lines))


def command_for(node: pytest.Item | pytest.Collector, *more: str) -> str:
    """The command that runs `node` alone, as somebody would type it where pytest was started."""
    started = node.config.invocation_params
    kept = _options(started.args, node.config.option.file_or_dir)
    _, _, parts = node.nodeid.partition("::")
    place = f"{shown_path(node.path, started.dir)}::{parts}"
    return shlex.join(["pytest", *kept, *more, place])


def _options(arguments: Iterable[object], positional: Iterable[str]) -> list[str]:
    """`arguments` without the paths among them; the value of an option may be spelt like one."""
    kept = [str(argument) for argument in arguments]
    for path in positional:
        places = [place for place, argument in enumerate(kept) if argument == path]
        plain = [place for place in places if place == 0 or not _may_take_value(kept[place - 1])]
        if places:
            del kept[(plain or places[-1:])[0]]
    return kept


def _may_take_value(argument: str) -> bool:
    return argument.startswith("-") and "=" not in argument
