"""`--maatml-check-env`: the rules of the environment protocol as test items."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import warnings
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_maatml import registry
from pytest_maatml.conformance.check import check_rule
from pytest_maatml.conformance.rules import rules_for
from pytest_maatml.conformance.subject import subject_of
from pytest_maatml.engine.child import split_command
from pytest_maatml.errors import ConfigurationError, MaatmlError
from pytest_maatml.models import load_plugins, read_model
from pytest_maatml.plugin.containment import contained

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from pytest_maatml.conformance.check import Finding, Rule
    from pytest_maatml.conformance.subject import Subject
    from pytest_maatml.plugin.settings import Settings


def activate(config: pytest.Config, settings: Settings) -> None:
    """Register what collects the rules. Raises pytest.UsageError without an environment."""
    if not settings.chooses_environment:
        raise pytest.UsageError(
            "maatml: --maatml-check-env needs to know which environment: give --maatml-env or "
            "--maatml-env-command"
        )
    try:
        with contained():
            if settings.model is not None:  # its plugins may register the environment
                load_plugins(read_model(settings.model))
            collection = ConformanceCollection(config, settings)
    except MaatmlError as error:
        raise pytest.UsageError(f"maatml: {error}") from None
    config.pluginmanager.register(collection, "maatml-conformance")


class ConformanceCollection:
    """Adds the environment's file to what is collected, once."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._config = config
        self._settings = settings
        self._path = environment_path(settings, config)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        wanted = isinstance(collector, pytest.Session) and report.passed and self._joins()
        if wanted and not collector.session.isinitpath(self._path):
            report.result.append(self._file(collector))
        return report

    def pytest_collect_file(
        self, file_path: Path, parent: pytest.Collector
    ) -> pytest.Collector | None:
        asked_for = file_path == self._path and parent.session.isinitpath(file_path)
        return self._file(parent) if asked_for else None

    def _joins(self) -> bool:
        """From the ini file the rules join only runs that name no test of their own."""
        arguments = pytest.Config.ArgsSource.ARGS
        on_command_line = self._config.getoption("maatml_check_env") is not None
        return on_command_line or self._config.args_source is not arguments

    def _file(self, parent: pytest.Collector) -> EnvironmentFile:
        outside: dict[str, Any] = (
            {}
            if self._path.is_relative_to(self._config.rootpath)
            else {"nodeid": self._path.as_posix()}
        )
        file: EnvironmentFile = EnvironmentFile.from_parent(parent, path=self._path, **outside)
        file.settings = self._settings
        return file


class EnvironmentFile(pytest.File):
    """The file that stands for the environment; an item a rule."""

    settings: Settings

    def collect(self) -> Iterator[RuleItem]:
        for rule in rules_for(over_stdio=self.settings.env_command is not None):
            yield RuleItem.from_parent(self, name=rule.name, rule=rule)

    @property
    def subject(self) -> Subject:
        """The environment. Raises MaatmlError, each time, where nothing can be asked of it."""
        if isinstance(self._subject, MaatmlError):
            raise self._subject
        return self._subject

    @cached_property
    def _subject(self) -> Subject | MaatmlError:
        settings = self.settings
        try:
            model = None if settings.model is None else read_model(settings.model)
            base = self.config.invocation_params.dir
            subject = subject_of(settings.spec(base=base, model=model))
            subject.greet()
        except MaatmlError as error:
            return error
        return subject


class RuleBroken(Exception):
    """The environment does not keep a rule."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.rule)
        self.finding = finding


class RuleItem(pytest.Item):
    """One rule, checked on an instance or a process of its own."""

    parent: EnvironmentFile

    def __init__(self, *, rule: Rule, **node: Any) -> None:
        super().__init__(**node)
        self.rule = rule
        self.add_marker(pytest.mark.maatml)

    def runtest(self) -> None:
        subject = self.parent.subject
        with contained():
            finding = check_rule(self.rule, subject, rules_for(over_stdio=subject.over_stdio))
        for text in finding.warnings:
            warnings.warn(pytest.PytestWarning(f"maatml: {self.rule.name}: {text}"), stacklevel=2)
        if finding.notes:
            self.add_report_section("call", "maatml", "\n".join(finding.notes))
            self.user_properties.append(("maatml_notes", "; ".join(finding.notes)))
        if finding.outcome == "skipped":
            pytest.skip(finding.message)
        if finding.outcome == "failed":
            raise RuleBroken(finding)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        error = excinfo.value
        if isinstance(error, RuleBroken):
            purpose = "\n".join(line.strip() for line in self.rule.purpose.splitlines())
            return f"{error.finding.message}\n\nThe rule {self.rule.name}:\n{purpose}"
        if isinstance(error, MaatmlError):
            return str(error)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, self.rule.name


def environment_path(settings: Settings, config: pytest.Config) -> Path:
    """The file that ids start with: the environment's own, else one that the project has.

    Raises MaatmlError for an environment that nobody registered.
    """
    base = config.invocation_params.dir
    if settings.env_command is not None:
        program, *arguments = split_command(settings.env_command) or [""]
        # An interpreter is the last that would stand for the environment.
        files = [Path(os.path.abspath(base / word)) for word in (*arguments, program)]
        inside = (file for file in files if file.is_relative_to(config.rootpath))
        found = next(filter(Path.is_file, inside), None) or config.inipath or shutil.which(program)
    else:
        assert settings.env is not None
        found = _defining_file(settings.env, base) or config.inipath
    return Path(os.path.abspath(found or __file__))


def _defining_file(reference: str, base: Path) -> Path | None:
    holder, _, _ = reference.rpartition(":")
    if holder.endswith(".py"):
        return base / holder
    if holder:
        return _module_file(holder, base)
    file, _, _ = registry.find("environment", reference).file.rpartition(":")
    return Path(file) if file else None


def _module_file(module: str, base: Path) -> Path | None:
    """The file of a module, found without running it."""
    if str(base) not in sys.path:
        sys.path.insert(0, str(base))
    with suppress(ImportError, ValueError):
        spec = importlib.util.find_spec(module)
        if spec is not None and spec.origin is not None and Path(spec.origin).is_file():
            return Path(spec.origin)
    raise ConfigurationError(
        f"--maatml-env: there is no module {module!r}; looked in {base} and the rest of sys.path"
    )
