"""Numbers in, verdicts out: intervals, gates, early stopping, baselines, planning.

Pure functions that know no episodes, files or pytest. Import from the modules; this one
stays empty so that it costs nothing.
"""
