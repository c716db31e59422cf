"""The conformance page in a real browser, made of the committed results."""

from pathlib import Path
from typing import Any

import pytest

from contract_tests.proving import conformance_page
from tests.support.project import PROJECT

MATRIX = conformance_page.read_matrix(PROJECT / "docs")
PROMISES = MATRIX["promises"]
TARGETS = [target["name"] for target in MATRIX["targets"]]
TOTAL = len(PROMISES)


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page as a file."""
    path = tmp_path_factory.mktemp("conformance") / "conformance.html"
    path.write_text(conformance_page.html(MATRIX), encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def open_page(page: Any, page_file: Path) -> None:
    """Open the page."""
    page.goto(page_file.as_uri())


def _visible_rows(page: Any) -> list[str]:
    found: list[str] = page.locator("tr.promise:visible").evaluate_all("rows => rows.map(row => row.id)")
    return found


def _count(page: Any) -> str:
    return str(page.locator("#count").inner_text())


def _with(status: str, *targets: str) -> list[str]:
    return [
        row["id"]
        for row in PROMISES
        if any(result["status"] == status for name, result in row["results"].items() if name in (targets or TARGETS))
    ]


def test_the_page_opens_without_a_complaint_and_without_the_network(
    page: Any, page_file: Path, console_messages: list[str]
) -> None:
    page.get_by_label("Status").select_option("deviates")
    page.get_by_role("button", name="Clear").click()

    assert console_messages == [f"request: {page_file.as_uri()}"]


def test_every_promise_is_listed_once_with_its_status_on_every_target(page: Any) -> None:
    statuses = [
        [cell.strip() for cell in row]
        for row in page.locator("tr.promise").evaluate_all(
            "rows => rows.map(row => [...row.querySelectorAll('td.target')].map(cell => cell.textContent))"
        )
    ]

    assert TOTAL >= 150
    assert _visible_rows(page) == [row["id"] for row in PROMISES]
    assert statuses == [[row["results"][name]["status"] for name in TARGETS] for row in PROMISES]
    assert _count(page) == f"{TOTAL} of {TOTAL} promises"


def test_the_status_filter_leaves_what_has_it_on_any_target(page: Any) -> None:
    page.get_by_label("Status").select_option("deviates")

    assert 0 < len(_with("deviates")) < TOTAL
    assert _visible_rows(page) == _with("deviates")
    assert _count(page) == f"{len(_with('deviates'))} of {TOTAL} promises"


def test_status_and_target_together_mean_that_column(page: Any) -> None:
    page.get_by_label("Target").select_option("ministack")
    page.get_by_label("Status").select_option("not supported")

    assert _with("not supported", "ministack")
    assert _visible_rows(page) == _with("not supported", "ministack")


def test_the_area_filter_leaves_one_heading(page: Any) -> None:
    area = PROMISES[-1]["area"]

    page.get_by_label("Area").select_option(area)

    assert page.locator("tr.area:visible").all_inner_texts() == [area]
    assert _visible_rows(page) == [row["id"] for row in PROMISES if row["area"] == area]


def test_text_finds_ids_statements_and_evidence(page: Any) -> None:
    text = page.get_by_label("Text")

    text.fill("grp-13")
    assert _visible_rows(page) == ["GRP-13"]
    text.fill("GROUPS stays invisible delay")
    assert _visible_rows(page) == ["GRP-13"]
    text.fill("gap-03")
    assert _visible_rows(page) == ["GRP-13"]


def test_an_empty_search_says_so_and_clear_shows_everything(page: Any) -> None:
    page.get_by_label("Text").fill("no promise says this")

    assert _visible_rows(page) == []
    assert page.get_by_text("No promise is like that.").is_visible()

    page.get_by_role("button", name="Clear").click()
    page.get_by_text(f"{TOTAL} of {TOTAL} promises", exact=True).wait_for()
    assert len(_visible_rows(page)) == TOTAL


def test_a_row_opens_with_the_evidence_of_every_target(page: Any) -> None:
    evidence = page.locator("#evidence-GRP-13")
    assert not evidence.is_visible()

    page.locator("#GRP-13 th").click()

    (row,) = [row for row in PROMISES if row["id"] == "GRP-13"]
    assert "GAP-03: an invisible message holds back" in evidence.inner_text()
    assert evidence.locator("dd").all_inner_texts() == [row["results"][name]["evidence"] for name in TARGETS]
    page.locator("#GRP-13 th").click()
    assert not evidence.is_visible()


def test_a_row_is_opened_by_the_keyboard_alone(page: Any) -> None:
    first = PROMISES[0]["id"]
    button, evidence = page.get_by_role("button", name=first, exact=True), page.locator(f"#evidence-{first}")
    page.get_by_role("button", name="Clear").focus()
    page.keyboard.press("Tab")
    assert button.evaluate("button => button === document.activeElement")

    page.keyboard.press("Enter")
    assert button.get_attribute("aria-expanded") == "true"
    assert evidence.is_visible()

    page.keyboard.press("Space")
    assert button.get_attribute("aria-expanded") == "false"
    assert not evidence.is_visible()


def test_the_numbers_of_the_summary_are_right_and_lead_to_their_promises(page: Any) -> None:
    buttons = page.locator(".summary button").all()
    assert len(buttons) == 4 * len(TARGETS)

    for button in buttons:
        number = int(button.inner_text())
        button.click()
        shown = _visible_rows(page)
        assert len(shown) == number
        assert shown == _with(button.get_attribute("data-status"), button.get_attribute("data-target"))


def test_nothing_sticks_out_of_a_narrow_window(page: Any) -> None:
    page.set_viewport_size({"width": 390, "height": 800})

    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert _visible_rows(page) == [row["id"] for row in PROMISES]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_status_can_be_read_in_light_and_dark(page: Any, scheme: str) -> None:
    """The contrast of text and ground is at least 4.5 (WCAG AA), in the colours the browser computes."""
    page.emulate_media(color_scheme=scheme)

    contrasts = page.evaluate((Path(__file__).parent / "contrast.js").read_text(encoding="utf-8"))

    assert {name for name, contrast in contrasts.items() if contrast < 4.5} == set()
    assert set(contrasts) >= {"body", "holds", "deviates", "not-supported", "unknown", "soft"}


def test_print_has_the_table_and_not_the_controls(page: Any) -> None:
    page.emulate_media(media="print")

    assert not page.locator("form").is_visible()
    assert page.locator("tr.promise").first.is_visible()
    assert page.pdf().startswith(b"%PDF-")
