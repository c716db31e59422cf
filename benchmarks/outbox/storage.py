"""Measure a message on the disk of Postgres: its row with all indexes, and the write-ahead log of its life."""

from collections.abc import Mapping
from functools import partial

from sqlalchemy import Engine, text, update

from benchmarks import databases
from benchmarks.databases import POSTGRES
from benchmarks.report import Section, table
from benchmarks.rounds import interleave
from sluice.messaging.envelope import Event
from sluice.messaging.inbox import tables as inbox
from sluice.messaging.outbox.tables import SENT, messages

_EVENTS, _GROUPS = 20_000, 1_000
_DATA_BYTES = 850  # with the envelope, a body of 1 KiB
_SENT = {"status": SENT, "sent_at_us": 0, "sns_message_id": "0" * 36, "sns_sequence_number": "0" * 20}
_FILL_INBOX = """
INSERT INTO sluice_inbox_group (consumer, group_id, epoch, first_seq, last_seq, last_event_id, updated_at_us)
SELECT 'billing', 'group-' || n, 1, 1, 1, gen_random_uuid()::text, 0 FROM generate_series(1, :groups) AS n
"""


def measure(urls: Mapping[str, str], rounds: int) -> Section:
    """Return the bytes of a message in the outbox, of its write-ahead log, and of a group in the inbox."""
    url = urls[POSTGRES]
    found = interleave(
        {
            "a message in the outbox, 1 KiB, with its indexes": partial(_outbox_bytes, url),
            "the log of its insert and of its mark, checkpoints not counted": partial(_log_bytes, url),
            "a group in a consumer's inbox, with its indexes": partial(_inbox_bytes, url),
        },
        rounds,
    )
    rows = [(name, f"{measured.median:,.0f}", measured.noise) for name, measured in found.items()]
    return Section(tables={"storage": table(("what", "bytes", "noise"), rows, text_columns=1)}, plots={})


def _outbox_bytes(url: str) -> float:
    with databases.with_empty_tables(url) as engine:
        _write_and_mark_sent(engine)
        return _size(engine, "sluice_outbox") / _EVENTS


def _log_bytes(url: str) -> float:
    with databases.with_empty_tables(url) as engine:
        with engine.connect() as connection:
            began = connection.execute(text("SELECT pg_current_wal_lsn()")).scalar_one()
        _write_and_mark_sent(engine)
        with engine.connect() as connection:
            written = connection.execute(text("SELECT pg_current_wal_lsn() - CAST(:began AS pg_lsn)"), {"began": began})
            return float(written.scalar_one()) / _EVENTS


def _inbox_bytes(url: str) -> float:
    with databases.with_empty_tables(url, inbox.metadata) as engine:
        with engine.begin() as connection:
            connection.execute(text(_FILL_INBOX), {"groups": _EVENTS})
        return _size(engine, "sluice_inbox_group") / _EVENTS


def _write_and_mark_sent(engine: Engine) -> None:
    """Write messages in large transactions, and mark them as sent, as a busy producer and a busy relay do."""
    events = [
        Event(type="a.b", group=f"group-{n % _GROUPS}", data={"filler": "x" * _DATA_BYTES}) for n in range(_EVENTS)
    ]
    databases.fill(engine, events)
    with engine.begin() as connection:
        connection.execute(update(messages).values(**_SENT))
    databases.vacuum(engine)


def _size(engine: Engine, name: str) -> int:
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT pg_total_relation_size(:name)"), {"name": name}).scalar_one())
