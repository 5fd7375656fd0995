from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import maatml.rollout as peer
import pytest
from maatml.rollout.example import LineWorld as PeerLineWorld

from pytest_maatml.engine.config import RolloutConfig
from pytest_maatml.engine.driver import drive, plan_episode, rollout
from pytest_maatml.engine.in_process import InProcess
from pytest_maatml.engine.record import Episode, EpisodeError
from pytest_maatml.engine.stdio import StdioEnvironment
from pytest_maatml.environments.line_world import LineWorld
from pytest_maatml.errors import ConfigurationError, RolloutEnvError
from tests.engine.misbehaving.mirror import Mirror

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_maatml.engine.in_process import Carrier

HERE = Path(__file__).parent / "misbehaving"
MIRROR = [sys.executable, str(HERE / "mirror.py")]
PEER_SERVER = [
    sys.executable,
    "-c",
    "from maatml.rollout import serve; from maatml.rollout.example import LineWorld\n"
    "serve(LineWorld())",
]
OUR_SERVER = [
    sys.executable,
    "-c",
    "from pytest_maatml.engine.server import serve\n"
    "from pytest_maatml.environments.line_world import LineWorld\n"
    "serve(LineWorld())",
]
TASKS = LineWorld().tasks({"count": 40, "seed": 3, "span": 6, "slack": 1})


class Walker:
    """Walks the line, but takes every third state for one further left."""

    def score(
        self, observation: dict[str, Any], candidates: Sequence[dict[str, Any]]
    ) -> list[float]:
        gap = observation["target"] - observation["position"] - (observation["steps"] % 3 == 2)
        best = "finish" if gap == 0 else "right" if gap > 0 else "left"
        return [1.5 if candidate["id"] == best else 0.25 for candidate in candidates]


class Batched(Walker):
    def score_batch(self, observations: Any, candidates: Any) -> list[list[float]]:
        return [self.score(*pair) for pair in zip(observations, candidates, strict=True)]


class Counting:
    """Its scores depend on how often this very episode has asked before."""

    def __init__(self) -> None:
        self.asked = 0

    def start_episode(self, episode_id: str, task: dict[str, Any]) -> Counting:
        return Counting()

    def score(
        self, observation: dict[str, Any], candidates: Sequence[dict[str, Any]]
    ) -> list[float]:
        self.asked += 1
        return [float((self.asked + place) % 3) for place, _ in enumerate(candidates)]


class First:
    def score(
        self, observation: dict[str, Any], candidates: Sequence[dict[str, Any]]
    ) -> list[float]:
        return [0.0 for _ in candidates]


def ends(
    carrier: Carrier,
    policy: Any,
    tasks: Sequence[dict[str, Any]],
    config: RolloutConfig,
    concurrency: int,
) -> list[Episode | EpisodeError]:
    plans = (plan_episode(task, index, config) for index, task in enumerate(tasks))
    ended = drive(carrier, policy, plans, config=config, concurrency=concurrency)
    return sorted(ended, key=lambda end: end.index)


def lines(
    carrier: Carrier,
    policy: Any,
    tasks: Sequence[dict[str, Any]] = TASKS,
    config: RolloutConfig | None = None,
    concurrency: int = 1,
) -> list[bytes]:
    ended = ends(carrier, policy, tasks, config or RolloutConfig(), concurrency)
    assert [end for end in ended if isinstance(end, EpisodeError)] == []
    return [end.line for end in ended if isinstance(end, Episode)]


@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize("command", [PEER_SERVER, OUR_SERVER], ids=["peer", "ours"])
@pytest.mark.parametrize(
    "config",
    [
        RolloutConfig(),
        RolloutConfig(label=True),
        RolloutConfig(label=True, teacher_mix=0.3, seed=5, options={"extra_steps": 2}),
    ],
    ids=["plain", "label", "mix"],
)
def test_the_bytes_do_not_depend_on_carrier_concurrency_processes_or_batches(
    processes: int, command: list[str], config: RolloutConfig
) -> None:
    expected = lines(InProcess(LineWorld()), Walker(), config=config)
    assert len(expected) == len(TASKS)
    with StdioEnvironment(command, processes=processes) as environment:
        for concurrency in (1, 7, 64):
            for policy in (Walker(), Batched()):
                assert lines(environment, policy, TASKS, config, concurrency) == expected


