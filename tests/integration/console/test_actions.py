"""The console acts as the command line does: on what was seen and nothing else, with a reason, and a true audit row."""

import html
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy import select

from sluice.cli.acts import actor
from sluice.cli.overview.sources import opening
from sluice.messaging.inbox import tables as inbox
from sluice.messaging.outbox import tables as outbox
from tests.integration.messaging.conftest import private_server
from tests.support.console import (
    DLQ,
    HOSTILE_TEXT,
    PARKING,
    QUEUE,
    ConsoleBrowser,
    acts_of,
    count_messages,
    state_of,
    troubled_shop,
)
from tests.support.messaging.operated_shop import TOPIC, OperatedShop

WHY = "agreed with finance"
SURE = {"confirmed": "1", "reason": WHY}
GROUPS = ("back", "group", "replace", "skip", "awaited", "purge", "held", "gone", "moved", "changed", "<b>&{{7*7}}")


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def shop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatedShop]:
    """Yield a shop in which each test has a group of its own; at night on Postgres, too."""
    with ExitStack() as stack:
        url = None
        if request.param == "postgresql":
            url = stack.enter_context(private_server(tmp_path_factory)).get_uri()
        yield stack.enter_context(troubled_shop(tmp_path_factory.mktemp("shop"), *GROUPS, url=url))


@pytest.fixture(scope="module")
def browser(shop: OperatedShop) -> Iterator[ConsoleBrowser]:
    """Yield a browser in which the console is open and may act."""
    with opening(PARKING, shop.dsn, (), shop.endpoint.url) as sources:
        made = ConsoleBrowser(sources)
        made.open()
        yield made


def _keys(page: str) -> list[str]:
    """Return the keys of the rows of a page, in their order."""
    return [html.unescape(key) for key in re.findall(r'name="key" value="([^"]*)"', page)]


def _dead_key(browser: ConsoleBrowser, group: str) -> str:
    (key,) = _keys(browser.get("/dead-letters", consumer="billing", by="each", group=group))
    return key


def _field(page: str, name: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]*)"', page)
    assert found is not None, page
    return html.unescape(found[1])


def test_a_selection_is_brought_back_after_a_dry_run_and_a_reason(shop: OperatedShop, browser: ConsoleBrowser) -> None:
    """The first form is a preview and the second lacks a reason: neither moves or audits anything."""
    key, letters = _dead_key(browser, "back"), count_messages(shop, DLQ)

    preview = browser.act("redrive", "billing", [key])
    unexplained = browser.act("redrive", "billing", [key], confirmed="1", reason=" ")
    letters_before, acts_before = count_messages(shop, DLQ), len(acts_of(shop, None))
    done = browser.act("redrive", "billing", [key], **SURE)
    (act,) = acts_of(shop, None)[acts_before:]

    assert f"would send up to 1 of about {letters} messages of {DLQ}" in preview
    assert "the reason is empty" in unexplained
    assert letters_before == letters
    assert acts_before == 0
    assert f"done: {DLQ}: 1 brought back" in done
    assert count_messages(shop, DLQ) == letters - 1
    assert act[0] == "redrive"
    assert act[2].endswith(WHY)
    assert actor() in browser.get("/audit", owner="billing")


def test_all_letters_of_a_group_are_brought_back(shop: OperatedShop, browser: ConsoleBrowser) -> None:
    """The page lists dead letters by group, and the selected group has one."""
    page = browser.get("/dead-letters", consumer="billing", by="group", group="group")
    before = count_messages(shop, QUEUE)

    done = browser.act("redrive-groups", "billing", _keys(page), **SURE)

    assert "1 brought back" in done
    assert count_messages(shop, QUEUE) == before + 1


