"""What README and docs show is run as it stands, and what they list is complete."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_maatml.conformance.rules import RULES
from pytest_maatml.engine.record import EpisodeError
from pytest_maatml.environments.line_world import LineWorld
from pytest_maatml.gating.report import BaselineReport, GateReport
from pytest_maatml.plugin.functions import KEYWORDS
from pytest_maatml.plugin.options import OPTIONS
from pytest_maatml.records.identity import RunIdentity
from pytest_maatml.rollout import RolloutConfig, rollout
from pytest_maatml.suites import _SUITE_KEYS
from tests.gating.test_family import ended
from tests.records.samples import IDENTITY, run

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
#: Pages of which every block is run here.
PAGES = ("README.md", *(f"docs/{name}.md" for name in (
    "options", "environments", "policies", "models", "records", "ci",
)))  # fmt: skip
#: Pages of which the links are followed.
LINKED = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *DOCS.glob("*.md"), ROOT / "example_project" / "README.md")
)
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE_NAME = re.compile(r"(?:#|//) ([\w./-]+\.\w+)\n")
_COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    language: str
    text: str
    #: `docs/page.md:line`
    where: str

    @property
    def file_name(self) -> str | None:
        match = _FILE_NAME.match(self.text)
        return match[1] if match else None


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str) -> list[Block]:
    text = text_of(page)
    return [
        Block(
            language=match[1],
            text=match[2],
            where=f"{page}:{text.count(chr(10), 0, match.start()) + 1}",
        )
        for match in _BLOCK.finditer(text)
    ]


class Reader:
    """Somebody who pastes a page, block by block, into a shell in the example project."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTEST", "GITHUB", "COVERAGE", "CI"))
        }
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        # Hypothesis alone makes a start half as long again, and no page uses it.
        quick = "-p no:hypothesispytest"
        self._environ = {**kept, "PATH": path, "COLUMNS": "80", "PYTEST_ADDOPTS": quick}

    def follow(self, block: Block) -> None:
        assert block.language in {"sh", "console", "python", "yaml", "toml", "js", "text"}, block
        if block.language == "yaml":
            yaml.safe_load(block.text)
        if block.file_name is not None:
            file = self._folder / block.file_name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text, encoding="utf-8")
        elif block.language == "sh" and "-m venv" not in block.text:  # .ci/run runs those
            status, printed = self._run(["bash", "-euo", "pipefail", "-c", block.text])
            assert status == 0, f"{block.where}\n{printed}"
        elif block.language == "console":
            self._compare(block)
        elif block.language == "python":
            status, printed = self._run([sys.executable, "-c", block.text])
            assert status == 0, f"{block.where}\n{printed}"

    def _compare(self, block: Block) -> None:
        """Each command prints what is shown and exits with 0, unless the next asks for `$?`."""
        shown = [(match[1], match[2]) for match in _COMMAND.finditer(block.text)]
        lines = ["status=0"]
        for command, _ in shown:
            lines += ["echo '<<<'", f"(exit $status); {command}", "status=$?", 'echo ">>>$status"']
        _, printed = self._run(["bash", "-c", "\n".join(lines)])
        outputs = re.findall(r"<<<\n(.*?)>>>(\d+)\n", printed, re.DOTALL)
        assert len(outputs) == len(shown), f"{block.where}\n{printed}"
        for place, ((command, wanted), (output, status)) in enumerate(
            zip(shown, outputs, strict=True)
        ):
            asked = place + 1 < len(shown) and shown[place + 1][0] == "echo $?"
            assert asked or status == "0", f"{block.where}: {command}\n{output}"
            assert _pattern(wanted).fullmatch(output), f"{block.where}: {command}\n{output}"

    def _run(self, command: list[str]) -> tuple[int, str]:
        done = subprocess.run(
            command,
            cwd=self._folder,
            env=self._environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout


def _pattern(wanted: str) -> re.Pattern[str]:
    """`...` on a line of its own is any number of lines, within a line any text."""
    parts = [
        r"(?:.*\n)*?" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*") + r" *\n"
        for line in wanted.splitlines()
    ]
    return re.compile("".join(parts))


@pytest.mark.parametrize("page", PAGES)
def test_each_block_of_the_page_runs_and_prints_what_is_shown(page: str, tmp_path: Path) -> None:
    project = tmp_path / "example_project"
    left = shutil.ignore_patterns("episodes", ".pytest_cache", "__pycache__")
    shutil.copytree(ROOT / "example_project", project, ignore=left)
    reader = Reader(project)
    for block in blocks(page):
        reader.follow(block)


def slug(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-")


@pytest.mark.parametrize("page", LINKED)
def test_each_link_between_pages_leads_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", _BLOCK.sub("", text_of(page))):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        file = (ROOT / page).parent / name if name else ROOT / page
        assert file.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in map(slug, headings), target


def table_rows(page: str, section: str) -> list[list[str]]:
    """The cells of all table rows below a heading, without heads and rules."""
    _, _, rest = text_of(page).partition(f"\n## {section}\n")
    body = rest.partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in body.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in row] for row in rows]


