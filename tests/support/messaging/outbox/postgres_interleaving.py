"""Concurrent transactions of Postgres, step by step in a drawn order; and broken outboxes that lose events.

A step is over when its statement is answered or waits for a lock, which Postgres reports: nothing sleeps. The broken
outboxes are kept because a check that never fails proves nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from hypothesis import strategies as st
from sqlalchemy import Connection, Engine, text

from sluice.clock import SystemClock, eventually

_SECONDS_MAX = 20
_CLOCK = SystemClock()
_WAITING = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = :name")
_ELSEWHERE = text("INSERT INTO elsewhere DEFAULT VALUES")

type WrittenEvent = tuple[str, int]
"""A group, and the number of the transaction that wrote to it."""


@dataclass(frozen=True, kw_only=True)
class TransactionPlan:
    """The plan of one transaction: it may write elsewhere first, then writes to the outbox, then ends.

    Args:
        groups: the groups of the events that it writes, in this order.
        writes_elsewhere: whether it writes to another table first, which gives it its transaction id.
        commits: whether it commits; otherwise it rolls back.
    """

    groups: tuple[str, ...]
    writes_elsewhere: bool
    commits: bool


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Some transactions, and the order of their turns, three for each.

    A turn of one that waits for a lock is delayed.
    """

    plans: tuple[TransactionPlan, ...]
    turns: tuple[int, ...]


_plans = st.builds(
    TransactionPlan,
    groups=st.lists(st.sampled_from("ab"), min_size=1, max_size=2).map(tuple),
    writes_elsewhere=st.booleans(),
    commits=st.sampled_from([True, True, False]),
)


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    plans = draw(st.lists(_plans, min_size=2, max_size=4))
    turns = draw(st.permutations([number for number in range(len(plans)) for _ in range(3)]))
    return Schedule(plans=tuple(plans), turns=tuple(turns))


class Writer(Protocol):
    def write(self, connection: Connection, written: Sequence[WrittenEvent]) -> None:
        """Write events in an open transaction."""


class _Transaction:
    def __init__(
        self, connection: Connection, number: int, plan: TransactionPlan, writer: Writer, ends: Callable[[int], None]
    ):
        self._connection, self._number, self._plan, self._writer, self._ends = connection, number, plan, writer, ends
        self._begun = connection.begin()
        connection.execute(text(f"SET LOCAL lock_timeout = '{_SECONDS_MAX}s'"))
        self.pid = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
        self._left = [self._write_elsewhere, self._write, self._end]
        self.running: Future[None] | None = None

    def _write_elsewhere(self) -> None:
        if self._plan.writes_elsewhere:
            self._connection.execute(_ELSEWHERE)

    def _write(self) -> None:
        self._writer.write(self._connection, [(group, self._number) for group in self._plan.groups])

    def _end(self) -> None:
        if self._plan.commits:
            self._begun.commit()
            self._ends(self._number)
        else:
            self._begun.rollback()

    def is_between_steps(self) -> bool:
        return self.running is None or self.running.done()

    def step(self, pool: ThreadPoolExecutor) -> None:
        if self.running is not None:
            self.running.result()
        self.running = pool.submit(self._left.pop(0))


def play_transactions(
    engine: Engine, schedule: Schedule, writer: Writer, look: Callable[[], object]
) -> list[WrittenEvent]:
    """Let the transactions run as scheduled and look at the outbox after each step; return what they committed.

    In the order of commits; what one transaction wrote is in the order it wrote it.
    """
    committed: list[int] = []
    with _open_connections(engine, len(schedule.plans)) as connections, engine.connect() as watcher:
        running = [
            _Transaction(connections[number], number, plan, writer, committed.append)
            for number, plan in enumerate(schedule.plans)
        ]
        with ThreadPoolExecutor(len(running)) as pool:
            for transaction in _in_turn(schedule, running):
                transaction.step(pool)
                _settle(running, watcher)
                look()
        for transaction in running:
            assert transaction.running is not None
            transaction.running.result()
    return [(group, number) for number in committed for group in schedule.plans[number].groups]


