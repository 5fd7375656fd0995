"""Instances of Gymnasium environments: made, wrapped, and used again."""

from __future__ import annotations

import enum
import importlib
import json
import pkgutil
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from pytest_maatml.errors import ConfigurationError, RolloutEnvError, describe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType

    import gymnasium

    from pytest_maatml.engine.protocol import JSONObject
    from pytest_maatml.environments.gymnasium_state import EpisodeState

    Wrap: TypeAlias = Callable[[gymnasium.Env[Any, Any]], gymnasium.Env[Any, Any]]


def import_gymnasium() -> ModuleType:
    """The package. Raises ConfigurationError, with what to install, where it is not there."""
    try:
        return importlib.import_module("gymnasium")
    except ImportError as error:
        raise ConfigurationError(
            f"Gymnasium environments need the package gymnasium ({error}); "
            f"pip install 'pytest-maatml[gymnasium]'"
        ) from None


@dataclass(frozen=True, slots=True)
class Recipe:
    """How an instance is made: the id, and as JSON the keyword arguments and the wrappers."""

    env: str
    make: str
    wrappers: str

    @classmethod
    def of(cls, task: JSONObject, *, max_episode_steps: int | None) -> Recipe:
        """That of a task. Raises RolloutEnvError for one without an environment's id."""
        env = task.get("env") or task.get("family")
        if not isinstance(env, str):
            raise RolloutEnvError(
                f"task {task.get('id')!r} must name an environment id as 'env' or 'family'"
            )
        make = dict(task.get("make") or {})
        if max_episode_steps is not None:
            make["max_episode_steps"] = max_episode_steps
        wrappers = json.dumps(task.get("wrappers") or [], sort_keys=True)
        return cls(env, json.dumps(make, sort_keys=True), wrappers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """The actions of a state by their ids, as the environment and as JSON takes them.

    `valid` is None where there is no mask.
    """

    actions: Mapping[str, Any]
    listed: Mapping[str, Any]
    valid: Mapping[str, bool] | None = None

    def masks(self, name: str) -> bool:
        return self.valid is not None and not self.valid[name]

    def candidates(self) -> list[JSONObject]:
        """New objects each time: whoever is given them may change them."""
        listed, valid = self.listed.items(), self.valid
        if valid is None:
            return [{"id": name, "action": action} for name, action in listed]
        return [{"id": name, "action": action, "valid": valid[name]} for name, action in listed]


@dataclass(slots=True, kw_only=True)
class Instance:
    """One environment, for one episode at a time."""

    env: gymnasium.Env[Any, Any]
    recipe: Recipe
    #: The discrete actions, unless a hook lists them.
    actions: dict[str, int] = field(default_factory=dict)
    mask: Callable[[], Any] | None = None
    #: An exception came out of it, so nobody knows what state it is in.
    broken: bool = False

    def choices(self, state: EpisodeState) -> Choices:
        """Raises RolloutEnvError for a mask that does not fit the actions."""
        actions, mask = self.actions, state.info.get("action_mask")
        if mask is None and self.mask is not None:
            mask = self.mask()
        if mask is None:
            return Choices(actions=actions, listed=actions)
        flags = np.asarray(mask, dtype=bool).tolist()
        if not isinstance(flags, list) or len(flags) != len(actions):
            raise RolloutEnvError(
                f"the action mask of {self.recipe.env!r} does not fit its {len(actions)} actions: "
                f"{mask!r:.200}"
            )
        return Choices(
            actions=actions, listed=actions, valid=dict(zip(actions, flags, strict=True))
        )


class InstancePool:
    """Lends an instance to each episode in flight, and keeps those that came back.

    `lists_actions` says that discrete actions are listed; without it a hook lists them.
    """

    def __init__(
        self,
        make: Callable[..., Any],
        wrappers: Sequence[Wrap],
        *,
        lists_actions: bool,
        reuse: bool,
    ) -> None:
        self._make = make
        self._wrappers = tuple(wrappers)
        self._lists_actions = lists_actions
        self._reuse = reuse
        self._idle: defaultdict[Recipe, list[Instance]] = defaultdict(list)

    def take(self, recipe: Recipe) -> Instance:
        """Raises RolloutEnvError where no instance can be made."""
        idle = self._idle[recipe]
        return idle.pop() if idle else self._made(recipe)

    def give_back(self, instance: Instance) -> None:
        if self._reuse and not instance.broken:
            self._idle[instance.recipe].append(instance)
        else:
            self.discard(instance)

    def discard(self, instance: Instance) -> None:
        with suppress(Exception):  # what is broken may not close; its episode has been told
            instance.env.close()

    def check(self, recipe: Recipe) -> None:
        """Raise RolloutEnvError where no instance can be made."""
        if not self._idle[recipe]:
            self.give_back(self._made(recipe))

    def _made(self, recipe: Recipe) -> Instance:
        try:
            env = self._make(recipe.env, **json.loads(recipe.make))
        except Exception as error:
            raise _unmakeable(recipe.env, error) from error
        for wrap in (*self._wrappers, *map(_wrapper, json.loads(recipe.wrappers))):
            env = wrap(env)
        masked = env.has_wrapper_attr("action_masks")
        return Instance(
            env=env,
            recipe=recipe,
            actions=discrete_actions(env, recipe.env) if self._lists_actions else {},
            mask=env.get_wrapper_attr("action_masks") if masked else None,
        )


def _unmakeable(env_id: str, error: Exception) -> RolloutEnvError:
    advice = ""
    if isinstance(error, import_gymnasium().error.NameNotFound) and ":" not in env_id:
        advice = (
            f"; if a package registers it, write PACKAGE:{env_id}, as 'minigrid:BabyAI-GoToObj-v0'"
        )
    return RolloutEnvError(f"{env_id!r} cannot be made: {describe(error)}{advice}")


def _wrapper(entry: Any) -> Wrap:
    """The wrapper of a task: `MODULE:ATTR`, or {"wrapper": `MODULE:ATTR`, "kwargs": {}}."""
    reference, kwargs = entry, {}
    if isinstance(entry, dict):
        reference, kwargs = entry.get("wrapper"), entry.get("kwargs", {})
    if not isinstance(reference, str):
        raise RolloutEnvError(
            f'a wrapper must be MODULE:ATTR or {{"wrapper": "MODULE:ATTR", "kwargs": {{}}}}, '
            f"not {entry!r:.200}"
        )
    try:
        wrapper = pkgutil.resolve_name(reference)
    except Exception as error:
        raise RolloutEnvError(
            f"the wrapper {reference!r} cannot be imported: {describe(error)}"
        ) from error
    return lambda env: wrapper(env, **kwargs)


def discrete_actions(env: Any, name: str) -> dict[str, int]:
    """Each action by its id: its name in the environment's enum `actions`, else its number.

    Raises RolloutEnvError for an action space that is not discrete.
    """
    space = env.action_space
    if not isinstance(space, import_gymnasium().spaces.Discrete):
        raise RolloutEnvError(
            f"the action space of {name!r} is {space}, and only discrete actions can be listed; "
            f"register a GymnasiumEnvironment(candidates=...) with a function of the state that "
            f"returns the actions to choose from by their ids, as {{'brake': [-1.0], ...}}"
        )
    values = range(int(space.start), int(space.start) + int(space.n))
    named = getattr(env.unwrapped, "actions", None)
    if isinstance(named, type) and issubclass(named, enum.IntEnum):
        names = {int(member): member.name for member in named}
        if names.keys() >= set(values):
            return {names[value]: value for value in values}
    return {str(value): value for value in values}
