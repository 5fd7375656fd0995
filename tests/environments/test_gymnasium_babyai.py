"""The example's BabyAI levels, with their bot as the teacher."""

from __future__ import annotations

import copy
import importlib
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import pytest

from tests.engine.scripted import Fixed, episode_of, lines, run

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLE = Path(__file__).parents[2] / "example_project"
EASY = ["GoToRedBallNoDists", "GoToObj", "GoToLocalS6N2"]
HARD = ["PutNextLocal", "UnlockPickup", "GoToSeq", "BossLevel"]


@pytest.fixture(scope="module", autouse=True)
def importable() -> Iterator[None]:
    """The example's modules, as its user has them."""
    sys.path.insert(0, str(EXAMPLE))
    yield
    sys.path.remove(str(EXAMPLE))


@pytest.fixture
def environment() -> Any:
    return importlib.import_module("babyai").babyai()


def policy(name: str) -> Any:
    return getattr(importlib.import_module("babyai_policies"), name)()


def with_bot(level: str, seed: int) -> Any:
    env = importlib.import_module("babyai").WithBot(gymnasium.make(f"BabyAI-{level}-v0"))
    env.reset(seed=seed)
    return env


def records(environment: Any, levels: list[str], count: int, **how: Any) -> list[dict[str, Any]]:
    tasks = environment.tasks({"families": levels, "count": count, "seed": 1})
    name = how.pop("policy", "Random")
    return [episode_of(result) for result in run(environment, policy(name), tasks, **how)]


def test_the_mission_and_the_view_are_in_the_observation(environment: Any) -> None:
    (task,) = environment.tasks({"families": ["GoToRedBallNoDists"]})
    observation = environment.reset("e", task, {})
    assert observation["mission"] == "go to the red ball"
    assert [len(column) for column in observation["image"]] == [7] * 7
    assert [c["id"] for c in environment.candidates("e")] == [
        "left",
        "right",
        "forward",
        "pickup",
        "drop",
        "toggle",
        "done",
    ]


@pytest.mark.parametrize("level", EASY + HARD)
def test_the_bot_alone_accomplishes_each_mission(environment: Any, level: str) -> None:
    played = records(environment, [level], 6, label=True, teacher_mix=1.0)
    assert all(record["outcome"]["success"] for record in played)


def test_the_bot_replans_from_wherever_the_policy_has_gone(environment: Any) -> None:
    played = records(environment, EASY, 10, policy="GoTo", label=True, teacher_mix=0.5)
    assert all(record["outcome"]["success"] for record in played)
    actors = {decision["actor"] for record in played for decision in record["decisions"]}
    assert actors == {"policy", "teacher"}


def test_where_the_bot_gives_up_the_episode_says_why(environment: Any) -> None:
    (record,) = records(environment, ["KeyInBox"], 1, label=True)
    assert record["outcome"]["truncated"] == "unlabelled:the bot gave up: AssertionError"


def test_the_bot_gives_the_same_label_however_often_it_is_asked(environment: Any) -> None:
    (task,) = environment.tasks({"families": ["GoToLocal"]})
    environment.reset("e", task, {})
    for _ in range(10):
        first = environment.label("e")
        assert environment.label("e") == first
        if environment.step("e", "right").terminal:
            break
    assert first.labelled


def test_a_bot_that_was_not_asked_from_the_start_says_so(environment: Any) -> None:
    (task,) = environment.tasks({"families": ["BossLevel"]})
    environment.reset("e", task, {})
    environment.step("e", "left")
    assert environment.label("e").reason == "the bot was not asked from the start"


def state_of(level: Any) -> Any:
    carried = None if level.carrying is None else level.carrying.encode()
    grid = level.grid.encode().tolist()
    return tuple(level.agent_pos), level.agent_dir, carried, grid


@pytest.mark.parametrize("level", ["GoToLocal", "PutNextLocal", "UnlockPickup", "KeyInBox"])
def test_the_mask_is_of_the_actions_that_change_nothing(level: str) -> None:
    """Held against the world itself: each action in each state of a random walk."""
    env = with_bot(level, seed=3)
    rng = random.Random(level)
    masked = 0
    for _ in range(60):
        for action, valid in enumerate(env.action_masks()):
            world = copy.deepcopy(env.unwrapped)
            world.step(action)
            assert (state_of(world) != state_of(env.unwrapped)) is valid
            masked += not valid
        free = [action for action, valid in enumerate(env.action_masks()) if valid]
        _, _, terminated, truncated, _ = env.step(rng.choice(free))
        if terminated or truncated:
            env.reset(seed=rng.randrange(1000))
    assert masked > 60


def test_a_mission_that_is_accomplished_at_reset_is_reported_as_such(environment: Any) -> None:
    env = with_bot("GoToObjDoor", seed=0)
    seed = next(seed for seed in range(100, 300) if env.reset(seed=seed)[1]["success"])
    targets = [tuple(place) for place in env.unwrapped.instrs.desc.obj_poss]
    assert tuple(env.unwrapped.front_pos) in targets

    query = {"families": {"GoToObjDoor": {"seeds": [seed]}}}
    tasks = environment.tasks(query)
    idle = [0.0] * 6 + [1.0]
    record = episode_of(run(environment, Fixed(idle), tasks, label=True)[0])
    (decision,) = record["decisions"]
    assert decision["chosen"] == "done"
    assert decision["teacher_valid"] == ["done"]
    assert record["outcome"]["success"] is True
    assert record["outcome"]["status"] == "solved_at_reset"


def test_looking_whether_it_is_solved_changes_nothing() -> None:
    plain = gymnasium.make("BabyAI-BossLevel-v0")
    watched = with_bot("BossLevel", seed=4)
    plain.reset(seed=4)
    ends = []
    for env in (plain, watched):
        steps = [env.step(action)[1:4] for action in [2, 2, 0, 2, 1, 2, 2, 1, 2] * 20]
        ends.append((steps, state_of(env.unwrapped), env.unwrapped.mission))
    assert ends[0] == ends[1]


@pytest.mark.parametrize("label", [False, True])
def test_one_and_32_in_flight_give_the_same_bytes(environment: Any, label: bool) -> None:
    tasks = environment.tasks({"families": ["GoToLocal"], "count": 40, "seed": 1})
    one = lines(run(environment, policy("GoTo"), tasks, label=label))
    many = lines(run(environment, policy("GoTo"), tasks, label=label, concurrency=32))
    assert len(one) == 40
    assert one == many


def test_the_scripted_policy_beats_the_random_one_where_it_knows_the_mission(
    environment: Any,
) -> None:
    wins = {
        name: sum(r["outcome"]["success"] for r in records(environment, EASY, 8, policy=name))
        for name in ("GoTo", "Random")
    }
    assert wins["GoTo"] == 24
    assert wins["Random"] < 20
