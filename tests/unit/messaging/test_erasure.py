"""A subject's content is found in every table of outbox and inbox, and erased there."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, insert, select

from sluice.messaging import Event, erasure
from sluice.messaging.bundle import write_bundle
from sluice.messaging.database import engines
from sluice.messaging.envelope import TOMBSTONE, Envelope, decode
from sluice.messaging.erasure import NOT_PUBLISHED, Subject, SubjectEraser, find_rows
from sluice.messaging.inbox import tables as inbox
from sluice.messaging.outbox import tables as outbox

JANE = "jané@planted.example"
SUBJECT = Subject(fields=((("customer", "email"), JANE),))
TOPIC, CONSUMER, NOW_US = "events.fifo", "billing", 1_800_000_000_000_000
TABLES = (*outbox.metadata.sorted_tables, *inbox.metadata.sorted_tables)
REASON = f"refund for {JANE} is not allowed"


def _body(group: str, email: str, *, seq: int = 1, wrap: bool = False) -> str:
    """Return the body of an order with this customer's email; `wrap` puts the customer into a list."""
    customer: Any = {"email": email}
    data = {"customer": [{"email": "other"}, customer] if wrap else customer, "cents": 5}
    return Envelope(
        event=Event(type="order.placed", group=group, data=data, id=f"{group}-{seq}"), seq=seq, epoch=7
    ).body


def _message(group: str, email: str, status: str = "sent", **more: Any) -> dict[str, Any]:
    """Return an outbox row of an order."""
    body = _body(group, email)
    place = {"topic": TOPIC, "group_id": group, "group_seq": 1, "event_id": f"{group}-1", "type": "order.placed"}
    stored = {"body": body, "attributes": json.dumps({"type": "order.placed", "email": email}, ensure_ascii=False)}
    return {
        **place,
        **stored,
        "deduplication_id": "d",
        "status": status,
        "created_at_us": 1,
        "last_error": None,
        **more,
    }


def _parked_row(group: str, email: str, **more: Any) -> dict[str, Any]:
    """Return the row of a parked message."""
    place = {"consumer": CONSUMER, "group_id": group, "epoch": 7, "seq": 1, "event_id": f"{group}-1"}
    stored = {"body": _body(group, email, wrap=True), "attributes": json.dumps({"email": email}, ensure_ascii=False)}
    return {**place, **stored, "sqs_message_id": "m", "parked_at_us": 1, "last_error": None, **more}


def _act(owner: str, name: str, seq: str, **detail: Any) -> dict[str, Any]:
    """Return the row of an operator's action in the audit of outbox or inbox."""
    kept = json.dumps(detail, ensure_ascii=False)
    return {
        "at_us": 1,
        "actor": "ann",
        "action": "replace",
        owner: name,
        "group_id": "x",
        seq: 1,
        "reason": "r",
        "detail": kept,
    }


def _plant(connection: Connection) -> None:
    """Write a row with content of Jane into each table, and beside it one of John."""
    john = "john@example.org"
    sent = [_message("a", JANE), _message("q", JANE, "quarantined", last_error=REASON), _message("j", john)]
    connection.execute(insert(outbox.messages), sent)
    connection.execute(
        insert(inbox.parked),
        [_parked_row("p", JANE), _parked_row("j", john), _parked_row("k", john, last_error=REASON)],
    )
    connection.execute(insert(outbox.audit), [_act("topic", TOPIC, "group_seq", event_id="a-1", body=_body("a", JANE))])
    held = _act("consumer", CONSUMER, "seq", event_id="p-1", last_error=REASON, body=_body("p", JANE))
    raw = _act("consumer", CONSUMER, "seq", sqs_message_id="m", fault="no JSON", body=f"hello {JANE}")
    connection.execute(insert(inbox.audit), [held, raw])
    dead = {"consumer": CONSUMER, "group_id": "a", "epoch": 7, "seq": 1, "through": 1, "state": "dead", "seen_at_us": 1}
    connection.execute(insert(inbox.exceptions), [{**dead, "event_id": "a-1", "reason": "she lives in Bremen"}])
    tried = {"consumer": CONSUMER, "sqs_message_id": "m", "group_id": "a", "last_error": REASON, "updated_at_us": 1}
    connection.execute(
        insert(inbox.attempts), [{**tried, "failed_count": 1, "unfinished_count": 0, "receive_count": 1}]
    )


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """Yield an engine on a database with planted rows of Jane and John."""
    engine = engines.engine(f"sqlite:///{tmp_path / 'shop.db'}")
    with engine.begin() as connection:
        outbox.metadata.create_all(connection)
        inbox.metadata.create_all(connection)
        _plant(connection)
    yield engine
    engine.dispose()


def _erase(engine: Engine, subject: Subject = SUBJECT) -> None:
    """Erase all copies of a subject that may be erased, as `sluice subject erase` does."""
    eraser = SubjectEraser(actor="ann", reason="request 4711")
    with engine.begin() as connection:
        ids = (found.copy.event_id for found in list(find_rows(connection, subject)))
        whole = erasure.with_events(subject, ids)
        for found in [found for found in find_rows(connection, whole) if found.copy.left is None]:
            eraser.erase(connection, found)


def _rows_with(engine: Engine, text: str) -> list[str]:
    """Return the names of the tables that have a text anywhere in a row, as it is or as JSON escapes it."""
    with engine.connect() as connection:
        dump = {table.name: repr(connection.execute(table.select()).all()) for table in TABLES}
    return [name for name, rows in dump.items() if text in rows or json.dumps(text)[1:-1] in rows.replace("\\\\", "\\")]


def test_no_table_has_the_content_of_an_erased_subject(engine: Engine) -> None:
    """Bremen is in another field of Jane's events."""
    _erase(engine)

    assert _rows_with(engine, JANE) == []
    assert _rows_with(engine, "Bremen") == []


