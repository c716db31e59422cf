"""Histories in parts, read as Spark's tasks read them, in this process: one part after the other."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from sluice.judge.parts import Partial
from sluice.judge.reading.columns import Events
from sluice.judge.reading.parquet_files import Rows, pieces, together, write
from sluice.judge.tally import PLACE_KEYS, TALLY, add_up, shorten
from spark_load.judge import parts

_PARTS = 3


class InParts:
    """A history of which each part is read by itself."""

    def look(self, partial: Partial, rows: Rows | None = None) -> list[pa.Table]:
        found = [partial(part) for part in self._parts(rows)]
        return [pa.concat_tables(tables) for tables in zip(*found, strict=True)]

    def tally(self, partial: Partial) -> pa.Table:
        (found,) = self.look(partial)
        whole = add_up(found)
        values = ("value", "count")
        listed = whole.group_by(PLACE_KEYS, use_threads=False).aggregate([(name, "list") for name in values])
        tables = [TALLY.empty_table()]
        for row in listed.to_pylist():
            rows = len(row["value_list"])
            columns = {name: [row[name]] * rows for name in PLACE_KEYS} | {name: row[f"{name}_list"] for name in values}
            tables.append(shorten(pa.table(columns, TALLY)))
        return pa.concat_tables(tables)

    def _parts(self, rows: Rows | None) -> Iterator[Iterator[Events]]:
        raise NotImplementedError


class InBuckets(InParts):
    """A history in buckets, in files of two row groups each."""

    def __init__(self, table: pa.Table, folder: Path) -> None:
        folder.mkdir()
        write([table.slice(0, len(table) // 2), table.slice(len(table) // 2)], folder, "part", _PARTS)
        self._pieces, self._count = pieces(folder)

    def _parts(self, rows: Rows | None) -> Iterator[Iterator[Events]]:
        for bucket in range(_PARTS):
            yield parts._events_of([piece for piece in self._pieces if piece.bucket == bucket], rows, self._count)


class Exchanged(InParts):
    """A history in no buckets, whose events are handed to the parts as bytes."""

    def __init__(self, table: pa.Table) -> None:
        self._tables = [table.slice(0, len(table) // 2), table.slice(len(table) // 2)]

    def _parts(self, rows: Rows | None) -> Iterator[Iterator[Events]]:
        shares: list[list[pa.Table]] = [[] for _ in range(_PARTS)]
        for table in self._tables:
            batch = parts._batch(
                parts._shares(Events(table if rows is None else rows.taken(table)), _PARTS, is_whole=rows is not None)
            )
            for row in batch.to_pylist():
                shares[row["number"]].append(parts._table(row["block"]))
        return (together(share) for share in shares)
