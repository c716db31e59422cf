"""A handler that commits by itself: refused where that is seen, and otherwise its effect is there once, not more."""

import asyncio
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import Engine, insert, select, text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from sluice.messaging.database.answer_watch import shut_down
from sluice.messaging.database.transactions import TransactionEndedError
from sluice.messaging.envelope import Event
from sluice.messaging.handlers import ANY, Context, Handlers
from sluice.messaging.inbox import tables
from sluice.messaging.inbox.groups import InboxPolicy
from sluice.messaging.worker.processing import async_handlers
from tests.support.cases import one_case_in
from tests.support.messaging.connection_misdeeds import POSTGRES, SQLITE, KeptThings, driver_of
from tests.support.messaging.world import MAX_ATTEMPTS, World, effects, envelope, places
from tests.support.processes.worker_processes import DatabaseLine

type CommitWay = Callable[[Session], object]

_INSERT = "INSERT INTO effects (consumer, group_id, seq) VALUES ('billing', 'a', 2)"


def _executes(statement: str) -> CommitWay:
    """Return a way to commit: this statement of the session."""
    return lambda session: session.execute(text(statement))


def _driver_executes(*statements: str) -> CommitWay:
    """Return a way to commit: these statements of the driver's connection."""

    def commit(session: Session) -> None:
        for statement in statements:
            driver_of(session).execute(statement)

    return commit


def _replaces_the_authorizer(session: Session) -> None:
    """Take SQLite's authorizer away, which refuses commits, and commit by the driver."""
    driver_of(session).set_authorizer(None)
    driver_of(session).commit()


def _commits_after(end: CommitWay, commit: CommitWay) -> CommitWay:
    """Return a way that ends the transaction, writes another row and commits it."""

    def go_on(session: Session) -> None:
        end(session)
        session.execute(text(_INSERT))
        commit(session)

    return go_on


def _begins(session: Session) -> None:
    """Roll back and commit a row in a transaction of the handler's own."""
    session.rollback()
    with session.begin():
        session.execute(text(_INSERT))


def _pipelines(session: Session) -> None:
    """Leave a pipeline of the driver open, with a COMMIT in it."""
    driver = driver_of(session)
    KeptThings.kept.append(driver.pipeline())
    KeptThings.kept[-1].__enter__()
    driver.execute("SELECT pg_sleep(0.3)")
    driver.execute("COMMIT")


def _loses_its_connection(session: Session) -> None:
    """Lose the connection while a COMMIT is under way."""
    ends = threading.Timer(0.1, shut_down, [driver_of(session)])
    ends.start()
    try:
        session.execute(text("SELECT pg_sleep(0.3); COMMIT"))
    finally:
        ends.join()


