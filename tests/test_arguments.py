from __future__ import annotations

import pytest

from pytest_maatml.arguments import read_concurrency, read_options
from pytest_maatml.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4", 4),
        ("0.5", 0.5),
        ("true", True),
        ("null", None),
        ('{"a": [1]}', {"a": [1]}),
        ('"4"', "4"),
        ("x y", "x y"),
        ("a=b", "a=b"),
        ("", ""),
        ("NaN", "NaN"),
        ("-Infinity", "-Infinity"),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_an_options_value_is_json_where_it_parses_else_text(text: str, value: object) -> None:
    assert read_options([f"key={text}"], option="--maatml-option") == {"key": value}


@pytest.mark.parametrize(
    ("value", "episodes"), [(None, None), ("", None), ("auto", None), ("8", 8), (1, 1)]
)
def test_episodes_in_flight_are_a_number_or_auto(value: object, episodes: int | None) -> None:
    assert read_concurrency(value) == episodes


@pytest.mark.parametrize("value", ["0", 0, -1, "1.5", 1.5, True, "many", "-1"])
def test_no_other_number_of_episodes_can_be_in_flight(value: object) -> None:
    with pytest.raises(ConfigurationError, match="must be a number from 1 or auto"):
        read_concurrency(value)
