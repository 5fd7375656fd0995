"""A gate's report in words: the rule first, then the counts, then what they do and do not mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_maatml.gates.binomial import least, upper_tail_at_most
from pytest_maatml.gates.paired import least_alarming_losses
from pytest_maatml.gates.stopping import Risk, parse_stopping
from pytest_maatml.gates.threshold import as_fraction, zero_failure_episodes
from pytest_maatml.gating.baseline import can_alarm
from pytest_maatml.gating.report import FAIL, NOT_DECIDED, PASS, UNGATED
from pytest_maatml.table import counted

if TYPE_CHECKING:
    from pytest_maatml.gating.report import BaselineReport, GateReport

#: Lost tasks that are named in a report; the summary names all.
_NAMED: Final = 20

_INTERVALS: Final = {
    "wilson": "Wilson",
    "curtailed-exact": "exact for a run that stopped here",
    "anytime": "valid wherever a run stops",
}


def rule_line(report: GateReport) -> str:
    """The rule, with all that it depends on: kind, rate, N, k*, alpha, stopping and seed."""
    parts = []
    if report.threshold is not None:
        parts.append(f"{report.kind} gate {report.rule}, N {report.planned}, k* {report.required}")
    if report.baseline is not None:
        parts.append(_baseline_rule(report.baseline))
    if not parts:
        return "no gate"
    shared = f" shared by {report.alarms} alarms" if report.alarms > 1 else ""
    return "; ".join(
        [
            *parts,
            f"alpha {report.alpha:g}{shared}",
            f"stopping {report.stopping}",
            _order(report),
        ]
    )


def _order(report: GateReport) -> str:
    permuted = isinstance(parse_stopping(report.stopping), Risk)
    return f"order permuted by seed {report.seed}" if permuted else "declared order"


def _baseline_rule(baseline: BaselineReport) -> str:
    if baseline.margin is not None:
        return (
            f"at most {baseline.margin} below the baseline {baseline.file} "
            f"({baseline.required}/{baseline.paired_tasks})"
        )
    never = "" if can_alarm(baseline) else ", cannot alarm: too few tasks pair"
    return f"no worse than the baseline {baseline.file} (exact McNemar test{never})"


def verdict_lines(report: GateReport) -> list[str]:
    """The verdict, the counts, the interval, what stopping saved, and the baseline's figures."""
    lines = [f"{report.family}: {report.verdict}", f"  {_counts(report)}"]
    if report.success + report.failures:
        lines.append(f"  {_rate(report)}")
    if report.stopped_at is not None:
        lines.append(f"  {_stopped(report)}")
    if report.baseline is not None:
        lines += _baseline_lines(report.baseline)
    return lines


def _counts(report: GateReport) -> str:
    parts = [
        f"{report.success} of {report.planned} verified",
        f"{report.failures} failed",
        f"{report.errors} errored",
    ]
    if report.unlabelled:
        parts.append(f"{report.unlabelled} cut for want of a label")
    if missing := report.planned - report.ended - report.saved:
        parts.append(f"{missing} did not run")
    return ", ".join(parts)


def _rate(report: GateReport) -> str:
    low, high = report.interval
    return (
        f"estimate {report.estimate:.1%}, 95% interval [{low:.1%}, {high:.1%}] "
        f"({_INTERVALS[report.interval_kind]})"
    )


def _stopped(report: GateReport) -> str:
    rule = parse_stopping(report.stopping)
    promise = "the verdict is that of the full run"
    if isinstance(rule, Risk):
        promise = f"differs from the full run with probability at most {rule.gamma:g}"
    return (
        f"stopped after {report.stopped_at} of {report.planned} episodes, {report.saved} saved: "
        f"{promise}"
    )


def _baseline_lines(baseline: BaselineReport) -> list[str]:
    lines = [
        f"  against {baseline.file}: {counted(baseline.wins, 'win')}, "
        f"{counted(baseline.losses, 'loss', 'losses')}, "
        f"{baseline.unpaired} unpaired: {baseline.verdict}"
    ]
    if baseline.difference is not None:
        low, high = baseline.interval
        lines.append(
            f"  difference {baseline.difference:+.1%}, 95% interval [{low:+.1%}, {high:+.1%}] "
            f"(Newcombe), p {baseline.p:.4g}{_adjusted(baseline)}"
        )
    if baseline.lost:
        more = len(baseline.lost) - _NAMED
        tail = f" and {more} more" if more > 0 else ""
        lines.append(f"  lost: {', '.join(baseline.lost[:_NAMED])}{tail}")
    return lines


