"""What a row is held out by: the group of its task, and the split that a group falls in."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Protocol

from pytest_maatml.errors import ConfigurationError, MaatmlError
from pytest_maatml.records.identity import digest_tasks

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

TRAIN: Final = "train"
VAL: Final = "val"
TEST: Final = "test"

_GROUP: Final = "group"
_RATIOS: Final = (0.8, 0.1, 0.1)
_NAMES: Final = frozenset({"id", "family", "split"})


class RowError(MaatmlError, ValueError):
    """An episode must not become rows, or a row must not be trained on."""


class Trainable(Protocol):
    """What is asked of a model's definition, ours or maatml's."""

    @property
    def identity(self) -> str: ...
    @property
    def dataset(self) -> Mapping[str, Any]: ...
    @property
    def data(self) -> Mapping[str, Any]: ...
    @property
    def prepared_dir(self) -> Path: ...


def group_of(task: Mapping[str, Any], *, fields: Collection[str] | None = None) -> str:
    """Thirty-two hex digits that stand for what a task is, not for what it is called.

    `fields` are those that make the start state; by default all but `id`, `family` and `split`.
    The order of keys does not count. Raises RowError for a field that the task lacks, and for a
    task that has no other field than those three.
    """
    content = {
        name: value
        for name, value in task.items()
        if (name not in _NAMES if fields is None else name in fields)
    }
    if missing := [name for name in fields or () if name not in task]:
        raise RowError(f"task {task.get('id')!r} has no field {missing[0]!r} to group it by")
    if not content:
        raise RowError(
            f"task {task.get('id')!r} has nothing but its name, so no group can be told from "
            "another; have the environment put what makes its start state into the task, or name "
            "the fields to group by"
        )
    return digest_tasks([content])


def dataset_settings(model: Trainable) -> Mapping[str, Any]:
    """The keys of `dataset:` in model.yml, and those of `data:` that it does not have."""
    return {**model.data, **model.dataset}


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRule:
    """Where a group goes; it depends on the group alone, so no other row can move it."""

    group_by: str
    #: the shares of train, val and test
    ratios: tuple[float, float, float]

    @classmethod
    def of(cls, model: Trainable) -> SplitRule:
        """The rule of `dataset.group_by` and `dataset.split_ratios`.

        Raises ConfigurationError where they are not a name and three shares that add up to 1.
        """
        settings = dataset_settings(model)
        group_by = settings.get("group_by") or _GROUP
        if not isinstance(group_by, str) or not group_by.strip():
            raise ConfigurationError(
                f"{model.identity}: dataset.group_by must name a field of the rows, not "
                f"{group_by!r}"
            )
        return cls(group_by=group_by.strip(), ratios=_ratios(settings, model.identity))

    def group(self, row: Mapping[str, Any], what: str) -> str:
        """The group of a row. Raises RowError that begins with `what` where it has none."""
        value = row.get(self.group_by)
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if isinstance(value, str) and value.strip():
            return value.strip()
        raise RowError(
            f"{what} has no {self.group_by!r} that is text or an integer, so nothing can tell "
            "whether it is held out; stamp rows with group_of(task), or name their field in "
            "dataset.group_by"
        )

    def split(self, group: str) -> str:
        """`train`, `val` or `test`, by the first 48 bits of a SHA-256 of field and group.

        It is the split that maatml gives a row with that field as its `dataset.group_by`.
        """
        digest = sha256(repr(f"{self.group_by}:{group}").encode() + b"\0").digest()
        share = int.from_bytes(digest[:6], "big") / 2**48
        train, val, _ = self.ratios
        if share < train:
            return TRAIN
        return VAL if share < train + val else TEST


def _ratios(settings: Mapping[str, Any], model: str) -> tuple[float, float, float]:
    given = settings.get("split_ratios", _RATIOS)
    try:
        train, val, test = map(float, given)
    except (TypeError, ValueError):
        train = val = test = -1.0
    if not (min(train, val, test) >= 0 and abs(train + val + test - 1) <= 1e-6):
        raise ConfigurationError(
            f"{model}: dataset.split_ratios must be the shares of train, val and test, which add "
            f"up to 1, not {given!r}"
        )
    return train, val, test
