"""The kit passes on the environments that we have: ours, the example's, the peer's."""

from __future__ import annotations

import shutil
import sys

import pytest

from .findings import ROOT, broken, findings, in_process, over_stdio

QUERY = {"count": 6, "seed": 1}
GRID_RESCUE = f"node {ROOT / 'example_project' / 'environments' / 'grid_rescue.js'}"
OURS = f"{sys.executable} -m pytest_maatml serve line_world"
PEER = f"""{sys.executable} -c "from maatml.rollout import serve
from maatml.rollout.example import LineWorld
serve(LineWorld())" """


def test_line_world_keeps_all_rules() -> None:
    from pytest_maatml.environments.line_world import LineWorld

    found = findings(in_process(LineWorld, tasks=QUERY))
    assert {finding.outcome for finding in found.values()} == {"passed"}, broken(found)


@pytest.mark.parametrize("command", [GRID_RESCUE, OURS, PEER], ids=["node", "ours", "peer"])
def test_a_program_keeps_all_rules(command: str) -> None:
    assert shutil.which(command.split()[0])
    found = findings(over_stdio(command, tasks=QUERY, max_decisions=256))
    assert {finding.outcome for finding in found.values()} == {"passed"}, broken(found)
