"""`line_world`: walk an integer line to a target, then finish.

Small enough to follow by hand, yet it uses all of the protocol: task families, a teacher, a step
budget, an action that is never valid, and a verdict that rests on where the walker stands and not
on what it claims.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_maatml.engine.protocol import (
    EXHAUSTED,
    SUCCESS,
    Hello,
    Labels,
    StepResult,
    Verification,
)
from pytest_maatml.errors import RolloutEnvError, did_you_mean

if TYPE_CHECKING:
    from pytest_maatml.engine.protocol import JSONObject

_MOVES: Final = {"left": -1, "right": 1}
_FINISH: Final = "finish"
_NEVER_VALID: Final = "jump"
_QUERY: Final = ("count", "seed", "slack", "span", "split")


@dataclass(slots=True)
class _Walk:
    position: int
    target: int
    max_steps: int
    steps: int = 0
    terminal: str | None = None

    def observation(self) -> JSONObject:
        return {
            "position": self.position,
            "target": self.target,
            "steps": self.steps,
            "max_steps": self.max_steps,
        }

    def move(self, action: str) -> None:
        self.steps += 1
        if action == _FINISH:
            self.terminal = SUCCESS if self.position == self.target else "wrong_finish"
            return
        self.position += _MOVES[action]
        if self.steps >= self.max_steps:
            self.terminal = EXHAUSTED


def _check_query(query: JSONObject) -> None:
    for key in query:
        if key not in _QUERY:
            raise RolloutEnvError(
                f"a task query of line_world has no key {key!r}; known: {', '.join(_QUERY)}"
                f"{did_you_mean(key, _QUERY)}"
            )


class LineWorld:
    """Hosts any number of walks.

    A task query takes `count` (1), `seed` (0), `slack` (0: steps beyond the shortest way), `span`
    (5: start and target lie in [-span, span]) and `split` (stamped on each task). The option
    `extra_steps` of a reset adds to the budget of the task.
    """

    def __init__(self) -> None:
        self._walks: dict[str, _Walk] = {}

    def hello(self) -> Hello:
        return Hello(name="line_world", version="1", capabilities=("label", "tasks"))

    def tasks(self, query: JSONObject) -> list[JSONObject]:
        _check_query(query)
        seed = query.get("seed") or 0
        span = max(1, int(query.get("span") or 5))
        slack = int(query.get("slack") or 0)
        stamp = {} if query.get("split") is None else {"split": query["split"]}
        rng = random.Random(int(seed))
        tasks = []
        for index in range(int(query.get("count") or 1)):
            start = rng.randint(-span, span)
            target = rng.randint(-span, span)
            distance = abs(target - start)
            task = {
                "id": f"line-{seed}-{index}",
                "family": "far" if distance > span else "near",
                "start": start,
                "target": target,
                "max_steps": distance + 1 + slack,
            }
            tasks.append(task | stamp)
        return tasks

    def reset(self, episode: str, task: JSONObject, options: JSONObject) -> JSONObject:
        walk = _Walk(
            position=int(task["start"]),
            target=int(task["target"]),
            max_steps=int(task["max_steps"]) + int(options.get("extra_steps") or 0),
        )
        self._walks[episode] = walk
        return walk.observation()

    def candidates(self, episode: str) -> list[JSONObject]:
        self._walk(episode)
        return [
            {"id": _FINISH, "valid": True},
            {"id": _NEVER_VALID, "valid": False},
            {"id": "left", "valid": True},
            {"id": "right", "valid": True},
        ]

    def label(self, episode: str) -> Labels:
        walk = self._walk(episode)
        if walk.position == walk.target:
            return Labels(valid_ids=(_FINISH,))
        return Labels(valid_ids=("right" if walk.position < walk.target else "left",))

    def step(self, episode: str, candidate_id: str) -> StepResult:
        walk = self._walk(episode)
        if walk.terminal is not None:
            raise RolloutEnvError(f"episode {episode!r} has ended ({walk.terminal})")
        applied = candidate_id == _FINISH or candidate_id in _MOVES
        if applied:
            walk.move(candidate_id)
        return StepResult(
            observation=walk.observation(),
            applied=applied,
            terminal=walk.terminal,
            reward=float(walk.terminal == SUCCESS),
        )

    def verify(self, episode: str) -> Verification:
        walk = self._walk(episode)
        success = walk.terminal == SUCCESS and walk.position == walk.target
        return Verification(
            success=success,
            status=walk.terminal or "running",
            reward=float(success),
            detail={"steps": walk.steps},
        )

    def close(self, episode: str) -> None:
        self._walks.pop(episode, None)

    def _walk(self, episode: str) -> _Walk:
        walk = self._walks.get(episode)
        if walk is None:
            raise RolloutEnvError(f"unknown episode {episode!r}")
        return walk
