"""However a session is made, bound and ended, its rows and its events are committed together, or somebody is told.

Each case writes a row and adds an event that names it. Afterwards no event may be there without its row, and no row
without its event unless the program was refused or warned.
"""

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, insert, select, text
from sqlalchemy import event as hooks
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker

from sluice.errors import ConfigError
from sluice.messaging import Event, Outbox
from sluice.messaging.database import engines
from sluice.messaging.errors import OutboxError
from sluice.messaging.outbox import tables
from tests.support.cases import one_case_in

OUTBOX = Outbox("events.fifo")


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    state: Mapped[str] = mapped_column(default="new")


class Note(Base):
    """A row without an event, in another database."""

    __tablename__ = "notes"
    id: Mapped[int] = mapped_column(primary_key=True)


class World:
    """A database with outbox and orders, another database, and the program's errors and warnings."""

    def __init__(self, engine: Engine, other: Engine) -> None:
        self.engine, self.other, self.outer = engine, other, ExitStack()
        self.notices: list[str] = []
        self.made: list[Engine] = []
        for each in (engine, other):
            tables.metadata.create_all(each)
            Base.metadata.create_all(each)

    def place(self, session: Any, number: int, *, is_flushed: bool = True) -> None:
        """Write an order and add its event."""
        session.add(Order(id=number))
        if is_flushed:
            session.flush()
        OUTBOX.add(session, Event(type="placed", group="g", data=number))

    def run(self, case: Callable[["World", Any], object], session: Any) -> None:
        """Run a case to its end as a program would, and keep its errors and warnings."""
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            session = session() if isinstance(session, scoped_session) else session
            for step in (lambda: case(self, session), session.close, self.outer.close):
                try:
                    step()
                except Exception as error:  # whatever a program is told
                    self.notices.append(f"{type(error).__name__}: {error}")
        for each in self.made:  # after its session: what comes back later, nobody closes
            each.dispose()
        self.notices += [str(warning.message) for warning in warned]

    def stored_numbers(self) -> tuple[set[int], set[int]]:
        """Return the orders and the events that were committed, in both databases."""
        rows, events = set[int](), set[int]()
        for each in (self.engine, self.other):
            with each.connect() as connection:
                rows |= set(connection.scalars(select(Order.id)))
                events |= {
                    int(body.rpartition(":")[2].rstrip("}"))
                    for body in connection.scalars(select(tables.messages.c.body))
                }
        return rows, events


@pytest.fixture
def world(engine: Engine, database_folder: Path) -> Iterator[World]:
    """Yield a database with outbox and orders, and another SQLite database."""
    other = engines.engine(f"sqlite:///{database_folder / 'other.db'}")
    yield World(engine, other)
    other.dispose()


def _session_in_a_transaction(mode: str, *, is_nested: bool = False) -> Callable[[World], Session]:
    """Return a function that makes a session inside a connection's transaction, joined in this mode."""

    def make(world: World) -> Session:
        connection = world.outer.enter_context(world.engine.begin())
        if is_nested:
            connection.begin_nested()
        return Session(bind=connection, join_transaction_mode=mode)  # type: ignore[arg-type]

    return make


class _Routing(Session):
    """A session that routes orders to one database and all other rows to another."""

    routes: dict[type, Engine]
    default: Engine

    def get_bind(self, mapper: Any = None, *_: object, **__: object) -> Any:
        return self.routes.get(getattr(mapper, "class_", None), self.default)  # type: ignore[arg-type]


class _Strict(_Routing):
    """A routing that knows mapped classes only."""

    def get_bind(self, mapper: Any = None, *_: object, **__: object) -> Any:
        return self.routes[mapper.class_]


def _routed_session(kind: type[_Routing], *, is_swapped: bool = False) -> Callable[[World], Session]:
    """Return a function that makes a session of this class, which writes orders and notes to different databases."""

    def make(world: World) -> Session:
        here, there = (world.other, world.engine) if is_swapped else (world.engine, world.other)
        kind.routes, kind.default = {Order: here, Note: there}, there
        return kind()

    return make


def _session_with_listener(world: World) -> Session:
    """Return a session on an engine of SQLAlchemy's, whose listener fails at the second commit."""
    theirs, count = create_engine(world.engine.url), iter(range(9))
    world.made.append(theirs)

    @hooks.listens_for(theirs, "commit")
    def fail(_: Connection) -> None:
        if next(count) == 1:
            raise DBAPIError("COMMIT", {}, Exception("a listener failed"))

    return Session(theirs)


