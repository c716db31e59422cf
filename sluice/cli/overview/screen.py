"""`sluice status` as text: lines of at most eighty columns, and as JSON."""

from collections.abc import Iterator
from typing import Any

from sluice.cli.acts import instant_text
from sluice.cli.overview.facts import (
    FLOW_SECONDS,
    ConsumerFacts,
    EnvironmentState,
    InboxFacts,
    Leader,
    RedriveFacts,
    TopicFacts,
)
from sluice.cli.overview.sources import QueueCounts, Unknown
from sluice.messaging.outbox.store import Lag
from sluice.terminal.printable import printable

COLUMNS = 80
_UNKNOWN = "?"
_REASONS_SHOWN = 5
_ROW = "{:<20} {:>8} {:>7} {:>7} {:>6} {:>6} {:>6} {:>6} {:>6}"
_HEADS = ("consumer", "waiting", "flight", "oldest", "tasks", "dead", "undel.", "parked", "gaps")


def lines_of(facts: EnvironmentState, before: EnvironmentState | None = None) -> Iterator[str]:
    """Yield the lines of the screen; with an earlier state `before`, each backlog is shown with its change."""
    yield from (fit(line) for line in _lines(facts, before))


def fit(line: str) -> str:
    """Return a line without control characters, cut at the width of the screen."""
    shown = printable(line)
    return shown if len(shown) <= COLUMNS else f"{shown[: COLUMNS - 1]}…"


def _lines(facts: EnvironmentState, before: EnvironmentState | None) -> Iterator[str]:
    """Yield the lines of the screen, of any length; `reasons` collects why values are unknown, for its end."""
    reasons: dict[str, str] = {}
    yield f"{facts.environment} at {instant_text(facts.now_us)}"
    for topic in facts.topics:
        topic_before = next((earlier for earlier in _topics(before) if earlier.topic == topic.topic), None)
        yield from _topic_lines(topic, reasons, topic_before)
    yield ""
    yield _ROW.format(*_HEADS)
    earlier = {} if before is None else {each.consumer: each for each in before.consumers}
    for consumer in facts.consumers:
        yield _consumer_line(consumer, earlier.get(consumer.consumer), reasons)
    yield from _reason_lines(facts)
    redrives = [(each.consumer, each.last_redrive) for each in facts.consumers if each.last_redrive is not None]
    for name, redrive in redrives:
        if isinstance(redrive, Unknown):
            reasons.setdefault(redrive.reason, f"last redrive of {name}")
        else:
            yield ""
            yield from _redrive_lines(name, redrive)
    yield ""
    yield f"waits for a person: {len(facts.needs) or 'nothing that is known'}"
    for what, command in facts.needs:
        yield f"  {what}"
        yield f"    {command}"
    if reasons:
        yield ""
        yield f"not known ({_UNKNOWN}):"
        yield from (f"  {name}: {reason}" for reason, name in reasons.items())


def _topics(facts: EnvironmentState | None) -> list[TopicFacts]:
    """Return the topics of a state; none where there is no state."""
    return [] if facts is None else facts.topics


def _topic_lines(topic: TopicFacts, reasons: dict[str, str], before: TopicFacts | None) -> Iterator[str]:
    """Yield the lines of a topic's outbox and relay; add to `reasons` why a value is unknown."""
    yield f"outbox   {topic.topic}"
    if isinstance(topic.pending, Unknown) or isinstance(topic.quarantined, Unknown):
        assert isinstance(topic.pending, Unknown), "pending and quarantined are read by one call"
        reasons.setdefault(topic.pending.reason, "outbox and relay")
        yield f"         backlog {_UNKNOWN}, lag {_UNKNOWN}, quarantined {_UNKNOWN}, leader {_UNKNOWN}"
        return
    change = _change(topic.pending, None if before is None else before.pending)
    lag = _UNKNOWN if isinstance(topic.lag_seconds, Unknown) else span_text(topic.lag_seconds)
    quarantined = Lag.count_text(topic.quarantined)
    yield f"         backlog {Lag.count_text(topic.pending)}{change}, lag {lag}, quarantined {quarantined}"
    if isinstance(topic.flow, Unknown):
        reasons.setdefault(topic.flow.reason, f"flow of {topic.topic}")
    else:
        growth = topic.flow.growth
        trend = "even" if growth == 0 else f"{'growing' if growth > 0 else 'shrinking'} by {abs(growth)}"
        yield f"         in {FLOW_SECONDS} s: {topic.flow.committed} committed, {topic.flow.sent} sent: {trend}"
    if isinstance(topic.leader, Unknown):
        reasons.setdefault(topic.leader.reason, f"leader of {topic.topic}")
        yield f"relay    {_UNKNOWN}"
    else:
        yield f"relay    {leader_text(topic.leader)}"


