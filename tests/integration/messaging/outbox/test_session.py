"""A producer's session commits an event with everything else that the session does, or not at all."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import Engine, func, insert, select
from sqlalchemy import event as hooks
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker

from sluice.clock import VirtualClock
from sluice.errors import ConfigError
from sluice.messaging import Event, Outbox
from sluice.messaging.database import engines
from sluice.messaging.errors import OutboxError
from sluice.messaging.outbox import tables
from sluice.messaging.outbox.outbox import channel

TOPIC, OTHER = "events.fifo", "audit.fifo"
OUTBOX = Outbox(TOPIC)


class _Base(DeclarativeBase):
    pass


class Order(_Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)


@pytest.mark.parametrize(
    "topic",
    ["", "events", "arn:aws:sns:us-east-1:1:events.fifo", f"{'a' * 252}.fifo", None],
    ids=["empty", "standard topic", "ARN", "257 characters", "None"],
)
def test_an_outbox_of_no_fifo_topic_is_refused(topic: Any) -> None:
    """Events of such an outbox would wait for ever for a relay that nobody starts."""
    with pytest.raises(ConfigError, match=r"^topic of Outbox is .*, allowed is the name of a FIFO topic"):
        Outbox(topic)


@pytest.fixture
def session(engine: Engine) -> Iterator[Session]:
    """Yield a session on a database with outbox and orders, once on SQLite and once on Postgres."""
    _Base.metadata.create_all(engine)
    with Session(engine) as made:
        yield made


def make_event(data: Any, *, group: str = "g", **more: Any) -> Event:
    """Return an event with this data."""
    return Event(type="t", group=group, data=data, **more)


def stored_rows(engine: Engine) -> list[tuple[str, str, int, Any]]:
    """Return topic, group, number and data of each message in the outbox."""
    m = tables.messages.c
    with engine.connect() as connection:
        rows = connection.execute(select(m.topic, m.group_id, m.group_seq, m.body).order_by(m.topic, m.id)).all()
    return [(topic, group, seq, json.loads(body)["data"]) for topic, group, seq, body in rows]


def order_count(engine: Engine) -> int:
    """Return how many orders were committed."""
    with engine.connect() as connection:
        return connection.execute(select(func.count()).select_from(Order)).scalar_one()


def test_adding_neither_flushes_nor_commits_nor_locks(engine: Engine, session: Session) -> None:
    """Another transaction writes meanwhile, on SQLite too, where a second writer would have to wait."""
    order = Order()
    session.add(order)

    OUTBOX.add(session, make_event(1))
    is_pending = order in session.new
    with engine.begin() as other:
        other.execute(insert(Order).values(id=77))
    before = stored_rows(engine)
    session.commit()

    assert is_pending
    assert before == []
    assert stored_rows(engine) == [(TOPIC, "g", 1, 1)]
    assert order_count(engine) == 2


@pytest.mark.parametrize("end", [Session.commit, Session.rollback, Session.close])
def test_a_session_without_an_event_keeps_nothing_of_ours(session: Session, end: Callable[[Session], None]) -> None:
    """`Session.info` is the program's own dictionary."""
    session.execute(select(1))

    end(session)

    assert session.info == {}


def test_an_event_that_was_not_committed_is_not_stored(engine: Engine, session: Session) -> None:
    """After a rollback, an error in a block, or a close, which also warns.

    The next commit stores only its own event.
    """
    OUTBOX.add(session, make_event("rolled back"))
    session.rollback()
    with suppress(ZeroDivisionError), session.begin():
        OUTBOX.add(session, make_event("an error"))
        1 / 0  # noqa: B018 (the error)
    OUTBOX.add(session, make_event("closed"))
    with pytest.warns(
        RuntimeWarning, match="^a session ended with 1 events, the first of them .* neither committed nor"
    ):
        session.close()

    OUTBOX.add(session, make_event("committed"))
    session.commit()

    assert stored_rows(engine) == [(TOPIC, "g", 1, "committed")]


