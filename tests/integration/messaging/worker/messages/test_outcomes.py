"""A message ends as its handler says, and a database that is away for a while uses up no attempt."""

import secrets
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event, make_url, text
from sqlalchemy.orm import Session
from structlog.testing import capture_logs

from sluice.declaration import Consumer, metrics
from sluice.history import events
from sluice.messaging.database import engines
from sluice.messaging.envelope import TOMBSTONE, Event
from sluice.messaging.errors import PermanentError, TransientError
from sluice.messaging.handlers import ANY, Ack, Context, Handlers, LaneHandler, Outcome, Reject, Retry
from sluice.messaging.inbox.groups import InboxPolicy
from sluice.messaging.worker.processing import async_handlers
from sluice.messaging.worker.processing.acknowledgements import Abandon, Delete, Release
from tests.support.messaging.world import (
    KINDS_OF_ASYNCIO,
    MAX_ATTEMPTS,
    HandlerStep,
    World,
    create_tables,
    envelope,
    places,
)


def test_sent_messages_are_handled_once_and_in_order(world_on_each_database: World) -> None:
    """Afterwards queue and DLQ are empty, and the inbox knows the last number of each group."""
    world = world_on_each_database
    world.send("a", "a", "b", "a", "b")

    world.work_until_idle(world.worker())

    assert sorted(world.committed_effects()) == [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2)]
    assert world.called_places == world.committed_effects()
    assert world.last_numbers() == {"a": 3, "b": 2}
    assert world.bodies_in_queue() == []
    assert world.bodies_in_dlq() == []
    assert world.exceptions() == {}


@pytest.mark.parametrize(
    ("delay_seconds", "waited"), [(0, 0), (7, 7), (2.5, 3), (100, 100)], ids=["0", "7", "2.5", "100"]
)
def test_a_retry_comes_again_after_the_delay_it_asks_for(world: World, delay_seconds: float, waited: float) -> None:
    """SQS knows whole seconds, so 2.5 s become 3, and never fewer. The effect of the first attempt is rolled back."""
    world.send("a")
    world.handler_steps["a", 1] = [Retry(delay_seconds=delay_seconds)]

    world.work_until_idle(world.worker())

    first, second = world.calls
    assert second.time - first.time == pytest.approx(waited, abs=0.1)
    assert world.committed_effects() == [("a", 1)]


