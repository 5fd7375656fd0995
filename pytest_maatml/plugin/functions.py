"""Test functions that a rollout is handed to: `@pytest.mark.maatml` and the fixture `rollout`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from pytest_maatml.arguments import check_gates, check_rate, check_tasks, read_concurrency
from pytest_maatml.engine.encoding import snapshot
from pytest_maatml.errors import ConfigurationError, MaatmlError, did_you_mean
from pytest_maatml.models import load_plugins, read_model
from pytest_maatml.plugin.containment import contained
from pytest_maatml.plugin.options import RIVALS
from pytest_maatml.plugin.session import MaatmlWarning, session_of
from pytest_maatml.suites import item_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_maatml.harness.results import FamilyResult
    from pytest_maatml.harness.spec import RolloutSpec
    from pytest_maatml.plugin.settings import Settings
    from pytest_maatml.records.folder import RunFolder

#: Keywords of the marker that go into the settings as they are, and what they must be.
_PLAIN: Final[dict[str, type]] = {
    "env": object, "env_command": str, "policy": object, "checkpoint": str, "device": str,
    "label": bool, "source": str, "round": int, "seed": int, "max_decisions": int,
    "timeout": float, "env_processes": int, "env_restarts": int, "isolate": bool, "workers": int,
    "gate": str, "alpha": float, "stop": str, "max_errors": int, "options": dict,
}  # fmt: skip
KEYWORDS: Final = (
    "model", "tasks", "teacher_mix", "min_success", "baseline", "margin", "concurrency", *_PLAIN,
)  # fmt: skip
#: Options of collections and checks that a test with assertions of its own does not follow.
_NOT_FOR_TESTS: Final[dict[str, Any]] = {
    "label": None,
    "collects": False,
    "teacher_mix": None,
    "gates": None,
    "baseline": None,
    "margin": None,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """What the fixture `rollout` gives a test: a family that has run.

    Episodes are streamed from disk; none is held in memory.
    """

    result: FamilyResult
    _folder: RunFolder
    _indexes: tuple[int, ...]

    @property
    def family(self) -> str:
        return self.result.family

    @property
    def planned(self) -> int:
        """Episodes that were to run."""
        return self.result.planned

    @property
    def success(self) -> int:
        """Episodes that the environment verified as success."""
        return self.result.success

    @property
    def errors(self) -> int:
        """Episodes that did not run properly: neither success nor failure."""
        return self.result.errors

    @property
    def success_rate(self) -> float:
        """Successes over the episodes that ran to a verdict; 0.0 if none did."""
        return self.success / self.result.episodes if self.result.episodes else 0.0

    @property
    def wilson95(self) -> tuple[float, float]:
        """Wilson's 95 % interval of the success rate."""
        return self.result.interval

    @property
    def verdict(self) -> str:
        """PASS, FAIL, NOT DECIDED, or `-` where the marker gives no gate."""
        return self.result.verdict

    def episodes(self) -> Iterator[dict[str, Any]]:
        """The records, `maatml.rollout_episode/1`, in the order of the tasks."""
        return self._folder.episodes(self._indexes)

    def failures(self) -> Iterator[dict[str, Any]]:
        """The records of the episodes that did not succeed."""
        return (episode for episode in self.episodes() if not episode["outcome"]["success"])


def parametrize(metafunc: pytest.Metafunc) -> None:
    """One item a family for a marked test function that asks for `rollout`."""
    try:
        with contained():
            spec = _spec_of(metafunc.definition)
        families = list(session_of(metafunc.config).rig(spec).families)
    except MaatmlError as error:
        raise pytest.Collector.CollectError(f"{metafunc.definition.nodeid}: {error}") from None
    metafunc.parametrize(
        "rollout",
        [(spec, family) for family in families],
        ids=[item_name(family) for family in families],
        indirect=True,
    )


def refuse_idle(definition: Any) -> None:
    """Refuse a function marked for a rollout that asks for none: it would pass without a run."""
    if any(mark.name == "maatml" and mark.kwargs for mark in definition.own_markers):
        raise pytest.Collector.CollectError(
            f"{definition.nodeid}: it is marked maatml but does not take the fixture `rollout`, so "
            f"no episode would run; write `def {definition.name}(rollout)`, or take the marker away"
        )


