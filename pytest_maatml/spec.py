"""What one rollout is to run: everything that a user can say about it, checked, nothing opened."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_maatml.arguments import DEFAULT_GATE, OVERALL_GATE
from pytest_maatml.engine.config import RolloutConfig
from pytest_maatml.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_maatml.arguments import Tasks
    from pytest_maatml.models import ModelDefinition


@dataclass(frozen=True, slots=True, kw_only=True)
class CarrierSettings:
    """How the environment is reached. `concurrency` None: what the carrier is worth."""

    timeout: float = 60.0
    concurrency: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSpec:
    """One rollout: a policy, an environment, its tasks, and where the episodes go.

    Raises ConfigurationError for settings that exclude one another.
    """

    name: str | None = None
    #: One of these two says where the policy is from; `policy` as `--maatml-policy` takes it.
    model: ModelDefinition | None = None
    policy: str | None = None
    #: One of these two says where the environment is from; `env` as `--maatml-env` takes it.
    env: str | None = None
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
    #: family -> rate, exact text; empty: nothing is gated.
    gates: Mapping[str, str] = field(default_factory=dict)
    carrier: CarrierSettings = field(default_factory=CarrierSettings)
    #: Where the suite stands, for reports: the file's line, from 1.
    line: int = 1

    def __post_init__(self) -> None:
        if self.gates and self.teacher_mix > 0:
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

    def gate_of(self, family: str) -> str | None:
        """The rate that `family` must reach, or None where nothing is asked of it."""
        return self.gates.get(family, self.gates.get(DEFAULT_GATE, "1" if self.gates else None))

    def check_families(self, families: Mapping[str, Any]) -> None:
        """Raise ConfigurationError for a family with a reserved name or a gate without family."""
        for reserved in (DEFAULT_GATE, OVERALL_GATE):
            if reserved in families:
                raise ConfigurationError(
                    f"the environment has a family called {reserved!r}, which is the name of a "
                    f"gate; rename the family"
                )
        unknown = [name for name in self.gates if name not in families and name != DEFAULT_GATE]
        if unknown:
            raise ConfigurationError(
                f"there is a gate for the family {unknown[0]!r}, but the tasks are of the "
                f"families {', '.join(sorted(families))}"
            )
