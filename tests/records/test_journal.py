from __future__ import annotations

import resource
import signal
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_maatml.records.catalog import EPISODE, ERROR
from pytest_maatml.records.episodes import RecordError
from pytest_maatml.records.journal import Journal, JournalReader, journal_path
from tests.records.samples import IDENTITY, OTHER, episode, error


def lines_of(path: Path) -> list[tuple[int, int]]:
    """Index and kind of each whole record, as a reader finds them."""
    return [(entry.index, entry.kind) for entry in JournalReader(path).entries()]


def test_what_was_appended_is_read_back_in_index_order(tmp_path: Path) -> None:
    with Journal.open(tmp_path, IDENTITY) as journal:
        for index in (3, 0, 5):
            journal.append(episode(index))
        assert list(journal.episodes()) == [episode(i).line for i in (0, 3, 5)]
        assert list(journal.episodes([5, 1, 3, 5])) == [episode(i).line for i in (3, 5)]


def test_an_episode_is_there_for_others_before_the_journal_is_closed(tmp_path: Path) -> None:
    with Journal.open(tmp_path, IDENTITY) as journal:
        journal.append(episode(2))
        assert lines_of(journal.path) == [(2, EPISODE)]


def test_the_last_record_of_an_index_stands(tmp_path: Path) -> None:
    with Journal.open(tmp_path, IDENTITY) as journal:
        journal.append(error(0))
        journal.append(episode(0, mark="again"))
        journal.append(episode(1))
        journal.append(error(1))
        assert list(journal.episodes()) == [episode(0, mark="again").line]


def test_a_journal_that_is_opened_again_goes_on(tmp_path: Path) -> None:
    for index in range(3):
        with Journal.open(tmp_path, IDENTITY) as journal:
            journal.append(episode(index))
    with Journal.open(tmp_path, IDENTITY) as journal:
        assert list(journal.episodes()) == [episode(i).line for i in range(3)]


def test_shards_and_identities_have_journals_of_their_own(tmp_path: Path) -> None:
    paths = {
        journal_path(tmp_path, identity, shard)
        for identity in (IDENTITY, OTHER)
        for shard in ("main", "gw0", "gw1")
    }
    assert len(paths) == 6


def test_cut_at_any_byte_of_its_last_record_it_keeps_the_others_and_goes_on(
    tmp_path: Path,
) -> None:
    with Journal.open(tmp_path, IDENTITY) as journal:
        journal.append(episode(0))
        journal.append(error(1))
        path, end = journal.path, journal.path.stat().st_size
        journal.append(episode(2))
    whole = path.read_bytes()
    for cut in range(end, len(whole)):
        path.write_bytes(whole[:cut])
        assert lines_of(path) == [(0, EPISODE), (1, ERROR)]
        with Journal.open(tmp_path, IDENTITY) as journal:
            assert path.stat().st_size == end
            journal.append(episode(2))
            assert list(journal.episodes()) == [episode(0).line, episode(2).line]
        assert lines_of(path) == [(0, EPISODE), (1, ERROR), (2, EPISODE)]


def test_cut_at_any_byte_of_its_header_it_starts_anew(tmp_path: Path) -> None:
    Journal.open(tmp_path, IDENTITY).close()
    path = journal_path(tmp_path, IDENTITY)
    header = path.read_bytes()
    for cut in range(len(header)):
        path.write_bytes(header[:cut])
        with Journal.open(tmp_path, IDENTITY) as journal:
            journal.append(episode(1))
        assert path.read_bytes().startswith(header)
        assert lines_of(path) == [(1, EPISODE)]


def test_a_damaged_record_costs_itself_and_no_other(tmp_path: Path) -> None:
    with Journal.open(tmp_path, IDENTITY) as journal:
        journal.append(episode(0))
        start = journal.path.stat().st_size
        journal.append(episode(1))
        end = journal.path.stat().st_size
        journal.append(episode(2))
    whole = bytearray(journal.path.read_bytes())
    for place in range(start, end - 1):
        damaged = whole.copy()
        damaged[place] ^= 1
        journal.path.write_bytes(damaged)
        assert lines_of(journal.path) == [(0, EPISODE), (2, EPISODE)]


