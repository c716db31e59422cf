"""A session of asyncio is committed together with its events, whatever its driver is and however it ends."""

import asyncio
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from sqlalchemy import Engine, make_url, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session

from sluice.messaging import Event, Outbox
from sluice.messaging.database import engines
from sluice.messaging.errors import OutboxError
from sluice.messaging.outbox import tables
from tests.integration.messaging.outbox.test_session_endings import ENDINGS, OUTBOX, Base, Order, World
from tests.support.cases import one_case_in
from tests.support.processes import postgres_server

_DRIVERS = {"sqlite": ("aiosqlite",), "postgresql": ("psycopg", "asyncpg")}

type Case = Callable[[World, AsyncSession], Awaitable[object]]


@pytest.fixture
def world(engine: Engine) -> World:
    """Return a database with outbox and orders, once on SQLite and once on Postgres."""
    return World(engine, engine)


def _drivers(world: World) -> tuple[str, ...]:
    """Return the asyncio drivers for the world's database."""
    return _DRIVERS[world.engine.dialect.name]


@asynccontextmanager
async def _engine(world: World, driver: str, **options: Any) -> AsyncIterator[AsyncEngine]:
    """Yield an engine of asyncio on the database of another."""
    url = world.engine.url.set(drivername=f"{world.engine.dialect.name}+{driver}")
    if driver == "asyncpg":
        schema = url.query["application_name"]
        url = url.set(query={"host": url.query["host"]})
        options["connect_args"] = {"server_settings": {"search_path": schema}}
    made = create_async_engine(url, **options)
    if driver == "aiosqlite":
        engines.make_durable(made.sync_engine)
    yield made
    await made.dispose()


def _run(world: World, driver: str, case: Case, *, has_two_phases: bool = False, **options: Any) -> None:
    """Run a case to its end as a program would; the program's errors and warnings are kept."""

    async def run() -> None:
        async with _engine(world, driver, **options) as engine:
            session = AsyncSession(engine, twophase=has_two_phases)
            for step in (case(world, session), session.close()):
                try:
                    await step
                except Exception as error:  # whatever a program is given
                    world.notices.append(f"{type(error).__name__}: {error}")

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        asyncio.run(run())
    world.notices += [str(warning.message) for warning in warned]


def _clear(world: World) -> None:
    """Delete all rows and forget the notices, before the next case."""
    world.notices = []
    with world.engine.begin() as connection:
        for table in (*tables.metadata.sorted_tables, *Base.metadata.sorted_tables):
            connection.execute(table.delete())


async def _add_order_and_event(session: Any, number: int) -> None:
    """Add an order with this number and the event that says so to the session."""
    session.add(Order(id=number))
    await session.flush()
    OUTBOX.add(session, Event(type="placed", group="g", data=number))


def _on_asyncio(ending: str) -> Case:
    """Return one of the endings of a session, run in a session of asyncio."""

    async def end(world: World, session: AsyncSession) -> None:
        await session.run_sync(lambda inner: ENDINGS[ending](world, inner))

    return end


@pytest.mark.parametrize("ending", one_case_in(4, ENDINGS))
def test_an_async_session_commits_rows_and_events_together_or_warns(world: World, ending: str) -> None:
    """An AsyncSession is ended in each way in which the tests of plain sessions end one."""
    found: dict[str, object] = {}
    for driver in _drivers(world):
        _run(world, driver, _on_asyncio(ending))
        rows, events = world.stored_numbers()
        if events - rows or (rows - events and not world.notices):
            found[driver] = (rows, events, world.notices)
        if not rows and not events and not world.notices and ending in ("commit", "savepoints", "insert of Core"):
            found[driver] = ("nothing was committed, and nobody was told",)
        _clear(world)

    assert found == {}


@pytest.fixture
def two_phase_world(private_postgres: Any) -> Iterator[World]:
    """Yield a world on a Postgres that lets transactions be prepared, which it does not without a setting."""
    url = make_url(private_postgres.get_uri()).update_query_dict({"application_name": "public"})
    engine = engines.engine(url.render_as_string(hide_password=False))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("ALTER SYSTEM SET max_prepared_transactions = 5"))
    engine.dispose()
    postgres_server.restart(private_postgres, "fast")
    yield World(engine, engine)
    engine.dispose()


async def _roll_back_a_prepared_order(_: World, session: AsyncSession) -> None:
    """Prepare order 1 for commit and roll it back; then commit order 2."""
    await _add_order_and_event(session, 1)
    await session.run_sync(Session.prepare)
    await session.rollback()
    await _add_order_and_event(session, 2)
    await session.commit()


