"""How long a commit waits to be taken, against what asking for it costs the database while nothing happens."""

import random
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from statistics import quantiles

from sqlalchemy import Engine
from sqlalchemy import event as hooks

from benchmarks import databases, sink
from benchmarks.charts import Line, lines
from benchmarks.databases import POSTGRES, TOPIC
from benchmarks.outbox.relay import ARN
from benchmarks.report import Section, table
from benchmarks.rounds import Measured
from sluice.clock import SystemClock, eventually
from sluice.messaging.database import engines
from sluice.messaging.envelope import Event
from sluice.messaging.outbox.outbox import Outbox
from sluice.messaging.outbox.store import Head, Store
from sluice.messaging.relay import publisher
from sluice.messaging.relay.calls import CallsAtOnce
from sluice.messaging.relay.commit_wait import CommitWait
from sluice.messaging.relay.hooks import RelayHooks
from sluice.messaging.relay.lease import Lease
from sluice.messaging.relay.publisher import Publisher
from sluice.messaging.relay.relay import Relay, RelaySettings, run
from sluice.messaging.waiting import Stop

_POLLS_SECONDS = (0.02, 0.1, 0.5)
_LISTENING_POLL_SECONDS = 5.0  # of `relay --listen`
_PER_SECOND = (25, 2)
_MESSAGES = {25: 75, 2: 25}
_IDLE_POLLS = 18  # a relay rests for its whole interval when nothing came for sixteen of them
_clock = SystemClock()


@dataclass(frozen=True, slots=True)
class _Cell:
    poll_seconds: float
    per_second: int
    is_notified: bool = False

    @property
    def idle_seconds(self) -> float:
        """Return for how long nothing comes before its queries are counted."""
        return 0.2 if self.is_notified else _IDLE_POLLS * self.poll_seconds

    @property
    def name(self) -> str:
        """Return how it is called in the table and the plot."""
        if self.is_notified:
            return "LISTEN"
        return f"{self.poll_seconds:g} s" if self.poll_seconds >= 1 else f"{1_000 * self.poll_seconds:.0f} ms"


class _Taken(RelayHooks):
    """When each message was taken, by this process's clock; written by the relay's thread."""

    def __init__(self) -> None:
        self.taken_at: dict[str, float] = {}

    def before_publish(self, head: Head, _: int) -> None:
        """Remember it."""
        self.taken_at[head.deduplication_id] = _clock.monotonic()


@dataclass(slots=True)
class _Seen:
    """Milliseconds waited, and queries a second while idle, of one cell; one value a round."""

    median: list[float] = field(default_factory=list)
    p95: list[float] = field(default_factory=list)
    queries: list[float] = field(default_factory=list)


def measure(urls: Mapping[str, str], rounds: int) -> Section:
    """Return the delays on Postgres for several poll intervals, and for commits that tell."""
    cells = [
        cell
        for per_second in _PER_SECOND
        for cell in (
            *(_Cell(poll, per_second) for poll in _POLLS_SECONDS),
            _Cell(_LISTENING_POLL_SECONDS, per_second, is_notified=True),
        )
    ]
    seen = {cell: _Seen() for cell in cells}
    with sink.running(0) as url, databases.fresh(urls[POSTGRES]) as engine:
        sns = publisher.client(url, "eu-central-1")
        for number in range(rounds):
            for cell in cells:
                databases.settle(engine)
                _once(engine, Publisher(sns, ARN), cell, random.Random(number), seen[cell])
    return _section(seen)


def _once(writers: Engine, publish: Publisher, cell: _Cell, rng: random.Random, seen: _Seen) -> None:
    """Run a relay; leave it alone for a while, then write to it at instants that have nothing to do with its own."""
    engine = engines.engine(writers.url.render_as_string(hide_password=False))
    counted = count()
    hooks.listen(engine, "before_cursor_execute", lambda *_: next(counted))
    settings, taken, stop = RelaySettings(poll_seconds=cell.poll_seconds), _Taken(), Stop()
    relay = Relay(
        Store(engine, TOPIC),
        Lease(engine, TOPIC, lease_seconds=30),
        publish,
        settings=settings,
        calls=CallsAtOnce,
        hooks=[taken],
    )
    wait = CommitWait(engine, TOPIC, stop) if cell.is_notified else stop
    thread = threading.Thread(
        target=run, args=(relay, wait, settings), kwargs={"rng": rng, "is_notified": cell.is_notified}
    )
    thread.start()
    try:
        outbox = Outbox(TOPIC, notify=cell.is_notified)
        _written(writers, outbox, _Taken(), rng, 1, cell.per_second)  # the first publish makes connections
        _clock.sleep(cell.idle_seconds)
        began, before = _clock.monotonic(), next(counted)
        _clock.sleep(5.0 if cell.is_notified else max(1.0, 3 * cell.poll_seconds))
        seen.queries.append((next(counted) - 1 - before) / (_clock.monotonic() - began))
        committed = _Taken()
        _written(writers, outbox, committed, rng, _MESSAGES[cell.per_second], cell.per_second)
        eventually(
            lambda: committed.taken_at.keys() <= taken.taken_at.keys(),
            timeout_seconds=30,
            describe="all messages to be taken",
        )
    finally:
        stop.request()
        thread.join()
        engine.dispose()
    waited = [1_000 * max(0.0, taken.taken_at[id_] - committed_at) for id_, committed_at in committed.taken_at.items()]
    cuts = quantiles(waited, n=20)
    seen.median.append(cuts[9])
    seen.p95.append(cuts[18])


def _written(
    engine: Engine, outbox: Outbox, committed: _Taken, rng: random.Random, messages: int, per_second: int
) -> None:
    """Commit messages, each of a group of its own, at random instants."""
    for _ in range(messages):
        _clock.sleep(rng.expovariate(per_second))
        event = Event(type="a.b", group=f"g{rng.getrandbits(40)}", data={})
        with engine.begin() as connection:
            outbox.write(connection, [event])
        committed.taken_at[event.id] = _clock.monotonic()


def _section(seen: Mapping[_Cell, _Seen]) -> Section:
    rows = []
    for cell, measured in seen.items():
        median, p95, queries = (Measured(tuple(values)) for values in (measured.median, measured.p95, measured.queries))
        how = "LISTEN, and a look every" if cell.is_notified else "a look every few ms, when idle every"
        rows.append(
            (
                f"{how} {cell.poll_seconds:g} s",
                cell.per_second,
                f"{median.median:,.1f}",
                median.noise,
                f"{p95.median:,.1f}",
                p95.noise,
                f"{queries.median:,.1f}",
            )
        )
    given = [
        Line(
            f"p95, {per_second} messages/s",
            [
                _point(entry.queries, entry.p95, cell.name)
                for cell, entry in seen.items()
                if cell.per_second == per_second
            ],
            is_joined=False,
        )
        for per_second in _PER_SECOND
    ]
    plot = lines(
        "What a look more often buys, and costs",
        "queries/s of an idle relay",
        "wait from the commit until it is taken, ms",
        given,
    )
    head = ("how the relay waits", "messages/s", "wait p50, ms", "noise", "wait p95, ms", "noise", "idle queries/s")
    return Section(tables={"delays": table(head, rows, text_columns=1)}, plots={"delays": plot})


def _point(queries: list[float], waited: list[float], written: str) -> tuple[float, float, str]:
    floor = 0.1  # of the plot: logarithms of zero there are none
    x, y = (max(floor, Measured(tuple(values)).median) for values in (queries, waited))
    return x, y, written
