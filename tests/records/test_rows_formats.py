from __future__ import annotations

from typing import TYPE_CHECKING, Any

import maatml.rollout as peer
import pytest

from pytest_maatml.environments.line_world import LineWorld
from pytest_maatml.errors import ConfigurationError
from pytest_maatml.records.episodes import read_episodes
from pytest_maatml.records.formats import (
    EpisodeFormat,
    RowError,
    as_format,
    group_of,
    labelled_decisions,
)
from pytest_maatml.rollout import RolloutConfig, rollout
from tests.records.samples import decision, episode, error, record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from pytest_maatml.engine.protocol import JSONObject


class Decisions(EpisodeFormat):
    def rows(self, episode: JSONObject) -> Iterator[JSONObject]:
        for labelled in labelled_decisions(episode):
            yield {"decision": labelled.index, "target": labelled.target()}


class Left:
    def score(self, observation: JSONObject, candidates: Sequence[JSONObject]) -> list[float]:
        return [1.0 if candidate["id"] == "left" else 0.0 for candidate in candidates]


def labelled(*valid: list[str] | None, **task: Any) -> JSONObject:
    steps = [decision(teacher_valid=ids) for ids in valid]
    return {**record(3, decisions=steps), "task": {"id": "t3", "split": "train", "x": 1, **task}}


def convert(episodes: Iterable[Any], **how: Any) -> list[JSONObject]:
    return list(Decisions().convert(episodes, **how))


def test_a_row_says_where_it_comes_from() -> None:
    assert convert([labelled(["a"])]) == [
        {
            "sample_id": "rollout-r0-000003:0",
            "group": group_of({"x": 1}),
            "split": "train",
            "episode_id": "rollout-r0-000003",
            "family": "near",
            "source": "rollout",
            "round": 0,
            "policy_version": "walker@1",
            "decision": 0,
            "target": [1.0, 0.0],
        }
    ]


def test_a_format_may_name_family_and_source_itself() -> None:
    def rows(_: JSONObject) -> list[JSONObject]:
        return [{"decision": 0, "family": "mine", "source": "bot"}]

    [row] = as_format(rows, name="mine").convert([labelled(["a"])])
    assert (row["family"], row["source"], row["round"]) == ("mine", "bot", 0)


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        ({"split": "test"}, "is of split 'test', and 'train' was asked for"),
        ({"split": None}, "carries no `split`"),
    ],
)
def test_an_episode_of_another_split_is_refused(task: JSONObject, reason: str) -> None:
    with pytest.raises(RowError, match=f"rollout-r0-000003.*{reason}"):
        convert([labelled(["a"]), labelled(["a"], **task)])


def test_a_task_without_the_field_split_is_refused() -> None:
    with pytest.raises(RowError, match="rollout-r0-000001: its task carries no `split`"):
        convert([record(1)])


def test_another_split_than_train_can_be_asked_for() -> None:
    [row] = convert([labelled(["a"], split="val")], split="val")
    assert row["split"] == "val"


def test_an_episode_that_errored_is_refused_in_either_form() -> None:
    for errored in (error(5), error(5).as_dict()):
        with pytest.raises(RowError, match=r"episode rollout-r0-000005 errored.*: gone"):
            convert([errored])


def test_an_episode_without_a_label_is_refused_where_labels_are_needed() -> None:
    with pytest.raises(RowError, match=r"episode rollout-r0-000003 has no labels.*--label"):
        convert([labelled(None, None)])


def test_an_episode_without_a_label_is_taken_where_none_is_needed() -> None:
    class Imitation(EpisodeFormat):
        needs_labels = False

        def rows(self, episode: JSONObject) -> Iterator[JSONObject]:
            for place, step in enumerate(episode["decisions"]):
                yield {"decision": place, "chosen": step["chosen"]}

    rows = list(Imitation().convert([labelled(None, ["b"])]))
    assert [row["chosen"] for row in rows] == ["a", "a"]


def test_an_episode_that_was_cut_before_its_first_decision_has_no_rows() -> None:
    assert convert([labelled()]) == []


