"""Rules of the pipe, for programs: one line in, one line out, in order, and nothing else."""

from __future__ import annotations

from json import dumps
from typing import TYPE_CHECKING, Final

from pytest_maatml.conformance.check import rule
from pytest_maatml.conformance.exchange import Broken, Exchange, Lost, same_reply
from pytest_maatml.conformance.play import play
from pytest_maatml.conformance.probe import capabilities
from pytest_maatml.conformance.rules.refusals import accepted_after

if TYPE_CHECKING:
    from pytest_maatml.conformance.probe import Probe
    from pytest_maatml.engine.protocol import JSONObject

#: Bytes of requests that a pipe takes before anybody reads them, on every system.
_FITS: Final = 12_000
_NOT_JSON: Final = ('{"op":"hello"', "hello", '{"op":"hello",}')
_NO_OP: Final = ("{}", '{"episode":"check-0"}', '{"op":null}', "[]", "7")


@rule(unit="requests", stdio=True)
def what_is_not_json_is_refused(probe: Probe) -> None:
    """A request that cannot be read is refused like any other, and the next one is answered."""
    _all_refused(probe, _NOT_JSON, "ok false in reply to a request that is not JSON")


@rule(unit="requests", stdio=True)
def request_without_op_is_refused(probe: Probe) -> None:
    """A request without `op` asks for nothing; it gets a reply all the same, `ok` false."""
    _all_refused(probe, _NO_OP, "ok false in reply to a request without op")


@rule(unit="requests", stdio=True)
def unknown_op_is_refused(probe: Probe) -> None:
    """A later protocol may have more requests; who does not know one says so and goes on."""
    lines = ('{"op":"no-such-op-7f3a"}', '{"op":"HELLO"}')
    _all_refused(probe, lines, "ok false in reply to an op that is not known")


def _all_refused(probe: Probe, lines: tuple[str, ...], wanted: str) -> None:
    instance = probe.start()
    for line in lines:
        try:
            came = instance.ask_line(line)
        except Lost as lost:
            raise Broken(f"{wanted}; {lost.reason}", Exchange(line, None)) from None
        if came.ok:
            raise Broken(wanted, came)
        accepted_after(came, instance.ask("hello"))
        probe.compared += 1


@rule(unit="blank lines", stdio=True)
def blank_lines_are_skipped(probe: Probe) -> None:
    """A blank line is no request: a reply to it would be taken for that to the next one."""
    instance = probe.start()
    hello = instance.ask("hello")
    for blank in ("", "  ", "\t\r"):
        try:
            came = instance.ask_line(f'{blank}\n{{"op":"hello"}}')
        except Lost as lost:
            wanted = f"a blank line to be skipped; {lost.reason}"
            raise Broken(wanted, Exchange(repr(blank), None)) from None
        if not same_reply(came, hello):
            raise Broken("no reply to a blank line", Exchange(repr(blank), came.reply))
        probe.compared += 1


@rule(unit="replies", stdio=True)
def nothing_but_replies_on_stdout(probe: Probe) -> None:
    """Standard output is the protocol's; whatever else there is to say goes to standard error."""
    instance = probe.start()
    label = "label" in capabilities(instance)
    for _, how in probe.plays(probe.tasks(instance), label=label):
        probe.compared += len(play(instance, how).exchanges)
    last = instance.ask("hello")
    instance.pipe.end_input()
    instance.listen(min(1.0, probe.subject.end_within))
    if instance.stray:
        raise Broken(
            f"one line of reply a request, an object with ok, and nothing else on standard "
            f"output; there was {instance.stray[0]!r:.200}",
            last,
        )


@rule(unit="replies", stdio=True)
def requests_ahead_are_answered_in_order(probe: Probe) -> None:
    """Replies carry no ids: a driver that keeps the pipe full goes by their order alone."""
    one, other = probe.start(), probe.start()
    requests = _many(probe, probe.tasks(one))
    for came in other.ask_ahead(requests):
        fields = dict(came.request) if isinstance(came.request, dict) else {}
        alone = one.ask(fields.pop("op"), **fields)
        if not same_reply(alone, came):
            raise Broken(
                f"the replies to {len(requests)} requests that were written before the first was "
                f"read, in their order",
                alone,
                came,
            )
        probe.compared += 1


def _many(probe: Probe, tasks: list[JSONObject]) -> list[JSONObject]:
    """Requests that are told apart by their replies, as many as a pipe holds."""
    requests: list[JSONObject] = []
    size = 0
    for place in range(64):
        named = {"episode": f"check-{place}"}
        task = tasks[place % len(tasks)]
        more: list[JSONObject] = [
            {"op": "hello"},
            {"op": "reset", **named, "task": task, "options": probe.subject.options},
            {"op": "verify", **named},
            {"op": "candidates", **named},
            {"op": "close", **named},
            {"op": "verify", **named},
        ]
        size += len(dumps(more))
        if requests and size > _FITS:
            break
        requests += more
    return requests


@rule(unit="programs", stdio=True)
def end_of_file_ends_the_program(probe: Probe) -> None:
    """Nobody will ask again: a program that stays is left behind by every run that was killed."""
    instance = probe.start()
    hello = instance.ask("hello")
    (task,) = probe.tasks(instance, most=1)
    probe.reset(instance, "check-0", task)
    instance.pipe.end_input()
    if not instance.pipe.ends_within(probe.subject.end_within):
        raise Broken(
            f"the program to end within {probe.subject.end_within:g} s of the end of its input; "
            f"it had to be ended",
            hello,
        )
    probe.compared += 1
