"""Decisions a second in process: our driver, the peer's, and a bare loop that records nothing.

    python benchmarks/in_process.py

All three play the same tasks of line_world with the same policy; both drivers write their episodes
to a file, since that is what they are for.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import maatml.rollout as peer
from interleaved import in_new_folder, rates, report, timed, write
from maatml.rollout.example import LineWorld as PeerLineWorld
from walkers import QUERY, Trivial, bare_loop

from pytest_maatml.engine.record import Episode
from pytest_maatml.environments.line_world import LineWorld
from pytest_maatml.rollout import InProcess, RolloutConfig, drive, plan_episode

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_maatml.rollout import Environment

BARE, OURS, PEER = (
    "bare loop, records nothing",
    "our driver, writes episodes",
    "the peer's driver, writes episodes",
)


def ours(environment: Environment, tasks: list[dict[str, Any]], out: Path) -> None:
    config = RolloutConfig()
    plans = (plan_episode(task, index, config) for index, task in enumerate(tasks))
    with (out / "ours.jsonl").open("wb", buffering=0) as file:
        for ended in drive(InProcess(environment), Trivial(), plans, config=config):
            assert isinstance(ended, Episode)
            file.write(ended.line + b"\n")


def theirs(environment: Environment, tasks: list[dict[str, Any]], out: Path) -> None:
    peer.write_episodes(peer.rollout(environment, Trivial(), tasks), out)


def main() -> None:
    results = []
    worlds: dict[str, Environment] = {"our": LineWorld(), "the peer's": PeerLineWorld()}
    for name, environment in worlds.items():
        tasks = environment.tasks(QUERY)
        found = rates(
            {
                BARE: timed(partial(bare_loop, environment, Trivial(), tasks)),
                OURS: in_new_folder(timed(partial(ours, environment, tasks))),
                PEER: in_new_folder(timed(partial(theirs, environment, tasks))),
            },
            count=bare_loop(environment, Trivial(), tasks),
        )
        aims = {f"{OURS} / {PEER}": (OURS, PEER, 3), f"{OURS} / {BARE}": (OURS, BARE, 0.6)}
        results.append(report(f"in process, {name} line_world", found, aims, "decisions/s"))
    write("in_process", results)


if __name__ == "__main__":
    main()
