from __future__ import annotations

import pytest

from pytest_maatml.arguments import read_options


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
