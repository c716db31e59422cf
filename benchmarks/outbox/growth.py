"""What a look and a mark cost the relay as more messages wait, in more groups, beside a day's history."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from statistics import median

from sqlalchemy import Engine, text

from benchmarks import databases
from benchmarks.charts import Line, lines
from benchmarks.databases import POSTGRES, TOPIC
from benchmarks.report import Section, table
from benchmarks.rounds import Measured, interleaved
from sluice.clock import SystemClock
from sluice.messaging.outbox.store import Sent, Store
from sluice.messaging.relay.lease import Lease

_SIZES = (1_000, 10_000, 100_000, 1_000_000)
_GROUPS = 1_000
_TIMES = 15
WAITING, SENT = "waiting", "sent before"
_clock = SystemClock()
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


def measure(urls: Mapping[str, str], rounds: int) -> Section:
    """Return milliseconds of a look at 100 groups and of a mark of 100 messages, on Postgres."""
    found: dict[_Cell, Measured] = {}
    for kind in (WAITING, SENT):
        with databases.fresh(urls[POSTGRES]) as engine:
            _fill(engine, "live", 0, _GROUPS * _TIMES * (rounds + 1), "pending")
            have = 0
            for size in _SIZES:
                _fill(engine, "g" if kind == WAITING else "old", have, size, "pending" if kind == WAITING else "sent")
                have = size
                databases.settle(engine)
                store, lease = Store(engine, TOPIC), Lease(engine, TOPIC, lease_seconds=30)
                assert lease.acquire()
                calls: dict[str, Callable[[], float]] = {
                    "look": partial(_look_milliseconds, store),
                    "mark": partial(_mark_milliseconds, store, lease),
                }
                found |= {(kind, size, name): item for name, item in interleaved(calls, rounds).items()}
                lease.release()
    return _section(found)


def _fill(engine: Engine, prefix: str, first: int, last: int, status: str) -> None:
    with engine.begin() as connection:
        given = {"topic": TOPIC, "prefix": prefix, "groups": _GROUPS, "status": status}
        connection.execute(_FILL, given | {"first": first, "last": last - 1})


def _look_milliseconds(store: Store) -> float:
    seconds = []
    for _ in range(_TIMES):
        began = time.perf_counter()
        store.heads("live")
        seconds.append(time.perf_counter() - began)
    return 1_000 * median(seconds)


def _mark_milliseconds(store: Store, lease: Lease) -> float:
    seconds = []
    for _ in range(_TIMES):
        heads, _now_us = store.heads("live")
        began = time.perf_counter()
        with lease.writing() as connection:
            store.mark(connection, [(head, Sent("id", "1"), 0) for head in heads])
        seconds.append(time.perf_counter() - began)
    return 1_000 * median(seconds)


def _section(found: Mapping[_Cell, Measured]) -> Section:
    rows = [
        (
            *(kind, f"{size:,}"),
            *(
                cell
                for name in ("look", "mark")
                for measured in [found[kind, size, name]]
                for cell in (
                    f"{measured.median:.1f}",
                    measured.noise,
                    measured.over(found[kind, _SIZES[0], name]).ratio,
                )
            ),
        )
        for kind in (WAITING, SENT)
        for size in _SIZES
    ]
    head = (
        *("what", "messages", "look at 100 groups, ms", "noise", "to 1,000"),
        *("mark of 100 messages, ms", "noise", "to 1,000"),
    )
    given = [
        Line(f"{name}, {kind}", [(size, found[kind, size, name].median, "") for size in _SIZES])
        for kind in (WAITING, SENT)
        for name in ("look", "mark")
    ]
    plot = lines("What the relay asks of an outbox that grows", "messages in the table", "ms", given)
    return Section(tables={"growth": table(head, rows, text_columns=1)}, plots={"growth": plot})
