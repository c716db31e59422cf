"""Observations of a service while its real workers are scaled, and the records of their journals afterwards."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sluice.declaration import Environment, naming
from sluice.history.events import CallOutcome, Kind
from sluice.rehearse.model.policies import ScaledService
from spark_load.consume.scaling.task_pool import PooledTask


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsedService:
    """A service whose workers are started and stopped by its policy.

    Args:
        consumer: the consumer of the workers.
        lanes: messages that a worker works on at once.
        service: the scaled service.
    """

    consumer: str
    lanes: int
    service: ScaledService


def rehearsed_services(environment: Environment) -> Mapping[str, RehearsedService]:
    """Return the scaled service of each queue of the environment's first topic, by the queue's name."""
    from sluice.rehearse.declared_service import service_of  # noqa: PLC0415 (it needs numba, and few runs scale)

    return {
        naming.queue_name(environment, consumer): RehearsedService(
            consumer=consumer.name, lanes=consumer.lanes, service=service_of(environment, consumer)
        )
        for consumer in environment.consumers_of(environment.topics[0])
    }


_NAMES = ("visible", "inflight", "running", "desired", "empty", "received", "sent", "done", "age", "cpu")
"""The metrics that a policy may watch, by their names in `TO_EXPRESSIONS` of the simulation; one that is not measured
has no values."""
MINUTE_SECONDS = 60.0


def new_series() -> dict[str, list[float | None]]:
    """Return empty series: for each metric a list, to which each minute adds a value."""
    return {name: [] for name in _NAMES}


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedPace:
    """The speed of the policy's time: a minute of the policy takes `minute_seconds` real seconds.

    Args:
        begun_us: when its first minute began, microseconds UTC.
        minute_seconds: real seconds of a minute.
        poll_seconds: real seconds of an empty poll.
        handler_seconds: real seconds of a message in its handler.
    """

    begun_us: int
    minute_seconds: float
    poll_seconds: float
    handler_seconds: float

    @property
    def factor(self) -> float:
        """Return how many times faster time passes."""
        return MINUTE_SECONDS / self.minute_seconds

    def policy_seconds(self, instant_us: int) -> float:
        """Return an instant in the policy's seconds since its first minute began."""
        return (instant_us - self.begun_us) / 1e6 * self.factor


@dataclass(frozen=True, slots=True)
class Sample:
    """The messages of a queue that are visible and in flight, None if SQS gave no answer, and its running tasks."""

    visible: int | None
    in_flight: int | None
    running: int


def add_minute(
    series: Mapping[str, list[float | None]],
    samples: Sequence[Sample],
    *,
    desired: int,
    lanes: int,
    pace: ObservedPace,
) -> None:
    """Append one minute's values to the series: the means of its samples, and the receives derived from them.

    Receives have to be derived: a worker's journal shows an empty poll only when the worker deletes the next message,
    too late for a decision. A lane without a message polls all the time; a lane with a message has it for the handler's
    time.

    Args:
        series: by metric; each gets one more value.
        samples: of the minute.
        desired: the desired number of tasks.
        lanes: of each task.
        pace: real seconds of the policy's minute.
    """
    visible = _mean(sample.visible for sample in samples)
    in_flight = _mean(sample.in_flight for sample in samples)
    running = _mean(sample.running for sample in samples) or 0.0
    busy = min(in_flight or 0.0, running * lanes)
    turn_seconds = max(pace.handler_seconds, pace.poll_seconds)
    values = {
        "visible": visible,
        "inflight": in_flight,
        "running": running or None,
        "desired": float(desired),
        "empty": (running * lanes - busy) * pace.minute_seconds / pace.poll_seconds,
        "received": busy * pace.minute_seconds / turn_seconds,
    }
    for name in _NAMES:
        series[name].append(values.get(name))


def _mean(values: Iterable[int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldMessage:
    """A message held by a worker: from the answer of its receive until it was deleted or released, or for good."""

    recorder: str
    received_us: int
    ended_us: int | None

    def is_held_at(self, instant_us: int) -> bool:
        """Return whether the worker had the message at that instant."""
        return self.received_us <= instant_us and (self.ended_us is None or instant_us < self.ended_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRecord:
    """The record of one queue in the journals of a run.

    Args:
        sent: when each message was sent to it, microseconds UTC, ascending, and its group.
        held: by whom each message was held, and how long.
        empty_us: when each empty poll was answered.
        unrecorded_us: when messages were received first that came again, and whose first receive is in no journal: a
            worker that is killed takes along what it was about to write down.
    """

    sent: Sequence[tuple[int, str]] = ()
    held: Sequence[HeldMessage] = ()
    empty_us: Sequence[int] = ()
    unrecorded_us: Sequence[int] = ()


def read_records(events: Iterable[Mapping[str, Any]], *, addresses: Iterable[str], queue: str) -> QueueRecord:
    """Return the record of a queue in the events of all journals.

    `addresses` are the places its messages are published to.
    """
    published_to, sent = set(addresses), dict[str, tuple[int, str]]()
    polls: dict[str, int] = {}
    received: dict[str, tuple[str, int]] = {}
    ended: dict[str, int] = {}
    receives: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for event in events:
        kind, place, is_done = event["kind"], event["queue"], event["outcome"] == CallOutcome.OK
        if kind == Kind.PUBLISHED and place in published_to and is_done:
            publish = (event["responded_at_us"], event["message_group_id"])
            sent[event["deduplication_id"]] = min(publish, sent.get(event["deduplication_id"], publish))
        elif place != queue or not is_done:
            continue
        elif kind == Kind.RECEIVED:
            received[event["receipt_handle_hash"]] = (event["worker"], event["responded_at_us"])
            receives[event["sqs_message_id"]].append((event["receive_count"] or 1, event["first_received_at_us"] or 0))
            polls.pop(event["call_id"], None)  # so only empty polls stay; a poll's event precedes those of its messages
        elif kind in (Kind.DELETED, Kind.VISIBILITY_CHANGED) and not event["visibility_timeout_seconds"]:
            ended[event["receipt_handle_hash"]] = event["invoked_at_us"]
        elif kind == Kind.POLL:
            polls[event["call_id"]] = event["responded_at_us"]
    held = [
        HeldMessage(recorder=worker, received_us=at_us, ended_us=ended.get(handle))
        for handle, (worker, at_us) in received.items()
    ]
    unrecorded_us = [first_us for (count, first_us), *_ in map(sorted, receives.values()) if count > 1]
    return QueueRecord(
        sent=sorted(sent.values()), held=held, empty_us=list(polls.values()), unrecorded_us=unrecorded_us
    )


@dataclass(slots=True, kw_only=True)
class Observation:
    """The observation of one service.

    Args:
        series: by name, a value a minute.
        decisions: minute, tasks before, tasks after, and the policy.
        tasks: all tasks of the run.
        recorders: the recorders of tasks, by name.
        is_back: whether it returned to its fewest tasks with an empty queue.
    """

    rehearsed: RehearsedService
    series: dict[str, list[float | None]] = field(default_factory=new_series)
    decisions: list[tuple[int, int, int, str]] = field(default_factory=list)
    tasks: Sequence[PooledTask] = ()
    recorders: Mapping[str, str] = field(default_factory=dict)
    is_back: bool = False
