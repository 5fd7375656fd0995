"""Writes `seed_rows.jsonl`: what line_world's teacher does on 30 training tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_maatml.environments.line_world import LineWorld

if TYPE_CHECKING:
    from collections.abc import Iterator

QUERY = {"count": 30, "seed": 3, "split": "train"}


def teacher_rows(environment: LineWorld, task: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield each state of an episode in which the teacher acts, with the ids it accepts there."""
    observation = environment.reset("teacher", task, {})
    terminal = None
    while terminal is None:
        valid_ids = list(environment.label("teacher").valid_ids or [])
        yield {
            "task_id": task["id"],
            "observation": observation,
            "candidates": environment.candidates("teacher"),
            "teacher_valid": valid_ids,
        }
        result = environment.step("teacher", valid_ids[0])
        observation, terminal = result.observation, result.terminal
    environment.close("teacher")


def main() -> None:
    environment = LineWorld()
    rows = (row for task in environment.tasks(QUERY) for row in teacher_rows(environment, task))
    with Path(__file__).with_name("seed_rows.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


if __name__ == "__main__":
    main()
