"""The figures of the page: the chart of each series, with its words, and its numbers as a table."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sluice.judge.folder.series_schema import RunSeries
from sluice.judge.report.summary import recovery
from sluice.pages import charts, units
from sluice.pages.charts import Axis, Band, ChartLine
from sluice.pages.parts import Figure, Table, draw_figure

_QUEUE_COLOURS = 6
_QUEUE_DASHES: tuple[tuple[int, ...], ...] = ((), (6, 2), (2, 2), (8, 2, 2, 2), (1, 3), (10, 4))
_PERCENTILES: tuple[tuple[str, str, tuple[int, ...]], ...] = (
    ("max", "var(--max)", (2, 2)),
    ("p99", "var(--p99)", ()),
    ("p95", "var(--p95)", ()),
    ("p50", "var(--p50)", ()),
)
_LOG_FROM = 30  # the ratio of largest to smallest value from which an axis is logarithmic
_US_PER_MS, _US = 1_000, 1_000_000
_VISIBLE_SHARE = 0.005  # of the axis; a shorter fault is drawn as a line
_LABELS_MAX = 60  # with more faults, only the table names them


def _time_axis(series: RunSeries) -> tuple[float, Axis, tuple[float, float] | None]:
    """Return (seconds of the time axis' unit, the axis, the warm-up on the axis)."""
    span = series["bin_seconds"] * series["bin_count"]
    divisor, unit = next(
        (size, name)
        for size, name, up_to in ((1, "seconds", 180), (60, "minutes", 10_800), (3_600, "hours", math.inf))
        if span <= up_to
    )
    axis = Axis(title=f"{unit} since the first intended publish", domain=(0, span / divisor))
    warm_up = None if series["warm_up"] is None else (series["warm_up"][0] / divisor, series["warm_up"][1] / divisor)
    return divisor, axis, warm_up


def _bin_points(series: RunSeries, values: Sequence[float | None], by: float = 1) -> list[tuple[float, float | None]]:
    """Return (middle of the bin, value divided by `by`) for every bin."""
    middle = series["bin_seconds"] / _time_axis(series)[0]
    return [((index + 0.5) * middle, None if value is None else value / by) for index, value in enumerate(values)]


def names(series: RunSeries) -> dict[str, str]:
    """Return the name of each queue in a legend."""
    return units.short_names(list(series["queues"]))


def _queue_lines(series: RunSeries, measure: str, by: float = 1) -> list[ChartLine]:
    short = names(series)
    return _coloured_lines(
        {short[queue]: _bin_points(series, of[measure], by) for queue, of in series["queues"].items()}
    )


def _coloured_lines(points_by_name: Mapping[str, Sequence[tuple[float, float | None]]]) -> list[ChartLine]:
    """Return a line for each name, each in another colour and dash."""
    return [
        ChartLine(name, points, f"var(--s{index % _QUEUE_COLOURS})", _QUEUE_DASHES[index % len(_QUEUE_DASHES)])
        for index, (name, points) in enumerate(points_by_name.items())
    ]


def _over_time(
    series: RunSeries,
    lines: Sequence[ChartLine],
    y: Axis,
    description: str,
    *,
    name: str,
    title: str,
    is_stepped: bool = False,
) -> Figure:
    """Return lines over the time of a run as a figure."""
    _, x, warm_up = _time_axis(series)
    chart = charts.lines(lines, x=x, y=y, shade=warm_up, is_stepped=is_stepped)
    return draw_figure(chart, name=name, title=title, description=description, svg_title=f"{title} over time")


def throughput(series: RunSeries, counted: str = "messages") -> Figure:
    """Return messages, or what else is counted, per second, in and out."""
    seconds = series["bin_seconds"]
    published = ChartLine("published", _bin_points(series, series["published"], seconds), "var(--ink)")
    description = (
        f"Published, and received for the first time from each queue, in bins of {seconds:g} s."
        f" At most {units.rate(max(series['published'], default=0) / seconds)} were published."
    )
    lines = [published, *_queue_lines(series, "received", seconds)]
    return _over_time(
        series, lines, Axis(title=f"{counted} per second"), description, name="throughput", title="Throughput"
    )


def backlog(series: RunSeries, counted: str = "messages") -> Figure:
    """Return how many messages, or what else is counted, waited in each queue."""
    most = _largest_text(series, "waiting")
    description = f"Acknowledged and not yet received once, at the end of each bin. Most at once: {most}."
    lines = _queue_lines(series, "waiting")
    return _over_time(series, lines, Axis(title=f"{counted} waiting"), description, name="backlog", title="Backlog")


def tasks(series: RunSeries) -> Figure:
    """Return how many tasks received from each queue."""
    description = (
        f"At work, each from the first event it wrote down to its last. Most at once: {_largest_text(series, 'tasks')}."
    )
    lines = _queue_lines(series, "tasks")
    return _over_time(series, lines, Axis(title="tasks"), description, name="tasks", title="Tasks", is_stepped=True)


def _largest_text(series: RunSeries, measure: str) -> str:
    """Return the largest value of a measure for each queue, as text."""
    short = names(series)
    return ", ".join(f"{short[queue]} {max(of[measure], default=0):,}" for queue, of in series["queues"].items())


def _latency_axis(series: RunSeries) -> Axis:
    """Return the one axis of all latencies, so that queues can be compared: logarithmic when they differ widely."""
    of_queues = [of["latency_us"] for of in series["queues"].values()]
    highest = max((value for of in of_queues for value in of["max"] if value is not None), default=1_000_000)
    lowest = min((value for of in of_queues for value in of["p50"] if value is not None), default=0)
    lowest = max(lowest, _US_PER_MS)
    if highest / lowest >= _LOG_FROM:
        bounds = 10 ** math.floor(math.log10(lowest / _US_PER_MS)), 1.15 * highest / _US_PER_MS
        return Axis(title="latency, logarithmic", domain=bounds, is_log=True, is_duration=True)
    return Axis(title="latency", domain=(0, 1.05 * highest / _US_PER_MS), is_duration=True)


def latency(series: RunSeries, queue: str, *, name: str) -> Figure:
    """Return a chart of one queue's latency percentiles, over the time at which the messages were due."""
    of = series["queues"][queue]["latency_us"]
    lines = [
        ChartLine(percentile, _bin_points(series, _at_least_a_millisecond(of[percentile]), _US_PER_MS), colour, dash)
        for percentile, colour, dash in _PERCENTILES
    ]
    worst = max((value for value in of["p99"] if value is not None), default=None)
    description = f"From the intended publish to the first receive. The worst p99 of a bin is {units.duration(worst)}."
    title = f"Latency, {names(series)[queue]}"
    return _over_time(series, lines, _latency_axis(series), description, name=name, title=title)


def _at_least_a_millisecond(values: Sequence[int | None]) -> list[float | None]:
    """Return the values, raised to at least a millisecond: a logarithmic axis has no zero, and clocks are no finer."""
    return [None if value is None else max(value, _US_PER_MS) for value in values]


def ranks(series: RunSeries, queue: str, *, name: str) -> Figure | None:
    """Return one queue's latency percentiles from the hottest groups to the coldest; None with less than two ranks."""
    found = [rank["latency_us"].get(queue) for rank in series["ranks"]]
    if len(found) < 2:
        return None
    chart = charts.lines(
        [
            ChartLine(percentile, _rank_points([None if of is None else of[percentile] for of in found]), colour, dash)
            for percentile, colour, dash in _PERCENTILES
        ],
        x=Axis(title=_rank_axis_title(series["ranks"]), domain=(0.5, len(found) + 0.5)),
        y=_latency_axis(series),
    )
    hottest, coldest = (of["p99"] if of else None for of in (found[0], found[-1]))
    description = (
        f"p99 is {units.duration(hottest)} in the hottest {_group_count_text(series['ranks'][0])}"
        f" and {units.duration(coldest)} in the coldest {_group_count_text(series['ranks'][-1])}."
    )
    title = f"Latency by group, {names(series)[queue]}"
    return draw_figure(chart, name=name, title=title, description=description)


def _rank_points(values: Sequence[int | None]) -> list[tuple[float, float | None]]:
    return [
        (rank, None if us is None else us / _US_PER_MS) for rank, us in enumerate(_at_least_a_millisecond(values), 1)
    ]


def _rank_axis_title(ranks: Sequence[Mapping[str, Any]]) -> str:
    if all(rank["groups"] == 1 for rank in ranks):
        return "groups, hottest first"
    return f"groups in {len(ranks)} parts of about {ranks[0]['groups']:,}, hottest first"


def _group_count_text(rank: Mapping[str, Any]) -> str:
    return "group" if rank["groups"] == 1 else units.plural(rank["groups"], "group")


def failures(series: RunSeries) -> Figure | None:
    """Return a chart of the failures over time; None if there were none."""
    if not series["failed"]:
        return None
    lines = _coloured_lines(
        {code: _bin_points(series, counts, series["bin_seconds"]) for code, counts in series["failed"].items()}
    )
    counts = ", ".join(f"{code} {units.times(sum(counts))}" for code, counts in series["failed"].items())
    y, description = Axis(title="failures per second"), f"By error code: {counts}."
    return _over_time(series, lines, y, description, name="failed", title="Failed attempts")


def faults(series: RunSeries, done: Sequence[Mapping[str, Any]]) -> Figure | None:
    """Return the faults over backlog, latency and tasks, on one time axis; None without any.

    Args:
        series: of the run.
        done: the faults in the measures of a verdict.
    """
    if not done:
        return None
    divisor, x, warm_up = _time_axis(series)
    bands = [_band(fault, series, divisor, is_labelled=len(done) <= _LABELS_MAX) for fault in done]
    bare = replace(x, is_bare=True)
    p99 = {
        name: _bin_points(series, _at_least_a_millisecond(of["latency_us"]["p99"]), _US_PER_MS)
        for name, of in zip(names(series).values(), series["queues"].values(), strict=True)
    }
    most = max((task for of in series["queues"].values() for task in of["tasks"]), default=0)
    rows = (
        (_queue_lines(series, "waiting"), Axis(title="backlog")),
        (_coloured_lines(p99), replace(_latency_axis(series), title="p99")),
        (_queue_lines(series, "tasks"), Axis(title="tasks", domain=(0, most + 0.5))),
    )
    panels = [
        charts.lines(
            lines,
            x=x if position == len(rows) - 1 else bare,
            y=y,
            shade=warm_up,
            behind=bands,
            size=(charts.WIDTH, 90 if position < len(rows) - 1 else 60),
            is_stepped=position == len(rows) - 1,
            has_legend=position == 0,
        )
        for position, (lines, y) in enumerate(rows)
    ]
    description = (
        "Each fault, and as a thin line how long until a call of each of its queues had succeeded after it. Below,"
        " messages waiting, p99 of the latency, and tasks at work, from the first event each wrote down to its last."
    )
    return draw_figure(
        charts.stack([charts.bands(bands, x=bare), *panels]), name="faults", title="Faults", description=description
    )


def _band(fault: Mapping[str, Any], series: RunSeries, divisor: float, *, is_labelled: bool) -> Band:
    """Return a fault as a band of the chart; a fault without a duration is a line."""
    began, ended = (
        0 if at_us is None else (at_us - series["started_at_us"]) / _US / divisor
        for at_us in (fault["began_at_us"], fault["ended_at_us"])
    )
    least = series["bin_seconds"] * series["bin_count"] / divisor * _VISIBLE_SHARE
    return Band(
        began=began,
        ended=began if ended - began < least else ended,
        until=ended + (recovery(fault) or 0) / divisor,
        label=f"{fault['kind']} {fault['target']}" if is_labelled else "",
    )


def tables(series: RunSeries) -> list[Table]:
    """Return the numbers of all charts as tables."""
    short = names(series)
    over_time = [
        Table(
            f"{short[queue]} over time",
            ("from", "published", "received", "again", "waiting", *units.QUANTILES),
            tuple(_table_row(series, of, index) for index in range(series["bin_count"])),
        )
        for queue, of in series["queues"].items()
    ]
    by_rank = [
        Table(
            f"{short[queue]} by group, hottest first",
            ("part", "groups", "messages", *units.QUANTILES),
            tuple(
                (
                    str(index + 1),
                    f"{rank['groups']:,}",
                    f"{rank['messages']:,}",
                    *_quantile_texts(rank["latency_us"].get(queue)),
                )
                for index, rank in enumerate(series["ranks"])
            ),
        )
        for queue in series["queues"]
    ]
    return over_time + by_rank


def _table_row(series: RunSeries, of: Mapping[str, Any], index: int) -> tuple[str, ...]:
    return (
        f"{index * series['bin_seconds']:g} s",
        f"{series['published'][index]:,}",
        f"{of['received'][index]:,}",
        f"{of['again'][index]:,}",
        f"{of['waiting'][index]:,}",
        *_quantile_texts({name: values[index] for name, values in of["latency_us"].items()}),
    )


def _quantile_texts(of: Mapping[str, int | None] | None) -> tuple[str, ...]:
    return tuple(units.duration(None if of is None else of[name]) for name in units.QUANTILES)
