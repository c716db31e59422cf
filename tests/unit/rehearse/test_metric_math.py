"""Metric math: the tables of its documentation, its text and back, and what is refused.

AWS: https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/using-metric-math.html (read 2026-11-23).
"""

from collections.abc import Sequence
from typing import overload

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.declaration import Consumer, backlog
from sluice.declaration.metric_math import (
    Combination,
    Fill,
    Function,
    If,
    Metric,
    Negation,
    Number,
    Operation,
    Period,
    Series,
    Term,
    is_scalar,
    metric_ids,
)
from sluice.errors import ConfigError
from sluice.rehearse.model.control_loop import LateSeries, WatchedValues
from sluice.rehearse.model.policies import MetricExpression, MetricSource
from sluice.rehearse.reading.expressions import parse
from tests.support.declaration import ENVIRONMENTS

GAP = None
SERIES: dict[str, Series] = {
    # As the documentation has them.
    "metric1": [30, 20, 0, 0],
    "metric2": [20, GAP, 20, GAP],
    # Ours.
    "late": [7, 8, GAP, GAP],
    "gap": [GAP, 4, GAP, 10],
    "never": [GAP, GAP, GAP, GAP],
    "short": [5],
    "wide": [1, GAP, GAP, 10],
    "signed": [-1.5, 1.5, 0, -0.25],
}


