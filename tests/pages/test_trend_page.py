"""The page of a trend in a real browser, drawn from runs whose newest are slower."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spark_load.baselines import page as drawn
from spark_load.baselines.trend import trend
from tests.support.drawn_results import NAMES, runs, slow_down

_CONTRAST = (Path(__file__).parent / "report_contrast.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def trend_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page of a run in which two times are longer than in the runs before it."""
    found = runs(np.random.default_rng(1), 24)
    path = tmp_path_factory.mktemp("trends") / "page.html"
    drawn.write(trend(slow_down(found[-1], 2, NAMES[:2]), found, last=20), path)
    return path


def test_a_trend_has_its_verdict_links_to_all_sections_and_every_chart(
    page: Any, console_messages: list[str], trend_page: Path
) -> None:
    """The verdict lists the two times that are longer. The browser requests the page itself and nothing else."""
    page.goto(trend_page.as_uri())

    assert console_messages == [f"request: {trend_page.as_uri()}"]
    assert page.locator(".verdict .word").inner_text() == "SLOWER"
    assert page.locator(".verdict li").count() == 2
    links = page.locator("nav a").evaluate_all("links => links.map(link => [link.hash, link.textContent])")
    headings = page.locator("main h2").evaluate_all("all => all.map(found => ['#' + found.id, found.textContent])")
    assert links == headings
    assert page.locator("svg.chart").count() == len(NAMES)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_is_legible_in_light_dark_and_a_narrow_window(page: Any, trend_page: Path, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 400, "height": 900})
    page.goto(trend_page.as_uri())

    contrasts = page.evaluate(_CONTRAST)

    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert len(contrasts) > 100
    assert [(text, contrast) for text, contrast in contrasts if contrast < 4.5] == []
