"""CloudWatch metric math as a tree: written as text, evaluated on time series.

Evaluated as documented. Where the documentation is silent the docstring says what is assumed. What surprises:

- Missing data is not contagious. Between two time series a missing value counts as 0 while the other side has one;
  where neither has one there is no data point. "missing + 0 is 0" was also seen on AWS:
  https://github.com/compiler-explorer/infra/pull/1661. A scalar has no data points, so it fills nothing (assumed).
- A division by zero drops the data point, and so does any other result that is no real number (assumed).
- `IF` whose condition holds gives 0 where the chosen series has no data point; where it does not hold, none.

What this module writes is in brackets; `sluice.rehearse.reading.expressions` reads what others wrote.
AWS: https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/using-metric-math.html (read 2026-11-23).
"""

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from decimal import Decimal
from typing import Any, Literal, Protocol, cast

type Series = Sequence[float | None]
"""One value a minute, oldest first; None where no data point has arrived. What it ends before has not arrived."""

_PERIOD_SECONDS = 60


class Term(Protocol):
    """A part of an expression."""

    def text(self) -> str:
        """Return it as CloudWatch metric math."""

    def terms(self) -> "tuple[Term, ...]":
        """Return the parts it is made of, in their order; a number and a metric have none."""
        values = (getattr(self, field.name) for field in fields(cast("Any", self)))
        parts = (part for value in values for part in (value if isinstance(value, tuple) else (value,)))
        return tuple(cast("Term", part) for part in parts if is_dataclass(part))

    def value_at(self, series: Mapping[str, Series], minute: int) -> float | None:
        """Return its value in that minute; None when it has no data point."""

    def last_known(self, series: Mapping[str, Series], minute: int) -> tuple[int, float] | None:
        """Return its newest data point up to that minute, with its minute; None when there is none."""
        for past in range(minute, -1, -1):
            if (value := self.value_at(series, past)) is not None:
                return past, value
        return None


@dataclass(frozen=True, slots=True)
class Number(Term):
    """A constant, 0 or more: in the text a minus is an operator."""

    value: float

    def text(self) -> str:
        """Return the number as CloudWatch reads it, every digit: a rounded target may be above the policy's own."""
        return f"{Decimal(repr(float(self.value))):f}".removesuffix(".0")

    def value_at(self, series: Mapping[str, Series], minute: int) -> float | None:  # noqa: ARG002 (the same in every minute)
        return self.value


@dataclass(frozen=True, slots=True)
class Metric(Term):
    """A metric as it was reported, by its id in the expression."""

    id: str

    def text(self) -> str:
        return self.id

    def value_at(self, series: Mapping[str, Series], minute: int) -> float | None:
        values = series[self.id]
        return values[minute] if minute < len(values) else None

    def last_known(self, series: Mapping[str, Series], minute: int) -> tuple[int, float] | None:
        """Return its newest data point up to that minute, with its minute; None when there is none."""
        values = series[self.id]
        for past in range(min(minute, len(values) - 1), -1, -1):
            if (value := values[past]) is not None:
                return past, value
        return None


@dataclass(frozen=True, slots=True)
class Fill(Term):
    """A time series with its gaps filled.

    Args:
        term: what has gaps.
        filling: `REPEAT`, the last value before the gap; `LINEAR`, a straight line between the values around it; or a
            term, whose value is taken. Before the first data point REPEAT fills nothing, and LINEAR neither there nor
            after the last.
    """

    term: Term
    filling: Literal["REPEAT", "LINEAR"] | Term

    def text(self) -> str:
        return f"FILL({self.term.text()}, {self.filling if isinstance(self.filling, str) else self.filling.text()})"

    def value_at(self, series: Mapping[str, Series], minute: int) -> float | None:
        if (value := self.term.value_at(series, minute)) is not None:
            return value
        if not isinstance(self.filling, str):
            return self.filling.value_at(series, minute)
        before = self.term.last_known(series, minute)
        if before is None or self.filling == "REPEAT":
            return before and before[1]
        later = ((after, self.term.value_at(series, after)) for after in range(minute + 1, _minutes(series)))
        return next((_between(before, (after, end), minute) for after, end in later if end is not None), None)


