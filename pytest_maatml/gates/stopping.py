"""When a gate may stop its episodes early, and what it then says."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, replace
from itertools import chain, repeat
from typing import TYPE_CHECKING, Literal, Protocol

from pytest_maatml.gates.binomial import check_open_unit
from pytest_maatml.gates.threshold import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_maatml.gates.threshold import ThresholdRule

EpisodeResult = Literal["success", "failure", "error"]

#: Disagreement with the full run that risk stopping allows where none is said.
DEFAULT_GAMMA = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The outcome of a gate and the number of episodes, in judged order, that it took."""

    outcome: Outcome
    observed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundaries:
    """Where a gate stops: bounds on the successes among the first n results, for n = 0..N.

    Pass at `passing[n]` or more, fail at `failing[n]` or less; n + 1 and -1 stand for never.
    """

    #: the rule of the full run, which may require more than the one asked for (see `Risk`)
    rule: ThresholdRule
    passing: Sequence[int]
    failing: Sequence[int]


def _bounds(values: Iterable[int]) -> Sequence[int]:
    """Four bytes each, since a gate may have hundreds of thousands of episodes."""
    return array("i", values)


class StoppingRule(Protocol):
    """A way to stop early; `str` gives the text that `parse_stopping` reads."""

    def boundaries(self, rule: ThresholdRule) -> Boundaries:
        """The bounds for a gate."""
        ...


class Judge(Protocol):
    """A gate that is fed results one by one, in judged order, never in completion order."""

    @property
    def verdict(self) -> Verdict | None:
        """The verdict, once there is one; it does not change afterwards."""
        ...

    def feed(self, result: EpisodeResult) -> Verdict | None:
        """The verdict after one more result, or None while the gate needs more."""
        ...


@dataclass(frozen=True, slots=True)
class Off:
    """No early stopping: the verdict comes with the last episode."""

    def boundaries(self, rule: ThresholdRule) -> Boundaries:
        planned, required = rule.planned, rule.required
        return Boundaries(
            rule=rule,
            passing=_bounds(chain(range(1, planned + 1), [required])),
            failing=_bounds(chain(repeat(-1, planned), [required - 1])),
        )

    def __str__(self) -> str:
        return "off"


@dataclass(frozen=True, slots=True)
class Exact:
    """Stops once the full run could not say otherwise: the same verdict in any order.

    Source: curtailed sampling, Dodge and Romig 1929, Bell Syst. Tech. J. 8.
    """

    def boundaries(self, rule: ThresholdRule) -> Boundaries:
        planned, required = rule.planned, rule.required
        steps = range(1, planned + 1)
        return Boundaries(
            rule=rule,
            passing=_bounds(chain([1], (min(required, n + 1) for n in steps))),
            failing=_bounds(chain([-1], (max(n - (planned - required + 1), -1) for n in steps))),
        )

    def __str__(self) -> str:
        return "exact"


@dataclass(frozen=True, slots=True)
class Risk:
    """Stops once the full run says otherwise with probability at most `gamma`.

    The promise is that of a uniform random permutation of the tasks (see `verdict_lattice`):
    results must be fed in that order.
    """

    gamma: float = DEFAULT_GAMMA

    def __post_init__(self) -> None:
        check_open_unit("gamma", self.gamma)

    def boundaries(self, rule: ThresholdRule) -> Boundaries:
        """The verdict lattice; a certify gate keeps its alpha, by requiring more if it must.

        Where that would be more than all episodes, the gate stops as `Exact` does.
        """
        for required in range(rule.required, rule.planned + 1):
            bounds = self._lattice(replace(rule, required=required))
            if rule.kind != "certify" or _false_pass(bounds) <= rule.alpha:
                return bounds
        return Exact().boundaries(rule)

    def _lattice(self, rule: ThresholdRule) -> Boundaries:
        # numpy, which no other way of stopping needs
        from pytest_maatml.gates.lattice import verdict_lattice

        if not rule.required:
            return Exact().boundaries(rule)
        lattice = verdict_lattice(planned=rule.planned, required=rule.required, gamma=self.gamma)
        return Boundaries(rule=rule, passing=lattice.passing, failing=lattice.failing)

    def __str__(self) -> str:
        return f"risk:{self.gamma:g}"


def parse_stopping(text: str) -> StoppingRule:
    """The stopping rule that the text names: `off`, `exact`, `risk` or `risk:GAMMA`.

    Raises ValueError for any other text and for a gamma outside (0, 1).
    """
    name, colon, gamma = text.partition(":")
    if not colon and name in _NAMED:
        return _NAMED[name]
    if name == "risk" and colon:
        try:
            return Risk(float(gamma))
        except ValueError:
            pass
    raise ValueError(
        f"stopping={text!r}: give off, exact, risk, or risk:GAMMA with 0 < GAMMA < 1, such as"
        f" risk:{DEFAULT_GAMMA:g}"
    )


class ThresholdJudge:
    """The judge of a threshold gate.

    An errored episode keeps its position: it is a failure to the passing bound and a success
    to the failing bound. So the gate follows two runs, and the bounds hold for either only
    until it has stopped: one that failed early can still pass, but by its count alone. After
    the last planned result there is always a verdict; it is UNDECIDED where the errors could
    have turned it, or where a gate was passed with more than `max_errors` of them.
    """

    __slots__ = (
        "_boundaries",
        "_exact",
        "_failing",
        "_max_errors",
        "_passing",
        "errors",
        "failures",
        "successes",
        "verdict",
    )

    def __init__(self, boundaries: Boundaries, *, max_errors: int = 0) -> None:
        self._boundaries = boundaries
        self._exact = Exact().boundaries(boundaries.rule)
        self._max_errors = max_errors
        #: the bounds in force, each of them exact once the other has stopped its run
        self._passing = boundaries.passing
        self._failing = boundaries.failing
        self.successes = 0
        self.failures = 0
        self.errors = 0
        self.verdict: Verdict | None = None

    def feed(self, result: EpisodeResult) -> Verdict | None:
        """The verdict after one more result, or None; results after a verdict are ignored."""
        if self.verdict is None:
            self.successes += result == "success"
            self.failures += result == "failure"
            self.errors += result == "error"
            self.verdict = self._look()
        return self.verdict

    def _look(self) -> Verdict | None:
        observed = self.successes + self.failures + self.errors
        outcome = self._outcome(observed)
        bounds = self._boundaries
        if self.successes <= bounds.failing[observed]:
            self._passing = self._exact.passing
        if self.successes + self.errors >= bounds.passing[observed]:
            self._failing = self._exact.failing
        return Verdict(outcome=outcome, observed=observed) if outcome else None

    def _outcome(self, observed: int) -> Outcome | None:
        if self.successes >= self._passing[observed]:
            clean = self.errors <= self._max_errors
            return Outcome.PASSED if clean else Outcome.UNDECIDED
        if self.successes + self.errors <= self._failing[observed]:
            return Outcome.FAILED
        last = observed == self._boundaries.rule.planned
        return Outcome.UNDECIDED if last else None


def _false_pass(bounds: Boundaries) -> float:
    from pytest_maatml.gates.lattice import operating_characteristic

    walk = operating_characteristic(bounds.passing, bounds.failing, bounds.rule.threshold)
    return walk.pass_probability


_NAMED: dict[str, StoppingRule] = {"off": Off(), "exact": Exact(), "risk": Risk()}
