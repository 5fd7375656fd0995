"""All that a folder holds of one run: the finished files, and over them the journals."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pytest_maatml.engine.encoding import decode
from pytest_maatml.records.catalog import EPISODE, ERROR, Catalog, Place, from_spans
from pytest_maatml.records.episodes import RecordError, episode_of
from pytest_maatml.records.identity import RunIdentity
from pytest_maatml.records.journal import JOURNAL_PATTERN, JournalReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from typing import BinaryIO

    from pytest_maatml.engine.protocol import JSONObject
    from pytest_maatml.engine.record import Episode

EPISODES_NAME: Final = "episodes.jsonl"
ERRORS_NAME: Final = "errors.jsonl"
SUMMARY_NAME: Final = "episodes.summary.json"

_INDEX: Final = re.compile(r"-(\d{6,})$")


class RunRecords:
    """The last record of each index of one run, wherever it stands; read from disk on demand."""

    def __init__(self, identity: RunIdentity) -> None:
        self.identity = identity
        self.catalog = Catalog(identity.planned)
        #: indexes that early stopping left out of the finished files
        self.skipped: set[int] = set()
        #: the verdicts in the finished summary
        self.gates: dict[str, Any] = {}
        # By number; those of finished files that `publish` wrote have the number of their kind.
        self._files: dict[int, BinaryIO] = {}
        self._journals: dict[Path, tuple[int, JournalReader]] = {}

    @classmethod
    def open(cls, folder: Path, identity: RunIdentity) -> RunRecords:
        """What `folder` holds of the run with that identity; what others left is not looked at.

        Needs no lock and writes nothing, so that a worker can ask what is done. Raises
        RecordError for a damaged finished file.
        """
        records = cls(identity)
        try:
            records.add_folder(folder)
        except BaseException:
            records.close()
            raise
        return records

    def add_folder(self, folder: Path) -> None:
        """Take in what a folder holds of this run."""
        summary = read_summary(folder / SUMMARY_NAME)
        found = identity_in(summary)
        if found is not None and not self.identity.differences(found):
            self.add_finished(folder / EPISODES_NAME, summary)
        self.add_journals(folder)

    def add_finished(self, path: Path, summary: JSONObject) -> None:
        """Take in a finished file, what is beside it, and what its summary alone knows."""
        if path.exists():
            self._add_rows(path, EPISODE)
        errors = path.with_name(ERRORS_NAME)
        if errors.exists():
            self._add_rows(errors, ERROR)
        try:
            self.skipped |= from_spans(summary.get("skipped_indexes", ""))
            self.gates.update(summary.get("gates", {}))
        except (TypeError, ValueError, AttributeError) as error:
            raise RecordError(f"the summary of {path} is damaged: {error}; remove it") from None

    def add_journals(self, folder: Path) -> None:
        """Take in the journals of this run that are there now, as far as they have grown."""
        for path in sorted(folder.glob(JOURNAL_PATTERN)):
            if path in self._journals:
                self.read_on(path)
            else:
                self.add_journal(path)

    def add_journal(self, path: Path) -> None:
        """Take in a journal, if it is of this run."""
        reader = JournalReader(path)
        if reader.identity is not None and not self.identity.differences(reader.identity):
            self._journals[path] = (self.add_file(path), reader)
            self.read_on(path)

    def read_on(self, path: Path) -> None:
        """Take in what a journal has grown by."""
        number, reader = self._journals[path]
        for entry in reader.entries():
            place = Place(number, entry.start, entry.size)
            self.catalog.note(entry.index, entry.kind, place, entry.at)

    def add_file(self, path: Path) -> int:
        """The number of a file that records may now stand in."""
        number = max(self._files, default=ERROR) + 1
        self._files[number] = path.open("rb")
        return number

    def adopt_files(self, other: RunRecords) -> Mapping[int, int]:
        """The numbers that the files of `other` have here, by those that they had there."""
        numbers = {
            there: max(self._files, default=ERROR) + 1 + place
            for place, there in enumerate(other._files)
        }
        self._files.update((numbers[there], file) for there, file in other._files.items())
        other._files = {}
        return numbers

    def line(self, index: int) -> bytes:
        """The JSON of the record at an index that is known."""
        return self.read(self.catalog.place(index))

    def read(self, place: Place) -> bytes:
        return os.pread(self._files[place.file].fileno(), place.size, place.start)

    def file_name(self, index: int) -> str:
        """The name of the file in which the record at an index stands."""
        return self._files[self.catalog.place(index).file].name

    def episodes(self, indexes: Iterable[int] | None = None) -> Iterator[tuple[int, bytes]]:
        """Index and record of each episode that is here, in index order."""
        wanted = self.catalog.indexes(EPISODE) if indexes is None else sorted(set(indexes))
        for index in wanted:
            if self.catalog.kind(index) == EPISODE:
                yield index, self.line(index)

    def done(self) -> Mapping[int, Episode]:
        """The whole episodes that are here now, by index, each read when it is asked for."""
        return _Done(self, self.catalog.copy())

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    @property
    def found(self) -> bool:
        """Whether there is any file of this run."""
        return bool(self._files)

    def move(self, catalog: Catalog, files: Mapping[int, Path], skipped: set[int]) -> None:
        """Read from `files` from now on, of which the numbers stand in `catalog`."""
        self.close()
        self._files = {number: path.open("rb") for number, path in files.items()}
        self._journals.clear()
        self.catalog, self.skipped = catalog, skipped

    def _add_rows(self, path: Path, kind: int) -> None:
        number, start = self.add_file(path), 0
        for count, line in enumerate(self._files[number], 1):
            if line.strip():
                index = self._index_of(line, f"{path}:{count}")
                size = len(line) - line.endswith(b"\n")
                self.catalog.note(index, kind, Place(number, start, size))
            start += len(line)

    def _index_of(self, line: bytes, where: str) -> int:
        try:
            found = _INDEX.search(decode(line)["episode_id"])
        except (ValueError, LookupError, TypeError):
            found = None
        if found is None or int(found[1]) >= len(self.catalog):
            raise RecordError(
                f"{where}: not a row of this run; mend or remove the file, or write elsewhere with "
                "--maatml-out"
            )
        return int(found[1])


class _Done(Mapping[int, "Episode"]):
    """The whole episodes of a moment; what is recorded later does not show."""

    def __init__(self, records: RunRecords, catalog: Catalog) -> None:
        self._records = records
        self._catalog = catalog

    def __getitem__(self, index: int) -> Episode:
        if index not in self:
            raise KeyError(index)
        line = self._records.read(self._catalog.place(index))
        return episode_of(index, line, f"index {index}")

    def __contains__(self, index: object) -> bool:
        return isinstance(index, int) and self._catalog.kind(index) == EPISODE

    def __iter__(self) -> Iterator[int]:
        return self._catalog.indexes(EPISODE)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def read_summary(path: Path) -> JSONObject:
    """The summary at `path`; empty where there is none, or none that can be read."""
    try:
        summary = decode(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return summary if isinstance(summary, dict) else {}


def identity_in(summary: JSONObject) -> RunIdentity | None:
    """The identity of the run that wrote a summary, or None if that was not us."""
    try:
        return RunIdentity.from_dict(summary.get("identity"))
    except ValueError:
        return None
