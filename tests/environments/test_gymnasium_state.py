from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pytest_maatml.engine.encoding import snapshot
from pytest_maatml.environments.gymnasium_state import as_json

DTYPES = ["bool", "int8", "uint8", "int32", "int64", "uint64", "float16", "float32", "float64"]


def read_back(value: Any) -> Any:
    return json.loads(snapshot(as_json(value), "observation"))


def arrays_of(name: str) -> st.SearchStrategy[Any]:
    finite = {"allow_nan": False, "allow_infinity": False} if name.startswith("float") else None
    shapes = arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
    return arrays.arrays(np.dtype(name), shapes, elements=finite)


@given(st.sampled_from(DTYPES).flatmap(arrays_of))
def test_an_array_read_back_has_every_bit(array: np.ndarray[Any, Any]) -> None:
    again = np.array(read_back(array), dtype=array.dtype).reshape(array.shape)
    assert again.tobytes() == array.tobytes()


@pytest.mark.parametrize("seed", range(5))
def test_samples_of_nested_spaces_read_back_equal(seed: int) -> None:
    space = spaces.Dict(
        {
            "image": spaces.Box(0, 255, (2, 3, 3), np.uint8),
            "pose": spaces.Tuple(
                (spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(5, start=2))
            ),
            "switches": spaces.MultiBinary([2, 2]),
            "gears": spaces.MultiDiscrete([3, 4]),
            "mission": spaces.Text(12),
            "inner": spaces.Dict({"depth": spaces.Box(-1e30, 1e30, (), np.float64)}),
            "bag": spaces.Sequence(spaces.Discrete(3)),
        },
        seed=seed,
    )
    sample = space.sample()
    again = read_back(sample)
    assert list(again) == list(sample)
    assert np.array_equal(again["image"], sample["image"])
    assert np.array_equal(np.array(again["pose"][0], np.float32), sample["pose"][0])
    assert again["pose"][1] == int(sample["pose"][1])
    assert np.array_equal(again["switches"], sample["switches"])
    assert np.array_equal(again["gears"], sample["gears"])
    assert again["mission"] == sample["mission"]
    assert again["inner"]["depth"] == float(sample["inner"]["depth"])
    assert again["bag"] == [int(item) for item in sample["bag"]]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(0.1), 0.10000000149011612),
        (np.uint64(2**64 - 1), 18446744073709551615),
        (np.bool_(True), True),
        (np.str_("go"), "go"),
        (np.array("go"), "go"),
        (np.array([np.int8(3), "x", None], dtype=object), [3, "x", None]),
        ([{"a": (np.int64(1), 2)}], [{"a": [1, 2]}]),
        (None, None),
    ],
)
def test_scalars_and_objects_become_plain_values(value: Any, expected: Any) -> None:
    plain = as_json(value)
    assert plain == expected
    assert type(plain) is type(expected)
