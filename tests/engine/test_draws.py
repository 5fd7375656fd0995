from __future__ import annotations

import hashlib
import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pytest_maatml.engine.draws import draw
from pytest_maatml.rollout import RolloutConfig, plan_episode
from tests.engine.scripted import Scripted, episode_of, run


def defined(seed: int, episode_id: str, k: int | str) -> float:
    """The contract's own words, by hashlib."""
    text = b"\x00".join(str(part).encode("utf-8") for part in (seed, episode_id, k))
    first = hashlib.blake2b(text).digest()[:8]
    return int.from_bytes(first, "big") / 2.0**64


def actors(mix: float, *, seed: int = 3, **overrides: Any) -> list[list[str]]:
    episodes = run(
        Scripted(length=100), tasks=100, label=True, teacher_mix=mix, seed=seed, **overrides
    )
    return [[d["actor"] for d in episode_of(episode)["decisions"]] for episode in episodes]


@given(
    seed=st.integers(),
    episode_id=st.text(st.characters(exclude_categories=["Cs"])),
    k=st.integers(0, 10**6) | st.sampled_from(["task", "é"]),
)
def test_a_draw_is_what_the_contract_defines(seed: int, episode_id: str, k: int | str) -> None:
    assert draw(seed, episode_id, k) == defined(seed, episode_id, k)
    assert 0 <= draw(seed, episode_id, k) <= 1


def test_a_draw_worked_by_hand() -> None:
    # printf '0\0rollout-r0-000000\0000' | b2sum
    assert draw(0, "rollout-r0-000000", 0) == 0xFC9D1D92A01F8256 / 2**64


def test_draws_depend_on_nothing_else() -> None:
    before = [draw(1, "e", k) for k in range(5)]
    random.seed(99)
    assert [draw(1, "e", k) for k in reversed(range(5))] == before[::-1]


def test_draws_are_uniform() -> None:
    sample = [
        draw(seed, f"rollout-r0-{n:06d}", k)
        for seed in (0, 1)
        for n in range(100)
        for k in range(50)
    ]
    assert stats.kstest(sample, "uniform").pvalue > 1e-4


@pytest.mark.parametrize("mix", [0.05, 0.3, 0.9])
def test_the_teacher_acts_exactly_where_the_draw_is_below_the_mix(mix: float) -> None:
    acted = actors(mix)
    expected = [
        ["teacher" if defined(3, f"rollout-r0-{n:06d}", k) < mix else "policy" for k in range(100)]
        for n in range(100)
    ]
    assert acted == expected


def test_a_draw_equal_to_the_mix_is_the_policys() -> None:
    mix = defined(3, "rollout-r0-000007", 20)
    assert actors(mix)[7][20] == "policy"
    assert actors(math.nextafter(mix, 1))[7][20] == "teacher"


@pytest.mark.parametrize("mix", [0.05, 0.3, 0.9])
def test_the_teachers_share_lies_in_its_binomial_interval(mix: float) -> None:
    count = sum(row.count("teacher") for row in actors(mix))
    low, high = stats.binom.interval(0.9999, 10_000, mix)
    assert low <= count <= high


def test_at_zero_the_teacher_never_acts_and_at_one_always() -> None:
    assert {actor for row in actors(0.0) for actor in row} == {"policy"}
    assert {actor for row in actors(1.0) for actor in row} == {"teacher"}


def test_who_acts_depends_on_the_seed_and_the_episode_alone() -> None:
    base = actors(0.5)
    assert actors(0.5, concurrency=7) == base
    assert actors(0.5, seed=4) != base
    config = RolloutConfig(label=True, teacher_mix=0.5, seed=3)
    alone = plan_episode({"id": "other"}, 42, config)
    assert alone.episode_id == "rollout-r0-000042"
    assert [defined(3, alone.episode_id, k) < 0.5 for k in range(100)] == [
        actor == "teacher" for actor in base[42]
    ]
