"""Schedule a publisher's messages, group by group: a group's next message waits for the answer to the one before.

Pure bookkeeping, without clock and calls. Messages are rows of a table, numbered in the order of the plan. Whole
columns are processed, of the messages that are due or answered: only a failed message is handled alone in Python.
"""

import heapq
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_ROWS = 2**15
_COLUMNS = {
    "planned_idx": np.int64,
    "idx": np.int64,
    "publish_attempt": np.int32,
    "group_number": np.int32,
    "intended_at_us": np.int64,
    "following": np.int64,
    "is_open": np.bool_,
}
"""The columns of a message: those of `GroupScheduler.add`; `following` is the row of the group's next message, or 0;
`is_open` says that the message waits, rests or is in flight."""


class _Rows:
    """The open messages, in columns of `_COLUMNS`.

    The columns are ring buffers. They double if a message stays open while as many others come and go.
    """

    def __init__(self) -> None:
        self._columns: dict[str, Any] = {name: np.zeros(_ROWS, dtype) for name, dtype in _COLUMNS.items()}
        self._size, self._oldest, self._next = _ROWS, 1, 1

    def get(self, name: str, rows: Any) -> Any:
        """Return the values of a column."""
        return self._columns[name][rows & (self._size - 1)]

    def put(self, name: str, rows: Any, values: Any) -> None:
        """Change values of a column."""
        self._columns[name][rows & (self._size - 1)] = values

    def append(self, columns: Mapping[str, Any]) -> Any:
        """Add further messages, and return their rows."""
        count = len(columns["idx"])
        if self._next + count - self._oldest > self._size:
            self._make_room(count)
        rows = np.arange(self._next, self._next + count)
        self._next += count
        for name, values in {**columns, "following": 0, "is_open": True}.items():
            self.put(name, rows, values)
        return rows

    def _make_room(self, count: int) -> None:
        """Forget the closed rows before the oldest open one; if it is too full then, double the ring's size.

        It is at most half full afterwards, so that it seldom has to be doubled.
        """
        kept = np.arange(self._oldest, self._next)
        kept = kept[np.maximum.accumulate(self.get("is_open", kept))]  # from the first open row on
        self._oldest = self._next - len(kept)
        size = self._size
        while 2 * (len(kept) + count) > size:
            size *= 2
        if size > self._size:
            found = {name: self.get(name, kept) for name in _COLUMNS}
            self._columns, self._size = {name: np.zeros(size, dtype) for name, dtype in _COLUMNS.items()}, size
            for name, values in found.items():
                self.put(name, kept, values)


