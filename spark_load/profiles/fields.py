"""The fields of a load profile, each with its bounds, and what follows from them."""

from collections.abc import Mapping
from dataclasses import asdict
from dataclasses import field as dataclass_field
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass as checked_dataclass

from sluice import limits
from sluice.judge.checker import Thresholds
from spark_load.faults.shapes import Faults
from spark_load.profiles.trace import OVERHEAD_BYTES, PAYLOAD_BYTES_MAX, SECONDS_MAX, Replay

END_MARKERS_AFTER_SECONDS = 0.5
LATE_DUPLICATE_SECONDS_MIN = (
    limits.DEDUPLICATION_WINDOW_SECONDS + 60
)  # a minute more, because the queue's window begins after the publish

type _Share = Annotated[float, Field(ge=0, le=1)]
type _Rate = Annotated[float, Field(ge=0, le=1_000_000)]
type _Threshold = Annotated[float, Field(gt=0, le=SECONDS_MAX)] | None


@checked_dataclass(frozen=True, slots=True, kw_only=True, config={"extra": "forbid"})
class Phase:
    """A stretch of the load.

    Args:
        duration_seconds: how long it lasts.
        messages_per_second: offered rate, at its start; 0 offers nothing, or begins a ramp at nothing.
        to_per_second: the rate at its end, reached linearly; None keeps the rate.
    """

    duration_seconds: Annotated[float, Field(gt=0, le=SECONDS_MAX)]
    messages_per_second: _Rate
    to_per_second: _Rate | None = None

    @property
    def end_per_second(self) -> float:
        """Return the rate at its end."""
        return self.messages_per_second if self.to_per_second is None else self.to_per_second

    @property
    def message_count(self) -> float:
        """Return how many messages are due in the phase; rarely a whole number."""
        return (self.messages_per_second + self.end_per_second) / 2 * self.duration_seconds


