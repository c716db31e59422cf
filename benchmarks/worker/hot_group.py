"""Measure events a second of one group: a message each, and bundles with a commit for each event or with one.

The plain loops beside them execute the handler's statement and commit as often, and promise nothing.
"""

import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from sqlalchemy import BigInteger, Column, Engine, Integer, MetaData, Table, insert
from sqlalchemy.orm import Session

from benchmarks import databases, sink
from benchmarks.report import Section, table
from benchmarks.rounds import interleave
from benchmarks.worker.lanes import REGION, cpu_seconds, running_plain_loop
from benchmarks.worker.workers import running_worker
from sluice.clock import SystemClock, eventually
from sluice.declaration import metrics
from sluice.messaging.bundle import events_of
from sluice.messaging.envelope import Event
from sluice.messaging.handlers import ANY, Context, Handlers
from sluice.messaging.inbox import tables as inbox_tables
from sluice.messaging.sqs import queue
from sluice.messaging.sqs.queue import Queue

_DELAY_SECONDS, _SECONDS, _WARM_UP_SECONDS = 0.01, 3.0, 1.0
_SINGLE = "a message for each event"


@dataclass(frozen=True, slots=True)
class _Kind:
    """A program that works on a queue: a worker or a plain loop, with a commit for each event or one for a message."""

    queue: str
    commits_bundles: bool
    is_plain: bool = False


_KINDS = {
    _SINGLE: _Kind("hot.fifo", commits_bundles=False),
    "the same, plain loop": _Kind("hot.fifo", commits_bundles=False, is_plain=True),
    "bundles of 50, a commit for each event": _Kind("hot-bundles.fifo", commits_bundles=False),
    "bundles of 50, a commit for each event, plain loop": _Kind(
        "hot-bundles.fifo", commits_bundles=False, is_plain=True
    ),
    "bundles of 50, one commit": _Kind("hot-bundles.fifo", commits_bundles=True),
    "bundles of 50, one commit, plain loop": _Kind("hot-bundles.fifo", commits_bundles=True, is_plain=True),
}
_metadata = MetaData()
for _table in inbox_tables.metadata.sorted_tables:
    _table.to_metadata(_metadata)
_effects = Table(
    "benchmark_effects",
    _metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("seq", BigInteger, nullable=False),
)
_insert = insert(_effects)
_clock = SystemClock()


def measure(urls: Mapping[str, str], rounds: int) -> Section:
    """Compare messages and bundles of one group, at a queue that answers after 10 ms; the handler writes one row."""
    spent: dict[tuple[str, str], list[float]] = defaultdict(list)
    cells: dict[tuple[str, str], Callable[[], float]] = {
        (database, kind): partial(_rate, url, chosen, spent[database, kind])
        for database, url in urls.items()
        for kind, chosen in _KINDS.items()
    }
    rates = interleave(cells, rounds)
    rows = [
        (
            *(*cell, f"{rate.median:,.0f}", rate.noise, rate.over(rates[cell[0], _SINGLE]).ratio),
            f"{statistics.median(spent[cell]):.2f}",
        )
        for cell, rate in rates.items()
    ]
    head = ("database", "what", "events/s", "noise", "to single messages", "processor, ms an event")
    return Section(tables={"hot-group": table(head, rows, text_columns=2)}, plots={})


def _rate(url: str, kind: _Kind, spent: list[float]) -> float:
    """Return the events a second, and add to `spent` this process's processor time of one."""
    with sink.running(_DELAY_SECONDS) as endpoint, databases.with_empty_tables(url, _metadata) as engine:
        sqs, queue_url = queue.client(endpoint, REGION, connections=4), f"{endpoint}/000000000000/{kind.queue}"
        insert_events = partial(_insert_events, engine, commits_bundles=kind.commits_bundles)
        program = (
            running_plain_loop(sqs, queue_url, 1, 1, insert_events)
            if kind.is_plain
            else running_worker(
                *(engine, Queue(sqs, queue_url), Handlers({ANY: _handle})),
                lanes=1,
                commits_bundles=kind.commits_bundles,
            )
        )
        with program as counts:
            eventually(lambda: counts.so_far()[metrics.HANDLED] > 0, timeout_seconds=30, describe="the first event")
            _clock.sleep(_WARM_UP_SECONDS)
            before, began, cpu = counts.so_far()[metrics.HANDLED], _clock.monotonic(), cpu_seconds()
            _clock.sleep(_SECONDS)
            events, seconds = counts.so_far()[metrics.HANDLED] - before, _clock.monotonic() - began
            spent.append(1_000 * (cpu_seconds() - cpu) / max(1, events))
            return events / seconds


def _insert_events(engine: Engine, body: str, *, commits_bundles: bool) -> int:
    """Insert the row of each event of a message, and return how many there are."""
    events = events_of(body)
    with Session(engine) as session:
        for event in events:
            session.execute(_insert, {"seq": event.seq})
            if not commits_bundles:
                session.commit()
        session.commit()
    return len(events)


def _handle(session: Session, _: Event, context: Context) -> None:
    session.execute(_insert, {"seq": context.seq})
