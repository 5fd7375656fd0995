"""Episodes as they finish: appended, and found again whatever cut the file short."""

from __future__ import annotations

import json
import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self
from zlib import crc32

from pytest_maatml.engine.encoding import decode
from pytest_maatml.engine.record import Episode
from pytest_maatml.records.catalog import EPISODE, ERROR, Catalog, Place
from pytest_maatml.records.episodes import RecordError, unwritable
from pytest_maatml.records.identity import RunIdentity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pytest_maatml.engine.record import EpisodeError

JOURNAL_KIND: Final = "maatml.rollout_journal/1"
JOURNAL_PATTERN: Final = "episodes.journal.*.jsonl"

#: Seconds within which what was written is on disk, and not with the system alone.
_SYNC_PERIOD: Final = 1.0
_KINDS: Final = {b"episode": EPISODE, b"error": ERROR}
# The sum is of all that follows it, up to the end of the line.
_ENTRY: Final = re.compile(
    rb'\{"crc":(?P<crc>\d+)(?P<summed>,"index":(?P<index>\d+),"at":(?P<at>\d+),'
    rb'"(?P<kind>episode|error)":)'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One record of a journal: its index, what it is, when it was made and where it stands."""

    index: int
    kind: int
    at: int
    start: int
    size: int


def journal_path(folder: Path, identity: RunIdentity, shard: str = "main") -> Path:
    """The journal of a shard; another identity has other files, so that neither harms the other."""
    return folder / f"episodes.journal.{shard}.{identity.digest()}.jsonl"


def encode_error(error: EpisodeError) -> bytes:
    """One line of `errors.jsonl`, without its newline; lone surrogates are written escaped."""
    text = json.dumps(error.as_dict(), ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")


class JournalReader:
    """The whole records of a journal, also while it grows."""

    def __init__(self, path: Path) -> None:
        """Read the header. Raises RecordError for a file that is not a journal."""
        self.path = path
        #: where the last whole record ends
        self.end = 0
        #: None where not even the header is whole
        self.identity: RunIdentity | None = None
        try:
            with path.open("rb") as file:
                header = file.readline()
        except OSError as error:
            raise RecordError(f"{path} cannot be read: {error.strerror or error}") from error
        if header.endswith(b"\n"):
            self.identity = _identity_of(header, path)
            self.end = len(header)

    def entries(self) -> Iterator[Entry]:
        """The records after those that were read before; a torn or damaged one is passed over."""
        with self.path.open("rb") as file:
            start = file.seek(self.end)
            for line in file:
                entry = _entry(line, start)
                start += len(line)
                if entry is not None:
                    self.end = start
                    yield entry


class Journal:
    """One process's share of a run, on disk as soon as `append` returns."""

    def __init__(self, path: Path, identity: RunIdentity) -> None:
        """Open the journal at `path`, made if it is not there; its torn tail is cut off.

        Raises RecordError if the file cannot be written or belongs to another identity.
        """
        self.path = path
        self._planned = identity.planned
        self._at = 0
        # False from the start of a write until it is noted: an interrupt may come at any moment.
        self._whole = False
        self._synced = time.monotonic()
        try:
            self._file = path.open("a+b", buffering=0)
        except OSError as error:
            raise unwritable(path, error) from error
        try:
            self._reader = JournalReader(path)
            self._adopt(identity)
        except BaseException:
            self._file.close()
            raise

    @classmethod
    def open(cls, folder: Path, identity: RunIdentity, *, shard: str = "main") -> Journal:
        """The journal of `shard` in `folder`, at its end. Raises RecordError."""
        return cls(journal_path(folder, identity, shard), identity)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def append(self, result: Episode | EpisodeError) -> None:
        """Add an episode or an error; it outlives the process, and within a second the machine.

        It takes the place of what is there for its index. Raises RecordError where the disk is
        full or the file cannot grow; all that was there stays, and can be read.
        """
        if not self._whole:
            self._recover()
        self._at = max(self._at + 1, time.time_ns())
        prefix, body = _encode(result, self._at)
        self._whole = False
        self._write(prefix + body + b"}\n")
        self._reader.end += len(prefix) + len(body) + 2
        self._whole = True

    def episodes(self, indexes: Iterable[int] | None = None) -> Iterator[bytes]:
        """The records of the episodes at `indexes` that are here (all by default), in order."""
        catalog = Catalog(self._planned)
        for entry in JournalReader(self.path).entries():
            catalog.note(entry.index, entry.kind, Place(0, entry.start, entry.size), entry.at)
        wanted = catalog.indexes(EPISODE) if indexes is None else sorted(set(indexes))
        for index in wanted:
            if catalog.kind(index) == EPISODE:
                place = catalog.place(index)
                yield os.pread(self._file.fileno(), place.size, place.start)

    def close(self) -> None:
        """Bring everything to disk and let go of the file; a second time does nothing.

        Raises RecordError where the disk does not take it.
        """
        if self._file.closed:
            return
        try:
            with self._file:
                os.fsync(self._file.fileno())
        except OSError as error:
            raise unwritable(self.path, error) from error

    def _adopt(self, identity: RunIdentity) -> None:
        if self._reader.identity is None:
            self._begin(identity)
        elif differences := identity.differences(self._reader.identity):
            raise RecordError(f"{self.path} belongs to another run: {'; '.join(differences)}")
        self._recover()

    def _begin(self, identity: RunIdentity) -> None:
        header = {"kind": JOURNAL_KIND, "identity": identity.as_dict()}
        os.ftruncate(self._file.fileno(), 0)
        self._write(json.dumps(header).encode() + b"\n")
        self._reader = JournalReader(self.path)

    def _recover(self) -> None:
        """Take in what is whole after the last record known, and cut off what is not."""
        for entry in self._reader.entries():
            self._at = max(self._at, entry.at)
        os.ftruncate(self._file.fileno(), self._reader.end)
        self._whole = True

    def _write(self, line: bytes) -> None:
        left = memoryview(line)
        try:
            while left:
                left = left[self._file.write(left) :]
            if time.monotonic() - self._synced >= _SYNC_PERIOD:
                os.fsync(self._file.fileno())
                self._synced = time.monotonic()
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._file.fileno(), self._reader.end)
            raise RecordError(
                f"{self.path} cannot grow: {error.strerror or error}. The episodes before this one "
                "are safe in it; make room and go on with --maatml-resume"
            ) from error


