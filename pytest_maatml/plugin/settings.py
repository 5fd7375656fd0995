"""What pytest's command line and ini file say, read once and checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_maatml.arguments import (
    read_concurrency,
    read_min_success,
    read_options,
    read_shard,
    read_tasks,
)
from pytest_maatml.errors import ConfigurationError
from pytest_maatml.harness.choices import RolloutChoices
from pytest_maatml.harness.spec import Selection
from pytest_maatml.plugin.options import given, relative_to

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from pytest_maatml.suites import SuiteDefinition


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(RolloutChoices):
    """The options that were given: those of a rollout, and those of the session."""

    model: Path | None
    #: A policy from the ini file joins only runs that name no test of their own.
    starts_always: bool
    #: The environment is checked, and no policy.
    check_env: bool
    explain: bool

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
        settings._check_policy()
        settings.check(needs_environment=False)
        return settings

    def _check_policy(self) -> None:
        if self.model is not None and self.policy is not None:
            raise ConfigurationError(
                "--maatml-model and --maatml-policy both say where the policy is from; give one"
            )
        if self.policy is not None and not self.chooses_environment:
            raise ConfigurationError(
                "--maatml-policy needs an environment: give --maatml-env or --maatml-env-command"
            )
        if self.model is not None:
            _check_model(self.model)

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


def _check_model(model: Path) -> None:
    if not model.exists():
        raise ConfigurationError(f"--maatml-model: there is no model folder {model}")
    if model.is_dir() and not (model / "model.yml").is_file():
        raise ConfigurationError(f"--maatml-model: there is no model.yml in {model}")