def elsewhere(name: str, ini: str | None) -> str:
    """Where else than on the command line an option can be given."""
    key = "options" if name == "option" else name
    places = [("ini", ini is not None), ("suite", key in _SUITE_KEYS), ("marker", key in KEYWORDS)]
    return ", ".join(place for place, there in places if there) or "-"


def test_the_options_page_lists_every_option_and_where_else_it_can_be_given() -> None:
    listed = {}
    for cells in table_rows("docs/options.md", "All options"):
        flag, metavar = re.fullmatch(r"`(--maatml-[a-z-]+)(?:=([A-Z/=]+))?`.*", cells[0]).groups()  # type: ignore[union-attr]
        listed[flag] = (metavar, cells[1])
    assert listed == {
        option.flag: (option.metavar, elsewhere(option.name, option.ini)) for option in OPTIONS
    }


@pytest.mark.parametrize("page", [*PAGES, "docs/gates.md", "example_project/README.md"])
def test_no_page_names_an_option_that_there_is_not(page: str) -> None:
    named = set(re.findall(r"--maatml-[a-z-]*[a-z]", text_of(page)))
    assert named <= {option.flag for option in OPTIONS}


def test_the_environments_page_says_of_every_rule_what_it_is_for() -> None:
    rows = table_rows("docs/environments.md", "What each rule is for")
    assert [cells[0].strip("`") for cells in rows] == [rule.name for rule in RULES]
    assert all(cells[1] for cells in rows)


def test_the_models_page_lists_every_key_of_a_suite() -> None:
    rows = table_rows("docs/models.md", "Suites")
    listed = [key for cells in rows for key in re.findall(r"`(\w+)`", cells[0])]
    assert sorted(listed) == sorted(_SUITE_KEYS)


def names(record: type) -> set[str]:
    return {field.name for field in fields(record)}


def an_episode() -> dict[str, Any]:
    class Left:
        def score(self, observation: Any, candidates: Any) -> list[float]:
            return [float(candidate["id"] == "left") for candidate in candidates]

    world = LineWorld()
    config = RolloutConfig(label=True)
    (episode,) = rollout(world, Left(), world.tasks({"count": 1, "seed": 2}), config=config)
    return episode


def test_the_records_page_says_what_every_field_is(tmp_path: Path) -> None:
    episode = an_episode()
    text = "ssf" + "e"
    summary = run(tmp_path, ended(text), replace(IDENTITY, planned=len(text)))
    wanted = {
        *episode,
        *episode["decisions"][0],
        *episode["outcome"],
        *summary,
        *names(RunIdentity),
        *names(GateReport),
        *names(BaselineReport),
        *(names(EpisodeError) - {"index"}),
    }
    page = text_of("docs/records.md")
    missing = [name for name in sorted(wanted) if f"`{name}`" not in page]
    assert missing == []
