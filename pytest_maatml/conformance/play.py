"""An episode as the kit plays it: a generator without I/O, so that many can be interleaved."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pytest_maatml.conformance.exchange import Exchange, same_reply
from pytest_maatml.engine.candidates import identifier
from pytest_maatml.engine.draws import draw

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from pytest_maatml.conformance.instance import Instance
    from pytest_maatml.engine.protocol import JSONObject

#: What is asked next: the op and its fields.
Request: TypeAlias = "tuple[str, dict[str, Any]]"
#: From the number of the decision, the valid ids in the environment's order, and the teacher's
#: to the id that is stepped; None ends the episode there.
Choice: TypeAlias = "Callable[[int, Sequence[str], Sequence[str]], str | None]"
Ending: TypeAlias = Literal[
    "terminal", "no_candidates", "no_valid_candidate", "limit", "refused", "stopped"
]


@dataclass(slots=True)
class Trace:
    """An episode that was played: all its exchanges in order, and how it ended."""

    exchanges: list[Exchange] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)
    ended: Ending = "refused"

    def of(self, *ops: str) -> list[Exchange]:
        return [exchange for exchange in self.exchanges if exchange.op in ops]

    @property
    def success(self) -> bool:
        verdicts = self.of("verify")
        return bool(verdicts and verdicts[-1].get("success"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """How an episode is played. `verify_often`: twice at every state, too."""

    episode: str
    task: JSONObject
    options: JSONObject
    limit: int
    choose: Choice
    label: bool = False
    verify_often: bool = False
    close: bool = True

    def steps(self) -> Generator[Request, Exchange, Trace]:
        """The requests of the episode; it returns what came of them."""
        trace = Trace()
        named = {"episode": self.episode}
        reset = yield "reset", {**named, "task": self.task, "options": self.options}
        trace.exchanges.append(reset)
        if reset.ok:
            yield from self._decide(trace)
            for _ in range(2 if self.verify_often else 1):
                trace.exchanges.append((yield "verify", named))
        if self.close:
            trace.exchanges.append((yield "close", named))
        return trace

    def _decide(self, trace: Trace) -> Generator[Request, Exchange, None]:
        named = {"episode": self.episode}
        while len(trace.actions) < self.limit:
            looked = yield "candidates", named
            trace.exchanges.append(looked)
            ids = valid_ids(looked)
            if not ids:
                trace.ended = _ending_without(looked)
                return
            accepted: list[str] = []
            if self.label:
                labelled = yield "label", named
                trace.exchanges.append(labelled)
                accepted = label_ids(labelled)
            for _ in range(2 if self.verify_often else 0):
                trace.exchanges.append((yield "verify", named))
            chosen = self.choose(len(trace.actions), ids, accepted)
            if chosen is None:
                trace.ended = "stopped"
                return
            stepped = yield "step", {**named, "id": chosen}
            trace.exchanges.append(stepped)
            trace.actions.append(chosen)
            if not stepped.ok or stepped.get("terminal") is not None:
                trace.ended = "terminal" if stepped.ok else "refused"
                return
        trace.ended = "limit"


def play(instance: Instance, how: Play) -> Trace:
    """The episode, played alone."""
    steps = how.steps()
    request = next(steps)
    while True:
        op, fields = request
        try:
            request = steps.send(instance.ask(op, **fields))
        except StopIteration as end:
            trace: Trace = end.value
            return trace


def interleave(instance: Instance, plays: Sequence[Play]) -> list[Trace]:
    """All the episodes at once: each in turn asks one request."""
    ended: dict[int, Trace] = {}
    under_way = {place: how.steps() for place, how in enumerate(plays)}
    requests = {place: next(steps) for place, steps in under_way.items()}
    while under_way:
        for place, steps in list(under_way.items()):
            op, fields = requests[place]
            try:
                requests[place] = steps.send(instance.ask(op, **fields))
            except StopIteration as end:
                ended[place] = end.value
                del under_way[place]
    return [ended[place] for place in range(len(plays))]


def differences(one: Trace, other: Trace) -> Iterator[tuple[Exchange, Exchange]]:
    """The pairs of exchanges in which the two episodes differ after the first observation."""
    ops = ("candidates", "step", "verify")
    for before, now in zip(one.of(*ops), other.of(*ops), strict=False):
        if before.op != now.op or not same_reply(before, now):
            yield before, now


def listed_candidates(looked: Exchange) -> list[Any]:
    listed = looked.get("candidates")
    return listed if looked.ok and isinstance(listed, list) else []


def _ids(looked: Exchange, *, valid: bool) -> list[str]:
    named = [
        identifier(candidate.get("id"))
        for candidate in listed_candidates(looked)
        if isinstance(candidate, dict) and (candidate.get("valid") is not False) is valid
    ]
    return [name for name in named if name is not None]


def valid_ids(looked: Exchange) -> list[str]:
    """The ids that can be stepped, as text, in the environment's order."""
    return _ids(looked, valid=True)


def masked_ids(looked: Exchange) -> list[str]:
    return _ids(looked, valid=False)


def label_ids(labelled: Exchange) -> list[str]:
    """The ids that the teacher accepts, as text; none where it has no label."""
    accepted = labelled.get("valid_ids")
    if not labelled.ok or not isinstance(accepted, list):
        return []
    return [name for value in accepted if (name := identifier(value)) is not None]


def _ending_without(looked: Exchange) -> Ending:
    if not looked.ok:
        return "refused"
    return "no_valid_candidate" if listed_candidates(looked) else "no_candidates"


def first_valid(decision: int, ids: Sequence[str], accepted: Sequence[str]) -> str:
    return ids[0]


def last_valid(decision: int, ids: Sequence[str], accepted: Sequence[str]) -> str:
    return ids[-1]


def random_valid(seed: int) -> Choice:
    """Uniform among the valid ids, by draws that depend on `seed` and the decision alone."""

    def choose(decision: int, ids: Sequence[str], accepted: Sequence[str]) -> str:
        return ids[int(draw(seed, "conformance", decision) * len(ids))]

    return choose


def recorded(actions: Sequence[str]) -> Choice:
    """The actions again, and then no more."""

    def choose(decision: int, ids: Sequence[str], accepted: Sequence[str]) -> str | None:
        return actions[decision] if decision < len(actions) else None

    return choose


def teacher(decision: int, ids: Sequence[str], accepted: Sequence[str]) -> str | None:
    """The first id that the teacher accepts among the valid ones."""
    return next((name for name in accepted if name in ids), None)
