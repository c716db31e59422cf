"""A row that no recorder writes is refused, with its file, row and field."""

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluice.errors import HistoryError
from sluice.history.events import SCHEMA_VERSION, HistoryEvent
from sluice.recorder.journal import SCHEMA, Journal, read_journal, read_parts
from sluice.recorder.valid_rows import require_valid_rows

_SANE = HistoryEvent(run="r", worker="w", kind="received", queue="billing", idx=1, invoked_at_us=5, responded_at_us=6)
_KINDS = (
    "opened, closed, published, poll, received, deleted, visibility_changed, redriven, purged, probe, fault, topology,"
    " phase, outboxed, handled, parked"
)
_INSTANT = "an instant of the years 1 to 9999, in microseconds"


def _table(*rows: dict[str, Any]) -> pa.Table:
    """Return a table of valid rows, each changed in these fields."""
    return pa.Table.from_pylist([asdict(_SANE) | row for row in rows], schema=SCHEMA)


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("schema_version", None, "a value"),
        ("run", None, "a value"),
        ("worker", None, "a value"),
        ("kind", None, "a value"),
        ("kind", "recieved", f"one of {_KINDS}"),
        ("kind", "", f"one of {_KINDS}"),
        ("outcome", None, "a value"),
        ("outcome", "maybe", "one of ok, fail, info"),
        ("queue", None, "a name in every poll and received"),
        ("invoked_at_us", 2**63 - 1, _INSTANT),
        ("invoked_at_us", -(2**63), _INSTANT),
        ("responded_at_us", 2**63 - 1, _INSTANT),
        ("responded_at_us", -(2**63), _INSTANT),
        ("intended_at_us", 253_402_300_800_000_000, _INSTANT),
        ("sent_at_us", 2**62, _INSTANT),
        ("first_received_at_us", -(2**62), _INSTANT),
        ("receive_count", -1, "0 or more"),
        ("batch_position", -1, "0 or more"),
        ("task_attempt", -(2**31), "0 or more"),
        ("publish_attempt", -3, "0 or more"),
        ("visible_count", -1, "0 or more"),
        ("in_flight_count", -1, "0 or more"),
        ("delayed_count", -1, "0 or more"),
        ("moved_count", -(2**63), "0 or more"),
        ("idx", 10**18, "-999999999999999999 to 999999999999999999"),
        ("idx", -(2**63), "-999999999999999999 to 999999999999999999"),
        ("visibility_timeout_seconds", -1, "0 or more in a call that was answered"),
        ("max_number_of_messages", -1, "0 or more in a call that was answered"),
        ("wait_time_seconds", -1, "0 or more in a call that was answered"),
    ],
)
def test_an_impossible_value_is_refused_with_its_row_and_field(field: str, value: object, allowed: str) -> None:
    table = _table({}, {}, {field: value}, {field: value})

    with pytest.raises(HistoryError) as refused:
        require_valid_rows(table, "e.parquet", first_row=10)

    assert str(refused.value) == (
        f"e.parquet, row 13: {field} is {value!r}, allowed is {allowed}; copy the file again, or leave it out"
    )


def test_of_several_impossible_rows_the_first_is_named() -> None:
    with pytest.raises(HistoryError, match=r"^e, row 2: idx is 1000000000000000000, allowed is "):
        require_valid_rows(_table({}, {"idx": 10**18}, {"run": None}), "e")


@pytest.mark.parametrize("field", ["detail", "kind"])
def test_an_invalid_text_is_refused(field: str) -> None:
    table = _table({field: "a"}, {field: "b"})
    texts = pa.StringArray.from_buffers(2, *pa.array([b"a", b"\xff\x00"]).buffers()[1:])
    table = table.set_column(table.column_names.index(field), field, texts)

    with pytest.raises(HistoryError, match=rf"^e, row 2: {field} is '\\\\xff\\x00', allowed is text in UTF-8; "):
        require_valid_rows(table, "e")


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"kind": "poll", "outcome": "fail", "visibility_timeout_seconds": -1, "max_number_of_messages": -7},
        {"kind": "poll", "outcome": "info", "wait_time_seconds": -1},
        {"kind": "fault", "queue": None},
        {"kind": "published", "idx": -(10**18) + 1, "visibility_timeout_seconds": 99_999},
        {"invoked_at_us": -1, "responded_at_us": 253_402_300_799_999_999, "receive_count": 2**31 - 1},
        {"idx": None, "invoked_at_us": None, "responded_at_us": None, "run": "", "worker": ""},
    ],
)
def test_every_row_of_a_recorder_is_valid(row: dict[str, Any]) -> None:
    """A call that was refused, or never answered, may have had any parameters."""
    require_valid_rows(_table(row), "e")


def test_rows_of_a_later_version_are_not_checked() -> None:
    """Their reader refuses the version."""
    require_valid_rows(_table({"schema_version": SCHEMA_VERSION + 1, "kind": "later"}), "e")


def test_a_row_of_a_journal_is_named_by_its_place(tmp_path: Path) -> None:
    """Settling makes one row of an intent and its answer; the place is that before settling."""
    with Journal(tmp_path, "j", common={"run": "r", "worker": "w"}) as journal:
        for number in range(30):
            for responded_at_us in (None, number):
                journal.add(
                    kind="published", call_id=f"c{number}", invoked_at_us=number, responded_at_us=responded_at_us
                )
            journal.flush()
        journal.add(kind="published", outcome="perhaps")

    message = rf"^{re.escape(str(journal.path))}, row 62: outcome is 'perhaps', allowed is one of ok, fail, info; "
    with pytest.raises(HistoryError, match=message):
        list(read_parts(journal.path, events_max=7))
    with pytest.raises(HistoryError, match=message):
        read_journal(journal.path)
