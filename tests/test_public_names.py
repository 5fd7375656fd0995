from __future__ import annotations

import inspect
import json
import subprocess
import sys
from importlib import import_module, metadata
from typing import Any

import pytest

import pytest_maatml
from pytest_maatml import errors, registry


def fresh(program: str) -> Any:
    """What `program` prints as JSON, in an interpreter that has imported nothing of ours."""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_the_public_names_are_these() -> None:
    assert sorted(pytest_maatml.__all__) == [
        "MaatmlError",
        "Rollout",
        "__version__",
        "register_environment",
        "register_format",
        "register_predictor",
    ]


@pytest.mark.parametrize("name", ["register_environment", "register_format", "register_predictor"])
def test_a_registering_name_is_the_registrys_own(name: str) -> None:
    assert getattr(pytest_maatml, name) is getattr(registry, name)


def test_the_version_is_the_installed_ones() -> None:
    assert pytest_maatml.__version__ == metadata.version("pytest-maatml")
    assert pytest_maatml.MaatmlError is errors.MaatmlError


def test_each_name_can_be_imported_afresh_and_all_of_them_with_a_star() -> None:
    assert fresh(
        "import json\nfrom pytest_maatml import *\nfrom pytest_maatml import __all__ as names\n"
        "print(json.dumps([name for name in names if name not in globals()]))"
    ) == []  # fmt: skip


def test_importing_the_package_loads_none_of_its_modules_and_no_dependency() -> None:
    loaded = fresh(
        "import sys, json\nbefore = set(sys.modules)\nimport pytest_maatml\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    assert [name for name in loaded if name.startswith("pytest_maatml")] == ["pytest_maatml"]
    foreign = {name.partition(".")[0] for name in loaded} - set(sys.stdlib_module_names)
    assert foreign == {"pytest_maatml"}


def test_registering_needs_neither_pytest_nor_numpy_nor_yaml() -> None:
    loaded = fresh(
        "import sys, json\nfrom pytest_maatml import register_environment\n"
        "register_environment('corridor')(object)\nprint(json.dumps(sorted(sys.modules)))"
    )
    assert {"pytest", "_pytest", "numpy", "yaml", "orjson", "maatml"}.isdisjoint(loaded)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'pytest_maatml' has no attribute 'register_teacher'"):
        pytest_maatml.register_teacher  # noqa: B018


def test_dir_lists_what_can_be_asked_for() -> None:
    assert set(pytest_maatml.__all__) <= set(dir(pytest_maatml))


def test_the_rollout_module_exports_what_it_lists_and_nothing_else() -> None:
    rollout = import_module("pytest_maatml.rollout")
    for name in rollout.__all__:
        assert hasattr(rollout, name)
    public = {
        name
        for name, value in vars(rollout).items()
        if not name.startswith("_") and not inspect.ismodule(value) and name != "annotations"
    }
    assert public == set(rollout.__all__)
