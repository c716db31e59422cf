"""A database that is away for everyone is waited for; a transaction that fails by itself counts as an attempt."""

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.orm import Session
from structlog.testing import capture_logs

from sluice.messaging.database import connections
from sluice.messaging.handlers import ANY, Ack, Handlers
from sluice.messaging.inbox.admission import Inbox
from sluice.messaging.inbox.groups import InboxPolicy
from sluice.messaging.worker.processing.acknowledgements import Abandon
from tests.support.messaging.inbox_harness import decoded_message
from tests.support.messaging.world import MAX_ATTEMPTS, TIMEOUT_SECONDS, World, places
from tests.support.processes.worker_processes import DatabaseLine


@pytest.fixture
def lock_holder(on_postgres: Engine) -> Iterator[Connection]:
    """Yield a connection that holds the lock of the one row of a table, until it is rolled back."""
    with on_postgres.begin() as connection:
        connection.execute(text("CREATE TABLE accounts (n int)"))
        connection.execute(text("INSERT INTO accounts VALUES (1)"))
    with on_postgres.connect() as connection:
        connection.execute(text("SELECT n FROM accounts FOR UPDATE"))
        yield connection


def _lock_accounts(session: Session, *_: object) -> Ack:
    """Lock the accounts, and fail if that takes longer than 20 ms."""
    session.execute(text("SET LOCAL lock_timeout = '20ms'"))
    session.execute(text("SELECT n FROM accounts FOR UPDATE"))
    return Ack()


def test_a_row_lock_that_is_never_released_fails_the_message(on_postgres: Engine, lock_holder: Connection) -> None:
    """Another program keeps the row. A transaction is tried three times in each receive; then the message is dead."""
    assert lock_holder.in_transaction()
    world = World(on_postgres)
    world.send("a", "a", "b")
    world.handler_steps["a", 1] = [_lock_accounts] * 100

    world.work_until_idle(world.worker())

    assert sorted(world.committed_effects()) == [("a", 2), ("b", 1)]
    assert places(world.bodies_in_dlq()) == [("a", 1)]
    assert [call.place for call in world.calls].count(("a", 1)) == 3 * MAX_ATTEMPTS
    state, reason = world.exceptions()["a", 1]
    assert state == "dead"
    assert "lock timeout" in str(reason)


def test_a_row_lock_that_is_released_meanwhile_costs_no_attempt(on_postgres: Engine, lock_holder: Connection) -> None:
    """The lock is released while the worker waits before the second try of the same receive."""
    world = World(on_postgres)
    world.send("a")
    world.handler_steps["a", 1] = [_lock_accounts] * 3
    worker = world.worker()
    worker.wait.meanwhile = lock_holder.rollback

    world.work_until_idle(worker)

    assert [call.attempt for call in world.calls] == [1, 1]
    assert world.committed_effects() == [("a", 1)]
    assert world.bodies_in_dlq() == []


def test_a_serialization_failure_does_not_count_as_a_database_outage(on_postgres: Engine) -> None:
    """Another transaction changes the row in every attempt, so the message dies. The worker keeps receiving."""
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

    world.handler_steps["a", 1] = [loses] * 100
    worker = world.worker()
    world.work_until_idle(worker)

    assert places(world.bodies_in_dlq()) == [("a", 1)]
    assert "could not serialize access" in str(world.exceptions()["a", 1][1])
    assert not worker.processor.transactions.is_database_away


def test_an_outage_of_another_database_fails_the_message(engine: Engine) -> None:
    """The worker does not wait for a database that only this handler uses; other groups are handled."""
    world = World(engine)
    world.send("a", "b")
    elsewhere: Any = OperationalError("SELECT", {}, RuntimeError("connection refused by another database"))
    elsewhere.orig.sqlstate = "08006"
    world.handler_steps["a", 1] = [elsewhere] * 100

    world.work_until_idle(world.worker())

    assert world.committed_effects() == [("b", 1)]
    assert "connection refused by another database" in str(world.exceptions()["a", 1][1])


