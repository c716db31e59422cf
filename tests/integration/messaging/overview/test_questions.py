"""The ten questions of an operator (docs/guides/operators.md), each answered by one command that changes nothing."""

import re
import secrets
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, make_url, select

from sluice.declaration import DatabaseRole, naming
from sluice.messaging.database import migrations, roles
from sluice.messaging.outbox import tables as outbox
from sluice.messaging.relay.lease import Lease
from tests.support.command_line import Run
from tests.support.messaging.operated_shop import BILLING, LOCAL, TOPIC, OperatedShop, operated_shop
from tests.support.messaging.passwords import execute

READING = {
    "GetQueueUrl",
    "GetQueueAttributes",
    "ListMessageMoveTasks",
    "ListSubscriptionsByTopic",
    "GetSubscriptionAttributes",
}
LOOKS = (("status",), ("find", "order-7"), ("dlq", "ls"), ("outbox", "verify"))


@pytest.fixture
def busy_shop(shop: OperatedShop) -> OperatedShop:
    """Return a shop in which billing has refused two messages."""
    return _make_busy(shop)


def _make_busy(shop: OperatedShop) -> OperatedShop:
    """Let billing refuse number 2 of order-7 and number 1 of order-8, and the others do nothing."""
    shop.commit("order-7", 500, -3, 700)
    shop.commit("order-8", -4)
    shop.relay()
    shop.work(BILLING)
    return shop


def _event_ids(shop: OperatedShop) -> list[str]:
    """Return the ids of all events, in the order in which they were committed."""
    with shop.engine.connect() as connection:
        return list(connection.execute(select(outbox.messages.c.event_id).order_by(outbox.messages.c.id)).scalars())


def _of_consumer(rows: list[dict[str, Any]], consumer: str = "billing") -> dict[str, Any]:
    """Return the only row of that consumer."""
    (found,) = (row for row in rows if row["consumer"] == consumer)
    return found


def test_status_find_and_verify_answer_the_operators_questions(either_shop: OperatedShop) -> None:
    """Each question is a comment above its answer."""
    shop = _make_busy(either_shop)
    shop.sluice("dlq", "skip", "order-8", "1", "--consumer", "billing", "--reason", "a test order", "--yes")
    shop.sluice("dlq", "redrive", "--consumer", "billing", "--group", "order-7", "--yes")
    (event,) = shop.commit("order-9", 300)
    handled_id, dead_id, _, skipped_id, _ = _event_ids(shop)

    dead_event, _ = shop.json("find", dead_id)
    handled_event, _ = shop.json("find", handled_id)
    skipped_event, _ = shop.json("find", skipped_id)
    _, skipped_text, _ = shop.sluice("find", skipped_id)
    group, _ = shop.json("find", "order-7")
    skipped, _ = shop.json("find", "order-8")
    pending, _ = shop.json("find", event)
    state, code = shop.json("status")

    # Where is it? Handled at billing up to number 3, in shipping's queue; the new one is not published yet.
    assert _of_consumer(group["group"]["consumers"])["position"]["last_seq"] == 3
    assert _of_consumer(group["group"]["consumers"], "shipping")["queues"]["queue"]["visible"] == 4
    assert pending["events"][0]["outbox"]["status"] == "pending"
    assert pending["events"][0]["seq"] == 1
    # Why is it there, and since when? Number 2 is dead for a reason, since an instant.
    (dead,) = _of_consumer(group["group"]["consumers"])["open"]
    assert dead["state"] == "dead"
    assert dead["first"] == 2
    assert dead["reason"] == "refund of -3 cents, allowed is 1 or more"
    assert dead["since"].startswith("20")
    # Who did it? The audit of its group; a redrive is of each group of which it brought back a message.
    assert [(act["action"], act["reason"]) for act in skipped["group"]["audit"]] == [("skip", "a test order")]
    assert [act["action"] for act in group["group"]["audit"]] == ["redrive"]
    assert [act["action"] for act in dead_event["events"][0]["audit"]] == ["redrive"]
    assert handled_event["events"][0]["audit"] == []
    given_up = _of_consumer(skipped_event["events"][0]["consumers"])
    assert f"given up {given_up['closed_at']}, receive 1: a test order" in skipped_text
    # Which relay leads? One led, and gave the lease back when it had nothing left to do.
    assert state["topics"][0]["leader"]["is_leading"] is False
    assert state["topics"][0]["leader"]["token"] == 1
    # Is the backlog growing? Five were committed in the last minute, and four were sent.
    assert state["topics"][0]["flow"] == {"seconds": 60, "committed": 5, "sent": 4}
    # What did the last redrive do? It brought one back, which is not handled yet.
    redrive = _of_consumer(state["consumers"])["last_redrive"]
    assert redrive["engine"] == "client"
    assert redrive["moved"] == 1
    assert redrive["states"] == {"dead or on its way": 1}
    # What needs a person? No relay leads though a message waits; a dead letter of a number that was given up is left.
    needs = [need["what"] for need in state["needs"]]
    assert needs == [f"no relay leads {TOPIC}, and messages wait", "about 1 dead letters of billing"]
    assert code == 99
    # What is lost? Nothing that can be judged: the other consumers' queues hold what they have not handled.
    verified, _ = shop.json("outbox", "verify")
    assert {row["consumer"]: row["missing"] for row in verified["consumers"]} == dict.fromkeys(
        ("billing", "shipping", "audit"), 0
    )


