"""Nobody but the browser that used the printed address reads or acts, and no page loads anything from elsewhere."""

import asyncio
import json
from http import HTTPStatus

import pytest
from starlette.requests import Request

from sluice.clock import VirtualClock
from sluice.console import app, security
from sluice.console.rendering import diff_lines, lines_of_text, pretty_json, template_environment
from sluice.console.security import SESSION_SECONDS, RefusedRequestError
from tests.support.console import ORIGIN, ConsoleBrowser, sources_without_database
from tests.support.declaration import environment

CROSS_SITE = {"sec-fetch-site": "cross-site"}


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def browser(clock: VirtualClock) -> ConsoleBrowser:
    return ConsoleBrowser(sources_without_database(environment("local")), clock=clock)


def _paths() -> list[str]:
    """Return an address of each page."""
    return [
        path.replace("{consumer}", "billing")
        .replace("{number:int}", "1")
        .replace("{act:int}", "1")
        .replace("{owner}", "billing")
        .replace("{key}", "x")
        for path in app.VIEWS
    ]


@pytest.mark.parametrize("path", _paths())
def test_a_page_needs_the_cookie(browser: ConsoleBrowser, path: str) -> None:
    answer = browser.client.get(path)

    assert answer.status_code == 401
    assert "open the address" in answer.text
    assert browser.gate.form_token not in answer.text


@pytest.mark.parametrize("path", app.FORM_VIEWS)
def test_a_form_needs_cookie_origin_and_its_own_token(browser: ConsoleBrowser, path: str) -> None:
    before = browser.post(path, {}).status_code
    browser.open()
    without_origin = browser.client.post(path, data={"form_token": browser.gate.form_token})
    of_another_page = browser.post(path, {}, origin="http://127.0.0.1:1")
    of_no_page = browser.post(path, {}, origin="null")
    without_token = browser.client.post(path, data={"form_token": ""}, headers={"origin": ORIGIN})
    as_json = browser.client.post(path, content=b"{}", headers={"origin": ORIGIN, "content-type": "application/json"})

    assert before == 401
    assert without_origin.status_code == 403
    assert of_another_page.status_code == 403
    assert of_no_page.status_code == 403
    assert without_token.status_code == 403
    assert as_json.status_code == 415
    assert browser.client.get(path).status_code == 404


def test_the_printed_address_opens_one_browser_once(browser: ConsoleBrowser) -> None:
    wrong = browser.client.get("/", params={"token": "guessed"})
    opened = browser.client.get("/", params={"token": browser.gate.token}, headers=CROSS_SITE)
    again = browser.client.get("/", params={"token": browser.gate.token})

    cookie = opened.headers["set-cookie"]
    assert wrong.status_code == 401
    assert opened.status_code == 200
    assert cookie.startswith("sluice-ui-8642=")
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert browser.gate.token not in cookie
    assert browser.gate.token not in opened.text
    assert again.status_code == 401
    assert "used already" in again.text


def test_a_session_ends_after_half_a_day(browser: ConsoleBrowser, clock: VirtualClock) -> None:
    browser.open()
    clock.sleep(SESSION_SECONDS - 1)
    before = browser.client.get("/find").status_code
    clock.sleep(1)

    assert before == 200
    assert browser.client.get("/find").status_code == 401


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8642", "127.0.0.1", "127.0.0.1:1", "", "[::1]:8642"])
def test_a_request_for_another_host_is_refused(browser: ConsoleBrowser, host: str) -> None:
    """A name that was rebound to 127.0.0.1 stays in `Host`."""
    browser.open()

    answer = browser.client.get("/find", headers={"host": host})

    assert answer.status_code == 421
    assert "evil" not in answer.text
    assert browser.client.get("/find", headers={"host": "localhost:8642"}).status_code == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_visit_from_another_site_is_refused(browser: ConsoleBrowser, site: str) -> None:
    browser.open()

    assert browser.client.get("/find", headers={"sec-fetch-site": site}).status_code == 403
    assert browser.client.get("/find", headers={"sec-fetch-site": "same-origin"}).status_code == 200
    assert browser.client.get("/find", headers={"sec-fetch-site": "none"}).status_code == 200


