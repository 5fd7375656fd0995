"""Where rollouts come into a pytest run: once, whatever else is collected."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import pytest

from pytest_maatml.plugin.collection import ModelFile, PolicyFile, RolloutFile
from pytest_maatml.suites import item_name

from .conftest import PLUGIN, ModelFolder

if TYPE_CHECKING:
    from pathlib import Path

SECOND_ENVIRONMENT = """
from pytest_maatml.environments.line_world import LineWorld
from pytest_maatml.registry import register_environment

register_environment("second_world")(LineWorld)
"""
RUN = ("--maatml-model=walker", "--maatml-env=line_world", '--maatml-tasks={"count": 9}')
IDS = ["walker/model.yml::line_world::far", "walker/model.yml::line_world::near"]


def collected(pytester: pytest.Pytester, *arguments: str) -> list[str]:
    result = pytester.runpytest("--collect-only", "-q", *arguments)
    return sorted(line for line in result.outlines if "::" in line)


@pytest.fixture
def project(pytester: pytest.Pytester, walker: ModelFolder) -> ModelFolder:
    """A test of the user's own beside the model folder."""
    pytester.makepyfile(test_own="def test_own(): pass")
    return walker


OWN = "test_own.py::test_own"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], [OWN, *IDS]),
        (["."], [OWN, *IDS]),
        (["test_own.py"], [OWN, *IDS]),
        (["walker"], IDS),
        (["walker/model.yml"], IDS),
        (["walker/model.yml::line_world"], IDS),
        (["walker/model.yml::line_world::near"], IDS[1:]),
        ([".", "walker/model.yml::line_world::near"], [OWN, *IDS]),
        (["-k", "near"], IDS[1:]),
        (["-m", "maatml"], IDS),
        (["-m", "not maatml"], [OWN]),
        (["-p", "no:terminal", "-k", "nothing"], []),
        (["-o", "norecursedirs=walker"], [OWN, *IDS]),
    ],
)
def test_each_family_is_collected_once(
    pytester: pytest.Pytester, project: ModelFolder, arguments: list[str], expected: list[str]
) -> None:
    found = collected(pytester, *RUN, *arguments)
    if "walker/model.yml::line_world::near" in arguments and "." in arguments:
        # pytest 9 takes the file that is named besides as part of the folder
        assert len(found) == len(set(found))
        assert set(IDS[1:]) <= set(found)
        return
    assert found == sorted(expected)


@pytest.mark.parametrize("more", [["-n2"], ["-p", "no:xdist"], ["--import-mode=importlib"]])
def test_rollouts_run_beside_other_tests(
    pytester: pytest.Pytester, project: ModelFolder, more: list[str]
) -> None:
    pytester.runpytest(*RUN, *more).assert_outcomes(passed=3)


def test_the_last_failed_family_runs_again(pytester: pytest.Pytester, project: ModelFolder) -> None:
    project.reach(4)
    first = pytester.runpytest(*RUN, "--maatml-min-success=near=0")
    first.assert_outcomes(passed=2, failed=1)
    again = pytester.runpytest(*RUN, "--maatml-min-success=near=0", "--lf", "-v")
    again.assert_outcomes(failed=1)
    again.stdout.fnmatch_lines([f"{IDS[0]} FAILED*"])


def test_a_model_folder_outside_the_rootdir_keeps_its_ids_apart(
    pytester: pytest.Pytester, project: ModelFolder, tmp_path: Path
) -> None:
    outside = tmp_path / "elsewhere"
    project.path.rename(outside)
    run = (f"--maatml-model={outside}", *RUN[1:])
    found = collected(pytester, *run)
    assert [line for line in found if line.endswith("::near")] == [
        f"{outside.as_posix()}/model.yml::line_world::near"
    ]
    pytester.runpytest(*run).assert_outcomes(passed=3)


def test_collecting_loads_no_weights_and_writes_nothing(
    pytester: pytest.Pytester, project: ModelFolder
) -> None:
    project.write("walker_plugin.py", (project.path / "walker_plugin.py").read_text().replace(
        "        self.reach", "        raise RuntimeError('loaded')\n        self.reach"
    ))  # fmt: skip
    assert collected(pytester, *RUN) == [OWN, *IDS]
    assert not (project.path / "output").exists()


