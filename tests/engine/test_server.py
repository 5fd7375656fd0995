from __future__ import annotations

import datetime
import io
import json
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import maatml.rollout as peer
import pytest
from maatml.rollout.example import LineWorld as PeerLineWorld

from pytest_maatml.engine.server import serve
from pytest_maatml.environments.line_world import LineWorld
from tests.engine.scripted import Scripted

if TYPE_CHECKING:
    from collections.abc import Iterator

TASK = {"id": "t", "start": 0, "target": 1, "max_steps": 3}
CONVERSATION: list[Any] = [
    {"op": "hello"},
    {"op": "tasks", "query": {"count": 2, "seed": 4}},
    {"op": "reset", "episode": "e", "task": TASK, "options": {}},
    {"op": "candidates", "episode": "e"},
    {"op": "label", "episode": "e"},
    {"op": "step", "episode": "e", "id": "right"},
    {"op": "step", "episode": "e", "id": "finish"},
    {"op": "verify", "episode": "e"},
    {"op": "close", "episode": "e"},
]


def text_of(requests: list[Any]) -> str:
    return "".join(
        f"{request if isinstance(request, str) else json.dumps(request)}\n" for request in requests
    )


def ask(environment: Any, *requests: Any) -> list[Any]:
    output = io.StringIO()
    answered = serve(
        environment, input_stream=io.StringIO(text_of(list(requests))), output_stream=output
    )
    replies = [json.loads(line) for line in output.getvalue().splitlines()]
    assert answered == len(replies)
    return replies


@pytest.mark.peer
def test_the_replies_are_the_peers() -> None:
    output = io.StringIO()
    peer.serve(
        PeerLineWorld(), input_stream=io.StringIO(text_of(CONVERSATION)), output_stream=output
    )
    assert ask(LineWorld(), *CONVERSATION) == [
        json.loads(line) for line in output.getvalue().splitlines()
    ]


@pytest.mark.peer
def test_an_environment_written_for_the_peer_is_served() -> None:
    assert ask(PeerLineWorld(), *CONVERSATION) == ask(LineWorld(), *CONVERSATION)


def test_streams_may_be_text_or_binary() -> None:
    requests = text_of(CONVERSATION)
    replies = text_of(ask(LineWorld(), *CONVERSATION)).replace(" ", "")
    for source in (
        io.BytesIO(requests.encode()),
        io.TextIOWrapper(io.BytesIO(requests.encode()), encoding="utf-8"),
        iter(requests.splitlines(keepends=True)),
    ):
        output = io.BytesIO()
        assert serve(LineWorld(), input_stream=source, output_stream=output) == len(CONVERSATION)
        assert output.getvalue().decode() == replies


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        ("not json", "JSONDecodeError"),
        ("[]", "a request is an object, not []"),
        ("{}", "unknown op None"),
        ('{"op": "fly"}', "unknown op 'fly'; known are hello, tasks, reset"),
        ('{"op": ["step"]}', "unknown op ['step']"),
        ('{"op": "candidates", "episode": "nobody"}', "unknown episode 'nobody'"),
        ('{"op": "step"}', "unknown episode ''"),
        ('{"op": "tasks", "query": {"seed": "x"}}', "ValueError: invalid literal"),
    ],
)
def test_a_bad_request_is_refused_and_the_server_lives_on(request_: str, error: str) -> None:
    refusal, hello = ask(LineWorld(), request_, {"op": "hello"})
    assert refusal["ok"] is False
    assert error in refusal["error"]
    assert hello["ok"] is True


def test_what_an_environment_raises_says_where() -> None:
    def broken(episode: str, step: int) -> Any:
        raise ZeroDivisionError("too many zeros")

    (refusal,) = ask(Scripted(verify=broken), {"op": "verify", "episode": "e"})
    assert refusal["error"].startswith("ZeroDivisionError: too many zeros (")
    assert "test_server.py:" in refusal["error"]


@dataclass
class Result:
    observation: Any
    applied: Any = True
    terminal: Any = None
    reward: Any = 0.0


@pytest.mark.parametrize(
    ("result", "error"),
    [
        (Result({"x": [1.0, float("nan")]}), "observation.x[1] is NaN"),
        (Result({"x": {"y": "\ud800"}}), "observation.x.y holds a lone surrogate"),
        (Result({"x": {1}}), "observation.x is a builtins.set"),
        (Result({}, reward=float("inf")), "reward is Infinity"),
        (Result({}, applied=object()), "applied is a builtins.object"),
    ],
)
def test_what_is_not_json_is_refused_with_its_path(result: Result, error: str) -> None:
    step = {"op": "step", "episode": "e", "id": "a"}
    refusal, hello = ask(Scripted(step=lambda *_: result), step, {"op": "hello"})
    assert error in refusal["error"]
    assert hello["ok"] is True