def test_a_database_that_stops_answering_costs_one_attempt(
    on_postgres: Engine,
) -> None:
    """Its host still acknowledges packets, so no keepalive notices.

    The worker gives the connection up after a second, and receives no further message until the database answers.
    """
    with DatabaseLine(on_postgres) as line:
        silent = line.engine()
        connections.end_waits(silent, 1)
        world = World(silent)
        world.send("warm")
        worker = world.worker()
        world.work_until_idle(worker)
        world.send("a", "a", "b", "c")
        worker.wait.meanwhile = lambda: world.simulator.advance(TIMEOUT_SECONDS)
        line.hold()

        ended = worker.processor.process(world.receive(worker))
        worker.lane.step()
        received = len(worker.sqs_calls.of("ReceiveMessage"))
        line.let_go()
        world.work_until_idle(worker)
        silent.dispose()
    world.engine = on_postgres

    assert ended == Abandon()
    assert received == 2
    attempts = {place: attempt for call in world.calls for place, attempt in [(call.place, call.attempt)]}
    assert attempts == {("warm", 1): 1, ("a", 1): 2, ("a", 2): 1, ("b", 1): 1, ("c", 1): 1}
    assert sorted(world.committed_effects()) == sorted(attempts)
    assert world.bodies_in_queue() == []
    assert world.bodies_in_dlq() == []


def test_a_message_costs_four_round_trips_besides_its_handlers(on_postgres: Engine) -> None:
    """BEGIN, the group's row with the transaction's id, the mark, which checks that id, and COMMIT."""
    with DatabaseLine(on_postgres) as line:
        counted = line.engine()
        world = World(counted)
        world.handlers = Handlers({ANY: lambda *_: Ack()})
        world.send("a", "a")
        worker = world.worker()
        worker.lane.step()
        before = line.requested_count

        worker.lane.step()

        taken = line.requested_count - before
        counted.dispose()

    world.engine = on_postgres
    assert taken == 4
    assert world.last_numbers() == {"a": 2}


def test_w8_a_message_is_marked_only_in_the_transaction_that_admitted_it(on_postgres: Engine) -> None:
    """A handler may have committed by the driver and begun another transaction.

    Then its message does not count as handled.
    """
    inbox, came, second = Inbox(InboxPolicy(consumer="billing")), decoded_message(1), decoded_message(2)
    with on_postgres.begin() as connection:
        assert inbox.mark(connection, came.envelope, inbox.admit(connection, came))
    with on_postgres.begin() as connection:
        admission = inbox.admit(connection, second)
    with on_postgres.begin() as connection:
        is_marked = inbox.mark(connection, second.envelope, admission)

    assert not is_marked
    assert World(on_postgres).last_numbers() == {"a": 1}


def _begins_another_transaction(session: Session, *_: object) -> Ack:
    """End the transaction behind SQLAlchemy's back, and begin another one in which something is written."""
    driver: Any = session.connection().connection.driver_connection
    driver.execute("ROLLBACK")
    driver.execute("CREATE TABLE written (n int)")
    return Ack()


def test_w8_a_handler_that_began_another_transaction_commits_nothing(on_postgres: Engine) -> None:
    """The mark changes no row there, so the worker rolls back, table and all."""
    world = World(on_postgres)
    world.send("a")
    world.handler_steps["a", 1] = [_begins_another_transaction] * 100
    world.work_until_idle(world.worker())

    with on_postgres.connect() as connection:
        is_written = inspect(connection).has_table("written")
    assert is_written is False
    assert world.committed_effects() == []
    assert places(world.bodies_in_dlq()) == [("a", 1)]
    assert "the handler ended its transaction" in str(world.exceptions()["a", 1][1])


def test_w8_a_transaction_that_a_listener_rolled_back_counts_as_failed(on_postgres: Engine) -> None:
    """The program's listener runs after ours and rolls back.

    The driver's commit then commits nothing, without an error.
    """
    world = World(on_postgres)
    world.send("a")
    world.work_until_idle(world.worker())
    rollbacks = list[str]()

    def roll_back_once(connection: Connection) -> None:
        driver: Any = connection.connection.driver_connection
        if not rollbacks:
            rollbacks.append("rollback")
            driver.rollback()

    event.listen(on_postgres, "commit", roll_back_once)
    world.send("a")
    world.work_until_idle(world.worker())

    assert rollbacks == ["rollback"]
    assert [(call.place, call.attempt) for call in world.calls][1:] == [(("a", 2), 1), (("a", 2), 2)]
    assert world.committed_effects() == [("a", 1), ("a", 2)]
    assert world.last_numbers() == {"a": 2}


def test_w8_a_failing_commit_listener_leaves_no_open_transaction(engine: Engine) -> None:
    """The program's listener runs after ours and raises.

    SQLAlchemy then neither commits nor rolls back, and the next transaction of the connection would commit the mark.
    """
    world, failures = World(engine), list[str]()

    def fails(_: Connection) -> None:
        if not failures:
            failures.append("failed")
            raise RuntimeError("not now")

    worker = world.worker()
    worker.parts.pause.is_paused()  # it knows now that its consumer is not
    world.send("a")
    event.listen(engine, "commit", fails)
    worker.lane.step()
    positions = world.last_numbers()
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE written (n int)"))
    world.work_until_idle(worker)
    event.remove(engine, "commit", fails)

    assert failures == ["failed"]
    assert positions == {}
    assert world.committed_effects() == [("a", 1)]
    assert [call.attempt for call in world.calls] == [1, 2]


