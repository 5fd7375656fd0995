"""A model folder or a policy as a test file: a collector a suite, an item a family."""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_maatml import registry
from pytest_maatml.errors import ConfigurationError, MaatmlError
from pytest_maatml.models import check_predictor, load_plugins, read_model
from pytest_maatml.plugin.session import session_of
from pytest_maatml.suites import suites
from pytest_maatml.wording import failure_text, shown_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_maatml.plugin.settings import Settings
    from pytest_maatml.results import FamilyResult
    from pytest_maatml.spec import RolloutSpec

_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]|_(?=u[0-9a-f]+_)")


def item_name(text: str) -> str:
    """`text` in letters, digits and `_.-` alone; different texts have different names.

    Any other character becomes `_uHEX_`, and so does an underscore that would look like the start
    of one.
    """
    return _UNSAFE.sub(lambda match: f"_u{ord(match[0]):x}_", text)


class GateNotMet(Exception):
    """A family whose gate is not met, or not decided."""

    def __init__(self, result: FamilyResult) -> None:
        super().__init__(result.family)
        self.result = result


class _Quiet(pytest.Collector):
    """Shows what a user or an environment did without a traceback of ours."""

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, MaatmlError):
            return str(excinfo.value)
        return super().repr_failure(excinfo)


class RolloutFile(_Quiet, pytest.File):
    """A file whose rollouts are collected."""

    def specs(self) -> Iterable[RolloutSpec]:
        raise NotImplementedError

    def collect(self) -> Iterator[SuiteCollector]:
        for spec in self.specs():
            yield SuiteCollector.from_parent(self, name=self._suite_name(spec), spec=spec)

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

    def collect(self) -> Iterator[FamilyItem]:
        rig = session_of(self.config).rig(self.spec)
        for family in rig.families:
            yield FamilyItem.from_parent(self, name=item_name(family), family=family)


class FamilyItem(pytest.Item):
    """The episodes of one task family, judged by the family's gate."""

    parent: SuiteCollector

    def __init__(self, *, family: str, **node: Any) -> None:
        super().__init__(**node)
        self.family = family
        self.add_marker(pytest.mark.maatml)

    def runtest(self) -> None:
        # The policy is loaded here and not in setup, whose failures pytest shows by traceback.
        session = session_of(self.config)
        result = session.run(self, self.parent.spec, self.family, suite=self.parent.name)
        if not result.ok:
            raise GateNotMet(result)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        error = excinfo.value
        if isinstance(error, GateNotMet):
            return failure_text(error.result, again=command_for(self))
        if isinstance(error, MaatmlError):
            return str(error)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.parent.spec.line - 1, f"{self.parent.name}::{self.family}"


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
        file, _, _ = registry.find("predictor", name).file.rpartition(":")
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


def command_for(item: pytest.Item) -> str:
    """The command that runs `item` alone, as somebody would type it where pytest was started."""
    config = item.config
    started = config.invocation_params
    positional = set(config.args) if config.args else set()
    kept = [str(arg) for arg in started.args if str(arg) not in positional]
    _, _, parts = item.nodeid.partition("::")
    node = f"{shown_path(item.path, started.dir)}::{parts}"
    return shlex.join(["pytest", *kept, node])
