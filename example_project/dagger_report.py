"""What dagger.py measured, as a table and as a figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Rate:
    """Successes out of the episodes that ran, with the Wilson interval of the summary."""

    success: int
    episodes: int
    interval: tuple[float, float]

    @classmethod
    def of(cls, summary: Mapping[str, Any]) -> Rate:
        low, high = summary["wilson95"]
        return cls(success=summary["success"], episodes=summary["episodes"], interval=(low, high))

    @property
    def share(self) -> float:
        return self.success / self.episodes

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.success:4d}/{self.episodes} {self.share:7.1%}  [{low:.1%}, {high:.1%}]"


@dataclass(frozen=True, kw_only=True)
class Check:
    """One round: the checkpoint that was trained, and how it did."""

    number: int
    run_id: str
    rows: int
    #: The share of the teacher's decisions on the test tasks that it would have made as well.
    offline: float
    validation: Rate
    test: Rate
    families: Mapping[str, Rate]
    gate_met: bool

    @classmethod
    def of(
        cls,
        number: int,
        run: Mapping[str, Any],
        *,
        validation: Mapping[str, Any],
        test: Mapping[str, Any],
    ) -> Check:
        return cls(
            number=number,
            run_id=run["run_id"],
            rows=run["metrics"]["train_rows"],
            offline=run["metrics"]["benchmark_accuracy"],
            validation=Rate.of(validation),
            test=Rate.of(test),
            families={name: Rate.of(family) for name, family in test["families"].items()},
            gate_met=all(gate["verdict"] == "PASS" for gate in test["gates"].values()),
        )


@dataclass(frozen=True, kw_only=True)
class Learning:
    """What one seed led to, round by round; round 0 is cloning alone."""

    seed: int
    checks: Sequence[Check]

    @property
    def cloning(self) -> Check:
        return self.checks[0]

    @property
    def chosen(self) -> Check:
        """The round with the most successes on the validation tasks, the first of equals."""
        return max(self.checks, key=lambda check: check.validation.success)


def table(name: str, ceiling: Mapping[str, Any], learned: Sequence[Learning]) -> Iterator[str]:
    """Yield the lines of one world's table."""
    yield f"{name}: closed loop on {ceiling['episodes']} held-out tasks"
    yield f"teacher{'':40}{Rate.of(ceiling)}"
    yield "seed  round      rows  offline  validation  test, closed loop, Wilson 95%         gate"
    for learning in learned:
        yield from (_line(learning, check) for check in learning.checks)
    yield ""
    yield from (_verdict(learning) for learning in learned if len(learning.checks) > 1)
    yield from _families(learned)


def _line(learning: Learning, check: Check) -> str:
    name = f"{check.number}" if check.number else "cloning"
    mark = "*" if check is learning.chosen else " "
    gate = "PASS" if check.gate_met else "FAIL"
    return (
        f"{learning.seed:<5} {name:<8}{mark} {check.rows:5d}  {check.offline:7.1%}  "
        f"{check.validation.share:10.1%}  {check.test!s:<37}  {gate}"
    )


def _verdict(learning: Learning) -> str:
    cloning, chosen = learning.cloning.test, learning.chosen.test
    apart = cloning.interval[1] < chosen.interval[0]
    return (
        f"seed {learning.seed}: round {learning.chosen.number}, chosen on validation (*), "
        f"{cloning.share:.1%} -> {chosen.share:.1%}; the intervals "
        f"{'do not overlap' if apart else 'OVERLAP'}"
    )


def _families(learned: Sequence[Learning]) -> Iterator[str]:
    """Yield a line a family: cloning, and the chosen round, over all seeds."""
    yield ""
    yield "family             cloning   chosen   mean over the seeds, test tasks"
    for family in learned[0].cloning.families:
        before, after = (
            sum(check.families[family].share for check in checks) / len(learned)
            for checks in (
                [learning.cloning for learning in learned],
                [learning.chosen for learning in learned],
            )
        )
        yield f"{family:<18} {before:7.1%}  {after:7.1%}"


def plot(learned: Mapping[str, Sequence[Learning]], path: Path) -> None:
    """Write the figure: closed-loop success and offline accuracy a round, a panel a world."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        1, len(learned), figsize=(4.6 * len(learned), 3.6), sharey=True, squeeze=False
    )
    for axis, (name, results) in zip(axes[0], learned.items(), strict=True):
        _panel(axis, name, results)
    axes[0][0].set_ylabel("share")
    axes[0][-1].legend(loc="lower right", fontsize=8, frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def _panel(axis: Any, name: str, results: Sequence[Learning]) -> None:
    tasks = results[0].cloning.test.episodes
    axis.set_title(f"{name}: {tasks} held-out tasks, {len(results)} seeds", fontsize=10)
    for index, learning in enumerate(results):
        numbers = [check.number for check in learning.checks]
        rates = [check.test for check in learning.checks]
        shares = [rate.share for rate in rates]
        below = [rate.share - rate.interval[0] for rate in rates]
        above = [rate.interval[1] - rate.share for rate in rates]
        label = None if index else "closed-loop success, Wilson 95%"
        places = [number + 0.06 * (index - 1) for number in numbers]
        axis.errorbar(
            places, shares, yerr=(below, above), color="C0", marker="o", ms=3, lw=1, label=label
        )
        offline = [check.offline for check in learning.checks]
        label = None if index else "offline accuracy on the teacher's test rows"
        axis.plot(numbers, offline, color="C1", ls="--", marker="s", ms=3, lw=1, label=label)
    axis.set_ylim(0, 1.03)
    axis.set_xticks(numbers, ["cloning", *map(str, numbers[1:])])
    axis.set_xlabel("round")
    axis.grid(alpha=0.3)
