from __future__ import annotations

import importlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_maatml.environments.line_world import LineWorld
from pytest_maatml.rollout import Environment, RolloutEnvError

peer_example: Any = importlib.import_module("maatml.rollout.example")

TASK = {"id": "t", "family": "near", "start": 0, "target": 2, "max_steps": 3}


def started(task: dict[str, Any] = TASK, **options: Any) -> LineWorld:
    world = LineWorld()
    world.reset("e", task, options)
    return world


@given(
    query=st.fixed_dictionaries(
        {},
        optional={
            "count": st.none() | st.integers(0, 40),
            "seed": st.none() | st.integers(-(2**40), 2**40),
            "slack": st.none() | st.integers(-2, 20),
            "span": st.none() | st.integers(-3, 200),
        },
    )
)
@settings(max_examples=200, deadline=None)
def test_tasks_are_the_peers_task_for_task(query: dict[str, Any]) -> None:
    assert LineWorld().tasks(query) == peer_example.LineWorld().tasks(query)


def test_a_query_of_nothing_is_one_near_or_far_task_of_seed_zero() -> None:
    # random.Random(0): randint(-5, 5) gives 1, then 1.
    assert LineWorld().tasks({}) == [
        {"id": "line-0-0", "family": "near", "start": 1, "target": 1, "max_steps": 1}
    ]


@given(seed=st.integers(0, 1000), span=st.integers(1, 50), slack=st.integers(0, 9))
@settings(max_examples=50, deadline=None)
def test_tasks_keep_the_rules_of_the_spec(seed: int, span: int, slack: int) -> None:
    tasks = LineWorld().tasks({"count": 20, "seed": seed, "span": span, "slack": slack})
    for index, task in enumerate(tasks):
        distance = abs(task["target"] - task["start"])
        assert task["id"] == f"line-{seed}-{index}"
        assert -span <= task["start"] <= span
        assert -span <= task["target"] <= span
        assert task["family"] == ("far" if distance > span else "near")
        assert task["max_steps"] == distance + 1 + slack


def test_more_tasks_begin_with_the_same_tasks() -> None:
    query = {"seed": 8, "span": 9}
    assert LineWorld().tasks({**query, "count": 50})[:10] == LineWorld().tasks(
        {**query, "count": 10}
    )


@pytest.mark.parametrize("split", ["train", "", 0, {"fold": 1}])
def test_split_is_stamped_on_each_task_and_changes_nothing_else(split: Any) -> None:
    plain = LineWorld().tasks({"count": 9, "seed": 2})
    stamped = LineWorld().tasks({"count": 9, "seed": 2, "split": split})
    assert [task["split"] for task in stamped] == [split] * 9
    assert [{k: v for k, v in task.items() if k != "split"} for task in stamped] == plain
    assert all("split" not in task for task in plain)


def test_a_misspelt_key_of_a_query_is_refused_with_the_known_ones() -> None:
    expected = (
        "a task query of line_world has no key 'sapn'; known: count, seed, slack, span, split; "
        "did you mean 'span'?"
    )
    with pytest.raises(RolloutEnvError) as refused:
        LineWorld().tasks({"count": 3, "sapn": 9})
    assert str(refused.value) == expected


def test_hello_names_version_and_capabilities() -> None:
    ours, theirs = LineWorld().hello(), peer_example.LineWorld().hello()
    assert (ours.name, ours.version, ours.protocol) == ("line_world", "1", "maatml.rollout_env/1")
    assert ours.supports("label")
    assert ours.supports("tasks")
    assert (ours.name, ours.version, ours.capabilities) == (
        theirs.name, theirs.version, theirs.capabilities,
    )  # fmt: skip
    assert isinstance(LineWorld(), Environment)


def test_candidates_are_finish_jump_left_right_and_jump_is_masked() -> None:
    candidates = started().candidates("e")
    assert [c["id"] for c in candidates] == ["finish", "jump", "left", "right"]
    assert [c["id"] for c in candidates if c.get("valid") is False] == ["jump"]


@pytest.mark.parametrize(
    ("start", "target", "accepted"), [(0, 2, "right"), (2, 0, "left"), (1, 1, "finish")]
)
def test_the_teacher_walks_to_the_target_and_finishes(
    start: int, target: int, accepted: str
) -> None:
    labels = started({**TASK, "start": start, "target": target}).label("e")
    assert labels.valid_ids == (accepted,)


