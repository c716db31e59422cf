"""The scaling expression: backlog per task, held still where more tasks cannot help.

Built once as a tree, it renders to CloudWatch metric math for the template and is evaluated in Python on time series:
what is tested is what is deployed.

- *backlog per task* is (visible + in flight) / running tasks. In-flight messages count: without them long jobs look
  like an empty queue and their workers are scaled in.
- The *target* is what one task may have in front of it and still meet the latency: acceptable latency x lanes /
  processing time. AWS: https://docs.aws.amazon.com/autoscaling/ec2/userguide/as-using-sqs-queue.html (read 2026-11-20).
- The *clamp* is for FIFO. A group is worked on by one lane at a time, so behind a hot or blocked group a backlog grows
  that no further task can touch. Then lanes are idle, and an idle lane has no message in flight. So: while fewer
  messages are in flight than nine tenths of the lanes would have, a backlog above the target counts for no more than
  the busy lanes are worth, with a quarter to spare (docs/decisions/0005-idle-lanes.md).

SQS metrics come 90 s late or more, and an idle queue's up to 15 min; running tasks are counted late as well. A gap then
means "not yet", so a gap repeats the last value. It means "none" only where no value was ever reported, and only for
running tasks, which are not reported at all while there are none. Filling their gaps with 0 instead takes the whole
backlog for one task's and runs to the maximum (docs/decisions/0006-late-metrics.md).
AWS: https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/using-metric-math.html (read 2026-11-20).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol

type Series = Sequence[float | None]
"""One value a minute, oldest first; None where no data point has arrived."""


class Term(Protocol):
    """A part of the expression."""

    def text(self) -> str:
        """Return it as CloudWatch metric math."""

    def terms(self) -> "tuple[Term, ...]":
        """Return the parts it is made of; a number and a metric have none."""
        return ()

    def value_at(self, series: Mapping[str, Series], minute: int) -> float | None:
        """Return its value in that minute; None when it has no data point."""


@dataclass(frozen=True, slots=True)
class Number(Term):
    """A constant."""

    value: float

    def text(self) -> str:
        """Return the number as CloudWatch reads it, every digit: a rounded target may be above the policy's own."""
        return f"{Decimal(repr(float(self.value))):f}".removesuffix(".0")

    def value_at(self, series: Mapping[str, Series], minute: int) -> float | None:  # noqa: ARG002 (the same in every minute)
        """Return the number."""
        return self.value


@dataclass(frozen=True, slots=True)
class Metric(Term):
    """A metric with its gaps filled by the last value before the gap.

    Before its first data point it counts as `absent`; where that is None it has no value, and neither has anything
    computed from it.
    """

    id: str
    absent: float | None = None

    def text(self) -> str:
        """Return FILL of the metric."""
        repeated = f"FILL({self.id}, REPEAT)"
        return repeated if self.absent is None else f"FILL({repeated}, {self.absent:g})"

    def value_at(self, series: Mapping[str, Series], minute: int) -> float | None:
        """Return the value, filled."""
        known = (value for value in reversed(series[self.id][: minute + 1]) if value is not None)
        return next(known, self.absent)


@dataclass(frozen=True, slots=True)
class Operation(Term):
    """Two terms and one of + * / > < >= AND; comparisons give 1 or 0. Dividing by zero gives no data point."""

    left: Term
    operator: str
    right: Term

    def text(self) -> str:
        """Return it in brackets."""
        return f"({self.left.text()} {self.operator} {self.right.text()})"

    def terms(self) -> tuple[Term, ...]:
        """Return both sides."""
        return (self.left, self.right)

    def value_at(self, series: Mapping[str, Series], minute: int) -> float | None:
        """Return the result; None when either side has none."""
        left, right = self.left.value_at(series, minute), self.right.value_at(series, minute)
        if left is None or right is None or (self.operator == "/" and right == 0):
            return None
        return {
            "+": lambda: left + right,
            "*": lambda: left * right,
            "/": lambda: left / right,
            ">": lambda: float(left > right),
            "<": lambda: float(left < right),
            ">=": lambda: float(left >= right),
            "AND": lambda: float(bool(left) and bool(right)),
        }[self.operator]()


@dataclass(frozen=True, slots=True)
class If(Term):
    """One of two terms, by a condition; without a condition, neither."""

    condition: Term
    then: Term
    otherwise: Term

    def text(self) -> str:
        """Return IF(…)."""
        return f"IF({self.condition.text()}, {self.then.text()}, {self.otherwise.text()})"

    def terms(self) -> tuple[Term, ...]:
        """Return the condition and both branches."""
        return (self.condition, self.then, self.otherwise)

    def value_at(self, series: Mapping[str, Series], minute: int) -> float | None:
        """Return the chosen term's value."""
        condition = self.condition.value_at(series, minute)
        if condition is None:
            return None
        return (self.then if condition else self.otherwise).value_at(series, minute)


