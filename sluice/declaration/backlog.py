"""The scaling expression: backlog per task, held still where more tasks cannot help.

Built once as a tree (`sluice.declaration.metric_math`), it renders to CloudWatch metric math for the template and is
evaluated in Python on time series: what is tested is what is deployed.

- *backlog per task* is (visible + in flight) / running tasks. In-flight messages count: without them long jobs look
  like an empty queue and their workers are scaled in.
- The *target* is what one task may have in front of it and still meet the latency: acceptable latency x lanes /
  processing time. AWS: https://docs.aws.amazon.com/autoscaling/ec2/userguide/as-using-sqs-queue.html (read 2026-11-20).
- The *clamp* is for FIFO. A group is worked on by one lane at a time, so behind a hot or blocked group a backlog grows
  that no further task can touch. Then lanes are idle, and an idle lane has no message in flight. So: while fewer
  messages are in flight than nine tenths of the lanes would have, a backlog above the target counts for no more than
  the busy lanes are worth, with a quarter to spare (docs/decisions/0005-idle-lanes.md).
- The *brake* holds a service that makes no progress. A message that failed is in flight until its next try, and no lane
  has it, so to scale on it would start tasks for as long as an outage lasts. So: no value is above the target while
  fewer than half of the receives end in a delete; nor, while more is in flight than there are lanes, as long as a third
  of them does not (docs/decisions/0010-busy-lanes.md).
- The *floor* keeps what is needed: tasks that keep up have no backlog, and a policy on backlog alone takes half of them
  away, waits until they are late, and brings them back. So busy lanes count as well: with 0.85 of all lanes at work a
  task is worth the target, with or without a backlog (docs/decisions/0010-busy-lanes.md).

SQS metrics come 90 s late or more, and an idle queue's up to 15 min; running tasks are counted late as well. A gap then
means "not yet", so a gap repeats the last value. It means "none" only where no value was ever reported, and only for
running tasks, which are not reported at all while there are none. Filling their gaps with 0 instead takes the whole
backlog for one task's and runs to the maximum (docs/decisions/0006-late-metrics.md).
AWS: https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/using-metric-math.html (read 2026-11-20).
"""

from sluice.declaration.metric_math import Combination, Fill, If, Metric, Number, Operation, Term

VISIBLE = "visible"
IN_FLIGHT = "inflight"
EMPTY_RECEIVES = "empty"
RECEIVED = "received"
DELETED = "deleted"
RUNNING = "running"
AGE = "age"
CONCURRENT = "concurrent"

OF_QUEUE = {
    VISIBLE: ("ApproximateNumberOfMessagesVisible", "Average"),
    IN_FLIGHT: ("ApproximateNumberOfMessagesNotVisible", "Average"),
    EMPTY_RECEIVES: ("NumberOfEmptyReceives", "Sum"),
    RECEIVED: ("NumberOfMessagesReceived", "Sum"),
    DELETED: ("NumberOfMessagesDeleted", "Sum"),
    AGE: ("ApproximateAgeOfOldestMessage", "Maximum"),
}
"""Id in an expression -> SQS's metric of the queue, and its statistic; the others are `RUNNING` and `CONCURRENT`."""

SCALE_COOLDOWN_SECONDS = 300
"""As long as it takes until what was scaled is seen in the metrics: docs/decisions/0006-late-metrics.md."""
WAKE_COOLDOWN_SECONDS = 900
"""An idle queue may report that late; until then one task is enough."""

_ZERO = Number(0)


def fill_with_repeat(metric: str) -> Fill:
    """Return a metric by its id, its gaps filled by the last value before the gap; before the first it has none."""
    return Fill(Metric(metric), "REPEAT")