def test_a_rolled_back_savepoint_removes_its_event(engine: Engine, session: Session) -> None:
    """And the events of the savepoints inside it."""
    OUTBOX.add(session, make_event("before"))
    with session.begin_nested():
        OUTBOX.add(session, make_event("kept"))
    outer = session.begin_nested()
    OUTBOX.add(session, make_event("outer"))
    with session.begin_nested():
        OUTBOX.add(session, make_event("inner"))
    outer.rollback()
    OUTBOX.add(session, make_event("after"))

    session.commit()

    assert [data for _, _, _, data in stored_rows(engine)] == ["before", "kept", "after"]


def test_a_savepoint_whose_flush_fails_removes_its_event(engine: Engine, session: Session) -> None:
    """Programs use a savepoint in this way to insert a row that may exist already."""
    session.add(Order(id=1))
    OUTBOX.add(session, make_event("first"))
    session.flush()

    savepoint = session.begin_nested()
    OUTBOX.add(session, make_event("second"))
    session.add(Order(id=1))
    with pytest.raises(IntegrityError):
        savepoint.commit()
    savepoint.rollback()
    session.commit()

    assert stored_rows(engine) == [(TOPIC, "g", 1, "first")]


def test_events_may_be_added_to_a_scoped_session(engine: Engine) -> None:
    """Frameworks give programs the registry itself, and not a session."""
    registry = scoped_session(sessionmaker(engine))

    OUTBOX.add(registry, make_event("kept"))
    registry.commit()
    OUTBOX.add(registry, make_event("lost"))
    with pytest.warns(RuntimeWarning, match="neither committed nor rolled back: they are not published"):
        registry.remove()

    assert stored_rows(engine) == [(TOPIC, "g", 1, "kept")]


def test_a_session_without_autobegin_commits_its_event(engine: Engine) -> None:
    """SQLAlchemy begins no transaction by itself then, and the event begins one."""
    with Session(engine, autobegin=False) as session:
        OUTBOX.add(session, make_event(1))
        session.commit()

    assert stored_rows(engine) == [(TOPIC, "g", 1, 1)]


def test_a_flush_hook_may_add_the_first_event_of_a_session(engine: Engine, session: Session) -> None:
    """The flush is part of the commit. Programs often add domain events in such a hook."""

    @hooks.listens_for(session, "before_flush")
    def before_flush(session: Session, *_: object) -> None:
        for _order in session.new:
            OUTBOX.add(session, make_event("placed"))

    session.add(Order())
    session.commit()
    session.add_all([Order(), Order()])
    session.commit()

    assert [seq for _, _, seq, _ in stored_rows(engine)] == [1, 2, 3]


@pytest.mark.parametrize("is_first", [True, False])
def test_an_event_added_in_a_before_commit_hook_is_refused(engine: Engine, session: Session, *, is_first: bool) -> None:
    """Numbers are given at that time: the event would be lost, or would overtake another.

    After the refusal nothing is committed.
    """

    @hooks.listens_for(session, "before_commit")
    def before_commit(session: Session) -> None:
        OUTBOX.add(session, make_event("late", id="e2"))

    session.add(Order())
    if not is_first:
        OUTBOX.add(session, make_event("in time"))
    with pytest.raises(OutboxError) as refused:
        session.commit()
    session.rollback()

    assert str(refused.value) == (
        "event e2 was added while its session commits, after the numbers were given; add it earlier, in before_flush"
        " for example"
    )
    assert stored_rows(engine) == []
    assert order_count(engine) == 0


def test_a_commit_around_an_open_savepoint_is_refused(engine: Engine, session: Session) -> None:
    """SQLAlchemy does not tell it from the savepoint's own; an event would be lost without a word."""
    transaction = session.begin()
    session.add(Order())
    session.begin_nested()
    OUTBOX.add(session, make_event(1, id="e1"))

    with pytest.raises(OutboxError) as refused, transaction:
        pass

    assert str(refused.value) == (
        "a transaction with event e1 commits around an open savepoint; end the savepoint first"
    )
    assert stored_rows(engine) == []
    assert order_count(engine) == 0


