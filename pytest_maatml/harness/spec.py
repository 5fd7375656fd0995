"""What one rollout is to run: everything that a user can say about it, checked, nothing opened."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from pytest_maatml.arguments import DEFAULT_GATE, OVERALL_GATE
from pytest_maatml.engine.config import RolloutConfig
from pytest_maatml.errors import ConfigurationError
from pytest_maatml.gating.policy import GatePolicy

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_maatml.arguments import Tasks
    from pytest_maatml.engine.record import RolloutPlan
    from pytest_maatml.models import ModelDefinition


def check_least(name: str, value: float, least: int) -> None:
    """Raise ConfigurationError for a number below `least`, or none at all."""
    if not value >= least:
        raise ConfigurationError(f"{name} must be at least {least}, not {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CarrierSettings:
    """How the environment is reached."""

    #: Seconds for a request over stdio; 0 is no deadline.
    timeout: float = 60.0
    #: Episodes in flight; None is what the carrier is worth.
    concurrency: int | None = None
    #: Copies of the program, and how often each is started again.
    processes: int = 1
    restarts: int = 3
    #: Serve an environment of this process's from a child of its own.
    isolate: bool = False

    def __post_init__(self) -> None:
        check_least("timeout", self.timeout, 0)
        check_least("env-processes", self.processes, 1)
        check_least("env-restarts", self.restarts, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which episodes of the whole list run; the others keep their index and their id.

    `tasks` are ids or globs; `shard` (i, n) is every n-th episode, from the i-th (from 1).
    """

    tasks: tuple[str, ...] = ()
    shard: tuple[int, int] | None = None

    @property
    def is_sample(self) -> bool:
        """Whether a family runs whole, so that its rate can be judged."""
        return not self.tasks and self.shard is None

    def choose(self, families: Mapping[str, list[RolloutPlan]]) -> dict[str, list[RolloutPlan]]:
        """The plans that run, without the families of which none does.

        Raises ConfigurationError for a task id or glob that no task has.
        """
        for wanted in self.tasks:
            if not any(_is_called(plan, wanted) for plans in families.values() for plan in plans):
                raise ConfigurationError(
                    f"--maatml-task={wanted}: no task is called so; the first is "
                    f"{next(iter(families.values()))[0].task_id!r}"
                )
        if self.is_sample:
            return dict(families)
        chosen = {name: list(filter(self.takes, plans)) for name, plans in families.items()}
        return {name: plans for name, plans in chosen.items() if plans}

    def takes(self, plan: RolloutPlan) -> bool:
        """Whether the episode of `plan` runs."""
        if self.shard is not None and plan.index % self.shard[1] != self.shard[0] - 1:
            return False
        return not self.tasks or any(_is_called(plan, wanted) for wanted in self.tasks)


def _is_called(plan: RolloutPlan, wanted: str) -> bool:
    return plan.task_id == wanted or fnmatchcase(plan.task_id, wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSpec:
    """One rollout: a policy, an environment, its tasks, and where the episodes go.

    Raises ConfigurationError for settings that exclude one another.
    """

    name: str | None = None
    #: One of these two says where the policy is from; `policy` as `--maatml-policy` takes it, or
    #: an object with `score`, or what makes one.
    model: ModelDefinition | None = None
    policy: Any = None
    #: One of these two says where the environment is from; `env` as `--maatml-env` takes it, or an
    #: environment, or what makes one.
    env: Any = None
    env_command: str | None = None
    #: References to files are relative to this folder.
    base: Path
    tasks: Tasks = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    checkpoint: str | None = None
    device: str = "auto"
    label: bool = False
    teacher_mix: float = 0.0
    source: str
    round: int = 0
    seed: int = 0
    max_decisions: int = 256
    out: Path
    gates: GatePolicy = field(default_factory=GatePolicy)
    carrier: CarrierSettings = field(default_factory=CarrierSettings)
    selection: Selection = field(default_factory=Selection)
    #: Processes that share the episodes of a family, each with its own environment and policy.
    workers: int = 1
    #: Go on where an unfinished run stopped; let a collection of another run be replaced.
    resume: bool = False
    overwrite: bool = False
    #: Where the suite stands, for reports: the file's line, from 1.
    line: int = 1

    def __post_init__(self) -> None:
        if not self.source or set(self.source) & set("/\\"):
            raise ConfigurationError(
                f"source must be a name, not {self.source!r}: episodes and their folder are called "
                f"after it"
            )
        check_least("round", self.round, 0)
        check_least("max-decisions", self.max_decisions, 1)
        check_least("workers", self.workers, 1)
        if self.gates.asks and self.teacher_mix > 0:
            raise ConfigurationError(
                "a gate and a teacher mix above 0 exclude one another: success under a teacher's "
                "help is not the policy's; gate a run without --teacher-mix"
            )

    def config(self, policy_version: str) -> RolloutConfig:
        """The engine's view of it."""
        return RolloutConfig(
            source=self.source,
            policy_version=policy_version,
            round=self.round,
            label=self.label,
            teacher_mix=self.teacher_mix,
            max_decisions=self.max_decisions,
            options=dict(self.options),
            seed=self.seed,
        )

    def check_families(self, families: Mapping[str, Any]) -> None:
        """Raise ConfigurationError for a family with a reserved name or a gate without family."""
        for reserved in (DEFAULT_GATE, OVERALL_GATE):
            if reserved in families:
                raise ConfigurationError(
                    f"the environment has a family called {reserved!r}, which is the name of a "
                    f"gate; rename the family"
                )
        known = {*families, DEFAULT_GATE, OVERALL_GATE}
        unknown = [name for name in self.gates.rates if name not in known]
        if unknown:
            raise ConfigurationError(
                f"there is a gate for the family {unknown[0]!r}, but the tasks are of the "
                f"families {', '.join(sorted(families))}"
            )
