"""An earlier run of the same tasks, and the gate of a family against it."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from pytest_maatml.errors import ConfigurationError
from pytest_maatml.gates.paired import (
    BaselineJudge,
    least_alarming_losses,
    margin_rule,
    newcombe,
    regression_p,
)
from pytest_maatml.gates.stopping import Off, ThresholdJudge
from pytest_maatml.gates.threshold import Outcome
from pytest_maatml.gating.report import UNGATED, VERDICTS, BaselineReport
from pytest_maatml.records.episodes import RecordError, read_episodes
from pytest_maatml.records.identity import digest_tasks
from pytest_maatml.records.run_records import EPISODES_NAME

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pytest_maatml.engine.protocol import JSONObject
    from pytest_maatml.engine.record import RolloutPlan
    from pytest_maatml.gates.stopping import EpisodeResult, Judge
    from pytest_maatml.gates.threshold import ThresholdRule
    from pytest_maatml.gating.policy import GatePolicy

#: How an episode begins to say that it was cut for want of a label.
UNLABELLED: Final = "unlabelled:"


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineTask:
    """One task of the baseline: a digest of what it was, and whether it passed, if it completed."""

    content: str
    passed: bool | None
    family: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The outcomes of an earlier run, by task id; a task that errored there is not among them."""

    file: str
    tasks: Mapping[str, BaselineTask]

    @classmethod
    def read(cls, path: Path) -> Self:
        """The baseline in a file of episodes, or in the folder of a run.

        Raises RecordError for what cannot be read, for no episode, and for a task id that is there
        twice.
        """
        file = path / EPISODES_NAME if path.is_dir() else path
        tasks: dict[str, BaselineTask] = {}
        for number, episode in enumerate(read_episodes(file), 1):
            if (task_id := episode["task_id"]) in tasks:
                raise RecordError(
                    f"{file}: episode {number} is of task {task_id!r}, as one before it is: a "
                    "baseline is one run, with one episode for each task"
                )
            tasks[task_id] = BaselineTask(
                content=digest_tasks([episode["task"]]),
                passed=_passed(episode["outcome"]),
                family=episode["task_family"],
            )
        if not tasks:
            raise RecordError(f"{file} holds no episode: give a run that finished")
        return cls(file=str(path), tasks=tasks)

    def outcomes(self, plans: Sequence[RolloutPlan], *, family: str) -> list[bool | None]:
        """Whether the baseline passed each of the plans' tasks; None if it did not complete there.

        Raises ConfigurationError for a task that was another one in the baseline under the same
        id, and where no task of the family completed in it.
        """
        known = [self._outcome(plan) for plan in plans]
        if known.count(None) == len(known):
            raise ConfigurationError(
                f"none of the {len(known)} tasks of {family} completed in the baseline {self.file}:"
                " give a baseline of the same tasks"
            )
        return known

    def _outcome(self, plan: RolloutPlan) -> bool | None:
        task = self.tasks.get(plan.task_id)
        if task is None:
            return None
        if task.content != digest_tasks([plan.task]):
            raise ConfigurationError(
                f"task {plan.task_id!r} is another task in the baseline {self.file}: the two have "
                "the same id and differ in content; give a baseline of the same tasks"
            )
        return task.passed


def _passed(outcome: JSONObject) -> bool | None:
    if (outcome["truncated"] or "").startswith(UNLABELLED):
        return None
    success: bool = outcome["success"]
    return success


