"""The processes of a distributed run: which one this is, and what they have in common.

Imported by every run with xdist, so it imports nothing heavy at the top.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME: Final = "maatml_party"
_BOARD: Final = "maatml_board"


@dataclass(slots=True, kw_only=True)
class Common:
    """What the processes of one session share."""

    name: str
    #: Where they meet, once there are workers; whoever has something to say there makes it.
    board: Path | None = None


#: What this process shares with the others of its session.
_COMMON: Final = pytest.StashKey[Common]()


def worker_id(config: pytest.Config) -> str | None:
    """The name of this xdist worker; None in the controller and without xdist."""
    workerinput = getattr(config, "workerinput", None)
    return None if workerinput is None else str(workerinput["workerid"])


def common_of(config: pytest.Config) -> Common:
    """What this process shares with the others of its session; a name of its own if alone."""
    if _COMMON not in config.stash:
        given: Mapping[str, Any] = getattr(config, "workerinput", {})
        board = given.get(_BOARD)
        config.stash[_COMMON] = Common(
            name=given.get(_NAME) or uuid.uuid4().hex, board=None if board is None else Path(board)
        )
    return config.stash[_COMMON]


def equip(config: pytest.Config, workerinput: dict[str, Any]) -> None:
    """Tell a worker whose it is and where to meet the others.

    Raises pytest.UsageError where rollouts are asked for and there is no temporary folder.
    """
    common = common_of(config)
    if common.board is None:
        common.board = Path(_temporary_folder(), f"maatml-{common.name}")
        if config.pluginmanager.hasplugin("maatml-session"):
            _make_at_once(common.board)
        else:
            config.pluginmanager.register(Latecomer(config), "maatml-latecomer")
    workerinput[_NAME], workerinput[_BOARD] = common.name, str(common.board)


def _temporary_folder() -> str:
    try:
        return tempfile.gettempdir()
    except FileNotFoundError:  # there is none, which is for whoever needs it to say
        return os.environ.get("TMPDIR", "/tmp")


def make_board(board: Path) -> None:
    """Make the folder unless another process has. Raises OSError."""
    board.mkdir(mode=0o700, exist_ok=True)


def _make_at_once(board: Path) -> None:
    try:
        make_board(board)
    except OSError as error:
        raise pytest.UsageError(
            f"maatml: the workers need a temporary folder, and {board} cannot be made: "
            f"{error.strerror}; make room, or name another one with TMPDIR"
        ) from None


class Latecomer:
    """Begins the controller's session when a worker found rollouts that no option spoke of."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if hasattr(report, "maatml"):
            self._begin().pytest_runtest_logreport(report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A worker that died has left no report, but what it began stands on the board."""
        board = common_of(self._config).board
        if board is not None and any(board.glob("begun-*.json")):
            self._begin().pytest_sessionfinish(session)
        elif board is not None:
            shutil.rmtree(board, ignore_errors=True)

    def _begin(self) -> Any:
        """The session's hooks: those of this call are the first that they would miss."""
        from pytest_maatml.plugin.session import session_of

        session_of(self._config)
        self._config.pluginmanager.unregister(self)
        return self._config.pluginmanager.get_plugin("maatml-session")
