"""An episode of a Gymnasium environment under way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import gymnasium


@dataclass(slots=True, kw_only=True)
class EpisodeState:
    """What the hooks of a GymnasiumEnvironment are given.

    `observation` and `info` are what Gymnasium returned last, `reward` that of the last step,
    `total_reward` the undiscounted return so far.
    """

    env: gymnasium.Env[Any, Any]
    observation: Any
    info: dict[str, Any]
    steps: int = 0
    reward: float = 0.0
    total_reward: float = 0.0
    terminated: bool = False
    truncated: bool = False

    @property
    def over(self) -> bool:
        return self.terminated or self.truncated

    def step(self, action: Any) -> None:
        """Take the action in the environment."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.observation, self.info = observation, info
        self.steps += 1
        self.reward = float(reward)
        self.total_reward += self.reward
        self.terminated, self.truncated = bool(terminated), bool(truncated)


def as_json(value: Any) -> Any:
    """`value` with NumPy's arrays and scalars as lists and numbers of the same value, tuples as
    lists; what is neither stays as it is, for the driver to refuse with its place.
    """
    if isinstance(value, np.ndarray):
        listed = value.tolist()
        return as_json(listed) if value.dtype.hasobject else listed
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    return value


def as_observation(state: EpisodeState) -> dict[str, Any]:
    """The observation as a JSON object: one that is not a dict stands under `observation`."""
    observation = as_json(state.observation)
    return observation if isinstance(observation, dict) else {"observation": observation}
