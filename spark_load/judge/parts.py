"""Read a history with Spark, part by part: for load tests, and for recordings too large for one process.

`sluice.judge.engine` defines the functions that compute partial results. If the history is in buckets, a task reads one
bucket, which has whole groups. Otherwise a task reads neighbouring row groups; where whole groups are needed, it sends
the events of each group to one partition, as a block of bytes. That is the only exchange.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from itertools import cycle
from pathlib import Path

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sluice.errors import HistoryError
from sluice.judge.engine import JudgeEngine
from sluice.judge.folder.layout import HISTORY
from sluice.judge.parts import Partial
from sluice.judge.reading import folders
from sluice.judge.reading.columns import Events
from sluice.judge.reading.damage import read_whole, readable
from sluice.judge.reading.parquet_files import (
    Piece,
    RowSelection,
    bucket_of,
    buckets_of,
    pieces,
    read,
    read_rows,
    together,
)
from sluice.judge.tally import PLACE_KEYS, TALLY, VALUE_KEYS, shorten
from sluice.recorder.journal import take_rows
from spark_load.judge.compaction import compact

_PARTITION_EVENTS = 500_000
_PARTITIONS_MAX = 10_000
_PIECE_SCHEMA = "task int, path string, row_group int, row_group_count int, events long, bucket int"
_BLOCK_SCHEMA = "number int, block binary"
_BLOCK = pa.schema({"number": pa.int32(), "block": pa.binary()})
"""Schema of serialized tables; `number` is the position among the results of a partial, or the partition."""


class HistoryOnSpark:
    """A history in a folder of Parquet, which executors see."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._folder = spark, folder

    def look(self, partial: Partial, rows: RowSelection | None = None) -> list[pa.Table]:
        """Compute a partial result of every part; return its tables, each with the rows of all parts."""

        def blocks(part: Iterable[Events]) -> Iterator[pa.RecordBatch]:
            for number, table in enumerate(partial(part)):
                yield _serialize_tables([(number, table)])

        found = {
            number: [table] for number, table in enumerate(partial([]))
        }  # without events: tables of the right schemas
        for row in self._map_parts(blocks, _BLOCK_SCHEMA, rows).toArrow().to_pylist():
            found[row["number"]].append(_deserialize_table(row["block"]))
        return [pa.concat_tables(tables) for tables in found.values()]

    def tally(self, partial: Partial) -> pa.Table:
        """Compute a partial result of the schema TALLY of every part; return the sums, shortened by `shorten`."""

        def rows(part: Iterable[Events]) -> Iterator[pa.RecordBatch]:
            (found,) = partial(part)
            yield from found.to_batches()

        types = "what string, name string, place int, value long, count long"
        found = self._map_parts(rows, types, None).groupBy(*VALUE_KEYS).agg(F.sum("count").alias("count"))
        return found.groupBy(*PLACE_KEYS).applyInArrow(shorten, types).toArrow().cast(TALLY)

    def _map_parts(
        self, make: Callable[[Iterable[Events]], Iterator[pa.RecordBatch]], schema: str, rows: RowSelection | None
    ) -> DataFrame:
        """Apply `make` to each part of the history in a task; return its rows, of the given schema."""
        found, bucket_count = pieces(self._folder)
        if bucket_count is not None and rows is not None and rows.name == "message_group_id":
            wanted_buckets = buckets_of(rows.values, bucket_count)
            found = [piece for piece in found if piece.bucket in wanted_buckets]

        def of_pieces(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from make(_read_events(list(_read_pieces(batches)), rows, bucket_count))

        def of_blocks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from make(
                together(_deserialize_table(block) for batch in batches for block in batch.column("block").to_pylist())
            )

        if bucket_count is not None:
            return spread(self._spark, ((piece.bucket, piece) for piece in found), bucket_count).mapInArrow(
                of_pieces, schema
            )
        count = min(max(1, round(sum(piece.events for piece in found) / _PARTITION_EVENTS)), _PARTITIONS_MAX)
        tasks = spread(self._spark, zip(cycle(range(count)), found, strict=False), count)
        if rows is not None and not rows.is_grouped:
            return tasks.mapInArrow(of_pieces, schema)

        def exchange(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for events in _read_events(list(_read_pieces(batches)), rows, None):
                yield _serialize_tables(_split_by_partition(events, count, is_whole=rows is not None))

        return tasks.mapInArrow(exchange, _BLOCK_SCHEMA).repartitionById(count, "number").mapInArrow(of_blocks, schema)


def spread(spark: SparkSession, tasks: Iterable[tuple[int, Piece]], task_count: int) -> DataFrame:
    """Return pieces as rows of a DataFrame, each in the partition of its task."""
    rows = [(task, *astuple(piece)) for task, piece in tasks]
    return spark.createDataFrame(rows, _PIECE_SCHEMA).repartitionById(task_count, "task")


def _read_pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[Piece]:
    """Yield the tables of the pieces that a task was given."""
    for batch in batches:
        for row in batch.drop_columns("task").to_pylist():
            yield Piece(**row)


def _read_events(found: Sequence[Piece], rows: RowSelection | None, bucket_count: int | None) -> Iterator[Events]:
    if rows is not None:
        for piece in found:
            yield Events(read_rows(piece, rows))
        return
    for events in read(found):
        if bucket_count is not None:
            _require_bucket(events, found, bucket_count)
        yield events


def _require_bucket(events: Events, found: Sequence[Piece], bucket_count: int) -> None:
    """Refuse a file with a group that belongs to another bucket than the file's name says.

    The group's events would be in two parts, and each part would be judged without the other's.
    """
    if not _has_groups_of_other_buckets(events, found[0].bucket, bucket_count):
        return
    path = next(
        piece.path
        for piece in found
        for of in read([piece])
        if _has_groups_of_other_buckets(of, found[0].bucket, bucket_count)
    )
    raise HistoryError(
        f"{path} has a message group of another bucket than its metadata names, allowed are groups of that bucket;"
        " judge the journals it was made of, or write it again without the metadata sluice.buckets"
    )


def _has_groups_of_other_buckets(events: Events, bucket: int, bucket_count: int) -> bool:
    group = events.hashes("message_group_id")
    return bool(((group % np.uint64(bucket_count) != np.uint64(bucket)) & (group != 0)).any())


def _split_by_partition(events: Events, partition_count: int, *, is_whole: bool) -> Iterator[tuple[int, pa.Table]]:
    """Yield (partition, its events); unless `is_whole`, without empty columns, which would be exchanged too."""
    of_partition, table = bucket_of(events, partition_count), events.table
    if not is_whole:
        table = table.select([name for name in table.column_names if table.column(name).null_count < len(table)])
    ordered = take_rows(table, np.argsort(of_partition, kind="stable")).combine_chunks()
    end = 0
    for partition, count in enumerate(np.bincount(of_partition, minlength=partition_count).tolist()):
        begin, end = end, end + count
        if count:
            yield partition, ordered.slice(begin, count)


def _serialize_tables(numbered: Iterable[tuple[int, pa.Table]]) -> pa.RecordBatch:
    numbers, blocks = list[int](), list[bytes]()
    for number, table in numbered:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        numbers.append(number)
        blocks.append(sink.getvalue().to_pybytes())
    return pa.RecordBatch.from_arrays([pa.array(numbers, pa.int32()), pa.array(blocks, pa.binary())], schema=_BLOCK)


def _deserialize_table(block: bytes) -> pa.Table:
    return pa.ipc.open_stream(block).read_all()


@contextmanager
def open_recording(spark: SparkSession, root: Path) -> Iterator[JudgeEngine]:
    """Yield the recording in a folder, which executors see; journals become Parquet files beside them first.

    Raises HistoryError for damage, also for damage that is found when the block reads.
    """
    folder = folders.folder_of(root)
    is_made = folders.is_journals(folder)
    if is_made:
        compact(spark, folder, root / HISTORY)
        folder = root / HISTORY
    with readable(folder, PySparkException, Py4JError):
        if not is_made:
            _require_undamaged(spark, folder)
        yield JudgeEngine(HistoryOnSpark(spark, folder))


def _require_undamaged(spark: SparkSession, folder: Path) -> None:
    """Refuse damaged Parquet files that others wrote, by reading them in tasks; files written here need no check."""

    def examine(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for piece in _read_pieces(batches):
            for table in read_whole(piece):
                yield pa.RecordBatch.from_pydict({"events": [len(table)]})

    found, _ = pieces(folder)
    if found:
        tasks = spread(spark, enumerate(found), len(found))
        tasks.mapInArrow(examine, "events long").write.format("noop").mode("overwrite").save()
