"""Histories as Parquet files: ours, in buckets of whole groups, and those of others."""

import json
import re
import struct
import zlib
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sluice.errors import HistoryError
from sluice.history.events import HistoryEvent
from sluice.judge.reading import checksums, parquet_files
from sluice.judge.reading.columns import HASHED, NONE, Events
from sluice.judge.reading.damage import read_whole, require_undamaged
from sluice.judge.reading.parquet_files import Piece, RowSelection, pieces, pieces_of, read, read_rows, write
from sluice.recorder.journal import SCHEMA
from tests.support.histories.builders import sane
from tests.support.histories.recordings import table_of, write_parquet

_METADATA = b"sluice.buckets"


def _groups(names: Sequence[str]) -> list[HistoryEvent]:
    return [replace(event, message_group_id=name) for name in names for event in sane()]


def _whole(path: Path) -> pa.Table:
    return pq.read_table(path).select(SCHEMA.names).cast(SCHEMA)


def _names(parts: Sequence[Events]) -> set[str]:
    decoded = [events.codes("message_group_id") for events in parts]
    return {name for codes, names in decoded for code in codes if (name := names[code]) is not None}


def test_whole_groups_are_in_one_bucket_of_every_file(tmp_path: Path) -> None:
    events = _groups([f"g{number}" for number in range(40)]) + [HistoryEvent(kind="poll", queue="billing")] * 100
    for number in range(3):
        parts = [table_of(events[number::3][:99]), table_of(events[number::3][99:])]
        write(parts, tmp_path, str(number), 4)

    found, bucket_count = pieces(tmp_path)

    assert bucket_count == 4
    names = [_names([*read(piece for piece in found if piece.bucket == bucket)]) for bucket in range(4)]
    assert sorted(name for of_bucket in names for name in of_bucket) == sorted({*(f"g{n}" for n in range(40))})
    assert all(names)
    assert sum(piece.events for piece in found) == len(events)
    groupless = [
        sum(
            int((part.hashes("message_group_id") == 0).sum())
            for part in read(piece for piece in found if piece.bucket == bucket)
        )
        for bucket in range(4)
    ]
    assert sum(groupless) == 100
    assert min(groupless) > 10
    back = [row for path in tmp_path.glob("*.parquet") for row in _whole(path).to_pylist()]
    assert sorted(map(str, back)) == sorted(str(asdict(event)) for event in events)


def test_a_bucket_has_the_names_of_its_own_groups_only(tmp_path: Path) -> None:
    """A thousand groups in ten buckets: the buckets' names are a thousand together, not a thousand each."""
    write([table_of([HistoryEvent(kind="poll", message_group_id=f"g{n}") for n in range(1000)])], tmp_path, "e", 10)

    counts = [len(part.codes("message_group_id")[1][:-1]) for piece in pieces(tmp_path)[0] for part in read([piece])]

    assert sum(counts) == 1000


def test_an_empty_column_is_read_like_any_other(tmp_path: Path) -> None:
    write([table_of([HistoryEvent(kind="poll", queue="billing"), HistoryEvent(kind="poll", idx=7)])], tmp_path, "e", 1)

    (events,) = read(pieces(tmp_path)[0])

    assert len(events) == 2
    assert events.numbers("idx").tolist() == [NONE, 7]
    assert events.numbers("receive_count").tolist() == [NONE, NONE]
    assert events.hashes("sqs_message_id").tolist() == events.hashes("call_id").tolist() == [0, 0]
    assert events.decode("error", str, object).tolist() == ["None", "None"]
    assert events.codes("queue")[1][events.codes("queue")[0][0]] == "billing"


