"""Trains the network of models/learner from `output/prepared`, and records the run as maatml does.

    python train_learner.py MODEL_DIR --seed 1

The rows are what `pytest-maatml prepare` left. On one machine the same rows and the same seed give
the same weights.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import yaml
from models.learner.learner_plugin import ACTIONS, WEIGHTS_FILE, forward, row_arrays

from pytest_maatml.records.rows import read_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[np.float32]

#: The files that `pytest-maatml prepare` writes.
SPLITS: Final = ("train", "val", "test", "benchmark")


def initial_weights(inputs: int, hidden: int, rng: np.random.Generator) -> dict[str, Array]:
    """Outputs that are all 0, on a hidden layer whose sums have a variance near 1."""
    first = rng.normal(size=(inputs, hidden)) / np.sqrt(inputs)
    return {
        "w1": first.astype(np.float32),
        "b1": np.zeros(hidden, dtype=np.float32),
        "w2": np.zeros((hidden, len(ACTIONS)), dtype=np.float32),
        "b2": np.zeros(len(ACTIONS), dtype=np.float32),
    }


def gradients(
    inputs: Array, target: Array, weights: Mapping[str, Array], l2: float
) -> dict[str, Array]:
    """Those of the mean cross-entropy plus `l2`/2 times the squares of the two matrices."""
    hidden, scores = forward(inputs, weights)
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    residual = (shares / shares.sum(axis=1, keepdims=True) - target) / len(inputs)
    below = residual @ weights["w2"].T * (1 - hidden**2)
    return {
        "w1": inputs.T @ below + l2 * weights["w1"],
        "b1": below.sum(axis=0),
        "w2": hidden.T @ residual + l2 * weights["w2"],
        "b2": residual.sum(axis=0),
    }


class Adam:
    """Kingma and Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015, algorithm 1."""

    def __init__(self, weights: dict[str, Array]) -> None:
        self._weights = weights
        self._first = {name: np.zeros_like(value) for name, value in weights.items()}
        self._second = {name: np.zeros_like(value) for name, value in weights.items()}
        self._steps = 0

    def step(self, gradient: Mapping[str, Array], rate: float) -> None:
        """Change the weights in place."""
        self._steps += 1
        for name, slope in gradient.items():
            first, second = self._first[name], self._second[name]
            first += 0.1 * (slope - first)
            second += 0.001 * (slope**2 - second)
            mean = first / (1 - 0.9**self._steps)
            spread = np.sqrt(second / (1 - 0.999**self._steps))
            self._weights[name] -= rate * mean / (spread + 1e-8)


def fit(
    inputs: Array,
    target: Array,
    *,
    seed: int,
    hidden: int,
    steps: int,
    batch: int,
    learning_rate: float,
    l2: float,
) -> dict[str, Array]:
    """The weights after `steps` batches, the learning rate falling to 0 in a line."""
    rng = np.random.default_rng(seed)
    weights = initial_weights(inputs.shape[1], hidden, rng)
    optimizer = Adam(weights)
    for step in range(steps):
        drawn = rng.integers(len(inputs), size=batch)
        gradient = gradients(inputs[drawn], target[drawn], weights, l2)
        optimizer.step(gradient, learning_rate * (1 - step / steps))
    return weights


def decision_accuracy(inputs: Array, target: Array, weights: Mapping[str, Array]) -> float:
    """The share of the rows on which the top action is one that the teacher accepts."""
    best = forward(inputs, weights)[1].argmax(axis=1)
    return float((target[np.arange(len(target)), best] > 0).mean())


def save_run(
    model_dir: Path,
    spec: Mapping[str, Any],
    weights: Mapping[str, Array],
    metrics: Mapping[str, Any],
    started: datetime,
) -> str:
    """Write the checkpoint, then its line in `output/runs.jsonl`; returns the run's id."""
    digest = hashlib.sha256(b"".join(value.tobytes() for value in weights.values())).hexdigest()
    run_id = f"{metrics['train_rows']}-rows-{digest[:8]}"
    out_dir = Path("output") / "checkpoints" / run_id
    (model_dir / out_dir).mkdir(parents=True, exist_ok=True)
    np.savez(model_dir / out_dir / WEIGHTS_FILE, **dict(weights))  # type: ignore[arg-type]
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


def train(model_dir: Path, seed: int) -> None:
    started = datetime.now(UTC)
    spec = yaml.safe_load((model_dir / "model.yml").read_text(encoding="utf-8"))
    prepared = model_dir / "output" / "prepared"
    rows = {split: list(read_rows(prepared / f"{split}.jsonl")) for split in SPLITS}
    arrays = {split: row_arrays(found) for split, found in rows.items() if found}
    weights = fit(*arrays["train"], seed=seed, **spec["training"])
    accuracy = {
        f"{split}_accuracy": decision_accuracy(*both, weights) for split, both in arrays.items()
    }
    metrics = {"train_rows": len(rows["train"]), "seed": seed, **accuracy}
    print(f"run {save_run(model_dir, spec, weights, metrics, started)}: {metrics}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the network of a model folder.")
    parser.add_argument("model_dir", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    train(arguments.model_dir, arguments.seed)


if __name__ == "__main__":
    main()
