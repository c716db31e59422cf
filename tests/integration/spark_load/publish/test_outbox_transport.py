"""The transport through an outbox: what a producer's process commits, and what becomes of it when no relay is there."""

import json
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from sluice.clock import SystemClock, eventually
from sluice.filter_cost import SENT_TYPE
from sluice.history.events import short_hash
from sluice.messaging.database import engines
from sluice.messaging.outbox import tables
from sluice.recorder.journal import Journal, read_journal
from sluice.recorder.rows import attributes_hash
from spark_load.faults.signals import send_signal
from spark_load.plan.plan import Plan, message_group_id
from spark_load.profiles.profile import Profile
from spark_load.publish.bodies import RELAYED_ATTRIBUTES, Envelopes, run_of
from spark_load.publish.transport import OutgoingMessages, TransportAnswer, TransportCall
from spark_load.publish.transport import outbox as transports
from spark_load.publish.transport.ledger import Ledger
from spark_load.publish.transport.outbox import OutboxTransport

_TOPIC, _ARN = "t.fifo", "arn:aws:sns:us-east-1:000000000000:t.fifo"
_RUN = run_of(1_767_225_600_000_000)
_PLAN = Plan(Profile(messages_per_second=10, duration_seconds=1, group_count=2, payload_bytes=40), seed=5)


class Publishing(NamedTuple):
    """A transport, its messages' bodies, its outbox's table, and its journal."""

    transport: OutboxTransport
    bodies: Envelopes
    table: sqlite3.Connection
    journal: Journal

    def call(self, *planned: tuple[int, int]) -> TransportCall:
        """Return a call of messages, each given as (its number in the plan, the number of its group)."""
        planned_idx, group_numbers = np.array(planned, np.int64).T.copy()
        numbers_in_group = self.bodies.numbers(planned_idx, group_numbers)  # 1, 2, 3 ... in each group
        group_ids = [message_group_id(number) for number in group_numbers.tolist()]
        planned_texts = list(map(str, planned_idx.tolist()))
        messages = OutgoingMessages(
            idx=numbers_in_group,  # in the history of an outbox, a message's idx is its number in its group
            publish_attempt=np.ones(len(planned), np.int32),
            intended_at_us=planned_idx,  # any times in the order of the plan
            message_group_ids=group_ids,
            deduplication_ids=[f"{_RUN}.{text}" for text in planned_texts],
            phase="measure",
            template=self.bodies.template,
            values=self.bodies.values(planned_idx, group_ids, planned_texts, numbers_in_group),
        )
        return TransportCall(_ARN, messages, 0, len(planned))

    def committed_rows(self) -> list[tuple[str, int, str]]:
        """Return group, number and body of what is in the outbox."""
        rows = self.table.execute("SELECT group_id, group_seq, body FROM sluice_outbox ORDER BY id")
        return rows.fetchall()

    def wait_for(self, count: int) -> None:
        """Wait until so many messages are committed."""
        eventually(
            lambda: len(self.committed_rows()) == count, timeout_seconds=60, describe=f"{count} committed messages"
        )

    def settle(self, idx: int, status: str = "sent", *, bundle: int | None = None) -> None:
        """Do to a message, given by its number in the plan, what a relay does when SNS has answered.

        `bundle` is the number of the first event of its bundle.
        """
        first = idx if bundle is None else bundle
        changes = "UPDATE sluice_outbox SET status = ?, sns_message_id = ?, sns_sequence_number = ? WHERE event_id = ?"
        self.table.execute(changes, (status, f"m-{first}", str(first), f"{_RUN}.{idx}"))

    def answer(self) -> TransportAnswer:
        """Return the only answer there is, once it is there."""
        (answer,) = eventually(lambda: self.transport.answers(1), timeout_seconds=60, describe="an answer")
        return answer


@pytest.fixture
def publishing(tmp_path: Path) -> Iterator[Publishing]:
    file, clock = tmp_path / "outbox.db", SystemClock()
    engine = engines.engine(f"sqlite:///{file}")
    tables.metadata.create_all(engine)
    engine.dispose()
    with Journal(tmp_path, "publish-0", common={"run": _RUN}, clock=clock) as journal:
        ledger = Ledger(journal, names={_ARN: _TOPIC}, run=_RUN, service="sns", attributes=RELAYED_ATTRIBUTES)
        transport = OutboxTransport(
            file, ledger, topic=_TOPIC, event_bytes_max=262_144, log=tmp_path / "logs" / "publish-0.log", clock=clock
        )
        table = sqlite3.connect(file, timeout=30, autocommit=True)
        try:
            yield Publishing(transport, Envelopes(_PLAN, _RUN), table, journal)
        finally:
            transport.close()
            table.close()


