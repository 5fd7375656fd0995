"""The entry point. Every pytest run imports this, so the rest comes in only when it is wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_maatml.plugin import hookspecs, options

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from pytest_maatml.plugin.functions import Rollout


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(hookspecs)


def pytest_addoption(parser: pytest.Parser) -> None:
    options.declare(parser)


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(parser: pytest.Parser) -> Generator[None]:
    result = yield
    options.declare_short_names(parser)
    return result


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "maatml(env, tasks, policy, ...): closed-loop rollouts of a policy in an environment; a "
        "test that asks for the fixture `rollout` runs once a task family",
    )
    if options.is_active(config):
        from pytest_maatml.plugin.session import activate

        activate(config, options.read_settings(config))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Xdist is about to start a worker, and only the worker will see whether there are rollouts."""
    from pytest_maatml.plugin.workers import equip

    equip(node.config, node.workerinput)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.name != "model.yml":
        return None
    from pytest_maatml.plugin.collection import model_file_in_path

    return model_file_in_path(file_path, parent)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.definition.get_closest_marker("maatml") is None:
        return
    from pytest_maatml.plugin.functions import parametrize, refuse_idle

    if "rollout" in metafunc.fixturenames:
        parametrize(metafunc)
    else:
        refuse_idle(metafunc.definition)


@pytest.fixture
def rollout(request: pytest.FixtureRequest) -> Rollout:
    """The episodes of one task family, run with what `@pytest.mark.maatml` says."""
    from pytest_maatml.plugin.functions import run

    return run(request)
