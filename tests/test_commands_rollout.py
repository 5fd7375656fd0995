"""`pytest-maatml rollout`: the same rollouts as pytest's, from flags of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from pytest_maatml.cli import main

from .plugin.conftest import MODEL, PLUGIN

if TYPE_CHECKING:
    from pathlib import Path

TASKS = '{"count": 9, "seed": 1}'
COMMAND = ("rollout", "walker", "--env", "line_world")


@pytest.fixture(autouse=True)
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The model folder `walker`, below the place where the command starts."""
    folder = tmp_path / "walker"
    folder.mkdir()
    folder.joinpath("model.yml").write_text(MODEL)
    folder.joinpath("walker_plugin.py").write_text(PLUGIN)
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--env-command", "x"], "--env and --env-command both say what the environment is"),
        (["--env", ""], "give --env or --env-command, one of the two"),
        (["--teacher-mix", "0.3"], "--teacher-mix needs --label"),
        (["--label", "--teacher-mix", "2"], "--teacher-mix: the teacher acts on a share"),
        (["--label", "--teacher-mix", ""], "--teacher-mix wants a share"),
        (["--round", "-1"], "--round must be at least 0, not -1"),
        (["--max-decisions", "0"], "--max-decisions must be at least 1, not 0"),
        (["--timeout", "-1"], "--timeout must be at least 0, not -1.0"),
        (["--workers", "0"], "--workers must be at least 1, not 0"),
        (["--tasks", "3"], "--tasks must be a JSON object or a list of tasks, not 3"),
        (["--option", "steps"], "--option wants KEY=VALUE, not 'steps'"),
    ],
)
def test_a_mistake_names_the_option_as_it_was_typed(
    model: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*COMMAND, *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"pytest-maatml rollout: {said}")
    assert "--maatml-" not in error
    assert not (model / "output").exists()


def test_flags_that_are_wrong_are_found_before_the_model_is_run(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model.joinpath("walker_plugin.py").write_text("raise OSError('it was run')")
    assert main([*COMMAND, "--max-decisions", "0"]) == 2
    assert "it was run" not in capsys.readouterr().err


def test_each_flag_goes_into_the_record(tmp_path: Path) -> None:
    tmp_path.joinpath("t.json").write_text(TASKS)
    flags = ["--label", "--teacher-mix=linear:1:0:4", "--round=1", "--seed=5", "--source=s"]
    more = ["--max-decisions=90", "--option=extra_steps=2", "--tasks=@t.json", "--out=kept"]
    assert main([*COMMAND, *flags, *more]) == 0
    summary = json.loads((tmp_path / "kept" / "episodes.summary.json").read_text())
    identity = summary["identity"]
    assert summary["planned"] == 9
    assert {key: identity[key] for key in ("label", "teacher_mix", "round", "seed", "source")} == {
        "label": True,
        "teacher_mix": 0.75,
        "round": 1,
        "seed": 5,
        "source": "s",
    }
    assert (identity["max_decisions"], identity["options"]) == (90, {"extra_steps": 2})


def test_a_job_that_is_no_test_has_no_gate_and_no_failure(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model.joinpath("model.yml").write_text(MODEL + "training: {reach: 1}\n")
    assert main([*COMMAND, "--tasks", TASKS]) == 0
    output = model / "output" / "episodes" / "rollout-r0"
    summary = json.loads((output / "episodes.summary.json").read_text())
    assert summary["success"] < summary["episodes"] == 9
    assert summary["gates"] == {}
    shown = capsys.readouterr().out
    assert "overall" in shown
    assert "FAIL" not in shown
    assert ">=" not in shown


def test_checkpoint_and_device_reach_the_model(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model.joinpath("walker_plugin.py").write_text(
        PLUGIN.replace(
            "    self.reach", "    assert device == 'abacus', device\n        self.reach"
        )
    )
    assert main([*COMMAND, "--tasks", TASKS, "--device", "abacus"]) == 0
    assert main([*COMMAND, "--tasks", TASKS]) == 2
    assert "AssertionError: auto" in capsys.readouterr().err
    assert main([*COMMAND, "--checkpoint", "nowhere"]) == 2
    assert "no checkpoint 'nowhere'" in capsys.readouterr().err


def test_the_collection_of_another_run_is_replaced_only_with_overwrite() -> None:
    assert main([*COMMAND, "--label", "--tasks", TASKS]) == 0
    assert main([*COMMAND, "--label", '--tasks={"count": 2}']) == 2
    assert main([*COMMAND, "--label", '--tasks={"count": 2}', "--overwrite"]) == 0


def test_resume_keeps_what_has_run(model: Path) -> None:
    model.joinpath("walker_plugin.py").write_text(
        "import os\n"
        + PLUGIN.replace("    gap =", "    assert not os.path.exists('broken')\n        gap =")
    )
    assert main([*COMMAND, "--tasks", TASKS]) == 0
    model.with_name("broken").touch()
    assert main([*COMMAND, "--tasks", TASKS, "--resume"]) == 0
    assert main([*COMMAND, "--tasks", TASKS]) == 1


@pytest.mark.parametrize(
    ("flags", "run"),
    [
        ([], "rollout-r0"),
        (["--label"], "dagger-r0"),
        (["--label", "--teacher-mix=0.5", "--seed=3", "--round=2"], "dagger-r2"),
        (["--max-decisions=3", "--option=extra_steps=4", "--source=s"], "s-r0"),
    ],
)
def test_the_files_are_those_that_pytest_writes(model: Path, flags: list[str], run: str) -> None:
    file = model / "output" / "episodes" / run / "episodes.jsonl"
    flags = [f"--tasks={TASKS}", "--env=line_world", *flags]
    assert main(["rollout", "walker", *flags]) == 0
    of_the_command = file.read_bytes()
    file.unlink()
    options = [flag.replace("--", "--maatml-", 1) for flag in flags]
    pytest_run = [sys.executable, "-m", "pytest", "--rootdir=.", "--maatml-model=walker", *options]
    subprocess.run(pytest_run, capture_output=True, check=False, timeout=60)
    assert file.read_bytes() == of_the_command
