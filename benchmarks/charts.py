"""Two plots, as SVG that reads in light and in dark: bars, and lines on logarithmic axes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH = 760
_LEFT, _RIGHT, _TOP, _ROW = 250, 90, 64, 24
_CHARACTER = 7  # its width in pixels, about
_PLOT_HEIGHT, _PLOT_LEFT = 300, 80
_STYLE = """
  svg { background: #ffffff; font: 13px system-ui, sans-serif; }
  text { fill: #1f2328; } .muted { fill: #59636e; } .title { font-weight: 600; font-size: 15px; }
  .grid { stroke: #d1d9e0; } .fill0 { fill: #0969da; } .fill1 { fill: #bc4c00; } .fill2 { fill: #59636e; }
  .line0 { stroke: #0969da; } .line1 { stroke: #bc4c00; } .line2 { stroke: #59636e; }
  @media (prefers-color-scheme: dark) {
    svg { background: #0d1117; }
    text { fill: #f0f6fc; } .muted { fill: #9198a1; }
    .grid { stroke: #3d444d; } .fill0 { fill: #4493f8; } .fill1 { fill: #f0883e; } .fill2 { fill: #9198a1; }
    .line0 { stroke: #4493f8; } .line1 { stroke: #f0883e; } .line2 { stroke: #9198a1; }
  }
"""


@dataclass(frozen=True, slots=True)
class ResultBar:
    """A bar with its label, the number of its series (from 0), its length, and the text behind it."""

    label: str
    series: int
    value: float
    shown: str


@dataclass(frozen=True, slots=True)
class Line:
    """A series of points (x, y, text above the point); `is_joined` draws a line through them."""

    name: str
    points: Sequence[tuple[float, float, str]]
    is_joined: bool = True


def bars(title: str, unit: str, series: Sequence[str], items: Sequence[ResultBar]) -> str:
    """Return horizontal bars on one linear axis from 0, in the order of `items`."""
    most = max(bar.value for bar in items)
    left = max(_LEFT, 24 + _CHARACTER * max(len(bar.label) for bar in items))
    scale = (_WIDTH - left - _RIGHT) / most
    drawn = [*_title(title, unit), *_legend(series)]
    for row, bar in enumerate(items):
        top = _TOP + 14 + row * _ROW
        width = max(1.0, bar.value * scale)
        drawn.append(f'<text x="{left - 8}" y="{top + 13}" text-anchor="end">{escape(bar.label)}</text>')
        drawn.append(f'<rect class="fill{bar.series}" x="{left}" y="{top}" width="{width:.1f}" height="17" rx="2"/>')
        drawn.append(f'<text x="{left + width + 6:.1f}" y="{top + 13}">{escape(bar.shown)}</text>')
    return _svg(title, _TOP + 26 + len(items) * _ROW, drawn)


def lines(title: str, x_unit: str, y_unit: str, items: Sequence[Line]) -> str:
    """Return lines over two logarithmic axes."""
    across = _Axis([x for line in items for x, _, _ in line.points], _PLOT_LEFT, _WIDTH - 40)
    up = _Axis([y for line in items for _, y, _ in line.points], _TOP + _PLOT_HEIGHT, _TOP + 20)
    bottom = _TOP + _PLOT_HEIGHT
    drawn = [*_title(title, y_unit), *_legend([line.name for line in items])]
    for tick in up.ticks():
        y = up.position(tick)
        drawn.append(f'<line class="grid" x1="{_PLOT_LEFT}" x2="{_WIDTH - 40}" y1="{y:.1f}" y2="{y:.1f}"/>')
        drawn.append(f'<text class="muted" x="{_PLOT_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tick:,g}</text>')
    for tick in across.ticks():
        x = across.position(tick)
        drawn.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP + 20}" y2="{bottom}"/>')
        drawn.append(f'<text class="muted" x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{tick:,g}</text>')
    drawn.append(f'<text class="muted" x="{_WIDTH - 40}" y="{bottom + 38}" text-anchor="end">{escape(x_unit)}</text>')
    for number, line in enumerate(items):
        placed = [(across.position(x), up.position(y), written) for x, y, written in line.points]
        if line.is_joined:
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in placed)
            drawn.append(f'<polyline class="line{number}" fill="none" stroke-width="2" points="{path}"/>')
        for x, y, written in placed:
            drawn.append(f'<circle class="fill{number}" cx="{x:.1f}" cy="{y:.1f}" r="4"/>')
            drawn.append(f'<text x="{x:.1f}" y="{y - 9:.1f}" text-anchor="middle">{escape(written)}</text>')
    return _svg(title, bottom + 52, drawn)


class _Axis:
    """A logarithmic axis over whole decades, from one pixel to another."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        self._low, self._high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
        self._start, self._end = start, end

    def position(self, value: float) -> float:
        share = (math.log10(value) - self._low) / max(1, self._high - self._low)
        return self._start + share * (self._end - self._start)

    def ticks(self) -> list[float]:
        return [10.0**power for power in range(self._low, self._high + 1)]


def _title(title: str, unit: str) -> list[str]:
    return [
        f'<text class="title" x="16" y="26">{escape(title)}</text>',
        f'<text class="muted" x="16" y="46">{escape(unit)}</text>',
    ]


def _legend(names: Sequence[str]) -> list[str]:
    drawn, right = [], _WIDTH - 40
    for number, name in reversed(list(enumerate(names))):
        left = right - _CHARACTER * len(name)
        drawn.append(f'<text x="{left}" y="46">{escape(name)}</text>')
        drawn.append(f'<rect class="fill{number}" x="{left - 18}" y="36" width="12" height="12" rx="2"/>')
        right = left - 34
    return drawn


def _svg(title: str, height: float, drawn: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:.0f}" width="{_WIDTH}"'
        f' height="{height:.0f}" role="img" aria-label="{escape(title, quote=True)}">'
    )
    return "\n".join([head, f"<style>{_STYLE}</style>", *drawn, "</svg>", ""])
