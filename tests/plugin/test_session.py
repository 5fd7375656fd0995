"""What one session opens once, and for whom."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import pytest

from pytest_maatml.environments.line_world import LineWorld
from pytest_maatml.errors import ConfigurationError
from pytest_maatml.harness.spec import RolloutSpec
from pytest_maatml.plugin.session import session_of
from pytest_maatml.rollout import Hello

if TYPE_CHECKING:
    from collections.abc import Callable


def maker(name: str) -> Callable[[], LineWorld]:
    class Empty(LineWorld):
        def hello(self) -> Hello:
            return Hello(name=name, version="1", capabilities=("tasks",))

        def tasks(self, query: dict[str, Any]) -> list[dict[str, Any]]:
            return []

    return lambda: Empty()


def test_an_environment_is_never_taken_for_one_that_is_gone(pytester: pytest.Pytester) -> None:
    session = session_of(pytester.parseconfigure())
    for number in range(30):
        name = f"world-{number}"
        with pytest.raises(ConfigurationError, match=f"'{name}' returned no task"):
            session.rig(
                RolloutSpec(
                    env=maker(name), base=pytester.path, source="test", out=pytester.path / name
                )
            )
        gc.collect()


def test_equal_specs_have_rigs_of_their_own(pytester: pytest.Pytester) -> None:
    session = session_of(pytester.parseconfigure())
    one, other = (
        RolloutSpec(env="line_world", base=pytester.path, source="test", out=pytester.path)
        for _ in range(2)
    )
    assert one == other
    assert session.rig(one) is session.rig(one)
    assert session.rig(one) is not session.rig(other)
    assert session.rig(one).stage.carrier is session.rig(other).stage.carrier
