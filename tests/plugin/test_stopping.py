"""Where a family stops, what stays and what is said of it depend on nothing but its outcomes."""

from __future__ import annotations

import json
import shutil
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import pytest
from scipy.stats import beta

from pytest_maatml.cli import main

from .walks import before_scoring, stumbling, verdicts, walks

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .conftest import ModelFolder

N = 40
ENDS = {
    # 32 successes of 40 are asked for: the 34th episode brings the 32nd, the 18th the 9th failure.
    "good": "sss" + "f" + "s" * 13 + "f" + "s" * 22,
    "bad": "sf" * 20,
    "edge": "fssss" * 8,
    "shaky": "e" + "s" * 38 + "e",
}
MODES = ("all", "exact", "risk")
SEED = 3
RUN = ("--maatml-model=walker", "-q")

#: Ends the session in the middle of the family `bad` while the file is there.
INTERRUPTS = """\
        import os
        if os.path.exists("interrupt") and observation["max_steps"] == 2:
            raise KeyboardInterrupt
"""


@pytest.fixture
def suites(walker: ModelFolder) -> ModelFolder:
    """One suite for each way to stop, over the same tasks."""
    before_scoring(stumbling(walker), INTERRUPTS)
    walker.write("walks.json", json.dumps(walks(**ENDS)))
    gate = f"tasks: '@walks.json', min_success: 0.8, max_errors: 1, seed: {SEED}"
    stops = {"all": "off", "exact": "exact", "risk": "risk:0.01"}
    return walker.suite(
        *(f"- {{name: {mode}, env: line_world, stop: {stops[mode]}, {gate}}}" for mode in MODES)
    )


def kept(folder: Path) -> dict[str, Any]:
    """All that a run left: rows, errors, and the summary but for where it is."""
    return {
        name: (folder / name).read_bytes() if (folder / name).exists() else b""
        for name in ("episodes.jsonl", "errors.jsonl", "episodes.summary.json")
    }


def summary_of(found: Mapping[str, bytes]) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads(found["episodes.summary.json"])
    return summary


def run(pytester: pytest.Pytester, suites: ModelFolder, *more: str) -> dict[str, dict[str, Any]]:
    """What each suite leaves."""
    started = pytester.runpytest_subprocess if {"-n2", "--maatml-workers=2"} & {*more} else None
    result = (started or pytester.runpytest_inprocess)(*RUN, *more)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    return {mode: kept(suites.output() / mode) for mode in MODES}


def ids(found: Mapping[str, bytes]) -> set[str]:
    """The tasks that stay, errors too."""
    lines = [*found["episodes.jsonl"].splitlines(), *found["errors.jsonl"].splitlines()]
    return {json.loads(line)["task_id"] for line in lines}


def prefix(family: str, length: int) -> set[str]:
    return {f"{family}-{number}" for number in range(length)}


def permuted_prefix(family: str, length: int) -> set[str]:
    """The first of the seed's permutation; an episode's id ends in the index of its task."""
    tasks = [(index, task) for index, task in enumerate(walks(**ENDS)) if task["family"] == family]

    def place(index: int) -> bytes:
        key = f"{SEED}\0rollout-r0-{index:06d}\0order"
        return blake2b(key.encode()).digest()[:8]

    return {task["id"] for _, task in sorted(tasks, key=lambda entry: place(entry[0]))[:length]}


