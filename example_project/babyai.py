"""BabyAI's levels with BabyAI's own bot as the teacher: `--maatml-env=babyai:babyai`.

A Gymnasium wrapper hears every reset and every step, so it is where the bot lives: it follows what
the policy does and plans again from wherever that has led.

Chevalier-Boisvert et al., "BabyAI: A Platform to Study the Sample Efficiency of Grounded Language
Learning", ICLR 2019.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import gymnasium
import minigrid  # registers the levels with Gymnasium
from minigrid.utils.baby_ai_bot import BabyAIBot

from pytest_maatml.environments.gymnasium import EpisodeState, GymnasiumEnvironment
from pytest_maatml.rollout import Labels

if TYPE_CHECKING:
    from collections.abc import Callable

#: From one room and one object up to mazes of locked doors and missions of several parts.
LEVELS: Final = (
    "GoToRedBallNoDists",
    "GoToObj",
    "GoToObjDoor",  # one start in some two hundred has the agent before its goal
    "GoToLocalS6N2",
    "GoToLocal",
    "PickupLoc",
    "PutNextLocal",
    "GoToSeq",
    "UnlockPickup",
    "BlockedUnlockPickup",
    "BossLevel",
    "KeyInBox",  # the bot gives up: it never opens boxes
)


class WithBot(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Adds the mission's state to `info`, a mask of the actions, and the bot's advice.

    `info["success"]` says whether the mission is accomplished, at the reset too: a mission to go
    where the agent stands already is accomplished by the first step, unless that leads away.
    """

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        observation, info = super().reset(**kwargs)
        self._steps = 0
        self._bot: BabyAIBot | None = None
        self._advice = Labels(None, reason="the bot was not asked from the start")
        self._solved = self._is_solved()
        return observation, info | {"success": self._solved}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        self._steps += 1
        if self._bot is not None and not (terminated or truncated):
            self._replan(action)
        success = bool(terminated and float(reward) > 0)
        return observation, reward, terminated, truncated, info | {"success": success}

    def action_masks(self) -> list[bool]:
        """Whether each action can have an effect on the world, in the order of the action enum."""
        level: Any = self.unwrapped
        return [_EFFECTS[action.name](level) or self._ends_now(action) for action in level.actions]

    def advice(self) -> Labels:
        """What the bot would do here, or why it does not know. The same however often asked."""
        if self._steps == 0 and self._bot is None:
            self._replan(None)
        return self._advice

    def _ends_now(self, action: Any) -> bool:
        # Missions are looked at after a step, so a solved one needs a step that changes nothing.
        return bool(self._solved and self._steps == 0 and action.name == "done")

    def _is_solved(self) -> bool:
        """Ask the mission's verifier, and put it back as it was."""
        level: Any = self.unwrapped
        verdict = level.instrs.verify(level.actions.done)
        level.instrs.reset_verifier(level)
        return bool(verdict == "success")

    def _replan(self, taken: int | None) -> None:
        try:
            self._bot = self._bot or BabyAIBot(self)
            self._advice = self._as_labels(self._bot.replan(taken))
        except Exception as error:  # it asserts what it takes for granted about the world
            self._bot = None
            self._advice = Labels(
                None, reason=f"the bot gave up: {str(error) or type(error).__name__}"
            )

    def _as_labels(self, action: Any) -> Labels:
        if not self.action_masks()[action]:
            return Labels(None, reason=f"the bot would {action.name}, which has no effect here")
        return Labels((action.name,))


def _can_walk(level: Any) -> bool:
    ahead = _ahead(level)
    return ahead is None or bool(ahead.can_overlap())


def _can_pick_up(level: Any) -> bool:
    ahead = _ahead(level)
    return ahead is not None and level.carrying is None and bool(ahead.can_pickup())


def _can_drop(level: Any) -> bool:
    return level.carrying is not None and _ahead(level) is None


def _can_toggle(level: Any) -> bool:
    ahead = _ahead(level)
    if ahead is None or ahead.type not in ("door", "box"):
        return False
    if ahead.type == "box" or not ahead.is_locked:
        return True
    key = level.carrying
    return key is not None and key.type == "key" and bool(key.color == ahead.color)


def _ahead(level: Any) -> Any:
    return level.grid.get(*level.front_pos)


_EFFECTS: Final[dict[str, Callable[[Any], bool]]] = {
    "left": lambda level: True,
    "right": lambda level: True,
    "forward": _can_walk,
    "pickup": _can_pick_up,
    "drop": _can_drop,
    "toggle": _can_toggle,
    "done": lambda level: False,
}


def ask_bot(state: EpisodeState) -> Labels:
    """The bot's labels for the state."""
    labels: Labels = state.env.get_wrapper_attr("advice")()
    return labels


def babyai() -> GymnasiumEnvironment:
    """The environment: each level is a family, with one task unless the query says more."""
    return GymnasiumEnvironment(
        name="babyai",
        version=minigrid.__version__,
        families={level: {"env": f"BabyAI-{level}-v0"} for level in LEVELS},
        wrappers=[WithBot],
        teacher=ask_bot,
    )
