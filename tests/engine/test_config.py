from __future__ import annotations

import math

import pytest

from pytest_maatml.errors import ConfigurationError, MaatmlError
from pytest_maatml.rollout import RolloutConfig


def test_the_defaults_are_those_of_a_plain_check() -> None:
    config = RolloutConfig()
    assert (config.source, config.policy_version, config.round) == ("rollout", "", 0)
    assert (config.label, config.teacher_mix, config.stop_unlabelled) == (False, 0.0, True)
    assert (config.max_decisions, config.options, config.seed) == (256, {}, 0)


@pytest.mark.parametrize("mix", [-0.1, 1.1, math.nan, math.inf, -math.inf])
def test_a_mix_outside_zero_to_one_is_refused(mix: float) -> None:
    with pytest.raises(ConfigurationError, match=r"teacher_mix must lie in \[0, 1\], not"):
        RolloutConfig(label=True, teacher_mix=mix)


def test_a_mix_without_labels_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="teacher_mix needs label=True"):
        RolloutConfig(teacher_mix=0.3)


@pytest.mark.parametrize("mix", [0, 0.0, 0.3, 1, 1.0])
def test_the_ends_of_the_range_are_allowed(mix: float) -> None:
    assert RolloutConfig(label=True, teacher_mix=mix).teacher_mix == mix


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_that_allows_no_decision_is_refused(limit: int) -> None:
    with pytest.raises(ConfigurationError, match="max_decisions must be at least 1"):
        RolloutConfig(max_decisions=limit)


def test_a_refusal_is_a_value_error_and_one_of_ours() -> None:
    assert issubclass(ConfigurationError, ValueError)
    assert issubclass(ConfigurationError, MaatmlError)


def test_options_are_not_shared_between_configurations() -> None:
    assert RolloutConfig().options is not RolloutConfig().options
