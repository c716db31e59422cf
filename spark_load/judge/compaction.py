"""Turn the journals of a run into a history: Parquet files, each of which has all events of its groups."""

import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sluice.errors import HistoryError
from sluice.judge.reading import parquet_files
from sluice.judge.reading.damage import error_in_task, reason
from sluice.recorder.journal import SUFFIX, read_parts

_BUCKETS_MIN = 2  # a history of any size is judged by at least two cores
_BUCKET_BYTES = (
    500_000_000  # of journals: about a million events, most of which are written twice, as intent and as answer
)


def compact(spark: SparkSession, journals: Path, history: Path) -> None:
    """Write every journal of a run into a history of Parquet files; files that exist are replaced.

    Runs on executors, which must see both folders. HistoryError may also mean that the run has no journal.
    """
    paths = sorted(journals.glob(f"*{SUFFIX}"))
    if not paths:
        raise HistoryError(f"{journals} holds no journals: nothing was recorded; run the load test again")
    size = sum(path.stat().st_size for path in paths)
    bucket_count = min(max(_BUCKETS_MIN, round(size / _BUCKET_BYTES)), parquet_files.BUCKETS_MAX)
    history = history.resolve()
    partial = history.with_name(
        f"{history.name}.partial-{uuid.uuid4().hex[:8]}"
    )  # another process may write the same history

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path in map(Path, batch.column("path").to_pylist()):
                _write(path, partial, bucket_count)
            yield batch

    try:
        partial.mkdir()
        paths_frame = spark.createDataFrame(
            [(index, str(path)) for index, path in enumerate(paths)], "task int, path string"
        )
        written = paths_frame.repartitionById(len(paths), "task").mapInArrow(write, "task int, path string")
        written.write.format("noop").mode("overwrite").save()
        if history.exists():
            shutil.rmtree(history)
        partial.rename(history)
    except (PySparkException, Py4JError) as error:
        why = error_in_task(error) or f"the journals in {journals} do not become a history: {reason(error)}"
        raise HistoryError(why) from error
    except OSError as error:
        raise _unwritten(history, error) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write(path: Path, folder: Path, bucket_count: int) -> None:
    try:
        # Spark does not see files whose names begin with a dot or an underscore, and a recorder's may.
        parquet_files.write(read_parts(path), folder, f"journal-{path.stem}", bucket_count)
    except OSError as error:
        raise _unwritten(folder, error) from error


def _unwritten(folder: Path, error: OSError) -> HistoryError:
    why = os.strerror(error.errno) if error.errno else str(error)
    return HistoryError(f"cannot write to {folder} ({why}); make room, or copy the journals to where you can write")
