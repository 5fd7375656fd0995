"""Counts per family and overall, from rows alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_maatml.gates.intervals import wilson

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from pytest_maatml.engine.protocol import JSONObject


class Tally:
    """Counts episodes one at a time and keeps none of them."""

    def __init__(self) -> None:
        self.truncated = 0
        self.decisions = 0
        #: decisions for which the teacher had a label
        self.labelled = 0
        # Of these, the ones for which the policy's own choice is known, and those it got right.
        self._compared = 0
        self._agreed = 0
        # Episodes and successes of each family.
        self._families: dict[str, list[int]] = {}

    @property
    def episodes(self) -> int:
        return sum(episodes for episodes, _ in self._families.values())

    @property
    def families(self) -> Collection[str]:
        return self._families.keys()

    @property
    def success(self) -> int:
        return sum(success for _, success in self._families.values())

    def add(self, episode: Mapping[str, Any]) -> None:
        """Count one record of `maatml.rollout_episode/1`."""
        outcome = episode["outcome"]
        family = self._families.setdefault(episode["task_family"], [0, 0])
        family[0] += 1
        family[1] += bool(outcome["success"])
        self.truncated += bool(outcome["truncated"])
        self.decisions += len(episode["decisions"])
        for decision in episode["decisions"]:
            if decision["teacher_valid"] is not None:
                self._compare(decision)

    def _compare(self, decision: Mapping[str, Any]) -> None:
        self.labelled += 1
        choice = decision.get("policy_choice")
        if choice is None and decision["actor"] == "policy":
            choice = decision["chosen"]
        if choice is not None:
            self._compared += 1
            self._agreed += choice in decision["teacher_valid"]

    def summary(self) -> JSONObject:
        """The counts so far under the peer's names.

        `policy_agrees_with_teacher` is the share of labelled decisions at which the policy would
        have done what the teacher accepts, among those where its choice is known; None for none.
        """
        return {
            **_rates(self.episodes, self.success),
            "truncated": self.truncated,
            "decisions": self.decisions,
            "labelled_decisions": self.labelled,
            "policy_agrees_with_teacher": (
                self._agreed / self._compared if self._compared else None
            ),
            "families": {name: _rates(*self._families[name]) for name in sorted(self._families)},
        }


def summarize(episodes: Iterable[Mapping[str, Any]]) -> JSONObject:
    """Verified success, overall and for each family, with what the teacher thought of it.

    Keys: `episodes`, `success`, `success_rate` (0 for no episodes), `wilson95` ([lower, upper]),
    `truncated`, `decisions`, `labelled_decisions`, `policy_agrees_with_teacher` and `families`.
    Streams: holds no episode.
    """
    tally = Tally()
    for episode in episodes:
        tally.add(episode)
    return tally.summary()


def _rates(episodes: int, success: int) -> JSONObject:
    return {
        "episodes": episodes,
        "success": success,
        "success_rate": success / episodes if episodes else 0.0,
        "wilson95": list(wilson(success, episodes)),
    }