@pytest.mark.parametrize("path", ["/", "/find", "/static/console.js", "/static/nothing", "/nothing", "/live"])
def test_every_answer_has_the_headers(browser: ConsoleBrowser, path: str) -> None:
    for _ in ("closed", "open"):
        headers = browser.client.get(path).headers
        assert {name: headers.get(name) for name in security.HEADERS} == security.HEADERS
        browser.gate.exchange(browser.gate.token) if browser.gate._session is None else None

    policy = security.HEADERS["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert "default-src 'none'" in policy


@pytest.mark.parametrize(
    "name", ["../security.py", "..%2fsecurity.py", "%2e%2e/app.py", "/etc/passwd", "console.js%00"]
)
def test_only_the_files_of_pages_are_sent(browser: ConsoleBrowser, name: str) -> None:
    browser.open()

    assert browser.client.get(f"/static/{name}").status_code == 404


def test_no_template_has_inline_script_or_style_or_loads_from_elsewhere() -> None:
    templates = template_environment()
    names = templates.list_templates()

    sources = {name: (app._HERE / "templates" / name).read_text(encoding="utf-8") for name in names}

    assert len(names) > 15
    for name, source in sources.items():
        assert " style=" not in source, name
        assert "<style" not in source, name
        assert " onclick=" not in source, name
        assert "://" not in source, name
        assert "| safe" not in source, name
        assert "autoescape" not in source, name
    assert [name for name, source in sources.items() if "<script" in source] == ["base.html"]
    assert "<script src=" in sources["base.html"]


def test_without_allow_actions_nothing_acts(browser: ConsoleBrowser) -> None:
    shown = ConsoleBrowser(sources_without_database(environment("local")), may_act=False)
    shown.open()

    acted = shown.post("/act", {"action": "skip", "owner": "billing", "key": "[1]", "confirmed": "1", "reason": "x"})
    resent = shown.post("/resend", {"owner": "x", "group": "g", "numbers": "1", "confirmed": "1", "reason": "x"})

    assert acted.status_code == 403
    assert "--allow-actions" in acted.text
    assert resent.status_code == 403


def test_a_form_with_too_many_bytes_or_fields_is_refused(
    browser: ConsoleBrowser, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser.open()
    monkeypatch.setattr(security, "_FORM_BYTES_MAX", 1_000)

    large = browser.post("/act", {"data": "x" * 1_000})
    many = browser.post("/act", {"key": [""] * (security._FORM_FIELDS_MAX + 1)})

    assert large.status_code == 413
    assert many.status_code == 413


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "{{ 7 * 7 }}",
        "{% raw %}",
        '" onmouseover="x',
        "\x1b[2J",
        "\u202egnp.exe",
        "\ud800",
        "\0",
    ],
)
def test_text_of_a_message_is_shown_as_text(browser: ConsoleBrowser, text: str) -> None:
    """In an element, in an attribute, as the lines of a body, and as its JSON."""
    page = template_environment().from_string('<p title="{{ text }}">{{ text }}</p><pre>{{ body | text_lines }}</pre>')

    shown = page.render(text=text, body=f"{text}\nline two")
    as_json = pretty_json({"note": text})

    assert shown.count("<") == 4
    assert shown.count('"') == 2
    assert "49" not in shown
    assert all(character.isprintable() or character == "\n" for character in shown)
    assert all(character.isprintable() or character == "\n" for character in as_json)
    assert json.loads(as_json) == {"note": text}


def test_lines_of_a_megabyte_are_all_shown() -> None:
    body = "x" * 1_048_576 + "\nlast"

    assert len(lines_of_text(body)) == len(body)
    assert diff_lines(body, body + "y") == [("same", "1048581 characters become 1048582: too many to compare here")]


def test_a_difference_has_the_lines_that_change() -> None:
    before, after = pretty_json({"cents": -3, "note": "a"}), pretty_json({"cents": 3, "note": "a"})

    changed = [line for kind, line in diff_lines(before, after) if kind in ("less", "more")]

    assert changed == ['-  "cents": -3,', '+  "cents": 3,']
    assert diff_lines(before, before) == []


def test_a_form_of_a_browser_that_went_away_is_refused(browser: ConsoleBrowser) -> None:
    """No traceback is left in the terminal."""

    async def receive() -> dict[str, str]:
        return {"type": "http.disconnect"}

    headers = [(b"content-type", b"application/x-www-form-urlencoded")]
    request = Request({"type": "http", "method": "POST", "headers": headers}, receive)

    with pytest.raises(RefusedRequestError, match="cannot be read"):
        asyncio.run(browser.gate.read_form(request))


def test_a_form_that_does_not_come_is_refused(browser: ConsoleBrowser, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it would be waited for until the console ends, which would leave a traceback in the terminal."""
    monkeypatch.setattr(security, "_CHUNK_SECONDS", 0.01)

    async def receive() -> dict[str, str]:
        await asyncio.Event().wait()
        raise AssertionError("nothing sets it")

    headers = [(b"content-type", b"application/x-www-form-urlencoded"), (b"content-length", b"9")]
    request = Request({"type": "http", "method": "POST", "headers": headers}, receive)

    with pytest.raises(RefusedRequestError) as refused:
        asyncio.run(asyncio.wait_for(browser.gate.read_form(request), 5))

    assert refused.value.status is HTTPStatus.REQUEST_TIMEOUT