@dataclass(frozen=True, slots=True)
class Negation(Term):
    """Unary minus."""

    term: Term

    def text(self) -> str:
        return f"(-{self.term.text()})"

    def value_at(self, series: Mapping[str, Series], minute: int) -> float | None:
        value = self.term.value_at(series, minute)
        return None if value is None else -value


_OPERATORS: Mapping[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "^": math.pow,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "AND": lambda left, right: left != 0 and right != 0,
    "OR": lambda left, right: left != 0 or right != 0,
}


@dataclass(frozen=True, slots=True)
class Operation(Term):
    """Two terms and one of + - * / ^ == != < <= > >= AND OR; comparisons and logic give 1 or 0."""

    left: Term
    operator: str
    right: Term

    def text(self) -> str:
        return f"({self.left.text()} {self.operator} {self.right.text()})"

    def value_at(self, series: Mapping[str, Series], minute: int) -> float | None:
        """Return the result; None where no side that is a time series has a data point, and of a division by zero."""
        left, right = self.left.value_at(series, minute), self.right.value_at(series, minute)
        if left is None or right is None:
            if left is right or is_scalar(self.left) or is_scalar(self.right):
                return None
            left, right = left or 0.0, right or 0.0
        return _real(_OPERATORS[self.operator], left, right)


@dataclass(frozen=True, slots=True)
class If(Term):
    """One of two terms, by a condition; without a condition, neither."""

    condition: Term
    then: Term
    otherwise: Term | None = None

    def text(self) -> str:
        return f"IF({', '.join(term.text() for term in self.terms())})"

    def value_at(self, series: Mapping[str, Series], minute: int) -> float | None:
        """Return the chosen term's value; where a condition holds and there is none, 0."""
        condition = self.condition.value_at(series, minute)
        if condition is None:
            return None
        if condition:
            value = self.then.value_at(series, minute)
            return 0.0 if value is None else value
        return None if self.otherwise is None else self.otherwise.value_at(series, minute)


@dataclass(frozen=True, slots=True)
class Function(Term):
    """A function of one time series.

    ABS, CEIL and FLOOR are of each value. DIFF and RATE compare it with the data point before it, however long before;
    RATE is by the second. RUNNING_SUM begins with the series. TIME_SERIES makes a scalar a series. AVG, MAX, MIN, SUM
    and DATAPOINT_COUNT are one number, of all the data points it has; AWS advises against them in alarms: how many data
    points an alarm retrieves is AWS's choice.
    """

    name: str
    term: Term

    def text(self) -> str:
        return f"{self.name}({self.term.text()})"

    def value_at(self, series: Mapping[str, Series], minute: int) -> float | None:
        """Return the result; None of a minute without a data point, or of a first one that has to be compared.

        A statistic of a time series without data points is None, but its count is 0.
        """
        if (statistic := STATISTICS.get(self.name)) is not None:
            values = _without_none(self.term.value_at(series, each) for each in range(_minutes(series)))
            return statistic(values) if values or self.name == "DATAPOINT_COUNT" else None
        value = self.term.value_at(series, minute)
        if value is None:
            return None
        if (each := _OF_EACH_VALUE.get(self.name)) is not None:
            return _real(each, value)
        if self.name == "RUNNING_SUM":
            return math.fsum(_without_none(self.term.value_at(series, past) for past in range(minute + 1)))
        before = self.term.last_known(series, minute - 1)
        if before is None:
            return None
        seconds = (minute - before[0]) * _PERIOD_SECONDS
        return (value - before[1]) / (seconds if self.name == "RATE" else 1)


