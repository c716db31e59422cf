"""A consumer's span is linked to the span of whoever made the event, through outbox, relay, SNS and SQS."""

import sys
import threading
from collections.abc import Iterator

import pytest
from opentelemetry import metrics, trace
from opentelemetry.instrumentation.botocore import BotocoreInstrumentor
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, SpanKind, StatusCode, Tracer
from sqlalchemy import select
from sqlalchemy.orm import Session

from sluice.clock import SystemClock
from sluice.errors import ConfigError
from sluice.messaging import Event
from sluice.messaging.envelope import Envelope, decode
from sluice.messaging.errors import HoldLostError
from sluice.messaging.handlers import Ack, Context, Handlers, Outcome, Reject, Retry
from sluice.messaging.outbox import tables
from sluice.messaging.sqs.queue import Queue, ReceivedMessage
from sluice.messaging.telemetry.tracing import Tracing, current_trace, opentelemetry
from sluice.messaging.worker.hooks import WorkerHookSet
from sluice.messaging.worker.processing.handler_runner import HandlerAttempt, HandlerRunner, TransactionMark
from tests.support.messaging.outbox.simulated_relays import work
from tests.support.messaging.world import World, in_memory_world


class RecordedSpans:
    """A message's hold that is never lost."""

    def check(self) -> None:
        """Agree."""

    def remaining_seconds(self) -> float:
        return 60


PLACED = Event(type="order.placed", group="order-7", data={}, id="e1")
CONTEXT = Context(
    event=PLACED,
    consumer="billing",
    seq=3,
    epoch=1,
    attempt=2,
    is_last_attempt=False,
    is_late=False,
    attributes={},
    hold=RecordedSpans(),
)


