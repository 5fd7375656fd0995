"""What a user asks of the success of a run, checked, before any task is known."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self, get_args

from pytest_maatml.arguments import DEFAULT_GATE, OVERALL_GATE
from pytest_maatml.errors import ConfigurationError
from pytest_maatml.gates.binomial import check_open_unit
from pytest_maatml.gates.stopping import parse_stopping
from pytest_maatml.gates.threshold import GateKind, ThresholdRule, as_fraction, threshold_rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from fractions import Fraction

    from pytest_maatml.gates.stopping import StoppingRule
    from pytest_maatml.gating.report import GateReport


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePolicy:
    """The gates of a run. Raises ConfigurationError for what no run could be judged by."""

    #: family, `default` or `overall` -> rate, exact text; empty: no threshold
    rates: Mapping[str, str] = field(default_factory=dict)
    kind: GateKind = "point"
    alpha: float = 0.05
    #: `off`, `exact`, `risk` or `risk:GAMMA`
    stopping: str = "off"
    #: `episodes.jsonl` of an earlier run, or its folder
    baseline: Path | None = None
    #: share of the paired tasks by which successes may fall short of the baseline's
    margin: str | None = None
    max_errors: int = 0

    def __post_init__(self) -> None:
        if self.kind not in get_args(GateKind):
            raise ConfigurationError(
                f"gate {self.kind!r}: give one of {', '.join(get_args(GateKind))}"
            )
        if self.max_errors < 0:
            raise ConfigurationError(f"max_errors={self.max_errors}: give 0 or more")
        if self.margin is not None and self.baseline is None:
            raise ConfigurationError(
                f"a margin of {self.margin} is to a baseline, and none is given: give one with "
                "--maatml-baseline"
            )
        try:
            check_open_unit("alpha", self.alpha)
            parse_stopping(self.stopping)
            if self.margin is not None:
                _check_margin(self.margin)
        except ValueError as error:
            raise ConfigurationError(str(error)) from None

    @classmethod
    def of_report(cls, report: GateReport) -> Self:
        """What was asked of the family of `report`."""
        baseline = report.baseline
        return cls(
            rates={} if report.threshold is None else {report.family: report.threshold},
            kind=report.kind,
            alpha=report.alpha,
            stopping=report.stopping,
            baseline=None if baseline is None else Path(baseline.file),
            margin=None if baseline is None else baseline.margin,
            max_errors=report.max_errors,
        )

    @property
    def asks(self) -> bool:
        """Whether there is any gate."""
        return bool(self.rates) or self.baseline is not None

    @property
    def stopping_rule(self) -> StoppingRule:
        return parse_stopping(self.stopping)

    @property
    def margin_share(self) -> Fraction | None:
        return None if self.margin is None else as_fraction("margin", self.margin)

    def rate_of(self, family: str) -> str | None:
        """The rate that `family` must reach, or None where nothing is asked of it.

        A family that is not named must reach the default, which is 1; an `overall` rate alone
        asks nothing of a single family.
        """
        named = any(name != OVERALL_GATE for name in self.rates)
        return self.rates.get(family, self.rates.get(DEFAULT_GATE, "1" if named else None))

    def alarms(self, families: Iterable[str]) -> int:
        """The number of tests over `families` that can raise an alarm: guards, exact baselines."""
        names = list(families)
        guards = sum(self.kind == "guard" and self.rate_of(name) is not None for name in names)
        exact = self.baseline is not None and self.margin is None
        return guards + len(names) * exact

    def rule(
        self, rate: str | None, planned: int, *, name: str, alarms: int = 1
    ) -> ThresholdRule | None:
        """The rule of the gate called `name`, None without a rate.

        Raises ConfigurationError for a gate that cannot pass, with the episodes that would do.
        """
        if rate is None:
            return None
        alpha = self.alpha / alarms if self.kind == "guard" else self.alpha
        try:
            return threshold_rule(self.kind, rate, planned, alpha=alpha)
        except ValueError as error:
            raise ConfigurationError(f"the gate of {name}: {error}") from None


def _check_margin(text: str) -> None:
    if not 0 <= as_fraction("margin", text) <= 1:
        raise ValueError(f"margin={text}: give the share of the tasks, from 0 to 1, such as 0.02")
