from __future__ import annotations

import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from pytest_maatml.environments.gymnasium import EpisodeState, GymnasiumEnvironment
from pytest_maatml.errors import ConfigurationError, RolloutEnvError
from pytest_maatml.rollout import Environment, Labels
from tests.engine.scripted import Fixed, episode_of, run
from tests.environments.gymnasium_worlds import (
    Brittle,
    Counter,
    Masking,
    Named,
    Shift,
    hosting,
    played,
    started,
    task,
)

REGISTERED = ["Taxi-v4", "FrozenLake-v1", "CliffWalking-v1", "Blackjack-v1", "CartPole-v1"]


@pytest.fixture(autouse=True)
def made() -> list[Counter]:
    """The instances that a test makes."""
    Counter.made.clear()
    return Counter.made


def ids(environment: GymnasiumEnvironment) -> list[str]:
    return [candidate["id"] for candidate in environment.candidates("e")]


def test_nothing_of_gymnasium_is_imported_by_importing_the_module() -> None:
    code = "import sys, pytest_maatml.environments.gymnasium; sys.exit('gymnasium' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_gymnasium_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'pytest-maatml\[gymnasium\]'"):
        GymnasiumEnvironment()


def test_it_keeps_the_protocol_and_tells_the_version_of_gymnasium() -> None:
    environment = GymnasiumEnvironment()
    assert isinstance(environment, Environment)
    hello = environment.hello()
    assert (hello.name, hello.version) == ("gymnasium", gymnasium.__version__)
    assert hello.capabilities == ("tasks",)


def test_an_observation_that_is_no_dict_stands_under_observation() -> None:
    assert hosting().reset("e", task(), {}) == {"observation": 0}


def test_a_dict_observation_is_the_observation() -> None:
    environment = hosting(observe=lambda steps: {"at": np.int64(steps)})
    assert environment.reset("e", task(), {}) == {"at": 0}


def test_what_is_recorded_stays_when_the_environment_changes_its_array_in_place() -> None:
    shared = np.zeros(1, dtype=np.float32)

    def observe(steps: int) -> Any:
        shared[0] = steps
        return shared

    record = episode_of(run(hosting(observe=observe), Fixed(), [task()])[0])
    seen = [decision["observation"]["observation"] for decision in record["decisions"]]
    assert seen == [[0.0], [1.0], [2.0]]


def test_nan_is_refused_with_its_place() -> None:
    environment = hosting(observe=lambda steps: {"speed": np.array([0.0, np.nan])})
    error = run(environment, Fixed(), [task()])[0]
    assert "observation.speed[1] is NaN" in error.message  # type: ignore[union-attr]


def test_actions_without_names_are_candidates_by_their_numbers() -> None:
    environment = started(hosting(action_space=spaces.Discrete(3, start=-1)))
    assert environment.candidates("e") == [
        {"id": "-1", "action": -1},
        {"id": "0", "action": 0},
        {"id": "1", "action": 1},
    ]


def test_an_offset_discrete_action_reaches_the_environment_as_it_is(made: list[Counter]) -> None:
    environment = started(hosting(action_space=spaces.Discrete(3, start=5)))
    environment.step("e", "7")
    assert made[0].received == [7]


def test_actions_with_an_enum_are_candidates_by_its_names(made: list[Counter]) -> None:
    environment = started(hosting(Named))
    assert ids(environment) == ["north", "south", "wait"]
    environment.step("e", "wait")
    assert made[0].received == [2]


def test_an_enum_that_does_not_cover_the_actions_is_not_used() -> None:
    assert ids(started(hosting(Named, action_space=spaces.Discrete(4)))) == ["0", "1", "2", "3"]


def test_the_action_mask_of_the_info_becomes_valid() -> None:
    mask = np.array([1, 0, 1], dtype=np.int8)
    environment = started(hosting(infos=lambda steps: {"action_mask": mask}))
    assert [candidate["valid"] for candidate in environment.candidates("e")] == [True, False, True]


