"""Metrics, behind one small protocol; off unless requested. Any number of sinks get the same measurements.

On ECS a metric is a line of the log: CloudWatch Logs makes metrics of lines in its embedded metric format, whoever
sends them. The `awslogs` driver is enough: the task needs no agent, no header, no further right and no further
endpoint.

AWS:
https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html,
https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Generation_PutLogEvents.html
(the header "is not required"), https://github.com/awslabs/aws-embedded-metrics-python/issues/73 (read 2026-11-21).
"""

import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TextIO

from sluice.clock import Clock
from sluice.declaration import metrics
from sluice.messaging.envelope import Envelope
from sluice.messaging.hooks import harmless
from sluice.messaging.inbox.sequence import Action
from sluice.messaging.outbox.store import Head, Lag, PublishOutcome, PublishSuccess
from sluice.messaging.relay.hooks import RelayHooks
from sluice.messaging.sqs.queue import ReceivedMessage
from sluice.messaging.worker.hooks import Gauges, SettledMessage, WorkerHooks
from sluice.terminal.logger import Logger

_log = Logger()
_SETTLED = {
    Action.HANDLE: metrics.HANDLED,
    Action.DROP: metrics.DUPLICATES,
    Action.PARK: metrics.PARKED,
}


class Metrics(Protocol):
    """Takes measurements."""

    def put(self, values: Mapping[str, float]) -> None:
        """Write the measurements of one moment: name to value. `sluice.declaration.metrics` has the names and units."""


class EveryMetrics:
    """Gives each measurement to several sinks. A sink that fails harms neither the other sinks nor the caller."""

    def __init__(self, sinks: Sequence[Metrics]) -> None:
        self._sinks = tuple(sinks)

    def put(self, values: Mapping[str, float]) -> None:
        """Give the values of the metrics, by name, to each sink."""
        for sink in self._sinks:
            with harmless(sink, "a measurement was lost"):  # the sink may be a closed pipe, or a user's exporter
                sink.put(values)