def test_hashes_read_from_our_files_equal_hashes_of_others_texts(tmp_path: Path) -> None:
    """A sequence number that is malformed has a hash, and no number."""
    events = [*sane(), replace(sane()[0], sns_sequence_number="7", deduplication_id=None)]
    write([table_of(events)], tmp_path, "e", 1)
    (ours,) = tmp_path.glob("*.parquet")
    (tmp_path / "other").mkdir()
    pq.write_table(_whole(ours), tmp_path / "other" / "e.parquet")

    (stored,), (made,) = ([*read(pieces(folder)[0])] for folder in (tmp_path, tmp_path / "other"))
    texts = Events(_whole(ours))

    names = "sns_sequence_number", "sqs_sequence_number"
    for name in HASHED:
        if name not in names:
            assert stored.hashes(name).tolist() == made.hashes(name).tolist() == texts.hashes(name).tolist()
        assert stored.is_known(name).tolist() == made.is_known(name).tolist() == texts.is_known(name).tolist()
    found = [[column.tolist() for column in each.sequence_numbers(*names)] for each in (stored, made, texts)]
    assert found[0] == found[1] == found[2]
    assert found[0][0][-1] == NONE
    assert found[0][1][-1] != 0


def test_hashes_that_are_not_those_of_the_texts_are_refused(tmp_path: Path) -> None:
    """Somebody changed the texts, and left our hashes of them."""
    write([table_of(sane())], tmp_path, "e", 1)
    (path,) = tmp_path.glob("*.parquet")
    require_undamaged(path)
    table, metadata = pq.read_table(path), pq.read_metadata(path).metadata
    place = table.schema.get_field_index("body_hash")
    with pq.ParquetWriter(path, table.schema.remove_metadata(), store_schema=False) as writer:
        writer.add_key_value_metadata({_METADATA: metadata[_METADATA]})
        writer.write_table(table.set_column(place, "body_hash", pa.array(["other"] * len(table))))
    checksums.write(path)

    with pytest.raises(HistoryError, match="hashes that are not those of its texts"):
        require_undamaged(path)


def test_a_large_row_group_is_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_READ_EVENTS", "_READ_EVENTS_MIN"):
        monkeypatch.setattr(parquet_files, name, 4_000)
    count = 4_500
    events = [HistoryEvent(kind="poll", idx=number, message_group_id=f"g{number % 1_000}") for number in range(count)]
    pq.write_table(table_of(events), tmp_path / "e.parquet")

    parts = list(read(pieces(tmp_path)[0]))

    assert max(map(len, parts)) <= 4_000
    assert np.array_equal(np.concatenate([part.numbers("idx") for part in parts]), np.arange(count))
    found = [[texts[code] for code in codes[:3]] for codes, texts in (part.codes("message_group_id") for part in parts)]
    assert found[:2] == [["g0", "g1", "g2"]] * 2


