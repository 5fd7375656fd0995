"""What options say in text, read once for pytest's command line, for ours, and for ini files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias

from pytest_maatml.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

#: A query for the environment, or the tasks themselves.
Tasks: TypeAlias = "dict[str, Any] | list[Any]"

#: The gate of the families without one of their own, and the gate over all families together.
DEFAULT_GATE = "default"
OVERALL_GATE = "overall"


def read_tasks(text: str, *, option: str, base: Path) -> Tasks:
    """The query or the task list in `text`: JSON, or `@FILE` with JSON in it, relative to `base`.

    Raises ConfigurationError for a file that is not there and for what is not JSON.
    """
    source, where = text, option
    if text.startswith("@"):
        path = base / text[1:]
        where = f"{option}: {path}"
        try:
            source = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"{where} cannot be read: {error}") from None
    try:
        tasks = json.loads(source)
    except json.JSONDecodeError as error:
        raise ConfigurationError(
            f"{where} is not JSON: {error}; it wants a task query such as "
            f'\'{{"count": 50, "seed": 1}}\', a list of tasks, or @FILE'
        ) from None
    return check_tasks(tasks, where=where)


def check_tasks(tasks: Any, *, where: str) -> Tasks:
    """`tasks` as it is. Raises ConfigurationError if it is neither an object nor a list."""
    if isinstance(tasks, dict | list):
        return tasks
    raise ConfigurationError(f"{where} must be a JSON object or a list of tasks, not {tasks!r}")


def read_options(items: Iterable[str], *, option: str) -> dict[str, Any]:
    """The reset options of `K=V` items; V is JSON where it parses, else text.

    Raises ConfigurationError for an item without `=` or without a key.
    """
    options: dict[str, Any] = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise ConfigurationError(f"{option} wants KEY=VALUE, not {item!r}")
        options[key] = _json_or_text(value)
    return options


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return text


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def read_min_success(items: Iterable[str], *, option: str) -> dict[str, str]:
    """The gates of `RATE` and `FAMILY=RATE` items, split at the last `=`; a bare rate is `default`.

    Rates stay text, since the rule is exact. Raises ConfigurationError as `check_rate`, and for a
    family that is given twice.
    """
    gates: dict[str, str] = {}
    for item in items:
        family, equals, rate = item.rpartition("=")
        name = family if equals else DEFAULT_GATE
        if name in gates:
            raise ConfigurationError(f"{option} gives two gates for {name!r}")
        gates[name] = check_rate(rate, where=f"{option}={item}")
    return gates


def check_gates(gates: Mapping[str, Any], *, where: str) -> dict[str, str]:
    """Gates that came as numbers or text, as text. Raises ConfigurationError as `check_rate`."""
    return {
        str(family): check_rate(str(rate), where=f"{where} of {family}")
        for family, rate in gates.items()
    }


def check_rate(text: str, *, where: str) -> str:
    """A rate in [0, 1], as the text that it was. Raises ConfigurationError for anything else."""
    try:
        rate = float(text)
    except ValueError:
        raise ConfigurationError(
            f"{where}: {text!r} is not a number; give a rate such as 0.9"
        ) from None
    if not 0 <= rate <= 1:
        raise ConfigurationError(f"{where}: a success rate lies in [0, 1], not {text}")
    return text.strip()


def read_shard(text: str, *, option: str) -> tuple[int, int]:
    """The shard `I/N`: which one (from 1), and of how many. Raises ConfigurationError."""
    which, slash, count = text.partition("/")
    if not (slash and which.isdecimal() and count.isdecimal() and 1 <= int(which) <= int(count)):
        raise ConfigurationError(f"{option} wants I/N with 1 <= I <= N, such as 1/3, not {text!r}")
    return int(which), int(count)


def read_concurrency(value: Any) -> int | None:
    """The episodes in flight, None for auto. Raises ConfigurationError for anything else."""
    if value in (None, "", "auto"):
        return None
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigurationError(f"concurrency must be a number from 1 or auto, not {value!r}")
    return value
