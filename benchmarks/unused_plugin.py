"""What the plugin costs a pytest run that does not use it: at most 3 %.

    python benchmarks/unused_plugin.py

A project of one empty test is run with and without `-p no:pytest_maatml`, in turn, and the ratio
is taken pair by pair.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from interleaved import write

PAIRS = 40
AIM = 1.03


def seconds(folder: str, *more: str) -> float:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *more]
    started = time.perf_counter()
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return time.perf_counter() - started


def main() -> None:
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "test_nothing.py").write_text("def test_nothing(): pass\n")
        for pair in range(PAIRS + 2):
            with_it = seconds(folder)
            without = seconds(folder, "-p", "no:pytest_maatml")
            if pair >= 2:  # the first two fill the caches
                ratios.append(with_it / without)
    median = statistics.median(ratios)
    met = "met" if median <= AIM else "MISSED"
    print(f"unused plugin: {median:.3f} times a run without it  (aim {AIM}: {met})")
    write("unused_plugin", [{"title": "unused plugin", "ratio": median, "pairs": PAIRS}])


if __name__ == "__main__":
    main()
