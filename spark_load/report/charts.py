"""Charts as inline SVG, drawn by Altair and vl-convert: no script, and colours the page gives them by CSS variables."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import altair as alt
import vl_convert

WIDTH, HEIGHT = 420, 170
_LABEL_PIXELS = 14  # from one line of text to the next
_LETTER_PIXELS = 6
_DOTS_MAX = 40  # points of a line beyond which they only thicken it
_SECONDS_OR_LESS = "datum.value >= 1000 ? format(datum.value / 1000, ',~f') + ' s' : format(datum.value, '~g') + ' ms'"
_CONFIG: dict[str, Any] = {
    "background": "transparent",
    "aria": False,
    "font": "system-ui, sans-serif",
    "view": {"stroke": "transparent"},
    "axis": {
        "labelColor": "var(--soft)",
        "titleColor": "var(--soft)",
        "titleFontWeight": "normal",
        "labelFontSize": 11,
        "titleFontSize": 11,
        "gridColor": "var(--line)",
        "domainColor": "var(--soft)",
        "tickColor": "var(--line)",
    },
    "axisX": {"grid": False},
    "axisY": {"minExtent": 46},
    "padding": {"left": 12, "right": 8, "top": 5, "bottom": 5},  # the browser's letters are wider than these
    "legend": {
        "orient": "top",
        "title": None,
        "labelColor": "var(--ink)",
        "labelFontSize": 11,
        "labelLimit": 200,
        "symbolStrokeWidth": 2,
        "symbolType": "stroke",
        "columns": 4,
        "padding": 0,
        "offset": 6,
    },
}


def _data(rows: Sequence[Mapping[str, Any]]) -> alt.InlineData:
    return alt.InlineData(values=list(rows))


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart: x to y, where a y of None breaks it; without dashes it is solid."""

    name: str
    points: Sequence[tuple[float, float | None]]
    colour: str
    dash: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """What an axis says.

    Args:
        title: with the unit.
        domain: lowest and highest value; None lets the data choose, from 0.
        is_log: whether equal steps are equal factors.
        is_duration: whether values are milliseconds, and the ticks are to say so.
    """

    title: str
    domain: tuple[float, float] | None = None
    is_log: bool = False
    is_duration: bool = False


def lines(
    of: Sequence[Line],
    *,
    x: Axis,
    y: Axis,
    shade: tuple[float, float] | None = None,
    size: tuple[int, int] = (WIDTH, HEIGHT),
) -> alt.LayerChart:
    """Return a chart of lines, in the order of the legend.

    A value with none beside it, which no line reaches, is a dot.

    Args:
        of: the lines.
        x: the axis to the right.
        y: the axis upwards.
        shade: the stretch of x that was not measured.
        size: width and height of the plot.
    """
    rows = [{"name": line.name, "x": position, "y": value} for line in of for position, value in line.points]
    names = [line.name for line in of]
    highest = max((value for line in of for _, value in line.points if value is not None), default=0)
    domain = (0, 1.05 * highest or 1) if y.domain is None else y.domain
    labels: dict[str, Any] = {"labelExpr": _SECONDS_OR_LESS} if y.is_duration else {"format": ",~f"}
    ticks: dict[str, Any] = {"values": _steps(*domain)} if y.is_log else {"tickCount": 5}
    across = alt.Axis(title=y.title, **labels, **ticks)
    encoded = alt.Chart(_data(rows)).encode(
        x=alt.X("x:Q", axis=alt.Axis(title=x.title, tickCount=6), scale=_scale(x.domain, is_log=False)),
        y=alt.Y("y:Q", axis=across, scale=_scale(domain, is_log=y.is_log)),
        color=alt.Color("name:N", scale=alt.Scale(domain=names, range=[line.colour for line in of]), sort=names),
        strokeDash=alt.StrokeDash(
            "name:N", scale=alt.Scale(domain=names, range=[list(line.dash) or [1, 0] for line in of]), sort=names
        ),
    )
    layers = [*_shaded(shade), encoded.mark_line(strokeWidth=1.6)]
    has_dots = max((len(line.points) for line in of), default=0) <= _DOTS_MAX
    dots = rows if has_dots else [row for line in of for row in _alone(line)]
    if dots:
        layers.append(encoded.mark_point(size=14, filled=True, opacity=1).properties(data=_data(dots)))
    return _finished(layers, size)


