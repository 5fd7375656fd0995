"""xdist: which process this is, and what the workers leave for the controller."""

from __future__ import annotations

import json
import shutil
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_maatml.plugin.workers import worker_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_maatml.rig import Rig

_NAME = "maatml_party"
_BOARD = "maatml_board"


@dataclass(frozen=True, slots=True, kw_only=True)
class Announced:
    """A family that a process of this session began, and how many episodes it has."""

    folder: Path
    identity: Mapping[str, Any]
    suite: str
    family: str
    planned: int


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
        }
        if self.worker is not None and self._board is not None:
            file = Path(self._board, f"{self.worker}-{uuid.uuid4().hex}.json")
            file.write_text(json.dumps(announced))
        else:
            self._own.append(_announced(announced))

    def announced(self) -> Iterator[Announced]:
        """All that was announced; the board is gone afterwards."""
        yield from self._own
        if self._board is None or self.worker is not None:
            return
        for file in sorted(Path(self._board).glob("*.json")):
            try:
                yield _announced(json.loads(file.read_text()))
            except ValueError:  # its writer died over it, before any episode
                continue
        shutil.rmtree(self._board, ignore_errors=True)


def _announced(record: Mapping[str, Any]) -> Announced:
    return Announced(**{**record, "folder": Path(record["folder"])})


class _Controller:
    def __init__(self, party: Party) -> None:
        self._party = party

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        self._party.equip(node.workerinput)
