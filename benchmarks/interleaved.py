"""Contenders timed in turn, so that a machine whose speed drifts is fair to all of them."""

from __future__ import annotations

import json
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

P = ParamSpec("P")
ROUNDS = 5


def timed(run: Callable[P, object]) -> Callable[P, float]:
    """`run` as something that returns the seconds which it took."""

    def measured(*args: P.args, **options: P.kwargs) -> float:
        started = time.perf_counter()
        run(*args, **options)
        return time.perf_counter() - started

    return measured


def in_new_folder(run: Callable[[Path], float]) -> Callable[[], float]:
    """`run`, given an empty folder each time: an old file would cost its truncation."""

    def measured() -> float:
        with tempfile.TemporaryDirectory() as folder:
            return run(Path(folder))

    return measured


def rates(
    contenders: Mapping[str, Callable[[], float]], *, count: int, rounds: int = ROUNDS
) -> dict[str, float]:
    """The median rate of each, in `count` a second; a contender returns its own seconds."""
    measured: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            measured[name].append(count / run())
    return {name: statistics.median(values) for name, values in measured.items()}


def report(
    title: str, found: Mapping[str, float], ratios: Mapping[str, tuple[str, str, float]], unit: str
) -> dict[str, Any]:
    """Print a table; `ratios` names what is divided by what, and what it should reach."""
    print(f"\n{title}")
    for name, rate in found.items():
        print(f"  {name:<64} {rate:>12,.0f} {unit}")
    lines: dict[str, float] = {}
    for name, (above, below, aim) in ratios.items():
        value = lines[name] = found[above] / found[below]
        met = "met" if value >= aim else "MISSED"
        print(f"  {name:<64} {value:>12.2f} times  (aim {aim:.3g}: {met})")
    return {"title": title, "unit": unit, "rates": dict(found), "ratios": lines}


def machine() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "system": platform.platform(terse=True),
        "processor": _processor(),
        "cores": os.cpu_count(),
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()


def write(name: str, results: list[dict[str, Any]]) -> None:
    """Keep the figures beside the script, as JSON."""
    path = Path(__file__).parent / "results" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"machine": machine(), "results": results}, indent=2) + "\n")
    print(f"\nwritten to {path.name}")
