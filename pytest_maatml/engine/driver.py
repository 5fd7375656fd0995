"""From an environment, a policy and tasks to episodes: the two ways to drive a rollout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_maatml.engine.candidates import identifier
from pytest_maatml.engine.config import RolloutConfig
from pytest_maatml.engine.encoding import shown
from pytest_maatml.engine.flight import fly
from pytest_maatml.engine.in_process import InProcess
from pytest_maatml.engine.protocol import PROTOCOL
from pytest_maatml.engine.record import EpisodeError, Provenance, RolloutPlan
from pytest_maatml.engine.requests import MANY
from pytest_maatml.engine.run import Run
from pytest_maatml.engine.scoring import Scorer
from pytest_maatml.errors import ConfigurationError, RolloutEnvError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from pytest_maatml.engine.in_process import Carrier
    from pytest_maatml.engine.policy import Policy
    from pytest_maatml.engine.protocol import Environment, Hello, JSONObject
    from pytest_maatml.engine.record import Episode


def greet(carrier: Carrier, *, label: bool = False) -> Hello:
    """The environment's hello, checked.

    Raises RolloutEnvError for another protocol, for a hello without a name, and with `label` for
    an environment that has no teacher.
    """
    hello = carrier.hello()
    if not all(hasattr(hello, name) for name in ("name", "version", "protocol", "capabilities")):
        raise RolloutEnvError(
            f"hello must give a Hello, not {shown(hello)}", op="hello", kind="protocol"
        )
    if hello.protocol != PROTOCOL:
        raise RolloutEnvError(
            f"the environment speaks {hello.protocol!r}, this driver speaks {PROTOCOL!r}",
            op="hello",
            kind="protocol",
        )
    if not isinstance(hello.name, str) or not hello.name:
        raise RolloutEnvError(
            f"hello must give a name, not {shown(hello.name)}", op="hello", kind="protocol"
        )
    if not isinstance(hello.capabilities, tuple | list | set | frozenset):
        raise RolloutEnvError(
            f"hello must give the capabilities as a list, not {shown(hello.capabilities)}",
            op="hello",
            kind="protocol",
        )
    if label and "label" not in hello.capabilities:
        raise RolloutEnvError(
            f"environment {hello.name!r} cannot label states: its hello names the capabilities "
            f"{sorted(hello.capabilities)}; run without label, or give it a teacher",
            op="hello",
        )
    return hello


def plan_episode(task: JSONObject, index: int, config: RolloutConfig) -> RolloutPlan:
    """The episode of the task at `index` of the environment's list.

    Raises RolloutEnvError for a task that is not an object.
    """
    if not isinstance(task, dict):
        raise RolloutEnvError(
            f"tasks[{index}] must be an object, not {shown(task)}", op="tasks", kind="protocol"
        )
    return RolloutPlan(
        index=index,
        episode_id=f"{config.source}-r{config.round}-{index:06d}",
        task=task,
        task_id=_text_of(task.get("id"), ""),
        task_family=_text_of(task.get("family"), "unknown"),
    )


def _text_of(value: Any, default: str) -> str:
    if value is None or value == "":
        return default
    name = identifier(value)
    return str(value) if name is None else name


def drive(
    carrier: Carrier,
    policy: Policy,
    plans: Iterable[RolloutPlan],
    *,
    config: RolloutConfig,
    hello: Hello | None = None,
    concurrency: int | None = None,
) -> Generator[Episode | EpisodeError]:
    """Each episode or error as it ends; a free slot takes the next plan at once.

    At most `concurrency` episodes are in flight. By default that is what the carrier is worth, and
    in process many where the policy scores many at once. Closing the iterator closes the episodes
    that are under way.

    Raises RolloutEnvError as `greet` does, PolicyError for a policy that cannot score, and
    ConfigurationError for fewer than one episode in flight.
    """
    hello = greet(carrier, label=config.label) if hello is None else hello
    scorer = Scorer(policy)
    if concurrency is None:
        many = isinstance(carrier, InProcess) and scorer.batches
        concurrency = MANY if many else carrier.concurrency
    if concurrency < 1:
        raise ConfigurationError(f"concurrency must be at least 1, not {concurrency}")
    run = Run(scorer, config, _provenance(config, hello))
    if not isinstance(carrier, InProcess):
        return fly(run, carrier, plans, concurrency)
    if concurrency == 1:
        return run.one_by_one(carrier, plans)
    return run.together(carrier, plans, concurrency)


def rollout(
    environment: Environment,
    policy: Policy,
    tasks: Iterable[JSONObject],
    *,
    config: RolloutConfig | None = None,
) -> Iterator[JSONObject]:
    """Each task's episode as a dict of JSON values, lazily, one at a time and in task order.

    Raises RolloutEnvError for the first episode that did not run properly, PolicyError if the
    policy was to blame, and at once for an environment that breaks the protocol or, with
    `config.label`, has no teacher.
    """
    config = config or RolloutConfig()
    carrier = InProcess(environment)
    hello = greet(carrier, label=config.label)
    plans = (plan_episode(task, index, config) for index, task in enumerate(tasks))
    run = Run(Scorer(policy), config, _provenance(config, hello))
    return _records(run, carrier, plans, config.seed)


def _records(
    run: Run, carrier: InProcess, plans: Iterable[RolloutPlan], seed: int
) -> Iterator[JSONObject]:
    for plan in plans:
        try:
            episode = run.alone(carrier, plan)
        except RolloutEnvError as fault:
            fault.args = (EpisodeError.of(plan, fault, seed=seed).message,)
            raise
        yield episode.as_dict()


def _provenance(config: RolloutConfig, hello: Hello) -> Provenance:
    identity = {"name": hello.name, "version": str(hello.version), "protocol": hello.protocol}
    return Provenance(config.source, config.policy_version, config.round, identity)
