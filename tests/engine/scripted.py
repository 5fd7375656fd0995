"""Environments and policies that do as a test tells them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, TypeAlias

from pytest_maatml.rollout import (
    Episode,
    EpisodeError,
    Hello,
    InProcess,
    Labels,
    RolloutConfig,
    StepResult,
    Verification,
    drive,
    plan_episode,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    #: What an environment answers, for an episode and the number of steps that it has taken.
    Answer: TypeAlias = Callable[[str, int], Any]

NAN = float("nan")
SECOND = "rollout-r0-000001"


class Scripted:
    """Ends after `length` steps with success; an answer given by name replaces its own."""

    def __init__(self, *, length: int = 2, **answers: Answer) -> None:
        self.length = length
        self.answers = answers
        self.calls: list[tuple[str, str]] = []
        self.steps: Counter[str] = Counter()
        self.chosen: list[str] = []

    def _answer(self, op: str, episode: str, default: Any) -> Any:
        self.calls.append((op, episode))
        answer = self.answers.get(op)
        return default if answer is None else answer(episode, self.steps[episode])

    def hello(self) -> Hello:
        hello: Hello = self._answer("hello", "", Hello("scripted", "7", capabilities=("label",)))
        return hello

    def tasks(self, query: dict[str, Any]) -> Any:
        return self._answer("tasks", "", [])

    def reset(self, episode: str, task: dict[str, Any], options: dict[str, Any]) -> Any:
        self.steps[episode] = 0
        return self._answer("reset", episode, {"at": 0})

    def candidates(self, episode: str) -> Any:
        return self._answer("candidates", episode, [{"id": "a"}, {"id": "b"}])

    def label(self, episode: str) -> Any:
        return self._answer("label", episode, Labels(("b",)))

    def step(self, episode: str, candidate_id: str) -> Any:
        self.chosen.append(candidate_id)
        self.steps[episode] += 1
        at = self.steps[episode]
        terminal = "success" if at >= self.length else None
        return self._answer("step", episode, StepResult({"at": at}, True, terminal, 0.5))

    def verify(self, episode: str) -> Any:
        return self._answer("verify", episode, Verification(True, "success", 1.0, {"n": 1}))

    def close(self, episode: str) -> None:
        self._answer("close", episode, None)

    def count(self, op: str, episode: str = SECOND) -> int:
        return self.calls.count((op, episode))


class Fixed:
    """Gives the same scores whatever it sees; by default the first candidate is the best."""

    def __init__(self, scores: Any = None) -> None:
        self.scores = scores

    def score(
        self, observation: dict[str, Any], candidates: Sequence[dict[str, Any]]
    ) -> Sequence[float]:
        if self.scores is not None:
            fixed: Sequence[float] = self.scores
            return fixed
        return [-float(place) for place in range(len(candidates))]


def raising(error: BaseException) -> Answer:
    def answer(episode: str, step: int) -> Any:
        raise error

    return answer


def run(
    environment: Any,
    policy: Any = None,
    tasks: int | list[Any] = 1,
    *,
    concurrency: int | None = None,
    **config: Any,
) -> list[Episode | EpisodeError]:
    """What a drive yields, in index order."""
    configured = RolloutConfig(**config)
    listed = (
        [{"id": f"t{n}", "family": "f"} for n in range(tasks)] if isinstance(tasks, int) else tasks
    )
    plans = [plan_episode(task, index, configured) for index, task in enumerate(listed)]
    ended = drive(
        InProcess(environment),
        Fixed() if policy is None else policy,
        plans,
        config=configured,
        concurrency=concurrency,
    )
    return sorted(ended, key=lambda result: result.index)


def episode_of(result: Episode | EpisodeError) -> dict[str, Any]:
    """The record of an episode that ran; an error fails the test with its message."""
    assert isinstance(result, Episode), result
    return result.as_dict()


def lines(results: list[Episode | EpisodeError]) -> list[bytes]:
    return [result.line for result in results if isinstance(result, Episode)]


def only_second_failed(results: list[Episode | EpisodeError]) -> EpisodeError:
    """The error of the second of three episodes; the others are whole."""
    assert [type(result) for result in results] == [Episode, EpisodeError, Episode]
    error = results[1]
    assert isinstance(error, EpisodeError)
    assert error.episode_id == SECOND
    return error
