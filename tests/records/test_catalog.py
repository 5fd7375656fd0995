from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_maatml.records.catalog import EPISODE, ERROR, Catalog, Place, from_spans, spans


@pytest.mark.parametrize(
    ("indexes", "text"),
    [([], ""), ([4], "4"), ([0, 1], "0-1"), ([0, 1, 2, 3, 7, 9, 10], "0-3,7,9-10")],
)
def test_runs_of_indexes_are_written_as_one(indexes: list[int], text: str) -> None:
    assert spans(indexes) == text


@given(st.sets(st.integers(0, 60)))
def test_spans_come_back(indexes: set[int]) -> None:
    assert from_spans(spans(sorted(indexes))) == indexes


@pytest.mark.parametrize("text", ["x", "1-", "-1", "1;2"])
def test_other_text_is_no_spans(text: str) -> None:
    with pytest.raises(ValueError, match="not a list of indexes"):
        from_spans(text)


def test_the_later_record_stands_whatever_the_order() -> None:
    catalog = Catalog(3)
    catalog.note(1, ERROR, Place(0, 10, 5), at=7)
    catalog.note(1, EPISODE, Place(1, 20, 6), at=8)
    catalog.note(1, ERROR, Place(2, 30, 7), at=6)
    assert (catalog.kind(1), catalog.place(1)) == (EPISODE, Place(1, 20, 6))
    assert list(catalog.indexes(EPISODE)) == [1]
    assert list(catalog.indexes(ERROR)) == []


def test_an_index_that_is_not_planned_is_refused_and_has_no_kind() -> None:
    catalog = Catalog(2)
    assert [catalog.kind(index) for index in (-1, 2)] == [0, 0]
    with pytest.raises(IndexError):
        catalog.note(2, EPISODE, Place(0, 0, 0))


def test_a_copy_does_not_change_with_the_original() -> None:
    catalog = Catalog(1)
    copy = catalog.copy()
    catalog.note(0, EPISODE, Place(0, 0, 1))
    assert (catalog.kind(0), copy.kind(0)) == (EPISODE, 0)
