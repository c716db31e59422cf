"""A history in parts, each of whole message groups.

The judge passes in a function of one part, the *partial*, and gets the results of all parts. A history in memory is one
part. In Spark each bucket is a part, and the partial runs in tasks (`spark_load.judge.parts`).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import pyarrow as pa

from sluice.judge.reading.columns import Events
from sluice.judge.reading.parquet_files import RowSelection
from sluice.judge.tally import add_up

type Partial = Callable[[Iterable[Events]], Sequence[pa.Table]]
"""A function of the events of one part, given in batches. It returns the same number of tables for every part.

It must also return them for a part without events. It is pickled for Spark's tasks, together with its bound arguments.
"""


class History(Protocol):
    """A history of settled events, in parts."""

    def look(self, partial: Partial, rows: RowSelection | None = None) -> list[pa.Table]:
        """Return the tables of the partial, each with the rows of all parts.

        Without `rows` the partial is given all events, with hashes in place of texts that are only compared.
        """

    def tally(self, partial: Partial) -> pa.Table:
        """Return the partial's tables of the schema TALLY, added up over all parts.

        For each place the result has at least the largest value and those at PERCENTILES.
        """


class InMemory:
    """A history of one part: a table with the columns of the journals."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self._events = Events(table)

    def look(self, partial: Partial, rows: RowSelection | None = None) -> list[pa.Table]:
        """Return the tables that the partial makes of the history."""
        return list(partial([self._events if rows is None else Events(rows.take(self.table))]))

    def tally(self, partial: Partial) -> pa.Table:
        """Return the partial's table of the schema TALLY, added up."""
        (found,) = self.look(partial)
        return add_up(found)