@pytest.mark.parametrize("kind", ["plain", *KINDS_OF_ASYNCIO])
def test_an_event_added_by_a_failed_handler_is_dropped_without_a_warning(
    on_file: Engine, kind: str, recwarn: pytest.WarningsRecorder
) -> None:
    """This holds for messages of the queue (a, b, c) and for a parked one (p)."""
    world = World(on_file, policy=InboxPolicy(consumer="billing", parks_poison=True, parks_gaps=True))
    world.park("p")
    worker = world.worker(handlers=world.handlers_of_asyncio(kind))

    def add_and(ending: HandlerStep) -> LaneHandler:
        def handle(session: Session, event: Event, _: Context) -> Any:
            world.outbox.add(session, Event(type="parcel.sent", group=event.group, data=event.data))
            if isinstance(ending, BaseException):
                raise ending
            return ending

        return handle

    endings: list[HandlerStep] = [ValueError("no such customer"), Retry(), Reject("no such customer")]
    world.send(*"abc")
    for place, ending in zip([("a", 1), ("b", 1), ("c", 1)], endings, strict=True):
        world.handler_steps[place] = [add_and(ending)]
    world.handler_steps["p", 2] = [add_and(ending) for ending in endings]
    with capture_logs() as logged:
        world.work_until_idle(worker)
        for _ in endings:
            worker.drainer.step()
            world.simulator.advance(301)
    async_handlers.close()

    assert [str(warning.message) for warning in recwarn] == []
    assert [entry["event"] for entry in logged if "listener" in entry["event"]] == []
    assert world.statuses() == {}
    assert world.parked_places() == [("p", 2)]
    assert sorted(world.committed_effects()) == [("a", 1), ("b", 1), ("p", 1)]


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf"), 43_201.0])
def test_a_retry_with_an_impossible_delay_fails_its_attempt(world: World, seconds: float) -> None:
    """SQS hides a message for at most 12 hours.

    After three such attempts the message is dead, and the reason says why.
    """
    world.send("a")
    world.handler_steps["a", 1] = [lambda *_: Retry(delay_seconds=seconds)] * MAX_ATTEMPTS

    world.work_until_idle(world.worker())

    found = f"attempt 3: FieldError: Retry.delay_seconds is {seconds}, allowed is 0 to 43200, or None for the backoff"
    assert world.exceptions() == {("a", 1): ("dead", found)}


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (Retry(delay_seconds=0, reason="not today"), "attempt 3: not today"),
        (Retry(), "attempt 3: the handler asked for a retry"),
        (TransientError("the bank is closed"), "attempt 3: the bank is closed"),
        (RuntimeError("boom"), "attempt 3: RuntimeError: boom"),
        (KeyError("total"), "attempt 3: KeyError: 'total'"),
        (lambda *_: "done", "attempt 3: the handler returned 'done', allowed is Ack, Retry, Reject or nothing"),
    ],
    ids=["Retry", "plain Retry", "TransientError", "RuntimeError", "KeyError", "nonsense"],
)
def test_a_message_that_fails_its_last_attempt_is_in_inbox_and_dlq(
    world: World, result: HandlerStep, reason: str
) -> None:
    """SQS itself moves the message, so the DLQ knows its source queue. Later messages of the group are handled."""
    world.send("a", "a")
    world.handler_steps["a", 1] = [result] * MAX_ATTEMPTS

    world.work_until_idle(world.worker())

    assert [(call.place, call.attempt, call.is_last_attempt) for call in world.calls] == [
        (("a", 1), 1, False),
        (("a", 1), 2, False),
        (("a", 1), 3, True),
        (("a", 2), 1, False),
    ]
    assert world.exceptions() == {("a", 1): ("dead", reason)}
    (dead,) = world.sqs.receive_message(QueueUrl=world.dlq_url, MessageSystemAttributeNames=["All"])["Messages"]
    assert dead["Attributes"]["DeadLetterQueueSourceArn"] == world.arn
    assert ("a", 2) in world.committed_effects()


def test_a_handler_that_rolls_back_has_failed(world: World) -> None:
    """The inbox's mark is rolled back with the effect, so the message cannot count as handled."""
    world.send("a")
    world.handler_steps["a", 1] = [lambda session, *_: session.rollback()] * MAX_ATTEMPTS

    world.work_until_idle(world.worker())

    found = "attempt 3: the handler ended its transaction, allowed is neither commit nor rollback: the worker does that"
    assert world.committed_effects() == []
    assert world.exceptions() == {("a", 1): ("dead", found)}


def test_a_handler_that_commits_has_failed(world: World) -> None:
    """The commit is refused, because it would lack the inbox's mark; the next attempt succeeds."""
    world.send("a")
    world.handler_steps["a", 1] = [lambda session, *_: session.commit()]

    world.work_until_idle(world.worker())

    assert world.called_places == [("a", 1), ("a", 1)]
    assert world.committed_effects() == [("a", 1)]
    assert world.bodies_in_dlq() == []
    assert world.exceptions() == {}


@pytest.mark.parametrize("result", [Reject("no such customer"), PermanentError("no such customer")])
def test_a_rejected_message_is_in_the_dlq_after_one_attempt(world: World, result: HandlerStep) -> None:
    """The handler is called once; the worker then lets SQS deliver the message until its receives are used up."""
    world.send("a", "a")
    world.handler_steps["a", 1] = [result]
    worker = world.worker()

    world.work_until_idle(worker)

    assert world.called_places == [("a", 1), ("a", 2)]
    assert world.exceptions() == {("a", 1): ("dead", "no such customer")}
    assert places(world.bodies_in_dlq()) == [("a", 1)]
    assert world.committed_effects() == [("a", 2)]
    assert len(worker.sqs_calls.of("ReceiveMessage")) == MAX_ATTEMPTS + 1  # the last brings the second message
    assert worker.wait.waits == []


def test_d13_a_redriven_dead_message_is_handled_as_late(world: World) -> None:
    """Late means: a later message of its group was handled before. It has all its attempts again."""
    world.send("a", "a")
    world.handler_steps["a", 1] = [Reject("not yet"), RuntimeError("nor now")]
    worker = world.worker()
    world.work_until_idle(worker)
    world.redrive()

    world.work_until_idle(worker)

    assert [(call.place, call.attempt, call.is_late) for call in world.calls] == [
        (("a", 1), 1, False),
        (("a", 2), 1, False),
        (("a", 1), 1, True),
        (("a", 1), 2, True),
    ]
    assert world.committed_effects() == [("a", 2), ("a", 1)]
    assert world.bodies_in_dlq() == []
    assert world.exceptions() == {("a", 1): ("redriven", "not yet")}


