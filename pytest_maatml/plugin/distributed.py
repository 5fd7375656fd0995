"""xdist: which process this is, and what the workers leave for the controller."""

from __future__ import annotations

import fcntl
import json
import shutil
import time
import uuid
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pytest_maatml.errors import ConfigurationError
from pytest_maatml.gating.report import GateReport
from pytest_maatml.plugin.workers import common_of, make_board, worker_id

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    import pytest

    from pytest_maatml.harness.rig import Rig

#: Seconds without news after which a family that nobody has begun is given up.
_PATIENCE: Final = 5.0
_PAUSE: Final = 0.05
#: How the file ends that a worker holds locked while it is at an item.
_AT_WORK: Final = ".at-work"


@dataclass(frozen=True, slots=True, kw_only=True)
class Announced:
    """A family that a process of this session began, and how many episodes it has."""

    folder: Path
    identity: Mapping[str, Any]
    suite: str
    family: str
    planned: int
    #: What its gates say as long as nothing has ended; None where only a part of it runs.
    gate: Mapping[str, Any] | None


class Party:
    """The processes of one session: a controller and its workers, or this one alone.

    A worker's report is lost if the worker dies, so what it is about to do stands on a board that
    all can read: a folder with a file a family. The first to need it makes it.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.worker = worker_id(config)
        self._common = common_of(config)
        self.name = self._common.name
        self._has_board = False
        self._own: list[Announced] = []
        self._posted: dict[tuple[Path, str], GateReport] = {}

    @property
    def _board(self) -> Path | None:
        return self._common.board

    def announce(self, rig: Rig, family: str, *, suite: str) -> None:
        """Say that this process begins a family."""
        announced = {
            "folder": str(rig.spec.out),
            "identity": rig.identity.as_dict(),
            "suite": suite,
            "family": family,
            "planned": len(rig.families[family]),
            "gate": rig.gate(family).finish().as_dict() if rig.spec.selection.is_sample else None,
        }
        if self.worker is not None and self._board is not None:
            self._pin("begun", announced)
        else:
            self._own.append(_announced(announced))

    def post(self, folder: Path, report: GateReport) -> None:
        """Say what the gates of a family have said."""
        self._posted[folder, report.family] = report
        if self.worker is not None and self._board is not None:
            self._pin("ended", {"folder": str(folder), "report": report.as_dict()})

    def reports(self, folder: Path, families: Collection[str]) -> dict[str, GateReport]:
        """What the gates of `families` have said; in a worker once the others had their time.

        A worker waits as long as another one is at an item. With nobody at work, a family that was
        begun has ended without a word, and one that was not is given up after a few seconds: a run
        that stops early never begins it.
        """
        patience = time.monotonic() + _PATIENCE
        while True:
            working = self._others_work()
            found = self._found(folder, families)
            if self.worker is None or len(found) == len(families):
                return found
            if working:
                patience = time.monotonic() + _PATIENCE
            elif time.monotonic() > patience or self._begun(folder) >= set(families):
                return found
            time.sleep(_PAUSE)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Show the other workers that this one is at an item; its death takes that back."""
        with ExitStack() as stack:
            if self.worker is not None and self._board is not None:
                with suppress(OSError):  # a rollout that cannot be announced will say so
                    self._make_board(self._board)
                    file = Path(self._board, f"{self.worker}{_AT_WORK}")
                    fcntl.flock(stack.enter_context(file.open("wb")), fcntl.LOCK_EX)
            yield

    def _make_board(self, board: Path) -> None:
        """Once only: what the controller has cleared away stays away."""
        if not self._has_board:
            make_board(board)
            self._has_board = True

    def _others_work(self) -> bool:
        if self._board is None:
            return False
        mine = f"{self.worker}{_AT_WORK}"
        files = Path(self._board).glob(f"*{_AT_WORK}")
        return any(_is_locked(file) for file in files if file.name != mine)

    def _begun(self, folder: Path) -> set[str]:
        begun = map(_announced, self._pinned("begun"))
        return {announced.family for announced in begun if announced.folder == folder}

    def _found(self, folder: Path, families: Collection[str]) -> dict[str, GateReport]:
        for record in self._pinned("ended"):
            report = GateReport.from_dict(record["report"])
            self._posted[Path(record["folder"]), report.family] = report
        return {
            family: self._posted[folder, family]
            for family in families
            if (folder, family) in self._posted
        }

    def _pin(self, kind: str, record: Mapping[str, Any]) -> None:
        """Raises ConfigurationError where the board cannot be written."""
        assert self._board is not None
        file = self._board / f"{kind}-{self.worker}-{uuid.uuid4().hex}.json"
        draft = file.with_suffix(".draft")
        try:
            self._make_board(self._board)
            draft.write_text(json.dumps(record))
            draft.rename(file)
        except OSError as error:
            raise ConfigurationError(
                f"{self._board}, where the workers meet, cannot be written: {error.strerror}; "
                f"make room, or name another temporary folder with TMPDIR"
            ) from None

    def _pinned(self, kind: str) -> Iterator[dict[str, Any]]:
        if self._board is not None:
            for file in sorted(self._board.glob(f"{kind}-*.json")):
                yield json.loads(file.read_text())

    def announced(self) -> Iterator[Announced]:
        """All that was announced; the board is gone afterwards."""
        yield from self._own
        if self._board is None or self.worker is not None:
            return
        yield from map(_announced, self._pinned("begun"))
        shutil.rmtree(self._board, ignore_errors=True)


def _announced(record: Mapping[str, Any]) -> Announced:
    return Announced(**{**record, "folder": Path(record["folder"])})


def _is_locked(file: Path) -> bool:
    # Ours are shared, so that two that look at once do not take each other for the holder.
    with file.open("rb") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
