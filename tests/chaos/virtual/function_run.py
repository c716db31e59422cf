"""Virtual runs whose consumer is a Lambda function: two pollers of a mapping, each with a process of the function.

Producer, outbox, relay and inbox are the same. Faults hit the function's process and its line to the endpoint: it
dies or freezes in the middle of a batch, and Lambda ends it when its time is over. No fault hits the mapping, which is
AWS's.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest import mock

from sqlalchemy.orm import Session

from sluice.declaration import Consumer, Gaps, Lambda, Poison
from sluice.lambda_local.local import sqs_call
from sluice.messaging import Ack, Context, Event, Outcome, Reject
from sluice.messaging.aws_lambda.handler import lambda_handler
from sluice.messaging.handlers import Handler, Handlers
from sluice.messaging.telemetry.recording import WorkerRecording
from sluice.messaging.worker import build
from sluice.messaging.worker.processing.processor import MessageProcessor
from sluice.simulator.model.mapping import EventSourceMapping, Invocation, NoAnswer, SqsCall
from sluice.testing.lambda_harness import Function, FunctionContext
from sluice.testing.load.function import wrong_answer
from spark_load.faults.drawing import ScheduledFault
from spark_load.faults.shapes import FaultKind
from tests.chaos.virtual.bundled_run import is_poison
from tests.chaos.virtual.schedules import CONSUMER, RELAY, Story
from tests.chaos.virtual.virtual_run import Crash, Process, VirtualRun
from tests.support.messaging.broken_functions import MISTAKES
from tests.support.messaging.function_answers import AnswerLog
from tests.support.messaging.world import SimulatorWait

_MAPPING = "mapping"
_FAILING_ONE_IN, _FAILURES = 4, 3
_HANDLER_SECONDS = 0.2  # not each invocation has time for a whole batch


class FunctionRun(VirtualRun):
    """The product's function, or one with a classic mistake.

    Args:
        mistake: a name of `MISTAKES`; None is the product's function.
    """

    runtime = Lambda(batch_size=10, timeout_seconds=2)
    declared = Consumer(
        name=CONSUMER,
        handlers="handlers",
        visibility_timeout_seconds=6 * runtime.timeout_seconds,
        processing_seconds=0.1,
        max_attempts=8,  # no event fails so often: each dead letter is a violation
        poison=Poison.SKIP,
        gaps=Gaps.RECORD,  # which would not hide a message that was handled too early
        runtime=runtime,
    )

    def __init__(self, story: Story, folder: Path, *, mistake: str | None = None) -> None:
        self._mistake = mistake
        self._mappings: dict[str, EventSourceMapping] = {}
        super().__init__(story, folder)

    def make_process(self, name: str) -> Process:
        """Return a relay, or a new process of the function behind the poller of that name."""
        if name == RELAY:
            return self.new_relay()
        if name not in self._mappings:
            self._mappings[name] = EventSourceMapping(
                call=self._call,
                queue_url=self.url,
                queue_arn=self.arn,
                batch_size=self.runtime.batch_size,
                visibility_seconds=self.declared.visibility_timeout_seconds,
            )
        return _FunctionProcess(self, self._mappings[name])

    @cached_property
    def _sqs_call(self) -> SqsCall:
        return sqs_call(self.client("sqs"))

    def _call(self, operation: str, params: dict[str, Any]) -> Mapping[str, Any]:
        """Call SQS for the mapping."""
        with self._mapping_calls():
            return self._sqs_call(operation, params)

    @contextmanager
    def _mapping_calls(self) -> Iterator[None]:
        before, self._current = self._current, _MAPPING
        try:
            yield
        finally:
            self._current = before

    def _wire(self) -> ScheduledFault[FaultKind] | None:
        return None if self._current == _MAPPING else super()._wire()

    def new_function(self, answers: AnswerLog, context: "CurrentInvocation") -> Function:
        """Return a function that has not been invoked so far."""

        def reach(failpoint: str) -> None:
            answers.note_message(failpoint)
            self.reach(failpoint)
            context.end_if_over()

        with mock.patch.object(build, "MessageProcessor", self.processor):
            handler = lambda_handler(
                self.declared,
                handlers=Handlers.of_function(self.handler()),
                database=self.engine,
                sqs=self.client("sqs"),
                bundle_events_max=self.bundle_events_max,
                wait=SimulatorWait(self.aws),
                clock=self.clock,
                rng=self.rng,
                failpoint=reach,
                hooks=[WorkerRecording(self.recorder, queue_url=self.url)],
            )
        return handler if self._mistake is None else MISTAKES[self._mistake](handler)

    def handler(self) -> Handler:
        """Return the handler of every event; on one event in some it fails a few times, whatever faults there are."""

        def handle(session: Session, of: Event, context: Context) -> Outcome:
            self.aws.advance(_HANDLER_SECONDS)
            self.write_effect(session, of)
            if of.data["number"] % _FAILING_ONE_IN == 0 and context.attempt <= _FAILURES:
                raise RuntimeError(f"attempt {context.attempt} of {_FAILURES} that fail")
            return Reject("poison") if self.is_poison(of.data["number"]) else Ack()

        return handle

    def is_throttled(self) -> bool:
        """Return whether an invocation is refused now: all of them, or those of one poller, where concurrency sank."""
        is_throttled = self._active(FaultKind.THROTTLE, CONSUMER, self._current) is not None
        self.hits["throttle"] += is_throttled
        return is_throttled

    def misreport(self, event: Mapping[str, Any], answer: object) -> object:
        """Return the answer, or while a fault says so a wrong one."""
        fault = self._active(FaultKind.MISREPORT, CONSUMER)
        if fault is None:
            return answer
        self.hits["misreport"] += 1
        return wrong_answer(event, fault.detail)


class BundledFunctionRun(FunctionRun):
    """The product's function, whose relay sends events of a group in bundles; or one with a mistake."""

    bundle_events_max = 5
    runtime = replace(FunctionRun.runtime, batch_size=3)  # with more, a thousand receives would not suffice
    declared = replace(FunctionRun.declared, runtime=runtime)

    def __init__(
        self,
        story: Story,
        folder: Path,
        *,
        mistake: str | None = None,
        processor: type[MessageProcessor] = MessageProcessor,
    ) -> None:
        self.processor = processor
        super().__init__(story, folder, mistake=mistake)
        self.switch_bundles(self.bundle_events_max)

    def is_poison(self, number: int) -> bool:
        """Return whether the handler rejects the event of that number."""
        return is_poison(number)


