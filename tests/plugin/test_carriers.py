"""The same bytes whatever carries the requests, and however many are under way."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .conftest import ModelFolder

MODEL = ("--maatml-model=walker", '--maatml-tasks={"count": 30, "seed": 4}')
OURS = f"{sys.executable} -m pytest_maatml serve line_world"
PEER = f"""{sys.executable} -c "from maatml.rollout import serve
from maatml.rollout.example import LineWorld
serve(LineWorld())" """


@pytest.mark.parametrize("label", [[], ["--label", "--teacher-mix=0.3"]])
def test_equal_bytes_on_every_path(
    pytester: pytest.Pytester, walker: ModelFolder, label: list[str]
) -> None:
    walker.reach(7)
    file = walker.output("dagger-r0" if label else "rollout-r0") / "episodes.jsonl"
    expected = b""
    for carrier in (
        ["--maatml-env=line_world"],
        ["--maatml-env=line_world", "--maatml-concurrency=7"],
        ["--maatml-env=line_world", "-n2"],
        ["--maatml-env=line_world", "--maatml-isolate"],
        ["--maatml-env=line_world", "--maatml-isolate", "--maatml-env-processes=3"],
        [f"--maatml-env-command={OURS}"],
        [f"--maatml-env-command={OURS}", "--maatml-concurrency=1"],
        [f"--maatml-env-command={PEER}"],
        [f"--maatml-env-command={PEER}", "--maatml-concurrency=64"],
    ):
        pytester.runpytest(*MODEL, *carrier, *label)
        found = file.read_bytes()
        file.unlink()
        expected = expected or found
        assert found == expected, carrier
    assert len(expected.splitlines()) == 30


def test_an_environment_of_a_conftest_cannot_be_isolated_and_the_message_says_how(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    pytester.makeconftest(
        "from pytest_maatml.environments.line_world import LineWorld\n"
        "from pytest_maatml.registry import register_environment\n"
        "register_environment('mine')(LineWorld)\n"
    )
    walker.write("model.yml", (walker.path / "model.yml").read_text().replace("[./w", "[w"))
    walker.write("model.yml", "name: w\nmodel_id: w\narchitecture: scripted_walker\n")
    result = pytester.runpytest("--maatml-policy=p:P", "--maatml-env=mine", "--maatml-isolate")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    pytester.makepyfile(p="class P:\n    def score(self, o, c): return [0.0] * len(c)\n")
    result = pytester.runpytest("--maatml-policy=p:P", "--maatml-env=mine", "--maatml-isolate")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*a child process cannot import: move it to a module*"])


def test_an_environment_of_the_model_folder_can_be_isolated(
    pytester: pytest.Pytester, walker: ModelFolder
) -> None:
    walker.write(
        "walker_plugin.py",
        (walker.path / "walker_plugin.py").read_text()
        + "\nfrom pytest_maatml.environments.line_world import LineWorld\n"
        "from pytest_maatml.registry import register_environment\n"
        "register_environment('of_the_folder')(LineWorld)\n",
    )
    result = pytester.runpytest(*MODEL, "--maatml-env=of_the_folder", "--maatml-isolate")
    result.assert_outcomes(passed=2)