class EmbeddedMetrics:
    """Writes each measurement as a line of CloudWatch's embedded metric format."""

    def __init__(self, stream: TextIO, dimensions: Mapping[str, str], *, clock: Clock) -> None:
        self._stream, self._dimensions, self._clock = stream, dict(dimensions), clock

    def put(self, values: Mapping[str, float]) -> None:
        """Write the values of the metrics, by name, as one line of JSON."""
        directive = {
            "Namespace": metrics.NAMESPACE,
            "Dimensions": [list(self._dimensions)],
            "Metrics": [{"Name": name, "Unit": metrics.UNITS[name]} for name in values],
        }
        document = {"_aws": {"Timestamp": self._clock.now_us() // 1_000, "CloudWatchMetrics": [directive]}}
        self._stream.write(json.dumps({**document, **self._dimensions, **values}) + "\n")
        self._stream.flush()


class WorkerTally(WorkerHooks):
    """Counts the outcomes of a worker's messages, for any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def add(self, name: str, count: int = 1) -> None:
        """Add `count` to a metric."""
        with self._lock:
            self._counts[name] += count

    def take(self) -> dict[str, float]:
        """Return the counts since the last call, by the name of the metric; zero for a metric without a count."""
        with self._lock:
            taken = {name: float(self._counts[name]) for name in metrics.EVENTS}
            self._counts.clear()
        return taken

    def before_acknowledge(self, settled: SettledMessage) -> None:
        """Count a message under the metric of its action."""
        self.add(_SETTLED[settled.decision.action])

    def after_drain(self, _: Envelope) -> None:
        """Count a parked message that was handled as handled."""
        self.add(metrics.HANDLED)

    def after_passing_over(self, _: Envelope) -> None:
        """Count a message that was passed over. It is counted as handled too."""
        self.add(metrics.PASSED_OVER)

    def before_retry(self, _: Envelope, __: str) -> None:
        """Count a retry."""
        self.add(metrics.RETRIED)

    def dead_lettered(self, _: Envelope | None, __: str) -> None:
        """Count a message that is recorded as dead, or held for an operator."""
        self.add(metrics.DEAD)

    def after_loss(self, _: ReceivedMessage, __: str) -> None:
        """Count a message whose lease was lost."""
        self.add(metrics.LOST)

    def not_deleted(self, _: ReceivedMessage) -> None:
        """Count a handled message that could not be deleted."""
        self.add(metrics.NOT_DELETED)

    def overdue(self, count: int) -> None:
        """Count overdue messages."""
        self.add(metrics.OVERDUE, count)


class WorkerMetrics(WorkerTally):
    """Writes a worker's measurements once a minute, and once more when it ends."""

    def __init__(self, sink: Metrics, clock: Clock) -> None:
        super().__init__()
        self._sink, self._clock = sink, clock
        self._measured_at = clock.monotonic()
        self._totals: Counter[str] = Counter()

    def take(self) -> dict[str, float]:
        """Return the counts since the last call, and add them to the totals that are logged at the end."""
        taken = super().take()
        self._totals.update({metrics.short_name(name): int(count) for name, count in taken.items()})
        return taken

    def tick(self, gauges: Gauges) -> None:
        """Measure if a minute has passed. If the database does not answer, the counts are kept."""
        now = self._clock.monotonic()
        if now - self._measured_at >= metrics.INBOX_INTERVAL_SECONDS:
            self._measured_at = now
            self._measure(gauges)

    def _measure(self, gauges: Gauges) -> None:
        """Write the counts since the last measurement and the gauges."""
        counted = gauges.inbox_counts()
        measured = {
            metrics.PARKED_GROUPS: counted["parked_groups"],
            metrics.PARKED_MESSAGES: counted["parked_messages"],
            metrics.HELD_MESSAGES: counted["held_messages"],
            metrics.OPEN_EXCEPTIONS: counted["open_exceptions"],
            metrics.REDRIVE_OFF: counted["redrive_off"],
            metrics.PAUSED: counted["paused"],
            metrics.STUCK_PARTS: gauges.stuck_count(),
        }
        self._sink.put({**self.take(), **measured})

    def after_invocation(self, gauges: Gauges | None, _: float) -> None:
        """Write all measurements after a scheduled invocation, which has gauges; after a batch only counts."""
        if gauges is not None:
            self._measure(gauges)
        elif any((taken := self.take()).values()):
            self._sink.put(taken)

    def after_end(self) -> None:
        """Log the totals, and write the counts since the last measurement.

        The gauges are left out, because the database may not answer in time.
        """
        taken = self.take()
        _log.info("worked on", **{name: count for name, count in self._totals.items() if count or name == "handled"})
        self._sink.put(taken)


class RelayMetrics(RelayHooks):
    """Writes a relay's measurements twice a minute while it leads, and once more when it ends."""

    def __init__(self, sink: Metrics, clock: Clock) -> None:
        self._sink, self._clock = sink, clock
        self._measured_at = float("-inf")
        self._published_count = 0

    def after_publish(self, _: Head, outcome: PublishOutcome) -> None:
        """Count a published message."""
        self._published_count += isinstance(outcome, PublishSuccess)

    def tick(self, measure_lag: Callable[[], Lag]) -> None:
        """Measure if half a minute has passed."""
        now = self._clock.monotonic()
        if now - self._measured_at >= metrics.OUTBOX_INTERVAL_SECONDS:
            self._measured_at = now
            lag = measure_lag()
            self._sink.put(
                {
                    metrics.OUTBOX_LAG: lag.seconds,
                    metrics.OUTBOX_PENDING: lag.pending_count,
                    metrics.OUTBOX_QUARANTINED: lag.quarantined_count,
                    metrics.OUTBOX_PUBLISHED: self._take_published(),
                }
            )

    def after_end(self) -> None:
        """Write the count of messages published since the last measurement, unless it is zero."""
        if count := self._take_published():
            self._sink.put({metrics.OUTBOX_PUBLISHED: count})

    def _take_published(self) -> int:
        """Return the number of messages published since the last call."""
        count, self._published_count = self._published_count, 0
        return count
