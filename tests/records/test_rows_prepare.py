from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from maatml.config import load_model_def
from maatml.data.pipeline import prepare_rows as peer_prepare_rows

from pytest_maatml.errors import ConfigurationError
from pytest_maatml.models import read_model
from pytest_maatml.records.episodes import RecordError
from pytest_maatml.records.rows import RowUnion, prepare_rows, read_rows, write_rows
from pytest_maatml.records.splits import RowError
from tests.records.samples import files

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_maatml.engine.protocol import JSONObject
    from pytest_maatml.models import ModelDefinition

MODEL = "name: walker\nversion: 1.0.0\n"
HELD_OUT = ("val", "test", "benchmark")


def model(path: Path, text: str = "") -> ModelDefinition:
    path.mkdir(exist_ok=True)
    (path / "model.yml").write_text(MODEL + text)
    return read_model(path)


def seed(number: int, **fields: Any) -> JSONObject:
    return {"sample_id": f"s{number}", "group": f"g{number // 2}", "x": number, **fields}


def train(name: str, group: str, **fields: Any) -> JSONObject:
    return {"sample_id": name, "group": group, "split": "train", **fields}


SEEDS = [seed(number) for number in range(100)]


def prepared(path: Path, **rows: Any) -> dict[str, list[JSONObject]]:
    """The rows of each file after `prepare_rows` for a model in `path`."""
    seeds = rows.pop("seed_rows", SEEDS)
    found = prepare_rows(model(path), seeds, **rows)
    return {name: list(read_rows(Path(file))) for name, file in found["splits"].items()}


def ids(rows: Iterable[JSONObject]) -> set[str]:
    return {row["sample_id"] for row in rows}


def held_group(path: Path, split: str) -> str:
    group: str = prepared(path)[split][0]["group"]
    return group


def test_a_group_is_in_one_split_and_no_row_is_lost(tmp_path: Path) -> None:
    found = prepared(tmp_path)
    groups = {name: {row["group"] for row in rows} for name, rows in found.items()}
    assert sum(len(each) for each in groups.values()) == 50
    assert all(groups[name] for name in ("train", "val", "test"))
    assert ids(row for rows in found.values() for row in rows) == ids(SEEDS)
    assert [{**row, "split": None} for row in found["val"]] == [
        {**row, "split": None} for row in SEEDS if row["group"] in groups["val"]
    ]


def test_a_row_says_in_which_split_it_is(tmp_path: Path) -> None:
    found = prepared(
        tmp_path,
        seed_rows=[seed(n, split="anything") for n in range(100)],
        benchmark_rows=[train("b", "new")],
        train_rows=[train("t", "other")],
    )
    assert {row["split"] for row in found["benchmark"]} == {"benchmark"}
    for name, rows in found.items():
        assert {row["split"] for row in rows} == {name}


@pytest.mark.peer
@pytest.mark.parametrize("ratios", ["[0.8, 0.1, 0.1]", "[0.5, 0.25, 0.25]"])
def test_rows_fall_where_the_peer_lets_them_fall(tmp_path: Path, ratios: str) -> None:
    text = f"model_id: w\ndataset: {{group_by: layout, split_ratios: {ratios}}}\n"
    ours = model(tmp_path, text)
    rows = [
        {"sample_id": f"s{n}", "layout": layout, "source": "seed"}
        for n, layout in enumerate([*range(200), *(f"wall {n}'s" for n in range(200)), " ü "])
    ]
    joined = [{"sample_id": "t", "layout": "new", "source": "dagger"}]
    definition = load_model_def(tmp_path)
    theirs = peer_prepare_rows(definition, rows, train_rows=joined, out_dir=tmp_path / "theirs")
    found = prepare_rows(ours, rows, train_rows=joined, out_dir=tmp_path / "ours")
    for split in ("train", "val", "test"):
        assert list(read_rows(found["splits"][split])) == list(read_rows(theirs["splits"][split]))
    assert found["split_counts"] == {**theirs["split_counts"], "benchmark": 0}
    prepare_rows(definition, rows, train_rows=joined, out_dir=tmp_path / "same")
    assert files(tmp_path / "same") == files(tmp_path / "ours")


