"""Policies that need no training, for `--maatml-policy=policies:NAME`."""

from __future__ import annotations

from typing import Any

#: The score of what Greedy never wants: below any distance on a grid.
NEVER = -1000.0


class Greedy:
    """Takes the shortest way to the next goal in grid_rescue, and never looks further.

    It cannot see that a floor which bears it once may be missing on the way back.
    """

    def score(self, observation: dict[str, Any], candidates: list[dict[str, Any]]) -> list[float]:
        """One score a candidate: minus the steps that are left after a move."""
        return [self._score(observation, candidate) for candidate in candidates]

    def _score(self, observation: dict[str, Any], candidate: dict[str, Any]) -> float:
        if candidate["id"] == "lift":
            return 1.0 if observation["agent"] == observation["person"] else NEVER
        if candidate["id"] == "report":
            home = observation["agent"] == observation["exit"]
            return 1.0 if observation["carrying"] and home else NEVER
        distance = candidate["distance"]
        return NEVER - 1.0 if distance is None else -float(distance)
