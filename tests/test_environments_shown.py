"""Real environments through the plugin: the same bytes however they are carried."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[1] / "example_project"

#: As issue and documentation have it, for a user to paste.
PASTED = """
pytest --maatml-policy=my_policies:greedy --maatml-env=gymnasium \
       --maatml-tasks='{"families": {"Taxi-v4": 50, "FrozenLake-v1": 50}, "seed": 1}'
"""
GREEDY = """
def greedy():
    return Greedy()

class Greedy:
    def score(self, observation, candidates):
        state = observation["observation"]
        return [float(state * (7 + i) % 31 % 5) for i in range(len(candidates))]
"""


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The example's modules, as its user has them."""
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLE), prepend=":")


def test_the_command_works_as_pasted(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(my_policies=GREEDY)
    _, *arguments = shlex.split(PASTED)
    result = pytester.runpytest_subprocess(*arguments)
    assert result.ret in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    result.stdout.fnmatch_lines(["collected 2 items", "maatml: *gymnasium*100 tasks, 2 families"])
    folder = pytester.path / "output" / "episodes" / "rollout-r0"
    summary = json.loads((folder / "episodes.summary.json").read_text())
    assert (summary["episodes"], summary["errors"], summary["complete"]) == (100, 0, True)
    assert {name: f["episodes"] for name, f in summary["families"].items()} == {
        "Taxi-v4": 50,
        "FrozenLake-v1": 50,
    }


@pytest.mark.parametrize(
    "run",
    [
        (
            "--maatml-env=gymnasium",
            '--maatml-tasks={"families": {"Taxi-v4": 40}, "seed": 1}',
            "--maatml-policy=my_policies:greedy",
            "--maatml-option=max_episode_steps=40",
        ),
        (
            "--maatml-env=babyai:babyai",
            '--maatml-tasks={"families": ["GoToLocal"], "count": 40, "seed": 1}',
            "--maatml-policy=babyai_policies:GoTo",
            "--label",
            "--teacher-mix=0.3",
        ),
    ],
    ids=["taxi", "babyai"],
)
def test_one_and_32_in_flight_give_equal_bytes_in_process_and_isolated(
    pytester: pytest.Pytester, run: tuple[str, ...]
) -> None:
    pytester.makepyfile(my_policies=GREEDY)
    found: list[bytes] = []
    for more in (
        ("--maatml-concurrency=1",),
        ("--maatml-concurrency=32",),
        ("--maatml-isolate", "--maatml-concurrency=1"),
        ("--maatml-isolate", "--maatml-concurrency=32"),
    ):
        pytester.runpytest_subprocess(*run, *more, f"--maatml-out={len(found)}")
        found.append((pytester.path / str(len(found)) / "episodes.jsonl").read_bytes())
    assert found == [found[0]] * 4
    records = [json.loads(line) for line in found[0].splitlines()]
    assert len(records) == 40
    played = {tuple(d["chosen"] for d in record["decisions"]) for record in records}
    assert len(played) > 10