@given(st.randoms(use_true_random=False), st.lists(st.integers(0, 40), max_size=60))
@settings(max_examples=30, deadline=None)
def test_a_split_does_not_depend_on_order_or_on_other_rows(random: Any, more: list[int]) -> None:
    grown = [*SEEDS[:40], *(seed(100 + n) for n in set(more))]
    random.shuffle(grown)
    with TemporaryDirectory() as folder:
        before = prepared(Path(folder), seed_rows=SEEDS[:40])
        after = prepared(Path(folder), seed_rows=grown)
    for name, rows in before.items():
        assert ids(rows) <= ids(after[name])


rows_of_rounds = st.lists(
    st.lists(st.builds(lambda n, k: (n, k), st.integers(0, 30), st.integers(0, 3)), max_size=10),
    max_size=4,
)


@given(rows_of_rounds, st.lists(st.integers(200, 240), max_size=5))
@settings(max_examples=30, deadline=None)
def test_added_rounds_move_no_held_out_row_and_no_id_is_in_two_splits(
    rounds: list[list[tuple[int, int]]], benchmark: list[int]
) -> None:
    """Whatever rounds come, in whatever order, and however often the same one."""
    joined = [
        train(f"dagger-r{k}-{task:06d}:{place}", f"task {task}", place=place)
        for k, pairs in enumerate(rounds)
        for task, place in pairs
    ]
    kept = [seed(number) for number in benchmark]
    with TemporaryDirectory() as folder:
        prepared(Path(folder), benchmark_rows=kept)
        out = Path(folder) / "output/prepared"
        before = files(out)
        found = prepared(Path(folder), benchmark_rows=kept, train_rows=joined)
        after = files(out)
    assert {f"{name}.jsonl" for name in HELD_OUT} < set(before)
    for name in HELD_OUT:
        assert after[f"{name}.jsonl"] == before[f"{name}.jsonl"]
    assert after["train.jsonl"].startswith(before["train.jsonl"])
    homes = Counter(row["sample_id"] for rows in found.values() for row in rows)
    assert set(homes.values()) == {1}
    assert set(homes) == ids([*SEEDS, *kept, *joined])


@given(rows_of_rounds)
def test_the_union_of_rounds_has_one_row_a_decision(rounds: list[list[tuple[int, int]]]) -> None:
    joined = [
        {"sample_id": f"e{task}:{place}", "episode_id": f"e{task}", "decision": place}
        for pairs in rounds
        for task, place in pairs
    ]
    union = RowUnion()
    kept = list(union.new(joined))
    assert Counter((row["episode_id"], row["decision"]) for row in kept) == dict.fromkeys(
        {(row["episode_id"], row["decision"]) for row in joined}, 1
    )
    assert union.duplicates == len(joined) - len(kept)


def test_the_same_state_in_two_episodes_is_two_rows() -> None:
    union = RowUnion()
    assert union.add({"sample_id": "e1:0", "x": 1})
    assert union.add({"sample_id": "e2:0", "x": 1})
    assert union.duplicates == 0


def test_a_duplicate_is_one_whatever_the_order_of_its_keys() -> None:
    union = RowUnion()
    assert union.add({"id": 1, "x": {"a": 1, "b": 2}})
    assert not union.add({"x": {"b": 2, "a": 1}, "id": 1})
    assert union.duplicates == 1


def test_rows_without_an_id_are_told_apart_by_their_content() -> None:
    union = RowUnion()
    assert [union.add({"x": x}) for x in (1, 2, 1)] == [True, True, False]