@pytest.mark.parametrize("kind", ["maatml.rollout_episode/2", None])
def test_an_episode_of_another_kind_is_refused(kind: str | None) -> None:
    with pytest.raises(RowError, match="episode rollout-r0-000003: the kind must be"):
        convert([{**labelled(["a"]), "kind": kind}])


@pytest.mark.parametrize("what", [None, [], "text", 3])
def test_what_is_no_episode_at_all_is_refused(what: Any) -> None:
    with pytest.raises(RowError, match="must be an object"):
        convert([what])


def test_a_damaged_episode_is_refused_with_the_place() -> None:
    damaged = labelled(["a"])
    del damaged["decisions"][0]["teacher_valid"]
    with pytest.raises(RowError, match=r"rollout-r0-000003: decisions\[0\] lacks 'teacher_valid'"):
        convert([damaged])


def test_an_episode_object_is_taken_as_its_record_is() -> None:
    taken = episode(3, decisions=[decision(teacher_valid=["b"])])
    with pytest.raises(RowError, match="rollout-r0-000003: its task carries no `split`"):
        convert([taken])


def test_decisions_where_the_teacher_acted_or_the_choice_was_masked_are_among_the_labelled() -> (
    None
):
    row = labelled()
    row["decisions"] = [
        decision(teacher_valid=["b"], actor="teacher", chosen="b"),
        decision(teacher_valid=["a"], top_valid=False),
        decision(teacher_valid=None),
        decision(teacher_valid=[]),
        decision(teacher_valid=["b", "a"]),
    ]
    found = list(labelled_decisions(row))
    assert [step.index for step in found] == [0, 1, 4]
    assert [step.valid_ids for step in found] == [("b",), ("a",), ("b", "a")]
    assert [step.actor for step in found] == ["teacher", "policy", "policy"]


def test_the_target_is_spread_over_the_whole_valid_set() -> None:
    row = labelled(["b", "a"])
    row["decisions"][0]["candidates"] = [{"id": "a"}, {"id": "c"}, {"id": "b"}, {"id": "d"}]
    [step] = labelled_decisions(row)
    assert step.target() == [0.5, 0.0, 0.5, 0.0]


def test_a_candidate_s_number_is_the_teacher_s_text() -> None:
    row = labelled(["7"])
    row["decisions"][0]["candidates"] = [{"id": 7}, {"id": 8}]
    [step] = labelled_decisions(row)
    assert step.target() == [1.0, 0.0]


def test_a_label_that_is_no_candidate_is_refused() -> None:
    with pytest.raises(RowError, match=r"rollout-r0-000003, decision 1: .*'z'"):
        convert([labelled(["a"], ["z"])])


def test_a_state_weighs_by_who_led_to_it() -> None:
    row = labelled(["a"], ["a"], None, ["a"])
    for step, actor in zip(
        row["decisions"], ("teacher", "policy", "teacher", "policy"), strict=True
    ):
        step["actor"] = actor
    found = list(labelled_decisions(row))
    assert [step.reached_by for step in found] == ["policy", "teacher", "teacher"]
    assert [step.weight(policy=2.0, teacher=0.5) for step in found] == [2.0, 0.5, 0.5]
    assert {step.weight() for step in found} == {1.0}


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        ([{"decision": 0}, {"decision": 0}], "two rows of decision 0"),
        ([{"target": [1.0]}], "`decision` of a row must be the number of one of the 1"),
        ([{"decision": 1}], "`decision` of a row"),
        ([{"decision": True}], "`decision` of a row"),
        (["row"], "a row must be an object"),
        ([{"decision": 0, "group": "mine"}], "a field 'group' of its own"),
        ([{"decision": 0, "sample_id": "x"}], "a field 'sample_id' of its own"),
        (None, "the format failed: TypeError"),
    ],
)
def test_rows_that_are_not_one_a_decision_are_refused(made: Any, reason: str) -> None:
    with pytest.raises(RowError, match=f"rollout-r0-000003.*{reason}"):
        list(as_format(lambda _: made, name="mine").convert([labelled(["a"])]))


