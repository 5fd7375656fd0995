from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_maatml.errors import ConfigurationError
from pytest_maatml.schedule import teacher_mix_at

OPTION = "--teacher-mix"
shares = st.floats(0, 1, allow_subnormal=False)
rounds = st.integers(0, 1000)


@given(shares, rounds)
def test_a_number_holds_in_every_round(share: float, k: int) -> None:
    assert teacher_mix_at(str(share), k, option=OPTION) == share


@pytest.mark.parametrize(
    ("text", "by_round"),
    [
        ("linear:1:0:4", [1, 0.75, 0.5, 0.25, 0, 0, 0]),
        ("linear:0.9:0:3", [0.9, 0.6, 0.3, 0, 0]),
        ("linear:0.2:0.8:1", [0.2, 0.8, 0.8]),
        ("exp:0.5", [1, 0.5, 0.25, 0.125]),
        ("exp:0", [1, 0, 0]),
        ("exp:1", [1, 1, 1]),
        (" 0.3 ", [0.3, 0.3]),
    ],
)
def test_a_schedule_gives_the_share_of_each_round(text: str, by_round: list[float]) -> None:
    found = [teacher_mix_at(text, k, option=OPTION) for k in range(len(by_round))]
    assert found == by_round


@given(shares, shares, st.integers(1, 50), rounds)
def test_a_linear_schedule_runs_from_its_first_share_to_its_last_and_stays(
    first: float, last: float, n: int, k: int
) -> None:
    mix = teacher_mix_at(f"linear:{first}:{last}:{n}", k, option=OPTION)
    assert min(first, last) <= mix <= max(first, last)
    assert mix == (last if k >= n else pytest.approx(first + (last - first) * k / n))


@given(shares, st.integers(0, 30), st.integers(0, 30))
def test_an_exponential_schedule_multiplies(p: float, j: int, k: int) -> None:
    def mix(at: int) -> float:
        return teacher_mix_at(f"exp:{p}", at, option=OPTION)

    assert mix(0) == 1
    assert mix(j + k) == pytest.approx(mix(j) * mix(k), rel=1e-9, abs=1e-300)


@pytest.mark.parametrize(
    "text",
    [
        "", "often", "1.1", "-0.1", "nan", "inf", "linear", "linear:1:0", "linear:1:0:0",
        "linear:1:0:-2", "linear:1:0:2.5", "linear:2:0:5", "linear:1:nan:5", "linear:1:0:5:9",
        "exp", "exp:", "exp:1.5", "exp:0.5:2", "cosine:1", "linear:1:0:" + "9" * 5000,
    ],
)  # fmt: skip
def test_what_is_no_schedule_is_refused_by_the_option_s_name(text: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{OPTION}"):
        teacher_mix_at(text, 1, option=OPTION)


def test_rounds_are_counted_from_0() -> None:
    with pytest.raises(ConfigurationError, match="counted from 0, not -1"):
        teacher_mix_at("exp:0.5", -1, option=OPTION)