async def _leave_a_prepared_order(_: World, session: AsyncSession) -> None:
    """Prepare order 1 for commit and leave it, neither committed nor rolled back."""
    await _add_order_and_event(session, 1)
    await session.run_sync(Session.prepare)


async def _add_to_a_prepared_order(_: World, session: AsyncSession) -> None:
    """Prepare order 1 for commit; an event that is added then is refused, and the commit succeeds."""
    await _add_order_and_event(session, 1)
    await session.run_sync(Session.prepare)
    with pytest.raises(OutboxError, match="was added while its session commits, after the numbers were given"):
        OUTBOX.add(session, Event(type="placed", group="g", data=2))
    await session.commit()


async def _notify_the_relay(_: World, session: AsyncSession) -> None:
    """Add an event that notifies the relay.

    Postgres prepares no transaction that notifies, so the commit is refused.
    """
    await _add_order_and_event(session, 1)
    Outbox("others.fifo", notify=True).add(session, Event(type="placed", group="g", data=2))
    with pytest.raises(DBAPIError, match="cannot PREPARE a transaction that has executed LISTEN, UNLISTEN, or NOTIFY"):
        await session.commit()


@pytest.mark.parametrize(
    "endings", [pytest.param((), id="of two phases"), pytest.param(ENDINGS, id="all", marks=pytest.mark.slow)]
)
def test_a_two_phase_commit_has_rows_and_events_or_neither(two_phase_world: World, endings: Iterable[str]) -> None:
    """Prepared transactions that are committed, rolled back or left, on one server for all.

    At night the endings of plain sessions too.
    """
    found: dict[tuple[str, str], object] = {}
    cases: dict[str, tuple[Case, set[int] | None]] = {name: (_on_asyncio(name), None) for name in endings}
    cases |= {
        "prepare": (_on_asyncio("prepare"), {1}),
        "savepoints": (_on_asyncio("savepoints"), {1, 2, 4}),
        "commit of the connection alone": (_on_asyncio("commit of the connection alone"), set()),
        "rolled back": (_roll_back_a_prepared_order, {2}),
        "left": (_leave_a_prepared_order, set()),
        "added late": (_add_to_a_prepared_order, {1}),
        "notify": (_notify_the_relay, set()),
    }
    for driver in _drivers(two_phase_world):
        for name, (case, kept) in cases.items():
            _run(two_phase_world, driver, case, has_two_phases=True)
            rows, events = two_phase_world.stored_numbers()
            with two_phase_world.engine.connect() as connection:
                left = connection.scalars(text("SELECT gid FROM pg_prepared_xacts")).all()
            is_silent = not two_phase_world.notices
            is_kept = kept is None or rows == events == kept
            if left or not is_kept or events - rows or (rows - events and is_silent):
                found[driver, name] = (left, rows, events, two_phase_world.notices)
            _clear(two_phase_world)

    assert found == {}


async def _within_begin(_: World, session: AsyncSession) -> None:
    """Commit order 1 in a `begin` block, and let a second block with order 2 fail."""
    async with session.begin():
        OUTBOX.add(session, Event(type="placed", group="g", data=1))  # before anything of the session
        session.add(Order(id=1))
    with suppress(ZeroDivisionError):
        async with session.begin():
            await _add_order_and_event(session, 2)
            1 / 0  # noqa: B018 (the error)


async def _savepoints(_: World, session: AsyncSession) -> None:
    """Commit order 1; roll back order 2 and order 3, each in a savepoint."""
    async with session.begin():
        await _add_order_and_event(session, 1)
        inner = await session.begin_nested()
        await _add_order_and_event(session, 2)
        await inner.rollback()
        with suppress(ZeroDivisionError):
            async with session.begin_nested():
                await _add_order_and_event(session, 3)
                1 / 0  # noqa: B018 (the error)


async def _cancel(_: World, session: AsyncSession) -> None:
    """Cancel one task within its transaction, and another during its commit; a third continues."""
    await _add_order_and_event(session, 1)
    await session.commit()
    for number, wait in ((2, asyncio.Event().wait), (3, session.commit)):
        await _add_order_and_event(session, number)
        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        with suppress(DBAPIError):
            await session.rollback()


async def _connection_commits(_: World, session: AsyncSession) -> None:
    """Commit the session's connection instead of the session."""
    await _add_order_and_event(session, 1)
    await (await session.connection()).commit()


