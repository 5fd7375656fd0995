"""From the records of a run to its finished files."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from pytest_maatml.engine.encoding import decode
from pytest_maatml.records.catalog import EPISODE, ERROR, Catalog, Place, spans
from pytest_maatml.records.episodes import decode_episode, replacing, write_summary
from pytest_maatml.records.journal import JOURNAL_PATTERN
from pytest_maatml.records.run_records import (
    EPISODES_NAME,
    ERRORS_NAME,
    SUMMARY_NAME,
    identity_in,
    read_summary,
)
from pytest_maatml.records.summary import Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from pytest_maatml.engine.protocol import JSONObject
    from pytest_maatml.records.episodes import Draft
    from pytest_maatml.records.run_records import RunRecords

#: Of which episodes the summary's Wilson intervals are.
ALL_PLANNED: Final = "all planned episodes"
THOSE_THAT_RAN: Final = "episodes that ran"


def publish(
    folder: Path,
    records: RunRecords,
    *,
    skipped: set[int],
    judge: Callable[[JSONObject], Mapping[str, Any]],
) -> JSONObject:
    """The summary of `records`, which are now the finished files of `folder`.

    Rows stand in index order, `skipped` ones are left out; `judge` is given the summary and gives
    the gates. The journals are removed, and `records` read from the new files from now on. Raises
    RecordError; each file is then either the old or the new one, and the journals are there.
    """
    edition = _Edition(records, skipped)
    with replacing(folder / EPISODES_NAME) as rows, _replacing_errors(folder) as errors:
        edition.write_errors(errors)
        edition.write_episodes(rows)
        # A full disk must be found before anything is given up for the new files.
        rows.settle()
        errors.settle()
        _disown(folder, records)
    summary = edition.summary()
    gates = {**edition.gates_that_stand(), **judge(summary)}
    write_summary(folder / SUMMARY_NAME, {**summary, "gates": gates})
    for journal in folder.glob(JOURNAL_PATTERN):
        journal.unlink()
    edition.take_over(folder)
    return {**summary, "gates": gates}


def _disown(folder: Path, records: RunRecords) -> None:
    """Remove a summary of another run, which must never be taken for that of the new rows."""
    identity = identity_in(read_summary(folder / SUMMARY_NAME))
    if identity is None or records.identity.differences(identity):
        (folder / SUMMARY_NAME).unlink(missing_ok=True)


@contextmanager
def _replacing_errors(folder: Path) -> Iterator[Draft]:
    """A draft as `replacing` gives it, for a file that is not there where nothing is in it."""
    path = folder / ERRORS_NAME
    with replacing(path) as draft:
        yield draft
    if not draft.size:
        path.unlink()


class _Edition:
    """Finished files in the making."""

    def __init__(self, records: RunRecords, skipped: set[int]) -> None:
        self._records = records
        self._catalog = Catalog(len(records.catalog))
        self._skipped = skipped | {i for i in records.skipped if not records.catalog.kind(i)}
        self._tally = Tally()
        self._errors = 0
        # Families that have a row that the last finished files did not have.
        self._fresh: set[str] = set()

    def write_errors(self, draft: Draft) -> None:
        for index in self._indexes(ERROR):
            line = self._records.line(index)
            self._note(index, ERROR, draft.size, line, decode(line)["task_family"])
            self._errors += 1
            draft.write(line)

    def write_episodes(self, draft: Draft) -> None:
        for index in self._indexes(EPISODE):
            line = self._records.line(index)
            where = f"{self._records.file_name(index)}: index {index}"
            episode = decode_episode(line, where)
            self._tally.add(episode)
            self._note(index, EPISODE, draft.size, line, episode["task_family"])
            draft.write(line)

    def summary(self) -> JSONObject:
        """The counts over the rows, and of what they are not.

        `wilson95_of` says of which episodes the Wilson intervals are: where a run stopped early,
        was cut short or had errors, only of the `episodes that ran` to a verdict, and then they do
        not speak for the whole list; a gate's own `interval` holds there too.
        """
        planned = len(self._catalog)
        missing = planned - self._tally.episodes - self._errors - len(self._skipped)
        return {
            "episodes_file": EPISODES_NAME,
            **self._tally.summary(),
            "wilson95_of": ALL_PLANNED if self._tally.episodes == planned else THOSE_THAT_RAN,
            "planned": planned,
            "errors": self._errors,
            "skipped": len(self._skipped),
            "skipped_indexes": spans(sorted(self._skipped)),
            "missing": missing,
            "complete": not missing and not self._errors,
            "identity": self._records.identity.as_dict(),
        }

    def gates_that_stand(self) -> dict[str, Any]:
        """The verdicts of the last finished files on families of which no row is new."""
        known = self._tally.families
        return {
            family: gate
            for family, gate in self._records.gates.items()
            if family in known and family not in self._fresh
        }

    def take_over(self, folder: Path) -> None:
        """Let the records be read from the new files."""
        files = {EPISODE: folder / EPISODES_NAME, ERROR: folder / ERRORS_NAME}
        if not self._errors:
            del files[ERROR]
        self._records.move(self._catalog, files, self._skipped)

    def _indexes(self, kind: int) -> Iterator[int]:
        return (i for i in self._records.catalog.indexes(kind) if i not in self._skipped)

    def _note(self, index: int, kind: int, start: int, line: bytes, family: str) -> None:
        self._catalog.note(index, kind, Place(kind, start, len(line)))
        if self._records.catalog.journalled(index):
            self._fresh.add(family)
