"""CloudWatch metric math as a tree of terms, which can be written as text and evaluated on time series.

It is evaluated as AWS documents it; "(assumed)" marks what AWS does not document. Three rules that surprise:

- Missing data is not contagious. Between two time series a missing value counts as 0 while the other side has one;
  where neither has one there is no data point. "missing + 0 is 0" was also seen on AWS:
  https://github.com/compiler-explorer/infra/pull/1661. A scalar has no data points, so it fills nothing (assumed).
- A division by zero drops the data point, and so does any other result that is no real number (assumed).
- `IF` with a true condition gives 0 where the chosen series has no data point; with a false condition, no data point.

Texts from this module have brackets around each operation. `sluice.rehearse.reading.expressions` reads any text.
AWS: https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/using-metric-math.html (read 2026-11-23).
"""

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from decimal import Decimal
from typing import Any, Literal, Protocol, cast

type Series = Sequence[float | None]
"""One value for each minute, oldest first; None in a minute without data. Minutes after its end have not come yet."""

_PERIOD_SECONDS = 60


class Term(Protocol):
    """An expression, or a part of one."""

    def text(self) -> str:
        """Return the term as CloudWatch metric math."""

    def terms(self) -> "tuple[Term, ...]":
        """Return the terms that this term consists of, in their order; a number and a metric have none."""
        values = (getattr(self, field.name) for field in fields(cast("Any", self)))
        parts = (part for value in values for part in (value if isinstance(value, tuple) else (value,)))
        return tuple(cast("Term", part) for part in parts if is_dataclass(part))

    def value_at(self, series: Mapping[str, Series], minute: int) -> float | None:
        """Return the term's value in a minute; None without a data point. `series` has each metric by its id."""

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
        """Return the number with all digits: a rounded target could be higher than the target in the policy."""
        return f"{Decimal(repr(float(self.value))):f}".removesuffix(".0")

    def value_at(self, series: Mapping[str, Series], minute: int) -> float | None:  # noqa: ARG002 (the same in every minute)
        return self.value


@dataclass(frozen=True, slots=True)
class Metric(Term):
    """A metric without any change, by its id in the expression."""

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
        term: the time series with gaps.
        filling: `REPEAT`, the last value before the gap; `LINEAR`, a straight line between the values around it; or a
            term, whose value fills the gap. REPEAT fills no gap before the first data point, LINEAR also none after the
            last.
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
        if before is None:
            return None
        if self.filling == "REPEAT":
            return before[1]
        for later_minute in range(minute + 1, _minutes(series)):
            later_value = self.term.value_at(series, later_minute)
            if later_value is not None:
                return _between(before, (later_minute, later_value), minute)
        return None


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
    """Two terms with an operator: + - * / ^ == != < <= > >= AND OR; comparisons, AND and OR give 1 or 0."""

    left: Term
    operator: str
    right: Term

    def text(self) -> str:
        return f"({self.left.text()} {self.operator} {self.right.text()})"

    def value_at(self, series: Mapping[str, Series], minute: int) -> float | None:
        """Return the result; None where neither time series has a data point, and for a division by zero."""
        left, right = self.left.value_at(series, minute), self.right.value_at(series, minute)
        if left is None or right is None:
            if left is right or is_scalar(self.left) or is_scalar(self.right):
                return None
            left, right = left or 0.0, right or 0.0  # a missing value is 0 beside a time series that has one
        return _real(_OPERATORS[self.operator], left, right)


