"""The folder of a run: who may write to it, what is in it already, and what it holds at the end."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pytest_maatml.engine.encoding import decode
from pytest_maatml.engine.record import EpisodeError
from pytest_maatml.records.catalog import EPISODE, ERROR
from pytest_maatml.records.episodes import (
    RecordError,
    episode_of,
    read_episodes,
    sweep_drafts,
)
from pytest_maatml.records.journal import JOURNAL_PATTERN, Journal, JournalReader
from pytest_maatml.records.lock import FolderError, FolderLock
from pytest_maatml.records.publish import publish
from pytest_maatml.records.run_records import (
    EPISODES_NAME,
    ERRORS_NAME,
    SUMMARY_NAME,
    RunRecords,
    identity_in,
    read_summary,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from pytest_maatml.engine.protocol import JSONObject
    from pytest_maatml.engine.record import Episode, RolloutPlan
    from pytest_maatml.records.identity import RunIdentity

__all__ = ["FolderError", "RunFolder"]


class RunFolder:
    """One session's hold on the folder of a run."""

    def __init__(
        self, path: Path, identity: RunIdentity, plans: Sequence[RolloutPlan], lock: FolderLock
    ) -> None:
        """Use `open`: only a folder that is locked, and whose rows may go, is handed out."""
        self.path = path
        self.identity = identity
        self.plans = plans
        self._lock = lock
        self._records = RunRecords(identity)
        self._done: Mapping[int, Episode] = {}
        self._journals: dict[str, Journal] = {}

    @classmethod
    def open(
        cls,
        path: Path,
        identity: RunIdentity,
        plans: Sequence[RolloutPlan],
        *,
        overwrite: bool = False,
        resume: bool = False,
        party: str | None = None,
    ) -> RunFolder:
        """The folder at `path`, made if need be, and locked for the run with that identity.

        Processes that give the same `party` share the folder, each with journals of its own.
        `resume` keeps the whole episodes that are there (see `done`); `overwrite` lets a labelled
        collection of another identity be replaced. Raises FolderError for a folder that cannot be
        written, that another session writes to, or that holds what must not be lost; RecordError
        for a damaged file of this run.
        """
        path = Path(path)
        folder = cls(path, identity, plans, _locked(path, party))
        try:
            folder._make_way(overwrite=overwrite, resume=resume)
        except BaseException:
            folder.release()
            raise
        return folder

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()

    def done(self) -> Mapping[int, Episode]:
        """The whole episodes that were here when a resumed run began, by index; else none.

        Each is read from disk when it is asked for, which it can be until `finish`.
        """
        return self._done

    def journal(self, shard: str = "main") -> Journal:
        """The journal of a shard, the same one until `finish`. Raises RecordError."""
        if shard not in self._journals:
            self._journals[shard] = Journal.open(self.path, self.identity, shard=shard)
        return self._journals[shard]

    def episodes(self, indexes: Iterable[int] | None = None) -> Iterator[JSONObject]:
        """The episodes at `indexes` that are recorded by now (all by default), in index order."""
        self._records.add_journals(self.path)
        return (decode(line) for _, line in self._records.episodes(indexes))

    def ended(self, indexes: Iterable[int]) -> Iterator[Episode | EpisodeError]:
        """What is recorded by now at `indexes`, in index order."""
        self._records.add_journals(self.path)
        for index in sorted(indexes):
            kind = self._records.catalog.kind(index)
            if kind == EPISODE:
                yield episode_of(index, self._records.line(index), f"index {index}")
            elif kind == ERROR:
                yield EpisodeError.from_dict(index, decode(self._records.line(index)))

    def finish(self, *, gates: Mapping[str, Any], skipped: Collection[int] = ()) -> JSONObject:
        """The summary of the finished files, into which all journals of this run have gone.

        `gates` gives the verdict of each family; one that the last run left stays where no row of
        its family is new. `skipped` are the indexes that early stopping leaves out, whatever the
        journals hold. A run that is not complete is resumed from the finished files. Raises
        RecordError where they cannot be written; the journals are kept then.
        """
        self._close_journals()
        self._records.add_journals(self.path)
        return publish(self.path, self._records, skipped=set(skipped), judge=lambda _: gates)

    def release(self) -> None:
        """Close what is open and give the folder back; a second time does nothing."""
        with ExitStack() as last_in_first_out:
            last_in_first_out.callback(self._lock.release)
            last_in_first_out.callback(self._records.close)
            last_in_first_out.callback(self._close_journals)

    def missing(self) -> list[RolloutPlan]:
        """The plans of which no whole episode is recorded by now."""
        self._records.add_journals(self.path)
        return [p for p in self.plans if self._records.catalog.kind(p.index) != EPISODE]

    def _close_journals(self) -> None:
        while self._journals:
            self._journals.popitem()[1].close()

    def _make_way(self, *, overwrite: bool, resume: bool) -> None:
        """Refuse what would lose something; remember what a resumed run need not do again."""
        self._records.add_folder(self.path)
        others = list(_other_runs(self.path, self.identity))
        if resume and others and not self._records.found:
            raise FolderError(
                f"{self.path} holds another run, which cannot be resumed as this one "
                f"({others[0].differences}); give the options that it was started with, or leave "
                "out --maatml-resume"
            )
        labelled = [run for run in others if run.labelled]
        if labelled and not overwrite:
            raise FolderError(
                f"{self.path} holds a labelled collection of another run "
                f"({labelled[0].differences}); write elsewhere with --maatml-round or "
                "--maatml-out, or let it be replaced with --maatml-overwrite"
            )
        for name in (EPISODES_NAME, ERRORS_NAME, SUMMARY_NAME):
            sweep_drafts(self.path / name)
        if resume:
            self._done = self._records.done()


@dataclass(frozen=True, slots=True, kw_only=True)
class _OtherRun:
    """What a folder holds of a run that is not ours."""

    differences: str
    labelled: bool


def _locked(path: Path, party: str | None) -> FolderLock:
    try:
        path.mkdir(parents=True, exist_ok=True)
        return FolderLock(path, party)
    except OSError as error:
        raise FolderError(
            f"{path} cannot be written: {error.strerror or error}; choose another folder with "
            "--maatml-out"
        ) from error


def _other_runs(path: Path, identity: RunIdentity) -> Iterator[_OtherRun]:
    rows = path / EPISODES_NAME
    if rows.exists():
        found = identity_in(read_summary(path / SUMMARY_NAME))
        if found is None:
            yield _OtherRun(
                differences=f"{rows.name} was written by another program",
                labelled=_has_labels(rows),
            )
        elif differences := identity.differences(found):
            labelled = found.label and rows.stat().st_size > 0
            yield _OtherRun(differences="; ".join(differences), labelled=labelled)
    for journal in sorted(path.glob(JOURNAL_PATTERN)):
        reader = JournalReader(journal)
        if reader.identity is not None and (differences := identity.differences(reader.identity)):
            labelled = reader.identity.label and any(e.kind == EPISODE for e in reader.entries())
            yield _OtherRun(differences="; ".join(differences), labelled=labelled)


def _has_labels(rows: Path) -> bool:
    """Whether a row holds a teacher's label; what cannot be read is not to be lost either."""
    try:
        return any(
            decision["teacher_valid"] is not None
            for episode in read_episodes(rows)
            for decision in episode["decisions"]
        )
    except RecordError:
        return True