_OF_EACH_VALUE: Mapping[str, Callable[[float], float]] = {
    "ABS": abs,
    "CEIL": math.ceil,
    "FLOOR": math.floor,
    "TIME_SERIES": float,
}
FUNCTIONS = (*_OF_EACH_VALUE, "DIFF", "RATE", "RUNNING_SUM")
STATISTICS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "AVG": lambda values: math.fsum(values) / len(values),
    "DATAPOINT_COUNT": len,
    "MAX": max,
    "MIN": min,
    "SUM": math.fsum,
}


@dataclass(frozen=True, slots=True)
class Combination(Term):
    """Several time series made one, minute by minute: AVG, DATAPOINT_COUNT, MAX, MIN or SUM of [a, b].

    To AVG a missing value is 0, as documented; MAX and MIN look at those there are (assumed).
    """

    name: str
    parts: tuple[Term, ...]

    def text(self) -> str:
        return f"{self.name}([{', '.join(term.text() for term in self.parts)}])"

    def value_at(self, series: Mapping[str, Series], minute: int) -> float | None:
        """Return the value; None in a minute in which none of them has one."""
        values = _without_none(term.value_at(series, minute) for term in self.parts)
        if not values:
            return None
        return math.fsum(values) / len(self.parts) if self.name == "AVG" else STATISTICS[self.name](values)


@dataclass(frozen=True, slots=True)
class Period(Term):
    """The period of a metric in seconds; here of every metric a minute, as `Series` are."""

    metric: Metric

    def text(self) -> str:
        return f"PERIOD({self.metric.text()})"

    def value_at(self, series: Mapping[str, Series], minute: int) -> float | None:  # noqa: ARG002 (the same in every minute)
        return _PERIOD_SECONDS


def is_scalar(term: Term) -> bool:
    """Return whether a term is one number, and not a time series."""
    if isinstance(term, Metric | Fill | Combination):
        return False
    if isinstance(term, Function) and term.name not in {"ABS", "CEIL", "FLOOR"}:
        return term.name in STATISTICS
    return isinstance(term, Period) or all(map(is_scalar, term.terms()))


def reads_later_points(term: Term) -> bool:
    """Return whether a term's value in a minute may depend on data points of later minutes."""
    if (isinstance(term, Fill) and term.filling == "LINEAR") or (
        isinstance(term, Function) and term.name in STATISTICS
    ):
        return True
    return any(map(reads_later_points, term.terms()))


def metric_ids(term: Term) -> tuple[str, ...]:
    """Return the id of every metric the term is made of, once, in the order they are first named."""
    ids = (term.id,) if isinstance(term, Metric) else ()
    return tuple(dict.fromkeys((*ids, *(id_ for part in term.terms() for id_ in metric_ids(part)))))


def map_term(term: Term, change: Callable[[Term], Term]) -> Term:
    """Return the expression with every part replaced by what `change` makes of it, the inner parts first."""
    parts = {field.name: getattr(term, field.name) for field in fields(cast("Any", term))}
    return change(replace(cast("Any", term), **{name: _map_part(part, change) for name, part in parts.items()}))


def _map_part(part: object, change: Callable[[Term], Term]) -> object:
    if isinstance(part, tuple):
        return tuple(_map_part(each, change) for each in part)
    return map_term(cast("Term", part), change) if is_dataclass(part) else part


def _without_none(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _minutes(series: Mapping[str, Series]) -> int:
    return max(map(len, series.values()), default=0)


def _between(before: tuple[int, float], after: tuple[int, float], minute: int) -> float:
    """Return what a straight line between two data points has in a minute between them."""
    share = (minute - before[0]) / (after[0] - before[0])
    return before[1] + share * (after[1] - before[1])


def _real(function: Callable[..., float], *values: float) -> float | None:
    """Return a function's result as a number; None where there is none, which drops the data point."""
    try:
        value = float(function(*values))
    except (ArithmeticError, ValueError):
        return None
    return value if math.isfinite(value) else None
