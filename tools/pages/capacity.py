"""Compute what a rate of messages needs, for docs/capacity.md, from benchmarks/results, AWS's quotas and prices.

Each row says whether its figure was measured, computed from measurements, or is documented by AWS.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import ceil

from benchmarks import report
from benchmarks.report import ResultTable
from sluice import limits
from sluice.cost import prices
from sluice.cost.prices import MONTH_HOURS, usd

RATES = (1_000, 30_000, 700_000)
"""Messages a second: a busy service, a topic at its quota, a queue at its quota with calls of ten."""
BUNDLES = (1, 2, 5, 10, 25, 50)
BUNDLED_BYTES = (1_024, 10_240, 65_536)
_MILLION = 1_000_000
_REGION = "us-east-1"
_MESSAGE_BYTES = 1_024
_HANDLER_SECONDS = 0.05
_CONSUMERS = 1
_LOAD_TEST_SECONDS = 600
_KEEP_SENT_DAYS = 7
_DAY_SECONDS = 86_400
_MONTH_SECONDS = MONTH_HOURS * 3_600
_MEGABYTE, _GIGABYTE, _TERABYTE = 1e6, 1e9, 1e12
_EVENTS_OF_MESSAGE = 4.1  # rows of history for each message
_PUBLISHER, _JUDGING = "Sluice in Spark, sockets", "judging, as the load test wrote it"


class NotMeasuredError(LookupError):
    """The results of the benchmarks lack a figure."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Tables of the benchmarks, by name."""

    tables: Mapping[str, ResultTable]

    def get(self, name: str, column: str, **where: str) -> float:
        """Return a number of a table, from the first row that has the values of `where`.

        Args:
            name: of the table.
            column: its heading.
            where: values by the heading of their column; `_` stands for a space in a heading.

        Raises:
            NotMeasuredError: there is no such table, column or row.
        """
        if name not in self.tables:
            raise NotMeasuredError(f"benchmarks/results has no table '{name}'")
        wanted = {heading.replace("_", " "): value for heading, value in where.items()}
        for cells in self.tables[name].rows:
            row = dict(zip(self.tables[name].head, cells, strict=True))
            if column in row and wanted.items() <= row.items():
                return float(row[column].split()[0].replace(",", ""))
        raise NotMeasuredError(f"benchmarks/results/{name}.json has no '{column}' where {wanted}")


@dataclass(frozen=True, slots=True)
class Need:
    """One row: what is needed, its amount as a function of messages a second, and the source of the figure."""

    what: str
    amount: Callable[[int], float]
    source: str
    decimals: int = 0


def rows() -> Iterator[tuple[str, ...]]:
    """Yield a row for each need, a column for each rate, and the source of the figures."""
    figures = Figures(report.read_tables())
    for part, needs in _needs_by_part(figures).items():
        yield (f"**{part}**", *("" for _ in RATES), "")
        for need in needs:
            yield (need.what, *(f"{need.amount(rate):,.{need.decimals}f}" for rate in RATES), need.source)


def bundle_rows() -> Iterator[tuple[str, ...]]:
    """Yield for each number of events in a message what a million events cost, by their size, and their requests."""
    for events in BUNDLES:
        requests = prices.group_requests(_MILLION, events_per_message=events)
        dollars = (_million_usd(events, event_bytes) for event_bytes in BUNDLED_BYTES)
        yield f"{events}", f"{requests / _MILLION:.3f} M", *(f"{usd:.2f}" if usd else "does not fit" for usd in dollars)


def _million_usd(events: int, event_bytes: int) -> float | None:
    """Return the price of a million events to one queue, in messages of so many; None if so many do not fit."""
    message_bytes = events * event_bytes
    if message_bytes > limits.MESSAGE_BYTES_MAX:
        return None
    count = _MILLION / events
    topic = prices.fan_out(published=count, delivered=count, message_bytes=message_bytes)
    queue = prices.queue_deliveries(delivered=count, message_bytes=message_bytes, is_fifo=True)
    return sum(topic.values()) + queue


def _needs_by_part(figures: Figures) -> dict[str, list[Need]]:
    return {
        "Producers and their database": _producer_needs(figures),
        "Relay": _relay_needs(figures),
        "Topic and queues": _service_needs(),
        "Workers": _worker_needs(figures),
        "A load test straight to the queues": _load_test_needs(figures),
        "US dollars a month": _bill_needs(figures),
    }


def _producer_needs(figures: Figures) -> list[Need]:
    commits = figures.get("writers", "transactions/s", database="Postgres", writers="8", what="many groups")
    stored = _stored_bytes(figures, "a message in the outbox, 1 KiB, with its indexes")
    logged = _stored_bytes(figures, "the log of its insert and of its mark, checkpoints not counted")
    keep_seconds = _KEEP_SENT_DAYS * _DAY_SECONDS
    return [
        Need(
            "databases as small as the one measured (2 cores, shared with its writers), one event a commit",
            lambda rate: ceil(rate / commits),
            f"computed from {commits:,.0f} commits a second, measured",
        ),
        Need(
            f"outbox that keeps what was sent {_KEEP_SENT_DAYS} days, TB",
            lambda rate: rate * keep_seconds * stored / _TERABYTE,
            f"computed from {stored:,.0f} bytes a message, measured",
            decimals=2,
        ),
        Need(
            "the same, if it keeps it for an hour, GB",
            lambda rate: rate * 3_600 * stored / _GIGABYTE,
            "computed",
        ),
        Need(
            "write-ahead log, MB a second",
            lambda rate: rate * logged / _MEGABYTE,
            f"computed from {logged:,.0f} bytes a message, measured",
        ),
    ]