def test_replaced_data_is_compared_first_and_refused_if_it_changed(shop: OperatedShop, browser: ConsoleBrowser) -> None:
    """A form that was not compared sends nothing."""
    key, before = _dead_key(browser, "replace"), count_messages(shop, QUEUE)

    editor = browser.act("replace", "billing", [key])
    fields = {"seen": _field(editor, "seen"), "data": '{"cents": 3}'}
    uncompared = browser.act("replace", "billing", [key], **fields, **SURE)
    no_json = browser.act("replace", "billing", [key], **{**fields, "data": "{"}, compared="1", **SURE)
    changed = browser.act("replace", "billing", [key], **{**fields, "seen": '{"cents": 7}'}, compared="1", **SURE)
    compared = browser.act("replace", "billing", [key], **fields, compared="1")
    unchanged = count_messages(shop, QUEUE), acts_of(shop, "replace")
    done = browser.act("replace", "billing", [key], **fields, compared="1", **SURE)

    assert "&#34;cents&#34;: -3" in editor
    assert "Dry run" not in uncompared
    assert "the data is not JSON" in no_json
    assert "its data has changed since you saw it" in changed
    assert '<span class="less">-  &#34;cents&#34;: -3</span>' in compared
    assert '<span class="more">+  &#34;cents&#34;: 3</span>' in compared
    assert unchanged == (before, [])
    assert "done: replace message 1 of group replace" in done
    assert count_messages(shop, QUEUE) == before + 1
    assert acts_of(shop, "replace") == [("replace", 1, WHY)]


def test_a_dead_and_an_awaited_number_are_given_up(shop: OperatedShop, browser: ConsoleBrowser) -> None:
    """A dry run changes nothing. The page of a group gives up what the group waits for."""
    group_page = browser.get("/parked/billing", group="awaited")

    preview = browser.act("skip", "billing", [_dead_key(browser, "skip")])
    state_before = state_of(shop, "skip")
    browser.act("skip", "billing", [_dead_key(browser, "skip")], **SURE)
    browser.act("skip-awaited", "billing", _keys(group_page)[:1], **SURE)

    assert "would give up number 1 of group skip of billing" in preview
    assert state_before == "dead"
    assert state_of(shop, "skip") == "skipped"
    assert state_of(shop, "awaited") == "skipped"
    assert acts_of(shop, "skip") == [("skip", 1, WHY)]
    assert acts_of(shop, "awaited") == [("skip", 1, WHY)]


def test_the_verdict_names_a_message_that_nobody_published(shop: OperatedShop, browser: ConsoleBrowser) -> None:
    """A row that is marked as sent and has no message id of SNS; nothing is compared before somebody wants it."""
    shop.commit("<i>lost", 5)
    sql = "UPDATE sluice_outbox SET status = 'sent', sent_at_us = 1, created_at_us = 1 WHERE status = 'pending'"
    shop.execute(sql)

    assert "INVALID" not in browser.get("/verdict")
    page = browser.get("/verdict", compare="1")

    assert "<b>INVALID</b>" in page
    assert "&lt;i&gt;lost" in page
    assert "<i>lost" not in page
    shop.execute("DELETE FROM sluice_outbox WHERE sns_message_id IS NULL")


def test_a_letter_is_deleted_and_the_audit_keeps_its_body(shop: OperatedShop, browser: ConsoleBrowser) -> None:
    """The audit shows the deleted body only after a further request, which the reader makes by a form."""
    key, before = _dead_key(browser, "purge"), count_messages(shop, DLQ)

    browser.act("purge", "billing", [key], **SURE)
    listed = browser.get("/audit", owner="billing", group="purge")
    (path,) = re.findall(r'href="(/audit/billing/\d+)"', listed)
    hidden = browser.get(path)
    shown = browser.post("/audit-detail", {"owner": "billing", "act": path.rpartition("/")[2]}).text

    assert count_messages(shop, DLQ) == before - 1
    assert acts_of(shop, "purge") == [("purge-one", 1, WHY)]
    assert "&#34;cents" not in listed
    assert "&#34;cents" not in hidden
    assert "cents" in shown


def test_a_held_message_is_tried_again_unchanged_or_with_other_data(
    shop: OperatedShop, browser: ConsoleBrowser
) -> None:
    """Both acts give the message its attempts back; `hold` makes it held again in between."""

    def hold() -> str:
        shop.execute("UPDATE sluice_inbox_parked SET held_at_us = 1, attempts = 9 WHERE group_id = 'held'")
        return _keys(browser.get("/parked/billing", group="held"))[-1]

    def row() -> tuple[int, int | None, str]:
        p = inbox.parked.c
        with shop.engine.connect() as connection:
            found = connection.execute(select(p.attempts, p.held_at_us, p.body).where(p.group_id == "held")).one()
        return found.attempts, found.held_at_us, found.body

    browser.act("retry", "billing", [hold()], **SURE)
    tried_again = row()
    key = hold()
    editor = browser.act("replace-held", "billing", [key])
    fields = {"seen": _field(editor, "seen"), "data": '{"cents": 4}', "compared": "1"}
    browser.act("replace-held", "billing", [key], **fields, **SURE)
    replaced = row()

    assert tried_again[:2] == (0, None)
    assert replaced[:2] == (0, None)
    assert json.loads(replaced[2])["data"] == {"cents": 4}
    assert [action for action, _, _ in acts_of(shop, "held")] == ["retry", "replace"]


