"""Compare a worker with a loop that only receives and deletes, by lanes; count the calls for a message, with prices."""

import random
import resource
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import boto3
from sqlalchemy import Engine

from benchmarks import databases, sink
from benchmarks.charts import ResultBar, bars
from benchmarks.report import ResultTable, Section, table
from benchmarks.rounds import Measurement, interleave
from benchmarks.worker.workers import WorkCounts, running_worker
from emulator import localstack
from sluice import limits, sdk
from sluice.clock import SystemClock, eventually
from sluice.cost import prices
from sluice.declaration import Consumer, metrics
from sluice.messaging.envelope import Envelope, Event
from sluice.messaging.handlers import ANY, Ack, Handlers
from sluice.messaging.inbox import tables as inbox_tables
from sluice.messaging.sqs import queue
from sluice.messaging.sqs.queue import Queue
from sluice.messaging.telemetry.metrics import WorkerTally
from sluice.messaging.worker.processing.deleter import threads_of

REGION = "eu-central-1"
LOG = Path("runs") / "benchmarks-localstack.log"
PLAIN, BATCH = "plain loop", "plain loop, ten a receive"
_LANES = (1, 8, 32, 64)  # a new Postgres has room for a hundred connections
_DELAYS_SECONDS = (0.0, 0.01)
_SECONDS, _WARM_UP_SECONDS = 1.5, 0.5
_LOCALSTACK_LANES = (1, 8)
_MESSAGES, _GROUPS = 200, 40
_RATES_PER_SECOND = (0.1, 1.0, 10.0)
_BATCH = 10
_clock = SystemClock()
_noop = Handlers({ANY: lambda _, __, ___: Ack()})


@dataclass(frozen=True, slots=True)
class _Cell:
    what: str
    lanes: int
    delay_seconds: float | None = None

    @property
    def plain(self) -> "_Cell":
        """Return the cell of the plain loop with the same lanes and delay."""
        return _Cell(PLAIN, self.lanes, self.delay_seconds)


@dataclass(slots=True)
class _MessageCosts:
    """Costs of the measured messages for this process, all rounds together."""

    messages: float = 0
    cpu_seconds: float = 0
    calls: Counter[str] = field(default_factory=Counter)


def measure(urls: Mapping[str, str], rounds: int) -> Section:
    """Compare workers with plain loops: on a local queue, on a queue 10 ms away, and on LocalStack."""
    spent: dict[_Cell, _MessageCosts] = {}
    urls_of_cells = {
        _Cell(what, lanes, delay_seconds): url
        for delay_seconds in _DELAYS_SECONDS
        for lanes in _LANES
        for what, url in _kinds(urls).items()
    }
    spent |= {cell: _MessageCosts() for cell in urls_of_cells}
    cells: dict[_Cell, Callable[[], float]] = {
        cell: partial(_rate, cell, url, spent[cell]) for cell, url in urls_of_cells.items()
    }
    found = interleave(cells, rounds)
    with localstack.running(log=LOG) as running:
        on_localstack = {_Cell(what, lanes): url for lanes in _LOCALSTACK_LANES for what, url in _kinds(urls).items()}
        on_localstack[_Cell(BATCH, 1)] = ""
        spent |= {cell: _MessageCosts() for cell in on_localstack}
        localstack_cells: dict[_Cell, Callable[[], float]] = {
            cell: partial(_localstack_rate, cell, url, running.endpoint_url, spent[cell])
            for cell, url in on_localstack.items()
        }
        found |= interleave(localstack_cells, rounds)
    return _section(found, spent)


def _kinds(urls: Mapping[str, str]) -> dict[str, str]:
    return {PLAIN: ""} | {f"worker, {database}": url for database, url in urls.items()}


def _rate(cell: _Cell, url: str, spent: _MessageCosts) -> float:
    """Return the messages a second of lanes that always find a message, in a queue of their own."""
    assert cell.delay_seconds is not None
    with sink.running(cell.delay_seconds) as endpoint:
        return _rate_at(cell, url, endpoint, spent)


def _rate_at(cell: _Cell, url: str, endpoint: str, spent: _MessageCosts) -> float:
    sqs = _client(cell, endpoint)
    source = Queue(sqs, f"{endpoint}/000000000000/benchmark.fifo")
    with _running_program(cell, url, sqs, source) as counts:
        eventually(
            lambda: counts.so_far()[metrics.HANDLED] > 0, timeout_seconds=30, describe="the first message to be handled"
        )
        _clock.sleep(_WARM_UP_SECONDS)  # by then each lane has opened its connections
        before, began, cpu = counts.so_far()[metrics.HANDLED], _clock.monotonic(), cpu_seconds()
        _clock.sleep(_SECONDS)
        messages, seconds = counts.so_far()[metrics.HANDLED] - before, _clock.monotonic() - began
        spent.cpu_seconds += cpu_seconds() - cpu
    spent.messages += messages
    return messages / seconds


