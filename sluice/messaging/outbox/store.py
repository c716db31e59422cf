"""The outbox for the relay: the first unfinished message of each group, and the outcome of publishing it.

Only heads are read, so a message is never taken before the message in front of it was sent, and the number of messages
behind a head does not matter. A quarantined head blocks its own group only.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import (
    Connection,
    Engine,
    bindparam,
    delete,
    exists,
    func,
    select,
    text,
    tuple_,
    update,
)

from sluice.clock import Clock
from sluice.messaging.bundle import bundle_bytes, write_bundle
from sluice.messaging.database import connections, engines
from sluice.messaging.envelope import attributes_bytes
from sluice.messaging.outbox.tables import PENDING, QUARANTINED, SENT, USED_EARLIER_US_MAX, bundles, groups, messages

HEADS_MAX = 100
"""The most groups that one look reads."""
DELETED_MAX = 1_000
"""The most messages, or counters of groups, that one transaction deletes."""
_BYTES_MAX = 2**62  # of a message whose events are stored, whatever size they have
COUNTED_MAX = 100_000
"""The most waiting messages that are counted for the metrics; no answer is marked while they are counted."""

_COLUMNS = (
    *("id", "group_id", "group_seq", "event_id", "body", "attributes", "deduplication_id"),
    *("status", "attempts", "not_before_us", "created_at_us"),
)
_NEXT = """
    SELECT m.id FROM sluice_outbox m
    WHERE m.topic = :topic AND m.status <> 'sent' AND m.group_id > {after}
    ORDER BY m.group_id, m.group_seq LIMIT 1
"""
_STORED_COUNT = "(SELECT event_count FROM sluice_outbox_bundle WHERE first_id = {of})"
# Whether the event behind a head may be in one message with it. It reads one row by an index. An EXISTS could become a
# hash of the whole table.
_HAS_FOLLOWER = """
    (SELECT next.attributes FROM sluice_outbox next WHERE next.topic = :topic AND next.group_id = walk.group_id
        AND next.group_seq = walk.group_seq + 1 AND next.status = 'pending') = walk.attributes
"""
# Walks from group to group along the index: the cost depends on the groups read, not on the messages that wait in them.
# The result includes the time, the token of the lease and the switch; it is one row without a head if no group has a
# head.
_HEADS = f"""
    WITH RECURSIVE walk AS (
        SELECT {", ".join(f"head.{name}" for name in _COLUMNS)}, 1 AS steps
        FROM sluice_outbox head WHERE head.id = ({_NEXT.format(after=":after")})
        UNION ALL
        SELECT {", ".join(f"head.{name}" for name in _COLUMNS)}, walk.steps + 1
        FROM walk JOIN sluice_outbox head ON head.id = ({_NEXT.format(after="walk.group_id")})
        WHERE walk.steps < :most
    )
    SELECT instant.*, {", ".join(f"walk.{name}" for name in _COLUMNS)},
        {_STORED_COUNT.format(of="walk.id")}, {{has_follower}}
    FROM (
        SELECT {{now_us}} AS now_us, (SELECT token FROM sluice_outbox_lease WHERE topic = :topic) AS token,
            (SELECT bundle_events_max FROM sluice_outbox_switch WHERE topic = :topic) AS switched
    ) AS instant LEFT JOIN walk ON 1 = 1 ORDER BY walk.steps
"""  # noqa: S608 (of constants)
# The pending events behind heads with the attributes of their heads: of each head up to a count, and as many bytes.
_FOLLOWERS = f"""
    SELECT head_id, {", ".join(f"behind.{name}" for name in _COLUMNS)}, {_STORED_COUNT.format(of="behind.id")}
    FROM (
        SELECT head.id AS head_id, wanted.bytes_max, {", ".join(f"next.{name}" for name in _COLUMNS)},
            sum({{bytes}}) OVER (PARTITION BY head.id ORDER BY next.group_seq) AS filled_bytes
        FROM {{wanted}} JOIN sluice_outbox head ON head.id = wanted.id
        JOIN {{next}} WHERE next.status = 'pending' AND next.attributes = head.attributes AND head.status = 'pending'
            AND (SELECT token FROM sluice_outbox_lease WHERE topic = :topic) = :token
    ) AS behind WHERE filled_bytes <= behind.bytes_max ORDER BY head_id, behind.group_seq