def leader_text(leader: Leader | None) -> str:
    """Return in words which relay leads or led last, and when it wrote last."""
    if leader is None:
        return "none has ever led"
    if leader.has_given_back:
        return f"none leads; {leader.owner} led last, and gave the lease back"
    renewed = f"wrote {span_text(leader.renewed_seconds)} ago"
    if not leader.is_leading:
        return f"none leads; {leader.owner} led last, {renewed}"
    since = "" if leader.led_seconds is None else f" for {span_text(leader.led_seconds)}"
    return f"{leader.owner} leads{since}, {renewed}, token {leader.token}"


def _consumer_line(consumer: ConsumerFacts, before: ConsumerFacts | None, reasons: dict[str, str]) -> str:
    """Return a consumer's row of the table; add to `reasons` why a value is unknown."""
    found, queue = consumer.inbox, consumer.queue
    if isinstance(queue, QueueCounts):
        visible = queue.visible + queue.delayed
        visible_before = (
            None if before is None or isinstance(before.queue, Unknown) else before.queue.visible + before.queue.delayed
        )
        waiting, flight = f"{visible}{_change(visible, visible_before)}", str(queue.in_flight)
    else:
        reasons.setdefault(queue.reason, f"queue of {consumer.consumer}")
        waiting = flight = _UNKNOWN
    oldest = "-"
    if isinstance(consumer.oldest_seconds, Unknown):
        reasons.setdefault(consumer.oldest_seconds.reason, f"oldest message of {consumer.consumer}")
        oldest = _UNKNOWN
    elif consumer.oldest_seconds is not None:
        oldest = span_text(consumer.oldest_seconds)
    tasks = "-"
    if isinstance(consumer.tasks, Unknown):
        reasons.setdefault(consumer.tasks.reason, f"tasks of {consumer.consumer}")
        tasks = _UNKNOWN
    elif consumer.tasks is not None:
        tasks = f"{consumer.tasks[0]}/{consumer.tasks[1]}"
    dead_letter_counts = []
    for kind, counts in (("DLQ", consumer.dead_letters), ("undelivered DLQ", consumer.undelivered)):
        if isinstance(counts, Unknown):
            reasons.setdefault(counts.reason, f"{kind} of {consumer.consumer}")
        dead_letter_counts.append(_UNKNOWN if isinstance(counts, Unknown) else str(counts.total))
    if isinstance(found, Unknown):
        reasons.setdefault(found.reason, f"inbox of {consumer.consumer}")
    waits = (_UNKNOWN, _UNKNOWN) if isinstance(found, Unknown) else (str(found.parked_groups), str(found.missing))
    name = consumer.consumer if len(consumer.consumer) <= 20 else f"{consumer.consumer[:19]}…"
    return _ROW.format(name, waiting, flight, oldest, tasks, *dead_letter_counts, *waits)


def _change(value: int, before: int | Unknown | None) -> str:
    """Return the change of a count in brackets; empty where it has not changed or its earlier value is unknown."""
    if before is None or isinstance(before, Unknown) or value == before:
        return ""
    return f"({value - before:+d})"


def _reason_lines(facts: EnvironmentState) -> Iterator[str]:
    """Yield the lines that list each consumer's dead letters by reason."""
    known = [(each.consumer, each.inbox) for each in facts.consumers if isinstance(each.inbox, InboxFacts)]
    if any(found.reasons for _, found in known):
        yield ""
        yield "dead letters by reason"
    for name, found in known:
        for reason in found.reasons[:_REASONS_SHOWN]:
            yield f"  {name}: {reason.summarize(COLUMNS - len(f'  {name}: '))}"
        if len(found.reasons) > _REASONS_SHOWN:
            yield f"  {name}: {len(found.reasons) - _REASONS_SHOWN} more reasons: sluice dlq ls --consumer {name}"