@pytest.mark.slow
def test_nothing_that_stays_depends_on_how_the_episodes_were_run(
    pytester: pytest.Pytester, suites: ModelFolder
) -> None:
    alone = run(pytester, suites, "--maatml-concurrency=1")
    for more in (["--maatml-concurrency=32"], ["-n2", "--maatml-concurrency=7"]):
        shutil.rmtree(suites.output())
        assert run(pytester, suites, *more) == alone, more
    shutil.rmtree(suites.output())
    assert run(pytester, suites, "--maatml-workers=2") == alone

    off, exact, risk = (summary_of(alone[mode]) for mode in MODES)
    assert verdicts(off) == {
        "good": "PASS",
        "bad": "FAIL",
        "edge": "PASS",
        "shaky": "NOT DECIDED",  # two errors, of which one is allowed
    }
    assert off["skipped"] == 0
    assert len(ids(alone["all"])) == 4 * N

    assert verdicts(exact) == {"good": "PASS", "bad": "FAIL", "edge": "PASS", "shaky": "PASS"}
    stops = {"good": 34, "bad": 18, "edge": 40, "shaky": 33}
    assert ids(alone["exact"]) == set().union(*(prefix(f, n) for f, n in stops.items()))
    assert exact["skipped"] == 4 * N - sum(stops.values())
    assert exact["complete"] is False  # an error is no episode
    assert exact["missing"] == 0
    assert exact["errors"] == 1

    gates = risk["gates"]
    assert [verdicts(risk)[family] for family in ("good", "bad", "edge")] == [
        "PASS",
        "FAIL",
        "PASS",
    ]
    stops = {family: gate["stopped_at"] or N for family, gate in gates.items()}
    assert ids(alone["risk"]) == set().union(*(permuted_prefix(f, n) for f, n in stops.items()))
    assert stops["bad"] < 18
    assert risk["skipped"] == 4 * N - sum(stops.values())


def test_the_summary_holds_rule_interval_and_verdict_of_each_gate(
    pytester: pytest.Pytester, suites: ModelFolder
) -> None:
    found = run(pytester, suites)
    off, exact, risk = (summary_of(found[mode]) for mode in MODES)
    for summary, mode in ((off, "off"), (exact, "exact"), (risk, "risk:0.01")):
        for gate in summary["gates"].values():
            assert gate["rule"] == ">= 80% (32/40)"
            assert (gate["kind"], gate["required"], gate["planned"]) == ("point", 32, N)
            assert (gate["stopping"], gate["seed"], gate["alpha"]) == (mode, SEED, 0.05)
    assert off["gates"]["good"]["interval_kind"] == "wilson"
    assert off["gates"]["good"]["interval"] == pytest.approx(off["families"]["good"]["wilson95"])
    good = exact["gates"]["good"]
    assert good["interval_kind"] == "curtailed-exact"
    # Clopper-Pearson: lower of 32 in 34, upper of 31 in 33.
    assert good["interval"] == pytest.approx([beta.ppf(0.025, 32, 3), beta.ppf(0.975, 32, 2)])
    assert good["estimate"] == pytest.approx(31 / 33)
    assert (good["stopped_at"], good["saved"]) == (34, 6)
    assert risk["gates"]["bad"]["interval_kind"] == "anytime"
    # Wilson's interval is of what ran to a verdict, and the summary says so.
    assert {summary["wilson95_of"] for summary in (off, exact, risk)} == {"episodes that ran"}


def test_a_stopped_run_is_resumed_to_the_same_files_or_to_the_whole(
    pytester: pytest.Pytester, suites: ModelFolder
) -> None:
    stopped = run(pytester, suites)
    assert run(pytester, suites, "--maatml-resume") == stopped
    whole = run(pytester, suites, "--maatml-resume", "--maatml-stop=off")
    for mode in MODES:
        assert whole[mode]["episodes.jsonl"] == stopped["all"]["episodes.jsonl"]
        assert summary_of(whole[mode])["skipped"] == 0

    shutil.rmtree(suites.output())
    flag = pytester.path / "interrupt"
    flag.touch()
    cut_short = pytester.runpytest_subprocess(*RUN, "-k", "exact", "--maatml-concurrency=5")
    assert cut_short.ret == pytest.ExitCode.INTERRUPTED
    summary = summary_of(kept(suites.output() / "exact"))
    assert summary["missing"] > 0
    flag.unlink()
    assert run(pytester, suites, "--maatml-resume") == stopped


def test_shards_of_a_stopped_run_are_merged_to_the_files_of_the_whole(
    pytester: pytest.Pytester, suites: ModelFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(pytester, suites)
    for shard in ("1", "2", "3"):
        pytester.runpytest(*RUN, f"--maatml-shard={shard}/3", f"--maatml-out=shard{shard}")
    monkeypatch.chdir(pytester.path)
    for mode in MODES:
        parts = [f"shard{shard}/{mode}" for shard in (3, 1, 2)]
        assert main(["merge", f"merged/{mode}", *parts]) == 1
        assert kept(pytester.path / "merged" / mode) == whole[mode]