"""  # noqa: S608 (of constants)
_BEHIND = """
    next.topic = head.topic AND next.group_id = head.group_id AND next.group_seq > head.group_seq
    AND next.group_seq < head.group_seq + wanted.event_count
"""
# LATERAL: or Postgres might join both tables as a whole if its planner's statistics are older than the backlog.
_FOLLOWERS_OF = {
    "postgresql": {
        "bytes": "octet_length(next.body)",
        "next": f"LATERAL (SELECT * FROM sluice_outbox next WHERE {_BEHIND} ORDER BY next.group_seq) AS next ON true",  # noqa: S608 (of constants)
    },
    "sqlite": {"bytes": "length(CAST(next.body AS BLOB))", "next": f"sluice_outbox next ON {_BEHIND}"},
}
_WANTED = {
    "postgresql": "unnest(CAST(:ids AS bigint[]), CAST(:counts AS integer[]), CAST(:bytes AS bigint[]))"
    " AS wanted (id, event_count, bytes_max)",
    "sqlite": "(SELECT json_extract(value, '$[0]') AS id, json_extract(value, '$[1]') AS event_count,"
    " json_extract(value, '$[2]') AS bytes_max FROM json_each(:wanted)) AS wanted",
}
_STORE_BUNDLES = """
    INSERT INTO sluice_outbox_bundle (first_id, event_count)
    SELECT wanted.id, wanted.event_count FROM {wanted} WHERE true
    ON CONFLICT (first_id) DO NOTHING RETURNING first_id
"""

# Each subquery reads a range of a partial index, however large the table is; it has an ORDER BY so that Postgres uses
# the index. Without `_BY_INDEX` Postgres would read and sort everything if the backlog is newer than its planner's
# statistics (20 s for ten million).
_BY_INDEX = "SELECT set_config('enable_sort', 'off', true)"
_LAG = """
    SELECT {now_us},
        (SELECT created_at_us FROM sluice_outbox
            WHERE topic = :topic AND status <> 'sent' ORDER BY created_at_us LIMIT 1),
        (SELECT count(*) FROM (SELECT 1 FROM sluice_outbox
            WHERE topic = :topic AND status <> 'sent' AND status <> 'quarantined' ORDER BY created_at_us LIMIT :most
        ) AS pending),
        (SELECT count(*) FROM (SELECT 1 FROM sluice_outbox
            WHERE topic = :topic AND status = 'quarantined' ORDER BY group_id LIMIT :most
        ) AS quarantined)
"""

_MARK = (
    update(messages)
    .where(messages.c.id == bindparam("of"), messages.c.status == PENDING)
    .values(attempts=messages.c.attempts + 1)
)
# One statement for any number of messages takes a fifth of the time of one statement for each. The arrays hold no NULL:
# for a role with array_nulls off it would be the text 'NULL'.
_MARK_SENT = """
    UPDATE sluice_outbox AS m
    SET status = 'sent', attempts = m.attempts + 1, last_error = NULL, sent_at_us = {now_us},
        sns_message_id = sent.message_id, sns_sequence_number = nullif(sent.sequence_number, '')
    FROM {sent} WHERE m.id = sent.id AND m.status = 'pending'
