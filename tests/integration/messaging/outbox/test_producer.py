"""Producers that run at once: whatever is committed is published, in the order of commits, and nobody waits for it."""

import itertools
import json
import random
import re
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, Engine, create_engine, select, text, update
from sqlalchemy import event as hooks
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from sluice.clock import SystemClock, eventually
from sluice.messaging import Event, Outbox, database_engine
from sluice.messaging.envelope import Envelope, decode
from sluice.messaging.outbox import tables
from sluice.messaging.outbox.store import Head
from tests.support.messaging.outbox.postgres_interleaving import (
    NaiveOutbox,
    Schedule,
    WrittenEvent,
    by_group,
    is_waiting,
    play_transactions,
    schedules,
)
from tests.support.messaging.outbox.simulated_relays import Meanwhile, work
from tests.support.messaging.world import TOPIC, World
from tests.support.processes.worker_processes import DatabaseLine

_COUNT_PLANS = "SELECT count(*) FROM pg_prepared_statements"
RANDOM_CASES = settings(max_examples=15, deadline=None, database=None, print_blob=True)
COUNTEREXAMPLE_SEARCH = settings(
    max_examples=300, deadline=None, database=None, derandomize=True, phases=[Phase.generate]
)


@pytest.fixture
def postgres_with_another_table(postgres: Engine) -> Engine:
    """Return a Postgres with a table in which other transactions can write."""
    with postgres.begin() as connection:
        connection.execute(text("CREATE TABLE elsewhere (id bigserial)"))
    return postgres


class _NumberedOutbox:
    """The outbox, unchanged, with separate group names for each schedule."""

    def __init__(self, world: World) -> None:
        self._world, self._schedules = world, itertools.count()

    def begin(self) -> None:
        """Begin the next schedule: its groups get names of their own."""
        self._schedule = next(self._schedules)

    def write(self, connection: Connection, written: Sequence[WrittenEvent]) -> None:
        """Write events whose data is the number of the transaction."""
        events = [
            Event(type="t", group=f"{self._schedule}-{group}", data=transaction) for group, transaction in written
        ]
        self._world.outbox.write(connection, events)

    def received_events(self) -> list[tuple[str, int, int]]:
        """Return group, number in the group and data of each message received, in order.

        The data is the number of the transaction that wrote the event.
        """
        envelopes = [decode(message["Body"]) for message in self._world.receive_all()]
        return [(envelope.event.group.partition("-")[2], envelope.seq, envelope.event.data) for envelope in envelopes]


def test_p1_p2_p3_commits_of_a_group_are_published_in_order(postgres_with_another_table: Engine) -> None:
    """In random schedules of transactions the numbers of each group are 1, 2, 3 ... in the order of commits."""
    world = World(postgres_with_another_table)
    relay, outbox = world.relay(), _NumberedOutbox(world)

    @RANDOM_CASES
    @given(schedule=schedules())
    def check_schedule(schedule: Schedule) -> None:
        outbox.begin()

        committed = play_transactions(postgres_with_another_table, schedule, outbox, relay.step)
        work(relay)

        received = outbox.received_events()
        transactions = by_group([(group, transaction) for group, _, transaction in received])
        numbers = by_group([(group, seq) for group, seq, _ in received])
        assert transactions == by_group(committed)
        assert numbers == {group: list(range(1, len(seqs) + 1)) for group, seqs in numbers.items()}

    check_schedule()


def test_p1_a_cursor_would_lose_a_late_commit(postgres_with_another_table: Engine) -> None:
    """P1, negative control: the same interleavings find events that a poller of `id > last` never reads."""
    naive = NaiveOutbox(postgres_with_another_table, order="id", locks=False)

    def loses(schedule: Schedule) -> bool:
        naive.forget()
        committed = play_transactions(postgres_with_another_table, schedule, naive, naive.poll)
        naive.poll()
        return Counter(naive.polled) != Counter(committed)

    assert find(schedules(), loses, settings=COUNTEREXAMPLE_SEARCH)


@pytest.mark.parametrize(
    ("order", "locks"),
    [pytest.param("id", False, id="P2-by-id"), pytest.param("xid, id", True, id="P3-by-transaction-id")],
)
def test_p2_p3_another_order_would_flip_commits(postgres_with_another_table: Engine, order: str, locks: bool) -> None:  # noqa: FBT001
    """P2, P3, negative control: by id without a lock, and by transaction id even with one."""
    naive = NaiveOutbox(postgres_with_another_table, order=order, locks=locks)

    def flips(schedule: Schedule) -> bool:
        naive.forget()
        committed = play_transactions(postgres_with_another_table, schedule, naive, lambda: None)
        return by_group(naive.all()) != by_group(committed)

    assert find(schedules(), flips, settings=COUNTEREXAMPLE_SEARCH)


