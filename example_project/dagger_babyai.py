"""A memory for BabyAI's levels: a wrapper that a task query names.

    --tasks '{"families": ["UnlockPickup"], "wrappers": ["dagger_babyai:SeenSoFar"]}'

BabyAI's bot remembers what it has seen. A policy that sees the present view alone cannot do what
the bot does: two states that look the same to it have different labels. So the observation is the
map of all that the agent has seen, as the bot's own decisions rest on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import gymnasium
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Cells that are shown in each direction from the agent.
REACH: Final = 6


class SeenSoFar(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Replaces the view by a map of what was seen, with the agent in the middle, facing up.

    `image` has shape (2 * REACH + 1, 2 * REACH + 1, 3), columns first as MiniGrid has it; a cell is
    as it was when it was last in view, all zeros where it never was.
    """

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        self._map: NDArray[np.uint8] | None = None
        first: tuple[Any, dict[str, Any]] = super().reset(**kwargs)
        return first

    def observation(self, observation: Any) -> Any:
        level: Any = self.unwrapped
        self._remember(level, observation["image"])
        return observation | {"image": self._around(level, observation["image"])}

    def _remember(self, level: Any, view: NDArray[np.uint8]) -> None:
        if self._map is None:
            margin = 2 * REACH
            self._map = np.zeros((level.width + margin, level.height + margin, 3), dtype=np.uint8)
        size = level.agent_view_size
        columns, rows = np.nonzero(view[..., 0])
        # The agent stands in the middle of the view's last row and looks along `dir_vec`.
        aside, ahead = columns - size // 2, size - 1 - rows
        places = level.agent_pos + np.outer(aside, level.right_vec) + np.outer(ahead, level.dir_vec)
        x, y = (places + REACH).T
        self._map[x, y] = view[columns, rows]

    def _around(self, level: Any, view: NDArray[np.uint8]) -> NDArray[np.uint8]:
        assert self._map is not None
        x, y = level.agent_pos
        window = self._map[x : x + 2 * REACH + 1, y : y + 2 * REACH + 1]
        turned = np.rot90(window, k=-(level.agent_dir + 1)).copy()
        # What the agent carries is shown where it stands, and nowhere else.
        turned[REACH, REACH] = view[view.shape[0] // 2, -1]
        return turned
