"""`maatml.rollout_episode/1` on disk: written whole or not at all, read line by line."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pytest_maatml.engine.encoding import decode, snapshot
from pytest_maatml.engine.record import EPISODE_KIND, Episode
from pytest_maatml.errors import MaatmlError
from pytest_maatml.records.summary import Tally

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pytest_maatml.engine.protocol import JSONObject

_DRAFT_NAME: Final = ".{}.{}.tmp"
_EPISODE_KEYS: Final = ("episode_id", "task_id", "task_family", "task", "decisions", "outcome")
_DECISION_KEYS: Final = ("observation", "candidates", "chosen", "actor", "teacher_valid")
_OUTCOME_KEYS: Final = ("status", "success", "truncated")


class RecordError(MaatmlError):
    """A file of episodes cannot be read, or cannot be written."""


def unwritable(path: Path, error: OSError) -> RecordError:
    """The refusal for a file that the system would not write."""
    return RecordError(f"{path} cannot be written: {error.strerror or error}")


class Draft:
    """A file in the making, line by line, under a name of its own."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._path = target.with_name(_DRAFT_NAME.format(target.name, os.getpid()))
        #: bytes so far
        self.size = 0
        try:
            self._file = self._path.open("wb")
        except OSError as error:
            raise unwritable(target, error) from error

    def write(self, line: bytes) -> None:
        """Add a line; its newline is added too. Raises RecordError."""
        try:
            self._file.write(line)
            self._file.write(b"\n")
        except OSError as error:
            raise unwritable(self._target, error) from error
        self.size += len(line) + 1

    def settle(self) -> None:
        """Bring all lines to disk. Raises RecordError."""
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise unwritable(self._target, error) from error

    def take_place(self) -> None:
        """Become the file that was asked for. Raises RecordError."""
        self.settle()
        try:
            self._path.replace(self._target)
        except OSError as error:
            raise unwritable(self._target, error) from error
        _sync_folder(self._target.parent)

    def discard(self) -> None:
        """Close the file, and remove it if it has not taken its place."""
        with suppress(OSError):  # what could not be flushed has been reported
            self._file.close()
        self._path.unlink(missing_ok=True)


@contextmanager
def replacing(path: Path) -> Iterator[Draft]:
    """A draft to write in; it takes the place of `path` once it is whole and on disk.

    Where the body raises, `path` stays what it was. Raises RecordError if it cannot be written.
    """
    draft = Draft(path)
    try:
        yield draft
        draft.take_place()
    finally:
        draft.discard()


def sweep_drafts(target: Path) -> None:
    """Remove what processes that were killed left of `target`."""
    for draft in target.parent.glob(_DRAFT_NAME.format(target.name, "*")):
        draft.unlink()


def write_episodes(
    episodes: Iterable[Episode | Mapping[str, Any]], out_dir: Path, *, name: str = "episodes"
) -> JSONObject:
    """The summary of `episodes`, which are now `<out_dir>/<name>.jsonl`, the summary beside them.

    Streams: one episode is in memory at a time. Raises RecordError where the folder cannot be
    written, RolloutEnvError for an episode that is not JSON; the files stay what they were.
    """
    out_dir = Path(out_dir)
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(out_dir, error) from error
    path = out_dir / f"{name}.jsonl"
    tally = Tally()
    with replacing(path) as draft:
        for episode in episodes:
            if isinstance(episode, Episode):
                tally.add(episode.as_dict())
                draft.write(episode.line)
            else:
                tally.add(episode)
                draft.write(snapshot(episode, "episode"))
    return write_summary(
        out_dir / f"{name}.summary.json", {"episodes_file": path.name, **tally.summary()}
    )


def write_summary(path: Path, summary: JSONObject) -> JSONObject:
    """`summary` itself, which is now the file at `path`. Raises RecordError as `replacing`."""
    with replacing(path) as draft:
        draft.write(json.dumps(summary, indent=2, sort_keys=True).encode())
    return summary


def read_episodes(path: Path) -> Iterator[JSONObject]:
    """Each episode of the file at `path`, checked; integers of any size are exact.

    Raises RecordError that names the file and the line.
    """
    path = Path(path)
    for number, line in enumerate(_lines(path), 1):
        if line.strip():
            yield decode_episode(line, f"{path}:{number}")


def decode_episode(line: bytes, where: str) -> JSONObject:
    """The episode of one line, checked. Raises RecordError that begins with `where`."""
    try:
        record = decode(line)
    except ValueError as error:
        raise RecordError(f"{where}: not a line of JSON: {error}") from None
    return check_episode(record, where)


def check_episode(record: Any, where: str) -> JSONObject:
    """`record` itself, if it is an episode that can be counted.

    Raises RecordError that begins with `where` for another kind, and for what is missing.
    """
    if not isinstance(record, dict):
        raise RecordError(f"{where}: an episode must be an object, not {record!r:.80}")
    if record.get("kind") != EPISODE_KIND:
        raise RecordError(
            f"{where}: the kind must be {EPISODE_KIND!r}, not {record.get('kind')!r:.80}"
        )
    _require(record, _EPISODE_KEYS, where, "the episode")
    _require(record["outcome"], _OUTCOME_KEYS, where, "outcome")
    if not isinstance(record["outcome"]["success"], bool):
        raise RecordError(f"{where}: outcome.success must be true or false")
    if not isinstance(record["decisions"], list):
        raise RecordError(f"{where}: decisions must be a list")
    for place, decision in enumerate(record["decisions"]):
        _require(decision, _DECISION_KEYS, where, f"decisions[{place}]")
    return record


def episode_of(index: int, line: bytes, where: str) -> Episode:
    """The episode at `index` of which `line` is the record. Raises RecordError as `where` says."""
    record = decode_episode(line, where)
    decisions, outcome = record["decisions"], record["outcome"]
    return Episode(
        index=index,
        episode_id=record["episode_id"],
        task_id=record["task_id"],
        task_family=record["task_family"],
        success=outcome["success"],
        status=outcome["status"],
        truncated=outcome["truncated"],
        decisions=len(decisions),
        last_action=decisions[-1]["chosen"] if decisions else None,
        line=line,
    )


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            yield from file
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror or error}") from error


def _require(part: Any, keys: tuple[str, ...], where: str, name: str) -> None:
    if not isinstance(part, dict):
        raise RecordError(f"{where}: {name} must be an object, not {part!r:.80}")
    for key in keys:
        if key not in part:
            raise RecordError(f"{where}: {name} lacks {key!r}")


def _sync_folder(folder: Path) -> None:
    """Make a rename last; not every file system lets a folder be synced, and none needs it to."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
