"""The environment under examination, which can be opened as often as a rule wants."""

from __future__ import annotations

import inspect
import os
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from pytest_maatml import registry
from pytest_maatml.conformance.exchange import Inapplicable, Lost
from pytest_maatml.conformance.instance import InProcessInstance, Instance, ProgramInstance
from pytest_maatml.conformance.pipe import Pipe
from pytest_maatml.engine.child import split_command
from pytest_maatml.errors import ConfigurationError, RolloutEnvError
from pytest_maatml.harness.isolation import child_environment, serve_command
from pytest_maatml.harness.rig import make_environment
from pytest_maatml.harness.unserved import unserved

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pytest_maatml.arguments import Tasks
    from pytest_maatml.engine.protocol import Environment, JSONObject
    from pytest_maatml.harness.spec import RolloutSpec

#: Each program gets another seed for the hashes of Python's text, so that an order that hangs on
#: them is found out.
_hash_seeds: Final = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The command of a program that serves the environment over stdio."""

    command: list[str]
    cwd: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = 60.0

    def start(self) -> ProgramInstance:
        """Raises RolloutEnvError where it cannot be started."""
        env = dict(self.env)
        if "PYTHONHASHSEED" not in os.environ:
            env["PYTHONHASHSEED"] = str(next(_hash_seeds))
        return ProgramInstance(Pipe(self.command, cwd=self.cwd, env=env), timeout=self.timeout)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """An environment in process (`make`), or as a program alone.

    Where it is in process, `program` serves the same, for the rules that want a fresh process;
    None where that cannot be, for the reason `no_program`.
    """

    make: Callable[[], Environment] | None = None
    #: Whether each `make` gives another instance.
    separate: bool = True
    program: Program | None = None
    no_program: str = ""
    tasks: Tasks = field(default_factory=dict)
    options: JSONObject = field(default_factory=dict)
    max_decisions: int = 256
    #: Seconds in which a program is to end after the end of its input.
    end_within: float = 5.0

    @property
    def over_stdio(self) -> bool:
        return self.make is None

    def open(self) -> Instance:
        """A fresh instance, or a fresh process. Raises MaatmlError where there can be none."""
        if self.make is not None:
            return InProcessInstance(self.make())
        return self.start()

    def greet(self) -> None:
        """Ask one instance for hello. Raises MaatmlError where it cannot be reached at all."""
        instance = self.open()
        try:
            instance.ask("hello")
        except Lost as lost:
            raise RolloutEnvError(
                f"the environment does not answer hello: {lost.reason}{self._advice(lost)}"
            ) from None
        finally:
            instance.shut()

    def _advice(self, lost: Lost) -> str:
        told_why = "\n" in lost.reason
        if told_why or self.program is None or self.program.cwd is None:
            return ""
        return unserved(self.program.command, self.program.cwd)

    def start(self) -> ProgramInstance:
        """A fresh process, whatever the carrier. Raises Inapplicable where there can be none."""
        if self.program is None:
            raise Inapplicable(self.no_program)
        return self.program.start()


def subject_of(spec: RolloutSpec) -> Subject:
    """The environment of `spec`, not opened yet.

    Raises ConfigurationError for one that nobody registered, or that cannot be made.
    """
    timeout = spec.carrier.timeout or None
    common: dict[str, Any] = {
        "tasks": spec.tasks,
        "options": dict(spec.options),
        "max_decisions": spec.max_decisions,
    }
    if spec.env_command is not None:
        command = split_command(spec.env_command)
        return Subject(program=Program(command=command, cwd=spec.base, timeout=timeout), **common)
    assert spec.env is not None
    reference = spec.env
    target = registry.resolve_reference(reference, kind="environment", base=spec.base)
    program, reason = _served(spec, timeout)
    return Subject(
        make=lambda: make_environment(target, reference),
        separate=inspect.isclass(target) or not hasattr(target, "reset"),
        program=program,
        no_program=reason,
        **common,
    )


def _served(spec: RolloutSpec, timeout: float | None) -> tuple[Program | None, str]:
    try:
        command = serve_command(spec)
    except ConfigurationError as error:
        reason = str(error).removeprefix("--maatml-isolate: ")
        return None, f"it cannot be served by a fresh process: {reason}"
    return Program(command=command, cwd=spec.base, env=child_environment(), timeout=timeout), ""
