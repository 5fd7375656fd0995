"""A counting game as a program, in a few lines of plain Python, with one bad habit.

usage: program.py HABIT [TASK ...]: the habit shows when a step is asked for in an episode of one
of these tasks, or at every request where no task is named. A step counts up; three steps are
success, and each task may ask for another number with `steps`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

HABIT, POISONED = sys.argv[1], set(sys.argv[2:])
POINT = "close" if HABIT == "dies-in-close" else "step"
#: What follows a reply.
AFTERTHOUGHTS = {"twice": "{}\n", "debug-line-after": "DEBUG: stepped\n"}
counts: dict[str, list[int]] = {}
tasks: dict[str, str] = {}


def write(raw: str | bytes) -> None:
    data = raw.encode() if isinstance(raw, str) else raw
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def answer(request: dict[str, Any]) -> dict[str, Any]:
    op, episode = request["op"], request.get("episode", "")
    if op == "hello":
        return {
            "protocol": "maatml.rollout_env/1",
            "name": "counting",
            "version": "1",
            "capabilities": ["label"],
        }
    if op == "reset":
        counts[episode] = [0, request["task"].get("steps", 3)]
        tasks[episode] = request["task"]["id"]
        return {"observation": {"count": 0}}
    count, wanted = counts[episode]
    if op == "candidates":
        return {"candidates": [{"id": "up"}, {"id": "down"}]}
    if op == "label":
        return {"valid_ids": ["up"]}
    if op == "step":
        counts[episode][0] += 1
        terminal = "done" if count + 1 == wanted else None
        return {"observation": {"count": count + 1}, "applied": True, "terminal": terminal}
    if op == "verify":
        return {"success": count >= wanted, "status": "done", "detail": {"count": count}}
    del counts[episode]
    return {}


def misbehave() -> None:
    """What the habit does in place of a reply, or before it."""
    if HABIT == "hang":
        time.sleep(60)
    elif HABIT == "slow":
        time.sleep(0.05)
    elif HABIT == "dies-in-close":
        os._exit(1)
    elif HABIT == "exit":
        print("about to give up", file=sys.stderr)
        sys.exit(3)
    elif HABIT == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif HABIT == "close-output":
        os.close(1)
        time.sleep(60)
    elif HABIT == "not-an-object":
        write("[1, 2]\n")
    elif HABIT == "no-ok":
        write('{"observation": {"count": 1}}\n')
    elif HABIT == "lacks-a-field":
        write('{"ok": true, "applied": true}\n')
    elif HABIT == "debug-line":
        write("DEBUG: stepping, and saying so at length " + "x" * 300 + "\n")
    elif HABIT == "half-a-line":
        write('{"ok": true, "obser')
        sys.exit(0)
    elif HABIT == "half-a-line-and-hang":
        write('{"ok": true, "obser')
        time.sleep(60)
    elif HABIT == "not-utf8":
        write(b'{"ok": true, "observation": {"text": "\xff\xfe"}, "applied": true}\n')
    elif HABIT == "child-keeps-output":
        subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
        sys.exit(4)
    elif HABIT == "ignores-everything":
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        while True:
            time.sleep(60)
    elif HABIT == "stderr-flood":
        sys.stderr.write(("noise " * 20 + "\n") * 20_000)


def refuse(error: str) -> None:
    write(json.dumps({"ok": False, "error": error}) + "\n")


def reply_to(request: dict[str, Any]) -> None:
    task = tasks.get(request.get("episode", ""), "")
    poisoned = not POISONED or (request["op"] == POINT and task in POISONED)
    if poisoned and HABIT == "refuse":
        refuse("no such move")
        return
    if poisoned:
        misbehave()
    try:
        reply = {"ok": True, **answer(request)}
    except KeyError as error:
        refuse(f"KeyError: {error}")
        return
    if poisoned and HABIT == "huge":
        reply["observation"]["pad"] = "x" * 5_000_000
    line = json.dumps(reply)
    if HABIT == "crlf-and-blanks":
        line = f"\r\n \n{line}\r"
    write(line + "\n" + (AFTERTHOUGHTS.get(HABIT, "").format(line) if poisoned else ""))


if __name__ == "__main__":
    if HABIT == "banner":
        write("Welcome to counting 1.0\n")
    for text in sys.stdin:
        reply_to(json.loads(text))
