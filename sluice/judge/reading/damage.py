"""A damaged history, as an error that names the file: what is refused before it is judged, and what is found later."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from sluice.errors import HistoryError
from sluice.judge.reading import checksums
from sluice.judge.reading.parquet_files import Piece, examined, pieces_of
from sluice.judge.reading.reasons import raised_in_task, reason

UNREADABLE = (pa.ArrowException, OSError, ValueError, LookupError, OverflowError, MemoryError, TypeError)
"""What reading a damaged file may raise: its footer says where everything is, and how much."""


@contextmanager
def readable(folder: Path, *besides: type[Exception]) -> Iterator[None]:
    """Raise HistoryError for a damaged history, and name the file: its end may be whole, and what stands before it not.

    Errors of Arrow mean damage, and those in `besides`: Spark's.
    """
    try:
        yield
    except (pa.ArrowException, OSError, *besides) as error:
        if (known := raised_in_task(error)) is not None:
            raise HistoryError(known) from error
        for path in sorted(folder.glob("*.parquet")):
            require_undamaged(path)
        raise HistoryError(f"{folder} cannot be judged: {reason(error)}") from error


def require_undamaged(path: Path) -> None:
    """Refuse a file of Parquet that is damaged. A row group at a time, because all of them may be larger than memory.

    Raises:
        HistoryError: it is damaged, or a row says what no recorder writes.
    """
    with _named(path):
        checksums.require(path)
        found = pieces_of(path)
    for piece in found:
        for _ in undamaged(piece):
            pass


def undamaged(piece: Piece) -> Iterator[pa.Table]:
    """Yield all whole events of a piece, a row group at a time.

    Raises:
        HistoryError: it is damaged, or a row says what no recorder writes.
    """
    with _named(Path(piece.path)):
        yield from examined(piece)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    try:
        yield
    except UNREADABLE as error:
        raise HistoryError(
            f"{path} cannot be read: {reason(error)}; copy it again, or judge the journals it was made of"
        ) from error
