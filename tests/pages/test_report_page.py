"""The report of a run in a real browser, drawn from verdicts made by hand."""

from pathlib import Path
from typing import Any

import pytest

from sluice.judge.checker.anomalies import JUDGED
from sluice.judge.report import page as drawn
from tests.support.histories import finished_runs

_MADE = {
    "valid": finished_runs.valid,
    "invalid": finished_runs.invalid,
    "unknown": finished_runs.unknown,
    "crossed": finished_runs.crossed_verdict,
    "faulty": finished_runs.faulty,
}
_EXERCISED = len(JUDGED) - len(finished_runs.NOT_EXERCISED)
_CHARTS = 7  # throughput, backlog, latency and ranks of two queues, failures
_CONTRAST = (Path(__file__).parent / "report_contrast.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the pages, drawn once, by what their verdict is."""
    folder = tmp_path_factory.mktemp("reports")
    pages = {name: folder / f"{name}.html" for name in _MADE}
    for name, made in _MADE.items():
        pages[name].write_text(drawn.html(made(), finished_runs.series_of(made())), encoding="utf-8")
    return pages


@pytest.mark.parametrize(
    ("name", "word", "reason"),
    [
        (
            "valid",
            "VALID",
            f"{_EXERCISED} of {len(JUDGED)} judged properties were exercised, with {640 * _EXERCISED:,} ",
        ),
        ("invalid", "INVALID", "A1 lost: found 12 times in 640 opportunities."),
        ("unknown", "UNKNOWN", "Not known: 1 recorder(s) did not finish: consume-1"),
        ("crossed", "VALID, a threshold crossed", "H3 late: found once in 640 opportunities."),
    ],
)
def test_a_report_opens_with_its_verdict_and_asks_for_nothing(
    page: Any, console_messages: list[str], reports: dict[str, Path], name: str, word: str, reason: str
) -> None:
    page.goto(reports[name].as_uri())

    assert console_messages == [f"request: {reports[name].as_uri()}"]
    assert page.locator(".verdict .word").inner_text() == word
    assert reason in page.locator(".verdict ul").inner_text()
    assert page.locator(".verdict").bounding_box()["y"] < 100


def test_every_chart_is_drawn_and_says_what_it_shows(page: Any, reports: dict[str, Path]) -> None:
    page.goto(reports["invalid"].as_uri())

    charts = page.locator("svg.chart").evaluate_all(
        """charts => charts.map(chart => ({
          wide: chart.getBoundingClientRect().width, high: chart.getBoundingClientRect().height,
          marks: chart.querySelectorAll("path, rect, line").length,
          named: chart.getAttribute("aria-labelledby").split(" ")
            .every(id => document.getElementById(id).textContent.length > 5),
        }))"""
    )

    assert len(charts) == _CHARTS + page.locator(".anomaly").count() == _CHARTS + 7
    assert [
        chart
        for chart in charts
        if chart["wide"] < 300 or chart["high"] < 80 or chart["marks"] < 10 or not chart["named"]
    ] == []


@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("name", list(_MADE))
def test_nothing_sticks_out_of_the_window(page: Any, reports: dict[str, Path], name: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(reports[name].as_uri())

    assert page.evaluate("document.documentElement.scrollWidth") <= width
    smallest = page.locator("svg.chart text").evaluate_all(
        "texts => Math.min(...texts.map(text => text.getBoundingClientRect().height))"
    )
    assert smallest >= 8


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["invalid", "crossed", "unknown", "faulty"])
def test_everything_can_be_read_in_light_and_dark(page: Any, reports: dict[str, Path], name: str, scheme: str) -> None:
    """The contrast of text and ground is at least 4.5 (WCAG AA), in the page and in its charts."""
    page.emulate_media(color_scheme=scheme)
    page.goto(reports[name].as_uri())

    contrasts = page.evaluate(_CONTRAST)

    assert len(contrasts) > 200
    assert [(text, contrast) for text, contrast in contrasts if contrast < 4.5] == []


def test_faults_are_shaded_where_they_were_in_every_chart_below(page: Any, reports: dict[str, Path]) -> None:
    """Above each other, on one time axis: the bar of a fault, its shades, its line; their labels cover nothing."""
    page.goto(reports["faulty"].as_uri())

    figure = page.locator("svg[aria-labelledby='faults-title faults-told']")
    edges = figure.locator("path[fill='var(--bad)']").evaluate_all(
        """shades => shades.map(shade => shade.getBoundingClientRect()).filter(box => box.width > 8)
          .map(box => [Math.round(box.left), Math.round(box.right)])"""
    )
    labels = figure.locator("text", has_text=":endpoint").evaluate_all(
        "all => all.map(text => text.getBoundingClientRect()).map(box => [box.left, box.right, box.top, box.bottom])"
    )
    rows = page.locator("#faults ~ .apart").first.locator("tbody tr")

    assert len({tuple(edge) for edge in edges}) == 2
    assert [edges.count(edge) for edge in edges] == [4] * 8  # a bar, and a shade in each of three charts
    assert len(labels) == 2
    assert labels[0][1] < labels[1][0] or labels[1][1] < labels[0][0] or labels[0][3] <= labels[1][2] + 3
    assert rows.locator("td:last-child").all_inner_texts() == [
        *("✓ 1.2 s", "! 2.31 s"),
        *("nothing followed in events", "nothing followed in shipping"),
    ]
    assert page.locator(".verdict li", has_text="4 of 5 faults done").count() == 1


def test_a_property_is_found_from_its_cell(page: Any, reports: dict[str, Path]) -> None:
    page.goto(reports["invalid"].as_uri())

    cells = page.locator(".cell").evaluate_all("cells => cells.map(cell => [cell.title.split(': ')[1], cell.hash])")
    rows = page.locator(".properties tr[id]").evaluate_all(
        "rows => rows.map(row => [row.querySelector('.mark').textContent.slice(2), '#' + row.id])"
    )
    page.locator(".cell.violated").first.click()

    assert sorted(cells) == sorted(rows)
    assert len(rows) == len(JUDGED)
    assert page.locator("#A1").evaluate("row => row.getBoundingClientRect().top") < 900


def test_the_numbers_of_a_chart_are_a_table_away(page: Any, reports: dict[str, Path]) -> None:
    page.goto(reports["valid"].as_uri())

    page.get_by_text("billing over time", exact=True).click()

    rows = page.locator(".numbers:visible tbody tr")
    assert rows.count() == finished_runs.series_of(finished_runs.valid())["bin_count"]
    first = rows.first.locator("th, td").all_inner_texts()
    assert first[:5] == ["0 s", "12", "11", "0", "1"]
    assert all(text.endswith(("ms", " s")) for text in first[5:])


def test_print_has_everything_but_the_navigation(page: Any, reports: dict[str, Path]) -> None:
    page.emulate_media(media="print", color_scheme="dark")
    page.goto(reports["invalid"].as_uri())

    assert not page.locator("nav").is_visible()
    assert page.locator(".anomaly svg").first.is_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.pdf().startswith(b"%PDF-")
