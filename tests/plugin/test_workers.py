"""Episodes over several processes: the same bytes, and a process that dies costs what it ran."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .conftest import ModelFolder

RUN = ["--maatml-model=walker", "--maatml-env=line_world", '--maatml-tasks={"count": 60}']

#: Leaves the process at one task of the family `near`.
LETHAL = """
import os

class Lethal(Walker):
    def score(self, observation, candidates):
        if os.path.exists("lethal") and observation["target"] == 2 and observation["position"] < 5:
            os._exit(3)
        return super().score(observation, candidates)

register_predictor("scripted_walker")(Lethal)
"""


@pytest.mark.slow
@pytest.mark.parametrize("label", [[], ["--label", "--teacher-mix=0.3"]])
def test_equal_bytes_for_any_number_of_workers(
    pytester: pytest.Pytester, walker: ModelFolder, label: list[str]
) -> None:
    walker.reach(6)
    file = walker.output("dagger-r0" if label else "rollout-r0") / "episodes.jsonl"
    found = []
    for more in ([], ["--maatml-workers=2"], ["--maatml-workers=4"], ["-n2"], ["-n4"]):
        pytester.runpytest_subprocess(*RUN, *label, *more, "--maatml-overwrite")
        found.append(file.read_bytes())
        file.unlink()
    assert len(found[0].splitlines()) == 60
    assert found == [found[0]] * 5


@pytest.fixture
def lethal(pytester: pytest.Pytester, walker: ModelFolder) -> ModelFolder:
    walker.write("walker_plugin.py", (walker.path / "walker_plugin.py").read_text() + LETHAL)
    pytester.path.joinpath("lethal").touch()
    return walker


def test_a_process_that_dies_costs_the_episode_that_it_was_running(
    pytester: pytest.Pytester, lethal: ModelFolder
) -> None:
    run = [*RUN[:2], "--maatml-workers=2"]
    tasks = (
        '--maatml-tasks=[{"id": "a", "start": 0, "target": 2, "max_steps": 9}, '
        + ", ".join(f'{{"id": "t{i}", "start": 0, "target": 1, "max_steps": 9}}' for i in range(20))
        + "]"
    )
    result = pytester.runpytest_subprocess(*run, tasks)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    (error,) = lethal.errors()
    assert error["task_id"] == "a"
    assert "the worker process died while it ran the episode" in error["message"]
    assert len(lethal.episodes()) == 20


def test_an_xdist_worker_that_dies_costs_its_familys_unfinished_episodes_alone(
    pytester: pytest.Pytester, lethal: ModelFolder
) -> None:
    result = pytester.runpytest_subprocess(*RUN, "-n4", "--max-worker-restart=0")
    assert result.ret != pytest.ExitCode.OK
    summary = lethal.summary()
    assert summary["complete"] is False
    assert summary["missing"] > 0
    assert summary["missing"] + summary["episodes"] == 60
    result.stdout.fnmatch_lines(["*NOT DECIDED*"])
    pytester.path.joinpath("lethal").unlink()
    resumed = pytester.runpytest_subprocess(*RUN, "-n4", "--maatml-resume")
    resumed.assert_outcomes(passed=2)
    together = (lethal.output() / "episodes.jsonl").read_bytes()
    assert lethal.summary()["complete"] is True
    pytester.runpytest_subprocess(*RUN).assert_outcomes(passed=2)
    assert (lethal.output() / "episodes.jsonl").read_bytes() == together


def test_a_policy_that_no_other_process_can_make_is_refused(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
import pytest

def made_here():
    class Local:
        def score(self, observation, candidates): return [0.0] * 4
    return Local()

@pytest.mark.maatml(policy=made_here(), env="line_world", tasks={"count": 4}, workers=2)
def test_walks(rollout): pass
"""
    )
    result = pytester.runpytest()
    result.stdout.fnmatch_lines(["*another process cannot be given this policy or environment*"])


@pytest.mark.parametrize(
    ("hook", "made", "what"),
    [
        ("pytest_maatml_policy", "Walker", "policy 'line_walker'"),
        ("pytest_maatml_environment", "LineWorld", "environment 'line_world'"),
    ],
)
def test_what_a_hook_supplies_is_refused_where_no_hook_is(
    pytester: pytest.Pytester, hook: str, made: str, what: str
) -> None:
    pytester.makeconftest(
        f"""
from pytest_maatml.environments.line_world import LineWorld
from pytest_maatml.registry import register_predictor

@register_predictor("line_walker")
class Walker:
    def score(self, observation, candidates): return [0.0] * len(candidates)

def {hook}(name): return {made}()
"""
    )
    run = ("--maatml-policy=line_walker", "--maatml-env=line_world", "--maatml-min-success=0")
    pytester.runpytest(*run).assert_outcomes(passed=1)
    refused = pytester.runpytest(*run, "--maatml-workers=2")
    assert refused.ret in (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED)
    assert f"the {what} comes from the hook {hook}" in refused.stdout.str()


def test_what_an_environment_forks_in_a_worker_ends_with_it(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    pytester.makepyfile(
        forking="""
import os
from pytest_maatml.environments.line_world import LineWorld

class Env(LineWorld):
    def step(self, episode, candidate_id):
        if episode.endswith("02"):
            os.fork()
        with open("pids", "a") as pids:
            print(os.getpid(), file=pids)
        return super().step(episode, candidate_id)
"""
    )
    run = [RUN[0], "--maatml-env=forking.py:Env", '--maatml-tasks={"count": 6}']
    pytester.runpytest_subprocess(*run, "--maatml-workers=2")
    pids = set(map(int, pytester.path.joinpath("pids").read_text().split()))
    assert len(pids) >= 3
    deadline = time.monotonic() + 20
    while left := [pid for pid in pids if is_there(pid)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def is_there(pid: int) -> bool:
    """Whether the process runs; one that nobody has waited for yet has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_an_environment_that_a_worker_cannot_make_is_said_as_what_it_is(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    pytester.makepyfile(
        env="""
        import multiprocessing
        from pytest_maatml.environments.line_world import LineWorld

        def make():
            if multiprocessing.parent_process() is not None:
                raise OSError("no display here")
            return LineWorld()
        """
    )
    result = pytester.runpytest_subprocess(
        RUN[0], "--maatml-env=env.py:make", RUN[2], "--maatml-workers=2"
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*cannot be made: OSError: no display here*"])
    assert "the worker process died" not in result.stdout.str()
