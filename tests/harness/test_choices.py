"""Which rollout follows from what options and a suite say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_maatml.errors import ConfigurationError
from pytest_maatml.harness.choices import RolloutChoices
from pytest_maatml.harness.spec import Selection
from pytest_maatml.models import ModelDefinition, read_model
from pytest_maatml.suites import SuiteDefinition, suites

HERE = Path("/started/here")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The model folder whose suite the tests write."""
    return tmp_path / "walker"


def declared(folder: Path, suite: str) -> dict[str, Any]:
    """What `spec` is given for the one suite in a model.yml at `folder`."""
    folder.mkdir(exist_ok=True)
    folder.joinpath("model.yml").write_text(
        "name: walker\nmodel_id: walker\nextensions:\n  pytest_maatml:\n    suites:\n"
        f"      - {{env: line_world, {suite}}}\n"
    )
    model: ModelDefinition = read_model(folder)
    (found,) = suites(model)
    return {"base": folder, "model": model, "suite": found}


def test_a_rollout_of_which_nothing_is_said_is_as_the_design_has_it() -> None:
    spec = RolloutChoices(started_in=HERE, env="line_world").spec(base=HERE)
    assert (spec.tasks, spec.options, spec.checkpoint, spec.device) == ({}, {}, None, "auto")
    assert (spec.label, spec.teacher_mix, spec.source, spec.round) == (False, 0.0, "rollout", 0)
    assert (spec.seed, spec.max_decisions, spec.workers) == (0, 256, 1)
    assert spec.out == HERE / "output" / "episodes" / "rollout-r0"
    assert spec.gates.rates == {"default": "1"}
    assert (spec.carrier.timeout, spec.carrier.concurrency, spec.carrier.isolate) == (
        60.0,
        None,
        False,
    )


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("checkpoint", "20260101"),
        ("device", "cpu"),
        ("workers", 3),
        ("resume", True),
        ("overwrite", True),
        ("selection", Selection(tasks=("line-*",), shard=(1, 2))),
        ("policy", "policies:Walker"),
    ],
)
def test_what_only_options_say_is_as_they_say_it(key: str, said: Any) -> None:
    assert getattr(RolloutChoices(started_in=HERE, **{key: said}).spec(base=HERE), key) == said


@pytest.mark.parametrize(
    ("choices", "leaf"),
    [
        ({}, "rollout-r0"),
        ({"label": True}, "dagger-r0"),
        ({"label": True, "source": "nightly", "round": 3}, "nightly-r3"),
    ],
)
def test_a_model_folder_keeps_its_episodes_by_source_and_round(
    folder: Path, choices: dict[str, Any], leaf: str
) -> None:
    given = declared(folder, "")
    spec = RolloutChoices(started_in=HERE, **choices).spec(base=HERE, model=given["model"])
    assert spec.out == folder / "output" / "episodes" / leaf
    assert f"{spec.source}-r{spec.round}" == leaf


@pytest.mark.parametrize(
    ("key", "suite", "said", "option"),
    [
        ("seed", "seed: 5", 5, 0),
        ("round", "round: 5", 5, 0),
        ("max_decisions", "max_decisions: 5", 5, 9),
        ("source", "source: ours", "ours", "theirs"),
        ("label", "label: true", True, False),
        ("tasks", "tasks: {count: 5}", {"count": 5}, {}),
        ("tasks", "tasks: [{id: a}]", [{"id": "a"}], {"count": 2}),
        ("options", "options: {extra_steps: 5}", {"extra_steps": 5}, {}),
    ],
)
def test_an_option_comes_before_the_suite_and_the_suite_before_the_default(
    folder: Path, key: str, suite: str, said: Any, option: Any
) -> None:
    given = declared(folder, suite)
    assert getattr(RolloutChoices(started_in=HERE).spec(**given), key) == said
    choices = RolloutChoices(started_in=HERE, **{key: option})
    assert getattr(choices.spec(**given), key) == option


@pytest.mark.parametrize(
    ("key", "option", "suite", "name", "said"),
    [
        ("timeout", 0.0, "timeout: 5", "timeout", 5),
        ("concurrency", 2, "concurrency: 5", "concurrency", 5),
        ("env_processes", 2, "env_processes: 5", "processes", 5),
        ("env_restarts", 0, "env_restarts: 5", "restarts", 5),
        ("isolate", False, "isolate: true", "isolate", True),
    ],
)
def test_how_the_environment_is_reached_follows_the_same_order(
    folder: Path, key: str, option: Any, suite: str, name: str, said: Any
) -> None:
    given = declared(folder, suite)
    assert getattr(RolloutChoices(started_in=HERE).spec(**given).carrier, name) == said
    choices = RolloutChoices(started_in=HERE, **{key: option})
    assert getattr(choices.spec(**given).carrier, name) == option


@pytest.mark.parametrize(
    ("key", "option", "suite", "name", "said"),
    [
        ("gates", {"far": "0.2"}, "min_success: 0.9", "rates", {"default": "0.9"}),
        ("gate", "guard", "gate: certify", "kind", "certify"),
        ("alpha", 0.1, "alpha: 0.01", "alpha", 0.01),
        ("stop", "exact", "stop: risk", "stopping", "risk"),
        ("stop", "exact", "stop: off", "stopping", "off"),
        ("max_errors", 0, "max_errors: 2", "max_errors", 2),
    ],
)
def test_gates_follow_the_same_order(
    folder: Path, key: str, option: Any, suite: str, name: str, said: Any
) -> None:
    given = declared(folder, suite)
    assert getattr(RolloutChoices(started_in=HERE).spec(**given).gates, name) == said
    choices = RolloutChoices(started_in=HERE, **{key: option})
    assert getattr(choices.spec(**given).gates, name) == option


