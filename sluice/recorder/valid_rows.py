"""The check of a history's rows: a row that no recorder writes is refused, with its field."""

from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from sluice.errors import HistoryError
from sluice.history.events import COLUMNS, IDX_MAX, SCHEMA_VERSION, CallOutcome, Kind

_INSTANTS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
_VALUE_CHARACTERS_MAX = 40
_REQUIRED = ("schema_version", "run", "worker", "kind", "outcome")
_OF_QUEUES = (Kind.POLL.value, Kind.RECEIVED.value)
_ENUMS = {"kind": [kind.value for kind in Kind], "outcome": [outcome.value for outcome in CallOutcome]}
_COUNTS = (0, 2**63 - 1)
_RANGE_NAMES = {_INSTANTS: "an instant of the years 1 to 9999, in microseconds", _COUNTS: "0 or more"}
_RANGES = {
    **{name: _INSTANTS for name, _ in COLUMNS if name.endswith("_at_us")},
    **{name: _COUNTS for name, _ in COLUMNS if name.endswith("_count")},
    **dict.fromkeys(("task_attempt", "batch_position", "publish_attempt"), _COUNTS),
    "idx": (-IDX_MAX, IDX_MAX),
}
_REQUESTED = ("visibility_timeout_seconds", "max_number_of_messages", "wait_time_seconds")
"""As the caller gave them: a request that was refused, or never answered, may have had any."""


@dataclass(frozen=True, slots=True)
class _BrokenField:
    """The first row in which a field is invalid, the field's name, and its allowed values."""

    row: int
    name: str
    allowed: str


def require_valid_rows(table: pa.Table, path: Path | str, first_row: int = 0) -> None:
    """Refuse a table of SCHEMA with a row that no recorder writes.

    Rows of another schema version are left alone: who reads them refuses them for that.

    Args:
        table: some rows of the file.
        path: of the file.
        first_row: how many of its rows come before these.

    Raises:
        HistoryError: with file, row (from 1) and field, what stands there, and what is allowed.
    """
    versions = table.column("schema_version")
    if any(version not in (None, SCHEMA_VERSION) for version in versions.unique().to_pylist()):
        return
    broken = list(_broken_texts(table)) or _broken_values(table)  # what is no text cannot be compared with one
    found = min(broken, key=attrgetter("row"), default=None)
    if found is not None:
        value = repr(_value_text(table.column(found.name)[found.row]))
        raise HistoryError(
            f"{path}, row {first_row + found.row + 1}: {found.name} is {value[:_VALUE_CHARACTERS_MAX]}, allowed is"
            f" {found.allowed}; copy the file again, or leave it out"
        )


def _value_text(value: pa.Scalar) -> object:
    """Return a value to be told; a text may be none."""
    if not pa.types.is_string(value.type) or not value.is_valid:
        return value.as_py()
    return value.as_buffer().to_pybytes().decode(errors="backslashreplace")


def _broken_texts(table: pa.Table) -> Iterator[_BrokenField]:
    for field in table.schema:
        if pa.types.is_string(field.type):
            column = table.column(field.name)
            try:
                column.validate(full=True)
            except pa.ArrowInvalid:
                yield _BrokenField(next(_not_utf_8(column)), field.name, "text in UTF-8")


def _not_utf_8(column: pa.ChunkedArray) -> Iterator[int]:
    for row, value in enumerate(column):
        try:
            value.as_py()
        except UnicodeDecodeError:
            yield row


def _broken_values(table: pa.Table) -> Iterator[_BrokenField]:
    for name in _REQUIRED:
        if table.column(name).null_count:
            yield from _first(table.column(name).is_null(), name, "a value")
    for name, values in _ENUMS.items():
        column = table.column(name)
        if not {None, *values}.issuperset(column.unique().to_pylist()):
            is_other = pc.invert(pc.is_in(column, pa.array([*values, None])))
            yield from _first(is_other, name, f"one of {', '.join(values)}")
    if table.column("queue").null_count:
        is_of_queue = pc.is_in(table.column("kind"), pa.array(_OF_QUEUES))
        is_nameless = pc.and_(is_of_queue, table.column("queue").is_null())
        yield from _first(is_nameless, "queue", f"a name in every {' and '.join(_OF_QUEUES)}")
    for name, (least, most) in _RANGES.items():
        column = table.column(name)
        if _is_outside(column, least, most):
            is_outside = pc.or_(pc.less(column, least), pc.greater(column, most))
            yield from _first(is_outside, name, _RANGE_NAMES.get((least, most), f"{least} to {most}"))
    for name in _REQUESTED:
        column = table.column(name)
        if _is_outside(column, *_COUNTS):
            is_negative = pc.and_(pc.equal(table.column("outcome"), CallOutcome.OK.value), pc.less(column, 0))
            yield from _first(is_negative, name, "0 or more in a call that was answered")


def _is_outside(column: pa.ChunkedArray, least: int, most: int) -> bool:
    bounds = pc.min_max(column).as_py()
    return bounds["min"] is not None and (bounds["min"] < least or bounds["max"] > most)


def _first(is_broken: pa.ChunkedArray, name: str, allowed: str) -> Iterator[_BrokenField]:
    row = pc.index(is_broken, True).as_py()
    if row >= 0:
        yield _BrokenField(row, name, allowed)
