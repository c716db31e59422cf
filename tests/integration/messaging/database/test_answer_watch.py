"""A missing answer of Postgres ends the wait for it, even if its host still acknowledges packets."""

import gc
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, override

import psycopg
import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import OperationalError

from sluice.clock import SystemClock, VirtualClock, eventually
from sluice.messaging.database import connections, engines, failures
from sluice.messaging.database.answer_watch import AnswerWatch
from sluice.messaging.relay.commit_wait import CommitWait
from sluice.messaging.waiting import Stop
from tests.support.processes.worker_processes import DatabaseLine

_SECONDS = 30
_WAIT_SECONDS = 3  # by the machine's clock: what does answer is there sooner
_SELECT = text("SELECT 1")


@pytest.fixture
def line(postgres: Engine) -> Iterator[DatabaseLine]:
    """Yield a TCP line to the Postgres, which a test may hold."""
    with DatabaseLine(postgres) as line:
        yield line


@pytest.fixture
def connection(line: DatabaseLine) -> Iterator[psycopg.Connection[Any]]:
    """Yield a connection through the line."""
    engine = line.engine()
    taken = engine.raw_connection()
    connection: Any = taken.driver_connection
    taken.detach()
    with connection:
        yield connection
    engine.dispose()


def _send_question(connection: psycopg.Connection[Any], pool: ThreadPoolExecutor) -> Future[psycopg.Cursor[Any]]:
    """Return the answer to a question that is on its way."""
    question = pool.submit(connection.execute, "SELECT 1")
    is_waiting = psycopg.pq.TransactionStatus.ACTIVE
    eventually(
        lambda: connection.info.transaction_status is is_waiting,
        timeout_seconds=10,
        describe="a question without answer",
    )
    return question


def _watch(clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> AnswerWatch:
    """Return a watch that looks when the test does."""
    monkeypatch.setattr(AnswerWatch, "_watch", lambda _: None)
    return AnswerWatch(_SECONDS, clock)


def test_a_missing_answer_ends_the_wait_when_its_time_is_over(
    line: DatabaseLine, connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After 29 s the connection is still open; after 30 it is closed, and the statement fails."""
    clock = VirtualClock()
    watch = _watch(clock, monkeypatch)
    with ThreadPoolExecutor(1) as pool:
        connection.autocommit = True
        line.hold()
        watch.begin(connection)
        question = _send_question(connection, pool)
        clock.sleep(_SECONDS - 1)
        watch.look()
        was_closed_early = connection.broken or question.done()
        clock.sleep(1)
        watch.look()
        error = question.exception(timeout=10)

    assert not was_closed_early
    assert isinstance(error, psycopg.OperationalError)
    assert connection.broken


def test_a_connection_that_waits_for_nothing_is_left_open(
    connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler may compute for long without using its connection; only the message's lease limits that."""
    clock = VirtualClock()
    watch = _watch(clock, monkeypatch)
    watch.begin(connection)
    clock.sleep(10 * _SECONDS)

    is_in_use = watch.look()
    watch.end(connection)

    assert is_in_use is True
    assert watch.look() is False
    assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_connection_that_was_closed_meanwhile_is_forgotten(
    connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`look` returns whether a connection is still watched."""
    clock = VirtualClock()
    watch = _watch(clock, monkeypatch)
    watch.begin(connection)
    connection.close()
    clock.sleep(_SECONDS)

    assert not watch.look()


def _watcher_count() -> int:
    """Return how many threads watch for the database's answers."""
    return sum(thread.name == "sluice-answer-watch" for thread in threading.enumerate())


def test_an_engine_waits_for_no_answer_longer_than_its_time(line: DatabaseLine) -> None:
    """Outside a transaction, which Postgres would end itself; when no connection is in use, no thread is left."""
    engine = line.engine()
    connections.end_waits(engine, _WAIT_SECONDS)
    connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
    connection.execute(_SELECT)
    line.hold()
    with pytest.raises(OperationalError) as caught:
        connection.execute(_SELECT)
    line.let_go()
    connection.close()
    with engine.begin() as again:
        answer = again.execute(_SELECT).scalar_one()
    engine.dispose()

    assert answer == 1
    assert failures.may_pass(caught.value)
    eventually(lambda: not _watcher_count(), timeout_seconds=10, describe="no thread that watches")


def test_a_new_connection_waits_for_no_answer_longer_than_its_time(line: DatabaseLine) -> None:
    """SQLAlchemy's first statements on a new connection are watched too."""

    def connects(dialect: Any, record: object, arguments: Any, named: Any) -> Any:
        opened = connections.open_postgres(dialect, record, arguments, named)
        line.hold()
        return opened

    engine = engines.engine(line.engine().url.render_as_string(hide_password=False), connect=connects)
    connections.end_waits(engine, _WAIT_SECONDS)
    with pytest.raises((OperationalError, psycopg.OperationalError)):
        engine.connect()
    line.let_go()
    engine.dispose()


def test_a_connection_that_listens_is_not_watched(postgres: Engine, line: DatabaseLine) -> None:
    """A listening connection waits for notifications of commits, however long there are none."""
    engine = line.engine()
    connections.end_waits(engine, _WAIT_SECONDS)
    wait = CommitWait(engine, "events.fifo", Stop())
    try:
        wait.wait(0)
        eventually(lambda: not _watcher_count(), timeout_seconds=10, describe="no thread that watches")
        wait.wait(0)
    finally:
        wait.close()
        engine.dispose()


def test_a_connection_that_is_let_go_unclosed_while_another_begins_stops_nobody(
    line: DatabaseLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The garbage collector gives it back to its pool, in a thread that may be inside the watch."""

    class Collecting(SystemClock):
        @override
        def monotonic(self) -> float:
            gc.collect(0)  # of what is new: that is soon done
            return super().monotonic()

    engine = line.engine()
    monkeypatch.setattr(connections, "SystemClock", Collecting)
    connections.end_waits(engine, _SECONDS)
    thread = threading.Thread(target=_ask_beside_a_connection_let_go, args=(engine,), daemon=True)
    thread.start()
    thread.join(_SECONDS)
    is_stuck = thread.is_alive()
    if not is_stuck:
        engine.dispose()

    assert not is_stuck


def _ask_beside_a_connection_let_go(engine: Engine) -> None:
    """Ask the database while a connection, in a reference cycle, waits to be collected."""
    gc.disable()
    try:
        circle: list[Any] = [engine.connect()]
        circle.append(circle)
        del circle
        with engine.connect() as connection:
            connection.execute(_SELECT)
    finally:
        gc.enable()


def test_a_forked_process_leaves_its_parents_connections_open(
    line: DatabaseLine, connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forked process receives none of the parent's answers, and has the same sockets."""
    clock = VirtualClock()
    watch = _watch(clock, monkeypatch)
    engine = line.engine()
    with ThreadPoolExecutor(1) as pool, engine.connect() as of_child:
        line.hold()
        watch.begin(connection)
        question = _send_question(connection, pool)
        monkeypatch.setattr("os.getpid", lambda: -1)  # as in the child, where no thread but the forking one goes on
        watch.begin(of_child.connection.driver_connection)  # type: ignore[arg-type]
        clock.sleep(_SECONDS)
        watch.look()
        line.let_go()
        answer = question.result(timeout=10).fetchone()
    engine.dispose()

    assert answer == (1,)