def test_what_a_format_raises_is_told_with_episode_file_and_line() -> None:
    def broken(episode: JSONObject) -> list[JSONObject]:
        raise KeyError("gap")

    with pytest.raises(RowError, match=r"rollout-r0-000003.*KeyError: 'gap' \(.*formats\.py:\d+\)"):
        list(as_format(broken, name="mine").convert([labelled(["a"])]))


def test_a_format_is_a_subclass_an_object_or_a_function() -> None:
    rows = [
        list(as_format(target, name="mine").convert([labelled(["a"])]))
        for target in (Decisions, Decisions(), Decisions().rows)
    ]
    assert rows[0] == rows[1] == rows[2]


@pytest.mark.parametrize("target", [3, Left, Left()])
def test_anything_else_is_no_format(target: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"the format 'mine' is .*EpisodeFormat"):
        as_format(target, name="mine")


def test_a_group_is_what_a_task_is_and_not_what_it_is_called() -> None:
    task = {"id": "a", "family": "near", "split": "train", "start": 1, "target": [2]}
    renamed = {"target": [2], "start": 1, "id": "b", "family": "far", "split": "test"}
    assert group_of(task) == group_of(renamed)
    assert group_of(task) != group_of({**task, "start": 2})
    assert len(group_of(task)) == 32


def test_line_world_of_span_5_has_121_groups() -> None:
    tasks = LineWorld().tasks({"count": 5000, "seed": 1})
    assert len({group_of(task) for task in tasks}) == 11 * 11


def test_a_format_may_say_which_fields_make_the_start_state() -> None:
    class ByStart(Decisions):
        group_fields = ("start",)

    tasks = [{"start": 1, "budget": 5}, {"start": 1, "budget": 9}, {"start": 2, "budget": 5}]
    same, again, other = (
        row["group"] for row in ByStart().convert([labelled(["a"], **task) for task in tasks])
    )
    assert same == again != other


def test_a_task_that_cannot_be_grouped_is_refused() -> None:
    with pytest.raises(RowError, match="task 'a' has nothing but its name"):
        group_of({"id": "a", "family": "f", "split": "train"})
    with pytest.raises(RowError, match="task 'a' has no field 'seed'"):
        group_of({"id": "a", "x": 1}, fields=["seed"])
    assert group_of({"id": "a"}, fields=["id"]) != group_of({"id": "b"}, fields=["id"])


@pytest.mark.peer
def test_episodes_that_the_peer_wrote_give_the_same_rows(tmp_path: Path) -> None:
    tasks = LineWorld().tasks({"count": 40, "seed": 2, "split": "train"})
    how: dict[str, Any] = {"label": True, "source": "dagger", "round": 2, "policy_version": "left"}
    theirs = peer.rollout(peer_line_world(), Left(), tasks, config=peer.RolloutConfig(**how))
    peer.write_episodes(theirs, tmp_path)
    ours = rollout(LineWorld(), Left(), tasks, config=RolloutConfig(**how))
    rows = convert(read_episodes(tmp_path / "episodes.jsonl"))
    assert rows == convert(ours)
    assert rows[0]["sample_id"] == "dagger-r2-000000:0"
    assert len(rows) > 40


@pytest.mark.peer
def test_episodes_that_the_peer_wrote_are_refused_where_a_task_is_held_out(tmp_path: Path) -> None:
    tasks = LineWorld().tasks({"count": 3, "seed": 2, "split": "train"})
    tasks[2]["split"] = "test"
    config = peer.RolloutConfig(label=True)
    peer.write_episodes(peer.rollout(peer_line_world(), Left(), tasks, config=config), tmp_path)
    with pytest.raises(RowError, match="episode rollout-r0-000002: its task is of split 'test'"):
        convert(read_episodes(tmp_path / "episodes.jsonl"))


def peer_line_world() -> Any:
    from maatml.rollout.example import LineWorld as PeerLineWorld

    return PeerLineWorld()
