"""From a task query to tasks of Gymnasium environments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pytest_maatml.environments.gymnasium_success import parse_criterion
from pytest_maatml.errors import RolloutEnvError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_maatml.engine.protocol import JSONObject

#: A family: how many episodes, or its settings.
FamilySettings: TypeAlias = "int | Mapping[str, Any]"

_SHARED: Final = ("count", "success", "make", "wrappers", "options")
_OF_QUERY: Final = ("families", "seed", "split", *_SHARED)
_OF_FAMILY: Final = ("env", "seeds", *_SHARED)
_MERGED: Final = ("make", "options")
_EXAMPLE: Final = '{"families": {"Taxi-v4": 50}, "seed": 1}'
_KINDS: Final[dict[str, tuple[type, str]]] = {
    "env": (str, "the id of an environment"),
    "success": (str, "a criterion"),
    "make": (Mapping, "an object of keyword arguments"),
    "options": (Mapping, "an object"),
    "wrappers": (list, "a list"),
    "seeds": (list, "a list of integers"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Tasks of one environment. `seeds` are those of the resets; else they are derived."""

    name: str
    env: str
    count: int = 1
    seeds: Sequence[int] | None = None
    #: Goes into each task as it is, where it is not empty.
    extras: Mapping[str, Any] = field(default_factory=dict)

    def tasks(self, seed: int, stamp: JSONObject) -> Iterator[JSONObject]:
        """One task a seed; the first n are the same whatever the count."""
        seeds = self.seeds
        if seeds is None:
            seeds = [derive_seed(seed, self.name, index) for index in range(self.count)]
        for index, own in enumerate(seeds):
            yield {
                "id": f"{self.name}-{seed}-{index}",
                "family": self.name,
                "env": self.env,
                "seed": own,
                **self.extras,
                **stamp,
            }


def derive_seed(seed: int, family: str, index: int) -> int:
    """The seed of a reset, in [0, 2^31): the top 31 bits of a 4-byte BLAKE2b (RFC 7693) over
    `seed NUL family NUL index`.
    """
    digest = blake2b(f"{seed}\0{family}\0{index}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") >> 1


def make_tasks(query: JSONObject, registered: Mapping[str, FamilySettings]) -> list[JSONObject]:
    """The tasks that `query` asks for, family by family.

    `families` maps a name to a count or to settings; a list picks among the `registered` ones,
    and without it all of those are meant. What the query says for a family goes before what it
    says for all, and that before what was registered.

    Raises RolloutEnvError for a query that asks for what there is not.
    """
    _check_keys(query, _OF_QUERY, "the task query")
    seed = query.get("seed") or 0
    if not isinstance(seed, int):
        raise RolloutEnvError(f"the seed of the task query must be an integer, not {seed!r}")
    stamp = {} if query.get("split") is None else {"split": query["split"]}
    shared: dict[str, Any] = {key: query[key] for key in _SHARED if key in query}
    families = [
        _family(name, (registered.get(name, {}), shared, asked))
        for name, asked in _asked_families(query, registered).items()
    ]
    return [task for family in families for task in family.tasks(seed, stamp)]


def _asked_families(
    query: JSONObject, registered: Mapping[str, FamilySettings]
) -> dict[str, FamilySettings]:
    asked = query.get("families", list(registered))
    if not asked:
        raise RolloutEnvError(f"the task query names no families; write {_EXAMPLE}")
    if isinstance(asked, Mapping):
        return dict(asked)
    if not isinstance(asked, list) or not all(isinstance(name, str) for name in asked):
        raise RolloutEnvError(
            f"families must map a name to a count or settings, or list names, not {asked!r:.200}; "
            f"write {_EXAMPLE}"
        )
    return {name: {} for name in asked}


def _family(name: str, layers: Sequence[FamilySettings]) -> Family:
    settings: dict[str, Any] = {}
    for layer in layers:
        own = _settings(layer, name)
        for key in _MERGED:
            if key in own:
                own[key] = {**settings.get(key, {}), **own[key]}
        settings.update(own)
    count, seeds = settings.get("count", 1), settings.get("seeds")
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise RolloutEnvError(f"the count of family {name!r} must be 1 or more, not {count!r}")
    if "success" in settings:
        parse_criterion(settings["success"])
    extras = {key: settings[key] for key in ("make", "wrappers", "options") if settings.get(key)}
    if "success" in settings:
        extras["success"] = settings["success"]
    return Family(name=name, env=settings.get("env", name), count=count, seeds=seeds, extras=extras)


def _settings(layer: FamilySettings, name: str) -> dict[str, Any]:
    """A copy of one layer of settings, checked."""
    where = f"family {name!r}"
    if isinstance(layer, int) and not isinstance(layer, bool):
        return {"count": layer}
    if not isinstance(layer, Mapping):
        raise RolloutEnvError(f"{where} must be a count or an object of settings, not {layer!r}")
    _check_keys(layer, _OF_FAMILY, where)
    for key, (kind, words) in _KINDS.items():
        if key in layer and not isinstance(layer[key], kind):
            raise RolloutEnvError(f"{key} of {where} must be {words}, not {layer[key]!r:.200}")
    return dict(layer)


def _check_keys(given: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise RolloutEnvError(
            f"{where} has {', '.join(map(repr, unknown))}, which nobody reads; "
            f"known are {', '.join(known)}"
        )
