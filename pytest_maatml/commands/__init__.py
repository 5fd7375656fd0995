"""The commands of `pytest-maatml`, a module each."""