def _values(text: str, series: dict[str, Series] = SERIES) -> list[float | None]:
    """Return an expression's value in each minute."""
    term = parse(text)
    return [term.value_at(series, minute) for minute in range(max(map(len, series.values())))]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("(metric1 < metric2)", [0, 0, 1, 0]),
        ("(metric1 >= 30)", [1, 0, 0, 0]),
        ("(metric1 > 15 AND metric2 > 15)", [1, 0, 0, 0]),
    ],
)
def test_comparisons_have_the_documented_values(text: str, values: list[float | None]) -> None:
    assert _values(text) == values


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("IF(metric1, metric2, metric3)", [30, 0, 20, GAP, GAP]),
        ("IF(metric1, 5, metric3)", [5, 5, 20, GAP, GAP]),
        ("IF(metric1, metric2, 5)", [30, 0, 5, 5, GAP]),
        ("IF(metric1, metric2)", [30, 0, GAP, GAP, GAP]),
        ("IF(1, metric2, metric3)", [30, 0, 0, 0, 30]),
        ("IF(0, metric2, metric3)", [0, 0, 20, GAP, 20]),
    ],
)
def test_if_has_the_documented_values(text: str, values: list[float | None]) -> None:
    series: dict[str, Series] = {
        "metric1": [1, 1, 0, 0, GAP],
        "metric2": [30, GAP, 0, 0, 30],
        "metric3": [0, 0, 20, GAP, 20],
    }

    assert _values(text, series) == values


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("late + 1", [8, 9, GAP, GAP]),  # a scalar has no data points
        ("late + metric1", [37, 28, 0, 0]),  # a series has: what the other lacks is 0
        ("late - never", [7, 8, GAP, GAP]),
        ("never * gap", [GAP, 0, GAP, 0]),
        ("never + never", [GAP, GAP, GAP, GAP]),
        ("metric1 / metric2", [1.5, GAP, 0, GAP]),  # by 0, by what counts as 0
        ("metric2 / metric1", [20 / 30, 0, GAP, GAP]),
        ("1 / 0 + metric1", [GAP, GAP, GAP, GAP]),
        ("metric1 ^ 2", [900, 400, 0, 0]),
        ("signed ^ 0.5", [GAP, 1.5**0.5, 0, GAP]),
        ("metric1 ^ 999", [GAP, GAP, 0, 0]),
        ("late * 9 ^ 308 * 9 ^ 308", [GAP, GAP, GAP, GAP]),
        ("-late", [-7, -8, GAP, GAP]),
        ("late == 7", [1, 0, GAP, GAP]),
        ("late != 7", [0, 1, GAP, GAP]),
        ("late <= 7", [1, 0, GAP, GAP]),
        ("late > 7", [0, 1, GAP, GAP]),
        ("metric1 OR metric2", [1, 1, 1, 0]),
        ("metric1 && metric2", [1, 0, 0, 0]),
        ("3 > 2", [1, 1, 1, 1]),
        ("short", [5, GAP, GAP, GAP]),
    ],
)
def test_a_gap_is_zero_beside_a_series_and_a_gap_beside_numbers(text: str, values: list[float | None]) -> None:
    """A gap counts as 0 beside a series and not beside a number; what cannot be computed is a gap."""
    assert _values(text) == values


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("FILL(late, REPEAT)", [7, 8, 8, 8]),
        ("FILL(gap, REPEAT)", [GAP, 4, 4, 10]),
        ("FILL(short, REPEAT)", [5, 5, 5, 5]),
        ("FILL(never, REPEAT)", [GAP, GAP, GAP, GAP]),
        ("FILL(late, LINEAR)", [7, 8, GAP, GAP]),
        ("FILL(gap, LINEAR)", [GAP, 4, 7, 10]),
        ("FILL(wide, LINEAR)", [1, 4, 7, 10]),
        ("FILL(gap, 0)", [0, 4, 0, 10]),
        ("FILL(gap, metric2)", [20, 4, 20, 10]),
        ("FILL(gap, MIN(gap))", [4, 4, 4, 10]),
        ("FILL(FILL(gap, REPEAT), 3)", [3, 4, 4, 10]),
        ("FILL(gap * 2, REPEAT)", [GAP, 8, 8, 20]),
    ],
)
def test_gaps_are_filled(text: str, values: list[float | None]) -> None:
    """With the last value, along a line, with a number or with another series."""
    assert _values(text) == values


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("ABS(signed)", [1.5, 1.5, 0, 0.25]),
        ("CEIL(signed)", [-1, 2, 0, 0]),
        ("FLOOR(signed)", [-2, 1, 0, -1]),
        ("DIFF(metric1)", [GAP, -10, -20, 0]),
        ("DIFF(gap)", [GAP, GAP, GAP, 6]),
        ("RATE(metric1)", [GAP, -10 / 60, -20 / 60, 0]),
        ("RATE(gap)", [GAP, GAP, GAP, 6 / 120]),
        ("RUNNING_SUM(gap)", [GAP, 4, GAP, 14]),
        ("TIME_SERIES(10)", [10, 10, 10, 10]),
        ("TIME_SERIES(10) + late", [17, 18, 10, 10]),
        ("late / PERIOD(late)", [7 / 60, 8 / 60, GAP, GAP]),
        ("metric1 - AVG(gap)", [23, 13, -7, -7]),
        ("metric1 - MIN(metric1)", [30, 20, 0, 0]),
        ("metric1 - MAX(metric1)", [0, -10, -30, -30]),
        ("metric1 + SUM(gap)", [44, 34, 14, 14]),
        ("metric1 + DATAPOINT_COUNT(gap)", [32, 22, 2, 2]),
        ("metric1 + DATAPOINT_COUNT(never)", [30, 20, 0, 0]),
        ("metric1 + AVG(never)", [GAP, GAP, GAP, GAP]),
        ("SUM([late, gap])", [7, 12, GAP, 10]),
        ("AVG([late, gap])", [3.5, 6, GAP, 5]),
        ("MIN([late, gap])", [7, 4, GAP, 10]),
        ("MAX([late, gap, 9])", [9, 9, 9, 10]),
        ("DATAPOINT_COUNT([late, gap])", [1, 2, GAP, 1]),
    ],
)
def test_functions_of_metric_math_have_their_documented_values(text: str, values: list[float | None]) -> None:
    assert _values(text) == values


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("1 + 2 * 3", "(1 + (2 * 3))"),
        ("a - b - c", "((a - b) - c)"),
        ("a / b * c", "((a / b) * c)"),
        ("a ^ b ^ c", "(a ^ (b ^ c))"),
        ("-a ^ 2", "(-(a ^ 2))"),
        ("2 ^ -a", "(2 ^ (-a))"),
        ("-a * b", "((-a) * b)"),
        ("a + b > c == d", "(((a + b) > c) == d)"),
        ("a > 1 AND b < 2 OR c", "(((a > 1) AND (b < 2)) OR c)"),
        ("a || b && c", "(a OR (b AND c))"),
        ("IF(a>1,b)", "IF((a > 1), b)"),
        ("((a))", "a"),
        ("\n FILL( a ,REPEAT )", "FILL(a, REPEAT)"),
        ("007.50 + .5", "(7.5 + 0.5)"),
        ("MAX([a,b])+MAX(a)", "(MAX([a, b]) + MAX(a))"),
        ("errorsAND", "errorsAND"),
    ],
)
def test_text_is_read_with_the_usual_precedence_and_written_with_brackets(text: str, same: str) -> None:
    assert parse(text).text() == same