def _alone(line: Line) -> list[dict[str, Any]]:
    """Return the points of a line that have a value and none before and after."""
    values = [None, *(value for _, value in line.points), None]
    return [
        {"name": line.name, "x": position, "y": value}
        for idx, (position, value) in enumerate(line.points)
        if value is not None and values[idx] is None and values[idx + 2] is None
    ]


def _steps(lowest: float, highest: float) -> list[float]:
    """Return the ticks of a logarithmic axis: powers of ten, and 2 and 5 times them where there are few."""
    powers = range(math.floor(math.log10(lowest)), math.ceil(math.log10(highest)) + 1)
    leading = (1, 2, 5) if len(powers) <= 4 else (1,)
    return [digit * 10.0**power for power in powers for digit in leading if lowest <= digit * 10.0**power <= highest]


def _scale(domain: tuple[float, float] | None, *, is_log: bool) -> alt.Scale:
    if domain is None:
        return alt.Scale(zero=False, nice=False)
    return alt.Scale(domain=list(domain), type="log" if is_log else "linear", nice=False)


def _shaded(shade: tuple[float, float] | None) -> list[alt.Chart]:
    if shade is None:
        return []
    where = alt.Chart(_data([{"from": shade[0], "to": shade[1], "text": "warm-up"}])).encode(x="from:Q")
    return [
        where.mark_rect(fill="var(--shade)").encode(x2="to:Q"),
        where.mark_text(align="left", baseline="top", dx=3, dy=3, fill="var(--soft)", fontSize=10).encode(
            y=alt.value(0), text="text:N"
        ),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A stretch of time in a row of a timeline; an instant where it ends as it begins."""

    row: str
    tone: str
    began: float
    ended: float


def timeline(
    bars: Sequence[Bar], *, rows: Sequence[str], tones: Mapping[str, str], x: Axis, thin: Sequence[Bar]
) -> alt.LayerChart:
    """Return bars and instants in rows, from above; those in `thin` are hairlines. `tones` are names to CSS colours."""
    used = [name for name in tones if any(bar.tone == name for bar in (*bars, *thin))]
    tone = alt.Color(
        "tone:N",
        scale=alt.Scale(domain=used, range=[tones[name] for name in used]),
        sort=used,
        legend=alt.Legend(columns=len(tones), symbolType="square"),
    )

    def layer(of: Sequence[Bar]) -> alt.Chart:
        values = [{"row": bar.row, "tone": bar.tone, "began": bar.began, "ended": bar.ended} for bar in of]
        axis = alt.Axis(title=x.title, tickCount=6, grid=True, gridOpacity=0.6)
        return alt.Chart(_data(values)).encode(
            x=alt.X("began:Q", axis=axis, scale=_scale(x.domain, is_log=False)),
            y=alt.Y(
                "row:N",
                sort=list(rows),
                scale=alt.Scale(domain=list(rows)),
                axis=alt.Axis(
                    title=None, grid=False, ticks=False, domain=False, labelLimit=140, labelColor="var(--ink)"
                ),
            ),
            color=tone,
        )

    stretches = [bar for bar in bars if bar.ended > bar.began]
    instants = [bar for bar in bars if bar.ended <= bar.began]
    drawn = [
        layer(thin).encode(x2="ended:Q").mark_rule(strokeWidth=1.5),
        layer(stretches).encode(x2="ended:Q").mark_bar(height=9, minBandSize=1),
        layer(instants).mark_tick(thickness=2, size=14),
    ]
    layers = [drawing for drawing, of in zip(drawn, (thin, stretches, instants), strict=True) if of]
    return _finished(layers, (WIDTH, max(40, 17 * len(rows))))


@dataclass(frozen=True, slots=True)
class Point:
    """One labelled point of a chart."""

    label: str
    x: float
    y: float
    colour: str


def points(of: Sequence[Point], *, x: Axis, y: Axis, rule: tuple[str, float], size: tuple[int, int]) -> alt.LayerChart:
    """Return a chart of points with their labels, of which none covers another.

    Args:
        of: the points; the first covers the others.
        x: the axis to the right, with its domain.
        y: the axis upwards, with its domain.
        rule: the words and the y of a line across.
        size: width and height of the plot.
    """
    assert x.domain is not None, "without a domain no place can be told"
    assert y.domain is not None, "without a domain no place can be told"
    right = alt.X("x:Q", axis=alt.Axis(title=x.title, tickCount=6), scale=_scale(x.domain, is_log=False))
    ticks: dict[str, Any] = {"values": _steps(*y.domain)} if y.is_log else {"tickCount": 5}
    labels: dict[str, Any] = {"labelExpr": _SECONDS_OR_LESS} if y.is_duration else {"format": ",~f"}
    up = alt.Y("y:Q", axis=alt.Axis(title=y.title, **labels, **ticks), scale=_scale(y.domain, is_log=y.is_log))
    rows = _labelled(of, x.domain, y, size)
    first_last = [point.label for point in reversed(of)]
    backwards = sorted(rows, key=lambda row: first_last.index(row["label"]))
    base = alt.Chart(_data(rows)).encode(x=right, y=up, color=alt.Color("colour:N", scale=None))
    words, height = rule
    across = alt.Chart(_data([{"y": height, "text": words}])).encode(y=up)
    layers = [
        across.mark_rule(stroke="var(--bad)", strokeDash=[4, 3]),
        across.mark_text(align="left", baseline="bottom", dx=3, dy=-2, fill="var(--bad)", fontSize=10).encode(
            x=alt.value(0), text="text:N"
        ),
        base.mark_rule(stroke="var(--soft)", strokeWidth=0.5).encode(x2="label_x:Q", y2="label_y:Q"),
        base.mark_point(size=50, filled=True, opacity=1).properties(data=_data(backwards)),
        *(
            alt.Chart(_data([row for row in rows if row["align"] == align]))
            .mark_text(align=align, baseline="middle", dx=3 if align == "left" else -3, fill="var(--ink)", fontSize=11)
            .encode(x=alt.X("label_x:Q"), y=alt.Y("label_y:Q"), text="label:N")
            for align in ("left", "right")
            if any(row["align"] == align for row in rows)
        ),
    ]
    return _finished(layers, size)


def _labelled(of: Sequence[Point], across: tuple[float, float], y: Axis, size: tuple[int, int]) -> list[dict[str, Any]]:
    """Return each point with where its label begins or ends: beside it, and a line of text below the label above."""
    assert y.domain is not None, "without a domain no place can be told"
    scale = math.log if y.is_log else float
    lowest, highest = map(scale, y.domain)
    unit, width = (highest - lowest) / size[1], across[1] - across[0]
    lines_up: list[float] = []
    rows = []
    for point in sorted(of, key=lambda point: -point.y):
        height = min([scale(point.y), *(line - _LABEL_PIXELS * unit for line in lines_up[-1:])])
        lines_up.append(height)
        label_pixels = _LABEL_PIXELS + _LETTER_PIXELS * len(point.label)
        pixels = (point.x - across[0]) / width * size[0]
        is_left = pixels + label_pixels > size[0] and pixels >= label_pixels
        rows.append(
            {
                "label": point.label,
                "colour": point.colour,
                "x": point.x,
                "y": point.y,
                "label_x": point.x + (-1 if is_left else 1) * _LABEL_PIXELS * width / size[0],
                "align": "right" if is_left else "left",
            }
        )
    floor = lowest + _LABEL_PIXELS / 2 * unit
    for row, line in zip(reversed(rows), reversed(lines_up), strict=True):
        height = max(line, floor)
        floor = height + _LABEL_PIXELS * unit
        row["label_y"] = math.exp(height) if y.is_log else height
    return rows


def _finished(layers: Sequence[alt.Chart], size: tuple[int, int]) -> alt.LayerChart:
    width, height = size
    chart: alt.LayerChart = alt.layer(*layers).properties(width=width, height=height).configure(**_CONFIG)
    return chart


def svg(chart: alt.LayerChart, *, name: str, title: str, description: str) -> str:
    """Return a chart as an SVG element; `name` is unique on the page, `description` is for those who do not see it."""
    drawn = vl_convert.vegalite_to_svg(chart.to_json(indent=None))
    found = re.match(r"<svg[^>]*viewBox=\"([^\"]+)\"[^>]*>", drawn)
    assert found is not None, "vl-convert draws an SVG with a viewBox"
    wide = float(found[1].split()[2])
    head = (
        f'<svg class="chart" role="img" aria-labelledby="{name}-title {name}-told" viewBox="{found[1]}"'
        f' style="max-width:{1.35 * wide:.0f}px">'
        f'<title id="{name}-title">{escape(title)}</title><desc id="{name}-told">{escape(description)}</desc>'
    )
    # Roles inside an image and empty backgrounds say nothing.
    body = re.sub(r' (aria-[a-z]+|role|pointer-events|class)="[^"]*"', "", drawn[found.end() :])
    return head + re.sub(r'<path d="(M0,0h0v0h0Z)?"( display="none")?/>', "", body)