def _session_on_their_engine(world: World) -> Session:
    """Return a session on an engine that the application made itself, without ours."""
    theirs = create_engine(world.engine.url)
    world.made.append(theirs)
    return Session(theirs)


KINDS: dict[str, Callable[[World], Any]] = {
    "plain": lambda world: Session(world.engine),
    "engine of SQLAlchemy": _session_on_their_engine,
    "failing listener": _session_with_listener,
    "scoped": lambda world: scoped_session(sessionmaker(world.engine)),
    "no autoflush": lambda world: Session(world.engine, autoflush=False, expire_on_commit=False),
    "binds": lambda world: Session(binds={Order: world.engine, Note: world.other}),
    "binds and bind": lambda world: Session(world.other, binds={Order: world.engine}),
    "routing": _routed_session(_Routing),
    "routing to the other": _routed_session(_Routing, is_swapped=True),
    "strict routing": _routed_session(_Strict),
    "joined": _session_in_a_transaction("conditional_savepoint"),
    "joined in a savepoint": _session_in_a_transaction("conditional_savepoint", is_nested=True),
    "joined, rollback only": _session_in_a_transaction("rollback_only"),
    "joined, control": _session_in_a_transaction("control_fully"),
    "joined, savepoint": _session_in_a_transaction("create_savepoint"),
}


def _commit(world: World, session: Any) -> None:
    """Commit order 1, then order 2."""
    world.place(session, 1, is_flushed=False)
    session.commit()
    world.place(session, 2)
    session.commit()


def _commit_again(world: World, session: Any) -> None:
    """Go on after whatever happened, as a loop over messages does."""
    for number in (1, 2, 3):
        with suppress(SQLAlchemyError, OutboxError):
            world.place(session, number)
            session.commit()
        session.rollback()


def _roll_back(world: World, session: Any) -> None:
    """Roll order 1 back, and commit order 2."""
    world.place(session, 1)
    session.rollback()
    world.place(session, 2)
    session.commit()


def _close(world: World, session: Any) -> None:
    """Close the session with order 1 uncommitted."""
    world.place(session, 1)
    session.close()


def _reset(world: World, session: Any) -> None:
    """Reset the session with order 1 uncommitted, and commit order 2."""
    world.place(session, 1)
    session.reset()
    world.place(session, 2)
    session.commit()


def _invalidate(world: World, session: Any) -> None:
    """Invalidate the session's connection with order 1 uncommitted."""
    world.place(session, 1)
    session.invalidate()


def _raise_within(world: World, session: Any) -> None:
    """Let a `begin` block with order 1 fail."""
    with suppress(ZeroDivisionError), session.begin():
        world.place(session, 1)
        1 / 0  # noqa: B018 (the error)


def _expunge_all(world: World, session: Any) -> None:
    """Take order 1 out of the session before it is written, and commit."""
    world.place(session, 1, is_flushed=False)
    session.expunge_all()
    session.commit()


def _connection_commit(world: World, session: Any) -> None:
    """Commit the session's connection with order 1, then the session."""
    world.place(session, 1)
    session.connection(bind_arguments={"mapper": Order.__mapper__}).commit()
    session.commit()


def _connection_commit_alone(world: World, session: Any) -> None:
    """Commit the session's connection with order 1, and never the session."""
    world.place(session, 1)
    session.connection(bind_arguments={"mapper": Order.__mapper__}).commit()


def _connection_rollback(world: World, session: Any) -> None:
    """Roll the session's connection back with order 1, then commit the session."""
    world.place(session, 1)
    session.connection(bind_arguments={"mapper": Order.__mapper__}).rollback()
    session.commit()


def _connection_savepoint(world: World, session: Any) -> None:
    """Commit order 1; roll order 2 back by a savepoint of the connection."""
    world.place(session, 1)
    savepoint = session.connection(bind_arguments={"mapper": Order.__mapper__}).begin_nested()
    world.place(session, 2)
    savepoint.rollback()
    session.expire_all()
    session.commit()


