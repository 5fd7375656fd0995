"""Correct environments that look odd pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .findings import broken, findings, in_process, planted_program, skipped
from .odd import ODD, EndsAtReset, NoTasksOfItsOwn, NoTeacher, OneCandidate, TeacherGivesUp

if TYPE_CHECKING:
    from .corridor import Corridor

TEACHERS = {"labels_are_valid", "teacher_succeeds"}
MASKS = {"masked_candidates_do_no_harm"}
SKIPS = {OneCandidate: MASKS, EndsAtReset: TEACHERS | MASKS, NoTeacher: TEACHERS}


@pytest.mark.parametrize("environment", ODD)
def test_a_correct_environment_passes_however_odd_it_looks(environment: type[Corridor]) -> None:
    found = findings(in_process(environment, tasks={"count": 2}))
    assert broken(found) == {}
    assert skipped(found) == SKIPS.get(environment, set())


def test_a_correct_program_passes() -> None:
    found = findings(planted_program())
    assert broken(found) == {}
    assert skipped(found) == {"masked_candidates_do_no_harm"}


def test_tasks_given_as_an_array_are_played_where_the_environment_makes_none() -> None:
    tasks = [{"id": "a", "family": "f", "length": 2}, {"id": "b", "length": 3}]
    found = findings(in_process(NoTasksOfItsOwn, tasks=tasks))
    assert broken(found) == {}
    assert skipped(found) == {"tasks_are_equal"}


def test_a_missing_capability_is_a_skip_that_says_which_rules_it_costs() -> None:
    found = findings(in_process(NoTeacher))
    for rule in TEACHERS:
        assert "labels_are_valid, teacher_succeeds" in found[rule].message


def test_empty_candidates_are_reported() -> None:
    note = "an empty list of candidates ended 6 episodes, as it may"
    found = findings(in_process(EndsAtReset, tasks={"count": 2}))
    assert note in found["candidates_are_unique"].notes


def test_a_teacher_that_gives_up_with_a_reason_is_reported() -> None:
    notes = findings(in_process(TeacherGivesUp))["labels_are_valid"].notes
    assert any("for the reason too late" in note for note in notes)