def _localstack_rate(cell: _Cell, url: str, endpoint: str, spent: _MessageCosts) -> float:
    """Return messages a second until a queue of LocalStack is empty."""
    plain = _boto3_client(cell, endpoint)
    made = str(plain.create_queue(QueueName=f"{uuid.uuid4()}.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"])
    fill(plain, made, messages=_MESSAGES, groups=_GROUPS)
    calls: Counter[str] = Counter()
    counted = _CallCounter(_client(cell, endpoint), calls)
    began = _clock.monotonic()
    with _running_program(cell, url, counted, Queue(counted, made)) as counts:
        eventually(
            lambda: counts.so_far()[metrics.HANDLED] >= _MESSAGES,
            timeout_seconds=120,
            describe="an empty queue",
            interval_seconds=0.01,
        )
        seconds = _clock.monotonic() - began
        spent.calls += calls
    spent.messages += _MESSAGES
    plain.delete_queue(QueueUrl=made)
    return _MESSAGES / seconds


class _CallCounter:
    """A client that counts its calls by name.

    An event listener would count too, but makes the light client hand its calls to botocore.
    """

    def __init__(self, sqs: Any, calls: Counter[str]) -> None:
        self._sqs, self._calls = sqs, calls

    def __getattr__(self, name: str) -> Any:
        self._calls[name] += 1
        return getattr(self._sqs, name)


def _client(cell: _Cell, endpoint: str) -> Any:
    """Return the worker's own client; boto3's for the plain loop."""
    if cell.what in (PLAIN, BATCH):
        return _boto3_client(cell, endpoint)
    return queue.client(endpoint, REGION, connections=cell.lanes + threads_of(cell.lanes) + 2)


def _boto3_client(cell: _Cell, endpoint: str) -> Any:
    config = sdk.config(answer_seconds=30, connections=cell.lanes)
    return boto3.client("sqs", endpoint_url=endpoint, region_name=REGION, config=config)


def fill(sqs: Any, url: str, *, messages: int, groups: int) -> None:
    """Send events to a queue; the groups take turns, and each group's events are in order."""
    for first in range(0, messages, _BATCH):
        entries = []
        for number in range(first, min(first + _BATCH, messages)):
            group, seq = f"order-{number % groups}", number // groups + 1
            event = Event(type="order.placed", group=group, data={"number": number}, id=f"{group}-{seq}")
            entry = {"Id": str(number), "MessageBody": Envelope(event=event, seq=seq, epoch=1).body}
            entries.append(entry | {"MessageGroupId": group, "MessageDeduplicationId": event.id})
        assert not sqs.send_message_batch(QueueUrl=url, Entries=entries).get("Failed")


@contextmanager
def _running_program(cell: _Cell, url: str, sqs: Any, source: Queue) -> Iterator[WorkCounts]:
    if not url:
        with running_plain_loop(sqs, source.url, cell.lanes, _BATCH if cell.what == BATCH else 1) as counts:
            yield counts
        return
    with engine_with_inbox(url) as engine, running_worker(engine, source, _noop, lanes=cell.lanes) as counts:
        yield counts


@contextmanager
def engine_with_inbox(url: str) -> Iterator[Engine]:
    """Yield an engine on the database, with an empty inbox."""
    with databases.with_empty_tables(url, inbox_tables.metadata) as engine:
        databases.vacuum(engine)
        yield engine


@contextmanager
def running_plain_loop(
    sqs: Any, url: str, lanes: int, batch: int, work: Callable[[str], int] = lambda _: 1
) -> Iterator[WorkCounts]:
    """Run threads that receive, `work` on a body, which returns how many events it has, and delete; yield the count."""
    tally, has_ended = WorkerTally(), threading.Event()

    def loop() -> None:
        rng = random.Random()
        while not has_ended.is_set():
            answer = sqs.receive_message(
                QueueUrl=url,
                MaxNumberOfMessages=batch,
                WaitTimeSeconds=1,
                MessageSystemAttributeNames=["All"],
                MessageAttributeNames=["All"],
                ReceiveRequestAttemptId=str(uuid.UUID(int=rng.getrandbits(128), version=4)),
            )
            received = answer.get("Messages", [])
            counts = [work(entry["Body"]) for entry in received]
            if batch == 1 and received:
                sqs.delete_message(QueueUrl=url, ReceiptHandle=received[0]["ReceiptHandle"])
            elif received:
                entries = [{"Id": str(n), "ReceiptHandle": entry["ReceiptHandle"]} for n, entry in enumerate(received)]
                sqs.delete_message_batch(QueueUrl=url, Entries=entries)
            for count in counts:
                tally.add(metrics.HANDLED, count)

    threads = [threading.Thread(target=loop) for _ in range(lanes)]
    for thread in threads:
        thread.start()
    try:
        yield WorkCounts(tally)
    finally:
        has_ended.set()
        for thread in threads:
            thread.join()


