from __future__ import annotations

from typing import TYPE_CHECKING, Any

import maatml.rollout as peer
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_maatml.records.episodes import read_episodes, write_episodes
from pytest_maatml.records.summary import Tally, summarize
from tests.records.samples import decision, episode, record

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_maatml.engine.protocol import JSONObject


def flat(summary: JSONObject) -> dict[str, Any]:
    """Names and numbers in one level, so that `approx` can compare them."""
    found: dict[str, Any] = {}
    for name, value in summary.items():
        if isinstance(value, dict):
            found.update({f"{name}.{inner}": v for inner, v in flat(value).items()})
        elif isinstance(value, list):
            found.update({f"{name}.{place}": v for place, v in enumerate(value)})
        else:
            found[name] = value
    return found


def same(ours: JSONObject, theirs: JSONObject) -> bool:
    return flat(ours) == pytest.approx(flat(theirs), abs=1e-12)


own_steps = st.builds(
    lambda chosen, valid: decision(chosen=chosen, policy_choice=chosen, teacher_valid=valid),
    st.sampled_from("ab"),
    st.none() | st.lists(st.sampled_from("ab"), unique=True),
)
records = st.builds(
    record,
    st.integers(0, 5),
    family=st.sampled_from(["near", "far", "ünder"]),
    success=st.booleans(),
    truncated=st.sampled_from([None, "max_decisions"]),
    decisions=st.lists(own_steps, max_size=3),
)


@given(st.lists(records, max_size=8))
def test_the_numbers_are_the_peers_where_the_teacher_did_not_act(rows: list[JSONObject]) -> None:
    assert same(summarize(rows), peer.summarize(rows))


def test_no_episodes_are_a_rate_of_0_between_0_and_1() -> None:
    assert summarize([]) == {
        "episodes": 0,
        "success": 0,
        "success_rate": 0.0,
        "wilson95": [0.0, 1.0],
        "truncated": 0,
        "decisions": 0,
        "labelled_decisions": 0,
        "policy_agrees_with_teacher": None,
        "families": {},
    }


def test_wilson95_of_8_in_10() -> None:
    # Wilson 1927 as worked in Brown, Cai and DasGupta 2001: (0.490, 0.943).
    summary = summarize([record(i, success=i < 8) for i in range(10)])
    assert summary["wilson95"] == pytest.approx([0.490, 0.943], abs=5e-4)


def test_agreement_is_of_what_the_policy_would_have_done() -> None:
    steps = [
        decision(teacher_valid=["a"]),
        decision(teacher_valid=["b"]),
        decision(actor="teacher", chosen="b", policy_choice="a", teacher_valid=["b", "a"]),
        decision(actor="teacher", chosen="b", policy_choice="a", teacher_valid=["b"]),
        decision(teacher_valid=None),
    ]
    summary = summarize([record(0, decisions=steps)])
    assert summary["labelled_decisions"] == 4
    assert summary["policy_agrees_with_teacher"] == 0.5


def test_without_policy_choice_only_the_policys_own_steps_count() -> None:
    steps = [
        decision(teacher_valid=["a"]),
        decision(teacher_valid=["b"]),
        decision(actor="teacher", chosen="b", teacher_valid=["b"]),
    ]
    for step in steps:
        del step["policy_choice"]
    summary = summarize([record(0, decisions=steps)])
    assert summary["labelled_decisions"] == 3
    assert summary["policy_agrees_with_teacher"] == 0.5


def test_a_label_without_valid_ids_is_a_label_that_the_policy_misses() -> None:
    summary = summarize([record(0, decisions=[decision(teacher_valid=[])])])
    assert (summary["labelled_decisions"], summary["policy_agrees_with_teacher"]) == (1, 0.0)


def test_families_are_counted_apart_and_named_in_order() -> None:
    rows = [record(0, family="z"), record(1, family="a", success=False), record(2, family="z")]
    families = summarize(rows)["families"]
    assert [(f, families[f]["success"], families[f]["episodes"]) for f in families] == [
        ("a", 0, 1),
        ("z", 2, 2),
    ]


def test_a_tally_can_be_read_while_it_counts() -> None:
    tally = Tally()
    for count in range(3):
        assert (tally.episodes, tally.success) == (count, min(count, 1))
        tally.add(record(count, success=count == 0))


def test_the_peer_reads_our_file_as_we_do(tmp_path: Path) -> None:
    summary = write_episodes([episode(0), episode(1, family="far", success=False)], tmp_path)
    read = list(read_episodes(tmp_path / "episodes.jsonl"))
    assert same(summary, {"episodes_file": "episodes.jsonl", **peer.summarize(read)})


def test_we_read_the_peers_file_as_it_does(tmp_path: Path) -> None:
    theirs = peer.write_episodes([record(0), record(1, success=False)], tmp_path)
    ours = summarize(read_episodes(tmp_path / "episodes.jsonl"))
    assert same({"episodes_file": "episodes.jsonl", **ours}, theirs)
