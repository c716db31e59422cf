"""One pass over a whole history in Spark: what its events add up to, and which groups the checker has to look at.

Spark brings together what belongs together, and spreads it over its executors; what is done with it is done on whole
columns, in Python. A task reads pieces of the Parquet files, narrows their events and hands each partition of groups
its share as one block of bytes, which Spark carries as it is: that is the one exchange. Behind it a task has all blocks
of its groups, and clears those that are as they should be.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from sluice.checker import Activity, Expectation
from spark_load.columns import Events, hashes
from spark_load.facts import COUNTED, Facts, count, facts
from spark_load.measures import Seen, joined, nothing, observed
from spark_load.messages import messages
from spark_load.narrow import SCHEMA, narrow
from spark_load.suspects import groups, waited_bit
from wire import journal

_PARTITION_EVENTS = 500_000
_PARTITIONS_MAX = 10_000
_PIECE_SCHEMA = "task int, path string, row_group int"
_BLOCK_SCHEMA = "partition int, what string, block binary"
_BLOCK = pa.schema({"partition": pa.int32(), "what": pa.string(), "block": pa.binary()})
_COUNTED, _NAMES, _ROWS, _MAYBE, _SEEN = "counted", "names", "rows", "suspects", "seen"
_NAMES_SCHEMA = pa.schema({"group": pa.uint64(), "name": pa.string()})
_MAYBE_SCHEMA = pa.schema({"name": pa.string(), "is_suspect": pa.bool_(), "waited": pa.int64()})
_FEW_TEXTS = ["kind", "outcome", "queue", "phase", "worker", "clock_id", "error", "message_group_id", "message_run"]
_READ = [
    *_FEW_TEXTS,
    "detail",
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
]
_READ_SCHEMA = pa.schema(
    [
        (name, pa.dictionary(pa.int32(), pa.string()) if name in _FEW_TEXTS else journal.SCHEMA.field(name).type)
        for name in _READ
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleared:
    """What one pass over a history found.

    Args:
        facts: what its events add up to.
        suspects: names of the groups the checker has to look at.
        seen: what `measures.observed` saw, of all messages.
    """

    facts: Facts
    suspects: list[str]
    seen: Seen


def clear(spark: SparkSession, history: Path, expectation: Expectation) -> Cleared:
    """Look at a whole history once.

    Args:
        spark: its executors see the folder.
        history: folder of Parquet, columns as in `sluice.history`, settled.
        expectation: what the run was set up to be.
    """

    def look(rows: pa.Table, names: pa.Table) -> Iterator[tuple[str, bytes]]:
        maybe, seen = cleared(rows, names, expectation)
        yield _MAYBE, _bytes(maybe)
        yield _SEEN, json.dumps(seen).encode()

    found: dict[str, list[bytes]] = {what: [] for what in (_COUNTED, _MAYBE, _SEEN)}
    for what, block in _pairs(looked_at(exchanged(spark, history, expectation), look).toArrow()):
        found[what].append(block)
    told = facts(_table(found[_COUNTED], COUNTED), expectation)
    return Cleared(
        facts=told,
        suspects=suspects(_table(found[_MAYBE], _MAYBE_SCHEMA), told.activity, expectation),
        seen=joined([json.loads(block) for block in found[_SEEN]] or [nothing(expectation)]),
    )


def suspects(maybe: pa.Table, activity: Mapping[str, Sequence[Activity]], expectation: Expectation) -> list[str]:
    """Return the names of the groups that are suspect, now that it is known which queues said they were empty.

    Args:
        maybe: what `cleared` returns.
        activity: of each queue.
        expectation: what the run was set up to be.
    """
    said_empty = 0
    for lane, queue in enumerate(expectation.queues, 1):
        if any(one.empty_count for one in activity.get(queue, ())):
            said_empty |= waited_bit(lane)
    return [row["name"] for row in maybe.to_pylist() if row["is_suspect"] or row["waited"] & said_empty]


def _pieces(history: Path) -> list[tuple[str, int, int]]:
    """Return the row groups of all files: path, number, and how many events are in it."""
    found = []
    for path in sorted(history.glob("*.parquet")):
        metadata = pq.read_metadata(path)
        found += [(str(path), number, metadata.row_group(number).num_rows) for number in range(metadata.num_row_groups)]
    return found


# --- before the exchange ---------------------------------------------------------------------------------------------


def exchanged(spark: SparkSession, history: Path, expectation: Expectation) -> DataFrame:
    """Return a history as blocks, each in the partition it belongs to: the arguments are those of `clear`."""
    pieces = _pieces(history)
    partition_count = min(max(1, round(sum(rows for _, _, rows in pieces) / _PARTITION_EVENTS)), _PARTITIONS_MAX)

    def narrowed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for piece in batch.to_pylist():
                yield _blocks(read(piece["path"], piece["row_group"]), expectation, partition_count)

    told = [(at % partition_count, path, number) for at, (path, number, _) in enumerate(pieces)]
    return (
        spark.createDataFrame(told, _PIECE_SCHEMA)
        .repartitionById(partition_count, "task")
        .mapInArrow(narrowed, _BLOCK_SCHEMA)
        .repartitionById(partition_count, "partition")
    )


def read(path: str, row_group: int) -> Events:
    """Return the events of a row group of a Parquet file."""
    with pq.ParquetFile(path, read_dictionary=_FEW_TEXTS) as file:
        table = file.read_row_group(row_group, columns=_READ, use_threads=False)
    return Events(table.select(_READ).cast(_READ_SCHEMA))  # a stranger's Parquet may say how Arrow is to hold a text


def _blocks(events: Events, expectation: Expectation, partition_count: int) -> pa.RecordBatch:
    """Return the counts of the events, and for each partition its rows and the names of its groups."""
    blocks = [(0, _COUNTED, _bytes(count(events, expectation)))]
    shares = _shares(narrow(events, expectation), partition_count)
    names = _shares(group_names(events), partition_count)
    for partition, (rows, named) in enumerate(zip(shares, names, strict=True)):
        if rows.num_rows:
            blocks += [(partition, _ROWS, _bytes(rows)), (partition, _NAMES, _bytes(named))]
    return _batch(blocks)


def group_names(events: Events) -> pa.Table:
    """Return the groups' names and the hashes that stand for them."""
    _, (*names, _) = events.codes("message_group_id")
    texts = pa.array(names, pa.string())
    return pa.table([pa.array(hashes(texts)), texts], schema=_NAMES_SCHEMA)


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
        [pa.array(column, one.type) for column, one in zip(columns, _BLOCK, strict=True)], schema=_BLOCK
    )


