"""A rollout made live: the environment reached, its tasks planned, the policy loaded."""

from __future__ import annotations

import inspect
from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pytest_maatml import models, registry
from pytest_maatml.engine.child import split_command
from pytest_maatml.engine.driver import drive, greet, plan_episode
from pytest_maatml.engine.in_process import InProcess
from pytest_maatml.engine.requests import MANY
from pytest_maatml.engine.stdio import StdioEnvironment
from pytest_maatml.errors import ConfigurationError, MaatmlError, RolloutEnvError, describe
from pytest_maatml.gating.baseline import Baseline
from pytest_maatml.gating.family import FamilyGate, OverallGate
from pytest_maatml.harness.isolation import child_environment, serve_command
from pytest_maatml.harness.remote import run_in_workers
from pytest_maatml.harness.unserved import unserved
from pytest_maatml.records.identity import RunIdentity, digest_tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from pytest_maatml.engine.in_process import Carrier
    from pytest_maatml.engine.protocol import Environment, Hello, JSONObject
    from pytest_maatml.engine.record import Episode, EpisodeError, RolloutPlan
    from pytest_maatml.harness.spec import RolloutSpec
    from pytest_maatml.models import LoadedPolicy


def open_environment(spec: RolloutSpec, *, warn: Callable[[str], None]) -> Carrier:
    """The carrier to the environment of `spec`; whoever asks shuts it down.

    Raises ConfigurationError for an environment that nobody registered or that cannot be made,
    RolloutEnvError for a command that does not start.
    """
    if spec.env_command is not None:
        return _over_stdio(spec, split_command(spec.env_command), {}, warn)
    if spec.carrier.isolate:
        return _over_stdio(spec, serve_command(spec), child_environment(), warn)
    target, name = spec.env, type(spec.env).__qualname__
    if isinstance(target, str):
        name = target
        target = registry.resolve_reference(target, kind="environment", base=spec.base)
    return InProcess(make_environment(target, name), warn=warn)


def _over_stdio(
    spec: RolloutSpec, command: list[str], env: dict[str, str], warn: Callable[[str], None]
) -> StdioEnvironment:
    settings = spec.carrier
    return StdioEnvironment(
        command,
        timeout=settings.timeout or None,
        env=env,
        cwd=spec.base,
        processes=settings.processes,
        restarts=settings.restarts,
        concurrency=settings.concurrency or MANY,
        warn=warn,
    )


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
            f"{', '.join(missing)} of maatml.rollout_env/1{_NO_TEACHER * ('label' in missing)}"
        )
    made: Environment = target
    return made


_NO_TEACHER = "; without a teacher, label returns Labels(None, reason='no_teacher')"
_METHODS = ("hello", "tasks", "reset", "candidates", "label", "step", "verify", "close")


class Stage:
    """What it takes to run episodes of one spec in this process: an environment and a policy.

    Raises what `greet` raises.
    """

    def __init__(self, spec: RolloutSpec, carrier: Carrier) -> None:
        self.spec = spec
        self.carrier = carrier
        self.hello: Hello = _greet(carrier, spec)

    @cached_property
    def _loaded(self) -> LoadedPolicy | MaatmlError:
        spec = self.spec
        try:
            if spec.model is not None and spec.policy is None:
                return models.load_policy(
                    spec.model, checkpoint=spec.checkpoint, device=spec.device
                )
            if isinstance(spec.policy, str):
                return models.load_policy_reference(spec.policy, base=spec.base)
            return models.load_policy_object(spec.policy)
        except MaatmlError as error:
            return error

    def supply(self, policy: Any) -> None:
        """Take `policy` for what the spec's name stands for. Raises ModelError if it is none."""
        self._loaded = models.load_policy_object(policy, version=str(self.spec.policy))

    @property
    def policy(self) -> LoadedPolicy:
        """The policy, loaded at the first use. Raises ModelError, each time, where it fails."""
        if isinstance(self._loaded, MaatmlError):
            raise self._loaded
        return self._loaded

    def run(self, plans: Iterable[RolloutPlan]) -> Generator[Episode | EpisodeError]:
        """The episodes of `plans`, each as it ends. Raises ModelError where the policy fails."""
        return drive(
            self.carrier,
            self.policy.policy,
            plans,
            config=self.spec.config(self.policy.version),
            hello=self.hello,
            concurrency=self.spec.carrier.concurrency,
        )


