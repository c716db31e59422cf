"""From narrow rows to messages: how each was published, and received from each queue.

What a message has only once where all is well (a receive from each queue, a delete, an effect) is looked up, not
aggregated; where there are several, one of them stands for all, and the message is odd.
"""

import numpy as np

from sluice.history.checker import Expectation
from spark_load.history.columns import NONE, Columns, alike, mixed
from spark_load.judge.screening.encode import CONTENT, DELETED, HANDLED, INFO, NO_QUEUE_INDEX, OK, RECEIVED, sent_to

_US = 1_000_000
_LATEST = np.iinfo(np.int64).max
_END_MARKERS = 2**61  # behind every other message
_OF_RECEIVE = ("asked_us", "call", "position", "low", "high", "since_us", "is_alone", "handle", "instance")


def queue_indexes(expectation: Expectation) -> range:
    """Return the indexes of the queues, from 1; 0 is publishing."""
    return range(1, len(expectation.queues) + 1)


def is_known(*columns: np.ndarray) -> np.ndarray:
    """Return where all of them say something."""
    return np.logical_and.reduce([column != _none(column.dtype) for column in columns])


def difference(after: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Return how much later the one is, NONE where one of them is not known."""
    return np.where(is_known(after, before), after - before, NONE)


def messages(rows: Columns, expectation: Expectation) -> Columns:
    """Return one row for each message of each group, all of a group together and in the order of the plan.

    `rows` are narrow ones of whole groups, at least one, in any order; their columns are given up on the way.

    Returns:
        `group`, `idx` (NO_IDX for what has none), `is_odd` (something about it is unusual), `is_warm_up`, and with the
        queue index as suffix how and when it was published (0), and received, held and handled. Without a plan the
        order is that of the numbers it was published under.
    """
    first, message_numbers = alike(mixed(rows["group"], rows["idx"]))
    all_ = _RowsOfMessages(rows, message_numbers, len(first))
    published = all_.where(rows["queue_index"] == 0)
    found: Columns = {
        "group": rows["group"][first],
        "idx": rows["idx"][first],
        "is_warm_up": all_.any(rows["is_warm_up"]),
        "is_odd": all_.any(rows["is_odd"] | (rows["queue_index"] == NO_QUEUE_INDEX) | _is_double(rows)),
    }
    found["is_odd"] |= all_.where(rows["kind"] != DELETED).differ(*CONTENT)
    for name in ("group", "is_odd", "is_warm_up", *CONTENT):
        del rows[name]
    found |= _published(published, expectation)
    for queue_index in queue_indexes(expectation):
        found |= _received(queue_index, all_, expectation)
    found["is_odd"] = np.logical_or.reduce([found.pop(name) for name in [*found] if name.startswith("is_odd")])
    planned = _planned(found["idx"]) if expectation.is_planned else found["low_0"]
    order = np.lexsort((planned, found["group"]))
    for name in found:  # one at a time: a group may be a tenth of a history
        found[name] = found[name][order]
    return found


def _planned(idx: np.ndarray) -> np.ndarray:
    return np.where(idx < 0, _END_MARKERS - idx, idx)


def _is_double(rows: Columns) -> np.ndarray:
    """Return which receives share their SQS message id with another."""
    is_received = rows["kind"] == RECEIVED
    ids = np.sort(rows["instance"][is_received])
    doubles = ids[1:][ids[1:] == ids[:-1]]
    return is_received & np.isin(rows["instance"], doubles) if len(doubles) else np.zeros(len(is_received), dtype=bool)


class _RowsOfMessages:
    """Narrow rows, and of each the number of its message."""

    def __init__(self, rows: Columns, numbers: np.ndarray, count: int) -> None:
        self._rows, self._numbers, self._count = rows, numbers, count

    def where(self, which: np.ndarray) -> "_RowsOfMessages":
        """Return some of them."""
        return _RowsOfMessages(_Some(self._rows, np.flatnonzero(which)), self._numbers[which], self._count)

    def __getitem__(self, name: str) -> np.ndarray:
        return self._rows[name]

    def count(self, which: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Return how many rows each message has."""
        return np.bincount(self._numbers[which], minlength=self._count)

    def any(self, which: np.ndarray) -> np.ndarray:
        """Return which messages have such a row."""
        return self.count(which) > 0

    def of(self, column: np.ndarray) -> np.ndarray:
        """Return of each row what a column of messages says."""
        return column[self._numbers]

    def single(self, name: str) -> np.ndarray:
        """Return of each message what one of its rows says, the last of them."""
        values = self._rows[name]
        column = np.full(self._count, _none(values.dtype), dtype=values.dtype)
        column[self._numbers] = values
        return column

    def least(self, values: np.ndarray) -> np.ndarray:
        """Return of each message the least known."""
        column = np.full(self._count, _LATEST)
        np.minimum.at(column, self._numbers, values - 1)  # what is not known becomes the latest
        return np.where(column == _LATEST, NONE, column + 1)

    def most(self, values: np.ndarray) -> np.ndarray:
        """Return of each message the highest known."""
        column = np.full(self._count, _none(values.dtype), dtype=values.dtype)
        np.maximum.at(column, self._numbers, values)
        return column

    def differ(self, *names: str) -> np.ndarray:
        """Return which messages have rows that say different things in one of the columns."""
        do_differ = np.zeros(self._count, dtype=bool)
        for name in names:
            values = self._rows[name]
            known_positions = np.flatnonzero(is_known(values))
            numbers, values = self._numbers[known_positions], values[known_positions]
            last = np.zeros(self._count, dtype=values.dtype)
            last[numbers] = values
            do_differ[numbers[last[numbers] != values]] = True
        return do_differ


class _Some(dict[str, np.ndarray]):
    """Some rows; a column is taken out when it is asked for."""

    def __init__(self, rows: Columns, which: np.ndarray) -> None:
        super().__init__()
        self._rows, self._which = rows, which

    def __missing__(self, name: str) -> np.ndarray:
        self[name] = self._rows[name][self._which]
        return self[name]


def _published(rows: _RowsOfMessages, expectation: Expectation) -> Columns:
    """Return how messages were published; one published in several ways, or again too late, is odd."""
    found = {
        "count": rows.count(),
        "acked": rows.count(rows["outcome"] == OK),
        "unanswered": rows.count(rows["outcome"] == INFO),
        "sent_to": sent_to(rows.single("handle")),
        "asked_us": rows.least(rows["asked_us"]),
        "asked_last_us": rows.most(rows["asked_us"]),
        "answered_us": rows.least(rows["answered_us"]),
        "took_us": rows.most(difference(rows["answered_us"], rows["asked_us"])),
        "late_us": rows.most(difference(rows["asked_us"], rows["since_us"])),
        "since_us": rows.least(rows["since_us"]),
        "call": rows.single("call"),
        "position": rows.single("position"),
        "low": rows.most(rows["low"]),
        "high": rows.most(rows["high"]),
    }
    after_us = difference(found["asked_last_us"], found["asked_us"])
    is_late = (found["count"] > 1) & (after_us >= expectation.deduplication_window_seconds * _US)
    found["is_odd"] = is_late | rows.differ("low", "high", "handle")
    return {f"{name}_0": column for name, column in found.items()}


def _received(queue_index: int, rows: _RowsOfMessages, expectation: Expectation) -> Columns:
    """Return how messages were received from a queue; one not deleted once, in time, with that handle, is odd."""
    is_here = rows["queue_index"] == queue_index
    received = rows.where(is_here & (rows["kind"] == RECEIVED))
    deleted = rows.where(is_here & (rows["kind"] == DELETED))
    handled = rows.where(is_here & (rows["kind"] == HANDLED))
    found = {name: received.single(name) for name in _OF_RECEIVE} | {
        "count": received.count(),
        "answered_us": received.least(received["answered_us"]),
        "handled_from_us": handled.single("asked_us"),
        "handled_until_us": handled.single("answered_us"),
    }
    deleted_us, settled_us = deleted.single("asked_us"), deleted.single("answered_us")
    lease_seconds = received.single("lease_seconds").astype(np.int64)
    has_lease = (lease_seconds >= 0) & is_known(found["asked_us"])
    expires_us = np.where(has_lease, found["asked_us"] + lease_seconds * _US, NONE)
    free_us = np.minimum(np.where(has_lease, expires_us, _LATEST), deleted_us)
    is_between = is_known(found["handled_from_us"], deleted_us)
    is_between &= (found["answered_us"] <= found["handled_from_us"]) & (found["handled_until_us"] <= deleted_us)
    is_received, handled_count = found["count"] > 0, handled.count()
    is_other = (deleted["instance"] != deleted.of(found["instance"])) | (
        deleted["handle"] != deleted.of(found["handle"])
    )
    found["is_odd"] = (
        (found["count"] > 1)
        | (deleted.count() != is_received)
        | deleted.any(is_other)
        | is_received & (~is_known(found["answered_us"], deleted_us, settled_us) | (deleted_us < found["answered_us"]))
        | is_received & has_lease & (settled_us > expires_us)
        | (handled_count > 1)
        | (handled_count == 1) & ~(is_received & is_between)
        | handled.any(handled["instance"] != handled.of(found["instance"]))
    )
    if expectation.queues[queue_index - 1] in expectation.effects_recorded:
        found["is_odd"] |= (received.most(received["idx"]) >= 0) & (handled_count == 0)
    found["free_us"] = np.where(is_known(deleted_us), free_us, expires_us)
    return {f"{name}_{queue_index}": column for name, column in found.items()}


def _none(dtype: np.dtype) -> int:
    return NONE if dtype == np.int64 else 0