def _relay_needs(figures: Figures) -> list[Need]:
    where = {"who": "relay, Postgres", "topic_answers_after": "10 ms"}
    most = figures.get("relay", "messages/s", groups="1,000", **where)
    of_group = figures.get("relay", "messages/s", groups="1", **where)
    cost = figures.get("relay", "processor, ms a message", groups="1,000", **where)
    return [
        Need(
            "relays that lead, so topics",
            lambda rate: ceil(rate / most),
            f"computed from {most:,.0f} messages a second, measured",
        ),
        Need(
            "their processors", lambda rate: rate * cost / 1_000, f"computed from {cost:.2f} ms a message, measured", 1
        ),
        Need(
            "message groups at least, all equally busy",
            lambda rate: ceil(rate / of_group),
            f"computed from {of_group:,.0f} a second of one group, measured",
        ),
    ]


def _service_needs() -> list[Need]:
    published, called = limits.TOPIC_MESSAGES_PER_SECOND[_REGION], limits.QUEUE_CALLS_PER_SECOND[_REGION]
    return [
        Need(
            f"times the quota of an account's FIFO topics in {_REGION}: ask for more, or publish from more accounts",
            lambda rate: rate / published,
            f"documented: {published:,} a second",
            decimals=1,
        ),
        Need(
            "queues for each consumer, as a worker receives one message a call",
            lambda rate: ceil(rate / called),
            f"documented: {called:,} calls a second of each action",
        ),
        Need(
            "queues for a load test that sends ten messages a call",
            lambda rate: ceil(rate / called / limits.PUBLISH_BATCH_ENTRIES_MAX),
            "documented, as above",
        ),
        Need(
            "message groups at least, by calls of one message",
            lambda rate: ceil(rate / limits.GROUP_CALLS_PER_SECOND),
            f"documented: {limits.GROUP_CALLS_PER_SECOND} calls a second of a group",
        ),
        Need(
            f"in flight, handlers of {_HANDLER_SECONDS * 1_000:.0f} ms, of {limits.IN_FLIGHT_MESSAGES_MAX:,} a queue",
            lambda rate: rate * _HANDLER_SECONDS,
            "computed; the bound is documented",
        ),
    ]


def _worker_milliseconds(figures: Figures) -> float:
    return figures.get("worker", "processor, ms a message", what="worker, 1 process with 64 lanes")


def _worker_needs(figures: Figures) -> list[Need]:
    cost = _worker_milliseconds(figures)
    return [
        Need(
            "processors of one consumer's workers, the handler's own work not counted",
            lambda rate: rate * cost / 1_000,
            f"computed from {cost:.2f} ms a message, measured",
            decimals=1,
        ),
        Need("tasks of a quarter vCPU", lambda rate: ceil(rate * cost / 250), "computed, at 100% of the processor"),
        Need(
            f"lanes busy with handlers of {_HANDLER_SECONDS * 1_000:.0f} ms",
            lambda rate: ceil(rate * _HANDLER_SECONDS),
            "computed",
        ),
        Need(
            "inbox of 10 million groups, GB",
            lambda _: 1e7 * _stored_bytes(figures, "a group in a consumer's inbox, with its indexes") / _GIGABYTE,
            "computed from bytes a group, measured",
            decimals=1,
        ),
    ]


def _load_test_needs(figures: Figures) -> list[Need]:
    rate_of_core = figures.get("publish", "messages a processor second", service="SQS", wire="TLS", who=_PUBLISHER)
    judged = 1e6 * figures.get("check", "M events/s", events="9.8 M", broken_groups="none", what=_JUDGING)
    return [
        Need(
            "processors that publish, Spark's among them",
            lambda rate: ceil(rate / rate_of_core),
            f"computed from {rate_of_core:,.0f} a processor second over TLS, measured",
        ),
        Need(
            f"events of {_LOAD_TEST_SECONDS // 60} minutes with one queue, millions",
            lambda rate: rate * _LOAD_TEST_SECONDS * _EVENTS_OF_MESSAGE / 1e6,
            "computed: intent and answer, receive, delete, and a tenth of a poll",
            decimals=1,
        ),
        Need(
            "minutes to judge them on 2 cores",
            lambda rate: rate * _LOAD_TEST_SECONDS * _EVENTS_OF_MESSAGE / judged / 60,
            f"computed from {judged / 1e6:.2f} M events a second, measured",
            decimals=1,
        ),
    ]


def _bill_needs(figures: Figures) -> list[Need]:
    def fan_out(rate: int) -> float:
        messages = rate * _MONTH_SECONDS
        return sum(
            prices.fan_out(published=messages, delivered=_CONSUMERS * messages, message_bytes=_MESSAGE_BYTES).values()
        )

    def queue(rate: int) -> float:
        sent_and_received = 2 + 1 / limits.PUBLISH_BATCH_ENTRIES_MAX
        return rate * _MONTH_SECONDS * sent_and_received * prices.queue_request(is_fifo=True)

    def tasks(rate: int) -> float:
        processors = rate * _worker_milliseconds(figures) / 1_000
        return processors * MONTH_HOURS * (usd("Fargate CPU on ARM") + 2 * usd("Fargate memory on ARM"))

    return [
        Need("SNS: publish, and deliver to one queue", fan_out, f"computed from list prices, {prices.PRICE_DATE}"),
        Need("SQS: delivered, received one a call, deleted ten a call", queue, "computed from list prices"),
        Need("Fargate for the workers, 2 GB a vCPU, on ARM", tasks, "computed from list prices and the row above"),
    ]


def _stored_bytes(figures: Figures, what: str) -> float:
    return figures.get("storage", "bytes", what=what)