@dataclass(frozen=True, slots=True)
class If(Term):
    """One of two terms, chosen by a condition; no data point in a minute in which the condition has none."""

    condition: Term
    then: Term
    otherwise: Term | None = None

    def text(self) -> str:
        return f"IF({', '.join(term.text() for term in self.terms())})"

    def value_at(self, series: Mapping[str, Series], minute: int) -> float | None:
        """Return the chosen term's value; 0 if the condition holds and the chosen term has no data point."""
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

    ABS, CEIL and FLOOR change each value. DIFF and RATE compare a value with the data point before it, however long ago
    that was; RATE divides by the seconds between them. RUNNING_SUM begins with the series. TIME_SERIES makes a series
    of a scalar. AVG, MAX, MIN, SUM and DATAPOINT_COUNT give one number for all data points. AWS advises against those
    five in alarms, because AWS decides how many data points an alarm retrieves.
    """

    name: str
    term: Term

    def text(self) -> str:
        return f"{self.name}({self.term.text()})"

    def value_at(self, series: Mapping[str, Series], minute: int) -> float | None:
        """Return the result in a minute; None without a data point, and for DIFF and RATE without an earlier one.

        A statistic of a time series without data points is None; only its DATAPOINT_COUNT is 0.
        """
        if (statistic := STATISTICS.get(self.name)) is not None:
            values = _without_none(self.term.value_at(series, each) for each in range(_minutes(series)))
            return statistic(values) if values or self.name == "DATAPOINT_COUNT" else None
        value = self.term.value_at(series, minute)
        if value is None:
            return None
        if (change := _OF_EACH_VALUE.get(self.name)) is not None:
            return _real(change, value)
        if self.name == "RUNNING_SUM":
            return math.fsum(_without_none(self.term.value_at(series, past) for past in range(minute + 1)))
        before = self.term.last_known(series, minute - 1)
        if before is None:
            return None
        earlier_minute, earlier_value = before
        seconds = (minute - earlier_minute) * _PERIOD_SECONDS
        return (value - earlier_value) / (seconds if self.name == "RATE" else 1)


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
    """Several time series combined minute by minute: AVG, DATAPOINT_COUNT, MAX, MIN or SUM of [a, b].

    AVG takes a missing value for 0, as documented; MAX and MIN ignore it (assumed).
    """

    name: str
    parts: tuple[Term, ...]

    def text(self) -> str:
        return f"{self.name}([{', '.join(term.text() for term in self.parts)}])"

    def value_at(self, series: Mapping[str, Series], minute: int) -> float | None:
        """Return the combined value; None in a minute in which none of the series has a data point."""
        values = _without_none(term.value_at(series, minute) for term in self.parts)
        if not values:
            return None
        return math.fsum(values) / len(self.parts) if self.name == "AVG" else STATISTICS[self.name](values)


@dataclass(frozen=True, slots=True)
class Period(Term):
    """The period of a metric in seconds; here always sixty, because `Series` has one value for each minute."""

    metric: Metric

    def text(self) -> str:
        return f"PERIOD({self.metric.text()})"

    def value_at(self, series: Mapping[str, Series], minute: int) -> float | None:  # noqa: ARG002 (the same in every minute)
        return _PERIOD_SECONDS


def is_scalar(term: Term) -> bool:
    """Return whether a term is a single number for all minutes, and not a time series."""
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
    """Return the ids of the metrics in a term, each once, in the order of their first use."""
    ids = (term.id,) if isinstance(term, Metric) else ()
    return tuple(dict.fromkeys((*ids, *(id_ for part in term.terms() for id_ in metric_ids(part)))))


def map_term(term: Term, change: Callable[[Term], Term]) -> Term:
    """Return the expression in which each term is replaced by the result of `change` on it, the inner terms first."""
    parts = {field.name: getattr(term, field.name) for field in fields(cast("Any", term))}
    return change(replace(cast("Any", term), **{name: _map_part(part, change) for name, part in parts.items()}))


def _map_part(part: object, change: Callable[[Term], Term]) -> object:
    """Apply `map_term` to a field's value: a term, a tuple of terms, or anything else, which stays."""
    if isinstance(part, tuple):
        return tuple(_map_part(each, change) for each in part)
    return map_term(cast("Term", part), change) if is_dataclass(part) else part


def _without_none(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _minutes(series: Mapping[str, Series]) -> int:
    """Return the length of the longest series."""
    return max(map(len, series.values()), default=0)


def _between(before: tuple[int, float], after: tuple[int, float], minute: int) -> float:
    """Return the value in a minute of the straight line between two data points, each a minute and a value."""
    (first_minute, first_value), (last_minute, last_value) = before, after
    share = (minute - first_minute) / (last_minute - first_minute)
    return first_value + share * (last_value - first_value)


def _real(function: Callable[..., float], *values: float) -> float | None:
    """Return a function's result; None where it is no finite real number, as after a division by zero."""
    try:
        value = float(function(*values))
    except (ArithmeticError, ValueError):
        return None
    return value if math.isfinite(value) else None