def run(request: pytest.FixtureRequest) -> Rollout:
    """The family of this item, run. Fails the test where the rollout cannot be run at all."""
    if not hasattr(request, "param"):
        pytest.fail(
            "the fixture `rollout` needs @pytest.mark.maatml(env=..., tasks=...) on the test, its "
            "class or its module",
            pytrace=False,
        )
    spec, family = request.param
    session = session_of(request.config)
    try:
        result = session.run(request.node, spec, family, suite=spec.name)
    except (MaatmlError, MaatmlWarning) as error:
        raise pytest.fail.Exception(str(error), pytrace=False) from None
    indexes = tuple(plan.index for plan in session.rig(spec).families[family])
    return Rollout(result=result, _folder=session.folder(spec), _indexes=indexes)


def _spec_of(definition: Any) -> RolloutSpec:
    session = session_of(definition.config)
    given = _keywords(definition)
    settings, model = _settings(session.settings, given, definition.config)
    spec = settings.spec(base=definition.config.invocation_params.dir, model=model)
    if spec.model is None and spec.policy is None:
        raise ConfigurationError(
            "there is no policy: give the marker policy=... or model=..., or pytest "
            "--maatml-policy or --maatml-model"
        )
    if spec.env is None and spec.env_command is None:
        raise ConfigurationError(
            "there is no environment: give the marker env=... or env_command=..., or pytest "
            "--maatml-env or --maatml-env-command"
        )
    name = _name_of(definition)
    gates = replace(spec.gates, rates=_rates(given))
    return replace(spec, name=name, out=spec.out / name, gates=gates)


def _keywords(definition: Any) -> dict[str, Any]:
    """What the markers say together; the closest comes first."""
    given: dict[str, Any] = {}
    for marker in definition.iter_markers("maatml"):
        if marker.args:
            raise ConfigurationError(f"the marker maatml takes keywords alone, not {marker.args!r}")
        for key, value in marker.kwargs.items():
            if key not in KEYWORDS:
                raise ConfigurationError(
                    f"the marker maatml has no keyword {key!r}; known: {', '.join(KEYWORDS)}"
                    f"{did_you_mean(key, KEYWORDS)}"
                )
            if RIVALS.get(key) not in given:
                given.setdefault(key, value)
    return given


def _settings(
    settings: Settings, given: Mapping[str, Any], config: pytest.Config
) -> tuple[Settings, Any]:
    """The settings of the session with what the markers say in their place."""
    changes: dict[str, Any] = dict(_NOT_FOR_TESTS)
    changes |= {key: _plain(key, given[key]) for key in _PLAIN if key in given}
    if "concurrency" in given:
        changes["concurrency"] = read_concurrency(given["concurrency"])
    for key, rival in RIVALS.items():
        if key in given:
            changes[rival] = None
    if "tasks" in given:
        changes["tasks"] = check_tasks(given["tasks"], where="the marker's tasks")
    for key in ("teacher_mix", "margin"):
        if key in given:
            changes[key] = str(given[key])
    if "baseline" in given:
        changes["baseline"] = Path(config.rootpath, given["baseline"])
    folder = settings.model if given.get("policy") is None else None
    if "model" in given:
        folder = Path(config.rootpath, given["model"])
    model = None
    if folder is not None:
        model = read_model(folder)
        load_plugins(model)
    return replace(settings, **changes), model


def _plain(key: str, value: Any) -> Any:
    kind = _PLAIN[key]
    accepted = (int, float) if kind is float else kind
    mistaken = isinstance(value, bool) and kind in (int, float)
    if value is not None and (mistaken or not isinstance(value, accepted)):
        raise ConfigurationError(f"the marker's {key} must be {kind.__name__}, not {value!r}")
    if kind is dict:
        snapshot(value, f"the marker's {key}")
    return value


def _rates(given: Mapping[str, Any]) -> Mapping[str, str]:
    """A marked test's own assertions are its gate, unless the marker gives one."""
    wanted = given.get("min_success")
    if wanted is None:
        return {}
    if isinstance(wanted, dict):
        return check_gates(wanted, where="min_success")
    return {"default": check_rate(str(wanted), where="min_success")}


def _name_of(definition: Any) -> str:
    """Module and function in dots: two tests of one name have folders of their own."""
    file, _, parts = definition.nodeid.partition("::")
    module = file.removesuffix(".py").replace("/", ".")
    return item_name(f"{module}.{parts.partition('[')[0].replace('::', '.')}")
