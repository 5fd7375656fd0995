"""xdist: which process this is, and what the workers leave for the controller."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from pytest_maatml.gating.report import GateReport
from pytest_maatml.plugin.workers import worker_id

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from pytest_maatml.harness.rig import Rig

_NAME: Final = "maatml_party"
_BOARD: Final = "maatml_board"
#: Seconds without news after which a family that nobody has begun is given up.
_PATIENCE: Final = 5.0
_PAUSE: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Announced:
    """A family that a process of this session began, and how many episodes it has."""

    folder: Path
    identity: Mapping[str, Any]
    suite: str
    family: str
    planned: int
    #: The process that runs it.
    pid: int


class Party:
    """The processes of one session: a controller and its workers, or this one alone.

    A worker's report is lost if the worker dies, so what it is about to do stands on a board that
    all can read: a folder with a file a family.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.worker = worker_id(config)
        given: Mapping[str, Any] = getattr(config, "workerinput", {})
        self.name: str = given.get(_NAME) or uuid.uuid4().hex
        self._board: str | None = given.get(_BOARD)
        self._own: list[Announced] = []
        self._posted: dict[tuple[Path, str], GateReport] = {}

    def controller(self) -> object:
        """Xdist's hooks in the controller."""
        return _Controller(self)

    def equip(self, workerinput: dict[str, Any]) -> None:
        """Tell a worker whose it is."""
        if self._board is None:
            self._board = tempfile.mkdtemp(prefix="maatml-")
        workerinput[_NAME], workerinput[_BOARD] = self.name, self._board

    def announce(self, rig: Rig, family: str, *, suite: str) -> None:
        """Say that this process begins a family."""
        announced = {
            "folder": str(rig.spec.out),
            "identity": rig.identity.as_dict(),
            "suite": suite,
            "family": family,
            "planned": len(rig.families[family]),
            "pid": os.getpid(),
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

        A worker waits for families that other processes still run. It gives up on those that
        nobody has begun after a few seconds without news: a run that stops early never does.
        """
        patience = time.monotonic() + _PATIENCE
        while True:
            found = self._found(folder, families)
            if self.worker is None or len(found) == len(families):
                return found
            if self._others_run(folder, found):
                patience = time.monotonic() + _PATIENCE
            elif time.monotonic() > patience:
                return found
            time.sleep(_PAUSE)

    def _found(self, folder: Path, families: Collection[str]) -> dict[str, GateReport]:
        for record in self._pinned("ended"):
            report = GateReport.from_dict(record["report"])
            self._posted[Path(record["folder"]), report.family] = report
        return {
            family: self._posted[folder, family]
            for family in families
            if (folder, family) in self._posted
        }

    def _others_run(self, folder: Path, found: Collection[str]) -> bool:
        return any(
            begun.folder == folder and begun.family not in found and _lives(begun.pid)
            for begun in map(_announced, self._pinned("begun"))
        )

    def _pin(self, kind: str, record: Mapping[str, Any]) -> None:
        assert self._board is not None
        file = Path(self._board, f"{kind}-{self.worker}-{uuid.uuid4().hex}.json")
        draft = file.with_suffix(".draft")
        draft.write_text(json.dumps(record))
        draft.rename(file)

    def _pinned(self, kind: str) -> Iterator[dict[str, Any]]:
        if self._board is not None:
            for file in sorted(Path(self._board).glob(f"{kind}-*.json")):
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


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class _Controller:
    def __init__(self, party: Party) -> None:
        self._party = party

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        self._party.equip(node.workerinput)
