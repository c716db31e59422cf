"""Measure the cost for relay and producers as more messages wait, and as more sent messages are kept.

`SLUICE_BENCH_LARGE=1` adds ten million messages of each kind.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import count
from statistics import median

from sqlalchemy import Connection, Engine, text

from benchmarks import databases
from benchmarks.charts import Line, lines
from benchmarks.checking.check import LARGE
from benchmarks.databases import POSTGRES, TOPIC
from benchmarks.report import Section, table
from benchmarks.rounds import Measurement, interleave
from sluice.clock import SystemClock
from sluice.messaging.envelope import Event
from sluice.messaging.outbox.outbox import Outbox
from sluice.messaging.outbox.store import PublishSuccess, Store
from sluice.messaging.relay.lease import Lease

_SIZES = (1_000, 10_000, 100_000, 1_000_000)
_LARGE_SIZE = 10_000_000
_GROUPS = 1_000
_TIMES, _FEW_TIMES = 15, 3  # calls whose median is one measurement; few where one call is slow
_FORGET_SIZE_MIN = 100_000  # one call deletes 1,000: in a smaller table the calls would delete all of them
WAITING, SENT = "waiting", "sent before"
_CALLS = {
    "look": "look at 100 groups",
    "mark": "mark of 100 messages",
    "count": "count for the metrics",
    "commit": "commit of one event",
    "forget": "forgetting 1,000 sent",
}
_clock = SystemClock()
_numbers = count()
type _Cell = tuple[str, int, str]

_FILL = text(
    """
    INSERT INTO sluice_outbox (
        topic, group_id, group_seq, event_id, type, body, attributes, deduplication_id, created_at_us,
        status, sent_at_us
    )
    SELECT :topic, :prefix || (n % :groups), n / :groups + 1, :prefix || n, 'a.b', repeat('x', 250), '{"type": "a.b"}',
        :prefix || n, 0, :status, CASE WHEN :status = 'sent' THEN 0 END
    FROM generate_series(CAST(:first AS bigint), CAST(:last AS bigint)) AS n
    """
)


# The statements that drop and create each index: creating one is cheaper than updating it for millions of rows.
_INDEXES = text(
    """
    SELECT format('ALTER TABLE sluice_outbox DROP CONSTRAINT %I', conname),
        format('ALTER TABLE sluice_outbox ADD CONSTRAINT %I %s', conname, pg_get_constraintdef(oid))
    FROM pg_constraint WHERE conrelid = CAST('sluice_outbox' AS regclass) AND contype = 'u'
    UNION ALL SELECT format('DROP INDEX %I', indexname), indexdef
    FROM pg_indexes WHERE tablename = 'sluice_outbox' AND indexdef LIKE '% WHERE %'
    """
)


def measure(urls: Mapping[str, str], rounds: int) -> Section:
    """Return the milliseconds of each call to an outbox on Postgres, by kind and number of the messages in it."""
    found: dict[_Cell, Measurement] = {}
    bytes_of: dict[tuple[str, int], int] = {}
    sizes = (*_SIZES, *([_LARGE_SIZE] if os.environ.get(LARGE) else []))
    for kind in (WAITING, SENT):
        with databases.with_empty_tables(urls[POSTGRES]) as engine:
            _fill(engine, "live", 0, _GROUPS * _TIMES * (rounds + 1), "pending")
            have = 0
            for size in sizes:
                _fill(engine, "g" if kind == WAITING else "old", have, size, "pending" if kind == WAITING else "sent")
                have = size
                databases.vacuum(engine)
                bytes_of[kind, size] = _size_bytes(engine)
                store, lease = Store(engine, TOPIC), Lease(engine, TOPIC, lease_seconds=30)
                assert lease.acquire()
                calls: dict[str, Callable[[], float]] = {
                    "look": partial(_milliseconds, partial(store.look, "live"), _TIMES),
                    "mark": partial(_mark_milliseconds, store, lease),
                    "count": partial(_milliseconds, store.lag, _FEW_TIMES),
                    "commit": partial(_milliseconds, partial(_commit, engine), _TIMES),
                }
                if kind == SENT and size >= _FORGET_SIZE_MIN:
                    calls["forget"] = partial(_milliseconds, partial(_delete_sent, store, lease), _FEW_TIMES)
                found |= {(kind, size, name): item for name, item in interleave(calls, rounds).items()}
                lease.release()
    return _section(found, bytes_of)


def _fill(engine: Engine, prefix: str, first: int, last: int, status: str) -> None:
    given = {"topic": TOPIC, "prefix": prefix, "groups": _GROUPS, "status": status}
    with engine.begin() as connection, without_indexes(connection):
        connection.execute(_FILL, given | {"first": first, "last": last - 1})


@contextmanager
def without_indexes(connection: Connection) -> Iterator[None]:
    """Drop the indexes of the outbox's messages, and create them again at the end of the block."""
    indexes = connection.execute(_INDEXES).all()
    for drop, _ in indexes:
        connection.execute(text(drop))
    yield
    connection.execute(text("SET LOCAL maintenance_work_mem = '256MB'"))
    for _, create in indexes:
        connection.execute(text(create))


def _size_bytes(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT pg_total_relation_size('sluice_outbox')")).scalar_one())


def _commit(engine: Engine) -> None:
    event = Event(type="order.placed", group=f"new{next(_numbers)}", data={})
    with engine.begin() as connection:
        Outbox(TOPIC).write(connection, [event])


def _delete_sent(store: Store, lease: Lease) -> None:
    with lease.writing() as connection:
        assert store.forget_sent(connection, 0), "nothing was left to forget"


def _milliseconds(call: Callable[[], object], times: int) -> float:
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return 1_000 * median(seconds)


def _mark_milliseconds(store: Store, lease: Lease) -> float:
    seconds = []
    for _ in range(_TIMES):
        heads = store.look("live").heads
        began = time.perf_counter()
        with lease.writing() as connection:
            store.mark(connection, [(head, PublishSuccess("id", "1"), 0) for head in heads])
        seconds.append(time.perf_counter() - began)
    return 1_000 * median(seconds)


def _section(found: Mapping[_Cell, Measurement], bytes_of: Mapping[tuple[str, int], int]) -> Section:
    rows = []
    for (kind, size), size_bytes in bytes_of.items():
        cells = [found.get((kind, size, name)) for name in _CALLS]
        noise = max((measured.noise for measured in cells if measured is not None), key=lambda share: int(share[:-1]))
        shown = ["" if measured is None else f"{measured.median:.1f}" for measured in cells]
        rows.append((kind, f"{size:,}", f"{size_bytes / 1e9:.2f}", *shown, noise))
    head = ("what", "messages", "GB with indexes", *(f"{name}, ms" for name in _CALLS.values()), "noise at most")
    sizes = [size for kind, size in bytes_of if kind == WAITING]
    given = [
        Line(name, [(size, found[WAITING, size, name].median, "") for size in sizes])
        for name in ("look", "mark", "count")
    ]
    plot = lines("What the relay asks of an outbox that grows", "messages waiting", "ms", given)
    return Section(tables={"growth": table(head, rows, text_columns=1)}, plots={"growth": plot})