def test_p4_an_open_transaction_elsewhere_delays_nothing(postgres_with_another_table: Engine) -> None:
    """Neither a transaction with a write elsewhere and an old view, nor one with another group's counter."""
    world = World(postgres_with_another_table)
    relay = world.relay()

    with (
        postgres_with_another_table.connect() as unrelated,
        postgres_with_another_table.connect() as other,
        unrelated.begin(),
        other.begin(),
    ):
        unrelated.execute(text("INSERT INTO elsewhere DEFAULT VALUES"))
        world.outbox.write(other, [Event(type="t", group="held", data=None)])
        world.commit("a", "b")
        work(relay)

        assert sorted(world.receive_places()) == [("a", 1), ("b", 1)]


def test_p6_a_commit_ends_while_a_relay_publishes(engine: Engine) -> None:
    """An event of the same group is committed during the publishing call: the relay holds no lock that it needs."""
    world = World(engine)
    world.commit("a")

    def commit_during_the_call(heads: Sequence[Head]) -> None:
        if heads[0].group_seq == 1:
            _commit_concurrently(world)

    publish = Meanwhile(world.publisher(), commit_during_the_call)

    work(world.relay(publish))

    assert world.receive_places() == [("a", 1), ("a", 2)]


def test_p6_a_relay_that_locks_counters_would_hold_producers_up(postgres: Engine) -> None:
    """P6, negative control: the same commit gives up where the counter is locked during the publish."""
    world = World(postgres)
    world.commit("a")

    with postgres.begin() as connection:
        connection.execute(select(tables.groups).with_for_update())
        with pytest.raises(OperationalError, match="lock timeout"):
            _commit_concurrently(world)


def _commit_concurrently(world: World) -> None:
    """Commit an event of group a, and fail where that has to wait for a lock longer than 300 ms."""
    with Session(world.engine) as session:
        if world.engine.dialect.name == "postgresql":
            session.execute(text("SET LOCAL lock_timeout = '300ms'"))
        world.outbox.add(session, Event(type="t", group="a", data=None))
        session.commit()


def test_p12_two_events_with_equal_data_are_two_messages(engine: Engine) -> None:
    """SNS could deduplicate by content, and would drop the second payment of the same sum."""
    world = World(engine)
    with Session(engine) as session:
        for _ in range(2):
            world.outbox.add(session, Event(type="paid", group="a", data={"sum": 5}))
        session.commit()

    work(world.relay())

    received = [decode(message["Body"]) for message in world.receive_all()]
    assert [(envelope.seq, envelope.event.data) for envelope in received] == [(1, {"sum": 5}), (2, {"sum": 5})]
    assert received[0].event.content_hash == received[1].event.content_hash


def test_p16_transactions_with_the_same_groups_and_topics_never_deadlock(postgres: Engine) -> None:
    """Six threads commit events of two topics in random order of groups; each group's numbers have no hole."""
    outboxes = [Outbox("one.fifo"), Outbox("two.fifo")]

    def produce(number: int) -> list[tuple[str, str]]:
        rng = random.Random(f"p16 {number}")  # noqa: S311 (a seed, no secret)
        added = []
        for _ in range(8):
            with Session(postgres) as session:
                for outbox in rng.sample(outboxes, 2):
                    for group in rng.sample("abc", 2):
                        outbox.add(session, Event(type="t", group=group, data=None))
                        added.append((outbox.topic, group))
                session.commit()
        return added

    with ThreadPoolExecutor(6) as pool:
        added = Counter(itertools.chain.from_iterable(pool.map(produce, range(6))))

    assert _numbers(postgres) == {place: list(range(1, count + 1)) for place, count in added.items()}


def test_p16_transactions_that_write_twice_in_opposite_orders_deadlock(postgres: Engine) -> None:
    """P16, negative control: Postgres ends a circle by failing one of them, which is why `write` is called once."""
    outbox, single, other = Outbox(TOPIC), Event(type="t", group="a", data=1), Event(type="t", group="b", data=1)

    with postgres.connect() as first, postgres.connect() as second, postgres.connect() as watcher:
        pid = first.execute(text("SELECT pg_backend_pid()")).scalar_one()
        outbox.write(first, [single])
        outbox.write(second, [other])
        with ThreadPoolExecutor(1) as pool:
            waiting: Future[None] = pool.submit(outbox.write, first, [Event(type="t", group="b", data=2)])
            eventually(
                lambda: is_waiting(watcher, pid),
                timeout_seconds=20,
                describe="the first to wait for the second",
                clock=SystemClock(),
            )
            failed = [_error(lambda: outbox.write(second, [Event(type="t", group="a", data=2)]))]
            second.rollback()
            failed.append(_error(waiting.result))

    assert sorted(failed) == ["", "deadlock detected"]


