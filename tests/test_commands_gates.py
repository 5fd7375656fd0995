from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from scipy.stats import binom, binomtest
from statsmodels.stats.multitest import multipletests

from pytest_maatml.cli import main
from tests.gating.test_family import ended
from tests.records.samples import IDENTITY, record, run

if TYPE_CHECKING:
    from pathlib import Path

    Output = pytest.CaptureFixture[str]


@pytest.fixture
def runs(tmp_path: Path) -> Any:
    """Folders of two runs that ended as the letters say."""

    def make(before: str, now: str, *, family: str = "n" * 40) -> tuple[str, str]:
        folders = (tmp_path / "before", tmp_path / "now")
        for folder, text in zip(folders, (before, now), strict=True):
            results = [
                replace(result, task_family=f"{letter}-family") if letter != "n" else result
                for result, letter in zip(ended(text), family, strict=False)
            ]
            run(folder, results, replace(IDENTITY, planned=len(text)))
        return str(folders[0]), str(folders[1])

    return make


def compared(capsys: Output, *arguments: str) -> tuple[int, dict[str, Any]]:
    status = main(["compare", *arguments, "--json"])
    return status, json.loads(capsys.readouterr().out)


def test_a_run_like_its_baseline_holds(runs: Any, capsys: Output) -> None:
    status, told = compared(capsys, *runs("s" * 20, "s" * 16 + "f" * 4))
    assert (status, told["outcome"]) == (0, "held")
    assert told["families"]["near"]["lost"] == ["t16", "t17", "t18", "t19"]


def test_a_run_that_lost_more_than_chance_regressed(runs: Any, capsys: Output) -> None:
    status, told = compared(capsys, *runs("s" * 20 + "ff", "s" * 12 + "f" * 8 + "sf"))
    assert (status, told["outcome"]) == (1, "regressed")
    expected = binomtest(8, 9, alternative="greater").pvalue
    assert told["families"]["near"]["p"] == pytest.approx(expected)


@pytest.mark.parametrize("now", ["e" * 6 + "s" * 14, "e" * 20 + "s"])
def test_outages_of_the_candidate_cannot_be_decided(runs: Any, capsys: Output, now: str) -> None:
    status, told = compared(capsys, *runs("s" * len(now), now))
    assert (status, told["outcome"]) == (2, "could not be decided")
    assert told["families"]["near"]["losses"] == 0


def test_outages_can_be_allowed(runs: Any, capsys: Output) -> None:
    folders = runs("s" * 20, "e" * 2 + "s" * 18)
    assert compared(capsys, *folders, "--max-errors", "2")[0] == 0


def test_six_outages_of_the_baseline_are_no_regression(runs: Any, capsys: Output) -> None:
    status, told = compared(capsys, *runs("e" * 6 + "s" * 14, "f" * 6 + "s" * 14))
    assert (status, told["families"]["near"]["unpaired"]) == (0, 6)


def test_tasks_that_the_candidate_did_not_run_could_be_either(runs: Any, capsys: Output) -> None:
    assert compared(capsys, *runs("s" * 20, "s" * 15))[0] == 2
    assert compared(capsys, *runs("s" * 20, "f" * 5 + "s" * 10))[0] == 1


def test_a_margin_asks_for_so_many_successes(runs: Any, capsys: Output) -> None:
    folders = runs("s" * 20, "s" * 16 + "f" * 4)
    assert compared(capsys, *folders, "--margin", "0.2")[0] == 0
    status, told = compared(capsys, *folders, "--margin", "0.1")
    assert (status, told["families"]["near"]["required"]) == (1, 18)


def rows_in(folder: Path, families: dict[str, str]) -> str:
    """A file of a run in which each family ended as its letters say; written by hand."""
    folder.mkdir()
    letters = [(family, letter) for family, text in families.items() for letter in text]
    lines = [
        json.dumps(record(index, family=family, success=letter == "s"))
        for index, (family, letter) in enumerate(letters)
    ]
    (folder / "rows.jsonl").write_text("\n".join(lines) + "\n")
    return str(folder / "rows.jsonl")


def test_several_families_are_weighed_together_with_all_of_them(
    tmp_path: Path, capsys: Output
) -> None:
    before = rows_in(tmp_path / "before", {"near": "s" * 20, "far": "s" * 20})
    now = rows_in(tmp_path / "now", {"near": "f" * 6 + "s" * 14, "far": "s" * 18 + "ff"})
    status, told = compared(capsys, before, now)
    tests = [told["families"]["far"], told["families"]["near"], told["overall"]]
    raw = [0.25, 1 / 64, 1 / 256]
    assert [test["p"] for test in tests] == pytest.approx(raw)
    assert [test["adjusted_p"] for test in tests] == pytest.approx(
        list(multipletests(raw, method="holm")[1])
    )
    assert status == 1
    assert [test["verdict"] for test in tests] == ["PASS", "FAIL", "FAIL"]


