"""Histories as Parquet: written from journals, groups kept together; read in pieces that fit into memory.

A journal is written in *buckets*, a file for each: all events of a message group are in the same bucket of every
journal. So each bucket can be judged by itself. Other files with the columns of a history can be judged too, after
their events were exchanged by group. Bucket metadata is ignored in files with the key ARROW:schema: Arrow has
rewritten them, and may have kept the metadata although the rows moved.

A file in buckets also has the hashes of the texts that the judge only compares, so that it reads eight bytes instead of
about forty, and need not compute hashes.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sluice.errors import HistoryError
from sluice.judge.reading import checksums
from sluice.judge.reading.columns import HASH_SCHEMA, HASH_SUFFIX, HASHED, Events, hash_columns, hash_numbers, hashes
from sluice.recorder import journal
from sluice.recorder.valid_rows import require_valid_rows

BUCKETS_MAX = 128  # a writer has so many files open at once, and a process may be allowed only 256
_READ_EVENTS = 400_000
_READ_EVENTS_MIN = 200_000  # smaller batches would cost more per event; larger ones would be copied to be joined
_BUCKETS, _BY_ARROW = b"sluice.buckets", b"ARROW:schema"
_REPEATED_TEXTS = (
    "kind",
    "outcome",
    "queue",
    "phase",
    "worker",
    "clock_id",
    "error",
    "message_group_id",
    "message_run",
    "detail",
)
_DICTIONARY_COLUMNS = (*_REPEATED_TEXTS, "run", "host")
_UNREAD = ("schema_version", "run", "host", "publish_attempt", "first_received_at_us", "receive_request_attempt_id")
_UNREAD_COUNTS = ("visible_count", "in_flight_count", "delayed_count", "moved_count")
_READ = [name for name in journal.SCHEMA.names if name not in (*_UNREAD, *_UNREAD_COUNTS)]
_CODED = pa.dictionary(pa.int32(), pa.string())
_CODED_SCHEMA = pa.schema(
    [(field.name, _CODED if field.name in _DICTIONARY_COLUMNS else field.type) for field in journal.SCHEMA]
)
_WRITTEN_SCHEMA = pa.unify_schemas([_CODED_SCHEMA, HASH_SCHEMA])
_PLAIN_SCHEMA = pa.schema(
    [(name, _CODED if name in _REPEATED_TEXTS else journal.SCHEMA.field(name).type) for name in _READ]
)
_READ_SCHEMA = pa.unify_schemas(
    [pa.schema([field for field in _PLAIN_SCHEMA if field.name not in HASHED]), HASH_SCHEMA]
)
_PLAIN_TEXTS = [name for name in journal.SCHEMA.names if pa.types.is_string(_CODED_SCHEMA.field(name).type)]
_WRITE_OPTIONS: dict[str, Any] = {
    "use_dictionary": list(_DICTIONARY_COLUMNS),
    # Texts are read in half the time of snappy, and no larger. Numbers that follow each other are read in a third of
    # the time that LZ4 takes, from a third of the bytes; hashes and codes do not become smaller.
    "compression": {name: "lz4" if name in _PLAIN_TEXTS else "none" for name in _WRITTEN_SCHEMA.names},
    "column_encoding": {
        field.name: "DELTA_BINARY_PACKED"
        for field in _WRITTEN_SCHEMA
        if pa.types.is_integer(field.type) and not field.name.endswith(HASH_SUFFIX)
    },
    "store_schema": False,
    "write_page_checksum": True,  # otherwise a flipped bit would change a number, and the verdict
}
_SAMPLES = pa.array(["sluice", "7".zfill(24), "7".zfill(39)])
_HASHED = int(
    hash_numbers(
        hashes(_SAMPLES), *Events(pa.table({"sns_sequence_number": _SAMPLES})).sequence_numbers("sns_sequence_number")
    ).sum()
)
"""Identifies the hash function: files with another value have other buckets and hashes, which are ignored."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Neighbouring row groups of a file; `bucket` is 0 if the file has no bucket."""

    path: str
    row_group: int
    row_group_count: int
    events: int
    bucket: int