class TracedProcess:
    """A process whose spans are kept in memory."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer: Tracer = self.provider.get_tracer("shop")
        self.tracing = Tracing(self.tracer, "billing.fifo")

    def consumer_span(self) -> ReadableSpan:
        """Return the only span of the process that handles a message."""
        (span,) = [entry for entry in self.exporter.get_finished_spans() if entry.kind is SpanKind.CONSUMER]
        return span


@pytest.fixture
def traced_process() -> Iterator[TracedProcess]:
    """Yield a process with a tracer."""
    process = TracedProcess()
    yield process
    process.provider.shutdown()


@pytest.fixture
def botocore_spans(traced_process: TracedProcess) -> Iterator[None]:
    """Instrument every call of botocore with a span, as a host that instruments everything does."""
    instrumentor = BotocoreInstrumentor()  # type: ignore[no-untyped-call]
    instrumentor.instrument(tracer_provider=traced_process.provider)
    yield
    instrumentor.uninstrument()


def link_ids(span: ReadableSpan) -> list[tuple[int, int]]:
    """Return the ids of the spans that a span links to."""
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def ids(context: SpanContext) -> tuple[int, int]:
    """Return the ids of trace and span."""
    return context.trace_id, context.span_id


def through_the_outbox(world: World, event: Event) -> ReceivedMessage:
    """Add an event to the outbox, let a relay publish it, and return the message that the queue delivers."""
    with Session(world.engine) as session:
        world.outbox.add(session, event)
        session.commit()
    work(world.relay())
    received = Queue(world.sqs, world.urls["billing"]).receive(attempt_id=None, wait_seconds=0)
    assert received is not None
    return received


def test_x1_a_consumers_link_is_the_producers_span(traced_process: TracedProcess, botocore_spans: None) -> None:
    """Botocore's instrumentation writes the relay's span into the message attributes; nobody reads it there."""
    with in_memory_world() as world:
        with traced_process.tracer.start_as_current_span("place order") as producing:
            received = through_the_outbox(world, Event(type="order.placed", group="order-7", data={}))

        with traced_process.tracing.handling(decode(received.body).event, CONTEXT) as record_outcome:
            record_outcome(Ack())

    span = traced_process.consumer_span()
    assert link_ids(span) == [ids(producing.get_span_context())]
    assert span.context is not None
    assert span.context.trace_id != producing.get_span_context().trace_id
    assert received.attributes["traceparent"] != decode(received.body).event.trace["traceparent"]


def test_x1_an_event_with_ten_attributes_keeps_its_trace_link(
    traced_process: TracedProcess, botocore_spans: None
) -> None:
    """The link is there even if the instrumentation finds no room for its own attributes, and warns."""
    nine = {f"a{number}": "1" for number in range(9)}
    with in_memory_world() as world:
        with traced_process.tracer.start_as_current_span("place order") as producing:
            event = Event(type="order.placed", group="order-7", data={}, attributes=nine, trace=current_trace())
        received = through_the_outbox(world, event)

        with traced_process.tracing.handling(decode(received.body).event, CONTEXT):
            pass

    assert link_ids(traced_process.consumer_span()) == [ids(producing.get_span_context())]
    assert received.attributes == nine | {"type": "order.placed"}


def test_a_span_says_what_was_handled(traced_process: TracedProcess) -> None:
    """Attributes follow OpenTelemetry's conventions for messaging; the event's group and number are added."""
    with traced_process.tracing.handling(PLACED, CONTEXT) as record_outcome:
        record_outcome(Ack())

    span = traced_process.consumer_span()
    assert span.name == "process billing.fifo"
    assert span.status.status_code == StatusCode.UNSET
    assert span.links == ()
    assert span.parent is None
    assert dict(span.attributes or {}) == {
        "messaging.system": "aws_sqs",
        "messaging.operation.type": "process",
        "messaging.operation.name": "process",
        "messaging.destination.name": "billing.fifo",
        "messaging.consumer.group.name": "billing",
        "sluice.event.id": "e1",
        "sluice.event.type": "order.placed",
        "sluice.group": "order-7",
        "sluice.seq": 3,
        "sluice.epoch": 1,
        "sluice.attempt": 2,
    }


def test_messages_a_handler_sends_are_linked_to_its_span(traced_process: TracedProcess) -> None:
    """Inside a handler the current trace is its span, in W3C's format."""
    with traced_process.tracing.handling(PLACED, CONTEXT):
        trace = current_trace()

    context = traced_process.consumer_span().context
    assert context is not None
    assert trace == {"traceparent": f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"}


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [(Retry(reason="the bank is closed"), "Retry"), (Reject("the bank is closed"), "Reject")],
    ids=["Retry", "Reject"],
)
def test_an_outcome_that_is_no_ack_is_the_spans_error(
    traced_process: TracedProcess, outcome: Outcome, kind: str
) -> None:
    """A trace shows why a message was retried or rejected."""
    with traced_process.tracing.handling(PLACED, CONTEXT) as record_outcome:
        record_outcome(outcome)

    span = traced_process.consumer_span()
    assert span.status.status_code == StatusCode.ERROR
    assert span.status.description == "the bank is closed"
    assert (span.attributes or {})["error.type"] == kind


def test_a_handlers_exception_is_its_spans_error(traced_process: TracedProcess) -> None:
    """The worker turns the exception into a retry, with the same reason."""

    def fails(_: Session, __: Event, ___: Context) -> Outcome:
        raise RuntimeError("the bank is closed")

    runner = HandlerRunner(handlers=Handlers({"order.placed": fails}), hooks=WorkerHookSet([traced_process.tracing]))
    with in_memory_world() as world, Session(world.engine) as session:
        attempt = HandlerAttempt(
            session=session,
            envelope=Envelope(event=PLACED, seq=3, epoch=1),
            context=CONTEXT,
            admit=lambda: TransactionMark(lambda _: None),
            before_commit="never",
        )
        outcome = runner.run(attempt)

    span = traced_process.consumer_span()
    assert outcome == Retry(reason="RuntimeError: the bank is closed")
    assert span.status.status_code == StatusCode.ERROR
    assert span.status.description == outcome.reason


