"""One worker on a FIFO queue and on a standard queue: what comes out of order, what comes twice, what happens twice.

Both meet the same faults on LocalStack: handlers that fail, handlers that take longer than the visibility timeout,
deletes that never arrive. Which message meets which is a matter of its id and attempt, and so the same for both.
"""

import json
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from botocore.exceptions import EndpointConnectionError
from sqlalchemy import BigInteger, Column, Engine, MetaData, Row, Table, Text, insert, select
from sqlalchemy.orm import Session

from benchmarks.databases import POSTGRES
from benchmarks.report import Section, table
from benchmarks.rounds import Measured
from benchmarks.worker.lanes import LOG, REGION, fill, inboxed
from benchmarks.worker.workers import Conditions, inbox_of, working
from emulator import localstack
from sluice.clock import SystemClock, eventually
from sluice.declaration import metrics
from sluice.messaging.database import engines
from sluice.messaging.envelope import Event
from sluice.messaging.handlers import ANY, Ack, Context, Handlers, Outcome, Retry
from sluice.messaging.sqs import queue
from sluice.messaging.sqs.queue import Queue

FIFO, STANDARD = "FIFO queue", "standard queue"
_MESSAGES, _GROUPS, _LANES = 600, 20, 8
_TIMEOUT_SECONDS, _SLOW_SECONDS = 4, 6.0
_FAILING_PERCENT, _SLOW_PERCENT, _UNDELETED_PERCENT = 10, 2, 3
_BOUND_SECONDS = 600
_clock = SystemClock()