"""
_SENT = {
    "postgresql": "unnest(CAST(:ids AS bigint[]), CAST(:message_ids AS text[]), CAST(:sequence_numbers AS text[]))"
    " AS sent (id, message_id, sequence_number)",
    "sqlite": "(SELECT json_extract(value, '$[0]') AS id, json_extract(value, '$[1]') AS message_id,"
    " json_extract(value, '$[2]') AS sequence_number FROM json_each(:sent)) AS sent",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The first unfinished event of a group. Instants are microseconds UTC by the database's clock.

    Args:
        stored_count: how many events its message has, as was stored before the look; None if nothing was.
        has_follower: whether the next event is there and may be in the same message.
        followers: the events behind it that are in its message.
    """

    id: int
    group_id: str
    group_seq: int
    event_id: str
    body: str
    attributes: Mapping[str, str]
    deduplication_id: str
    status: str
    attempts: int
    not_before_us: int
    created_at_us: int
    stored_count: int | None = None
    has_follower: bool = False
    followers: tuple["Head", ...] = ()

    @property
    def events(self) -> tuple["Head", ...]:
        """Return the events of its message, in order."""
        return (self, *self.followers)

    @property
    def is_new_bundle(self) -> bool:
        """Return whether it is a bundle that was stored after the look, so that nobody can have sent it earlier."""
        return bool(self.followers) and self.stored_count is None

    @property
    def is_whole(self) -> bool:
        """Return whether all events are there that are stored of its message."""
        return self.stored_count in (None, len(self.events))

    @property
    def message_body(self) -> str:
        """Return the body of its message."""
        return write_bundle([event.body for event in self.events])

    @property
    def message_bytes(self) -> int:
        """Return the size of its message, with the attributes."""
        return bundle_bytes([len(event.body.encode()) for event in self.events]) + attributes_bytes(self.attributes)

    @property
    def message_deduplication_id(self) -> str:
        """Return the deduplication id of its message, which follows from its events."""
        if not self.followers:
            return self.deduplication_id
        return hashlib.sha256("\n".join(event.deduplication_id for event in self.events).encode()).hexdigest()

    @property
    def may_have_followers(self) -> bool:
        """Return whether an event behind it may be in its message: it was not tried, and nothing is stored of it."""
        return self.has_follower and self.attempts == 0 and self.stored_count is None

    def is_due(self, now_us: int, pause_us_max: int) -> bool:
        """Return whether the message may be published now.

        If the pause ends later than any pause that begins now, the clock was set back after it began: the pause does
        not count.

        Args:
            now_us: the time by the database's clock.
            pause_us_max: the longest pause after a failure.
        """
        is_paused = now_us < self.not_before_us <= now_us + pause_us_max
        return self.status == PENDING and not is_paused


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxLook:
    """The part of an outbox that one statement read.

    Args:
        heads: of up to HEADS_MAX groups, in order of groups.
        now_us: the instant, by the database's clock.
        token: that of the leader's lease; None if no relay has led.
        bundle_events_max: the number of events for which an operator switched bundles on; 1 is off.
    """

    heads: list[Head]
    now_us: int
    token: int | None
    bundle_events_max: int


def events_of_message(*, declared: int, switched: int) -> int:
    """Return how many events a message may have: the declared number, if it is the one that was switched on.

    Another number was not looked at when an operator switched bundles on, and has to be switched on itself.
    """
    return declared if switched == declared else 1


@dataclass(frozen=True, slots=True)
class PublishSuccess:
    """The message is in the topic."""

    sns_message_id: str
    sns_sequence_number: str | None = None


@dataclass(frozen=True, slots=True)
class PublishRetry:
    """The message may or may not be in the topic, or the topic could not take it now: publish it again later."""

    error: str


@dataclass(frozen=True, slots=True)
class PublishRefusal:
    """The message will never be accepted by the topic unchanged."""

    error: str


type PublishOutcome = PublishSuccess | PublishRetry | PublishRefusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """The topic's lag behind the commits: how long the oldest waits, and how many, each up to COUNTED_MAX."""

    seconds: float
    pending_count: int
    quarantined_count: int

    @staticmethod
    def count_text(count: int) -> str:
        """Return a count in words; `COUNTED_MAX` means that many or more."""
        return f"{count} or more" if count == COUNTED_MAX else str(count)