def test_the_method_action_masks_becomes_valid_through_wrappers() -> None:
    environment = started(hosting(Masking, hooks={"wrappers": [Shift]}))
    assert [candidate["valid"] for candidate in environment.candidates("e")] == [True, False, True]


def test_a_mask_of_another_length_is_refused() -> None:
    environment = hosting(infos=lambda steps: {"action_mask": [1, 0]})
    with pytest.raises(RolloutEnvError, match="does not fit its 3 actions"):
        started(environment)


def test_a_masked_candidate_is_not_applied_and_leaves_the_episode_alive(
    made: list[Counter],
) -> None:
    environment = started(hosting(Masking))
    result = environment.step("e", "1")
    assert (result.applied, result.terminal, result.observation) == (
        False,
        None,
        {"observation": 0},
    )
    assert made[0].received == []
    assert environment.step("e", "0").observation == {"observation": 1}


def test_an_unknown_candidate_or_episode_is_refused_and_everything_goes_on() -> None:
    environment = started(hosting())
    with pytest.raises(RolloutEnvError, match="unknown candidate '9'"):
        environment.step("e", "9")
    with pytest.raises(RolloutEnvError, match="unknown episode 'f'"):
        environment.step("f", "0")
    assert environment.step("e", "0").applied


@pytest.mark.parametrize(("truncates", "status"), [(False, "terminated"), (True, "truncated")])
def test_terminated_and_truncated_are_kept_apart(truncates: bool, status: str) -> None:
    environment = started(hosting(truncates=truncates), success="return>=0")
    assert environment.verify("e").status == "running"
    assert [environment.step("e", "0").terminal for _ in range(3)] == [None, None, status]
    verdict = environment.verify("e")
    assert verdict.status == status
    assert verdict.detail["terminated"] is not truncates
    assert verdict.detail["truncated"] is truncates


def test_after_the_end_there_are_no_candidates_and_a_step_is_refused() -> None:
    environment = played(started(hosting()))
    assert environment.candidates("e") == []
    with pytest.raises(RolloutEnvError, match="has ended"):
        environment.step("e", "0")


def test_the_reward_of_the_verdict_is_the_return() -> None:
    environment = played(started(hosting(reward=np.float32(0.5))))
    assert environment.verify("e").reward == 1.5
    assert environment.verify("e") == environment.verify("e")


def test_an_environment_that_is_solved_at_reset_is_reported_as_such() -> None:
    always = hosting(infos=lambda steps: {"success": True}, truncates=True)
    outcome = episode_of(run(always, Fixed(), [task()])[0])["outcome"]
    assert outcome["success"] is True
    assert outcome["status"] == "solved_at_reset"
    assert outcome["detail"]["solved_at_reset"] is True


def test_an_environment_that_gets_solved_is_not_reported_as_solved_at_reset() -> None:
    later = hosting(infos=lambda steps: {"success": steps >= 2})
    outcome = episode_of(run(later, Fixed(), [task()])[0])["outcome"]
    assert (outcome["success"], outcome["status"]) == (True, "terminated")
    assert outcome["detail"]["solved_at_reset"] is False


def test_an_environment_that_was_solved_at_reset_and_is_no_more_is_a_failure() -> None:
    spoilt = hosting(infos=lambda steps: {"success": steps == 0})
    outcome = episode_of(run(spoilt, Fixed(), [task()])[0])["outcome"]
    assert (outcome["success"], outcome["status"]) == (False, "terminated")


def test_a_success_function_overrules_all_else() -> None:
    environment = hosting(
        infos=lambda steps: {"success": False}, hooks={"success": lambda state: state.steps == 3}
    )
    verdict = played(started(environment)).verify("e")
    assert (verdict.success, verdict.detail["judged_by"]) == (True, "success=")


def test_an_episode_that_nobody_judges_is_an_error_that_says_so() -> None:
    error = run(hosting(), Fixed(), [task(success=None)])[0]
    assert "nothing says whether an episode of 'counter' is a success" in error.message  # type: ignore[union-attr]
    assert "reward>0 at termination" in error.message  # type: ignore[union-attr]


