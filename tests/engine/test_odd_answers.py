"""Answers of an environment or a policy that Python allows and a pipe would not carry so."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pytest

from pytest_maatml.rollout import EpisodeError, Labels
from tests.engine.scripted import Scripted, episode_of, run

if TYPE_CHECKING:
    from collections.abc import Callable


class Id(int, enum.Enum):
    ONE = 1


class Name(str, enum.Enum):  # noqa: UP042 - a StrEnum is its value in str() too
    FAR = "far"


def test_enums_are_recorded_by_their_values_as_over_a_pipe() -> None:
    tasks = [{"id": Id.ONE, "family": Name.FAR}]
    world = Scripted(
        candidates=lambda *_: [{"id": Id.ONE}],
        label=lambda _, steps: Labels(None, Name.FAR) if steps else Labels(cast("Any", (Id.ONE,))),
    )
    (result,) = run(world, tasks=tasks, label=True)
    record = episode_of(result)
    assert (record["task_id"], record["task_family"]) == ("1", "far")
    assert record["decisions"][0]["chosen"] == "1"
    assert record["decisions"][0]["teacher_valid"] == ["1"]
    assert record["outcome"]["truncated"] == "unlabelled:far"


class Lazy:
    """Gives a row that is computed as it is read."""

    def __init__(self, row: Callable[[Any], Any]) -> None:
        self.row = row

    def score(self, observation: Any, candidates: Any) -> Any:
        return (self.row(candidate) for candidate in candidates)

    def score_batch(self, observations: Any, candidates: Any) -> Any:
        return (self.score(o, c) for o, c in zip(observations, candidates, strict=True))


@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_row_may_be_lazy_and_what_it_raises_is_the_policys(concurrency: int) -> None:
    ranks = {"a": 0.5, "b": 1.5}
    world = Scripted()
    results = run(world, Lazy(lambda c: ranks[c["id"]]), 2, concurrency=concurrency)
    assert [episode_of(r)["decisions"][0]["chosen"] for r in results] == ["b", "b"]
    for error in (ZeroDivisionError("by nought"), TypeError("no such sum")):

        def fail(candidate: Any, error: Exception = error) -> Any:
            raise error

        world = Scripted()
        for failed in run(world, Lazy(fail), 2, concurrency=concurrency):
            assert isinstance(failed, EpisodeError)
            assert (failed.kind, failed.decision) == ("policy", 0)
            assert f"the policy raised {type(error).__name__}: {error}" in failed.message
        assert world.count("close") == 1


class Sour:
    """A result that cannot be read."""

    observation: ClassVar[dict[str, Any]] = {}
    applied = True
    terminal = None

    @property
    def reward(self) -> float:
        raise ValueError("no reward yet")


def test_a_result_that_raises_when_it_is_read_is_the_environments_error() -> None:
    (failed,) = run(Scripted(step=lambda *_: Sour()))
    assert isinstance(failed, EpisodeError)
    assert (failed.op, failed.kind) == ("step", "environment")
    assert "ValueError: no reward yet" in failed.message


def test_each_reset_gets_options_of_its_own() -> None:
    seen = []

    class Greedy(Scripted):
        def reset(self, episode: str, task: Any, options: dict[str, Any]) -> Any:
            options["nested"]["x"] += 1
            seen.append(options["nested"]["x"])
            return super().reset(episode, task, options)

    run(Greedy(), tasks=3, options={"nested": {"x": 0}})
    assert seen == [1, 1, 1]
