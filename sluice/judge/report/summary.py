"""The summary of a verdict as Markdown, for a file and the terminal, and the sentences that the page shares."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sluice.history.events import is_end_marker
from sluice.judge import conduct
from sluice.judge.checker.anomalies import ANOMALIES, NOT_JUDGED
from sluice.judge.checker.verdict import Property, PropertyState, PropertyStatus, Verdict, Violation
from sluice.pages import units
from sluice.pages.units import plural

_MARKS = {
    PropertyState.VIOLATED: "**VIOLATED**",
    PropertyState.CROSSED: "**crossed**",
    PropertyState.SEEN: "seen, lawful",
}
_MEANS = {
    PropertyStatus.VALID: "Every promise this run exercised was kept.",
    PropertyStatus.INVALID: "A promise was broken.",
    PropertyStatus.UNKNOWN: "This run cannot tell whether the promises were kept, and that is no pass.",
}
NOT_EXERCISED = "this run gave it no opportunity to fail"
NO_THRESHOLD = "no threshold is set for it"
THRESHOLDS = {
    "H7": "lateness_budget_seconds",
    "H3": "latency_seconds_max",
    "H4": "drain_seconds_max",
    "H5": "recovery_seconds_max",
    "H6": "throttled_share_max",
    "E3": "fan_out_skew_seconds_max",
    "D3": "passed_over_seconds_max",
    "H1": "stuck_seconds_max",
}
"""The profile's field with the threshold of each anomaly, in the order in which they are shown."""
_WAITS = {
    "E3": "between a message's first queue and its last",
    "D3": "a group waiting while its queue serves others",
    "H1": "a group waiting while its queue is polled",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MARKUP = re.compile(r"[\\`*_\[\]<>|~&#]")


def escape_markdown(text: str) -> str:
    """Return text as Markdown that shows it as it is, in one line: ids, names and errors come from outside."""
    printable = "".join(name if name.isprintable() else "\N{REPLACEMENT CHARACTER}" for name in " ".join(text.split()))
    return _MARKUP.sub(r"\\\g<0>", printable)


FAMILIES = {
    "A": "Loss",
    "B": "Duplicates",
    "C": "Order",
    "D": "Groups",
    "E": "Fan-out",
    "F": "Dead letters",
    "G": "Content",
    "H": "Speed",
    "R": "Effects",
}
"""The name of each family of anomalies, by the first letter of their ids."""
CONSUMER = "What your consumer did"
_KEPT = (PropertyState.HOLDS, PropertyState.ALLOWED, PropertyState.SEEN)
_PLAIN = (PropertyState.HOLDS, PropertyState.NOT_EXERCISED, PropertyState.NO_THRESHOLD)


def markdown(verdict: Verdict, *, is_whole: bool = True) -> str:
    """Return the summary as Markdown.

    Unless it is whole, only with the properties that neither held nor lacked opportunity.
    """
    parts = [
        f"# {verdict.status.value.upper()} — {escape_markdown(str(verdict.run.get('run', '')))}",
        *(f"**VALID, but {escape_markdown(caveat)}.**" for caveat in caveats(verdict)),
        *([escape_markdown(f"{sentence}.")] if (sentence := harm_sentence(verdict)) is not None else []),
        *([_bullets(CONSUMER, tuple(map(escape_markdown, consumed)))] if (consumed := consumer(verdict)) else []),
        *([_bullets("Not known", tuple(map(escape_markdown, verdict.unknowns)))] if verdict.unknowns else []),
        *(
            [_bullets("Crossed", tuple(map(escape_markdown, verdict.crossed_thresholds)))]
            if verdict.crossed_thresholds
            else []
        ),
        *([_violations(verdict)] if verdict.violations else []),
        _properties(verdict) if is_whole else _exceptions(verdict),
        _measures(verdict.measures),
        _faults(verdict.measures.get("faults", ())),
        *([_bullets("Scaling", tuple(map(escape_markdown, scaled)))] if (scaled := verdict.run.get("scaling")) else []),
        _allowed_bullets("Known deviations of this target, allowed", verdict.run.get("known_deviations", {})),
        _allowed_bullets("Lawful under this load, allowed", verdict.run.get("allowed", {})),
        *([_not_judged()] if is_whole else []),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _bullets(title: str, lines: tuple[str, ...]) -> str:
    return "\n".join([f"## {title}", "", *(f"- {line}" for line in lines)])


def _violations(verdict: Verdict) -> str:
    lines = ["## Violations", ""]
    for violation in verdict.violations:
        name = ANOMALIES[violation.anomaly].name
        sentence = escape_markdown(violation.sentence + since(violation))
        lines.append(f"- **{violation.anomaly} {name}** in {escape_markdown(where(violation))}: {sentence}")
        lines += [f"    - {line}" for line in witness_lines(violation, escape_markdown)]
    return "\n".join(lines)


def where(violation: Violation) -> str:
    """Return the group, the queue and the messages of a violation, as text."""
    names = ", ".join(_message(idx, violation) for idx in violation.idxs) or "no single message"
    queue = "all queues" if violation.queue is None else f"queue {violation.queue}"
    return f"group {violation.message_group_id}, {queue}, {'message ' if names[0].isdecimal() else ''}{names}"


def _message(idx: int, violation: Violation) -> str:
    """Return a message by its idx; in a recording that is a hash, and its deduplication id says more."""
    if is_end_marker(idx):
        return "the end marker"
    ids = [event.deduplication_id for event in violation.witness if event.idx == idx and event.deduplication_id]
    return str(idx) if not ids or ids[0].endswith(f".{idx}") else f"{idx} ({ids[0]})"


def since(violation: Violation) -> str:
    """Return the instant of a witness's first event, as text; the times in `witness_lines` are relative to it."""
    first_us = _first_us(violation)
    try:
        return (
            "" if first_us is None else f" (+0 s is {_EPOCH + timedelta(microseconds=first_us):%Y-%m-%dT%H:%M:%S.%fZ})"
        )
    except OverflowError:  # an older verdict may have an instant that no date has
        return f" (+0 s is {first_us} µs)"


def _first_us(violation: Violation) -> int | None:
    return min((event.invoked_at_us for event in violation.witness if event.invoked_at_us is not None), default=None)


def witness_lines(violation: Violation, quote: Callable[[str], str] = str) -> list[str]:
    """Return a line for each event of a witness; `quote` escapes the values of its fields."""
    first_us = _first_us(violation)
    return [_event_line(event.as_dict(), first_us or 0, quote) for event in violation.witness]


def _event_line(event: Mapping[str, Any], first_us: int, quote: Callable[[str], str]) -> str:
    shown = (
        "worker",
        "queue",
        "idx",
        "deduplication_id",
        "outcome",
        "visibility_timeout_seconds",
        "sns_sequence_number",
        "sqs_message_id",
        "receive_count",
        "body_hash",
    )
    fields = ", ".join(f"{name}={quote(str(event[name]))}" for name in shown if name in event)
    return f"`{event['kind']}` {_when(event, first_us)}: {fields}"


def _when(event: Mapping[str, Any], first_us: int) -> str:
    invoked_us, responded_us = event.get("invoked_at_us"), event.get("responded_at_us")
    if invoked_us is None:
        return "at an unknown time"
    answered = "never answered" if responded_us is None else f"answered {(responded_us - first_us) / 1e6:+.6f} s"
    return f"{(invoked_us - first_us) / 1e6:+.6f} s, {answered}"


def consumer(verdict: Verdict) -> list[str]:
    """Return sentences about the conduct of a recording's consumers; none for a run."""
    measured = verdict.measures.get("consumer")
    return [] if measured is None else conduct.lines(measured)


def families(verdict: Verdict) -> list[str]:
    """Return how many properties of each family were exercised and held, of all that are judged, as `Order 5 of 6`.

    A family of which nothing was exercised is left out.
    """
    found = []
    for initial, name in FAMILIES.items():
        of = [
            prop
            for prop in verdict.properties
            if prop.anomaly[0] == initial and prop.holding is not PropertyState.NO_THRESHOLD
        ]
        kept = sum(prop.holding in _KEPT for prop in of)
        if kept or any(prop.holding not in _PLAIN for prop in of):
            found.append(f"{name} {kept} of {len(of)}")
    return found


def _exceptions(verdict: Verdict) -> str:
    odd = [prop for prop in verdict.properties if prop.holding not in _PLAIN]
    line = f"{' · '.join(families(verdict)) or 'Nothing was exercised'}. {exercise_sentence(verdict)}"
    table = _table("Exceptions", odd) if odd else ""
    return "\n\n".join(filter(None, (table, f"## Properties\n\n{line} `--all` lists each.")))


def _properties(verdict: Verdict) -> str:
    return _table("Properties", verdict.properties)


def _table(title: str, properties: Iterable[Property]) -> str:
    rows = [
        f"| {p.anomaly} | {ANOMALIES[p.anomaly].name} | {_MARKS.get(p.holding, p.holding.value)}"
        f" | {p.violation_count} | {p.opportunities:,} |"
        for p in properties
    ]
    head = [f"## {title}", "", "| id | nothing was | verdict | found | opportunities |", "|---|---|---|---:|---:|"]
    return "\n".join([*head, *rows])


def _measures(measures: Mapping[str, Any]) -> str:
    if not measures:
        return ""
    published = measures["published"]
    span = "no time" if published["seconds"] is None else f"{published['seconds']:.1f} s"
    lines = [
        "## Measures",
        "",
        f"- published {published['count']:,} {unit(measures)} in {span}, {_per_second(published)}",
        *([f"- received {' '.join(counts)}"] if (counts := bundle_counts(measures)) is not None else []),
        f"- a history of {measures['events']:,} events in {measures['groups']:,} groups,"
        f" {measures['suspect_groups']:,} of them looked at closely",
        "",
        "| from intended publish to | received | rate | p50 | p95 | p99 | max |",
        "|---|---:|---:|---:|---:|---:|---:|",
        *(
            f"| {escape_markdown(queue)} | {of['received']['count']:,} | {_per_second(of['received'])}"
            f" | {_quantiles(of['latency_us'])} |"
            for queue, of in measures["queues"].items()
        ),
        f"| (the publish call itself) | | | {_quantiles(measures['publish_latency_us'])} |",
        f"| (generator lateness) | | | {_quantiles(measures['lateness_us'])} |",
        *(["", f"Percentiles: {measures['percentiles']}."] if "percentiles" in measures else []),
        *(["", sentence] if (sentence := replay_sentence(measures)) is not None else []),
    ]
    return "\n".join(lines)


def unit(measures: Mapping[str, Any]) -> str:
    """Return what the numbers of a run count: messages, or events where some travelled together."""
    return "events" if "bundles" in measures else "messages"


def bundle_counts(measures: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return (how many events were received, words that say in how many messages); None if each came alone."""
    of = measures.get("bundles")
    if of is None:
        return None
    mean = f"{of['events'] / of['messages']:.1f} a message" if of["messages"] else "in messages that are not on record"
    return f"{of['events']:,}", f"events in {of['messages']:,} messages, {mean}"


def _faults(done: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of the faults, a row for each kind."""
    by_kind: dict[str, list[Mapping[str, Any]]] = {}
    for fault in done:
        by_kind.setdefault(fault["kind"], []).append(fault)
    rows = [
        f"| {escape_markdown(kind)} | {len(of)}"
        f" | {escape_markdown(', '.join(sorted({fault['target'] for fault in of})))}"
        f" | {units.seconds(_slowest(of))} | {_unrecovered_count(of)} |"
        for kind, of in by_kind.items()
    ]
    titles = "| fault | times | target | recovered after, at most | nothing followed in a queue |"
    head = ["## Faults", "", titles, "|---|---:|---|---:|---:|"]
    return "\n".join([*head, *rows]) if rows else ""


def recovery(fault: Mapping[str, Any]) -> float | None:
    """Return the seconds from a fault's end until all its queues and topics had a successful call again.

    A fault recovers when the slowest of them does. None if one of them had no successful call after the fault.
    """
    seconds = fault["recovered_in_seconds"].values()
    return None if None in seconds else max(seconds, default=None)


def _slowest(faults: Iterable[Mapping[str, Any]]) -> float | None:
    return max((seconds for fault in faults if (seconds := recovery(fault)) is not None), default=None)


def _unrecovered_count(faults: Iterable[Mapping[str, Any]]) -> int:
    """Return how many faults left a queue without a later successful call."""
    return sum(recovery(fault) is None for fault in faults)


def harm_sentence(verdict: Verdict) -> str | None:
    """Return a sentence about the faults, and how soon calls succeeded after them; None without faults."""
    done, planned = verdict.measures.get("faults", ()), len(verdict.run.get("faults", ()))
    if not done and not planned:
        return None
    kinds = Counter(fault["kind"] for fault in done)
    counted = (
        f"{len(done):,} of {units.plural(planned, 'fault')}"
        if len(done) < planned
        else units.plural(len(done), "fault")
    )
    named = f" ({', '.join(f'{count} {kind}' for kind, count in kinds.items())})" if done else ""
    open_ = _unrecovered_count(done)
    after = f", recovered after {'at most ' if len(done) - open_ > 1 else ''}{units.seconds(_slowest(done))}"
    nothing = f", nothing followed {open_} of them"
    return f"{counted} done{named}{after if len(done) > open_ else ''}{nothing if open_ else ''}"


def replay_sentence(measures: Mapping[str, Any]) -> str | None:
    """Return a sentence about how closely a run replayed its recording; None if it replayed none."""
    found = measures.get("replay")
    if found is None:
        return None
    counts = f"Replay: {found['published']:,} of {found['planned']:,} recorded messages"
    if found["shift_us"] is None:
        return f"{counts}."
    apart = "" if found["interarrival_ks"] is None else f", interarrival times by {found['interarrival_ks']:.3f} (KS)"
    shift = found["shift_us"]
    return (
        f"{counts}, later by {units.duration(shift['p95'])} (p95), at most {units.duration(shift['max'])};"
        f" {found['moved_share']:.2%} of them in another second{apart}; groups' shares differ by"
        f" {found['skew_error']:.2%}."
    )


def _per_second(rate: Mapping[str, Any]) -> str:
    return "—" if rate["per_second"] is None else f"{rate['per_second']:.1f}/s"


def _quantiles(of: Mapping[str, int] | None) -> str:
    return " | ".join("—" if of is None else f"{of[name] / 1000:,.0f} ms" for name in units.QUANTILES)


def _allowed_bullets(title: str, reasons: Mapping[str, str]) -> str:
    if not reasons:
        return ""
    return _bullets(title, tuple(f"{anomaly} {ANOMALIES[anomaly].name}: {why}" for anomaly, why in reasons.items()))


def _not_judged() -> str:
    names = ", ".join(f"{anomaly.id} {anomaly.name}" for anomaly in NOT_JUDGED)
    return f"## Not judged yet\n\n{names}"


def means(verdict: Verdict) -> str:
    """Return the meaning of the verdict and its limits, as sentences."""
    is_crossed = verdict.status is PropertyStatus.VALID and any(
        p.holding is PropertyState.CROSSED for p in verdict.properties
    )
    crossed = ["A threshold of the profile was crossed."] if is_crossed else []
    return " ".join([_MEANS[verdict.status], *crossed, *(f"But {caveat}." for caveat in caveats(verdict))])


def reasons(verdict: Verdict) -> list[str]:
    """Return the reasons of the verdict: violations, crossed thresholds and unknowns."""
    broken = [prop for prop in verdict.properties if prop.holding in (PropertyState.VIOLATED, PropertyState.CROSSED)]
    found = [
        f"{prop.anomaly} {ANOMALIES[prop.anomaly].name}: found {units.times(prop.violation_count)}"
        f" in {prop.opportunities:,} opportunities. {ANOMALIES[prop.anomaly].definition}"
        for prop in sorted(broken, key=lambda prop: prop.holding is PropertyState.CROSSED)
    ]
    unknown = [f"Not known: {reason}" for reason in verdict.unknowns]
    harm = harm_sentence(verdict)
    return [
        *found,
        *verdict.crossed_thresholds,
        *verdict.conduct,
        *unknown,
        *([] if harm is None else [f"{harm}."]),
        *([] if broken else [exercise_sentence(verdict)]),
    ]


def exercise_sentence(verdict: Verdict) -> str:
    """Return how many of the judged anomalies this run gave an opportunity to happen."""
    judged = [prop for prop in verdict.properties if prop.holding is not PropertyState.NO_THRESHOLD]
    tried = [prop for prop in judged if prop.opportunities]
    unlimited = len(verdict.properties) - len(judged)
    return (
        f"{len(tried)} of {len(judged)} judged properties were exercised,"
        f" with {sum(prop.opportunities for prop in tried):,} opportunities to fail in all"
        + (f"; {unlimited} have no threshold, and were not judged." if unlimited else ".")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdResult:
    """One measure against its threshold, both with their units."""

    anomaly: str
    measure: str
    seen: str
    allowed: str
    is_met: bool


def threshold_results(verdict: Verdict) -> list[ThresholdResult]:
    """Return every threshold of the run's profile, in the order of THRESHOLDS; none were set: none."""
    profile = verdict.run.get("profile", {})
    limits = {anomaly: limit for anomaly, name in THRESHOLDS.items() if (limit := profile.get(name)) is not None}
    rows = []
    for anomaly, measure, value in _measures_with_threshold(verdict.measures):
        if anomaly in limits:
            found = "{:.2%}".format if anomaly == "H6" else units.seconds
            limit = limits[anomaly]
            seen, allowed = found(value), f"at most {found(limit)}"
            rows.append(
                ThresholdResult(anomaly=anomaly, measure=measure, seen=seen, allowed=allowed, is_met=value <= limit)
            )
    for prop in verdict.properties:
        if prop.anomaly in _WAITS.keys() & limits.keys():
            seen = f"{units.times(prop.violation_count)} longer" if prop.violation_count else "never longer"
            allowed, is_kept = (
                f"at most {units.seconds(limits[prop.anomaly])}",
                prop.holding is not PropertyState.CROSSED,
            )
            rows.append(
                ThresholdResult(
                    anomaly=prop.anomaly, measure=_WAITS[prop.anomaly], seen=seen, allowed=allowed, is_met=is_kept
                )
            )
    return sorted(rows, key=lambda row: list(THRESHOLDS).index(row.anomaly))


def _measures_with_threshold(measures: Mapping[str, Any]) -> Iterator[tuple[str, str, float]]:
    """Yield each measure with a threshold: the anomaly of a crossing, the name of the measure, and its value."""
    if late := measures.get("lateness_us"):
        yield "H7", "lateness of the generator, p99", late["p99"] / 1e6
    for queue, of in measures.get("queues", {}).items():
        if of["latency_us"]:
            yield "H3", f"latency of {queue}, p99", of["latency_us"]["p99"] / 1e6
        if of.get("drain_seconds") is not None:
            yield "H4", f"drain of {queue} after the last publish", of["drain_seconds"]
    of_faults = [fault["recovered_in_seconds"].values() for fault in measures.get("faults", ())]
    if recovered := [seconds for values in of_faults for seconds in values if seconds is not None]:
        yield "H5", f"recovery of a queue, slowest after {units.plural(len(of_faults), 'fault')}", max(recovered)
    calls = measures.get("calls")
    if calls and calls["count"]:
        yield "H6", f"throttled of {calls['count']:,} calls", calls["throttled"] / calls["count"]


_LOSSES = ("A1", "A3", "E1")  # judged only for groups whose end marker was received
_NAMED_MAX = 3
_ACKNOWLEDGED = "A2"  # the anomaly with an opportunity for each acknowledged message


def caveats(verdict: Verdict) -> list[str]:
    """Return the limits of a VALID verdict, so that nobody reads more into it; empty for any other status.

    They stand beside the word VALID wherever it is shown.
    """
    if verdict.status is not PropertyStatus.VALID:
        return []
    return [*_conduct_caveats(verdict), *_loss_caveats(verdict), *_fault_caveats(verdict), *_speed_caveats(verdict)]


def _conduct_caveats(verdict: Verdict) -> list[str]:
    """Return the caveat about the consumers' conduct, which violates no promise; the sentences are under CONSUMER."""
    count = len(verdict.conduct)
    return [f"your consumer needs mending ({plural(count, 'finding')} under {CONSUMER!r})"] if count else []


def _loss_caveats(verdict: Verdict) -> list[str]:
    of_anomaly = {prop.anomaly: prop for prop in verdict.properties}
    open_ = [
        anomaly
        for anomaly in _LOSSES
        if anomaly in of_anomaly and of_anomaly[anomaly].holding is PropertyState.NOT_EXERCISED
    ]
    if _LOSSES[0] not in open_:
        return []
    why = (
        "nothing marks where a group ends, so no queue is known to be drained"
        if of_anomaly[_ACKNOWLEDGED].opportunities
        else "no acknowledged publish is on record"
    )
    named = ", ".join(f"{anomaly} {ANOMALIES[anomaly].name}" for anomaly in open_)
    return [f"loss was not judged ({named}): {why}"]


def _fault_caveats(verdict: Verdict) -> list[str]:
    missed, crashed = verdict.run.get("missed", ()), verdict.run.get("crashed", ())
    found = []
    if missed:
        of = f"{len(missed)} of {plural(len(verdict.run['faults']), 'fault')}"
        found.append(f"{of} hit nothing, or were to come when the run ended: {_join_first(missed)}")
    if crashed:
        workers = plural(len(crashed), "worker")
        found.append(f"{workers} ended with an error under faults, and another took the place: {_join_first(crashed)}")
    return found


def _join_first(sentences: Sequence[str]) -> str:
    return "; ".join(sentences[:_NAMED_MAX]) + ("; …" if len(sentences) > _NAMED_MAX else "")


def _speed_caveats(verdict: Verdict) -> list[str]:
    profile = verdict.run.get("profile")
    if profile is None or profile.get("latency_seconds_max") is not None:
        return []
    return ["it says nothing about speed: its profile sets no latency_seconds_max"]
