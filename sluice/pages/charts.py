"""Charts as inline SVG, drawn by Altair and vl-convert: no script, and colours the page gives them by CSS variables."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal, Self

import altair as alt
import vl_convert

WIDTH, HEIGHT = 420, 170
_LOW = 100  # a chart of fewer pixels in height has room for two numbers beside its axis
_LABEL_PIXELS = 14  # from one line of text to the next
_LETTER_PIXELS = 6
_SIDES: tuple[tuple[Literal["left", "right"], int], ...] = (("left", 3), ("right", -3))
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
    "axisY": {"minExtent": 52},
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


class _Rows(alt.InlineData):
    """The rows of a chart.

    They are never changed, so copies of the chart share them; Altair does not check them, which would take long.
    """

    _class_is_valid_at_instantiation = False

    def __deepcopy__(self, memo: object) -> Self:
        return self


def _data(rows: Sequence[Mapping[str, Any]]) -> _Rows:
    """Return rows as the data of an Altair chart."""
    return _Rows(values=list(rows))


@dataclass(frozen=True, slots=True)
class ChartLine:
    """One line of a chart, as points of x and y. A y of None interrupts the line; a line without `dash` is solid."""

    name: str
    points: Sequence[tuple[float, float | None]]
    colour: str
    dash: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """A stretch of x behind the lines of a chart, or an instant where it ends as it begins.

    Args:
        began: its left end.
        ended: its right end.
        until: the end of a hairline that begins at the right end.
        label: the text beside it, in `bands`.
    """

    began: float
    ended: float
    until: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """An axis of a chart.

    Args:
        title: with the unit.
        domain: lowest and highest value; None lets the data choose, from 0.
        is_bare: whether it shows no numbers, because one below it does.
        is_log: whether the scale is logarithmic.
        is_duration: whether values are milliseconds, which the ticks show as ms or s.
    """

    title: str
    domain: tuple[float, float] | None = None
    is_bare: bool = False
    is_log: bool = False
    is_duration: bool = False


def lines(
    of: Sequence[ChartLine],
    *,
    x: Axis,
    y: Axis,
    shade: tuple[float, float] | None = None,
    behind: Sequence[Band] = (),
    size: tuple[int, int] = (WIDTH, HEIGHT),
    is_stepped: bool = False,
    has_legend: bool = True,
) -> alt.LayerChart:
    """Return a chart of lines, in the order of the legend.

    A value is drawn as a dot where the values before and after it are missing, so that no line reaches it.

    Args:
        of: the lines.
        x: the axis to the right.
        y: the axis upwards.
        shade: the stretch of x that was not measured.
        behind: what is behind the lines.
        size: width and height of the plot.
        is_stepped: whether a value lasts until half way to the next one.
        has_legend: whether the lines are named.
    """
    rows = [{"name": line.name, "x": position, "y": value} for line in of for position, value in line.points]
    names = [line.name for line in of]
    highest = max((value for line in of for _, value in line.points if value is not None), default=0)
    domain = (0, 1.05 * highest or 1) if y.domain is None else y.domain
    legend: dict[str, Any] = {} if has_legend else {"legend": None}
    encoded = alt.Chart(_data(rows)).encode(
        x=_right("x:Q", x),
        y=_up(y, domain, is_low_chart=size[1] < _LOW),
        color=alt.Color(
            "name:N", scale=alt.Scale(domain=names, range=[line.colour for line in of]), sort=names, **legend
        ),
        strokeDash=alt.StrokeDash(
            "name:N",
            scale=alt.Scale(domain=names, range=[list(line.dash) or [1, 0] for line in of]),
            sort=names,
            **legend,
        ),
    )
    course: dict[str, Any] = {"interpolate": "step"} if is_stepped else {}
    layers = [*_warm_up_layers(shade), *_behind(behind, x), encoded.mark_line(strokeWidth=1.6, **course)]
    has_dots = max((len(line.points) for line in of), default=0) <= _DOTS_MAX
    dots = rows if has_dots else [row for line in of for row in _alone(line)]
    if dots:
        layers.append(encoded.mark_point(size=14, filled=True, opacity=1).properties(data=_data(dots)))
    return _layer(layers, size)


def _right(field: str, x: Axis, **options: Any) -> alt.X:
    """Return the encoding of a field on the axis to the right, with title and numbers unless the axis is bare."""
    hidden: dict[str, Any] = {"labels": False, "ticks": False} if x.is_bare else {}
    return alt.X(
        field,
        axis=alt.Axis(title=None if x.is_bare else x.title, tickCount=6, **options, **hidden),
        scale=_scale(x.domain, is_log=False),
    )


def _up(y: Axis, domain: tuple[float, float], *, is_low_chart: bool = False) -> alt.Y:
    """Return the encoding of y on the axis upwards; a low chart has room for two numbers only."""
    labels: dict[str, Any] = {"labelExpr": _SECONDS_OR_LESS} if y.is_duration else {"format": ",~f"}
    ticks: dict[str, Any] = (
        {"values": _steps(*domain, is_low_chart=is_low_chart)} if y.is_log else {"tickCount": 2 if is_low_chart else 5}
    )
    return alt.Y("y:Q", axis=alt.Axis(title=y.title, **labels, **ticks), scale=_scale(domain, is_log=y.is_log))


def _behind(of: Sequence[Band], x: Axis) -> list[alt.Chart]:
    """Return the layers behind the lines: stretches as shades over the whole height, instants as vertical rules."""
    layers = []
    stretches = [{"began": band.began, "ended": band.ended} for band in of if band.ended > band.began]
    instants = [{"began": band.began} for band in of if band.ended <= band.began]
    if stretches:
        shades = alt.Chart(_data(stretches)).mark_rect(fill="var(--bad)", fillOpacity=0.16)
        layers.append(shades.encode(x=_right("began:Q", x), x2="ended:Q"))
    if instants:
        rules = alt.Chart(_data(instants)).mark_rule(stroke="var(--bad)", strokeWidth=1.2, strokeOpacity=0.7)
        layers.append(rules.encode(x=_right("began:Q", x)))
    return layers


def bands(of: Sequence[Band], *, x: Axis) -> alt.LayerChart:
    """Return a chart of stretches and instants with their labels, in as few rows as keep them apart.

    The axis `x` must have a domain.
    """
    rows, count = _pack(of, x)

    def layer(values: Sequence[Mapping[str, Any]]) -> alt.Chart:
        up = alt.Y("row:O", axis=None, scale=alt.Scale(domain=list(range(count))))
        return alt.Chart(_data(values)).encode(y=up)

    stretches = [row for row in rows if row["ended"] > row["began"]]
    instants = [row for row in rows if row["ended"] <= row["began"]]
    grid = {"grid": True, "gridOpacity": 0.6, "domain": False}
    drawn = [
        layer(rows).encode(x=_right("ended:Q", x, **grid), x2="until:Q").mark_rule(stroke="var(--soft)"),
        layer(stretches).encode(x=_right("began:Q", x, **grid), x2="ended:Q").mark_bar(height=8, fill="var(--bad)"),
        layer(instants).encode(x=_right("began:Q", x, **grid)).mark_tick(thickness=2.5, size=13, color="var(--bad)"),
        *(
            layer([row for row in rows if row["align"] == align])
            .encode(x=_right("label_x:Q", x, **grid), text="label:N")
            .mark_text(align=align, baseline="middle", dx=dx, fill="var(--ink)", fontSize=10)
            for align, dx in _SIDES
        ),
    ]
    return _layer(drawn, (WIDTH, max(30, 15 * count)))


def _pack(of: Sequence[Band], x: Axis) -> tuple[list[dict[str, Any]], int]:
    """Return a row for each band, with the place of its label, and how many rows are used.

    A label stands to the right of its band, or to its left where the chart has no room; on the left it may still leave
    the chart.
    """
    assert x.domain is not None, "without a domain no place can be told"
    unit = (x.domain[1] - x.domain[0]) / WIDTH
    taken: list[float] = []  # for each row the x up to which it is occupied, from the left
    rows = []
    for band in sorted(of, key=lambda band: band.began):
        width = (_LABEL_PIXELS + 0.9 * _LETTER_PIXELS * len(band.label)) * unit
        end = max(band.ended, band.until)
        is_left = end + width > x.domain[1]
        left = band.began - width if is_left else band.began
        right = end + (0 if is_left else width)
        row = next((idx for idx, occupied in enumerate(taken) if occupied <= left), len(taken))
        taken[row : row + 1] = [right]  # appends where every row is occupied
        rows.append(
            {
                "row": row,
                "label": band.label,
                "began": band.began,
                "ended": band.ended,
                "until": end,
                "label_x": band.began if is_left else end,
                "align": "right" if is_left else "left",
            }
        )
    return rows, len(taken)


def stack(panels: Sequence[alt.LayerChart]) -> alt.VConcatChart:
    """Return one chart of several, one below the other, each with colours of its own."""
    chart: alt.VConcatChart = alt.vconcat(*panels, spacing=8).resolve_scale(
        color="independent", strokeDash="independent"
    )
    return chart


def _alone(line: ChartLine) -> list[dict[str, Any]]:
    """Return the points of a line whose neighbours have no value. No line reaches them, so they are drawn as dots."""
    values = [None, *(value for _, value in line.points), None]
    return [
        {"name": line.name, "x": position, "y": value}
        for idx, (position, value) in enumerate(line.points)
        if value is not None and values[idx] is None and values[idx + 2] is None
    ]


def _steps(lowest: float, highest: float, *, is_low_chart: bool = False) -> list[float]:
    """Return the ticks of a logarithmic axis: powers of ten.

    Where these are few, twice and five times each are added, except on a chart that is too low for more numbers.
    """
    powers = range(math.floor(math.log10(lowest)), math.ceil(math.log10(highest)) + 1)
    leading = (1, 2, 5) if len(powers) <= 4 and not is_low_chart else (1,)
    return [digit * 10.0**power for power in powers for digit in leading if lowest <= digit * 10.0**power <= highest]


def _scale(domain: tuple[float, float] | None, *, is_log: bool) -> alt.Scale:
    """Return the scale of an axis: of its domain where one is given, otherwise as the data need it."""
    if domain is None:
        return alt.Scale(zero=False, nice=False)
    return alt.Scale(domain=list(domain), type="log" if is_log else "linear", nice=False)


def _warm_up_layers(shade: tuple[float, float] | None) -> list[alt.Chart]:
    """Return layers that shade and label the warm-up, the stretch of x that was not measured.

    Without such a stretch there are none.
    """
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
    """A stretch of time in one row of a timeline. Where it ends when it begins, it is an instant."""

    row: str
    tone: str
    began: float
    ended: float


def timeline(
    bars: Sequence[Bar], *, rows: Sequence[str], tones: Mapping[str, str], x: Axis, thin: Sequence[Bar]
) -> alt.LayerChart:
    """Return a timeline: bars and instants in rows, the first row on top; bars in `thin` are hairlines.

    `tones` gives each name of the legend its CSS colour.
    """
    used = [name for name in tones if any(bar.tone == name for bar in (*bars, *thin))]
    tone = alt.Color(
        "tone:N",
        scale=alt.Scale(domain=used, range=[tones[name] for name in used]),
        sort=used,
        legend=alt.Legend(columns=len(tones), symbolType="square"),
    )

    def layer(of: Sequence[Bar]) -> alt.Chart:
        values = [{"row": bar.row, "tone": bar.tone, "began": bar.began, "ended": bar.ended} for bar in of]
        return alt.Chart(_data(values)).encode(
            x=_right("began:Q", x, grid=True, gridOpacity=0.6),
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
    return _layer(layers, (WIDTH, max(40, 17 * len(rows))))


@dataclass(frozen=True, slots=True)
class Point:
    """One labelled point of a chart."""

    label: str
    x: float
    y: float
    colour: str


def points(of: Sequence[Point], *, x: Axis, y: Axis, rule: tuple[str, float], size: tuple[int, int]) -> alt.LayerChart:
    """Return a chart of labelled points, whose labels do not cover each other.

    Args:
        of: the points; the first covers the others.
        x: the axis to the right, with its domain.
        y: the axis upwards, with its domain.
        rule: the words and the y of a line across.
        size: width and height of the plot.
    """
    assert x.domain is not None, "without a domain no place can be told"
    assert y.domain is not None, "without a domain no place can be told"
    up = _up(y, y.domain)
    rows = _place_labels(of, x.domain, y, size)
    first_last = [point.label for point in reversed(of)]
    backwards = sorted(rows, key=lambda row: first_last.index(row["label"]))
    base = alt.Chart(_data(rows)).encode(x=_right("x:Q", x), y=up, color=alt.Color("colour:N", scale=None))
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
            .mark_text(align=align, baseline="middle", dx=dx, fill="var(--ink)", fontSize=11)
            .encode(x="label_x:Q", y="label_y:Q", text="label:N")
            for align, dx in _SIDES
            if any(row["align"] == align for row in rows)
        ),
    ]
    return _layer(layers, size)


def _place_labels(
    of: Sequence[Point], across: tuple[float, float], y: Axis, size: tuple[int, int]
) -> list[dict[str, Any]]:
    """Return a row for each point with the place of its label.

    A label is beside its point, and at least a line of text below the label above.
    """
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


def _layer(layers: Sequence[alt.Chart], size: tuple[int, int]) -> alt.LayerChart:
    """Return a chart of these layers, the first at the back, with this width and height."""
    width, height = size
    return alt.LayerChart(layer=list(layers), width=width, height=height)


def svg(chart: alt.LayerChart | alt.VConcatChart, *, name: str, title: str, description: str) -> str:
    """Return a chart as an SVG element.

    `name` is unique on the page; `description` is for readers who do not see the chart.
    """
    # Each part was validated when it was made: to validate the whole takes a tenth of a page's time.
    drawn = vl_convert.vegalite_to_svg(chart.configure(**_CONFIG).to_json(indent=None, validate=False))
    found = re.match(r"<svg[^>]*viewBox=\"([^\"]+)\"[^>]*>", drawn)
    assert found is not None, "vl-convert draws an SVG with a viewBox"
    wide = float(found[1].split()[2])
    head = (
        f'<svg class="chart" role="img" aria-labelledby="{name}-title {name}-told" viewBox="{found[1]}"'
        f' width="{1.35 * wide:.0f}">'
        f'<title id="{name}-title">{escape(title)}</title><desc id="{name}-told">{escape(description)}</desc>'
    )
    # Roles inside an image and empty backgrounds say nothing.
    body = re.sub(r' (aria-[a-z]+|role|pointer-events|class)="[^"]*"', "", drawn[found.end() :])
    return head + re.sub(r'<path d="(M0,0h0v0h0Z)?"( display="none")?/>', "", body)
