"""How Spark reads a history: as its own rows, or piece by piece in Python tasks."""

from collections.abc import Iterable, Iterator
from dataclasses import astuple
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession

from sluice.errors import HistoryError
from sluice.judge.reading.parquet_files import Piece
from sluice.judge.reading.reasons import reason
from sluice.recorder.journal import SCHEMA

_PIECE_SCHEMA = "task int, path string, row_group int, row_group_count int, events long, bucket int"


def reader(spark: SparkSession) -> DataFrameReader:
    """Return what reads Parquet, and holds those pages to their checksum that have one."""
    return spark.read.option("parquet.page.verify-checksum.enabled", "true")


def read_history(spark: SparkSession, folder: Path) -> DataFrame:
    """Return the events of a folder of Parquet, whatever columns and files there are besides."""
    try:
        history = reader(spark).option("pathGlobFilter", "*.parquet").parquet(str(folder))
    except (PySparkException, Py4JError) as error:
        raise HistoryError(f"{folder} is not a history of Sluice: {reason(error)}") from error
    return history.select(SCHEMA.names)


def spread(spark: SparkSession, tasks: Iterable[tuple[int, Piece]], task_count: int) -> DataFrame:
    """Return pieces as rows, each in the partition that is its task; `describe_history` makes pieces of them again."""
    rows = [(task, *astuple(piece)) for task, piece in tasks]
    return spark.createDataFrame(rows, _PIECE_SCHEMA).repartitionById(task_count, "task")


def describe_history(batches: Iterable[pa.RecordBatch]) -> Iterator[Piece]:
    """Yield the pieces a task was given."""
    for batch in batches:
        for row in batch.drop_columns("task").to_pylist():
            yield Piece(**row)