@pytest.mark.peer
@pytest.mark.parametrize("label", [False, True])
def test_the_peers_driver_gets_the_same_episodes_from_our_server(label: bool) -> None:
    config = peer.RolloutConfig(label=label)
    expected = list(peer.rollout(PeerLineWorld(), Walker(), TASKS, config=config))
    with peer.StdioEnvironment(OUR_SERVER) as environment:
        assert environment.tasks({"count": 40, "seed": 3, "span": 6, "slack": 1}) == TASKS
        assert list(peer.rollout(environment, Walker(), TASKS, config=config)) == expected


@pytest.mark.peer
@pytest.mark.parametrize("label", [False, True])
def test_we_get_the_peers_episodes_from_its_server(label: bool) -> None:
    theirs = peer.RolloutConfig(label=label)
    expected = list(peer.rollout(PeerLineWorld(), Walker(), TASKS, config=theirs))
    ours = RolloutConfig(label=label)
    with StdioEnvironment(PEER_SERVER) as environment:
        driven = [json.loads(line) for line in lines(environment, Walker(), TASKS, ours, 16)]
        alone = list(rollout(environment, Walker(), TASKS, config=ours))
        unknowing = list(peer.rollout(environment, Walker(), TASKS, config=theirs))
    for episodes in (driven, alone):
        for episode in episodes:
            for decision in episode["decisions"]:
                del decision["policy_choice"]
        for mine, their in zip(episodes, expected, strict=True):
            assert approximately(mine) == approximately(their)
    assert unknowing == expected


def approximately(episode: dict[str, Any]) -> dict[str, Any]:
    """The episode with log-probabilities to 12 digits: the order of a sum is nobody's contract."""
    decisions = [
        {**decision, "logp": [round(value, 12) for value in decision["logp"]]}
        for decision in episode["decisions"]
    ]
    return {**episode, "decisions": decisions}


NESTED: Any = "in here"
for _ in range(190):
    NESTED = [NESTED]
EXTREME = {
    "big": 2**70,
    "negative": -(2**64) - 1,
    "edge": [2**63 - 1, 2**64 - 1, -(2**63)],
    "tiny": 1e-320,
    "minus": -0.0,
    "third": 0.1 + 0.2,
    "large": 1.7976931348623157e308,
    "lines": '\u2028\u2029 \r\n\t\x00 \\ "',
    "emoji": "\U0001f9ed\u200d",
    "z": 1,
    "a": {"z": [], "a": {}},
    "nested": NESTED,
    "": None,
}


@pytest.mark.parametrize("concurrency", [1, 8])
def test_values_pass_unchanged_in_both_directions(concurrency: int) -> None:
    task = {"id": "t", "family": "f", "shown": EXTREME, "id_of_b": "b \u2028 \U0001f9ed"}
    with StdioEnvironment(MIRROR) as environment:
        assert environment.tasks(task) == [task]
        assert repr(environment.reset("e", task, {})["shown"]) == repr(EXTREME)
        (line,) = lines(environment, First(), [task], concurrency=concurrency)
    (expected,) = lines(InProcess(Mirror()), First(), [task])
    assert line == expected
    record = json.loads(line)
    assert list(record["task"]["shown"]) == list(EXTREME)
    for shown in (
        record["task"]["shown"],
        record["decisions"][0]["observation"]["shown"],
        record["decisions"][0]["candidates"][0]["shown"],
        record["outcome"]["detail"]["shown"],
    ):
        assert repr(shown) == repr(EXTREME)


def test_what_is_not_json_is_refused_with_its_path_for_that_episode_alone() -> None:
    script = (
        "import json, sys\n"
        "for line in sys.stdin:\n"
        "    request = json.loads(line)\n"
        "    shown = request.get('task', {}).get('shown', '0')\n"
        '    print(\'{"ok": true, "observation": {"x": [%s]}, "applied": true,\'\n'
        '          \'"terminal": "end", "candidates": [{"id": "a"}], "success": true}\'\n'
        "          % shown, flush=True)\n"
    )
    bad = {
        "t1": ("NaN", "is NaN"),
        "t2": ("-Infinity", "is -Infinity"),
        "t3": ('"\\ud800"', "holds a lone"),
    }
    tasks = [{"id": "t0"}, *({"id": key, "shown": value} for key, (value, _) in bad.items())]
    with StdioEnvironment([sys.executable, "-S", "-c", script], concurrency=4) as environment:
        ended = ends_without_hello(environment, tasks)
    assert isinstance(ended[0], Episode)
    for end in ended[1:]:
        assert isinstance(end, EpisodeError)
        assert f"reset: observation.x[0] {bad[end.task_id][1]}" in end.message