@pytest.mark.parametrize(
    ("plain", "lookalike"),
    [("2026-01-01", datetime.date(2026, 1, 1)), (None, float("nan")), ({"x": 1}, Result(1))],
)
def test_candidates_seen_before_let_no_lookalike_through(plain: Any, lookalike: Any) -> None:
    if isinstance(lookalike, Result):
        plain = {"observation": 1, "applied": True, "terminal": None, "reward": 0.0}
    listed = iter([plain, lookalike, plain])
    environment = Scripted(candidates=lambda *_: [{"id": "a", "x": next(listed)}])
    look = {"op": "candidates", "episode": "e"}
    assert [reply["ok"] for reply in ask(environment, look, look, look)] == [True, False, True]


def test_ids_may_be_numbers_and_are_taken_as_their_text() -> None:
    environment = Scripted()
    ask(
        environment,
        {"op": "reset", "episode": 0, "task": {}, "options": {}},
        {"op": "step", "episode": 0, "id": 0},
        {"op": "step", "episode": "0", "id": "a"},
    )
    assert environment.calls == [("reset", "0"), ("step", "0"), ("step", "0")]
    assert environment.chosen == ["0", "a"]


def test_integers_of_any_size_are_exact_in_both_directions() -> None:
    class Echo(Scripted):
        def reset(self, episode: str, task: dict[str, Any], options: dict[str, Any]) -> Any:
            return {"echo": task["x"], "plus": task["x"] + 1}

    request = {"op": "reset", "episode": "e", "task": {"x": 2**70}, "options": {}}
    (reply,) = ask(Echo(), request)
    assert reply["observation"] == {"echo": 2**70, "plus": 2**70 + 1}


def test_blank_lines_are_skipped_and_a_last_line_needs_no_end() -> None:
    source = io.BytesIO(b'\n \r\n{"op": "hello"}\r\n\n{"op": "hello"}')
    output = io.BytesIO()
    assert serve(LineWorld(), input_stream=source, output_stream=output) == 2


def test_all_that_have_arrived_are_answered_before_one_flush() -> None:
    class Counted(io.BytesIO):
        flushes = 0

        def flush(self) -> None:
            self.flushes += 1

    output = Counted()
    source = io.BytesIO(b'{"op":"hello"}\n' * 20)
    assert serve(Scripted(), input_stream=source, output_stream=output) == 20
    assert output.flushes <= 2


def test_each_line_of_a_stream_without_a_buffer_is_answered_before_the_next_is_read() -> None:
    output = io.StringIO()

    def conversation() -> Iterator[str]:
        for turn in range(3):
            assert output.getvalue().count("\n") == turn
            yield '{"op": "hello"}\n'

    assert serve(Scripted(), input_stream=conversation(), output_stream=output) == 3


def test_an_environment_that_exits_has_answered_what_came_before() -> None:
    script = (
        "import sys\n"
        "from pytest_maatml.engine.server import serve\n"
        "from pytest_maatml.environments.line_world import LineWorld\n"
        "class Quits(LineWorld):\n"
        "    def verify(self, episode): sys.exit(7)\n"
        "serve(Quits())\n"
    )
    requests = text_of([{"op": "hello"}, {"op": "verify", "episode": "e"}, {"op": "hello"}])
    served = subprocess.run(
        [sys.executable, "-c", script], input=requests, capture_output=True, text=True
    )
    assert served.returncode == 7
    assert [json.loads(line)["ok"] for line in served.stdout.splitlines()] == [True]


def test_standard_output_holds_replies_alone() -> None:
    script = (
        "import os, sys\n"
        "from pytest_maatml.engine.server import serve\n"
        "from pytest_maatml.environments.line_world import LineWorld\n"
        "class Talks(LineWorld):\n"
        "    def hello(self):\n"
        "        print('printed'); os.write(1, b'written\\n'); os.system('echo echoed')\n"
        "        return super().hello()\n"
        "print(serve(Talks()), 'answered')\n"
    )
    served = subprocess.run(
        [sys.executable, "-c", script], input='{"op":"hello"}\n', capture_output=True, text=True
    )
    reply, end = served.stdout.splitlines()
    assert json.loads(reply)["name"] == "line_world"
    assert end == "1 answered"
    assert sorted(served.stderr.split()) == ["echoed", "printed", "written"]
