"""The closed-loop suites that a model.yml declares under `extensions.pytest_maatml`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pytest_maatml.errors import ModelError, did_you_mean

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_maatml.models import ModelDefinition

__all__ = ["SuiteDefinition", "item_name", "suites"]

_EXTENSION: Final = "pytest_maatml"
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.-]|_(?=u[0-9a-f]+_)")
#: The keys of a suite that `SuiteDefinition.extra` may hold.
_EXTRA_KEYS: Final = (
    "label", "teacher_mix", "source", "round", "seed", "max_decisions", "gate", "alpha", "stop",
    "baseline", "margin", "max_errors", "timeout", "concurrency", "env_processes",
    "env_restarts", "isolate",
)  # fmt: skip
_SUITE_KEYS: Final = ("name", "env", "env_command", "tasks", "options", "min_success", *_EXTRA_KEYS)


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteDefinition:
    name: str | None = None
    #: One of these two is given.
    env: str | None = None
    env_command: str | None = None
    #: A query for the environment, a list of tasks, or text as `--maatml-tasks` takes it.
    tasks: Mapping[str, Any] | Sequence[Any] | str = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    #: The gate of each family; that of `default` holds for the families without their own.
    min_success: Mapping[str, float | str] = field(default_factory=dict)
    #: What its folder below the run's is called; None for the one suite that needs no name.
    folder: str | None = None
    #: The line in model.yml where it begins.
    line: int
    #: What else was given of the settings that an option sets otherwise.
    extra: Mapping[str, Any] = field(default_factory=dict)


def item_name(text: str) -> str:
    """`text` in letters, digits and `_.-` alone; different texts have different names.

    Any other character becomes `_uHEX_`, and so does an underscore that would look like the start
    of one.
    """
    return _UNSAFE.sub(lambda match: f"_u{ord(match[0]):x}_", text)


def suites(definition: ModelDefinition) -> tuple[SuiteDefinition, ...]:
    """The suites that model.yml declares, in its order.

    Raises ModelError with file and line where one is not as it must be, and where two would have
    the same name in the ids of their items.
    """
    _refuse_misspelt(definition)
    declared = definition.extensions.get(_EXTENSION) or {}
    if not isinstance(declared, Mapping) or declared.keys() - {"suites"}:
        raise ModelError(
            f"{definition.model_file}: extensions.{_EXTENSION} must be a mapping with the one key "
            f"`suites`, not {declared!r}"
        )
    entries = declared.get("suites", [])
    if not isinstance(entries, list) or ("suites" in declared and not entries):
        raise ModelError(
            f"{definition.model_file}: extensions.{_EXTENSION}.suites must be a list of suites, "
            f"not {entries!r:.200}"
        )
    lines = definition.suite_lines or (1,) * len(entries)
    found = tuple(map(partial(_suite, definition.model_file), entries, lines))
    _refuse_duplicates(definition.model_file, found)
    alone = sum(suite.name is None for suite in found) == 1
    return tuple(replace(suite, folder=_folder(suite, alone=alone)) for suite in found)


def _refuse_misspelt(definition: ModelDefinition) -> None:
    """Other programs have keys of their own, but one that reads like ours was meant for us."""
    for key in definition.extensions:
        if key != _EXTENSION and str(key).lower().replace("-", "_") == _EXTENSION:
            raise ModelError(
                f"{definition.model_file}: extensions.{key} is not read; it must be "
                f"extensions.{_EXTENSION}"
            )


def _folder(suite: SuiteDefinition, *, alone: bool) -> str | None:
    """Suites without a name would write to one folder: each has one below, as if it had a name."""
    return suite.name or (None if alone else suite.env or suite.env_command)


def _refuse_duplicates(file: Path, found: tuple[SuiteDefinition, ...]) -> None:
    first: dict[str | None, int] = {}
    for suite in found:
        name = suite.name or suite.env or suite.env_command
        if name in first:
            raise ModelError(
                f"{file}:{suite.line}: a suite called {name!r} is at line {first[name]} already; "
                "give each a `name` of its own"
            )
        first[name] = suite.line


def _suite(file: Path, entry: Any, line: int) -> SuiteDefinition:
    where = f"{file}:{line}: "
    if not isinstance(entry, Mapping):
        raise ModelError(f"{where}a suite must be a mapping, not {entry!r}")
    if unknown := [key for key in entry if key not in _SUITE_KEYS]:
        raise ModelError(
            f"{where}a suite has no key {unknown[0]!r}; known keys: {', '.join(_SUITE_KEYS)}"
            f"{did_you_mean(unknown[0], _SUITE_KEYS)}"
        )
    given = {key: value for key, value in entry.items() if value is not None}
    if "/" in str(given.get("name")) or given.get("name") in (".", ".."):
        raise ModelError(f"{where}name {given['name']!r} cannot be the name of a folder")
    if ("env" in given) == ("env_command" in given):
        raise ModelError(f"{where}a suite needs one of `env` and `env_command`, and not both")
    return SuiteDefinition(
        **{key: _suite_text(where, given, key) for key in ("name", "env", "env_command")},
        tasks=_suite_json(where, given, "tasks", (Mapping, list, str)),
        options=_suite_json(where, given, "options", (Mapping,)),
        min_success=_min_success(where, given.get("min_success", {})),
        line=line,
        extra={key: given[key] for key in _EXTRA_KEYS if key in given},
    )


def _suite_text(where: str, given: Mapping[str, Any], key: str) -> str | None:
    value = given.get(key)
    if value is None or (isinstance(value, str) and value.strip()):
        return value
    raise ModelError(f"{where}{key} must be text, not {value!r}")


def _suite_json(where: str, given: Mapping[str, Any], key: str, kinds: tuple[type, ...]) -> Any:
    value = given.get(key, {})
    if not isinstance(value, kinds):
        raise ModelError(f"{where}{key} must be a mapping{' or a list' * (len(kinds) > 1)}")
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ModelError(
            f"{where}{key} must be JSON: {error}; quote what YAML reads as more than text"
        ) from None
    return value


def _min_success(where: str, value: Any) -> Mapping[str, float | str]:
    gates = value if isinstance(value, Mapping) else {"default": value}
    for family, gate in gates.items():
        if isinstance(gate, bool) or not isinstance(gate, int | float | str):
            raise ModelError(f"{where}min_success of {family} must be a rate, not {gate!r}")
    return {str(family): gate for family, gate in gates.items()}
