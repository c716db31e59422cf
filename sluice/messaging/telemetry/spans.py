"""Spans of OpenTelemetry. Only `sluice.messaging.telemetry.tracing` imports this, where OpenTelemetry is installed.

What is linked, and not a child: the producer's span ended long before, and each consumer's trace is its own.
Conventions: https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/ (a span of kind consumer and type
process, linked to the message's creation context), https://opentelemetry.io/docs/specs/semconv/messaging/sqs/
(read 2026-11-21).
"""

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.trace import Link, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from sluice.messaging.envelope import Event
from sluice.messaging.handlers import Ack, Context, Outcome
from sluice.messaging.telemetry.tracing import Told

# Whatever else the process propagates to the services it calls: an outbox is no place for baggage.
_W3C = TraceContextTextMapPropagator()


def tracer() -> Tracer:
    """Return the tracer of the process's provider."""
    return trace.get_tracer("sluice")


def current() -> dict[str, str]:
    """Return the current span as W3C headers; empty where there is none."""
    headers: dict[str, str] = {}
    _W3C.inject(headers)
    return headers


class OpenTelemetry:
    """Makes a span of each event handled, linked to the span the event was made in.

    Args:
        tracer: makes spans.
        queue_name: where the events come from.
    """

    def __init__(self, tracer: Tracer, queue_name: str) -> None:
        self._tracer, self._queue_name = tracer, queue_name

    @contextmanager
    def handling(self, event: Event, context: Context) -> Iterator[Told]:
        """Open the span, current for what the handler does; an outcome that is no Ack is its error."""
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

            def told(outcome: Outcome) -> None:
                if not isinstance(outcome, Ack):
                    span.set_attribute("error.type", type(outcome).__name__)
                    span.set_status(Status(StatusCode.ERROR, outcome.reason))

            yield told


def _links(event: Event) -> list[Link]:
    """Return the link to the span an event was made in; none where it says none, or nothing that is one."""
    made_in = trace.get_current_span(_W3C.extract(event.trace)).get_span_context()
    return [Link(made_in)] if made_in.is_valid else []