def test_d13_a_second_copy_of_a_redriven_message_is_not_handled(world: World) -> None:
    """The inbox knows that the redriven message was handled."""
    (first,) = world.send("a")
    world.handler_steps["a", 1] = [Reject("not yet")]
    worker = world.worker()
    world.work_until_idle(worker)
    world.redrive()
    world.work_until_idle(worker)
    world.put(first)

    world.work_until_idle(worker)

    assert world.called_places == [("a", 1)] * 2
    assert world.committed_effects() == [("a", 1)]


def test_d13_a_redriven_message_that_is_rejected_again_reaches_the_dlq(world: World) -> None:
    """The inbox then has the newer reason."""
    world.send("a")
    world.handler_steps["a", 1] = [Reject("first"), Reject("second")]
    worker = world.worker()
    world.work_until_idle(worker)
    world.redrive()

    world.work_until_idle(worker)

    assert len(world.called_places) == 2
    assert places(world.bodies_in_dlq()) == [("a", 1)]
    assert world.exceptions() == {("a", 1): ("dead", "second")}


def test_a_type_without_a_handler_is_rejected(world: World) -> None:
    """The worker's handlers are for `order.paid`, and the message is `order.placed`."""
    world.send("a")

    world.work_until_idle(world.worker(handlers=Handlers({"order.paid": world.handlers.find("x")})))  # type: ignore[dict-item]

    assert world.called_places == []
    reason = "there is no handler for 'order.placed'; add one, or one for '*'"
    assert world.exceptions() == {("a", 1): ("dead", reason)}
    assert places(world.bodies_in_dlq()) == [("a", 1)]


def test_events_for_other_consumers_are_passed_over_and_gaps_are_seen(world: World) -> None:
    """Billing declares two types and has a handler for one.

    So numbers 1 and 4 are for others, 3 is missing, and 5 is rejected. With a filter policy numbers 1 and 4 would not
    come, and nobody could tell them from lost messages.
    """
    for seq, type_ in ((1, "order.sent"), (2, "order.placed"), (4, "order.sent"), (5, "order.gone")):
        world.put(envelope("a", seq, type=type_))
    consumer = Consumer(name="billing", types=("order.placed", "order.gone"))
    handlers = Handlers({"order.placed": world.handlers.find("x")}).of_consumer(consumer)  # type: ignore[dict-item]
    worker = world.worker(handlers=handlers)

    world.work_until_idle(worker)

    counted = worker.tally.take()
    assert world.called_places == [("a", 2)]
    assert counted["InboxHandled"] == 3
    assert counted["InboxPassedOver"] == 2
    assert counted["InboxDead"] == 1
    assert {place: state for place, (state, _) in world.exceptions().items()} == {("a", 3): "gap", ("a", 5): "dead"}
    assert places(world.bodies_in_dlq()) == [("a", 5)]


def test_a_types_own_handler_is_called_instead_of_the_general_one(world: World) -> None:
    """The general handler, for `*`, gets every type that has none of its own."""
    handled: list[tuple[str, str]] = []

    def by(name: str) -> Any:
        return lambda _, value, __: handled.append((name, value.type))

    world.put(envelope("a", 1))
    world.put(envelope("a", 2, type="order.paid"))

    world.work_until_idle(world.worker(handlers=Handlers({"order.placed": by("own"), ANY: by("any")})))

    assert handled == [("own", "order.placed"), ("any", "order.paid")]


def test_tombstones_and_end_markers_count_and_call_no_handler(world: World) -> None:
    """A tombstone stands for an event that an operator skipped; a load test ends each group with a marker."""
    world.put(envelope("a", 1))
    world.put(envelope("a", 2, type=TOMBSTONE))
    world.put(envelope("a", 3, type=events.END_TYPE))
    world.put(envelope("a", 4))

    world.work_until_idle(world.worker())

    assert world.committed_effects() == [("a", 1), ("a", 4)]
    assert world.last_numbers() == {"a": 4}
    assert world.exceptions() == {("a", 2): ("skipped", "tombstone")}
    assert world.bodies_in_queue() == []
    assert world.bodies_in_dlq() == []


