"""The console in a real browser: `sluice ui` as its own process, and each effect in queue and database."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from sluice.declaration import naming
from sluice.messaging.database import engines
from sluice.messaging.inbox import tables as inbox
from sluice.messaging.outbox import tables as outbox
from sluice.messaging.sqs.dead_letter_queue import counts
from tests.support.command_line import KEYS, command_line
from tests.support.declaration import FILE
from tests.support.messaging.operated_shop import BILLING, LOCAL, OperatedShop, operated_shop

QUEUE, DLQ = naming.queue_name(LOCAL, BILLING), naming.dead_letter_queue_name(LOCAL, BILLING)
HOSTILE = "<svg/onload=alert(1)>{{7*7}}"
_CONTRAST = (Path(__file__).parent / "report_contrast.js").read_text(encoding="utf-8")


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[OperatedShop]:
    """Yield a shop in which number 1 of order-7, of order-8 and of a group with a hostile name is dead at billing."""
    engine = engines.engine(f"sqlite:///{tmp_path / 'shop.db'}")
    with engine.begin() as connection:
        outbox.metadata.create_all(connection)
    with command_line(monkeypatch, capsys) as run, operated_shop(engine, run) as made:
        for group in ("order-7", "order-8", HOSTILE):
            made.commit(group, -3, type_="refund.asked")
        made.relay()
        made.work(BILLING)
        yield made
    engine.dispose()


@pytest.fixture
def address(shop: OperatedShop) -> Iterator[str]:
    """Yield the address that a console of the shop prints; its pages may act."""
    where = ("--dsn", shop.dsn, "--endpoint-url", shop.endpoint.url, "--declaration", str(FILE))
    variables = {**os.environ, **KEYS, "PYTHONUNBUFFERED": "1"}
    command = (sys.executable, "-m", "sluice", "ui", "--allow-actions", *where)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=variables) as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+", first)
        if found is None:
            pytest.fail(first + process.communicate()[1])
        yield found[0]
        process.terminate()
        process.communicate(timeout=30)


@pytest.fixture
def console(page: Any, address: str) -> Any:
    """Return a page of a browser in which the console is open; `base` is added to its paths."""
    page.goto(address)
    page.get_by_role("heading", name="Overview").wait_for()
    return page


def _count(shop: OperatedShop, name: str) -> int:
    attributes = shop.sqs.get_queue_attributes(QueueUrl=shop.url(name), AttributeNames=["All"])["Attributes"]
    return sum(counts(attributes).values())


def _acts(shop: OperatedShop) -> list[tuple[Any, ...]]:
    a = inbox.audit.c
    with shop.engine.connect() as connection:
        return [tuple(row) for row in connection.execute(select(a.action, a.group_id, a.seq, a.reason).order_by(a.id))]


def _choose(console: Any, *groups: str) -> None:
    """Open the list of dead numbers, and select those of some groups."""
    console.get_by_role("link", name="Dead letters", exact=True).click()
    console.get_by_role("link", name="each number").click()
    for group in groups:
        console.get_by_role("checkbox", name=f"of group {group}").check()


def test_a_dead_letter_is_brought_back_by_clicks(
    console: Any, shop: OperatedShop, address: str, console_messages: list[str]
) -> None:
    """The effect is in the queue and in the audit; no name of a message became a part of a page."""
    _choose(console, "order-7")
    console.get_by_role("button", name="Bring back").click()
    console.get_by_text("would send up to 1 of about 3 messages").wait_for()
    before = _count(shop, DLQ)
    console.get_by_label("Why?").fill("the limit was raised")
    console.get_by_role("button", name="Bring back").click()
    console.get_by_text("1 brought back").wait_for()

    ((action, _, _, reason),) = _acts(shop)
    base = address.partition("/?")[0]
    assert before == 3
    assert _count(shop, DLQ) == 2
    assert _count(shop, QUEUE) == 1
    assert action == "redrive"
    assert reason.endswith("the limit was raised")
    assert [line for line in console_messages if not line.startswith(f"request: {base}")] == []