def _encode(result: Episode | EpisodeError, at: int) -> tuple[bytes, bytes]:
    """What stands before a record's JSON, and that JSON."""
    if isinstance(result, Episode):
        kind, body = b"episode", result.line
    else:
        kind, body = b"error", encode_error(result)
    summed = b',"index":%d,"at":%d,"%s":' % (result.index, at, kind)
    crc = crc32(b"}\n", crc32(body, crc32(summed)))
    return b'{"crc":%d%s' % (crc, summed), body


def _entry(line: bytes, start: int) -> Entry | None:
    """The record of one line that begins at `start`, or None if it is not whole."""
    match = _ENTRY.match(line)
    if match is None or crc32(memoryview(line)[match.start("summed") :]) != int(match["crc"]):
        return None
    return Entry(
        index=int(match["index"]),
        kind=_KINDS[match["kind"]],
        at=int(match["at"]),
        start=start + match.end(),
        size=len(line) - match.end() - 2,
    )


def _identity_of(header: bytes, path: Path) -> RunIdentity:
    try:
        record: Any = decode(header)
        if record["kind"] != JOURNAL_KIND:
            raise ValueError(f"its kind is {record['kind']!r:.80}")
        return RunIdentity.from_dict(record["identity"])
    except (ValueError, LookupError, TypeError) as error:
        raise RecordError(f"{path} is not a journal of this version: {error}; remove it") from None
