from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import maatml.rollout as peer
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_maatml.engine.record import Episode
from pytest_maatml.records.episodes import RecordError
from pytest_maatml.records.folder import FolderError, RunFolder
from pytest_maatml.records.journal import Journal
from pytest_maatml.records.run_records import RunRecords
from tests.records.samples import (
    IDENTITY,
    LABELLED,
    OTHER,
    decision,
    episode,
    error,
    files,
    plans,
    record,
    rows,
    run,
)

if TYPE_CHECKING:
    from pytest_maatml.engine.record import EpisodeError

ALL = [episode(i, success=i % 2 == 0) for i in range(IDENTITY.planned)]


def lines(*results: Episode) -> list[bytes]:
    return [result.line for result in results]


def test_a_finished_run_is_in_index_order_whatever_order_it_ended_in(tmp_path: Path) -> None:
    summary = run(tmp_path, reversed(ALL))
    assert rows(tmp_path) == lines(*ALL)
    assert sorted(files(tmp_path)) == ["episodes.jsonl", "episodes.summary.json"]
    assert summary["complete"] is True


def test_the_summary_counts_and_names_the_run(tmp_path: Path) -> None:
    gates = {"near": {"rule": ">= 90%", "verdict": "NOT DECIDED"}}
    results: list[Episode | EpisodeError] = [*ALL[:3], error(3)]
    summary = run(tmp_path, results, gates=gates, skipped={4})
    text = (tmp_path / "episodes.summary.json").read_text(encoding="utf-8")
    assert text == json.dumps(summary, indent=2, sort_keys=True) + "\n"
    expected = {
        "episodes_file": "episodes.jsonl",
        "episodes": 3,
        "success": 2,
        "planned": 6,
        "errors": 1,
        "skipped": 1,
        "missing": 1,
        "complete": False,
        "gates": gates,
        "identity": IDENTITY.as_dict(),
    }
    assert {name: summary[name] for name in expected} == expected
    assert summary.keys() >= peer.summarize([]).keys()


def test_errors_are_beside_the_episodes_and_never_among_them(tmp_path: Path) -> None:
    run(tmp_path, [error(4), ALL[1], error(0)])
    assert rows(tmp_path) == lines(ALL[1])
    kept = [json.loads(line) for line in (tmp_path / "errors.jsonl").read_text().splitlines()]
    assert kept == [error(0).as_dict(), error(4).as_dict()]


results_of_shards = st.lists(
    st.tuples(
        st.sampled_from(["main", "gw0", "gw1"]),
        st.builds(lambda i, mark: episode(i, mark=mark), st.integers(0, 5), st.text(max_size=2))
        | st.builds(error, st.integers(0, 5)),
    ),
    max_size=12,
)


@given(results_of_shards, st.sets(st.integers(0, 5), max_size=2))
def test_any_interleaving_of_shards_ends_as_the_last_records_by_index(
    appended: list[tuple[str, Episode | EpisodeError]], skipped: set[int]
) -> None:
    last: dict[int, Episode | EpisodeError] = {}
    with (
        tempfile.TemporaryDirectory() as name,
        RunFolder.open(Path(name), IDENTITY, plans()) as folder,
    ):
        for shard, result in appended:
            folder.journal(shard).append(result)
            last[result.index] = result
        summary = folder.finish(gates={}, skipped=skipped)
        written = rows(folder.path)
    kept = [last[i] for i in sorted(last) if i not in skipped]
    assert written == [r.line for r in kept if isinstance(r, Episode)]
    assert summary["errors"] == len(kept) - len(written)
    assert summary["missing"] == 6 - len(kept) - len(skipped)


@given(st.permutations(ALL), st.integers(0, 6), st.booleans())
def test_a_resumed_run_ends_as_one_that_was_not_interrupted(
    order: list[Episode], cut: int, finished: bool
) -> None:
    with tempfile.TemporaryDirectory() as name:
        whole, parts = Path(name, "whole"), Path(name, "parts")
        run(whole, order)
        with RunFolder.open(parts, IDENTITY, plans()) as folder:
            for result in order[:cut]:
                folder.journal().append(result)
            for failed in order[cut : cut + 1]:
                folder.journal().append(error(failed.index))
            if finished:
                folder.finish(gates={})
        with RunFolder.open(parts, IDENTITY, plans(), resume=True) as folder:
            assert dict(folder.done()) == {e.index: e for e in order[:cut]}
            for plan in folder.missing():
                folder.journal().append(ALL[plan.index])
            folder.finish(gates={})
        assert files(parts) == files(whole)


