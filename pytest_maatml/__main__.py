"""`python -m pytest_maatml`: the same as the command `pytest-maatml`."""

from __future__ import annotations

import sys

from pytest_maatml.cli import main

if __name__ == "__main__":
    sys.exit(main())
