"""An executor of one process, made of no more than what multiprocessing documents.

The pool of `concurrent.futures` neither names its process, so that nobody could end what hangs
in it, nor notices the death of one that ends within a result.
"""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import threading
import traceback
from concurrent.futures import BrokenExecutor, Executor, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from pytest_maatml.engine.child import describe_end
from pytest_maatml.engine.guard import signal_group
from pytest_maatml.errors import MaatmlError, describe

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    from multiprocessing.connection import Connection

#: Seconds between two looks at whether the process lives: what it forked may hold its pipe open.
_LOOK: Final = 1.0


class OneProcess(Executor):
    """Runs one job after the other in a new process, which calls `main(pipe, *arguments)`.

    `main` is to call `answer(pipe)`. A job whose process ends gets a BrokenExecutor.
    """

    def __init__(self, main: Callable[..., None], *arguments: object) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=main, args=(theirs, *arguments))
        self._thread = ThreadPoolExecutor(max_workers=1)
        # Were our copy open, a process that ends within a result would leave us waiting.
        with theirs:
            self._process.start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """What `fn` returns or raises there. Raises BrokenExecutor where the process has ended."""
        if not self._process.is_alive():
            raise BrokenExecutor(self._end())
        return self._thread.submit(self._ask, (fn, args, kwargs))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._thread.shutdown(wait=wait, cancel_futures=cancel_futures)

    def end(self, grace: float) -> None:
        """SIGTERM to the process, and SIGKILL if it is still there `grace` seconds later.

        Where it leads a process group, SIGTERM goes to all of that.
        """
        pid = self._process.pid
        if pid is None or not signal_group(pid, signal.SIGTERM):
            self._process.terminate()
        threading.Thread(target=self._bury, args=(grace,), daemon=True).start()

    def _bury(self, grace: float) -> None:
        self._process.join(grace)
        # One that is stuck in code of no Python would keep us from ending.
        self._process.kill()

    def _ask(self, job: object) -> Any:
        sent = pickle.dumps(job)
        try:
            self._pipe.send_bytes(sent)
            while not self._pipe.poll(_LOOK):
                if not self._process.is_alive() and not self._pipe.poll():
                    raise EOFError
            received = self._pipe.recv_bytes()
        except (EOFError, OSError):
            raise BrokenExecutor(self._end()) from None
        worked, value = pickle.loads(received)
        if not worked:
            raise value
        return value

    def _end(self) -> str:
        self._process.join(_LOOK)
        return f"it {describe_end(self._process.exitcode) or 'closed its pipe'}"


def answer(pipe: Connection) -> None:
    """In the process: do the jobs that come until nobody is there to send more."""
    try:
        while True:
            fn, args, kwargs = pickle.loads(pipe.recv_bytes())
            try:
                reply = pickle.dumps((True, fn(*args, **kwargs)))
            except BaseException as error:
                reply = pickle.dumps((False, _portable(error)))
            pipe.send_bytes(reply)
    except (EOFError, OSError):
        pass


def _portable(error: BaseException) -> BaseException:
    """The error as it can be sent; where it is not ours, it says where it was raised."""
    if not isinstance(error, MaatmlError):
        error.add_note(f"in a worker process:\n{''.join(traceback.format_exception(error))}")
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return MaatmlError(f"in a worker process: {describe(error)}")
    return error