def test_a_session_that_commits_with_a_savepoint_open_commits_its_events(engine: Engine, session: Session) -> None:
    """`Session.commit` ends the savepoint itself."""
    session.begin_nested()
    OUTBOX.add(session, make_event(1))

    session.commit()

    assert stored_rows(engine) == [(TOPIC, "g", 1, 1)]


def test_one_session_may_add_to_two_topics(engine: Engine, session: Session) -> None:
    """Each topic has its own numbers, and a rollback removes the events of both."""
    for data in range(2):
        OUTBOX.add(session, make_event(data))
        Outbox(OTHER).add(session, make_event(data))
    session.commit()
    Outbox(OTHER).add(session, make_event("lost"))
    OUTBOX.add(session, make_event("lost"))
    session.rollback()

    assert stored_rows(engine) == [(OTHER, "g", 1, 0), (OTHER, "g", 2, 1), (TOPIC, "g", 1, 0), (TOPIC, "g", 2, 1)]


def test_an_event_cannot_be_committed_twice(engine: Engine, session: Session) -> None:
    """The second commit with the same event id fails, and its order is not stored either."""
    OUTBOX.add(session, make_event("first", id="e1"))
    session.commit()

    session.add(Order())
    OUTBOX.add(session, make_event("second", id="e1"))
    with pytest.raises(IntegrityError):
        session.commit()
    with pytest.raises(DBAPIError):
        session.commit()
    session.rollback()

    assert stored_rows(engine) == [(TOPIC, "g", 1, "first")]
    assert order_count(engine) == 0


def test_a_commit_without_the_outboxs_tables_names_the_command_to_create_them(engine: Engine, session: Session) -> None:
    """Neither the event nor the program's own row is committed."""
    tables.metadata.drop_all(engine)
    session.add(Order())
    OUTBOX.add(session, make_event(1))

    with pytest.raises(OutboxError) as refused:
        session.commit()
    session.rollback()

    assert str(refused.value) == (
        "the outbox's tables are not in this database; create them with `sluice schema apply outbox`"
    )
    assert order_count(engine) == 0


def event_times(session: Session) -> list[tuple[str, int]]:
    """Return, of each message in the outbox, when its event happened (`at`) and when its row was created."""
    m = tables.messages.c
    rows = session.execute(select(m.body, m.created_at_us).order_by(m.id)).all()
    return [(json.loads(body)["at"], created_at_us) for body, created_at_us in rows]


def test_an_events_time_is_its_commit_unless_given(engine: Engine, session: Session) -> None:
    """The outbox's clock moves between add and commit."""
    added_at_us, committed_at_us = 1_767_225_600_000_000, 1_767_225_600_250_000
    clock = VirtualClock(added_at_us)
    outbox_with_clock = Outbox(TOPIC, clock=clock)
    outbox_with_clock.add(session, make_event(1))
    outbox_with_clock.add(session, make_event(2, at=datetime(2025, 12, 24, tzinfo=UTC)))
    clock.sleep((committed_at_us - added_at_us) / 1_000_000)
    session.commit()

    assert event_times(session) == [
        ("2026-01-01T00:00:00.250000+00:00", committed_at_us),
        ("2025-12-24T00:00:00+00:00", committed_at_us),
    ]


def test_an_events_time_comes_from_the_databases_clock_by_default(engine: Engine, session: Session) -> None:
    """Clocks of several producers would disagree."""
    OUTBOX.add(session, make_event(1))
    session.commit()

    [(happened_at, created_at_us)] = event_times(session)
    instant = datetime.fromisoformat(happened_at)
    assert instant > datetime(2026, 1, 1, tzinfo=UTC)
    assert instant.timestamp() == pytest.approx(created_at_us / 1_000_000)


