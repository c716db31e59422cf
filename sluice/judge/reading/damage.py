"""Turn errors of Arrow and Spark about a damaged history into a HistoryError that names the file.

The reason is one line of ours, because the texts of Spark's errors have many lines. Spark's errors are recognised by
their text, because this module must work without Spark.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from sluice.errors import HistoryError
from sluice.judge.reading import checksums
from sluice.judge.reading.parquet_files import Piece, examine, pieces_of

_CHARACTERS_MAX = 300
_OURS_CHARACTERS_MAX = 2_000
_SITUATIONS = {
    r"Python worker (exited|failed|crashed)": "a Python process of Spark was killed, or had no memory left",
    r"OutOfMemoryError": "Spark has no memory left; lower the load, or give it more (spark.driver.memory)",
    r"No space left on device": "no space is left on the disk",
    r"ExecutorLostFailure|Lost executor": "an executor of the cluster was lost",
    r"Job \d+ cancelled|SparkContext was shut down": "Spark was stopped before the end",
}
"""Expressions for a part of an error's text, each with its meaning."""
_CLASS = re.compile(r"^.*\b(?:[a-z][\w$]*\.)+[A-Z][\w$]*: (?=\S)")
_BUILTIN = re.compile(r"^[A-Z]\w*(?:Error|Exception): \S")
_UNREADABLE_FILE = re.compile(r"reading file (?:file:/*(?=/))?(\S+?)\.?(?:\s|$)")
_MARKS = re.compile(r"^: |^\[[A-Z_.0-9]+\] | ?SQLSTATE: \w+;?$")
_SPARK_TEXT = re.compile(
    r"calling \w+\.\w+|py4j|Py4J|org\.apache\.|java\.|stacktrace|Job aborted|thrown from the Python"
)


def error_in_task(error: BaseException) -> str | None:
    """Return the text of a HistoryError that was raised in a task of Spark; None for any other error."""
    found = re.search(r"HistoryError: (.+)", str(error))
    return None if found is None else found[1][:_OURS_CHARACTERS_MAX]


def reason(error: BaseException) -> str:
    """Return the reason of an error in one line: the text of our own error in a task, or else the innermost cause."""
    ours = error_in_task(error)
    if ours is not None:
        return ours
    if isinstance(error, ConnectionRefusedError) or type(error).__name__ == "Py4JNetworkError":
        return "Spark has ended"
    lines = [line for line in str(error).splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    text = "\n".join(lines)
    for pattern, meaning in _SITUATIONS.items():
        if re.search(pattern, text) and _is_spark_error(error):
            return meaning
    if _is_spark_error(error) and (unreadable := _UNREADABLE_FILE.search(text)) is not None:
        return f"{unreadable[1]} cannot be read"
    return _innermost_cause(lines, error)[:_CHARACTERS_MAX]


def _is_spark_error(error: BaseException) -> bool:
    modules = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    return not modules.isdisjoint(("pyspark", "py4j"))


def _innermost_cause(lines: list[str], error: BaseException) -> str:
    if not _is_spark_error(error):
        return " ".join(" ".join(lines).split()) or type(error).__name__
    causes = [_CLASS.sub("", line) for line in lines if _CLASS.match(line) or _BUILTIN.match(line)] or lines[:1]
    plain = [cause for cause in (_MARKS.sub("", cause).strip() for cause in causes) if not _SPARK_TEXT.search(cause)]
    return plain[-1] if plain and plain[-1] else "Spark has ended, or does not say why"


UNREADABLE = (pa.ArrowException, OSError, ValueError, LookupError, OverflowError, MemoryError, TypeError)
"""The errors that reading a damaged file may raise; a wrong footer leads to wrong offsets and sizes."""


@contextmanager
def readable(folder: Path, *besides: type[Exception]) -> Iterator[None]:
    """Raise HistoryError, with the file's name, if the block finds the history damaged.

    The footer of a file may be intact although other bytes are damaged, so damage may be found only in the block.
    Errors of Arrow mean damage, and so do the errors in `besides`, which are Spark's.
    """
    try:
        yield
    except (pa.ArrowException, OSError, *besides) as error:
        if (known := error_in_task(error)) is not None:
            raise HistoryError(known) from error
        for path in sorted(folder.glob("*.parquet")):
            require_undamaged(path)
        raise HistoryError(f"{folder} cannot be judged: {reason(error)}") from error


def require_undamaged(path: Path) -> None:
    """Refuse a damaged Parquet file. It is read a row group at a time, because all of them may be larger than memory.

    Raises:
        HistoryError: it is damaged, or a row has values that no recorder writes.
    """
    with _with_file_name(path):
        checksums.require(path)
        found = pieces_of(path)
    for piece in found:
        for _ in read_whole(piece):
            pass


def read_whole(piece: Piece) -> Iterator[pa.Table]:
    """Yield all whole events of a piece, a row group at a time.

    Raises:
        HistoryError: it is damaged, or a row has values that no recorder writes.
    """
    with _with_file_name(Path(piece.path)):
        yield from examine(piece)


@contextmanager
def _with_file_name(path: Path) -> Iterator[None]:
    try:
        yield
    except UNREADABLE as error:
        raise HistoryError(
            f"{path} cannot be read: {reason(error)}; copy it again, or judge the journals it was made of"
        ) from error
