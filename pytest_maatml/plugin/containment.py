"""What the code of a policy or an environment may raise that pytest would take for an outcome."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest

from pytest_maatml.errors import MaatmlError, describe

if TYPE_CHECKING:
    from collections.abc import Iterator

# A test is skipped by its own code alone: a skipped gate would be a green one.
_OUTCOMES: Final = (SystemExit, pytest.skip.Exception, pytest.xfail.Exception)


@contextmanager
def contained() -> Iterator[None]:
    """Raises MaatmlError, with file and line, in place of SystemExit, a skip and an xfail."""
    try:
        yield
    except _OUTCOMES as error:
        raise MaatmlError(
            f"the policy, the environment or a plugin of theirs raised {describe(error)}: that "
            f"ends the run and decides nothing; raise an ordinary exception in its place"
        ) from None