def metric_ids(term: Term) -> tuple[str, ...]:
    """Return the id of every metric the term is made of, once, in the order they are first named."""
    ids = (term.id,) if isinstance(term, Metric) else ()
    return tuple(dict.fromkeys((*ids, *(id_ for part in term.terms() for id_ in metric_ids(part)))))


VISIBLE = "visible"
IN_FLIGHT = "inflight"
EMPTY_RECEIVES = "empty"
RECEIVED = "received"
RUNNING = "running"
AGE = "age"

_VISIBLE, _IN_FLIGHT = Metric(VISIBLE), Metric(IN_FLIGHT)
_RUNNING = Metric(RUNNING, absent=0)
_ZERO = Number(0)
_HEADROOM = 1.25
_IDLE_BELOW = 0.9
_BETWEEN_MESSAGES_SECONDS = 0.25
"""What a lane may spend between two messages, on its delete and next receive, and still count as busy. Generous: in the
region it is some 0.02 s. One that spends more on a much shorter handler looks idle, and its service does not scale."""


def backlog_per_task() -> Term:
    """Return the backlog per running task; with none running, the whole backlog."""
    backlog = Operation(_VISIBLE, "+", _IN_FLIGHT)
    return If(Operation(_RUNNING, ">", _ZERO), Operation(backlog, "/", _RUNNING), backlog)


def _in_flight_per_task(*, lanes: int, processing_seconds: float) -> float:
    """Return how many messages a task has in flight, on average, whose lanes all have work; to six digits."""
    return float(f"{lanes * processing_seconds / (processing_seconds + _BETWEEN_MESSAGES_SECONDS):.6g}")


def _is_idle(*, lanes: int, processing_seconds: float) -> Operation:
    """Return whether fewer messages are in flight than nearly all lanes would have; never without a task."""
    busy = _in_flight_per_task(lanes=lanes, processing_seconds=processing_seconds)
    return Operation(_IN_FLIGHT, "<", Operation(_RUNNING, "*", Number(float(f"{_IDLE_BELOW * busy:.6g}"))))


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
    busy = Operation(_IN_FLIGHT, "/", Operation(_RUNNING, "*", full))
    useful = Operation(busy, "*", Number(_HEADROOM * target))
    held = If(Operation(useful, "<", Number(target)), useful, Number(target))
    raw = backlog_per_task()
    idle = _is_idle(lanes=lanes, processing_seconds=processing_seconds)
    return If(Operation(idle, "AND", Operation(raw, ">", Number(target))), held, raw)


def work_without_workers() -> Term:
    """Return 1 while messages are visible and nobody receives, works on or polls for any: wake from zero.

    SQS metrics only: a service without tasks reports nothing of itself.
    """
    idle = Operation(_IN_FLIGHT, "<", Number(1))
    for signs_of_life in (Metric(EMPTY_RECEIVES), Metric(RECEIVED)):
        idle = Operation(idle, "AND", Operation(signs_of_life, "<", Number(1)))
    return If(Operation(Operation(_VISIBLE, ">", _ZERO), "AND", idle), Number(1), _ZERO)


def group_stuck(*, acceptable_latency_seconds: float, lanes: int, processing_seconds: float) -> Term:
    """Return 1 while the oldest message is late though lanes are idle: its group is stuck.

    More tasks cannot help; somebody has to look at that group.
    """
    late = Operation(Metric(AGE), ">", Number(acceptable_latency_seconds))
    idle = _is_idle(lanes=lanes, processing_seconds=processing_seconds)
    return If(Operation(late, "AND", idle), Number(1), _ZERO)


def capacity_pinned(target: float, *, max_tasks: int, lanes: int, processing_seconds: float) -> Term:
    """Return 1 while all the tasks allowed run, have work, and still have more than the target in front of each."""
    full = Operation(_RUNNING, ">=", Number(max_tasks))
    behind = Operation(backlog_per_task(), ">", Number(target))
    idle = _is_idle(lanes=lanes, processing_seconds=processing_seconds)
    return If(Operation(full, "AND", behind), If(idle, _ZERO, Number(1)), _ZERO)


def target_backlog(*, acceptable_latency_seconds: float, processing_seconds: float, lanes: int) -> float:
    """Return how many messages one task may have in front of it and still meet the latency; at least its lanes."""
    return acceptable_latency_seconds * lanes / processing_seconds
