"""Consume every queue until the driver says that it is done: one Spark task is one consumer.

Spark cannot read a queue as a data source, because reading it again would return other messages. So each consumer is a
task that does the work and keeps a journal; its return value does not matter. Consumers work like a plain consumer
without Sluice's worker: no inbox, no heartbeat. A message is deleted after it was handled, and a message that is
received again is handled again.
"""

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import pyarrow as pa
from botocore.exceptions import BotoCoreError, ClientError
from pyspark.sql import DataFrame, SparkSession

from sluice import limits
from sluice.history.bundles import identities_in, part_id
from sluice.history.events import Identity, is_end_marker
from spark_load.plan.plan import Plan
from spark_load.profiles.profile import Profile
from spark_load.runtime.coordinator import RunStep, TaskProgress
from spark_load.runtime.task_context import CONSUMER, SUMMARY_SCHEMA, LoadRun, TaskContext, summary, task_context

_LEASE_SHARE_MAX = 0.5  # handling an answer may take this share of the visibility timeout; the rest is a reserve


class SimulatedOutcome(Enum):
    """The outcome of a received message, as the plan wants it.

    HANDLED: it has its effect, and is deleted. FAILED: its handler failed, and it is released at once. CRASHED: it is
    neither deleted nor released, as when a consumer dies; it comes again when its visibility timeout has ended.
    """

    HANDLED = auto()
    FAILED = auto()
    CRASHED = auto()


def simulated_outcome(plan: Plan, identity: Identity, *, receive_count: int, is_redriven: bool) -> SimulatedOutcome:
    """Return the simulated outcome of a message; poisoned messages succeed after the dead letters were moved back."""
    if is_end_marker(identity.idx):
        return SimulatedOutcome.HANDLED
    if plan.is_poison(identity.idx) and not is_redriven:
        return SimulatedOutcome.FAILED
    if receive_count == 1 and plan.crashes_first(identity.idx):
        return SimulatedOutcome.CRASHED
    if receive_count == 1 and plan.fails_first(identity.idx):
        return SimulatedOutcome.FAILED
    return SimulatedOutcome.HANDLED


def messages_per_receive(profile: Profile, *, visibility_timeout_seconds: int) -> int:
    """Return how many messages a consumer asks for in one receive.

    One, if the profile lets messages fail. When a consumer releases a message, another consumer may receive it at once,
    while the first one still has the later messages of the group in the same answer. It would have to release each of
    them by a call of its own, and between two calls the group would be handed out in another order: the load test
    itself would reorder. Each of these messages would also use up a receive whenever the poisoned message in front of
    it fails, and end in the DLQ beside it. Otherwise ten, or as many as can be handled within half a lease.
    """
    if profile.failure_share or profile.crash_share or profile.poison_share:
        return 1
    lease_seconds = profile.visibility_timeout_seconds or visibility_timeout_seconds
    if not profile.handler_seconds:
        return limits.RECEIVE_MESSAGES_MAX
    messages_in_time = int(lease_seconds * _LEASE_SHARE_MAX / (profile.handler_seconds * profile.bundle_events_max))
    return max(1, min(limits.RECEIVE_MESSAGES_MAX, messages_in_time))


_WAIT_SECONDS = 1
_ERROR_PAUSE_SECONDS = 0.5
_DELETE_TRIES = 3
_BEFORE_START_SECONDS_MAX = 240  # from the start of a consumer to the start of the load
_LAST_POLLS = 3  # after the end, to find a message that comes after its group's end marker
_DRAIN_FACTOR_MAX = 10  # a task whose driver has died ends after so many times the seconds of publishing


