"""A history in parts, each of whole message groups: what is said of each part, and what that adds up to.

Whoever judges hands over a function of one part, the *partial*. A history in memory is one part. On Spark each bucket
is one, and the same partial runs in its tasks (`spark_load.judge.parts`).
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from sluice.judge.reading.columns import Events
from sluice.judge.reading.parquet_files import Rows
from sluice.judge.screening.measures import PERCENTILES

type Partial = Callable[[Iterable[Events]], Sequence[pa.Table]]
"""Is given the events of one part, some at a time; returns as many tables for every part, also for one without events.

It and what it is bound to are pickled, to run in tasks of Spark.
"""
TALLY = pa.schema(
    {"what": pa.string(), "name": pa.string(), "place": pa.int32(), "value": pa.int64(), "count": pa.int64()}
)
"""Of counts that add up: how often `value` was found of something, of a queue or code, in a bin of time or rank."""
TALLIED, PLACED = TALLY.names[:-1], TALLY.names[:-2]
"""What a row counts, and where it is."""


class History(Protocol):
    """A history of settled events, in parts."""

    def look(self, partial: Partial, rows: Rows | None = None) -> list[pa.Table]:
        """Return the tables that the partial made of each part, those of all parts one below the other.

        Without `rows` the partial is given all events, hashes in place of texts that are only compared.
        """

    def tallied(self, partial: Partial) -> pa.Table:
        """Return the sums of the tables of TALLY that the partial made of all events, whole groups in each part.

        Of each place at least the values that PERCENTILES and the largest are.
        """


class InMemory:
    """A history of one part: a table with the columns of the journals."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self._events = Events(table)

    def look(self, partial: Partial, rows: Rows | None = None) -> list[pa.Table]:
        """Return the tables that the partial makes of the history."""
        return list(partial([self._events if rows is None else Events(rows.taken(self.table))]))

    def tallied(self, partial: Partial) -> pa.Table:
        """Return the sums of the table of TALLY that the partial makes of the history."""
        (tally,) = self.look(partial)
        return summed(tally)


def summed(tally: pa.Table) -> pa.Table:
    """Return a tally with each thing once."""
    found = tally.group_by(TALLIED, use_threads=False).aggregate([("count", "sum")])
    return found.rename_columns([*TALLIED, "count"]).select(TALLY.names)


def shortened(of_place: pa.Table) -> pa.Table:
    """Return the tally of a thing at one place, without values that are no percentile there, nor the largest.

    Who stays counts for those below it. A bin has some ten thousand values, and all bins would not fit into the driver.
    """
    ordered = of_place.sort_by("value")
    below = np.cumsum(ordered.column("count").to_numpy())
    ranks = [math.ceil(share * int(below[-1])) for share in PERCENTILES.values()]
    kept = np.unique([*np.searchsorted(below, ranks), len(below) - 1])
    counts = pa.array(np.diff(below[kept], prepend=0), pa.int64())
    return ordered.take(pa.array(kept)).set_column(TALLY.get_field_index("count"), TALLY.field("count"), counts)
