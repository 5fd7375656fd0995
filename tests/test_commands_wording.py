"""What the commands say to somebody who held them wrong."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pytest_maatml.cli import main

EXAMPLE = Path(__file__).parents[1] / "example_project" / "models" / "line_walker"


def test_a_folder_that_is_no_run_is_told_from_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["summarize", str(tmp_path)]) == 2
    assert "has no episodes.jsonl; give the folder of one run" in capsys.readouterr().err


def test_a_part_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["merge", str(tmp_path / "whole"), str(tmp_path / "gone")]) == 2
    assert f"there is no file or folder {tmp_path / 'gone'}" in capsys.readouterr().err
    assert not (tmp_path / "whole").exists()


def test_rollout_names_its_own_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = shutil.copytree(EXAMPLE, tmp_path / "line_walker")
    collect = ["rollout", str(model), "--env=line_world", "--label", "--out", str(tmp_path / "out")]
    assert main(collect) == 0
    assert main([*collect, '--tasks={"count": 2}']) == 2
    said = capsys.readouterr().err
    assert "write elsewhere with --round or --out, or let it be replaced with --overwrite" in said


@pytest.mark.parametrize("command", [["rollout", str(EXAMPLE)], ["check-env"]])
def test_without_an_environment_both_ways_to_give_one_are_named(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == 2
    assert "give --env or --env-command, one of the two" in capsys.readouterr().err
