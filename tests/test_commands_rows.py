from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

import pytest

from pytest_maatml.commands import prepare, rows
from pytest_maatml.environments.line_world import LineWorld
from pytest_maatml.errors import ConfigurationError, ModelError
from pytest_maatml.records.episodes import RecordError, write_episodes
from pytest_maatml.records.rows import read_rows
from pytest_maatml.records.splits import RowError, group_of
from pytest_maatml.rollout import RolloutConfig, rollout

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pytest_maatml.engine.protocol import JSONObject

MODEL = """
name: walker
plugins: [./walker_plugin.py]
dataset:
  format: walker_rows
  seed_samples: seeds.jsonl
  benchmark_samples: benchmark.jsonl
"""
PLUGIN = """
from pytest_maatml.records.formats import EpisodeFormat, labelled_decisions
from pytest_maatml.registry import register_format


@register_format("walker_rows")
class WalkerRows(EpisodeFormat):
    def rows(self, episode):
        for step in labelled_decisions(episode):
            seen = step.observation
            yield {
                "decision": step.index,
                "gap": seen["target"] - seen["position"],
                "target": step.target(),
            }


@register_format("walker_gaps")
def walker_gaps(episode):
    for step in labelled_decisions(episode):
        yield {"decision": step.index, "gap": step.observation["target"]}


register_format("walker_text")("not a format")
"""


class Right:
    def score(self, observation: JSONObject, candidates: Sequence[JSONObject]) -> list[float]:
        return [1.0 if candidate["id"] == "right" else 0.0 for candidate in candidates]


def tasks(seed: int, count: int = 20, split: str = "train") -> list[JSONObject]:
    return LineWorld().tasks({"count": count, "seed": seed, "span": 1000, "split": split})


def collect(path: Path, chosen: list[JSONObject], number: int = 0) -> Path:
    """The folder of a labelled round on the tasks."""
    config = RolloutConfig(label=True, source="dagger", round=number, max_decisions=3)
    write_episodes(rollout(LineWorld(), Right(), chosen, config=config), path)
    return path


def write(path: Path, found: Iterable[JSONObject]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in found))


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    """A model folder, of which the benchmark and the seeds are tasks of their own."""
    path = tmp_path / "walker"
    path.mkdir()
    (path / "model.yml").write_text(MODEL)
    (path / "walker_plugin.py").write_text(PLUGIN)
    seeds, kept = tasks(1, 100), tasks(2, 10, "test")
    write(path / "seeds.jsonl", ({"id": t["id"], "group": group_of(t)} for t in seeds))
    write(path / "benchmark.jsonl", ({"id": t["id"], "group": group_of(t)} for t in kept))
    return path


def command(*arguments: Any) -> int:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers()
    rows.add_parser(commands)
    prepare.add_parser(commands)
    chosen = parser.parse_args([str(argument) for argument in arguments])
    status: int = chosen.run(chosen)
    return status


