"""The rows of history that the transports write: the same as the recorder's, but written as whole columns."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sluice import limits
from sluice.history.events import CallOutcome, Kind, short_hashes
from sluice.recorder.journal import SCHEMA, Journal
from sluice.recorder.rows import attributes_hash, short_name
from spark_load.plan.plan import as_arrow
from spark_load.publish.transport import TransportCall
from spark_load.publish.transport.formats import EntryResults

_PUBLISHED, _INFO = Kind.PUBLISHED.value, CallOutcome.INFO.value
_REPEATED = pa.schema(
    [
        SCHEMA.field(name)
        for name in (
            *("call_id", "queue", "invoked_at_us", "batch_position", "idx", "publish_attempt", "intended_at_us"),
            *("message_group_id", "deduplication_id", "phase", "attributes_hash", "body_hash"),
        )
    ]
)
"""The columns of an intent, which its answer repeats."""
_NO_ROWS = pa.RecordBatch.from_pylist([], schema=_REPEATED)


class RecordedCall(NamedTuple):
    """A recorded call: its number, and the columns of `_REPEATED`, which its answer repeats."""

    number: int
    call: TransportCall
    rows: pa.RecordBatch


class Ledger:
    """Records calls before they are sent, and their answers with the next calls, or by `flush`.

    Args:
        attributes: of a message, and of an end marker.
        knows_ids: whether messages have the deduplication ids of their calls; a relay may give bundles others.
    """

    def __init__(
        self,
        journal: Journal,
        *,
        names: Mapping[str, str],
        run: str,
        service: str,
        attributes: Sequence[Mapping[str, Any]] = ({}, {}),
        knows_ids: bool = True,
    ) -> None:
        self._journal, self._journal_name, self._run = journal, journal.path.stem, run
        self._knows_ids = knows_ids
        self._names, self._prefix = names, service
        self._attributes_hashes = pa.array(map(attributes_hash, attributes), pa.string())
        self._calls = itertools.count()
        self._unwritten: list[tuple[RecordedCall, int | None, EntryResults]] = []

    def record_intents(self, calls: Sequence[TransportCall], *, invoked_at_us: int) -> list[RecordedCall]:
        """Write the calls that are about to be sent, and all answers since the last write."""
        numbers = list(itertools.islice(self._calls, len(calls)))
        rows = self._rows(calls, numbers, invoked_at_us)
        self._write(rows)
        return [RecordedCall(number, call, rows) for number, call in zip(numbers, calls, strict=True)]

    def _rows(self, calls: Sequence[TransportCall], numbers: Sequence[int], invoked_at_us: int) -> pa.RecordBatch:
        sent = calls[0].sent
        call_ids: list[str] = []
        queues: list[str] = []
        positions: list[int] = []
        for number, call in zip(numbers, calls, strict=True):
            call_ids += [f"{self._journal_name}/{number}"] * call.size
            queues += [self._names.get(call.address) or short_name(call.address)] * call.size
            positions += range(call.size)
        count = len(positions)
        columns: tuple[Any, ...] = (
            call_ids,
            queues,
            pa.repeat(pa.scalar(invoked_at_us, pa.int64()), count),
            positions,
            sent.idx,
            sent.publish_attempt,
            sent.intended_at_us,
            sent.message_group_ids,
            sent.deduplication_ids if self._knows_ids else pa.nulls(count, pa.string()),
            pa.repeat(pa.scalar(sent.phase, pa.string()), count),
            self._attributes_hashes.take(pa.array(sent.idx < 0, pa.int64())),
            _hashes(sent.template.texts(sent.values), count),
        )
        arrays = [_array(column, field.type) for column, field in zip(columns, _REPEATED, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=_REPEATED)

    def add_answer(self, recorded_call: RecordedCall, results: EntryResults, *, responded_at_us: int | None) -> None:
        """Remember the answer to a call until it is written; `responded_at_us` is None if there was none."""
        self._unwritten.append((recorded_call, responded_at_us, results))

    def flush(self) -> None:
        """Write the remembered answers."""
        if self._unwritten:
            self._write(_NO_ROWS)

    def _write(self, intents: pa.RecordBatch) -> None:
        answered, self._unwritten = sorted(self._unwritten, key=_number), []
        results = [*(of_call for _, _, of_call in answered), EntryResults.alike(len(intents), _INFO)]
        instants = [
            responded_at_us for recorded_call, responded_at_us, _ in answered for _ in range(recorded_call.call.size)
        ] + [None] * len(intents)
        outcomes, errors, message_ids, numbers = map(_join, zip(*results, strict=True))
        rows = pa.concat_batches([*_pieces(recorded_call for recorded_call, _, _ in answered), intents])
        columns = dict(zip(_REPEATED.names, rows.columns, strict=True)) | {
            "kind": _PUBLISHED,
            "message_run": self._run,
            "outcome": _array(outcomes, pa.string()),
            "responded_at_us": instants,
            "error": _array(errors, SCHEMA.field("error").type),
            f"{self._prefix}_message_id": message_ids,
            f"{self._prefix}_sequence_number": pc.utf8_lpad(
                pa.array(numbers, pa.string()), limits.SEQUENCE_NUMBER_DIGITS_MAX, "0"
            ),
        }
        self._journal.add_columns(len(rows), columns)


def _number(answered: tuple[RecordedCall, int | None, EntryResults]) -> int:
    return answered[0].number


def _pieces(recorded_calls: Iterable[RecordedCall]) -> list[pa.RecordBatch]:
    """Return the rows of calls as slices; neighbouring calls are one slice."""
    pieces: list[tuple[pa.RecordBatch, int, int]] = []
    for _, call, rows in recorded_calls:
        begin = call.begin
        if pieces and pieces[-1][0] is rows and pieces[-1][2] == begin:
            _, begin, _ = pieces.pop()
        pieces.append((rows, begin, call.end))
    return [rows.slice(begin, end - begin) for rows, begin, end in pieces]


def _join(columns: Sequence[Sequence[str | None]]) -> list[str | None]:
    return list(itertools.chain.from_iterable(columns))


def _hashes(texts: Iterable[str], count: int) -> pa.Array:
    """Return the short hashes of texts as an Arrow array, without a Python text for each."""
    joined = short_hashes(texts).encode()
    ends = np.arange(count + 1, dtype=np.int32) * (len(joined) // count)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(joined)])


def _array(values: Any, type_: pa.DataType) -> pa.Array:
    """Return an Arrow column of a list or an array; a list of equal values becomes one repeated value."""
    if isinstance(values, pa.Array):
        return values
    if isinstance(values, np.ndarray):
        return as_arrow(values, type_)
    first = values[0]
    if values[-1] == first and values.count(first) == len(values):
        return pa.repeat(pa.scalar(first, type_), len(values))
    return pa.array(values, type_)