def _execute(statement: str) -> Callable[[World, Any], None]:
    """Return an ending that adds order 1, executes this statement and commits."""

    def run(world: World, session: Any) -> None:
        world.place(session, 1)
        session.execute(text(statement), bind_arguments={"mapper": Order.__mapper__})
        session.commit()

    return run


def _driver(act: str) -> Callable[[World, Any], None]:
    """Return an ending that adds order 1, calls this method of the driver's connection, and commits."""

    def run(world: World, session: Any) -> None:
        world.place(session, 1)
        connection = session.connection(bind_arguments={"mapper": Order.__mapper__})
        getattr(connection.connection.dbapi_connection, act)()
        session.commit()

    return run


def _flush_and_leave(world: World, session: Any) -> None:
    """Flush the rows, and leave the commit to the owner of the outer transaction."""
    world.place(session, 1)
    world.outer.close()


def _savepoints(world: World, session: Any) -> None:
    """Commit orders 1, 2 and 4; roll order 3 back in a savepoint."""
    world.place(session, 1)
    with session.begin_nested():
        world.place(session, 2)
    inner = session.begin_nested()
    world.place(session, 3)
    inner.rollback()
    world.place(session, 4)
    session.commit()


def _savepoint_first(world: World, session: Any) -> None:
    """Add order 1 in a savepoint and roll the whole session back."""
    with session.begin_nested():
        world.place(session, 1)
    session.rollback()


def _add_after_a_failed_flush(world: World, session: Any) -> None:
    """Add an event while the session is unusable after a failed flush, and go on from a savepoint."""
    world.place(session, 1)
    savepoint = session.begin_nested()
    session.add(Order(id=1))
    with suppress(SQLAlchemyError):
        session.flush()
    with suppress(OutboxError):
        OUTBOX.add(session, Event(type="placed", group="g", data=2))
    savepoint.rollback()
    session.commit()


def _begin_twice(world: World, session: Any) -> None:
    """Begin the session a second time with order 1 added, and commit."""
    world.place(session, 1)
    with suppress(SQLAlchemyError):
        session.begin()
    session.commit()


def _prepare(world: World, session: Any) -> None:
    """Prepare order 1 for commit in two phases, and commit."""
    world.place(session, 1)
    session.prepare()
    session.commit()


def _other_session_commits(world: World, session: Any) -> None:
    """Let another session on the same connection commit."""
    world.place(session, 1)
    connection = session.connection(bind_arguments={"mapper": Order.__mapper__})
    with Session(connection, join_transaction_mode="control_fully") as other:
        other.commit()


def _two_databases(world: World, session: Any) -> None:
    """Commit a note and an order, which may be in different databases."""
    session.add(Note(id=1))
    world.place(session, 1)
    session.commit()


def _clear_info(world: World, session: Any) -> None:
    """Clear the dictionary that is the program's own."""
    world.place(session, 1)
    session.info.clear()
    session.commit()


def _driver_commit_and_rollback(world: World, session: Any) -> None:
    """Commit by the driver, as SQLite's `executescript` does, and roll the session back."""
    world.place(session, 1)
    session.connection(bind_arguments={"mapper": Order.__mapper__}).connection.dbapi_connection.commit()
    session.rollback()


def _core_insert(world: World, session: Any) -> None:
    """Commit an order that is inserted without the ORM."""
    session.execute(insert(Order).values(id=1))
    OUTBOX.add(session, Event(type="placed", group="g", data=1))
    session.commit()


ENDINGS: dict[str, Callable[[World, Any], None]] = {
    "commit": _commit,
    "commit again": _commit_again,
    "rollback": _roll_back,
    "close": _close,
    "reset": _reset,
    "invalidate": _invalidate,
    "error": _raise_within,
    "expunge all": _expunge_all,
    "commit of the connection": _connection_commit,
    "commit of the connection alone": _connection_commit_alone,
    "rollback of the connection": _connection_rollback,
    "savepoint of the connection": _connection_savepoint,
    "COMMIT": _execute("COMMIT"),
    "comment and COMMIT": _execute("-- done\nCOMMIT"),
    "END": _execute("END"),
    "ROLLBACK": _execute("ROLLBACK"),
    "SELECT and COMMIT": _execute("SELECT 1; COMMIT"),
    "COMMIT and BEGIN": _execute("COMMIT; BEGIN"),
    "COMMIT AND CHAIN": _execute("COMMIT AND CHAIN"),
    "commit of the driver": _driver("commit"),
    "rollback of the driver": _driver("rollback"),
    "left to the outer": _flush_and_leave,
    "savepoints": _savepoints,
    "savepoint first": _savepoint_first,
    "failed flush": _add_after_a_failed_flush,
    "begun twice": _begin_twice,
    "prepare": _prepare,
    "commit of the driver and rollback": _driver_commit_and_rollback,
    "info is cleared": _clear_info,
    "commit of another session": _other_session_commits,
    "two databases": _two_databases,
    "insert of Core": _core_insert,
}


