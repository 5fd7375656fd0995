"""Closed-loop policy testing for pytest.

Importing this costs nothing: the public names are loaded where they are first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_maatml.errors import MaatmlError
    from pytest_maatml.plugin.functions import Rollout
    from pytest_maatml.registry import register_environment, register_format, register_predictor

__all__ = [
    "MaatmlError",
    "Rollout",
    "__version__",
    "register_environment",
    "register_format",
    "register_predictor",
]
__version__ = "0.1.0"


_HOMES = {
    "MaatmlError": "errors",
    "Rollout": "plugin.functions",
    "register_environment": "registry",
    "register_format": "registry",
    "register_predictor": "registry",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