def test_sent_messages_are_published_again_selected_or_as_a_range(shop: OperatedShop, browser: ConsoleBrowser) -> None:
    """The preview changes nothing; a range whose first number is after its last is refused."""
    page = browser.get("/outbox", status="sent", group="skip")
    fields = {"owner": TOPIC, "group": "purge", "numbers": "1-2"}

    def pending() -> list[tuple[str, int]]:
        m = outbox.messages.c
        with shop.engine.connect() as connection:
            found = connection.execute(select(m.group_id, m.group_seq).where(m.status == "pending").order_by(m.id))
            return [(row.group_id, row.group_seq) for row in found]

    preview = browser.post("/resend", fields).text
    none_yet = pending()
    browser.act("resend", TOPIC, _keys(page)[:1], **SURE)
    answer = browser.post("/resend", {**fields, **SURE})
    result = browser.get(answer.headers["location"])
    refused = browser.post("/resend", {**fields, "numbers": "9-1"})

    assert "would resend 2 sent messages, numbers 1 to 2 of group purge" in preview
    assert none_yet == []
    assert "done: resend 2 sent messages" in result
    assert pending() == [("skip", 1), ("purge", 1), ("purge", 2)]
    assert refused.status_code == 400
    assert "not after its last" in refused.text


def test_of_two_operators_the_second_acts_on_nothing(shop: OperatedShop, browser: ConsoleBrowser) -> None:
    """The rows that the first has left are acted on; each refusal is a sentence, and writes no row of the audit."""
    gone, moved, changed = (_dead_key(browser, group) for group in ("gone", "moved", "changed"))
    awaited = _keys(browser.get("/parked", group="moved"))
    browser.act("purge", "billing", [gone], **SURE)
    browser.act("skip", "billing", [moved], **SURE)
    shop.execute("UPDATE sluice_inbox_exception SET sqs_message_id = 'another' WHERE group_id = 'changed'")
    before, runs_before = count_messages(shop, DLQ), len(acts_of(shop, None))

    of_gone = browser.act("purge", "billing", [gone], **SURE)
    redriven = browser.act("redrive", "billing", [gone], **SURE)
    of_others = browser.act("redrive", "billing", [moved, changed], **SURE)
    of_awaited = browser.act("skip-awaited", "billing", awaited, **SURE)
    (run,) = acts_of(shop, None)[runs_before:]

    assert "message 1 of group gone is not among the" in of_gone
    assert f"{DLQ}: 0 brought back" in redriven
    assert "done:" not in redriven
    assert of_others.count("it is not there any more as you saw it") == 2
    assert "it is not there any more as you saw it" in of_awaited
    assert count_messages(shop, DLQ) == before
    assert [action for action, _, _ in acts_of(shop, "gone")] == ["purge-one"]
    assert [action for action, _, _ in acts_of(shop, "moved")] == ["skip"]
    assert acts_of(shop, "changed") == []
    assert run[0] == "redrive"


def test_bodies_are_shown_on_demand_as_text_and_given_back(shop: OperatedShop, browser: ConsoleBrowser) -> None:
    """A letter that is no envelope has a megabyte of markup; the list shows neither."""
    group = GROUPS[-1]
    body = "\x09<script>alert(2)</script>\u2066{% x %}\n" + "<i>" * 40_000
    url = shop.url(DLQ)
    shop.sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId="raw", MessageDeduplicationId="raw")
    before = count_messages(shop, DLQ)

    listed = browser.get("/dead-letters", consumer="billing", by="each", group=group)
    shown = browser.post("/bodies", {"consumer": "billing", "group": group}).text
    cut = browser.post("/bodies", {"consumer": "billing", "group": "raw"}).text
    whole = browser.post("/bodies", {"consumer": "billing", "group": "raw", "whole": "1"}).text
    nothing = browser.post("/bodies", {"consumer": "billing", "group": "none"}).text
    in_flight = shop.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessagesNotVisible"])

    assert "&lt;b&gt;&amp;{{7*7}}" in listed
    assert "&#34;cents" not in listed
    assert "&#34;cents&#34;: -3" in shown
    assert html.escape(HOSTILE_TEXT.replace("\u202e", "\\u202e")).replace("&quot;", "&#34;") in shown
    assert "had the console died, for 120 s" in shown
    assert "<script>alert" not in shown + cut + whole
    assert "\\t&lt;script&gt;alert(2)&lt;/script&gt;\\u2066{% x %}\n" in cut
    assert "characters" in cut
    assert whole.count("&lt;i&gt;") == 40_000
    assert "No letter of group none can be had" in nothing
    assert in_flight["Attributes"]["ApproximateNumberOfMessagesNotVisible"] == "0"
    assert count_messages(shop, DLQ) == before


