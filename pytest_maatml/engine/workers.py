"""The episodes of one rollout over several processes, each with its own environment and policy.

Knows executors of `concurrent.futures` and no more of how they reach their processes, so that one
which reaches a cluster fits as well. Each executor stands for one process: when it breaks, it is
plain which episodes it was running.
"""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, wait
from itertools import islice
from typing import TYPE_CHECKING, Final

from pytest_maatml.engine.record import EpisodeError
from pytest_maatml.errors import RolloutEnvError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from concurrent.futures import Executor, Future
    from typing import TypeAlias

    from pytest_maatml.engine.record import Episode, RolloutPlan

    Ended = Episode | EpisodeError
    #: Runs the plans that it is given, in the process that it is sent to.
    Job: TypeAlias = Callable[[list[RolloutPlan]], list[Ended]]

#: Seconds that a batch should take: long against its transport, short against what is lost.
_AIM: Final = 0.2
_LARGEST: Final = 64
#: Processes that may die one after the other, with no episode between, before we give up.
_PATIENCE: Final = 3


def spread(
    plans: Iterable[RolloutPlan],
    *,
    executors: int,
    make_executor: Callable[[], Executor],
    job: Job,
    dismiss: Callable[[Executor], None] = lambda executor: executor.shutdown(wait=False),
) -> Generator[Ended]:
    """Each episode or error as its batch comes back, from `executors` executors.

    `make_executor` makes one executor with one process, `job` runs there, `dismiss` lets go of an
    executor, broken or not. A process that dies costs the episode that it was running, which
    becomes an error; the others of its batch run again, and the process is replaced.
    """
    spread_ = _Spread(plans, make_executor, job, dismiss)
    try:
        yield from spread_.run(executors)
    finally:
        spread_.dismiss_all()


class _Spread:
    def __init__(
        self,
        plans: Iterable[RolloutPlan],
        make_executor: Callable[[], Executor],
        job: Job,
        dismiss: Callable[[Executor], None],
    ) -> None:
        self._plans = iter(plans)
        self._make, self._job, self._dismiss = make_executor, job, dismiss
        self._suspects: deque[RolloutPlan] = deque()
        self._size = 1
        self._deaths = 0
        self._busy: dict[Future[list[Ended]], tuple[Executor, list[RolloutPlan], float]] = {}

    def run(self, executors: int) -> Generator[Ended]:
        for _ in range(executors):
            batch = self._next_batch()
            if batch:
                self._submit(self._make(), batch)
        while self._busy:
            done, _ = wait(self._busy, return_when=FIRST_COMPLETED)
            for future in done:
                # Whoever has enough may close us at any yield: what is busy is dismissed then.
                executor, batch, started = self._busy[future]
                try:
                    ended = future.result()
                except BrokenExecutor as death:
                    del self._busy[future]
                    yield from self._mourn(executor, batch, death)
                else:
                    self._deaths = 0
                    self._fit(len(batch), time.perf_counter() - started)
                    yield from ended
                    del self._busy[future]
                    self._go_on(executor)

    def dismiss_all(self) -> None:
        for executor, _, _ in self._busy.values():
            self._dismiss(executor)
        self._busy.clear()

    def _next_batch(self) -> list[RolloutPlan]:
        """Those that may have killed a process run alone."""
        if self._suspects:
            return [self._suspects.popleft()]
        return list(islice(self._plans, self._size))

    def _submit(self, executor: Executor, batch: list[RolloutPlan]) -> None:
        try:
            future = executor.submit(self._job, batch)
        except BrokenExecutor:  # it died while it had nothing to do, which costs no episode
            self._dismiss(executor)
            executor = self._make()
            future = executor.submit(self._job, batch)
        self._busy[future] = (executor, batch, time.perf_counter())

    def _go_on(self, executor: Executor) -> None:
        batch = self._next_batch()
        if batch:
            self._submit(executor, batch)
        else:
            self._dismiss(executor)

    def _fit(self, size: int, seconds: float) -> None:
        per_episode = max(seconds / size, 1e-6)
        self._size = max(1, min(_LARGEST, 2 * self._size, int(_AIM / per_episode)))

    def _mourn(
        self, executor: Executor, batch: list[RolloutPlan], death: BrokenExecutor
    ) -> Generator[Ended]:
        self._dismiss(executor)
        self._deaths += 1
        if len(batch) > 1:
            self._suspects.extend(batch)
        else:
            yield _lost(batch[0], death)
        if self._deaths < _PATIENCE or len(batch) > 1:
            self._go_on(self._make())
            return
        for plan in (*self._suspects, *self._plans):
            yield _lost(plan, death)
        self._suspects.clear()


def _lost(plan: RolloutPlan, death: BrokenExecutor) -> EpisodeError:
    fault = RolloutEnvError(f"the worker process died while it ran the episode: {death}")
    fault.kind = "exited"
    return EpisodeError.of(plan, fault, seed=0)