def test_without_resume_nothing_is_done_and_what_was_left_still_counts(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path, IDENTITY, plans()) as folder:
        folder.journal().append(ALL[0])
    with RunFolder.open(tmp_path, IDENTITY, plans()) as folder:
        assert len(folder.done()) == 0
        folder.journal().append(ALL[1])
        folder.finish(gates={})
    assert rows(tmp_path) == lines(ALL[0], ALL[1])


def test_what_is_done_does_not_change_while_the_run_goes_on(tmp_path: Path) -> None:
    run(tmp_path, ALL[:2])
    with RunFolder.open(tmp_path, IDENTITY, plans(), resume=True) as folder:
        folder.journal().append(ALL[5])
        folder.journal().append(error(0))
        assert [e["episode_id"] for e in folder.episodes()] == [
            ALL[1].episode_id,
            ALL[5].episode_id,
        ]
        assert list(folder.done()) == [0, 1]
        assert folder.done()[0] == ALL[0]
        with pytest.raises(KeyError):
            folder.done()[5]


def test_workers_write_shards_that_the_controller_merges(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path, IDENTITY, plans()) as folder:
        for shard in range(3):
            with Journal.open(tmp_path, IDENTITY, shard=f"gw{shard}") as journal:
                for result in ALL[shard::3]:
                    journal.append(result)
        folder.finish(gates={})
    assert rows(tmp_path) == lines(*ALL)


def test_rows_of_the_same_run_replace_those_of_their_index_and_the_others_stay(
    tmp_path: Path,
) -> None:
    run(tmp_path, [*ALL[:4], error(4)])
    again = episode(2, mark="again")
    summary = run(tmp_path, [again, error(3)])
    assert rows(tmp_path) == lines(ALL[0], ALL[1], again)
    assert (summary["errors"], summary["missing"]) == (2, 1)


def test_an_error_that_became_an_episode_is_gone(tmp_path: Path) -> None:
    run(tmp_path, [*ALL[:5], error(5)])
    assert run(tmp_path, [ALL[5]])["complete"] is True
    assert not (tmp_path / "errors.jsonl").exists()


def test_a_check_of_another_run_is_replaced_when_the_new_one_has_finished(tmp_path: Path) -> None:
    run(tmp_path, [*ALL[:5], error(5)], OTHER)
    before = files(tmp_path)
    with RunFolder.open(tmp_path, IDENTITY, plans()) as folder:
        folder.journal().append(ALL[0])
        assert files(tmp_path).items() >= before.items()
        assert [e["task_id"] for e in folder.episodes()] == ["t0"]
        folder.finish(gates={})
    assert rows(tmp_path) == lines(ALL[0])
    assert sorted(files(tmp_path)) == ["episodes.jsonl", "episodes.summary.json"]


@pytest.mark.parametrize("finished", [True, False])
def test_a_labelled_collection_of_another_run_is_not_overwritten(
    tmp_path: Path, finished: bool
) -> None:
    with RunFolder.open(tmp_path, LABELLED, plans()) as folder:
        folder.journal().append(ALL[0])
        if finished:
            folder.finish(gates={})
    before = files(tmp_path)
    with pytest.raises(
        FolderError, match=r"labelled.*seed: 2 there, 0 here.*--maatml-out.*--maatml-overwrite"
    ):
        RunFolder.open(tmp_path, IDENTITY, plans())
    assert files(tmp_path) == before
    run(tmp_path, ALL[1:2], overwrite=True)
    assert rows(tmp_path) == lines(ALL[1])


def test_a_labelled_collection_without_an_episode_is_nothing_to_lose(tmp_path: Path) -> None:
    run(tmp_path, [error(0)], LABELLED)
    assert run(tmp_path, ALL)["complete"] is True


def test_resuming_another_run_is_refused_with_what_differs(tmp_path: Path) -> None:
    run(tmp_path, ALL[:1], OTHER)
    with pytest.raises(FolderError, match=r"cannot be resumed.*seed: 1 there, 0 here"):
        RunFolder.open(tmp_path, IDENTITY, plans(), resume=True)


def test_a_run_that_was_cut_short_resumes_beside_the_check_that_it_is_to_replace(
    tmp_path: Path,
) -> None:
    run(tmp_path, ALL, OTHER)
    with RunFolder.open(tmp_path, IDENTITY, plans()) as folder:
        folder.journal().append(ALL[3])
    with RunFolder.open(tmp_path, IDENTITY, plans(), resume=True) as folder:
        assert list(folder.done()) == [3]


