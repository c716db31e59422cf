"""The console in a real browser: `sluice ui` as its own process, and each effect in queue and database."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from sluice.messaging.inbox import tables as inbox
from sluice.messaging.outbox import tables as outbox
from tests.support.command_line import KEYS
from tests.support.console import BILLING, DLQ, PARKING_FILE, QUEUE, acts_of, count_messages, state_of, troubled_shop
from tests.support.messaging.operated_shop import OperatedShop

HOSTILE = "<svg/onload=alert(1)>{{7*7}}"
GROUPS = ("order-7", "order-8", "order-9", "order-10", "order-11", "order-12", "order-13", HOSTILE)
PAGES = {
    "overview": "/",
    "reasons": "/dead-letters",
    "groups": "/dead-letters?by=group",
    "numbers": "/dead-letters?by=each",
    "parked": "/parked",
    "gaps": "/parked?show=gaps",
    "group": "/parked/billing?group=order-13",
    "outbox": "/outbox?status=sent",
    "find": "/find?q=order-13",
    "verdict": "/verdict?compare=1",
    "audit": "/audit",
}
WHY = "agreed with finance"
_CONTRAST = (Path(__file__).parent / "report_contrast.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatedShop]:
    """Yield a shop in which each test acts on a group of its own."""
    with troubled_shop(tmp_path_factory.mktemp("shop"), *GROUPS) as made:
        yield made


@pytest.fixture(scope="module")
def address(shop: OperatedShop) -> Iterator[str]:
    """Yield the address that a console of the shop prints; its pages may act."""
    where = ("--dsn", shop.dsn, "--endpoint-url", shop.endpoint.url, "--declaration", str(PARKING_FILE))
    command = (sys.executable, "-m", "sluice", "ui", "--allow-actions", *where)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **KEYS}) as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+", first)
        if found is None:
            pytest.fail(first + process.communicate()[1])
        yield found[0]
        process.terminate()
        process.communicate(timeout=30)


@pytest.fixture(scope="module")
def complaints() -> list[str]:
    """Return a list that takes every message of the browser's console, and every request for another place."""
    return []


