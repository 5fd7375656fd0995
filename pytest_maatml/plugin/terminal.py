"""What the terminal shows besides pytest's own: a header line and the summary table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_maatml.errors import MaatmlError
from pytest_maatml.harness.wording import gate_lines, shown_path, summary_table
from pytest_maatml.models import resolve_checkpoint
from pytest_maatml.plugin.reports import attempts_lines
from pytest_maatml.table import counted

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_maatml.gating.report import GateReport
    from pytest_maatml.harness.rig import Rig
    from pytest_maatml.harness.spec import RolloutSpec
    from pytest_maatml.plugin.results import SuiteResults
    from pytest_maatml.plugin.session import MaatmlSession


class TerminalSummary:
    def __init__(self, session: MaatmlSession) -> None:
        self._session = session

    def pytest_report_header(self) -> str | None:
        """Where workers collect, the tasks are not known here."""
        settings = self._session.settings
        if not settings.starts or not self._session.config.pluginmanager.hasplugin("dsession"):
            return None
        environment = settings.env or settings.env_command
        named = f" · {environment}" if environment else ""
        return f"maatml: {self._session.settings.model or settings.policy}{named}"

    def pytest_report_collectionfinish(self) -> list[str]:
        if self._session.config.get_verbosity() < 0:  # `--collect-only -q` is for programs to read
            return []
        return [f"maatml: {_introduction(rig)}" for rig in self._session.rigs()]

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        suites = self._session.results.suites
        if not suites:
            return
        terminalreporter.ensure_newline()
        terminalreporter.section("closed-loop success")
        for path, suite in suites.items():
            for line in self._suite_lines(path, suite):
                terminalreporter.write_line(line)

    def _suite_lines(self, path: Path, suite: SuiteResults) -> list[str]:
        results = list(suite.families.values())
        lines = summary_table(results, suite.overall)
        explain = self._session.settings.explain
        for report in suite.reports:
            if report.asks and (explain or not _is_plain(report)):
                lines += gate_lines(report, explain=explain)
        lines += attempts_lines(suite)
        if len(self._session.results.suites) > 1:
            lines.insert(0, f"{results[0].suite}")
        start = self._session.config.invocation_params.dir
        if suite.problem is not None:
            return [*lines, f"the episodes could not be finished: {suite.problem}"]
        lines.append(f"episodes  {shown_path(path / 'episodes.jsonl', start)}")
        if suite.summary is not None and suite.summary["errors"]:
            lines.append(f"errors    {shown_path(path / 'errors.jsonl', start)}")
        return lines


def _is_plain(report: GateReport) -> bool:
    """Whether the table says all there is to say."""
    return report.kind == "point" and report.stopping == "off" and report.baseline is None


def _introduction(rig: Rig) -> str:
    tasks = counted(len(rig.plans), "task")
    families = counted(len(rig.families), "family", "families")
    return f"{_policy(rig.spec)} · {rig.hello.name} {rig.hello.version} · {tasks}, {families}"


def _policy(spec: RolloutSpec) -> str:
    """The policy by name, without loading it."""
    if spec.policy is not None:
        named = spec.policy if hasattr(spec.policy, "__qualname__") else type(spec.policy)
        return spec.policy if isinstance(spec.policy, str) else named.__qualname__
    assert spec.model is not None
    try:
        run = resolve_checkpoint(spec.model, spec.checkpoint).run_id
    except MaatmlError:  # loading it will say so, where it matters
        run = None
    return spec.model.identity if run is None else f"{spec.model.identity} run {run}"