def test_waiting_groups_are_listed_with_the_awaited_number(busy_shop: OperatedShop) -> None:
    """`status`, `dlq ls` and `find` name group order-7, which waits for number 4."""
    shop = busy_shop
    shop.execute("UPDATE sluice_inbox_group SET parked_at_us = 1, awaits_seq = 4 WHERE group_id = 'order-7'")

    state, code = shop.json("status")
    _, listed, _ = shop.sluice("dlq", "ls", "--consumer", "billing")
    group, _ = shop.json("find", "order-7")

    assert _of_consumer(state["consumers"])["inbox"]["blocked_groups"] == 1
    assert code == 99
    assert "1 parked groups of billing wait for somebody" in [need["what"] for need in state["needs"]]
    assert re.search(r"parked +group order-7 waits for number 4 of epoch \d+ since ", listed)
    assert _of_consumer(group["group"]["consumers"])["awaits_seq"] == 4


def test_status_fits_into_eighty_columns(busy_shop: OperatedShop) -> None:
    """Although a group's name has a hundred letters; equal reasons are one line."""
    shop = busy_shop
    shop.commit("x" * 100, *([-7] * 3))
    shop.relay()
    shop.work(BILLING)

    code, printed, _ = shop.sluice("status")

    assert code == 99
    assert max(map(len, printed.splitlines())) <= 80
    assert re.search(r"billing +0 +0 +- +\? +5 +0 +0 +0", printed), printed
    assert "  billing: 5 \N{MULTIPLICATION SIGN} refund of … cents, allowed is 1 or more; 3 groups" in printed


def test_dead_letters_are_grouped_by_reason(busy_shop: OperatedShop) -> None:
    """`--each` lists them one by one; filters choose by reason, group, type and time, also for `inspect`."""
    shop = busy_shop
    ls = ("dlq", "ls", "--consumer", "billing")

    _, listed, _ = shop.sluice(*ls)
    _, each, _ = shop.sluice(*ls, "--each")
    by_reason, _ = shop.json(*ls, "--died-of", "refund of … cents")
    by_group, _ = shop.json(*ls, "--group", "order-8", "--type", "order.placed", "--since", "1h")
    nothing = [
        shop.json(*ls, *option)[0]["consumers"][0]["exceptions"]
        for option in (("--died-of", "KeyError"), ("--type", "order.shipped"), ("--since", "2100-01-01"))
    ]

    assert "2 \N{MULTIPLICATION SIGN} refund of … cents, allowed is 1 or more; 2 groups, since 20" in listed
    assert each.count("  dead         group order-") == 2
    assert len(by_reason["consumers"][0]["exceptions"]) == 2
    assert [row["group_id"] for row in by_group["consumers"][0]["exceptions"]] == ["order-8"]
    assert nothing == [[], [], []]
    chosen = {
        ("--group", "order-7"): 1,
        ("--died-of", "cents"): 2,
        ("--type", "order.placed"): 2,
        ("--type", "order.shipped"): 0,
        ("--since", "1h"): 2,
        ("--since", "2100-01-01T00:00"): 0,
    }
    for option, count in chosen.items():
        printed, _ = shop.json("dlq", "inspect", "--consumer", "billing", *option)
        assert sum(len(group["messages"]) for group in printed["groups"]) == count, option


