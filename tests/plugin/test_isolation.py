"""`--maatml-isolate`: an environment that ends or blocks its process costs that one episode."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .conftest import ModelFolder

FRAIL = """
import os
import time

from pytest_maatml.environments.line_world import LineWorld

class Frail(LineWorld):
    def reset(self, episode, task, options):
        observation = super().reset(episode, task, options)
        self.tasks_of = getattr(self, "tasks_of", {}) | {episode: task["id"]}
        return observation

    def step(self, episode, candidate_id):
        if self.tasks_of[episode] == "lethal":
            os._exit(7)
        if self.tasks_of[episode] == "hangs":
            time.sleep(600)
        return super().step(episode, candidate_id)
"""


def tasks(*names: str) -> str:
    walk = {"start": 0, "target": 3, "max_steps": 9}
    return f"--maatml-tasks={json.dumps([{'id': name, **walk} for name in names])}"


@pytest.mark.parametrize("concurrency", ["1", "32"])
def test_an_exit_and_a_hang_cost_one_error_each(
    pytester: pytest.Pytester, walker: ModelFolder, concurrency: str
) -> None:
    pytester.makepyfile(frail=FRAIL)
    listed = [f"walk-{number}" for number in range(24)]
    listed[5], listed[16] = "lethal", "hangs"
    result = pytester.runpytest(
        "--maatml-model=walker",
        "--maatml-env=frail:Frail",
        "--maatml-isolate",
        "--maatml-timeout=1",
        f"--maatml-concurrency={concurrency}",
        "--maatml-min-success=0.5",
        tasks(*listed),
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    lethal, hangs = walker.errors()
    assert (lethal["task_id"], hangs["task_id"]) == ("lethal", "hangs")
    assert (lethal["op"], hangs["op"]) == ("step", "step")
    assert "status 7" in lethal["message"]
    assert "1 s" in hangs["message"]
    episodes = walker.episodes()
    assert len(episodes) == 22
    assert all(episode["outcome"]["success"] for episode in episodes)
    (gate,) = walker.summary()["gates"].values()
    assert gate["verdict"] == "NOT DECIDED"


def test_without_isolation_a_broken_environment_costs_its_own_episode_too(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    pytester.makepyfile(frail=FRAIL.replace("os._exit(7)", "raise OSError('lost')"))
    listed = ["walk-0", "lethal", "walk-1"]
    pytester.runpytest("--maatml-model=walker", "--maatml-env=frail:Frail", tasks(*listed))
    (error,) = walker.errors()
    assert error["task_id"] == "lethal"
    assert len(walker.episodes()) == 2


@pytest.mark.parametrize(("more", "warnings"), [([], 1), (["--maatml-isolate"], 0)])
def test_a_deadline_that_nobody_can_keep_is_a_warning(
    pytester: pytest.Pytester, walker: ModelFolder, more: list[str], warnings: int
) -> None:
    run = ("--maatml-model=walker", "--maatml-env=line_world", "-Wdefault")
    result = pytester.runpytest(*run, "--maatml-timeout=5", *more)
    result.assert_outcomes(passed=1, warnings=warnings)
    said = "--maatml-timeout does nothing for an environment in this process; add --maatml-isolate"
    assert (said in result.stdout.str()) is bool(warnings)
