"""The producer of a load test with `destination: outbox`: it commits to an outbox what it reads.

Each line of standard input is a JSON list of message bodies, envelopes as an outbox makes them. They are committed in
one transaction. An event that the outbox already has is left out: a publisher that a fault ended sends it again.
"""

import json
import sys
from collections.abc import Sequence

import click
from sqlalchemy import Connection, Engine, select
from sqlalchemy.exc import DBAPIError

from sluice.clock import SystemClock
from sluice.messaging import Outbox
from sluice.messaging.database import engines, failures
from sluice.messaging.envelope import Envelope, decode
from sluice.messaging.outbox import tables

_AGAIN_SECONDS = 0.2
_TRIES_MAX = 600  # two minutes at least, longer than anybody else holds a lock


@click.command()
@click.option("--dsn", required=True, help="SQLAlchemy URL of the outbox's database.")
@click.option("--topic", required=True, help="Name of the topic.")
@click.option("--event-bytes-max", type=int, required=True, help="Size of the largest message.")
def main(dsn: str, topic: str, event_bytes_max: int) -> None:
    """Commit the bodies of each line of standard input, until it ends."""
    engine = engines.engine(dsn)
    outbox = Outbox(topic, event_bytes_max=event_bytes_max)
    for line in sys.stdin:
        commit(engine, outbox, [decode(body) for body in json.loads(line)])


def commit(engine: Engine, outbox: Outbox, envelopes: Sequence[Envelope]) -> None:
    """Commit the events of envelopes with the numbers they have.

    Retry while the database is locked or cannot be reached.

    Raises:
        DBAPIError: no try succeeded for minutes, or the database refuses the statement.
    """
    clock = SystemClock()
    for tries_left in reversed(range(_TRIES_MAX)):
        try:
            with engine.begin() as connection:
                _write(connection, outbox, envelopes)
        except DBAPIError as error:
            if not tries_left or not failures.may_pass(error):
                raise
            clock.sleep(_AGAIN_SECONDS)
        else:
            return


def _write(connection: Connection, outbox: Outbox, envelopes: Sequence[Envelope]) -> None:
    """Insert the events that the outbox does not have yet; a group's first event also makes its counter."""
    messages, groups = tables.messages, tables.groups
    ids = [envelope.event.id for envelope in envelopes]
    known = set(
        connection.scalars(
            select(messages.c.event_id).where(messages.c.topic == outbox.topic, messages.c.event_id.in_(ids))
        )
    )
    missing = [envelope for envelope in envelopes if envelope.event.id not in known]
    if not missing:
        return
    # Groups count from 1 in the epoch of the run, by which its messages are told from those of other runs.
    epochs = {envelope.event.group: envelope.epoch for envelope in missing}
    counter = {"topic": outbox.topic, "last_seq": 0, "updated_at_us": engines.now_us(connection, None)}
    connection.execute(
        engines.insert(connection.dialect.name, groups)
        .values([{**counter, "group_id": group, "epoch": epoch} for group, epoch in sorted(epochs.items())])
        .on_conflict_do_nothing()
    )
    outbox.write(connection, [envelope.event for envelope in missing])


if __name__ == "__main__":
    main()
