"""`--maatml-check-env` on real environments: what they keep, and what it finds wrong in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

# pytester forgets the modules that a run in this process imported first.
import minigrid.utils.baby_ai_bot  # noqa: F401
import pytest

from pytest_maatml.conformance.rules import rules_for

if TYPE_CHECKING:
    from collections.abc import Iterable

EXAMPLE = Path(__file__).parents[2] / "example_project"
TEACHER = {"labels_are_valid", "teacher_succeeds"}
MASKS = {"masked_candidates_do_no_harm"}


def check(pytester: pytest.Pytester, environment: str, query: Any, *more: str) -> pytest.RunResult:
    tasks = f"--maatml-tasks={json.dumps(query)}"
    return pytester.runpytest("--maatml-check-env", f"--maatml-{environment}", tasks, "-v", *more)


def of_outcome(result: pytest.RunResult, word: str) -> set[str]:
    """The rules whose items ended so."""
    lines = [line.split() for line in result.outlines if "::" in line]
    return {line[0].rpartition("::")[2] for line in lines if len(line) > 1 and line[1] == word}


def keeps_all_but(result: pytest.RunResult, optional: Iterable[str]) -> None:
    rules = {rule.name for rule in rules_for(over_stdio=False)}
    skipped = set(optional)
    assert of_outcome(result, "SKIPPED") == skipped
    assert of_outcome(result, "PASSED") == rules - skipped
    assert result.ret == pytest.ExitCode.OK


def test_line_world_keeps_all_rules(pytester: pytest.Pytester) -> None:
    keeps_all_but(check(pytester, "env=line_world", {"count": 6, "seed": 1}), set())


@pytest.mark.parametrize(
    ("env_id", "make", "optional"),
    [
        ("Taxi-v4", {"max_episode_steps": 30}, TEACHER),
        ("FrozenLake-v1", {"is_slippery": True}, TEACHER | MASKS),
        ("CliffWalking-v1", {"max_episode_steps": 30}, TEACHER | MASKS),
        ("Blackjack-v1", {}, TEACHER | MASKS),
        ("CartPole-v1", {}, TEACHER | MASKS),
    ],
)
def test_gymnasiums_environments_keep_all_rules_that_concern_them(
    pytester: pytest.Pytester, env_id: str, make: dict[str, Any], optional: set[str]
) -> None:
    families = {env_id: {"count": 3, "make": make}}
    result = check(pytester, "env=gymnasium", {"families": families, "seed": 1})
    keeps_all_but(result, optional)


def test_an_environment_without_a_limit_is_found_by_the_rules_that_need_an_end(
    pytester: pytest.Pytester,
) -> None:
    query = {"families": {"CliffWalking-v1": 2}, "seed": 1}
    result = check(pytester, "env=gymnasium", query, "--maatml-max-decisions=40")
    assert of_outcome(result, "FAILED") == {"episodes_end", "step_after_the_end_is_refused"}
    result.stdout.fnmatch_lines(["wanted  each episode to end within 40 decisions*"])


@pytest.mark.slow
@pytest.mark.parametrize("level", ["GoToRedBallNoDists", "GoToLocal", "UnlockPickup"])
def test_babyai_with_its_bot_keeps_all_rules(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    monkeypatch.syspath_prepend(EXAMPLE)
    query = {"families": {level: {"count": 2, "make": {"max_episode_steps": 60}}}, "seed": 1}
    result = check(pytester, "env=babyai:babyai", query, "-rP")
    keeps_all_but(result, set())
    result.stdout.fnmatch_lines(["the teacher succeeded on 2 of 2 tasks*"])