def test_an_error_at_the_commit_is_the_handlers_failure(on_postgres: Engine) -> None:
    """A deferred constraint fails only there; after three attempts the message is dead."""
    with on_postgres.begin() as connection:
        connection.execute(text("CREATE TABLE paid (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)"))
        connection.execute(text("INSERT INTO paid VALUES (1)"))
    world = World(on_postgres)
    world.send("a")

    def pays_twice(session: Session, _: Event, __: Context) -> Outcome:
        session.execute(text("INSERT INTO paid VALUES (1)"))
        return Ack()

    world.handler_steps["a", 1] = [pays_twice] * MAX_ATTEMPTS
    world.work_until_idle(world.worker())

    assert world.committed_effects() == []
    assert places(world.bodies_in_dlq()) == [("a", 1)]
    ((state, reason),) = world.exceptions().values()
    assert state == "dead"
    assert reason is not None
    assert reason.startswith("attempt 3: IntegrityError: ")


@pytest.mark.parametrize("result", [Reject("a\0b\ud800"), RuntimeError("a\0b\ud800")], ids=["Reject", "error"])
def test_a_reason_no_database_can_store_is_stored_with_escapes(
    world_on_each_database: World, result: HandlerStep
) -> None:
    """Postgres cannot store NUL, and neither database half a surrogate pair."""
    world = world_on_each_database
    world.send("a")
    world.handler_steps["a", 1] = [result] * MAX_ATTEMPTS

    world.work_until_idle(world.worker())

    ((state, reason),) = world.exceptions().values()
    assert state == "dead"
    assert places(world.bodies_in_dlq()) == [("a", 1)]
    assert reason is not None
    assert reason.endswith("a\\x00b\\ud800")


@pytest.fixture
def impatient_engine(database_folder: Path) -> Iterator[Engine]:
    """Yield an engine on an SQLite file that does not wait for a lock."""
    made = engines.engine(f"sqlite:///{database_folder / 'inbox.db'}")

    @event.listens_for(made, "connect")
    def set_timeout(connection: Any, _: Any) -> None:
        connection.execute("PRAGMA busy_timeout = 0").close()

    create_tables(made)
    yield made
    made.dispose()


@pytest.fixture
def other_writer(impatient_engine: Engine) -> Iterator[sqlite3.Connection]:
    """Yield a connection that holds SQLite's lock of writers."""
    connection = sqlite3.connect(str(impatient_engine.url.database), isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    yield connection
    connection.close()


def test_a_database_that_is_away_for_a_while_uses_up_no_attempt(
    impatient_engine: Engine, other_writer: sqlite3.Connection
) -> None:
    """Another writer holds SQLite's lock until the worker's fifth wait."""
    world = World(impatient_engine)
    world.send("a")
    worker = world.worker()
    worker.wait.meanwhile = lambda: other_writer.execute("ROLLBACK") if len(worker.wait.waits) == 5 else None

    ended = worker.processor.process(world.receive(worker))

    assert ended == Delete()
    assert [(call.place, call.attempt) for call in world.calls] == [(("a", 1), 1)]
    assert len(worker.wait.waits) == 5
    assert world.committed_effects() == [("a", 1)]
    assert world.bodies_in_queue() == []


def test_a_message_is_left_alone_when_the_database_stays_away(
    impatient_engine: Engine, other_writer: sqlite3.Connection
) -> None:
    """The worker waits until the lease ends.

    The message comes again after its visibility timeout, with one receive used up.
    """
    world = World(impatient_engine)
    world.send("a")
    worker = world.worker()

    ended = worker.processor.process(world.receive(worker))
    other_writer.execute("ROLLBACK")
    world.work_until_idle(worker)

    assert ended == Abandon()
    assert {operation for operation, _ in worker.sqs_calls.log} == {"ReceiveMessage", "DeleteMessage"}
    assert [(call.place, call.attempt) for call in world.calls] == [(("a", 1), 2)]


_END_ALL = text("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = :name")


class Server:
    """A Postgres database that can be shut, as a server is that is being restarted."""

    def __init__(self, url: str, name: str) -> None:
        self._server = engines.engine(url)
        self._name = name
        self._run(f"CREATE DATABASE {name}")
        self.engine = engines.engine(make_url(url).set(database=name).render_as_string(hide_password=False))
        create_tables(self.engine)

    def shut(self) -> None:
        """Let nobody connect to the database, and end every connection."""
        self._run(f"ALTER DATABASE {self._name} ALLOW_CONNECTIONS false")
        with self._server.connect() as connection:
            connection.execute(_END_ALL, {"name": self._name})

    def open(self) -> None:
        """Let everybody connect to the database again."""
        self._run(f"ALTER DATABASE {self._name} ALLOW_CONNECTIONS true")

    def close(self) -> None:
        """Drop the database, and close both engines."""
        self.engine.dispose()
        self._run(f"DROP DATABASE {self._name} WITH (FORCE)")
        self._server.dispose()

    def _run(self, statement: str) -> None:
        with self._server.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text(statement))


