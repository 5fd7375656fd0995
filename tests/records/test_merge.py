from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from pytest_maatml.records.episodes import RecordError
from pytest_maatml.records.folder import FolderError, RunFolder
from pytest_maatml.records.journal import Journal
from pytest_maatml.records.merge import merge_runs
from tests.records.samples import (
    IDENTITY,
    LABELLED,
    OTHER,
    episode,
    error,
    files,
    plans,
    record,
    rows,
    run,
)

if TYPE_CHECKING:
    from pathlib import Path

ALL = [episode(i, success=i % 2 == 0) for i in range(IDENTITY.planned)]


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    """Three folders, each with every third episode."""
    folders = [tmp_path / f"shard-{part}" for part in range(3)]
    for part, folder in enumerate(folders):
        run(folder, ALL[part::3], gates={"near": "undecided"})
    return folders


def test_shards_merged_are_the_whole_run_byte_for_byte(tmp_path: Path, shards: list[Path]) -> None:
    run(tmp_path / "whole", ALL, gates={"near": 3})
    summary = merge_runs(
        tmp_path / "out", [shards[2], shards[0], shards[1]], judge=lambda s: {"near": s["success"]}
    )
    assert files(tmp_path / "out") == files(tmp_path / "whole")
    assert summary["complete"] is True


def test_journals_and_finished_files_are_inputs_too(tmp_path: Path, shards: list[Path]) -> None:
    with Journal.open(tmp_path, IDENTITY, shard="gw1") as journal:
        for result in ALL[1::3]:
            journal.append(result)
    merge_runs(tmp_path / "out", [shards[0], journal.path, shards[2] / "episodes.jsonl"])
    assert rows(tmp_path / "out") == [e.line for e in ALL]


def test_a_folder_that_was_cut_short_gives_what_its_journals_have(
    tmp_path: Path, shards: list[Path]
) -> None:
    with RunFolder.open(shards[1], IDENTITY, plans()) as folder:
        folder.journal("gw0").append(ALL[0])
        folder.journal("gw1").append(ALL[3])
    merge_runs(tmp_path / "out", shards[1:])
    assert rows(tmp_path / "out") == [e.line for e in ALL]


def test_the_same_episode_twice_is_one(tmp_path: Path, shards: list[Path]) -> None:
    merge_runs(tmp_path / "out", [*shards, shards[0]])
    assert rows(tmp_path / "out") == [e.line for e in ALL]


def test_an_index_that_two_inputs_have_differently_is_named(
    tmp_path: Path, shards: list[Path]
) -> None:
    run(tmp_path / "odd", [episode(3, mark="odd")])
    with pytest.raises(RecordError, match=r"index 3 is in .*shard-0.* and in .*odd.*differ"):
        merge_runs(tmp_path / "out", [*shards, tmp_path / "odd"])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("errors_first", [True, False])
def test_an_episode_stands_for_an_error_of_the_same_index(
    tmp_path: Path, shards: list[Path], errors_first: bool
) -> None:
    run(tmp_path / "failed", [error(0), error(4)])
    inputs = [*shards, tmp_path / "failed"]
    merge_runs(tmp_path / "out", inputs[::-1] if errors_first else inputs)
    assert rows(tmp_path / "out") == [e.line for e in ALL]
    assert not (tmp_path / "out" / "errors.jsonl").exists()


def test_an_error_that_nobody_made_good_is_kept_and_the_run_is_not_complete(
    tmp_path: Path, shards: list[Path]
) -> None:
    run(shards[0], [error(3)])
    summary = merge_runs(tmp_path / "out", shards)
    assert (summary["errors"], summary["missing"], summary["complete"]) == (1, 0, False)
    assert (tmp_path / "out" / "errors.jsonl").exists()


def test_indexes_that_no_input_has_are_named(tmp_path: Path, shards: list[Path]) -> None:
    with pytest.raises(RecordError, match=r"no input has the episodes 1,4 of the 6 planned"):
        merge_runs(tmp_path / "out", [shards[0], shards[2]])


def test_what_was_skipped_is_not_missing(tmp_path: Path) -> None:
    run(tmp_path / "a", ALL[:2], skipped={4})
    run(tmp_path / "b", ALL[2:4], skipped={5, 0})
    summary = merge_runs(tmp_path / "out", [tmp_path / "a", tmp_path / "b"])
    assert (summary["episodes"], summary["skipped"], summary["complete"]) == (4, 2, True)


def test_parts_of_another_run_are_refused_with_what_differs(
    tmp_path: Path, shards: list[Path]
) -> None:
    run(shards[1], ALL, OTHER)
    with pytest.raises(RecordError, match=r"shard-1.* is no part of .*\(seed: 0 there, 1 here\)"):
        merge_runs(tmp_path / "out", shards)


def test_inputs_that_hold_no_run_are_named(tmp_path: Path, shards: list[Path]) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(RecordError, match=r"empty holds no run"):
        merge_runs(tmp_path / "out", [tmp_path / "empty"])
    (shards[0] / "episodes.summary.json").unlink()
    with pytest.raises(RecordError, match=r"episodes\.jsonl does not say of which run it is"):
        merge_runs(tmp_path / "out", shards)
    with pytest.raises(RecordError, match=r"none\.jsonl does not say of which run"):
        merge_runs(tmp_path / "out", [tmp_path / "none.jsonl"])
    with pytest.raises(RecordError, match="nothing to merge"):
        merge_runs(tmp_path / "out", [])


def test_a_labelled_collection_in_the_way_is_not_overwritten(
    tmp_path: Path, shards: list[Path]
) -> None:
    run(tmp_path / "out", ALL, LABELLED)
    with pytest.raises(FolderError, match="--maatml-overwrite"):
        merge_runs(tmp_path / "out", shards)
    merge_runs(tmp_path / "out", shards, overwrite=True)
    assert rows(tmp_path / "out") == [e.line for e in ALL]


def test_the_folder_merged_into_may_be_one_of_the_inputs(
    tmp_path: Path, shards: list[Path]
) -> None:
    merge_runs(shards[0], shards)
    assert rows(shards[0]) == [e.line for e in ALL]


def test_merging_twice_is_merging_once(tmp_path: Path, shards: list[Path]) -> None:
    merge_runs(tmp_path / "out", shards)
    once = files(tmp_path / "out")
    shutil.rmtree(shards[0])
    merge_runs(tmp_path / "out", [*shards[1:], tmp_path / "out"])
    assert files(tmp_path / "out") == once


def test_a_finished_row_that_is_no_episode_is_named(tmp_path: Path, shards: list[Path]) -> None:
    row = record(0)
    (shards[0] / "episodes.jsonl").write_text('{"episode_id":"' + row["episode_id"] + '"}\n')
    run(tmp_path / "rest", [ALL[3]])
    with pytest.raises(RecordError, match=r"episodes\.jsonl: index 0: the kind must be"):
        merge_runs(tmp_path / "out", [*shards, tmp_path / "rest"])


def test_a_damaged_folder_is_named(tmp_path: Path, shards: list[Path]) -> None:
    with (shards[1] / "episodes.jsonl").open("ab") as file:
        file.write(b"{\n")
    with pytest.raises(RecordError, match=r"shard-1/episodes\.jsonl:3: not a row of this run"):
        merge_runs(tmp_path / "out", shards)
