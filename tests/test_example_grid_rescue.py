from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import Counter
from itertools import zip_longest
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any

import pytest

from pytest_maatml.models import load_policy_reference

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

EXAMPLE = Path(__file__).parents[1] / "example_project"
GRID_RESCUE = EXAMPLE / "environments" / "grid_rescue.js"

Reply = dict[str, Any]


class Wire:
    """A running grid_rescue: lines in, replies out."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def send_lines(self, lines: Sequence[str], *, replies: int) -> list[Reply]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("".join(line + "\n" for line in lines))
        self._process.stdin.flush()
        return [json.loads(self._process.stdout.readline()) for _ in range(replies)]

    def ask_any(self, op: str, **fields: Any) -> Reply:
        [reply] = self.send_lines([json.dumps({"op": op, **fields})], replies=1)
        return reply

    def ask(self, op: str, **fields: Any) -> Reply:
        reply = self.ask_any(op, **fields)
        assert reply["ok"] is True, reply
        return reply

    def tasks(self, **query: Any) -> list[Reply]:
        tasks: list[Reply] = self.ask("tasks", query=query)["tasks"]
        return tasks

    def reset(self, episode: str, task: Reply, **options: Any) -> Reply:
        observation: Reply = self.ask("reset", episode=episode, task=task, options=options)[
            "observation"
        ]
        return observation

    def end_of_input(self) -> int:
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(timeout=10)


@pytest.fixture
def node() -> str:
    node = shutil.which("node")
    if node is None:
        reason = "grid_rescue needs Node.js, and there is no `node` on PATH"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return node


@pytest.fixture
def wire(node: str) -> Iterator[Wire]:
    with subprocess.Popen(
        [node, GRID_RESCUE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        # A program that hangs would hang the test in readline: killed, it fails it.
        watchdog = Timer(60, process.kill)
        watchdog.start()
        yield Wire(process)
        watchdog.cancel()
        process.kill()


#: The agent beside the person; two steps to the right is the exit, reached over a cracked cell.
CORRIDOR = {
    "id": "corridor",
    "family": "by hand",
    "rows": ["..~.", "####"],
    "agent": [0, 0],
    "person": [0, 1],
    "exit": [0, 3],
    "max_steps": 6,
}
SHORTEST = ["east", "lift", "east", "east", "report"]


def by_teacher(wire: Wire, episode: str, task: Reply) -> Iterator[Reply]:
    """Yield the first observation, each of the teacher's steps, and the verdict."""
    yield wire.reset(episode, task)
    terminal = None
    while terminal is None:
        valid_ids = wire.ask("label", episode=episode)["valid_ids"]
        result = wire.ask("step", episode=episode, id=valid_ids[0])
        terminal = result["terminal"]
        yield result
    yield wire.ask("verify", episode=episode)


def play(wire: Wire, episode: str, actions: Sequence[str]) -> list[Reply]:
    return [wire.ask("step", episode=episode, id=action) for action in actions]


def test_hello_names_the_protocol_and_both_capabilities(wire: Wire) -> None:
    hello = wire.ask("hello")
    assert hello["protocol"] == "maatml.rollout_env/1"
    assert hello["name"] == "grid_rescue"
    assert set(hello["capabilities"]) == {"label", "tasks"}


def test_tasks_have_unique_ids_and_three_families(wire: Wire) -> None:
    tasks = wire.tasks(count=60, seed=1)
    assert len({task["id"] for task in tasks}) == 60
    assert Counter(task["family"] for task in tasks) == {"open": 20, "rubble": 20, "cracked": 20}


def test_the_same_query_gives_the_same_tasks_and_a_longer_one_begins_with_them(wire: Wire) -> None:
    assert wire.tasks(count=30, seed=2) == wire.tasks(count=30, seed=2)
    assert wire.tasks(count=30, seed=2)[:12] == wire.tasks(count=12, seed=2)


def test_seed_and_split_give_other_grids_and_the_split_is_on_the_task(wire: Wire) -> None:
    def grids(**query: Any) -> list[Reply]:
        kept = ("rows", "agent", "person")
        return [{key: task[key] for key in kept} for task in wire.tasks(count=20, **query)]

    test, other_seed, train = grids(seed=1), grids(seed=2), grids(seed=1, split="train")
    assert not any(grid in test for grid in (*other_seed, *train))
    assert {task["split"] for task in wire.tasks(count=20, seed=1, split="train")} == {"train"}


def test_the_same_task_has_the_same_first_observation(wire: Wire) -> None:
    for task in wire.tasks(count=6, seed=1):
        assert wire.reset("a", task) == wire.reset("b", task)


