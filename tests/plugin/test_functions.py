"""`@pytest.mark.maatml` and the fixture `rollout`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .conftest import ModelFolder

POLICY = """
import pytest

class Walker:
    def score(self, observation, candidates):
        gap = observation["target"] - observation["position"]
        wanted = "finish" if gap == 0 or observation["steps"] >= 6 else (
            "right" if gap > 0 else "left"
        )
        return [float(candidate["id"] == wanted) for candidate in candidates]
"""


def test_one_item_a_family_with_counts_and_episodes(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        POLICY
        + """
@pytest.mark.maatml(
    policy=Walker, env="line_world", tasks={"count": 50, "seed": 1}, options={"extra_steps": 4}
)
def test_walks(rollout):
    episodes = list(rollout.episodes())
    assert len(episodes) == rollout.planned == {"far": 17, "near": 33}[rollout.family]
    assert rollout.success == sum(e["outcome"]["success"] for e in episodes)
    assert rollout.success_rate == rollout.success / rollout.planned
    assert {e["task_family"] for e in episodes} == {rollout.family}
    assert all(e["decisions"][0]["observation"]["max_steps"] >= 5 for e in episodes)
    assert len(list(rollout.failures())) == rollout.planned - rollout.success
    low, high = rollout.wilson95
    assert 0 <= low <= rollout.success_rate <= high <= 1
    assert (rollout.errors, rollout.verdict) == (0, "-")
    assert rollout.success_rate >= {"far": 0.1, "near": 1}[rollout.family]
"""
    )
    result = pytester.runpytest("-v")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        ["*::test_walks[[]far[]] PASSED*", "*::test_walks[[]near[]] PASSED*"]
    )
    name = "test_one_item_a_family_with_counts_and_episodes.test_walks"
    folder = pytester.path / "output" / "episodes" / "rollout-r0" / name
    assert len((folder / "episodes.jsonl").read_text().splitlines()) == 50


def test_a_failing_assertion_is_shown_as_pytest_shows_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        POLICY
        + """
@pytest.mark.maatml(policy=Walker(), env="line_world", tasks={"count": 50, "seed": 1})
def test_walks(rollout):
    assert rollout.success_rate >= 0.95
"""
    )
    result = pytester.runpytest()
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["E *assert 0.* >= 0.95"])


def test_a_gate_of_the_marker_fails_in_its_own_words(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        POLICY
        + """
@pytest.mark.maatml(policy=Walker, env="line_world", tasks={"count": 50, "seed": 1},
                    min_success={"far": 0.9})
def test_walks(rollout):
    pass
"""
    )
    result = pytester.runpytest()
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["far: the gate is >= 90%*", "*::test_walks*far*"])
    assert "Traceback" not in result.stdout.str()


def test_an_errored_episode_fails_the_test_before_its_assertions(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        POLICY
        + """
class Broken(Walker):
    def score(self, observation, candidates):
        if observation["target"] == 1:
            raise LookupError("no way to 1")
        return super().score(observation, candidates)

@pytest.mark.maatml(policy=Broken, env="line_world", tasks={"count": 50, "seed": 1})
def test_walks(rollout):
    assert rollout.success_rate >= 0
"""
    )
    result = pytester.runpytest("-k", "near")
    result.assert_outcomes(failed=1, deselected=1)
    result.stdout.fnmatch_lines(["*LookupError: no way to 1*"])


def test_markers_of_class_and_module_are_merged_and_the_closest_wins(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        POLICY
        + """
pytestmark = pytest.mark.maatml(policy=Walker, env="line_world")

@pytest.mark.maatml(tasks={"count": 4, "seed": 1})
class TestWalks:
    def test_class(self, rollout):
        assert rollout.planned < 9

    @pytest.mark.maatml(tasks={"count": 30, "seed": 1})
    def test_own(self, rollout):
        assert rollout.planned > 9 or rollout.family == "far"
"""
    )
    pytester.runpytest().assert_outcomes(passed=4)


def test_policy_and_environment_come_from_the_options_where_the_marker_says_nothing(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    pytester.makepyfile(
        """
import pytest

@pytest.mark.maatml(tasks={"count": 9})
def test_walks(rollout):
    assert rollout.success_rate == 1
