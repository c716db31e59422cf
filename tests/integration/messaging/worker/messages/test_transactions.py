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
from sluice.messaging.worker.processing.processor import Abandon
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


def _locks(session: Session, *_: object) -> Ack:
    """Lock the accounts, and fail if that takes longer than 20 ms."""
    session.execute(text("SET LOCAL lock_timeout = '20ms'"))
    session.execute(text("SELECT n FROM accounts FOR UPDATE"))
    return Ack()


def test_a_lock_that_is_never_let_go_is_this_messages_failure(on_postgres: Engine, lock_holder: Connection) -> None:
    assert lock_holder.in_transaction()
    world = World(on_postgres)
    world.send("a", "a", "b")
    world.handler_steps["a", 1] = [_locks] * 100

    world.work_until_idle(world.worker())

    assert sorted(world.committed_effects()) == [("a", 2), ("b", 1)]
    assert places(world.bodies_in_dlq()) == [("a", 1)]
    assert [call.place for call in world.calls].count(("a", 1)) == 3 * MAX_ATTEMPTS
    state, reason = world.exceptions()["a", 1]
    assert state == "dead"
    assert "lock timeout" in str(reason)


def test_a_lock_that_is_let_go_costs_no_attempt(on_postgres: Engine, lock_holder: Connection) -> None:
    world = World(on_postgres)
    world.send("a")
    world.handler_steps["a", 1] = [_locks] * 3
    worker = world.worker()
    worker.wait.meanwhile = lock_holder.rollback

    world.work_until_idle(worker)

    assert [call.attempt for call in world.calls] == [1, 1]
    assert world.committed_effects() == [("a", 1)]
    assert world.bodies_in_dlq() == []


def test_a_serialization_failure_of_the_handler_is_no_database_that_is_away(on_postgres: Engine) -> None:
    """Two serializable transactions each write a row that the other has read. One of them fails, and is tried again."""
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


def test_another_database_that_is_away_is_this_messages_failure(engine: Engine) -> None:
    """An error of another database is the message's own failure: it is not waited for as if nobody could work."""
    world = World(engine)
    world.send("a", "b")
    elsewhere: Any = OperationalError("SELECT", {}, RuntimeError("connection refused by another database"))
    elsewhere.orig.sqlstate = "08006"
    world.handler_steps["a", 1] = [elsewhere] * 100

    world.work_until_idle(world.worker())

    assert world.committed_effects() == [("b", 1)]
    assert "connection refused by another database" in str(world.exceptions()["a", 1][1])


def test_a_silent_database_is_given_up_and_costs_one_attempt(
    on_postgres: Engine,
) -> None:
    """The host still acknowledges packets, so no keepalive notices.

    The worker receives no further message meanwhile.
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


def test_a_message_takes_four_round_trips_besides_its_handlers(on_postgres: Engine) -> None:
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


def test_w8_a_mark_changes_nothing_in_another_transaction(on_postgres: Engine) -> None:
    """A handler may have committed on the driver itself, and begun anew: then its message does not count."""
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


def test_w8_nothing_is_committed_when_the_mark_changes_no_row(on_postgres: Engine) -> None:
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


def test_w8_what_another_listener_rolls_back_is_not_taken_for_committed(on_postgres: Engine) -> None:
    """The other listener runs after ours and rolls back; the driver's commit then commits nothing, without an error."""
    world = World(on_postgres)
    world.send("a")
    world.work_until_idle(world.worker())
    rollbacks = list[str]()

    def rolls_back(connection: Connection) -> None:
        driver: Any = connection.connection.driver_connection
        if not rollbacks:
            rollbacks.append("rollback")
            driver.rollback()

    event.listen(on_postgres, "commit", rolls_back)
    world.send("a")
    world.work_until_idle(world.worker())

    assert rollbacks == ["rollback"]
    assert [(call.place, call.attempt) for call in world.calls][1:] == [(("a", 2), 1), (("a", 2), 2)]
    assert world.committed_effects() == [("a", 1), ("a", 2)]
    assert world.last_numbers() == {"a": 2}


def test_w8_a_failing_listener_leaves_no_mark_on_the_connection(engine: Engine) -> None:
    """The other listener runs after ours and raises.

    SQLAlchemy then neither commits nor rolls back, and the next transaction would commit the mark.
    """
    world, failures = World(engine), list[str]()

    def fails(_: Connection) -> None:
        if not failures:
            failures.append("failed")
            raise RuntimeError("not now")

    world.send("a")
    worker = world.worker()
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


def test_w8_no_listener_of_the_commit_writes_beside_the_mark(on_postgres: Engine) -> None:
    """A listener may end the transaction and begin another.

    The mark is the last statement before COMMIT, so it notices that.
    """
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


def test_w8_an_error_of_the_commit_is_told_as_what_it_is(on_postgres: Engine) -> None:
    """A deferred trigger fails at COMMIT, as a mark that changes nothing does."""
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


def test_w8_an_open_transaction_of_the_driver_is_refused(on_postgres: Engine) -> None:
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
    """A handler that fails would leave its effect."""
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
    inbox, came = Inbox(InboxPolicy(consumer="billing")), decoded_message(1)
    with on_postgres.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE sluice_inbox_group RENAME last_seq TO elsewhere")
    with on_postgres.connect() as connection, pytest.raises(DBAPIError) as caught:
        inbox.admit(connection, came)

    assert "sluice_inbox_group" in str(caught.value.statement)
    assert "billing" not in str(caught.value)


def test_an_engine_with_options_works_beside_the_one_it_is_made_of(engine: Engine) -> None:
    """Such an engine calls the listeners of both engines."""
    world, with_options = World(engine), World(engine.execution_options(max_row_buffer=10))
    world.send("a")
    world.work_until_idle(world.worker())
    with_options.send("b")
    with_options.work_until_idle(with_options.worker())

    assert sorted(with_options.committed_effects()) == [("a", 1), ("b", 1)]