def cpu_seconds() -> float:
    """Return the processor time of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _section(found: Mapping[_Cell, Measurement], spent: Mapping[_Cell, _MessageCosts]) -> Section:
    near = {cell: rate for cell, rate in found.items() if cell.delay_seconds is not None}
    on_localstack = {cell: rate for cell, rate in found.items() if cell.delay_seconds is None}
    tables = {
        "lanes": _lanes_table(near, spent),
        "lanes-localstack": _localstack_table(on_localstack),
        "calls": _calls_table(spent),
        "polls": _polls_table(),
    }
    drawn = [
        ResultBar(
            f"{cell.what}, {cell.lanes} lane{'s' * (cell.lanes > 1)}",
            int(cell.what != PLAIN),
            rate.median,
            f"{rate.median:,.0f}",
        )
        for cell, rate in near.items()
        if cell.delay_seconds == _DELAYS_SECONDS[-1]
    ]
    title, unit = "What a worker's lanes do", "messages/s, no-op handler, a queue 10 ms away"
    return Section(tables=tables, plots={"lanes": bars(title, unit, (PLAIN, "worker"), drawn)})


def _lanes_table(found: Mapping[_Cell, Measurement], spent: Mapping[_Cell, _MessageCosts]) -> ResultTable:
    rows = []
    for cell, rate in found.items():
        assert cell.delay_seconds is not None
        one_lane = found[_Cell(cell.what, 1, cell.delay_seconds)]
        rows.append(
            (
                f"{1_000 * cell.delay_seconds:.0f} ms",
                *(cell.what, cell.lanes, f"{rate.median:,.0f}", rate.noise),
                rate.over(found[cell.plain]).ratio if cell.what != PLAIN else "",
                rate.over(one_lane).ratio if cell.lanes > 1 else "",
                f"{_cpu_milliseconds(spent[cell]):.2f}",
                f"{_cpu_milliseconds(spent[cell]) / _cpu_milliseconds(spent[cell.plain]):.2f}",
            )
        )
    head = (
        *("queue answers after", "what", "lanes", "messages/s", "noise", "to the plain loop", "to one lane"),
        *("processor, ms a message", "to the plain loop"),
    )
    return table(head, rows, text_columns=2)


def _cpu_milliseconds(spent: _MessageCosts) -> float:
    return 1_000 * spent.cpu_seconds / spent.messages


def _localstack_table(found: Mapping[_Cell, Measurement]) -> ResultTable:
    rows = [
        (
            *(cell.what, cell.lanes, f"{rate.median:,.0f}", rate.noise, f"{1_000 * cell.lanes / rate.median:.1f}"),
            rate.over(found[cell.plain]).ratio if cell.what != PLAIN else "",
        )
        for cell, rate in found.items()
    ]
    head = ("what", "lanes", "messages/s", "noise", "ms a message and lane", "to the plain loop")
    return table(head, rows, text_columns=1)


def _calls_table(spent: Mapping[_Cell, _MessageCosts]) -> ResultTable:
    """Return the calls counted on LocalStack, and their price at AWS."""
    worker = sum((entry.calls for cell, entry in spent.items() if "worker" in cell.what), Counter[str]())
    messages = sum(entry.messages for cell, entry in spent.items() if "worker" in cell.what and entry.calls)
    batch = spent[_Cell(BATCH, 1)]
    counted = {1: (worker, messages), _BATCH: (batch.calls, batch.messages)}
    rows = []
    for size, (calls, of) in counted.items():
        a_message = calls.total() / of
        topic = prices.fan_out(published=1_000_000, delivered=1_000_000, message_bytes=1_000)
        queue = 1_000_000 * (1 + a_message) * prices.usd("SQS FIFO request")
        receives = calls["receive_message"] / of
        rows.append(
            (
                *(size, f"{receives:.2f}", f"{a_message - receives:.2f}", f"{a_message:.2f}"),
                f"{1_000_000 * a_message * prices.usd('SQS FIFO request'):.2f}",
                f"{sum(topic.values()) + queue:.2f}",
            )
        )
    head = (
        *("messages a receive", "receives a message", "deletes and others", "calls"),
        *("US dollars a million", "with topic, delivery and send"),
    )
    return table(head, rows, text_columns=0)


def _polls_table() -> ResultTable:
    """Return the price of empty polls: a lane without messages polls again when its long poll ends."""
    lanes = Consumer(name="benchmark").lanes
    rows = []
    for rate in _RATES_PER_SECOND:
        added = [pollers / limits.WAIT_SECONDS_MAX / rate for pollers in (lanes, 1)]
        rows.append((f"{rate:g}", *(f"{1_000_000 * item * prices.usd('SQS FIFO request'):.2f}" for item in added)))
    head = ("messages/s", f"{lanes} lanes, US dollars a million at most", "1 poller, ten a receive")
    return table(head, rows, text_columns=0)