class GroupScheduler:
    """The messages that are due; those of group g go to address g modulo their number.

    A call never holds two messages of one group; but a message may be a bundle of several, up to `bundle_max`. A bundle
    that failed is taken again as it was. So is one that an earlier process sent: `sent_before` has how many messages it
    has, by group and idx of its first.
    """

    def __init__(
        self,
        *,
        group_count: int,
        address_count: int,
        bundle_max: int = 1,
        sent_before: Mapping[tuple[int, int], int] | None = None,
    ) -> None:
        self._address_count, self._bundle_max = address_count, bundle_max
        self._sent_before = dict(sent_before or {})
        self._partial: list[int] = []  # the first rows of such bundles, of which messages are not due yet
        self._bundles: dict[int, list[int]] = {}  # the rows of each bundle that was taken, by its first row
        self._rows = _Rows()
        self._last = np.zeros(group_count, np.int64)  # the last row of each group that is open; 0 for none
        self._is_abandoned = np.zeros(group_count, np.bool_)
        self._ready: list[list[int]] = [
            [] for _ in range(address_count)
        ]  # the first row of each ready group, by address
        self._is_sorted = [True] * address_count
        self._resting: list[tuple[float, int]] = []  # heap: until when, first row
        self._open_count = 0
        self.waiting_count = 0

    def add(self, due: Mapping[str, Any]) -> int:
        """Put messages behind those of their groups; return how many were refused, because their group was abandoned.

        Args:
            due: columns, numpy arrays: planned_idx, idx, publish_attempt, group_number, intended_at_us.
        """
        is_refused = self._is_abandoned[due["group_number"]]
        if is_refused.any():
            due = {name: column[~is_refused] for name, column in due.items()}
        if len(due["group_number"]):
            self._append(due)
        return int(is_refused.sum())

    def _append(self, due: Mapping[str, Any]) -> None:
        rows = self._rows.append(due)
        self._open_count += len(rows)
        self.waiting_count += len(rows)
        order = np.argsort(due["group_number"], kind="stable")
        rows, groups = rows[order], due["group_number"][order]
        is_first = np.concatenate(([True], groups[1:] != groups[:-1]))
        before = np.concatenate(([0], rows[:-1]))
        before[is_first] = self._last[groups[is_first]]
        self._last[groups] = rows  # for a group with several rows, numpy keeps the last
        is_behind = before > 0
        self._rows.put("following", before[is_behind], rows[is_behind])
        self._make_ready(rows[~is_behind])

    def _make_ready(self, rows: Any) -> None:
        """Let the first messages of groups go, sorted among those that already may.

        The earliest intended time comes first.
        """
        if self._sent_before:
            rows = self._without_partial(rows)
        if self._address_count == 1:
            self._ready[0] += rows.tolist()
            self._is_sorted[0] = False
            return
        queue_indexes = self._rows.get("group_number", rows) % self._address_count
        for queue_index in np.unique(queue_indexes).tolist():
            self._ready[queue_index] += rows[queue_indexes == queue_index].tolist()
            self._is_sorted[queue_index] = False

    def _without_partial(self, rows: Any) -> Any:
        """Return these rows and those held back, without those that begin a part of an earlier process's bundle."""
        looked, self._partial, whole = [*self._partial, *rows.tolist()], [], []
        for row in looked:
            key = (int(self._rows.get("group_number", row)), int(self._rows.get("idx", row)))
            count = self._sent_before.get(key, 0)
            bundle = self._first_rows(row, count)
            if len(bundle) < count:
                self._partial.append(row)
                continue
            if count:
                self._bundles[row] = bundle
                del self._sent_before[key]
            whole.append(row)
        return np.array(whole, np.int64)

    def _sorted_rows(self, queue_index: int) -> list[int]:
        """Return the rows of the ready groups' first messages, the latest in the plan first.

        So `take` removes the earliest ones from the end of the list, which moves no others.
        """
        ready = self._ready[queue_index]
        if not self._is_sorted[queue_index]:
            ready.sort(reverse=True)
            self._is_sorted[queue_index] = True
        return ready

    @property
    def is_empty(self) -> bool:
        """Return whether no message waits, rests or is in flight."""
        return self._open_count == 0

    def ready_count(self, queue_index: int) -> int:
        """Return how many groups have a message that may be sent now."""
        return len(self._ready[queue_index])

    def head_us(self, queue_index: int) -> int | None:
        """Return the intended time of the message that would be sent next; None if none may be sent."""
        ready = self._sorted_rows(queue_index)
        return int(self._rows.get("intended_at_us", ready[-1])) if ready else None

    def take(self, queue_index: int, room: int) -> list[int]:
        """Take the messages of one call, or bundles of them, at most `room`. Their groups wait until they are settled.

        The rows of a bundle stand together.
        """
        ready = self._sorted_rows(queue_index)
        taken = ready[: -room - 1 : -1]
        del ready[-room:]
        if self._bundle_max > 1:
            taken = [row for first in taken for row in self._bundle(first)]
        self.waiting_count -= len(taken)
        return taken

    def _bundle(self, first: int) -> list[int]:
        """Return the rows of the bundle that begins with this row: the messages of its group that wait now."""
        if first not in self._bundles:
            self._bundles[first] = self._first_rows(first, self._bundle_max)
        return self._bundles[first]

    def _first_rows(self, first: int, count: int) -> list[int]:
        """Return this row and those behind it in its group, at most `count`."""
        rows = [first]
        while len(rows) < count and (following := int(self._rows.get("following", rows[-1]))):
            rows.append(following)
        return rows

    def columns(self, rows: Sequence[int]) -> dict[str, Any]:
        """Return the columns given to `add` for messages that were taken."""
        found = np.array(rows, np.int64)
        return {name: self._rows.get(name, found) for name in list(_COLUMNS)[:5]}

    def groups(self, rows: Sequence[int]) -> list[int]:
        """Return the groups of messages."""
        groups: list[int] = self._rows.get("group_number", np.array(rows, np.int64)).tolist()
        return groups

    def settle(self, rows: Sequence[int]) -> None:
        """Let the groups of acknowledged messages continue."""
        done = np.array(rows, np.int64)
        self._open_count -= len(done)
        self._rows.put("is_open", done, values=False)
        following = self._rows.get("following", done)
        self._last[self._rows.get("group_number", done[following == 0])] = 0
        following = following[following > 0]
        if self._bundles:
            for row in rows:
                self._bundles.pop(row, None)
            following = following[~np.isin(following, done)]
        self._make_ready(following)

    def put_back(self, row: int, *, until: float) -> None:
        """Put a failed message in front of the waiting messages of its group; the group rests until `until`.

        Of a bundle, `row` is the first.
        """
        self.waiting_count += len(self._bundles.get(row, (row,)))
        heapq.heappush(self._resting, (until, row))

    def wake(self, now: float) -> None:
        """Let the groups continue whose rest has ended."""
        while self._resting and self._resting[0][0] <= now:
            _, row = heapq.heappop(self._resting)
            self._make_ready(np.array([row]))

    @property
    def wakes_at(self) -> float | None:
        """Return when the next rest of a group ends; None if no group rests."""
        return self._resting[0][0] if self._resting else None

    def abandon(self, row: int) -> int:
        """Give a group up for good, with its message in flight.

        Return how many of its messages waited behind that one.
        """
        group = self._rows.get("group_number", row)
        self._is_abandoned[group], self._last[group] = True, 0
        given_up = [row]
        while following := int(self._rows.get("following", given_up[-1])):
            given_up.append(following)
        self._open_count -= len(given_up)
        self._rows.put("is_open", np.array(given_up, np.int64), values=False)
        self.waiting_count -= len(given_up) - len(self._bundles.pop(row, (row,)))
        return len(given_up) - 1
