"""A model folder with a scripted policy, made anew for each test."""

from __future__ import annotations

import importlib
import json
import pkgutil
from typing import TYPE_CHECKING, Any

# pytester forgets the modules that a run in this process imported first; those that hold what
# plugins register must be the same ones for all of them.
import maatml.registry  # noqa: F401
import pytest

import pytest_maatml
from pytest_maatml import registry

if TYPE_CHECKING:
    from pathlib import Path

for _found in pkgutil.walk_packages(pytest_maatml.__path__, "pytest_maatml."):
    if not _found.name.endswith(("__main__", ".guard")):
        importlib.import_module(_found.name)

MODEL = """\
name: walker
model_id: walker
architecture: scripted_walker
version: 1.2.3
plugins: [./walker_plugin.py]
"""

#: Walks to the target and finishes; where the walk is longer than `reach`, it stops short.
PLUGIN = """\
from pytest_maatml.registry import register_predictor

@register_predictor("scripted_walker")
class Walker:
    reach = 100

    def setup(self, checkpoint_dir, *, model_def, device):
        self.reach = model_def.training.get("reach", self.reach)

    def score(self, observation, candidates):
        gap = observation["target"] - observation["position"]
        wanted = "finish" if gap == 0 or observation["steps"] >= self.reach else (
            "right" if gap > 0 else "left"
        )
        return [float(candidate["id"] == wanted) for candidate in candidates]
"""


class ModelFolder:
    """A model folder on disk, and what its runs leave in it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, name: str, text: str) -> Path:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def reach(self, steps: int) -> ModelFolder:
        """Let the policy stop after so many steps, so that long walks fail."""
        self.write("model.yml", MODEL + f"training: {{reach: {steps}}}\n")
        return self

    def suite(self, *lines: str) -> ModelFolder:
        """Declare one suite, in YAML flow lines."""
        text = MODEL + "extensions:\n  pytest_maatml:\n    suites:\n"
        self.write("model.yml", text + "".join(f"      {line}\n" for line in lines))
        return self

    def output(self, run: str = "rollout-r0") -> Path:
        return self.path / "output" / "episodes" / run

    def episodes(self, run: str = "rollout-r0") -> list[dict[str, Any]]:
        return _lines(self.output(run) / "episodes.jsonl")

    def errors(self, run: str = "rollout-r0") -> list[dict[str, Any]]:
        return _lines(self.output(run) / "errors.jsonl")

    def summary(self, run: str = "rollout-r0") -> dict[str, Any]:
        text = (self.output(run) / "episodes.summary.json").read_text(encoding="utf-8")
        summary: dict[str, Any] = json.loads(text)
        return summary


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def walker(pytester: pytest.Pytester) -> ModelFolder:
    """The folder `walker` below the place where pytest starts."""
    folder = ModelFolder(pytester.path / "walker")
    folder.write("model.yml", MODEL)
    folder.write("walker_plugin.py", PLUGIN)
    return folder


@pytest.fixture(autouse=True)
def _own_registrations(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a run in this process registers is gone with its test."""
    for kind, known in registry._registered.items():
        monkeypatch.setitem(registry._registered, kind, dict(known))
