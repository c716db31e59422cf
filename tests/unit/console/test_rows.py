"""The pages of a console's listing show each row once."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, insert

from sluice.console import rows
from sluice.messaging.database import engines
from sluice.messaging.inbox.tables import metadata, parked

GROUP = "order-7"
PLACES = [(1, seq) for seq in range(1, 41)] + [(2, seq) for seq in range(2, 41)]
"""Epoch and number of messages: a page that ends between two of one number is among theirs."""


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = engines.engine(f"sqlite:///{tmp_path / 'inbox.db'}")
    message: dict[str, object] = {
        "consumer": "billing",
        "group_id": GROUP,
        "event_id": "e",
        "body": "{}",
        "attributes": "{}",
    }
    message |= {"sqs_message_id": "m", "parked_at_us": 1}
    with engine.begin() as connection:
        metadata.create_all(connection)
        connection.execute(insert(parked), [{**message, "epoch": epoch, "seq": seq} for epoch, seq in PLACES])
    yield engine
    engine.dispose()


def test_pages_of_parked_messages_miss_none_of_two_epochs(engine: Engine) -> None:
    shown: list[tuple[int, int]] = []
    after: str | None = ""
    with engine.connect() as connection:
        while after is not None:
            page = rows.find_parked(connection, "billing", GROUP, after=after)
            shown += [(row.epoch, row.seq) for row in page.rows]
            after = page.next_after

    assert shown == PLACES