def _adjusted(baseline: BaselineReport) -> str:
    if baseline.adjusted_p == baseline.p:
        return ""
    return f", {baseline.adjusted_p:.4g} after Holm's correction"


def explain_lines(report: GateReport) -> list[str]:
    """Three sentences: what was decided, what it does not mean, and what more would decide."""
    gates = []
    if report.threshold_verdict != UNGATED:
        gates.append(_threshold_sentences(report))
    if report.baseline is not None and report.baseline.verdict != UNGATED:
        gates.append(_baseline_sentences(report.family, report.baseline))
    if not gates:
        return list(_NOT_JUDGED)
    return [" ".join(sentences) for sentences in zip(*gates, strict=True)]


_NOT_JUDGED: Final = (
    "Nothing was decided: no gate was asked, or these are only a part of its episodes.",
    "That no gate failed does not mean that the policy is good.",
    "No number of episodes decides what was not asked: give a gate, or run all its episodes.",
)

_DECIDED: Final = {
    ("point", PASS): "Of the {planned} tasks of {name}, at least {required} succeed.",
    ("point", FAIL): "Of the {planned} tasks of {name}, fewer than {required} succeed.",
    ("certify", PASS): (
        "The success rate of {name} is at least {rate}: were it lower, this verdict would have a "
        "probability of at most {level}."
    ),
    ("certify", FAIL): "It was not shown that the success rate of {name} is at least {rate}.",
    ("guard", PASS): "Nothing shows that the success rate of {name} is below {rate}: no alarm.",
    ("guard", FAIL): (
        "The success rate of {name} is below {rate}: were it not, this alarm would have a "
        "probability of at most {level}."
    ),
}

_CAVEATS: Final = {
    ("point", PASS): (
        "That does not mean that the rate behind them is {rate}: another list of tasks may fail."
    ),
    ("point", FAIL): (
        "That does not mean that the rate behind them is below {rate}: another list may pass."
    ),
    ("certify", PASS): "That does not hold for tasks that are drawn in another way than these.",
    ("certify", FAIL): "That does not mean that the rate is below {rate}.",
    ("guard", PASS): "That does not mean that the rate is {rate} or more.",
    ("guard", FAIL): "That does not say how far below, nor why.",
}


def _threshold_sentences(report: GateReport) -> tuple[str, str, str]:
    if report.threshold_verdict == NOT_DECIDED:
        return (
            f"Whether {report.family} meets its gate was not decided: {_why(report)}.",
            "That does not mean that the policy failed, nor that it would pass.",
            _to_decide(report),
        )
    facts = {
        "name": report.family,
        "planned": report.planned,
        "required": report.required,
        "rate": _percent(report),
        "level": f"{report.alpha / report.alarms:g}" if report.kind == "guard" else report.alpha,
    }
    case = (report.kind, report.threshold_verdict)
    decided = _DECIDED[case].format(**facts)
    return f"{decided}{_risk(report)}", _CAVEATS[case].format(**facts), _to_show(report)


def _risk(report: GateReport) -> str:
    rule = parse_stopping(report.stopping)
    if report.stopped_at is None or not isinstance(rule, Risk):
        return ""
    return (
        f" (All {report.planned} episodes might say otherwise, with probability at most "
        f"{rule.gamma:g}.)"
    )


def _why(report: GateReport) -> str:
    missing = report.planned - report.ended - report.saved
    were = "was" if report.unlabelled == 1 else "were"
    reasons = (
        (report.errors, "errored"),
        (report.unlabelled, f"{were} cut for want of a label"),
        (missing, "did not run"),
    )
    return " and ".join(f"{counted(count, 'episode')} {what}" for count, what in reasons if count)


