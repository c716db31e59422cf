"""Measure what bundles gain a relay, and what they cost an event that waits alone: both beside the relay without."""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, override

from benchmarks import databases, sink
from benchmarks.databases import TOPIC
from benchmarks.report import Section, table
from benchmarks.rounds import Measurement, interleave
from sluice.clock import SystemClock
from sluice.messaging.envelope import Event
from sluice.messaging.outbox.operations import OutboxOperator
from sluice.messaging.outbox.store import Head, PublishOutcome, Store
from sluice.messaging.relay import publisher
from sluice.messaging.relay.lease import Lease
from sluice.messaging.relay.publisher import Publisher
from sluice.messaging.relay.relay import Relay, RelaySettings

ARN = f"arn:aws:sns:eu-central-1:000000000000:{TOPIC}"
_DELAY_SECONDS, _SECONDS, _EVENTS_MAX, _ALONE = 0.01, 1.5, 50, 60
_ALONE_CASE = "one event alone"
_clock = SystemClock()


@dataclass(frozen=True, slots=True, order=True)
class _Cell:
    case: str
    database: str
    bundle_events_max: int


class _TimedPublisher(Publisher):
    """Remembers how many events it published, from any thread, and when the last answer came."""

    def __init__(self, sns: Any) -> None:
        super().__init__(sns, ARN)
        self.answers: list[tuple[float, int]] = []

    @override
    def publish(self, heads: Sequence[Head]) -> list[PublishOutcome]:
        outcomes = super().publish(heads)
        self.answers.append((_clock.monotonic(), sum(len(head.events) for head in heads)))
        return outcomes


def _backlog(count: int, groups: int, types: int = 1) -> list[Event]:
    return [
        Event(type=f"a.t{number // groups % types}", group=f"g{number % groups}", data={"n": number})
        for number in range(count)
    ]


_BACKLOGS: Mapping[str, Callable[[], list[Event]]] = {
    "one group": lambda: _backlog(6_000, 1),
    "1,000 groups with a backlog": lambda: _backlog(60_000, 1_000),
    "one group, two types in turn": lambda: _backlog(1_000, 1, types=2),
}


def measure(urls: Mapping[str, str], rounds: int) -> Section:
    """Return events a second of one relay, and the milliseconds of one event, with a topic that answers after 10 ms."""
    with sink.running(_DELAY_SECONDS) as endpoint:
        sns = publisher.client(endpoint, "eu-central-1")
        cells: dict[_Cell, Callable[[], float]] = {}
        for database, url in urls.items():
            for events_max in (1, _EVENTS_MAX):
                for case, backlog in _BACKLOGS.items():
                    cells[_Cell(case, database, events_max)] = partial(_rate, url, sns, backlog(), events_max)
                cells[_Cell(_ALONE_CASE, database, events_max)] = partial(_alone_milliseconds, url, sns, events_max)
        return _section(interleave(cells, rounds))


@contextmanager
def _leader(url: str, sns: Any, events: list[Event], events_max: int) -> Iterator[tuple[Relay, _TimedPublisher, Any]]:
    """Yield a relay that has begun to publish these events, its publisher, and the engine."""
    with databases.with_empty_tables(url) as engine:
        databases.fill(engine, events)
        databases.vacuum(engine)
        with engine.begin() as connection:
            OutboxOperator(topic=TOPIC, actor="benchmark", reason="measured").switch_bundles(connection, events_max)
        publish = _TimedPublisher(sns)
        lease = Lease(engine, TOPIC, lease_seconds=30)
        settings = RelaySettings(bundle_events_max=events_max)
        relay = Relay(Store(engine, TOPIC), lease, publish, settings=settings)
        while not publish.answers:  # the first steps take the lease, open connections, and send heads alone
            relay.step()
        yield relay, publish, engine
        relay.close()


def _rate(url: str, sns: Any, events: list[Event], events_max: int) -> float:
    """Return events a second of a relay that has begun on a full outbox."""
    with _leader(url, sns, events, events_max) as (relay, publish, _):
        before, began = len(publish.answers), _clock.monotonic()
        while _clock.monotonic() - began < _SECONDS and relay.step():
            pass
        ended = publish.answers[before:]
        return sum(count for _, count in ended) / (ended[-1][0] - began)


def _alone_milliseconds(url: str, sns: Any, events_max: int) -> float:
    """Return the median time from the commit of one event to the topic's answer, for a relay that looks at once."""
    with _leader(url, sns, _backlog(1, 1), events_max) as (relay, publish, engine):
        while relay.step():
            pass
        milliseconds = []
        for _ in range(_ALONE):
            databases.fill(engine, _backlog(1, 1))
            began, count = _clock.monotonic(), len(publish.answers)
            while len(publish.answers) == count:
                relay.step()
            milliseconds.append(1_000 * (publish.answers[-1][0] - began))
            while relay.step():
                pass
        return statistics.median(milliseconds)


def _section(found: Mapping[_Cell, Measurement]) -> Section:
    rows = []
    for cell, bundled in sorted(found.items()):
        if cell.bundle_events_max == 1:
            continue
        plain = found[_Cell(cell.case, cell.database, 1)]
        unit, digits = ("ms to the answer", 1) if cell.case == _ALONE_CASE else ("events/s", 0)
        numbers = (f"{plain.median:,.{digits}f}", plain.noise, f"{bundled.median:,.{digits}f}", bundled.noise)
        rows.append((cell.case, cell.database, unit, *numbers, bundled.over(plain).ratio))
    head = ("what waits", "database", "measured", "each alone", "noise", "bundles of 50", "noise", "ratio")
    return Section(tables={"bundles": table(head, rows, text_columns=3)}, plots={})
