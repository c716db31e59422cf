"""The rows of history the signed transports write: as the recorder writes them, but whole columns at a time."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from sluice.history.events import Kind, Outcome, pad_sequence_number, short_hash
from sluice.recorder.journal import SCHEMA, Journal
from sluice.recorder.rows import short_name
from spark_load.plan import body_template
from spark_load.publish.transport import Call
from spark_load.publish.transport.formats import EntryResults

_PUBLISHED, _INFO = Kind.PUBLISHED.value, Outcome.INFO.value
_REPEATED = pa.schema(
    [
        SCHEMA.field(name)
        for name in (
            *("call_id", "queue", "invoked_at_us", "batch_position", "idx", "publish_attempt", "intended_at_us"),
            *("message_group_id", "deduplication_id", "phase", "body_hash"),
        )
    ]
)
"""The columns of an intent, which its answer repeats."""
_NO_ROWS = pa.RecordBatch.from_pylist([], schema=_REPEATED)


class RecordedCall:
    """A call that was written down, and what its answer repeats: rows of `_REPEATED`."""

    __slots__ = ("call", "rows")

    def __init__(self, call: Call, rows: pa.RecordBatch) -> None:
        self.call, self.rows = call, rows


class Ledger:
    """Records calls before they are sent, and their answers. Answers are written with the next calls, or by `flush`."""

    def __init__(self, journal: Journal, *, names: Mapping[str, str], run: str, service: str) -> None:
        self._journal, self._journal_name, self._run = journal, journal.path.stem, run
        self._names, self._prefix = names, service
        self._calls = itertools.count()
        self._unwritten: list[tuple[RecordedCall, int | None, EntryResults]] = []

    def record_intents(self, calls: Sequence[Call], *, invoked_at_us: int) -> list[RecordedCall]:
        """Write the calls that are about to be sent, and all answers since the last write."""
        rows = self._rows(calls, invoked_at_us)
        self._write(rows)
        ends = itertools.accumulate(len(call.messages) for call in calls)
        return [
            RecordedCall(call, rows.slice(end - len(call.messages), len(call.messages)))
            for call, end in zip(calls, ends, strict=True)
        ]

    def _rows(self, calls: Sequence[Call], invoked_at_us: int) -> pa.RecordBatch:
        call_ids: list[str] = []
        queues: list[str] = []
        positions: list[int] = []
        for call in calls:
            count = len(call.messages)
            call_ids += [f"{self._journal_name}/{next(self._calls)}"] * count
            queues += [self._names.get(call.address) or short_name(call.address)] * count
            positions += range(count)
        messages = itertools.chain.from_iterable([call.messages for call in calls])
        *planned, _, _ = zip(*messages, strict=True)
        hashes = [short_hash(body_template.text(body)) for call in calls for body in call.bodies]
        invoked_us = [invoked_at_us] * len(hashes)
        columns: tuple[Sequence[Any], ...] = (call_ids, queues, invoked_us, positions, *planned, hashes)
        arrays = [_array(column, field.type) for column, field in zip(columns, _REPEATED, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=_REPEATED)

    def answered(self, recorded_call: RecordedCall, results: EntryResults, *, responded_at_us: int | None) -> None:
        """Remember what a call was answered; None as the instant when there was no answer."""
        self._unwritten.append((recorded_call, responded_at_us, results))

    def flush(self) -> None:
        """Write down what was answered."""
        if self._unwritten:
            self._write(_NO_ROWS)

    def _write(self, intents: pa.RecordBatch) -> None:
        answered, self._unwritten = self._unwritten, []
        results = [*(of_call for _, _, of_call in answered), EntryResults.alike(len(intents), _INFO)]
        instants = [
            responded_at_us for recorded_call, responded_at_us, _ in answered for _ in recorded_call.call.messages
        ] + [None] * len(intents)
        outcomes, errors, message_ids, numbers = map(_joined, zip(*results, strict=True))
        rows = pa.concat_batches([*(recorded_call.rows for recorded_call, _, _ in answered), intents])
        columns = dict(zip(_REPEATED.names, rows.columns, strict=True)) | {
            "kind": _PUBLISHED,
            "message_run": self._run,
            "outcome": outcomes,
            "responded_at_us": instants,
            "error": _array(errors, SCHEMA.field("error").type),
            f"{self._prefix}_message_id": message_ids,
            f"{self._prefix}_sequence_number": [pad_sequence_number(number) for number in numbers],
        }
        self._journal.add_columns(len(rows), columns)


def _joined(columns: Sequence[Sequence[str | None]]) -> list[str | None]:
    return list(itertools.chain.from_iterable(columns))


def _array(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Return a column; one value repeated, as most of a call is, costs a third of as many."""
    first = values[0]
    if values[-1] == first and values.count(first) == len(values):
        return pa.repeat(pa.scalar(first, type_), len(values))
    return pa.array(values, type_)