def _error(write: Callable[[], object]) -> str:
    """Return the first line of the database's error in a write; an empty text if it succeeds."""
    try:
        write()
    except OperationalError as error:
        return str(error.orig).splitlines()[0]
    return ""


def test_x4_no_statement_uses_a_lock_that_sqlite_lacks(postgres: Engine) -> None:
    """SQLAlchemy leaves FOR UPDATE out on SQLite and reports nothing, so no statement uses it."""
    world, statements = World(postgres), list[str]()

    @hooks.listens_for(postgres, "before_cursor_execute")
    def note_statement(_1: object, _2: object, statement: str, *_: object) -> None:
        statements.append(statement)

    world.commit("a", "b", "a")
    relay = world.relay()
    work(relay)
    relay.close()

    assert any("INSERT INTO sluice_outbox " in found for found in statements)
    assert any("UPDATE sluice_outbox " in found for found in statements)
    assert [found for found in statements if "FOR UPDATE" in found or "SKIP LOCKED" in found] == []


_OPERATIONS = ("add a", "add b", "add a", "savepoint", "release", "undo", "commit", "rollback")


def test_p17_numbers_have_no_holes_whatever_is_rolled_back(engine: Engine) -> None:
    """Random programs add events, use savepoints, commit and roll back; each program has groups of its own."""
    outbox, programs = Outbox(TOPIC), itertools.count()

    @RANDOM_CASES
    @given(operations=st.lists(st.sampled_from(_OPERATIONS), max_size=20))
    def check_program(operations: list[str]) -> None:
        program = next(programs)
        with Session(engine) as session:
            committed = list(_run_operations(session, outbox, operations, prefix=f"{program}-"))
            session.rollback()

        expected = by_group([(f"{program}-{group}", data) for group, data in committed])
        assert _stored_numbers(engine, f"{program}-") == {
            group: list(enumerate(events, start=1)) for group, events in expected.items()
        }

    check_program()


def _run_operations(
    session: Session, outbox: Outbox, operations: Sequence[str], *, prefix: str
) -> Iterator[WrittenEvent]:
    """Run the operations in a session; yield (group, data) of the events that SQL promises to commit.

    `levels` is the model: the events of the open transaction, and of each savepoint in it. The data of an event is the
    position of its operation.
    """
    levels: list[list[WrittenEvent]] = [[]]
    for number, operation in enumerate(operations):
        savepoint = session.get_nested_transaction()
        match operation.split():
            case ["add", group]:
                outbox.add(session, Event(type="t", group=f"{prefix}{group}", data=number))
                levels[-1].append((group, number))
            case ["savepoint"]:
                session.begin_nested()
                levels.append([])
            case ["release"] if savepoint is not None:
                savepoint.commit()
                released = levels.pop()
                levels[-1] += released
            case ["undo"] if savepoint is not None:
                savepoint.rollback()
                levels.pop()
            case ["commit"]:
                session.commit()
                yield from itertools.chain.from_iterable(levels)
                levels = [[]]
            case ["rollback"]:
                session.rollback()
                levels = [[]]


def _stored_numbers(engine: Engine, prefix: str) -> dict[str, list[tuple[int, int]]]:
    """Return group -> (number, data) of its events in the outbox, for groups whose name begins with the prefix."""
    rows = (
        select(tables.messages.c.body)
        .where(tables.messages.c.group_id.startswith(prefix))
        .order_by(tables.messages.c.group_seq)
    )
    with engine.connect() as connection:
        envelopes = [decode(body) for body in connection.execute(rows).scalars()]
    groups = {envelope.event.group for envelope in envelopes}
    return {
        group: [(envelope.seq, envelope.event.data) for envelope in envelopes if envelope.event.group == group]
        for group in groups
    }


def _numbers(engine: Engine) -> dict[tuple[str, str], list[int]]:
    """Return the numbers in the outbox, by topic and group."""
    columns = (tables.messages.c.topic, tables.messages.c.group_id, tables.messages.c.group_seq)
    found: dict[tuple[str, str], list[int]] = {}
    with engine.connect() as connection:
        for topic, group, seq in connection.execute(select(*columns).order_by(*columns)):
            found.setdefault((topic, group), []).append(seq)
    return found


_DATA = {"text": 'a "quote", \\, %s, :name, {now_us}, é, \u2028 and\na line', "nothing": None, "numbers": [1, 2.5]}


