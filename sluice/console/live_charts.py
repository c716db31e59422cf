"""The live charts of the overview, drawn of the counts that this console has read since its start."""

from collections.abc import Callable, Mapping, Sequence

from markupsafe import Markup

from sluice.console.state import Sample
from sluice.pages import charts
from sluice.pages.charts import Axis, ChartLine
from sluice.pages.units import short_names

_COLOURS = 6  # `--s0` to `--s5` of the style
_SPAN_SECONDS_MIN = 60.0
_SIZE = (300, 110)


def draw(samples: Sequence[Sample]) -> list[tuple[str, Markup]]:
    """Return the charts, each with its heading; those without a value are left out."""
    wanted: list[tuple[str, str, Callable[[Sample], Mapping[str, int]]]] = [
        ("backlog", "Waiting in the outbox", lambda sample: sample.backlogs),
        ("waiting", "In the queues", lambda sample: sample.waiting),
        ("dead", "Dead letters", lambda sample: sample.dead),
    ]
    return [
        (title, Markup(_svg(name, title, samples, of)))  # noqa: S704 (drawn here of numbers and declared names)
        for name, title, of in wanted
        if any(of(sample) for sample in samples)
    ]


def _svg(name: str, title: str, samples: Sequence[Sample], of: Callable[[Sample], Mapping[str, int]]) -> str:
    now = samples[-1].at_seconds
    names = list(dict.fromkeys(key for sample in samples for key in of(sample)))
    shown = short_names(names)
    unit, seconds = ("minutes", 60.0) if now - samples[0].at_seconds > 2 * _SPAN_SECONDS_MIN else ("seconds", 1.0)
    lines = [
        ChartLine(
            shown[key],
            [((sample.at_seconds - now) / seconds, _value(of(sample), key)) for sample in samples],
            f"var(--s{index % _COLOURS})",
        )
        for index, key in enumerate(names)
    ]
    highest = max((value for line in lines for _, value in line.points if value is not None), default=0.0)
    span = max(_SPAN_SECONDS_MIN, now - samples[0].at_seconds) / seconds
    chart = charts.lines(
        lines,
        x=Axis(title=f"{unit} ago", domain=(-span, 0)),
        y=Axis(title="messages", domain=(0, max(5.0, 1.1 * highest))),
        size=_SIZE,
    )
    latest = ", ".join(f"{shown[key]} {of(samples[-1]).get(key, 'not known')}" for key in names)
    return charts.svg(chart, name=f"live-{name}", title=title, description=f"Now: {latest}.")


def _value(counts: Mapping[str, int], key: str) -> float | None:
    return float(counts[key]) if key in counts else None