def test_the_teacher_alone_succeeds_on_every_task(wire: Wire) -> None:
    for task in wire.tasks(count=60, seed=1):
        *_, verdict = by_teacher(wire, task["id"], task)
        assert (verdict["success"], verdict["status"]) == (True, "success"), task["id"]


def test_the_teacher_accepts_every_shortest_way_and_no_other(wire: Wire) -> None:
    crossing = {
        **CORRIDOR,
        "rows": ["....", "....", "...."],
        "agent": [1, 1],
        "person": [2, 2],
        "exit": [0, 0],
        "max_steps": 20,
    }
    wire.reset("e", crossing)
    assert wire.ask("label", episode="e")["valid_ids"] == ["east", "south"]


def test_the_teacher_has_no_label_where_no_time_is_left(wire: Wire) -> None:
    wire.reset("e", {**CORRIDOR, "max_steps": len(SHORTEST) - 1})
    label = wire.ask("label", episode="e")
    assert (label["valid_ids"], label["reason"]) == (None, "too_late")


def test_the_teacher_has_no_label_where_the_way_back_is_gone(wire: Wire) -> None:
    there_and_back = {**CORRIDOR, "person": [0, 3], "exit": [0, 0]}
    wire.reset("e", there_and_back, extra_steps=20)
    label = wire.ask("label", episode="e")
    assert (label["valid_ids"], label["reason"]) == (None, "cut_off")


def test_a_cracked_cell_is_rubble_once_it_was_left(wire: Wire) -> None:
    wire.reset("e", CORRIDOR)
    on_it = play(wire, "e", SHORTEST[:3])[-1]
    assert on_it["observation"]["rows"][0] == "..~."
    [off_it] = play(wire, "e", SHORTEST[3:4])
    assert off_it["observation"]["rows"][0] == "..#."
    west = next(c for c in wire.ask("candidates", episode="e")["candidates"] if c["id"] == "west")
    assert west["valid"] is False


def test_a_person_who_was_lifted_goes_where_the_agent_goes(wire: Wire) -> None:
    wire.reset("e", CORRIDOR)
    after_lift = play(wire, "e", SHORTEST[:3])[-1]["observation"]
    assert after_lift["carrying"] is True
    assert after_lift["person"] == after_lift["agent"] == [0, 2]


def test_in_a_cracked_task_no_plan_is_as_short_as_there_and_back(wire: Wire) -> None:
    for task in wire.tasks(count=30, seed=1)[2::3]:
        wire.reset("e", task)
        listed = wire.ask("candidates", episode="e")["candidates"]
        to_person = 1 + min(c["distance"] for c in listed if c.get("distance") is not None)
        spare, lift_and_report = 2, 2
        assert task["family"] == "cracked"
        assert task["max_steps"] - spare > 2 * to_person + lift_and_report


def test_a_masked_candidate_stepped_anyway_is_not_applied_and_the_episode_lives(wire: Wire) -> None:
    first = wire.reset("e", CORRIDOR)
    listed = wire.ask("candidates", episode="e")["candidates"]
    masked = [candidate["id"] for candidate in listed if candidate["valid"] is False]
    assert masked == ["north", "south", "west", "lift"]
    for action in masked:
        [refused] = play(wire, "e", [action])
        assert (refused["applied"], refused["terminal"]) == (False, None)
        assert refused["observation"] == first
    assert play(wire, "e", SHORTEST)[-1]["terminal"] == "success"


def test_every_candidate_not_masked_is_applied(wire: Wire) -> None:
    task = wire.tasks(count=3, seed=1)[2]
    wire.reset("look", task)
    for candidate in wire.ask("candidates", episode="look")["candidates"]:
        wire.reset("try", task)
        [result] = play(wire, "try", [candidate["id"]])
        assert result["applied"] is candidate["valid"]


def test_a_report_without_a_rescue_is_a_verified_failure(wire: Wire) -> None:
    wire.reset("e", CORRIDOR)
    [result] = play(wire, "e", ["report"])
    verdict = wire.ask("verify", episode="e", success=True)
    assert result["terminal"] == verdict["status"] == "false_report"
    assert verdict["success"] is False


def test_the_step_budget_ends_an_episode_and_extra_steps_relaxes_it(wire: Wire) -> None:
    short = {**CORRIDOR, "max_steps": 2}
    wire.reset("short", short)
    assert play(wire, "short", SHORTEST[:2])[-1]["terminal"] == "exhausted"
    assert wire.ask("verify", episode="short")["success"] is False
    wire.reset("long", short, extra_steps=4)
    assert play(wire, "long", SHORTEST)[-1]["terminal"] == "success"


