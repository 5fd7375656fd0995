"""A model folder or a policy as a test file: a collector a suite, an item a family."""

from __future__ import annotations

import importlib.util
import sys
from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_maatml import registry
from pytest_maatml.arguments import OVERALL_GATE
from pytest_maatml.errors import ConfigurationError, MaatmlError
from pytest_maatml.models import check_predictor, load_plugins, read_model
from pytest_maatml.plugin.containment import contained
from pytest_maatml.plugin.items import FamilyItem, OverallItem
from pytest_maatml.plugin.session import session_of
from pytest_maatml.suites import item_name, suites

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_maatml.harness.spec import RolloutSpec
    from pytest_maatml.plugin.settings import Settings


class _Quiet(pytest.Collector):
    """Shows what a user or an environment did without a traceback of ours."""

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, MaatmlError):
            return str(excinfo.value)
        return super().repr_failure(excinfo)


class RolloutFile(_Quiet, pytest.File):
    """A file whose rollouts are collected."""

    @abstractmethod
    def specs(self) -> Iterable[RolloutSpec]:
        """The rollouts that it asks for. Raises MaatmlError."""

    def collect(self) -> Iterator[SuiteCollector]:
        taken = set()
        with contained():
            specs = self.specs()
        for spec in specs:
            name = self._suite_name(spec)
            if name in taken:
                raise ConfigurationError(
                    f"{self.path}:{spec.line}: another suite is called {name!r} in the ids of its "
                    f"items already; give each a `name` of its own"
                )
            taken.add(name)
            yield SuiteCollector.from_parent(self, name=name, spec=spec)

    def _suite_name(self, spec: RolloutSpec) -> str:
        if spec.name is not None:
            return item_name(spec.name)
        if spec.env is not None and ":" not in spec.env:
            return item_name(spec.env)
        return item_name(session_of(self.config).rig(spec).hello.name)


class ModelFile(RolloutFile):
    """A model.yml: its suites, or the environment that the options name."""

    def specs(self) -> Iterable[RolloutSpec]:
        settings = session_of(self.config).settings
        model = read_model(self.path)
        load_plugins(model)
        check_predictor(model)
        declared = suites(model)
        taken = [suite for suite in declared if settings.takes(suite)]
        if taken:
            return [settings.spec(base=model.model_dir, model=model, suite=s) for s in taken]
        if not settings.starts:  # it was found in the path, and none of its suites is meant
            return []
        if not settings.chooses_environment:
            raise ConfigurationError(
                f"{self.path} declares no suite under extensions.pytest_maatml.suites, and no "
                f"environment is given: add a suite, or give --maatml-env or --maatml-env-command"
            )
        return [settings.spec(base=self.config.invocation_params.dir, model=model)]


class PolicyFile(RolloutFile):
    """The file of a policy that has no model folder."""

    def specs(self) -> Iterable[RolloutSpec]:
        return [session_of(self.config).settings.spec(base=self.config.invocation_params.dir)]


class SuiteCollector(_Quiet):
    """One environment and its tasks."""

    def __init__(self, *, spec: RolloutSpec, **node: Any) -> None:
        super().__init__(**node)
        self.spec = spec

    def collect(self) -> Iterator[pytest.Item]:
        rig = session_of(self.config).rig(self.spec)
        for family in rig.families:
            name = item_name(family)
            yield FamilyItem.from_parent(self, name=name, spec=self.spec, family=family)
        if rig.overall is not None and not self.spec.selection.tasks:
            yield OverallItem.from_parent(self, name=OVERALL_GATE, spec=self.spec)


def rollout_file(parent: pytest.Collector, settings: Settings) -> RolloutFile:
    """The file that the options ask for. Raises ConfigurationError where it cannot be told."""
    kind: type[RolloutFile]
    if settings.model is not None:
        kind, path = ModelFile, settings.model
        path = path / "model.yml" if path.is_dir() else path
    else:
        assert settings.policy is not None
        kind, path = PolicyFile, policy_path(settings.policy, parent.config)
    rootpath = parent.config.rootpath
    outside: dict[str, Any] = {} if path.is_relative_to(rootpath) else {"nodeid": path.as_posix()}
    return kind.from_parent(parent, path=path, **outside)


def policy_path(reference: str, config: pytest.Config) -> Path:
    """The file that the policy `reference` is from; no code of the policy's own module is run."""
    base = config.invocation_params.dir
    holder, _, _ = reference.rpartition(":")
    if holder.endswith(".py"):
        return (base / holder).resolve()
    if not holder:
        return _registering_file(reference, config)
    if str(base) not in sys.path:
        sys.path.insert(0, str(base))
    try:
        found = importlib.util.find_spec(holder)
    except (ImportError, ValueError):
        found = None
    if found is None or not found.origin or not Path(found.origin).is_file():
        raise ConfigurationError(
            f"--maatml-policy={reference}: there is no module {holder!r}; looked in {base} and "
            f"the rest of sys.path"
        )
    return Path(found.origin).resolve()


def _registering_file(name: str, config: pytest.Config) -> Path:
    """The file that registers the policy, or that may supply it through our hook."""
    try:
        found = registry.find("predictor", name, advice=registry.WITHOUT_A_NAME)
        file, _, _ = found.file.rpartition(":")
    except ConfigurationError:
        suppliers = config.hook.pytest_maatml_policy.get_hookimpls()
        if not suppliers:
            raise
        file = getattr(suppliers[-1].plugin, "__file__", None) or ""
    return Path(file or config.inipath or config.invocation_params.dir)


def model_file_in_path(path: Path, parent: pytest.Collector) -> RolloutFile | None:
    """The file for a model.yml that lies where pytest collects, if it declares suites."""
    if b"pytest_maatml" not in path.read_bytes() or session_of(parent.config).settings.starts:
        return None
    try:
        declared = suites(read_model(path))
    except MaatmlError:  # its collection will say what is wrong with it
        return ModelFile.from_parent(parent, path=path)
    return ModelFile.from_parent(parent, path=path) if declared else None