class CurrentInvocation:
    """The invocation that a process works on, and when its time is over."""

    def __init__(self) -> None:
        self.context: FunctionContext | None = None

    @property
    def left_ms(self) -> int:
        """Return the milliseconds that are left."""
        assert self.context is not None, "the process was invoked"
        return self.context.get_remaining_time_in_millis()

    def end_if_over(self) -> None:
        """End the process, as Lambda does, once the time is over."""
        if self.left_ms <= 0:
            raise Crash("the function took too long")


class _FunctionProcess:
    """A process of the function, behind its poller, which outlives it."""

    def __init__(self, run: FunctionRun, mapping: EventSourceMapping) -> None:
        self._run, self._mapping = run, mapping
        self._answers, self._current = AnswerLog(), CurrentInvocation()
        self._function = run.new_function(self._answers, self._current)

    def step(self) -> bool:
        """Invoke the function, where there is a batch for it."""
        now = self._run.clock.monotonic()
        invocation = self._mapping.poll(now) if self._run.aws.bodies(self._run.url) else None
        if invocation is None:
            return False
        answer: object = NoAnswer.THROTTLED
        try:
            if not self._run.is_throttled():
                answer = NoAnswer.ERROR
                answer = self._invoke(invocation)
        finally:
            self._mapping.finish(invocation, answer, self._run.clock.monotonic())
        return answer is not NoAnswer.THROTTLED

    def _invoke(self, invocation: Invocation) -> object:
        self._answers.begin()
        self._current.context = FunctionContext(self._run.clock, self._run.runtime.timeout_seconds)
        try:
            answer = self._function(invocation.event, self._current.context)
        except Exception:
            return NoAnswer.ERROR
        self._current.end_if_over()
        described = self._answers.describe_invocation(invocation.event, answer, self._current.left_ms)
        self._run.answers.append(described)
        return self._run.misreport(invocation.event, answer)
