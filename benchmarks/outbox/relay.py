"""How many messages a second one relay takes to the topic, by how many groups have something waiting."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks import databases, sink
from benchmarks.charts import Bar, bars
from benchmarks.databases import TOPIC
from benchmarks.report import Section, table
from benchmarks.rounds import Measured, interleaved
from sluice.clock import SystemClock
from sluice.messaging.envelope import Event
from sluice.messaging.outbox.store import Head, PublishOutcome, Store
from sluice.messaging.relay import publisher
from sluice.messaging.relay.lease import Lease
from sluice.messaging.relay.publisher import Publisher
from sluice.messaging.relay.relay import Relay, RelaySettings

ARN = f"arn:aws:sns:eu-central-1:000000000000:{TOPIC}"
_WAITING = {1: 1_500, 10: 4_000, 1_000: 5_000}
_DELAYS_SECONDS = (0.0, 0.01)
_SECONDS = 1.5
_clock = SystemClock()


@dataclass(frozen=True, slots=True, order=True)
class _Cell:
    database: str
    delay_seconds: float
    groups: int


@dataclass(slots=True)
class _Spent:
    """Where the time of the measured calls went, all rounds together."""

    calls: int = 0
    messages: int = 0
    seconds: float = 0
    reading_seconds: float = 0
    publishing_seconds: float = 0

    def per_call(self) -> tuple[float, float, float]:
        """Return milliseconds for each call of reading heads, of publishing, and of the rest, which is marking."""
        marking_seconds = self.seconds - self.reading_seconds - self.publishing_seconds
        parts = (self.reading_seconds, self.publishing_seconds, marking_seconds)
        reading, publishing, marking = (1_000 * part / self.calls for part in parts)
        return reading, publishing, marking


class _TimedStore(Store):
    spent: _Spent

    def heads(self, after: str) -> tuple[list[Head], int]:
        """Read heads, timed."""
        began = _clock.monotonic()
        found = super().heads(after)
        self.spent.reading_seconds += _clock.monotonic() - began
        return found


class _TimedPublisher(Publisher):
    spent: _Spent

    def publish(self, heads: Sequence[Head]) -> list[PublishOutcome]:
        """Publish, timed and counted."""
        began = _clock.monotonic()
        outcomes = super().publish(heads)
        self.spent.publishing_seconds += _clock.monotonic() - began
        self.spent.calls += 1
        self.spent.messages += len(heads)
        return outcomes


def measure(urls: Mapping[str, str], rounds: int) -> Section:
    """Return what one relay does, on both databases, with a topic at hand and one 10 ms away."""
    spent: dict[_Cell, _Spent] = {}
    with ExitStack() as sinks:
        clients = {
            delay: publisher.client(sinks.enter_context(sink.running(delay)), "eu-central-1")
            for delay in _DELAYS_SECONDS
        }
        cells: dict[_Cell, Callable[[], float]] = {}
        for database, url in urls.items():
            for delay in _DELAYS_SECONDS:
                for groups in _WAITING:
                    cell = _Cell(database, delay, groups)
                    spent[cell] = _Spent()
                    cells[cell] = partial(_rate, url, clients[delay], groups, spent[cell])
        return _section(interleaved(cells, rounds), spent)


def _rate(url: str, sns: Any, groups: int, spent: _Spent) -> float:
    """Return messages a second of a relay that starts on a full outbox."""
    with databases.fresh(url) as engine:
        databases.fill(
            engine, [Event(type="a.b", group=f"g{n % groups}", data={"n": n}) for n in range(_WAITING[groups])]
        )
        databases.settle(engine)
        store, publish = _TimedStore(engine, TOPIC), _TimedPublisher(sns, ARN)
        store.spent = publish.spent = _Spent()
        relay = Relay(store, Lease(engine, TOPIC, lease_seconds=30), publish, settings=RelaySettings())
        for _ in range(2):  # the lease, the first metrics, the first connection
            relay.step()
        store.spent = publish.spent = mine = _Spent()
        began = _clock.monotonic()
        while _clock.monotonic() - began < _SECONDS and relay.step():
            pass
        seconds = _clock.monotonic() - began
        relay.close()
    spent.calls += mine.calls
    spent.messages += mine.messages
    spent.seconds += seconds
    spent.reading_seconds += mine.reading_seconds
    spent.publishing_seconds += mine.publishing_seconds
    return mine.messages / seconds


def _section(found: Mapping[_Cell, Measured], spent: Mapping[_Cell, _Spent]) -> Section:
    rows = []
    for cell, rate in found.items():
        alone = found[_Cell(cell.database, cell.delay_seconds, 1)]
        rows.append(
            (
                cell.database,
                f"{1_000 * cell.delay_seconds:.0f} ms",
                f"{cell.groups:,}",
                f"{rate.median:,.0f}",
                rate.noise,
                rate.over(alone).ratio,
                *(f"{part:.1f}" for part in spent[cell].per_call()),
            )
        )
    head = (
        *("database", "topic answers after", "groups", "messages/s", "noise", "to one group"),
        *("reading, ms a call", "publishing", "marking"),
    )
    series = list(dict.fromkeys(cell.database for cell in found))
    drawn = [
        Bar(
            f"{cell.groups:,} group{'s' * (cell.groups > 1)}, {1_000 * cell.delay_seconds:.0f} ms, {cell.database}",
            series.index(cell.database),
            rate.median,
            f"{rate.median:,.0f}",
        )
        for cell, rate in sorted(found.items(), key=lambda value: (value[0].delay_seconds, value[0].groups))
    ]
    plot = bars("What one relay takes to the topic", "messages/s, by groups and the topic's delay", series, drawn)
    return Section(tables={"relay": table(head, rows, text_columns=2)}, plots={"relay": plot})
