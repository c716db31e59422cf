"""SQLite lets transactions wait and keeps commits through a power cut only when it is opened right (X2, X3)."""

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, event, func, select
from sqlalchemy.orm import Session

from sluice.messaging import Event, Outbox
from sluice.messaging.database import engines
from sluice.messaging.errors import OutboxError
from sluice.messaging.outbox import tables

OUTBOX = Outbox("events.fifo")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of an SQLite file with the outbox's tables."""
    path = tmp_path / "outbox.db"
    made = engines.engine(f"sqlite:///{path}")
    with made.begin() as connection:
        tables.metadata.create_all(connection)
    made.dispose()
    return path


@pytest.fixture
def sqlite_engine(path: Path) -> Iterator[Engine]:
    """Yield an engine of ours on this file."""
    made = engines.engine(f"sqlite:///{path}")
    yield made
    made.dispose()


def test_x2_threads_that_read_and_then_write_wait_for_each_other(sqlite_engine: Engine) -> None:
    """Four threads commit ten transactions each in two groups; none fails, and no number is missing."""

    def produce(thread: int) -> None:
        for number in range(10):
            with Session(sqlite_engine) as session:
                seen = session.execute(select(func.count()).select_from(tables.messages)).scalar_one()
                OUTBOX.add(session, Event(type="t", group=f"g{number % 2}", data=[thread, seen]))
                session.commit()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(produce, range(4)))

    m = tables.messages.c
    with engines.reading(sqlite_engine) as connection:
        numbers = connection.execute(select(m.group_id, m.group_seq).order_by(m.group_id, m.group_seq)).all()
    assert [tuple(number) for number in numbers] == [(group, seq) for group in ("g0", "g1") for seq in range(1, 21)]


def test_x2_a_deferred_transaction_would_fail_at_once(path: Path) -> None:
    """X2, negative control: a transaction that read before another one wrote cannot write, and does not wait."""
    first, second = (sqlite3.connect(path, isolation_level=None, timeout=60) for _ in range(2))
    write = "INSERT INTO sluice_outbox_group (topic, group_id, last_seq) VALUES (?, 'g', 1)"

    first.execute("BEGIN")
    first.execute("SELECT * FROM sluice_outbox_group").fetchall()
    second.execute(write, ("second",))
    with pytest.raises(sqlite3.OperationalError, match="database is locked"):
        first.execute(write, ("first",))

    first.close()
    second.close()


def test_x2_a_reader_waits_for_no_writer(sqlite_engine: Engine) -> None:
    """It sees the state before the writer's open transaction."""
    with sqlite_engine.begin() as writer:
        OUTBOX.write(writer, [Event(type="t", group="g", data=None)])

        with engines.reading(sqlite_engine) as reader:
            assert reader.execute(select(func.count()).select_from(tables.messages)).scalar_one() == 0


def test_x3_a_commit_survives_a_power_cut(sqlite_engine: Engine) -> None:
    """SQLite's mode FULL (2) syncs the log at each commit."""
    with engines.reading(sqlite_engine) as item, engines.reading(sqlite_engine) as other:
        for connection in (item, other):
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar_one() == 2
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar_one() == "wal"


@pytest.mark.parametrize(("synchronous", "seen"), [("OFF", 0), ("NORMAL", 1)], ids=["OFF", "NORMAL"])
def test_x3_an_event_is_refused_on_connections_that_may_lose_commits(path: Path, synchronous: str, seen: int) -> None:
    """A program's own engine has another mode until `make_durable` is called for it.

    `seen` is SQLite's number of that mode.
    """
    theirs = create_engine(f"sqlite:///{path}")

    @event.listens_for(theirs, "connect")
    def set_synchronous(connection: sqlite3.Connection, _: object) -> None:
        connection.execute(f"PRAGMA synchronous={synchronous}").close()

    with Session(theirs) as session:
        OUTBOX.add(session, Event(type="t", group="g", data=None))
        with pytest.raises(OutboxError) as refused:
            session.commit()
    engines.make_durable(theirs)
    theirs.dispose()
    with Session(theirs) as session:
        OUTBOX.add(session, Event(type="t", group="g", data=None))
        session.commit()
        count = session.execute(select(func.count()).select_from(tables.messages)).scalar_one()
    theirs.dispose()

    assert str(refused.value) == (
        f"PRAGMA synchronous is {seen}, allowed is 2 (FULL) or more: a message could be out whose commit a power cut"
        " takes back; open the database with engines.engine or make_durable"
    )
    assert count == 1