def test_a_call_is_answered_when_all_its_messages_were_published(publishing: Publishing) -> None:
    """The committed rows hold the very bodies that the history knows, with their numbers."""
    call = publishing.call((4, 0), (5, 1), (7, 0))

    publishing.transport.send([call])
    publishing.wait_for(3)
    publishing.settle(4)
    publishing.settle(5)
    assert publishing.transport.answers(0.2) == []
    publishing.settle(7)
    answer = publishing.answer()
    publishing.journal.flush()

    assert answer.call == call
    assert answer.errors == {}
    bodies = [message.body for message in call.messages]
    assert publishing.committed_rows() == [
        ("g000000", 1, bodies[0]),
        ("g000000", 2, bodies[2]),
        ("g000001", 1, bodies[1]),
    ]
    rows = read_journal(publishing.journal.path).slice(1).to_pylist()  # behind the begin
    assert [(row["outcome"], row["idx"], row["sns_message_id"], row["body_hash"]) for row in rows] == [
        ("ok", number, f"m-{idx}", short_hash(body))
        for number, idx, body in zip((1, 1, 2), (4, 5, 7), bodies, strict=True)
    ]


def test_the_history_knows_the_attributes_with_which_a_relay_publishes(publishing: Publishing) -> None:
    """An end marker is an event of another type."""
    publishing.transport.send([publishing.call((4, 0), (-1, 0))])
    publishing.wait_for(2)
    publishing.journal.flush()

    stored = publishing.table.execute("SELECT attributes FROM sluice_outbox ORDER BY id").fetchall()
    rows = read_journal(publishing.journal.path).slice(1).to_pylist()  # behind the begin
    assert [row["attributes_hash"] for row in rows] == [
        attributes_hash(
            {name: {"DataType": SENT_TYPE, "StringValue": value} for name, value in json.loads(row).items()}
        )
        for (row,) in stored
    ]


def test_events_of_a_bundle_are_recorded_with_ids_of_their_own(publishing: Publishing) -> None:
    """A publisher that begins again waits for some of them only; the others settled while nobody waited."""
    publishing.transport.send([publishing.call((4, 0), (5, 1), (6, 0), (7, 0))])
    publishing.wait_for(4)
    for idx in (4, 6):
        publishing.settle(idx, bundle=4)
    publishing.transport.answers(0.2)
    for idx in (5, 7):
        publishing.settle(idx)
    publishing.answer()
    publishing.journal.flush()

    rows = read_journal(publishing.journal.path).slice(1).to_pylist()
    ids = [(row["sns_message_id"], (row["sns_sequence_number"] or "").lstrip("0")) for row in rows]
    assert ids == [("m-4.0", "4.0000"), ("m-5", "5"), ("m-4.1", "4.0001"), ("m-7", "7")]


def test_an_event_sent_again_is_committed_once(publishing: Publishing) -> None:
    """A publisher sends it again if it was killed before it got the answer."""
    call = publishing.call((4, 0), (6, 0))
    publishing.transport.send([publishing.call((4, 0))])
    publishing.wait_for(1)

    publishing.transport.send([call])
    publishing.wait_for(2)

    assert [body for _, _, body in publishing.committed_rows()] == [message.body for message in call.messages]


def test_a_message_the_relay_gave_up_has_failed(publishing: Publishing) -> None:
    """Of two messages in a call the relay quarantines the first and sends the second."""
    publishing.transport.send([publishing.call((4, 0), (5, 1))])
    publishing.wait_for(2)

    publishing.settle(4, "quarantined")
    publishing.settle(5)

    assert publishing.answer().errors == {0: "quarantined"}


def test_messages_that_no_relay_publishes_are_unknown(publishing: Publishing, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody marks the row as sent in the time that the transport waits, which is half a second here."""
    monkeypatch.setattr(transports, "ANSWER_SECONDS_MAX", 0.5)

    publishing.transport.send([publishing.call((4, 0))])

    assert publishing.answer().errors == {0: "NotPublished"}


def test_messages_of_a_producer_that_ended_are_unknown(publishing: Publishing) -> None:
    """The producer's process is killed: neither the message on its way nor the next one is called lost."""
    producer = publishing.transport._producer
    publishing.transport.send([publishing.call((4, 0))])
    publishing.wait_for(1)

    assert send_signal(producer.pid, signal.SIGKILL)
    first = publishing.answer()
    publishing.transport.send([publishing.call((5, 1))])

    assert first.errors == publishing.answer().errors == {0: "ProducerEnded"}
