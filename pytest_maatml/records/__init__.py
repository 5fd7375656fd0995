"""What is kept of a run: episodes, errors and their summary, on disk."""
