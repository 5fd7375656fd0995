"""A rollout made live: the environment reached, its tasks planned, the policy loaded."""

from __future__ import annotations

import inspect
import shlex
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pytest_maatml import models, registry
from pytest_maatml.engine.driver import drive, greet, plan_episode
from pytest_maatml.engine.in_process import InProcess
from pytest_maatml.engine.stdio import StdioEnvironment
from pytest_maatml.errors import ConfigurationError, MaatmlError, RolloutEnvError, describe
from pytest_maatml.records.identity import RunIdentity, digest_tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pytest_maatml.engine.protocol import Environment, Hello, JSONObject
    from pytest_maatml.engine.record import Episode, EpisodeError, RolloutPlan
    from pytest_maatml.engine.requests import Carrier
    from pytest_maatml.models import LoadedPolicy
    from pytest_maatml.spec import RolloutSpec


def open_environment(spec: RolloutSpec, *, warn: Callable[[str], None]) -> Carrier:
    """The carrier to the environment of `spec`; whoever asks shuts it down.

    Raises ConfigurationError for an environment that nobody registered or that cannot be made,
    RolloutEnvError for a command that does not start.
    """
    if spec.env_command is not None:
        command = shlex.split(spec.env_command)
        return StdioEnvironment(command, timeout=spec.carrier.timeout or None, warn=warn)
    assert spec.env is not None
    target = registry.resolve_reference(spec.env, kind="environment", base=spec.base)
    return InProcess(make_environment(target, spec.env), warn=warn)


def make_environment(target: Any, reference: str) -> Environment:
    """An environment out of a class, a factory or the object itself.

    Raises ConfigurationError where none can be made, or where it lacks methods of the protocol.
    """
    if inspect.isclass(target) or not hasattr(target, "reset"):
        if not callable(target):
            raise ConfigurationError(
                f"environment {reference!r} is a {type(target).__qualname__}, neither an "
                f"environment nor something that makes one"
            )
        try:
            target = target()
        except Exception as error:
            raise ConfigurationError(
                f"environment {reference!r} cannot be made: {describe(error)}"
            ) from error
    missing = [name for name in _METHODS if not callable(getattr(target, name, None))]
    if missing:
        raise ConfigurationError(
            f"environment {reference!r} ({type(target).__qualname__}) lacks the methods "
            f"{', '.join(missing)} of maatml.rollout_env/1"
        )
    made: Environment = target
    return made


_METHODS = ("hello", "tasks", "reset", "candidates", "label", "step", "verify", "close")


class Rig:
    """What it takes to run the episodes of one spec over `carrier`.

    Raises what `greet` raises, and ConfigurationError for tasks that cannot be told apart.
    """

    def __init__(self, spec: RolloutSpec, carrier: Carrier) -> None:
        self.spec = spec
        self.carrier = carrier
        self.hello: Hello = greet(carrier, label=spec.label)
        tasks = self._tasks()
        self.tasks_digest = digest_tasks(tasks)
        self.plans = _plan(tasks, spec)
        self.families: dict[str, list[RolloutPlan]] = {}
        for plan in self.plans:
            self.families.setdefault(plan.task_family, []).append(plan)
        spec.check_families(self.families)

    def _tasks(self) -> list[JSONObject]:
        query = self.spec.tasks
        if isinstance(query, list):
            return query
        if not self.hello.supports("tasks"):
            raise ConfigurationError(
                f"environment {self.hello.name!r} makes no tasks of its own: give a JSON array "
                f"of tasks in place of the query {query!r}"
            )
        tasks = self.carrier.tasks(query)
        if not isinstance(tasks, list | tuple):
            raise RolloutEnvError(
                f"tasks must be a list, not {tasks!r:.200}", op="tasks", kind="protocol"
            )
        if not tasks:
            raise ConfigurationError(
                f"environment {self.hello.name!r} returned no task for the query {query!r}"
            )
        return list(tasks)

    @cached_property
    def _loaded(self) -> LoadedPolicy | MaatmlError:
        try:
            if self.spec.model is not None:
                return models.load_policy(
                    self.spec.model, checkpoint=self.spec.checkpoint, device=self.spec.device
                )
            assert self.spec.policy is not None
            return models.load_policy_reference(self.spec.policy, base=self.spec.base)
        except MaatmlError as error:
            return error

    @property
    def policy(self) -> LoadedPolicy:
        """The policy, loaded at the first use. Raises ModelError, each time, where it fails."""
        if isinstance(self._loaded, MaatmlError):
            raise self._loaded
        return self._loaded

    @property
    def identity(self) -> RunIdentity:
        """What makes this run the same as another; loads the policy. Raises ModelError."""
        spec, hello = self.spec, self.hello
        return RunIdentity(
            policy=self.policy.version,
            checkpoint=self.policy.digest,
            environment={
                "name": hello.name,
                "version": str(hello.version),
                "protocol": hello.protocol,
            },
            options=dict(spec.options),
            seed=spec.seed,
            label=spec.label,
            teacher_mix=spec.teacher_mix,
            max_decisions=spec.max_decisions,
            tasks=self.tasks_digest,
            planned=len(self.plans),
            source=spec.source,
            round=spec.round,
        )

    def run(self, plans: Iterable[RolloutPlan]) -> Iterator[Episode | EpisodeError]:
        """The episodes of `plans`, each as it ends. Raises ModelError where the policy fails."""
        return drive(
            self.carrier,
            self.policy.policy,
            plans,
            config=self.spec.config(self.policy.version),
            hello=self.hello,
            concurrency=self.spec.carrier.concurrency,
        )


def _plan(tasks: list[JSONObject], spec: RolloutSpec) -> list[RolloutPlan]:
    config = spec.config("")
    plans = [plan_episode(task, index, config) for index, task in enumerate(tasks)]
    seen: dict[str, int] = {}
    for plan in plans:
        if not plan.task_id:
            raise RolloutEnvError(
                f"tasks[{plan.index}] must have an id: {plan.task!r:.200}",
                op="tasks",
                kind="protocol",
            )
        first = seen.setdefault(plan.task_id, plan.index)
        if first != plan.index:
            raise RolloutEnvError(
                f"tasks[{first}] and tasks[{plan.index}] have the same id {plan.task_id!r}; "
                f"give each task an id of its own",
                op="tasks",
                kind="protocol",
            )
    return plans
