"""Collect the encoded events of each message: its publish, and its receive, delete and effect in each queue.

One loop over the rows writes each event into the record of its message. An ordinary message has one receive from each
queue, one delete and one effect; a record has the last of each, and a message with several is marked as odd.
"""

from collections.abc import Sequence

import numpy as np

from sluice.judge.checker import Expectation
from sluice.judge.reading.columns import NONE, Columns, hash_numbers
from sluice.judge.screening.compilation import compile_loop
from sluice.judge.screening.encode import (
    DELETED,
    HANDLED,
    INFO,
    LEFT_OUT,
    NO_QUEUE_INDEX,
    OK,
    RECEIVED,
    EncodedRows,
    target_queue_indexes,
)

_US = 1_000_000
_LATEST = np.iinfo(np.int64).max
_END_MARKERS = 2**61  # places end markers behind all other messages
_MESSAGES_INITIALLY = (
    1 << 18
)  # memory that is not touched costs nothing, and growing moves pages instead of copying them
_GROWTH = 1.1
_NEAR = 2_048
_TIME, _HASH, _COUNT, _FLAG = "i8", "u8", "i4", "?"
_CALL = [("invoked_us", _TIME), ("answered_us", _TIME), ("since_us", _TIME), ("low", _TIME), ("high", _HASH)]
_CALL += [("handle", _HASH), ("call", _HASH), ("position", _COUNT), ("count", _COUNT), ("is_odd", _FLAG)]
_MESSAGE = np.dtype(
    [("body", _HASH), ("attributes", _HASH), ("deduplication", _HASH), ("is_odd", _FLAG), ("is_warm_up", _FLAG)],
    align=True,
)
_PUBLISH = np.dtype(
    [
        *_CALL,
        ("invoked_last_us", _TIME),
        ("took_us", _TIME),
        ("late_us", _TIME),
        ("acked", _COUNT),
        ("unanswered", _COUNT),
    ],
    align=True,
)
_RECEIVE = np.dtype(
    [
        *_CALL,
        *(
            (name, _TIME)
            for name in ("lease_seconds", "deleted_us", "settled_us", "handled_from_us", "handled_until_us")
        ),
        *((name, _HASH) for name in ("instance", "deleted_instance", "deleted_handle", "handled_instance")),
        *((name, _COUNT) for name in ("deleted_count", "handled_count")),
        *((name, _FLAG) for name in ("is_alone", "is_planned")),
    ],
    align=True,
)

_SETTLED = ("handle", "instance", "deleted_instance", "deleted_handle", "handled_instance", "deleted_us", "settled_us")
"""Fields of a receive that are dropped after it was decided whether it is odd."""


def queue_indexes(expectation: Expectation) -> range:
    """Return the indexes of the queues, from 1; 0 is publishing."""
    return range(1, len(expectation.queues) + 1)


def is_known(*columns: np.ndarray) -> np.ndarray:
    """Return for each row whether all of the columns have a value."""
    return np.logical_and.reduce([column != _none(column.dtype) for column in columns])


