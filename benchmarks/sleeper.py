"""An environment that sleeps at each step, as one that waits for something else does."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pytest_maatml.environments.line_world import LineWorld
from pytest_maatml.rollout import StepResult, serve

if TYPE_CHECKING:
    from typing import Final

SECONDS: Final = 0.005


class Sleeper(LineWorld):
    def step(self, episode: str, candidate_id: str) -> StepResult:
        time.sleep(SECONDS)
        return super().step(episode, candidate_id)


if __name__ == "__main__":
    serve(Sleeper())
