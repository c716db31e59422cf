"""A plot holds its longest label and its longest bar."""

import re

from benchmarks.charts import ResultBar, bars

_LONG = "plain insert, engine of SQLAlchemy, 8 writers"


def test_the_longest_label_of_a_bar_is_inside_the_plot() -> None:
    drawn = bars("t", "u", ["s"], [ResultBar(label=_LONG, series=0, value=2, shown="2"), ResultBar("short", 0, 1, "1")])

    (end, label), *_ = re.findall(r'<text x="([\d.]+)" [^>]*text-anchor="end">([^<]*)', drawn)
    assert label == _LONG
    assert float(end) > 7 * len(_LONG)


def test_the_longest_bar_ends_inside_the_plot() -> None:
    drawn = bars("t", "u", ["s"], [ResultBar(label=_LONG, series=0, value=2, shown="2,255")])

    (left, width), *_ = re.findall(r'<rect class="fill0" x="([\d.]+)" y="[\d.]+" width="([\d.]+)" height="17"', drawn)
    assert float(left) + float(width) == 760 - 90
