"""Many episodes over a pipe: matches those that wait to the answers that they wait for."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from pytest_maatml.engine.requests import Close, Restarted, Score
from pytest_maatml.errors import RolloutEnvError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from pytest_maatml.engine.episode import EpisodeGenerator
    from pytest_maatml.engine.record import Episode, EpisodeError, RolloutPlan
    from pytest_maatml.engine.requests import EnvironmentRequest, Pipe
    from pytest_maatml.engine.run import Run

#: Seconds that requests may wait for the scores of others before they are sent.
_PATIENCE: Final = 0.0002
#: Requests that are sent together at most, so that the environment works while we do.
_BATCH: Final = 8


def fly(
    run: Run, pipe: Pipe, plans: Iterable[RolloutPlan], concurrency: int
) -> Generator[Episode | EpisodeError]:
    """Up to `concurrency` episodes at a time; each, or its error, as it ends."""
    pipe.concurrency = concurrency
    flight = _Flight(run, pipe)
    upcoming = iter(plans)
    try:
        while True:
            while len(flight.slots) < concurrency and not flight.ended:
                plan = next(upcoming, None)
                if plan is None:
                    break
                flight.take(plan)
            if not flight.slots and not flight.ended:
                return
            flight.advance()
            yield from flight.landed()
    except BaseException as end:  # whoever wanted them has gone, or is in a hurry to go
        # An environment in another process might keep us waiting for its answer to a close.
        if not isinstance(end, KeyboardInterrupt):
            flight.abandon()
        raise


@dataclass(slots=True)
class _Slot:
    """An episode in flight."""

    plan: RolloutPlan
    episode: EpisodeGenerator


class _Flight:
    """The episodes in flight: each waits for the environment, or for its scores."""

    def __init__(self, run: Run, pipe: Pipe) -> None:
        self._run = run
        self._pipe = pipe
        self._outbox: list[tuple[int, EnvironmentRequest]] = []
        self._unscored: list[tuple[_Slot, Score]] = []
        self._pending = 0
        self.slots: dict[int, _Slot] = {}
        self.ended: list[Episode | EpisodeError] = []

    def take(self, plan: RolloutPlan) -> None:
        """Start the episode of `plan`, or land its error if the policy would not have it."""
        try:
            slot = _Slot(plan, self._begin(plan))
        except RolloutEnvError as fault:
            self.ended.append(self._run.error_of(plan, fault))
            return
        self.slots[plan.index] = slot
        self._move(slot, None)

    def _begin(self, plan: RolloutPlan) -> EpisodeGenerator:
        """A policy that scores many at once is asked for them; another each episode asks itself."""
        scorer = self._run.scorer
        return self._run.begin(plan, None if scorer.batches else scorer.for_episode(plan))

    def landed(self) -> list[Episode | EpisodeError]:
        ended, self.ended = self.ended, []
        return ended

    def advance(self) -> None:
        """Send what is to be sent, take in what has come, score what waits for scores."""
        self._post()
        if self._pending:
            answers = self._pipe.receive(wait=not self.ended)
            self._pending -= len(answers)
            self._move_all([(self.slots[ticket], answer) for ticket, answer in answers])
        if self._unscored:
            self._score()

    def abandon(self) -> None:
        """Close the episodes in flight: whoever wanted them has gone."""
        self._settle()
        self._outbox = [(ticket, Close(s.plan.episode_id)) for ticket, s in self.slots.items()]
        self._post()
        self._settle()
        self.slots.clear()

    def _settle(self) -> None:
        """Wait for what is under way; an interrupt may have left requests that are not."""
        while self._pending and (answers := self._pipe.receive(wait=True)):
            self._pending -= len(answers)
        self._pending = 0

    def _post(self) -> None:
        if self._outbox:
            batch, self._outbox = self._outbox, []
            self._pending += len(batch)
            self._pipe.send(batch)

    def _score(self) -> None:
        unscored, self._unscored = self._unscored, []
        answers = self._run.scorer.ask_batch([request for _, request in unscored])
        self._move_all(zip([slot for slot, _ in unscored], answers, strict=True))

    def _move_all(self, answers: Iterable[tuple[_Slot, Any]]) -> None:
        """Move the episodes on, and let no request wait long for the others."""
        posted = perf_counter()
        for slot, answer in answers:
            self._move(slot, answer)
            if len(self._outbox) >= _BATCH or perf_counter() - posted > _PATIENCE:
                self._post()
                posted = perf_counter()

    def _move(self, slot: _Slot, answer: Any) -> None:
        """Hand `answer` to the episode and put its next request where it belongs."""
        try:
            if isinstance(answer, Exception):
                request = self._disturb(slot, answer)
            else:
                request = slot.episode.send(answer)
        except StopIteration as end:
            self._land(slot, end.value)
        except RolloutEnvError as fault:
            self._land(slot, self._run.error_of(slot.plan, fault))
        else:
            if type(request) is Score:
                self._unscored.append((slot, request))
            else:
                self._outbox.append((slot.plan.index, request))

    def _disturb(self, slot: _Slot, fault: Exception) -> Any:
        if not isinstance(fault, Restarted):
            return slot.episode.throw(fault)
        slot.episode.close()
        slot.episode = self._begin(slot.plan)
        return next(slot.episode)

    def _land(self, slot: _Slot, ended: Episode | EpisodeError) -> None:
        del self.slots[slot.plan.index]
        self.ended.append(ended)
