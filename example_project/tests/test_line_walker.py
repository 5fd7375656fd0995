"""What line_walker must do beyond succeeding: a project's own assertions on its episodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_maatml import Rollout

pytestmark = pytest.mark.maatml(
    model="models/line_walker",
    env="line_world",
    tasks={"count": 50, "seed": 1},
    options={"extra_steps": 4},
)


def test_goes_straight_to_the_target_where_it_gets_there(rollout: Rollout) -> None:
    for episode in rollout.episodes():
        if episode["outcome"]["success"]:
            distance = abs(episode["task"]["target"] - episode["task"]["start"])
            assert episode["outcome"]["decisions"] == distance + 1, episode["task_id"]


def test_fails_only_on_gaps_that_its_rows_did_not_show(rollout: Rollout) -> None:
    gaps = [failed["task"]["target"] - failed["task"]["start"] for failed in rollout.failures()]
    assert all(gap > 7 for gap in gaps)


@pytest.mark.maatml(tasks={"count": 20, "seed": 2, "span": 3}, min_success=1)
def test_never_prefers_a_masked_action_on_a_short_line(rollout: Rollout) -> None:
    for episode in rollout.episodes():
        assert all(decision["top_valid"] for decision in episode["decisions"])
