"""For each rule an environment that breaks it alone: the kit points at it, and at no other."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pytest_maatml.conformance.rules import RULES
from pytest_maatml.harness.spec import CarrierSettings

from .faults import FAULTS
from .findings import broken, findings, in_process, planted_program
from .program import FAULTS as PROGRAM_FAULTS

if TYPE_CHECKING:
    from .corridor import Corridor


@pytest.mark.parametrize(("fault", "rule"), FAULTS.items())
def test_the_kit_points_at_the_planted_fault_and_at_no_other_rule(
    fault: type[Corridor], rule: str
) -> None:
    found = broken(findings(in_process(fault)))
    assert list(found) == [rule], found


@pytest.mark.parametrize(("fault", "rule"), PROGRAM_FAULTS.items())
def test_the_kit_points_at_the_fault_of_a_program(fault: str, rule: str) -> None:
    subject = planted_program(fault, carrier=CarrierSettings(timeout=5.0))
    found = broken(findings(replace(subject, end_within=1.0)))
    assert list(found) == [rule], found


def test_there_is_a_planted_fault_for_each_rule() -> None:
    planted = {*FAULTS.values(), *PROGRAM_FAULTS.values()}
    assert planted == {rule.name for rule in RULES}