def test_zeros_after_a_power_cut_are_a_torn_tail(tmp_path: Path) -> None:
    with Journal.open(tmp_path, IDENTITY) as journal:
        journal.append(episode(0))
    with journal.path.open("ab") as file:
        file.write(bytes(5000))
    with Journal.open(tmp_path, IDENTITY) as journal:
        journal.append(episode(1))
        assert lines_of(journal.path) == [(0, EPISODE), (1, EPISODE)]


def test_a_reader_goes_on_where_it_was(tmp_path: Path) -> None:
    with Journal.open(tmp_path, IDENTITY) as journal:
        journal.append(episode(0))
        reader = JournalReader(journal.path)
        assert [e.index for e in reader.entries()] == [0]
        torn = journal.path.read_bytes()
        journal.path.write_bytes(torn + b'{"crc":12')
        assert [e.index for e in reader.entries()] == []
        journal.path.write_bytes(torn)
        journal.append(episode(1))
        assert [e.index for e in reader.entries()] == [1]


def test_the_message_of_an_error_may_hold_anything(tmp_path: Path) -> None:
    with Journal.open(tmp_path, IDENTITY) as journal:
        journal.append(error(0, message="\ud800 \x00 \n “”"))
        assert lines_of(journal.path) == [(0, ERROR)]


def test_the_journal_of_another_run_is_refused(tmp_path: Path) -> None:
    Journal.open(tmp_path, OTHER).close()
    journal_path(tmp_path, OTHER).rename(journal_path(tmp_path, IDENTITY))
    with pytest.raises(RecordError, match="belongs to another run: seed: 1 there, 0 here"):
        Journal.open(tmp_path, IDENTITY)


def test_a_file_that_is_no_journal_is_left_alone(tmp_path: Path) -> None:
    path = journal_path(tmp_path, IDENTITY)
    path.write_bytes(b'{"kind":"notes"}\n')
    with pytest.raises(RecordError, match="is not a journal of this version: its kind is 'notes'"):
        Journal.open(tmp_path, IDENTITY)
    assert path.read_bytes() == b'{"kind":"notes"}\n'


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"none/.* cannot be written: No such file"):
        Journal.open(tmp_path / "none", IDENTITY)


def test_a_disk_that_is_full_costs_the_last_episode_and_says_so(tmp_path: Path) -> None:
    program = "import sys; from tests.records.test_journal import fill_up; fill_up(sys.argv[1])"
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], cwd=root, check=True)
    assert lines_of(journal_path(tmp_path, IDENTITY)) == [(0, EPISODE), (2, EPISODE)]


def fill_up(folder: str) -> None:
    """Append to a file that may not grow any further. Run in a process of its own."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with Journal.open(Path(folder), IDENTITY) as journal:
        journal.append(episode(0))
        limit = journal.path.stat().st_size + 1000
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        with pytest.raises(RecordError, match=r"File too large.*--maatml-resume"):
            journal.append(episode(1, mark="x" * 5000))
        journal.append(episode(2))


def test_an_interrupt_within_an_append_leaves_no_half_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Journal.open(tmp_path, IDENTITY) as journal:
        journal.append(episode(0))
        real = journal._file

        class Interrupted:
            def write(self, line: bytes) -> int:
                real.write(line[:100])
                raise KeyboardInterrupt

            def fileno(self) -> int:
                return real.fileno()

        with monkeypatch.context() as patch:
            patch.setattr(journal, "_file", Interrupted())
            with pytest.raises(KeyboardInterrupt):
                journal.append(episode(1))
        journal.append(episode(2))
        assert list(journal.episodes()) == [episode(0).line, episode(2).line]
        assert lines_of(journal.path) == [(0, EPISODE), (2, EPISODE)]


def test_an_episode_costs_less_than_100_bytes_of_memory(tmp_path: Path) -> None:
    planned = 3000
    heavy = episode(0, mark="x" * 2000)
    tracemalloc.start()
    try:
        with Journal.open(tmp_path, replace(IDENTITY, planned=planned)) as journal:
            for index in range(planned):
                journal.append(replace(heavy, index=index))
            held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < 100 * planned


def test_a_journal_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "episodes.journal.main.0.jsonl").mkdir()
    with pytest.raises(RecordError, match=r"episodes\.journal\.main\.0\.jsonl cannot be read"):
        JournalReader(tmp_path / "episodes.journal.main.0.jsonl")