def test_an_event_of_exactly_the_limit_is_committed(engine: Engine, session: Session) -> None:
    """256 KiB, of which the event without its data takes a part."""
    room = 262_144 - make_event("").size_bytes

    OUTBOX.add(session, make_event("x" * room))
    session.commit()

    assert [len(data) for _, _, _, data in stored_rows(engine)] == [room]


def test_without_a_session_events_are_written_with_the_connection(engine: Engine) -> None:
    """They are committed and rolled back with it, and each group's numbers have the order of the list."""
    with engine.begin() as connection:
        OUTBOX.write(connection, [make_event(1, group="b"), make_event(2, group="a"), make_event(3, group="b")])
        OUTBOX.write(connection, [])
    with engine.connect() as connection:
        OUTBOX.write(connection, [make_event("lost")])

    assert stored_rows(engine) == [(TOPIC, "a", 1, 2), (TOPIC, "b", 1, 1), (TOPIC, "b", 2, 3)]


@pytest.mark.slow  # many megabytes
def test_a_large_list_of_events_is_written_in_several_statements(postgres: Engine) -> None:
    """Postgres closes a connection that sends a message of a gibibyte; each statement stays below 64 MiB."""
    sizes: list[int] = []
    events = [make_event("x" * 260_000, group=group) for group in "abc" for _ in range(100)]

    with postgres.begin() as connection:

        def before(_1: object, _2: object, _3: object, parameters: dict[str, Any], *_: object) -> None:
            columns = [its for its in parameters.values() if isinstance(its, list)]
            sizes.append(sum(len(str(its)) for column in columns for its in column))

        hooks.listen(connection, "before_cursor_execute", before)
        OUTBOX.write(connection, events)

    assert sum(sizes) > sum(event.size_bytes for event in events) * 0.9
    assert max(sizes) < 2**26
    with postgres.connect() as connection:
        assert dict(connection.execute(select(tables.groups.c.group_id, tables.groups.c.last_seq)).all()) == {
            "a": 100,
            "b": 100,
            "c": 100,
        }
        assert connection.scalar(select(func.count()).select_from(tables.messages)) == len(events)


def test_a_groups_epoch_is_the_second_of_its_first_event(engine: Engine) -> None:
    """By the outbox's clock, or the database's if it has none. Later events keep the epoch."""
    clock = VirtualClock(1_767_225_600_900_000)
    outbox = Outbox(TOPIC, clock=clock)
    for group in ("a", "b", "a"):
        with engine.begin() as connection:
            outbox.write(connection, [make_event(1, group=group)])
        clock.sleep(10)
    with engine.begin() as connection:
        before_us = engines.now_us(connection, None)
        OUTBOX.write(connection, [make_event(1, group="now")])
        after_us = engines.now_us(connection, None)
        bodies = map(json.loads, connection.scalars(select(tables.messages.c.body).order_by(tables.messages.c.id)))

    *given, now = [(body["group"], body["epoch"], body["seq"]) for body in bodies]
    assert given == [("a", 1_767_225_600, 1), ("b", 1_767_225_610, 1), ("a", 1_767_225_600, 2)]
    assert before_us // 1_000_000 <= now[1] <= after_us // 1_000_000


def test_a_commit_notifies_listeners_if_the_outbox_is_set_to(postgres: Engine) -> None:
    """A relay that listens publishes at once; neither a rollback nor an outbox without `notify` notifies."""
    loud = Outbox(TOPIC, notify=True)
    listening = postgres.raw_connection()
    driver = listening.driver_connection
    assert driver is not None
    driver.autocommit = True
    driver.execute(f'LISTEN "{channel(TOPIC)}"')

    with Session(postgres) as session:
        OUTBOX.add(session, make_event("quiet"))
        session.commit()
        loud.add(session, make_event("lost"))
        session.rollback()
        loud.add(session, make_event("loud"))
        session.commit()

    assert [notice.channel for notice in driver.notifies(timeout=20, stop_after=1)] == ["sluice_outbox:events.fifo"]
    assert list(driver.notifies(timeout=0)) == []
    listening.invalidate()
