"""Journals: a file for each process, flushed before each call whose effect would otherwise be unrecorded.

A caller with few events adds them one by one; one with thousands a second adds them in columns, at a tenth of the cost.
Flushed events survive the death of the process, and are read up to the last whole batch. A journal that ends without a
`closed` event shows that its recorder did not finish.
"""

import contextlib
import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc

from sluice.clock import Clock, SystemClock
from sluice.errors import HistoryError
from sluice.history.events import COLUMNS, OPENING_DETAIL, SCHEMA_VERSION, HistoryEvent, Kind
from sluice.recorder.frames import MAGIC, make_frame, messages
from sluice.recorder.valid_rows import require_valid_rows

SUFFIX = ".arrows"
_TYPES = {"string": pa.string(), "int32": pa.int32(), "int64": pa.int64(), "bool": pa.bool_()}
SCHEMA: pa.Schema = pa.schema([(name, _TYPES[arrow]) for name, arrow in COLUMNS])
"""The event row as an Arrow schema."""
_BUFFERED_EVENTS_MAX = 500
_PART_EVENTS = 1_000_000
_CONSTANT_COLUMNS = frozenset(("schema_version", "run", "phase", "host", "clock_id", "worker", "task_attempt"))
_CALL_KEY = ["kind", "call_id", "batch_position"]  # equal in an intent and its answer
_DEFAULTS = {column.name: column.default for column in fields(HistoryEvent)}


class Journal:
    """Writes events to `folder/name.arrows`; its first event is `opened`, its last `closed`. Threads may share one.

    Args:
        folder: the folder; it is created if it is missing.
        name: the name of the recorder, unique in the folder.
        common: fields that every event of this journal has (run, worker, host, …).
        clock: gives the instants of `opened` and `closed`.

    Raises:
        HistoryError: the folder cannot be written, or the name was used before.
    """

    def __init__(self, folder: Path, name: str, *, common: dict[str, Any], clock: Clock | None = None) -> None:
        self._clock = SystemClock() if clock is None else clock
        self._common = common
        self._buffer: list[dict[str, Any]] = []
        self._repeated: dict[str, tuple[Any, pa.Array]] = {}
        self._lock = threading.RLock()
        self.path = folder / f"{name}{SUFFIX}"
        self._checksum = self._written_bytes = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.path.touch(exist_ok=False)
            self._file = pa.OSFile(str(self.path), "ab")
        except OSError as error:
            if isinstance(error, FileExistsError) and self.path.exists():  # otherwise the folder is a file
                raise HistoryError(f"{self.path} exists: a journal is written once; choose another run") from error
            raise HistoryError(
                f"cannot write the history to {folder} ({error.strerror}); name a folder that can be written"
            ) from error
        self._write(MAGIC)
        self._write_message(SCHEMA.serialize())
        self.add(kind=Kind.OPENED.value, invoked_at_us=self._clock.now_us(), detail=OPENING_DETAIL)
        self.flush()

    def _write_message(self, message: pa.Buffer) -> None:
        frame, checksum = make_frame(memoryview(message), self._checksum)
        self._write(frame)
        self._checksum = checksum

    def _write(self, whole: bytes) -> None:
        try:
            self._file.write(whole)
            self._written_bytes += len(whole)
        except OSError as error:
            with contextlib.suppress(OSError):  # a part of this frame must not stand before the next one
                os.truncate(self.path, self._written_bytes)
            why = os.strerror(error.errno) if error.errno else str(error)
            raise HistoryError(
                f"cannot write {self.path} ({why}); what was written before is kept: make room, then resume the run"
            ) from error

    def add(self, **values: Any) -> None:
        """Buffer one event; an unknown field name is a TypeError."""
        _check_fields(values)
        with self._lock:
            self._buffer.append(self._common | values)
            if len(self._buffer) >= _BUFFERED_EVENTS_MAX:
                self.flush()

    def add_columns(self, count: int, columns: Mapping[str, Sequence[Any] | pa.Array | str | int | None]) -> None:
        """Write events to the file in one batch, after all events that were added before.

        Args:
            count: the number of events.
            columns: name of a field to its values, a sequence or an Arrow array with one for each event; or to the
                value that all of them have.
        """
        _check_fields(columns)
        with self._lock:
            self.flush()
            values = {**_DEFAULTS, **self._common, **columns}
            made = [self._column(name, values[name], count) for name, _ in COLUMNS]
            self._write_message(pa.RecordBatch.from_arrays(made, schema=SCHEMA).serialize())

    def _column(self, name: str, values: Any, count: int) -> pa.Array:
        if isinstance(values, pa.Array):
            return values
        if isinstance(values, list | tuple):
            return pa.array(values, SCHEMA.field(name).type)
        value, repeated = self._repeated.get(name, (None, None))
        if repeated is None or value != values or len(repeated) < count:
            repeated = pa.repeat(pa.scalar(values, SCHEMA.field(name).type), 2 * count)
            self._repeated[name] = (values, repeated)
        return repeated.slice(0, count)

    def flush(self) -> None:
        """Write every buffered event to the file: from then on it survives the death of this process."""
        with self._lock:
            rows, self._buffer = self._buffer, []
            if rows:
                made = [
                    self._batch_column(name, [row.get(name, _DEFAULTS[name]) for row in rows]) for name, _ in COLUMNS
                ]
                self._write_message(pa.RecordBatch.from_arrays(made, schema=SCHEMA).serialize())

    def _batch_column(self, name: str, values: list[Any]) -> pa.Array:
        """Return a column of a batch; a column that is the same in every batch, as most are, is made once."""
        is_single = name in _CONSTANT_COLUMNS or values[0] is None
        return self._column(
            name, values[0] if is_single and values.count(values[0]) == len(values) else values, len(values)
        )

    def close(self) -> None:
        """Write the `closed` event. Without it, the judge does not know whether events are missing."""
        self.add(kind=Kind.CLOSED.value, invoked_at_us=self._clock.now_us())
        self.flush()
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close after success; after an error only flush, so that the journal shows that it is incomplete."""
        if error is None:
            self.close()
        else:
            self.flush()
            self._file.close()


def _check_fields(values: Mapping[str, object]) -> None:
    unknown = values.keys() - _DEFAULTS.keys()
    if unknown:
        raise TypeError(f"an event has no field {sorted(unknown)[0]!r}")


def is_empty(path: Path) -> bool:
    """Return whether a journal has no event, because its writer died before it flushed the first one.

    Raises:
        HistoryError: the file is not a journal.
    """
    return next(iter(_batches(path)), None) is None


def read_journal(path: Path) -> pa.Table:
    """Return the settled events of one journal, up to the end of what was written, as a table of SCHEMA.

    Raises:
        HistoryError: the file is not a journal, or one of another schema version.
    """
    return pa.concat_tables([SCHEMA.empty_table(), *read_parts(path)]).combine_chunks()


def read_parts(path: Path, *, events_max: int = _PART_EVENTS) -> Iterator[pa.Table]:
    """Yield the table of `read_journal` in parts, because it may be larger than memory.

    A call whose answer is not in its part is moved to the next part; a call without any answer is in the last part.
    This needs at most one answer for each intent, behind the intent, as recorders write it.

    Args:
        path: the journal.
        events_max: about how many events a part has.

    Raises:
        HistoryError: the file is not a journal, or one of another schema version.
    """
    waiting, read, count, first_row = SCHEMA.empty_table(), [], 0, 0
    for batch in _batches(path):
        read.append(pa.Table.from_batches([batch]))
        count += batch.num_rows
        if count >= events_max:
            part = _settle_read(path, waiting, read, first_row)
            is_open = pc.and_(pc.is_valid(part.column("call_id")), _is_intent(part))
            yield part.filter(pc.invert(is_open))
            waiting, read, count, first_row = part.filter(is_open), [], 0, first_row + count
    yield _settle_read(path, waiting, read, first_row)


def _settle_read(path: Path, waiting: pa.Table, read: list[pa.Table], first_row: int) -> pa.Table:
    """Return the settled events of `waiting` and of `read`, which begins with the journal's row `first_row`."""
    table = pa.concat_tables([waiting, *read]).combine_chunks()
    require_valid_rows(table.slice(len(waiting)), path, first_row)
    others = [version for version in table.column("schema_version").unique().to_pylist() if version != SCHEMA_VERSION]
    if others:
        raise HistoryError(
            f"{path} is of version {others[0]}, allowed is {SCHEMA_VERSION}; judge it with the version of Sluice that"
            " wrote it"
        )
    return settle_table(table)


