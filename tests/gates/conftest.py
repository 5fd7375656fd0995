"""Reference values that were worked out apart from the code under test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def oracles() -> dict[str, Any]:
    path = Path(__file__).with_name("oracles.json")
    tables = json.loads(path.read_text(encoding="utf-8"))
    # What follows the name of a table says what its columns are.
    return {name.split("(")[0].split(",")[0]: rows for name, rows in tables.items()}
