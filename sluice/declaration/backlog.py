"""The expression that a service is scaled on: its backlog per task, limited where more tasks cannot help.

The expression is a tree (`sluice.declaration.metric_math`). It is written into the template as CloudWatch metric math,
and tests and rehearsals evaluate the same tree in Python.

- *backlog per task* is (visible + in flight) / running tasks. In-flight messages count: without them long jobs look
  like an empty queue and their workers are scaled in.
- The *target* is what one task may have in front of it and still meet the latency: acceptable latency x lanes /
  processing time. AWS: https://docs.aws.amazon.com/autoscaling/ec2/userguide/as-using-sqs-queue.html (read 2026-11-20).
- The *clamp* is for FIFO. A group is worked on by one lane at a time, so behind a hot or blocked group a backlog grows
  that no further task can work on. Then lanes are idle, and an idle lane has no message in flight. So: while fewer
  messages are in flight than nine tenths of the lanes would have, a backlog above the target counts for no more than
  the busy lanes are worth, with a quarter to spare (docs/decisions/0005-idle-lanes.md).
- The *brake* stops a service from growing while it makes no progress. A message that failed is in flight until its next
  try although no lane works on it, so the service would grow for as long as an outage lasts. So the value is at most
  the target while fewer than half of the receives end in a delete; while more messages are in flight than there are
  lanes, already when a third of the receives do not (docs/decisions/0010-busy-lanes.md).
- The *floor* keeps tasks that are needed. Tasks that keep up have no backlog; a policy on backlog alone would end half
  of them, and start them again when messages are late. So busy lanes count as well: when 0.85 of a task's lanes work,
  the value is the target, with or without a backlog (docs/decisions/0010-busy-lanes.md).

SQS's metrics come 90 s late or more, those of an idle queue up to 15 min; running tasks are counted late as well. So a
gap means "not yet", and the last value is repeated. Only for running tasks, which are not reported while there are
none, it means "none", and only if no value was ever reported. If their gaps were filled with 0, the whole backlog would
count for one task, and the service would grow to its maximum (docs/decisions/0006-late-metrics.md).
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
"""SQS's metric and statistic by the id in an expression. The ids `RUNNING` and `CONCURRENT` are no metrics of SQS."""

SCALE_COOLDOWN_SECONDS = 300
"""So long it takes until the metrics show the tasks that were started or ended: docs/decisions/0006-late-metrics.md."""
WAKE_COOLDOWN_SECONDS = 900
"""An idle queue may report so late; until then one task is enough."""

_ZERO = Number(0)


def fill_with_repeat(metric: str) -> Fill:
    """Return the metric of an id, with each gap filled by the last value before it; a gap before all values stays."""
    return Fill(Metric(metric), "REPEAT")


_VISIBLE, _IN_FLIGHT = fill_with_repeat(VISIBLE), fill_with_repeat(IN_FLIGHT)
_RECEIVED, _DELETED = fill_with_repeat(RECEIVED), fill_with_repeat(DELETED)
RUNNING_TASKS = Fill(fill_with_repeat(RUNNING), _ZERO)
"""The running tasks: a gap repeats the last value; 0 where no value was ever reported."""
_CONCURRENT = Fill(fill_with_repeat(CONCURRENT), _ZERO)
"""The invocations that run at once: a gap repeats the last value, as most gaps are late values; 0 before the first."""
_HEADROOM = 1.25  # the clamp's quarter to spare
_IDLE_BELOW = 0.9  # the clamp's share of lanes
_BUSY_ENOUGH = 0.85  # the floor's share of lanes
_RECEIVES_PER_DELETE = 2
"""With more receives than this for each delete, a service makes no progress."""
_RECEIVES_PER_DELETE_WAITING = 1.5
"""The same while failed messages wait for their next try."""
_NO_BRAKE = Number(1_000_000_000)  # larger than any backlog
_BETWEEN_MESSAGES_SECONDS = 0.25
"""So long a lane may take between two messages, for its delete and next receive, and still count as busy.

Within the region it takes some 0.02 s. A lane that takes longer, with a much shorter handler, looks idle, and its
service does not scale.
"""


def backlog_per_task() -> Term:
    """Return the backlog per running task; with none running, the whole backlog."""
    backlog = Operation(_VISIBLE, "+", _IN_FLIGHT)
    return If(Operation(RUNNING_TASKS, ">", _ZERO), Operation(backlog, "/", RUNNING_TASKS), backlog)


def _in_flight_per_task(*, lanes: int, processing_seconds: float) -> float:
    """Return how many messages a task has in flight on average while all its lanes have work, to six digits."""
    return float(f"{lanes * processing_seconds / (processing_seconds + _BETWEEN_MESSAGES_SECONDS):.6g}")


def _is_idle(*, lanes: int, processing_seconds: float) -> Operation:
    """Return the term that is 1 while less than 0.9 of what all lanes would have is in flight; 0 without tasks."""
    busy = _in_flight_per_task(lanes=lanes, processing_seconds=processing_seconds)
    return Operation(_IN_FLIGHT, "<", Operation(RUNNING_TASKS, "*", Number(float(f"{_IDLE_BELOW * busy:.6g}"))))