@pytest.fixture(scope="module")
def console(browser: Any, address: str, complaints: list[str]) -> Iterator[Any]:
    """Yield a page of a browser that has used the printed address."""
    base = address.partition("/?")[0]
    context = browser.new_context(viewport={"width": 1280, "height": 900}, base_url=base)
    page = context.new_page()
    page.set_default_timeout(60_000)  # the demo runs beside
    page.on("console", lambda message: complaints.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
    page.on("request", lambda request: None if request.url.startswith(base) else complaints.append(request.url))
    page.goto(address)
    page.get_by_role("heading", name="Overview").wait_for()
    yield page
    context.close()


def _choose(console: Any, *groups: str) -> None:
    """Open the list of dead numbers, and select those of some groups."""
    console.goto("/")
    console.get_by_role("link", name="Dead letters", exact=True).click()
    console.get_by_role("link", name="each number").click()
    for group in groups:
        console.get_by_role("checkbox", name=f"of group {group}", exact=False).check()


def _confirm(console: Any, button: str) -> str:
    """Give the reason, do it, and return the sentence about what was done."""
    console.get_by_text("would ").first.wait_for()
    console.get_by_label("Why?").fill(WHY)
    console.get_by_role("button", name=button, exact=True).click()
    return str(console.locator(".lines").inner_text())


def test_a_dead_letter_is_brought_back_by_clicks(console: Any, shop: OperatedShop, complaints: list[str]) -> None:
    """The effect is in the queue and in the audit; no name of a message became a part of a page."""
    letters, waiting = count_messages(shop, DLQ), count_messages(shop, QUEUE)
    _choose(console, "order-7")
    console.get_by_role("button", name="Bring back").click()
    console.get_by_text(f"would send up to 1 of about {letters} messages").wait_for()
    letters_then = count_messages(shop, DLQ)

    done = _confirm(console, "Bring back")

    ((action, _, reason),) = acts_of(shop, None)
    assert letters_then == letters
    assert "1 brought back" in done
    assert count_messages(shop, DLQ) == letters - 1
    assert count_messages(shop, QUEUE) == waiting + 1
    assert action == "redrive"
    assert reason.endswith(WHY)
    assert complaints == []


@pytest.mark.slow
def test_data_is_replaced_in_the_editor_after_its_difference(console: Any, shop: OperatedShop) -> None:
    waiting = count_messages(shop, QUEUE)
    _choose(console, "order-8")
    console.get_by_role("button", name="Replace data").click()
    editor = console.get_by_label("The event's data, as JSON")
    before = editor.input_value()
    editor.fill('{"cents": 3}')
    console.get_by_role("button", name="Show what changes").click()
    difference = console.get_by_label("Difference").inner_text()

    done = _confirm(console, "Replace data")

    assert json.loads(before) == {"cents": -3}
    assert '-  "cents": -3' in difference
    assert '+  "cents": 3' in difference
    assert "done: replace message 1 of group order-8" in done
    assert count_messages(shop, QUEUE) == waiting + 1
    assert acts_of(shop, "order-8") == [("replace", 1, WHY)]


@pytest.mark.slow
def test_a_number_is_given_up_by_the_keyboard_alone(console: Any, shop: OperatedShop) -> None:
    _choose(console)
    console.get_by_role("checkbox", name="of group order-9").focus()
    console.keyboard.press("Space")
    console.get_by_role("button", name="Give up").focus()
    console.keyboard.press("Enter")
    console.get_by_text("would give up number 1 of group order-9").wait_for()
    focused = console.evaluate("document.activeElement.id")
    console.keyboard.type(WHY)
    console.keyboard.press("Tab")
    console.keyboard.press("Enter")
    console.get_by_text("done: give up number 1 of group order-9").wait_for()

    assert focused == "reason"
    assert state_of(shop, "order-9") == "skipped"
    assert acts_of(shop, "order-9") == [("skip", 1, WHY)]


@pytest.mark.slow
def test_a_letter_is_deleted(console: Any, shop: OperatedShop) -> None:
    letters = count_messages(shop, DLQ)
    _choose(console, "order-10")
    console.get_by_role("button", name="Delete from the DLQ").click()

    _confirm(console, "Delete from the DLQ")

    assert count_messages(shop, DLQ) == letters - 1
    assert acts_of(shop, "order-10") == [("purge-one", 1, WHY)]


@pytest.mark.slow
def test_a_parked_group_goes_on_and_its_held_message_is_tried_again(console: Any, shop: OperatedShop) -> None:
    console.goto("/parked")
    console.get_by_role("link", name="order-11").click()
    console.get_by_role("button", name="Give up number 1").click()
    _confirm(console, "Give up the awaited number")
    shop.execute("UPDATE sluice_inbox_parked SET held_at_us = 1, attempts = 9 WHERE group_id = 'order-11'")
    console.goto("/parked/billing?group=order-11")
    console.get_by_role("checkbox", name="number 2").check()
    console.get_by_role("button", name="Try again").click()
    _confirm(console, "Try again")

    p = inbox.parked.c
    with shop.engine.connect() as connection:
        held = connection.execute(select(p.held_at_us).where(p.group_id == "order-11")).scalar_one()
    assert held is None
    assert state_of(shop, "order-11") == "skipped"
    assert acts_of(shop, "order-11") == [("skip", 1, WHY), ("retry", 2, WHY)]


@pytest.mark.slow
def test_a_range_is_published_again(console: Any, shop: OperatedShop) -> None:
    console.goto("/outbox")
    form = console.locator("form[action='/resend']")
    form.get_by_label("group").fill("order-12")
    form.get_by_label("numbers").fill("1-2")
    form.get_by_role("button").click()
    console.get_by_text("would resend 2 sent messages").wait_for()
    _confirm(console, "Publish again")

    m = outbox.messages.c
    with shop.engine.connect() as connection:
        statuses = connection.execute(select(m.status).where(m.group_id == "order-12")).scalars().all()
    assert statuses == ["pending", "pending"]


@pytest.mark.slow
def test_a_consumer_is_paused_and_resumed_by_clicks(console: Any, shop: OperatedShop, complaints: list[str]) -> None:
    """Its worker receives nothing meanwhile."""
    waiting = count_messages(shop, QUEUE)
    shop.commit("paused", 5)
    shop.relay()
    console.goto("/")
    console.locator("#pause-billing").click()
    _confirm(console, "Pause")
    console.get_by_role("link", name="Back to the list").click()
    console.get_by_text(re.compile(f"billing is paused since .* {WHY}")).wait_for()
    shop.work(BILLING)
    waiting_then = count_messages(shop, QUEUE)

    console.locator("#pause-billing").click()
    _confirm(console, "Resume")
    shop.work(BILLING)

    assert waiting_then == waiting + 1
    assert count_messages(shop, QUEUE) == 0
    assert complaints == []


@pytest.mark.slow
def test_the_second_of_two_operators_reads_that_the_number_is_gone(console: Any, shop: OperatedShop) -> None:
    """Both have the dry run of the same number open; the second acts when the first has."""
    other = console.context.new_page()
    for page in (console, other):
        _choose(page, "order-12")
        page.get_by_role("button", name="Give up").click()
    _confirm(other, "Give up")
    other.close()

    second = _confirm(console, "Give up")

    assert "it is not there any more as you saw it, so nothing was done to it" in second
    assert acts_of(shop, "order-12") == [("skip", 1, WHY)]


@pytest.mark.slow
def test_bodies_are_hidden_until_a_click_and_shown_as_text(console: Any, complaints: list[str]) -> None:
    console.goto("/dead-letters?by=each")
    listed = console.locator("main").inner_text()
    console.get_by_role("row", name=HOSTILE).get_by_role("link").click()
    console.get_by_role("button", name="Show its body").click()
    body = console.get_by_label("Body").first.inner_text()

    assert HOSTILE in listed
    assert '"cents"' not in listed
    assert json.loads(body) == {"cents": -3}
    assert HOSTILE in console.locator("h1").inner_text()
    assert "had the console died, for 120 s" in console.locator("main").inner_text()
    assert complaints == []


@pytest.mark.slow
def test_another_browser_and_another_site_are_shut_out(browser: Any, address: str, console: Any) -> None:
    """The address was used; a page of another port neither frames the console nor posts to it."""
    base = address.partition("/?")[0]
    context = browser.new_context()
    page = context.new_page()
    again, without = page.goto(address).status, page.goto(base + "/find").status
    context.close()
    other = console.context.new_page()
    other.route(
        "http://127.0.0.1:9/", lambda route: route.fulfill(body="<p>another site</p>", content_type="text/html")
    )
    other.goto("http://127.0.0.1:9/")
    form = f"<form method=post action='{base}/act'><input name=action value=skip></form>"
    other.set_content(form)
    with other.expect_navigation() as posted:
        other.evaluate("document.forms[0].submit()")
    status = posted.value.status
    other.close()

    assert again == 401
    assert without == 401
    assert status in (401, 403)


@pytest.mark.slow
def test_the_overview_looks_again_and_says_when_it_cannot(console: Any) -> None:
    console.clock.install()
    console.goto("/")
    console.locator("#dead-billing").focus()
    with console.expect_response("**/live"):
        console.clock.run_for(11_000)
    console.wait_for_function("document.activeElement.id === 'dead-billing'")
    console.route("**/live", lambda route: route.abort())
    console.clock.run_for(11_000)
    console.get_by_text("sluice ui does not answer").wait_for()
    console.unroute("**/live")

    assert console.locator("svg.chart").count() == 3


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_is_legible_and_fits_into_the_window(console: Any, name: str, scheme: str) -> None:
    """In a wide and a narrow window; the contrast of text and ground is at least 4.5 (WCAG AA)."""
    console.emulate_media(color_scheme=scheme)
    widths = {}
    for width in (1280, 390):
        console.set_viewport_size({"width": width, "height": 900})
        console.goto(PAGES[name])
        widths[width] = console.evaluate("document.documentElement.scrollWidth")
        if folder := os.environ.get("SLUICE_PICTURES"):
            console.screenshot(path=f"{folder}/{name}-{width}-{scheme}.png", full_page=True)
    contrasts = console.evaluate(_CONTRAST)
    console.emulate_media(color_scheme="light")
    console.set_viewport_size({"width": 1280, "height": 900})

    assert widths == {1280: 1280, 390: 390}
    assert len(contrasts) > 3
    assert [(text, contrast) for text, contrast in contrasts if contrast < 4.5] == []


@pytest.mark.slow
def test_without_scripts_everything_but_the_next_look_works(browser: Any, shop: OperatedShop, console: Any) -> None:
    state = console.context.storage_state()
    base = (
        console.url.partition(
            "/",
        )[0]
        + "//"
        + console.url.split("/")[2]
    )
    context = browser.new_context(java_script_enabled=False, storage_state=state, base_url=base)
    page = context.new_page()
    _choose(page, "order-13")
    page.get_by_role("button", name="Give up").click()
    _confirm(page, "Give up")
    context.close()

    assert state_of(shop, "order-13") == "skipped"
