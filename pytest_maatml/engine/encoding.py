"""JSON without loss: what cannot be written as it is gets refused, with the place where it stands.

orjson is fast, but writes NaN as null, reads integers beyond 64 bits as floats, and writes dates,
dataclasses and enums that JSON does not have. So each value takes orjson's path first, and the
careful path only where the result, or a look at the types, shows that it may be needed.
"""

from __future__ import annotations

import json
import marshal
import math
import pickle
import sys
from itertools import chain
from typing import Any, Final

import orjson

from pytest_maatml.errors import RolloutEnvError

MAX_DEPTH: Final = 200
#: The version of marshal's format that writes what is met twice as two.
_TREE: Final = 2

_finite = json.JSONEncoder(allow_nan=False, check_circular=False).encode
_exact = json.JSONEncoder(
    allow_nan=False, check_circular=False, ensure_ascii=False, separators=(",", ":")
).encode

# Nineteen digits in a row are the first that may be an integer beyond 64 bits; those of a fraction
# are none.
_DIGITS: Final = bytes.maketrans(b"123456789", b"000000000")
_LONG: Final = b"0" * 19
_LONG_FRACTION: Final = b"." + _LONG


def encode(value: Any, name: str, op: str | None = None) -> bytes:
    """`value`, which came as JSON, as one line of compact JSON in UTF-8; nothing is lost.

    Key order and every bit are kept. `name` is what the value is called in a refusal
    (`observation`), `op` the request that brought it.

    Raises RolloutEnvError for NaN, infinity, lone surrogates, keys that are not text, more than
    200 levels, and values that are not JSON.
    """
    try:
        encoded = orjson.dumps(value)
    except (TypeError, RecursionError):
        return _encode_carefully(value, name, op)
    if _may_hide(encoded) and not _is_finite(value):
        return _encode_carefully(value, name, op)
    return encoded


def snapshot(value: Any, name: str, op: str | None = None) -> bytes:
    """`value`, which may be of any make, as it is now. Raises as `encode`.

    It looks at the types too, and finds those that orjson would write and JSON lacks. One is taken
    at every decision, so what most observations are is settled on the spot.
    """
    try:
        encoded = orjson.dumps(value)
        if type(value) is dict:
            for item in value.values():
                kind = type(item)
                if kind is not int and kind is not str and kind is not bool:
                    break
            else:
                return encoded
        known = _has_json_types(value, encoded)
    except (TypeError, RecursionError):
        known = False
    if known and (not _may_hide(encoded) or _is_finite(value)):
        return encoded
    return _encode_carefully(value, name, op)


def duplicate(value: Any) -> Any:
    """A deep copy; what cannot be copied is given back as it is.

    Pickle makes it many times as fast as the module for it.
    """
    try:
        return pickle.loads(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))
    except Exception:
        return value


def _may_hide(encoded: bytes) -> bool:
    """Whether there is a null, which may stand for a NaN. (A single byte is found much faster.)"""
    return encoded.find(b"l") >= 0 and encoded.find(b"null") >= 0


def shown(value: Any) -> str:
    """The beginning of `value`'s repr, for a message; never raises, whatever `value` is."""
    try:
        return repr(value)[:200]
    except Exception:  # of a class with a fault of its own, or an integer of too many digits
        return f"<{type(value).__qualname__}>"


def _has_json_types(value: Any, encoded: bytes) -> bool:
    """Whether `value`, which orjson wrote as `encoded`, is of JSON's own types and not too deep.

    Of what orjson writes, marshal takes the built-in types alone, and no subclass of them.
    """
    try:
        marshal.dumps(value, _TREE)
    except ValueError:
        return False
    if len(encoded) <= 2 * MAX_DEPTH:
        return True
    return encoded.count(b"[") + encoded.count(b"{") <= MAX_DEPTH or _depth(value) <= MAX_DEPTH


def _depth(value: Any) -> int:
    """The number of levels of lists and objects."""
    levels = 0
    level = [value]
    while level := [item for item in level if isinstance(item, dict | list | tuple)]:
        levels += 1
        inside = (item.values() if isinstance(item, dict) else item for item in level)
        level = list(chain.from_iterable(inside))
    return levels


def _is_finite(value: Any) -> bool:
    try:
        _finite(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def decode(line: bytes | str) -> Any:
    """The value of one line of JSON; integers of any size are exact.

    Raises ValueError where the line is not JSON. NaN, infinities and lone surrogates are read, so
    that `encode` can say where they stand.
    """
    raw = line.encode("utf-8", "surrogatepass") if isinstance(line, str) else line
    if not has_long_number(raw):
        try:
            return orjson.loads(raw)
        except orjson.JSONDecodeError:
            pass
    try:
        return json.loads(raw)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def has_long_number(raw: bytes) -> bool:
    """Whether there may be an integer in `raw` that orjson would not read exactly."""
    alike = raw.translate(_DIGITS)
    return alike.find(_LONG) >= 0 and alike.count(_LONG) > alike.count(_LONG_FRACTION)


def _encode_carefully(value: Any, name: str, op: str | None) -> bytes:
    try:
        plain = _plain(value, name, 1)
    except RolloutEnvError as refusal:
        refusal.op = op
        raise
    try:
        return orjson.dumps(plain)
    except TypeError:  # integers beyond 64 bits
        return _exact(plain).encode()


def _plain(value: Any, path: str, depth: int) -> Any:
    """`value` in dicts, lists, text, numbers, booleans and None alone."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value, path)
    if isinstance(value, int):
        return _integer(value, path)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _refusal(path, f"is {_named(value)}, which JSON does not have")
        return float(value)
    if depth > MAX_DEPTH:
        raise _refusal(path[:200] + "...", f"is nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, dict):
        return {
            _key(key, path): _plain(item, f"{path}.{key}", depth + 1) for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_plain(item, f"{path}[{place}]", depth + 1) for place, item in enumerate(value)]
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    raise _refusal(path, f"is a {kind}, which JSON does not have; convert it first")


def _integer(value: int, path: str) -> int:
    try:
        str(value)
    except ValueError:  # Python's guard against quadratic time
        limit = sys.get_int_max_str_digits()
        raise _refusal(path, f"is an integer of more than {limit} digits") from None
    return int(value)


def _text(value: str, path: str) -> str:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise _refusal(path, f"holds a lone surrogate at character {error.start}") from None
    return str.__str__(value)  # an enum of text has another str()


def _key(key: Any, path: str) -> str:
    if not isinstance(key, str):
        raise _refusal(path, f"has the key {key!r}, which is not text")
    return _text(key, f"a key of {path}")


def _named(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _refusal(path: str, what: str) -> RolloutEnvError:
    printable = path.encode("utf-8", "backslashreplace").decode()
    return RolloutEnvError(f"{printable} {what}", kind="protocol")
