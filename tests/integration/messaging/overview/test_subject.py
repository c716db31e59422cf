"""`sluice subject erase` leaves a person's content nowhere in databases and queues, and no gap in a group."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sluice.declaration import naming
from sluice.messaging import Ack, Context, Event, Outbox, Outcome, Reject
from sluice.messaging.bundle import write_bundle
from sluice.messaging.database import engines
from sluice.messaging.envelope import Envelope
from sluice.messaging.outbox import tables
from sluice.recorder.journal import read_journal
from tests.support.command_line import Run
from tests.support.console import DLQ, PARKING, PARKING_FILE
from tests.support.messaging.operated_shop import TOPIC, OperatedShop, operated_shop

JANE, JOHN = "jane@planted.example", "john@example.org"
DECLARED = ("--declaration", str(PARKING_FILE))
SUBJECT = ("--data", f"customer.email={JANE}", *DECLARED)
WHY = ("--reason", "request 4711", "--yes")


def _refuse_debts(_: Session, event: Event, __: Context) -> Outcome:
    """Reject an order with a negative amount, and name the customer."""
    email, cents = event.data["customer"]["email"], event.data["cents"]
    return Ack() if cents > 0 else Reject(f"{email} may not order for {cents} cents")


@pytest.fixture
def shop(database_folder: Path, run: Run) -> Iterator[OperatedShop]:
    """Yield a shop whose billing parks what is behind a dead letter."""
    engine = engines.engine(f"sqlite:///{database_folder / 'shop.db'}")
    with engine.begin() as connection:
        tables.metadata.create_all(connection)
    with operated_shop(engine, run, PARKING) as made:
        made.handler = _refuse_debts
        yield made
    engine.dispose()


@pytest.fixture
def either_shop(engine: Engine, run: Run) -> Iterator[OperatedShop]:
    """Yield the same shop, once for each kind of database."""
    with operated_shop(engine, run, PARKING) as made:
        made.handler = _refuse_debts
        yield made


def _order(shop: OperatedShop, group: str, *orders: tuple[str, int]) -> None:
    """Commit an order of a customer for so many cents each, in one group."""
    with Session(shop.engine) as session:
        for email, cents in orders:
            data = {"customer": {"email": email}, "cents": cents}
            event = Event(type="order.placed", group=group, data=data, attributes={"customer": email})
            Outbox(TOPIC).add(session, event)
        session.commit()


def _run(shop: OperatedShop) -> None:
    """Let relay and workers do everything that is there."""
    shop.relay()
    shop.work()


def _plant(shop: OperatedShop) -> None:
    """Put orders of Jane everywhere: handled, dead, set aside, quarantined, replaced, and into a letter by hand."""
    _order(shop, "handled", (JANE, 100))
    _order(shop, "dead", (JANE, -1), (JOHN, 5))
    _order(shop, "behind", (JOHN, -1), (JANE, 5), (JOHN, 6))
    _run(shop)
    _order(shop, "quarantined", (JANE, 7), (JOHN, 8))
    quarantined = "UPDATE sluice_outbox SET status = 'quarantined' WHERE group_id = :group AND group_seq = 1"
    shop.execute(quarantined, group="quarantined")
    shop.sqs.send_message(
        QueueUrl=shop.url(DLQ), MessageBody=f"Dear {JANE}", MessageGroupId="by-hand", MessageDeduplicationId="1"
    )


def _bodies(shop: OperatedShop) -> list[str]:
    """Return the bodies of all messages in all queues, which nobody can receive for a while then."""
    names = [
        name_of(PARKING, consumer)
        for consumer in PARKING.consumers
        for name_of in (naming.queue_name, naming.dead_letter_queue_name, naming.undelivered_queue_name)
    ]
    found: list[str] = []
    for name in names:
        while received := shop.sqs.receive_message(
            QueueUrl=shop.url(name), MaxNumberOfMessages=10, MessageAttributeNames=["All"]
        ).get("Messages"):
            found += map(repr, received)
    return found


def _subject(shop: OperatedShop, *arguments: str) -> tuple[dict[str, Any], int]:
    """Run `sluice subject …`, and return its JSON and exit code."""
    printed, code = shop.json("subject", *arguments)
    return printed, code


def test_subject_erase_leaves_no_content_of_a_person_anywhere(either_shop: OperatedShop) -> None:
    """Neither in a table nor in a queue, also after relay and workers have gone on. The listing itself has none."""
    shop = either_shop
    _plant(shop)

    found, code = _subject(shop, "find", *SUBJECT)
    assert code == 0
    places = {(copy["place"], copy["group_id"]) for copy in found["copies"]}
    assert {("sluice_outbox", "handled"), ("sluice_inbox_parked", "behind"), (DLQ, "dead"), (DLQ, "by-hand")} <= places
    assert JANE not in repr(found)

    erased, code = _subject(shop, "erase", *SUBJECT, *WHY)
    assert erased["copies"] == []
    assert code == 0
    assert JANE not in repr(shop.dump())

    _run(shop)
    assert JANE not in repr(shop.dump())
    assert [body for body in _bodies(shop) if JANE in body] == []


def test_one_event_of_a_bundle_is_erased_and_its_neighbours_stay_dead(shop: OperatedShop) -> None:
    """Its tombstone comes to the consumer alone; the others keep their bodies, and are not brought back."""
    orders = [{"customer": {"email": email}, "cents": 1} for email in (JANE, JOHN, JOHN)]
    events = [Event(type="order.placed", group="bundled", data=order) for order in orders]
    sent = [Envelope(event=event, seq=number, epoch=1) for number, event in enumerate(events, start=1)]
    bodies = [envelope.body for envelope in sent]
    shop.sqs.send_message(
        QueueUrl=shop.url(DLQ), MessageBody=write_bundle(bodies), MessageGroupId="bundled", MessageDeduplicationId="1"
    )

    found, _ = _subject(shop, "find", *SUBJECT)
    erased, code = _subject(shop, "erase", *SUBJECT, *WHY)
    _run(shop)

    assert [(copy["seq"], copy["event_id"]) for copy in found["copies"]] == [(1, sent[0].event.id)]
    assert erased["erased"] == 1
    assert erased["copies"] == []
    assert code == 0
    assert _positions(shop)["bundled"] == (1, False)
    (left,) = shop.sqs.receive_message(QueueUrl=shop.url(DLQ), MaxNumberOfMessages=10)["Messages"]
    assert left["Body"] == write_bundle(bodies[1:])


def test_a_bundle_with_letters_behind_it_is_left_with_a_reason(shop: OperatedShop) -> None:
    """Its other events would come to the end of the DLQ, and a redrive would bring them back behind later ones."""
    orders = [{"customer": {"email": email}, "cents": 1} for email in (JANE, JOHN, JOHN)]
    events = [Event(type="order.placed", group="bundled", data=order) for order in orders]
    bodies = [Envelope(event=event, seq=number, epoch=1).body for number, event in enumerate(events, start=1)]
    letters = [write_bundle(bodies[:2]), bodies[2]]
    for number, body in enumerate(letters):
        shop.sqs.send_message(
            QueueUrl=shop.url(DLQ), MessageBody=body, MessageGroupId="bundled", MessageDeduplicationId=str(number)
        )

    erased, code = _subject(shop, "erase", *SUBJECT, *WHY)

    assert code == 1
    assert erased["erased"] == 0
    assert ["bring them back" in copy["left"] for copy in erased["copies"]] == [True]
    left = shop.sqs.receive_message(QueueUrl=shop.url(DLQ), MaxNumberOfMessages=10)["Messages"]
    assert [message["Body"] for message in left] == letters


def test_groups_go_on_over_erased_numbers(shop: OperatedShop) -> None:
    """A group goes on behind its erased dead letter; one that waits for another dead letter still waits for that."""
    _plant(shop)

    _subject(shop, "erase", *SUBJECT, *WHY)
    _run(shop)

    assert _positions(shop) == {
        "handled": (1, False),
        "dead": (2, False),
        "behind": (0, True),
        "quarantined": (2, False),
    }
    assert shop.sluice("dlq", "skip", "behind", "1", "--consumer", "billing", *WHY, *DECLARED)[0] == 0
    shop.work()
    assert _positions(shop)["behind"] == (3, False)


def _positions(shop: OperatedShop) -> dict[str, tuple[int, bool]]:
    """Return the last number of each group of billing, and whether it is parked."""
    columns = "SELECT group_id, last_seq, parked_at_us FROM sluice_inbox_group WHERE consumer = 'billing'"
    with shop.engine.connect() as connection:
        rows = connection.exec_driver_sql(columns)
        return {row.group_id: (row.last_seq, row.parked_at_us is not None) for row in rows}


def test_a_dry_run_changes_nothing(shop: OperatedShop) -> None:
    """Without --yes every table is as before."""
    _plant(shop)
    before = shop.dump()

    _, code = _subject(shop, "erase", *SUBJECT, "--reason", "request 4711")

    assert code == 0
    assert shop.dump() == before


def test_erase_leaves_and_names_messages_that_are_under_way(shop: OperatedShop) -> None:
    """A pending row and a message in a queue are not erased: the command is to be run again."""
    _order(shop, "sent", (JANE, 5))
    shop.relay()
    _order(shop, "pending", (JANE, 5))

    erased, code = _subject(shop, "erase", *SUBJECT, *WHY)

    assert code == 1
    assert [(copy["group_id"], copy["left"] is None) for copy in erased["copies"]] == [("pending", False)]
    assert [(each["consumer"], each["group_id"]) for each in erased["on_their_way"]] == [
        ("billing", "sent"),
        ("shipping", "sent"),
    ]

    _run(shop)
    assert _subject(shop, "erase", *SUBJECT, *WHY)[1] == 0
    assert JANE not in repr(shop.dump())


@pytest.mark.slow  # erasing itself is tested by day
def test_an_erased_message_that_is_resent_changes_nothing(shop: OperatedShop) -> None:
    """Its tombstone is the same event, so who has handled it drops it as a repeat."""
    _order(shop, "handled", (JANE, 100))
    _run(shop)
    _subject(shop, "erase", *SUBJECT, *WHY)

    shop.sluice("outbox", "resend", "handled", "1", "--reason", "a test", "--yes", *DECLARED)
    _run(shop)

    assert shop.json("outbox", "verify", "--in-flight", "10m", *DECLARED)[0]["consumers"][0]["states"] == {"handled": 1}
    assert _bodies(shop) == []


@pytest.mark.slow  # erasing itself is tested by day
def test_a_recording_has_no_content_to_erase(shop: OperatedShop, tmp_path: Path) -> None:
    """A relay with --record writes groups, times and ids, and no bodies."""
    _order(shop, "recorded", (JANE, 5))

    shop.relay("--record", str(tmp_path))

    rows = [row for journal in tmp_path.rglob("*.arrow*") for row in read_journal(journal).to_pylist()]
    assert "recorded" in {row["message_group_id"] for row in rows}
    assert JANE not in repr(rows)


def test_letters_are_seen_although_a_receive_ends_within_their_group(shop: OperatedShop) -> None:
    """Ten of the 21 letters are three groups, and the first letter of the next, which hides its others."""
    for number in range(21):
        group, id_ = f"group-{number // 3}", str(number)
        sent = {"MessageBody": "letter", "MessageGroupId": group, "MessageDeduplicationId": id_}
        shop.sqs.send_message(QueueUrl=shop.url(DLQ), **sent)

    found, _ = _subject(shop, "find", "--group", "group-3")

    assert [copy["place"] for copy in found["copies"]] == [DLQ] * 3
    assert [reason for reason in found["not_searched"] if reason.startswith(f"{DLQ}:")] == []


def test_a_queue_that_cannot_be_read_is_no_success(shop: OperatedShop) -> None:
    """Each consumer has two DLQs, and each that was not searched is named."""
    shop.denied.add("ReceiveMessage")

    found, code = _subject(shop, "find", *SUBJECT)

    assert code == 2
    assert len(found["not_searched"]) == 2 * len(PARKING.consumers)


@pytest.mark.parametrize(
    "arguments",
    [(), ("--data", "email"), ("--data", "=x"), ("--data", "customer..email=x"), ("--data", "email=")],
    ids=["none", "no value", "no path", "an empty step", "an empty value"],
)
def test_a_subject_that_means_nothing_is_refused(run: Run, arguments: tuple[str, ...]) -> None:
    """A subject is a path in the data and a value; the refusal is one line."""
    code, _, failed = run("subject", "find", *arguments)

    assert code == 3
    assert failed.count("\n") == 1
