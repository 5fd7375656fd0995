"""Decisions a second over stdio: our driver and the peer's on both servers, and the floor.

    python benchmarks/stdio.py

The floor is a server that is fed the recorded requests of the same episodes from a file, with its
output discarded: nobody reads a reply, scores or waits. Start-up is left out of all figures.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import maatml.rollout as peer
from interleaved import in_new_folder, rates, report, write
from servers import OURS, PEER, requests
from walkers import Trivial

from pytest_maatml.engine.record import Episode
from pytest_maatml.environments.line_world import LineWorld
from pytest_maatml.rollout import RolloutConfig, StdioEnvironment, drive, plan_episode

if TYPE_CHECKING:
    from collections.abc import Callable

QUERY = {"count": 1200, "seed": 1, "span": 50}
OUR_DRIVER, PEER_DRIVER, FLOOR = "our driver", "the peer's driver, its server", "floor"


class Bench:
    def __init__(self, out: Path, *, label: bool) -> None:
        self.out, self.label = out, label
        self.policy = Trivial()
        self.tasks = LineWorld().tasks(QUERY)
        lines = list(requests(self.tasks, self.policy, label=label))
        self.decisions = sum('"op":"step"' in line for line in lines)
        (out / "requests").write_text("".join(lines))
        (out / "hello").write_text('{"op":"hello"}\n')

    def ours(self, command: list[str], out: Path) -> float:
        config = RolloutConfig(label=self.label)
        with StdioEnvironment(command) as environment:
            environment.hello()
            started = time.perf_counter()
            plans = (plan_episode(task, index, config) for index, task in enumerate(self.tasks))
            with (out / "ours.jsonl").open("wb", buffering=0) as file:
                for ended in drive(environment, self.policy, plans, config=config):
                    assert isinstance(ended, Episode)
                    file.write(ended.line + b"\n")
            return time.perf_counter() - started

    def theirs(self, out: Path) -> float:
        config = peer.RolloutConfig(label=self.label)
        with peer.StdioEnvironment(PEER) as environment:
            environment.hello()
            started = time.perf_counter()
            episodes = peer.rollout(environment, self.policy, self.tasks, config=config)
            peer.write_episodes(episodes, out)
            return time.perf_counter() - started

    def floor(self, command: list[str]) -> float:
        return self._fed(command, "requests") - self._fed(command, "hello")

    def _fed(self, command: list[str], name: str) -> float:
        started = time.perf_counter()
        with (self.out / name).open() as file:
            subprocess.run(command, stdin=file, stdout=subprocess.DEVNULL, check=True)
        return time.perf_counter() - started


def main() -> None:
    results = []
    for label in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            results.append(_compare(Bench(Path(folder), label=label)))
    write("stdio", results)


def _compare(bench: Bench) -> dict[str, Any]:
    contenders: dict[str, Callable[[], float]] = {PEER_DRIVER: in_new_folder(bench.theirs)}
    aims: dict[str, tuple[str, str, float]] = {}
    for name, command, aim in (("our server", OURS, 5), ("the peer's server", PEER, 4)):
        ours, floor = f"{OUR_DRIVER}, {name}", f"{FLOOR}, {name}"
        contenders[ours] = in_new_folder(partial(bench.ours, command))
        contenders[floor] = partial(bench.floor, command)
        aims[f"{ours} / {PEER_DRIVER}"] = (ours, PEER_DRIVER, aim)
        # At most 1.6 times the floor's time is at least 1 / 1.6 of its rate.
        aims[f"{ours} / {floor}"] = (ours, floor, 1 / 1.6)
    found = rates(contenders, count=bench.decisions)
    return report(
        f"over stdio, {'with' if bench.label else 'without'} labels", found, aims, "decisions/s"
    )


if __name__ == "__main__":
    main()
