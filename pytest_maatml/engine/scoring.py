"""Asking the policy: for one episode, or for all that wait at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_maatml.engine.policy import row_of
from pytest_maatml.errors import PolicyError, describe

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_maatml.engine.policy import Policy
    from pytest_maatml.engine.protocol import JSONObject
    from pytest_maatml.engine.record import RolloutPlan
    from pytest_maatml.engine.requests import Score

    #: Scores the candidates in view of the observation. Raises PolicyError.
    Ask = Callable[[JSONObject, list[JSONObject]], Any]


class Scorer:
    """The policy as the driver sees it; what the policy raises becomes a PolicyError.

    Raises PolicyError for an object without a `score` method.
    """

    def __init__(self, policy: Policy) -> None:
        self._start_episode: Any = getattr(policy, "start_episode", None)
        self._score_batch: Any = getattr(policy, "score_batch", None)
        if self._start_episode is None:
            self._ask = _asker(policy)

    @property
    def batches(self) -> bool:
        """Whether many episodes can be scored in one call."""
        return self._start_episode is None and self._score_batch is not None

    def for_episode(self, plan: RolloutPlan) -> Ask:
        """What scores one episode. Raises PolicyError."""
        if self._start_episode is None:
            return self._ask
        try:
            policy = self._start_episode(plan.episode_id, plan.task)
        except Exception as error:
            raise PolicyError(f"the policy raised {describe(error)}", op="start_episode") from error
        return _asker(policy)

    def ask_batch(self, requests: Sequence[Score]) -> list[Any]:
        """An answer a request, in order: scores, or the PolicyError of that episode alone."""
        try:
            scored = self._score_batch(
                [request.observation for request in requests],
                [request.candidates for request in requests],
            )
            rows = [row_of(scores) for scores in scored]
        except Exception:  # `score` will raise it again, on the episode that it belongs to
            return [answer_of(self._ask, request) for request in requests]
        if len(rows) == len(requests):
            return rows
        message = f"score_batch gave {len(rows)} rows for {len(requests)} observations"
        return [PolicyError(message, op="score_batch") for _ in requests]


def answer_of(ask: Ask, request: Score) -> Any:
    """The scores, or the PolicyError in their place."""
    try:
        return ask(request.observation, request.candidates)
    except PolicyError as fault:
        return fault


def _asker(policy: Policy) -> Ask:
    score = getattr(policy, "score", None)
    if not callable(score):
        raise PolicyError(
            f"a policy needs a method score(observation, candidates) that returns one number a "
            f"candidate; {type(policy).__qualname__} has none",
            op="score",
        )

    def ask(observation: JSONObject, candidates: list[JSONObject]) -> Any:
        try:
            scores = score(observation, candidates)
            return scores if type(scores) is list else row_of(scores)
        except Exception as error:
            raise PolicyError(f"the policy raised {describe(error)}") from error

    return ask
