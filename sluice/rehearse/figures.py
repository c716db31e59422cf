"""The charts of a rehearsal: values over time, and the cost and latency of each way to scale."""

import math
from collections.abc import Sequence

from sluice.pages import charts, units
from sluice.pages.charts import Axis, ChartLine, Point
from sluice.pages.parts import Figure, draw_figure
from sluice.rehearse import report
from sluice.rehearse.model.control_loop import USUAL
from sluice.rehearse.rehearsal import DEPLOYED, RehearsalRow

_SMALL = (250, 120)
_LARGE = (420, 230)
POINTS_MAX = 240
"""The most points of a line: a small chart is hardly wider, and cannot show more."""
_LOG_FROM = 30  # if the largest value is so many times the smallest, a linear axis would show only the largest
_WHOLE_FROM = 10
_SHORTEST_SECONDS = 0.001  # a shorter latency is drawn as this one: a logarithmic axis has no zero

type _Values = Sequence[float | None]


def over_time(row: RehearsalRow, *, name: str) -> list[Figure]:
    """Return the four charts of a simulation; `name` is unique on the page.

    If there are many minutes, a point of a line is the maximum of several minutes.
    """
    series, minutes = row.result.series, len(row.result.p95_seconds)
    divisor, unit = (1, "minutes") if minutes <= 180 else (60, "hours")
    x = Axis(title=unit, domain=(0, minutes / divisor))

    def line(label: str, values: _Values, colour: str, dash: tuple[int, ...] = ()) -> ChartLine:
        width = minutes / len(values)
        points = [((idx + 0.5) * width / divisor, value) for idx, value in enumerate(values)]
        return ChartLine(label, points, colour, dash)

    def chart(part: str, title: str, description: str, of: Sequence[ChartLine], y: str) -> Figure:
        made = charts.lines(of, x=x, y=Axis(title=y), size=_SMALL)
        return draw_figure(made, name=f"{name}-{part}", title=title, description=description)

    def most(values: _Values) -> float:
        return max((value or 0.0 for value in values), default=0.0)

    sent, done = (thin_out([(value or 0.0) / 60 for value in series[key]]) for key in ("sent", "done"))
    visible, in_flight = (thin_out(series[key]) for key in ("visible", "inflight"))
    desired, running = (thin_out([value or 0.0 for value in series[key]]) for key in ("desired", "running"))
    p95, oldest = row.result.p95_seconds, series["age"]
    declared = row.scenario.tasks.acceptable_latency_seconds
    by, seconds = _time_unit(max(most(p95), most(oldest), declared))
    return [
        chart(
            "messages",
            "Messages",
            f"At most {units.rate(most(sent))} sent and {units.rate(most(done))} handled.",
            [line("sent", sent, "var(--ink)"), line("handled", done, "var(--s0)", (6, 2))],
            "messages per second",
        ),
        chart(
            "backlog",
            "Backlog",
            f"At most {_count(most(visible))} visible and {_count(most(in_flight))} in flight.",
            [line("visible", visible, "var(--s1)"), line("in flight", in_flight, "var(--s2)", (6, 2))],
            "messages",
        ),
        chart(
            "tasks",
            "Tasks",
            f"At most {most(desired):,.0f}; {row.paid_hours:,.1f} task-hours.",
            [line("running", running, "var(--s5)"), line("desired", desired, "var(--ink)", (4, 3))],
            "tasks",
        ),
        chart(
            "latency",
            "Latency",
            f"The worst minute's p95 is {report.seconds(most(p95))},"
            f" the oldest message {report.seconds(most(oldest))}.",
            [
                line("oldest", thin_out(_divide(oldest, by)), "var(--lease)"),
                line("p95", thin_out(_divide(p95, by)), "var(--s0)"),
                ChartLine("declared", [(0, declared / by), (minutes / divisor, declared / by)], "var(--bad)", (4, 3)),
            ],
            seconds,
        ),
    ]


def _count(value: float) -> str:
    """Return a number of messages as text: whole from ten on, otherwise with two significant digits."""
    return f"{value:,.0f}" if value >= _WHOLE_FROM else f"{value:.2g}"


def thin_out(values: _Values) -> list[float | None]:
    """Return at most `POINTS_MAX` values: each the maximum of several in a row; None if all of these are None."""
    together = math.ceil(len(values) / POINTS_MAX) or 1
    return [
        max((value for value in values[start : start + together] if value is not None), default=None)
        for start in range(0, len(values), together)
    ]


def _divide(values: _Values, by: float) -> list[float | None]:
    """Return the values, each divided by the size of a unit; a missing value stays missing."""
    return [None if value is None else value / by for value in values]


def _time_unit(most_seconds: float) -> tuple[float, str]:
    """Return the unit for seconds up to the given number, as its size and name."""
    return next(
        (size, unit)
        for size, unit, up_to in ((1, "seconds", 600), (60, "minutes", 7_200), (3_600, "hours", math.inf))
        if most_seconds <= up_to
    )


def comparison_chart(rows: Sequence[RehearsalRow], *, name: str) -> Figure | None:
    """Return a chart with each way to scale as a point, on one traffic; None for a single way, or without messages.

    Hours of tasks and working hours of a function are not the same, so the chart has only ways like the first row's.
    """
    is_function = rows[0].service.mapping is not None
    found = [(row, row.p95_seconds) for row in rows if (row.service.mapping is not None) == is_function]
    measured = [(row, max(p95, _SHORTEST_SECONDS)) for row, p95 in found if p95 is not None]
    if len(measured) < 2:
        return None
    declared = rows[0].scenario.tasks.acceptable_latency_seconds
    latencies = [declared, *(p95 for _, p95 in measured)]
    is_log = max(latencies) / min(latencies) >= _LOG_FROM
    made = charts.points(
        [Point(_label(row), row.paid_hours, p95 * 1_000, _colour(row)) for row, p95 in measured],
        x=Axis(title="task-hours", domain=_domain([row.paid_hours for row, _ in measured], is_log=False)),
        y=Axis(
            title=f"p95{', logarithmic' if is_log else ''}",
            domain=_domain([1_000 * value for value in latencies], is_log=is_log),
            is_log=is_log,
            is_duration=True,
        ),
        rule=(f"declared: {report.seconds(declared)}", declared * 1_000),
        size=_LARGE,
    )
    kept = [row for row, p95 in measured if p95 <= declared and row.variant is USUAL]
    cheapest = min(kept, key=lambda row: row.paid_hours, default=None)
    description = (
        "None keeps the declared latency."
        if cheapest is None
        else f"The fewest task-hours that keep the declared latency: {cheapest.policy}, {cheapest.paid_hours:,.1f}."
    )
    return draw_figure(made, name=name, title="Ways to scale", description=description)


def _label(row: RehearsalRow) -> str:
    """Return the text beside a row's point: its way to scale, or the variant if it is not the usual one."""
    return row.policy if row.variant is USUAL else row.variant.name


def _colour(row: RehearsalRow) -> str:
    """Return the colour of a row's point: deployed, deployed in another variant, or an alternative."""
    if row.policy != DEPLOYED:
        return "var(--s1)"
    return "var(--s0)" if row.variant is USUAL else "var(--p50)"


def _domain(values: Sequence[float], *, is_log: bool) -> tuple[float, float]:
    """Return the lowest and the highest value of an axis, with room beside the points."""
    if is_log:
        return min(values) / 1.5, max(values) * 1.5
    return 0, 1.08 * max(values) or 1
