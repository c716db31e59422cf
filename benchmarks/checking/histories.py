"""Write large histories as recorders would: one publisher, one consumer for each queue, groups of Zipf's sizes.

All calls succeed and none overlap, except in the groups that are broken on purpose. Numpy makes the columns of a slice
of messages at a time: a hundred million events need neither a service nor much memory.
"""

import os
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sluice.history.events import CallOutcome, Kind, answer_detail
from sluice.judge.checker import Expectation
from sluice.judge.reading import parquet_files
from sluice.recorder.journal import SCHEMA

RUN = "benchmark"
QUEUES = ("billing.fifo", "shipping.fifo", "audit.fifo")
WORKERS = ("publish-0", *(f"consume-{number}" for number in range(len(QUEUES))))
EXPECTATION = Expectation(
    run=RUN,
    queues=QUEUES,
    visibility_timeout_seconds=dict.fromkeys(QUEUES, 30),
    dead_letter_queues={queue: f"dead-{queue}" for queue in QUEUES},
    max_receive_count=dict.fromkeys(QUEUES, 5),
)
EVENTS_OF_MESSAGE = 1 + 2 * len(QUEUES) + len(QUEUES) / 10  # a poll brings ten
PLAIN, BUCKETED = "plain", "bucketed"
_SLICE = 100_000  # messages; a multiple of _BATCH
_BATCH = 10
_BEGAN_US = 1_763_700_000_000_000
_STEP_US = 100
_GROUPS = 10_000
_BAD_APART = 100  # every hundredth group is broken, until `bad_share` is reached
_REPEATED_COLUMNS = [
    "run",
    "phase",
    "host",
    "clock_id",
    "worker",
    "kind",
    "queue",
    "message_group_id",
    "message_run",
    "outcome",
    "detail",
]
_KINDS_OF_BAD = ("dropped", "doubled", "swapped", "overlapping")

type _Columns = dict[str, pa.Array | pa.Scalar]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySummary:
    """The number of events that were written, and the names of the groups that were broken."""

    events: int
    bad_groups: frozenset[str]


