"""From journals to a history: settled, as Parquet, whole groups together."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sluice.errors import HistoryError
from spark_load import parquet
from spark_load.session import reason
from wire.journal import SUFFIX, read_parts

_BUCKET_BYTES = 500_000_000  # of journals: about a million events, most of which they tell twice


def compact(spark: SparkSession, journals: Path, history: Path) -> None:
    """Write every journal of a run into a history, a file of Parquet for each; what was there before is replaced.

    Args:
        spark: its executors read and write the folders.
        journals: a folder of journals.
        history: folder to be made.

    Raises:
        HistoryError: there is no journal, one is damaged or of another version, or the history cannot be written.
    """
    paths = sorted(journals.glob(f"*{SUFFIX}"))
    if not paths:
        raise HistoryError(f"{journals} holds no journals: nothing was recorded; run the load test again")
    size = sum(path.stat().st_size for path in paths)
    bucket_count = min(max(1, round(size / _BUCKET_BYTES)), parquet.BUCKETS_MAX)
    partial = history.with_name(f"{history.name}.partial")

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path in map(Path, batch.column("path").to_pylist()):
                _write(path, partial, bucket_count)
            yield batch

    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        told = spark.createDataFrame([(str(path),) for path in paths], "path string").repartition(len(paths))
        told.mapInArrow(write, "path string").write.format("noop").mode("overwrite").save()
        shutil.rmtree(history, ignore_errors=True)
        partial.rename(history)
    except (PySparkException, Py4JError) as error:
        raise HistoryError(f"the journals in {journals} do not become a history: {reason(error)}") from error
    except OSError as error:
        raise _unwritten(history, error) from error


def _write(path: Path, folder: Path, bucket_count: int) -> None:
    try:
        parquet.write(read_parts(path), folder / f"{path.stem}.parquet", bucket_count)
    except OSError as error:
        raise _unwritten(folder, error) from error


def _unwritten(folder: Path, error: OSError) -> HistoryError:
    why = os.strerror(error.errno) if error.errno else str(error)
    return HistoryError(f"cannot write to {folder} ({why}); make room, or copy the journals to where you can write")
