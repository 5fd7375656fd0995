"""What the kit says: what was sent, what came, what is wanted, and how much it compared."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest

from pytest_maatml.conformance.check import check_rule, findings_table
from pytest_maatml.conformance.rules import RULES, rules_for
from pytest_maatml.conformance.subject import Subject
from pytest_maatml.errors import RolloutEnvError
from pytest_maatml.harness.spec import CarrierSettings
from pytest_maatml.rollout import Labels

from .corridor import Corridor, Walk
from .faults import AppliedIsANumber, SeesNaN, TeacherStays
from .findings import broken, findings, in_process, over_stdio
from .odd import OneCandidate

BY_NAME = {rule.name: rule for rule in RULES}


def found_by(rule: str, subject: Subject) -> Any:
    return check_rule(BY_NAME[rule], subject, rules_for(over_stdio=subject.over_stdio))


def test_a_message_shows_the_request_the_reply_and_what_is_wanted() -> None:
    wanted, sent, came = found_by(
        "steps_have_a_result", in_process(AppliedIsANumber)
    ).message.splitlines()
    assert sent.startswith('sent    {"op":"step","episode":"check-random-0","id":"')
    assert came.startswith('came    {"ok":true,"observation":{"at":')
    assert ',"applied":1,' in came
    assert wanted == "wanted  applied: true or false"


def test_a_value_that_is_no_json_is_named_with_its_path() -> None:
    message = found_by("values_are_json", in_process(SeesNaN)).message
    assert "observation.far is NaN" in message


def test_the_success_rate_of_the_teacher_is_told() -> None:
    assert any(
        note.startswith("the teacher succeeded on 4 of 4 tasks")
        for note in found_by("teacher_succeeds", in_process(Corridor)).notes
    )
    failing = found_by("teacher_succeeds", in_process(TeacherStays))
    assert any(note.startswith("the teacher succeeded on 0 of 4") for note in failing.notes)
    assert "'t0'" in failing.message


def test_a_replay_says_how_many_observations_it_compared() -> None:
    notes = found_by("replay_is_equal", in_process(OneCandidate, tasks={"count": 4})).notes
    # three plays of each of the lengths 1, 2, 3 and 4, with no other way than on
    assert f"compared {3 * (1 + 2 + 3 + 4)} observations of steps" in notes


class LabelsNothing(Corridor):
    def label(self, episode: str) -> Labels:
        return Labels(None, "asleep")


def test_a_rule_that_compared_nothing_is_not_kept() -> None:
    found = broken(findings(in_process(LabelsNothing)))
    assert set(found) == {"labels_are_valid", "teacher_succeeds"}
    assert "at least one of labels to compare, and there was none" in found["labels_are_valid"]


class SeesMuch(Corridor):
    def seen(self, walk: Walk) -> Any:
        return super().seen(walk) | {"pixels": [0] * 200_000}


def test_an_enormous_observation_is_a_warning_with_its_size() -> None:
    finding = found_by("values_are_json", in_process(SeesMuch, tasks={"count": 1}))
    assert finding.outcome == "passed"
    # "[" and "]", 200,000 digits with a comma between any two, and what is around
    (warning,) = finding.warnings
    size = int(warning.split(" has ")[1].split(" bytes")[0].replace(",", ""))
    assert 400_001 < size < 400_100


def test_an_environment_given_as_an_object_has_no_second_instance_and_the_note_says_so() -> None:
    only = Corridor()
    subject = Subject(make=lambda: only, separate=False, no_program="it is not in a module")
    notes = found_by("reset_is_repeatable", subject).notes
    assert "the environment was given as an object, so there was no second instance" in notes
    fresh = found_by("replay_in_a_fresh_process_is_equal", subject)
    assert (fresh.outcome, fresh.message) == ("skipped", "it is not in a module")


@pytest.mark.parametrize("babble", ["while 1: pass", "while 1: print('la', flush=True)", "1/0"])
def test_a_program_that_never_answers_is_found_out_in_time(babble: str) -> None:
    subject = over_stdio(
        f'{sys.executable} -I -S -c "{babble}"', carrier=CarrierSettings(timeout=0.5)
    )
    started = time.monotonic()
    finding = found_by("hello", subject)
    assert finding.outcome == "failed"
    assert "no reply" in finding.message
    assert time.monotonic() - started < 30  # it would be for ever
    with pytest.raises(RolloutEnvError, match="does not answer hello"):
        subject.greet()


def test_the_table_has_a_row_a_rule_and_counts_the_outcomes() -> None:
    found = list(findings(in_process(TeacherStays)).values())
    lines = findings_table(found)
    assert lines[0] == "hello                               ok       compared 4 fields"
    assert lines[-1] == f"{len(found)} rules: {len(found) - 1} passed, 1 failed"


def test_each_rule_says_what_it_is_for() -> None:
    assert all(rule.purpose.endswith(".") for rule in RULES)