def test_the_overview_changes_nothing(busy_shop: OperatedShop) -> None:
    """Neither a row nor a message; and no receive counts as an attempt."""
    shop = busy_shop
    before = shop.dump()
    shop.operations.clear()

    for look in LOOKS:
        shop.sluice(*look)

    assert shop.dump() == before
    assert shop.operations <= READING, shop.operations - READING


def test_unreadable_sources_are_unknown_and_never_zero(busy_shop: OperatedShop) -> None:
    """The role may not read the queues' counts. A dead letter that the inbox knows is still reported."""
    shop = busy_shop
    shop.denied.add("GetQueueAttributes")

    state, code = shop.json("status")
    _, printed, _ = shop.sluice("status")
    verified, verify_code = shop.json("outbox", "verify", "--in-flight", "60s")

    assert code == 99  # a group's number is dead, which the inbox says
    for kind in ("queue", "dead_letters", "undelivered"):
        assert "you may not" in _of_consumer(state["consumers"])[kind]["unknown"]
    assert re.search(r"shipping +\? +\? +\? +\? +\? +\? +", printed)
    assert verified["verdict"] == "UNKNOWN"
    assert verify_code == 2
    assert any("cannot be read" in reason for reason in _of_consumer(verified["consumers"])["unknown"])


def test_without_a_database_status_says_that_it_is_not_known(shop: OperatedShop, tmp_path: Any) -> None:
    """The file has no tables: exit code 2, and no number is shown as 0."""
    other = f"sqlite:///{tmp_path / 'empty.db'}"
    (tmp_path / "empty.db").touch()

    state, code = shop.json("status", dsn=other)

    assert state["topics"][0]["pending"] == {
        "unknown": "the outbox's tables are not in this database; create them with `sluice schema apply outbox`"
    }
    assert code == 2
    assert "unknown" in _of_consumer(state["consumers"])["inbox"]


def test_a_consumer_of_another_database_is_unknown_and_not_idle(
    busy_shop: OperatedShop,
) -> None:
    """Nothing of shipping is in this database."""
    state, _ = busy_shop.json("status")

    assert _of_consumer(state["consumers"], "shipping")["inbox"] == {
        "unknown": "nothing of shipping is in this database; if its inbox has another one, give --inbox"
    }


def test_finding_an_unknown_name_ends_with_exit_code_1(shop: OperatedShop) -> None:
    """The name is neither an event's id nor a group; a script sees that by the exit code."""
    code, printed, failed = shop.sluice("find", "nobody")

    assert code == 1
    assert printed == ""
    assert "neither an event nor a group 'nobody' is known" in failed