_effects = Table(
    "benchmark_effect",
    MetaData(),
    Column("id", BigInteger, primary_key=True, autoincrement=True),
    Column("group_id", Text, nullable=False),
    Column("seq", BigInteger, nullable=False),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What became of the messages of one run.

    Args:
        late: messages handled after a later one of their group.
        depth: the most later ones that were handled before one.
        repeated: messages that were received again though nobody had asked for that.
        dropped: those of them whose effect had been committed; the inbox knew them.
        twice: effects that happened more than once.
        missing: messages without an effect.
        open: numbers, or ranges of them, that the inbox still misses.
        seconds: until there was nothing to do.
    """

    late: int
    depth: int
    repeated: int
    dropped: int
    twice: int
    missing: int
    open: int
    seconds: float


def measure(urls: Mapping[str, str], rounds: int) -> Section:
    """Return what both queues do to the same worker, on Postgres, and what it does about it."""
    seen: dict[str, list[Seen]] = {FIFO: [], STANDARD: []}
    with localstack.running(log=LOG) as running:
        for number in range(rounds):
            for kind in seen if number % 2 == 0 else reversed(seen):
                seen[kind].append(_run(urls[POSTGRES], running.endpoint_url, kind))
    return _section(seen)


def disorder(numbers: Sequence[int]) -> list[int]:
    """Return, for each number of a group as they were handled, how many later ones had been handled before it."""
    return [sum(before > number for before in numbers[:place]) for place, number in enumerate(numbers)]


def _run(url: str, endpoint: str, kind: str) -> Seen:
    sqs = queue.client(endpoint, REGION, connections=_LANES + 2)
    attributes = {"VisibilityTimeout": str(_TIMEOUT_SECONDS)} | ({"FifoQueue": "true"} if kind == FIFO else {})
    name = f"{uuid.uuid4()}{'.fifo' * (kind == FIFO)}"
    made = str(sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"])
    fill(sqs, made, messages=_MESSAGES, groups=_GROUPS)
    received = _watched(sqs)
    conditions = Conditions(
        lanes=_LANES,
        timeout_seconds=_TIMEOUT_SECONDS,
        hold_seconds_max=_TIMEOUT_SECONDS,
        max_attempts=1_000,
        is_ordered=kind == FIFO,
    )
    with inboxed(url) as engine:
        _effects.metadata.drop_all(engine)
        _effects.metadata.create_all(engine)
        began = _clock.monotonic()
        with working(engine, Queue(sqs, made), Handlers({ANY: _handle}), conditions) as counts:
            eventually(
                lambda: _is_empty(sqs, made),
                timeout_seconds=_BOUND_SECONDS,
                describe="an empty queue",
                interval_seconds=1,
            )
            seconds = _clock.monotonic() - began
        found = _seen(engine, received, counts.so_far(), seconds)
    sqs.delete_queue(QueueUrl=made)
    return found


def _handle(session: Session, event: Event, context: Context) -> Outcome:
    """Write down that it happened, if nothing comes between."""
    if _hashed_random("fails", event.id, context.attempt) < _FAILING_PERCENT:
        return Retry(reason="as one in ten does")
    session.execute(insert(_effects).values(group_id=event.group, seq=context.seq))
    if context.attempt == 1 and _hashed_random("is slow", event.id) < _SLOW_PERCENT:
        _clock.sleep(_SLOW_SECONDS)
    return Ack()


def _hashed_random(*of: object) -> int:
    """Return 0 to 99, the same for the same."""
    return crc32(repr(of).encode()) % 100


def _watched(sqs: Any) -> Counter[str]:
    """Return a count of receives by message, and let some deletes never arrive: whoever asks for them has died."""
    received: Counter[str] = Counter()
    handles: dict[str, tuple[str, str]] = {}

    def came(parsed: Mapping[str, Any], **_: object) -> None:
        for message in parsed.get("Messages", []):
            received[message["MessageId"]] += 1
            event_id, receive_count = (
                json.loads(message["Body"])["id"],
                message["Attributes"]["ApproximateReceiveCount"],
            )
            handles[message["ReceiptHandle"]] = event_id, receive_count

    def arrives(entry: Mapping[str, Any]) -> bool:
        return _hashed_random("is not deleted", *handles[entry["ReceiptHandle"]]) >= _UNDELETED_PERCENT

    def delete(params: Mapping[str, Any], **_: object) -> dict[str, Any]:
        entries = params.get("Entries")
        kept = [entry for entry in ([params] if entries is None else entries) if arrives(entry)]
        if not kept:
            raise EndpointConnectionError(endpoint_url=sqs.meta.endpoint_url)
        return dict(params) if entries is None else {**params, "Entries": kept}

    sqs.meta.events.register("after-call.sqs.ReceiveMessage", came)
    for operation in ("DeleteMessage", "DeleteMessageBatch"):
        sqs.meta.events.register(f"provide-client-params.sqs.{operation}", delete)
    return received


def _is_empty(sqs: Any, url: str) -> bool:
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)
    return all(int(attributes["Attributes"][name]) == 0 for name in names)


def _seen(engine: Engine, received: Counter[str], counted: Counter[str], seconds: float) -> Seen:
    with engines.reading(engine) as connection:
        rows = connection.execute(select(_effects.c.group_id, _effects.c.seq).order_by(_effects.c.id)).all()
    depths = [depth for numbers in _by_group(rows).values() for depth in disorder(numbers)]
    happened = Counter((row.group_id, row.seq) for row in rows)
    return Seen(
        late=sum(depth > 0 for depth in depths),
        depth=max(depths),
        repeated=received.total() - len(received) - counted[metrics.RETRIED],
        dropped=counted[metrics.DUPLICATES],
        twice=happened.total() - len(happened),
        missing=_MESSAGES - len(happened),
        open=inbox_of().counts(engine)["open_exceptions"],
        seconds=seconds,
    )


def _by_group(rows: Sequence[Row[Any, Any]]) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = {}
    for row in rows:
        groups.setdefault(row.group_id, []).append(row.seq)
    return groups


def _section(seen: Mapping[str, list[Seen]]) -> Section:
    def row(what: str, value: Callable[[Seen], float], shown: str = "{:.0f}") -> tuple[str, ...]:
        return what, *(_span([value(run) for run in runs], shown) for runs in seen.values())

    rows = [
        row("handled after a later one of its group", lambda seen: seen.late / _MESSAGES, "{:.1%}"),
        row("most later ones handled before one", lambda seen: seen.depth),
        row("received again unasked", lambda seen: seen.repeated / _MESSAGES, "{:.1%}"),
        row("of those, handled before: dropped by the inbox", lambda seen: seen.dropped / _MESSAGES, "{:.1%}"),
        row("effects that happened twice", lambda seen: seen.twice),
        row("messages without an effect at the end", lambda seen: seen.missing),
        row("numbers the inbox misses at the end", lambda seen: seen.open),
        row("seconds until the queue was empty", lambda seen: seen.seconds),
    ]
    return Section(tables={"standard": table(("", *seen), rows, text_columns=1)}, plots={})


def _span(values: list[float], shown: str) -> str:
    """Return the median of the rounds, with the least and the most where they differ."""
    least, middle, most = (shown.format(item) for item in (min(values), Measured(tuple(values)).median, max(values)))
    return middle if least == most else f"{middle} ({least} to {most})"
