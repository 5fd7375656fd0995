"""Commands of the two servers of line_world, and the requests that a driver sends to them."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from pytest_maatml.environments.line_world import LineWorld

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walkers import Trivial

PEER = [
    sys.executable,
    "-c",
    "from maatml.rollout import serve; from maatml.rollout.example import LineWorld; "
    "serve(LineWorld())",
]
OURS = [sys.executable, "-m", "pytest_maatml", "serve", "line_world"]


def requests(tasks: list[dict[str, Any]], policy: Trivial, *, label: bool) -> Iterator[str]:
    """What is sent for all tasks, one episode after the other, a line each."""
    world = LineWorld()
    for index, task in enumerate(tasks):
        episode = f"rollout-r0-{index:06d}"
        yield _line(op="reset", episode=episode, task=task, options={})
        observation = world.reset(episode, task, {})
        terminal = None
        while terminal is None:
            yield _line(op="candidates", episode=episode)
            if label:
                yield _line(op="label", episode=episode)
            candidates = world.candidates(episode)
            scores = policy.score(observation, candidates)
            chosen = candidates[scores.index(max(scores))]["id"]
            yield _line(op="step", episode=episode, id=chosen)
            result = world.step(episode, chosen)
            observation, terminal = result.observation, result.terminal
        yield _line(op="verify", episode=episode)
        yield _line(op="close", episode=episode)


def _line(**request: Any) -> str:
    return json.dumps(request, separators=(",", ":")) + "\n"
