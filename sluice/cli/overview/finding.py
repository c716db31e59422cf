"""`sluice find`: one event, or one group, in the outbox, at each consumer, and in the audits."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import Connection, func, select

from sluice.cli.acts import instant_text
from sluice.cli.overview.sources import QueueCounts, Sources, Unknown, chosen_consumers, opening, read
from sluice.clock import SystemClock
from sluice.declaration import Consumer, Environment, naming
from sluice.messaging.database import audit
from sluice.messaging.database.choice import RowChoice
from sluice.messaging.envelope import decode
from sluice.messaging.inbox import tables as inbox
from sluice.messaging.inbox.pause import Pause, find_pause
from sluice.messaging.outbox import tables as outbox
from sluice.messaging.outbox.tables import SENT
from sluice.messaging.reconciliation.routes import SETTLED_SECONDS
from sluice.messaging.reconciliation.states import GroupSnapshot, NumberState, has_rows, read_groups
from sluice.terminal import output
from sluice.terminal.exits import COULD_NOT, PARTLY

_EVENTS_MAX = 10
_HANDLED = (NumberState.HANDLED, NumberState.FILLED, NumberState.REDRIVEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A number of a group, and the id of the event that has this number; None where the event is not known."""

    group_id: str
    epoch: int
    seq: int
    event_id: str | None