def _greet(carrier: Carrier, spec: RolloutSpec) -> Hello:
    try:
        return greet(carrier, label=spec.label)
    except RolloutEnvError as fault:
        if fault.kind != "exited" or fault.stderr or spec.env_command is None:
            raise
        advice = unserved(split_command(spec.env_command), spec.base)
        raise RolloutEnvError(f"{fault}{advice}", op=fault.op, kind=fault.kind) from None


class Rig:
    """A stage with all tasks of its rollout planned.

    `families` holds the plans of each family that are to run; `plans` those of the whole list.
    Raises what `greet` raises, ConfigurationError or RolloutEnvError for tasks that are not as
    they must be, and ConfigurationError for gates that cannot pass.
    """

    def __init__(self, spec: RolloutSpec, carrier: Carrier) -> None:
        self.spec = spec
        self.stage = Stage(spec, carrier)
        self.hello = self.stage.hello
        tasks = self._tasks()
        self.tasks_digest = digest_tasks(tasks)
        self.plans = _plan(tasks, spec)
        whole: dict[str, list[RolloutPlan]] = {}
        for plan in self.plans:
            whole.setdefault(plan.task_family, []).append(plan)
        spec.check_families(whole)
        self.families = spec.selection.choose(whole)
        self._whole = whole
        self._alarms = spec.gates.alarms(whole)
        self._baseline = None if spec.gates.baseline is None else Baseline.read(spec.gates.baseline)
        self.overall = OverallGate.plan(spec.gates, len(self.plans), seed=spec.seed)
        for family in whole:
            self.gate(family)

    def gate(self, family: str) -> FamilyGate:
        """The gates of a family, all of it, with nothing fed yet."""
        return FamilyGate.plan(
            self.spec.gates,
            family,
            self._whole[family],
            seed=self.spec.seed,
            baseline=self._baseline,
            overall=self.overall,
            alarms=self._alarms,
        )

    def _tasks(self) -> list[JSONObject]:
        query = self.spec.tasks
        if isinstance(query, list):
            if not query:
                raise ConfigurationError("the list of tasks is empty")
            return query
        if not self.hello.supports("tasks"):
            raise ConfigurationError(
                f"environment {self.hello.name!r} makes no tasks of its own: give a JSON array "
                f"of tasks in place of the query {query!r}"
            )
        tasks = self.stage.carrier.tasks(query)
        if not isinstance(tasks, list | tuple):
            raise _breach(f"tasks must be a list, not {tasks!r:.200}")
        if not tasks:
            raise ConfigurationError(
                f"environment {self.hello.name!r} returned no task for the query {query!r}"
            )
        return list(tasks)

    @property
    def identity(self) -> RunIdentity:
        """What makes this run the same as another; loads the policy. Raises ModelError."""
        spec, hello, policy = self.spec, self.hello, self.stage.policy
        return RunIdentity(
            policy=policy.version,
            checkpoint=policy.digest,
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

    def run(self, plans: Iterable[RolloutPlan]) -> Generator[Episode | EpisodeError]:
        """The episodes of `plans`, each as it ends, in this process or in workers.

        Raises ModelError where the policy fails, ConfigurationError where workers cannot have it.
        """
        if self.spec.workers > 1:
            return run_in_workers(self.spec, plans)
        return self.stage.run(plans)


def _plan(tasks: list[JSONObject], spec: RolloutSpec) -> list[RolloutPlan]:
    config = spec.config("")
    plans = [plan_episode(task, index, config) for index, task in enumerate(tasks)]
    ids = [plan.task_id for plan in plans]
    if not all(ids):
        index = ids.index("")
        raise _breach(f"tasks[{index}] must have an id: {plans[index].task!r:.200}")
    if len(set(ids)) < len(ids):
        twice, _ = Counter(ids).most_common(1)[0]
        first = ids.index(twice)
        second = ids.index(twice, first + 1)
        raise _breach(
            f"tasks[{first}] and tasks[{second}] have the same id {twice!r}; give each task an id "
            f"of its own"
        )
    return plans


def _breach(message: str) -> RolloutEnvError:
    return RolloutEnvError(message, op="tasks", kind="protocol")
