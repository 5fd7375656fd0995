"""Gymnasium environments and policies that do as a test tells them."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

from pytest_maatml.environments.gymnasium import GymnasiumEnvironment

if TYPE_CHECKING:
    from collections.abc import Callable


class Counter(gymnasium.Env):  # type: ignore[misc]
    """Counts its steps. `info` of each step comes from `infos`, by the number of steps taken."""

    made: ClassVar[list[Counter]] = []

    def __init__(
        self,
        *,
        length: int = 3,
        truncates: bool = False,
        reward: Any = 1.0,
        infos: Callable[[int], dict[str, Any]] = lambda steps: {},
        observe: Callable[[int], Any] = lambda steps: steps,
        action_space: Any = None,
    ) -> None:
        self.length, self.truncates, self.reward = length, truncates, reward
        self.infos, self.observe = infos, observe
        self.action_space = spaces.Discrete(3) if action_space is None else action_space
        self.observation_space = spaces.Discrete(100)
        self.received: list[Any] = []
        self.reset_options: Any = "never reset"
        self.closed = False
        self.made.append(self)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps, self.reset_options = 0, options
        return self.observe(0), self.infos(0)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.received.append(action)
        self.steps += 1
        over = self.steps >= self.length
        ends = (over and not self.truncates, over and self.truncates)
        return self.observe(self.steps), self.reward, *ends, self.infos(self.steps)

    def close(self) -> None:
        self.closed = True


class Moves(enum.IntEnum):
    north = 0
    south = 1
    wait = 2


class Named(Counter):
    actions = Moves


class Masking(Counter):
    def action_masks(self) -> np.ndarray[Any, Any]:
        return np.array([True, False, True])


class Brittle(Counter):
    def step(self, action: Any) -> Any:
        raise ZeroDivisionError("the wheel came off")


class Shift(gymnasium.ObservationWrapper):  # type: ignore[misc]
    def __init__(self, env: Any, by: int = 10) -> None:
        super().__init__(env)
        self.by = by

    def observation(self, observation: Any) -> Any:
        return observation + self.by


def hosting(
    world: Callable[..., Any] = Counter, *, hooks: dict[str, Any] | None = None, **settings: Any
) -> GymnasiumEnvironment:
    """An environment that makes a `world` with `settings`, whatever the id."""
    return GymnasiumEnvironment(
        make=lambda env_id, **kwargs: world(**settings, **kwargs), **(hooks or {})
    )


def task(**more: Any) -> dict[str, Any]:
    return {"id": "t", "family": "counter", "seed": 5, "success": "terminated", **more}


def started(environment: GymnasiumEnvironment, **more: Any) -> GymnasiumEnvironment:
    """The environment with the episode `e` under way."""
    environment.reset("e", task(**more), {})
    return environment


def played(environment: GymnasiumEnvironment, candidate: str = "0") -> GymnasiumEnvironment:
    """The environment once the episode `e` has been played to its end with one action."""
    while environment.step("e", candidate).terminal is None:
        pass
    return environment