def write(
    folder: Path,
    *,
    events: int,
    bad_share: float = 0,
    group_count: int = _GROUPS,
    slice_count: int = _SLICE,
) -> HistorySummary:
    """Write a history of about that many events; `bad_share` of the groups are broken.

    A broken group has one message that billing does not get, gets twice, gets behind a later one, or gets while
    its predecessor is held. One of them is among the hottest, the others are ordinary, with at least some messages.

    Args:
        folder: made anew.
        events: number of rows, rounded to whole slices.
        bad_share: between 0 and 1.
        group_count: group n gets a share of the messages proportional to 1/(n + 1).
        slice_count: messages made at a time, a multiple of ten.
    """
    folder.mkdir(parents=True)
    messages = max(1, round(events / EVENTS_OF_MESSAGE / slice_count)) * slice_count
    random = np.random.default_rng(7)
    cumulated = np.cumsum(1 / np.arange(1, group_count + 1))
    bad = 3 + max(1, group_count // _BAD_APART) * np.arange(round(group_count * bad_share))
    bad_groups = frozenset(f"g{number}" for number in bad)

    count = sum(_write_table(folder / f"{worker}-frame.parquet", _open_and_close_rows(worker)) for worker in WORKERS)
    for start in range(0, messages, slice_count):
        group = np.searchsorted(cumulated, random.random(slice_count) * cumulated[-1])
        made = _Slice(np.arange(start, start + slice_count), np.arange(start, start + slice_count), group, bad)
        count, bad = count + made.write(folder), bad[:0]
    ends = np.arange(group_count)
    count += _Slice(messages + ends, -1 - ends, ends, bad).write(folder)
    return HistorySummary(events=count, bad_groups=bad_groups)


def write_both(
    folder: Path, *, events: int, bucket_count: int, slice_count: int, bad_share: float = 0
) -> HistorySummary:
    """Write the same history twice: to PLAIN in any order, to BUCKETED sorted into buckets by group; see `write`."""
    made = write(folder / PLAIN, events=events, bad_share=bad_share, slice_count=slice_count)
    (folder / BUCKETED).mkdir()
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as processes:
        list(processes.map(partial(_write_in_buckets, folder, bucket_count), WORKERS))
    return made


def _write_in_buckets(folder: Path, bucket_count: int, worker: str) -> None:
    parts = (pq.read_table(path) for path in sorted((folder / PLAIN).glob(f"{worker}-*")))
    parquet_files.write((part.cast(SCHEMA) for part in parts), folder / BUCKETED, worker, bucket_count)


def _write_table(path: Path, table: pa.Table) -> int:
    pq.write_table(table, path, use_dictionary=_REPEATED_COLUMNS)
    return int(table.num_rows)


class _Slice:
    """The events of consecutive messages.

    Args:
        place: position of each message in the whole history, from 0.
        idx: the `idx` of each, negative for an end marker.
        group: number of the group of each.
        bad: groups to be broken, each in its second message here.
    """

    def __init__(self, place: np.ndarray, idx: np.ndarray, group: np.ndarray, bad: np.ndarray) -> None:
        self._place, self._idx, self._group = place, idx, group
        self._bad = dict(zip(bad.tolist(), _KINDS_OF_BAD * len(bad), strict=False))

    def write(self, folder: Path) -> int:
        """Write a file for each worker; return how many events they hold."""
        return sum(
            _write_table(folder / f"{worker}-{self._place[0]:012d}.parquet", pa.concat_tables(tables))
            for worker, tables in zip(WORKERS, self.tables(), strict=True)
        )

    def tables(self) -> list[list[pa.Table]]:
        """Return the events of each worker."""
        return [[self._publish_rows()], *(self._consumer_tables(queue) for queue in range(len(QUEUES)))]

    def _publish_rows(self) -> pa.Table:
        invoked_us = _BEGAN_US + self._place * _STEP_US
        return _table(
            {
                **_worker_columns(WORKERS[0]),
                "kind": pa.scalar(Kind.PUBLISHED.value),
                "queue": pa.scalar("events.fifo"),
                "call_id": _prefix_numbers("publish-0-0/", self._place),
                "intended_at_us": pa.array(invoked_us - 20),
                "invoked_at_us": pa.array(invoked_us),
                "responded_at_us": pa.array(invoked_us + 80),
                "publish_attempt": pa.scalar(1, pa.int32()),
                "batch_position": pa.scalar(0, pa.int32()),
                "sns_message_id": _uuids(self._place, 1),
                "sns_sequence_number": _sequence_numbers(self._place + 10),
                **self._message_columns(),
            },
            len(self._idx),
        )

    def _consumer_tables(self, queue: int) -> list[pa.Table]:
        """Return polls, receives and deletes of the messages from the queue-th queue."""
        call = self._place // _BATCH
        invoked_us = self._invoked_us(queue)
        times = {
            "call": call,
            "asked": invoked_us,
            "answered": invoked_us + 400,
            "deleted": invoked_us + 500,
            "settled": invoked_us + 800,
        }
        received = np.arange(len(self._idx))
        kept = received
        if queue == 0:
            received, kept = self._break_groups(times, received)
        return [
            self._poll_rows(queue),
            self._receive_rows(queue, times, received),
            self._delete_rows(queue, times, kept),
        ]

    def _invoked_us(self, queue: int) -> np.ndarray:
        return _BEGAN_US + (self._place // _BATCH + 1) * _BATCH * _STEP_US + 10_000 * (queue + 1)

    def _break_groups(self, times: Mapping[str, np.ndarray], received: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Break the bad groups; return the positions received, and the positions deleted."""
        kept, again = np.ones(len(received), dtype=bool), []
        for group, kind in self._bad.items():
            first, second, *others = np.flatnonzero(self._group == group)
            if kind == "dropped":
                kept[second] = False
            elif kind == "doubled":
                again.append(second)
            elif kind == "swapped":
                third = next(other for other in others if self._place[other] // _BATCH > self._place[second] // _BATCH)
                for instants in times.values():
                    instants[[second, third]] = instants[[third, second]]
            else:
                times["deleted"][first] += 20_000_000
                times["settled"][first] += 20_000_000
        return np.concatenate([received[kept], np.array(again, dtype=int)]), received[kept]

    def _poll_rows(self, queue: int) -> pa.Table:
        first = np.flatnonzero(np.diff(self._place // _BATCH, prepend=-1))
        invoked_us = self._invoked_us(queue)[first]
        return _table(
            {
                **_worker_columns(WORKERS[queue + 1]),
                **_call_columns(queue, self._place[first] // _BATCH),
                "kind": pa.scalar(Kind.POLL.value),
                "invoked_at_us": pa.array(invoked_us),
                "responded_at_us": pa.array(invoked_us + 400),
                "max_number_of_messages": pa.scalar(_BATCH, pa.int32()),
                "wait_time_seconds": pa.scalar(1, pa.int32()),
                "detail": pa.scalar(answer_detail(_BATCH)),
            },
            len(first),
        )

    def _receive_rows(self, queue: int, times: Mapping[str, np.ndarray], positions: np.ndarray) -> pa.Table:
        is_again = np.zeros(len(positions), dtype=np.int64)
        is_again[len(np.unique(positions)) :] = 1
        return _table(
            {
                **_worker_columns(WORKERS[queue + 1]),
                **_call_columns(queue, times["call"][positions] + is_again * 10**9),
                "kind": pa.scalar(Kind.RECEIVED.value),
                "invoked_at_us": pa.array(times["asked"][positions]),
                "responded_at_us": pa.array(times["answered"][positions] + is_again),
                "batch_position": pa.array((self._place[positions] % _BATCH).astype(np.int32)),
                "sqs_message_id": _uuids(self._place[positions], 2 + queue),
                "sqs_sequence_number": _sequence_numbers(self._place[positions] + 10),
                "receive_count": pa.scalar(1, pa.int32()),
                "receipt_handle_hash": _hashes(self._place[positions], 2 + queue),
                "sent_at_us": pa.array((_BEGAN_US + self._place[positions] * _STEP_US) // 1_000 * 1_000),
                "max_number_of_messages": pa.scalar(_BATCH, pa.int32()),
                "md5_ok": pa.scalar(value=True),
                "detail": pa.scalar(answer_detail(_BATCH)),
                **self._message_columns(positions),
            },
            len(positions),
        )

    def _delete_rows(self, queue: int, times: Mapping[str, np.ndarray], positions: np.ndarray) -> pa.Table:
        return _table(
            {
                **_worker_columns(WORKERS[queue + 1]),
                **_call_columns(queue, times["call"][positions] + 2 * 10**9),
                "kind": pa.scalar(Kind.DELETED.value),
                "message_group_id": _group_names(self._group[positions]),
                "idx": pa.array(self._idx[positions]),
                "message_run": pa.scalar(RUN),
                "invoked_at_us": pa.array(times["deleted"][positions]),
                "responded_at_us": pa.array(times["settled"][positions]),
                "batch_position": pa.array((self._place[positions] % _BATCH).astype(np.int32)),
                "sqs_message_id": _uuids(self._place[positions], 2 + queue),
                "receipt_handle_hash": _hashes(self._place[positions], 2 + queue),
            },
            len(positions),
        )

    def _message_columns(self, positions: np.ndarray | slice = slice(None)) -> _Columns:
        return {
            "message_group_id": _group_names(self._group[positions]),
            "idx": pa.array(self._idx[positions]),
            "message_run": pa.scalar(RUN),
            "deduplication_id": _prefix_numbers(f"{RUN}.", self._idx[positions]),
            "body_hash": _hashes(self._place[positions], 0),
        }


def _open_and_close_rows(worker: str) -> pa.Table:
    kinds = pa.array([Kind.OPENED.value, Kind.CLOSED.value])
    return _table({**_worker_columns(worker), "kind": kinds, "invoked_at_us": pa.scalar(_BEGAN_US)}, 2)


def _worker_columns(worker: str) -> _Columns:
    return {
        "schema_version": pa.scalar(1, pa.int32()),
        "run": pa.scalar(RUN),
        "host": pa.scalar("host"),
        "clock_id": pa.scalar("clock"),
        "worker": pa.scalar(worker),
        "task_attempt": pa.scalar(0, pa.int32()),
        "outcome": pa.scalar(CallOutcome.OK.value),
    }


def _call_columns(queue: int, call: np.ndarray) -> _Columns:
    return {"queue": pa.scalar(QUEUES[queue]), "call_id": _prefix_numbers(f"{WORKERS[queue + 1]}-0/", call)}


def _table(columns: _Columns, count: int) -> pa.Table:
    """Return a table of SCHEMA: a scalar is repeated in all rows, and a column that is not given is null."""

    def column(name: str, type_: pa.DataType) -> pa.Array:
        made = columns.get(name, pa.scalar(None, type_))
        return pa.repeat(made, count) if isinstance(made, pa.Scalar) else made

    return pa.table([column(field.name, field.type) for field in SCHEMA], schema=SCHEMA)


def _prefix_numbers(prefix: str, numbers: np.ndarray) -> pa.Array:
    return pc.binary_join_element_wise(prefix, pa.array(numbers).cast(pa.string()), "")


def _group_names(groups: np.ndarray) -> pa.Array:
    return _prefix_numbers("g", groups)


def _sequence_numbers(numbers: np.ndarray) -> pa.Array:
    """Return sequence numbers as AWS counts them, some twenty digits, padded."""
    return pc.utf8_lpad(
        pc.binary_join_element_wise("18", pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 18, "0"), ""), 39, "0"
    )


_HEX = np.array([f"{byte:02x}".encode() for byte in range(256)], dtype="S2")


def _pseudo_random_hex(numbers: np.ndarray, salt: int) -> np.ndarray:
    """Return 16 hex digits for each number, as a row of bytes; different salts make different digits."""
    mixed = (numbers.astype(np.uint64) + np.uint64(salt << 40)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    return _HEX[mixed.view(np.uint8)].view(np.uint8).reshape(len(numbers), 16)


def _string_array(rows: np.ndarray) -> pa.Array:
    count, width = rows.shape
    offsets = np.arange(count + 1, dtype=np.int32) * width
    return pa.StringArray.from_buffers(
        count, pa.py_buffer(offsets.tobytes()), pa.py_buffer(np.ascontiguousarray(rows).tobytes())
    )


def _hashes(numbers: np.ndarray, salt: int) -> pa.Array:
    return _string_array(_pseudo_random_hex(numbers, salt))


def _uuids(numbers: np.ndarray, salt: int) -> pa.Array:
    digits = np.hstack([_pseudo_random_hex(numbers, salt), _pseudo_random_hex(numbers, salt + 16)])
    dash = np.full((len(numbers), 1), ord("-"), dtype=np.uint8)
    parts = np.split(digits, [8, 12, 16, 20], axis=1)
    return _string_array(np.hstack([part for entry in parts for part in (entry, dash)][:-1]))