def test_options_of_the_reset_join_those_of_the_task_and_go_before_them(
    made: list[Counter],
) -> None:
    environment = hosting()
    environment.reset("e", task(options={"a": 1, "b": 1}), {"b": 2})
    assert made[0].reset_options == {"a": 1, "b": 2}
    environment.reset("e", task(), {})
    assert made[0].reset_options is None


def test_the_option_max_episode_steps_replaces_the_limit() -> None:
    environment = GymnasiumEnvironment()
    for limit, options in ((100, {}), (7, {"max_episode_steps": 7})):
        environment.reset("e", task(env="MountainCar-v0"), options or {"max_episode_steps": 100})
        played(environment)
        assert environment.verify("e").detail["steps"] == limit


def test_make_arguments_of_a_task_pass_through() -> None:
    environment = GymnasiumEnvironment()
    environment.reset("e", task(env="FrozenLake-v1", make={"map_name": "8x8"}), {})
    assert environment._plays["e"].state.env.observation_space.n == 64


@pytest.mark.parametrize(
    ("wrapper", "seen"),
    [
        ("tests.environments.gymnasium_worlds:Shift", 10),
        ({"wrapper": "tests.environments.gymnasium_worlds:Shift", "kwargs": {"by": 3}}, 3),
    ],
)
def test_wrappers_of_a_task_pass_through(wrapper: Any, seen: int) -> None:
    assert hosting().reset("e", task(wrappers=[wrapper]), {}) == {"observation": seen}


@pytest.mark.parametrize(
    ("wrapper", "message"),
    [("no.such:Wrapper", "'no.such:Wrapper' cannot be imported"), (7, "must be MODULE:ATTR")],
)
def test_a_wrapper_that_is_not_there_is_refused(wrapper: Any, message: str) -> None:
    with pytest.raises(RolloutEnvError, match=message):
        started(hosting(), wrappers=[wrapper])


def test_one_instance_serves_one_episode_after_another(made: list[Counter]) -> None:
    run(hosting(), Fixed(), [task(id=str(number)) for number in range(20)])
    assert len(made) == 1


def test_each_episode_in_flight_has_an_instance_of_its_own(made: list[Counter]) -> None:
    results = run(hosting(), Fixed(), [task(id=str(n)) for n in range(20)], concurrency=4)
    assert len(made) == 4
    assert {episode_of(result)["outcome"]["reward"] for result in results} == {3.0}


def test_without_reuse_each_episode_has_a_new_instance(made: list[Counter]) -> None:
    run(hosting(hooks={"reuse": False}), Fixed(), [task(id=str(number)) for number in range(5)])
    assert len(made) == 5
    assert all(instance.closed for instance in made)


def test_other_make_arguments_are_another_instance(made: list[Counter]) -> None:
    run(hosting(), Fixed(), [task(make={"length": length}) for length in (2, 4, 2, 4)])
    assert [instance.length for instance in made] == [2, 4]


def test_an_instance_that_raised_is_not_used_again(made: list[Counter]) -> None:
    results = run(hosting(Brittle), Fixed(), [task(id=str(number)) for number in range(3)])
    assert "ZeroDivisionError: the wheel came off" in results[0].message  # type: ignore[union-attr]
    assert len(made) == 3
    assert all(instance.closed for instance in made)


def test_closing_twice_is_harmless() -> None:
    environment = started(hosting())
    environment.close("e")
    environment.close("e")
    with pytest.raises(RolloutEnvError, match="unknown episode"):
        environment.candidates("e")


@pytest.mark.parametrize("seed", [None, -1, True, "7", 1.0])
def test_a_task_without_a_seed_is_refused(seed: Any) -> None:
    with pytest.raises(RolloutEnvError, match="must have a seed"):
        started(hosting(), seed=seed)