def _table(blocks: Sequence[bytes], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches([pa.ipc.read_record_batch(block, schema) for block in blocks], schema=schema)


# --- behind it -------------------------------------------------------------------------------------------------------


def looked_at(blocks: DataFrame, look: Callable[[pa.Table, pa.Table], Iterable[tuple[str, bytes]]]) -> DataFrame:
    """Return what was counted of the events as it is, and what `look` says of each partition of groups.

    Args:
        blocks: what `exchanged` returns.
        look: is given the rows and the names of whole groups, see `cleared`; says what it found, and its bytes.
    """

    def judge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        mine: dict[str, list[bytes]] = {_NAMES: [], _ROWS: []}
        for batch in batches:
            for what, block in _pairs(batch):
                if what == _COUNTED:
                    yield _batch([(0, what, block)])
                else:
                    mine[what].append(block)
        if mine[_ROWS]:
            rows, names = _table(mine.pop(_ROWS), SCHEMA), _table(mine.pop(_NAMES), _NAMES_SCHEMA)
            yield _batch((0, what, block) for what, block in look(rows, names))

    return blocks.mapInArrow(judge, _BLOCK_SCHEMA)


def _pairs(table: pa.Table | pa.RecordBatch) -> Iterator[tuple[str, bytes]]:
    return zip(table.column("what").to_pylist(), table.column("block").to_pylist(), strict=True)


def cleared(rows: pa.Table, names: pa.Table, expectation: Expectation) -> tuple[pa.Table, Seen]:
    """Return the groups that may be suspect, see `suspects.groups`, and what was observed of their messages.

    Args:
        rows: what `narrow` returns, of whole groups; at least one.
        names: of the groups, and the hashes that stand for them; each as often as it likes.
        expectation: what the run was set up to be.
    """
    told = messages({name: rows.column(name).to_numpy() for name in SCHEMA.names}, expectation)
    judged = groups(told, expectation)
    suspect = pa.table({name: judged[name] for name in ("group", "is_suspect", "waited")}).filter(
        pa.array(judged["is_suspect"] | (judged["waited"] != 0))
    )
    named = names.group_by(["group", "name"], use_threads=False).aggregate([])
    return suspect.join(named, "group", join_type="inner", use_threads=False).select(_MAYBE_SCHEMA.names), observed(
        told, judged, expectation
    )
