"""What the code of a policy or an environment may raise that pytest would take for an outcome."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from pytest_maatml.errors import MaatmlError, describe

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def contained() -> Iterator[None]:
    """Raises MaatmlError, with file and line, in place of all that is neither error nor failure.

    SystemExit, a skip and an xfail are such: a test is skipped by its own code alone, since a
    skipped gate would be a green one. An interrupt passes.
    """
    try:
        yield
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:
        # A failure is one already, and may come from elsewhere, as that of a time limit does.
        if type(error) is pytest.fail.Exception:
            raise
        raise MaatmlError(
            f"the policy, the environment or a plugin of theirs raised {describe(error)}: that "
            f"ends the run and decides nothing; raise an ordinary exception in its place"
        ) from None
