"""The predictor of line_walker: a softmax over linear scores, in numpy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_maatml.registry import register_predictor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

ACTIONS = ("finish", "jump", "left", "right")
WIDEST_GAP = 10
#: For each action: one weight for each gap from -WIDEST_GAP to WIDEST_GAP, and one of its own.
BLOCK = 2 * WIDEST_GAP + 2
FEATURES = len(ACTIONS) * BLOCK


def active_features(observation: dict[str, Any], candidate: dict[str, Any]) -> list[int]:
    """The indices of the features that are 1 for this candidate; all others are 0.

    A gap wider than `WIDEST_GAP` has no feature: the candidate's own weight alone is left.
    Raises `ValueError` for a candidate that is none of `ACTIONS`.
    """
    first = ACTIONS.index(candidate["id"]) * BLOCK
    gap = observation["target"] - observation["position"]
    own = first + BLOCK - 1
    return [first + gap + WIDEST_GAP, own] if abs(gap) <= WIDEST_GAP else [own]


def feature_matrix(
    observation: dict[str, Any], candidates: Sequence[dict[str, Any]]
) -> NDArray[np.float64]:
    """The features of each candidate, of shape (candidates, FEATURES)."""
    matrix = np.zeros((len(candidates), FEATURES))
    for row, candidate in zip(matrix, candidates, strict=True):
        row[active_features(observation, candidate)] = 1.0
    return matrix


@register_predictor("softmax_linear")
class SoftmaxLinear:
    """Scores a candidate by the sum of its features' weights."""

    def __init__(self) -> None:
        self._weights: NDArray[np.float64] = np.zeros(FEATURES)

    def setup(self, checkpoint_dir: Path | None, *, model_def: Any, device: Any) -> None:
        """Load `weights.json`; raises `ValueError` where there is none, or it does not fit."""
        if checkpoint_dir is None:
            raise ValueError("line_walker has no checkpoint: make one with `python train.py`")
        path = Path(checkpoint_dir) / "weights.json"
        weights = np.array(json.loads(path.read_text(encoding="utf-8"))["weights"], dtype=float)
        if weights.shape != (FEATURES,):
            raise ValueError(f"{path}: {weights.shape} weights, but the policy has {FEATURES}")
        self._weights = weights

    def score(
        self, observation: dict[str, Any], candidates: Sequence[dict[str, Any]]
    ) -> list[float]:
        """One score a candidate; the log-probabilities are their log-softmax."""
        return self.score_batch([observation], [candidates])[0]

    def score_batch(
        self,
        observations: Sequence[dict[str, Any]],
        candidates: Sequence[Sequence[dict[str, Any]]],
    ) -> list[list[float]]:
        """The scores of many states at once, each row bit for bit what `score` gives.

        A sum along each row depends on that row alone; a matrix product may not, since BLAS
        picks its order of summation by the size of the batch.
        """
        states = zip(observations, candidates, strict=True)
        stacked = np.concatenate([feature_matrix(*state) for state in states])
        scores = iter((stacked * self._weights).sum(axis=1).tolist())
        return [[next(scores) for _ in offered] for offered in candidates]
