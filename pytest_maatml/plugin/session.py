"""What one test session holds: settings, environments, policies, folders, results."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest

from pytest_maatml.engine.in_process import InProcess
from pytest_maatml.engine.record import Episode
from pytest_maatml.errors import ConfigurationError, MaatmlError
from pytest_maatml.harness.results import FamilyResult, run_family
from pytest_maatml.harness.rig import Rig, open_environment
from pytest_maatml.plugin import options
from pytest_maatml.plugin.containment import contained
from pytest_maatml.plugin.distributed import Party
from pytest_maatml.plugin.progress import Progress
from pytest_maatml.plugin.reports import properties_of
from pytest_maatml.plugin.results import SessionResults
from pytest_maatml.records.episodes import RecordError
from pytest_maatml.records.folder import RunFolder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_maatml.engine.in_process import Carrier
    from pytest_maatml.engine.record import EpisodeError
    from pytest_maatml.gating.report import GateReport
    from pytest_maatml.harness.results import FamilyTally
    from pytest_maatml.harness.spec import RolloutSpec
    from pytest_maatml.plugin.settings import Settings

#: The session of this pytest run, once a rollout is asked for.
_SESSION: Final = pytest.StashKey["MaatmlSession"]()
#: What became of an item's rollout, what it was, and how often the item has run.
RESULT: Final = pytest.StashKey[FamilyResult]()
OVERALL: Final = pytest.StashKey["GateReport"]()
SPEC: Final = pytest.StashKey["RolloutSpec"]()
ATTEMPT: Final = pytest.StashKey[int]()


class MaatmlWarning(pytest.PytestWarning):
    """What went wrong and changes no outcome."""


def activate(config: pytest.Config, settings: Settings) -> MaatmlSession:
    """Start the session; its hooks are registered as `maatml-...`."""
    from pytest_maatml.plugin.running import SessionHooks
    from pytest_maatml.plugin.terminal import TerminalSummary

    if settings.policy is not None:
        _check_policy(settings.policy, config)
    _mind_rootdir(config)
    session = MaatmlSession(config, settings)
    config.stash[_SESSION] = session
    config.pluginmanager.register(SessionHooks(session), "maatml-session")
    config.pluginmanager.register(TerminalSummary(session), "maatml-terminal")
    if settings.check_env:
        from pytest_maatml.plugin import conformance

        conformance.activate(config, settings)
    return session


def _mind_rootdir(config: pytest.Config) -> None:
    """Pytest takes the DIR of `--maatml-model DIR` for a place of tests, and may settle there."""
    started = config.invocation_params
    if "--maatml-model" in started.args and not started.dir.is_relative_to(config.rootpath):
        text = (
            f"maatml: pytest took {config.rootpath} for its rootdir because of the space in "
            f"`--maatml-model DIR`; write --maatml-model=DIR"
        )
        config.issue_config_time_warning(MaatmlWarning(text), stacklevel=2)


def _check_policy(reference: str, config: pytest.Config) -> None:
    from pytest_maatml.plugin.collection import policy_path

    try:
        policy_path(reference, config)
    except MaatmlError as error:
        raise pytest.UsageError(f"maatml: {error}") from None


def _refuse_another(rig: Rig, folder: RunFolder) -> None:
    """Raise ConfigurationError if the folder is that of another rollout of this session."""
    if folder.plans is rig.plans:
        return
    if differences := folder.identity.differences(rig.identity):
        raise ConfigurationError(
            f"another rollout of this session writes to {folder.path} ({'; '.join(differences)}): "
            f"give each suite a `name`, or run them apart with --maatml-out"
        )


def _refuse_workers(spec: RolloutSpec, what: str, hook: str) -> None:
    """Raise ConfigurationError where other processes would look the name up without our hooks."""
    if spec.workers > 1:
        raise ConfigurationError(
            f"--maatml-workers: the {what} comes from the hook {hook}, which other processes do "
            f"not have; name it as MODULE:ATTR, or leave out --maatml-workers"
        )


def session_of(config: pytest.Config) -> MaatmlSession:
    """The session, started now if a suite is the first to ask for it."""
    session = config.stash.get(_SESSION, None)
    return activate(config, options.read_settings(config)) if session is None else session


class Identical:
    """A key for one object, not for its equals; it keeps the object, since an id may come again."""

    def __init__(self, one: object) -> None:
        self._one = one

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identical) and self._one is other._one

    def __hash__(self) -> int:
        return id(self._one)


class MaatmlSession:
    """Opens what rollouts need when they need it, and lets go of it at the end."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self.config = config
        self.settings = settings
        self.party = Party(config)
        self.results = SessionResults()
        self._carriers: dict[tuple[Any, ...], Carrier] = {}
        self._rigs: dict[Identical, Rig] = {}
        self._folders: dict[Path, RunFolder] = {}
        self._warnings: list[str] = []

    @contained()
    def rig(self, spec: RolloutSpec) -> Rig:
        """The rig of `spec`, made once. Raises MaatmlError."""
        key = Identical(spec)
        if key not in self._rigs:
            carrier = self._carrier(spec)
            try:
                self._rigs[key] = Rig(spec, carrier)
            except RecordError as error:  # the only record that is read here
                raise ConfigurationError(f"{self._name_of_baseline(spec)}: {error}") from None
        return self._rigs[key]

    def _name_of_baseline(self, spec: RolloutSpec) -> str:
        """Where the baseline was given; what a suite or a marker gives is reported as theirs."""
        by_option = spec.gates.baseline == self.settings.baseline
        return options.origin(self.config, "baseline") if by_option else "baseline"

    def rigs(self) -> list[Rig]:
        """All rigs that collection made."""
        return list(self._rigs.values())

    def _carrier(self, spec: RolloutSpec) -> Carrier:
        """One environment a session for all suites that ask for the same."""
        named = spec.env if isinstance(spec.env, str) else Identical(spec.env)
        key = (named, spec.env_command, spec.base, spec.carrier)
        supplied = self._supplied(spec)
        if key not in self._carriers:
            carrier = open_environment(supplied, warn=self._warnings.append)
            self._carriers[key] = carrier
            if isinstance(carrier, InProcess):
                self._warnings += self._in_vain()
        return self._carriers[key]

    def _in_vain(self) -> list[str]:
        """What was typed for environments in processes of their own."""
        return [
            f"--maatml-{name} does nothing for an environment in this process; add --maatml-isolate"
            for name in ("timeout", "env-processes", "env-restarts")
            if self.config.getoption(f"maatml_{name.replace('-', '_')}") is not None
        ]

    def _supplied(self, spec: RolloutSpec) -> RolloutSpec:
        """`spec` with the environment that a hook supplies for its name, if one does."""
        if not isinstance(spec.env, str):
            return spec
        supplied = self.config.hook.pytest_maatml_environment(name=spec.env, config=self.config)
        if supplied is None:
            return spec
        _refuse_workers(spec, f"environment {spec.env!r}", "pytest_maatml_environment")
        return replace(spec, env=supplied)

    def prepare(self, spec: RolloutSpec) -> None:
        """Load the policy and open the folder. Raises MaatmlError where either fails."""
        rig = self.rig(spec)
        if spec.out in self._folders:
            _refuse_another(rig, self._folders[spec.out])
            return
        if isinstance(spec.policy, str):
            hook = self.config.hook.pytest_maatml_policy
            supplied = hook(name=spec.policy, config=self.config)
            if supplied is not None:
                _refuse_workers(spec, f"policy {spec.policy!r}", "pytest_maatml_policy")
                rig.stage.supply(supplied)
        self._folders[spec.out] = RunFolder.open(
            spec.out,
            rig.identity,
            rig.plans,
            overwrite=spec.overwrite,
            resume=spec.resume,
            party=self.party.name,
        )

    @contained()
    def run(self, item: pytest.Item, spec: RolloutSpec, family: str, *, suite: str) -> FamilyResult:
        """Run one family and leave its result with the item.

        Raises MaatmlError, and MaatmlWarning where warnings are errors.
        """
        item.stash[SPEC] = spec
        item.stash[ATTEMPT] = item.stash.get(ATTEMPT, 0) + 1
        item.stash.setdefault(RESULT, None)  # type: ignore[misc]
        del item.stash[RESULT]
        self.prepare(spec)
        rig = self.rig(spec)
        self.party.announce(rig, family, suite=suite)
        with Progress(self.config, family, len(rig.families[family])) as progress:
            result = run_family(
                rig,
                family,
                self._folders[spec.out],
                suite=suite,
                shard=self.party.worker or "main",
                watch=self._watch(progress),
            )
        item.stash[RESULT] = result
        if result.gate is not None:
            self.party.post(spec.out, result.gate)
        mine = properties_of(result, attempt=item.stash[ATTEMPT])
        kept = [pair for pair in item.user_properties if pair[0] not in dict(mine)]
        item.user_properties[:] = [*kept, *mine]
        self._warn(item)
        return result

    def _warn(self, item: pytest.Item) -> None:
        """Pass on what changed no outcome, once the outcome is safe: a warning may be an error."""
        if not self._warnings:
            return
        first, more = self._warnings[0], len(self._warnings) - 1
        self._warnings.clear()
        item.warn(MaatmlWarning(f"maatml: {first}" + (f" (and {more} more)" if more else "")))

    def judge_overall(self, item: pytest.Item, spec: RolloutSpec) -> GateReport:
        """The gate over all families, from what their items have found. Raises MaatmlError."""
        rig = self.rig(spec)
        assert rig.overall is not None
        reports = self.party.reports(spec.out, rig.families)
        item.stash[SPEC] = spec
        item.stash[OVERALL] = rig.overall.finish(reports.values(), judged=spec.selection.is_sample)
        return item.stash[OVERALL]

    def _watch(self, progress: Progress) -> Callable[[FamilyTally, Episode | EpisodeError], None]:
        hook = self.config.hook.pytest_maatml_episode
        if not hook.get_hookimpls():
            return progress.show

        def watch(tally: FamilyTally, ended: Episode | EpisodeError) -> None:
            progress.show(tally, ended)
            if isinstance(ended, Episode):
                hook(episode=ended.as_dict(), config=self.config)

        return watch

    def folder(self, spec: RolloutSpec) -> RunFolder:
        """The folder of a spec that was prepared."""
        return self._folders[spec.out]

    def finish(self) -> bool:
        """Write what all processes have left, once they are done; False where it failed."""
        for announced in self.party.announced():
            self.results.expect(announced)
        written = True
        for path, suite in self.results.suites.items():
            try:
                folder = self._folders.get(path) or RunFolder.open(
                    path, suite.identity, (), overwrite=True, party=self.party.name
                )
                self._folders[path] = folder
                suite.summary = folder.finish(gates=suite.gates(), skipped=suite.skipped())
                suite.complete()
            except MaatmlError as error:
                suite.problem, written = str(error), False
        return written

    def tell(self) -> None:
        """Hand each summary to those who asked for it."""
        for suite in self.results.suites.values():
            if suite.problem is None:
                self.config.hook.pytest_maatml_summary(summary=suite.summary, config=self.config)

    def let_go(self) -> None:
        """Release folders, end environments. Twice is harmless."""
        for folder in self._folders.values():
            folder.release()
        for carrier in self._carriers.values():
            carrier.shutdown()
        self._folders.clear()
        self._carriers.clear()
