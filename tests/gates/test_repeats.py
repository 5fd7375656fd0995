from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from pytest_maatml.gates.repeats import false_pass_of_tries, pass_all, pass_any


def test_reference_values(oracles: dict[str, Any]) -> None:
    for (attempts, successes, k), expected in oracles["pass@k"]:
        found = (pass_any(attempts, successes, k), pass_all(attempts, successes, k))
        assert found == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("attempts", [1, 4, 7])
def test_any_and_all_are_shares_of_the_draws(attempts: int) -> None:
    for successes in range(attempts + 1):
        outcomes = [n < successes for n in range(attempts)]
        for k in range(1, attempts + 1):
            draws = list(combinations(outcomes, k))
            some = sum(map(any, draws)) / len(draws)
            every = sum(map(all, draws)) / len(draws)
            assert pass_any(attempts, successes, k) == pytest.approx(some, abs=1e-12)
            assert pass_all(attempts, successes, k) == pytest.approx(every, abs=1e-12)


def test_again_until_green_adds_up() -> None:
    assert false_pass_of_tries(1, alpha=0.05) == pytest.approx(0.05)
    assert false_pass_of_tries(2, alpha=0.05) == pytest.approx(0.0975)
    assert false_pass_of_tries(0, alpha=0.05) == 0


@pytest.mark.parametrize(("successes", "k"), [(4, 1), (2, 0), (2, 4)])
def test_draws_that_cannot_be_are_refused(successes: int, k: int) -> None:
    for share in (pass_any, pass_all):
        with pytest.raises(ValueError, match="give"):
            share(3, successes, k)
    with pytest.raises(ValueError, match="alpha"):
        false_pass_of_tries(3, alpha=1)