@dataclass(frozen=True, slots=True)
class RowSelection:
    """A selection of whole events, in place of all events with hashes.

    Args:
        name: the column that selects them; None takes all.
        values: the selected values of the column.
        columns: the columns to read.
        is_grouped: whether a part needs whole message groups.
    """

    name: str | None = None
    values: Collection[str] = ()
    columns: Sequence[str] = tuple(journal.SCHEMA.names)
    is_grouped: bool = True

    def __post_init__(self) -> None:
        """Refuse a selection by group without a column: its events would be spread over the parts."""
        if self.is_grouped and "message_group_id" not in self.columns:
            raise ValueError(f"whole groups need message_group_id among the columns {self.columns}")

    def wanted_values(self) -> pa.Array:
        """Return the selected values as Arrow's array."""
        return pa.array(sorted(self.values), pa.string())

    def take(self, table: pa.Table) -> pa.Table:
        """Return the selected rows of a table, with those of the columns that the table has."""
        if self.name is not None:
            table = table.filter(pc.is_in(table.column(self.name), self.wanted_values()))
        return table.select([name for name in self.columns if name in table.schema.names])


def write(tables: Iterable[pa.Table], folder: Path, name: str, bucket_count: int) -> None:
    """Write events to one file for each bucket, with a row group for each table; a history has one `bucket_count`."""
    paths = [folder / f"{name}-{bucket:03d}.parquet" for bucket in range(bucket_count)]
    with ExitStack() as files:
        writers = [files.enter_context(pq.ParquetWriter(path, _WRITTEN_SCHEMA, **_WRITE_OPTIONS)) for path in paths]
        for bucket, writer in enumerate(writers):
            description = {"name": name, "count": bucket_count, "bucket": bucket, "hashed": _HASHED}
            writer.add_key_value_metadata({_BUCKETS: json.dumps(description)})
        for table in tables:
            coded = _encode_texts(table)
            of_bucket = bucket_of(Events(coded), bucket_count)
            ordered = journal.take_rows(coded, np.argsort(of_bucket, kind="stable"))
            end = 0
            for writer, count in zip(writers, np.bincount(of_bucket, minlength=bucket_count).tolist(), strict=True):
                begin, end = end, end + count
                if count:
                    part = _with_small_dictionaries(ordered.slice(begin, count))
                    for field, hashed in hash_columns(part).items():
                        part = part.append_column(field, hashed)
                    writer.write_table(part, row_group_size=count)
    for path in paths:
        checksums.write(path)


def _encode_texts(table: pa.Table) -> pa.Table:
    """Return the events with texts that repeat as dictionaries."""
    columns = [
        column.combine_chunks().dictionary_encode() if name in _DICTIONARY_COLUMNS else column
        for name, column in zip(table.column_names, table.columns, strict=True)
    ]
    return pa.table(columns, schema=_CODED_SCHEMA)


def _with_small_dictionaries(table: pa.Table) -> pa.Table:
    """Return the events with smaller dictionaries: a slice of a table keeps the texts of the whole table."""
    columns = [
        column.cast(pa.string()).combine_chunks().dictionary_encode()
        if pa.types.is_dictionary(column.type) and sum(len(chunk.dictionary) for chunk in column.chunks) > len(column)
        else column
        for column in table.columns
    ]
    return pa.table(columns, schema=table.schema)


def buckets_of(groups: Iterable[str], bucket_count: int) -> frozenset[int]:
    """Return the buckets that contain these groups."""
    return frozenset((hashes(pa.array(sorted(groups), pa.string())) % np.uint64(bucket_count)).tolist())


def bucket_of(events: Events, bucket_count: int) -> np.ndarray:
    """Return the bucket of each event; events without a group are spread evenly, neighbours together."""
    group = events.hashes("message_group_id")
    found = (group % np.uint64(bucket_count)).astype(np.uint16)
    groupless = np.flatnonzero(group == 0)
    found[groupless] = np.arange(len(groupless)) * bucket_count // max(1, len(groupless))
    return found


class _BucketDescription(NamedTuple):
    """A file's own description of its bucket: the name, the number of buckets, and which of them it is."""

    name: str
    bucket_count: int
    bucket: int


