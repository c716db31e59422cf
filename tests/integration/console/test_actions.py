"""The console acts as the command line does: on what was seen and nothing else, with a reason, and a true audit row."""

import html
import re

import pytest
from sqlalchemy import select

from sluice.cli.acts import actor
from sluice.declaration import naming
from sluice.messaging.inbox import tables as inbox
from sluice.messaging.sqs.dead_letter_queue import counts
from tests.support.console import ConsoleBrowser
from tests.support.messaging.operated_shop import BILLING, LOCAL, OperatedShop

SURE = {"confirmed": "1", "reason": "agreed with finance"}
HOSTILE = '<script>alert(1)</script>{{ 7*7 }}"\u202e'


@pytest.fixture
def dead_shop(shop: OperatedShop) -> OperatedShop:
    """Let number 1 of order-7, and number 1 of order-8, be dead at billing."""
    shop.commit("order-7", -3, type_="refund.asked", note=HOSTILE)
    shop.commit("order-8", -4)
    shop.relay()
    shop.work(BILLING)
    return shop


def _keys(page: str) -> list[str]:
    """Return the keys of the rows of a page, in their order."""
    return [html.unescape(key) for key in re.findall(r'name="key" value="([^"]*)"', page)]


def _count(shop: OperatedShop, name: str) -> int:
    """Return how many messages a queue has, in flight or not."""
    attributes = shop.sqs.get_queue_attributes(QueueUrl=shop.url(name), AttributeNames=["All"])["Attributes"]
    return sum(counts(attributes).values())


def _acts(shop: OperatedShop) -> list[tuple[str, str, str | None, int | None, str]]:
    a = inbox.audit.c
    with shop.engine.connect() as connection:
        rows = connection.execute(select(a.actor, a.action, a.group_id, a.seq, a.reason).order_by(a.id))
        return [tuple(row) for row in rows]


def test_a_selection_is_brought_back_after_a_dry_run_and_a_reason(
    dead_shop: OperatedShop, browser: ConsoleBrowser
) -> None:
    (of_7, of_8) = _keys(browser.get("/dead-letters", consumer="billing", by="each"))
    queue, dlq = (naming.queue_name(LOCAL, BILLING), naming.dead_letter_queue_name(LOCAL, BILLING))

    preview = browser.act("redrive", "billing", [of_7])
    unexplained = browser.act("redrive", "billing", [of_7], confirmed="1", reason=" ")
    before = _count(dead_shop, dlq), _acts(dead_shop)
    done = browser.act("redrive", "billing", [of_7], **SURE)

    assert "would send up to 1 of about 2 messages" in preview
    assert "the reason is empty" in unexplained
    assert before == (2, [])
    assert "done: sluice-local-billing-dlq.fifo: 1 brought back" in done
    assert _count(dead_shop, dlq) == 1
    assert _count(dead_shop, queue) == 1
    ((who, action, _, _, reason),) = _acts(dead_shop)
    assert who == actor()
    assert action == "redrive"
    assert reason.endswith("agreed with finance")
    assert of_8 != of_7
