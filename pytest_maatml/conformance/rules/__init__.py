"""All rules, in the order in which they are told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_maatml.conformance.rules import (
    greeting,
    refusals,
    sameness,
    states,
    verdicts,
    wire,
)

if TYPE_CHECKING:
    from pytest_maatml.conformance.check import Rule

RULES: Final[tuple[Rule, ...]] = (
    greeting.hello,
    greeting.tasks_are_equal,
    greeting.tasks_have_ids,
    states.reset_gives_an_object,
    sameness.reset_is_repeatable,
    states.candidates_are_unique,
    refusals.masked_candidates_do_no_harm,
    refusals.unknown_candidate_is_refused,
    refusals.unknown_episode_is_refused,
    states.steps_have_a_result,
    states.labels_are_valid,
    verdicts.teacher_succeeds,
    verdicts.verify_is_true_or_false,
    verdicts.verify_is_false_before_any_step,
    verdicts.verify_changes_nothing,
    refusals.step_after_the_end_is_refused,
    verdicts.episodes_end,
    sameness.interleaved_episodes_are_apart,
    sameness.replay_is_equal,
    sameness.replay_in_a_fresh_process_is_equal,
    states.values_are_json,
    refusals.close_frees,
    wire.what_is_not_json_is_refused,
    wire.request_without_op_is_refused,
    wire.unknown_op_is_refused,
    wire.blank_lines_are_skipped,
    wire.nothing_but_replies_on_stdout,
    wire.requests_ahead_are_answered_in_order,
    wire.end_of_file_ends_the_program,
)


def rules_for(*, over_stdio: bool) -> tuple[Rule, ...]:
    """The rules for an environment of that carrier."""
    return tuple(rule for rule in RULES if over_stdio or not rule.stdio)