@pytest.mark.parametrize(
    ("actions", "status", "success", "position"),
    [
        (["right", "right", "finish"], "success", True, 2),
        (["finish"], "wrong_finish", False, 0),
        (["right", "finish"], "wrong_finish", False, 1),
        (["left", "left", "left"], "exhausted", False, -3),
        (["right", "right", "left"], "exhausted", False, 1),
        (["right", "left", "finish"], "wrong_finish", False, 0),
        (["right"], "running", False, 1),
        ([], "running", False, 0),
    ],
)
def test_where_the_walk_ends_and_what_the_verifier_says(
    actions: list[str], status: str, success: bool, position: int
) -> None:
    world = started()
    for action in actions:
        result = world.step("e", action)
        assert result.applied is True
    if actions:
        assert result.observation["position"] == position
        assert result.terminal == (None if status == "running" else status)
        assert result.reward == float(success)
    verdict = world.verify("e")
    assert (verdict.status, verdict.success) == (status, success)
    assert (verdict.reward, verdict.detail) == (float(success), {"steps": len(actions)})


@pytest.mark.parametrize("action", ["jump", "fly", "", "FINISH"])
def test_jump_and_what_is_unknown_never_apply_and_cost_no_step(action: str) -> None:
    world = started()
    before = world.reset("e", TASK, {})
    result = world.step("e", action)
    assert (result.applied, result.terminal, result.reward) == (False, None, 0.0)
    assert result.observation == before == {"position": 0, "target": 2, "steps": 0, "max_steps": 3}


def test_extra_steps_lengthen_the_budget_and_leave_the_task_alone() -> None:
    task = dict(TASK)
    world = started(task, extra_steps=2)
    assert [world.step("e", "left").terminal for _ in range(5)] == [None] * 4 + ["exhausted"]
    assert task == TASK


def test_the_verifier_ignores_what_is_claimed() -> None:
    world = started({**TASK, "status": "success", "success": True, "terminal": "success"},
                    success=True, terminal="success")  # fmt: skip
    claimed = world.step("e", "finish")
    claimed.observation["position"] = 2
    claimed.observation["terminal"] = "success"
    assert world.verify("e").success is False


def test_a_step_after_the_end_is_refused() -> None:
    world = started()
    world.step("e", "finish")
    with pytest.raises(RolloutEnvError, match=r"'e' has ended \(wrong_finish\)"):
        world.step("e", "left")
    assert world.verify("e").status == "wrong_finish"


@pytest.mark.parametrize("op", ["candidates", "label", "verify"])
def test_an_unknown_episode_is_refused_by_name(op: str) -> None:
    with pytest.raises(RolloutEnvError, match="unknown episode 'nobody'"):
        getattr(started(), op)("nobody")
    with pytest.raises(RolloutEnvError, match="unknown episode 'nobody'"):
        started().step("nobody", "left")


def test_a_closed_episode_is_unknown_and_closing_twice_is_harmless() -> None:
    world = started()
    world.close("e")
    world.close("e")
    with pytest.raises(RolloutEnvError, match="unknown episode 'e'"):
        world.candidates("e")


def test_episodes_know_nothing_of_one_another() -> None:
    world = started()
    world.reset("f", {**TASK, "start": 5}, {})
    world.step("e", "right")
    assert world.step("f", "left").observation["position"] == 4
    assert world.step("e", "right").observation["position"] == 2


@given(
    seed=st.integers(0, 10**6),
    actions=st.lists(st.sampled_from(["left", "right", "finish", "jump", "dance"]), max_size=15),
    extra=st.integers(0, 5),
)
@settings(max_examples=150, deadline=None)
def test_a_walk_is_the_peers_step_for_step(seed: int, actions: list[str], extra: int) -> None:
    ours, theirs = LineWorld(), peer_example.LineWorld()
    (task,) = ours.tasks({"seed": seed, "slack": 3})
    options = {"extra_steps": extra}
    assert ours.reset("e", task, options) == theirs.reset("e", task, options)
    for action in actions:
        assert ours.candidates("e") == theirs.candidates("e")
        assert ours.label("e").valid_ids == theirs.label("e").valid_ids
        mine, peers = ours.step("e", action), theirs.step("e", action)
        for part in ("observation", "applied", "terminal", "reward"):
            assert getattr(mine, part) == getattr(peers, part)
        if mine.terminal is not None:
            break
    verdict, expected = ours.verify("e"), theirs.verify("e")
    for part in ("success", "status", "reward", "detail"):
        assert getattr(verdict, part) == getattr(expected, part)