def test_an_expression_may_name_others() -> None:
    """The id of another expression stands for it, as in an alarm's list of metrics."""
    per_task = parse("visible / running")

    assert parse("IF(running > 0, e1, visible)", {"e1": per_task}).text() == (
        "IF((running > 0), (visible / running), visible)"
    )


_CONSUMERS = [consumer for environment in ENVIRONMENTS.values() for consumer in environment.consumers]


@pytest.mark.parametrize("consumer", _CONSUMERS, ids=lambda consumer: consumer.name)
def test_deployed_expressions_are_read_as_they_are_meant(consumer: Consumer) -> None:
    """The rehearsal reads our own alarms from templates as anybody's."""
    for term in (
        backlog.backlog_per_task(),
        backlog.work_without_workers(),
        consumer.demand_per_task,
        consumer.group_stuck,
        consumer.capacity_pinned,
    ):
        assert parse(term.text()) == term


_ARRAYED = st.sampled_from(["AVG", "DATAPOINT_COUNT", "MAX", "MIN", "SUM"])
_OPERATORS = st.sampled_from(["+", "-", "*", "/", "^", "==", "!=", "<", "<=", ">", ">=", "AND", "OR"])
_METRICS = st.from_regex(r"[a-z][A-Za-z0-9_]{0,4}", fullmatch=True).map(Metric)
_FUNCTIONS = st.sampled_from(["ABS", "CEIL", "FLOOR", "TIME_SERIES", "DIFF", "RATE", "RUNNING_SUM"])


def _larger(terms: st.SearchStrategy[Term]) -> st.SearchStrategy[Term]:
    return st.one_of(
        st.builds(Negation, terms),
        st.builds(Operation, terms, _OPERATORS, terms),
        st.builds(If, terms, terms, st.none() | terms),
        st.builds(Fill, terms, st.sampled_from(["REPEAT", "LINEAR"]) | terms),
        st.builds(Function, _FUNCTIONS, terms),
        st.builds(Function, _ARRAYED, terms),
        st.builds(Combination, _ARRAYED, st.lists(terms, min_size=1, max_size=3).map(tuple)),
    )


_TERMS = st.recursive(
    st.builds(Number, st.floats(0, 1e12) | st.integers(0, 10**6)) | _METRICS | st.builds(Period, _METRICS), _larger
)


@settings(deadline=None, database=None, print_blob=True)
@given(term=_TERMS)
def test_every_term_is_read_from_its_own_text(term: Term) -> None:
    """Parsing inverts writing, for random terms."""
    assert parse(term.text()) == term


def _metrics_of(term: Term) -> set[str]:
    """Return the ids of the metrics in a term."""
    return {term.id} if isinstance(term, Metric) else {id_ for part in term.terms() for id_ in _metrics_of(part)}


