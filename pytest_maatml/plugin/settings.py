"""What the command line and the ini file say, and the rollouts that follow from it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_maatml.arguments import (
    Tasks,
    check_gates,
    check_tasks,
    read_min_success,
    read_options,
    read_shard,
    read_tasks,
)
from pytest_maatml.errors import ConfigurationError
from pytest_maatml.gating.policy import GatePolicy
from pytest_maatml.harness.spec import CarrierSettings, RolloutSpec, Selection, check_least
from pytest_maatml.plugin.items import item_name
from pytest_maatml.plugin.options import given, relative_to
from pytest_maatml.schedule import teacher_mix_at

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest

    from pytest_maatml.models import ModelDefinition
    from pytest_maatml.suites import SuiteDefinition


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The options that were given; None where nothing was said, so that a suite can say it."""

    model: Path | None
    policy: str | None
    #: A policy from the ini file joins only runs that name no test of their own.
    starts_always: bool
    env: str | None
    env_command: str | None
    #: The environment is checked, and no policy.
    check_env: bool
    tasks: Tasks | None
    options: Mapping[str, Any] | None
    checkpoint: str | None
    device: str | None
    label: bool | None
    #: Whether the command line itself asks for a collection.
    collects: bool
    #: A share, or a schedule over rounds, in text.
    teacher_mix: str | None
    source: str | None
    round: int | None
    seed: int | None
    out: Path | None
    max_decisions: int | None
    gates: Mapping[str, str] | None
    gate: str | None
    alpha: float | None
    stop: str | None
    baseline: Path | None
    margin: str | None
    max_errors: int | None
    explain: bool
    timeout: float | None
    concurrency: int | None
    env_processes: int | None
    env_restarts: int | None
    isolate: bool | None
    selection: Selection
    workers: int | None
    resume: bool
    overwrite: bool
    started_in: Path

    @classmethod
    def read(cls, config: pytest.Config) -> Settings:
        """Raises ConfigurationError for a value that cannot be, or for two that cannot both be."""

        def folder(name: str) -> Path | None:
            value = given(config, name)
            return (relative_to(config, name) / value).resolve() if value else None

        tasks, options = given(config, "tasks"), given(config, "option")
        gates, shard = given(config, "min_success"), given(config, "shard")
        settings = cls(
            model=folder("model"),
            policy=given(config, "policy") or None,
            starts_always=config.getoption("maatml_model") is not None
            or config.getoption("maatml_policy") is not None,
            env=given(config, "env") or None,
            env_command=given(config, "env_command") or None,
            check_env=bool(given(config, "check_env")),
            tasks=read_tasks(tasks, option="--maatml-tasks", base=relative_to(config, "tasks"))
            if tasks
            else None,
            options=read_options(options, option="--maatml-option") if options else None,
            checkpoint=given(config, "checkpoint") or None,
            device=given(config, "device") or None,
            label=given(config, "label"),
            collects=bool(config.getoption("maatml_label")),
            teacher_mix=given(config, "teacher_mix") or None,
            source=given(config, "source") or None,
            round=given(config, "round"),
            seed=given(config, "seed"),
            out=folder("out"),
            max_decisions=given(config, "max_decisions"),
            gates=read_min_success(gates, option="--maatml-min-success") if gates else None,
            gate=given(config, "gate") or None,
            alpha=given(config, "alpha"),
            stop=given(config, "stop") or None,
            baseline=folder("baseline"),
            margin=given(config, "margin") or None,
            max_errors=given(config, "max_errors"),
            explain=bool(given(config, "explain")),
            timeout=given(config, "timeout"),
            concurrency=read_concurrency(given(config, "concurrency")),
            env_processes=given(config, "env_processes"),
            env_restarts=given(config, "env_restarts"),
            isolate=given(config, "isolate"),
            selection=Selection(
                tasks=tuple(given(config, "task") or ()),
                shard=read_shard(shard, option="--maatml-shard") if shard else None,
            ),
            workers=given(config, "workers"),
            resume=bool(given(config, "resume")),
            overwrite=bool(given(config, "overwrite")),
            started_in=config.invocation_params.dir,
        )
        settings._check()
        return settings

    def _check(self) -> None:
        if self.model is not None and self.policy is not None:
            raise ConfigurationError(
                "--maatml-model and --maatml-policy both say where the policy is from; give one"
            )
        if self.env is not None and self.env_command is not None:
            raise ConfigurationError(
                "--maatml-env and --maatml-env-command both say what the environment is; give one"
            )
        if self.policy is not None and self.env is None and self.env_command is None:
            raise ConfigurationError(
                "--maatml-policy needs an environment: give --maatml-env or --maatml-env-command"
            )
        if self.model is not None:
            _check_model(self.model)
        mix = self._mix(self.teacher_mix, max(self.round or 0, 0))
        if mix and not self.label:
            raise ConfigurationError(
                "--teacher-mix needs --label: without labels there is no teacher to act"
            )
        if self.gates and mix:
            raise ConfigurationError(
                "--maatml-min-success and a --teacher-mix above 0 exclude one another: success "
                "under a teacher's help is not the policy's"
            )
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
        self._check_gates()

    def _check_gates(self) -> None:
        """Of what a suite may complete, what is wrong by itself; raises ConfigurationError."""
        GatePolicy(
            kind=self.gate or "point",  # type: ignore[arg-type]
            alpha=0.05 if self.alpha is None else self.alpha,
            stopping=self.stop or "off",
            baseline=Path() if self.baseline is None else self.baseline,
            margin=self.margin,
        )

    @property
    def starts(self) -> bool:
        """Whether there is a policy to test without any suite."""
        return not self.check_env and (self.model is not None or self.policy is not None)

    @property
    def chooses_environment(self) -> bool:
        return self.env is not None or self.env_command is not None

    def takes(self, suite: SuiteDefinition) -> bool:
        """Whether the environment that was asked for is the suite's."""
        return not self.chooses_environment or (
            (suite.env, suite.env_command) == (self.env, self.env_command)
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
        rest = _Suite(model, suite)
        label = bool(rest.first(self.label, "label", bool, False))
        source = rest.first(self.source, "source", str, "dagger" if label else "rollout")
        round_ = rest.first(self.round, "round", int, 0)
        mix = self.teacher_mix if self.teacher_mix is not None else rest.extra.get("teacher_mix")
        return RolloutSpec(
            name=suite.name if suite is not None else None,
            model=model,
            policy=self.policy,
            env=self.env or (suite.env if suite is not None else None),
            env_command=self.env_command or (suite.env_command if suite is not None else None),
            base=base,
            tasks=self.tasks if self.tasks is not None else rest.tasks(base),
            options=self.options if self.options is not None else rest.options(),
            checkpoint=self.checkpoint,
            device=self.device or "auto",
            label=label,
            teacher_mix=self._mix(mix, round_),
            source=source,
            round=round_,
            seed=rest.first(self.seed, "seed", int, 0),
            max_decisions=rest.first(self.max_decisions, "max_decisions", int, 256),
            out=self._out(model, rest.folder, f"{source}-r{round_}"),
            gates=self._gate_policy(rest, label=label),
            carrier=self._carrier(rest),
            selection=self.selection,
            workers=1 if self.workers is None else self.workers,
            resume=self.resume,
            overwrite=self.overwrite,
            line=suite.line if suite is not None else 1,
        )

    @staticmethod
    def _mix(text: Any, round_: int) -> float:
        return teacher_mix_at(str(text or 0), round_, option="--teacher-mix")

    def _carrier(self, rest: _Suite) -> CarrierSettings:
        concurrency = self.concurrency
        if concurrency is None:
            concurrency = read_concurrency(rest.extra.get("concurrency"))
        return CarrierSettings(
            timeout=rest.first(self.timeout, "timeout", float, 60.0),
            concurrency=concurrency,
            processes=rest.first(self.env_processes, "env_processes", int, 1),
            restarts=rest.first(self.env_restarts, "env_restarts", int, 3),
            isolate=rest.first(self.isolate, "isolate", bool, False),
        )

    def _gate_policy(self, rest: _Suite, *, label: bool) -> GatePolicy:
        """Collecting is not testing: a suite's gates are for checks, unless it labels itself."""
        if self.collects and self.gates is None and self.baseline is None:
            return GatePolicy()
        baseline = rest.first(self.baseline, "baseline", str, None)
        margin = rest.extra.get("margin") if self.margin is None else self.margin
        return GatePolicy(
            rates=self._rates(rest, label=label, compared=baseline is not None),
            kind=rest.first(self.gate, "gate", str, "point"),
            alpha=rest.first(self.alpha, "alpha", float, 0.05),
            stopping=self.stop or rest.stopping(),
            baseline=None if baseline is None else rest.base / baseline,
            margin=None if margin is None else str(margin),
            max_errors=rest.first(self.max_errors, "max_errors", int, 0),
        )

    def _rates(self, rest: _Suite, *, label: bool, compared: bool) -> Mapping[str, str]:
        """By default every verdict must be a success, unless labels or a baseline say otherwise."""
        if self.gates is not None:
            return self.gates
        return rest.gates() or ({} if label or compared else {"default": "1"})

    def _out(self, model: ModelDefinition | None, below: str | None, leaf: str) -> Path:
        if self.out is not None:
            folder = self.out
        else:
            home = model.model_dir if model is not None else self.started_in
            folder = home / "output" / "episodes" / leaf
        return folder / item_name(below) if below is not None else folder


class _Suite:
    """The suite's own say, where there is a suite."""

    def __init__(self, model: ModelDefinition | None, suite: SuiteDefinition | None) -> None:
        self._suite = suite
        #: Where its episodes go, below the run's folder.
        self.folder = suite.folder if suite is not None else None
        self.base = model.model_dir if model is not None else Path()
        self.extra: Mapping[str, Any] = suite.extra if suite is not None else {}
        file = model.model_file if model is not None else "suite"
        self.where = f"{file}:{suite.line}" if suite is not None else ""

    def first(self, value: Any, key: str, kind: type, default: Any) -> Any:
        """`value` if it was given, else the suite's `key`, else the default."""
        if value is not None:
            return value
        own = self.extra.get(key)
        if own is None:
            return default
        accepted = (int, float) if kind is float else kind
        if not isinstance(own, accepted) or (isinstance(own, bool) and kind is not bool):
            raise ConfigurationError(f"{self.where}: {key} must be {kind.__name__}, not {own!r}")
        return own

    def stopping(self) -> str:
        # YAML reads a bare `off` as false.
        off = self.extra.get("stop") is False
        stop: str = "off" if off else self.first(None, "stop", str, "off")
        return stop

    def tasks(self, base: Path) -> Tasks:
        if self._suite is None:
            return {}
        tasks = self._suite.tasks
        if isinstance(tasks, str):
            return read_tasks(tasks, option=f"{self.where}: tasks", base=base)
        return check_tasks(tasks, where=f"{self.where}: tasks")

    def options(self) -> Mapping[str, Any]:
        return self._suite.options if self._suite is not None else {}

    def gates(self) -> Mapping[str, str]:
        if self._suite is None:
            return {}
        return check_gates(self._suite.min_success, where=f"{self.where}: min_success")


def _check_model(model: Path) -> None:
    if not model.exists():
        raise ConfigurationError(f"--maatml-model: there is no model folder {model}")
    if model.is_dir() and not (model / "model.yml").is_file():
        raise ConfigurationError(f"--maatml-model: there is no model.yml in {model}")


def read_concurrency(value: Any) -> int | None:
    """The episodes in flight, None for auto. Raises ConfigurationError for anything else."""
    if value in (None, "", "auto"):
        return None
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigurationError(f"concurrency must be a number from 1 or auto, not {value!r}")
    return value