def test_w8_a_listener_that_begins_another_transaction_commits_nothing(on_postgres: Engine) -> None:
    """The mark is the last statement before COMMIT, so it notices the other transaction."""
    world = World(on_postgres)
    with on_postgres.begin() as connection:
        connection.execute(text("CREATE TABLE told (n int)"))
    world.send("a")
    begins = list[str]()

    def writes(connection: Connection) -> None:
        if begins:  # nor does it disturb what is written of the dead message
            return
        driver: Any = connection.connection.driver_connection
        begins.append("another")
        driver.execute("ROLLBACK")
        driver.execute("INSERT INTO told VALUES (1)")

    event.listen(on_postgres, "commit", writes)
    worker = world.worker()
    worker.lane.step()
    event.remove(on_postgres, "commit", writes)
    with on_postgres.connect() as connection:
        rows = connection.execute(text("SELECT count(*) FROM told")).scalar_one()

    assert begins == ["another"]
    assert rows == 0
    assert world.committed_effects() == []


def test_w8_a_dead_messages_reason_is_the_error_of_its_commit(on_postgres: Engine) -> None:
    """A deferred trigger fails at COMMIT; the reason must not be that the mark changed nothing."""
    world = World(on_postgres)
    with on_postgres.begin() as connection:
        connection.exec_driver_sql(
            "CREATE FUNCTION divide() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM 1 / 0; RETURN NULL; END$$"
        )
        connection.exec_driver_sql(
            "CREATE CONSTRAINT TRIGGER divides AFTER INSERT ON effects DEFERRABLE INITIALLY DEFERRED"
            " FOR EACH ROW EXECUTE FUNCTION divide()"
        )
    world.send("a")
    world.work_until_idle(world.worker())

    assert "division by zero" in str(world.exceptions()["a", 1][1])


def test_w8_a_psycopg_transaction_that_is_left_open_is_refused(on_postgres: Engine) -> None:
    """Psycopg would end it later, and the mark would have been committed in the middle of it."""
    world, left_open = World(on_postgres), list[Any]()

    def opens(session: Session, *_: object) -> Ack:
        opened: Any = session.connection().connection.driver_connection.transaction()  # type: ignore[union-attr]
        opened.__enter__()
        left_open.append(opened)
        return Ack()

    world.send("a")
    world.handler_steps["a", 1] = [opens] * 100
    world.work_until_idle(world.worker())

    assert world.committed_effects() == []
    assert places(world.bodies_in_dlq()) == [("a", 1)]
    assert "forbidden within a Transaction context" in str(world.exceptions()["a", 1][1])


def test_a_worker_on_an_engine_in_autocommit_calls_no_handler(on_postgres: Engine) -> None:
    """In AUTOCOMMIT the effect of a handler that fails would stay."""
    engine = create_engine(on_postgres.url, isolation_level="AUTOCOMMIT")
    world = World(engine)
    world.handler_steps["a", 1] = [ValueError("once more")]
    world.send("a")

    with capture_logs() as logged:
        world.worker().lane.step()
    engine.dispose()

    assert world.calls == []
    assert "the worker's engine is in AUTOCOMMIT" in str(logged[0])


def test_an_error_names_its_statement_and_none_of_its_values(on_postgres: Engine) -> None:
    """The error of a renamed column is logged, and values of a customer must not be in logs."""
    inbox, came = Inbox(InboxPolicy(consumer="billing")), decoded_message(1)
    with on_postgres.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE sluice_inbox_group RENAME last_seq TO elsewhere")
    with on_postgres.connect() as connection, pytest.raises(DBAPIError) as caught:
        inbox.admit(connection, came)

    assert "sluice_inbox_group" in str(caught.value.statement)
    assert "billing" not in str(caught.value)


def test_an_engine_with_execution_options_works_beside_its_parent(engine: Engine) -> None:
    """SQLAlchemy calls the listeners of both engines for it; a message is still handled once."""
    world, with_options = World(engine), World(engine.execution_options(max_row_buffer=10))
    world.send("a")
    world.work_until_idle(world.worker())
    with_options.send("b")
    with_options.work_until_idle(with_options.worker())

    assert sorted(with_options.committed_effects()) == [("a", 1), ("b", 1)]
