"""Which process of a distributed run this is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def worker_id(config: pytest.Config) -> str | None:
    """The name of this xdist worker; None in the controller and without xdist."""
    workerinput = getattr(config, "workerinput", None)
    return None if workerinput is None else str(workerinput["workerid"])
