"""Histories as Parquet: written of journals, with whole groups together; read a row group at a time.

A file that was written here has its events in *buckets*: a row group is of one bucket, and all events of a message
group are in the same bucket of every file. Who judges groups reads bucket after bucket, and nothing has to be
exchanged. Other files with the columns of a history are as good; they take an exchange.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_load.columns import Events, hashes
from wire import journal

BUCKETS_MAX = 10_000
_READ_EVENTS = 400_000
_BUCKETS = b"sluice.buckets"
_FEW_TEXTS = (
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
_FEW_WRITTEN = (*_FEW_TEXTS, "run", "host")
_READ = (
    *_FEW_TEXTS,
    "task_attempt",
    "call_id",
    "idx",
    "intended_at_us",
    "invoked_at_us",
    "responded_at_us",
    "batch_position",
    "deduplication_id",
    "sns_message_id",
    "sns_sequence_number",
    "sqs_message_id",
    "sqs_sequence_number",
    "receive_count",
    "receipt_handle_hash",
    "sent_at_us",
    "visibility_timeout_seconds",
    "max_number_of_messages",
    "wait_time_seconds",
    "body_hash",
    "attributes_hash",
    "md5_ok",
)
_CODED = pa.dictionary(pa.int32(), pa.string())
_WRITTEN = pa.schema([(one.name, _CODED if one.name in _FEW_WRITTEN else one.type) for one in journal.SCHEMA])
_TYPES = {name: _CODED if name in _FEW_TEXTS else journal.SCHEMA.field(name).type for name in _READ}
_HOW: dict[str, Any] = {
    "use_dictionary": list(_FEW_WRITTEN),
    "compression": "lz4",  # read in half the time of snappy, and no larger
    "store_schema": False,
}
_HASHED = int(hashes(pa.array(["sluice"]))[0])  # files of another way to hash have other buckets


@dataclass(frozen=True, slots=True)
class Piece:
    """A row group of a file.

    Args:
        path: of the file.
        row_group: its number.
        events: how many are in it.
        bucket: of the groups in it; 0 where the file has none.
    """

    path: str
    row_group: int
    events: int
    bucket: int


def write(tables: Iterable[pa.Table], path: Path, bucket_count: int) -> None:
    """Write events to a file, each table in buckets.

    Args:
        tables: columns as in `sluice.history`.
        path: made anew.
        bucket_count: the same for all files of a history, at most BUCKETS_MAX.
    """
    buckets: list[int] = []
    with pq.ParquetWriter(path, _WRITTEN, **_HOW) as writer:
        for table in tables:
            coded = _coded(table)
            of_bucket = _bucket(Events(coded), bucket_count)
            ordered = journal.taken(coded, np.argsort(of_bucket, kind="stable"))
            end = 0
            for bucket, count in enumerate(np.bincount(of_bucket).tolist()):
                begin, end = end, end + count
                if count:
                    writer.write_table(_slim(ordered.slice(begin, count)), row_group_size=count)
                    buckets.append(bucket)
        told = {"count": bucket_count, "hashed": _HASHED, "of": buckets}
        writer.add_key_value_metadata({_BUCKETS: json.dumps(told)})


def _coded(table: pa.Table) -> pa.Table:
    """Return the events with texts that repeat as dictionaries."""
    columns = [
        column.combine_chunks().dictionary_encode() if name in _FEW_WRITTEN else column
        for name, column in zip(table.column_names, table.columns, strict=True)
    ]
    return pa.table(columns, schema=_WRITTEN)


def _slim(table: pa.Table) -> pa.Table:
    """Return the events without the texts of others, where those are many: a slice has the whole dictionary."""
    columns = [
        column.cast(pa.string()).combine_chunks().dictionary_encode()
        if pa.types.is_dictionary(column.type) and sum(len(one.dictionary) for one in column.chunks) > len(column)
        else column
        for column in table.columns
    ]
    return pa.table(columns, schema=table.schema)


def buckets_of(groups: Iterable[str], bucket_count: int) -> frozenset[int]:
    """Return the buckets these groups are in."""
    return frozenset((hashes(pa.array(sorted(groups), pa.string())) % np.uint64(bucket_count)).tolist())


def _bucket(events: Events, bucket_count: int) -> np.ndarray:
    """Return the bucket of each event; what is of no group is spread evenly, neighbours together."""
    group = events.hashes("message_group_id")
    found = (group % np.uint64(bucket_count)).astype(np.uint16)
    groupless = np.flatnonzero(group == 0)
    found[groupless] = np.arange(len(groupless)) * bucket_count // max(1, len(groupless))
    return found


def pieces(history: Path) -> tuple[list[Piece], int | None]:
    """Return the row groups of all files of a folder, and how many buckets they are in; None where they are in none."""
    found: list[Piece] = []
    counts: set[int | None] = set()
    for path in sorted(history.glob("*.parquet")):
        metadata = _metadata_of(path)
        count, buckets = _said(metadata)
        counts.add(count)
        found += [
            Piece(str(path), number, metadata.row_group(number).num_rows, bucket)
            for number, bucket in enumerate(buckets)
        ]
    return found, counts.pop() if len(counts) == 1 else None


def _said(metadata: pq.FileMetaData) -> tuple[int | None, list[int]]:
    """Return how many buckets there are, and that of each row group; where a file has none of ours, None and zeros."""
    none = None, [0] * metadata.num_row_groups
    try:
        said = json.loads((metadata.metadata or {})[_BUCKETS])
        count, buckets = said["count"], said["of"]
        are_ours = said["hashed"] == _HASHED and len(buckets) == metadata.num_row_groups
        are_in_range = 0 < count <= BUCKETS_MAX and all(0 <= bucket < count for bucket in buckets)
        are_in_range &= all(isinstance(number, int) for number in (count, *buckets))
    except (KeyError, TypeError, ValueError, RecursionError):
        return none
    return (count, buckets) if are_ours and are_in_range else none


def read(piece: Piece) -> Iterator[Events]:
    """Yield the events of a row group, a part at a time, those columns of them that are judged."""
    metadata = _metadata_of(Path(piece.path))
    row_group = metadata.row_group(piece.row_group)
    said = [at for at in range(row_group.num_columns) if _says_something(row_group.column(at))]
    names = [name for at in said if (name := row_group.column(at).path_in_schema) in _TYPES]
    with pq.ParquetFile(piece.path, metadata=metadata, read_dictionary=_FEW_TEXTS) as file:
        for batch in file.iter_batches(_READ_EVENTS, row_groups=[piece.row_group], columns=names, use_threads=False):
            yield Events(
                pa.table(
                    {
                        # a stranger's Parquet may say how Arrow is to hold a text
                        name: batch.column(name).cast(type_) if name in names else pa.nulls(batch.num_rows, type_)
                        for name, type_ in _TYPES.items()
                    }
                )
            )


def read_groups(piece: Piece, groups: pa.Array) -> pa.Table:
    """Return whole events of a row group, only those of the message groups with these names."""
    with pq.ParquetFile(piece.path, metadata=_metadata_of(Path(piece.path)), read_dictionary=_FEW_TEXTS) as file:
        (name,) = file.read_row_group(piece.row_group, columns=["message_group_id"], use_threads=False).columns
        is_theirs = pc.is_in(name, groups)
        if not pc.any(is_theirs).as_py():
            return journal.SCHEMA.empty_table()
        table = file.read_row_group(piece.row_group, columns=journal.SCHEMA.names, use_threads=False)
    return table.filter(is_theirs).select(journal.SCHEMA.names).cast(journal.SCHEMA)


def _metadata_of(path: Path) -> pq.FileMetaData:
    return _metadata(str(path), path.stat().st_mtime_ns)


@lru_cache(maxsize=32)
def _metadata(path: str, _: int) -> pq.FileMetaData:
    """Return what stands at the end of a file, as long as it is the same file: a bucket of many takes little else."""
    return pq.read_metadata(path)


def _says_something(chunk: pq.ColumnChunkMetaData) -> bool:
    """Return whether a column says anything here; in doubt it does."""
    known = chunk.statistics
    return known is None or not known.has_null_count or known.null_count < chunk.num_values