@pytest.mark.parametrize("env_id", REGISTERED)
def test_the_same_task_starts_in_the_same_state_whoever_ran_before(env_id: str) -> None:
    environment = GymnasiumEnvironment()
    one, other = environment.tasks({"families": {env_id: 2}, "seed": 3})
    first = environment.reset("a", one, {}), environment.candidates("a")
    environment.step("a", environment.candidates("a")[0]["id"])
    environment.close("a")
    environment.reset("b", other, {})
    environment.close("b")
    assert (environment.reset("c", one, {}), environment.candidates("c")) == first
    fresh = GymnasiumEnvironment()
    assert (fresh.reset("c", one, {}), fresh.candidates("c")) == first
    observation, _ = gymnasium.make(env_id).reset(seed=one["seed"])
    assert np.array_equal(first[0]["observation"], observation)


def test_an_environment_that_samples_its_own_actions_starts_alike_too() -> None:
    class Sampling(Counter):
        def reset(self, **kwargs: Any) -> Any:
            super().reset(**kwargs)
            return [int(self.action_space.sample()) for _ in range(5)], {}

    environment = hosting(Sampling, action_space=spaces.Discrete(100))
    assert environment.reset("a", task(), {}) == environment.reset("b", task(), {})


def test_continuous_actions_are_refused_with_how_to_supply_candidates() -> None:
    with pytest.raises(RolloutEnvError, match=r"Box.*GymnasiumEnvironment\(candidates=\.\.\.\)"):
        GymnasiumEnvironment().tasks({"families": {"Pendulum-v1": 1}})


@pytest.mark.parametrize("space", [spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(3)])
def test_actions_of_several_parts_are_refused_with_how_to_supply_candidates(space: Any) -> None:
    with pytest.raises(RolloutEnvError, match=r"candidates="):
        started(hosting(action_space=space))


def test_a_candidates_function_makes_a_continuous_environment_playable() -> None:
    def torques(state: EpisodeState) -> dict[str, Any]:
        return {"left": np.array([-2.0], dtype=np.float32), "none": [0.0], "right": [2.0]}

    environment = GymnasiumEnvironment(candidates=torques, success="return>=-2000")
    tasks = environment.tasks({"families": {"Pendulum-v1": 1}})
    record = episode_of(run(environment, Fixed(), tasks)[0])
    assert record["decisions"][0]["candidates"][0] == {"id": "left", "action": [-2.0]}
    assert len(record["decisions"]) == 200

    plain = gymnasium.make("Pendulum-v1")
    plain.reset(seed=tasks[0]["seed"])
    left = np.array([-2.0], dtype=np.float32)
    returned = 0.0
    for _ in range(200):  # sum() rounds less from Python 3.12 on
        returned += float(plain.step(left)[1])
    assert record["outcome"]["reward"] == returned


def test_candidates_that_are_no_mapping_are_refused() -> None:
    with pytest.raises(RolloutEnvError, match="must return the actions by their ids"):
        started(hosting(hooks={"candidates": lambda state: ["left"]}))


def test_an_observation_function_replaces_the_observation() -> None:
    hooks = {"observation": lambda state: {"taken": state.steps, "raw": state.observation}}
    environment = started(hosting(hooks=hooks))
    assert environment.step("e", "0").observation == {"taken": 1, "raw": 1}


def test_a_teacher_gives_the_capability_and_the_labels() -> None:
    environment = hosting(hooks={"teacher": lambda state: Labels((str(state.steps % 3),))})
    assert environment.hello().capabilities == ("label", "tasks")
    record = episode_of(run(environment, Fixed(), [task()], label=True)[0])
    assert [decision["teacher_valid"] for decision in record["decisions"]] == [["0"], ["1"], ["2"]]


def test_without_a_teacher_a_label_is_refused() -> None:
    with pytest.raises(RolloutEnvError, match="has no teacher"):
        started(hosting()).label("e")


def test_a_state_after_the_end_has_no_label() -> None:
    environment = played(started(hosting(hooks={"teacher": lambda state: Labels(("0",))})))
    assert environment.label("e") == Labels(None, reason="the episode is over")


def test_a_task_that_names_no_environment_is_refused() -> None:
    with pytest.raises(RolloutEnvError, match="task 't' must name an environment id"):
        hosting().reset("e", {"id": "t", "seed": 1}, {})
