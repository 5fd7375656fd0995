from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

import pytest

from pytest_maatml.errors import RolloutEnvError
from pytest_maatml.records.episodes import (
    RecordError,
    check_episode,
    read_episodes,
    replacing,
    write_episodes,
)
from tests.records.samples import episode, files, record, rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def test_what_is_written_is_read_to_the_last_bit(tmp_path: Path) -> None:
    row = record(0)
    row["task"] = {"z": 2**200, "a": [0.1, -0.0, 5e-324, 1e22], "Ω\u2028": "😀\x00", "n": None}
    write_episodes([row], tmp_path)
    (read,) = read_episodes(tmp_path / "episodes.jsonl")
    assert json.dumps(read) == json.dumps(row)


def test_an_episode_of_the_engine_is_written_as_its_line(tmp_path: Path) -> None:
    ran = [episode(0), episode(1)]
    write_episodes(ran, tmp_path)
    assert (tmp_path / "episodes.jsonl").read_bytes() == b"".join(e.line + b"\n" for e in ran)


def test_the_summary_is_beside_the_file_and_returned(tmp_path: Path) -> None:
    summary = write_episodes(iter([episode(0)]), tmp_path / "new" / "folder", name="round-2")
    text = (tmp_path / "new" / "folder" / "round-2.summary.json").read_text(encoding="utf-8")
    assert json.loads(text) == summary
    assert text == json.dumps(summary, indent=2, sort_keys=True) + "\n"
    assert summary["episodes_file"] == "round-2.jsonl"


def test_where_the_episodes_stop_short_the_old_files_stay(tmp_path: Path) -> None:
    write_episodes([episode(0)], tmp_path)
    before = files(tmp_path)

    def broken() -> Iterator[Any]:
        yield episode(1)
        raise BrokenPipeError("environment gone")

    with pytest.raises(BrokenPipeError, match="environment gone"):
        write_episodes(broken(), tmp_path)
    assert files(tmp_path) == before


def test_what_json_lacks_is_refused_and_the_old_files_stay(tmp_path: Path) -> None:
    write_episodes([episode(0)], tmp_path)
    before = files(tmp_path)
    with pytest.raises(RolloutEnvError, match=r"episode\.task\.x is NaN"):
        write_episodes([{**record(0), "task": {"x": math.nan}}], tmp_path)
    assert files(tmp_path) == before


def test_a_reader_sees_the_old_file_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    path.write_bytes(b"old\n")
    with replacing(path) as draft:
        draft.write(b"new")
        draft.settle()
        assert path.read_bytes() == b"old\n"
    assert files(tmp_path) == {"episodes.jsonl": b"new\n"}


def test_a_folder_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RecordError, match=re.escape(str(tmp_path / "file"))):
        write_episodes([], tmp_path / "file")


def test_episodes_are_held_one_at_a_time(tmp_path: Path) -> None:
    import tracemalloc

    weight = 200_000
    heavy = (episode(i, mark="x" * weight) for i in range(40))
    tracemalloc.start()
    try:
        write_episodes(heavy, tmp_path)
        for _ in read_episodes(tmp_path / "episodes.jsonl"):
            pass
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(rows(tmp_path)) == 40
    assert peak < 15 * weight


def changed(path: str, value: Any) -> dict[str, Any]:
    """A record in which the value at a dotted path is another; `...` takes it away."""
    row: Any = record(0)
    *above, last = [int(p) if p.isdigit() else p for p in path.split(".")]
    part = row
    for step in above:
        part = part[step]
    if value is ...:
        del part[last]
    else:
        part[last] = value
    return row  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ([], "an episode must be an object, not []"),
        (changed("kind", "other/1"), "kind must be 'maatml.rollout_episode/1', not 'other/1'"),
        (changed("task_family", ...), "the episode lacks 'task_family'"),
        (changed("outcome", None), "outcome must be an object, not None"),
        (changed("outcome.truncated", ...), "outcome lacks 'truncated'"),
        (changed("outcome.success", 1), "outcome.success must be true or false"),
        (changed("decisions", {}), "decisions must be a list"),
        (changed("decisions.0", "a"), "decisions[0] must be an object, not 'a'"),
        (changed("decisions.0.chosen", ...), "decisions[0] lacks 'chosen'"),
    ],
)
def test_a_record_that_cannot_be_counted_is_refused(row: Any, complaint: str) -> None:
    with pytest.raises(RecordError, match=re.escape(complaint)) as refusal:
        check_episode(row, "here:7")
    assert str(refusal.value).startswith("here:7: ")


@pytest.mark.parametrize("second", [b'{"kind":', b"\xff", b'{"kind":"other/1"}', b"[" * 9999])
def test_a_bad_line_is_named_by_file_and_number(tmp_path: Path, second: bytes) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(episode(0).line + b"\n" + second + b"\n")
    reading = read_episodes(path)
    next(reading)
    with pytest.raises(RecordError, match=re.escape(f"{path}:2: ")):
        next(reading)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"none\.jsonl cannot be read: No such file"):
        list(read_episodes(tmp_path / "none.jsonl"))