@settings(deadline=None, database=None, print_blob=True)
@given(term=_TERMS, data=st.data())
def test_a_term_has_a_value_or_none_whatever_the_metrics_are(term: Term, data: st.DataObject) -> None:
    """Never an error, infinity or a complex number; a scalar is the same in every minute."""
    values = st.lists(st.none() | st.floats(-1e300, 1e300), max_size=4)
    series: dict[str, Series] = {id_: data.draw(values) for id_ in metric_ids(term)}

    results = [term.value_at(series, minute) for minute in range(4)]

    assert set(metric_ids(term)) == _metrics_of(term)
    assert all(result is None or abs(result) < float("inf") for result in results)
    assert not is_scalar(term) or len(set(results)) == 1


@settings(deadline=None, database=None, print_blob=True)
@given(term=_TERMS, data=st.data())
def test_watched_values_are_those_of_the_whole_expression_each_minute(term: Term, data: st.DataObject) -> None:
    """A value that is kept from an earlier minute is final; each metric comes late by its own number of minutes."""
    ids = metric_ids(term)
    reported = {id_: data.draw(st.lists(st.none() | st.floats(-9, 9), min_size=6, max_size=6)) for id_ in ids}
    late = {id_: data.draw(st.integers(0, 3)) for id_ in ids}
    metrics = {id_: MetricSource(namespace="any", name=id_, dimensions={}, statistic="Average") for id_ in ids}
    values = WatchedValues(MetricExpression(term=term, metrics=metrics, text=term.text()))

    for minute in range(6):
        known = {id_: LateSeries(reported[id_][: minute + 1], late[id_]) for id_ in ids}
        expected = [term.value_at(known, past) for past in range(max(0, minute - 3), minute + 1)]
        assert values.before(minute, 4, lambda metric, known=known: known[metric.name]) == expected  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a +", "metric math 'a +', character 4: the end is not understood; allowed here: (, -, a function,"),
        ("a $ b", "metric math 'a $ b', character 3: '$' is not understood; allowed here: "),
        ("a b", "metric math 'a b', character 3: 'b' is not understood; allowed here: * or /, +, -, AND, OR, ^,"),
        ("", "metric math '', character 1: the end is not understood"),
        ("a\n)", r"metric math 'a\n)', character 3: ')' is not understood"),
        ("1 + LOG(a)", "metric math '1 + LOG(a)', character 5: LOG is not understood; allowed here: ABS, AVG, CEIL, "),
        ("FILL(a)", "character 1: FILL with these arguments is not understood; allowed here: FILL(series, REPEAT or"),
        ("FILL(a, FIRST)", "allowed here: FILL(series, REPEAT or LINEAR or a value); correct the expression"),
        ("IF(a)", "allowed here: IF(condition, value), IF(condition, value, value); correct the expression"),
        ("PERIOD(a + b)", "allowed here: PERIOD(metric); correct the expression"),
        ("MAX(a, b)", "allowed here: MAX([series, …]), MAX(series); correct the expression"),
        ("ABS([a, b])", "allowed here: ABS(series); correct the expression"),
        ("REPEAT", "character 7: the end is not understood; allowed here: (; correct"),
        ("-" * 5_000 + "a", "character 1: too deep a nesting is not understood"),
    ],
)
def test_invalid_metric_math_is_refused_in_one_line(text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(text)

    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)


class _CountedReads(Sequence[float | None]):
    """A day by the minute that counts what is read of it and cannot be copied."""

    def __init__(self, values: Sequence[float | None]) -> None:
        self.values, self.reads = values, 0

    def __len__(self) -> int:
        return len(self.values)

    @overload
    def __getitem__(self, index: int) -> float | None: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[float | None]: ...
    def __getitem__(self, index: int | slice) -> float | Sequence[float | None] | None:
        assert isinstance(index, int), "a copy"
        self.reads += 1
        return self.values[index]


@pytest.mark.parametrize("term", [backlog.fill_with_repeat("visible"), parse("FILL(visible + 0, REPEAT)")])
def test_a_filled_gap_of_two_minutes_reads_those_and_the_value_before(term: Term) -> None:
    """At the end of a day; reading the whole series each minute would take hours."""
    visible = _CountedReads([*range(1_438), GAP, GAP])

    assert term.value_at({"visible": visible}, 1_439) == 1_437
    assert visible.reads <= 4