def _redrive_lines(name: str, redrive: RedriveFacts) -> Iterator[str]:
    """Yield the lines about the last redrive of a consumer: when, by whom, and what became of the messages."""
    actor = "" if redrive.actor is None else f" by {redrive.actor}"
    yield f"last redrive of {name}: {instant_text(redrive.begun_us)}, {redrive.engine}{actor}"
    left = "".join(f", {count} left ({why})" for why, count in redrive.left.items())
    states = ", ".join(f"{count} {state}" for state, count in redrive.states.items())
    yield f"  {redrive.moved} brought back{left}{f'; now {states}' if states else ''}"
    if redrive.note is not None:
        yield f"  {redrive.note}"


def span_text(seconds: float) -> str:
    """Return a span of time in at most seven characters: 0.4 s, 41 s, 12 min, 3 h, 9 d."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def fields_of(facts: EnvironmentState) -> dict[str, Any]:
    """Return the state as JSON fields; a value that is not known is `{"unknown": reason}`."""
    return {
        "environment": facts.environment,
        "at": instant_text(facts.now_us),
        "topics": [_topic_fields(topic) for topic in facts.topics],
        "consumers": [_consumer_fields(consumer) for consumer in facts.consumers],
        "needs": [{"what": what, "next": command} for what, command in facts.needs],
        "unknown": facts.unknown,
    }


def _topic_fields(topic: TopicFacts) -> dict[str, Any]:
    return {
        "topic": topic.topic,
        "pending": _plain(topic.pending),
        "quarantined": _plain(topic.quarantined),
        "lag_seconds": _plain(topic.lag_seconds),
        "flow": _plain(
            topic.flow, lambda flow: {"seconds": FLOW_SECONDS, "committed": flow.committed, "sent": flow.sent}
        ),
        "leader": _plain(
            topic.leader,
            lambda leader: {
                "owner": leader.owner,
                "token": leader.token,
                "since": None if leader.since_us is None else instant_text(leader.since_us),
                "renewed_seconds": leader.renewed_seconds,
                "is_leading": leader.is_leading,
            },
        ),
    }


def _consumer_fields(consumer: ConsumerFacts) -> dict[str, Any]:
    return {
        "consumer": consumer.consumer,
        "queue": _plain(consumer.queue, lambda queue: queue.fields),
        "dead_letters": _plain(consumer.dead_letters, lambda queue: queue.fields),
        "undelivered": _plain(consumer.undelivered, lambda queue: queue.fields),
        "oldest_seconds": _plain(consumer.oldest_seconds),
        "visible_before": _plain(consumer.visible_before),
        "tasks": _plain(consumer.tasks, lambda tasks: {"running": tasks[0], "desired": tasks[1]}),
        "inbox": _plain(consumer.inbox, _inbox_fields),
        "last_redrive": _plain(consumer.last_redrive, _redrive_fields),
    }


def _inbox_fields(found: InboxFacts) -> dict[str, Any]:
    reasons = [
        {"text": each.text, "count": each.count, "groups": each.groups, "since": instant_text(each.since_us)}
        for each in found.reasons
    ]
    return {
        "parked_groups": found.parked_groups,
        "blocked_groups": found.blocked_groups,
        "parked_messages": found.parked_messages,
        "held_messages": found.held_messages,
        "dead": found.dead,
        "missing": found.missing,
        "is_redrive_off": found.is_redrive_off,
        "pause": None
        if found.pause is None
        else {
            "since": instant_text(found.pause.paused_at_us),
            "actor": found.pause.actor,
            "reason": found.pause.reason,
        },
        "reasons": reasons,
    }


def _redrive_fields(redrive: RedriveFacts) -> dict[str, Any]:
    return {
        "engine": redrive.engine,
        "actor": redrive.actor,
        "begun_at": instant_text(redrive.begun_us),
        "moved": redrive.moved,
        "left": dict(redrive.left),
        "states": dict(redrive.states),
        "note": redrive.note,
    }


def _plain(value: Any, fields: Any = None) -> Any:
    """Return a value for JSON: an unknown value with its reason, None as it is, else what `fields` makes of it."""
    if isinstance(value, Unknown):
        return value.as_json()
    return value if value is None or fields is None else fields(value)
