"""What was said of a rollout, by options or by a suite, and the spec that follows from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_maatml.arguments import Tasks, check_gates, check_tasks, read_concurrency, read_tasks
from pytest_maatml.errors import ConfigurationError
from pytest_maatml.gating.policy import GatePolicy
from pytest_maatml.harness.spec import CarrierSettings, RolloutSpec, Selection, check_least
from pytest_maatml.schedule import teacher_mix_at
from pytest_maatml.suites import SuiteDefinition, item_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_maatml.models import ModelDefinition


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutChoices:
    """What options say of a rollout; None where nothing was said, so that a suite can say it.

    Messages name pytest's options; a command has the same ones without the prefix `maatml-`.
    """

    #: Where pytest or the command was started.
    started_in: Path
    #: A reference in text, or the object itself; `policy` and `env` as RolloutSpec has them.
    policy: Any = None
    env: Any = None
    env_command: str | None = None
    tasks: Tasks | None = None
    options: Mapping[str, Any] | None = None
    checkpoint: str | None = None
    device: str | None = None
    label: bool | None = None
    #: Whether a collection is asked for, and no test: the gates of a suite do not hold then.
    collects: bool = False
    #: A share, or a schedule over rounds, in text.
    teacher_mix: str | None = None
    source: str | None = None
    round: int | None = None
    seed: int | None = None
    out: Path | None = None
    max_decisions: int | None = None
    gates: Mapping[str, str] | None = None
    gate: str | None = None
    alpha: float | None = None
    stop: str | None = None
    baseline: Path | None = None
    margin: str | None = None
    max_errors: int | None = None
    timeout: float | None = None
    concurrency: int | None = None
    env_processes: int | None = None
    env_restarts: int | None = None
    isolate: bool | None = None
    selection: Selection = field(default_factory=Selection)
    workers: int | None = None
    resume: bool = False
    overwrite: bool = False

    def check(self, *, needs_environment: bool) -> None:
        """Raise ConfigurationError for what is wrong whatever a suite may add.

        No suite can name the environment where it `needs_environment`.
        """
        self._check_environment(needed=needs_environment)
        self._check_numbers()
        mix = _mix(self.teacher_mix, self.round or 0)
        if mix and not self.label:
            raise ConfigurationError(
                "--teacher-mix needs --label: without labels there is no teacher to act"
            )
        if self.gates and mix:
            raise ConfigurationError(
                "--maatml-min-success and a --teacher-mix above 0 exclude one another: success "
                "under a teacher's help is not the policy's"
            )
        self._check_gates()

    def _check_environment(self, *, needed: bool) -> None:
        advice = "give --maatml-env or --maatml-env-command, one of the two"
        if self.env is not None and self.env_command is not None:
            raise ConfigurationError(
                f"--maatml-env and --maatml-env-command both say what the environment is: {advice}"
            )
        if needed and self.env is None and self.env_command is None:
            raise ConfigurationError(advice)

    def _check_numbers(self) -> None:
        for name, value, least in (
            ("round", self.round, 0),
            ("max-decisions", self.max_decisions, 1),
            ("timeout", self.timeout, 0),
            ("workers", self.workers, 1),
            ("max-errors", self.max_errors, 0),
            ("env-processes", self.env_processes, 1),
            ("env-restarts", self.env_restarts, 0),
        ):
            if value is not None:
                check_least(f"--maatml-{name}", value, least)

    def _check_gates(self) -> None:
        # A suite may name the baseline that a margin needs.
        baseline = Path() if self.baseline is None else self.baseline
        GatePolicy(
            baseline=baseline,
            margin=self.margin,
            **_said(kind=self.gate, alpha=self.alpha, stopping=self.stop),
        )

    def spec(
        self,
        *,
        base: Path,
        model: ModelDefinition | None = None,
        suite: SuiteDefinition | None = None,
    ) -> RolloutSpec:
        """The rollout of a suite, or of the options alone; what the options say comes first.

        Raises ConfigurationError for settings that exclude one another.
        """
        rest = _Suite(suite or SuiteDefinition(line=1), model)
        label = bool(rest.complete(self.label, "label", bool))
        source = rest.complete(self.source, "source", str)
        if source is None:
            source = "dagger" if label else "rollout"
        round_ = rest.complete(self.round, "round", int) or 0
        return RolloutSpec(
            name=rest.suite.name,
            model=model,
            policy=self.policy,
            env=self.env or rest.suite.env,
            env_command=self.env_command or rest.suite.env_command,
            base=base,
            tasks=rest.tasks(base) if self.tasks is None else self.tasks,
            options=rest.suite.options if self.options is None else self.options,
            checkpoint=self.checkpoint,
            label=label,
            teacher_mix=_mix(rest.teacher_mix(self.teacher_mix), round_),
            source=source,
            round=round_,
            out=self._out(model, rest.suite.folder, f"{source}-r{round_}"),
            gates=self._gate_policy(rest, label=label),
            carrier=self._carrier(rest),
            selection=self.selection,
            resume=self.resume,
            overwrite=self.overwrite,
            line=rest.suite.line,
            **_said(
                device=self.device or None,
                seed=rest.complete(self.seed, "seed", int),
                max_decisions=rest.complete(self.max_decisions, "max_decisions", int),
                workers=self.workers,
            ),
        )

    def _out(self, model: ModelDefinition | None, below: str | None, leaf: str) -> Path:
        """The folder of the episodes; suites beside one another have one each below it."""
        output = self.started_in / "output" if model is None else model.output_dir
        folder = output / "episodes" / leaf if self.out is None else self.out
        return folder if below is None else folder / item_name(below)

    def _carrier(self, rest: _Suite) -> CarrierSettings:
        return CarrierSettings(
            concurrency=rest.concurrency(self.concurrency),
            **_said(
                timeout=rest.complete(self.timeout, "timeout", float),
                processes=rest.complete(self.env_processes, "env_processes", int),
                restarts=rest.complete(self.env_restarts, "env_restarts", int),
                isolate=rest.complete(self.isolate, "isolate", bool),
            ),
        )

    def _gate_policy(self, rest: _Suite, *, label: bool) -> GatePolicy:
        """Collecting is not testing: a suite's gates are for checks, unless it labels itself."""
        if self.collects and self.gates is None and self.baseline is None:
            return GatePolicy()
        baseline = rest.baseline(self.baseline)
        return GatePolicy(
            rates=self._rates(rest, label=label, compared=baseline is not None),
            baseline=baseline,
            margin=rest.margin(self.margin),
            **_said(
                kind=rest.complete(self.gate, "gate", str),
                alpha=rest.complete(self.alpha, "alpha", float),
                stopping=rest.stopping(self.stop),
                max_errors=rest.complete(self.max_errors, "max_errors", int),
            ),
        )

    def _rates(self, rest: _Suite, *, label: bool, compared: bool) -> Mapping[str, str]:
        """By default every verdict must be a success, unless labels or a baseline say otherwise."""
        if self.gates is not None:
            return self.gates
        return rest.gates() or ({} if label or compared else {"default": "1"})