async def _leave(_: World, session: AsyncSession) -> None:
    """Add an order and leave the session without commit or rollback."""
    await _add_order_and_event(session, 1)


@pytest.mark.parametrize(
    ("case", "kept", "notice"),
    [
        pytest.param(_within_begin, {1}, None, id="begin"),
        pytest.param(_savepoints, {1}, None, id="savepoints"),
        pytest.param(_cancel, None, None, id="cancelled"),
        pytest.param(_connection_commits, set(), "is committed without the session of event", id="connection"),
        pytest.param(_leave, set(), "neither committed nor rolled back", id="left"),
    ],
)
def test_an_async_transaction_has_its_rows_and_events_or_neither(
    world: World, case: Case, kept: set[int] | None, notice: str | None
) -> None:
    """`kept` are the orders that must be committed, None for any.

    `notice` is the warning or error that the program must get.
    """
    found: dict[str, object] = {}
    for driver in _drivers(world):
        _run(world, driver, case)
        rows, events = world.stored_numbers()
        if rows != events or (kept is not None and rows != kept) or (notice is None) != (not world.notices):
            found[driver] = (rows, events, world.notices)
        if notice is not None and not any(notice in given for given in world.notices):
            found[driver] = world.notices
        _clear(world)

    assert found == {}


def test_a_scoped_async_session_adds_to_the_session_of_its_task(world: World) -> None:
    """Of four tasks the odd ones commit, and only their orders and events are there."""

    async def run(driver: str) -> None:
        async with _engine(world, driver) as engine:
            scoped = async_scoped_session(async_sessionmaker(engine), scopefunc=asyncio.current_task)

            async def place(number: int) -> None:
                await _add_order_and_event(scoped, number)
                await (scoped.commit() if number % 2 else scoped.rollback())
                await scoped.remove()

            for number in range(4):
                await asyncio.create_task(place(number))

    for driver in _drivers(world):
        asyncio.run(run(driver))
        assert world.stored_numbers() == ({1, 3}, {1, 3}), driver
        _clear(world)


def test_concurrent_tasks_number_their_groups_without_a_hole(postgres: Engine) -> None:
    """Each of thirty tasks adds two events to each of three groups. Ten tasks roll back, so forty numbers are left."""
    world = World(postgres, postgres)

    async def place(engine: AsyncEngine, number: int) -> None:
        async with AsyncSession(engine) as session:
            for group in ("a", "b", "c", "a", "b", "c"):
                OUTBOX.add(session, Event(type="placed", group=group, data=number))
            await (session.rollback() if number % 3 == 0 else session.commit())

    async def run(driver: str) -> None:
        async with _engine(world, driver, pool_size=10) as engine:
            await asyncio.gather(*(place(engine, number) for number in range(30)))

    for driver in _drivers(world):
        asyncio.run(run(driver))
        numbers = select(tables.messages.c.group_id, tables.messages.c.group_seq)
        with postgres.connect() as connection:
            assert sorted(map(tuple, connection.execute(numbers))) == [
                (group, seq) for group in ("a", "b", "c") for seq in range(1, 41)
            ], driver
        _clear(world)


def test_an_event_of_an_async_session_in_autocommit_is_refused(postgres: Engine) -> None:
    """Our own engine on SQLite is not refused: its statements begin a transaction in any case."""
    world = World(postgres, postgres)

    async def commit(_: World, session: AsyncSession) -> None:
        await _add_order_and_event(session, 1)
        await session.commit()

    for driver in _drivers(world):
        _run(world, driver, commit, isolation_level="AUTOCOMMIT")
        assert [notice for notice in world.notices if "is in AUTOCOMMIT" in notice], (driver, world.notices)
        assert world.stored_numbers()[1] == set()
        _clear(world)


def test_a_connection_of_asyncio_commits_a_row_together_with_an_event(world: World) -> None:
    """A program without a session calls `Outbox.write` by `run_sync` on its own connection, with each driver."""

    async def run(driver: str) -> None:
        async with _engine(world, driver) as engine, engine.begin() as connection:
            await connection.execute(text("INSERT INTO orders VALUES (1, 'new')"))
            await connection.run_sync(OUTBOX.write, [Event(type="placed", group="g", data=1)])

    for driver in _drivers(world):
        asyncio.run(run(driver))
        orders, events = world.stored_numbers()
        assert orders == {1}, driver
        assert events == {1}, driver
        _clear(world)
