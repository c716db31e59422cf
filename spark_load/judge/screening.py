"""The pass over a whole history in Spark: it spreads the work, and brings together what belongs together.

A task reads row groups of the Parquet files, narrows their events, and clears the groups that are as they should be. Of
a history in buckets it reads all of one bucket, and has whole groups. Of any other it hands each partition of groups
its share as one block of bytes, which Spark carries as it is: that is the one exchange.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import cycle
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from sluice.errors import HistoryError
from sluice.judge.checker import Expectation
from sluice.judge.counts import COUNTED, count
from sluice.judge.reading.columns import Columns, Events
from sluice.judge.reading.parquet_files import Piece, pieces, read
from sluice.judge.screening.buckets import MAYBE, NAMES, Cleared, cleared, concluded, group_names
from sluice.judge.screening.encode import LEFT_OUT, SCHEMA, encode_events, kept
from sluice.judge.screening.rollup import Messages
from spark_load.judge.reading import describe_history, spread

_PARTITION_EVENTS = 500_000
_PARTITIONS_MAX = 10_000
_BLOCK_SCHEMA = "partition int, label string, block binary"
_BLOCK = pa.schema({"partition": pa.int32(), "label": pa.string(), "block": pa.binary()})
_COUNTED, _NAMES, _ROWS, _MAYBE, _SEEN = "counted", "names", "rows", "suspects", "seen"

type Look = Callable[[Messages, pa.Table], Iterable[tuple[str, bytes]]]
"""Is given the messages and the names of whole groups, see `cleared`; says what it found, and its bytes."""


def clear(spark: SparkSession, history: Path, expectation: Expectation) -> Cleared:
    """Look at a whole history once; executors see its folder of Parquet."""

    def look(messages: Messages, names: pa.Table) -> Iterator[tuple[str, bytes]]:
        maybe, seen = cleared(messages, names, expectation)
        yield _MAYBE, _bytes(maybe)
        yield _SEEN, json.dumps(seen).encode()

    found: dict[str, list[bytes]] = {label: [] for label in (_COUNTED, _MAYBE, _SEEN)}
    for label, block in _pairs(screened(spark, history, expectation, look).toArrow()):
        found[label].append(block)
    return concluded(
        _table(found[_COUNTED], COUNTED),
        _table(found[_MAYBE], MAYBE),
        [json.loads(block) for block in found[_SEEN]],
        expectation,
    )


def screened(spark: SparkSession, history: Path, expectation: Expectation, look: Look) -> DataFrame:
    """Return what was counted of the events of a history, and what `look` says of each part of its groups."""
    found, bucket_count = pieces(history)
    if bucket_count is None:
        return behind(exchanged(spark, found, expectation), expectation, look)
    return _of_buckets(spark, found, bucket_count, expectation, look)


def _of_buckets(
    spark: SparkSession, found: Sequence[Piece], bucket_count: int, expectation: Expectation, look: Look
) -> DataFrame:
    def judge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        mine, messages, names = list(describe_history(batches)), Messages(expectation), [NAMES.empty_table()]
        for events in read(mine):
            yield _batch([(0, _COUNTED, _bytes(count(events, expectation)))])
            narrowed = encode_events(events, expectation)
            if _is_astray(narrowed, mine[0].bucket, bucket_count):
                raise _refused(mine, bucket_count, expectation)
            messages.add(narrowed)
            names.append(group_names(events))
        yield from _judged(messages, pa.concat_tables(names), look)

    return spread(spark, ((piece.bucket, piece) for piece in found), bucket_count).mapInArrow(judge, _BLOCK_SCHEMA)


def _is_astray(rows: Columns, bucket: int, bucket_count: int) -> bool:
    """Return whether one of the groups is of another bucket."""
    is_astray = rows["group"] % np.uint64(bucket_count) != np.uint64(bucket)
    return bool((is_astray & (rows["kind"] != LEFT_OUT)).any())


def _refused(mine: Sequence[Piece], bucket_count: int, expectation: Expectation) -> HistoryError:
    path = next(
        piece.path
        for piece in mine
        for events in read([piece])
        if _is_astray(encode_events(events, expectation), piece.bucket, bucket_count)
    )
    return HistoryError(
        f"{path} says that its message groups are of one bucket, and has one of another; judge the journals it was made"
        " of, or write it again without what it says of sluice.buckets"
    )


def _judged(messages: Messages, names: pa.Table, look: Look) -> Iterator[pa.RecordBatch]:
    if len(messages):
        yield _batch((0, label, block) for label, block in look(messages, names))


def exchanged(spark: SparkSession, found: Sequence[Piece], expectation: Expectation) -> DataFrame:
    """Return pieces of a history as blocks, each in the partition it belongs to."""
    partition_count = min(max(1, round(sum(piece.events for piece in found) / _PARTITION_EVENTS)), _PARTITIONS_MAX)

    def narrowed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for events in read(describe_history(batches)):
            yield _blocks(events, expectation, partition_count)

    return (
        spread(spark, zip(cycle(range(partition_count)), found, strict=False), partition_count)
        .mapInArrow(narrowed, _BLOCK_SCHEMA)
        .repartitionById(partition_count, "partition")
    )


def _blocks(events: Events, expectation: Expectation, partition_count: int) -> pa.RecordBatch:
    """Return the counts of the events, and for each partition its rows and the names of its groups."""
    blocks = [(0, _COUNTED, _bytes(count(events, expectation)))]
    shares = _shares(pa.table(kept(encode_events(events, expectation)), schema=SCHEMA), partition_count)
    names = _shares(group_names(events), partition_count)
    for partition, (rows, named) in enumerate(zip(shares, names, strict=True)):
        if rows.num_rows:
            blocks += [(partition, _ROWS, _bytes(rows)), (partition, _NAMES, _bytes(named))]
    return _batch(blocks)


def _shares(table: pa.Table, partition_count: int) -> Iterator[pa.Table]:
    """Yield the rows of each partition in turn."""
    of_partition = (table.column("group").to_numpy() % np.uint64(partition_count)).astype(np.uint16)  # sorted in one go
    ordered = table.take(pa.array(np.argsort(of_partition, kind="stable"))).combine_chunks()
    end = 0
    for row_count in np.bincount(of_partition, minlength=partition_count).tolist():
        begin, end = end, end + row_count
        yield ordered.slice(begin, row_count)


def _bytes(table: pa.Table) -> bytes:
    (batch,) = table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]
    return bytes(batch.serialize())


def _batch(blocks: Iterable[tuple[int, str, bytes]]) -> pa.RecordBatch:
    columns = zip(*blocks, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, _BLOCK, strict=True)], schema=_BLOCK
    )


def _table(blocks: Sequence[bytes], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches([pa.ipc.read_record_batch(block, schema) for block in blocks], schema=schema)


def behind(blocks: DataFrame, expectation: Expectation, look: Look) -> DataFrame:
    """Return what was counted of the events, and what `look` says of all groups of each partition of `exchanged`."""

    def judge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        messages, names = Messages(expectation), list[bytes]()
        for batch in batches:
            for label, block in _pairs(batch):
                if label == _COUNTED:
                    yield _batch([(0, label, block)])
                elif label == _ROWS:
                    rows = _table([block], SCHEMA)
                    messages.add({name: rows.column(name).to_numpy() for name in SCHEMA.names})
                else:
                    names.append(block)
        yield from _judged(messages, _table(names, NAMES), look)

    return blocks.mapInArrow(judge, _BLOCK_SCHEMA)


def _pairs(table: pa.Table | pa.RecordBatch) -> Iterator[tuple[str, bytes]]:
    return zip(table.column("label").to_pylist(), table.column("block").to_pylist(), strict=True)
