"""How episodes are run."""

from __future__ import annotations

from dataclasses import dataclass, field

from pytest_maatml.engine.protocol import JSONObject  # noqa: TC001 - read by users' tools
from pytest_maatml.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class RolloutConfig:
    """Where episodes come from and how they are driven.

    `teacher_mix` is the share of decisions on which the teacher acts (DAgger's beta; Ross, Gordon
    and Bagnell 2011), in [0, 1], and needs `label`. `options` go to every reset.

    Raises ConfigurationError (a ValueError) for a combination that cannot be.
    """

    source: str = "rollout"
    policy_version: str = ""
    round: int = 0
    label: bool = False
    teacher_mix: float = 0.0
    stop_unlabelled: bool = True
    max_decisions: int = 256
    options: JSONObject = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.teacher_mix <= 1:
            raise ConfigurationError(f"teacher_mix must lie in [0, 1], not {self.teacher_mix}")
        if self.teacher_mix and not self.label:
            raise ConfigurationError(
                "teacher_mix needs label=True: without labels there is no teacher to act"
            )
        if self.max_decisions < 1:
            raise ConfigurationError(f"max_decisions must be at least 1, not {self.max_decisions}")