_VISIBLE, _IN_FLIGHT = fill_with_repeat(VISIBLE), fill_with_repeat(IN_FLIGHT)
_RECEIVED, _DELETED = fill_with_repeat(RECEIVED), fill_with_repeat(DELETED)
RUNNING_TASKS = Fill(fill_with_repeat(RUNNING), _ZERO)
"""The running tasks: a gap repeats, and where none was ever reported there is none."""
_CONCURRENT = Fill(fill_with_repeat(CONCURRENT), _ZERO)
"""The invocations that run at once: a function that is not invoked reports none, and a gap is late more often."""
_HEADROOM = 1.25
_IDLE_BELOW = 0.9
_BUSY_ENOUGH = 0.85
_RECEIVES_PER_DELETE = 2
"""From so many receives for a delete on, a service makes no progress."""
_RECEIVES_PER_DELETE_WAITING = 1.5
"""The same while failed messages wait for their next try."""
_NO_BRAKE = Number(1_000_000_000)
_BETWEEN_MESSAGES_SECONDS = 0.25
"""What a lane may spend between two messages, on its delete and next receive, and still count as busy. Generous: in the
region it is some 0.02 s. One that spends more on a much shorter handler looks idle, and its service does not scale."""


def backlog_per_task() -> Term:
    """Return the backlog per running task; with none running, the whole backlog."""
    backlog = Operation(_VISIBLE, "+", _IN_FLIGHT)
    return If(Operation(RUNNING_TASKS, ">", _ZERO), Operation(backlog, "/", RUNNING_TASKS), backlog)


def _in_flight_per_task(*, lanes: int, processing_seconds: float) -> float:
    """Return how many messages a task has in flight, on average, whose lanes all have work; to six digits."""
    return float(f"{lanes * processing_seconds / (processing_seconds + _BETWEEN_MESSAGES_SECONDS):.6g}")


def _is_idle(*, lanes: int, processing_seconds: float) -> Operation:
    """Return whether fewer messages are in flight than nearly all lanes would have; never without a task."""
    busy = _in_flight_per_task(lanes=lanes, processing_seconds=processing_seconds)
    return Operation(_IN_FLIGHT, "<", Operation(RUNNING_TASKS, "*", Number(float(f"{_IDLE_BELOW * busy:.6g}"))))


def clamped_backlog_per_task(target: float, *, lanes: int, processing_seconds: float) -> Term:
    """Return the backlog per task; while lanes are idle, at most what the busy ones are worth.

    With one message per receive, a busy lane is a message in flight. Reporting target x busy / lanes makes target
    tracking ask for the tasks whose lanes have work, so it also scales in from a backlog no task can touch.

    Args:
        target: messages one task may have in front of it.
        lanes: message groups a task works on at once.
        processing_seconds: how long one message is in flight.
    """
    full = Number(_in_flight_per_task(lanes=lanes, processing_seconds=processing_seconds))
    busy = Operation(_IN_FLIGHT, "/", Operation(RUNNING_TASKS, "*", full))
    useful = Operation(busy, "*", Number(_HEADROOM * target))
    held = If(Operation(useful, "<", Number(target)), useful, Number(target))
    raw = backlog_per_task()
    idle = _is_idle(lanes=lanes, processing_seconds=processing_seconds)
    return If(Operation(idle, "AND", Operation(raw, ">", Number(target))), held, raw)


def demand_per_task(target: float, *, lanes: int, processing_seconds: float) -> Term:
    """Return what a service is scaled on: the clamped backlog per task, or what busy lanes are worth if that is more.

    Without progress it is the target at most, so that no task is started.

    A lane is busy here only while its message is in flight, so short handlers, whose lanes spend their time between two
    messages, count for too little, never for too much: then the backlog decides, as it would alone.

    Args:
        target: messages one task may have in front of it.
        lanes: message groups a task works on at once.
        processing_seconds: how long one message is in flight.
    """
    worth = Number(float(f"{target / lanes / _BUSY_ENOUGH:.6g}"))
    busy = Operation(Operation(worth, "*", _IN_FLIGHT), "/", RUNNING_TASKS)
    floor = If(Operation(RUNNING_TASKS, ">", _ZERO), busy, _ZERO)
    clamped = clamped_backlog_per_task(target, lanes=lanes, processing_seconds=processing_seconds)
    brake = If(_makes_no_progress(lanes=lanes), Number(target), _NO_BRAKE)
    return Combination("MIN", (Combination("MAX", (clamped, floor)), brake))