def test_watching_goes_on_until_ctrl_c(shop: OperatedShop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each screen shows the changes since the screen before."""
    slept: list[float] = []

    def sleep(_: object, seconds: float) -> None:
        slept.append(seconds)
        if len(slept) > 1:
            raise KeyboardInterrupt
        shop.commit("order-1", 100, 200)

    monkeypatch.setattr("sluice.cli.overview.status.SystemClock.sleep", sleep)

    code, printed, _ = shop.sluice("status", "--watch", "3")

    assert code == 130
    assert slept == [3, 3]
    assert "backlog 0," in printed
    assert "backlog 2(+2)," in printed
    assert "2 committed, 0 sent: growing by 2" in printed


def test_the_reading_role_can_look_and_nothing_more(postgres: Engine, run: Run) -> None:
    """A role that may only read is enough for every look, so none of them can change a row."""
    name = f"reader_{secrets.token_hex(4)}"
    schema = make_url(str(postgres.url)).query["application_name"]
    with operated_shop(postgres, run) as shop:
        shop.commit("order-7", 500, -3)
        shop.relay()
        shop.work(BILLING)
        execute(postgres, f"CREATE ROLE {name} LOGIN")
        try:
            execute(postgres, f"GRANT USAGE ON SCHEMA {schema} TO {name}")
            for table, privileges in roles.RIGHTS[DatabaseRole.READER].items():
                if table != migrations.versions.name:
                    execute(postgres, f"GRANT {privileges} ON {table} TO {name}")
            dsn = postgres.url.set(username=name).render_as_string(hide_password=False)

            codes = [shop.sluice(*look, dsn=dsn)[0] for look in LOOKS]
            refused = shop.sluice("outbox", "resend", "order-7", "1", "--reason", "x", "--yes", dsn=dsn)
        finally:
            execute(postgres, f"DROP OWNED BY {name}")
            execute(postgres, f"DROP ROLE {name}")

    assert codes == [99, 0, 0, 2]  # shipping and audit have handled nothing: their inboxes may be elsewhere
    assert refused[0] == 2
    assert "permission denied" in refused[2]


def test_find_says_when_an_event_was_handled_by_which_attempt_and_worker(either_shop: OperatedShop) -> None:
    """The last number of a group says it exactly; an earlier number was handled before the last one."""
    shop = either_shop
    first, last = shop.commit("order-7", 500, 600)
    shop.relay()
    shop.work(BILLING)

    found, _ = shop.json("find", last)
    earlier, _ = shop.json("find", first)
    _, printed, _ = shop.sluice("find", last)

    handled = _of_consumer(found["events"][0]["consumers"])
    assert handled["handled_at"].startswith("20")
    assert handled["handled_attempt"] == 1
    assert handled["worker"] == "host/1"
    assert _of_consumer(earlier["events"][0]["consumers"])["handled_before"] == handled["handled_at"]
    assert f"handled {handled['handled_at']} at attempt 1 by host/1; its group is at 2" in printed


def test_find_says_who_handled_a_number_that_came_back(shop: OperatedShop, tmp_path: Path) -> None:
    """An operator replaced the dead message's data, and another worker handled it."""
    data = tmp_path / "data.json"
    data.write_text('{"cents": 5}')
    event, _ = shop.commit("order-7", -5, 600)
    shop.relay()
    shop.work(BILLING)
    replace = ("dlq", "replace", "order-7", "1", "--data", str(data), "--consumer", "billing")
    assert shop.sluice(*replace, "--reason", "a typo", "--yes")[0] == 0
    shop.work(BILLING)

    found, _ = shop.json("find", event)

    handled = _of_consumer(found["events"][0]["consumers"])
    assert handled["state"] == "handled after it was brought back"
    assert handled["handled_attempt"] == 1
    assert handled["worker"] == "host/1"


def test_a_number_that_an_earlier_version_handled_has_no_worker(shop: OperatedShop) -> None:
    """During a rolling deployment earlier code moves the position and leaves the new columns as they are."""
    shop.commit("order-7", 500)
    shop.relay()
    shop.work(BILLING)
    (event,) = shop.commit("order-7", 600)
    shop.relay()
    shop.execute("UPDATE sluice_inbox_group SET last_seq = 2, last_event_id = :id", id=event)

    found, _ = shop.json("find", event)

    handled = _of_consumer(found["events"][0]["consumers"])
    assert handled["handled_before"].startswith("20")
    assert "worker" not in handled


def test_find_says_what_the_queues_counts_allow(shop: OperatedShop) -> None:
    """A message that is on its way may be in a queue that holds some, and is in none of its queues if all are empty."""
    shop.commit("order-7", 500)
    shop.relay()
    shop.work(BILLING)
    (event,) = shop.commit("order-7", 600)
    shop.relay()

    waiting, _ = shop.json("find", event)
    shop.purge(naming.queue_name(LOCAL, BILLING))
    young, _ = shop.json("find", event)
    shop.age()
    old, _ = shop.json("find", event)
    shop.denied.add("GetQueueAttributes")
    unread, _ = shop.json("find", event)

    found = [_of_consumer(each["events"][0]["consumers"]) for each in (waiting, young, old, unread)]
    assert [each["is_in_queue"] for each in found] == [None, None, False, None]
    queue = naming.queue_name(LOCAL, BILLING)
    assert found[0]["whereabouts"].startswith(f"not known: it may be among the about 1 of {queue}; a receive would")
    assert "may count late by 60 s" in found[1]["whereabouts"]
    assert found[2]["whereabouts"].startswith("in none of its queues")
    assert "cannot be read" in found[3]["whereabouts"]


def test_status_says_since_when_a_relay_leads(shop: OperatedShop) -> None:
    """Of a relay of an earlier version, which does not write it down, it is unknown."""
    lease = Lease(shop.engine, TOPIC, lease_seconds=30, owner="host/2")
    assert lease.acquire()
    leading, _ = shop.json("status")
    _, printed, _ = shop.sluice("status")
    shop.execute("UPDATE sluice_outbox_lease SET token = token + 1")
    earlier, _ = shop.json("status")

    assert leading["topics"][0]["leader"]["since"].startswith("20")
    assert re.search(r"host/2 leads for \d", printed)
    assert earlier["topics"][0]["leader"]["since"] is None
