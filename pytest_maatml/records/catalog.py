"""Where records stand in files: numbers alone, so that a million episodes fit in memory."""

from __future__ import annotations

import re
from array import array
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

EPISODE: Final = 1
ERROR: Final = 2


class Place(NamedTuple):
    """The number of a file, and where in it a record's JSON begins and how many bytes it has."""

    file: int
    start: int
    size: int


class Catalog:
    """The last record of each index: 27 bytes an index, whatever an episode weighs."""

    __slots__ = ("_ats", "_files", "_kinds", "_sizes", "_starts")

    def __init__(self, planned: int) -> None:
        self._kinds = bytearray(planned)
        self._files = array("h", bytes(2 * planned))
        self._starts = array("q", bytes(8 * planned))
        self._sizes = array("q", bytes(8 * planned))
        self._ats = array("q", bytes(8 * planned))

    def __len__(self) -> int:
        return len(self._kinds)

    def note(self, index: int, kind: int, place: Place, at: int = 0) -> None:
        """Let the record at `place`, made at time `at`, stand for `index`, unless a later one does.

        Raises IndexError for an index that is not planned.
        """
        if at < self._ats[index]:
            return
        self._kinds[index] = kind
        self._files[index], self._starts[index], self._sizes[index] = place
        self._ats[index] = at

    def kind(self, index: int) -> int:
        """EPISODE, ERROR, or 0 for an index of which nothing is known."""
        return self._kinds[index] if 0 <= index < len(self._kinds) else 0

    def place(self, index: int) -> Place:
        return Place(self._files[index], self._starts[index], self._sizes[index])

    def journalled(self, index: int) -> bool:
        """Whether the record comes from a journal; those of finished files have no time."""
        return self._ats[index] > 0

    def indexes(self, kind: int) -> Iterator[int]:
        """The indexes of that kind, in order."""
        place = self._kinds.find(kind)
        while place >= 0:
            yield place
            place = self._kinds.find(kind, place + 1)

    def copy(self) -> Catalog:
        twin = Catalog(0)
        for name in self.__slots__:
            setattr(twin, name, getattr(self, name)[:])
        return twin


def spans(indexes: Iterable[int]) -> str:
    """Indexes in rising order as text, runs of them as one: `0-3,7`."""
    runs: list[list[int]] = []
    for index in indexes:
        if runs and runs[-1][1] == index - 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in runs)


def from_spans(text: str) -> set[int]:
    """The indexes that `spans` wrote. Raises ValueError for other text."""
    indexes: set[int] = set()
    for run in filter(None, text.split(",")):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", run)
        if match is None:
            raise ValueError(f"not a list of indexes: {text!r:.80}")
        indexes.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return indexes