@pytest.mark.parametrize("ending", one_case_in(4, ENDINGS))
def test_rows_and_events_commit_together_or_the_program_gets_an_error(world: World, ending: str) -> None:
    """Checked for every kind of session, one after the other in one database."""
    found: dict[str, object] = {}
    for kind, make in KINDS.items():
        session = make(world)
        world.run(ENDINGS[ending], session)
        rows, events = world.stored_numbers()
        if events - rows or (rows - events and not world.notices):
            found[kind] = (rows, events, world.notices)
        if not rows and not events and not world.notices and ending in ("commit", "savepoints", "insert of Core"):
            found[kind] = ("nothing was committed, and nobody was told",)
        world.notices = []
        for each in (world.engine, world.other):
            with each.begin() as connection:
                for table in (*tables.metadata.sorted_tables, *Base.metadata.sorted_tables):
                    connection.execute(table.delete())

    assert found == {}


def test_a_commit_is_refused_if_a_changed_row_was_expunged(world: World) -> None:
    """The event may be about that change, which would not be stored. Rows that are already written may be expunged."""
    with Session(world.engine) as session:
        order = Order(id=1)
        session.add(order)
        session.commit()
        order.state = "paid"
        OUTBOX.add(session, Event(type="paid", group="g", data=1, id="e1"))
        session.expunge(order)
        with pytest.raises(OutboxError) as refused:
            session.commit()
        session.rollback()
        world.place(session, 2)
        session.expunge_all()  # of what is written
        session.commit()

    assert str(refused.value) == (
        "a change was expunged after event e1 was added, which may be about it; flush before, or roll back"
    )
    assert world.stored_numbers() == ({1, 2}, {2})


def test_a_session_that_writes_to_two_databases_is_refused(world: World) -> None:
    """Whichever commits first, a crash before the other would lose the event or the row."""
    with Session(binds={Order: world.engine, Note: world.other}) as session:
        session.add(Note(id=1))
        world.place(session, 1)
        with pytest.raises(OutboxError, match=r"^a session with event .* has written to '.*' and '.*', allowed is one"):
            session.commit()

    assert world.stored_numbers() == (set(), set())


def test_an_outer_two_phase_transaction_needs_a_session_commit_first(postgres: Engine) -> None:
    """The session's event has no number yet, so the order would be prepared without it."""
    Base.metadata.create_all(postgres)
    with postgres.connect() as connection, Session(connection) as session:
        transaction = connection.begin_twophase()
        session.add(Order(id=1))
        session.flush()
        OUTBOX.add(session, Event(type="placed", group="g", data=1, id="e1"))
        with pytest.raises(OutboxError, match=r"^a transaction is committed without the session of event e1"):
            transaction.prepare()
        session.rollback()

    with postgres.connect() as connection:
        assert list(connection.scalars(select(Order.id))) == []


def test_an_event_is_stored_in_the_database_of_its_rows(world: World) -> None:
    """Even if the session reads from another database."""
    with world.other.begin() as connection:
        connection.execute(insert(Note).values(id=7))
    for number, bind in enumerate((world.engine, world.other), 1):
        with Session(world.other, binds={Order: bind, Note: world.other}) as session:
            assert session.scalars(select(Note.id)).all() == [7]
            world.place(session, number)
            session.commit()

    for number, each in enumerate((world.engine, world.other), 1):
        with each.connect() as connection:
            assert list(connection.scalars(select(Order.id))) == [number]
            assert len(connection.scalars(select(tables.messages.c.body)).all()) == 1


