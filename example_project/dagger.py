"""Cloning against DAgger, in closed loop on tasks that neither was trained on.

    python dagger.py                          line_world, three seeds, five rounds
    python dagger.py babyai                   three of BabyAI's levels (needs minigrid)
    python dagger.py line_world babyai --plot dagger.png

All but the training is done by public commands of pytest-maatml; `commands-*.sh` in the folder that
the script names says which, in their order.

Ross, Gordon and Bagnell, "A Reduction of Imitation Learning and Structured Prediction to No-Regret
Online Learning", AISTATS 2011, algorithm 3.1.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dagger_report import Check, Learning, plot, table

from pytest_maatml.records.splits import group_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

EXAMPLE: Final = Path(__file__).parent
LEARNER: Final = EXAMPLE / "models" / "learner"

#: Seeds of the held-out queries; those of training come from the learner's own seed.
TEST_SEED, VALIDATION_SEED = 1, 2


@dataclass(frozen=True, kw_only=True)
class World:
    """Where the policy learns, and how much it is shown. Counts are of one family's tasks."""

    name: str
    env: str
    query: Mapping[str, Any]
    #: What the teacher shows once, and what is collected in each round.
    demonstrations: int
    collected: int
    validation: int
    test: int
    #: The teacher's share of the decisions, as `--teacher-mix` takes it.
    teacher_mix: str
    max_decisions: int
    #: The gate on each family of the test tasks.
    min_success: float


LINE_WORLD: Final = World(
    name="line_world",
    env="line_world",
    query={"span": 40, "slack": 6},
    demonstrations=16,
    collected=20,
    validation=200,
    test=600,
    teacher_mix="0",
    max_decisions=256,
    min_success=0.9,
)
LEVELS: Final = ("GoToLocalS6N2", "UnlockPickup", "UnlockLocal")
BABYAI: Final = World(
    name="babyai",
    env="babyai:babyai",
    query={
        "families": {level: {"env": f"BabyAI-{level}-v0"} for level in LEVELS},
        "wrappers": ["dagger_babyai:SeenSoFar"],
    },
    demonstrations=12,
    collected=40,
    validation=60,
    test=170,
    teacher_mix="exp:0.7",
    max_decisions=80,
    min_success=0.8,
)
WORLDS: Final = {world.name: world for world in (LINE_WORLD, BABYAI)}


def task_maker(world: World) -> Callable[[dict[str, Any]], list[dict[str, Any]]]:
    """What lists the tasks of the world's environment."""
    if world.env == LINE_WORLD.env:
        from pytest_maatml.environments.line_world import LineWorld

        return LineWorld().tasks
    from babyai import babyai

    return babyai().tasks


class TaskFiles:
    """Task lists that have no task in common, by what the tasks are and not by their names."""

    def __init__(self, world: World, folder: Path) -> None:
        self._tasks = task_maker(world)
        self._query = dict(world.query)
        self._folder = folder
        self._held_out: set[str] = set()
        self.test = self._hold_out("test", world.test, TEST_SEED)
        self.validation = self._hold_out("validation", world.validation, VALIDATION_SEED)

    def _hold_out(self, split: str, count: int, seed: int) -> Path:
        tasks = self._ask(split, count, seed)
        self._held_out.update(map(group_of, tasks))
        return self._write(split, tasks)

    def training(self, name: str, count: int, seed: int) -> Path:
        """A file of up to `count` tasks a family, none of them held out."""
        return self._write(name, self._ask("train", count, seed))

    def _ask(self, split: str, count: int, seed: int) -> list[dict[str, Any]]:
        query = {**self._query, "count": count, "seed": seed, "split": split}
        different = {group_of(task): task for task in self._tasks(query)}
        return [task for group, task in different.items() if group not in self._held_out]

    def _write(self, name: str, tasks: list[dict[str, Any]]) -> Path:
        path = self._folder / f"tasks-{name}.json"
        path.write_text(json.dumps(tasks), encoding="utf-8")
        return path