def test_an_exception_is_recorded_and_goes_on(traced_process: TracedProcess) -> None:
    """A lost hold is raised through the span."""
    with pytest.raises(HoldLostError), traced_process.tracing.handling(PLACED, CONTEXT):
        raise HoldLostError("too late")

    span = traced_process.consumer_span()
    assert span.status.status_code == StatusCode.ERROR
    assert span.status.description == "HoldLostError: too late"
    assert [event.name for event in span.events] == ["exception"]


@pytest.mark.parametrize(
    "trace",
    [
        {},
        {"traceparent": "00-1"},
        {"traceparent": "00-00000000000000000000000000000000-0000000000000000-01"},
        {"tracestate": "a=b"},
        {"TRACEPARENT": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
    ],
    ids=["empty", "too short", "ids of zeros", "state alone", "capital letters"],
)
def test_an_invalid_trace_makes_no_link(traced_process: TracedProcess, trace: dict[str, str]) -> None:
    """Another program may have written the trace; the message is handled all the same."""
    with traced_process.tracing.handling(Event(type="a", group="b", data={}, trace=trace), CONTEXT):
        pass

    assert link_ids(traced_process.consumer_span()) == []


def test_an_event_written_in_a_span_has_it_unless_it_has_another(traced_process: TracedProcess) -> None:
    """A program may pass on the trace of a request that it stored."""
    with in_memory_world() as world, traced_process.tracer.start_as_current_span("place order"):
        trace, other = current_trace(), {"traceparent": f"00-{1:032x}-{2:016x}-01"}
        with world.engine.begin() as connection:
            events = [Event(type="a", group="g", data={}), Event(type="a", group="g", data={}, trace=other)]
            world.outbox.write(connection, events)
            bodies = connection.scalars(select(tables.messages.c.body).order_by(tables.messages.c.group_seq))
            assert [decode(body).event.trace for body in bodies] == [trace, other]


def test_without_a_span_there_is_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor without OpenTelemetry, which is not imported for it."""
    assert current_trace() == {}

    monkeypatch.delitem(sys.modules, "opentelemetry.trace")
    monkeypatch.setitem(sys.modules, "opentelemetry", None)  # importing it would fail
    assert current_trace() == {}


def test_tracing_without_opentelemetry_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is optional: a program that asks for tracing without it is told what to install."""
    monkeypatch.delitem(sys.modules, "opentelemetry.trace")
    monkeypatch.setitem(sys.modules, "opentelemetry", None)

    with pytest.raises(ConfigError) as refused:
        opentelemetry(queue_name="billing.fifo")

    assert str(refused.value) == (
        "tracing is asked for, and there is no module opentelemetry; pip install opentelemetry-sdk, or do not ask"
    )


def test_tracing_goes_to_the_process_provider_or_nowhere() -> None:
    """Without a provider of the process the hook makes no span, and raises nothing."""
    for hooks in ([opentelemetry(queue_name="billing.fifo")], []):
        with WorkerHookSet(hooks).handling(PLACED, CONTEXT) as record_outcome:
            record_outcome(Reject("never"))
            assert current_trace() == {}


class StuckProvider:
    """A provider whose exporter takes nothing until a test lets it."""

    def __init__(self) -> None:
        self.is_let_go, self.flush_count = threading.Event(), 0

    def force_flush(self) -> bool:
        """Wait, as the SDK does for an exporter whose endpoint does not answer."""
        self.flush_count += 1
        return self.is_let_go.wait(30)


def test_a_stuck_exporter_takes_no_more_than_an_invocations_rest(
    traced_process: TracedProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next invocation waits for the same flush; the first one after it flushes again, spans and metrics."""
    spans, measurements, clock = StuckProvider(), StuckProvider(), SystemClock()
    measurements.is_let_go.set()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: spans)
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: measurements)
    began = clock.monotonic()

    for _ in range(2):
        traced_process.tracing.after_invocation(None, 0.05)
    stuck_seconds, stuck_count = clock.monotonic() - began, spans.flush_count
    spans.is_let_go.set()
    for _ in range(2):
        traced_process.tracing.after_invocation(None, 20)

    assert stuck_seconds < 10
    assert stuck_count == 1
    assert measurements.flush_count >= 1
