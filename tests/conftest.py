"""What all tests have in common."""

from __future__ import annotations

from hypothesis import settings

# A law holds on a busy machine too.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
