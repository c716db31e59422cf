"""The ledger's rows compared with those of a plain loop over the same calls and answers."""

from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.clock import VirtualClock
from sluice.history.events import pad_sequence_number, short_hash
from sluice.recorder.journal import SCHEMA, Journal, read_journal
from spark_load.plan.plan import BodyTemplate
from spark_load.publish.transport import OutgoingMessages, TransportCall
from spark_load.publish.transport.formats import EntryResults
from spark_load.publish.transport.ledger import Ledger, RecordedCall

_ADDRESSES = {"arn:aws:sns:us-east-1:000000000000:t.fifo": "t", "arn:aws:sns:us-east-1:000000000000:u.fifo": "u.fifo"}
_OK: list[Any] = [("ok", None, "m-1", "12"), ("ok", None, "m-2", "9" * 39)]
_MIXED = [*_OK, ("ok", None, None, None), ("info", "InternalError", None, None), ("fail", "Throttled", None, None)]
_LOST = [("info", "ReadTimeoutError", None, None)]

type _Row = dict[str, Any]


def _calls(first: int, sizes: list[int], rng: Random) -> list[TransportCall]:
    """Return calls with these numbers of messages, which are sent at once."""
    idx, template = np.arange(first, first + sum(sizes)), BodyTemplate("ü", "")
    messages = OutgoingMessages(
        idx=idx,
        publish_attempt=np.array([rng.randint(1, 2) for _ in idx], np.int32),
        intended_at_us=idx * 10,
        message_group_ids=[rng.choice("ab") for _ in idx],
        deduplication_ids=[f"r.{number}" for number in idx.tolist()],
        phase=rng.choice(["warm_up", "measure"]),
        template=template,
        values=[list(map(str, idx.tolist()))],
    )
    ends = np.cumsum(sizes).tolist()
    return [
        TransportCall(rng.choice([*_ADDRESSES]), messages, end - size, end)
        for end, size in zip(ends, sizes, strict=True)
    ]


def _intents(recorded_call: RecordedCall, invoked_at_us: int) -> list[_Row]:
    number, call, _ = recorded_call
    return [
        {
            "run": "r",
            "kind": "published",
            "call_id": f"j/{number}",
            "queue": _ADDRESSES[call.address],
            "batch_position": position,
            "invoked_at_us": invoked_at_us,
            "idx": message.idx,
            "publish_attempt": message.publish_attempt,
            "intended_at_us": message.intended_at_us,
            "message_group_id": message.message_group_id,
            "deduplication_id": message.deduplication_id,
            "phase": message.phase,
            "attributes_hash": short_hash("{}"),  # the messages have none
            "body_hash": short_hash(message.body),
            "message_run": "r",
            "outcome": "info",
        }
        for position, message in enumerate(call.messages)
    ]


@settings(max_examples=40, deadline=None)
@given(rng=st.randoms(use_true_random=True))
def test_the_ledger_writes_what_was_sent_and_answered(tmp_path_factory: pytest.TempPathFactory, rng: Random) -> None:
    """Some calls are answered at once, some after later ones, some never; some entries differ from their neighbours."""
    folder, count = tmp_path_factory.mktemp("journal"), 0
    open_calls: list[tuple[RecordedCall, list[_Row]]] = []
    expected: list[_Row] = []
    with Journal(folder, "j", common={"run": "r"}, clock=VirtualClock()) as journal:
        ledger = Ledger(journal, names={"arn:aws:sns:us-east-1:000000000000:t.fifo": "t"}, run="r", service="sns")
        for now_us in range(1_000, 1_020):
            calls = _calls(count, [rng.randint(1, 4) for _ in range(rng.randint(1, 5))], rng)
            count += sum(call.size for call in calls)
            for recorded_call in ledger.record_intents(calls, invoked_at_us=now_us):
                rows = _intents(recorded_call, now_us)
                open_calls.append((recorded_call, rows))
                expected += rows
            rng.shuffle(open_calls)
            for recorded_call, rows in [open_calls.pop() for _ in range(rng.randrange(len(open_calls)))]:
                results = rng.choice([_OK, _OK, _MIXED, _LOST])
                entries = [rng.choice(results) for _ in rows]
                responded_at_us = None if results is _LOST else now_us + 1
                ledger.add_answer(
                    recorded_call, EntryResults(*zip(*entries, strict=True)), responded_at_us=responded_at_us
                )
                for row, (outcome, error, message_id, sequence_number) in zip(rows, entries, strict=True):
                    row |= {"outcome": outcome, "error": error, "responded_at_us": responded_at_us}
                    row |= {"sns_message_id": message_id, "sns_sequence_number": pad_sequence_number(sequence_number)}
            if rng.random() < 0.3:
                ledger.flush()
        ledger.flush()

    written = read_journal(folder / "j.arrows").slice(1, count).sort_by("idx")
    table = pa.Table.from_pylist([{"schema_version": 1, "worker": ""} | row for row in expected], schema=SCHEMA)
    assert written.to_pylist() == table.sort_by("idx").to_pylist()
