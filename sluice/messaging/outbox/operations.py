"""Operators' actions on an outbox. Each concerns one message, has a reason, and is audited with it.

A message goes from pending to sent, or to quarantined if SNS refuses it for good; then its group waits. After the cause
is mended, `unquarantine` lets the relay try it again. `skip` gives it up: a tombstone with its number is published in
its place, so that consumers see no hole. `resend` publishes a sent message again under a fresh deduplication id, for
consumers that lost it; the inboxes of the other consumers drop the repeat.
"""

import json
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, case, delete, func, literal_column, select, tuple_, update

from sluice.messaging.database import engines
from sluice.messaging.database.audit import Operator
from sluice.messaging.database.choice import RowChoice
from sluice.messaging.database.schema import may_read
from sluice.messaging.envelope import decode
from sluice.messaging.errors import OutboxError
from sluice.messaging.outbox import tables
from sluice.messaging.outbox.tables import PENDING, QUARANTINED, SENT, audit, bundles, leases, messages, switches

BUNDLES = "bundles"
"""The act of switching bundles, in the audit."""
RESENT_MAX = 10_000
"""The most messages that are resent in one transaction."""
_IDS = 500  # event ids in one statement
_SHOWN = (
    "group_id",
    "group_seq",
    "status",
    "type",
    "event_id",
    "attempts",
    "last_error",
    "created_at_us",
    "sent_at_us",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxOperator(Operator):
    """An operator who acts on one topic's outbox, with a reason.

    Raises:
        OutboxError: each action on a message raises it if the message does not exist or is in another state.
    """

    topic: str

    def resend(self, connection: Connection, group_id: str, group_seq: int) -> None:
        """Publish a sent message again, under a fresh deduplication id.

        As the other ways to resend, it keeps the relay waiting until the end of the transaction: commit at once.
        """
        self._end_resend(connection, [self._resend(connection, group_id, group_seq)])

    def resend_ranges(self, connection: Connection, ranges: Iterable[tuple[str, int, int]]) -> int:
        """Publish the sent messages of ranges (group, first and last number) again, and return how many there are.

        Raises:
            OutboxError: none of a range's numbers is in the outbox and sent, or there are more than `RESENT_MAX`.
        """
        resent = [row for each in ranges for row in self._resend_range(connection, *each)]
        self._end_resend(connection, resent)
        return len(resent)

    def resend_chosen(self, connection: Connection, *, choice: RowChoice, most: int | None) -> int:
        """Publish the sent messages that match again, as `act_on_chosen` does, and return how many there are."""
        resent = list[Row[Any]]()

        def do(connection: Connection, group_id: str, group_seq: int) -> None:
            resent.append(self._resend(connection, group_id, group_seq))

        self.act_on_chosen(connection, do, status=SENT, choice=choice, most=most)
        self._end_resend(connection, resent)
        return len(resent)

    def _resend(self, connection: Connection, group_id: str, group_seq: int) -> Row[Any]:
        found = self._find(connection, group_id, group_seq, SENT)
        connection.execute(delete(bundles).where(bundles.c.first_id == found.id))
        self._change(connection, found, "resend", {"status": PENDING, "deduplication_id": str(uuid.uuid4())})
        return found

    def _end_resend(self, connection: Connection, resent: Collection[Row[Any]]) -> None:
        """Store of each group that the message behind the resent ones goes alone, unless something is stored of it.

        A relay may have sent it alone, and would not know it behind others. With the lease locked no relay marks it
        sent and sends the next one until the commit. So this is last, and Postgres ends a transaction that idles.
        """
        engines.limit_idle(connection)
        connection.execute(select(leases.c.token).where(leases.c.topic == self.topic).with_for_update())
        ids = {row.id for row in resent}
        is_unfinished = messages.c.status != literal_column(f"'{SENT}'")  # as text, so that SQLite uses the index
        for group_id in sorted({row.group_id for row in resent}):
            unfinished = select(messages.c.id).where(*self._group(group_id), is_unfinished)
            first_ids = connection.execute(unfinished.order_by(messages.c.group_seq).limit(len(ids) + 1)).scalars()
            first_id = next((id_ for id_ in first_ids.all() if id_ not in ids), None)
            if first_id is not None:
                let_go_alone(connection, first_id, unless_stored=True)

    def _resend_range(self, connection: Connection, group_id: str, first: int, last: int) -> list[Row[Any]]:
        sent = (messages.c.status == SENT, messages.c.group_seq.between(first, last))
        here = (*self._group(group_id), *sent)
        numbers = select(messages.c.group_seq).where(*here).order_by(messages.c.group_seq).limit(RESENT_MAX + 1)
        found = connection.execute(numbers).scalars().all()
        where = f"of group {group_id!r} of {self.topic}"
        if not found:
            raise OutboxError(
                f"no number from {first} to {last} {where} is sent and in the outbox; see `outbox ls --group {group_id}"
                " --status sent`"
            )
        if len(found) > RESENT_MAX:
            raise OutboxError(
                f"more than {RESENT_MAX} numbers {where} would be resent, allowed are so many; give a range"
            )
        return [self._resend(connection, group_id, group_seq) for group_seq in found]

    def unquarantine(self, connection: Connection, group_id: str, group_seq: int) -> str:
        """Let the relay try a quarantined message again, unchanged and under its own deduplication id.

        A bundle that may have arrived goes again as a whole; then the returned text says so, else it is empty.
        """
        found = self._find(connection, group_id, group_seq, QUARANTINED)
        numbers = _numbers_of_bundle(connection, found)
        let_go_alone(connection, found.id, unless_stored=True)
        self._change(connection, found, "unquarantine", {"status": PENDING})
        return numbers and f"; {numbers} are one message, and go again as a whole"

    def skip(self, connection: Connection, group_id: str, group_seq: int) -> str:
        """Give a quarantined message up: publish a tombstone in its place. The audit keeps its body.

        Of a bundle that may have arrived this is the first event, and the others go again in other messages; then the
        returned text says so, else it is empty.
        """
        found = self._find(connection, group_id, group_seq, QUARANTINED)
        numbers = _numbers_of_bundle(connection, found)
        tombstone = decode(found.body).as_tombstone()
        values = {
            "status": PENDING,
            "type": tombstone.event.type,
            "body": tombstone.body,
            "attributes": json.dumps(tombstone.event.message_attributes),
            "deduplication_id": tombstone.deduplication_id,
        }
        let_go_alone(connection, found.id)
        self._change(connection, found, "skip", values)
        return numbers and f"; {numbers} were one message: the others go again in other messages"

    def switch_bundles(self, connection: Connection, bundle_events_max: int) -> None:
        """Let relays send up to so many events of a group in one message; 1 is each in a message of its own.

        The leading relay reads it with its next look. Messages whose events are stored are sent with these.
        """
        values = {"bundle_events_max": bundle_events_max, "updated_at_us": engines.now_us(connection, self.clock)}
        made = engines.insert(connection.dialect.name, switches).values(topic=self.topic, **values)
        connection.execute(made.on_conflict_do_update(index_elements=["topic"], set_=values))
        self._record(connection, audit, BUNDLES, {"topic": self.topic}, {"bundle_events_max": bundle_events_max})

    def begin_epoch(self, connection: Connection) -> int:
        """Begin another epoch for every group, after a restore of the database to an earlier state, and return it.

        Numbers given after the restore repeat numbers that were given before it; the epoch tells them apart. Each group
        continues after its last number, and `first` of its next messages says so. A group that the restore lost gets a
        later epoch by itself, when its next event inserts its counter again.
        """
        ours = tables.groups.c.topic == self.topic
        last = connection.execute(select(func.max(tables.groups.c.epoch)).where(ours)).scalar()
        epoch = max(engines.now_us(connection, self.clock) // 1_000_000, (last or 0) + 1)
        # the counter was inserted after the epoch was chosen
        later = case((tables.groups.c.epoch >= epoch, tables.groups.c.epoch + 1), else_=epoch)
        begun = {"epoch": later, "first_seq": tables.groups.c.last_seq + 1}
        connection.execute(update(tables.groups).where(ours).values(begun))
        self._record(connection, audit, "epoch", {"topic": self.topic}, {"epoch": epoch})
        return epoch

    def act_on_chosen(
        self,
        connection: Connection,
        do: Callable[[Connection, str, int], object],
        *,
        status: str,
        choice: RowChoice,
        most: int | None,
    ) -> int:
        """Do something to each message of a status that matches, by group and number; return how many there are.

        Args:
            connection: a connection in a transaction, which the caller commits.
            do: one of the operator's actions on a message.
            status: the status that the action needs.
            choice: of groups, types, last errors and times of commit.
            most: at most this many; None is all.

        Raises:
            OutboxError: none matches, or more than `RESENT_MAX` do and `most` is None.
        """
        found, count = list_messages(
            connection, self.topic, status=status, choice=choice, most=RESENT_MAX if most is None else most
        )
        if not found:
            raise OutboxError(f"no message of {self.topic} that is {status} matches; see `outbox ls --status {status}`")
        if most is None and count > RESENT_MAX:
            raise OutboxError(f"{count} messages match, allowed are {RESENT_MAX} at once; give --limit, or match fewer")
        for row in found:
            do(connection, row["group_id"], row["group_seq"])
        return len(found)

    def _group(self, group_id: str) -> tuple[ColumnElement[bool], ...]:
        return (messages.c.topic == self.topic, messages.c.group_id == group_id)

    def _find(self, connection: Connection, group_id: str, group_seq: int, status: str) -> Row[Any]:
        place = (*self._group(group_id), messages.c.group_seq == group_seq)
        found = connection.execute(select(messages).where(*place).with_for_update()).one_or_none()
        where = f"message {group_seq} of group {group_id!r} of {self.topic}"
        if found is None:
            raise OutboxError(f"{where} is not in the outbox; see `outbox ls --group {group_id}`")
        if found.status != status:
            raise OutboxError(f"{where} is {found.status}, allowed is {status}; see `outbox ls --group {group_id}`")
        return found

    def _change(self, connection: Connection, found: Row[Any], action: str, values: Mapping[str, Any]) -> None:
        fresh = {"attempts": 0, "not_before_us": 0, "last_error": None}
        connection.execute(update(messages).where(messages.c.id == found.id).values({**fresh, **values}))
        kept = {"event_id": found.event_id, "type": found.type, "last_error": found.last_error, "body": found.body}
        place = {"topic": self.topic, "group_id": found.group_id, "group_seq": found.group_seq}
        self._record(connection, audit, action, place, kept)


def bundle_switch(connection: Connection, topic: str) -> tuple[int, int]:
    """Return how many events a message may have, as an operator switched it, and how many bundles are not sent yet."""
    switched = select(switches.c.bundle_events_max).where(switches.c.topic == topic)
    stored = select(func.count()).select_from(bundles.join(messages, messages.c.id == bundles.c.first_id))
    on_their_way = (messages.c.topic == topic, messages.c.status != SENT, bundles.c.event_count > 1)
    count = connection.execute(stored.where(*on_their_way)).scalar_one()
    return connection.execute(switched).scalar() or 1, count


def _numbers_of_bundle(connection: Connection, found: Row[Any]) -> str:
    """Return in words which numbers the message has that begins with a row, if it has several; else an empty text."""
    stored = select(bundles.c.event_count).where(bundles.c.first_id == found.id)
    count = connection.execute(stored).scalar() or 1
    return f"numbers {found.group_seq} to {found.group_seq + count - 1}" if count > 1 else ""


def let_go_alone(connection: Connection, first_id: int, *, unless_stored: bool = False) -> None:
    """Store that an event has a message of its own; with `unless_stored` only if nothing is stored of it."""
    made = engines.insert(connection.dialect.name, bundles).values(first_id=first_id, event_count=1)
    stored = made.on_conflict_do_update(index_elements=["first_id"], set_={"event_count": 1})
    connection.execute(made.on_conflict_do_nothing() if unless_stored else stored)


def list_messages(
    connection: Connection,
    topic: str,
    *,
    status: str | None,
    choice: RowChoice,
    most: int,
    after: tuple[str, int] | None = None,
) -> tuple[list[dict[str, Any]], int]:
    """Return up to `most` messages, by group and number, and how many match.

    Without a status only unfinished ones match. With `after`, those after that group and number are returned.

    The time of a message is that of its commit, and its reason is the last error of publishing it.

    Each message is a dict of group_id, group_seq, status, type, event_id, attempts, last_error, created_at_us,
    sent_at_us, and event_count: more than 1 if it is stored that the message has the events behind it, too.
    """
    wanted = [messages.c.topic == topic, messages.c.status != SENT if status is None else messages.c.status == status]
    wanted += [choice.in_groups(messages.c.group_id), choice.is_since(messages.c.created_at_us)]
    wanted.append(choice.of_reason(messages.c.last_error))
    if choice.types:
        wanted.append(messages.c.type.in_(sorted(choice.types)))
    count = connection.execute(select(func.count()).select_from(messages).where(*wanted)).scalar_one()
    if after is not None:
        wanted.append(tuple_(messages.c.group_id, messages.c.group_seq) > after)
    rows = connection.execute(
        select(*(messages.c[name] for name in _SHOWN), func.coalesce(bundles.c.event_count, 1).label("event_count"))
        .select_from(messages.outerjoin(bundles, bundles.c.first_id == messages.c.id))
        .where(*wanted)
        .order_by(messages.c.group_id, messages.c.group_seq)
        .limit(most)
    )
    return [dict(row) for row in rows.mappings()], int(count)


def find_types(connection: Connection, event_ids: Collection[str]) -> dict[str, str]:
    """Return the types of events by event id, from the outbox in this database, if it has one that may be read."""
    if not event_ids or not may_read(connection, messages):
        return {}
    ids, found = sorted(event_ids), dict[str, str]()
    for start in range(0, len(ids), _IDS):
        here = messages.c.event_id.in_(ids[start : start + _IDS])
        rows = connection.execute(select(messages.c.event_id, messages.c.type).where(here))
        found |= {row.event_id: row.type for row in rows}
    return found