def test_one_family_is_not_counted_twice(runs: Any, capsys: Output) -> None:
    assert compared(capsys, *runs("ssss", "ssss"))[1]["overall"] is None


def test_the_table_names_families_and_lost_tasks(tmp_path: Path, capsys: Output) -> None:
    before = rows_in(tmp_path / "before", {"near": "s" * 20, "far": "s" * 20})
    now = rows_in(tmp_path / "now", {"near": "f" + "s" * 19, "far": "s" * 20})
    assert main(["compare", before, now]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["far", "near", "overall"]
    assert lines[4:] == ["lost in near: t0", "held"]


def test_different_tasks_under_one_id_cannot_be_compared(tmp_path: Path, capsys: Output) -> None:
    before = rows_in(tmp_path / "before", {"near": "ss"})
    now = rows_in(tmp_path / "now", {"far": "ss"})
    assert main(["compare", before, now]) == 2
    assert "'t0'" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_named(tmp_path: Path, capsys: Output) -> None:
    assert main(["compare", str(tmp_path / "gone"), str(tmp_path)]) == 2
    assert "gone cannot be read" in capsys.readouterr().err


def test_runs_without_a_task_in_common_cannot_be_decided(tmp_path: Path, capsys: Output) -> None:
    before = rows_in(tmp_path / "before", {"near": "ss"})
    file = tmp_path / "other.jsonl"
    file.write_text(json.dumps({**record(0), "task_id": "x"}) + "\n")
    assert compared(capsys, before, str(file))[0] == 2


def planned(capsys: Output, *arguments: str) -> list[dict[str, Any]]:
    assert main(["plan", *arguments, "--json"]) == 0
    plans: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return plans


@pytest.mark.parametrize(
    ("expect", "power", "episodes"),
    [("0.95", "0.8", 179), ("0.95", "0.95", 298), ("0.99", "0.8", 46), ("0.99", "0.95", 61)],
)
def test_a_certify_gate_is_planned_as_the_exact_binomial_test_is(
    capsys: Output, expect: str, power: str, episodes: int
) -> None:
    (plan,) = planned(
        capsys, "--min-success=0.9", f"--expect={expect}", f"--power={power}", "--gate=certify"
    )
    tail = binom.sf(plan["required"] - 1, plan["episodes"], float(expect))
    assert plan["episodes"] == episodes
    assert plan["pass_at_expected"] == pytest.approx(tail)
    assert plan["pass_at_threshold"] <= 0.05


def test_a_plan_shows_the_cost_of_each_way_to_stop(capsys: Output) -> None:
    (plan,) = planned(capsys, "--min-success=0.9", "--expect=0.97", "--gate=certify")
    cost = plan["expected_episodes"]
    assert list(cost) == ["off", "exact", "risk:0.01"]
    assert cost["off"] == pytest.approx(plan["episodes"])
    assert cost["risk:0.01"] < cost["exact"] < cost["off"]


def test_one_way_to_stop_can_be_asked_for(capsys: Output) -> None:
    (plan,) = planned(
        capsys, "--min-success=0.9", "--expect=0.97", "--gate=point", "--stop=risk:0.05"
    )
    assert list(plan["expected_episodes"]) == ["risk:0.05"]


def test_both_gates_are_planned_by_default(capsys: Output) -> None:
    assert main(["plan", "--min-success", "0.9", "--expect", "0.97"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["gate", "point", "certify"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--min-success=0.9", "--expect=0.9", "--gate=certify"],
        ["--min-success=1", "--expect=1", "--gate=certify"],
        ["--min-success=often", "--expect=0.9"],
        ["--min-success=0.9", "--expect=1.5"],
        ["--min-success=0.9", "--expect=0.95", "--power=1"],
        ["--min-success=0.9", "--expect=0.95", "--stop=soon"],
    ],
)
def test_what_cannot_be_planned_says_why(arguments: list[str], capsys: Output) -> None:
    assert main(["plan", *arguments]) == 2
    assert capsys.readouterr().err.startswith("pytest-maatml plan: ")


def test_errors_of_the_candidate_that_cannot_be_read_are_named(runs: Any, capsys: Output) -> None:
    before, now = runs("ssss", "ssse")
    with open(f"{now}/errors.jsonl", "a") as errors:
        errors.write("half a li")
    assert main(["compare", before, now]) == 2
    assert "errors.jsonl cannot be read" in capsys.readouterr().err