def test_resuming_an_empty_folder_runs_everything(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path / "new", IDENTITY, plans(), resume=True) as folder:
        assert len(folder.done()) == 0
        assert folder.missing() == plans()


@pytest.mark.parametrize(
    ("labels", "refused"), [(None, False), (["a"], True), ([], True)], ids=["none", "some", "empty"]
)
def test_a_peers_file_is_another_run_and_labelled_if_its_rows_are(
    tmp_path: Path, labels: list[str] | None, refused: bool
) -> None:
    row = record(0, decisions=[decision(), decision(teacher_valid=labels)])
    peer.write_episodes([row], tmp_path)
    if refused:
        with pytest.raises(FolderError, match=r"labelled.*written by another program"):
            RunFolder.open(tmp_path, IDENTITY, plans())
    run(tmp_path, ALL[:1], overwrite=refused)
    assert rows(tmp_path) == lines(ALL[0])


def test_a_file_that_cannot_be_read_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "episodes.jsonl").write_text("precious\n")
    with pytest.raises(FolderError, match="--maatml-overwrite"):
        RunFolder.open(tmp_path, IDENTITY, plans())


@pytest.mark.parametrize("line", [b"{", b"{}", b'{"episode_id":"x"}', b'{"episode_id":"r-000006"}'])
def test_a_damaged_row_of_this_run_is_named(tmp_path: Path, line: bytes) -> None:
    run(tmp_path, ALL[:1])
    with (tmp_path / "episodes.jsonl").open("ab") as file:
        file.write(line + b"\n")
    with pytest.raises(RecordError, match=r"episodes\.jsonl:2: not a row of this run"):
        RunFolder.open(tmp_path, IDENTITY, plans())
    run(tmp_path / "lock-is-free", ALL)


def test_a_damaged_summary_is_named(tmp_path: Path) -> None:
    summary = run(tmp_path, ALL)
    damaged = json.dumps({**summary, "skipped_indexes": "x"})
    (tmp_path / "episodes.summary.json").write_text(damaged)
    with pytest.raises(RecordError, match=r"summary of .* is damaged"):
        RunFolder.open(tmp_path, IDENTITY, plans())


def test_a_folder_that_cannot_be_written_is_named_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(FolderError, match=r"cannot be written: .*--maatml-out"):
            RunFolder.open(path, IDENTITY, plans())


def test_a_second_session_is_refused_and_a_failed_one_holds_nothing(tmp_path: Path) -> None:
    run(tmp_path, ALL, LABELLED)
    with pytest.raises(FolderError, match="labelled"):
        RunFolder.open(tmp_path, IDENTITY, plans())
    with (
        RunFolder.open(tmp_path, LABELLED, plans()),
        pytest.raises(FolderError, match="being written to by"),
    ):
        RunFolder.open(tmp_path, LABELLED, plans())
    RunFolder.open(tmp_path, LABELLED, plans()).release()


def test_drafts_that_a_killed_session_left_are_swept_away(tmp_path: Path) -> None:
    for name in (".episodes.jsonl.1.tmp", ".errors.jsonl.1.tmp", ".episodes.summary.json.1.tmp"):
        (tmp_path / name).touch()
    run(tmp_path, ALL)
    assert sorted(files(tmp_path)) == ["episodes.jsonl", "episodes.summary.json"]


def test_episodes_can_be_read_before_and_after_the_finish(tmp_path: Path) -> None:
    run(tmp_path, ALL[:2])
    with RunFolder.open(tmp_path, IDENTITY, plans()) as folder:
        folder.journal().append(ALL[4])
        before = list(folder.episodes([4, 1]))
        folder.finish(gates={})
        assert list(folder.episodes([4, 1])) == before == [ALL[1].as_dict(), ALL[4].as_dict()]
        folder.journal().append(ALL[5])
        folder.finish(gates={})
    assert rows(tmp_path) == lines(*ALL[:2], *ALL[4:])


def test_a_worker_sees_what_is_done_without_the_lock(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path, IDENTITY, plans()) as folder:
        folder.journal("gw1").append(ALL[1])
        folder.journal("gw0").append(ALL[4])
        before = files(tmp_path)
        records = RunRecords.open(tmp_path, IDENTITY)
        assert dict(records.done()) == {1: ALL[1], 4: ALL[4]}
        records.close()
        assert files(tmp_path) == before