def difference(after: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Return how much later one time is than the other, NONE if one of them is unknown."""
    return np.where(is_known(after, before), after - before, NONE)


class MessageRollup:
    """Records of the messages of whole groups; their rows may be added in any order.

    With three queues, a message takes about 600 bytes, however many rows it has.
    """

    def __init__(self, expectation: Expectation) -> None:
        self._expectation = expectation
        self._count = 0
        self._places = np.full(2, -1, np.int32)  # a hash table of record numbers
        self._keys = np.empty(_MESSAGES_INITIALLY, np.dtype([("group", _HASH), ("idx", _TIME), ("hash", _TIME)]))
        self._about, self._published = (np.empty(_MESSAGES_INITIALLY, dtype) for dtype in (_MESSAGE, _PUBLISH))
        self._received = [np.empty(_MESSAGES_INITIALLY, _RECEIVE) for _ in expectation.queues]
        self._instances: list[np.ndarray] = []

    def __len__(self) -> int:
        return self._count

    def add(self, rows: Columns) -> None:
        """Add further rows of `encode_events`."""
        hashed = hash_numbers(rows["group"], rows["idx"]).view(np.int64)
        self._reserve(self._count + len(hashed))
        numbers, count = _number_messages(
            hashed, rows["group"], rows["idx"], rows["kind"], self._keys, self._places, self._count
        )
        for records in (self._about, self._published, *self._received):
            _grow_records(records, count)
            records[self._count : count] = _empty_record(records.dtype)
        self._count = count
        columns = EncodedRows(*(rows[name] for name in EncodedRows._fields))
        _record_publishes(numbers, columns, self._about, self._published)
        for queue_index, records in zip(queue_indexes(self._expectation), self._received, strict=True):
            _record_receives(numbers, columns, queue_index, records)
        self._instances.append(rows["instance"][rows["kind"] == RECEIVED])

    def _reserve(self, count: int) -> None:
        """Make room for the keys of so many messages, and let half of the places be free."""
        _grow_records(self._keys, count)
        if len(self._places) < 2 * count:
            self._places = np.full(1 << (2 * count).bit_length(), -1, np.int32)
            _fill_hash_table(self._keys[: self._count]["hash"].copy(), self._places)

    def rows(self) -> Columns:
        """Return one row for each message of each group, all of a group together and in the order of the plan.

        The rows are removed from this object, to free their memory.

        Returns:
            `group`, `idx` (NO_IDX if it has none), `is_odd` (something about it is unusual), `is_warm_up`, and columns
            with a queue index as suffix: 0 for its publish, others for its receive, lease and effect. Without a plan,
            messages are in the order of their sequence numbers.
        """
        group, idx = (self._keys[name][: self._count].copy() for name in ("group", "idx"))
        planned = np.where(idx < 0, _END_MARKERS - idx, idx)
        order = np.lexsort((planned if self._expectation.is_planned else self._published["low"][: self._count], group))
        found: Columns = {"group": group[order], "idx": idx[order]} | _to_columns(self._about, order)
        found |= _publish_columns(_to_columns(self._published, order), self._expectation)
        doubles = _ids_received_twice(self._instances)
        del self._keys, self._about, self._published
        for queue_index in queue_indexes(
            self._expectation
        ):  # one queue at a time, because a group may be a tenth of a history
            received = _to_columns(self._received.pop(0), order)
            if len(doubles):
                received["is_odd"] |= np.isin(received["instance"], doubles)
            found |= _receive_columns(queue_index, received, self._expectation)
        odd = [found.pop(name) for name in [*found] if name.startswith("is_odd")]
        return found | {"is_odd": np.logical_or.reduce(odd)}


def messages(rows: Columns, expectation: Expectation) -> Columns:
    """Return the result of `MessageRollup` for these rows."""
    all_ = MessageRollup(expectation)
    all_.add(rows)
    return all_.rows()


def _grow_records(records: np.ndarray, count: int) -> None:
    if len(records) < count:
        records.resize(max(count, int(len(records) * _GROWTH)), refcheck=False)


def _empty_record(dtype: np.dtype) -> np.ndarray:
    """Return a record without any facts."""
    record = np.zeros((), dtype)
    for name in dtype.names or ():
        if dtype[name] == _TIME:
            record[name] = NONE
    return record


def _to_columns(records: np.ndarray, order: np.ndarray) -> Columns:
    """Return records as columns in this order; a few records at a time, so that they stay in the processor's cache."""
    names = records.dtype.names or ()
    found = {name: np.empty(len(order), records.dtype[name]) for name in names}
    for begin in range(0, len(order), _NEAR):
        part = records[order[begin : begin + _NEAR]]
        for name in names:
            found[name][begin : begin + _NEAR] = part[name]
    return found


def _ids_received_twice(instances: Sequence[np.ndarray]) -> np.ndarray:
    """Return the SQS message ids that were received more than once."""
    ids = np.sort(np.concatenate(instances)) if instances else np.zeros(0, np.uint64)
    return ids[1:][ids[1:] == ids[:-1]]


@compile_loop
def _fill_hash_table(hashed: np.ndarray, places: np.ndarray) -> None:
    mask = len(places) - 1
    for number in range(len(hashed)):
        place = hashed[number] & mask
        while places[place] >= 0:
            place = (place + 1) & mask
        places[place] = number


@compile_loop
def _number_messages(
    hashed: np.ndarray,
    group: np.ndarray,
    idx: np.ndarray,
    kind: np.ndarray,
    keys: np.ndarray,
    places: np.ndarray,
    count: int,
) -> tuple[np.ndarray, int]:
    """Return the number of each row's message, -1 for what is left out, and how many messages there are now."""
    numbers, mask = np.empty(len(hashed), np.int32), len(places) - 1
    for row in range(len(hashed)):
        if kind[row] == LEFT_OUT:
            numbers[row] = -1
            continue
        place = hashed[row] & mask
        while True:
            number = places[place]
            if number < 0:
                places[place] = number = count
                key = keys[count]
                key["group"], key["idx"], key["hash"] = group[row], idx[row], hashed[row]
                count += 1
            if keys[number]["group"] == group[row] and keys[number]["idx"] == idx[row]:
                numbers[row] = number
                break
            place = (place + 1) & mask
    return numbers, count


@compile_loop
def _record_publishes(  # noqa: C901, PLR0912, PLR0915 (one loop, so that each row is read once)
    numbers: np.ndarray, rows: EncodedRows, about: np.ndarray, published: np.ndarray
) -> None:
    """Write the facts of rows about messages and their publishes into the records; contradictory rows are odd."""
    for row in range(len(numbers)):
        if numbers[row] < 0:
            continue
        number, queue_index, kind = numbers[row], rows.queue_index[row], rows.kind[row]
        invoked_us, answered_us, since_us = rows.invoked_us[row], rows.answered_us[row], rows.since_us[row]
        low, high, handle = rows.low[row], rows.high[row], rows.handle[row]
        message = about[number]
        if rows.is_odd[row] or queue_index == NO_QUEUE_INDEX:
            message["is_odd"] = True
        if rows.is_warm_up[row]:
            message["is_warm_up"] = True
        if kind != DELETED:
            body, attributes, deduplication = rows.body[row], rows.attributes[row], rows.deduplication[row]
            if body != 0:
                if message["body"] != 0 and message["body"] != body:
                    message["is_odd"] = True
                message["body"] = body
            if attributes != 0:
                if message["attributes"] != 0 and message["attributes"] != attributes:
                    message["is_odd"] = True
                message["attributes"] = attributes
            if deduplication != 0:
                if message["deduplication"] != 0 and message["deduplication"] != deduplication:
                    message["is_odd"] = True
                message["deduplication"] = deduplication
        if queue_index == 0:
            publish = published[number]
            publish["count"] += 1
            publish["acked"] += rows.outcome[row] == OK
            publish["unanswered"] += rows.outcome[row] == INFO
            publish["call"], publish["position"] = rows.call[row], rows.position[row]
            if low != NONE:
                if publish["low"] != NONE and publish["low"] != low:
                    publish["is_odd"] = True
                publish["low"] = max(publish["low"], low)
            if high != 0:
                if publish["high"] != 0 and publish["high"] != high:
                    publish["is_odd"] = True
                publish["high"] = max(publish["high"], high)
            if handle != 0:
                if publish["handle"] != 0 and publish["handle"] != handle:
                    publish["is_odd"] = True
                publish["handle"] = handle
            if invoked_us != NONE:
                if publish["invoked_us"] == NONE or invoked_us < publish["invoked_us"]:
                    publish["invoked_us"] = invoked_us
                publish["invoked_last_us"] = max(publish["invoked_last_us"], invoked_us)
                if answered_us != NONE:
                    publish["took_us"] = max(publish["took_us"], answered_us - invoked_us)
                if since_us != NONE:
                    publish["late_us"] = max(publish["late_us"], invoked_us - since_us)
            if answered_us != NONE and (publish["answered_us"] == NONE or answered_us < publish["answered_us"]):
                publish["answered_us"] = answered_us
            if since_us != NONE and (publish["since_us"] == NONE or since_us < publish["since_us"]):
                publish["since_us"] = since_us


@compile_loop
def _record_receives(numbers: np.ndarray, rows: EncodedRows, queue_index: int, received: np.ndarray) -> None:
    """Write the facts of rows about receives, deletes and effects of a queue into the records of their messages."""
    for row in range(len(numbers)):
        if rows.queue_index[row] != queue_index or numbers[row] < 0:
            continue
        receive, kind = received[numbers[row]], rows.kind[row]
        invoked_us, answered_us = rows.invoked_us[row], rows.answered_us[row]
        if kind == RECEIVED:
            receive["count"] += 1
            receive["invoked_us"], receive["since_us"] = invoked_us, rows.since_us[row]
            receive["low"], receive["high"], receive["handle"] = rows.low[row], rows.high[row], rows.handle[row]
            receive["call"], receive["position"] = rows.call[row], rows.position[row]
            receive["instance"], receive["is_alone"] = rows.instance[row], rows.is_alone[row]
            receive["lease_seconds"] = rows.lease_seconds[row]
            receive["is_planned"] = receive["is_planned"] or rows.idx[row] >= 0
            if answered_us != NONE and (receive["answered_us"] == NONE or answered_us < receive["answered_us"]):
                receive["answered_us"] = answered_us
        elif kind == DELETED:
            receive["deleted_count"] += 1
            receive["deleted_us"], receive["settled_us"] = invoked_us, answered_us
            receive["deleted_instance"], receive["deleted_handle"] = rows.instance[row], rows.handle[row]
        elif kind == HANDLED:
            receive["handled_count"] += 1
            receive["handled_from_us"], receive["handled_until_us"] = invoked_us, answered_us
            receive["handled_instance"] = rows.instance[row]


def _publish_columns(found: Columns, expectation: Expectation) -> Columns:
    """Return how messages were published; one published in several ways, or again too late, is odd."""
    found["sent_to"] = target_queue_indexes(found.pop("handle"))
    after_us = difference(found["invoked_last_us"], found["invoked_us"])
    found["is_odd"] |= (found["count"] > 1) & (after_us >= expectation.deduplication_window_seconds * _US)
    return {f"{name}_0": column for name, column in found.items()}


def _receive_columns(queue_index: int, found: Columns, expectation: Expectation) -> Columns:
    """Return how messages were received from a queue; one not deleted once, in time, with that handle, is odd."""
    is_received = found["count"] > 0
    deleted_us, settled_us = found["deleted_us"], found["settled_us"]
    lease_seconds = found.pop("lease_seconds")
    has_lease = (lease_seconds >= 0) & is_known(found["invoked_us"])
    expires_us = np.where(has_lease, found["invoked_us"] + lease_seconds * _US, NONE)
    free_us = np.minimum(np.where(has_lease, expires_us, _LATEST), deleted_us)
    is_deleted, is_handled = found["deleted_count"] > 0, found["handled_count"] > 0
    is_between = is_known(found["handled_from_us"], deleted_us)
    is_between &= (found["answered_us"] <= found["handled_from_us"]) & (found["handled_until_us"] <= deleted_us)
    is_other = (found["deleted_instance"] != found["instance"]) | (found["deleted_handle"] != found["handle"])
    found["is_odd"] |= (
        (found["count"] > 1)
        | (found["deleted_count"] != is_received)
        | is_deleted & is_other
        | is_received & (~is_known(found["answered_us"], deleted_us, settled_us) | (deleted_us < found["answered_us"]))
        | is_received & has_lease & (settled_us > expires_us)
        | (found["handled_count"] > 1)
        | is_handled & ~(is_received & is_between)
        | is_handled & (found["handled_instance"] != found["instance"])
    )
    if expectation.queues[queue_index - 1] in expectation.effects_recorded:
        found["is_odd"] |= found["is_planned"] & ~is_handled
    found["free_us"] = np.where(is_known(deleted_us), free_us, expires_us)
    return {f"{name}_{queue_index}": column for name, column in found.items() if name not in _SETTLED}


def _none(dtype: np.dtype) -> int:
    return NONE if dtype == np.int64 else 0
