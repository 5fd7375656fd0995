"""Hooks of ours, for conftest files and other plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping


@pytest.hookspec(firstresult=True)
def pytest_maatml_environment(name: str, config: pytest.Config) -> Any:
    """Supply the environment called `name`: an environment, or what makes one; None passes.

    Called when an environment is needed, during collection, before the registry is asked. The
    processes of `--maatml-workers` have no hooks: with them, what this supplies is refused.
    """


@pytest.hookspec(firstresult=True)
def pytest_maatml_policy(name: str, config: pytest.Config) -> Any:
    """Supply the policy that `--maatml-policy=NAME` or a marker asks for; None passes.

    Called when the policy is first needed, in each pytest process that runs episodes: an object
    with `score`, or what makes one. The processes of `--maatml-workers` have no hooks: with them,
    what this supplies is refused.
    """


def pytest_maatml_episode(episode: Mapping[str, Any], config: pytest.Config) -> None:
    """An episode has ended and is recorded. Called in the process that ran it.

    `episode` is the record, `maatml.rollout_episode/1`. An episode that errored has none.
    """


def pytest_maatml_summary(summary: Mapping[str, Any], config: pytest.Config) -> None:
    """A folder is finished: `summary` is what its summary file holds. Not called in workers."""