class Store:
    """One topic's part of the outbox.

    Args:
        clock: a clock for tests; None means the database's own.
    """

    def __init__(self, engine: Engine, topic: str, *, clock: Clock | None = None) -> None:
        self._engine, self._topic, self._clock = engine, topic, clock
        # After a failover the pool may hold connections to the former primary, which is read-only.
        connections.leave_standbys(engine)
        now_us = engines.now_us_text(engine.dialect.name, clock)
        self._sent = text(_MARK_SENT.format(now_us=now_us, sent=_SENT[engine.dialect.name]))
        self._lag = text(_LAG.format(now_us=now_us))
        self._heads = {
            has_bundles: text(_HEADS.format(now_us=now_us, has_follower=_HAS_FOLLOWER if has_bundles else "NULL"))
            for has_bundles in (False, True)
        }
        wanted = _WANTED[engine.dialect.name]
        self._followers = text(_FOLLOWERS.format(wanted=wanted, **_FOLLOWERS_OF[engine.dialect.name]))
        self._store_bundles = text(_STORE_BUNDLES.format(wanted=wanted))

    def look(self, after: str = "", *, has_bundles: bool = False) -> OutboxLook:
        """Read the heads of up to HEADS_MAX groups behind the group `after`.

        Args:
            after: a group; "" reads the first ones.
            has_bundles: whether to find out which heads have a follower.
        """
        parameters = {"topic": self._topic, "after": after, "most": HEADS_MAX}
        with engines.looking(self._engine) as connection, engines.explaining_missing_tables():
            rows = connection.execute(self._heads[has_bundles], parameters | self._now_parameter()).all()
        now_us, token, switched = rows[0][:3]
        return OutboxLook(
            heads=[head(row[3:]) for row in rows if row[3] is not None],
            now_us=int(now_us),
            token=token,
            bundle_events_max=1 if switched is None else switched,
        )

    def gather(
        self, heads: Sequence[Head], *, token: int | None, bundle_events_max: int, event_bytes_max: int
    ) -> list[Head]:
        """Return heads with the followers that are in their messages.

        Of a message whose events are stored these are its events. Any other has as many as wait behind the head, were
        never tried, and fit. None has followers if another relay leads than the one with the token.
        """
        wanted = {
            head.id: (bundle_events_max, event_bytes_max - head.message_bytes)
            if head.stored_count is None
            else (head.stored_count, _BYTES_MAX)
            for head in heads
            if (head.stored_count or 1) > 1 or (bundle_events_max > 1 and head.may_have_followers)
        }
        if not wanted:
            return list(heads)
        leader = {"topic": self._topic, "token": token}
        with engines.looking(self._engine) as connection:
            rows = connection.execute(self._followers, self._bounds_parameters(wanted) | leader).all()
        attributes = {head.id: head.attributes for head in heads}
        behind: dict[int, list[Head]] = {}
        for row in rows:
            behind.setdefault(row[0], []).append(head(row[1:], attributes[row[0]]))
        return [_gather(head, behind.get(head.id, ()), event_bytes_max) for head in heads]

    def store_bundles(self, connection: Connection, heads: Sequence[Head]) -> set[int]:
        """Store which events the messages of heads have; return the ids of the heads.

        An id is missing if something else was stored of that head meanwhile.

        Args:
            connection: the connection of `Lease.writing`.
            heads: heads with followers.

        Raises:
            OperationalError: somebody is about to store something of one of the heads.
        """
        engines.wait_briefly(connection)
        wanted = {head.id: (len(head.events), 0) for head in heads}
        return set(connection.execute(self._store_bundles, self._bounds_parameters(wanted)).scalars())

    def _bounds_parameters(self, wanted: Mapping[int, tuple[int, int]]) -> dict[str, Any]:
        """Return the parameters of a statement for heads, each with a count of events and a number of bytes."""
        if self._engine.dialect.name != "postgresql":
            return {"wanted": json.dumps([[id_, *limits] for id_, limits in wanted.items()])}
        counts, bytes_ = zip(*wanted.values(), strict=True)
        return {"ids": list(wanted), "counts": list(counts), "bytes": list(bytes_)}

    def mark(self, connection: Connection, marked: Sequence[tuple[Head, PublishOutcome, int]]) -> None:
        """Write the outcomes of heads: (head, outcome, microseconds to wait before the head is tried again).

        Args:
            connection: the connection of `Lease.writing`.
            marked: the outcomes; only heads that are still pending are changed.
        """
        self._change_bundles(connection, marked)
        sent, others = list[tuple[int, str, str]](), list[tuple[Head, PublishRetry | PublishRefusal, int]]()
        for head, outcome, delay_us in marked:
            if isinstance(outcome, PublishSuccess):
                ids = (outcome.sns_message_id, outcome.sns_sequence_number or "")
                sent += [(event.id, *ids) for event in head.events]
            elif not (head.is_new_bundle and isinstance(outcome, PublishRefusal)):
                others.append((head, outcome, delay_us))
        if sent:
            self._mark_sent(connection, sent)
        if not others:
            return
        now_us = engines.now_us(connection, self._clock)
        alike: dict[type[PublishOutcome], list[dict[str, Any]]] = {}
        for head, refused, delay_us in others:
            alike.setdefault(type(refused), []).append({"of": head.id, **_marks(refused, now_us, delay_us)})
        for rows in alike.values():  # one statement for all heads of a kind: ten statements cost five times as much
            connection.execute(_MARK, rows)

    def _change_bundles(self, connection: Connection, marked: Sequence[tuple[Head, PublishOutcome, int]]) -> None:
        """Delete what is stored of messages that were sent or torn; let each event of a refused new bundle go alone.

        A bundle that was refused at a later try is kept, as an earlier try may have arrived.
        """
        refused = [head for head, outcome, _ in marked if isinstance(outcome, PublishRefusal)]
        ended = [head for head, outcome, _ in marked if isinstance(outcome, PublishSuccess)]
        ended += [head for head in refused if head.is_new_bundle or not head.is_whole]
        ended_ids = [head.id for head in ended if head.followers or head.stored_count is not None]
        if ended_ids:
            connection.execute(delete(bundles).where(bundles.c.first_id.in_(ended_ids)))
        alone = {event.id: (1, 0) for head in refused if head.is_new_bundle for event in head.events}
        if alone:
            connection.execute(self._store_bundles, self._bounds_parameters(alone))

    def _mark_sent(self, connection: Connection, sent: Sequence[tuple[int, str, str]]) -> None:
        parameters: dict[str, Any] = {"sent": json.dumps(sent)}
        if connection.dialect.name == "postgresql":
            ids, message_ids, sequence_numbers = map(list, zip(*sent, strict=True))
            parameters = {"ids": ids, "message_ids": message_ids, "sequence_numbers": sequence_numbers}
        connection.execute(self._sent, parameters | self._now_parameter())

    def _now_parameter(self) -> dict[str, int]:
        return {} if self._clock is None else {"now_us": self._clock.now_us()}

    def lag(self) -> Lag:
        """Return how long the oldest unpublished message waits, and how many wait; it reads up to `COUNTED_MAX`."""
        parameters = {"topic": self._topic, "most": COUNTED_MAX}
        with engines.reading(self._engine) as connection:
            if connection.dialect.name == "postgresql":
                connection.exec_driver_sql(_BY_INDEX)
            row = connection.execute(self._lag, parameters | self._now_parameter()).one()
        now_us, oldest_us, pending, quarantined = row
        seconds = 0.0 if oldest_us is None else max(0, int(now_us) - oldest_us) / 1_000_000
        return Lag(seconds=seconds, pending_count=pending, quarantined_count=quarantined)

    def pending_elsewhere(self) -> dict[str, int]:
        """Return the count of pending messages of each other topic, by topic name. It reads all of them."""
        with engines.reading(self._engine) as connection:
            found = connection.execute(
                select(messages.c.topic, func.count())
                .where(messages.c.topic != self._topic, messages.c.status == PENDING)
                .group_by(messages.c.topic)
                .order_by(messages.c.topic)
            )
            return {row.topic: row[1] for row in found}

    def is_finished(self) -> bool:
        """Return whether nothing can be published now: every message is sent, or waits behind a quarantined one."""
        after = ""
        while True:
            heads = self.look(after).heads
            if any(head.status == PENDING for head in heads):
                return False
            if len(heads) < HEADS_MAX:
                return True
            after = heads[-1].group_id

    def forget_sent(self, connection: Connection, keep_seconds: float) -> int:
        """Delete up to a thousand messages that were sent more than `keep_seconds` ago; return how many.

        Their groups count as used now, unless they were used later: a message may be sent long after its commit, and
        `forget_groups` goes by the last use of a group.

        Args:
            connection: the connection of `Lease.writing`.
            keep_seconds: how long a sent message can be sent again.

        Raises:
            OperationalError: a producer is about to use one of the groups.
        """
        engines.wait_briefly(connection)
        now_us = engines.now_us(connection, self._clock)
        before_us = now_us - round(keep_seconds * 1_000_000)
        old = connection.execute(
            select(messages.c.id, messages.c.group_id)
            .where(messages.c.topic == self._topic, messages.c.status == SENT, messages.c.sent_at_us < before_us)
            .order_by(messages.c.sent_at_us)
            .limit(DELETED_MAX)
        ).all()
        unused = (
            groups.c.topic == self._topic,
            groups.c.group_id.in_({row.group_id for row in old}),
            groups.c.updated_at_us < before_us,
        )
        connection.execute(update(groups).where(*unused).values(updated_at_us=now_us))
        old_ids = [row.id for row in old]
        connection.execute(delete(bundles).where(bundles.c.first_id.in_(old_ids)))  # a relay of older code leaves some
        is_old = (messages.c.id.in_(old_ids), messages.c.status == SENT)
        return connection.execute(delete(messages).where(*is_old)).rowcount

    def forget_groups(self, connection: Connection, keep_seconds: float) -> int:
        """Delete up to a thousand counters of groups without messages, unused for `keep_seconds`; return how many.

        The next event of such a group inserts its counter again: from 1, under a later epoch (`outbox.outbox`). No copy
        of a message with an old number is under way by then. The declaration requires every `inbox_retention_seconds`
        to be longer than a message can spend in queue, DLQ and redrive, and a counter counts as used at its group's
        last commit and, if the last message was sent later, again at `forget_sent`. So consumers see a later epoch that
        begins at 1.

        A producer may be using one of the counters. Then the counter has a new number, differs from the one that was
        read, and stays. If the deletion is first, the producer waits for it and inserts the counter again.

        Args:
            connection: the connection of `Lease.writing`.
            keep_seconds: the largest `inbox_retention_seconds` of the topic's consumers.

        Raises:
            OperationalError: a producer is about to use one of the groups.
        """
        engines.wait_briefly(connection)
        keep_us = round(keep_seconds * 1_000_000) + USED_EARLIER_US_MAX
        before_us = engines.now_us(connection, self._clock) - keep_us
        left = exists().where(messages.c.topic == groups.c.topic, messages.c.group_id == groups.c.group_id)
        unused = (
            select(groups.c.topic, groups.c.group_id, groups.c.epoch, groups.c.last_seq)
            .where(
                groups.c.topic == self._topic,
                groups.c.updated_at_us < before_us,
                groups.c.epoch < before_us // 1_000_000,  # or, after a clock was put back, the next might not be later
                ~left,
            )
            .order_by(groups.c.updated_at_us)
            .limit(DELETED_MAX)
        )
        # Postgres compares the last number again after it waited for a producer's commit.
        found = tuple_(groups.c.topic, groups.c.group_id, groups.c.epoch, groups.c.last_seq).in_(unused)
        return connection.execute(delete(groups).where(found)).rowcount