def pieces(history: Path) -> tuple[list[Piece], int | None]:
    """Return the pieces of a folder, and how many buckets they are in; None if it has no buckets.

    In a history in buckets, a piece is one file. Otherwise it is a number of neighbouring row groups of a file.

    Raises:
        HistoryError: the history is in buckets, and some are missing.
    """
    files = [(str(path), *_footer(path)) for path in sorted(history.glob("*.parquet"))]
    buckets = [bucket for *_, bucket in files if bucket is not None]
    if not buckets or len(buckets) < len(files) or len({bucket.bucket_count for bucket in buckets}) > 1:
        return [Piece(path, *part, 0) for path, sizes, _ in files for part in _row_group_ranges(sizes)], None
    _require_all_buckets(history, buckets)
    found = [
        Piece(path, 0, len(sizes), sum(sizes), bucket.bucket)
        for (path, sizes, _), bucket in zip(files, buckets, strict=True)
    ]
    return found, buckets[0].bucket_count


def pieces_of(path: Path) -> list[Piece]:
    """Return the pieces of a file, without regard to its bucket."""
    return [Piece(str(path), *part, 0) for part in _row_group_ranges(_footer(path)[0])]


def _row_group_ranges(sizes: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield neighbouring row groups that are read together: (first row group, number of row groups, their events)."""
    first = events = 0
    for number, size in enumerate(sizes):
        if number > first and events + size > _READ_EVENTS:
            yield first, number - first, events
            first, events = number, 0
        events += size
    if sizes:
        yield first, len(sizes) - first, events


def _require_all_buckets(history: Path, descriptions: Sequence[_BucketDescription]) -> None:
    buckets: dict[str, list[int]] = defaultdict(list)
    for description in descriptions:
        buckets[description.name].append(description.bucket)
    for name, found in buckets.items():
        if sorted(found) != list(range(descriptions[0].bucket_count)):
            raise HistoryError(
                f"{history} is not whole: of {name} there are buckets {sorted(found)}, allowed is each of"
                f" 0 to {descriptions[0].bucket_count - 1} once; copy it again, or judge the journals it was made of"
            )


def _footer(path: Path) -> tuple[list[int], _BucketDescription | None]:
    """Return (sizes of a file's row groups, its bucket); the bucket is None if the file is not one of ours."""
    metadata = pq.read_metadata(path)
    sizes = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    return sizes, _bucket_description(metadata)


def _bucket_description(metadata: pq.FileMetaData) -> _BucketDescription | None:
    file_metadata = metadata.metadata or {}
    try:
        fields = json.loads(file_metadata[_BUCKETS])
        description = _BucketDescription(fields["name"], fields["count"], fields["bucket"])
        are_as_written = tuple(map(type, description)) == (str, int, int) and fields["hashed"] == _HASHED
        is_ours = are_as_written and 0 <= description.bucket < description.bucket_count <= BUCKETS_MAX
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    return description if is_ours and _BY_ARROW not in file_metadata else None


def read(found: Iterable[Piece]) -> Iterator[Events]:
    """Yield the events of pieces, a row group or several small ones at a time, with the columns the judge needs."""
    yield from together(_tables_of(found))


def together(tables: Iterable[pa.Table]) -> Iterator[Events]:
    """Yield tables of events; several small tables are joined to one."""
    held: list[pa.Table] = []
    for table in tables:
        held.append(table)
        if sum(map(len, held)) >= _READ_EVENTS_MIN:
            yield _concatenate(held)
            held = []
    if held:
        yield _concatenate(held)


def _concatenate(tables: Sequence[pa.Table]) -> Events:
    return Events(pa.concat_tables(tables, promote_options="default") if len(tables) > 1 else tables[0])


def _tables_of(found: Iterable[Piece]) -> Iterator[pa.Table]:
    """Yield tables without their empty columns."""
    for piece in found:
        with _open(piece) as file:
            has_hashes = _has_hashes(file)
            for number in _row_group_numbers(piece):
                row_group = file.metadata.row_group(number)
                names = _with_values(row_group, _READ_SCHEMA.names if has_hashes else _READ)
                count = 0
                for batch in file.iter_batches(_READ_EVENTS, row_groups=[number], columns=names, use_threads=False):
                    count += len(batch)
                    table = pa.Table.from_batches([batch])
                    yield table if has_hashes else _hash_texts(_fill_columns(table, _PLAIN_SCHEMA))
                _require_count(piece, count, row_group.num_rows)


def _has_hashes(file: pq.ParquetFile) -> bool:
    """Return whether a file has hashes of its own texts; older files of ours have none."""
    names = set(file.schema_arrow.names)
    return _bucket_description(file.metadata) is not None and names.issuperset(HASH_SCHEMA.names)


def _hash_texts(table: pa.Table) -> pa.Table:
    """Return events with hashes in place of texts."""
    columns = dict(zip(table.column_names, table.columns, strict=True)) | hash_columns(table)
    return pa.table([columns[name] for name in _READ_SCHEMA.names], schema=_READ_SCHEMA)


def _fill_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return events with all columns of a schema, in its types: files of others may store a text in another type."""
    return pa.table(
        [
            table.column(field.name).cast(field.type)
            if field.name in table.schema.names
            else pa.nulls(table.num_rows, field.type)
            for field in schema
        ],
        schema=schema,
    )


def read_rows(piece: Piece, rows: RowSelection) -> pa.Table:
    """Return the selected events of a piece, with their texts."""
    schema = pa.schema([journal.SCHEMA.field(name) for name in rows.columns])
    wanted = [name for name in journal.SCHEMA.names if name in {*rows.columns, rows.name}]
    tables = [schema.empty_table()]
    with _open(piece) as file:
        for number in _row_group_numbers(piece):
            row_group = file.metadata.row_group(number)
            if rows.name is not None:
                (column,) = file.read_row_group(number, columns=[rows.name], use_threads=False).columns
                _require_count(piece, len(column), row_group.num_rows)
                if not pc.any(pc.is_in(column, rows.wanted_values())).as_py():
                    continue
            table = file.read_row_group(number, columns=_with_values(row_group, wanted), use_threads=False)
            _require_count(piece, len(table), row_group.num_rows)
            tables.append(_fill_columns(table if rows.name is None else rows.take(table), schema))
    return pa.concat_tables(tables)


def examine(piece: Piece) -> Iterator[pa.Table]:
    """Yield all whole events of a piece, a row group at a time.

    Raises:
        HistoryError: a row has values that no recorder writes.
        OSError, ArrowException: the piece is damaged.
    """
    with _open(piece) as file:
        sizes = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
        for number in _row_group_numbers(piece):
            table = _read_row_group(file, number)
            _require_count(piece, len(table), sizes[number])
            if _has_hashes(file):
                stored = file.read_row_group(number, columns=HASH_SCHEMA.names, use_threads=False)
                if not stored.select(HASH_SCHEMA.names).equals(pa.table(hash_columns(table))):
                    raise OSError(f"{piece.path} has hashes that are not those of its texts")
            require_valid_rows(table, piece.path, sum(sizes[:number]))
            yield table


def _read_row_group(file: pq.ParquetFile, number: int) -> pa.Table:
    """Return a row group as the events from which it was written."""
    table = file.read_row_group(number, columns=journal.SCHEMA.names, use_threads=False)
    return table.select(journal.SCHEMA.names).cast(journal.SCHEMA)


def _require_count(piece: Piece, found: int, stated: int) -> None:
    """Refuse a row group with too few rows: Arrow skips a page with a damaged head, and no checksum covers the head."""
    if found != stated:
        raise OSError(f"{piece.path} has {found} events where its end says {stated}")


def _open(piece: Piece) -> pq.ParquetFile:
    return pq.ParquetFile(piece.path, read_dictionary=_DICTIONARY_COLUMNS, page_checksum_verification=True)


def _row_group_numbers(piece: Piece) -> range:
    return range(piece.row_group, piece.row_group + piece.row_group_count)


def _with_values(row_group: pq.RowGroupMetaData, names: Collection[str]) -> list[str]:
    """Return the columns that may have values in a row group."""
    columns = map(row_group.column, range(row_group.num_columns))
    return [column.path_in_schema for column in columns if column.path_in_schema in names and _has_values(column)]


def _has_values(chunk: pq.ColumnChunkMetaData) -> bool:
    """Return whether a column may have values in a row group."""
    known = chunk.statistics
    return known is None or not known.has_null_count or known.null_count < chunk.num_values
