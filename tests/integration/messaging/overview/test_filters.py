"""Commands that act on many rows act on what matches their filters, and leave everything else alone."""

from typing import Any

import pytest

from tests.support.messaging.operated_shop import BILLING, OperatedShop

REASON_AND_YES = ("--reason", "a test", "--yes")
OF_BILLING = ("--consumer", "billing")


@pytest.fixture
def dead_shop(shop: OperatedShop) -> OperatedShop:
    """Return a shop in which billing has refused one message of each of three groups."""
    shop.commit("order-1", -1)
    shop.commit("order-2", -2)
    shop.commit("order-3", -30, type_="order.returned")
    shop.relay()
    shop.work(BILLING)
    return shop


def _open_groups(shop: OperatedShop) -> list[str]:
    """Return the groups of billing's open exceptions."""
    printed, _ = shop.json("dlq", "ls", *OF_BILLING)
    return sorted(row["group_id"] for row in printed["consumers"][0]["exceptions"])


@pytest.mark.parametrize(
    ("filters", "moved"),
    ids=["group", "type", "reason", "reason with a gap, and type", "an hour", "future", "reason of none"],
    argvalues=[
        (("--group", "order-1"), ["order-1"]),
        (("--type", "order.returned"), ["order-3"]),
        (("--died-of", "refund of -2 cents"), ["order-2"]),
        (("--died-of", "refund of … cents", "--type", "order.placed"), ["order-1", "order-2"]),
        (("--since", "1h"), ["order-1", "order-2", "order-3"]),
        (("--since", "2100-01-01"), []),
        (("--died-of", "KeyError"), []),
    ],
)
def test_redrive_brings_back_what_matches(dead_shop: OperatedShop, filters: tuple[str, ...], moved: list[str]) -> None:
    """By group, type, reason and time; `--died-of` matches a part of the reason, and `…` stands for any value."""
    preview, _ = dead_shop.json("dlq", "redrive", *OF_BILLING, *filters)
    redriven, _ = dead_shop.json("dlq", "redrive", *OF_BILLING, *filters, "--yes")

    assert preview["matching"] == len(moved)
    assert sorted(place["group"] for place in redriven["moved"]) == moved


def test_redrive_stops_at_its_limit(dead_shop: OperatedShop) -> None:
    """A limit and a canary cannot be combined."""
    redriven, _ = dead_shop.json("dlq", "redrive", *OF_BILLING, "--limit", "2", "--yes")
    both = dead_shop.sluice("dlq", "redrive", *OF_BILLING, "--limit", "2", "--canary", "1")

    assert len(redriven["moved"]) == 2
    assert both[0] == 3
    assert "--canary and --limit are given" in both[2]


@pytest.mark.parametrize(
    ("filters", "left"),
    ids=["reason and type", "two groups", "an hour, at most one"],
    argvalues=[
        (("--died-of", "refund of … cents", "--type", "order.placed"), ["order-3"]),
        (("--group", "order-2", "--group", "order-3"), ["order-1"]),
        (("--since", "1h", "--limit", "1"), ["order-2", "order-3"]),
    ],
)
def test_skip_gives_up_what_matches(dead_shop: OperatedShop, filters: tuple[str, ...], left: list[str]) -> None:
    """Without --yes the command says how many numbers match, and changes nothing."""
    before = dead_shop.dump()

    intended = dead_shop.sluice("dlq", "skip", *OF_BILLING, *filters, "--reason", "a test")
    assert intended[1].splitlines()[-1] == f"{3 - len(left)} numbers to give up"
    assert dead_shop.dump() == before

    done = dead_shop.sluice("dlq", "skip", *OF_BILLING, *filters, *REASON_AND_YES)
    assert done[1].splitlines()[-1] == f"{3 - len(left)} numbers given up"
    assert _open_groups(dead_shop) == left


def test_retry_tries_the_held_messages_that_match_again(shop: OperatedShop) -> None:
    """A message that is set aside and not held waits for its turn, and is left alone."""
    for group in ("order-1", "order-2", "order-3"):
        shop.commit(group, 100)
    shop.relay()
    shop.work(BILLING)
    parked = (
        "INSERT INTO sluice_inbox_parked (consumer, group_id, epoch, seq, event_id, body, attributes, sqs_message_id,"
        " attempts, held_at_us, last_error, parked_at_us) SELECT 'billing', group_id, 1, group_seq, event_id, body,"
        " attributes, event_id, 3, CASE WHEN group_id = 'order-3' THEN NULL ELSE 1 END, 'timeout after 3 s', 1"
        " FROM sluice_outbox"
    )
    shop.execute(parked)

    intended = shop.sluice("dlq", "retry", *OF_BILLING, "--died-of", "timeout", "--reason", "a test")
    limited = shop.sluice("dlq", "retry", *OF_BILLING, "--died-of", "timeout", "--limit", "1", *REASON_AND_YES)
    rest = shop.sluice("dlq", "retry", *OF_BILLING, "--group", "order-2", *REASON_AND_YES)
    nothing = shop.sluice("dlq", "retry", *OF_BILLING, "--group", "order-3", *REASON_AND_YES)

    assert [each[1].splitlines()[-1] for each in (intended, limited, rest)] == [
        "2 messages to try again",
        "1 messages tried again",
        "1 messages tried again",
    ]
    assert nothing[0] == 2
    assert "no held message of billing matches" in nothing[2]


def _statuses(shop: OperatedShop) -> dict[str, str]:
    """Return the status of each group's message in the outbox."""
    rows = [
        shop.json("outbox", "ls", "--status", status)[0]["messages"] for status in ("pending", "quarantined", "sent")
    ]
    return {row["group_id"]: row["status"] for found in rows for row in found}


@pytest.mark.parametrize(
    ("command", "filters", "status"),
    ids=["resend", "unquarantine", "skip"],
    argvalues=[
        ("resend", ("--type", "order.placed", "--limit", "1"), "sent"),
        ("unquarantine", ("--died-of", "InvalidParameter", "--group", "order-1"), "quarantined"),
        ("skip", ("--died-of", "invalidparameter", "--since", "1h", "--limit", "1"), "quarantined"),
    ],
)
def test_outbox_commands_act_on_what_matches(
    shop: OperatedShop, command: str, filters: tuple[str, ...], status: str
) -> None:
    """Two messages are alike, and the filters or the limit choose one."""
    shop.commit("order-1", 100)
    shop.commit("order-2", 100)
    shop.execute("UPDATE sluice_outbox SET status = :status, last_error = 'InvalidParameter: x'", status=status)

    code, printed, failed = shop.sluice("outbox", command, *filters, *REASON_AND_YES)

    assert code == 0, failed
    assert printed.splitlines()[-1].startswith("1 messages ")
    assert _statuses(shop) == {"order-1": "pending", "order-2": status}


@pytest.mark.parametrize(
    "arguments",
    [
        ("dlq", "retry", "order-1", "1", *OF_BILLING, "--group", "order-1"),
        ("dlq", "retry", *OF_BILLING),
        ("dlq", "skip", "order-1", *OF_BILLING, "--type", "order.placed"),
        ("outbox", "unquarantine"),
        ("outbox", "resend", "order-1", "1", "--limit", "3"),
    ],
    ids=["retry with both", "retry with neither", "skip with both", "unquarantine with neither", "resend with both"],
)
def test_a_message_or_filters_are_needed_and_not_both(shop: OperatedShop, arguments: tuple[Any, ...]) -> None:
    """Each command either names one message, or chooses messages by filters."""
    code, _, failed = shop.sluice(*arguments, "--reason", "a test")

    assert code == 3
    assert "give GROUP and" in failed