class _Suite:
    """The say of a suite where the options say nothing."""

    def __init__(self, suite: SuiteDefinition, model: ModelDefinition | None) -> None:
        self.suite = suite
        self._folder = model.model_dir if model is not None else Path()
        self._where = f"{model.model_file if model is not None else 'suite'}:{suite.line}"

    def complete(self, value: Any, key: str, kind: type) -> Any:
        """`value` if it was given, else what the suite says under `key`, else None."""
        if value is not None:
            return value
        own = self.suite.extra.get(key)
        if own is None:
            return None
        accepted = (int, float) if kind is float else kind
        if not isinstance(own, accepted) or (isinstance(own, bool) and kind is not bool):
            raise ConfigurationError(f"{self._where}: {key} must be {kind.__name__}, not {own!r}")
        return own

    def teacher_mix(self, given: str | None) -> str | None:
        own = self.suite.extra.get("teacher_mix")
        return str(own) if given is None and own else given

    def concurrency(self, given: int | None) -> int | None:
        return read_concurrency(self.suite.extra.get("concurrency")) if given is None else given

    def baseline(self, given: Path | None) -> Path | None:
        baseline = self.complete(given, "baseline", str)
        return None if baseline is None else self._folder / baseline

    def margin(self, given: str | None) -> str | None:
        margin = self.suite.extra.get("margin") if given is None else given
        return None if margin is None else str(margin)

    def stopping(self, given: str | None) -> Any:
        # YAML reads a bare `off` as false.
        if given is None and self.suite.extra.get("stop") is False:
            return "off"
        return self.complete(given, "stop", str)

    def tasks(self, base: Path) -> Tasks:
        tasks, where = self.suite.tasks, f"{self._where}: tasks"
        if isinstance(tasks, str):
            return read_tasks(tasks, option=where, base=base)
        return check_tasks(tasks, where=where)

    def gates(self) -> Mapping[str, str]:
        return check_gates(self.suite.min_success, where=f"{self._where}: min_success")


def _mix(text: str | None, round_: int) -> float:
    return 0.0 if text is None else teacher_mix_at(text, round_, option="--teacher-mix")


def _said(**values: Any) -> dict[str, Any]:
    """The values that somebody gave; the others keep the defaults of what takes them."""
    return {name: value for name, value in values.items() if value is not None}
