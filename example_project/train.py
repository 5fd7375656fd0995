"""Trains the policy of a model folder, and records the run as maatml does.

    python train.py                              from the folder's seed rows
    python train.py --episodes FILE [FILE ...]   and from labelled episodes (DAgger)

Gradient descent on a convex loss, from zero, over all rows at once: there is nothing random in
it, so the same rows give the same weights.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml
from models.line_walker.line_walker_plugin import FEATURES, feature_matrix

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

LINE_WALKER = Path(__file__).parent / "models" / "line_walker"


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def labelled_decisions(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the decisions of an episode file that the teacher labelled.

    Raises `SystemExit` for a task outside the training split: what a policy is tested on, it must
    not be trained on.
    """
    for episode in read_lines(path):
        if episode["task"].get("split") != "train":
            raise SystemExit(
                f"{path}: {episode['episode_id']} is not of the training split; collect with "
                """--maatml-tasks='{..., "split": "train"}'"""
            )
        yield from (row for row in episode["decisions"] if row["teacher_valid"])


def arrays(rows: list[dict[str, Any]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Features (rows, candidates, FEATURES), and the teacher's share of each (rows, candidates)."""
    features = np.stack([feature_matrix(row["observation"], row["candidates"]) for row in rows])
    accepted = np.array(
        [[c["id"] in row["teacher_valid"] for c in row["candidates"]] for row in rows], dtype=float
    )
    return features, accepted / accepted.sum(axis=1, keepdims=True)


def softmax(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares: NDArray[np.float64] = weights / weights.sum(axis=1, keepdims=True)
    return shares


def fit(
    features: NDArray[np.float64],
    target: NDArray[np.float64],
    *,
    steps: int,
    learning_rate: float,
    l2: float,
) -> NDArray[np.float64]:
    """Weights (FEATURES,) that lower the mean cross-entropy plus `l2`/2 times their square."""
    weights = np.zeros(FEATURES)
    for _ in range(steps):
        residual = softmax(features @ weights) - target
        gradient = np.einsum("rc,rcf->f", residual, features) / len(features)
        weights -= learning_rate * (gradient + l2 * weights)
    return weights


def offline_metrics(
    features: NDArray[np.float64], target: NDArray[np.float64], weights: NDArray[np.float64]
) -> dict[str, float]:
    """The mean cross-entropy in nats, and the share of rows whose top candidate is accepted."""
    shares = softmax(features @ weights)
    accepted = target[np.arange(len(target)), shares.argmax(axis=1)] > 0
    return {
        "cross_entropy": float(-(target * np.log(shares)).sum(axis=1).mean()),
        "decision_accuracy": float(accepted.mean()),
    }


def save_run(
    model_dir: Path,
    spec: dict[str, Any],
    weights: NDArray[np.float64],
    metrics: dict[str, float],
    started: datetime,
) -> str:
    """Write the checkpoint, then its line in `output/runs.jsonl`; returns the run's id.

    `out_dir` is relative, so that the folder can be moved or cloned.
    """
    content = json.dumps({"weights": weights.tolist()})
    digest = hashlib.sha256(content.encode()).hexdigest()
    run_id = f"{started:%Y%m%d-%H%M%S}-{digest[:6]}"
    out_dir = Path("output") / "checkpoints" / run_id
    (model_dir / out_dir).mkdir(parents=True)
    (model_dir / out_dir / "weights.json").write_text(content + "\n", encoding="utf-8")
    record = {
        "run_id": run_id,
        "identity": f"{spec['name']}@{spec['version']}",
        "architecture": spec["architecture"],
        "status": "completed",
        "started_at": started.isoformat(),
        "finished_at": datetime.now(UTC).isoformat(),
        "device": "cpu",
        "out_dir": out_dir.as_posix(),
        "metrics": metrics,
    }
    with (model_dir / "output" / "runs.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(record, sort_keys=True) + "\n")
    return run_id


def train(model_dir: Path, episode_files: list[Path]) -> None:
    started = datetime.now(UTC)
    spec = yaml.safe_load((model_dir / "model.yml").read_text(encoding="utf-8"))
    rows = list(read_lines(model_dir / spec["dataset"]["seed_samples"]))
    rows += [row for path in episode_files for row in labelled_decisions(path)]
    features, target = arrays(rows)
    weights = fit(features, target, **spec["training"])
    metrics = offline_metrics(features, target, weights)
    run_id = save_run(model_dir, spec, weights, metrics, started)
    print(f"run {run_id}: {len(rows)} rows, {metrics}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the policy of a model folder.")
    parser.add_argument("model_dir", nargs="?", type=Path, default=LINE_WALKER)
    parser.add_argument("--episodes", nargs="+", type=Path, default=[], metavar="FILE")
    arguments = parser.parse_args()
    train(arguments.model_dir, arguments.episodes)


if __name__ == "__main__":
    main()