"""
    )
    result = pytester.runpytest(
        "--maatml-model=walker", "--maatml-env=line_world", "-k", "test_walks"
    )
    result.assert_outcomes(passed=2, deselected=1)


@pytest.mark.parametrize(
    ("marker", "said"),
    [
        ('nev="line_world"', "no keyword 'nev'; known: model, tasks"),
        ('policy=Walker, env="line_world", task={"count": 2}', "; did you mean 'tasks'?"),
        ('policy=Walker, tasks={"count": 2}', "there is no environment"),
        ('env="line_world"', "there is no policy"),
        ('policy=Walker, env="line_wrold"', "line_world"),
        ('policy=Walker, env="line_world", tasks=3', "must be a JSON object or a list of tasks"),
        ('policy=Walker, env="line_world", min_success=2', "lies in [0, 1], not 2"),
        ('policy=3, env="line_world"', "without a score method"),
        ('policy=Walker, env="line_world", seed="1"', "seed must be int, not '1'"),
        ('policy=Walker, env="line_world", workers=True', "workers must be int, not True"),
        ('policy=Walker, env="line_world", workers=0', "workers must be at least 1, not 0"),
        ('policy=Walker, env="line_world", timeout=-1', "timeout must be at least 0, not -1"),
        ('policy=Walker, env="line_world", concurrency="all"', "from 1 or auto, not 'all'"),
        ('policy=Walker, env="line_world", options=5', "options must be dict, not 5"),
        ('policy=Walker, env="line_world", options={"a": {1}}', "options.a is a builtins.set"),
    ],
)
def test_what_is_wrong_with_a_marker_is_said_without_a_traceback(
    pytester: pytest.Pytester, marker: str, said: str
) -> None:
    pytester.makepyfile(f"{POLICY}\n@pytest.mark.maatml({marker})\ndef test_walks(rollout): pass\n")
    result = pytester.runpytest()
    assert said in result.stdout.str()
    assert "Traceback" not in result.stdout.str()
    assert "pytest_maatml/" not in result.stdout.str()
    assert result.ret in (1, 2)


def test_a_marked_function_that_would_run_nothing_is_refused(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        f"{POLICY}\n@pytest.mark.maatml(policy=Walker, env='line_world', min_success=1)\n"
        "def test_walks(): pass\n"
    )
    result = pytester.runpytest()
    result.stdout.fnmatch_lines(["*::test_walks: it is marked maatml but does not take*`rollout`*"])
    assert result.ret == 2


def test_a_marked_class_may_have_tests_without_the_fixture(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        f"{POLICY}\n@pytest.mark.maatml(policy=Walker, env='line_world')\nclass TestAll:\n"
        "    def test_plain(self): pass\n    def test_walks(self, rollout): pass\n"
    )
    pytester.runpytest().assert_outcomes(passed=2)


def test_the_fixture_without_a_marker_says_what_it_needs(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_walks(rollout): pass")
    result = pytester.runpytest()
    result.stdout.fnmatch_lines(["*the fixture `rollout` needs @pytest.mark.maatml*"])


def test_a_fixture_of_the_users_own_of_that_name_is_theirs(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("import pytest\n@pytest.fixture\ndef rollout(): return 3\n")
    pytester.makepyfile("def test_own(rollout): assert rollout == 3")
    pytester.runpytest().assert_outcomes(passed=1)


def test_hooks_supply_environment_and_policy_and_hear_of_episodes_and_summaries(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeconftest(
        """
from pytest_maatml.environments.line_world import LineWorld

class Walker:
    def score(self, observation, candidates):
        return [1.0, 0.0, 0.0, 0.0]

def pytest_maatml_environment(name):
    return LineWorld if name == "ours" else None

def pytest_maatml_policy(name):
    return Walker() if name == "lazy" else None

heard = []

def pytest_maatml_episode(episode):
    heard.append(episode["episode_id"])

def pytest_maatml_summary(summary, config):
    print("HEARD", len(heard), summary["episodes"], summary["complete"])
"""
    )
    pytester.makepyfile(
        """
import pytest

@pytest.mark.maatml(policy="lazy", env="ours", tasks={"count": 12})
def test_walks(rollout):
    assert rollout.success_rate < 1
"""
    )
    result = pytester.runpytest("-s")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*HEARD 12 12 True"])