def test_small_row_groups_are_read_together(tmp_path: Path) -> None:
    events = [
        replace(event, message_group_id=f"g{number}", detail=f"{number % 7}", queue=None if number % 3 else "billing")
        for number in range(30)
        for event in sane()
    ]
    for number in range(3):
        pq.write_table(table_of(events[number::3][::-1]), tmp_path / f"{number}.parquet", row_group_size=7)

    found, _ = pieces(tmp_path)
    (together,) = read(found)

    assert [piece.row_group_count for piece in found] == [-(-piece.events // 7) for piece in found]
    fields = {name: together.codes(name) for name in ("message_group_id", "kind", "queue", "detail")}
    rows = [tuple(texts[codes[index]] for codes, texts in fields.values()) for index in range(len(together))]
    expected = [event for number in range(3) for event in events[number::3][::-1]]
    assert rows == [(event.message_group_id, event.kind, event.queue, event.detail) for event in expected]


def test_row_groups_are_joined_up_to_the_size_of_a_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_files, "_READ_EVENTS", 10)
    with pq.ParquetWriter(tmp_path / "e.parquet", SCHEMA) as writer:
        for size in (4, 6, 1, 25, 3):
            writer.write_table(table_of([HistoryEvent(kind="poll")] * size))

    found, _ = pieces(tmp_path)

    assert [(piece.row_group, piece.row_group_count, piece.events) for piece in found] == [
        (0, 2, 10),
        (2, 1, 1),
        (3, 1, 25),
        (4, 1, 3),
    ]


@pytest.mark.parametrize("gone", range(3))
def test_a_history_without_one_of_its_buckets_is_refused(gone: int, tmp_path: Path) -> None:
    """Its groups would be missing without a notice."""
    for name in ("a", "b"):
        write([table_of(_groups(["a", "b", "c", "d"]))], tmp_path, name, 3)
    (tmp_path / f"b-00{gone}.parquet").unlink()

    left = [bucket for bucket in range(3) if bucket != gone]
    with pytest.raises(HistoryError, match=re.escape(f"of b there are buckets {left}, allowed is each of 0 to 2 once")):
        pieces(tmp_path)


@pytest.mark.parametrize(
    "result",
    [
        None,
        "",
        "{",
        "[]",
        "null",
        "by Arrow",
        {"name": 1},
        {"bucket": 2},
        {"bucket": -1},
        {"bucket": "1"},
        {"bucket": 0.5},
        {"bucket": None},
        {"count": 0},
        {"count": 10**6},
        {"count": "2"},
        {"count": 2.5},
        "[" * 100_000,
        {"hashed": 5},
    ],
)
def test_files_that_are_not_our_buckets_are_read_whole(result: object, tmp_path: Path) -> None:
    """Files of others, files with another hash function, damaged files, and one such file among several of ours."""
    write([table_of(_groups(["a", "b", "c", "d"]))], tmp_path, "ours", 2)
    path = tmp_path / "ours-001.parquet"
    ours = json.loads(pq.read_metadata(path).metadata[_METADATA])
    assert pieces(tmp_path)[1] == 2
    assert ours["count"] == 2
    assert ours["bucket"] == 1
    table = pq.read_table(path).replace_schema_metadata(None)
    text = (
        json.dumps(ours | result) if isinstance(result, dict) else json.dumps(ours) if result == "by Arrow" else result
    )
    alone = tmp_path / "alone"
    alone.mkdir()
    with pq.ParquetWriter(alone / "theirs.parquet", table.schema, store_schema=result == "by Arrow") as writer:
        writer.write_table(table, row_group_size=-(-len(table) // 2))
        writer.add_key_value_metadata({} if text is None else {_METADATA: text})

    assert pieces(alone) == ([Piece(str(alone / "theirs.parquet"), 0, 2, len(table), 0)], None)

    (alone / "theirs.parquet").rename(tmp_path / "theirs.parquet")
    alone.rmdir()
    found, bucket_count = pieces(tmp_path)

    assert bucket_count is None
    assert [piece for piece in found if "theirs" in piece.path] == [
        Piece(str(tmp_path / "theirs.parquet"), 0, 2, len(table), 0)
    ]
    assert sum(map(len, read(found))) == sum(len(pq.read_table(path)) for path in tmp_path.glob("*.parquet"))


def test_files_with_different_bucket_counts_are_in_no_bucket(tmp_path: Path) -> None:
    """Two files with different numbers of buckets: together, a group would be in two."""
    for count in (2, 3):
        write([table_of(_groups(["a", "b", "c", "d"]))], tmp_path, str(count), count)

    assert pieces(tmp_path)[1] is None


def test_a_flipped_bit_in_any_of_our_columns_is_refused(tmp_path: Path) -> None:
    """A bit is flipped in each of our columns: the file is still valid Parquet, and refused."""
    write([table_of(_groups([f"g{number}" for number in range(20)]))], tmp_path, "e", 1)
    (path,) = tmp_path.glob("*.parquet")
    whole, group = path.read_bytes(), pq.read_metadata(path).row_group(0)
    names = [
        column
        for column in map(group.column, range(group.num_columns))
        if column.path_in_schema in parquet_files._READ_SCHEMA.names
        and column.statistics.null_count < column.num_values
    ]
    assert len(names) > 15

    for column in names:
        begin = column.data_page_offset if column.dictionary_page_offset is None else column.dictionary_page_offset
        end = begin + column.total_compressed_size
        for index in (column.data_page_offset + 1, end - 1):  # its page's type, and a value
            torn = bytearray(whole)
            torn[index] ^= 1
            path.write_bytes(torn)
            (found,), _ = pieces(tmp_path)
            with pytest.raises((OSError, pa.ArrowException)):
                list(read([found]))
            if column.path_in_schema == "message_group_id":
                with pytest.raises((OSError, pa.ArrowException)):
                    read_rows(found, RowSelection("message_group_id", ["g1"]))


def test_the_checksums_beside_a_file_are_those_of_hadoop(tmp_path: Path) -> None:
    """Spark checks them, too, and we check those that Spark wrote."""
    path = tmp_path / "e.parquet"
    path.write_bytes(bytes(range(256)) * 300)

    checksums.write(path)

    sums = [zlib.crc32(path.read_bytes()[begin : begin + 65_536]) for begin in (0, 65_536)]
    assert (tmp_path / ".e.parquet.crc").read_bytes() == struct.pack(">4sI2I", b"crc\0", 65_536, *sums)
    by_512 = [zlib.crc32(path.read_bytes()[begin : begin + 512]) for begin in range(0, 76_800, 512)]
    checksums.beside(path).write_bytes(struct.pack(">4sI150I", b"crc\0", 512, *by_512))
    checksums.require(path)


def test_no_flipped_bit_of_a_history_of_ours_is_read(tmp_path: Path) -> None:
    """Also in the footer, in the heads of pages, and in the file of checksums itself."""
    write([table_of(_groups(["a", "b"]))], tmp_path, "e", 1)
    (path,) = tmp_path.glob("*.parquet")
    checksums.require(path)

    of_sums = checksums.beside(path)
    size = path.stat().st_size
    for file, indexes in ((path, {*range(0, size, 31), *range(size - 8, size)}), (of_sums, {0, 1, 2, 3, 8, 9, 10, 11})):
        whole = file.read_bytes()
        for index in indexes:
            damaged = bytearray(whole)
            damaged[index] ^= 1 << (index % 8)
            file.write_bytes(damaged)
            with pytest.raises(
                HistoryError, match=r"e-000\.parquet is damaged: it does not have the checksums in \.e-"
            ):
                checksums.require(path)
        file.write_bytes(whole)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(HistoryError, match=r"e-000\.parquet is damaged"):
        checksums.require(path)


def test_a_flipped_bit_of_others_files_causes_no_traceback_or_false_row(tmp_path: Path) -> None:
    """A footer of others has no checksum: the file is refused by name, or read as it was."""
    path = write_parquet(tmp_path, sane(), write_page_checksum=True) / "events.parquet"
    whole, rng = path.read_bytes(), np.random.default_rng(17)
    rows = pq.read_table(path).to_pylist()
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")

    refused = 0
    for number in range(150):
        index = int(rng.integers(footer if number % 2 else 0, len(whole)))
        damaged = bytearray(whole)
        damaged[index] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        try:
            require_undamaged(path)
            read = [row for piece in pieces_of(path) for table in read_whole(piece) for row in table.to_pylist()]
        except HistoryError as error:
            refused += str(path) in str(error)
        else:
            assert read == rows, index

    assert refused > 40


def test_a_damaged_row_is_named_by_its_place_in_the_file(tmp_path: Path) -> None:
    events = [HistoryEvent(kind="probe", run="r", worker="w")] * 10
    path = write_parquet(tmp_path, [*events, replace(events[0], visible_count=-5)], row_group_size=3) / "events.parquet"

    with pytest.raises(
        HistoryError, match=rf"^{re.escape(str(path))}, row 11: visible_count is -5, allowed is 0 or more"
    ):
        require_undamaged(path)