def ends_without_hello(
    environment: StdioEnvironment, tasks: list[dict[str, Any]]
) -> list[Episode | EpisodeError]:
    from pytest_maatml.engine.protocol import Hello

    config = RolloutConfig()
    plans = (plan_episode(task, index, config) for index, task in enumerate(tasks))
    ended = drive(environment, First(), plans, config=config, hello=Hello("scripted", "1"))
    return sorted(ended, key=lambda end: end.index)


def test_an_observation_that_changes_in_place_is_recorded_as_it_was() -> None:
    task = {"id": "t", "steps": 4}
    (line,) = lines(InProcess(Mirror()), First(), [task])
    steps = [decision["observation"]["step"] for decision in json.loads(line)["decisions"]]
    assert steps == [0, 1, 2, 3]
    with StdioEnvironment(MIRROR) as environment:
        assert lines(environment, First(), [task]) == [line]


@pytest.mark.parametrize("processes", [1, 3])
def test_success_does_not_depend_on_length(processes: int) -> None:
    tasks = [{"id": f"t{i}", "steps": 5 if i % 2 else 50, "fails": not i % 2} for i in range(60)]
    with StdioEnvironment(MIRROR, processes=processes) as environment:
        for concurrency in (1, 32):
            ended = ends(environment, First(), tasks, RolloutConfig(), concurrency)
            outcomes = Counter(end.success for end in ended if isinstance(end, Episode))
            assert outcomes == {True: 30, False: 30}


def test_a_policy_with_memory_sees_its_own_episode_alone() -> None:
    config = RolloutConfig(max_decisions=9)
    with StdioEnvironment(OUR_SERVER) as environment:
        alone = lines(environment, Counting(), TASKS, config, 1)
        assert lines(environment, Counting(), TASKS, config, 32) == alone
    assert lines(InProcess(LineWorld()), Counting(), TASKS, config) == alone


@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_label_error_where_the_candidates_are_empty_is_ignored(concurrency: int) -> None:
    task = {"id": "t", "steps": 9, "empty_at": 2}
    config = RolloutConfig(label=True)
    with StdioEnvironment(MIRROR) as environment:
        (line,) = lines(environment, First(), [task], config, concurrency)
    assert json.loads(line)["outcome"]["truncated"] == "no_candidates"


def test_megabytes_in_both_directions_at_once_do_not_lock_up() -> None:
    tasks = [{"id": f"t{i}", "shown": str(i) * 600_000} for i in range(16)]
    with StdioEnvironment(MIRROR, timeout=20) as environment:
        assert len(lines(environment, First(), tasks, concurrency=16)) == 16


RECORDER = (
    "import json, sys, time\n"
    "log = open(sys.argv[1], 'a')\n"
    "from pytest_maatml.engine.server import Responder\n"
    "from pytest_maatml.environments.line_world import LineWorld\n"
    "responder = Responder(LineWorld())\n"
    "for line in sys.stdin.buffer:\n"
    "    log.write(json.loads(line)['op'] + '\\n'); log.flush()\n"
    "    time.sleep(0.02)\n"
    "    sys.stdout.buffer.write(responder.reply(line) + b'\\n')\n"
    "    log.write('.\\n'); log.flush()\n"
    "    sys.stdout.flush()\n"
)


def test_one_in_flight_is_the_requests_of_the_protocol_one_by_one(tmp_path: Path) -> None:
    task = {"id": "t", "start": 0, "target": 1, "max_steps": 5}
    log = tmp_path / "log"
    with StdioEnvironment([sys.executable, "-c", RECORDER, str(log)]) as environment:
        lines(environment, Walker(), [task], RolloutConfig(label=True), 1)
    ops = [op for op in log.read_text().split() if op != "."]
    turn = ["candidates", "label", "step"]
    assert ops == ["hello", "reset", *turn, *turn, "verify", "close"]


@pytest.mark.parametrize(
    ("poison", "kind", "message"),
    [("dies", "exited", "exited with status 3"), ("hangs", "timeout", "no reply within 1.5 s")],
)
def test_our_server_tells_which_of_many_requests_it_died_of(
    poison: str, kind: str, message: str
) -> None:
    tasks: list[dict[str, Any]] = [{"id": f"t{index}", "steps": 3} for index in range(40)]
    tasks[17][poison] = True
    with StdioEnvironment(MIRROR, timeout=1.5) as environment:
        ended = ends(environment, First(), tasks, RolloutConfig(), 32)
    (error,) = [end for end in ended if isinstance(end, EpisodeError)]
    assert (error.task_id, error.op, error.kind) == ("t17", "step", kind)
    assert message in error.message


