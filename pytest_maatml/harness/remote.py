"""A worker process: its own environment and policy, for the episodes that it is sent."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Final

from pytest_maatml.engine.guard import signal_group
from pytest_maatml.engine.workers import spread
from pytest_maatml.errors import ConfigurationError, MaatmlError, describe
from pytest_maatml.harness.isolation import import_for, importable_module
from pytest_maatml.harness.one_process import OneProcess, answer

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable
    from concurrent.futures import Executor
    from multiprocessing.connection import Connection

    from pytest_maatml.engine.record import Episode, EpisodeError, RolloutPlan
    from pytest_maatml.harness.rig import Stage
    from pytest_maatml.harness.spec import RolloutSpec

_stage: Stage | None = None
#: Why there is no stage.
_failure: MaatmlError | None = None
#: Seconds that a worker has to end by itself.
_GRACE: Final = 10.0


def run_in_workers(
    spec: RolloutSpec, plans: Iterable[RolloutPlan]
) -> Generator[Episode | EpisodeError]:
    """The episodes of `plans` from `spec.workers` processes.

    Raises ConfigurationError for a policy or an environment that another process cannot make.
    """
    module = importable_module(spec, option="--maatml-workers")
    try:
        pickle.dumps(spec)
    except Exception as error:
        raise ConfigurationError(
            f"--maatml-workers: another process cannot be given this policy or environment "
            f"({error}); name them as MODULE:ATTR, or register them in a module"
        ) from None

    def make_executor() -> Executor:
        return OneProcess(_work, spec, module, list(sys.path))

    return spread(
        plans,
        executors=spec.workers,
        make_executor=make_executor,
        job=_run,
        dismiss=_dismiss,
    )


def _dismiss(executor: Executor) -> None:
    assert isinstance(executor, OneProcess)
    executor.shutdown(wait=False, cancel_futures=True)
    executor.end(_GRACE)


def _work(pipe: Connection, spec: RolloutSpec, module: str | None, path: list[str]) -> None:
    _initialise(spec, module, path)
    answer(pipe)
    _leave(0)


def _initialise(spec: RolloutSpec, module: str | None, path: list[str]) -> None:
    os.setpgid(0, 0)
    # An interrupt is the parent's to handle, and it ends us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: _leave(0))
    threading.Thread(target=_follow_parent, daemon=True).start()
    sys.path[:] = path
    from pytest_maatml.harness.rig import Stage, open_environment

    global _stage, _failure
    try:
        import_for(spec, module)
        _stage = Stage(spec, open_environment(spec, warn=_warn))
    except MaatmlError as error:  # raised here it would read as the death of the process
        _failure = error


def _warn(message: str) -> None:
    print(f"maatml: {message}", file=sys.stderr)


def _follow_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    _leave(1)


def _leave(status: int) -> None:
    if _stage is not None:
        _stage.carrier.shutdown()
    signal_group(os.getpid(), signal.SIGKILL)  # ourselves, and what was forked here
    os._exit(status)


def _run(plans: list[RolloutPlan]) -> list[Episode | EpisodeError]:
    if _failure is not None:
        raise _failure
    assert _stage is not None
    try:
        return list(_stage.run(plans))
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:  # which may be of a class that cannot be sent
        raise MaatmlError(
            f"in a worker process the policy or the environment raised {describe(error)}: that "
            f"ends the run and decides nothing; raise an ordinary exception in its place"
        ) from None
