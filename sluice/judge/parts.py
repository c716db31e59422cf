"""A history in parts, each of whole message groups: what is said of each part, and what that adds up to.

Whoever judges hands over a function of one part, the *partial*. A history in memory is one part. On Spark each bucket
is one, and the same partial runs in its tasks (`spark_load.judge.parts`).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import pyarrow as pa

from sluice.judge.reading.columns import Events
from sluice.judge.reading.parquet_files import RowSelection
from sluice.judge.tally import add_up

type Partial = Callable[[Iterable[Events]], Sequence[pa.Table]]
"""Is given the events of one part, some at a time; returns as many tables for every part, also for one without events.

It and what it is bound to are pickled, to run in tasks of Spark.
"""


class History(Protocol):
    """A history of settled events, in parts."""

    def look(self, partial: Partial, rows: RowSelection | None = None) -> list[pa.Table]:
        """Return the tables that the partial made of each part, those of all parts one below the other.

        Without `rows` the partial is given all events, hashes in place of texts that are only compared.
        """

    def tally(self, partial: Partial) -> pa.Table:
        """Return the sums of the tables of TALLY that the partial made of all events, whole groups in each part.

        Of each place at least the values that PERCENTILES and the largest are.
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
        """Return the sums of the table of `tally.TALLY` that the partial makes of the history."""
        (found,) = self.look(partial)
        return add_up(found)
