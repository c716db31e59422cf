"""The page of a rehearsal in a real browser, drawn from simulations made by hand."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sluice.rehearse import page as drawn
from sluice.rehearse.model.control_loop import VARIANTS
from sluice.rehearse.rehearsal import Rehearsal
from tests.support import rehearsals

_CONTRAST = (Path(__file__).parent / "report_contrast.js").read_text(encoding="utf-8")
_ORIGIN = drawn.Origin(command="sluice rehearse prod --page rehearsal.html", seed=1, template="cdk.out")
_CHARTS = 4 * (3 + 1) + 1  # of each traffic, and the ways to scale


@pytest.fixture(scope="module")
def rehearsal_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a page of two services, one with a mistake and other ways to scale."""
    path = tmp_path_factory.mktemp("rehearsals") / "page.html"
    drawn.write(
        path, [rehearsals.kept_latency(), replace(rehearsals.missed_latency(), mistakes=[rehearsals.MISTAKE])], _ORIGIN
    )
    return path


def test_a_rehearsal_opens_with_its_verdict_and_asks_for_nothing(
    page: Any, console_messages: list[str], rehearsal_page: Path
) -> None:
    page.goto(rehearsal_page.as_uri())

    assert console_messages == [f"request: {rehearsal_page.as_uri()}"]
    assert page.locator(".verdict .word").inner_text() == "MISTAKES FOUND, LATENCY MISSED"
    assert page.locator(".verdict li").all_inner_texts() == [
        "shop-prod-billing: kept: steady, day; not judged: poison",
        "shop-prod-audit: missed: burst",
        "shop-prod-audit: burst: missed: late in 58 of 60 minutes: 30 in the first 30, from MinCapacity 1, 28 later"
        " with fewer tasks than MaxCapacity 8; 0.0 tasks are needed on average",
        "shop-prod-audit: mistake cooldown-0 in backlog-per-task",
    ]
    assert page.locator(".verdict").bounding_box()["y"] < 100


def test_every_chart_is_drawn_and_says_what_it_shows(page: Any, rehearsal_page: Path) -> None:
    page.goto(rehearsal_page.as_uri())

    found = page.locator("svg.chart").evaluate_all(
        """charts => charts.map(chart => ({
          wide: chart.getBoundingClientRect().width, high: chart.getBoundingClientRect().height,
          marks: chart.querySelectorAll("path, rect, line").length,
          named: chart.getAttribute("aria-labelledby").split(" ")
            .every(id => document.getElementById(id).textContent.length > 4),
        }))"""
    )

    assert len(found) == _CHARTS
    assert [
        chart
        for chart in found
        if chart["wide"] < 240 or chart["high"] < 80 or chart["marks"] < 10 or not chart["named"]
    ] == []


@pytest.mark.parametrize("width", [400, 1400])
def test_nothing_sticks_out_of_the_window(page: Any, rehearsal_page: Path, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(rehearsal_page.as_uri())

    assert page.evaluate("document.documentElement.scrollWidth") <= width
    smallest = page.locator("svg.chart text").evaluate_all(
        "texts => Math.min(...texts.map(text => text.getBoundingClientRect().height))"
    )
    assert smallest >= 8


def test_the_table_stacks_in_a_narrow_window(page: Any, rehearsal_page: Path) -> None:
    page.set_viewport_size({"width": 390, "height": 900})
    page.goto(rehearsal_page.as_uri())

    hidden = page.locator(".tried").evaluate_all("tables => tables.map(each => each.scrollWidth - each.clientWidth)")

    assert hidden == [0, 0]
    assert not page.locator(".tried thead").first.is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_can_be_read_in_light_and_dark(page: Any, rehearsal_page: Path, scheme: str) -> None:
    """The contrast of text and ground is at least 4.5 (WCAG AA), in the page and in its charts."""
    page.emulate_media(color_scheme=scheme)
    page.goto(rehearsal_page.as_uri())

    contrasts = page.evaluate(_CONTRAST)

    assert len(contrasts) > 200
    assert [(text, contrast) for text, contrast in contrasts if contrast < 4.5] == []


def test_the_ways_to_scale_have_labels_that_do_not_cover_each_other(page: Any, tmp_path: Path) -> None:
    """This holds even where all variants have the same result."""
    usual = rehearsals.row("burst", 90)
    alike = Rehearsal(service=rehearsals.SERVICE, rows=[replace(usual, variant=variant) for variant in VARIANTS])
    drawn.write(tmp_path / "page.html", [alike], _ORIGIN)
    page.goto((tmp_path / "page.html").as_uri())

    boxes = page.locator("svg[aria-labelledby$='compared-told'] text").evaluate_all(
        """texts => texts.filter(text => /^deployed|minutes|equally late/.test(text.textContent))
          .map(text => text.getBoundingClientRect()).map(box => [box.left, box.right, box.top, box.bottom])"""
    )

    assert len(boxes) == len(VARIANTS)
    assert [
        (box, other)
        for idx, box in enumerate(boxes)
        for other in boxes[idx + 1 :]
        if box[0] < other[1] and other[0] < box[1] and box[2] + 3 < other[3] and other[2] + 3 < box[3]
    ] == []


def test_print_has_everything_but_the_navigation(page: Any, rehearsal_page: Path) -> None:
    page.emulate_media(media="print", color_scheme="dark")
    page.goto(rehearsal_page.as_uri())

    assert not page.locator("nav").is_visible()
    assert page.locator("section svg").first.is_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.pdf().startswith(b"%PDF-")