def _is_intent(table: pa.Table) -> pa.ChunkedArray:
    return pc.and_(pc.is_null(table.column("responded_at_us")), pc.is_null(table.column("error")))


def settle_table(table: pa.Table) -> pa.Table:
    """Return the events with each call's intent and answer joined to one, in the given order, as `events.settle`."""
    positions = np.arange(len(table))
    is_loose = table.column("call_id").is_null().to_numpy()
    has_more = 2 * table.column("responded_at_us").is_valid().to_numpy() + table.column("error").is_valid().to_numpy()
    rank = has_more * len(table) - positions  # the highest is the first of the rows with the most fields
    calls = pa.table({name: table.column(name) for name in _CALL_KEY} | {"rank": rank}).filter(pa.array(~is_loose))
    highest = calls.group_by(_CALL_KEY).aggregate([("rank", "max")]).column("rank_max").to_numpy()
    return take_rows(table, np.sort(np.concatenate((positions[is_loose], -highest % max(1, len(table))))))


def take_rows(table: pa.Table, positions: np.ndarray) -> pa.Table:
    """Return the rows at these positions; columns that are empty in most events are not copied."""
    places = pa.array(positions)
    columns = [
        pa.nulls(len(positions), column.type) if column.null_count == len(column) else column.take(places)
        for column in table.columns
    ]
    return pa.table(columns, names=table.column_names)


def events_of(table: pa.Table) -> list[HistoryEvent]:
    """Return the rows as events; they are made column by column, and equal texts are one object."""
    made = [HistoryEvent.__new__(HistoryEvent) for _ in range(len(table))]
    for name, column in zip(table.column_names, table.columns, strict=True):
        coded = column.combine_chunks().dictionary_encode()
        values = np.array([*coded.dictionary.to_pylist(), None], dtype=object)
        codes = coded.indices.fill_null(len(values) - 1).to_numpy()
        put = getattr(HistoryEvent, name).__set__  # the slot's own setter, because an event is frozen
        deque(map(put, made, values[codes]), maxlen=0)
    return made


def _batches(path: Path) -> Iterable[pa.RecordBatch]:
    try:
        found = messages(path)
        schema = next(found, None)  # None if its writer died, or the disk was full, before the schema was written
        if schema is None:
            return
        if pa.ipc.read_schema(pa.py_buffer(schema)) != SCHEMA:
            raise HistoryError(
                f"{path} has other columns than this version of Sluice writes; judge it with the version that did"
            )
        for message in found:
            batch = pa.ipc.read_record_batch(pa.py_buffer(message), SCHEMA)
            batch.validate(full=True)  # without it, a damaged batch crashes the process, and no error names the file
            yield batch
    except (pa.ArrowException, OSError) as error:
        raise HistoryError(f"{path} is not a journal of Sluice ({error})") from error
