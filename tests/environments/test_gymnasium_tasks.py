from __future__ import annotations

from hashlib import blake2b
from typing import Any

import pytest

from pytest_maatml.environments.gymnasium import GymnasiumEnvironment
from pytest_maatml.errors import RolloutEnvError
from tests.environments.gymnasium_worlds import hosting


def tasks(query: dict[str, Any], **families: Any) -> list[dict[str, Any]]:
    return hosting(hooks={"families": families}).tasks(query)


def test_each_family_has_the_tasks_that_the_query_counts() -> None:
    made = GymnasiumEnvironment().tasks({"families": {"Taxi-v4": 3, "FrozenLake-v1": 2}, "seed": 1})
    assert [task["family"] for task in made] == ["Taxi-v4"] * 3 + ["FrozenLake-v1"] * 2
    assert [task["id"] for task in made[:2]] == ["Taxi-v4-1-0", "Taxi-v4-1-1"]
    assert len({task["id"] for task in made}) == 5


def test_a_seed_depends_on_the_query_the_family_and_the_index_alone() -> None:
    made = tasks({"families": {"a": 2, "b": 1}, "seed": 9})
    digests = [blake2b(key, digest_size=4) for key in (b"9\0a\x000", b"9\0a\x001", b"9\0b\x000")]
    assert [task["seed"] for task in made] == [int(d.hexdigest(), 16) // 2 for d in digests]


def test_the_first_tasks_are_the_same_whatever_the_count() -> None:
    assert tasks({"families": {"a": 9}})[:4] == tasks({"families": {"a": 4}})


def test_equal_queries_give_equal_tasks_and_other_seeds_others() -> None:
    query = {"families": {"a": 4}, "seed": 1}
    assert tasks(query) == tasks(query)
    others = tasks(query | {"seed": 2})
    assert not {task["seed"] for task in tasks(query)} & {task["seed"] for task in others}


def test_a_split_is_stamped_on_each_task() -> None:
    assert {task["split"] for task in tasks({"families": {"a": 3}, "split": "train"})} == {"train"}
    assert "split" not in tasks({"families": {"a": 1}})[0]


def test_a_family_has_settings_of_its_own() -> None:
    settings = {
        "count": 1,
        "env": "World-v0",
        "make": {"length": 2},
        "options": {"low": 1},
        "success": "return>=2",
    }
    (task,) = tasks({"families": {"short": settings}})
    assert {key: task[key] for key in settings if key != "count"} == {
        key: value for key, value in settings.items() if key != "count"
    }
    assert task["family"] == "short"


def test_seeds_of_a_family_are_used_as_they_are() -> None:
    made = tasks({"families": {"a": {"seeds": [7, 5]}}})
    assert [task["seed"] for task in made] == [7, 5]


def test_registered_families_need_no_settings_in_the_query() -> None:
    registered = {"a": {"env": "A-v0"}, "b": 2}
    assert [task["family"] for task in tasks({}, **registered)] == ["a", "b", "b"]
    assert [task["env"] for task in tasks({"families": ["a"], "count": 2}, **registered)] == [
        "A-v0"
    ] * 2


def test_a_family_of_the_query_goes_before_the_rest_of_it_and_that_before_what_is_registered() -> (
    None
):
    registered = {"a": {"success": "return>=1", "make": {"length": 1, "reward": 1}}}
    query: dict[str, Any] = {"success": "return>=2", "make": {"length": 2}, "families": ["a"]}
    (task,) = tasks(query, **registered)
    assert (task["success"], task["make"]) == ("return>=2", {"length": 2, "reward": 1})
    (task,) = tasks(query | {"families": {"a": {"success": "return>=3"}}}, **registered)
    assert task["success"] == "return>=3"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({}, "names no families"),
        ({"familes": {"a": 1}}, "'familes', which nobody reads"),
        ({"families": {"a": {"cuont": 1}}}, "family 'a' has 'cuont'"),
        ({"families": {"a": 0}}, "count of family 'a' must be 1 or more, not 0"),
        ({"families": {"a": True}}, "family 'a' must be a count or an object"),
        ({"families": 5}, "families must map a name"),
        ({"families": {"a": 1}, "seed": "x"}, "seed of the task query must be an integer"),
        ({"families": {"a": {"make": 3}}}, "make of family 'a' must be an object"),
        ({"families": {"a": {"success": "winning"}}}, "'winning' is not a success criterion"),
    ],
)
def test_a_query_for_what_there_is_not_is_refused(query: dict[str, Any], message: str) -> None:
    with pytest.raises(RolloutEnvError, match=message):
        tasks(query)


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("Taxii-v4", r"Did you mean: `Taxi`\?.*write PACKAGE:Taxii-v4"),
        ("Taxi-v99", "Taxi-v99.*cannot be made"),
        ("no_such_package:World-v0", "no_such_package"),
    ],
)
def test_an_id_that_gymnasium_does_not_know_is_refused_with_what_it_says(
    env_id: str, message: str
) -> None:
    with pytest.raises(RolloutEnvError, match=message):
        GymnasiumEnvironment().tasks({"families": {env_id: 1}})


def test_make_arguments_that_the_environment_does_not_take_are_refused() -> None:
    with pytest.raises(RolloutEnvError, match="unexpected keyword argument 'slippery'"):
        GymnasiumEnvironment().tasks({"families": {"FrozenLake-v1": {"make": {"slippery": True}}}})
