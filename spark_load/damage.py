"""A damaged history: what Spark and Arrow say of it, as an error that names the file."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from sluice.errors import HistoryError
from spark_load.session import reason


@contextmanager
def readable(folder: Path) -> Iterator[None]:
    """Name the damaged file where a history cannot be read: its end may be whole, and what stands before it not.

    Args:
        folder: of Parquet.

    Raises:
        HistoryError: what was read in the block is damaged.
    """
    try:
        yield
    except (PySparkException, Py4JError, pa.ArrowException, OSError) as error:
        damaged = next((path for path in sorted(folder.glob("*.parquet")) if not _is_whole(path)), folder)
        raise HistoryError(
            f"{damaged} cannot be read: {reason(error)}; copy it anew, or judge the journals it was made of"
        ) from error


def _is_whole(path: Path) -> bool:
    """Return whether every page can be read; a row group at a time, because all of them may be larger than memory."""
    try:
        with pq.ParquetFile(path) as file:
            for number in range(file.num_row_groups):
                file.read_row_group(number)
    except (pa.ArrowException, OSError):
        return False
    return True
