"""The episodes of one rollout: begun alike, and in process driven from request to request."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_maatml.engine.candidates import CandidateReader
from pytest_maatml.engine.encoding import duplicate
from pytest_maatml.engine.episode import run_episode
from pytest_maatml.engine.record import Episode, EpisodeError
from pytest_maatml.engine.requests import Close, Score
from pytest_maatml.engine.scoring import answer_of
from pytest_maatml.errors import PolicyError, RolloutEnvError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping

    from pytest_maatml.engine.config import RolloutConfig
    from pytest_maatml.engine.episode import EpisodeGenerator
    from pytest_maatml.engine.in_process import InProcess
    from pytest_maatml.engine.record import Provenance, RolloutPlan
    from pytest_maatml.engine.requests import Request
    from pytest_maatml.engine.scoring import Ask, Scorer

    Handlers = Mapping[type, Callable[[Any], Any]]


class Run:
    """What the episodes of one rollout share."""

    def __init__(self, scorer: Scorer, config: RolloutConfig, provenance: Provenance) -> None:
        self.scorer = scorer
        self._config = config
        self._provenance = provenance
        self._reader = CandidateReader()

    def begin(self, plan: RolloutPlan, ask: Ask | None) -> EpisodeGenerator:
        return run_episode(plan, self._config, self._provenance, self._reader, ask)

    def error_of(self, plan: RolloutPlan, fault: RolloutEnvError) -> EpisodeError:
        return EpisodeError.of(plan, fault, seed=self._config.seed)

    def one_by_one(
        self, carrier: InProcess, plans: Iterable[RolloutPlan]
    ) -> Generator[Episode | EpisodeError]:
        """The episodes one at a time; a fault becomes the error of its episode."""
        for plan in plans:
            try:
                yield self.alone(carrier, plan)
            except RolloutEnvError as fault:
                yield self.error_of(plan, fault)

    def alone(self, carrier: InProcess, plan: RolloutPlan) -> Episode:
        """One episode from beginning to end. Raises RolloutEnvError if it fails."""
        episode = self.begin(plan, self.scorer.for_episode(plan))
        try:
            return _to_the_end(episode, carrier.handlers)
        except RolloutEnvError:
            raise
        except BaseException:  # an interrupt, which the episode does not get to see
            carrier.handlers[Close](Close(plan.episode_id))
            raise

    def together(
        self, carrier: InProcess, plans: Iterable[RolloutPlan], concurrency: int
    ) -> Generator[Episode | EpisodeError]:
        """Up to `concurrency` episodes in turns, with the scores of all of them in one call.

        A fault becomes the error of its episode. One that has ended makes room for the next.
        """
        upcoming = iter(plans)
        seats: dict[int, _Seat] = {}
        try:
            while True:
                while len(seats) < concurrency:
                    plan = next(upcoming, None)
                    if plan is None:
                        break
                    ended = self._seat(plan, seats, carrier.handlers)
                    if ended is not None:
                        yield ended
                if not seats:
                    return
                turn = list(seats.values())
                for seat, answer in zip(turn, self._scores(turn), strict=True):
                    ended = self._go_on(seat, answer, carrier.handlers)
                    if ended is not None:
                        del seats[seat.plan.index]
                        yield ended
        except BaseException:  # whoever wanted them has gone, or is in a hurry to go
            for plan in [seat.plan for seat in seats.values()]:
                carrier.handlers[Close](Close(plan.episode_id))
            raise

    def _seat(
        self, plan: RolloutPlan, seats: dict[int, _Seat], handlers: Handlers
    ) -> Episode | EpisodeError | None:
        """Begin the episode of `plan`; what it has become, if it has ended already."""
        try:
            ask = self.scorer.for_episode(plan)
        except PolicyError as fault:
            return self.error_of(plan, fault)
        seat = seats[plan.index] = _Seat(plan, self.begin(plan, None), ask)
        ended = self._go_on(seat, None, handlers)
        if ended is not None:
            del seats[plan.index]
        return ended

    def _scores(self, turn: list[_Seat]) -> list[Any]:
        if self.scorer.batches:
            return self.scorer.ask_batch([seat.request for seat in turn])
        return [answer_of(seat.ask, seat.request) for seat in turn]

    def _go_on(self, seat: _Seat, answer: Any, handlers: Handlers) -> Episode | EpisodeError | None:
        """Take the episode to its next scores; what it has become, if it has ended.

        What is to be scored is copied: another's turn may change the environment's own objects.
        """
        try:
            if isinstance(answer, PolicyError):
                request = seat.episode.throw(answer)
            else:
                request = seat.episode.send(answer)
            asked = _until_scores(seat.episode, handlers, request)
            seat.request = Score(duplicate(asked.observation), duplicate(asked.candidates))
        except StopIteration as end:
            finished: Episode = end.value
            return finished
        except RolloutEnvError as fault:
            return self.error_of(seat.plan, fault)
        return None


@dataclass(slots=True)
class _Seat:
    """An episode that takes turns with others, and the scores that it waits for."""

    plan: RolloutPlan
    episode: EpisodeGenerator
    ask: Ask
    request: Score = field(init=False)


def _to_the_end(episode: EpisodeGenerator, handlers: Handlers) -> Episode:
    """All of an episode that has its policy. Raises RolloutEnvError if it fails."""
    request = next(episode)
    try:
        while True:
            try:
                answer = handlers[type(request)](request)
            except RolloutEnvError as fault:
                request = episode.throw(fault)
            else:
                request = episode.send(answer)
    except StopIteration as end:
        finished: Episode = end.value
        return finished


def _until_scores(episode: EpisodeGenerator, handlers: Handlers, request: Request) -> Score:
    """Answer `request` and those that follow, up to the next for scores.

    Raises StopIteration with the Episode once it has ended, RolloutEnvError once it has failed.
    """
    while not isinstance(request, Score):
        try:
            answer = handlers[type(request)](request)
        except RolloutEnvError as fault:
            request = episode.throw(fault)
        else:
            request = episode.send(answer)
    return request
