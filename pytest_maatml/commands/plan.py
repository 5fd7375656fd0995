"""`pytest-maatml plan`: how many episodes a gate needs, and what stopping early would save."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Literal

from pytest_maatml.errors import ConfigurationError
from pytest_maatml.table import aligned

if TYPE_CHECKING:
    import argparse

    from pytest_maatml.gates.threshold import ThresholdRule

_HEAD: Final = ("gate", "episodes", "k*", "pass at expected", "pass at threshold")
_STOPPING: Final = ("off", "exact", "risk")


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("plan", help="how many episodes a gate needs")
    parser.add_argument("--min-success", required=True, metavar="RATE", help="the gate's rate")
    parser.add_argument(
        "--expect", required=True, metavar="RATE", help="the success rate that you believe in"
    )
    parser.add_argument("--power", type=float, default=0.8, metavar="P", help="chance to pass then")
    parser.add_argument("--alpha", type=float, default=0.05, metavar="P")
    parser.add_argument("--gate", choices=("point", "certify"), help="both by default")
    parser.add_argument(
        "--stop",
        action="append",
        metavar="off|exact|risk[:P]",
        help="repeatable; all three by default",
    )
    parser.add_argument("--json", action="store_true", help="JSON in place of a table")
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Print the plans. Raises ConfigurationError where no number of episodes would do."""
    kinds: tuple[Literal["point", "certify"], ...] = ("point", "certify")
    try:
        plans = [_plan(kind, chosen) for kind in kinds if chosen.gate in (None, kind)]
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
    print(json.dumps(plans, indent=2) if chosen.json else "\n".join(_lines(plans)))
    return 0


def _plan(kind: Literal["point", "certify"], chosen: argparse.Namespace) -> dict[str, Any]:
    from pytest_maatml.gates.binomial import upper_tail
    from pytest_maatml.gates.planning import powered_rule
    from pytest_maatml.gates.stopping import parse_stopping
    from pytest_maatml.gates.threshold import as_fraction

    truth = float(as_fraction("expect", chosen.expect))
    rule = powered_rule(kind, chosen.min_success, truth, power=chosen.power, alpha=chosen.alpha)
    stopping = [parse_stopping(text) for text in chosen.stop or _STOPPING]
    return {
        "gate": kind,
        "rule": str(rule),
        "episodes": rule.planned,
        "required": rule.required,
        "pass_at_expected": upper_tail(rule.required, rule.planned, truth),
        "pass_at_threshold": upper_tail(rule.required, rule.planned, rule.threshold),
        "expected_episodes": {str(rule_): _cost(rule, str(rule_), truth) for rule_ in stopping},
    }


def _cost(rule: ThresholdRule, stopping: str, truth: float) -> float:
    from pytest_maatml.gates.planning import expected_episodes
    from pytest_maatml.gates.stopping import parse_stopping

    return expected_episodes(rule, parse_stopping(stopping), truth).expected_episodes


def _lines(plans: list[dict[str, Any]]) -> list[str]:
    modes = list(plans[0]["expected_episodes"])
    head = (*_HEAD, *(f"run ({mode})" for mode in modes))
    rows = [
        (
            plan["gate"],
            str(plan["episodes"]),
            str(plan["required"]),
            f"{plan['pass_at_expected']:.1%}",
            f"{plan['pass_at_threshold']:.1%}",
            *(f"{plan['expected_episodes'][mode]:.1f}" for mode in modes),
        )
        for plan in plans
    ]
    return aligned([head, *rows])
