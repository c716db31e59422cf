"""A damaged history: what Arrow, or Spark, says of it, as an error that names the file."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sluice.errors import HistoryError

_REASON_CHARACTERS_MAX = 300


def reason(error: Exception) -> str:
    """Return the line of an error that says why: of one of Spark our own, where one of ours was raised in a task."""
    lines = [line for line in str(error).splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    ours = [line for line in lines if "HistoryError: " in line]
    return (ours or lines or [type(error).__name__])[0].rpartition("HistoryError: ")[2][:_REASON_CHARACTERS_MAX]


@contextmanager
def readable(folder: Path, *besides: type[Exception]) -> Iterator[None]:
    """Raise HistoryError for a damaged history, and name the file: its end may be whole, and what stands before it not.

    Errors of Arrow mean damage, and those in `besides`: Spark's.
    """
    try:
        yield
    except (pa.ArrowException, OSError, *besides) as error:
        for path in sorted(folder.glob("*.parquet")):
            if (why := _damage(path)) is not None:
                raise HistoryError(
                    f"{path} cannot be read: {why}; copy it again, or judge the journals it was made of"
                ) from error
        raise HistoryError(f"{folder} cannot be judged: {reason(error)}") from error


def _damage(path: Path) -> str | None:
    """Return why a page cannot be read, None where all can.

    A row group at a time, because all of them may be larger than memory.
    """
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            for number in range(file.num_row_groups):
                file.read_row_group(number)
    except (pa.ArrowException, OSError) as error:
        return " ".join(str(error).split())[:_REASON_CHARACTERS_MAX]
    return None