def test_rows_are_one_a_labelled_decision(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = (collect(tmp_path / f"r{k}", tasks(3 + k), k) for k in range(2))
    out = tmp_path / "rows.jsonl"
    arguments = ("--format", "walker_rows", "--model", folder, "--out", out)
    assert command("rows", one, two / "episodes.jsonl", *arguments) == 0
    found = list(read_rows(out))
    assert [row["sample_id"] for row in found] == [
        f"{episode['episode_id']}:{place}"
        for path in (one, two)
        for episode in map(json.loads, (path / "episodes.jsonl").read_text().splitlines())
        for place, _ in enumerate(episode["decisions"])
    ]
    assert capsys.readouterr().out == (
        f"rows      {out}: {len(found)} (0 exact duplicates dropped)\n"
    )


def test_the_format_is_by_default_that_of_the_model(folder: Path, tmp_path: Path) -> None:
    run = collect(tmp_path / "r0", tasks(3))
    command("rows", run, "--model", folder, "--out", tmp_path / "a.jsonl")
    command(
        "rows", run, "--model", folder, "--out", tmp_path / "b.jsonl", "--format", "walker_rows"
    )
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()


def test_a_function_is_a_format_too(folder: Path, tmp_path: Path) -> None:
    run, out = collect(tmp_path / "r0", tasks(3, 2)), tmp_path / "rows.jsonl"
    command("rows", run, "--model", folder, "--out", out, "--format", "walker_gaps")
    first = next(read_rows(out))
    assert (first["sample_id"], first["gap"]) == ("dagger-r0-000000:0", tasks(3, 1)[0]["target"])


def test_a_round_given_twice_counts_once(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, out = collect(tmp_path / "r0", tasks(3)), tmp_path / "rows.jsonl"
    command("rows", run, run, "--model", folder, "--out", out)
    number = len(list(read_rows(out)))
    assert f"{number} ({number} exact duplicates dropped)" in capsys.readouterr().out


def test_a_held_out_task_is_refused_at_rows_and_again_at_prepare(
    folder: Path, tmp_path: Path
) -> None:
    planted = [*tasks(3), *tasks(2, 1, "test")]
    run, out = collect(tmp_path / "r0", planted), tmp_path / "rows.jsonl"
    reason = "episode dagger-r0-000020: its task is of split 'test'"
    with pytest.raises(RowError, match=reason):
        command("rows", run, "--model", folder, "--out", out)
    with pytest.raises(RowError, match=reason):
        command("prepare", folder, "--episodes", run)
    assert not out.exists()
    assert not list((folder / "output/prepared").iterdir())


def test_a_held_out_task_under_another_name_is_refused_at_prepare(
    folder: Path, tmp_path: Path
) -> None:
    disguised = {**tasks(2, 1)[0], "id": "new", "family": "other"}
    run = collect(tmp_path / "r0", [*tasks(3), disguised])
    with pytest.raises(RowError, match=r"train row 'dagger-r0-000020:0' .* held out in benchmark"):
        command("prepare", folder, "--episodes", run)


def test_a_task_of_a_held_out_seed_row_is_refused_at_prepare(folder: Path, tmp_path: Path) -> None:
    command("prepare", folder)
    [held, *_] = read_rows(folder / "output/prepared/val.jsonl")
    task = next(task for task in tasks(1, 100) if task["id"] == held["id"])
    run = collect(tmp_path / "r0", [*tasks(3), task])
    with pytest.raises(RowError, match=r"train row 'dagger-r0-000020:0' .* held out in val"):
        command("prepare", folder, "--episodes", run)


def test_rounds_join_train_and_leave_the_rest_as_it_was(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds = [collect(tmp_path / f"r{k}", tasks(3 + k), k) for k in range(3)]
    out = folder / "output/prepared"
    contents = []
    for number in range(4):
        arguments = ("--episodes", *rounds[:number]) if number else ()
        assert command("prepare", folder, *arguments) == 0
        contents.append({name: (out / name).read_bytes() for name in ("val.jsonl", "test.jsonl")})
        contents[-1]["benchmark.jsonl"] = (out / "benchmark.jsonl").read_bytes()
    assert all(content == contents[0] for content in contents)
    assert all(contents[0].values())
    joined = [row for row in read_rows(out / "train.jsonl") if "round" in row]
    assert {row["round"] for row in joined} == {0, 1, 2}
    assert f"train     {out / 'train.jsonl'}: {len(list(read_rows(out / 'train.jsonl')))} rows" in (
        capsys.readouterr().out
    )


def test_an_empty_split_is_told(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder / "seeds.jsonl", [{"id": "a", "group": "g"}])
    write(folder / "benchmark.jsonl", [])
    assert command("prepare", folder, "--out", tmp_path / "out") == 0
    told = capsys.readouterr()
    empty = [line.split()[0] for line in told.out.splitlines() if line.endswith(": 0 rows")]
    assert len(empty) == 3  # of train, val and test one has the row, and the benchmark has none
    assert [line.split()[0] for line in told.err.splitlines()] == empty[:2]


def test_a_model_without_benchmark_has_an_empty_one(folder: Path) -> None:
    text = MODEL.replace("  benchmark_samples: benchmark.jsonl\n", "")
    (folder / "model.yml").write_text(text)
    assert command("prepare", folder) == 0
    assert (folder / "output/prepared/benchmark.jsonl").read_bytes() == b""


def test_episodes_that_errored_are_told(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = collect(tmp_path / "r0", tasks(3))
    write(run / "errors.jsonl", [{"episode_id": "dagger-r0-000020"}, {"episode_id": "x"}])
    command("prepare", folder, "--episodes", run)
    assert f"{run}: 2 episodes errored and give no rows" in capsys.readouterr().err


def test_a_file_of_errors_is_refused(folder: Path, tmp_path: Path) -> None:
    run = collect(tmp_path / "r0", tasks(3))
    write(run / "errors.jsonl", [{"episode_id": "dagger-r0-000020", "op": "step", "message": "m"}])
    with pytest.raises(RecordError, match=r"errors\.jsonl:1: the kind must be"):
        command("rows", run / "errors.jsonl", "--model", folder, "--out", tmp_path / "rows.jsonl")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("walker_row", "did you mean 'walker_rows'"),
        ("walker_text", "the format 'walker_text' is 'not a format'"),
        ("jsonl_seed", "the format 'jsonl_seed' is maatml's own"),
    ],
)
def test_a_name_that_is_no_episode_format_is_refused(
    folder: Path, tmp_path: Path, name: str, reason: str
) -> None:
    run = collect(tmp_path / "r0", tasks(3, 1))
    with pytest.raises(ConfigurationError, match=reason):
        command("rows", run, "--model", folder, "--out", tmp_path / "r.jsonl", "--format", name)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("name: w\n", "has no dataset.format"),
        ("name: w\ndataset: {format: walker_rows}\n", "dataset.seed_samples must name a file"),
        ("name: w\ndataset: {format: walker_rows, seed_samples: [a]}\n", "dataset.seed_samples"),
    ],
)
def test_a_model_that_does_not_say_what_is_needed_is_refused(
    folder: Path, tmp_path: Path, text: str, reason: str
) -> None:
    run = collect(tmp_path / "r0", tasks(3, 1))
    (folder / "model.yml").write_text(f"{text}plugins: [./walker_plugin.py]\n")
    with pytest.raises(ConfigurationError, match=reason):
        command("prepare", folder, "--episodes", run)


def test_folders_that_are_not_there_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"gone/episodes\.jsonl cannot be read|gone cannot be"):
        command("prepare", folder, "--episodes", tmp_path / "gone")
    with pytest.raises(ModelError, match="gone"):
        command("prepare", tmp_path / "gone")
