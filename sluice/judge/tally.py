"""Counts that add up over the parts of a history: how often a value was found, and the percentiles that follow."""

from itertools import pairwise

import numpy as np
import pyarrow as pa

from sluice.judge.reading.columns import starts

TALLY = pa.schema(
    {"what": pa.string(), "name": pa.string(), "place": pa.int32(), "value": pa.int64(), "count": pa.int64()}
)
"""`count` is how often `value` was found for `what`, of a queue or code (`name`), in a bin or rank (`place`)."""
VALUE_KEYS, PLACE_KEYS = TALLY.names[:-1], TALLY.names[:-2]
"""The columns that identify a counted value, and those that identify its place."""
PERCENTILES = {"p50": 50, "p95": 95, "p99": 99}
"""The percentiles of every distribution, by name."""
_BITS = 13  # leading bits of a value that rounding keeps: 4,096 different values between n and 2n
ACCURACY = 1 << (_BITS - 1)
"""A rounded value is smaller than the original by at most 1 / ACCURACY of it."""


def tally_of(what: str, name: str, places: np.ndarray, values: np.ndarray | None = None) -> pa.Table:
    """Return how often each value was found at each place; without values, how many things were found at each place."""
    nothing = np.zeros(len(places), np.int64)
    found = (
        pa.table({"place": places.astype(np.int32), "value": nothing if values is None else values})
        .group_by(["place", "value"], use_threads=False)
        .aggregate([([], "count_all")])
    )
    count = len(found)
    columns = {"what": pa.array([what] * count), "name": pa.array([name] * count)}
    columns |= {"place": found.column("place"), "value": found.column("value"), "count": found.column("count_all")}
    return pa.table(columns, schema=TALLY) if count else TALLY.empty_table()


def total_of(what: str, name: str, count: int) -> pa.Table:
    """Return a number of things without a place and a value."""
    return pa.table([[what], [name], [0], [0], [count]], schema=TALLY)


def add_up(tally: pa.Table) -> pa.Table:
    """Return a tally in which each (name, place, value) occurs once, with the sum of its counts."""
    found = tally.group_by(VALUE_KEYS, use_threads=False).aggregate([("count", "sum")])
    return found.rename_columns([*VALUE_KEYS, "count"]).select(TALLY.names)


def shorten(of_place: pa.Table) -> pa.Table:
    """Return the tally of a name at one place, reduced to the values at percentiles and the largest.

    A value that stays also counts for the removed ones below it. A bin has some ten thousand values, and all bins
    together would be too many for the driver.
    """
    ordered = of_place.sort_by("value")
    below = np.cumsum(ordered.column("count").to_numpy())
    kept = np.unique([*np.searchsorted(below, ranks(int(below[-1]))), len(below) - 1])
    counts = pa.array(np.diff(below[kept], prepend=0), pa.int64())
    return ordered.take(pa.array(kept)).set_column(TALLY.get_field_index("count"), TALLY.field("count"), counts)


def ranks(count: int) -> list[int]:
    """Return the rank, from 1, of each of PERCENTILES among so many ordered values."""
    return [-(-percent * count // 100) for percent in PERCENTILES.values()]


def round_down(values: np.ndarray) -> np.ndarray:
    """Return the values rounded down to their first bits, so that rounding never crosses a threshold."""
    magnitude = np.abs(values)
    dropped = np.maximum(np.frexp(magnitude.astype(np.float64))[1].astype(np.int64) - _BITS, 0)
    return values >> dropped << dropped


def round_down_but_largest(places: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the values rounded, except the largest of each place."""
    largest = np.full(int(places.max(initial=-1)) + 1, np.iinfo(np.int64).min)
    np.maximum.at(largest, places, values)
    return np.where(values == largest[places], values, round_down(values))


class ObservationTally:
    """The sum of the tallies of all parts."""

    def __init__(self, tally: pa.Table) -> None:
        self._found: dict[tuple[str, str], tuple[np.ndarray, ...]] = {}
        ordered = add_up(tally).sort_by([(name, "ascending") for name in VALUE_KEYS])
        counts = ordered.group_by(["what", "name"], use_threads=False).aggregate([([], "count_all")])
        for row in counts.sort_by([("what", "ascending"), ("name", "ascending")]).to_pylist():
            here, ordered = ordered.slice(0, row["count_all"]), ordered.slice(row["count_all"])
            columns = (here.column(name).to_numpy() for name in ("place", "value", "count"))
            self._found[row["what"], row["name"]] = tuple(columns)

    def of(self, what: str, name: str) -> tuple[np.ndarray, ...]:
        """Return places, values and counts, in order."""
        return self._found.get((what, name), (np.zeros(0, np.int64),) * 3)

    def names(self, what: str) -> list[str]:
        """Return the names with observations, the most frequent first."""
        totals = {name: self.total(what, name) for of, name in self._found if of == what}
        return sorted(totals, key=lambda name: (-totals[name], name))

    def total(self, what: str, name: str = "") -> int:
        """Return the sum of a name's counts at all places."""
        return int(self.of(what, name)[2].sum())

    def counts(self, what: str, name: str, bin_count: int) -> list[int]:
        """Return the sum of a name's counts in each bin."""
        places, _, counts = self.of(what, name)
        found = np.zeros(bin_count, np.int64)
        np.add.at(found, places, counts)
        return found.tolist()

    def span(self, what: str, name: str = "") -> tuple[int | None, int | None]:
        """Return the smallest and the largest value at all places; None without values."""
        values = self.of(what, name)[1]
        return (int(values.min()), int(values.max())) if len(values) else (None, None)

    def distributions(self, what: str, name: str = "") -> dict[int, dict[str, int]]:
        """Return place to the count, percentiles and largest of the values there."""
        places, values, counts = self.of(what, name)
        found = {}
        for begin, end in pairwise([*starts(places).tolist(), len(places)]):
            below = np.cumsum(counts[begin:end])
            count = int(below[-1])
            percentiles = values[begin:end][np.searchsorted(below, ranks(count))].tolist()
            found[int(places[begin])] = {
                "count": count,
                **dict(zip(PERCENTILES, percentiles, strict=True)),
                "max": int(values[end - 1]),
            }
        return found
