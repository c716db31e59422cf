"""Charts show values that are easily lost: lone ones, and labels of points side by side."""

import itertools
import math
import re

import pytest

from sluice.pages import charts
from sluice.pages.charts import Axis, Band, ChartLine, Point

_SIZE = (560, 230)


def _dots(values: list[float | None]) -> int:
    """Return how many dots a chart of one line draws; None is a minute without a value."""
    line = ChartLine("p95", list(enumerate(values)), "var(--p95)")
    drawn = charts.svg(
        charts.lines([line], x=Axis(title="minutes"), y=Axis(title="s")), name="n", title="t", description="d"
    )
    return len(re.findall(r'<path [^>]* d="[^"]*A[^"]*" fill="var\(--p95\)"', drawn))


def test_lone_values_and_all_values_of_a_short_line_are_dots() -> None:
    """A value is lone if there is none before and none after it. The line does not reach it, so it needs a dot.

    Of a line with at most `_DOTS_MAX` points every one is a dot.
    """
    whole: list[float | None] = [1.0] * (charts._DOTS_MAX + 20)
    gaps = [*whole, None, 2.0, None, *whole, None, None, 3.0]  # 2.0 and 3.0 are lone

    assert _dots(whole) == 0
    assert _dots(gaps) == 2
    assert _dots(whole[: charts._DOTS_MAX]) == charts._DOTS_MAX


@pytest.mark.parametrize("is_log", [False, True])
@pytest.mark.parametrize("height", [2.0, 50.0, 99.0])
def test_no_label_covers_another_or_leaves_the_chart(height: float, is_log: bool) -> None:  # noqa: FBT001 (a case)
    points = [Point(f"way {idx} to scale", 10 - idx, height, "red") for idx in range(10)]
    domain = (1.0, 100.0)
    rows = charts._place_labels(points, (0, 12), Axis(title="p95", domain=domain, is_log=is_log), _SIZE)

    scale = math.log if is_log else float
    pixels = sorted(
        (scale(row["label_y"]) - scale(domain[0])) / (scale(domain[1]) - scale(domain[0])) * _SIZE[1] for row in rows
    )

    assert all(upper - lower >= 13.9 for lower, upper in itertools.pairwise(pixels))
    assert pixels[0] >= 6.9
    assert pixels[-1] <= _SIZE[1] + 0.1


def test_a_label_near_the_right_edge_ends_before_its_point() -> None:
    points = [Point("a", 1, 1, "red"), Point("a very long label of a point", 11, 2, "red")]

    rows = charts._place_labels(points, (0, 12), Axis(title="p95", domain=(0, 3)), _SIZE)

    assert {row["label"]: row["align"] for row in rows} == {"a": "left", "a very long label of a point": "right"}


def test_labels_of_faults_cover_nothing_and_stay_in_the_chart() -> None:
    """Labels that overlap get rows of their own. A label that fits behind another one stays in its row."""
    bands = [
        Band(began=began, ended=began + lasts, until=began + lasts + 1, label=f"slow billing-{began}:endpoint")
        for began, lasts in ((0, 5), (2, 0), (3, 9), (40, 1), (98, 1))
    ]

    rows, count = charts._pack(bands, Axis(title="seconds", domain=(0, 100)))

    spans = {}
    for row in rows:
        width = (14 + 5.4 * len(row["label"])) * 100 / charts.WIDTH
        left, right = (
            (row["began"] - width, row["until"]) if row["align"] == "right" else (row["began"], row["until"] + width)
        )
        spans[row["label"]] = (row["row"], left, right)
    assert count == 3
    assert [label for label, (_, left, right) in spans.items() if left < 0 or right > 100] == []
    assert [
        (first, second)
        for first, second in itertools.combinations(spans.values(), 2)
        if first[0] == second[0] and first[1] < second[2] and second[1] < first[2]
    ] == []
    assert [row["align"] for row in rows] == [*["left"] * 4, "right"]
