"""What one test session holds: settings, environments, policies, folders, results."""

from __future__ import annotations

import shlex
import warnings
from typing import TYPE_CHECKING, Any, Final

import pytest

from pytest_maatml.errors import MaatmlError
from pytest_maatml.plugin import options
from pytest_maatml.plugin.progress import Progress
from pytest_maatml.plugin.results import SessionResults
from pytest_maatml.plugin.workers import worker_id
from pytest_maatml.records.folder import RunFolder
from pytest_maatml.records.journal import Journal
from pytest_maatml.results import FamilyResult, run_family
from pytest_maatml.rig import Rig, open_environment
from pytest_maatml.wording import shown_path

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from pathlib import Path

    from pytest_maatml.engine.requests import Carrier
    from pytest_maatml.plugin.settings import Settings
    from pytest_maatml.spec import RolloutSpec

#: The session of this pytest run, once a rollout is asked for.
_SESSION: Final = pytest.StashKey["MaatmlSession"]()


def activate(config: pytest.Config, settings: Settings) -> MaatmlSession:
    """Start the session; its hooks are registered as `maatml-session`."""
    from pytest_maatml.plugin.terminal import TerminalSummary

    session = MaatmlSession(config, settings)
    config.stash[_SESSION] = session
    if settings.policy is not None:
        _check_policy(settings.policy, config)
    config.pluginmanager.register(session, "maatml-session")
    config.pluginmanager.register(TerminalSummary(session), "maatml-terminal")
    return session


def session_of(config: pytest.Config) -> MaatmlSession:
    """The session, started now if a suite is the first to ask for it."""
    session = config.stash.get(_SESSION, None)
    return activate(config, options.read_settings(config)) if session is None else session


def _check_policy(reference: str, config: pytest.Config) -> None:
    from pytest_maatml.plugin.collection import policy_path

    try:
        policy_path(reference, config)
    except MaatmlError as error:
        raise pytest.UsageError(f"maatml: {error}") from None


class MaatmlSession:
    """Opens what rollouts need when they need it, and lets go of it at the end."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self.config = config
        self.settings = settings
        self._carriers: dict[tuple[Any, ...], Carrier] = {}
        self._rigs: dict[int, Rig] = {}
        self._journals: dict[Path, Journal] = {}
        self._folders: dict[Path, RunFolder] = {}
        self.results = SessionResults()
        self.collected = 0
        self.deselected = 0

    # What rollouts need

    def rig(self, spec: RolloutSpec) -> Rig:
        """The rig of `spec`, made once. Raises MaatmlError."""
        rig = self._rigs.get(id(spec))
        if rig is None:
            rig = self._rigs[id(spec)] = Rig(spec, self._carrier(spec))
        return rig

    def rigs(self) -> list[Rig]:
        """All rigs that collection made."""
        return list(self._rigs.values())

    def _carrier(self, spec: RolloutSpec) -> Carrier:
        """One environment a session for all suites that ask for the same."""
        key = (spec.env, spec.env_command, spec.base, spec.carrier)
        if key not in self._carriers:
            self._carriers[key] = open_environment(spec, warn=warn)
        return self._carriers[key]

    def prepare(self, spec: RolloutSpec) -> None:
        """Load the policy and open the folder. Raises MaatmlError where either fails."""
        rig = self.rig(spec)
        if spec.out in self._journals:
            return
        worker = worker_id(self.config)
        if worker is None:
            folder = self._folders[spec.out] = RunFolder.open(spec.out, rig.identity, rig.plans)
            self._journals[spec.out] = folder.journal()
        else:
            spec.out.mkdir(parents=True, exist_ok=True)
            self._journals[spec.out] = Journal.open(spec.out, rig.identity, shard=worker)

    def run(self, spec: RolloutSpec, family: str, *, suite: str) -> FamilyResult:
        """Run one family after `prepare`."""
        rig = self.rig(spec)
        with Progress(self.config, family, len(rig.families[family])) as progress:
            return run_family(
                rig, family, self._journals[spec.out], suite=suite, progress=progress.show
            )

    def command_for(self, item: pytest.Item) -> str:
        """The command that runs `item` alone, as somebody would type it where pytest was started."""
        started = self.config.invocation_params
        positional = set(self.config.args) if self.config.args else set()
        kept = [arg for arg in started.args if str(arg) not in positional]
        _, _, parts = item.nodeid.partition("::")
        node = f"{shown_path(item.path, started.dir)}::{parts}"
        return shlex.join(["pytest", *map(str, kept), node])

    # pytest's hooks

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        if isinstance(collector, pytest.Session) and report.passed and self._joins():
            file = self._rollout_file(collector)
            if not collector.isinitpath(file.path):
                report.result.append(file)
        return report

    def pytest_collect_file(
        self, file_path: Path, parent: pytest.Collector
    ) -> pytest.Collector | None:
        if not self.settings.starts or not parent.session.isinitpath(file_path):
            return None
        file = self._rollout_file(parent)
        return file if file.path == file_path else None

    def _joins(self) -> bool:
        """Whether the policy of the options joins what is collected anyway."""
        if not self.settings.starts:
            return False
        arguments = pytest.Config.ArgsSource.ARGS
        return self.settings.starts_always or self.config.args_source is not arguments

    def _rollout_file(self, parent: pytest.Collector) -> pytest.File:
        from pytest_maatml.plugin.collection import rollout_file

        return rollout_file(parent, self.settings)

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        from pytest_maatml.plugin.collection import FamilyItem

        self.collected += isinstance(item, FamilyItem)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        result = getattr(item, "result", None)
        if call.when == "call" and isinstance(result, FamilyResult):
            identity = self.rig(item.parent.spec).identity.as_dict()  # type: ignore[union-attr]
            report.maatml = {"result": result.as_dict(), "identity": identity}  # type: ignore[attr-defined]
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        carried = getattr(report, "maatml", None)
        if carried is not None and worker_id(self.config) is None:
            self.results.add(FamilyResult.from_dict(carried["result"]), carried["identity"])

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        self.deselected += len(items)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if worker_id(self.config) is None:
            self._finish_folders(session)
            if self._ran_nothing(session):
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
        self._let_go()

    def _ran_nothing(self, session: pytest.Session) -> bool:
        """Whether rollouts were asked for and none was there: a green run would be a lie."""
        quiet = self.config.option.collectonly or self.config.pluginmanager.hasplugin("dsession")
        return (
            self._joins()
            and not (self.collected or self.deselected or quiet)
            and session.exitstatus == pytest.ExitCode.OK
        )

    def pytest_unconfigure(self) -> None:
        self._let_go()

    def _finish_folders(self, session: pytest.Session) -> None:
        for path, suite in self.results.suites.items():
            try:
                folder = self._folders.get(path) or RunFolder.open(path, suite.identity, ())
                self._folders[path] = folder
                for journal in self._journals.values():
                    journal.close()
                suite.summary = folder.finish(gates=suite.gates())
            except MaatmlError as error:
                suite.problem = str(error)
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _let_go(self) -> None:
        for journal in self._journals.values():
            journal.close()
        for folder in self._folders.values():
            folder.release()
        for carrier in self._carriers.values():
            carrier.shutdown()
        self._carriers.clear()


def warn(message: str) -> None:
    """Pass on what an environment did that changes no outcome."""
    warnings.warn(pytest.PytestWarning(f"maatml: {message}"), stacklevel=2)