def _in_turn(schedule: Schedule, running: Sequence[_Transaction]) -> Iterator[_Transaction]:
    turns = list(schedule.turns)
    while turns:
        turn = next(turn for turn in turns if running[turn].is_between_steps())
        turns.remove(turn)
        yield running[turn]


def _settle(running: Sequence[_Transaction], watcher: Connection) -> None:
    def is_settled() -> bool:
        # first: who ended lets others go on
        unfinished = [transaction.pid for transaction in running if not transaction.is_between_steps()]
        return all(is_waiting(watcher, pid) for pid in unfinished)

    eventually(
        is_settled,
        timeout_seconds=_SECONDS_MAX,
        describe="every statement to be answered or to wait for a lock",
        interval_seconds=0.001,
        clock=_CLOCK,
    )


def is_waiting(watcher: Connection, pid: int) -> bool:
    is_blocked = watcher.execute(text("SELECT cardinality(pg_blocking_pids(:pid)) > 0"), {"pid": pid}).scalar_one()
    watcher.rollback()
    return bool(is_blocked)


def is_anybody_waiting(engine: Engine) -> bool:
    """Return whether a transaction of this test waits for a lock."""
    with engine.connect() as connection:
        return bool(connection.execute(_WAITING, {"name": engine.url.query["application_name"]}).scalar_one())


def await_lock_wait(engine: Engine) -> None:
    """Wait until another transaction of this test waits for a lock."""
    eventually(
        lambda: is_anybody_waiting(engine), timeout_seconds=_SECONDS_MAX, describe="a transaction to wait for a lock"
    )


@contextmanager
def _open_connections(engine: Engine, count: int) -> Iterator[list[Connection]]:
    connections = [engine.connect() for _ in range(count)]
    try:
        yield connections
    finally:
        for connection in connections:
            connection.close()


class NaiveOutbox:
    """Broken: an outbox ordered by a column that is filled when a row is written, not when it is committed.

    Args:
        engine: an engine on Postgres.
        order: columns that order the rows.
        locks: whether writers of a group wait for each other.
    """

    def __init__(self, engine: Engine, *, order: str, locks: bool) -> None:
        self._engine, self._order, self._locks = engine, order, locks
        with engine.begin() as connection:
            columns = "id bigserial, xid xid8 DEFAULT pg_current_xact_id(), group_id text, number int"
            connection.execute(text(f"CREATE TABLE naive ({columns})"))
        self.forget()

    def forget(self) -> None:
        self._last, self.polled = 0, list[WrittenEvent]()
        with self._engine.begin() as connection:
            connection.execute(text("TRUNCATE naive"))

    def write(self, connection: Connection, written: Sequence[WrittenEvent]) -> None:
        for group in sorted({group for group, _ in written} if self._locks else ()):
            connection.execute(text("SELECT pg_advisory_xact_lock(hashtext(:one))"), {"one": group})
        for group, number in written:
            row = {"group": group, "number": number}
            connection.execute(text("INSERT INTO naive (group_id, number) VALUES (:group, :number)"), row)

    def poll(self) -> None:
        """Read the rows behind the last one read (P1)."""
        with self._engine.begin() as connection:
            rows = connection.execute(
                text("SELECT id, group_id, number FROM naive WHERE id > :last ORDER BY id"), {"last": self._last}
            ).all()
        self.polled += [(group, number) for _, group, number in rows]
        self._last = max([self._last, *(id_ for id_, _, _ in rows)])

    def all(self) -> list[WrittenEvent]:
        """Return all rows in the order of the outbox (P2, P3)."""
        with self._engine.begin() as connection:
            rows = connection.execute(text(f"SELECT group_id, number FROM naive ORDER BY {self._order}"))  # noqa: S608
            return [(group, number) for group, number in rows]


def by_group(written: Sequence[WrittenEvent]) -> dict[str, list[int]]:
    return {group: [number for its_group, number in written if its_group == group] for group, _ in written}
