"""The journal: columns of events are written as single events are, and a call's intent and answer become one event."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.clock import VirtualClock
from sluice.errors import HistoryError
from sluice.history.events import COLUMNS, HistoryEvent, settle
from sluice.recorder.frames import MAGIC, make_frame, messages
from sluice.recorder.journal import SCHEMA, Journal, events_of, read_journal, read_parts, settle_table
from tests.support.full_disk import files_limited_to

COMMON = {"run": "r", "host": "h", "clock_id": "c", "worker": "publish-0", "task_attempt": 0}


def _table(events: list[HistoryEvent]) -> pa.Table:
    return pa.Table.from_pydict(
        {name: [getattr(event, name) for event in events] for name, _ in COLUMNS}, schema=SCHEMA
    )


def test_events_added_in_columns_are_read_as_those_added_singly(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"kind": "published", "idx": 1, "queue": "t", "outcome": "info", "body_hash": None, "invoked_at_us": 5},
        {"kind": "published", "idx": 2, "queue": "t", "outcome": "info", "body_hash": "abc", "invoked_at_us": 6},
        {"kind": "published", "idx": 3, "queue": "u", "outcome": "ok", "body_hash": None, "invoked_at_us": 7},
    ]
    with Journal(tmp_path, "one-by-one", common=COMMON, clock=VirtualClock(9)) as journal:
        journal.add(kind="probe", visible_count=4)
        for row in rows:
            journal.add(**row)

    with Journal(tmp_path, "in-columns", common=COMMON, clock=VirtualClock(9)) as journal:
        journal.add(kind="probe", visible_count=4)
        shared = {"kind": "published", "queue": "t", "outcome": "info"}
        journal.add_columns(2, shared | {"idx": [1, 2], "body_hash": [None, "abc"], "invoked_at_us": [5, 6]})
        journal.add_columns(1, {"kind": "published", "queue": "u", "idx": [3], "invoked_at_us": 7})

    one_by_one, in_columns = (read_journal(tmp_path / f"{name}.arrows") for name in ("one-by-one", "in-columns"))
    assert in_columns.to_pylist() == one_by_one.to_pylist()
    assert in_columns.column("kind").to_pylist() == ["opened", "probe", *["published"] * 3, "closed"]


def test_columns_are_in_the_file_before_a_flush(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "j", common=COMMON)
    journal.add(kind="probe", visible_count=4)

    journal.add_columns(2, {"kind": "published", "idx": [1, 2]})

    assert read_journal(journal.path).column("idx").to_pylist() == [None, None, 1, 2]


def test_an_unknown_column_is_refused(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "j", common=COMMON)

    with pytest.raises(TypeError, match="an event has no field 'idy'"):
        journal.add_columns(1, {"kind": "published", "idy": [1]})

    assert len(read_journal(journal.path)) == 1


def test_a_journal_of_another_version_is_refused(tmp_path: Path) -> None:
    with Journal(tmp_path, "newer", common={**COMMON, "schema_version": 2}) as newer:
        newer.add(kind="probe", visible_count=4)
    with pa.OSFile(str(tmp_path / "older.arrows"), "wb") as file, pa.ipc.new_stream(file, SCHEMA):
        pass
    frame, _ = make_frame(memoryview(pa.schema([]).serialize()), 0)
    (tmp_path / "other.arrows").write_bytes(MAGIC + frame)

    with pytest.raises(HistoryError, match=r"newer\.arrows is of version 2, allowed is 1; judge it with the version"):
        read_journal(newer.path)
    with pytest.raises(HistoryError, match=r"older\.arrows is a journal without checksums, of an earlier version of S"):
        read_journal(tmp_path / "older.arrows")
    with pytest.raises(HistoryError, match=r"other\.arrows has other columns than this version of Sluice writes"):
        read_journal(tmp_path / "other.arrows")


def test_a_journal_torn_anywhere_is_read_up_to_the_tear(tmp_path: Path) -> None:
    with Journal(tmp_path, "j", common=COMMON) as journal:
        for count in range(3):
            journal.add(kind="probe", visible_count=count)
            journal.flush()
    written, torn = journal.path.read_bytes(), tmp_path / "torn.arrows"

    read = []
    for size in (*range(0, len(written), 211), len(written)):
        torn.write_bytes(written[:size])
        read.append(read_journal(torn).column("kind").to_pylist())

    whole = ["opened", "probe", "probe", "probe", "closed"]
    assert all(kinds == whole[: len(kinds)] for kinds in read)
    assert [len(kinds) for kinds in read] == sorted(len(kinds) for kinds in read)
    assert {len(kinds) for kinds in read} == {0, 1, 2, 3, 4, 5}


def test_zeros_at_the_end_are_the_remains_of_a_power_loss(tmp_path: Path) -> None:
    """A power loss leaves zeros from the beginning of a frame, or of a page within one, to the end of the file.

    The journal is read up to the zeros, and as one without its end.
    """
    with Journal(tmp_path, "j", common=COMMON) as journal:
        for count in range(3):
            journal.add_columns(900, {"kind": "probe", "visible_count": count})
    written, torn = journal.path.read_bytes(), tmp_path / "torn.arrows"
    frames = [len(MAGIC)]
    for message in messages(journal.path):
        frames.append(frames[-1] + 12 + len(message))
    whole, pages = read_journal(journal.path), range(0, len(written), 5 * 4096)
    assert len(pages) > 20

    for size in (*frames[:-1], *pages):
        torn.write_bytes(written[:size].ljust(len(written) + 5_000, b"\0"))
        whole_frames = max(0, sum(end <= size for end in frames) - 1)
        rows_min = [0, 0, 1, 901, 1801, 2701][whole_frames]  # the schema, `opened`, three times 900 rows
        read = read_journal(torn)
        assert len(read) >= rows_min  # more, if the lost bytes were zeros anyway
        assert read.equals(whole.slice(0, len(read)))
        assert "closed" not in read.column("kind").to_pylist()


def test_zeros_that_no_power_loss_leaves_are_damage(tmp_path: Path) -> None:
    """The first zeros begin in the middle of a page, the second have other bytes behind them."""
    path = _small(tmp_path)
    written = path.read_bytes()

    for damaged in (written[:-600] + bytes(600), written[:100] + bytes(4) + written[104:]):
        path.write_bytes(damaged)
        with pytest.raises(HistoryError, match="is damaged"):
            read_journal(path)


def _small(folder: Path) -> Path:
    """Return a journal of five events in frames of their own."""
    with Journal(folder, "j", common=COMMON) as journal:
        for count in range(3):
            journal.add(kind="probe", queue="billing", visible_count=count)
            journal.flush()
    return journal.path


def test_no_flipped_bit_is_read(tmp_path: Path) -> None:
    """Every bit of the first frame's head is flipped, then a bit of every 61st byte.

    Each time the journal is refused.
    """
    path = _small(tmp_path)
    written, head = path.read_bytes(), len(MAGIC) + 12
    flips = [(index, bit) for index in range(head) for bit in range(8)]
    flips += [(index, index % 8) for index in range(head, len(written), 61)]
    assert len(read_journal(path)) == 5
    assert len(flips) > 300

    for index, bit in flips:
        damaged = bytearray(written)
        damaged[index] ^= 1 << bit
        path.write_bytes(damaged)
        with pytest.raises(HistoryError, match=rf"^{re.escape(str(path))} is "):
            read_journal(path)


def test_a_frame_that_is_missing_or_doubled_or_elsewhere_is_refused(tmp_path: Path) -> None:
    """Each frame is intact, but not in its place; checksums depend on the frames before."""
    path = _small(tmp_path)
    payloads = list(messages(path))
    frames, checksum = [], 0
    for message in payloads:
        frame, checksum = make_frame(message, checksum)
        frames.append(frame)
    assert path.read_bytes() == MAGIC + b"".join(frames)

    schema, opened, first, second, *rest = frames
    for wrong_order in (
        [schema, opened, second, *rest],
        [schema, opened, first, first, second, *rest],
        [schema, opened, second, first, *rest],
        [opened, first, second, *rest],
    ):
        path.write_bytes(MAGIC + b"".join(wrong_order))
        with pytest.raises(
            HistoryError, match=r"j\.arrows is damaged: what stands at byte \d+ does not have its check"
        ):
            read_journal(path)


def test_a_failed_write_leaves_no_part_of_its_frame(tmp_path: Path) -> None:
    """After the disk was full, later rows are written behind the last whole frame."""
    journal = Journal(tmp_path, "j", common=COMMON)
    journal.add(kind="probe", visible_count=1)
    journal.flush()
    with files_limited_to(journal.path.stat().st_size + 100):
        journal.add(kind="probe", visible_count=2)
        with pytest.raises(HistoryError, match="File too large"):
            journal.flush()

    journal.add(kind="probe", visible_count=3)
    journal.close()

    assert read_journal(journal.path).column("visible_count").to_pylist() == [None, 1, 3, None]


def test_a_journal_that_is_damaged_within_is_refused_by_name(tmp_path: Path) -> None:
    """The frame is whole, but the offsets of its texts run backwards, which would crash the process that reads them."""
    with Journal(tmp_path, "j", common=COMMON) as journal:
        backwards = pa.py_buffer(np.array([0, 9, 3, 9], dtype=np.int32))
        texts = pa.StringArray.from_buffers(3, backwards, pa.py_buffer(b"published"))
        journal.add_columns(3, {"kind": "published", "call_id": texts})

    (tmp_path / "stranger.arrows").write_bytes(b"not arrow at all")

    for path in (journal.path, tmp_path / "stranger.arrows"):
        with pytest.raises(HistoryError, match=rf"{path.name} is not a journal of Sluice"):
            read_journal(path)


def test_a_journal_larger_than_memory_is_read_in_parts(tmp_path: Path) -> None:
    """A call's intent waits for its answer in a later part; an intent without an answer stays.

    All parts together have the events of the whole journal.
    """
    with Journal(tmp_path, "j", common=COMMON) as journal:
        for number in range(30):
            journal.add(kind="published", call_id=f"c{number}", invoked_at_us=number)
            if number >= 10 and number != 12:  # answers come ten calls behind
                journal.add(kind="published", call_id=f"c{number - 10}", invoked_at_us=number, responded_at_us=number)
            journal.flush()

    parts = list(read_parts(journal.path, events_max=7))
    whole = read_journal(journal.path).to_pylist()

    together = [row for part in parts for row in part.to_pylist()]
    assert len(parts) > 4
    assert sorted(map(str, together)) == sorted(map(str, whole))
    assert len(whole) == 32
    assert {row["call_id"] for row in whole if row["call_id"] and row["responded_at_us"] is None} == {
        "c2",
        *(f"c{number}" for number in range(20, 30)),
    }


_EVENTS = st.builds(
    HistoryEvent,
    kind=st.sampled_from(["published", "deleted"]),
    call_id=st.sampled_from([None, "a", "b"]),
    batch_position=st.sampled_from([None, 0, 1]),
    responded_at_us=st.sampled_from([None, 5]),
    error=st.sampled_from([None, "Oops"]),
)


@settings(deadline=None)
@given(st.lists(_EVENTS, max_size=12))
def test_a_table_is_settled_as_a_list_of_events_is(events: list[HistoryEvent]) -> None:
    assert settle_table(_table(events)).to_pylist() == _table(settle(events)).to_pylist()


def test_rows_of_a_table_become_equal_events() -> None:
    events = [
        HistoryEvent(kind="received", queue=queue, idx=idx, md5_ok=is_ok, receipt_handle_hash=handle, receive_count=1)
        for queue, idx, is_ok, handle in (
            ("billing", 2**40, True, None),
            ("billing", None, False, "h" * 40),
            ("audit", -1, None, "é"),
        )
    ]
    table = _table(events)
    with_dictionary = table.set_column(
        table.column_names.index("queue"), "queue", table.column("queue").combine_chunks().dictionary_encode()
    )

    read = events_of(pa.concat_tables([table, table]))

    assert read == [*events, *events]
    assert {type(event.idx) for event in read} == {int, type(None)}
    assert read[0].queue is read[4].queue
    assert events_of(with_dictionary) == events
    assert events_of(table.slice(1, 1)) == [events[1]]
    assert events_of(SCHEMA.empty_table()) == []


def test_the_refusal_of_an_unwritable_folder_names_no_option(tmp_path: Path) -> None:
    """The option that names the folder differs: --runs-dir of a load test, --record of a relay and a worker."""
    (tmp_path / "occupied").touch()

    with pytest.raises(
        HistoryError, match=r"cannot write the history to .*/occupied \(.*\); name a folder that can be written$"
    ):
        Journal(tmp_path / "occupied", "j", common={})
