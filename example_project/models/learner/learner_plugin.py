"""A policy of one hidden layer, in numpy, and the rows that it is trained from.

It remembers nothing: what it does depends on what it sees now, and on nothing before.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pytest_maatml.records.formats import EpisodeFormat, labelled_decisions
from pytest_maatml.registry import register_format, register_predictor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

WEIGHTS_FILE: Final = "weights.npz"

#: What can be done in either world; each action has one output of the network.
ACTIONS: Final = (
    "finish", "jump", "left", "right", "forward", "pickup", "drop", "toggle", "done",
)  # fmt: skip

#: MiniGrid's codes.
DOOR: Final = 4
NOUNS: Final = {"door": DOOR, "key": 5, "ball": 6, "box": 7}
COLORS: Final = {"red": 0, "green": 1, "blue": 2, "purple": 3, "yellow": 4, "grey": 5}
#: Nothing known, wall, key, ball, box.
SHOWN: Final = (0, 2, 5, 6, 7)
#: Open, closed, locked.
DOOR_STATES: Final = (0, 1, 2)
VERBS: Final = ("go", "pick", "open", "put")


def encode(observation: Mapping[str, Any]) -> NDArray[np.float32]:
    """What the network sees: of line_world its 4 numbers, of BabyAI 9 planes and 4 verbs."""
    return _encode_grid(observation) if "image" in observation else _encode_line(observation)


def _encode_line(observation: Mapping[str, Any]) -> NDArray[np.float32]:
    """The numbers as they are, in tens: what of them matters is for the network to find."""
    names = ("position", "target", "steps", "max_steps")
    return np.array([observation[name] / 10 for name in names], dtype=np.float32)


def _encode_grid(observation: Mapping[str, Any]) -> NDArray[np.float32]:
    """A plane for each kind of thing, one for what fits the mission's noun and colour."""
    grid = np.asarray(observation["image"])
    kinds, colors, states = grid[..., 0], grid[..., 1], grid[..., 2]
    words = observation["mission"].split()
    nouns = [code for word, code in NOUNS.items() if word in words] or list(NOUNS.values())
    wanted = [code for word, code in COLORS.items() if word in words] or list(COLORS.values())
    planes = [kinds == code for code in SHOWN]
    planes += [(kinds == DOOR) & (states == state) for state in DOOR_STATES]
    planes += [_is_one_of(nouns)[kinds] & _is_one_of(wanted)[colors]]
    verbs = [verb in words for verb in VERBS]
    return np.concatenate([np.stack(planes).ravel(), verbs]).astype(np.float32)


def _is_one_of(codes: Sequence[int]) -> NDArray[np.bool_]:
    """Whether each of MiniGrid's codes is among `codes`: an array to look it up in."""
    table = np.zeros(16, dtype=bool)
    table[list(codes)] = True
    return table


@register_format("teacher_choices")
class TeacherChoices(EpisodeFormat):
    """One row a state of an episode: what was seen, and all that the teacher accepts there.

    A state that comes again in the same episode is no new row: the rows would be mostly of the
    places where the policy went round in circles.
    """

    def rows(self, episode: dict[str, Any]) -> Iterator[dict[str, Any]]:
        seen: set[str] = set()
        for decision in labelled_decisions(episode):
            state = json.dumps([decision.observation, decision.candidates])
            if state in seen:
                continue
            seen.add(state)
            yield {
                "decision": decision.index,
                "observation": decision.observation,
                "actions": [candidate["id"] for candidate in decision.candidates],
                "target": decision.target(),
            }


def row_arrays(
    rows: Sequence[Mapping[str, Any]],
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """What the network sees of each row, and the teacher's share of each of `ACTIONS`."""
    shares = np.zeros((len(rows), len(ACTIONS)), dtype=np.float32)
    for share, row in zip(shares, rows, strict=True):
        share[[ACTIONS.index(action) for action in row["actions"]]] = row["target"]
    return np.stack([encode(row["observation"]) for row in rows]), shares


def forward(
    inputs: NDArray[np.float32], weights: Mapping[str, NDArray[np.float32]]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The hidden layer (rows, hidden), and the scores of `ACTIONS` (rows, actions)."""
    hidden = np.tanh(inputs @ weights["w1"] + weights["b1"])
    return hidden, hidden @ weights["w2"] + weights["b2"]


@register_predictor("mlp")
class MlpPolicy:
    """Scores each candidate by the output of its action."""

    def __init__(self) -> None:
        self._weights: dict[str, NDArray[np.float32]] | None = None

    def setup(self, checkpoint_dir: Path | None, *, model_def: Any, device: Any) -> None:
        """Load the weights. Without a checkpoint all actions are worth the same."""
        if checkpoint_dir is not None:
            with np.load(Path(checkpoint_dir) / WEIGHTS_FILE) as stored:
                self._weights = dict(stored)

    def score(
        self, observation: Mapping[str, Any], candidates: Sequence[Mapping[str, Any]]
    ) -> list[float]:
        return self.score_batch([observation], [candidates])[0]

    def score_batch(
        self,
        observations: Sequence[Mapping[str, Any]],
        candidates: Sequence[Sequence[Mapping[str, Any]]],
    ) -> list[list[float]]:
        """The scores of many states at once; their last bits may depend on how many those are."""
        if self._weights is None:
            return [[0.0] * len(offered) for offered in candidates]
        _, scores = forward(np.stack([encode(seen) for seen in observations]), self._weights)
        return [
            [float(row[ACTIONS.index(candidate["id"])]) for candidate in offered]
            for row, offered in zip(scores, candidates, strict=True)
        ]
