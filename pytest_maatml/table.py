"""Plain tables and counts for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def counted(count: int, one: str, many: str | None = None) -> str:
    """`1 error`, `2 errors`; `many` is the plural where an s does not make it."""
    return f"{count} {one if count == 1 else many or f'{one}s'}"


def aligned(rows: Sequence[Sequence[str]], *, left: Sequence[bool] = ()) -> list[str]:
    """The rows as lines. `left` says which columns go to the left; by default the first alone."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = left or [place == 0 for place in range(len(widths))]
    return [
        "   ".join(
            cell.ljust(width) if to_left else cell.rjust(width)
            for cell, width, to_left in zip(row, widths, sides, strict=True)
        ).rstrip()
        for row in rows
    ]
