"""A tiny process that outlives ours just long enough to end the programs that we started.

It runs as a script, without our package and without site-packages, so that it starts in a few
milliseconds. On its standard input it is told which process groups there are (`+GROUP`) and which
have gone (`-GROUP`). End of file means that whoever started it has ended, however it ended: what
is still there then gets SIGTERM, and SIGKILL if that does not help.
"""

from __future__ import annotations

import os
import signal
import sys
import time

_PATIENCE = 1.0


def watch(told: int) -> None:
    """Follow the groups until end of file on the descriptor `told`, then end what is left."""
    groups: set[int] = set()
    with os.fdopen(told) as lines:
        for line in lines:
            change = groups.add if line[0] == "+" else groups.discard
            change(int(line[1:]))
    end_groups(groups, _PATIENCE)


def end_groups(groups: set[int], patience: float) -> None:
    """SIGTERM to each process group; SIGKILL to those that are there `patience` seconds later."""
    left = {group for group in groups if signal_group(group, signal.SIGTERM)}
    deadline = time.monotonic() + patience
    while left and time.monotonic() < deadline:
        time.sleep(0.02)
        left = {group for group in left if signal_group(group, 0)}
    for group in left:
        signal_group(group, signal.SIGKILL)


def signal_group(group: int, number: int) -> bool:
    """Whether there was a process in the group to get the signal."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


if __name__ == "__main__":
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    watch(sys.stdin.fileno())
