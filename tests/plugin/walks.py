"""Tasks of line_world whose ends are known, and a policy that breaks down on some of them."""

from __future__ import annotations

import json
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .conftest import ModelFolder

#: The policy has an outage wherever the target is this.
_DOWN: Final = -7
_OUTAGE: Final = f"""\
        if observation["target"] == {_DOWN}:
            raise OSError("the scorer is down")
"""
_FIRST_LINE: Final = "        gap ="


def walks(**families: str) -> list[dict[str, Any]]:
    """A task a letter: s succeeds, f fails, e errors. Families take turns, walks differ in length.

    The ids are FAMILY-NUMBER, counted within each family.
    """
    turns = zip_longest(*(list(_family(name, ends)) for name, ends in families.items()))
    return [task for turn in turns for task in turn if task is not None]


def _family(name: str, ends: str) -> Iterator[dict[str, Any]]:
    for number, end in enumerate(ends):
        target = _DOWN if end == "e" else 3 + number * 5 % 7
        steps = 2 if end == "f" else 20
        named = {"id": f"{name}-{number}", "family": name}
        yield {**named, "start": 0, "target": target, "max_steps": steps}


def walks_option(**families: str) -> str:
    return f"--maatml-tasks={json.dumps(walks(**families))}"


def before_scoring(folder: ModelFolder, code: str) -> ModelFolder:
    """Let the policy of the folder run `code` first, indented as the body of its method."""
    text = (folder.path / "walker_plugin.py").read_text()
    folder.write("walker_plugin.py", text.replace(_FIRST_LINE, code + _FIRST_LINE))
    return folder


def stumbling(folder: ModelFolder) -> ModelFolder:
    """The folder with a policy that breaks down where a task says so."""
    return before_scoring(folder, _OUTAGE)


def verdicts(summary: Mapping[str, Any]) -> dict[str, str]:
    return {family: gate["verdict"] for family, gate in summary["gates"].items()}