def test_files_that_a_suite_names_are_in_the_model_folder(folder: Path) -> None:
    given = declared(folder, "tasks: '@t.json', baseline: kept, margin: 0.02")
    folder.joinpath("t.json").write_text('{"count": 7}')
    spec = RolloutChoices(started_in=HERE).spec(**given)
    assert spec.tasks == {"count": 7}
    assert (spec.gates.baseline, spec.gates.margin) == (folder / "kept", "0.02")


def test_a_schedule_of_the_options_is_taken_at_the_round_of_the_suite(folder: Path) -> None:
    given = declared(folder, "label: true, round: 1")
    spec = RolloutChoices(started_in=HERE, teacher_mix="linear:1:0:4").spec(**given)
    assert spec.teacher_mix == 0.75


@pytest.mark.parametrize(
    ("choices", "suite", "rates"),
    [
        ({"collects": True, "label": True}, "min_success: 0.9", {}),
        ({"collects": True}, "min_success: 0.9", {}),
        ({"collects": True, "gates": {"default": "0.5"}}, "", {"default": "0.5"}),
        ({}, "label: true", {}),
        ({}, "label: true, min_success: 0.9", {"default": "0.9"}),
        ({}, "baseline: kept", {}),
        ({}, "", {"default": "1"}),
    ],
)
def test_collecting_is_not_testing_unless_a_gate_is_asked_for_with_it(
    folder: Path, choices: dict[str, Any], suite: str, rates: dict[str, str]
) -> None:
    spec = RolloutChoices(started_in=HERE, **choices).spec(**declared(folder, suite))
    assert spec.gates.rates == rates


@pytest.mark.parametrize(
    ("suite", "said"),
    [
        ("seed: 1.5", "model.yml:6: seed must be int, not 1.5"),
        ("timeout: soon", "model.yml:6: timeout must be float, not 'soon'"),
        ("isolate: 1", "model.yml:6: isolate must be bool, not 1"),
        ("max_decisions: true", "model.yml:6: max_decisions must be int, not True"),
        ("tasks: '3'", "model.yml:6: tasks must be a JSON object or a list"),
        ("min_success: {far: 2}", "model.yml:6: min_success of far: a success rate lies in"),
        ("concurrency: none", "a number from 1 or auto, not 'none'"),
        ("round: -1", "^round must be at least 0, not -1"),
        ("label: true, teacher_mix: 0.5, min_success: 1", "exclude one another"),
    ],
)
def test_what_a_suite_cannot_say_is_refused(folder: Path, suite: str, said: str) -> None:
    given = declared(folder, suite)
    with pytest.raises(ConfigurationError, match=said):
        RolloutChoices(started_in=HERE).spec(**given)


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ({"env": "a", "env_command": "b"}, "--maatml-env and --maatml-env-command both say"),
        ({"teacher_mix": "0.3"}, "--teacher-mix needs --label"),
        ({"teacher_mix": "half", "label": True}, "--teacher-mix wants a share"),
        (
            {"teacher_mix": "0.3", "label": True, "gates": {"default": "1"}},
            "--maatml-min-success and a --teacher-mix above 0 exclude one another",
        ),
        ({"round": -1}, "^--maatml-round must be at least 0, not -1"),
        ({"round": -1, "teacher_mix": "0.3", "label": True}, "^--maatml-round must be at least 0"),
        ({"max_decisions": 0}, "--maatml-max-decisions must be at least 1, not 0"),
        ({"timeout": float("nan")}, "--maatml-timeout must be at least 0, not nan"),
        ({"workers": 0}, "--maatml-workers must be at least 1, not 0"),
        ({"env_processes": 0}, "--maatml-env-processes must be at least 1, not 0"),
        ({"gate": "perhaps"}, "give one of point, certify, guard"),
        ({"margin": "2"}, "from 0 to 1"),
    ],
)
def test_what_no_suite_can_mend_is_refused_by_itself(choices: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        RolloutChoices(started_in=HERE, **choices).check(needs_environment=False)


@pytest.mark.parametrize(
    "choices",
    [
        {},
        {"env": "a"},
        {"env_command": "a"},
        {"margin": "0.02"},
        {"teacher_mix": "0"},
        # The teacher's share at round 4 of this schedule is none.
        {"teacher_mix": "linear:1:0:4", "round": 4, "gates": {"default": "1"}},
        {"round": 0, "timeout": 0.0, "max_errors": 0, "env_restarts": 0},
    ],
)
def test_what_a_suite_may_complete_is_let_through(choices: dict[str, Any]) -> None:
    RolloutChoices(started_in=HERE, **choices).check(needs_environment=False)


def test_without_suites_an_environment_must_be_named() -> None:
    with pytest.raises(ConfigurationError, match=r"^give --maatml-env or --maatml-env-command"):
        RolloutChoices(started_in=HERE).check(needs_environment=True)
    RolloutChoices(started_in=HERE, env="line_world").check(needs_environment=True)
    RolloutChoices(started_in=HERE, env_command="serve").check(needs_environment=True)


def test_the_environment_of_a_suite_stands_where_the_options_name_none() -> None:
    suite = SuiteDefinition(name="smoke", env_command="serve --fast", line=3)
    spec = RolloutChoices(started_in=HERE).spec(base=HERE, suite=suite)
    assert (spec.name, spec.env, spec.env_command, spec.line) == ("smoke", None, "serve --fast", 3)