@pytest.fixture
def server(postgres_url: str) -> Iterator[Server]:
    """Yield a database of this test's own, which it may shut."""
    made = Server(postgres_url, f"test_{secrets.token_hex(8)}")
    yield made
    made.close()


def test_a_server_that_restarts_while_a_handler_runs_has_the_effect_once(server: Server) -> None:
    """The transaction fails, and is tried again in the same receive until the server is back: that costs no attempt."""
    world = World(server.engine)
    world.send("a", "a")
    world.handler_steps["a", 1] = [lambda *_: server.shut()]
    worker = world.worker()
    worker.wait.meanwhile = lambda: server.open() if len(worker.wait.waits) == 3 else None

    world.work_until_idle(worker)

    assert [(call.place, call.attempt) for call in world.calls] == [(("a", 1), 1), (("a", 1), 1), (("a", 2), 1)]
    assert world.committed_effects() == [("a", 1), ("a", 2)]
    assert len(worker.wait.waits) == 3


def test_a_lane_receives_nothing_more_while_the_database_is_away(server: Server) -> None:
    """A message that it receives and cannot handle would lose an attempt; the others wait in the queue."""
    world = World(server.engine)
    worker = world.worker()
    worker.parts.pause.is_paused()  # it knows now that its consumer is not
    world.send("a", "b")
    server.shut()

    steps = [worker.lane.step() for _ in range(4)]
    server.open()
    world.work_until_idle(worker)

    assert steps == [True, False, False, False]
    assert len(worker.sqs_calls.of("ReceiveMessage")) == 3
    assert [(call.place, call.attempt) for call in world.calls] == [(("b", 1), 1), (("a", 1), 2)]


def test_a_death_is_recorded_when_the_database_is_back(
    impatient_engine: Engine, other_writer: sqlite3.Connection
) -> None:
    """The database is locked between the handler's rejection and its record."""
    world = World(impatient_engine)
    other_writer.execute("ROLLBACK")
    world.send("a")
    world.handler_steps["a", 1] = [Reject("never")]
    worker = world.worker()
    worker.wait.meanwhile = lambda: other_writer.execute("ROLLBACK")

    @event.listens_for(impatient_engine, "checkin")
    def lock_again(*_: object) -> None:
        if world.calls and not worker.wait.waits and not other_writer.in_transaction:
            other_writer.execute("BEGIN IMMEDIATE")

    world.work_until_idle(worker)

    assert len(worker.wait.waits) == 1
    assert world.exceptions() == {("a", 1): ("dead", "never")}
    assert world.committed_effects() == []
    assert places(world.bodies_in_dlq()) == [("a", 1)]


def test_a_dead_message_that_could_not_be_recorded_is_released(
    impatient_engine: Engine, other_writer: sqlite3.Connection
) -> None:
    """The worker has to stop while the database is away; another worker receives the message."""
    world = World(impatient_engine)
    other_writer.execute("ROLLBACK")
    world.put_body("no JSON at all", "a")
    worker = world.worker()

    def lock_again() -> None:
        worker.wait.has_stop_request = True

    other_writer.execute("BEGIN IMMEDIATE")
    worker.wait.meanwhile = lock_again
    ended = worker.processor.process(world.receive(worker))
    other_writer.execute("ROLLBACK")

    assert ended == Release(0)
    assert worker.tally.take()[metrics.DEAD] == 0
    assert world.receive(worker).receive_count == 2