def _marks(outcome: PublishRetry | PublishRefusal, now_us: int, delay_us: int) -> dict[str, Any]:
    """Return the columns that record the outcome of publishing a message."""
    match outcome:
        case PublishRetry():
            return {"not_before_us": now_us + delay_us, "last_error": outcome.error}
        case PublishRefusal():
            return {"status": QUARANTINED, "last_error": outcome.error}


def head(row: Sequence[Any], attributes: Mapping[str, str] | None = None) -> Head:
    """Return the head that a row of a look has, in the order of its fields, with its attributes if they are known."""
    stored_count, has_follower = (*row[len(_COLUMNS) :], None, None)[:2]
    columns: dict[str, Any] = dict(zip(_COLUMNS, row, strict=False))
    columns["attributes"] = json.loads(columns["attributes"]) if attributes is None else attributes
    return Head(**columns, stored_count=stored_count, has_follower=bool(has_follower))


def _gather(first: Head, behind: Iterable[Head], event_bytes_max: int) -> Head:
    """Return a head with those events behind it that are in its message."""
    followers, is_stored = list[Head](), first.stored_count is not None
    sizes = [len(first.body.encode())]
    room_bytes = event_bytes_max - attributes_bytes(first.attributes)
    for event in behind:
        sizes.append(len(event.body.encode()))
        is_next = event.group_seq == first.group_seq + len(sizes) - 1
        is_free = event.stored_count is None and event.attempts == 0 and bundle_bytes(sizes) <= room_bytes
        if not is_next or not (is_stored or is_free):
            break
        followers.append(event)
    return replace(first, followers=tuple(followers)) if followers else first
