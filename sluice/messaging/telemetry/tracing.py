"""Traces: a span for each handled event, linked to the span in which the event was made. Used only with OpenTelemetry.

An outbox puts the producer's span into the event (`Outbox.add`). The span is stored with the event, and travels in the
body: message attributes are not safe, because an instrumentation of botocore writes the relay's span there.

The span of a handled event is linked to the producer's span and is not its child: the producer's span ended long
before, and each consumer has its own trace.

Conventions: https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/ (a span of kind consumer and type
process, linked to the message's creation context), https://opentelemetry.io/docs/specs/semconv/messaging/sqs/ (read
2026-11-21).
"""
# ruff: noqa: PLC0415 (OpenTelemetry is imported inside functions, so that a process without tracing need not have it)

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sluice.errors import ConfigError
from sluice.messaging.envelope import Event, current_trace
from sluice.messaging.handlers import Ack, Context, Outcome
from sluice.messaging.hooks import harmless
from sluice.messaging.worker.hooks import Gauges, TakeOutcome, WorkerHooks

if TYPE_CHECKING:
    from opentelemetry.trace import Link, Tracer

__all__ = ["Tracing", "current_trace", "opentelemetry"]


def opentelemetry(*, queue_name: str) -> "Tracing":
    """Return a `Tracing` for the tracer provider of the process, which may be set now or later.

    Raises:
        ConfigError: OpenTelemetry is not installed.
    """
    try:
        from opentelemetry import trace
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"tracing is asked for, and there is no module {error.name}; pip install opentelemetry-sdk, or do not ask"
        ) from error
    return Tracing(trace.get_tracer("sluice"), queue_name)


class Tracing(WorkerHooks):
    """Makes a span of each event handled, linked to the span the event was made in."""

    def __init__(self, tracer: "Tracer", queue_name: str) -> None:
        self._tracer, self._queue_name = tracer, queue_name
        self._flusher: threading.Thread | None = None

    @contextmanager
    def handling(self, event: Event, context: Context) -> Iterator[TakeOutcome]:
        """Open a span around the handler and make it current.

        An outcome other than Ack is recorded as the span's error.
        """
        from opentelemetry.trace import SpanKind, Status, StatusCode

        attributes: dict[str, str | int] = {
            "messaging.system": "aws_sqs",
            "messaging.operation.type": "process",
            "messaging.operation.name": "process",
            "messaging.destination.name": self._queue_name,
            "messaging.consumer.group.name": context.consumer,
            "sluice.event.id": event.id,
            "sluice.event.type": event.type,
            "sluice.group": event.group,
            "sluice.seq": context.seq,
            "sluice.epoch": context.epoch,
            "sluice.attempt": context.attempt,
        }
        with self._tracer.start_as_current_span(
            f"process {self._queue_name}", kind=SpanKind.CONSUMER, attributes=attributes, links=_links(event)
        ) as span:

            def take(outcome: Outcome) -> None:
                if not isinstance(outcome, Ack):
                    span.set_attribute("error.type", type(outcome).__name__)
                    span.set_status(Status(StatusCode.ERROR, outcome.reason))

            yield take

    def after_invocation(self, _: Gauges | None, seconds_max: float) -> None:
        """Export spans and metrics before the process may be frozen; return after `seconds_max` at the latest.

        A slow exporter goes on in a thread, and what it has not exported then follows in a later invocation. The
        timeout of the SDK's own `force_flush` is not used: its span processor ignores it (opentelemetry-sdk 1.45.2).
        """
        if self._flusher is None or not self._flusher.is_alive():
            self._flusher = threading.Thread(target=_flush, name="flush", daemon=True)
            self._flusher.start()
        self._flusher.join(seconds_max)


def _flush() -> None:
    """Export the spans and metrics that the providers have collected; without the SDK the providers collect none."""
    from opentelemetry import metrics, trace

    for provider in (trace.get_tracer_provider(), metrics.get_meter_provider()):
        flush = getattr(provider, "force_flush", None)
        with harmless(provider):
            if flush is not None:
                flush()


def _links(event: Event) -> "list[Link]":
    """Return a link to the span in which an event was made; empty if the event names no span, or an invalid one."""
    from opentelemetry.trace import Link, get_current_span
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    made_in = get_current_span(TraceContextTextMapPropagator().extract(event.trace)).get_span_context()
    return [Link(made_in)] if made_in.is_valid else []