def test_a_model_from_the_ini_file_joins_only_runs_that_name_no_test(
    pytester: pytest.Pytester, project: ModelFolder
) -> None:
    pytester.makeini(
        '[pytest]\nmaatml_model = walker\nmaatml_env = line_world\nmaatml_tasks = {"count": 9}\n'
    )
    assert collected(pytester) == [OWN, *IDS]
    assert collected(pytester, "test_own.py") == [OWN]


def test_native_toml_tables_set_the_options(
    pytester: pytest.Pytester, project: ModelFolder
) -> None:
    pytester.makepyprojecttoml(
        "[tool.pytest]\nmaatml_model = 'walker'\nmaatml_env = 'line_world'\n"
        "maatml_tasks = '{\"count\": 9}'\nmaatml_max_decisions = 3\nmaatml_label = true\n"
        "maatml_timeout = 5.0\nmaatml_min_success = ['0', 'far=0']\n"
    )
    result = pytester.runpytest("-m", "maatml")
    result.assert_outcomes(passed=2, deselected=1)
    assert project.summary("dagger-r0")["truncated"] > 0


def test_a_suite_in_the_collected_paths_runs_without_any_option(
    pytester: pytest.Pytester, project: ModelFolder
) -> None:
    project.suite("- env: line_world", "  tasks: {count: 9}")
    assert collected(pytester) == [OWN, *IDS]
    pytester.runpytest("walker").assert_outcomes(passed=2)


def test_a_model_without_a_suite_is_never_collected_by_itself(
    pytester: pytest.Pytester, project: ModelFolder
) -> None:
    assert collected(pytester) == [OWN]


def test_a_named_suite_names_its_items_and_writes_one_folder_below(
    pytester: pytest.Pytester, project: ModelFolder
) -> None:
    project.suite("- name: smoke", "  env: line_world", "  tasks: {count: 9}")
    assert collected(pytester, "--maatml-model=walker") == [
        OWN,
        "walker/model.yml::smoke::far",
        "walker/model.yml::smoke::near",
    ]
    pytester.runpytest("--maatml-model=walker")
    assert len(project.episodes("rollout-r0/smoke")) == 9


def test_suites_without_a_name_write_one_folder_below_where_there_are_several(
    pytester: pytest.Pytester, project: ModelFolder
) -> None:
    plugin = project.path / "walker_plugin.py"
    plugin.write_text(plugin.read_text() + SECOND_ENVIRONMENT)
    project.suite(
        "- {env: line_world, tasks: {count: 9}}",
        "- {env: second_world, tasks: {count: 12, seed: 2}}",
    )
    pytester.runpytest("walker", "--maatml-min-success=0").assert_outcomes(passed=4)
    assert len(project.episodes("rollout-r0/line_world")) == 9
    assert len(project.episodes("rollout-r0/second_world")) == 12


def test_two_suites_whose_items_would_be_called_the_same_are_refused(
    pytester: pytest.Pytester, project: ModelFolder
) -> None:
    place = "pytest_maatml.environments.line_world"
    project.suite(f"- {{env: '{place}:LineWorld'}}", "- {env: line_world}")
    result = pytester.runpytest("walker")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*model.yml:10: another suite is called 'line_world'*`name`*"])


