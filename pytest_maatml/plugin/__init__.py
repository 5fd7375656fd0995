"""The entry point. Every pytest run imports this, so the rest comes in only when it is wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_maatml.plugin import options

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path


def pytest_addoption(parser: pytest.Parser) -> None:
    options.declare(parser)


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(parser: pytest.Parser) -> Generator[None]:
    result = yield
    options.declare_short_names(parser)
    return result


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "maatml: closed-loop rollouts of a policy in an environment (pytest-maatml)"
    )
    if options.is_active(config):
        from pytest_maatml.plugin.session import activate

        activate(config, options.read_settings(config))


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.name != "model.yml":
        return None
    from pytest_maatml.plugin.collection import model_file_in_path

    return model_file_in_path(file_path, parent)