def test_a_mistaken_form_or_address_is_answered_in_a_line(browser: ConsoleBrowser) -> None:
    """No key, a key of another table, two keys where one is allowed, an unknown act or name, and a foreign address."""
    of_no_key = browser.post("/act", {"action": "skip", "owner": "billing"})
    of_nonsense = browser.post("/act", {"action": "skip", "owner": "billing", "key": '["x", 1]'})
    of_two = browser.post("/act", {"action": "replace", "owner": "billing", "key": ["[1]", "[2]"]})
    of_no_action = browser.post("/act", {"action": "drop", "owner": "billing", "key": "[1]"})
    of_nobody = browser.client.get("/dead-letters", params={"consumer": "biling"})
    since = browser.client.get("/dead-letters", params={"since": "yesterday"})
    no_number = browser.client.get("/dead-letters/billing/999999999999999999999")
    elsewhere = browser.post("/act", {"action": "skip", "owner": "billing", "key": "[1]", "back": "//evil.example"})

    assert of_no_key.status_code == 400
    assert "0 rows are selected" in of_no_key.text
    assert of_nonsense.status_code == 400
    assert "load the page again" in of_nonsense.text
    assert "allowed are 1 to 1" in of_two.text
    assert of_no_action.status_code == 400
    assert "did you mean &#39;billing&#39;" in of_nobody.text
    assert "allowed is an age such as" in since.text
    assert no_number.status_code == 404
    assert "evil" not in elsewhere.text


def test_a_line_says_why_something_cannot_be_read(shop: OperatedShop, tmp_path: Path) -> None:
    """A queue that is gone, no database, a database without tables."""
    with opening(PARKING, None, (), shop.endpoint.url) as sources:
        blind = ConsoleBrowser(sources)
        blind.open()
        overview, letters = blind.get("/"), blind.client.get("/dead-letters")
    (tmp_path / "empty.db").touch()
    with opening(PARKING, f"sqlite:///{tmp_path / 'empty.db'}", (), "http://127.0.0.1:9") as sources:
        no_tables = ConsoleBrowser(sources)
        no_tables.open()
        no_inbox, nothing = no_tables.client.get("/dead-letters"), no_tables.get("/")

    assert "no database is named" in overview
    assert letters.status_code == 400
    assert "no database is named" in letters.text
    assert "schema apply" in no_inbox.text
    assert "Could not connect" in nothing


def test_a_consumer_is_paused_and_resumed_as_it_was_seen(shop: OperatedShop, browser: ConsoleBrowser) -> None:
    """The second of two operators reads that somebody else acted."""
    (seen,) = (key for key in _keys(browser.get("/live")) if "billing" in key)

    preview = browser.act("pause", "billing", [seen])
    before = acts_of(shop, None)
    done = browser.act("pause", "billing", [seen], **SURE)
    second = browser.act("pause", "billing", [seen], **SURE)
    page = browser.get("/live")
    found = browser.get("/find", q="back")
    (paused,) = (key for key in _keys(page) if "billing" in key)
    resumed = browser.act("resume", "billing", [paused], **SURE)

    assert "would pause billing: its workers finish what they have received" in preview
    assert "pause" not in [action for action, *_ in before]
    assert "done: pause billing" in done
    assert "consumer billing: it is not there any more as you saw it" in second
    assert re.search(rf"billing is paused since \S+ by {re.escape(actor())}: {WHY}", page)
    assert "paused</span> since" in found
    assert "done: resume billing" in resumed
    assert [act for act in acts_of(shop, None) if act[0] in ("pause", "resume")] == [
        ("pause", None, WHY),
        ("resume", None, WHY),
    ]
    assert json.dumps(["billing", None]) in _keys(browser.get("/live"))
