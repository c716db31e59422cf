"""Reading what a run left behind: the databases' rows, and what lies in the DLQs."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, Engine, TextClause, text

from sluice.judge.databases import AppliedEffect, CommittedEvent, DatabaseEvidence, InboxNumbers, OutboxMessage
from sluice.messaging.database import engines
from tests.chaos.system.bundles import ConsumerEvent, SentMessage
from tests.chaos.system.producers import TransactionState

_AT_US = "(extract(epoch FROM pg_xact_commit_timestamp(xmin)) * 1000000)::bigint"
_COMMITTED = text(f"SELECT event_id, group_id, payload, {_AT_US}, position FROM chaos_happened")  # noqa: S608
_DONE = text(
    f"SELECT consumer, event_id, group_id, epoch, seq, payload, is_doomed, {_AT_US}, id FROM chaos_effect"  # noqa: S608
)
_PUBLISHED = text("SELECT event_id, group_id, group_seq FROM sluice_outbox")
_LISTED = text("SELECT consumer, group_id, epoch, seq, through, state, reason FROM sluice_inbox_exception")
_PARKED = text("SELECT consumer, event_id FROM sluice_inbox_parked")
_HELD = text("SELECT consumer, group_id, seq FROM sluice_inbox_parked WHERE held_at_us IS NOT NULL LIMIT 20")
_SENT = text("SELECT group_id, group_seq FROM sluice_outbox WHERE status = 'sent' ORDER BY id")
_RESENT = text(
    "SELECT event_id FROM sluice_outbox JOIN sluice_outbox_audit USING (group_id, group_seq) WHERE action = 'resend'"
)
_BROUGHT_BACK = text(
    "SELECT consumer, event_id FROM sluice_inbox_audit, jsonb_array_elements(detail::jsonb -> 'moved') AS moved"
    " JOIN sluice_outbox AS o ON (o.group_id, group_seq::text) = (moved ->> 0, moved ->> 2) WHERE action = 'redrive'"
)
_COMMITS = text("SELECT count(DISTINCT (producer, number)) FROM chaos_happened")
_PROGRESS = text(
    "SELECT (SELECT count(*) FROM chaos_happened), (SELECT count(*) FROM sluice_outbox WHERE status <> 'sent'),"
    " (SELECT count(*) FROM sluice_inbox_parked),"
    " (SELECT coalesce(json_object_agg(consumer, n), '{}') FROM"
    " (SELECT consumer, count(DISTINCT event_id) AS n FROM chaos_effect GROUP BY consumer) AS per_consumer)"
)


class Progress:
    """The progress of a run: events committed, messages not sent, messages set aside, and events done by consumer."""

    def __init__(self, row: tuple[int, int, int, Mapping[str, int]]) -> None:
        self.committed, self.unsent, self.parked, self.done = row

    def is_done(self, consumers: Iterable[str]) -> bool:
        """Return whether every consumer has done everything."""
        is_clear = not (self.unsent or self.parked)
        return is_clear and all(self.done.get(consumer, 0) >= self.committed for consumer in consumers)


def progress(engine: Engine) -> Progress:
    """Return how far the run is."""
    with engines.reading(engine) as connection:
        return Progress(tuple(connection.execute(_PROGRESS).one()))


def held_messages(engine: Engine) -> list[tuple[str, str, int]]:
    """Return consumer, group and number of messages that wait for an operator."""
    with engines.reading(engine) as connection:
        return [(consumer, group, seq) for consumer, group, seq in connection.execute(_HELD)]


def gather(
    engine: Engine, tried: Mapping[str, TransactionState], dead: Iterable[tuple[str, str]], *, is_settled: bool
) -> DatabaseEvidence:
    """Return all evidence there is."""
    with engines.reading(engine) as connection:
        return DatabaseEvidence(
            acknowledged=frozenset(
                event_id for event_id, known in tried.items() if known is TransactionState.COMMITTED
            ),
            rolled_back=frozenset(
                event_id for event_id, known in tried.items() if known is TransactionState.ROLLED_BACK
            ),
            committed=_rows(connection, _COMMITTED, CommittedEvent),
            published=_rows(connection, _PUBLISHED, OutboxMessage),
            done=_rows(connection, _DONE, AppliedEffect),
            listed=_rows(connection, _LISTED, InboxNumbers),
            dead=frozenset(dead),
            parked=frozenset((consumer, event_id) for consumer, event_id in connection.execute(_PARKED)),
            is_settled=is_settled,
        )


def _rows[R](connection: Connection, query: TextClause, of: type[R]) -> tuple[R, ...]:
    """Return what a query finds as values of a class, whose fields are in the order of the columns."""
    return tuple(of(**dict(zip(of.__annotations__, row, strict=True))) for row in connection.execute(query))


def dead_letters(sqs: Any, urls: Mapping[str, str]) -> set[tuple[str, str]]:
    """Return consumer and event id of what lies in the DLQs; of each group the first ten, as a FIFO queue has it."""
    found: set[tuple[str, str]] = set()
    for consumer, url in urls.items():
        while messages := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=30).get(
            "Messages"
        ):
            found |= {(consumer, event_id) for message in messages for event_id in _event_ids(message["Body"])}
    return found


def _event_ids(body: str) -> tuple[str, ...]:
    """Return the ids of the events in a message: one, or those of a bundle."""
    fields = json.loads(body)
    return tuple(str(event["id"]) for event in fields.get("events", [fields]))


def take_messages(sqs: Any, url: str) -> list[SentMessage]:
    """Take all messages out of a queue that nobody else receives from."""
    taken: list[SentMessage] = []
    receive = {"QueueUrl": url, "MaxNumberOfMessages": 10, "AttributeNames": ["MessageDeduplicationId"]}
    while messages := sqs.receive_message(**receive).get("Messages"):
        taken += [
            SentMessage(message["Attributes"]["MessageDeduplicationId"], _event_ids(message["Body"]))
            for message in messages
        ]
        handles = [
            {"Id": str(place), "ReceiptHandle": message["ReceiptHandle"]} for place, message in enumerate(messages)
        ]
        sqs.delete_message_batch(QueueUrl=url, Entries=handles)
    return taken


def resent_ids(engine: Engine) -> set[str]:
    """Return the ids of the events that an operator has sent again."""
    with engines.reading(engine) as connection:
        return set(connection.execute(_RESENT).scalars())


def events_from_dlqs(engine: Engine) -> set[ConsumerEvent]:
    """Return the events that operators found in the DLQ of a consumer, and brought back."""
    with engines.reading(engine) as connection:
        return {(consumer, event_id) for consumer, event_id in connection.execute(_BROUGHT_BACK)}


def sent_numbers(connection: Connection) -> list[tuple[str, int]]:
    """Return group and number of what was sent, in order."""
    return [(group, seq) for group, seq in connection.execute(_SENT)]


def commits(engine: Engine) -> int:
    """Return how many transactions the producers committed."""
    with engines.reading(engine) as connection:
        return int(connection.execute(_COMMITS).scalar_one())
