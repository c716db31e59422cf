"""Attempts at messages, counted in the inbox where a receive is not always an attempt.

Lambda's pollers receive messages that no handler ever gets: an invocation is throttled, ends before its handler, or
fails for another message of its batch. So an attempt counts once it has failed. One that came to no end (the process
was killed, or ran out of memory) is none; how many of them follow each other is counted by itself, because a message
whose handler ends the process each time has to end, too.

The first receive of a message writes nothing: only a second one can have an attempt before it.

Each event of a bundle has attempts of its own. A bundle that comes again has a row that says how many events at its
front are settled: handled, parked, or dead and in the DLQ. They are passed over, and no dead letter is sent twice.
"""

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, delete, or_, select, update

from sluice.clock import Clock
from sluice.messaging.database import engines
from sluice.messaging.inbox.groups import DecodedMessage
from sluice.messaging.inbox.tables import attempts, bundles
from sluice.messaging.sqs.queue import ReceivedMessage

FORGOTTEN_MAX = 1_000
"""Messages whose attempts are forgotten in one transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastAttempts:
    """The attempts at a message before this one.

    Args:
        failed_count: attempts that ended, and did not handle it.
        unfinished_count: attempts since the last of these that came to no end.
    """

    failed_count: int = 0
    unfinished_count: int = 0


class InboxAttempts:
    """Counts attempts at a consumer's messages in its inbox. Whoever calls it has locked the row of the group.

    Args:
        clock: for tests; None means the database's own.
    """

    def __init__(self, consumer: str, *, clock: Clock | None = None) -> None:
        self._consumer, self._clock = consumer, clock

    def begin(self, connection: Connection, arrived: DecodedMessage) -> PastAttempts:
        """Record that an attempt begins, and return those before it. The caller commits before the handler is called.

        A message that came back from the DLQ may have its old id, and begins anew with its first receive.
        """
        row = connection.execute(select(attempts).where(*self._place(arrived))).one_or_none()
        is_known = row is not None and row.receive_count < arrived.receive_count
        past = PastAttempts(
            failed_count=row.failed_count if row is not None and is_known else 0,
            unfinished_count=row.unfinished_count if row is not None and is_known else 0,
        )
        self._write(connection, arrived, past.failed_count, past.unfinished_count + 1, None)
        return past

    def fail(self, connection: Connection, arrived: DecodedMessage, reason: str) -> None:
        """Record that the attempt `arrived.attempt` has failed. The caller commits."""
        self._write(connection, arrived, arrived.attempt, 0, reason)

    def cancel(self, connection: Connection, arrived: DecodedMessage) -> None:
        """Uncount an attempt that had no time to end, if it was recorded. The caller commits."""
        is_last = (attempts.c.receive_count == arrived.receive_count, attempts.c.unfinished_count > 0)
        fewer = {"unfinished_count": attempts.c.unfinished_count - 1}
        connection.execute(update(attempts).where(*self._place(arrived), *is_last).values(fewer))

    def settled_count(self, connection: Connection, message: ReceivedMessage) -> int:
        """Return how many events at the front of a bundle are known to be settled since earlier receives."""
        found = select(bundles.c.settled_count).where(
            bundles.c.consumer == self._consumer,
            bundles.c.sqs_message_id == message.sqs_message_id,
            bundles.c.receive_count < message.receive_count,
        )
        return connection.execute(found).scalar() or 0

    def settle(self, connection: Connection, message: ReceivedMessage, settled_count: int) -> None:
        """Record that the first `settled_count` events of a bundle are settled. The caller commits."""
        values = {
            "settled_count": settled_count,
            "receive_count": message.receive_count,
            "updated_at_us": engines.now_us(connection, self._clock),
        }
        made = engines.insert(connection.dialect.name, bundles).values(
            consumer=self._consumer, sqs_message_id=message.sqs_message_id, **values
        )
        key = ["consumer", "sqs_message_id"]
        connection.execute(made.on_conflict_do_update(index_elements=key, set_=values))

    def suspects(self, connection: Connection, sqs_message_ids: Collection[str]) -> frozenset[str]:
        """Return which messages have an attempt that came to no end: their handler may end the process again.

        Of a bundle its events have the attempts, under the id of their dead letter.
        """
        of_events = (attempts.c.sqs_message_id.startswith(f"{id_}.", autoescape=True) for id_ in sqs_message_ids)
        found = select(attempts.c.sqs_message_id).where(
            attempts.c.consumer == self._consumer,
            or_(attempts.c.sqs_message_id.in_(sqs_message_ids), *of_events),
            attempts.c.unfinished_count > 0,
        )
        return frozenset(id_.partition(".")[0] for id_ in connection.execute(found).scalars())

    def forget(self, connection: Connection, keep_seconds: float) -> int:
        """Delete up to a thousand old attempts, and as many rows of bundles; return the larger count."""
        before_us = engines.now_us(connection, self._clock) - round(keep_seconds * 1_000_000)
        counts = []
        for table in (attempts, bundles):
            old = (table.c.consumer == self._consumer, table.c.updated_at_us < before_us)
            ids = select(table.c.sqs_message_id).where(*old).limit(FORGOTTEN_MAX)
            counts.append(connection.execute(delete(table).where(*old, table.c.sqs_message_id.in_(ids))).rowcount)
        return max(counts)

    def _place(self, arrived: DecodedMessage) -> tuple[ColumnElement[bool], ...]:
        return attempts.c.consumer == self._consumer, attempts.c.sqs_message_id == arrived.dead_letter_id

    def _write(
        self, connection: Connection, arrived: DecodedMessage, failed: int, unfinished: int, reason: str | None
    ) -> None:
        values = {
            "group_id": arrived.envelope.event.group,
            "failed_count": failed,
            "unfinished_count": unfinished,
            "receive_count": arrived.receive_count,
            "last_error": reason,
            "updated_at_us": engines.now_us(connection, self._clock),
        }
        made = engines.insert(connection.dialect.name, attempts).values(
            consumer=self._consumer, sqs_message_id=arrived.dead_letter_id, **values
        )
        key = ["consumer", "sqs_message_id"]
        connection.execute(made.on_conflict_do_update(index_elements=key, set_=values))