def test_two_rows_of_one_id_that_differ_are_refused(tmp_path: Path) -> None:
    rounds = [train("dagger-r0-000000:0", "a", x=1), train("dagger-r0-000000:0", "a", x=2)]
    with pytest.raises(RowError, match=r"'dagger-r0-000000:0' and differ; .*--maatml-round"):
        prepared(tmp_path, train_rows=rounds)


@pytest.mark.parametrize("split", ["val", "test"])
def test_a_train_row_of_a_held_out_group_is_refused_with_its_id(tmp_path: Path, split: str) -> None:
    planted = train("dagger-r1-000007:3", held_group(tmp_path, split))
    with pytest.raises(RowError, match=f"train row 'dagger-r1-000007:3' .* held out in {split}"):
        prepared(tmp_path, train_rows=[train("fine", "new"), planted])


def test_a_train_row_of_a_group_in_the_benchmark_is_refused_with_its_id(tmp_path: Path) -> None:
    with pytest.raises(RowError, match=r"train row 't' .* held out in benchmark"):
        prepared(tmp_path, benchmark_rows=[train("b", "x")], train_rows=[train("t", "x")])


def test_a_train_row_of_a_group_that_trains_anyway_joins(tmp_path: Path) -> None:
    joined = train("t", held_group(tmp_path, "train"))
    assert prepared(tmp_path, train_rows=[joined])["train"][-1] == joined


def test_a_train_row_of_another_split_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RowError, match="train row 't' is of split 'test'"):
        prepared(tmp_path, train_rows=[{**train("t", "new"), "split": "test"}])


def test_a_seed_row_that_would_train_on_the_benchmark_is_refused(tmp_path: Path) -> None:
    for split in ("train", "val"):
        kept = train("b", held_group(tmp_path, split))
        with pytest.raises(RowError, match=r"seed row 's\d+' .* held out in benchmark"):
            prepared(tmp_path, benchmark_rows=[kept])


def test_the_benchmark_may_share_a_group_with_the_test_rows(tmp_path: Path) -> None:
    kept = train("b", held_group(tmp_path, "test"))
    assert ids(prepared(tmp_path, benchmark_rows=[kept])["benchmark"]) == {"b"}


def test_an_id_that_two_splits_would_have_is_refused(tmp_path: Path) -> None:
    taken = prepared(tmp_path)["val"][0]["sample_id"]
    with pytest.raises(RowError, match=f"row '{taken}' is in val and would be in train too"):
        prepared(tmp_path, train_rows=[train(taken, "new")])


@pytest.mark.parametrize("group", [None, "", " ", 1.5, True, ["g"]])
def test_a_row_without_a_group_is_refused(tmp_path: Path, group: Any) -> None:
    for part in ("seed_rows", "train_rows", "benchmark_rows"):
        with pytest.raises(RowError, match=r"row 'x' has no 'group'.*group_of\(task\)"):
            prepared(tmp_path, **{part: [{"sample_id": "x", "group": group}]})


def test_a_refusal_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    prepared(tmp_path, train_rows=[train("r0", "new")])
    before = files(tmp_path / "output/prepared")
    planted = train("planted", held_group(tmp_path / "other", "val"))
    with pytest.raises(RowError):
        prepared(tmp_path, train_rows=[train("r0", "new"), train("r1", "new"), planted])
    assert files(tmp_path / "output/prepared") == before


