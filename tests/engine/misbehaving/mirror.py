"""An environment behind our `serve` that hands back what a task holds, and may die of a task."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from pytest_maatml.engine.protocol import Hello, Labels, StepResult, Verification
from pytest_maatml.engine.server import serve


class Mirror:
    """Shows `task["shown"]` in its own dict, which it changes in place at every step.

    `task["steps"]` steps end an episode (1 by default), with success unless `task["fails"]`.
    """

    def __init__(self) -> None:
        self._episodes: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}

    def hello(self) -> Hello:
        return Hello("mirror", "1", capabilities=("label", "tasks"))

    def tasks(self, query: dict[str, Any]) -> list[dict[str, Any]]:
        return [query]

    def reset(self, episode: str, task: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
        observation = {"shown": task.get("shown"), "step": 0}
        self._episodes[episode] = task, observation
        return observation

    def candidates(self, episode: str) -> list[dict[str, Any]]:
        task, observation = self._episodes[episode]
        if observation["step"] < task.get("empty_at", 10**9):
            return [{"id": "a", "shown": task.get("shown")}, {"id": task.get("id_of_b", "b")}]
        return []

    def label(self, episode: str) -> Labels:
        if not self.candidates(episode):
            raise ValueError("nothing to label")
        return Labels(("a",))

    def step(self, episode: str, candidate_id: str) -> StepResult:
        task, observation = self._episodes[episode]
        if task.get("dies"):
            os._exit(3)
        if task.get("hangs"):
            time.sleep(60)
        observation["step"] += 1
        terminal = "end" if observation["step"] >= task.get("steps", 1) else None
        return StepResult(observation, True, terminal, 0.1)

    def verify(self, episode: str) -> Verification:
        task, _ = self._episodes[episode]
        return Verification(not task.get("fails"), "end", 0.1, {"shown": task.get("shown")})

    def close(self, episode: str) -> None:
        del self._episodes[episode]


class Loud(Mirror):
    """Prints, itself and through a child process."""

    def step(self, episode: str, candidate_id: str) -> StepResult:
        print("a print of the environment's own")
        os.system("echo the echo of a child process")
        return super().step(episode, candidate_id)


if __name__ == "__main__":
    serve(Loud() if sys.argv[1:] == ["loud"] else Mirror())
