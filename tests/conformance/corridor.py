"""A corridor to walk down, right in every way; the faulty and the odd ones derive from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from pytest_maatml.rollout import Hello, Labels, RolloutEnvError, StepResult, Verification


@dataclass
class Walk:
    episode: str
    length: int
    budget: int
    at: int = 0
    steps: int = 0
    terminal: str | None = None


class Corridor:
    """Reach the end within the budget. At the start there is no way back: `back` is masked."""

    moves: ClassVar[dict[str, int]] = {"back": -1, "forward": 1, "stay": 0}

    def __init__(self) -> None:
        self.walks: dict[str, Walk] = {}

    def hello(self) -> Hello:
        return Hello("corridor", "1", capabilities=("label", "tasks"))

    def tasks(self, query: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            {"id": f"t{n}", "family": ("short", "long")[n % 2], "length": 1 + n % 4}
            for n in range(query.get("count", 1))
        ]

    def reset(self, episode: str, task: dict[str, Any], options: dict[str, Any]) -> Any:
        length = task["length"]
        self.walks[episode] = walk = Walk(episode, length, length + 2)
        return self.seen(walk)

    def seen(self, walk: Walk) -> Any:
        return {"at": walk.at, "end": walk.length, "left": walk.budget - walk.steps}

    def candidates(self, episode: str) -> list[dict[str, Any]]:
        walk = self.walk(episode)
        if walk.terminal is not None:
            return []
        return [self.candidate(walk, name) for name in self.moves]

    def candidate(self, walk: Walk, name: str) -> dict[str, Any]:
        return {"id": name, "valid": walk.at + self.moves[name] >= 0}

    def label(self, episode: str) -> Labels:
        self.walk(episode)
        return Labels(("forward",))

    def step(self, episode: str, candidate_id: str) -> StepResult:
        walk = self.walk(episode)
        if walk.terminal is not None:
            raise RolloutEnvError(f"episode {episode} has ended")
        move = self.moves.get(candidate_id)
        applied = move is not None and walk.at + move >= 0
        if move is not None and applied:
            self.advance(walk, move)
        return StepResult(self.stepped(walk), applied, walk.terminal, 0.5 * applied)

    def advance(self, walk: Walk, move: int) -> None:
        walk.at += move
        walk.steps += 1
        if walk.at == walk.length:
            walk.terminal = "success"
        elif walk.steps >= walk.budget:
            walk.terminal = "exhausted"

    def stepped(self, walk: Walk) -> Any:
        return self.seen(walk)

    def verify(self, episode: str) -> Verification:
        walk = self.walk(episode)
        success = walk.terminal == "success"
        return Verification(success, walk.terminal or "running", float(success), {"at": walk.at})

    def close(self, episode: str) -> None:
        self.walks.pop(episode, None)

    def walk(self, episode: str) -> Walk:
        if episode not in self.walks:
            raise RolloutEnvError(f"unknown episode {episode}")
        return self.walks[episode]
