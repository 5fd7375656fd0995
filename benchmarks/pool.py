"""An environment that sleeps 5 ms a step: four processes against one, 32 episodes in flight.

python benchmarks/pool.py
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from interleaved import rates, report, write
from walkers import Trivial

from pytest_maatml.environments.line_world import LineWorld
from pytest_maatml.rollout import RolloutConfig, StdioEnvironment, drive, plan_episode

COMMAND = [sys.executable, str(Path(__file__).with_name("sleeper.py"))]
TASKS = LineWorld().tasks({"count": 200, "seed": 1})


def play(environment: StdioEnvironment, tasks: list[dict[str, Any]]) -> None:
    config = RolloutConfig()
    plans = (plan_episode(task, index, config) for index, task in enumerate(tasks))
    for _ in drive(environment, Trivial(), plans, config=config):
        pass


def seconds(processes: int) -> float:
    with StdioEnvironment(COMMAND, processes=processes) as environment:
        play(environment, TASKS[:processes])  # an episode each: all of them are there
        started = time.perf_counter()
        play(environment, TASKS)
        return time.perf_counter() - started


def main() -> None:
    found = rates(
        {f"{n} processes": partial(seconds, n) for n in (1, 4)}, count=len(TASKS), rounds=3
    )
    ratios = {"4 processes / 1 process": ("4 processes", "1 processes", 3.5)}
    write("pool", [report("an environment that sleeps 5 ms a step", found, ratios, "episodes/s")])


if __name__ == "__main__":
    main()