@pytest.mark.parametrize("happened_at", [None, datetime(2026, 1, 1, 3, 4, 5, tzinfo=timezone(timedelta(hours=2)))])
@pytest.mark.parametrize("first", [1, 3])
def test_the_stored_body_equals_the_body_of_an_envelope(
    engine: Engine, happened_at: datetime | None, first: int
) -> None:
    """Postgres itself inserts epoch, number, first number and time into the body.

    In both kinds of database the result equals `Envelope.body`, also for texts that look like parameters.
    """
    outbox = Outbox(TOPIC)
    trace = {"traceparent": "00-1"}
    events = [
        Event(type="t", group=group, data=_DATA, attributes={"a": "ö"}, at=happened_at, trace=trace) for group in "abab"
    ]
    with engine.begin() as connection:
        outbox.write(connection, [Event(type="t", group=group, data=0) for group in "aabb"])
        connection.execute(update(tables.groups).values(first_seq=first))
    with engine.begin() as connection:
        outbox.write(connection, events)

    with engine.connect() as connection:
        found = select(tables.messages, tables.groups.c.epoch).join(
            tables.groups, tables.groups.c.group_id == tables.messages.c.group_id
        )
        rows = connection.execute(found.where(tables.messages.c.group_seq > 2)).all()
    expected = dict(zip([("a", 3), ("b", 3), ("a", 4), ("b", 4)], events, strict=True))
    assert {(row.group_id, row.group_seq) for row in rows} == set(expected)
    for row in rows:
        event = expected[row.group_id, row.group_seq]
        created_at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=row.created_at_us)
        envelope = Envelope(event=event, seq=row.group_seq, epoch=row.epoch, first=first, committed_at=created_at)
        assert json.loads(row.body) == json.loads(envelope.body) | {"at": json.loads(row.body)["at"]}
        assert decode(row.body).event.at == (created_at if happened_at is None else happened_at)
        assert list(json.loads(row.body)) == list(json.loads(envelope.body))
        assert row.event_id == event.id
        assert row.deduplication_id == event.id
        assert row.type == "t"
        assert json.loads(row.attributes) == event.message_attributes


def test_a_single_event_is_stored_as_among_several(postgres: Engine) -> None:
    """One event has a statement of its own on our engine, and another one on an engine that the program made."""
    world = World(postgres)
    theirs = create_engine(postgres.url)
    data = {"text": "a'b\\'; -- $1 %s :id ü \n"}
    event = Event(type="t", group="a", data=data, attributes={"x": "'"}, at=datetime(2026, 11, 24, tzinfo=UTC))
    stored = []
    for engine, events in (
        (postgres, [event]),
        (theirs, [event]),
        (theirs, [event, Event(type="t", group="b", data=1)]),
    ):
        with engine.begin() as connection:
            world.outbox.write(connection, events)
            ours = tables.messages.c.event_id == event.id
            row = connection.execute(select(tables.messages).where(ours)).one()
            stored.append({**row._asdict(), "id": None})
            connection.execute(tables.messages.delete())
            connection.execute(tables.groups.delete())
    theirs.dispose()

    assert stored[1:] == [stored[0]] * 2
    assert decode(stored[0]["body"]).event.data == data


_BACKEND_KEY_DATA = re.compile(rb"(K\0\0\0\x0c)....", re.DOTALL)
"""The start of Postgres's message BackendKeyData, up to the four bytes of the server process's id."""
_POOLERS_PROCESS_ID = (1).to_bytes(4)


class _PooledLine(DatabaseLine):
    """A connection to Postgres that looks as if it went through a pooler.

    A pooler tells a new client a process id of its own, and the queries are answered by another process. Sluice
    recognizes a pooler by this difference.
    """

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        """Pass the server's answers on to the client, with the pooler's process id in place of the server's."""
        with suppress(OSError):
            while answered := server.recv(65_536):
                client.sendall(_BACKEND_KEY_DATA.sub(lambda found: found[1] + _POOLERS_PROCESS_ID, answered))
            client.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("is_pooled", [False, True])
def test_a_producers_statement_is_prepared_unless_connections_are_pooled(postgres: Engine, *, is_pooled: bool) -> None:
    """A prepared statement keeps its plan, but behind a pooler the next query may reach a server without it.

    Psycopg prepares after some executions, so the first of eight has none.
    """
    world = World(postgres)
    with _PooledLine(postgres) as line:
        url = (line.engine() if is_pooled else postgres).url.render_as_string(hide_password=False)
        producers = database_engine("us-east-1", url)
        counts = []
        for _ in range(8):
            with producers.begin() as connection:
                world.outbox.write(connection, [Event(type="t", group="a", data=None)])
                counts.append(connection.exec_driver_sql(_COUNT_PLANS).scalar_one())
        producers.dispose()
    with postgres.connect() as connection:
        of_relay = connection.exec_driver_sql(_COUNT_PLANS).scalar_one()

    assert counts[0] == 0
    assert (counts[-1] > 0) is not is_pooled
    assert of_relay == 0
    assert len(world.statuses()) == 8
