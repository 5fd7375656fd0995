"""The teacher's share of the decisions, round by round."""

from __future__ import annotations

import re
from fractions import Fraction
from math import isfinite
from typing import Final

from pytest_maatml.errors import ConfigurationError

_FORMS: Final = "a share in [0, 1], linear:A:B:ROUNDS or exp:P"


def teacher_mix_at(text: str, round: int, *, option: str) -> float:
    """The share of the decisions in `round` (from 0) on which the teacher acts, in [0, 1].

    `text` is a number, the same in each round; `linear:a:b:n`, from a in round 0 to b in round n
    and from then on; or `exp:p`, p to the power of the round, which at p = 0 is the teacher alone
    in round 0 and the policy alone afterwards (Ross, Gordon and Bagnell 2011, section 3). Decimals
    are taken as written: a third of the way from 0.9 to 0 is 0.6.

    Raises ConfigurationError that begins with `option` for anything else.
    """
    if round < 0:
        raise ConfigurationError(f"{option}: rounds are counted from 0, not {round}")
    kind, *arguments = text.strip().split(":")
    if kind == "linear" and len(arguments) == 3:
        first, last = (_share(part, text, option) for part in arguments[:2])
        rounds = _rounds(arguments[2], text, option)
        return float(first + (last - first) * Fraction(min(round, rounds), rounds))
    if kind == "exp" and len(arguments) == 1:
        return float(_share(arguments[0], text, option)) ** round
    if arguments:
        raise ConfigurationError(f"{option} wants {_FORMS}, not {text!r}")
    return float(_share(kind, text, option))


def _share(part: str, text: str, option: str) -> Fraction:
    try:
        share = float(part)
    except ValueError:
        raise ConfigurationError(f"{option} wants {_FORMS}, not {text!r}") from None
    if not isfinite(share) or not 0 <= share <= 1:
        raise ConfigurationError(
            f"{option}: the teacher acts on a share of the decisions in [0, 1], not {part} "
            f"(in {text!r})"
        )
    return Fraction(str(share))


def _rounds(part: str, text: str, option: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", part) or int(part) == 0:
        raise ConfigurationError(
            f"{option}: a linear schedule ends in a round from 1 on, not {part!r} (in {text!r})"
        )
    return int(part)