def show(
    environment: Environment,
    *,
    sought: str,
    consumer_name: str | None,
    dsn: str | None,
    inboxes: tuple[str, ...],
    endpoint_url: str | None,
    most: int,
    as_json: bool,
) -> None:
    """Print the event whose id is `sought`, and the group whose name is `sought`; exit with an error if there is none.

    The other arguments are the options of `sluice find`.
    """
    consumers = chosen_consumers(environment, consumer_name)
    with opening(environment, dsn, inboxes, endpoint_url) as sources:
        found, unfound = search(sources, consumers, sought, most=most)
    if as_json:
        output.as_json(found)
    else:
        for event in found["events"]:
            _print_event(event)
        if found["group"] is not None:
            _print_group(found["group"])
        for name, reason in found["unknown"].items():
            output.line(f"not known: {name} ({reason})", is_error=True)
    if unfound is not None:
        output.line(unfound.sentence, is_error=True)
        sys.exit(COULD_NOT if unfound.is_blind else PARTLY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfound:
    """The sentence about a search that found nothing; `is_blind` says that no database could be read."""

    is_blind: bool
    sentence: str


def search(
    sources: Sources, consumers: Sequence[Consumer], sought: str, *, most: int
) -> tuple[dict[str, Any], Unfound | None]:
    """Return the JSON fields of the event with this id and the group with this name; without either, also a reason."""
    looked = _Search(sources, consumers, most)
    events = [looked.event_fields(place, row) for place, row in looked.events(sought)]
    group = looked.group_fields(sought)
    found = {"sought": sought, "events": events, "group": group, "unknown": looked.unknown}
    if events or group is not None:
        return found, None
    if looked.is_blind:
        return found, Unfound(is_blind=True, sentence=f"no database could be read, so nothing is known of {sought}")
    sentence = (
        f"neither an event nor a group {sought!r} is known; what was sent is deleted after a while (`relay --keep`),"
        " and an inbox keeps only positions of groups: try the name of its group"
    )
    return found, Unfound(is_blind=False, sentence=sentence)


class _Search:
    """One search in the outbox and in the inboxes of some consumers.

    `unknown` has the reason for each database that could not be read, by its name.
    """

    def __init__(self, sources: Sources, consumers: Sequence[Consumer], most: int) -> None:
        self._sources, self._consumers, self._most = sources, consumers, most
        self._queues: dict[str, QueueCounts | Unknown] = {}
        self.unknown: dict[str, str] = {}
        self._answer_count = 0  # of databases that could be read

    @property
    def is_blind(self) -> bool:
        """Return whether no database could be read."""
        return self._answer_count == 0

    def _keep_known[Answer](self, name: str, answer: Answer | Unknown) -> Answer | None:
        """Return a database's answer; if it is unknown, store the reason in `unknown` and return None."""
        if isinstance(answer, Unknown):
            self.unknown[name] = answer.reason
            return None
        self._answer_count += 1
        return answer

    def events(self, sought: str) -> list[tuple[Place, dict[str, Any] | None]]:
        """Return the numbers of an event, each with its row of the outbox; None where the outbox has no row of it."""
        rows = self._keep_known("outbox", read(self._sources.outbox, partial(_outbox_rows, event_id=sought)))
        if rows:
            return [(_place_of(row), row) for row in rows]
        places: dict[Place, None] = {}
        for consumer in self._consumers:
            engine = self._sources.inboxes[consumer.name]
            look = partial(_inbox_places, consumer=consumer.name, event_id=sought)
            found = self._keep_known(f"inbox of {consumer.name}", read(engine, look))
            places |= dict.fromkeys(found or ())
        return [(place, None) for place in list(places)[:_EVENTS_MAX]]

    def event_fields(self, place: Place, row: dict[str, Any] | None) -> dict[str, Any]:
        """Return the JSON fields of an event: its row of the outbox, its state at each consumer, and the audit."""
        topics = {naming.topic_name(self._sources.environment, topic.name): topic for topic in self._topics()}
        topic = None if row is None else topics.get(row["topic"])
        receiving_consumers = self._consumers
        if topic is not None:
            of_topic = self._sources.environment.consumers_of(topic)
            receiving_consumers = [consumer for consumer in self._consumers if consumer in of_topic]
        sent_us = None if row is None else row["sent_at_us"]
        is_sent = row is None or row["status"] == SENT
        left_out = ("id", "body", "sent_at_us")
        outbox_fields = None if row is None else {name: value for name, value in row.items() if name not in left_out}
        return {
            "group": place.group_id,
            "epoch": place.epoch,
            "seq": place.seq,
            "event_id": place.event_id,
            "outbox": outbox_fields,
            "consumers": [
                self._consumer_fields(consumer, place, is_sent=is_sent, sent_us=sent_us)
                for consumer in receiving_consumers
            ],
            "audit": self._acts(place.group_id, place.seq),
        }

    def _topics(self) -> Iterable[Any]:
        return self._sources.environment.topics

    def _consumer_fields(
        self, consumer: Consumer, place: Place, *, is_sent: bool, sent_us: int | None
    ) -> dict[str, Any]:
        """Return the JSON fields of a number's state at a consumer.

        Where a queue or DLQ may have the message, the counts of the queues are added, and where it may be.
        """
        snapshot = self._snapshot(consumer, place.group_id)
        if isinstance(snapshot, Unknown):
            return self._unknown_fields(consumer, snapshot)
        state = snapshot.state_of(place.epoch, place.seq)
        fields: dict[str, Any] = {"consumer": consumer.name, "state": state.value, "position": _position(snapshot)}
        exception = snapshot.exception_of(place.epoch, place.seq)
        if exception is not None:
            fields |= {
                "since": instant_text(exception.seen_at_us),
                "receive_count": exception.receive_count,
                "reason": exception.reason,
                "closed_at": None if exception.closed_at_us is None else instant_text(exception.closed_at_us),
            }
        if state in _HANDLED:
            fields |= _handled_fields(snapshot, place, exception)
        if state not in _HANDLED:
            fields["pause"] = self._pause_text(consumer)
        if state in (NumberState.PARKED, NumberState.HELD):
            fields |= self._parked_fields(consumer, place)
        if state in (NumberState.AWAITED, NumberState.GAP, NumberState.DEAD, NumberState.REFUSED) and is_sent:
            fields["queues"] = self._queue_fields(consumer)
            fields |= self._whereabouts(consumer, sent_us)
        return fields

    def _pause_text(self, consumer: Consumer) -> str | None:
        """Return since when, by whom and why a consumer is paused; None if it is not."""
        found = read(self._sources.inboxes[consumer.name], partial(find_pause, consumer=consumer.name))
        return found.describe() if isinstance(found, Pause) else None

    def _unknown_fields(self, consumer: Consumer, unknown: Unknown) -> dict[str, Any]:
        """Return the JSON fields of a consumer whose inbox could not be read."""
        return {"consumer": consumer.name, "unknown": unknown.reason, "queues": self._queue_fields(consumer)}

    def _parked_fields(self, consumer: Consumer, place: Place) -> dict[str, Any]:
        """Return the JSON fields of a message that the inbox stores."""
        p = inbox.parked.c
        here = (p.consumer == consumer.name, p.group_id == place.group_id, p.epoch == place.epoch, p.seq == place.seq)
        columns = select(p.attempts, p.last_error, p.parked_at_us)
        row = read(
            self._sources.inboxes[consumer.name],
            lambda connection: connection.execute(columns.where(*here)).one_or_none(),
        )
        if row is None or isinstance(row, Unknown):  # the message was handled meanwhile
            return {}
        return {"since": instant_text(row.parked_at_us), "attempt": row.attempts, "reason": row.last_error}

    def _snapshot(self, consumer: Consumer, group_id: str) -> GroupSnapshot | Unknown:
        """Return a consumer's inbox rows of a group; unknown if the database has no row of this consumer."""
        name = consumer.name

        def look(connection: Connection) -> GroupSnapshot | Unknown:
            if not has_rows(connection, name):
                return Unknown(f"nothing of {name} is in this database; if its inbox has another one, give --inbox")
            return read_groups(connection, name, [group_id])[group_id]

        return read(self._sources.inboxes[name], look)

    def _queue_names(self, consumer: Consumer) -> dict[str, str]:
        """Return the names of a consumer's queue and of its two DLQs, by their JSON fields."""
        environment = self._sources.environment
        return {
            "queue": naming.queue_name(environment, consumer),
            "dlq": naming.dead_letter_queue_name(environment, consumer),
            "undelivered_dlq": naming.undelivered_queue_name(environment, consumer),
        }

    def _queue_fields(self, consumer: Consumer) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for kind, name in self._queue_names(consumer).items():
            if name not in self._queues:
                self._queues[name] = self._sources.queue(name)
            counts = self._queues[name]
            fields[kind] = counts.as_json() if isinstance(counts, Unknown) else counts.fields
        return fields

    def _whereabouts(self, consumer: Consumer, sent_us: int | None) -> dict[str, Any]:
        """Return the JSON fields of where a message is that a consumer has not handled, by the counts of its queues.

        The queues are not received from, because a receive would hide the message and count as an attempt.

        Returns:
            `is_in_queue`, which is False, or None if it is unknown, and `whereabouts`, a sentence.
        """
        names = self._queue_names(consumer)
        found = [(name, self._queues[name]) for name in names.values()]
        unread = [name for name, counts in found if isinstance(counts, Unknown)]
        held = [(name, counts.total) for name, counts in found if isinstance(counts, QueueCounts) and counts.total]
        if unread:
            return {"is_in_queue": None, "whereabouts": f"not known: {', '.join(unread)} cannot be read"}
        if held:
            counted = " or ".join(f"the about {total} of {name}" for name, total in held)
            return {
                "is_in_queue": None,
                "whereabouts": f"not known: it may be among {counted}; a receive would hide it and count as an attempt",
            }
        if sent_us is None or SystemClock().now_us() - sent_us < SETTLED_SECONDS * 1_000_000:
            late = f"not known: SQS counts no message in its queues, and may count late by {SETTLED_SECONDS} s"
            return {"is_in_queue": None, "whereabouts": late}
        return {"is_in_queue": False, "whereabouts": "in none of its queues, as SQS counts; see `sluice outbox verify`"}

    def _acts(self, group_id: str, seq: int | None) -> list[dict[str, Any]]:
        """Return the JSON fields of operators' acts on a group, or on one number of it, newest first."""
        choice = RowChoice(groups=frozenset({group_id}))  # runs that brought back one of its messages, too
        found: list[dict[str, Any]] = []
        environment = self._sources.environment
        owners = [(outbox.audit.c.topic, naming.topic_name(environment, topic.name)) for topic in self._topics()]
        engines = [(self._sources.outbox, *owner) for owner in owners]
        engines += [(self._sources.inboxes[each.name], inbox.audit.c.consumer, each.name) for each in self._consumers]
        for engine, owner, name in engines:
            acts = read(engine, partial(audit.acts, owner=owner, name=name, choice=choice, most=self._most))
            about = [] if isinstance(acts, Unknown) else [act for act in acts if _is_about(act, group_id, seq)]
            found += [_act_fields(act, name) for act in about]
        return sorted(found, key=lambda act: act["at"], reverse=True)[: self._most]

    def group_fields(self, group_id: str) -> dict[str, Any] | None:
        """Return the JSON fields of a group; None where neither the outbox nor an inbox has a row of it."""
        counters = self._keep_known("outbox", read(self._sources.outbox, partial(_counters, group_id=group_id)))
        snapshots = {consumer.name: self._snapshot(consumer, group_id) for consumer in self._consumers}
        known = [self._keep_known(f"inbox of {name}", snapshot) for name, snapshot in snapshots.items()]
        if not counters and not any(each.row or each.exceptions or each.parked for each in known if each is not None):
            return None
        counters_by_topic = {counter["topic"]: counter for counter in counters or ()}
        return {
            "group": group_id,
            "outbox": counters,
            "consumers": [
                self._unknown_fields(consumer, snapshot)
                if isinstance(snapshot := snapshots[consumer.name], Unknown)
                else self._group_consumer_fields(consumer, snapshot, counters_by_topic)
                for consumer in self._consumers
            ],
            "audit": self._acts(group_id, None),
        }

    def _group_consumer_fields(
        self, consumer: Consumer, snapshot: GroupSnapshot, counters: dict[str, dict[str, Any]]
    ) -> dict[str, Any]:
        """Return the JSON fields of a group's state at a consumer.

        `behind` is the last number that the outbox gave minus the last that the consumer received. Across two epochs
        the numbers cannot be compared, and it is None.
        """
        counter = counters.get(naming.topic_name(self._sources.environment, consumer.topic))
        position = _position(snapshot)
        is_same_epoch = counter is not None and position is not None and counter["epoch"] == position["epoch"]
        row = snapshot.row
        open_exceptions = [each for each in snapshot.exceptions if each.closed_at_us is None]
        return {
            "consumer": consumer.name,
            "position": position,
            "behind": max(0, counter["last_seq"] - position["last_seq"])
            if is_same_epoch and counter and position
            else None,
            "parked_since": None if row is None or row.parked_at_us is None else instant_text(row.parked_at_us),
            "awaits_seq": None if row is None or row.parked_at_us is None else row.awaits_seq,
            "set_aside": sorted(seq for _, seq in snapshot.parked)[: self._most],
            "held": sorted(seq for (_, seq), is_held in snapshot.parked.items() if is_held)[: self._most],
            "open": [
                {
                    "state": each.state,
                    "epoch": each.epoch,
                    "first": each.seq,
                    "last": each.through,
                    "since": instant_text(each.seen_at_us),
                    "receive_count": each.receive_count,
                    "reason": each.reason,
                }
                for each in sorted(open_exceptions, key=lambda each: (each.epoch, each.seq))[: self._most]
            ],
            "queues": self._queue_fields(consumer),
            "pause": self._pause_text(consumer),
        }


def _outbox_rows(connection: Connection, event_id: str) -> list[dict[str, Any]]:
    """Return the outbox's rows of an event, as JSON fields and with the body; one row for each topic."""
    rows = connection.execute(
        select(outbox.messages).where(outbox.messages.c.event_id == event_id).limit(_EVENTS_MAX)
    ).mappings()
    return [
        {
            "id": row["id"],
            "topic": row["topic"],
            "group_id": row["group_id"],
            "group_seq": row["group_seq"],
            "event_id": row["event_id"],
            "type": row["type"],
            "status": row["status"],
            "attempts": row["attempts"],
            "last_error": row["last_error"],
            "committed_at": instant_text(row["created_at_us"]),
            "sent_at": None if row["sent_at_us"] is None else instant_text(row["sent_at_us"]),
            "sent_at_us": row["sent_at_us"],
            "sns_message_id": row["sns_message_id"],
            "sns_sequence_number": row["sns_sequence_number"],
            "body": row["body"],
        }
        for row in rows
    ]


def _place_of(row: dict[str, Any]) -> Place:
    """Return the number that a row of the outbox gives its event; only the body has the epoch."""
    epoch = decode(row["body"]).epoch
    return Place(group_id=row["group_id"], epoch=epoch, seq=row["group_seq"], event_id=row["event_id"])


def _inbox_places(connection: Connection, consumer: str, event_id: str) -> list[Place]:
    """Return the numbers of an event that an inbox still has: it is dead, stored, or the last of its group."""
    e, p, g = inbox.exceptions.c, inbox.parked.c, inbox.groups.c
    statements = (
        select(e.group_id, e.epoch, e.seq).where(e.consumer == consumer, e.event_id == event_id),
        select(p.group_id, p.epoch, p.seq).where(p.consumer == consumer, p.event_id == event_id),
        select(g.group_id, g.epoch, g.last_seq).where(g.consumer == consumer, g.last_event_id == event_id),
    )
    rows = [row for statement in statements for row in connection.execute(statement.limit(_EVENTS_MAX))]
    return [Place(group_id=group_id, epoch=epoch, seq=seq, event_id=event_id) for group_id, epoch, seq in rows]


def _counters(connection: Connection, group_id: str) -> list[dict[str, Any]]:
    """Return the JSON fields of a group's counter in each topic, with the number of its messages by status."""
    m = outbox.messages.c
    rows = connection.execute(select(outbox.groups).where(outbox.groups.c.group_id == group_id)).all()
    found = []
    for row in rows:
        here = (m.topic == row.topic, m.group_id == group_id)
        counts = connection.execute(select(m.status, func.count().label("count")).where(*here).group_by(m.status)).all()
        waiting = select(func.min(m.created_at_us)).where(*here, m.status != SENT)
        oldest_us = connection.execute(waiting).scalar()
        found.append(
            {
                "topic": row.topic,
                "epoch": row.epoch,
                "first_seq": row.first_seq,
                "last_seq": row.last_seq,
                "last_committed_at": instant_text(row.updated_at_us),
                "messages": {row.status: row.count for row in counts},
                "waits_since": None if oldest_us is None else instant_text(oldest_us),
            }
        )
    return found


def _position(snapshot: GroupSnapshot) -> dict[str, Any] | None:
    """Return the JSON fields of how far a group is at a consumer; None where nothing of it was received."""
    row = snapshot.row
    if row is None:
        return None
    return {
        "epoch": row.epoch,
        "first_seq": row.first_seq,
        "last_seq": row.last_seq,
        "last_event_id": row.last_event_id,
        "last_message_at": instant_text(row.updated_at_us),
    }


def _handled_fields(snapshot: GroupSnapshot, place: Place, exception: Any) -> dict[str, Any]:
    """Return the JSON fields of when a number was handled, at which attempt and by which worker.

    The inbox has this for the last handled number of a group and for numbers with an exception. For other numbers it
    is only known before which instant they were handled. Rows of an earlier version have neither attempt nor worker.
    """
    row = snapshot.row
    if exception is not None and exception.closed_at_us is not None:
        return _handling_fields(exception, exception.closed_at_us)
    if row is None:
        return {}
    handled = (row.handled_epoch or 0, row.handled_seq or 0)
    if handled == (place.epoch, place.seq):
        return _handling_fields(row, row.handled_at_us)
    is_before = handled > (place.epoch, place.seq)
    return {"handled_before": instant_text(row.handled_at_us if is_before else row.updated_at_us)}


def _handling_fields(row: Any, at_us: int) -> dict[str, Any]:
    return {"handled_at": instant_text(at_us), "handled_attempt": row.handled_attempt, "worker": row.handled_by}


def _is_about(act: dict[str, Any], group_id: str, seq: int | None) -> bool:
    """Return whether an act on a group is about this number of it; None is any."""
    own = act["seq"] if "seq" in act else act["group_seq"]
    if seq is None or own is not None:
        return seq is None or own == seq
    return act["group_id"] is not None or [group_id, seq] in [
        [group, moved_seq] for group, _, moved_seq in audit.moved_numbers(act["detail"])
    ]


def _act_fields(act: dict[str, Any], owner: str) -> dict[str, Any]:
    """Return the JSON fields of an operator's act, from the audit of the outbox (`owner` is a topic) or of an inbox."""
    return {
        "at": instant_text(act["at_us"]),
        "actor": act["actor"],
        "action": act["action"],
        "of": owner,
        "seq": act["seq"] if "seq" in act else act["group_seq"],
        "reason": act["reason"],
    }


def _print_event(event: dict[str, Any]) -> None:
    """Print the fields of `_Search.event_fields`."""
    named = "" if event["event_id"] is None else f", event {event['event_id']}"
    output.wrapped_line(f"number {event['seq']} of group {event['group']}, epoch {event['epoch']}{named}")
    row = event["outbox"]
    if row is None:
        output.wrapped_line("  outbox       it is not there: deleted after it was sent, or of another producer")
    else:
        output.wrapped_line(
            f"  outbox       {row['type']} for {row['topic']}, committed {row['committed_at']}; {_sent_text(row)}"
        )
    for fields in event["consumers"]:
        output.wrapped_line(f"  {fields['consumer']:<12} {_consumer_text(fields)}")
    _print_acts(event["audit"])


def _sent_text(row: dict[str, Any]) -> str:
    """Return in words whether and when an outbox's row was published."""
    tries = f"tried {row['attempts']} time{'' if row['attempts'] == 1 else 's'}"
    if row["status"] == SENT and row["sns_message_id"] is None:
        return "marked as sent without a message id of SNS: no relay published it"
    if row["status"] == SENT:
        return f"published {row['sent_at']} as SNS message {row['sns_message_id']}, {tries}"
    error = "" if row["last_error"] is None else f": {row['last_error']}"
    return f"{row['status']}, {tries}{error}"


def _consumer_text(fields: dict[str, Any]) -> str:
    """Return a number's state at a consumer in words, from the fields of `_Search._consumer_fields`."""
    if "unknown" in fields:
        return f"not known: {fields['unknown']}{_queues_text(fields['queues'])}"
    text = str(fields["state"])
    if "handled_at" in fields:
        text += f" {fields['handled_at']}"
        text += "" if fields["handled_attempt"] is None else f" at attempt {fields['handled_attempt']}"
        text += "" if fields["worker"] is None else f" by {fields['worker']}"
    if "handled_before" in fields:
        text += f" before {fields['handled_before']}"
    if fields.get("closed_at") and fields["state"] not in _HANDLED:
        text += f" {fields['closed_at']}"
    elif fields["state"] not in _HANDLED and "since" in fields:
        text += f" since {fields['since']}"
    for name, word in (("attempt", "attempt"), ("receive_count", "receive")):
        if fields.get(name) is not None and "handled_at" not in fields:
            text += f", {word} {fields[name]}"
    if fields.get("reason"):
        text += f": {fields['reason']}"
    if fields.get("pause"):
        text += f"; the consumer is paused {fields['pause']}"
    position = fields["position"]
    text += "; nothing of its group has come" if position is None else f"; its group is at {position['last_seq']}"
    text += _queues_text(fields.get("queues"))
    return f"{text}; where: {fields['whereabouts']}" if "whereabouts" in fields else text


def _queues_text(queues: dict[str, Any] | None) -> str:
    """Return the counts of a consumer's queues in words, to be added to a sentence; empty for None."""
    if queues is None:
        return ""
    names = {"queue": "queue", "dlq": "DLQ", "undelivered_dlq": "undelivered DLQ"}
    return "; " + ", ".join(f"{names[kind]} {_count_text(counts)}" for kind, counts in queues.items())


def _count_text(counts: dict[str, Any]) -> str:
    """Return the counts of one queue in words."""
    if "unknown" in counts:
        return f"not known ({counts['unknown']})"
    flight = f" ({counts['in_flight']} in flight)" if counts["in_flight"] else ""
    return f"about {sum(counts.values())}{flight}"


def _print_acts(acts: list[dict[str, Any]]) -> None:
    for act in acts:
        number = "" if act["seq"] is None else f" {act['seq']}"
        output.wrapped_line(
            f"  audit        {act['at']} {act['actor']}: {act['action']}{number} ({act['of']}): {act['reason']}"
        )


def _print_group(group: dict[str, Any]) -> None:
    """Print the fields of `_Search.group_fields`."""
    output.wrapped_line(f"group {group['group']}")
    if group["outbox"] is not None and not group["outbox"]:
        output.wrapped_line("  outbox       it has no counter: never used, or forgotten")
    for counter in group["outbox"] or ():
        counts = ", ".join(f"{count} {status}" for status, count in counter["messages"].items()) or "no message is kept"
        waits = "" if counter["waits_since"] is None else f"; waits since {counter['waits_since']}"
        numbers = f"epoch {counter['epoch']}, numbers {counter['first_seq']} to {counter['last_seq']}"
        output.wrapped_line(f"  outbox       {counter['topic']}: {numbers}; {counts}{waits}")
    for fields in group["consumers"]:
        output.wrapped_line(f"  {fields['consumer']:<12} {_group_text(fields)}{_queues_text(fields['queues'])}")
        if "unknown" in fields:
            continue
        for each in fields["open"]:
            state = "missing" if each["state"] == inbox.GAP else each["state"]
            numbers = str(each["first"]) if each["first"] == each["last"] else f"{each['first']} to {each['last']}"
            why = "" if each["reason"] is None else f": {each['reason']}"
            output.wrapped_line(f"    {state:<10} number {numbers} of epoch {each['epoch']} since {each['since']}{why}")
        if fields["held"]:
            output.wrapped_line(f"    held       numbers {', '.join(map(str, fields['held']))}: see `dlq ls`")
    _print_acts(group["audit"])


def _group_text(fields: dict[str, Any]) -> str:
    """Return a group's state at a consumer in words, from the fields of `_Search._group_consumer_fields`."""
    if "unknown" in fields:
        return f"not known: {fields['unknown']}"
    position = fields["position"]
    paused = f"; the consumer is paused {fields['pause']}" if fields["pause"] else ""
    if position is None:
        return f"nothing of it has come{paused}"
    text = f"at number {position['last_seq']} of epoch {position['epoch']}, last message {position['last_message_at']}"
    if fields["behind"]:
        text += f", {fields['behind']} behind"
    if fields["parked_since"] is not None:
        awaits = "" if fields["awaits_seq"] is None else f", waits for number {fields['awaits_seq']}"
        text += f"; parked since {fields['parked_since']}{awaits}, {len(fields['set_aside'])} set aside"
    return f"{text}{paused}"
