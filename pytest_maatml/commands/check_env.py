"""`pytest-maatml check-env`: whether an environment keeps the rules, without a test suite."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from pytest_maatml.conformance.check import Rule
    from pytest_maatml.harness.spec import RolloutSpec


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command; its exit status is 0, 1 for a broken rule, 2 where nothing can be asked."""
    parser = commands.add_parser(
        "check-env",
        help="check an environment against the rules of maatml.rollout_env/1",
        description="Plays episodes in the environment and says which rules it keeps.",
    )
    parser.add_argument("--env", metavar="REF", help="a registered name, MODULE:ATTR, FILE.py:ATTR")
    parser.add_argument("--env-command", metavar="CMD", help="a program that serves over stdio")
    parser.add_argument("--tasks", default="{}", metavar="JSON", help="query, array, or @FILE")
    parser.add_argument("--option", action="append", default=[], metavar="K=V")
    parser.add_argument("--timeout", type=float, metavar="SECONDS")
    parser.add_argument("--max-decisions", type=int, metavar="N")
    parser.add_argument(
        "--rule", action="append", default=[], metavar="NAME", help="check this alone; repeatable"
    )
    parser.set_defaults(run=_check_env)


def _check_env(chosen: argparse.Namespace) -> int:
    from pytest_maatml.conformance.check import check_rule, findings_table
    from pytest_maatml.conformance.rules import rules_for
    from pytest_maatml.conformance.subject import subject_of

    subject = subject_of(_spec_of(chosen))
    subject.greet()
    rules = rules_for(over_stdio=subject.over_stdio)
    findings = [check_rule(rule, subject, rules) for rule in _chosen(rules, chosen.rule)]
    print("\n".join(findings_table(findings)))
    return 1 if any(finding.outcome == "failed" for finding in findings) else 0


def _chosen(rules: tuple[Rule, ...], names: list[str]) -> list[Rule]:
    from pytest_maatml.errors import ConfigurationError

    known = {rule.name: rule for rule in rules}
    for name in names:
        if name not in known:
            raise ConfigurationError(f"--rule {name}: the rules are {', '.join(known)}")
    return [known[name] for name in names] or list(rules)


def _spec_of(chosen: argparse.Namespace) -> RolloutSpec:
    from pytest_maatml.arguments import read_options, read_tasks
    from pytest_maatml.harness.choices import RolloutChoices

    here = Path.cwd()
    choices = RolloutChoices(
        started_in=here,
        env=chosen.env or None,
        env_command=chosen.env_command or None,
        tasks=read_tasks(chosen.tasks, option="--tasks", base=here),
        options=read_options(chosen.option, option="--option"),
        source="check",
        max_decisions=chosen.max_decisions,
        timeout=chosen.timeout,
    )
    choices.check(needs_environment=True)
    return choices.spec(base=here)
