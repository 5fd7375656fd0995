"""Shards of one run, run apart, become one."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_maatml.records.catalog import EPISODE, ERROR, spans
from pytest_maatml.records.episodes import RecordError
from pytest_maatml.records.folder import RunFolder
from pytest_maatml.records.journal import JOURNAL_PATTERN, JournalReader
from pytest_maatml.records.publish import publish
from pytest_maatml.records.run_records import (
    EPISODES_NAME,
    RunRecords,
    identity_in,
    read_summary,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pytest_maatml.engine.protocol import JSONObject
    from pytest_maatml.records.identity import RunIdentity


def merge_runs(
    out: Path,
    inputs: Sequence[Path],
    *,
    judge: Callable[[JSONObject], Mapping[str, Any]] = lambda _: {},
    overwrite: bool = False,
) -> JSONObject:
    """The summary of the whole run that `inputs` are parts of, and that is now in `out`.

    An input is a run's folder, a journal or a finished file with its summary beside it. `judge` is
    given the summary and gives the gates. An episode stands for an error of the same index.

    Raises RecordError for parts of different runs, for an index that two inputs have differently,
    and for indexes that none has; FolderError for `out` as `RunFolder.open` does.
    """
    identity = _common_identity([Path(part) for part in inputs])
    whole = RunRecords(identity)
    try:
        for part in inputs:
            _join(whole, Path(part))
        _check_none_missing(whole)
        with RunFolder.open(out, identity, (), overwrite=overwrite) as folder:
            return publish(folder.path, whole, skipped=set(), judge=judge)
    finally:
        whole.close()


def _common_identity(inputs: Sequence[Path]) -> RunIdentity:
    found = [(part, identity) for part in inputs for identity in _identities(part)]
    if not found:
        raise RecordError("nothing to merge: give at least one folder, journal or finished file")
    first, identity = found[0]
    for part, other in found[1:]:
        if differences := other.differences(identity):
            raise RecordError(
                f"{part} is no part of the run in {first} ({'; '.join(differences)}): merge only "
                "what was started with the same options"
            )
    return identity


def _identities(part: Path) -> Iterator[RunIdentity]:
    """The identity of each file in an input. Raises RecordError where there is none."""
    files = [part]
    if part.is_dir():
        files = sorted(part.glob(JOURNAL_PATTERN))
        files += [part / EPISODES_NAME] if (part / EPISODES_NAME).exists() else []
    if not files:
        raise RecordError(f"{part} holds no run: neither {EPISODES_NAME} nor a journal is there")
    for file in files:
        identity = _identity(file)
        if identity is None:
            raise RecordError(
                f"{file} does not say of which run it is: a finished file needs the summary that "
                "was written with it, a journal its first line"
            )
        yield identity


def _identity(file: Path) -> RunIdentity | None:
    if _is_journal(file):
        return JournalReader(file).identity
    return identity_in(read_summary(_summary_of(file)))


def _is_journal(file: Path) -> bool:
    return fnmatch(file.name, JOURNAL_PATTERN)


def _summary_of(file: Path) -> Path:
    return file.with_name(f"{file.stem}.summary.json")


def _join(whole: RunRecords, path: Path) -> None:
    """Add the records of one input to those before it."""
    part = _read(path, whole.identity)
    numbers = whole.adopt_files(part)
    whole.skipped |= part.skipped
    for kind in (EPISODE, ERROR):
        for index in part.catalog.indexes(kind):
            there = part.catalog.place(index)
            place = there._replace(file=numbers[there.file])
            if whole.catalog.kind(index) != EPISODE:
                whole.catalog.note(index, kind, place)
            elif kind == EPISODE and whole.read(place) != whole.line(index):
                raise RecordError(
                    f"index {index} is in {whole.file_name(index)} and in {path}, and they differ: "
                    "the policy or the environment does not give the same episode twice; leave "
                    "one of the two out"
                )


def _read(path: Path, identity: RunIdentity) -> RunRecords:
    if path.is_dir():
        return RunRecords.open(path, identity)
    records = RunRecords(identity)
    if _is_journal(path):
        records.add_journal(path)
    else:
        records.add_finished(path, read_summary(_summary_of(path)))
    return records


def _check_none_missing(whole: RunRecords) -> None:
    planned = range(len(whole.catalog))
    missing = [i for i in planned if not whole.catalog.kind(i) and i not in whole.skipped]
    if missing:
        raise RecordError(
            f"no input has the episodes {spans(missing)} of the {len(planned)} planned "
            f"({len(missing)} missing): add the shards that ran them"
        )
