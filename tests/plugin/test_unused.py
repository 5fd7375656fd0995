"""A pytest run that does not use the plugin must not notice it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

PROBE = """
import sys

def test_modules():
    ours = sorted(name for name in sys.modules if name.split(".")[0] == "pytest_maatml")
    heavy = sorted({"yaml", "numpy", "orjson", "maatml"} & set(sys.modules))
    print("SEEN", [ours, heavy])
"""


def test_an_unused_plugin_adds_at_most_four_modules_and_no_heavy_one(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(PROBE)
    result = pytester.runpytest_subprocess("-s", "-p", "no:xdist", "-p", "no:hypothesispytest")
    result.assert_outcomes(passed=1)
    line = next(line for line in result.outlines if "SEEN" in line)
    ours, heavy = ast.literal_eval(line.split("SEEN ")[1].rstrip("."))
    assert 0 < len(ours) <= 4
    assert heavy == []


def test_an_unused_plugin_makes_no_folder_for_the_workers_of_xdist(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(pytester.mkdir("temporary")))
    pytester.makepyfile(
        """
        import tempfile
        from pathlib import Path

        def test_folder():
            folder = Path(tempfile.gettempdir())
            assert folder.name == "temporary"
            assert list(folder.glob("maatml*")) == []
        """
    )
    pytester.runpytest_subprocess("-n1").assert_outcomes(passed=1)


def test_an_unused_plugin_does_not_mind_where_there_is_no_temporary_folder(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeconftest("import tempfile\ntempfile.tempdir = '/no/such/folder'\n")
    pytester.makepyfile("def test_own(): pass")
    pytester.runpytest_subprocess("-n1").assert_outcomes(passed=1)


def test_both_names_block_the_plugin(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_own(): pass")
    for name in ("maatml", "pytest_maatml"):
        result = pytester.runpytest_subprocess("-p", f"no:{name}", "--maatml-model=x")
        assert "unrecognized arguments: --maatml-model=x" in result.stderr.str()