def test_verify_before_the_end_is_no_success_and_status_running(wire: Wire) -> None:
    wire.reset("e", CORRIDOR)
    play(wire, "e", SHORTEST[:-1])
    verdict = wire.ask("verify", episode="e")
    assert (verdict["success"], verdict["status"]) == (False, "running")


def test_a_step_after_the_end_is_refused_and_the_verdict_stands(wire: Wire) -> None:
    wire.reset("e", CORRIDOR)
    play(wire, "e", SHORTEST)
    late = wire.ask_any("step", episode="e", id="west")
    assert late["ok"] is False
    assert "ended" in late["error"]
    assert wire.ask("verify", episode="e")["success"] is True


def test_interleaved_episodes_go_as_they_go_alone(wire: Wire) -> None:
    tasks = wire.tasks(count=9, seed=4)
    alone = [list(by_teacher(wire, f"alone {task['id']}", task)) for task in tasks]
    rounds = zip_longest(*(by_teacher(wire, task["id"], task) for task in tasks))
    interleaved = [[reply for reply in turns if reply] for turns in zip(*rounds, strict=True)]
    assert interleaved == alone


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{not json", "not JSON"),
        ("null", "unknown op"),
        ("[1]", "unknown op"),
        ('{"op":"constructor"}', 'unknown op "constructor"'),
        ('{"op":"candidates","episode":"nobody"}', 'unknown episode "nobody"'),
        ('{"op":"verify","episode":"__proto__"}', 'unknown episode "__proto__"'),
        ('{"op":"tasks","query":{"cuont":3}}', "unknown query key cuont"),
        ('{"op":"tasks","query":{"count":-1}}', "query.count must be"),
        ('{"op":"tasks","query":{"seed":0.5}}', "query.seed must be"),
        ('{"op":"reset","episode":"e","task":{}}', "task.max_steps must be"),
        ('{"op":"reset","episode":"e","task":{"max_steps":1,"rows":["x"]}}', "task.rows must be"),
    ],
)
def test_a_bad_request_is_refused_with_its_reason_and_the_program_lives_on(
    wire: Wire, line: str, complaint: str
) -> None:
    [refusal, hello] = wire.send_lines([line, '{"op":"hello"}'], replies=2)
    assert refusal["ok"] is False
    assert complaint in refusal["error"]
    assert hello["ok"] is True


def test_blank_lines_get_no_reply(wire: Wire) -> None:
    lines = ["", '{"op":"hello"}', "  ", "", '{"op":"tasks","query":{}}', ""]
    hello, tasks = wire.send_lines(lines, replies=2)
    assert hello["name"] == "grid_rescue"
    assert len(tasks["tasks"]) == 1


def test_many_requests_in_one_write_are_answered_in_order(wire: Wire) -> None:
    resets = [
        json.dumps({"op": "reset", "episode": str(steps), "task": {**CORRIDOR, "max_steps": steps}})
        for steps in range(1, 400)
    ]
    replies = wire.send_lines(resets, replies=len(resets))
    assert [reply["observation"]["max_steps"] for reply in replies] == list(range(1, 400))


def test_a_closed_episode_is_forgotten(wire: Wire) -> None:
    wire.reset("e", CORRIDOR)
    wire.ask("close", episode="e")
    assert wire.ask_any("step", episode="e", id="east")["ok"] is False


def test_a_last_line_without_its_end_is_answered(node: str) -> None:
    ran = subprocess.run(
        [node, GRID_RESCUE], input=b'{"op":"hello"}', capture_output=True, check=True, timeout=60
    )
    assert json.loads(ran.stdout)["name"] == "grid_rescue"


def test_the_program_ends_with_its_input(wire: Wire) -> None:
    wire.ask("hello")
    assert wire.end_of_input() == 0


@pytest.mark.peer
def test_greedy_is_right_on_floors_that_hold_and_cuts_itself_off_on_some_that_crack(
    node: str,
) -> None:
    from maatml.rollout import StdioEnvironment, rollout

    greedy = load_policy_reference("policies.py:Greedy", base=EXAMPLE).policy
    with StdioEnvironment([node, str(GRID_RESCUE)]) as environment:
        tasks = environment.tasks({"count": 60, "seed": 1})
        episodes = list(rollout(environment, greedy, tasks))
    verified = Counter(e["task_family"] for e in episodes if e["outcome"]["success"])
    assert verified["open"] == verified["rubble"] == 20
    assert 0.8 * 20 <= verified["cracked"] < 20
