"""A line that tells how far a long item is."""

from __future__ import annotations

from contextlib import nullcontext
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Self

from pytest_maatml.engine.record import Episode
from pytest_maatml.plugin.workers import worker_id
from pytest_maatml.table import counted

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import TracebackType

    import pytest

    from pytest_maatml.engine.record import EpisodeError
    from pytest_maatml.harness.results import FamilyTally

#: Seconds: before the first line of a terminal, between two of them, and between plain lines.
_FIRST: Final = 1.0
_EVERY: Final = 0.2
_PLAIN: Final = 10.0


class Progress:
    """Shows a family's tally: one line that changes on a terminal, else plain lines with `-v`.

    Says nothing in an xdist worker, whose output nobody sees.
    """

    def __init__(self, config: pytest.Config, family: str, planned: int) -> None:
        self._reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
        self._capture: Any = config.pluginmanager.get_plugin("capturemanager")
        self._family, self._planned = family, planned
        self._live = bool(self._reporter and self._reporter.isatty and self._reporter.hasmarkup)
        self._silent = self._reporter is None or worker_id(config) is not None
        if not self._live and config.get_verbosity() < 1:
            self._silent = True
        self._each = not self._silent and config.get_verbosity() > 1
        self._due = monotonic() + (_FIRST if self._live else _PLAIN)
        self._shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._shown and self._live:
            with self._uncaptured():
                self._reporter._tw.write("\r\x1b[K", flush=True)

    def show(self, tally: FamilyTally, ended: Episode | EpisodeError) -> None:
        """Say how far it is, if it is time to; with `-vv` say how each episode ended."""
        if self._each:
            with self._uncaptured():
                self._reporter.ensure_newline()
                self._reporter.write_line(f"  {_ending(ended)}")
            return
        if self._silent or monotonic() < self._due:
            return
        self._due = monotonic() + (_EVERY if self._live else _PLAIN)
        line = (
            f"maatml: {self._family} {tally.ended}/{self._planned} episodes, "
            f"{tally.success} verified, {counted(tally.errors, 'error')}"
        )
        with self._uncaptured():
            if not self._shown:
                self._reporter.ensure_newline()
            self._shown = True
            if self._live:
                self._reporter._tw.write(f"\r\x1b[K{line}", flush=True)
            else:
                self._reporter.write_line(line)

    def _uncaptured(self) -> AbstractContextManager[Any]:
        if self._capture is None:
            return nullcontext()
        disabled: AbstractContextManager[Any] = self._capture.global_and_fixture_disabled()
        return disabled


def _ending(ended: Episode | EpisodeError) -> str:
    if isinstance(ended, Episode):
        status = ended.truncated or ended.status
        return f"{ended.task_id}  {status}  {counted(ended.decisions, 'decision')}"
    return f"{ended.task_id}  error  {ended.message}"
