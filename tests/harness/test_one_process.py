"""A process answers, or it is plain that it died and how."""

from __future__ import annotations

import os
import pickle
import signal
import time
from concurrent.futures import BrokenExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_maatml.errors import MaatmlError
from pytest_maatml.harness.one_process import OneProcess, answer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection

#: Seconds that no test here needs, on a busy machine either.
PATIENCE = 60.0


def leading_a_group(pipe: Connection) -> None:
    os.setpgid(0, 0)
    answer(pipe)


def deaf(pipe: Connection) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    answer(pipe)


def dying_within_an_answer(pipe: Connection) -> None:
    pipe.recv_bytes()
    os.write(pipe.fileno(), b"\0\0\1\0abc")
    os._exit(3)


@pytest.fixture
def start() -> Iterator[Callable[[Callable[[Connection], None]], OneProcess]]:
    made: list[OneProcess] = []

    def make(main: Callable[[Connection], None] = answer) -> OneProcess:
        made.append(OneProcess(main))
        return made[-1]

    yield make
    for process in made:
        process.end(0.1)
        process.shutdown(wait=True)


class Unportable(Exception):
    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} {two}")


def refuse(one: str, two: str) -> None:
    raise Unportable(one, two)


def fork_and_die(pids: str) -> None:
    child = os.fork()
    if child == 0:
        time.sleep(10 * PATIENCE)
    Path(pids).write_text(str(child))
    os._exit(3)


def test_jobs_are_answered_in_order_by_the_same_other_process(start: Any) -> None:
    process = start()
    pids = [process.submit(os.getpid) for _ in range(3)]
    (pid,) = {future.result(PATIENCE) for future in pids}
    assert pid != os.getpid()
    assert process.submit(divmod, 7, 2).result(PATIENCE) == (3, 1)


def test_what_a_job_raises_is_raised_with_where_it_was(start: Any) -> None:
    process = start()
    failure = process.submit(int, "seven").exception(PATIENCE)
    assert type(failure) is ValueError
    assert "in answer" in "".join(failure.__notes__)
    assert process.submit(int, "7").result(PATIENCE) == 7


def test_an_error_or_a_value_that_cannot_be_sent_is_said_in_words(start: Any) -> None:
    process = start()
    with pytest.raises(MaatmlError, match="Unportable: both halves"):
        process.submit(refuse, "both", "halves").result(PATIENCE)
    with pytest.raises(Exception, match="pickle"):
        process.submit(open, os.devnull).result(PATIENCE)
    with pytest.raises((pickle.PicklingError, AttributeError)):
        process.submit(lambda: None).result(PATIENCE)
    assert process.submit(int, "7").result(PATIENCE) == 7


@pytest.mark.parametrize(
    ("job", "end"),
    [
        ((os._exit, 3), "exited with status 3"),
        ((signal.raise_signal, signal.SIGKILL), "was ended by signal SIGKILL"),
    ],
)
def test_a_process_that_ends_says_how_and_takes_no_more(
    start: Any, job: tuple[Any, ...], end: str
) -> None:
    process = start()
    lost, never = process.submit(*job), process.submit(int, "7")
    with pytest.raises(BrokenExecutor, match=end):
        lost.result(PATIENCE)
    assert isinstance(never.exception(PATIENCE), BrokenExecutor)
    with pytest.raises(BrokenExecutor, match=end):
        process.submit(int, "7")


def test_one_that_ends_within_an_answer_leaves_nobody_waiting(start: Any) -> None:
    with pytest.raises(BrokenExecutor, match="exited with status 3"):
        start(dying_within_an_answer).submit(int).result(PATIENCE)


def test_one_whose_fork_lives_on_leaves_nobody_waiting(start: Any, tmp_path: Path) -> None:
    process = start(leading_a_group)
    with pytest.raises(BrokenExecutor, match="exited with status 3"):
        process.submit(fork_and_die, str(tmp_path / "pid")).result(PATIENCE)
    process.end(PATIENCE)
    assert ends(int((tmp_path / "pid").read_text()))


def test_one_that_is_deaf_to_sigterm_is_killed(start: Any) -> None:
    process = start(deaf)
    process.submit(int).result(PATIENCE)
    hanging = process.submit(time.sleep, 10 * PATIENCE)
    process.end(0.1)
    with pytest.raises(BrokenExecutor, match="SIGKILL"):
        hanging.result(PATIENCE)


def ends(pid: int) -> bool:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False