_BOTH: dict[str, CommitWay] = {
    "session, after a rollback": _commits_after(Session.rollback, Session.commit),
    "session, after it was closed": _commits_after(Session.close, Session.commit),
    "session, begun anew": _begins,
    "COMMIT, after a rollback": _commits_after(Session.rollback, _executes("COMMIT")),
    "session": Session.commit,
    "COMMIT": _executes("COMMIT"),
    "END": _executes("END TRANSACTION"),
    "COMMIT behind a line": _executes("-- a note\nCOMMIT"),
    "COMMIT behind a comment": _executes("/* a note */ ; commit"),
    "driver": lambda session: driver_of(session).commit(),
    "driver as a context": lambda session: driver_of(session).__exit__(None, None, None),
    "driver executes COMMIT": _driver_executes("COMMIT"),
}
WAYS: dict[str, dict[str, CommitWay]] = {
    SQLITE: _BOTH
    | {
        "script": lambda session: driver_of(session).executescript("SELECT 1; COMMIT"),
        "another authorizer": _replaces_the_authorizer,
        "autocommit": lambda session: setattr(driver_of(session), "autocommit", True),
        "isolation level": lambda session: setattr(driver_of(session), "isolation_level", None),
    },
    POSTGRES: _BOTH
    | {
        "SELECT and COMMIT": _executes("SELECT 1; COMMIT"),
        "COMMIT behind a comment in a comment": _executes("/* a /* note */ */ COMMIT"),
        "COMMIT and BEGIN": _executes("SELECT 1; COMMIT; BEGIN"),
        "COMMIT, BEGIN and an error": _executes("SELECT 1; COMMIT; BEGIN; SELECT 1 / 0"),
        "ROLLBACK and a transaction of its own": _executes(f"SELECT 1; ROLLBACK; BEGIN; {_INSERT}; COMMIT"),
        "driver and chain": _driver_executes("COMMIT AND CHAIN"),
        "driver and chain, and an error": _driver_executes("COMMIT AND CHAIN", "SELECT 1 / 0"),
        "driver, and goes on": _driver_executes("SELECT 1; COMMIT", _INSERT, "COMMIT"),
        "a block": _executes("DO 'BEGIN COMMIT; END'"),
        "COMMIT under way": lambda session: driver_of(session).pgconn.send_query(b"SELECT pg_sleep(0.3); COMMIT"),
        "COMMIT in a pipeline": _pipelines,
        "COMMIT of a lost connection": _loses_its_connection,
    },
}
_CASES = [case for database, ways in WAYS.items() for case in one_case_in(8, [database], ways, ["returns", "raises"])]


def _handler(way: CommitWay, ending: str) -> Any:
    """Return a handler that commits in this way and ends in this way."""

    def handle(session: Session, _: Event, __: Context) -> None:
        way(session)
        if ending == "raises":
            raise ValueError("after its commit")

    return handle


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Engine:
    chosen: Engine = request.getfixturevalue("on_postgres" if request.param == POSTGRES else "on_file")
    return chosen


@pytest.mark.parametrize("is_together", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("engine", "way", "ending"), _CASES, indirect=["engine"])
def test_a_handler_that_commits_by_itself_has_at_most_one_effect(
    engine: Engine, way: str, ending: str, *, is_together: bool
) -> None:
    """Each way to commit, with a handler that returns or raises, alone and with neighbours in its transaction.

    If the commit was refused, each attempt has no effect. If it was not, the message is dead at once, and its reason
    says that its effect is there.
    """
    world = World(engine, has_bundles=is_together, commits_bundles=is_together)
    if is_together:
        world.put_bundle(*(envelope("a", number) for number in (1, 2, 3)))
        world.send("b")
    else:
        world.send("a", "a", "a", "b")
    world.handler_steps["a", 2] = [_handler(WAYS[engine.dialect.name][way], ending)] * 100
    world.work_until_idle(world.worker())

    effects, calls = world.committed_effects(), world.called_places.count(("a", 2))
    KeptThings.end()
    state, reason = world.exceptions()["a", 2]
    assert effects.count(("a", 2)) <= 1
    assert sorted(place for place in effects if place != ("a", 2)) == [("a", 1), ("a", 3), ("b", 1)]
    assert state == "dead"
    assert places(world.bodies_in_dlq()) == [("a", 2)]
    assert world.bodies_in_queue() == []
    if effects.count(("a", 2)):
        assert calls == 1
        assert reason == TransactionEndedError.COMMITTED


async def _commits(session: AsyncSession) -> None:
    """Commit the session."""
    await session.commit()


async def _executes_commit(session: AsyncSession) -> None:
    """Execute COMMIT."""
    await session.execute(text("COMMIT"))


async def _executes_select_and_commit(session: AsyncSession) -> None:
    """Execute two statements at once, of which the second commits."""
    await session.execute(text("SELECT 1; COMMIT"))


async def _executes_and_begins(session: AsyncSession) -> None:
    """Commit, and begin a transaction that looks like the worker's."""
    await session.execute(text("SELECT 1; COMMIT; BEGIN"))


async def _rolls_back_and_goes_on(session: AsyncSession) -> None:
    """Roll back, and commit another row."""
    await session.rollback()
    await session.execute(text(_INSERT))
    await session.commit()


