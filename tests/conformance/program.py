"""A program that serves a short corridor by hand, with a fault of the pipe if it is told to."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

FAULTS = {
    "dies-of-bad-json": "what_is_not_json_is_refused",
    "accepts-bad-json": "what_is_not_json_is_refused",
    "dies-without-op": "request_without_op_is_refused",
    "accepts-no-op": "request_without_op_is_refused",
    "accepts-any-op": "unknown_op_is_refused",
    "answers-blank-lines": "blank_lines_are_skipped",
    "prints-a-banner": "nothing_but_replies_on_stdout",
    "prints-at-the-end": "nothing_but_replies_on_stdout",
    "prints-in-steps": "nothing_but_replies_on_stdout",
    "forgets-what-is-ahead": "requests_ahead_are_answered_in_order",
    "answers-latest-first": "requests_ahead_are_answered_in_order",
    "stays": "end_of_file_ends_the_program",
}
HELLO = {
    "protocol": "maatml.rollout_env/1",
    "name": "corridor",
    "version": "1",
    "capabilities": ["label", "tasks"],
}
episodes: dict[str, list[int]] = {}


def answer(request: dict[str, Any], fault: str) -> dict[str, Any]:
    op, name = request.get("op"), request.get("episode", "")
    if op is None and fault == "accepts-no-op":
        return {}
    if op == "hello":
        return HELLO
    if op == "tasks":
        return {"tasks": [{"id": str(n), "family": "f", "length": n + 1} for n in range(3)]}
    if op == "reset":
        episodes[name] = [0, request["task"]["length"]]
        return {"observation": {"at": 0}}
    if op == "close":
        episodes.pop(name, None)
        return {}
    if op not in ("candidates", "label", "step", "verify"):
        if op is not None and fault == "accepts-any-op":
            return {}
        raise ValueError(f"unknown op {op}")
    at, length = episodes[name]
    if op == "candidates":
        return {"candidates": [{"id": "on"}] if at < length else []}
    if op == "label":
        return {"valid_ids": ["on"], "reason": None}
    if op == "verify":
        return {"success": at == length, "status": "", "reward": 0, "detail": {}}
    if at == length or request["id"] != "on":
        raise ValueError("refused")
    if fault == "prints-in-steps":
        print("stepping")
    episodes[name][0] += 1
    terminal = "success" if at + 1 == length else None
    return {"observation": {"at": at + 1}, "applied": True, "terminal": terminal, "reward": 0}


def reply(line: bytes, fault: str) -> dict[str, Any]:
    try:
        request = json.loads(line)
    except ValueError:
        if fault == "dies-of-bad-json":
            raise
        return {"ok": fault == "accepts-bad-json", "error": "not JSON"}
    if fault == "dies-without-op":
        request["op"]
    try:
        return {"ok": True, **answer(request, fault)}
    except Exception as error:
        return {"ok": False, "error": str(error)}


def lines_that_arrived() -> Iterator[list[bytes]]:
    """Lists of lines, all that are there at a time."""
    rest = b""
    while chunk := os.read(0, 65536):
        *lines, rest = (rest + chunk).split(b"\n")
        yield lines


def main(fault: str = "") -> None:
    if fault == "prints-a-banner":
        print("corridor, version 1")
    for lines in lines_that_arrived():
        wanted = [line for line in lines if line.strip() or fault == "answers-blank-lines"]
        many = len(wanted) > 2
        if many and fault == "forgets-what-is-ahead":
            wanted = wanted[:1]
        replies = [reply(line, fault) for line in wanted]
        if many and fault == "answers-latest-first":
            replies.reverse()
        for one in replies:
            print(json.dumps(one))
        sys.stdout.flush()
    if fault == "prints-at-the-end":
        print("goodbye")
    if fault == "stays":
        time.sleep(60)


if __name__ == "__main__":
    main(*sys.argv[1:])
