"""What the session does in pytest's own hooks."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from pytest_maatml.gating.report import GateReport
from pytest_maatml.harness.results import FamilyResult
from pytest_maatml.harness.wording import failure_text
from pytest_maatml.plugin.collection import rollout_file
from pytest_maatml.plugin.items import FamilyItem, OverallItem, command_for
from pytest_maatml.plugin.reports import write_step_summary
from pytest_maatml.plugin.session import (
    ATTEMPT,
    OVERALL,
    RESULT,
    SPEC,
    MaatmlSession,
    MaatmlWarning,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

_ARGUMENTS: Final = pytest.Config.ArgsSource.ARGS
#: Options that say what is to run: typed in vain, they are a mistake.
_WANTED: Final = (
    "--maatml-env",
    "--maatml-env-command",
    "--maatml-task",
    "--maatml-tasks",
    "--label",
)


class SessionHooks:
    """Brings rollouts into the collection, results into the reports, and files to an end."""

    def __init__(self, session: MaatmlSession) -> None:
        self._session = session
        self._config = session.config
        self._settings = session.settings
        self._collected = 0
        self._marked = 0
        self._deselected = 0

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        if isinstance(collector, pytest.Session) and report.passed and self._joins():
            file = rollout_file(collector, self._settings)
            if not collector.isinitpath(file.path):
                report.result.append(file)
        return report

    def pytest_collect_file(
        self, file_path: Path, parent: pytest.Collector
    ) -> pytest.Collector | None:
        if not self._settings.starts or not parent.session.isinitpath(file_path):
            return None
        file = rollout_file(parent, self._settings)
        return file if file.path == file_path else None

    def _joins(self) -> bool:
        """Whether the policy of the options joins what is collected anyway."""
        if not self._settings.starts:
            return False
        return self._settings.starts_always or self._config.args_source is not _ARGUMENTS

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None]:
        """What is judged over all families comes after them, whoever changed the order."""
        yield
        items.sort(key=lambda item: isinstance(item, OverallItem))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """An overall gate waits for the others, so it must not look as one to wait for."""
        if isinstance(item, OverallItem):
            return (yield)
        with self._session.party.at_work():
            return (yield)

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        self._collected += isinstance(item, FamilyItem)
        self._marked += item.get_closest_marker("maatml") is not None

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        self._deselected += len(items)

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self, session: pytest.Session) -> Generator[None, object, object]:
        """Say that an option was typed in vain, where this process is the one that collects."""
        result = yield
        typed = [str(word).partition("=")[0] for word in self._config.invocation_params.args]
        vain = next((flag for flag in typed if flag in _WANTED), None)
        spread = self._session.party.worker or self._config.pluginmanager.hasplugin("dsession")
        silent = self._marked or session.testsfailed or self._settings.starts or spread
        if vain is not None and not silent:
            raise pytest.UsageError(
                f"maatml: {vain} is given, but no rollout was collected: give --maatml-model or "
                f"--maatml-policy as well, or a path with a suite or a test marked maatml in it"
            )
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> Generator[None, object, object]:
        """A marked test fails before its own assertions where its gate does."""
        result = pyfuncitem.stash.get(RESULT, None)
        if result is not None and not result.ok:
            again = partial(command_for, pyfuncitem)
            pytest.fail(failure_text(result, again=again), pytrace=False)
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        result, overall = item.stash.get(RESULT, None), item.stash.get(OVERALL, None)
        if call.when == "call" and (result is not None or overall is not None):
            spec = item.stash[SPEC]
            report.maatml = {  # type: ignore[attr-defined]
                "identity": self._session.rig(spec).identity.as_dict(),
                "folder": str(spec.out),
                "attempt": item.stash.get(ATTEMPT, 1),
                "result": None if result is None else result.as_dict(),
                "overall": None if overall is None else overall.as_dict(),
            }
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        carried = getattr(report, "maatml", None)
        if carried is None or self._session.party.worker is not None:
            return
        results, identity = self._session.results, carried["identity"]
        if carried["result"] is not None:
            result = FamilyResult.from_dict(carried["result"])
            results.add(result, identity, report.location, carried["attempt"])
        else:
            overall = GateReport.from_dict(carried["overall"])
            results.add_overall(overall, Path(carried["folder"]), identity)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._session.party.worker is None:
            written = self._session.finish()
            if (not written or self._ran_nothing()) and session.exitstatus in (
                pytest.ExitCode.OK,
                pytest.ExitCode.NO_TESTS_COLLECTED,
            ):
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
            self._write_page()
            self._session.tell()
        self._session.let_go()

    def _write_page(self) -> None:
        try:
            write_step_summary(self._session.results)
        except OSError as error:
            with warnings.catch_warnings():
                warnings.simplefilter("default")
                text = f"maatml: GITHUB_STEP_SUMMARY cannot be written: {error}"
                warnings.warn(MaatmlWarning(text), stacklevel=2)

    def _ran_nothing(self) -> bool:
        """Whether rollouts were asked for and none was there: a green run would be a lie."""
        distributed = self._config.pluginmanager.hasplugin("dsession")
        quiet = self._config.option.collectonly or distributed
        return self._joins() and not (self._collected or self._deselected or quiet)

    def pytest_unconfigure(self) -> None:
        self._session.let_go()