class BaselineGate:
    """One family against a baseline, fed in judged order.

    `known` is what `Baseline.outcomes` gave for the tasks in that order. With a margin it is a
    threshold over the tasks that completed in the baseline; without, the exact one-sided McNemar
    test.
    """

    def __init__(
        self,
        policy: GatePolicy,
        known: Sequence[bool | None],
        *,
        task_ids: Sequence[str],
        file: str,
        alarms: int,
    ) -> None:
        self._policy = policy
        self._known = known
        self._task_ids = task_ids
        self._file = file
        self._paired_tasks = len(known) - known.count(None)
        self._alpha = policy.alpha / alarms if policy.margin is None else policy.alpha
        self._rule: ThresholdRule | None = self._margin_rule()
        self._judge: Judge = self._make_judge()
        self._fed = 0

    @property
    def decided(self) -> bool:
        return self._judge.verdict is not None

    def feed(self, result: EpisodeResult) -> None:
        """Take in the next result. A margin gate looks at what completed in the baseline alone."""
        if self._rule is None or self._known[self._fed] is not None:
            self._judge.feed(result)
        self._fed += 1

    def report(
        self, results: Sequence[EpisodeResult | None], *, errors: int, judged: bool
    ) -> BaselineReport:
        """The figures over the first `results` in judged order; None is one that did not run."""
        pairs = Counter(zip(self._known, results, strict=False))
        wins, losses = pairs[False, "success"], pairs[True, "failure"]
        both_passed, both_failed = pairs[True, "success"], pairs[False, "failure"]
        paired = wins + losses + both_passed + both_failed
        open_failures = self._known[len(results) :].count(False) + pairs[False, None]
        p = regression_p(wins + open_failures, losses)
        return BaselineReport(
            file=self._file,
            margin=self._policy.margin,
            alpha=self._alpha,
            verdict=VERDICTS[self._outcome(pairs, errors)] if judged else UNGATED,
            required=None if self._rule is None else self._rule.required,
            paired_tasks=self._paired_tasks,
            both_passed=both_passed,
            wins=wins,
            losses=losses,
            both_failed=both_failed,
            unpaired=sum(result is not None for result in results) - paired,
            difference=(wins - losses) / paired if paired else None,
            interval=newcombe(
                both_passed=both_passed, wins=wins, losses=losses, both_failed=both_failed
            ),
            p=p,
            adjusted_p=p,
            lost=tuple(
                task_id
                for task_id, known, result in zip(
                    self._task_ids, self._known, results, strict=False
                )
                if known and result == "failure"
            ),
        )

    def _outcome(
        self, pairs: Mapping[tuple[bool | None, EpisodeResult | None], int], errors: int
    ) -> Outcome:
        outcome = self._arithmetic(pairs)
        if outcome is Outcome.PASSED and errors > self._policy.max_errors:
            return Outcome.UNDECIDED
        return outcome

    def _arithmetic(self, pairs: Mapping[tuple[bool | None, EpisodeResult | None], int]) -> Outcome:
        if self._judge.verdict is not None:
            return self._judge.verdict.outcome
        if self._rule is None:
            return Outcome.UNDECIDED
        return self._rule.judge(
            successes=pairs[True, "success"] + pairs[False, "success"],
            failures=pairs[True, "failure"] + pairs[False, "failure"],
            errors=0,
        )

    def _margin_rule(self) -> ThresholdRule | None:
        share = self._policy.margin_share
        if share is None or not self._paired_tasks:
            return None
        return margin_rule(
            baseline_successes=self._known.count(True),
            margin=math.floor(share * self._paired_tasks),
            planned=self._paired_tasks,
        )

    def _make_judge(self) -> Judge:
        # How many errors are too many is for the report: the judges see unlabelled ones too.
        everything = len(self._known)
        if self._rule is not None:
            boundaries = self._policy.stopping_rule.boundaries(self._rule)
            return ThresholdJudge(boundaries, max_errors=everything)
        return BaselineJudge(
            self._known,
            alpha=self._alpha,
            max_errors=everything,
            stops_early=not isinstance(self._policy.stopping_rule, Off),
        )


def can_alarm(report: BaselineReport) -> bool:
    """Whether the exact test could have raised an alarm had every paired task been lost."""
    return report.paired_tasks >= least_alarming_losses(0, alpha=report.alpha)