async def _loses_its_connection_meanwhile(session: AsyncSession) -> None:
    """Lose the connection while a COMMIT is under way."""
    driver = await session.run_sync(driver_of)
    committing = asyncio.create_task(session.execute(text("SELECT pg_sleep(0.3); COMMIT")))
    await asyncio.sleep(0.1)
    shut_down(driver)
    await committing


async def _is_cancelled(session: AsyncSession) -> None:
    """Cancel the statement of a COMMIT that is under way."""
    await asyncio.wait_for(session.execute(text("SELECT pg_sleep(0.2); COMMIT; BEGIN")), 0.05)


_OF_ASYNCIO: dict[str, Callable[[AsyncSession], Awaitable[None]]] = {
    "begin": _executes_and_begins,
    "cancel": _is_cancelled,
    "commit": _commits,
    "execute": _executes_commit,
    "lose": _loses_its_connection_meanwhile,
    "rollback": _rolls_back_and_goes_on,
    "select": _executes_select_and_commit,
}


@pytest.mark.parametrize(("ending", "is_parked"), one_case_in(2, ["returns", "raises"], [False, True]))
def test_an_asyncio_handler_that_commits_by_itself_has_at_most_one_effect(
    on_postgres: Engine, ending: str, *, is_parked: bool
) -> None:
    """Each group commits in another way. A handler that raises has first caught the error of its own commit."""
    world = World(on_postgres, policy=InboxPolicy(consumer="billing", parks_poison=True, parks_gaps=True))
    number, calls = 1 + is_parked, list[str]()

    async def handle(session: AsyncSession, event: Event, context: Context) -> None:
        calls.append(event.group)
        await session.execute(insert(effects).values(consumer="billing", group_id=event.group, seq=context.seq))
        with suppress(*[Exception] * (ending == "raises")):
            await _OF_ASYNCIO[event.group](session)
        if ending == "raises":
            with suppress(Exception):
                await session.execute(text("SELECT 1"))
            raise ValueError("after its commit")

    if is_parked:
        world.park(*_OF_ASYNCIO)
    worker = world.worker(handlers=Handlers({ANY: handle}))
    if not is_parked:
        world.send(*_OF_ASYNCIO)
        world.work_until_idle(worker)
    for _ in range(MAX_ATTEMPTS):
        worker.drainer.step()
        world.simulator.advance(301)
    async_handlers.close()

    for group in _OF_ASYNCIO:
        count = world.committed_effects().count((group, number))
        assert count <= 1, group
        assert not count or calls.count(group) == 1, group
    with on_postgres.connect() as connection:
        held = connection.execute(select(tables.parked.c.group_id, tables.parked.c.last_error)).all()
    dead = [(group, reason) for (group, seq), (_, reason) in world.exceptions().items() if seq == number]
    reasons = dict(map(tuple, held) if is_parked else dead)
    once = {group for group, reason in reasons.items() if reason == TransactionEndedError.COMMITTED}
    assert sorted(reasons) == sorted(_OF_ASYNCIO)
    assert once >= {"begin", "cancel", "select"} | {group for group, seq in world.committed_effects() if seq == number}


