"""The installed maatml and we run the same rollouts, in either direction."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import pytest_maatml.rollout as ours
from pytest_maatml.environments.line_world import LineWorld

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.peer

peer: Any = importlib.import_module("maatml.rollout")
peer_example: Any = importlib.import_module("maatml.rollout.example")

PEERS_NAMES = sorted(set(peer.__all__) - {"run_episode"})
CONFIGURATIONS = {
    "plain": {},
    "short": {"max_decisions": 3},
    "options": {
        "options": {"extra_steps": 3},
        "source": "eval",
        "round": 4,
        "policy_version": "v1",
    },
    "labelled": {"label": True},
    "teacher": {"label": True, "teacher_mix": 1.0, "source": "dagger"},
    "unstopped": {"label": True, "stop_unlabelled": False},
}


class Walker:
    """Right most of the time; sometimes it would jump, sometimes it finishes too soon."""

    def score(self, observation: dict[str, Any], candidates: Any) -> list[float]:
        gap = observation["target"] - observation["position"]
        mood = (observation["steps"] * 13 + observation["target"] * 5 + gap) % 11 / 4
        wanted = "finish" if gap == 0 else "right" if gap > 0 else "left"
        scores = {"finish": 0.5 * mood, "jump": mood, "left": 0.1, "right": 0.1}
        return [scores[c["id"]] + 1.0 * (c["id"] == wanted) for c in candidates]


class Forgetful(LineWorld):
    """A teacher that has no label two steps from the target."""

    labels: Any = ours.Labels

    def label(self, episode: str) -> Any:
        walk = self._walk(episode)
        if abs(walk.target - walk.position) == 2:
            return self.labels(valid_ids=None, reason="too_near")
        return super().label(episode)


def tasks() -> list[dict[str, Any]]:
    return LineWorld().tasks({"count": 200, "seed": 17, "slack": 2, "span": 6})


def episodes(side: Any, environment: Any, **config: Any) -> list[dict[str, Any]]:
    return list(side.rollout(environment, Walker(), tasks(), config=side.RolloutConfig(**config)))


def compared(mine: list[dict[str, Any]], peers: list[dict[str, Any]]) -> int:
    """How many decisions are equal in every field that the peer writes."""
    count = 0
    for own, theirs in zip(mine, peers, strict=True):
        assert {k: v for k, v in own.items() if k != "decisions"} == {
            k: v for k, v in theirs.items() if k != "decisions"
        }
        for decision, expected in zip(own["decisions"], theirs["decisions"], strict=True):
            assert decision.keys() - expected.keys() == {"policy_choice"}
            assert decision["logp"] == pytest.approx(expected["logp"], rel=0, abs=1e-12)
            for field in expected.keys() - {"logp"}:
                assert decision[field] == expected[field], field
            count += 1
    return count


@pytest.mark.parametrize("config", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_every_field_that_the_peer_writes_is_the_same(config: dict[str, Any]) -> None:
    mine = episodes(ours, LineWorld(), **config)
    theirs = episodes(peer, peer_example.LineWorld(), **config)
    assert compared(mine, theirs) > 200


def test_the_200_tasks_meet_masked_first_choices_failures_and_successes() -> None:
    mine = episodes(ours, LineWorld())
    assert {e["outcome"]["success"] for e in mine} == {True, False}
    assert {d["top_valid"] for e in mine for d in e["decisions"]} == {True, False}
    assert {e["task_family"] for e in mine} == {"near", "far"}
    short = episodes(ours, LineWorld(), max_decisions=3)
    assert {e["outcome"]["truncated"] for e in short} == {None, "max_decisions"}


@pytest.mark.parametrize("stop", [True, False])
def test_states_without_label_are_treated_as_the_peer_treats_them(stop: bool) -> None:
    mine = episodes(ours, Forgetful(), label=True, stop_unlabelled=stop)
    theirs = episodes(peer, Forgetful(), label=True, stop_unlabelled=stop)
    assert compared(mine, theirs) > 50
    cut = {e["outcome"]["truncated"] for e in mine}
    assert ("unlabelled:too_near" in cut) is stop


@pytest.mark.parametrize("config", [{}, {"label": True}, {"label": True, "teacher_mix": 1.0}])
def test_each_environment_runs_in_the_others_driver(config: dict[str, Any]) -> None:
    ours_here = episodes(ours, LineWorld(), **config)
    assert episodes(ours, peer_example.LineWorld(), **config) == ours_here
    assert compared(ours_here, episodes(peer, LineWorld(), **config)) > 200


def test_each_stdio_environment_runs_the_others_server() -> None:
    config: dict[str, Any] = {"label": True}
    here = episodes(ours, LineWorld(), **config)
    program = "from {0} import serve; from {1} import LineWorld; serve(LineWorld())"
    mine = program.format("pytest_maatml.rollout", "pytest_maatml.environments.line_world")
    theirs = program.format("maatml.rollout", "maatml.rollout.example")
    with ours.StdioEnvironment([sys.executable, "-c", theirs]) as environment:
        assert episodes(ours, environment, **config) == here
    with peer.StdioEnvironment([sys.executable, "-c", mine]) as environment:
        assert compared(here, episodes(peer, environment, **config)) > 200


@pytest.mark.parametrize("config", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_each_summarize_reads_the_others_episodes(config: dict[str, Any]) -> None:
    mine = episodes(ours, LineWorld(), **config)
    theirs = episodes(peer, peer_example.LineWorld(), **config)
    of_mine, of_theirs = ours.summarize(mine), ours.summarize(theirs)
    peers_of_mine, peers_of_theirs = peer.summarize(mine), peer.summarize(theirs)
    if config.get("teacher_mix"):
        for summary in (of_mine, of_theirs, peers_of_mine, peers_of_theirs):
            summary.pop("policy_agrees_with_teacher")
    for summary, expected in ((of_mine, peers_of_mine), (of_theirs, peers_of_theirs)):
        assert flat(summary) == pytest.approx(flat(expected), abs=1e-12)


def flat(value: Any, path: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        return {
            k: v for name, part in value.items() for k, v in flat(part, f"{path}/{name}").items()
        }
    if isinstance(value, list):
        return flat(dict(enumerate(value)), path)
    return {path: value}


def test_where_the_teacher_acted_agreement_is_of_what_the_policy_would_have_done() -> None:
    mine = episodes(ours, LineWorld(), label=True, teacher_mix=1.0)
    decisions = [d for e in mine for d in e["decisions"]]
    agreed = sum(d["policy_choice"] in d["teacher_valid"] for d in decisions)
    assert 0 < agreed < len(decisions)
    assert ours.summarize(mine)["policy_agrees_with_teacher"] == agreed / len(decisions)
    # The peer counts the teacher's own steps as disagreement.
    assert peer.summarize(mine)["policy_agrees_with_teacher"] == 0


def test_each_writes_files_that_the_other_can_summarize(tmp_path: Path) -> None:
    mine = episodes(ours, LineWorld(), label=True)
    summary = ours.write_episodes(mine, tmp_path / "ours")
    expected = peer.write_episodes(mine, tmp_path / "peers")
    assert flat(summary) == pytest.approx(flat(expected), abs=1e-12)
    for side in ("ours", "peers"):
        lines = (tmp_path / side / "episodes.jsonl").read_text(encoding="utf-8").splitlines()
        assert [json.loads(line) for line in lines] == mine
    assert json.loads((tmp_path / "ours" / "episodes.summary.json").read_text()) == summary


# A program written for the peer changes one import.

PROGRAM = '''
import sys
from pathlib import Path
from SIDE import (
    EPISODE_KIND, EXHAUSTED, PROTOCOL, SUCCESS, Environment, Hello, Labels, Policy, RolloutConfig,
    RolloutEnvError, StdioEnvironment, StepResult, Verification, rollout, select, serve, summarize,
    write_episodes,
)


class Coin:
    """Heads wins; the second toss exhausts."""

    def __init__(self):
        self.tosses = {}

    def hello(self):
        return Hello(name="coin", version="2", capabilities=("label", "tasks"))

    def tasks(self, query):
        return [{"id": f"coin-{n}", "family": "fair"} for n in range(query.get("count", 1))]

    def reset(self, episode, task, options):
        self.tosses[episode] = []
        return {"tosses": 0, "id": task["id"]}

    def candidates(self, episode):
        return [{"id": "tails"}, {"id": "heads"}, {"id": "edge", "valid": False}]

    def label(self, episode):
        return Labels(("heads",)) if len(self.tosses[episode]) < 1 else Labels(None, reason="late")

    def step(self, episode, candidate_id):
        tosses = self.tosses[episode]
        tosses.append(candidate_id)
        end = SUCCESS if candidate_id == "heads" else EXHAUSTED if len(tosses) > 1 else None
        seen = {"tosses": len(tosses), "id": episode}
        return StepResult(observation=seen, applied=True, terminal=end)

    def verify(self, episode):
        tosses = self.tosses[episode]
        return Verification("heads" in tosses, tosses[-1], detail={"n": len(tosses)})

    def close(self, episode):
        del self.tosses[episode]


class Guess:
    def score(self, observation, candidates):
        favourite = len(observation["id"]) % 3 + observation["tosses"]
        return [float(n == favourite) for n in range(len(candidates))]


if sys.argv[1] == "serve":
    serve(Coin())
    raise SystemExit
assert isinstance(Coin(), Environment)
policy: Policy = Guess()
assert select(Coin().candidates("e"), [0.0, 0.0, 9.0]) == "heads"
with StdioEnvironment([sys.executable, sys.argv[0], "serve"]) as environment:
    config = RolloutConfig(source="dagger", policy_version="guess", label=True, seed=3)
    config = RolloutConfig("dagger", "guess", 0, True, 0.0, False, 9, {"wind": 1}, 3)
    episodes = list(rollout(environment, policy, environment.tasks({"count": 4}), config=config))
    try:
        environment.verify("nobody")
    except RolloutEnvError as error:
        assert "nobody" in str(error)
    else:
        raise AssertionError
assert all(e["kind"] == EPISODE_KIND and e["environment"]["protocol"] == PROTOCOL for e in episodes)
summary = write_episodes(iter(episodes), Path(sys.argv[2]))
assert {k: v for k, v in summary.items() if k != "episodes_file"} == summarize(episodes)
'''


def test_a_program_written_for_the_peer_changes_one_import_and_runs(tmp_path: Path) -> None:
    written = {}
    for side in ("maatml.rollout", "pytest_maatml.rollout"):
        program = tmp_path / f"{side}.py"
        program.write_text(PROGRAM.replace("SIDE", side), encoding="utf-8")
        out = tmp_path / f"{side}-out"
        ran = subprocess.run(
            [sys.executable, str(program), "run", str(out)],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert ran.returncode == 0, ran.stderr
        lines = (out / "episodes.jsonl").read_text(encoding="utf-8").splitlines()
        written[side] = [json.loads(line) for line in lines]
        assert (out / "episodes.summary.json").is_file()
    assert len(written["maatml.rollout"]) == 4
    assert compared(written["pytest_maatml.rollout"], written["maatml.rollout"]) >= 4


def test_the_peers_public_names_are_all_here() -> None:
    assert [name for name in PEERS_NAMES if not hasattr(ours, name)] == []
    assert set(PEERS_NAMES) <= set(ours.__all__)
    for constant in ("PROTOCOL", "SUCCESS", "EXHAUSTED", "EPISODE_KIND"):
        assert getattr(ours, constant) == getattr(peer, constant)


@pytest.mark.parametrize("name", ["rollout", "select", "serve", "summarize", "write_episodes"])
def test_functions_take_the_peers_arguments(name: str) -> None:
    mine = inspect.signature(getattr(ours, name)).parameters
    theirs = inspect.signature(getattr(peer, name)).parameters
    assert [(p.name, p.kind, p.default) for p in mine.values()] == [
        (p.name, p.kind, p.default) for p in theirs.values()
    ]


@pytest.mark.parametrize("name", ["Hello", "Labels", "StepResult", "Verification", "RolloutConfig"])
def test_values_have_the_peers_fields_in_the_peers_order(name: str) -> None:
    def fields(side: Any) -> list[Any]:
        return [
            (f.name, f.default, f.default_factory is not dataclasses.MISSING)
            for f in dataclasses.fields(getattr(side, name))
        ]

    assert fields(ours) == fields(peer)


@pytest.mark.parametrize("name", ["Environment", "Policy", "StdioEnvironment"])
def test_methods_take_the_peers_arguments(name: str) -> None:
    theirs = getattr(peer, name)
    methods = [m for m, f in vars(theirs).items() if inspect.isfunction(f) and m[0] != "_"]
    assert methods
    for method in methods:
        mine = list(inspect.signature(getattr(getattr(ours, name), method)).parameters)
        assert mine == list(inspect.signature(getattr(theirs, method)).parameters), method


def test_an_error_of_ours_is_caught_where_the_peers_would_be() -> None:
    assert issubclass(ours.RolloutEnvError, RuntimeError)
    assert issubclass(peer.RolloutEnvError, RuntimeError)
    assert issubclass(ours.PolicyError, ours.RolloutEnvError)
    assert ours.Labels(("a",)).labelled
    assert not ours.Labels(None).labelled
    with pytest.raises(ValueError, match="teacher_mix needs label=True"):
        list(ours.rollout(LineWorld(), Walker(), [], config=ours.RolloutConfig(teacher_mix=0.5)))
    with pytest.raises(ValueError, match="teacher_mix needs label=True"):
        list(peer.rollout(LineWorld(), Walker(), [], config=peer.RolloutConfig(teacher_mix=0.5)))
