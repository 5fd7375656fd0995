"""The kit, run over an environment of these tests."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_maatml.conformance.check import Finding, check_rule
from pytest_maatml.conformance.rules import rules_for
from pytest_maatml.conformance.subject import subject_of
from pytest_maatml.harness.spec import RolloutSpec

if TYPE_CHECKING:
    from pytest_maatml.conformance.subject import Subject

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("program.py")


def in_process(environment: type[Any], **spec: Any) -> Subject:
    return _subject(env=f"{environment.__module__}:{environment.__qualname__}", **spec)


def over_stdio(command: str, **spec: Any) -> Subject:
    return _subject(env_command=command, **spec)


def planted_program(fault: str = "", **spec: Any) -> Subject:
    return over_stdio(f"{sys.executable} -I -S {PROGRAM} {fault}", **spec)


def _subject(**spec: Any) -> Subject:
    given = {"tasks": {"count": 4}, "max_decisions": 24, "base": ROOT, "out": ROOT, **spec}
    return subject_of(RolloutSpec(source="check", **given))


def findings(subject: Subject) -> dict[str, Finding]:
    rules = rules_for(over_stdio=subject.over_stdio)
    return {rule.name: check_rule(rule, subject, rules) for rule in rules}


def broken(found: dict[str, Finding]) -> dict[str, str]:
    """What the kit says of the rules that are not kept."""
    return {name: finding.text for name, finding in found.items() if finding.outcome == "failed"}


def skipped(found: dict[str, Finding]) -> set[str]:
    return {name for name, finding in found.items() if finding.outcome == "skipped"}
