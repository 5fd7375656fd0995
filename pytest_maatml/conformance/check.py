"""One rule checked: the finding that comes of it, and how findings are told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from pytest_maatml.conformance.exchange import Broken, Inapplicable
from pytest_maatml.conformance.probe import Probe, capabilities

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_maatml.conformance.subject import Subject

Outcome: TypeAlias = Literal["passed", "failed", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule; what it is for is the docstring of `check`, which raises where it is broken."""

    name: str
    check: Callable[[Probe], None]
    #: What it compares, in the plural.
    unit: str
    #: The optional capability without which there is nothing to check.
    needs: str | None = None
    #: Whether it is about the pipe, and so about programs alone.
    stdio: bool = False

    @property
    def purpose(self) -> str:
        return (self.check.__doc__ or "").strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What came of one rule. `message` says why it is not kept, or why it was not checked."""

    rule: str
    outcome: Outcome
    message: str = ""
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The message, the warnings and the notes, in lines."""
        warnings = [f"warning: {text}" for text in self.warnings]
        return "\n".join([*filter(None, [self.message]), *warnings, *self.notes])


def rule(
    *, unit: str, needs: str | None = None, stdio: bool = False
) -> Callable[[Callable[[Probe], None]], Rule]:
    """A decorator that makes a rule of a function; its name is the rule's."""

    def declare(check: Callable[[Probe], None]) -> Rule:
        return Rule(name=check.__name__, check=check, unit=unit, needs=needs, stdio=stdio)

    return declare


def check_rule(rule: Rule, subject: Subject, rules: Sequence[Rule]) -> Finding:
    """What came of `rule`, which is one of `rules`.

    Raises MaatmlError where the environment cannot be opened at all.
    """
    with Probe(subject) as probe:
        try:
            _require(rule, probe, rules)
            rule.check(probe)
            if not probe.compared:
                raise Broken(f"at least one of {rule.unit} to compare, and there was none")
        except Broken as broken:
            return _finding(rule, "failed", str(broken), probe)
        except Inapplicable as reason:
            return _finding(rule, "skipped", str(reason), probe)
        probe.note(f"compared {probe.compared} {rule.unit}")
        return _finding(rule, "passed", "", probe)


def _finding(rule: Rule, outcome: Outcome, message: str, probe: Probe) -> Finding:
    return Finding(
        rule=rule.name,
        outcome=outcome,
        message=message,
        notes=tuple(probe.notes),
        warnings=tuple(probe.warnings),
    )


def _require(rule: Rule, probe: Probe, rules: Sequence[Rule]) -> None:
    if rule.needs is None:
        return
    if rule.needs not in capabilities(probe.open()):
        costs = ", ".join(other.name for other in rules if other.needs == rule.needs)
        raise Inapplicable(
            f"hello names no capability {rule.needs!r}, which is optional; it costs the rules "
            f"{costs}"
        )


_SIGNS = {"passed": "ok", "failed": "FAILED", "skipped": "skipped"}


def findings_table(findings: Sequence[Finding]) -> list[str]:
    """The lines of a table: a rule a row, with what it found indented below its name."""
    width = max(len(finding.rule) for finding in findings)
    lines = []
    for finding in findings:
        first, *rest = finding.text.splitlines() or [""]
        sign = _SIGNS[finding.outcome]
        lines.append(f"{finding.rule:{width}}  {sign:7}  {first}".rstrip())
        lines += [f"{'':{width}}           {line}" for line in rest]
    counts = ", ".join(
        f"{number} {outcome}"
        for outcome in ("passed", "failed", "skipped")
        if (number := sum(finding.outcome == outcome for finding in findings))
    )
    return [*lines, "", f"{len(findings)} rules: {counts}"]
