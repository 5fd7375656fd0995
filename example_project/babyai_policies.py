"""Policies for BabyAI that need no training, for `--maatml-policy=babyai_policies:NAME`."""

from __future__ import annotations

import random
from typing import Any

#: The codes of MiniGrid's view, of which the agent stands in the middle of the last row.
_TYPES = {"door": 4, "key": 5, "ball": 6, "box": 7}
_COLORS = {"red": 0, "green": 1, "blue": 2, "purple": 3, "yellow": 4, "grey": 5}
_CLOSED = 1
_FREE = (0, 1)


class GoTo:
    """Goes to what the mission names where it is in view, else walks on and looks around.

    It knows no other mission and remembers nothing.
    """

    def score(self, observation: dict[str, Any], candidates: list[dict[str, Any]]) -> list[float]:
        """1 for the action that it wants, a little for its second choices."""
        wanted = self._action(observation)
        fallback = {"left": 0.2, "forward": 0.1}
        return [
            1.0 if candidate["id"] == wanted else fallback.get(candidate["id"], 0.0)
            for candidate in candidates
        ]

    def _action(self, observation: dict[str, Any]) -> str:
        view = observation["image"]
        middle, front = len(view) // 2, len(view[0]) - 2
        target = _nearest(view, observation["mission"])
        ahead, _, state = view[middle][front]
        if ahead == _TYPES["door"] and state == _CLOSED:
            return "toggle"
        if target is None:
            return "forward"
        column, row = target
        # From a diagonal, turning towards the target would go on forever.
        return "forward" if row <= front and ahead in _FREE else _turn(column, middle)


def _nearest(view: list[list[list[int]]], mission: str) -> tuple[int, int] | None:
    """Column and row of the nearest object that fits the words of the mission."""
    words = mission.split()
    kinds = {_TYPES[word] for word in words if word in _TYPES}
    colors = {_COLORS[word] for word in words if word in _COLORS} or set(_COLORS.values())
    seen = [
        (column, row)
        for column, cells in enumerate(view)
        for row, (kind, color, _) in enumerate(cells)
        if kind in kinds and color in colors
    ]
    middle, bottom = len(view) // 2, len(view[0]) - 1
    return min(seen, default=None, key=lambda at: abs(at[0] - middle) + bottom - at[1])


def _turn(column: int, middle: int) -> str:
    return "right" if column > middle else "left"


class Random:
    """Scores that depend on the episode, the decision and nothing else."""

    def start_episode(self, episode_id: str, task: dict[str, Any]) -> _RandomEpisode:
        return _RandomEpisode(random.Random(task["id"]))


class _RandomEpisode:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def score(self, observation: dict[str, Any], candidates: list[dict[str, Any]]) -> list[float]:
        return [self._rng.random() for _ in candidates]
