from __future__ import annotations

import doctest
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_maatml.cli import main
from tests.gating.test_family import ended
from tests.records.samples import IDENTITY, run

PAGE = Path(__file__).parent.parent / "docs" / "gates.md"

#: How the tasks of the runs ended that the page compares.
RUNS = {
    "before": "s" * 22 + "fff",
    "same": "s" * 20 + "ff" + "ssf",
    "worse": "s" * 13 + "f" * 9 + "fff",
    "outages": "e" * 6 + "s" * 16 + "fff",
}


def make_runs(folder: Path) -> None:
    for name, text in RUNS.items():
        run(folder / "nightly" / name, ended(text), replace(IDENTITY, planned=len(text)))


def commands() -> list[tuple[str, str]]:
    """Each command on the page with the output that the page shows."""
    page = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return [
        (command, output.rstrip("\n"))
        for block in blocks
        for command, output in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
    ]


def python_examples() -> list[doctest.Example]:
    return [
        example
        for example in doctest.DocTestParser().get_examples(_python())
        if example.want or example.exc_msg
    ]


def _python() -> str:
    """The page without its fences, which doctest would take for output."""
    return re.sub(r"^```.*$", "", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)


def test_each_python_example_gives_what_the_page_shows() -> None:
    parsed = doctest.DocTestParser().get_doctest(_python(), {}, PAGE.name, str(PAGE), 0)
    report: list[str] = []
    result = doctest.DocTestRunner(verbose=False).run(parsed, out=report.append)
    assert result.attempted > 0
    assert not result.failed, "".join(report)


@pytest.mark.parametrize(("command", "output"), commands())
def test_each_command_prints_what_the_page_shows(
    command: str,
    output: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make_runs(tmp_path)
    monkeypatch.chdir(tmp_path)
    program, *arguments = shlex.split(command)
    main(arguments)
    printed = capsys.readouterr()
    assert program == "pytest-maatml"
    assert (printed.out + printed.err).rstrip("\n") == output


def test_the_page_has_at_least_forty_examples() -> None:
    assert len(python_examples()) + len(commands()) >= 40