def consume(spark: SparkSession, run: LoadRun) -> DataFrame:
    """Return the job whose tasks consume all queues; it runs when its rows are requested.

    Runs `consumers_per_queue` tasks for each queue, for the whole run. Not safe to repeat.
    """
    slots = len(run.deployment.queue_urls) * run.plan.profile.consumers_per_queue

    def slot(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in [number for batch in batches for number in batch.column("id").to_pylist()]:
            with task_context(run, CONSUMER) as context:
                progress = ConsumerTask(context, run, run.queue_of(number)).consume()
            yield summary(progress)

    return spark.range(0, slots, 1, slots).mapInArrow(slot, SUMMARY_SCHEMA)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    """A received message of this run, with identity and body of each of its events: of one, or those of a bundle."""

    events: Sequence[tuple[Identity, str]]
    id: str
    receipt_handle: str
    receive_count: int


class ConsumerTask:
    """One consumer of one queue. Messages of another run are left in the queue."""

    def __init__(self, context: TaskContext, run: LoadRun, queue: str) -> None:
        self._context, self._run, self._url = context, run, run.deployment.queue_urls[queue]
        self._progress = TaskProgress(worker=context.name, role="consume", queue=queue)
        self._live_checks = LiveChecks(self._progress, run.id, run.plan.profile)
        self._unanswered: str | None = None
        profile = run.plan.profile
        seconds = profile.warm_up_seconds + profile.publish_seconds
        self._deadline = context.clock.monotonic() + (
            _BEFORE_START_SECONDS_MAX + seconds * _DRAIN_FACTOR_MAX + profile.drain_timeout_seconds
        )
        self._receive_params: dict[str, Any] = {
            "QueueUrl": self._url,
            "MaxNumberOfMessages": messages_per_receive(
                profile, visibility_timeout_seconds=run.deployment.visibility_timeout_seconds[queue]
            ),
            "WaitTimeSeconds": _WAIT_SECONDS,
            "MessageSystemAttributeNames": ["All"],
        }
        if profile.visibility_timeout_seconds is not None:
            self._receive_params["VisibilityTimeout"] = profile.visibility_timeout_seconds

    def consume(self) -> TaskProgress:
        """Receive, handle and delete until the driver says that all is done, or the task's deadline has passed.

        A message itself says whether it belongs to the warm-up or to the load: a poll of the warm-up may return one of
        the load.
        """
        coordinator, profile = self._context.coordinator, self._run.plan.profile
        coordinator.report(self._progress, now=True)
        if profile.warm_up_count:
            self._poll_until(lambda: coordinator.has_reached(RunStep.MEASURE) or self._is_over())
        if profile.consume_after_seconds:
            self._await_backlog()
        self._poll_until(self._is_over)
        if not coordinator.is_stopped():
            for _ in range(_LAST_POLLS):
                self.poll()
        coordinator.report(self._progress, now=True)
        return self._progress

    def _poll_until(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            self.poll()
            self._context.clock.sleep(self._run.plan.profile.poll_pause_seconds)

    def _await_backlog(self) -> None:
        """Wait for the beginning of the load and then `consume_after_seconds`, so that a backlog grows."""
        begun_us = self._context.coordinator.wait_for(RunStep.MEASURE, _BEFORE_START_SECONDS_MAX)
        until_us = begun_us + round(self._run.plan.profile.consume_after_seconds * 1_000_000)
        while self._context.clock.now_us() < until_us and not self._context.coordinator.is_stopped():
            self._context.clock.sleep(_WAIT_SECONDS)

    def _is_over(self) -> bool:
        coordinator = self._context.coordinator
        is_too_late = self._context.clock.monotonic() > self._deadline
        return coordinator.is_stopped() or coordinator.has_reached(RunStep.FINISH) or is_too_late

    def poll(self) -> None:
        """Receive once, and treat each message by the outcome that the plan has for it."""
        try:
            self._work_on(self._receive())
        except (BotoCoreError, ClientError):
            self._context.clock.sleep(_ERROR_PAUSE_SECONDS)
        self._context.coordinator.report(self._progress)

    def _receive(self) -> list[_Message]:
        """Return the messages of this run in the answer to a receive.

        A receive without an answer is repeated once with its attempt id, which returns the same messages. Otherwise
        they would stay leased until their visibility timeout ends, and their groups would wait.
        """
        attempt_id = self._unanswered or uuid.uuid4().hex
        self._unanswered = None if self._unanswered else attempt_id
        try:
            answer = self._context.sqs.receive_message(**self._receive_params, ReceiveRequestAttemptId=attempt_id)
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] < 500:
                self._unanswered = None  # refused, so a repeat with this attempt id would return nothing
            raise
        self._unanswered = None
        messages = [_message(message) for message in answer.get("Messages", [])]
        for message in messages:
            for identity in [None] if message is None else [identity for identity, _ in message.events]:
                self._live_checks.look(identity, receive_count=1 if message is None else message.receive_count)
        return [message for message in messages if message is not None and message.events[0][0].run == self._run.id]

    def _work_on(self, messages: Sequence[_Message]) -> None:
        """Try each message; release those that failed, and delete those that were handled."""
        handled = []
        for message in messages:
            match self._try(message):
                case SimulatedOutcome.HANDLED:
                    handled.append(message)
                case SimulatedOutcome.FAILED:
                    self._context.sqs.change_message_visibility(
                        QueueUrl=self._url, ReceiptHandle=message.receipt_handle, VisibilityTimeout=0
                    )
                case SimulatedOutcome.CRASHED:
                    pass
        self._delete(handled)

    def _try(self, message: _Message) -> SimulatedOutcome:
        """Work on the events of a message, until one of them is not handled, and return the outcome of the last."""
        outcomes = (self._try_event(message, position) for position in range(len(message.events)))
        return next(
            (outcome for outcome in outcomes if outcome is not SimulatedOutcome.HANDLED), SimulatedOutcome.HANDLED
        )

    def _try_event(self, message: _Message, position: int) -> SimulatedOutcome:
        """Work on an event for its handler's time, and record it if it was handled."""
        plan, (identity, body) = self._run.plan, message.events[position]
        begun_at_us = self._context.clock.now_us()
        outcome = simulated_outcome(
            plan,
            identity,
            receive_count=message.receive_count,
            is_redriven=plan.profile.redrive and self._context.coordinator.has_reached(RunStep.REDRIVEN),
        )
        if outcome is SimulatedOutcome.CRASHED or is_end_marker(identity.idx):
            return outcome
        self._context.clock.sleep(plan.profile.handler_seconds)
        if outcome is SimulatedOutcome.HANDLED:
            self._context.recorder.record_handled(
                queue_url=self._url,
                body=body,
                sqs_message_id=message.id if len(message.events) == 1 else part_id(message.id, position),
                receive_count=message.receive_count,
                begun_at_us=begun_at_us,
                is_parked=False,
                state="handled",
            )
        return outcome

    def _delete(self, messages: Sequence[_Message]) -> None:
        """Delete the handled messages; one that cannot be deleted is received again."""
        undeleted = list(messages)
        for _ in range(_DELETE_TRIES):
            if not undeleted:
                return
            entries = [
                {"Id": str(position), "ReceiptHandle": message.receipt_handle}
                for position, message in enumerate(undeleted)
            ]
            try:
                answer = self._context.sqs.delete_message_batch(QueueUrl=self._url, Entries=entries)
            except (BotoCoreError, ClientError):
                self._context.clock.sleep(_ERROR_PAUSE_SECONDS)
                continue
            deleted_positions = {int(deleted["Id"]) for deleted in answer.get("Successful", [])}
            events = [identity for position in deleted_positions for identity, _ in undeleted[position].events]
            self._progress.done += len(events)
            self._progress.ended += sum(is_end_marker(identity.idx) for identity in events)
            undeleted = [message for position, message in enumerate(undeleted) if position not in deleted_positions]


def _message(fields: dict[str, Any]) -> _Message | None:
    """Return a received message; None if it has no identity of a load test."""
    events = [(identity, body) for identity, body in identities_in(fields) if identity is not None]
    if not events:
        return None
    return _Message(
        events=events,
        id=fields["MessageId"],
        receipt_handle=fields["ReceiptHandle"],
        receive_count=int(fields.get("Attributes", {}).get("ApproximateReceiveCount", 1)),
    )


_GROUPS_MAX = 100_000  # groups that are remembered; the order of further ones is not checked


class LiveChecks:
    """Counts suspicious receives of one consumer, to be shown during a run; they do not count for the verdict.

    A consumer sees its own receives only. A message that is received again may be lawful, and one that seems to fall
    back behind another may be the generator's doing; only the judge has the whole history. Messages of another run are
    strangers.
    """

    def __init__(self, progress: TaskProgress, run: str, profile: Profile) -> None:
        self._progress, self._run = progress, run
        self._is_ordered = not profile.late_duplicate_share
        self._last: dict[str, int] = defaultdict(lambda: -1)

    def look(self, identity: Identity | None, *, receive_count: int) -> None:
        """Count a received message if it looks suspicious."""
        if identity is None or identity.run != self._run:
            self._progress.strangers += 1
        elif receive_count > 1:
            self._progress.again += 1
        elif self._is_ordered and not is_end_marker(identity.idx):
            self._check_order(identity)

    def _check_order(self, identity: Identity) -> None:
        group, idx = identity.message_group_id, identity.idx
        if group not in self._last and len(self._last) >= _GROUPS_MAX:
            return
        self._progress.fallen_back += idx <= self._last[group]
        self._last[group] = max(idx, self._last[group])