def test_two_rollouts_that_would_share_a_folder_are_told_so(
    pytester: pytest.Pytester, project: ModelFolder
) -> None:
    for model in ("walker", "other"):
        ModelFolder(pytester.path / model).write("walker_plugin.py", PLUGIN)
        ModelFolder(pytester.path / model).suite("- name: smoke", "  env: line_world")
    suite = (pytester.path / "other" / "model.yml").read_text()
    (pytester.path / "other" / "model.yml").write_text(f"{suite}        tasks: {{count: 2}}\n")
    result = pytester.runpytest("other", "walker", "--maatml-out=here", "--maatml-min-success=0")
    result.stdout.fnmatch_lines(["*another rollout of this session writes to *planned: *"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert len((pytester.path / "here" / "smoke" / "episodes.jsonl").read_text().splitlines()) == 2


def test_what_the_command_line_does_not_say_comes_from_the_suite_of_that_environment(
    pytester: pytest.Pytester, project: ModelFolder
) -> None:
    project.suite(
        "- env: line_world", "  tasks: {count: 9}", "  options: {extra_steps: 2}", "  seed: 5"
    )
    pytester.runpytest(*RUN[:2], '--maatml-tasks={"count": 4}')
    identity = project.summary()["identity"]
    assert (identity["planned"], identity["options"], identity["seed"]) == (
        4,
        {"extra_steps": 2},
        5,
    )


def test_collecting_labels_leaves_the_gates_of_the_suite_alone(
    pytester: pytest.Pytester, project: ModelFolder
) -> None:
    project.reach(2)
    text = (project.path / "model.yml").read_text()
    project.suite("- env: line_world", "  tasks: {count: 9}", "  min_success: 1")
    project.write("model.yml", (project.path / "model.yml").read_text() + "training: {reach: 2}\n")
    assert "reach" in text
    pytester.runpytest("--maatml-model=walker").assert_outcomes(passed=1, failed=2)
    labelled = pytester.runpytest("--maatml-model=walker", "--label", "--teacher-mix=0.5")
    labelled.assert_outcomes(passed=3)


def test_a_policy_needs_no_model_folder(pytester: pytest.Pytester, project: ModelFolder) -> None:
    pytester.makepyfile(
        my_policies="""
        class Greedy:
            def score(self, observation, candidates):
                gap = observation["target"] - observation["position"]
                wanted = "finish" if gap == 0 else ("right" if gap > 0 else "left")
                return [float(c["id"] == wanted) for c in candidates]
        """
    )
    for policy in ("my_policies:Greedy", "my_policies.py:Greedy"):
        result = pytester.runpytest(f"--maatml-policy={policy}", *RUN[1:], "-v", "-m", "maatml")
        result.assert_outcomes(passed=2, deselected=1)
        result.stdout.fnmatch_lines(["my_policies.py::line_world::far PASSED*"])
        out = pytester.path / "output" / "episodes" / "rollout-r0" / "episodes.jsonl"
        assert f'"policy_version":"{policy}"' in out.read_text()
    again = pytester.runpytest(
        "--maatml-policy=my_policies:Greedy", *RUN[1:], "my_policies.py::line_world::near"
    )
    again.assert_outcomes(passed=1)


def test_no_item_run_fails_the_session(pytester: pytest.Pytester, project: ModelFolder) -> None:
    result = pytester.runpytest(*RUN, "--deselect", IDS[0], "--deselect", IDS[1])
    assert result.ret == pytest.ExitCode.OK


@pytest.mark.parametrize(
    ("family", "name"),
    [("far", "far"), ("Taxi-v4", "Taxi-v4"), ("a b", "a_u20_b"), ("größe", "gr_uf6__udf_e")],
)
def test_a_family_name_is_made_safe(family: str, name: str) -> None:
    assert item_name(family) == name


def test_families_are_told_apart_whatever_their_names() -> None:
    names = ["a b", "a_u20_b", "a_b", "a::b", "a[b]", "_u_", "a/b", "A b", "_u5f_", "_"]
    assert len({item_name(name) for name in names}) == len(names)


def test_a_short_name_that_another_plugin_took_stays_theirs(
    pytester: pytest.Pytester, project: ModelFolder
) -> None:
    pytester.makeconftest(
        "def pytest_addoption(parser):\n    parser.addoption('--label', dest='theirs')\n"
    )
    result = pytester.runpytest(*RUN, "--label=x", "--maatml-label", "-m", "maatml")
    result.assert_outcomes(passed=2, deselected=1)
    assert project.summary("dagger-r0")["labelled_decisions"] > 0


def test_a_space_that_moves_the_rootdir_is_pointed_out(
    pytester: pytest.Pytester, project: ModelFolder
) -> None:
    project.write("pytest.ini", "[pytest]\n")
    spaced = pytester.runpytest("--maatml-model", "walker", *RUN[1:])
    spaced.stdout.fnmatch_lines(["*write --maatml-model=DIR"])
    plain = pytester.runpytest(*RUN)
    assert "write --maatml-model=DIR" not in plain.stdout.str()


def test_what_a_file_asks_for_is_for_each_kind_of_file_to_say() -> None:
    assert inspect.isabstract(RolloutFile)
    assert not inspect.isabstract(ModelFile)
    assert not inspect.isabstract(PolicyFile)
