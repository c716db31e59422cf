"""A Lambda function for your handlers that is invoked only while a test lets it, in virtual time, on one thread.

    def test_an_invoice_is_written_once(lambda_harness):
        harness = lambda_harness("shop.handlers", tables=Base.metadata)
        harness.publish("order.placed", "order-7", {"total_cents": 1250})
        harness.throttle(20)
        harness.run()
        assert harness.session().scalars(select(Invoice.cents)).all() == [1250]

It is `WorkerHarness` with the product's Lambda function in place of the worker. SQS, SNS and the event source mapping
are simulated. A freeze, a kill or too much memory needs a real process: `sluice lambda local`.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from sluice.clock import Clock
from sluice.declaration import Consumer, Lambda
from sluice.declaration.fields.functions import SCHEDULED_EVENT
from sluice.messaging import Event
from sluice.messaging.aws_lambda.handler import LambdaHandler, lambda_handler
from sluice.messaging.worker.worker import Worker
from sluice.simulator.model.mapping import EventSourceMapping, Invocation, NoAnswer
from sluice.testing.harness import HandlersLike, WorkerHarness
from sluice.testing.parts import AttemptLog, ClockWait

type Function = Callable[[dict[str, Any], "FunctionContext"], object]
"""A Lambda function: an event and a context in, an answer out."""


class FunctionContext:
    """The context that Lambda gives a function with an invocation, with its remaining time by a clock."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock, self._ends_at = clock, clock.monotonic() + seconds
        self.aws_request_id = f"invocation-{clock.now_us()}"

    def get_remaining_time_in_millis(self) -> int:
        """Return how many milliseconds are left; Lambda would have killed the process once they are below zero."""
        return round((self._ends_at - self._clock.monotonic()) * 1_000)


class LambdaHarness(WorkerHarness):
    """One consumer with its queue, database, function and event source mapping. The fixture `lambda_harness` makes it.

    Args:
        handlers: the same as for `WorkerHarness`.
        consumer: the consumer's declaration, with a `runtime`; None is a consumer with all defaults.
        broken: returns a broken function, made of the product's, to see that a test notices it; None breaks nothing.
        options: other arguments of `WorkerHarness`.
    """

    def __init__(
        self,
        handlers: HandlersLike,
        *,
        consumer: Consumer | None = None,
        broken: Callable[[LambdaHandler], Function] | None = None,
        **options: Any,
    ) -> None:
        default = Consumer(name="consumer", handlers="handlers", runtime=Lambda())
        declared = default if consumer is None else consumer
        assert declared.runtime is not None, "the consumer has no runtime; give it Lambda(…), or use worker_harness"
        self._function, self._broken = declared.runtime, broken
        self._throttled_left = 0
        self._is_crashing: Callable[[], bool] = lambda: True
        self.events: list[dict[str, Any]] = []
        self._mapping: EventSourceMapping | None = None
        super().__init__(handlers, consumer=declared, **options)

    def throttle(self, times: int) -> None:
        """Let the next `times` invocations be throttled."""
        self._throttled_left = times

    def crash_at(self, failpoint: str, *, when: Callable[[], bool] = lambda: True) -> None:
        """Work until an invocation is at a failpoint of the worker, and let its process end there.

        Args:
            failpoint: one of `sluice.messaging.failpoints.WORKER`.
            when: returns whether to end the process this time that the failpoint is reached.

        Raises:
            AssertionError: no invocation reached the failpoint.
        """
        self._is_crashing = when
        self._crash((failpoint,))

    def _reach(self, failpoint: str) -> None:
        if failpoint in self._dies_at and self._is_crashing():
            super()._reach(failpoint)

    def redeliver(self) -> list[Event]:
        """Invoke the function again with its last batch, as SQS may; return the handled events, which should be none.

        Raises:
            AssertionError: the function was not invoked so far.
        """
        assert self.events, "the function was not invoked so far; call run() first"
        first, again = len(self.attempts), json.loads(json.dumps(self.events[-1]))
        for record in again["Records"]:
            record["attributes"]["ApproximateReceiveCount"] = str(
                int(record["attributes"]["ApproximateReceiveCount"]) + 1
            )
        self._invoke(again)
        return self._events_committed_since(first)

    def _start(self) -> Worker:
        handlers = self._handlers.of_consumer(self.consumer)
        self._handler = lambda_handler(
            self.consumer,
            handlers=handlers,
            database=self.engine,
            sqs=self._sqs,
            bundle_events_max=self._bundle_events_max,
            wait=ClockWait(self.aws),
            clock=self.clock,
            rng=self._rng,
            failpoint=self._reach,
            hooks=[AttemptLog(self.attempts)],
        )
        if self._mapping is None:
            attributes = self._sqs.get_queue_attributes(QueueUrl=self.queue_url, AttributeNames=["QueueArn"])
            self._mapping = EventSourceMapping(
                call=self._call,
                queue_url=self.queue_url,
                queue_arn=attributes["Attributes"]["QueueArn"],
                batch_size=self._function.batch_size,
                visibility_seconds=self.consumer.visibility_timeout_seconds,
            )
        return self._handler.worker

    def _call(self, operation: str, params: dict[str, Any]) -> Mapping[str, Any]:
        """Call SQS for the event source mapping."""
        methods = {
            "ReceiveMessage": self._sqs.receive_message,
            "DeleteMessageBatch": self._sqs.delete_message_batch,
        }
        answer: Mapping[str, Any] = methods[operation](**params)
        return answer

    def _step(self) -> bool:
        """Do one step of the relay, the schedule and the mapping; return whether there was anything to do."""
        assert self._mapping is not None, "it was made at the start"
        self._relay()
        first = len(self.attempts)
        if self._worker.parts.inbox.due(self.engine):
            self._invoke(dict(SCHEDULED_EVENT))
        invocation = self._mapping.poll(self.clock.monotonic()) if self.aws.bodies(self.queue_url) else None
        if invocation is not None:
            self._work_on(invocation)
        return invocation is not None or len(self.attempts) > first

    def _work_on(self, invocation: Invocation) -> None:
        """Invoke the function with the mapping's batch, unless this invocation is throttled.

        Tell the mapping the answer.
        """
        assert self._mapping is not None, "it was made at the start"
        if self._throttled_left:
            self._throttled_left -= 1
            self._mapping.finish(invocation, NoAnswer.THROTTLED, self.clock.monotonic())
            return
        self.events.append(invocation.event)
        answer: object = NoAnswer.ERROR
        try:
            answer = self._invoke(invocation.event)
        finally:
            self._mapping.finish(invocation, answer, self.clock.monotonic())

    def _invoke(self, event: dict[str, Any]) -> object:
        """Return the function's answer to an event; an answer after the timeout counts as an error."""
        context = FunctionContext(self.clock, self._function.timeout_seconds)
        function: Function = self._handler if self._broken is None else self._broken(self._handler)
        answer = json.loads(json.dumps(function(event, context)))
        return answer if context.get_remaining_time_in_millis() > 0 else NoAnswer.ERROR

    def _next_at(self) -> float | None:
        assert self._mapping is not None, "it was made at the start"
        found = [super()._next_at(), self._mapping.next_change_at()]
        return min((instant for instant in found if instant is not None), default=None)
