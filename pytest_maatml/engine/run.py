"""Moves episode generators on: matches those that wait to the answers that they wait for."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from pytest_maatml.engine.candidates import CandidateReader
from pytest_maatml.engine.episode import run_episode
from pytest_maatml.engine.in_process import InProcess
from pytest_maatml.engine.record import Episode, EpisodeError
from pytest_maatml.engine.requests import Close, Restarted, Score
from pytest_maatml.errors import PolicyError, RolloutEnvError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

    from pytest_maatml.engine.config import RolloutConfig
    from pytest_maatml.engine.episode import EpisodeGenerator
    from pytest_maatml.engine.record import Provenance, RolloutPlan
    from pytest_maatml.engine.requests import Carrier, EnvironmentRequest
    from pytest_maatml.engine.scoring import Ask, Scorer

#: Seconds that requests may wait for the scores of others before they are sent.
_PATIENCE: Final = 0.0002
#: Requests that are sent together at most, so that the environment works while we do.
_BATCH: Final = 8


#: An environment in another process might keep us waiting for its answer to a close.
_HASTY: Final = (KeyboardInterrupt, SystemExit)


class Run:
    """What the episodes of one rollout share."""

    def __init__(self, scorer: Scorer, config: RolloutConfig, provenance: Provenance) -> None:
        self.scorer = scorer
        self._config = config
        self._provenance = provenance
        self._reader = CandidateReader()

    def begin(self, plan: RolloutPlan) -> EpisodeGenerator:
        return run_episode(plan, self._config, self._provenance, self._reader)

    def error_of(self, plan: RolloutPlan, fault: RolloutEnvError) -> EpisodeError:
        return EpisodeError.of(plan, fault, seed=self._config.seed)

    def all_or_raise(self, carrier: InProcess, plans: Iterable[RolloutPlan]) -> Iterator[Episode]:
        """The episodes one at a time; the first fault is raised."""
        return (self._alone(carrier, plan) for plan in plans)

    def one_by_one(
        self, carrier: InProcess, plans: Iterable[RolloutPlan]
    ) -> Generator[Episode | EpisodeError]:
        """The episodes one at a time; a fault becomes the error of its episode."""
        for plan in plans:
            try:
                yield self._alone(carrier, plan)
            except RolloutEnvError as fault:
                yield self.error_of(plan, fault)

    def _alone(self, carrier: InProcess, plan: RolloutPlan) -> Episode:
        handlers = {**carrier.handlers, Score: self.scorer.for_episode(plan)}
        try:
            return _run_alone(self.begin(plan), handlers)
        except Exception:
            raise
        except BaseException:  # an interrupt, which the episode does not get to see
            carrier.handlers[Close](Close(plan.episode_id))
            raise

    def interleaved(
        self, carrier: Carrier, plans: Iterable[RolloutPlan], concurrency: int
    ) -> Generator[Episode | EpisodeError]:
        """Up to `concurrency` episodes at a time; each as it ends."""
        carrier.concurrency = concurrency
        flight = _Flight(self, carrier)
        upcoming = iter(plans)
        try:
            while True:
                while len(flight.slots) < concurrency:
                    plan = next(upcoming, None)
                    if plan is None:
                        break
                    flight.take(plan)
                if not flight.slots and not flight.ended:
                    return
                flight.advance()
                yield from flight.landed()
        except BaseException as end:  # whoever wanted them has gone, or is in a hurry to go
            if isinstance(carrier, InProcess) or not isinstance(end, _HASTY):
                flight.abandon()
            raise


def _run_alone(episode: EpisodeGenerator, handlers: Mapping[type, Callable[[Any], Any]]) -> Episode:
    request = next(episode)
    try:
        while True:
            try:
                answer = handlers[request.__class__](request)
            except RolloutEnvError as fault:
                request = episode.throw(fault)
            else:
                request = episode.send(answer)
    except StopIteration as end:
        finished: Episode = end.value
        return finished


@dataclass(slots=True)
class _Slot:
    """An episode in flight."""

    plan: RolloutPlan
    episode: EpisodeGenerator
    ask: Ask


def _scored(slot: _Slot, request: Score) -> Any:
    """What the episode asks once it has its scores, or the fault in their place."""
    try:
        scores = slot.ask(request)
    except PolicyError as fault:
        return slot.episode.throw(fault)
    return slot.episode.send(scores)


class _Flight:
    """The episodes in flight: each waits for the environment, or for its scores."""

    def __init__(self, run: Run, carrier: Carrier) -> None:
        self._run = run
        self._carrier = carrier
        self._batches = run.scorer.batches
        self._outbox: list[tuple[int, EnvironmentRequest]] = []
        self._unscored: list[tuple[_Slot, Score]] = []
        self._pending = 0
        self.slots: dict[int, _Slot] = {}
        self.ended: list[Episode | EpisodeError] = []

    def take(self, plan: RolloutPlan) -> None:
        """Start the episode of `plan`, or land its error if the policy would not have it."""
        try:
            ask = self._run.scorer.for_episode(plan)
        except RolloutEnvError as fault:
            self.ended.append(self._run.error_of(plan, fault))
            return
        slot = _Slot(plan, self._run.begin(plan), ask)
        self.slots[plan.index] = slot
        self._move(slot, None)

    def landed(self) -> list[Episode | EpisodeError]:
        ended, self.ended = self.ended, []
        return ended

    def advance(self) -> None:
        """Send what is to be sent, take in what has come, score what waits for scores."""
        self._post()
        if self._pending:
            answers = self._carrier.receive(wait=not self.ended)
            self._pending -= len(answers)
            self._move_all((self.slots[ticket], answer) for ticket, answer in answers)
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
        while self._pending and (answers := self._carrier.receive(wait=True)):
            self._pending -= len(answers)
        self._pending = 0

    def _post(self) -> None:
        if self._outbox:
            batch, self._outbox = self._outbox, []
            self._pending += len(batch)
            self._carrier.send(batch)

    def _score(self) -> None:
        unscored, self._unscored = self._unscored, []
        slots = [slot for slot, _ in unscored]
        answers = self._run.scorer.ask_all(
            [slot.ask for slot in slots], [request for _, request in unscored]
        )
        self._move_all(zip(slots, answers, strict=True))

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
            if request.__class__ is Score:
                if self._batches:
                    self._unscored.append((slot, request))
                    return
                request = _scored(slot, request)
        except StopIteration as end:
            self._land(slot, end.value)
        except RolloutEnvError as fault:
            self._land(slot, self._run.error_of(slot.plan, fault))
        else:
            self._outbox.append((slot.plan.index, request))

    def _disturb(self, slot: _Slot, fault: Exception) -> Any:
        if not isinstance(fault, Restarted):
            return slot.episode.throw(fault)
        slot.episode.close()
        slot.episode = self._run.begin(slot.plan)
        slot.ask = self._run.scorer.for_episode(slot.plan)
        return next(slot.episode)

    def _land(self, slot: _Slot, ended: Episode | EpisodeError) -> None:
        del self.slots[slot.plan.index]
        self.ended.append(ended)