@pytest.mark.parametrize("number", range(len(erasure.LOOKS)))
def test_a_place_that_is_not_searched_keeps_the_content(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The test above would fail: each of the looks is needed."""
    looks = erasure.LOOKS
    monkeypatch.setattr(erasure, "LOOKS", looks[:number] + looks[number + 1 :])

    _erase(engine)

    assert _rows_with(engine, JANE) + _rows_with(engine, "Bremen")


def test_erase_changes_no_message_of_another_subject(engine: Engine) -> None:
    """Group j is John's."""
    with engine.connect() as connection:
        before = [
            connection.execute(select(table).where(table.c.group_id == "j")).all()
            for table in (outbox.messages, inbox.parked)
        ]

    _erase(engine)

    with engine.connect() as connection:
        after = [
            connection.execute(select(table).where(table.c.group_id == "j")).all()
            for table in (outbox.messages, inbox.parked)
        ]
    assert after == before


def test_an_erased_message_is_the_tombstone_of_its_number(engine: Engine) -> None:
    """A tombstone has no data, and keeps number, epoch and event id, so that no consumer misses the number."""
    _erase(engine)

    with engine.connect() as connection:
        row = connection.execute(select(outbox.messages).where(outbox.messages.c.group_id == "a")).one()
    envelope = decode(row.body)
    assert envelope.event.type == TOMBSTONE
    assert envelope.event.id == "a-1"
    assert envelope.seq == 1
    assert envelope.epoch == 7
    assert row.status == "sent"


@pytest.mark.parametrize("stored_count", [None, 3])
def test_an_erased_quarantined_message_is_published_alone_as_a_tombstone(
    engine: Engine, stored_count: int | None
) -> None:
    """It becomes pending, so its group is no longer blocked. It was tried, perhaps with the events behind it."""
    quarantined = select(outbox.messages).where(outbox.messages.c.group_id == "q")
    with engine.begin() as connection:
        first_id = connection.execute(quarantined).one().id
        if stored_count is not None:
            connection.execute(insert(outbox.bundles).values(first_id=first_id, event_count=stored_count))

    _erase(engine)

    with engine.connect() as connection:
        row = connection.execute(quarantined).one()
        stored = connection.execute(select(outbox.bundles)).all()
    assert row.status == "pending"
    assert row.type == TOMBSTONE
    assert stored == [(first_id, 1)]


def test_a_message_that_is_not_published_is_left(engine: Engine) -> None:
    """Its consumers have to get it first; the listing names it with that reason."""
    with engine.begin() as connection:
        connection.execute(insert(outbox.messages), [_message("n", JANE, "pending")])

    _erase(engine)

    with engine.connect() as connection:
        left = [found.copy for found in find_rows(connection, SUBJECT)]
    assert [copy.left for copy in left] == [NOT_PUBLISHED]
    assert [copy.group_id for copy in left] == ["n"]


def test_each_erasure_is_audited_without_the_content(engine: Engine) -> None:
    """The audit has the reason and the table with its column."""
    _erase(engine)

    with engine.connect() as connection:
        acts = connection.execute(select(outbox.audit).where(outbox.audit.c.action == "erase")).all()
    assert {act.reason for act in acts} == {"request 4711"}
    assert sorted(json.loads(act.detail)["place"] for act in acts) == [
        "sluice_outbox",
        "sluice_outbox",
        "sluice_outbox.last_error",
        "sluice_outbox_audit",
    ]


@pytest.mark.parametrize(
    "subject", [Subject(groups=frozenset({"a"})), Subject(event_ids=frozenset({"a-1"}))], ids=["group", "event"]
)
def test_a_group_or_an_event_is_a_subject(engine: Engine, subject: Subject) -> None:
    """Its content is found by group or event id in outbox, audit and inbox."""
    with engine.connect() as connection:
        found = {each.copy.place for each in find_rows(connection, subject)}

    assert {"sluice_outbox", "sluice_outbox_audit", "sluice_inbox_exception.reason"} <= found


@pytest.mark.parametrize(
    ("path", "value", "is_match"),
    [
        (("customer", "email"), JANE, True),
        (("cents",), "5", True),
        (("cents",), "5.0", False),
        (("customer",), JANE, False),
        (("customer", "email", "x"), JANE, False),
        (("Customer", "email"), JANE, False),
    ],
)
def test_a_value_is_compared_as_text(path: tuple[str, ...], value: str, *, is_match: bool) -> None:
    """As JSON writes it; the path names each field exactly."""
    assert Subject(fields=((path, value),)).matches(decode(_body("a", JANE))) is is_match


@pytest.mark.parametrize(
    "subject",
    [Subject(event_ids=frozenset({"b-2"})), Subject(fields=((("customer", "email"), "a@b"),))],
    ids=["event", "value"],
)
def test_an_audited_bundle_is_about_each_of_its_events(engine: Engine, subject: Subject) -> None:
    """`purge-one` and `replace --message-id` audit the whole body of a message."""
    bodies = [_body("b", "john@example.org"), _body("b", "a@b", seq=2)]
    with engine.begin() as connection:
        act = _act("consumer", CONSUMER, "seq", sqs_message_id="m", body=write_bundle(bodies))
        connection.execute(insert(inbox.audit), [act])

    with engine.connect() as connection:
        found = [each.copy.place for each in find_rows(connection, subject)]
    assert found == ["sluice_inbox_audit"]


def test_a_short_value_is_not_looked_for_in_texts() -> None:
    """`5` is in many error messages that are not about the subject."""
    assert not Subject(fields=((("cents",), "5"),)).is_mentioned_in("attempt 5: KeyError")
