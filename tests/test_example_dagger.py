"""The example's DAgger script, end to end, with few tasks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.records.samples import files

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLE = Path(__file__).parents[1] / "example_project"
HELD_OUT = ("val.jsonl", "test.jsonl", "benchmark.jsonl")
ROUNDS = 2


def run_script(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, EXAMPLE / "dagger.py", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the script leaves of one seed in line_world; its report is in `report.txt`."""
    out = tmp_path_factory.mktemp("dagger") / "out"
    counts = ("--rounds", str(ROUNDS), "--held-out", "150")
    done = run_script("line_world", "--seeds", "3", *counts, "--out", out)
    assert done.returncode == 0, done.stderr
    (out / "report.txt").write_text(done.stdout)
    return out / "line_world"


@pytest.fixture(name="learner")
def _learner(folder: Path) -> Path:
    return folder / "seed3"


def lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open() as file:
        yield from map(json.loads, file)


def episodes(learner: Path, name: str) -> list[dict[str, Any]]:
    return list(lines(learner / "output" / "episodes" / name / "episodes.jsonl"))


def actors(records: list[dict[str, Any]]) -> set[str]:
    return {decision["actor"] for record in records for decision in record["decisions"]}


def test_rounds_leave_the_held_out_rows_byte_for_byte(learner: Path, tmp_path: Path) -> None:
    """The folder as it was left, against one that never saw a round."""
    alone = tmp_path / "prepared"
    command = ("-m", "pytest_maatml", "prepare", learner, "--out", alone)
    subprocess.run([sys.executable, *command], check=True, capture_output=True)
    cloning, after = files(alone), files(learner / "output" / "prepared")
    assert all(cloning[name] for name in HELD_OUT)
    assert {name: after[name] for name in HELD_OUT} == {name: cloning[name] for name in HELD_OUT}
    assert len(after["train.jsonl"]) > len(cloning["train.jsonl"])


def test_no_task_is_trained_on_and_measured_on(folder: Path, learner: Path) -> None:
    def places(name: str) -> set[tuple[int, int]]:
        tasks = json.loads((folder / f"tasks-{name}.json").read_text())
        return {(task["start"], task["target"]) for task in tasks}

    trained = [places(f"seed3-{number}") for number in range(ROUNDS + 1)]
    assert all(trained)
    assert not set().union(*trained) & (places("test") | places("validation"))
    assert not places("test") & places("validation")
    collected = episodes(learner, "dagger-r1") + episodes(learner, "demonstration-r0")
    assert {record["task"]["split"] for record in collected} == {"train"}


def test_the_teacher_acts_always_at_mix_1_and_never_at_0(folder: Path, learner: Path) -> None:
    assert actors(episodes(folder / "teacher", "teacher-r0")) == {"teacher"}
    assert actors(episodes(learner, "demonstration-r0")) == {"teacher"}
    for number in range(1, ROUNDS + 1):
        assert actors(episodes(learner, f"dagger-r{number}")) == {"policy"}


def test_a_round_carries_the_run_that_collected_it(learner: Path) -> None:
    """A round is collected by the run before it, and the check is of the run after it."""
    runs = [run["run_id"] for run in lines(learner / "output" / "runs.jsonl")]
    assert len(set(runs)) == ROUNDS + 1
    for number in range(1, ROUNDS + 1):
        collected = episodes(learner, f"dagger-r{number}")
        assert {(e["policy_version"], e["round"]) for e in collected} == {
            (runs[number - 1], number)
        }
        checked = episodes(learner, f"test-r{number}")
        assert {e["policy_version"] for e in checked} == {runs[number]}


def test_success_rises_where_offline_accuracy_was_high_already(folder: Path, learner: Path) -> None:
    rates = [
        sum(record["outcome"]["success"] for record in records) / len(records)
        for records in (episodes(learner, f"test-r{number}") for number in range(ROUNDS + 1))
    ]
    assert max(rates) > rates[0] + 0.2
    first, *_ = lines(learner / "output" / "runs.jsonl")
    assert first["metrics"]["benchmark_accuracy"] > rates[0] + 0.2
    report = (folder.parent / "report.txt").read_text()
    assert "the intervals do not overlap" in report
    assert report.count("cloning  ") == 1 + 1  # its line, and the heading of the families


@pytest.mark.slow
def test_babyai_goes_through_the_same_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(EXAMPLE)
    import dagger  # type: ignore[import-not-found]

    world = replace(dagger.BABYAI, demonstrations=8, collected=3, validation=1, test=4)
    (learning,) = dagger.run_world(world, [1], 1, tmp_path / "babyai")
    assert [check.number for check in learning.checks] == [0, 1]
    _, ceiling, *_ = capsys.readouterr().out.splitlines()
    assert ceiling.startswith("teacher")
    assert " 12/12 " in ceiling
    learner = tmp_path / "babyai" / "seed1"
    assert Counter(e["task_family"] for e in episodes(learner, "test-r1")) == {
        "GoToLocalS6N2": 4,
        "UnlockPickup": 4,
        "UnlockLocal": 4,
    }
    assert actors(episodes(learner, "dagger-r1")) == {"policy", "teacher"}
    assert actors(episodes(learner, "test-r1")) == {"policy"}


def test_a_world_that_there_is_not_is_refused() -> None:
    refused = run_script("flat_world")
    assert refused.returncode == 2
    assert "there is no world 'flat_world'; there are line_world, babyai" in refused.stderr


def test_the_map_shows_what_the_view_shows_and_keeps_what_it_showed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Held against MiniGrid's own view, in every state of a walk through two rooms."""
    monkeypatch.syspath_prepend(EXAMPLE)
    import numpy as np
    from babyai import babyai  # type: ignore[import-not-found]
    from dagger_babyai import REACH  # type: ignore[import-not-found]

    environment = babyai()
    query = {"families": ["UnlockPickup"], "wrappers": ["dagger_babyai:SeenSoFar"], "seed": 3}
    (task,) = environment.tasks(query)
    observation, terminal, known = environment.reset("e", task, {}), None, []
    while terminal is None:
        shown = np.array(observation["image"])
        level = environment._plays["e"].state.env.unwrapped
        view = level.gen_obs()["image"]
        half, seen = level.agent_view_size // 2, view[..., 0] > 0
        ahead = shown[
            REACH - half : REACH + half + 1, REACH + 1 - level.agent_view_size : REACH + 1
        ]
        assert (ahead[seen] == view[seen]).all()
        known.append(np.count_nonzero(shown[..., 0]))
        (action,) = environment.label("e").valid_ids
        result = environment.step("e", action)
        observation, terminal = result.observation, result.terminal
    assert known == sorted(known)
    assert known[-1] > 2 * known[0]
