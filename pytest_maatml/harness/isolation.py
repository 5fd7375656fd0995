"""What another process needs to have the same environment: a module to import, a command."""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING

from pytest_maatml import registry
from pytest_maatml.errors import ConfigurationError, describe
from pytest_maatml.models import load_plugins

if TYPE_CHECKING:
    from pytest_maatml.harness.spec import RolloutSpec


def importable_module(spec: RolloutSpec, *, option: str) -> str | None:
    """The module that registers the environment of `spec`; None where its name says enough.

    Raises ConfigurationError, naming `option`, for an environment that another process could not
    import: an object of this process's, one registered in a conftest, or in no module on a path.
    """
    if spec.env_command is not None or (isinstance(spec.env, str) and ":" in spec.env):
        return None
    if not isinstance(spec.env, str):
        raise ConfigurationError(
            f"{option}: the environment is an object of this process; give it as MODULE:CLASS"
        )
    found = registry.find("environment", spec.env)
    if found.module is None or _is_of_folder(found.module, spec):
        return None
    name = found.module.rpartition(".")[2]
    if name == "conftest" or getattr(sys.modules.get(found.module), "__spec__", None) is None:
        raise ConfigurationError(
            f"{option}: environment {spec.env!r} is registered in {found.file}, which a child "
            f"process cannot import: move it to a module of the project and give "
            f"--maatml-env=MODULE:CLASS, or list the module under `plugins:` in model.yml"
        )
    return found.module


def _is_of_folder(module: str, spec: RolloutSpec) -> bool:
    """Whether the plugins of the model folder bring it."""
    if spec.model is None or not spec.model.plugins:
        return False
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return module in spec.model.plugins or file.startswith(f"{spec.model.model_dir}{os.sep}")


def import_for(spec: RolloutSpec, module: str | None) -> None:
    """In the other process: import what registers the environment. Raises ConfigurationError."""
    if spec.model is not None:
        load_plugins(spec.model)
    if module is not None:
        try:
            importlib.import_module(module)
        except Exception as error:
            raise ConfigurationError(f"{module} cannot be imported: {describe(error)}") from error


def serve_command(spec: RolloutSpec) -> list[str]:
    """The command that serves the environment of `spec` over stdio. Raises as above."""
    module = importable_module(spec, option="--maatml-isolate")
    command = [sys.executable, "-m", "pytest_maatml", "serve", str(spec.env)]
    if spec.model is not None and spec.model.plugins:
        command += ["--model", str(spec.model.model_dir)]
    if module is not None:
        command += ["--plugin", module]
    return command


def child_environment() -> dict[str, str]:
    """Environment variables that let a child import what this process can."""
    return {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