def clamped_backlog_per_task(target: float, *, lanes: int, processing_seconds: float) -> Term:
    """Return the backlog per task; while lanes are idle, at most the value that stands for the busy lanes.

    A busy lane has one message in flight. With the value target x busy lanes / lanes, target tracking wants as many
    tasks as have work, so the service also shrinks while a backlog waits that no task can work on.

    Args:
        target: messages one task may have in front of it.
        lanes: message groups a task works on at once.
        processing_seconds: how long one message is in flight.
    """
    full = Number(_in_flight_per_task(lanes=lanes, processing_seconds=processing_seconds))
    busy = Operation(_IN_FLIGHT, "/", Operation(RUNNING_TASKS, "*", full))
    useful = Operation(busy, "*", Number(_HEADROOM * target))
    clamped = If(Operation(useful, "<", Number(target)), useful, Number(target))
    backlog = backlog_per_task()
    idle = _is_idle(lanes=lanes, processing_seconds=processing_seconds)
    return If(Operation(idle, "AND", Operation(backlog, ">", Number(target))), clamped, backlog)


def demand_per_task(target: float, *, lanes: int, processing_seconds: float) -> Term:
    """Return the term that a service is scaled on: the clamped backlog per task, or the floor of its busy lanes.

    The larger of both counts. While the service makes no progress, the value is at most the target, so that no task is
    started. A lane counts as busy only while its message is in flight. So the floor is too low for short handlers,
    whose lanes spend most of their time between two messages, and never too high; then the backlog decides alone.

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
    """Return the term that is 1 while most messages fail.

    Each receive brings one message, so a message that is handled is one receive and one delete. A third of failed
    receives is enough where failed messages wait for their next try, so that more is in flight than there are lanes. A
    handler that works for hours deletes nothing meanwhile, but has no more in flight than its lanes.
    """
    fails = Operation(_RECEIVED, ">", Operation(_DELETED, "*", Number(_RECEIVES_PER_DELETE)))
    waits = Operation(_IN_FLIGHT, ">", Operation(RUNNING_TASKS, "*", Number(lanes)))
    some_fail = Operation(_RECEIVED, ">=", Operation(_DELETED, "*", Number(_RECEIVES_PER_DELETE_WAITING)))
    return Operation(fails, "OR", Operation(waits, "AND", some_fail))


def work_without_workers() -> Term:
    """Return the term that is 1 while messages are visible and no worker polls: then a first task has to start.

    It reads SQS's metrics only, because a service without tasks reports nothing.
    """
    idle = Operation(_IN_FLIGHT, "<", Number(1))
    for signs_of_life in (fill_with_repeat(EMPTY_RECEIVES), fill_with_repeat(RECEIVED)):
        idle = Operation(idle, "AND", Operation(signs_of_life, "<", Number(1)))
    return If(Operation(Operation(_VISIBLE, ">", _ZERO), "AND", idle), Number(1), _ZERO)


def group_stuck(*, acceptable_latency_seconds: float, lanes: int, processing_seconds: float) -> Term:
    """Return the term that is 1 while the oldest message is late although lanes are idle: its group is stuck.

    More tasks would not help; an operator has to look at that group.
    """
    late = Operation(fill_with_repeat(AGE), ">", Number(acceptable_latency_seconds))
    idle = _is_idle(lanes=lanes, processing_seconds=processing_seconds)
    return If(Operation(late, "AND", idle), Number(1), _ZERO)


def capacity_pinned(target: float, *, max_tasks: int, lanes: int, processing_seconds: float) -> Term:
    """Return the term that is 1 while all allowed tasks run and are busy, with more than the target before each."""
    full = Operation(RUNNING_TASKS, ">=", Number(max_tasks))
    behind = Operation(backlog_per_task(), ">", Number(target))
    idle = _is_idle(lanes=lanes, processing_seconds=processing_seconds)
    return If(Operation(full, "AND", behind), If(idle, _ZERO, Number(1)), _ZERO)


def target_backlog(*, acceptable_latency_seconds: float, processing_seconds: float, lanes: int) -> float:
    """Return how many messages one task may have in front of it and still meet the latency; at least its lanes."""
    return acceptable_latency_seconds * lanes / processing_seconds


def late_with_concurrency_left(*, acceptable_latency_seconds: float, concurrency_max: int) -> Term:
    """Return the term that is 1 while the oldest message is late although more invocations may run: a group is stuck.

    Args:
        acceptable_latency_seconds: how long a message may wait.
        concurrency_max: how many invocations of the function may run at once.
    """
    return _late(acceptable_latency_seconds, Operation(_CONCURRENT, "<", Number(concurrency_max)))


def late_with_all_concurrency(*, acceptable_latency_seconds: float, concurrency_max: int) -> Term:
    """Return the term that is 1 while the oldest message is late and all allowed invocations run.

    The arguments are those of `late_with_concurrency_left`.
    """
    return _late(acceptable_latency_seconds, Operation(_CONCURRENT, ">=", Number(concurrency_max)))


def _late(acceptable_latency_seconds: float, and_also: Operation) -> Term:
    """Return the term that is 1 while the oldest message is late and another condition holds."""
    late = Operation(fill_with_repeat(AGE), ">", Number(acceptable_latency_seconds))
    return If(Operation(late, "AND", and_also), Number(1), _ZERO)
