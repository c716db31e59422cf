"""A database that is away for everyone is waited for; a transaction that fails by itself counts as an attempt."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from sluice.messaging.database import engines
from sluice.messaging.handlers import ANY, Ack, Handlers
from sluice.messaging.inbox.admission import Inbox
from sluice.messaging.inbox.groups import Policy
from sluice.messaging.worker.processing.processor import Abandon
from tests.support.messaging.inbox_harness import arrived
from tests.support.messaging.worker_harness import MAX_ATTEMPTS, TIMEOUT_SECONDS, World, places
from tests.support.processes.worker_processes import DatabaseLine


@pytest.fixture
def locked(on_postgres: Engine) -> Iterator[Connection]:
    """Yield a connection that holds the lock of the one row of a table, until it is rolled back."""
    with on_postgres.begin() as connection:
        connection.execute(text("CREATE TABLE accounts (n int)"))
        connection.execute(text("INSERT INTO accounts VALUES (1)"))
    with on_postgres.connect() as connection:
        connection.execute(text("SELECT n FROM accounts FOR UPDATE"))
        yield connection


def _locks(session: Session, *_: object) -> Ack:
    session.execute(text("SET LOCAL lock_timeout = '20ms'"))
    session.execute(text("SELECT n FROM accounts FOR UPDATE"))
    return Ack()


def test_a_lock_that_is_never_let_go_is_this_messages_failure(on_postgres: Engine, locked: Connection) -> None:
    assert locked.in_transaction()
    world = World(on_postgres)
    world.send("a", "a", "b")
    world.says["a", 1] = [_locks] * 100

    world.work_off(world.worker())

    assert sorted(world.effects()) == [("a", 2), ("b", 1)]
    assert places(world.dead()) == [("a", 1)]
    assert [call.place for call in world.calls].count(("a", 1)) == 3 * MAX_ATTEMPTS
    state, reason = world.exceptions()["a", 1]
    assert (state, "lock timeout" in str(reason)) == ("dead", True)


def test_a_lock_that_is_let_go_costs_no_attempt(on_postgres: Engine, locked: Connection) -> None:
    world = World(on_postgres)
    world.send("a")
    world.says["a", 1] = [_locks] * 3
    worker = world.worker()
    worker.wait.meanwhile = locked.rollback

    world.work_off(worker)

    assert [call.attempt for call in world.calls] == [1, 1]
    assert (world.effects(), world.dead()) == ([("a", 1)], [])


def test_a_serialization_failure_of_the_handler_is_no_database_that_is_away(on_postgres: Engine) -> None:
    """Two transactions that are serializable write what the other has read: one of them fails, and is tried again."""
    with on_postgres.begin() as connection:
        connection.execute(text("CREATE TABLE totals (n int)"))
        connection.execute(text("INSERT INTO totals VALUES (1)"))
    world = World(on_postgres.execution_options(isolation_level="REPEATABLE READ"))
    world.send("a")

    def loses(session: Session, *_: object) -> Ack:
        session.execute(text("SELECT n FROM totals"))
        with on_postgres.begin() as other:
            other.execute(text("UPDATE totals SET n = n + 1"))
        session.execute(text("UPDATE totals SET n = n + 1"))
        return Ack()

    world.says["a", 1] = [loses] * 100
    worker = world.worker()
    world.work_off(worker)

    assert places(world.dead()) == [("a", 1)]
    assert "could not serialize access" in str(world.exceptions()["a", 1][1])
    assert not worker.processor.transactions.is_database_away


def test_another_database_that_is_away_is_this_messages_failure(engine: Engine) -> None:
    """What a handler asks besides its own database is its own affair: it is not waited for as if nobody could work."""
    world = World(engine)
    world.send("a", "b")
    elsewhere: Any = OperationalError("SELECT", {}, RuntimeError("connection refused by another database"))
    elsewhere.orig.sqlstate = "08006"
    world.says["a", 1] = [elsewhere] * 100

    world.work_off(world.worker())

    assert world.effects() == [("b", 1)]
    assert "connection refused by another database" in str(world.exceptions()["a", 1][1])


def test_a_database_that_falls_silent_is_waited_for_so_long_and_costs_one_message_an_attempt(
    on_postgres: Engine,
) -> None:
    """Its host still acknowledges what it is sent, so no keepalive notices; nothing new is received meanwhile."""
    with DatabaseLine(on_postgres) as line:
        silent = line.engine()
        engines.end_waits(silent, 1)
        world = World(silent)
        world.send("warm")
        worker = world.worker()
        world.work_off(worker)
        world.send("a", "a", "b", "c")
        worker.wait.meanwhile = lambda: world.simulator.advance(TIMEOUT_SECONDS)
        line.hold()

        ended = worker.processor.process(world.receive(worker))
        worker.lane.step()
        received = len(worker.line.calls("ReceiveMessage"))
        line.let_go()
        world.work_off(worker)
        silent.dispose()
    world.engine = on_postgres

    assert (ended, received) == (Abandon(), 2)
    attempts = {place: attempt for call in world.calls for place, attempt in [(call.place, call.attempt)]}
    assert attempts == {("warm", 1): 1, ("a", 1): 2, ("a", 2): 1, ("b", 1): 1, ("c", 1): 1}
    assert sorted(world.effects()) == sorted(attempts)
    assert (world.left(), world.dead()) == ([], [])


def test_a_message_takes_two_statements_besides_its_handlers(
    on_postgres: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is a round trip: the group's row with the transaction's id, and the mark, which checks that id."""
    world, seen = World(on_postgres), list[str]()
    world.handlers = Handlers({ANY: lambda *_: Ack()})
    world.send("a", "a")
    worker = world.worker()
    worker.lane.step()
    event.listen(on_postgres, "before_cursor_execute", lambda *given: seen.append(given[2]))
    executes = engines.Impatient.execute_directly

    def seeing(driver: engines.Impatient, statement: bytes, values: Sequence[str | None]) -> Any:
        seen.append(statement.decode())
        return executes(driver, statement, values)

    monkeypatch.setattr(engines.Impatient, "execute_directly", seeing)

    worker.lane.step()

    assert [statement.split()[:3] for statement in seen] == [
        ["INSERT", "INTO", "sluice_inbox_group"],
        ["UPDATE", "sluice_inbox_group", "SET"],
    ]
    assert world.positions() == {"a": 2}


def test_w8_a_mark_changes_nothing_in_another_transaction(on_postgres: Engine) -> None:
    """A handler may have committed on the driver itself, and begun anew: then its message does not count."""
    inbox, came = Inbox(Policy(consumer="billing")), arrived(1)
    with on_postgres.begin() as connection:
        admission = inbox.admit(connection, came)
        is_same = inbox.mark(connection, came.envelope, admission)
    second = arrived(2)
    with on_postgres.begin() as connection:
        admission = inbox.admit(connection, second)
    with on_postgres.begin() as connection:
        is_other = inbox.mark(connection, second.envelope, admission)

    assert (is_same, is_other) == (True, False)
    assert World(on_postgres).positions() == {"a": 1}


def test_an_engine_with_options_works_beside_the_one_it_is_made_of(engine: Engine) -> None:
    """It calls the listeners of both."""
    world, with_options = World(engine), World(engine.execution_options(max_row_buffer=10))
    world.send("a")
    world.work_off(world.worker())
    with_options.send("b")
    with_options.work_off(with_options.worker())

    assert sorted(with_options.effects()) == [("a", 1), ("b", 1)]