def test_a_session_without_a_bind_for_events_needs_a_connection_first(world: World) -> None:
    """Nothing else says in which of its databases the event belongs."""
    with Session(binds={Order: world.engine}) as session:
        OUTBOX.add(session, Event(type="placed", group="g", data=1))
        with pytest.raises(OutboxError, match=r"has no bind for it and has written no row; name the database"):
            session.commit()
        session.rollback()
        session.connection(bind_arguments={"bind": world.engine})
        OUTBOX.add(session, Event(type="placed", group="g", data=2))
        session.commit()

    assert world.stored_numbers()[1] == {2}


_AUTOCOMMIT = {"isolation_level": "AUTOCOMMIT"}
_AUTOCOMMITS: dict[str, Callable[[Engine], Any]] = {
    "engine": lambda theirs: create_engine(theirs.url, **_AUTOCOMMIT),
    "options of the engine": lambda theirs: create_engine(theirs.url).execution_options(**_AUTOCOMMIT),
    "driver": lambda theirs: create_engine(theirs.url, connect_args={"autocommit": True}),
    "options of ours": lambda theirs: theirs.execution_options(**_AUTOCOMMIT),
}


@pytest.mark.parametrize("kind", [*_AUTOCOMMITS, "isolation level of SQLite's driver"])
def test_an_event_over_an_engine_in_autocommit_is_refused(world: World, kind: str) -> None:
    """The event would stay if its transaction failed.

    Our own engine on SQLite is not refused: it begins each transaction with a statement of its own.
    """
    is_sqlite = world.engine.dialect.name == "sqlite"
    if kind in _AUTOCOMMITS:
        made = _AUTOCOMMITS[kind](world.engine)
    else:
        made = create_engine(
            world.engine.url, connect_args={"isolation_level": None} if is_sqlite else {"autocommit": 1}
        )
    with Session(made) as session:
        if is_sqlite and kind == "options of ours":
            world.place(session, 1)
            session.commit()
        else:
            with pytest.raises(OutboxError, match=r"^the connection of an event is in AUTOCOMMIT, allowed is a trans"):
                _commit(world, session)
            session.rollback()
            with made.connect() as connection, pytest.raises(OutboxError, match="is in AUTOCOMMIT"):
                OUTBOX.write(connection, [Event(type="placed", group="g", data=2)])
    made.dispose()

    assert world.stored_numbers() == (({1}, {1}) if is_sqlite and kind == "options of ours" else (set(), set()))


def test_an_object_that_is_no_session_is_refused(world: World) -> None:
    """The message names what was given and what is allowed."""
    with pytest.raises(ConfigError) as refused:
        OUTBOX.add(world.engine, Event(type="placed", group="g", data=1))  # type: ignore[arg-type]

    assert str(refused.value) == (
        "session of Outbox.add is Engine, allowed is SQLAlchemy's Session, AsyncSession or a scoped session of either"
    )


def test_a_garbage_collected_session_returns_its_connection(world: World) -> None:
    """Nothing of ours refers to the session: the pool has one connection, and three sessions use it."""
    theirs = create_engine(world.engine.url, pool_size=1, max_overflow=0, pool_timeout=5)
    for number in range(3):
        session = Session(theirs)
        world.place(session, number)
        del session
        gc.collect()
    theirs.dispose()

    assert world.stored_numbers() == (set(), set())


def test_a_string_that_contains_commit_does_not_end_the_transaction(world: World) -> None:
    """Statements are searched for COMMIT, END and ROLLBACK outside of strings."""
    with Session(world.engine) as session:
        world.place(session, 1)
        for state in (
            "'; COMMIT'",
            "'it''s; END'",
            "$a$; ROLLBACK; $a$" if world.engine.name == "postgresql" else "''",
        ):
            session.execute(text(f"UPDATE orders SET state = {state}"))  # noqa: S608 (of constants)
        session.commit()

    assert world.stored_numbers() == ({1}, {1})


def test_an_engines_first_event_may_be_added_inside_a_listener(world: World) -> None:
    """The first event adds listeners to the engine, while SQLAlchemy is going through the listeners of a statement."""
    theirs = create_engine(world.engine.url)
    world.made.append(theirs)

    @hooks.listens_for(theirs, "before_cursor_execute")
    def add(connection: Connection, *_: object) -> None:
        session = Session(connection)
        session.connection()
        OUTBOX.add(session, Event(type="placed", group="g", data=1))

    with theirs.connect() as connection:
        found = connection.execute(text("SELECT 1")).scalar_one()
        connection.rollback()

    theirs.dispose()
    assert found == 1
