"""From episodes as they end to verdicts: which gates a run has, and what they say of it."""
