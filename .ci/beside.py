"""Run the same rollouts alone and beside the plugins that people use most, and compare.

For an environment that has all of them; `.ci/neighbours` makes one.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

TESTS: Final = """\
import asyncio
import pytest
from hypothesis import given, strategies

class Finisher:
    def score(self, observation, candidates):
        return [float(c["id"] == "finish") for c in candidates]

@pytest.mark.maatml(policy=Finisher, env="line_world", tasks={"count": 9})
def test_walks(rollout, mocker, cov=None):
    assert rollout.success_rate == 0 or rollout.family == "near"

@pytest.mark.asyncio
async def test_async():
    await asyncio.sleep(0)

@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_anyio(anyio_backend):
    pass

@given(strategies.integers())
def test_law(number):
    assert number == number

@pytest.mark.timeout(60)
def test_timed(benchmark):
    benchmark(len, "abc")
"""
MODEL: Final = """\
name: walker
model_id: walker
architecture: scripted_walker
version: 1.0.0
plugins: [./walker_plugin.py]
extensions:
  pytest_maatml:
    suites:
      - env: line_world
        tasks: {count: 9}
"""
#: Walks four steps at most, so that the far walks fail.
POLICY: Final = """\
from pytest_maatml.registry import register_predictor

@register_predictor("scripted_walker")
class Walker:
    def score(self, observation, candidates):
        gap = observation["target"] - observation["position"]
        wanted = "right" if gap > 0 else "left"
        if gap == 0 or observation["steps"] >= 4:
            wanted = "finish"
        return [float(c["id"] == wanted) for c in candidates]
"""
#: Writes ids and outcomes as pytest itself has them, whatever reporters there are.
CONFTEST: Final = """\
import json

outcomes = {}

def pytest_runtest_logreport(report):
    if report.when == "call":
        outcomes.setdefault(report.nodeid, []).append(report.outcome)

def pytest_sessionfinish(session):
    if not hasattr(session.config, "workerinput"):
        with open("outcomes.json", "w") as file:
            json.dump(outcomes, file, sort_keys=True)
"""
INI: Final = "[pytest]\nasyncio_default_fixture_loop_scope = function\n"

#: What each neighbour is asked to do, besides being there.
WAYS: Final = {
    "randomly": ["-p", "randomly", "-p", "no:xdist"],
    "all of them": [],
    "xdist": ["-n2"],
    "cov": ["--cov=walker"],
    "timeout": ["--timeout=120"],
    "html": ["--html=report.html"],
    "json-report": ["--json-report"],
    "sugar": ["-p", "no:randomly", "--force-sugar"],
    "no sugar": ["-p", "no:sugar", "-v"],
    "xdist, cov, html, json-report": [
        *("-n2", "--cov=walker", "--html=report.html", "--json-report", "--timeout=120"),
    ],
    "importlib": ["--import-mode=importlib"],
}
WANTED: Final = {
    "pytest-xdist", "pytest-cov", "pytest-asyncio", "pytest-mock", "pytest-timeout",
    "pytest-randomly", "pytest-rerunfailures", "pytest-html", "pytest-json-report",
    "pytest-benchmark", "pytest-sugar", "hypothesis", "syrupy", "anyio", "pytest-django",
    "pytest-maatml",
}  # fmt: skip


def project(folder: Path) -> None:
    (folder / "walker").mkdir()
    (folder / "walker" / "model.yml").write_text(MODEL)
    (folder / "walker" / "walker_plugin.py").write_text(POLICY)
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_beside.py").write_text(TESTS)
    (folder / "pytest.ini").write_text(INI)


def outcomes(folder: Path, *arguments: str) -> tuple[dict[str, list[str]], bytes, str]:
    """What each item came to, the bytes of the episodes, and all that was printed."""
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    printed = ran.stdout + ran.stderr
    episodes = folder / "walker" / "output" / "episodes" / "rollout-r0" / "episodes.jsonl"
    if ran.returncode != 1 or "INTERNALERROR" in printed or not episodes.exists():
        sys.exit(f"pytest {' '.join(arguments)} ended with {ran.returncode}:\n{printed}")
    found: dict[str, list[str]] = json.loads((folder / "outcomes.json").read_text())
    kept = episodes.read_bytes()
    episodes.unlink()
    return found, kept, printed


def check(way: str, found: object, expected: object) -> None:
    if found != expected:
        sys.exit(f"{way}: {found}\nexpected: {expected}")


def main() -> None:
    there = {point.dist.name.lower() for point in entry_points(group="pytest11") if point.dist}
    check("plugins that are missing", WANTED - there, set())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        project(folder)
        plain, episodes, _ = outcomes(folder, "-p", "no:randomly", "-p", "no:sugar")
        check("items", len(plain), 8)
        check("failures", [i for i, o in plain.items() if "failed" in o],
              ["walker/model.yml::line_world::far"])  # fmt: skip
        for way, arguments in WAYS.items():
            found, kept, printed = outcomes(folder, *arguments)
            check(way, found, plain)
            check(way, kept, episodes)
            check(way, "closed-loop success" in printed, True)
            print(f"ok: {way}")
        check_reruns(folder, plain)


def check_reruns(folder: Path, plain: dict[str, list[str]]) -> None:
    again = {i: ["rerun"] * 2 * ("failed" in o) + o for i, o in plain.items()}
    for arguments in ([], ["-n2"]):
        found, _, printed = outcomes(folder, "--reruns=2", *arguments)
        check("rerunfailures", found, again)
        check("rerunfailures", "far ran 3 times (FAIL, FAIL, FAIL)" in printed, True)
        print(f"ok: rerunfailures {' '.join(arguments)}")


if __name__ == "__main__":
    main()