def _makes_no_progress(*, lanes: int) -> Operation:
    """Return whether most receives fail, or failed messages wait for their next try and nothing is deleted.

    Each receive brings one message, so a handled one is a receive and a delete. A handler of hours deletes nothing for
    as long, but has no more in flight than lanes.
    """
    fails = Operation(_RECEIVED, ">", Operation(_DELETED, "*", Number(_RECEIVES_PER_DELETE)))
    waits = Operation(_IN_FLIGHT, ">", Operation(RUNNING_TASKS, "*", Number(lanes)))
    some_fail = Operation(_RECEIVED, ">=", Operation(_DELETED, "*", Number(_RECEIVES_PER_DELETE_WAITING)))
    return Operation(fails, "OR", Operation(waits, "AND", some_fail))


def work_without_workers() -> Term:
    """Return 1 while messages are visible and nobody receives, works on or polls for any: wake from zero.

    SQS metrics only: a service without tasks reports nothing of itself.
    """
    idle = Operation(_IN_FLIGHT, "<", Number(1))
    for signs_of_life in (fill_with_repeat(EMPTY_RECEIVES), fill_with_repeat(RECEIVED)):
        idle = Operation(idle, "AND", Operation(signs_of_life, "<", Number(1)))
    return If(Operation(Operation(_VISIBLE, ">", _ZERO), "AND", idle), Number(1), _ZERO)


def group_stuck(*, acceptable_latency_seconds: float, lanes: int, processing_seconds: float) -> Term:
    """Return 1 while the oldest message is late though lanes are idle: its group is stuck.

    More tasks cannot help; somebody has to look at that group.
    """
    late = Operation(fill_with_repeat(AGE), ">", Number(acceptable_latency_seconds))
    idle = _is_idle(lanes=lanes, processing_seconds=processing_seconds)
    return If(Operation(late, "AND", idle), Number(1), _ZERO)


def capacity_pinned(target: float, *, max_tasks: int, lanes: int, processing_seconds: float) -> Term:
    """Return 1 while all the tasks allowed run, have work, and still have more than the target in front of each."""
    full = Operation(RUNNING_TASKS, ">=", Number(max_tasks))
    behind = Operation(backlog_per_task(), ">", Number(target))
    idle = _is_idle(lanes=lanes, processing_seconds=processing_seconds)
    return If(Operation(full, "AND", behind), If(idle, _ZERO, Number(1)), _ZERO)


def target_backlog(*, acceptable_latency_seconds: float, processing_seconds: float, lanes: int) -> float:
    """Return how many messages one task may have in front of it and still meet the latency; at least its lanes."""
    return acceptable_latency_seconds * lanes / processing_seconds


def late_with_concurrency_left(*, acceptable_latency_seconds: float, concurrency_max: int) -> Term:
    """Return 1 while the oldest message is late though more invocations are allowed: its group is stuck.

    Args:
        acceptable_latency_seconds: how long a message may wait.
        concurrency_max: how many invocations of the function may run at once.
    """
    return _late(acceptable_latency_seconds, Operation(_CONCURRENT, "<", Number(concurrency_max)))


def late_with_all_concurrency(*, acceptable_latency_seconds: float, concurrency_max: int) -> Term:
    """Return 1 while the oldest message is late and as many invocations run as are allowed; arguments as above."""
    return _late(acceptable_latency_seconds, Operation(_CONCURRENT, ">=", Number(concurrency_max)))


def _late(acceptable_latency_seconds: float, and_also: Operation) -> Term:
    late = Operation(fill_with_repeat(AGE), ">", Number(acceptable_latency_seconds))
    return If(Operation(late, "AND", and_also), Number(1), _ZERO)
