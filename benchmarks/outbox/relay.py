"""Measure the messages a second that one relay takes to the topic, by how many groups have something waiting."""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, override

import boto3

from benchmarks import databases, sink
from benchmarks.charts import Line, lines
from benchmarks.databases import TOPIC
from benchmarks.report import Section, table
from benchmarks.rounds import Measurement, interleave
from sluice import sdk
from sluice.clock import SystemClock
from sluice.messaging.envelope import Envelope, Event
from sluice.messaging.outbox.store import Head, PublishOutcome, Store
from sluice.messaging.relay import publisher
from sluice.messaging.relay.hooks import RelayHooks
from sluice.messaging.relay.lease import Lease
from sluice.messaging.relay.publisher import Publisher
from sluice.messaging.relay.relay import Relay, RelaySettings

ARN = f"arn:aws:sns:eu-central-1:000000000000:{TOPIC}"
PLAIN = "8 threads of boto3"
_PLAIN_THREADS = 8
_REGION = "eu-central-1"
# Groups, and the messages that wait in all of them together when the relay starts.
_WAITING = {1: 1_000, 10: 4_000, 100: 10_000, 1_000: 20_000, 10_000: 20_000}
_DELAYS_SECONDS = (0.0, 0.01)
_SECONDS = 1.5
_clock = SystemClock()


@dataclass(frozen=True, slots=True, order=True)
class _Cell:
    who: str
    delay_seconds: float
    groups: int


@dataclass(slots=True)
class _CallCosts:
    """Costs of the measured calls, all rounds together. Processor time is that of this process."""

    calls: int = 0
    messages: int = 0
    processor_seconds: float = 0


class _PublishCounter(RelayHooks):
    def __init__(self) -> None:
        self.messages = 0

    @override
    def after_publish(self, _: Head, __: PublishOutcome) -> None:
        """Count the message."""
        self.messages += 1


class _CountedPublisher(Publisher):
    """Counts its calls, from any thread."""

    def __init__(self, sns: Any) -> None:
        super().__init__(sns, ARN)
        self._numbers = count()

    @override
    def publish(self, heads: Any) -> list[PublishOutcome]:
        """Publish, and count the call."""
        next(self._numbers)
        return super().publish(heads)

    def calls(self) -> int:
        """Return the number of calls since the last call of this method."""
        made = next(self._numbers)
        self._numbers = count()
        return made


def measure(urls: Mapping[str, str], rounds: int) -> Section:
    """Return the rate of one relay on both databases, at a topic that answers at once and one that needs 10 ms.

    A loop of boto3 that publishes without an outbox is measured beside it.
    """
    spent: dict[_Cell, _CallCosts] = {}
    with ExitStack() as sinks:
        urls_of_topic = {delay: sinks.enter_context(sink.running(delay)) for delay in _DELAYS_SECONDS}
        clients = {delay: publisher.client(url, _REGION) for delay, url in urls_of_topic.items()}
        plain = {
            delay: boto3.client("sns", endpoint_url=url, region_name=_REGION, config=sdk.config())
            for delay, url in urls_of_topic.items()
        }
        cells: dict[_Cell, Callable[[], float]] = {}
        for delay in _DELAYS_SECONDS:
            cell = _Cell(PLAIN, delay, 1_000)
            spent[cell] = _CallCosts()
            cells[cell] = partial(_plain_rate, plain[delay], spent[cell])
            for database, url in urls.items():
                for groups in _WAITING if delay else (1_000,):
                    cell = _Cell(database, delay, groups)
                    spent[cell] = _CallCosts()
                    cells[cell] = partial(_relay_rate, url, clients[delay], groups, spent[cell])
        return _section(interleave(cells, rounds), spent)


def _plain_rate(sns: Any, spent: _CallCosts) -> float:
    """Return messages a second of threads that call PublishBatch with ten entries and store nothing."""
    body = Envelope(event=Event(type="a.b", group="g", data={"n": 1}), seq=1, epoch=1).body
    ends_at = _clock.monotonic() + _SECONDS

    def publish(thread: int) -> int:
        calls = 0
        while _clock.monotonic() < ends_at:
            entries = [
                {
                    "Id": str(number),
                    "Message": body,
                    "MessageGroupId": f"g{thread}-{number}",
                    "MessageDeduplicationId": f"{thread}-{calls}-{number}",
                    "MessageAttributes": {"type": {"DataType": "String", "StringValue": "a.b"}},
                }
                for number in range(10)
            ]
            sns.publish_batch(TopicArn=ARN, PublishBatchRequestEntries=entries)
            calls += 1
        return calls

    began, processor = _clock.monotonic(), time.process_time()
    with ThreadPoolExecutor(_PLAIN_THREADS) as pool:
        calls = sum(pool.map(publish, range(_PLAIN_THREADS)))
    seconds = _clock.monotonic() - began
    spent.calls += calls
    spent.messages += 10 * calls
    spent.processor_seconds += time.process_time() - processor
    return 10 * calls / seconds


def _relay_rate(url: str, sns: Any, groups: int, spent: _CallCosts) -> float:
    """Return messages a second of a relay that starts on a full outbox."""
    with databases.with_empty_tables(url) as engine:
        databases.fill(
            engine, [Event(type="a.b", group=f"g{n % groups}", data={"n": n}) for n in range(_WAITING[groups])]
        )
        databases.vacuum(engine)
        publish, counted = _CountedPublisher(sns), _PublishCounter()
        relay = Relay(
            Store(engine, TOPIC),
            Lease(engine, TOPIC, lease_seconds=30),
            publish,
            settings=RelaySettings(),
            hooks=[counted],
        )
        while not counted.messages:  # the first step only takes the lease and opens connections
            relay.step()
        publish.calls()
        counted.messages = 0
        began, processor = _clock.monotonic(), time.process_time()
        while _clock.monotonic() - began < _SECONDS and relay.step():
            pass
        seconds = _clock.monotonic() - began
        spent.processor_seconds += time.process_time() - processor
        spent.messages += counted.messages
        spent.calls += publish.calls()
        rate = counted.messages / seconds
        relay.close()
    return rate


def _section(found: Mapping[_Cell, Measurement], spent: Mapping[_Cell, _CallCosts]) -> Section:
    rows = []
    for cell, rate in sorted(found.items(), key=lambda value: (value[0].delay_seconds, value[0].who, value[0].groups)):
        plain = found[_Cell(PLAIN, cell.delay_seconds, 1_000)]
        rows.append(
            (
                *(cell.who if cell.who == PLAIN else f"relay, {cell.who}", f"{1_000 * cell.delay_seconds:.0f} ms"),
                *(f"{cell.groups:,}", f"{rate.median:,.0f}", rate.noise),
                "" if cell.who == PLAIN else rate.over(plain).ratio,
                f"{1_000 * spent[cell].processor_seconds / max(1, spent[cell].messages):.2f}",
                f"{spent[cell].messages / max(1, spent[cell].calls):.1f}",
            )
        )
    head = (
        *("who", "topic answers after", "groups", "messages/s", "noise", "to the threads"),
        *("processor, ms a message", "messages a call"),
    )
    given = [
        Line(
            who,
            [
                (cell.groups, rate.median, f"{rate.median:,.0f}")
                for cell, rate in sorted(found.items())
                if cell.who == who and cell.delay_seconds
            ],
        )
        for who in dict.fromkeys(cell.who for cell in found)
    ]
    plot = lines("What one relay publishes, the topic answering after 10 ms", "groups", "messages/s", given)
    return Section(tables={"relay": table(head, rows, text_columns=2)}, plots={"relay": plot})
