"""Imports point downwards only, those for type checkers too."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pytest_maatml

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(pytest_maatml.__file__).parent

#: From the bottom up. Parts of one group may import each other; the groups of a layer may not.
LAYERS: list[list[set[str]]] = [
    [{"errors"}],
    [{"engine"}, {"gates"}, {"registry"}, {"arguments"}, {"schedule"}, {"table"}],
    [{"models", "checkpoints", "suites"}, {"records"}, {"environments"}],
    [{"gating"}],
    [{"harness"}, {"rollout"}],
    [{"conformance"}],
    [{"plugin"}, {"cli", "__main__", "commands"}],
]
HEIGHTS = {part: height for height, layer in enumerate(LAYERS) for group in layer for part in group}
GROUPS = {part: group for layer in LAYERS for group in layer for part in group}

FILES = sorted(ROOT.rglob("*.py"))
MODULES = [file.relative_to(ROOT).with_suffix("") for file in FILES]
PARTS = {path.parts[0] for path in MODULES} - {"__init__"}


def imported(file: Path) -> Iterator[str]:
    """Every module that `file` imports, wherever in it the import stands."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                here = ("pytest_maatml", *file.relative_to(ROOT).parts)
                base = ".".join((*here[: -node.level], *filter(None, [base])))
            yield from (f"{base}.{alias.name}" for alias in node.names)


def parts_imported(file: Path) -> set[str]:
    names = [name.split(".") for name in imported(file)]
    ours = {name[1] for name in names if name[0] == "pytest_maatml" and len(name) > 1}
    return ours & PARTS


def test_there_is_something_to_look_at() -> None:
    assert {"engine", "gates", "records", "plugin", "errors"} <= PARTS
    assert len(FILES) > 30
    found = parts_imported(ROOT / "engine" / "episode.py")
    assert found == {"engine", "errors"}
    assert {"engine", "records"} <= parts_imported(ROOT / "rollout.py")


def test_every_part_of_the_package_has_its_layer() -> None:
    assert PARTS - HEIGHTS.keys() == set(), "say in LAYERS where the new part stands"


@pytest.mark.parametrize("part", sorted(PARTS & HEIGHTS.keys()))
def test_imports_point_downwards(part: str) -> None:
    upwards = [
        f"{file.relative_to(ROOT)} imports {other}"
        for file, path in zip(FILES, MODULES, strict=True)
        if path.parts[0] == part
        for other in sorted(parts_imported(file) - GROUPS[part])
        if HEIGHTS.get(other, len(LAYERS)) >= HEIGHTS[part]
    ]
    assert upwards == []


def test_gates_import_nothing_of_ours() -> None:
    assert {p for f in (ROOT / "gates").rglob("*.py") for p in parts_imported(f)} == {"gates"}


def test_nothing_outside_the_plugin_imports_pytest() -> None:
    pytests = {"pytest", "_pytest", "pluggy"}
    importers = {
        path.parts[0]
        for file, path in zip(FILES, MODULES, strict=True)
        if pytests & {name.partition(".")[0] for name in imported(file)}
    }
    assert importers == {"plugin"}


def test_no_module_has_a_name_that_says_nothing() -> None:
    names = {name for path in MODULES for name in path.parts}
    assert names.isdisjoint({"utils", "util", "helpers", "helper", "common", "misc", "manager"})


@pytest.mark.parametrize("part", ["engine", "registry", "arguments", "rollout"])
def test_the_lower_parts_bring_in_no_pytest_yaml_or_numpy(part: str) -> None:
    modules = [
        ".".join(("pytest_maatml", *path.parts)).removesuffix(".__init__")
        for path in MODULES
        if path.parts[0] == part
    ]
    program = (
        "import importlib, json, sys\n"
        f"for name in {modules}: importlib.import_module(name)\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    loaded = set(json.loads(ran.stdout))
    assert set(modules) <= loaded
    assert loaded.isdisjoint({"pytest", "_pytest", "pluggy", "yaml", "numpy", "maatml", "scipy"})
