"""Peak memory of one item of many short episodes: less than 100 bytes an episode.

    python benchmarks/memory.py [EPISODES]

Two runs of pytest in processes of their own, one with a tenth of the episodes. What an episode adds
is the difference of their peaks, less what the task list and its plans take, which is measured by
itself in the same way.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from interleaved import write

POLICY = """\
class Finish:
    def score(self, observation, candidates):
        return [1.0, 0.0, 0.0, 0.0]
"""
TASK_LIST = """\
import resource, sys
from pytest_maatml.environments.line_world import LineWorld
from pytest_maatml.rollout import RolloutConfig, plan_episode
tasks = LineWorld().tasks({"count": int(sys.argv[1]), "span": 1000000})
plans = [plan_episode(task, index, RolloutConfig()) for index, task in enumerate(tasks)]
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
AIM = 100


def peak_of_run(folder: Path, episodes: int) -> int:
    """Peak resident memory of pytest, in bytes."""
    command = [
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
        "--maatml-policy=finish.py:Finish", "--maatml-env=line_world",
        f'--maatml-tasks={{"count": {episodes}, "span": 1000000}}',
        "--maatml-min-success=0", f"--maatml-out=out{episodes}",
    ]  # fmt: skip
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, "the run failed"
    return usage.ru_maxrss * 1024


def peak_of_tasks(episodes: int) -> int:
    output = subprocess.check_output([sys.executable, "-c", TASK_LIST, str(episodes)])
    return int(output) * 1024


def main() -> None:
    many = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    few = many // 10
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "finish.py").write_text(POLICY)
        run = (peak_of_run(folder, many) - peak_of_run(folder, few)) / (many - few)
    tasks = (peak_of_tasks(many) - peak_of_tasks(few)) / (many - few)
    added = run - tasks
    met = "met" if added < AIM else "MISSED"
    print(f"{many} episodes: {run:.0f} bytes each at the peak, {tasks:.0f} of them the task list")
    print(f"an episode adds {added:.0f} bytes  (aim < {AIM}: {met})")
    write("memory", [{"episodes": many, "bytes": run, "task_list": tasks, "added": added}])


if __name__ == "__main__":
    main()