def test_the_card_counts_what_is_in_the_files(tmp_path: Path) -> None:
    joined = [
        train(f"e:{n}", "new", source="dagger", round=n % 2, policy_version="run-7")
        for n in (0, 1, 2, 3, 3)
    ]
    out = tmp_path / "here"
    found = prepare_rows(
        model(tmp_path), SEEDS, train_rows=joined, benchmark_rows=[train("b", "b")], out_dir=out
    )
    card = json.loads((out / "dataset_card.json").read_text())
    assert card == {key: found[key] for key in card}
    assert (card["model"], card["group_by"]) == ("walker@1.0.0", "group")
    assert card["split_ratios"] == [0.8, 0.1, 0.1]
    assert card["duplicates_dropped"] == {"train_rows": 1}
    assert card["sources"]["train_rows"] == [
        {"source": "dagger", "round": 0, "policy_version": "run-7", "rows": 2},
        {"source": "dagger", "round": 1, "policy_version": "run-7", "rows": 2},
    ]
    assert [source["rows"] for source in card["sources"]["seeds"]] == [100]
    for name in ("train", *HELD_OUT):
        content = (out / f"{name}.jsonl").read_bytes()
        assert card["sha256"][name] == hashlib.sha256(content).hexdigest()
        assert card["split_counts"][name] == len(content.splitlines())
    assert sum(card["group_counts"].values()) == 50 + 1 + 1
    assert str(tmp_path) not in (out / "dataset_card.json").read_text()


def test_the_same_rows_give_the_same_files(tmp_path: Path) -> None:
    for name in ("one", "two"):
        prepared(tmp_path / name, train_rows=[train("t", "new")])
    one, two = (files(tmp_path / name / "output/prepared") for name in ("one", "two"))
    assert one == two


@pytest.mark.parametrize(
    "ratios",
    ["[0.8, 0.2]", "[0.8, 0.1, 0.2]", "[1.2, -0.1, -0.1]", "most", "[a, b, c]", "[.nan, 0, 1]"],
)
def test_ratios_that_are_no_shares_are_refused(tmp_path: Path, ratios: str) -> None:
    with pytest.raises(ConfigurationError, match=r"walker@1\.0\.0: dataset\.split_ratios"):
        prepare_rows(model(tmp_path, f"dataset: {{split_ratios: {ratios}}}\n"), SEEDS)


def test_a_group_by_that_is_no_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"dataset\.group_by must name a field"):
        prepare_rows(model(tmp_path, "dataset: {group_by: [a, b]}\n"), SEEDS)


def test_the_older_section_data_counts_where_dataset_does_not_say(tmp_path: Path) -> None:
    text = "dataset: {split_ratios: [1, 0, 0]}\ndata: {group_by: x, split_ratios: [0, 0, 1]}\n"
    found = prepare_rows(model(tmp_path, text), SEEDS)
    assert found["group_by"] == "x"
    assert found["split_counts"] == {"train": 100, "val": 0, "test": 0, "benchmark": 0}


def test_what_is_not_json_is_refused_with_row_and_place(tmp_path: Path) -> None:
    row: JSONObject = {"sample_id": "x", "features": np.zeros(2)}
    with pytest.raises(RowError, match=r"row 'x' cannot be written: row\.features is a numpy"):
        write_rows([row], tmp_path / "rows.jsonl")
    assert list(tmp_path.iterdir()) == []


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    rows: list[JSONObject] = [
        {"sample_id": "ü", "big": 2**70, "x": 0.1},
        {"sample_id": "b", "x": None},
    ]
    assert write_rows(rows, tmp_path / "deep/rows.jsonl") == 2
    assert list(read_rows(tmp_path / "deep/rows.jsonl")) == rows


@pytest.mark.parametrize(
    ("line", "reason"), [("{", "not a line of JSON"), ("[1]", "a row must be an object")]
)
def test_a_line_that_is_no_row_is_refused_with_file_and_line(
    tmp_path: Path, line: str, reason: str
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(f'{{"x":1}}\n\n{line}\n')
    with pytest.raises(RowError, match=rf"rows\.jsonl:3: {reason}"):
        list(read_rows(file))


def test_files_that_cannot_be_had_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(RowError, match=r"gone\.jsonl cannot be read"):
        list(read_rows(tmp_path / "gone.jsonl"))
    (tmp_path / "file").touch()
    with pytest.raises(RecordError, match=f"{os.sep}file{os.sep}below cannot be written"):
        prepare_rows(model(tmp_path), SEEDS, out_dir=tmp_path / "file/below")
