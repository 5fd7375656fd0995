from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_maatml.models import load_policy, read_model

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "example_project"
LINE_WALKER = EXAMPLE / "models" / "line_walker"


def copy_without_output(folder: Path) -> Path:
    shutil.copytree(LINE_WALKER, folder, ignore=shutil.ignore_patterns("output", "__pycache__"))
    return folder


def run_train(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, EXAMPLE / "train.py", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def first_run(model_dir: Path) -> dict[str, Any]:
    """The run trained first: the committed one, whatever was trained since."""
    with (model_dir / "output" / "runs.jsonl").open() as file:
        run: dict[str, Any] = json.loads(file.readline())
    return run


def weights_of_first_run(model_dir: Path) -> list[float]:
    checkpoint = model_dir / first_run(model_dir)["out_dir"]
    weights: list[float] = json.loads((checkpoint / "weights.json").read_text())["weights"]
    return weights


def test_the_committed_checkpoint_is_what_train_makes_of_the_committed_rows(tmp_path: Path) -> None:
    folder = copy_without_output(tmp_path / "line_walker")
    trained = run_train(folder)
    assert trained.returncode == 0, trained.stderr
    assert weights_of_first_run(folder) == pytest.approx(
        weights_of_first_run(LINE_WALKER), rel=0, abs=1e-9
    )


@pytest.mark.peer
def test_the_peer_reads_the_model_folder_and_its_runs() -> None:
    from maatml.config import load_model_def
    from maatml.runs import list_runs

    definition = load_model_def(LINE_WALKER, load_plugins=False)
    run = list_runs(definition)[0]
    assert (run.status, run.identity) == ("completed", definition.identity)
    assert run.out_dir == f"output/checkpoints/{run.run_id}"
    assert (definition.checkpoints_dir / run.run_id / "weights.json").is_file()


def line_walker() -> Any:
    definition = read_model(LINE_WALKER)
    return load_policy(definition, checkpoint=first_run(LINE_WALKER)["run_id"]).policy


@pytest.mark.peer
def test_the_committed_policy_fails_at_the_gaps_that_its_rows_lack_and_nowhere_else() -> None:
    from maatml.rollout import RolloutConfig, rollout
    from maatml.rollout.example import LineWorld

    environment = LineWorld()
    tasks = environment.tasks({"count": 50, "seed": 1})
    config = RolloutConfig(options={"extra_steps": 4})
    failed = {
        (episode["task_family"], episode["task"]["target"] - episode["task"]["start"])
        for episode in rollout(environment, line_walker(), tasks, config=config)
        if not episode["outcome"]["success"]
    }
    assert failed == {("far", 8), ("far", 10)}


def test_a_score_has_the_same_bits_alone_and_in_a_batch() -> None:
    policy = line_walker()
    rows = [json.loads(line) for line in (LINE_WALKER / "seed_rows.jsonl").read_text().splitlines()]
    observations = [row["observation"] for row in rows]
    offered = [row["candidates"][: 1 + index % 4] for index, row in enumerate(rows)]
    alone = [policy.score(*state) for state in zip(observations, offered, strict=True)]
    assert policy.score_batch(observations, offered) == alone


def test_seed_rows_hold_what_the_teacher_accepts_and_no_test_task() -> None:
    for line in (LINE_WALKER / "seed_rows.jsonl").read_text().splitlines():
        row = json.loads(line)
        gap = row["observation"]["target"] - row["observation"]["position"]
        right_way = "finish" if gap == 0 else "right" if gap > 0 else "left"
        assert row["teacher_valid"] == [right_way]
        assert row["task_id"].startswith("line-3-")


def episode_line(split: str | None, gap: int) -> str:
    """An episode of one labelled decision, as `--label` leaves it."""
    candidates = [{"id": name, "valid": name != "jump"} for name in ("finish", "jump", "right")]
    observation = {"position": 0, "target": gap, "steps": 0, "max_steps": gap + 1}
    labelled = {
        "observation": observation,
        "candidates": [*candidates, {"id": "left", "valid": True}],
        "teacher_valid": ["right"],
    }
    task = {"id": "t", **({} if split is None else {"split": split})}
    return json.dumps({"episode_id": "dagger-r0-000000", "task": task, "decisions": [labelled]})


def test_labelled_episodes_teach_the_policy_a_gap_that_the_seed_rows_lack(tmp_path: Path) -> None:
    folder = copy_without_output(tmp_path / "line_walker")
    episodes = tmp_path / "episodes.jsonl"
    episodes.write_text(episode_line("train", gap=9) + "\n")
    trained = run_train(folder, "--episodes", episodes)
    assert trained.returncode == 0, trained.stderr
    before, after = weights_of_first_run(LINE_WALKER), weights_of_first_run(folder)
    to_the_right, gaps = 3, 22  # the last of four actions; 21 gaps from -10 and the action's own
    gap_nine = to_the_right * gaps + 10 + 9
    assert before[gap_nine] == 0
    assert after[gap_nine] > 0


@pytest.mark.parametrize("split", [None, "test"])
def test_train_refuses_episodes_outside_the_training_split(
    tmp_path: Path, split: str | None
) -> None:
    folder = copy_without_output(tmp_path / "line_walker")
    episodes = tmp_path / "episodes.jsonl"
    episodes.write_text(episode_line(split, gap=9) + "\n")
    refused = run_train(folder, "--episodes", episodes)
    assert refused.returncode == 1
    assert "dagger-r0-000000 is not of the training split" in refused.stderr
    assert not (folder / "output").exists()