def _to_decide(report: GateReport) -> str:
    """What the episodes without an outcome would have to bring."""
    assert report.required is not None
    to_pass = report.required - report.success
    to_fail = report.planned - report.required + 1 - report.failures
    if to_pass <= 0:
        few = counted(report.max_errors, "episode")
        return (
            f"Enough succeeded already: it passes once no more than {few} "
            f"{_verb('error', report.max_errors)}, so run those that errored again."
        )
    still_open = report.planned - report.success - report.failures
    successes, pass_ = counted(to_pass, "success", "successes"), _verb("pass", to_pass)
    failures, fail = counted(to_fail, "failure"), _verb("fail", to_fail)
    return (
        f"Of the {counted(still_open, 'episode')} without an outcome, {successes} {pass_} it and "
        f"{failures} {fail} it."
    )


def _verb(verb: str, count: int) -> str:
    if count != 1:
        return verb
    return f"{verb}es" if verb.endswith("s") else f"{verb}s"


def _to_show(report: GateReport) -> str:
    """How many episodes would show that the rate is met, with the failures that there were."""
    if report.kind == "certify" and report.threshold_verdict == PASS:
        return "No more episodes are needed."
    rate = _percent(report)
    needed = _certifying(report)
    if needed is None:
        return f"No number of episodes shows a rate of {rate}: only a lower one can be certified."
    more = needed - report.ended
    if more <= 0:
        return "A certify gate, had it been asked, would have passed on these episodes."
    return (
        f"To show that the rate is at least {rate} takes {counted(more, 'more episode')} without "
        f"a failure, {needed} in all, under a certify gate."
    )


def _certifying(report: GateReport) -> int | None:
    """The least n that certify the rate in spite of the failures; None where none would do."""
    assert report.threshold is not None
    p0, alpha = as_fraction("threshold", report.threshold), as_fraction("alpha", report.alpha)
    if p0 >= 1:
        return None
    failures = report.failures

    def certifies(n: int) -> bool:
        return upper_tail_at_most(n - failures, n, p0, alpha)

    low = zero_failure_episodes(report.threshold, alpha=report.alpha) + failures
    high = low
    while not certifies(high):
        high *= 2
    return least(certifies, low, high)


def _percent(report: GateReport) -> str:
    assert report.threshold is not None
    return f"{float(100 * as_fraction('threshold', report.threshold)):.6g}%"


def _baseline_sentences(name: str, baseline: BaselineReport) -> tuple[str, str, str]:
    against = f"the baseline {baseline.file}"
    if baseline.verdict == NOT_DECIDED:
        return (
            f"Whether {name} is worse than {against} was not decided: "
            f"{counted(baseline.unpaired, 'episode')} {_verb('pair', baseline.unpaired)} with none "
            f"of it.",
            "That is no regression: errors are never losses.",
            "Mend what went wrong and run those episodes again.",
        )
    if baseline.margin is not None:
        return _margin_sentences(name, baseline, against)
    to_alarm = least_alarming_losses(baseline.wins, alpha=baseline.alpha) - baseline.losses
    if baseline.verdict == FAIL:
        return (
            f"{name} is worse than {against}: {_lost(baseline)}, p {baseline.adjusted_p:.4g}.",
            "That does not mean that each lost task is worse: some would be lost by chance.",
            "No more episodes are needed.",
        )
    return (
        f"Nothing shows that {name} is worse than {against}: {_lost(baseline)}.",
        "That does not mean that it is as good.",
        f"Beside {counted(baseline.wins, 'win')}, {counted(to_alarm, 'more loss', 'more losses')} "
        f"would raise the alarm.",
    )


def _lost(baseline: BaselineReport) -> str:
    were = "was" if baseline.losses == 1 else "were"
    return f"{counted(baseline.losses, 'task')} {were} lost and {baseline.wins} won"


def _margin_sentences(name: str, baseline: BaselineReport, against: str) -> tuple[str, str, str]:
    reached = "at least" if baseline.verdict == PASS else "fewer than"
    return (
        f"Of the {baseline.paired_tasks} tasks of {name} that completed in {against}, {reached} "
        f"{baseline.required} succeed.",
        "That speaks of these tasks, and not of the rates behind the two runs.",
        "No more episodes are needed.",
    )