@dataclass(frozen=True, kw_only=True)
class Shell:
    """Runs commands in the example's folder, and writes down each."""

    log: Path

    def run(self, *arguments: str | Path, accepted: Collection[int] = (0,)) -> None:
        """Raises SystemExit, with what the command wrote, for any other exit status."""
        command = [sys.executable, *map(str, arguments)]
        with self.log.open("a", encoding="utf-8") as log:
            log.write(shlex.join(["python", *command[1:]]) + "\n")
        # One thread each: the learners run side by side, and their sums come out alike anywhere.
        threads = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        done = subprocess.run(
            command, cwd=EXAMPLE, env={**os.environ, **threads}, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        if done.returncode not in accepted:
            raise SystemExit(f"{shlex.join(command)}\n{done.stdout}{done.stderr}")

    def maatml(self, *arguments: str | Path) -> None:
        self.run("-m", "pytest_maatml", *arguments)


@dataclass(frozen=True, kw_only=True)
class Learner:
    """One model folder on its way from demonstrations through the rounds."""

    world: World
    seed: int
    model_dir: Path
    tasks: TaskFiles
    shell: Shell
    rounds: list[Path] = field(default_factory=list)

    def collect(self, tasks: Path, *, mix: str, source: str, number: int = 0) -> Path:
        """The folder of the labelled episodes of the newest checkpoint, or of the teacher."""
        self.shell.maatml(
            "rollout", self.model_dir, "--env", self.world.env, "--tasks", f"@{tasks}", "--label",
            "--teacher-mix", mix, "--source", source, "--round", str(number),
            "--seed", str(self.seed), "--max-decisions", str(self.world.max_decisions),
        )  # fmt: skip
        return self.episodes(f"{source}-r{number}")

    def episodes(self, name: str) -> Path:
        return self.model_dir / "output" / "episodes" / name

    def write_rows(self, episodes: Path, name: str, split: str = "train") -> None:
        out = self.model_dir / name
        self.shell.maatml(
            "rows", episodes, "--model", self.model_dir, "--split", split, "--out", out
        )

    def train(self) -> dict[str, Any]:
        """The record of a new run on the seed rows and all rounds so far."""
        joined: Sequence[str | Path] = ("--episodes", *self.rounds) if self.rounds else ()
        self.shell.maatml("prepare", self.model_dir, *joined)
        self.shell.run("train_learner.py", self.model_dir, "--seed", str(self.seed))
        runs = (self.model_dir / "output" / "runs.jsonl").read_text(encoding="utf-8")
        record: dict[str, Any] = json.loads(runs.splitlines()[-1])
        return record

    def check(self, split: str, tasks: Path, number: int) -> dict[str, Any]:
        """The summary of the newest checkpoint in closed loop, under the gate of the world.

        pytest fails (1) where the gate is not met; the table says so.
        """
        self.shell.run(
            "-m", "pytest", self.model_dir, "-q", "--rootdir=.", "-p", "no:cacheprovider",
            f"--maatml-model={self.model_dir}",
            f"--maatml-env={self.world.env}", f"--maatml-tasks=@{tasks}",
            f"--maatml-source={split}", f"--maatml-round={number}",
            f"--maatml-max-decisions={self.world.max_decisions}",
            f"--maatml-min-success={self.world.min_success}", accepted=(0, 1),
        )  # fmt: skip
        summary = self.episodes(f"{split}-r{number}") / "episodes.summary.json"
        found: dict[str, Any] = json.loads(summary.read_text(encoding="utf-8"))
        return found

    def round(self, number: int) -> Check:
        """Train on all that there is, and measure."""
        run = self.train()
        return Check.of(
            number,
            run,
            validation=self.check("validation", self.tasks.validation, number),
            test=self.check("test", self.tasks.test, number),
        )

    def learn(self, rounds: int) -> Learning:
        """Cloning, then `rounds` rounds of DAgger."""
        world, first = self.world, 1000 * self.seed
        shown = self.tasks.training(f"seed{self.seed}-0", world.demonstrations, first)
        self.write_rows(self.collect(shown, mix="1", source="demonstration"), "seed_rows.jsonl")
        checks = [self.round(0)]
        for number in range(1, rounds + 1):
            name = f"seed{self.seed}-{number}"
            tasks = self.tasks.training(name, world.collected, first + number)
            mix = world.teacher_mix
            self.rounds.append(self.collect(tasks, mix=mix, source="dagger", number=number))
            checks.append(self.round(number))
        return Learning(seed=self.seed, checks=checks)


def copy_learner(folder: Path) -> Path:
    shutil.copytree(LEARNER, folder, ignore=shutil.ignore_patterns("output", "__pycache__"))
    return folder


def teach(
    world: World, seed: int, *, folder: Path, tasks: TaskFiles, teacher: Learner, rounds: int
) -> Learning:
    """What one learner makes of it, from a folder of its own."""
    model_dir = copy_learner(folder / f"seed{seed}")
    shutil.copy(teacher.model_dir / "benchmark_rows.jsonl", model_dir)
    shell = Shell(log=folder / f"commands-seed{seed}.sh")
    return Learner(world=world, seed=seed, model_dir=model_dir, tasks=tasks, shell=shell).learn(
        rounds
    )


def run_world(world: World, seeds: Sequence[int], rounds: int, folder: Path) -> list[Learning]:
    """Prints the table of the world, and returns what it is made of."""
    folder.mkdir(parents=True)
    tasks = TaskFiles(world, folder)
    teacher = Learner(
        world=world,
        seed=0,
        model_dir=copy_learner(folder / "teacher"),
        tasks=tasks,
        shell=Shell(log=folder / "commands-teacher.sh"),
    )
    # The teacher alone, on the test tasks: the ceiling, and the rows that accuracy is measured on.
    # They are the model's benchmark, so no training row may be of a test task.
    shown = teacher.collect(tasks.test, mix="1", source="teacher")
    teacher.write_rows(shown, "benchmark_rows.jsonl", split="test")
    ceiling = json.loads((shown / "episodes.summary.json").read_text(encoding="utf-8"))
    start = partial(teach, world, folder=folder, tasks=tasks, teacher=teacher, rounds=rounds)
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        learned = list(pool.map(start, seeds))
    print("\n".join(table(world.name, ceiling, learned)), flush=True)
    return learned


def sized(world: World, held_out: int | None, demonstrations: int | None) -> World:
    """The world with other counts, where they are given."""
    if held_out:
        world = replace(world, test=held_out, validation=max(1, held_out // 3))
    return replace(world, demonstrations=demonstrations or world.demonstrations)


def main() -> None:
    parser = argparse.ArgumentParser(description="Cloning against DAgger, in closed loop.")
    parser.add_argument("worlds", nargs="*", metavar="WORLD", help=f"of {', '.join(WORLDS)}")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--held-out", type=int, metavar="N", help="test tasks a family, and a third for validation"
    )
    parser.add_argument(
        "--demonstrations", type=int, metavar="N", help="tasks a family that cloning is shown"
    )
    parser.add_argument("--out", type=Path, help="a new folder (default: a temporary one)")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="a figure (needs matplotlib)")
    arguments = parser.parse_args()
    names = arguments.worlds or ["line_world"]
    if unknown := [name for name in names if name not in WORLDS]:
        parser.error(f"there is no world {unknown[0]!r}; there are {', '.join(WORLDS)}")
    if arguments.plot and find_spec("matplotlib") is None:
        parser.error("--plot needs matplotlib: pip install matplotlib")
    out = (arguments.out or Path(tempfile.mkdtemp(prefix="dagger-"))).resolve()
    learned = {}
    for name in names:
        world = sized(WORLDS[name], arguments.held_out, arguments.demonstrations)
        learned[name] = run_world(world, arguments.seeds, arguments.rounds, out / name)
    print(f"episodes, rows, checkpoints and commands: {out}")
    if arguments.plot:
        plot(learned, arguments.plot)


if __name__ == "__main__":
    main()