@checked_dataclass(frozen=True, slots=True, kw_only=True, config={"extra": "forbid"})
class ProfileFields:
    """The fields of a load profile: a constant rate for a duration, or phases.

    Args:
        messages_per_second: offered rate, repeats not counted; with phases their mean, and not to be given.
        duration_seconds: how long it is offered, warm-up not counted; with phases their sum, and not to be given.
        phases: one after the other, in place of the two above.
        replay: recorded arrivals to send again, in place of rates, groups and sizes, which then are those recorded.
        warm_up_seconds: how long messages are offered at the first phase's rate beforehand; they are drained before the
            load begins, count for no measure or threshold, and are judged for safety.
        group_count: number of message groups.
        group_skew: Zipf exponent of the groups' shares; 0 spreads evenly.
        payload_bytes: size of the random part of a body.
        destination: `topic`; `queue`: no topic, each group straight into one of the queues; or `outbox`: an outbox of
            the run's own, from which two relays publish to the topic.
        bundle_events_max: how many due messages of a group travel as the events of one bundle; 1 makes no bundles.
        duplicate_share: share of messages published a second time with the same deduplication id.
        duplicate_after_seconds: when that happens; must lie inside the deduplication window.
        late_duplicate_share: share of messages published a second time when the window is over; none of those above.
        late_duplicate_after_seconds: when that happens; must lie outside the window.
        publish_tasks: Spark tasks that publish; a group belongs to one of them.
        publish_linger_seconds: how long a due message may wait for others to share its call; counts as latency. Unless
            it is 0, what fills no call waits for the answer of the call before it, too.
        catch_up_ratio: after a stall at most this multiple of the highest rate is offered.
        consumers_per_queue: Spark tasks that consume, for each queue.
        consumer: `raw`, our own loop; `worker`, the worker of `messaging`; or `lambda`, the Lambda function of each
            consumer that declares one, and the worker of the others. The last two take none of the injections below.
        minute_seconds: real seconds in which a minute of the scaling policies passes, which then say how many workers
            run; None runs `consumers_per_queue` throughout.
        consume_after_seconds: how long consumers wait after the load began: a backlog builds.
        poll_pause_seconds: how long a consumer rests between two receives, so that answers hold more messages.
        handler_seconds: how long a consumer holds each message before it is done.
        visibility_timeout_seconds: given with each receive; None leaves it to the queue.
        failure_share: share of messages given back at their first receive.
        crash_share: share of messages forgotten at their first receive: their lease has to run out.
        poison_share: share of messages that fail at every receive and end in the DLQ.
        faults: what is done to processes, network and databases meanwhile; see `spark_load.faults.shapes.Faults`.
        redrive: whether a move task brings the dead letters back after the drain; then they succeed.
        lateness_budget_seconds: how late the generator's 99th percentile may be before it measures only itself.
        drain_timeout_seconds: how long after the last publish nothing may be consumed before the drain is given up; the
            visibility timeout and more, or a message somebody holds ends it.
        latency_seconds_max: allowed 99th percentile from intended publish to first receive; None does not judge it, as
            with the thresholds below.
        drain_seconds_max: allowed from the last publish to the last first receive of a queue.
        recovery_seconds_max: allowed from the end of a fault to the first answer, where the history has faults.
        throttled_share_max: allowed share of calls that are throttled.
        fan_out_skew_seconds_max: allowed between a message's first queue and its last.
        passed_over_seconds_max: allowed for a group with a message to wait while its queue serves others.
        stuck_seconds_max: allowed for a group with a message to wait at all, while its queue is polled.
    """

    messages_per_second: Annotated[float, Field(gt=0, le=1_000_000)] = 0
    duration_seconds: Annotated[float, Field(gt=0, le=SECONDS_MAX)] = 0
    phases: Annotated[tuple[Phase, ...], Field(max_length=1_000)] = ()
    replay: Replay | None = None
    warm_up_seconds: Annotated[float, Field(ge=0, le=3_600)] = 0
    group_count: Annotated[int, Field(ge=1, le=10_000_000)]
    group_skew: Annotated[float, Field(ge=0, le=5)] = 0
    payload_bytes: Annotated[int, Field(ge=0, le=PAYLOAD_BYTES_MAX)] = 256
    destination: Literal["topic", "queue", "outbox"] = "topic"
    bundle_events_max: Annotated[int, Field(ge=1, le=250)] = 1
    duplicate_share: _Share = 0
    duplicate_after_seconds: Annotated[float, Field(gt=0, lt=limits.DEDUPLICATION_WINDOW_SECONDS - 60)] = 2
    late_duplicate_share: _Share = 0
    late_duplicate_after_seconds: Annotated[float, Field(ge=LATE_DUPLICATE_SECONDS_MIN, le=SECONDS_MAX)] | None = None
    publish_tasks: Annotated[int, Field(ge=1, le=1_000)] = 1
    publish_linger_seconds: Annotated[float, Field(ge=0, le=10)] = 0
    catch_up_ratio: Annotated[float, Field(gt=1, le=100)] = 2
    consumers_per_queue: Annotated[int, Field(ge=1, le=1_000)] = 1
    consumer: Literal["raw", "worker", "lambda"] = "raw"
    minute_seconds: Annotated[float, Field(ge=0.5, le=60)] | None = None
    consume_after_seconds: Annotated[float, Field(ge=0, le=SECONDS_MAX)] = 0
    poll_pause_seconds: Annotated[float, Field(ge=0, le=10)] = 0
    handler_seconds: Annotated[float, Field(ge=0, le=3_600)] = 0
    visibility_timeout_seconds: Annotated[int, Field(ge=1, le=limits.VISIBILITY_TIMEOUT_SECONDS_MAX)] | None = None
    failure_share: _Share = 0
    crash_share: _Share = 0
    poison_share: _Share = 0
    faults: Faults = dataclass_field(default_factory=Faults)
    redrive: bool = False
    lateness_budget_seconds: Annotated[float, Field(gt=0, le=3_600)] = 1
    drain_timeout_seconds: Annotated[float, Field(gt=0, le=3_600)] = 60
    latency_seconds_max: _Threshold = None
    drain_seconds_max: _Threshold = None
    recovery_seconds_max: _Threshold = None
    throttled_share_max: _Share | None = None
    fan_out_skew_seconds_max: _Threshold = None
    passed_over_seconds_max: _Threshold = None
    stuck_seconds_max: _Threshold = None

    def __post_init__(self) -> None:
        """Compute rate and duration from the phases, if there are any."""
        if not self.phases:
            return
        seconds = sum(phase.duration_seconds for phase in self.phases)
        mean = sum(phase.message_count for phase in self.phases) / seconds
        for name, value in (("messages_per_second", mean), ("duration_seconds", seconds)):
            found = getattr(self, name)
            if found not in (0, value):  # the profile in run.json has the computed value as well
                raise ValueError(f"{name} is {found:g}, allowed beside phases is none: they make {value:g}")
            object.__setattr__(self, name, value)
        if seconds > SECONDS_MAX:
            raise ValueError(f"the phases last {seconds:g} s, allowed is at most {SECONDS_MAX}")

    @property
    def has_topic(self) -> bool:
        """Return whether messages go through a topic."""
        return self.destination != "queue"

    @property
    def has_services(self) -> bool:
        """Return whether the product consumes, in workers or functions, and not our own loop."""
        return self.consumer != "raw"

    @property
    def steps(self) -> tuple[Phase, ...]:
        """Return the phases; a constant rate is one phase."""
        return self.phases or (
            Phase(duration_seconds=self.duration_seconds, messages_per_second=self.messages_per_second),
        )

    @property
    def peak_per_second(self) -> float:
        """Return the highest rate of messages, repeats not counted."""
        return max(max(phase.messages_per_second, phase.end_per_second) for phase in self.steps)

    @property
    def first_per_second(self) -> float:
        """Return the rate at which the load begins; that of the warm-up."""
        return self.steps[0].messages_per_second

    @property
    def warm_up_count(self) -> int:
        """Return the number of messages before the load proper."""
        return round(self.warm_up_seconds * self.first_per_second)

    @property
    def measured_count(self) -> int:
        """Return the number of messages of the load proper; repeats and end markers not counted."""
        return round(sum(phase.message_count for phase in self.steps))

    @property
    def message_count(self) -> int:
        """Return the number of messages, those of the warm-up among them; repeats and end markers not counted."""
        return self.warm_up_count + self.measured_count

    @property
    def end_markers_after_seconds(self) -> float:
        """Return when the first end marker is due, from the start of the load: after everything else."""
        early = self.duplicate_after_seconds if self.duplicate_share else 0
        late = self.late_duplicate_after_seconds or 0
        return self.duration_seconds + max(early, late) + END_MARKERS_AFTER_SECONDS

    @property
    def end_markers_per_second(self) -> float:
        """Return the rate of end markers: the highest at which a publisher may catch up after a stall."""
        return self.peak_per_second * self.catch_up_ratio

    @property
    def publish_seconds(self) -> float:
        """Return how long publishing takes from the start of the load to the last end marker."""
        return self.end_markers_after_seconds + (self.group_count - 1) / self.end_markers_per_second

    @property
    def largest_bytes(self) -> int:
        """Return the largest size of a message, its attributes included."""
        return self.payload_bytes + OVERHEAD_BYTES

    def allowed_anomalies(self) -> Mapping[str, str]:
        """Return the anomalies that are lawful under this profile, by id, and why."""
        if self.consumer == "raw":
            return {"R2": "raw consumers keep no inbox: what comes twice has its effect twice"}
        return {}

    def thresholds(self) -> Thresholds:
        """Return the thresholds of the run's measures."""
        return Thresholds(
            latency_seconds_max=self.latency_seconds_max,
            drain_seconds_max=self.drain_seconds_max,
            recovery_seconds_max=self.recovery_seconds_max,
            throttled_share_max=self.throttled_share_max,
        )

    def as_json(self) -> dict[str, Any]:
        """Return the fields of the profile as written in YAML."""
        return asdict(self)
