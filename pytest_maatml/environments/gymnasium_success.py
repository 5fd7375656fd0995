"""When an episode of a Gymnasium environment is a success: said by someone, never guessed."""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pytest_maatml.errors import RolloutEnvError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_maatml.environments.gymnasium_state import EpisodeState

#: What the documentation of Gymnasium's own environments calls solved, for one episode.
DOCUMENTED: Final = {
    "FrozenLake": "reward>0 at termination",
    "FrozenLake8x8": "reward>0 at termination",
    "Taxi": "reward>0 at termination",
    "CliffWalking": "terminated",
    "CliffWalkingSlippery": "terminated",
    "Blackjack": "reward>0 at termination",
    "CartPole": "return>=475",
    "MountainCar": "terminated",
    "Acrobot": "terminated",
    "LunarLander": "return>=200",
}
_SHORT: Final = {"CartPole-v0": "return>=195"}
_KEYS: Final = ("success", "is_success")
_COMPARISONS: Final[dict[str, Callable[[Any, float], Any]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}
_CRITERION: Final = re.compile(
    r"\s*(?:(?P<terminated>terminated)"
    r"|(?:(?P<number>reward|return)|info:(?P<key>[^\s<>=]+))"
    r"(?:\s*(?P<comparison>>=|<=|==|>|<)\s*(?P<bound>[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?))?"
    r"(?P<end>\s+at\s+termination)?)\s*"
)
_LANGUAGE: Final = (
    "write 'reward>0 at termination', 'return>=475', 'terminated' or 'info:KEY' "
    "(also 'info:KEY>=0.5'; '>=', '>', '==', '<=', '<'; 'at termination' wherever it is to count)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """A condition on the end of an episode, as its text says."""

    text: str
    #: `terminated`, `reward` (of the last step), `return` (undiscounted), or `info`.
    quantity: str
    key: str = ""
    comparison: str = ""
    bound: float = 0.0
    at_termination: bool = False

    def holds(self, state: EpisodeState) -> bool:
        """Whether it holds. Of an episode that is not over only `info` can say so.

        Raises RolloutEnvError where `info` lacks the key at the end, or has neither true nor
        false under it.
        """
        if self.at_termination and not state.terminated:
            return False
        if self.quantity == "info":
            return self._holds_in(state)
        if self.quantity == "terminated":
            return state.terminated
        value = state.reward if self.quantity == "reward" else state.total_reward
        return state.over and bool(_COMPARISONS[self.comparison](value, self.bound))

    def _holds_in(self, state: EpisodeState) -> bool:
        if self.key not in state.info:
            if not state.over:
                return False
            raise RolloutEnvError(
                f"the success criterion {self.text!r} needs info[{self.key!r}], which the "
                f"environment does not give at the end; it gives {sorted(state.info)}"
            )
        value = state.info[self.key]
        if self.comparison:
            return bool(_COMPARISONS[self.comparison](value, self.bound))
        if value in (0, 1):
            return bool(value)
        raise RolloutEnvError(
            f"info[{self.key!r}] is {value!r:.100}, neither true nor false; say when it is a "
            f"success, as in 'info:{self.key}>=1'"
        )


@cache
def parse_criterion(text: str) -> Criterion:
    """The criterion that `text` states. Raises RolloutEnvError for any other text."""
    match = _CRITERION.fullmatch(text)
    if match is None or (match["number"] and not match["comparison"]):
        raise RolloutEnvError(f"{text!r} is not a success criterion; {_LANGUAGE}")
    if match["terminated"]:
        return Criterion(text=text, quantity="terminated")
    try:
        bound = float(match["bound"] or 0)
    except ValueError:
        raise RolloutEnvError(f"{text!r} compares with no number; {_LANGUAGE}") from None
    return Criterion(
        text=text,
        quantity=match["number"] or "info",
        key=match["key"] or "",
        comparison=match["comparison"] or "",
        bound=bound,
        at_termination=bool(match["end"]),
    )


def documented_criterion(env_id: str) -> str | None:
    """The criterion for one of Gymnasium's own environments, of whatever version."""
    name = re.sub(r"-v\d+$", "", env_id)
    return _SHORT.get(env_id, DOCUMENTED.get(name))


def judge(state: EpisodeState, env_id: str, named: str | None) -> tuple[bool, str]:
    """Whether the episode is a success, and who said so.

    `info["success"]` or `info["is_success"]` where it is a boolean, else the criterion that was
    `named`, else what is documented for `env_id`. An episode that is not over is no success
    unless `info` says so. Raises RolloutEnvError where nobody says anything.
    """
    for key in _KEYS:
        if isinstance(state.info.get(key), bool | np.bool_):
            return bool(state.info[key]), f"info:{key}"
    text = named or documented_criterion(env_id)
    if text is not None:
        return parse_criterion(text).holds(state), text
    if not state.over:
        return False, "not over"
    raise RolloutEnvError(
        f"nothing says whether an episode of {env_id!r} is a success: its info has no boolean "
        f"'success' or 'is_success'; name a criterion in the task query, as "
        f'{{"success": "reward>0 at termination"}}: {_LANGUAGE}'
    )