def test_what_a_served_environment_prints_goes_to_stderr(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with StdioEnvironment([*MIRROR, "loud"]) as environment:
        assert len(lines(environment, First(), [{"id": "t"}])) == 1
    log = capfd.readouterr().err
    assert "a print of the environment's own" in log
    assert "the echo of a child process" in log


def test_a_command_that_does_not_exist_is_named() -> None:
    with pytest.raises(RolloutEnvError, match=r"'no-such-program' cannot be started"):
        StdioEnvironment("no-such-program --fast")


@pytest.mark.parametrize("command", ["", []])
def test_an_empty_command_is_refused(command: Any) -> None:
    with pytest.raises(RolloutEnvError, match="the environment command is empty"):
        StdioEnvironment(command)


def test_less_than_one_process_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="at least 1 process, not 0"):
        StdioEnvironment(MIRROR, processes=0)


def test_env_and_cwd_reach_the_program(tmp_path: Path) -> None:
    script = (
        "import json, os, sys\n"
        "for line in sys.stdin:\n"
        "    print(json.dumps({'ok': True, 'tasks': [{'id': os.environ['COLOUR'],"
        " 'family': os.getcwd(), 'home': 'PATH' in os.environ}]}), flush=True)\n"
    )
    command = [sys.executable, "-c", script]
    with StdioEnvironment(command, env={"COLOUR": "teal"}, cwd=tmp_path) as environment:
        (task,) = environment.tasks({})
    assert task == {"id": "teal", "family": str(tmp_path.resolve()), "home": True}


def test_another_protocol_is_refused() -> None:
    script = 'import sys; input(); print(\'{"ok": true, "protocol": "chess/2"}\', flush=True)'
    with (
        StdioEnvironment([sys.executable, "-c", script]) as environment,
        pytest.raises(RolloutEnvError, match=r"speaks 'chess/2', this driver speaks 'maatml"),
    ):
        environment.hello()


def test_after_shutdown_requests_are_refused_and_a_second_shutdown_is_harmless() -> None:
    environment = StdioEnvironment(OUR_SERVER)
    environment.shutdown()
    environment.shutdown()
    with pytest.raises(RolloutEnvError, match="the environment is shut down"):
        environment.hello()


def test_a_program_that_ends_at_end_of_file_is_given_the_time(tmp_path: Path) -> None:
    script = (
        "import sys, time\n"
        "sys.stdin.read()\n"
        "time.sleep(0.5)\n"
        "open(sys.argv[1], 'w').write('tidied up')\n"
    )
    StdioEnvironment([sys.executable, "-c", script, str(tmp_path / "last")]).shutdown()
    assert (tmp_path / "last").read_text() == "tidied up"


def test_nothing_is_left_when_we_are_killed(tmp_path: Path) -> None:
    """Not even a program, or its child, that ignores end of file and SIGTERM."""
    stubborn = tmp_path / "stubborn.py"
    stubborn.write_text(
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "os.fork()\n"
        "print(flush=True)\n"
        "time.sleep(120)\n"
    )
    script = (
        "import sys, time\n"
        "from pytest_maatml.engine.stdio import StdioEnvironment\n"
        f"environment = StdioEnvironment([sys.executable, '-S', {str(stubborn)!r}])\n"
        "print(environment._programs[0]._child._process.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    ours = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert ours.stdout is not None
    group = int(ours.stdout.readline())
    time.sleep(0.3)
    assert len(members(group)) == 2
    ours.send_signal(signal.SIGKILL)
    ours.wait()
    ours.stdout.close()
    deadline = time.monotonic() + 10
    while members(group) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert members(group) == []


def members(group: int) -> list[str]:
    table = subprocess.run(
        ["ps", "-A", "-o", "pgid=,stat=,args="], capture_output=True, text=True, check=True
    )
    rows = [line.split(None, 2) for line in table.stdout.splitlines()]
    return [" ".join(row) for row in rows if int(row[0]) == group and row[1][0] != "Z"]


def test_an_environment_that_is_forgotten_takes_its_program_along() -> None:
    environment = StdioEnvironment(OUR_SERVER)
    environment.hello()
    group = environment._programs[0]._child._process.pid  # type: ignore[union-attr]
    assert members(group)
    del environment
    assert members(group) == []


def test_no_descriptor_is_left_open() -> None:
    before = os.listdir("/dev/fd")
    with StdioEnvironment(OUR_SERVER, processes=2) as environment:
        lines(environment, Walker(), TASKS[:4], concurrency=4)
    assert os.listdir("/dev/fd") == before
