from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_maatml.environments.gymnasium_state import EpisodeState
from pytest_maatml.environments.gymnasium_success import (
    documented_criterion,
    judge,
    parse_criterion,
)
from pytest_maatml.errors import RolloutEnvError


def state(**fields: Any) -> EpisodeState:
    return EpisodeState(**{"env": None, "observation": 0, "info": {}, "steps": 3, **fields})


WON = state(reward=1.0, total_reward=475.0, terminated=True)
LOST = state(reward=0.0, total_reward=474.9, terminated=True)
CUT = state(reward=1.0, total_reward=500.0, truncated=True)
RUNNING = state(reward=1.0, total_reward=500.0)


@pytest.mark.parametrize(
    ("criterion", "won", "lost", "cut", "running"),
    [
        ("reward>0 at termination", True, False, False, False),
        ("reward > 0 at termination", True, False, False, False),
        ("reward>0", True, False, True, False),
        ("return>=475", True, False, True, False),
        ("return>=475 at termination", True, False, False, False),
        ("return<475", False, True, False, False),
        ("return>4.75e2", False, False, True, False),
        ("return==475.0", True, False, False, False),
        ("reward<=-0.0", False, True, False, False),
        ("terminated", True, True, False, False),
    ],
)
def test_a_criterion_holds_of_episodes_that_ended_so(
    criterion: str, won: bool, lost: bool, cut: bool, running: bool
) -> None:
    holds = parse_criterion(criterion).holds
    assert (holds(WON), holds(LOST), holds(CUT), holds(RUNNING)) == (won, lost, cut, running)


@pytest.mark.parametrize(
    ("criterion", "value", "success"),
    [
        ("info:goal", True, True),
        ("info:goal", np.bool_(False), False),
        ("info:goal", np.float32(1.0), True),
        ("info:goal", 0, False),
        ("info:goal>=0.5", 0.7, True),
        ("info:goal>=0.5", np.float64(0.3), False),
    ],
)
def test_a_criterion_on_the_info_reads_its_key(criterion: str, value: Any, success: bool) -> None:
    assert parse_criterion(criterion).holds(state(info={"goal": value})) is success


def test_a_key_that_the_info_lacks_is_an_error_at_the_end_only() -> None:
    criterion = parse_criterion("info:goal")
    assert criterion.holds(state()) is False
    with pytest.raises(RolloutEnvError, match=r"needs info\['goal'\].*it gives \['score'\]"):
        criterion.holds(state(info={"score": 1}, terminated=True))


def test_a_key_that_is_neither_true_nor_false_is_an_error() -> None:
    with pytest.raises(RolloutEnvError, match=r"0\.4, neither true nor false"):
        parse_criterion("info:goal").holds(state(info={"goal": 0.4}))


@pytest.mark.parametrize(
    "text", ["", "won", "return", "reward", "return>=", "return>=many", "return>=1.2.3", "info:"]
)
def test_any_other_text_is_refused_with_the_language(text: str) -> None:
    with pytest.raises(RolloutEnvError, match="'reward>0 at termination'"):
        parse_criterion(text)


@pytest.mark.parametrize("key", ["success", "is_success"])
@pytest.mark.parametrize("value", [True, False, np.True_, np.False_])
def test_a_boolean_of_the_info_is_the_verdict(key: str, value: Any) -> None:
    ended = state(info={key: value}, terminated=True)
    assert judge(ended, "World-v0", "return>=1") == (bool(value), f"info:{key}")


def test_a_number_in_the_info_is_not_taken_for_a_verdict() -> None:
    ended = state(info={"is_success": 1.0}, terminated=True)
    with pytest.raises(RolloutEnvError, match="no boolean 'success' or 'is_success'"):
        judge(ended, "World-v0", None)


def test_a_named_criterion_goes_before_the_documented_one() -> None:
    assert judge(CUT, "CartPole-v1", "terminated") == (False, "terminated")
    assert judge(CUT, "CartPole-v1", None) == (True, "return>=475")


def test_an_episode_that_is_not_over_is_no_success_and_no_error() -> None:
    assert judge(RUNNING, "World-v0", None) == (False, "not over")


@pytest.mark.parametrize(
    ("env_id", "criterion"),
    [
        ("Taxi-v3", "reward>0 at termination"),
        ("Taxi-v4", "reward>0 at termination"),
        ("FrozenLake8x8-v1", "reward>0 at termination"),
        ("CartPole-v0", "return>=195"),
        ("CartPole-v1", "return>=475"),
        ("Pendulum-v1", None),
        ("mine:Taxi-v1", None),
    ],
)
def test_what_is_documented_for_gymnasiums_own(env_id: str, criterion: str | None) -> None:
    assert documented_criterion(env_id) == criterion
