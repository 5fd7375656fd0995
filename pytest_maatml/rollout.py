"""The public face of the engine, under the names that a rollout program imports.

A program that keeps `maatml.rollout_env/1` and was written for `maatml.rollout` runs on these.
"""

from __future__ import annotations

from pytest_maatml.engine.config import RolloutConfig
from pytest_maatml.engine.driver import drive, plan_episode, rollout
from pytest_maatml.engine.in_process import InProcess
from pytest_maatml.engine.policy import Policy, select
from pytest_maatml.engine.protocol import (
    EXHAUSTED,
    PROTOCOL,
    SUCCESS,
    Environment,
    Hello,
    Labels,
    StepResult,
    Verification,
)
from pytest_maatml.engine.record import EPISODE_KIND, Episode, EpisodeError
from pytest_maatml.engine.server import serve
from pytest_maatml.engine.stdio import StdioEnvironment
from pytest_maatml.errors import PolicyError, RolloutEnvError
from pytest_maatml.records.episodes import write_episodes
from pytest_maatml.records.summary import summarize

__all__ = [
    "EPISODE_KIND",
    "EXHAUSTED",
    "PROTOCOL",
    "SUCCESS",
    "Environment",
    "Episode",
    "EpisodeError",
    "Hello",
    "InProcess",
    "Labels",
    "Policy",
    "PolicyError",
    "RolloutConfig",
    "RolloutEnvError",
    "StdioEnvironment",
    "StepResult",
    "Verification",
    "drive",
    "plan_episode",
    "rollout",
    "select",
    "serve",
    "summarize",
    "write_episodes",
]
