from __future__ import annotations

import os
import shutil
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_maatml.records.episodes import RecordError
from pytest_maatml.records.folder import RunFolder
from tests.records.samples import (
    IDENTITY,
    OTHER,
    episode,
    error,
    files,
    plans,
    rows,
    run,
)

if TYPE_CHECKING:
    from pytest_maatml.engine.record import Episode

ALL = [episode(i, success=i % 2 == 0) for i in range(IDENTITY.planned)]


def lines(*results: Episode) -> list[bytes]:
    return [result.line for result in results]


def test_gates_stay_for_families_of_which_no_row_is_new(tmp_path: Path) -> None:
    near, far = episode(0), episode(1, family="far")
    run(tmp_path, [near, far], gates={"near": "n1", "far": "f1", "overall": "o1"})
    summary = run(tmp_path, [near], gates={"near": "n2"})
    assert summary["gates"] == {"near": "n2", "far": "f1"}
    assert run(tmp_path, [error(5, family="far")])["gates"] == {"near": "n2"}


def test_what_was_skipped_stays_skipped_until_it_is_run(tmp_path: Path) -> None:
    assert run(tmp_path, ALL[:3], skipped={3, 4, 5})["complete"] is True
    summary = run(tmp_path, [ALL[0], ALL[4]])
    assert (summary["skipped"], summary["complete"]) == (2, True)
    assert rows(tmp_path) == lines(ALL[0], ALL[1], ALL[2], ALL[4])


class Killed(BaseException):
    """Stands for the end of the process."""


def killed_at(path: Path, step: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Finish a run of IDENTITY in `path`, and die at the given rename or removal of a file."""
    left = step

    def counted(real: Any) -> Any:
        def call(self: Path, *given: Any, **named: Any) -> Any:
            nonlocal left
            if self.name != "episodes.lock":
                left -= real.__name__ == "replace" or self.suffix != ".tmp"
                if left < 0:
                    raise Killed
            return real(self, *given, **named)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", counted(Path.replace))
        patch.setattr(Path, "unlink", counted(Path.unlink))
        try:
            run(path, [*ALL[:5], error(5)])
        except Killed:
            return True
    return False


@pytest.mark.parametrize("old", [None, IDENTITY, OTHER], ids=["empty", "same", "other"])
def test_killed_at_any_moment_of_finishing_a_run_resumes_and_mixes_with_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: Any
) -> None:
    whole = tmp_path / "whole"
    run(whole, ALL)
    step, killed = 0, True
    while killed:
        for then in (IDENTITY, OTHER):
            path = tmp_path / "killed"
            if old is not None:
                run(path, [episode(i, mark="old") for i in range(6)], old)
            killed = killed_at(path, step, monkeypatch)
            if then is IDENTITY:
                run(path, ALL[5:], resume=True)
                assert files(path) == files(whole)
            else:
                run(path, [episode(0, mark="then")], OTHER)
                assert not set(rows(path)) & set(lines(*ALL))
            shutil.rmtree(path)
        step += 1
    assert step > 4


@pytest.mark.parametrize("closed", [True, False])
def test_a_disk_that_is_full_at_the_end_leaves_the_old_files_and_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: bool
) -> None:
    run(tmp_path, ALL, OTHER)
    before = files(tmp_path)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with RunFolder.open(tmp_path, IDENTITY, plans()) as folder:
        folder.journal().append(ALL[0])
        if closed:
            folder.journal().close()
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(RecordError, match="No space left"):
                folder.finish(gates={})
    assert files(tmp_path).items() > before.items()
    assert not list(tmp_path.glob("*.tmp"))
    with RunFolder.open(tmp_path, IDENTITY, plans(), resume=True) as folder:
        assert list(folder.done()) == [0]


def test_a_run_is_finished_without_being_held_in_memory(tmp_path: Path) -> None:
    planned, weight = 60, 100_000
    identity = replace(IDENTITY, planned=planned)
    with RunFolder.open(tmp_path, identity, plans(planned)) as folder:
        for index in reversed(range(planned)):
            folder.journal().append(episode(index, mark="x" * weight))
        tracemalloc.start()
        try:
            folder.finish(gates={})
            for _ in folder.episodes():
                pass
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert len(rows(tmp_path)) == planned
    assert peak < 15 * weight
