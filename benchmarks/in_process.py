"""Decisions a second in process: our driver, the peer's, and a bare loop that records nothing.

    python benchmarks/in_process.py

All three play the same tasks of line_world with the same policy; both drivers write their episodes
to a file, since that is what they are for.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import maatml.rollout as peer
from interleaved import rates, report, write
from maatml.rollout.example import LineWorld as PeerLineWorld
from walkers import QUERY, Trivial, bare_loop

from pytest_maatml.engine.record import Episode
from pytest_maatml.environments.line_world import LineWorld
from pytest_maatml.rollout import InProcess, RolloutConfig, drive, plan_episode


def main() -> None:
    policy, config = Trivial(), RolloutConfig()
    results = []
    for name, environment in (("line_world", LineWorld()), ("the peer's", PeerLineWorld())):
        tasks = environment.tasks(QUERY)
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder)

            def ours() -> int:
                decisions = 0
                plans = (plan_episode(task, index, config) for index, task in enumerate(tasks))
                with (out / "ours.jsonl").open("wb", buffering=0) as file:
                    for ended in drive(InProcess(environment), policy, plans, config=config):
                        assert isinstance(ended, Episode)
                        file.write(ended.line + b"\n")
                        decisions += ended.decisions
                return decisions

            def theirs() -> int:
                summary = peer.write_episodes(peer.rollout(environment, policy, tasks), out)
                return int(summary["decisions"])

            found = rates(
                {
                    "bare loop, records nothing": lambda: bare_loop(environment, policy, tasks),
                    "our driver, writes episodes": ours,
                    "the peer's driver, writes episodes": theirs,
                }
            )
        results.append(
            report(
                f"in process, {name} environment",
                found,
                {
                    "ours / the peer's": (
                        "our driver, writes episodes",
                        "the peer's driver, writes episodes",
                        3,
                    ),
                    "ours / bare loop": (
                        "our driver, writes episodes",
                        "bare loop, records nothing",
                        0.6,
                    ),
                },
                "decisions/s",
            )
        )
    write("in_process", results)


if __name__ == "__main__":
    main()