@pytest.mark.parametrize(("engine", "way", "ending"), _CASES, indirect=["engine"])
def test_a_parked_message_whose_handler_commits_is_held_after_one_effect(engine: Engine, way: str, ending: str) -> None:
    """Held means: its row stays for an operator, and no further attempt is made."""
    world = World(engine, policy=InboxPolicy(consumer="billing", parks_poison=True, parks_gaps=True))
    worker = world.park("a")
    world.handler_steps["a", 2] = [_handler(WAYS[engine.dialect.name][way], ending)] * 100
    for _ in range(6):
        worker.drainer.step()
        world.simulator.advance(301)

    effects, calls = world.committed_effects().count(("a", 2)), world.called_places.count(("a", 2))
    assert effects <= 1
    assert world.parked_places() == [("a", 2)]
    if effects:
        assert calls == 1


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_handlers_commit_before_an_outage_is_found_after_it(on_postgres: Engine, *, is_committed: bool) -> None:
    """The connection is cut behind the handler's statement, so the worker cannot see whether it committed.

    If it did, the message is dead and has its effect; if not, it is handled again.
    """
    with DatabaseLine(on_postgres) as line:
        world = World(line.engine())
        worker = world.worker()
        world.send("a")
        end = "COMMIT; BEGIN" if is_committed else "SELECT 2"

        def commit(session: Session, _: Event, __: Context) -> None:
            session.execute(text(f"SELECT 1; {end}"))
            line.cut()

        world.handler_steps["a", 1] = [commit]
        mending = iter([line.mend])
        worker.wait.meanwhile = lambda: [mend() for mend in mending]
        world.work_until_idle(worker)
        world.engine.dispose()
    world.engine = on_postgres

    assert world.committed_effects() == [("a", 1)]
    assert places(world.bodies_in_dlq()) == [("a", 1)] * is_committed


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_handlers_commit_of_a_parked_message_is_found_after_an_outage(
    on_postgres: Engine, *, is_committed: bool
) -> None:
    """Any worker knows it, because the worker that called the handler may end before the database is back."""
    with DatabaseLine(on_postgres) as line:
        world = World(line.engine(), policy=InboxPolicy(consumer="billing", parks_poison=True, parks_gaps=True))
        worker = world.park("a")
        end = "COMMIT; BEGIN" if is_committed else "SELECT 2"

        def commit(session: Session, _: Event, __: Context) -> None:
            session.execute(text(f"SELECT 1; {end}"))
            line.cut()

        world.handler_steps["a", 2] = [commit]
        worker.drainer.step()
        line.mend()
        for found in (worker, world.worker()):
            world.simulator.advance(301)
            found.drainer.step()
        world.engine.dispose()
    world.engine = on_postgres

    assert world.committed_effects() == [("a", 1), ("a", 2)]
    assert world.parked_places() == [("a", 2)] * is_committed


def _refusals_after(engine: Engine, before: CommitWay, *statements: str) -> list[str]:
    """Return SQLite's answers to statements of a handler that runs after another message's handler did something."""
    world, refusals = World(engine), list[str]()

    def handle(session: Session, _: Event, __: Context) -> None:
        for statement in statements:
            try:
                driver_of(session).execute(statement)
            except sqlite3.Error as error:
                refusals.append(error.sqlite_errorname)

    def prepare(session: Session, _: Event, __: Context) -> None:
        before(session)

    world.handler_steps["a", 1], world.handler_steps["a", 2] = [prepare], [handle]
    worker = world.worker()
    for _ in range(2):
        world.send("a")
        worker.lane.step()
    return refusals


def test_sqlite_refuses_a_prepared_statement_outside_the_transaction(on_file: Engine) -> None:
    """The INSERT was prepared for an earlier message; where no transaction is open, it is prepared again and refused.

    SQLite asks the authorizer only when it prepares a statement: https://www.sqlite.org/c3ref/set_authorizer.html.
    """
    with on_file.begin() as connection:
        connection.execute(text("CREATE TABLE keys (n integer primary key)"))
        connection.execute(text("INSERT INTO keys VALUES (1)"))

    refusals = _refusals_after(on_file, _driver_executes(_INSERT), "INSERT OR ROLLBACK INTO keys VALUES (1)", _INSERT)

    assert refusals == ["SQLITE_CONSTRAINT_PRIMARYKEY", "SQLITE_AUTH"]


def test_sqlite_refuses_commits_again_after_a_handler_removed_the_authorizer(on_file: Engine) -> None:
    """The worker refuses commits by SQLite's authorizer, which it sets anew for each message."""

    def take_away(session: Session) -> None:
        sqlite3.Connection.set_authorizer(driver_of(session), None)

    assert _refusals_after(on_file, take_away, "COMMIT") == ["SQLITE_AUTH"]
