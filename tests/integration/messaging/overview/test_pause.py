"""`sluice inbox pause` and `resume`, and what the commands that look say of a paused consumer."""

import re

from sqlalchemy import select

from sluice.messaging.inbox.tables import audit, pauses
from tests.support.messaging.operated_shop import BILLING, OperatedShop

CONSUMER = ("--consumer", "billing")
WHY = ("--reason", "the bank is closed")


def _pause(shop: OperatedShop, *more: str) -> tuple[int, str, str]:
    return shop.sluice("inbox", "pause", *CONSUMER, *WHY, *more)


def _rows(shop: OperatedShop) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the paused consumers, and the audit: action and reason."""
    with shop.engine.connect() as connection:
        paused = list(connection.execute(select(pauses.c.consumer)).scalars())
        acts = connection.execute(select(audit.c.action, audit.c.reason).order_by(audit.c.id)).all()
    return paused, [(action, reason) for action, reason in acts]


def test_a_consumer_is_paused_and_resumed_with_a_reason(either_shop: OperatedShop) -> None:
    """A dry run changes nothing. Messages wait in the queue meanwhile."""
    shop = either_shop
    shop.commit("order-7", 500)
    shop.relay()

    code, tried, _ = _pause(shop)
    assert code == 0
    assert _rows(shop) == ([], [])
    assert tried.startswith("would pause billing: its workers finish what they have received, and receive nothing more")
    assert "its queue keeps a message for 4 d" in tried

    code, done, _ = _pause(shop, "--yes")
    assert code == 0
    assert done.startswith("done: pause billing")
    shop.work(BILLING)
    assert shop.json("find", "order-7")[0]["group"]["consumers"][0]["queues"]["queue"]["visible"] == 1

    code, _, refused = _pause(shop, "--yes")
    assert code == 2
    assert re.search(r"billing is paused already since 20\S+ by \S+: the bank is closed", refused)

    assert shop.sluice("inbox", "resume", *CONSUMER, "--reason", "it is open", "--yes")[0] == 0
    shop.work(BILLING)
    assert shop.json("find", "order-7")[0]["group"]["consumers"][0]["position"]["last_seq"] == 1
    assert _rows(shop) == ([], [("pause", "the bank is closed"), ("resume", "it is open")])


def test_every_command_that_looks_says_that_a_consumer_is_paused(shop: OperatedShop) -> None:
    """`status` asks for a person, who has to end the pause. To `verify` what waits in the queue is no loss."""
    (event,) = shop.commit("order-7", 500)
    shop.relay()
    _pause(shop, "--yes")
    shop.work()
    shop.age()

    state, code = shop.json("status")
    counts, _ = shop.json("inbox", "status", *CONSUMER)
    found, _ = shop.json("find", "order-7")
    verified, verified_code = shop.json("outbox", "verify", "--in-flight", "10m")
    _, replayed, warned = shop.sluice("replay", *CONSUMER, "--from", "2h", *WHY, "--yes")

    (billing,) = (row for row in state["consumers"] if row["consumer"] == "billing")
    assert billing["inbox"]["pause"]["reason"] == "the bank is closed"
    assert code == 99
    (need,) = (need for need in state["needs"] if "paused" in need["what"])
    assert re.fullmatch(r"billing is paused since \S+ by \S+: the bank is closed", need["what"])
    assert need["next"].startswith("sluice inbox resume --consumer billing")
    assert counts["paused"] == 1
    assert found["group"]["consumers"][0]["pause"].endswith("the bank is closed")
    assert "the consumer is paused since" in shop.sluice("find", "order-7")[1]
    assert "the consumer is paused since" in shop.sluice("find", event)[1]
    (judged,) = (row for row in verified["consumers"] if row["consumer"] == "billing")
    assert judged["missing"] == 0
    assert any("billing is paused since" in doubt for doubt in judged["unknown"])
    assert verified_code == 2
    assert replayed.startswith("done: set aside 1 event")
    assert "billing is paused since" in warned
    shop.work(BILLING)
    assert shop.json("find", "order-7")[0]["group"]["consumers"][0]["set_aside"] == [1]
