"""The plan: a pure function of (profile, seed, number). Any task computes its own part, the same every time.

A message's group, repeat and outcome follow from draws of (seed, idx), its time from idx alone, so nothing depends on
how Spark cuts the work up. The messages of the warm-up come first, at negative times: the load proper begins at 0. End
markers come last, one for each group, with idx -1 - (number of the group).

Message n is due when the integral of the rate reaches n. Within a phase the rate is linear, so the integral is a
parabola, and its inverse is exact.
"""

import base64
import hashlib
import heapq
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from spark_load.profiles import trace
from spark_load.profiles.fields import Phase
from spark_load.profiles.profile import Profile
from spark_load.profiles.trace import Arrivals

_MASK = 2**64 - 1
_STEP = 0x9E3779B97F4A7C15


def mix_bits(number: Any) -> Any:
    """Return 64 well mixed bits of a 64-bit number: an int, or a numpy array of uint64.

    It is splitmix64 (Steele, Lea and Flood 2014), which needs a few multiplications. A cryptographic hash of every
    message would take longer than all other planning.
    """
    number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    number = (number ^ (number >> 27)) * 0x94D049BB133111EB & _MASK
    return number ^ (number >> 31)


def uniform(seed: int, number: Any, purpose: int) -> Any:
    """Return a pseudo-random number from [0, 1), the same for the same arguments.

    Numbers for different purposes are independent. `number` is not negative: an int, or a numpy array of uint64 for as
    many results.
    """
    key = mix_bits(mix_bits(seed & _MASK) + _STEP * (purpose + 1) & _MASK)
    return (mix_bits(number * _STEP + key & _MASK) >> 11) * 2.0**-53


type BodyValues = Sequence[Sequence[str]]
"""A column for each gap of a frame, with the value of each body: texts of letters, digits, `-`, `_`, `.` and `~` alone,
which stand in JSON and in a form as they are."""


class BodyTemplate:
    """The text before the first value of a body, between each two, and behind the last.

    Many bodies share this frame, which is escaped once; the values need no escaping.
    """

    __slots__ = ("_pieces", "_template")

    def __init__(self, *pieces: str) -> None:
        self._pieces = pieces
        self._template = "%s".join([piece.replace("%", "%%") for piece in pieces])

    def with_gaps(self) -> tuple[str, str]:
        """Return (text, mark): the text with a mark for each value.

        The mark occurs nowhere else, and needs no escaping.
        """
        mark = next(mark for mark in map("GAP{}.".format, count()) if not any(mark in piece for piece in self._pieces))
        return mark.join(self._pieces), mark

    def texts(self, values: BodyValues) -> Iterator[str]:
        """Yield the whole bodies, with their values."""
        return map(self._template.__mod__, zip(*values, strict=True))


WARM_UP, MEASURE = "warm_up", "measure"
SCHEMA = pa.schema(
    [
        pa.field("idx", pa.int64(), nullable=False),
        pa.field("publish_attempt", pa.int32(), nullable=False),
        pa.field("group_number", pa.int32(), nullable=False),
        pa.field("offset_us", pa.int64(), nullable=False),
        pa.field("task", pa.int32(), nullable=False),
    ]
)
"""The columns of `Plan.batch`, which has a row for each publish:

    idx              of the message; negative for an end marker
    publish_attempt  1, or 2 for the intended repeat
    group_number     of its message group
    offset_us        when, in microseconds from the start of the load; negative in the warm-up
    task             which publish task does it
"""
_GROUP, _REPEAT, _OUTCOME_DRAW = 0, 1, 3  # purposes of draws; if a number changes, a seed draws another plan
_GROUP_IDS_KEPT = 100_000
_POOL_STARTS = 65_536
_POOL_STRIDE = 40_503  # odd, so that 65,536 successive messages begin at different places of the pool


@lru_cache(_GROUP_IDS_KEPT)
def message_group_id(group_number: int) -> str:
    """Return the message group id of a group."""
    return f"g{group_number:06d}"


def group_number(message_group_id: str) -> int:
    """Return the group of a message group id."""
    return int(message_group_id.removeprefix("g"))


@dataclass(frozen=True)
class Plan:
    """All publishes of one run; for a profile with a trace, `trace_file` is the file with the recorded arrivals."""

    profile: Profile
    seed: int
    trace_file: Path | None = None

    def __post_init__(self) -> None:
        assert (self.profile.replay is None) == (self.trace_file is None), (
            "a plan has a trace file exactly if its profile replays a trace"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickle only the fields: the cached properties are large, and a task computes its own quickly.
        return Plan, (self.profile, self.seed, self.trace_file)

    @property
    def row_count(self) -> int:
        """Return how many numbers `batch` is defined for: every message and every end marker."""
        return self.profile.message_count + self.profile.group_count

    @cached_property
    def arrivals(self) -> Arrivals | None:
        """Return the recorded arrivals that the plan replays; None if the plan draws its messages."""
        return None if self.trace_file is None else trace.read(self.trace_file)[0]

    def batch(self, numbers: Any) -> pa.RecordBatch:
        """Return the publishes of many messages and end markers at once.

        Numbers are those of the messages, then of the end markers, from 0 and less than `row_count`: a numpy array, or
        an Arrow array of int64 without nulls.

        Returns:
            `SCHEMA`: one row per publish; the messages, then their repeats, then the end markers, each as in `numbers`.
        """
        numbers = np.asarray(numbers, dtype=np.int64)
        is_message = numbers < self.profile.message_count
        messages, ends = numbers[is_message], numbers[~is_message] - self.profile.message_count
        if not len(ends):
            columns = self._messages(messages)
        elif not len(messages):
            columns = self._end_markers(ends)
        else:
            both = zip(self._messages(messages), self._end_markers(ends), strict=True)
            columns = tuple(np.concatenate(pair) for pair in both)
        arrays = [as_arrow(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)

    def _messages(self, idx: Any) -> tuple[Any, ...]:
        drawn = idx.astype(np.uint64)
        groups = self._groups(idx, drawn)
        offsets = self._offsets_us(idx)
        tasks = self._group_shape.tasks[groups]
        attempts = np.ones(len(idx), np.int32)
        again, after_us = self._repeats(idx, drawn)
        if not len(again):
            return idx, attempts, groups, offsets, tasks
        return (
            np.concatenate((idx, idx[again])),
            np.concatenate((attempts, np.full(len(again), 2, np.int32))),
            np.concatenate((groups, groups[again])),
            np.concatenate((offsets, offsets[again] + after_us)),
            np.concatenate((tasks, tasks[again])),
        )

    def _groups(self, idx: Any, drawn: Any) -> Any:
        if (arrivals := self.arrivals) is not None:
            return arrivals.group_rank[self._arrival_index(idx, arrivals)]
        shares, draws = self._group_shape.cumulated, uniform(self.seed, drawn, _GROUP)
        return np.minimum(np.searchsorted(shares, draws, side="right"), len(shares) - 1).astype(np.int32)

    def _arrival_index(self, idx: Any, arrivals: Arrivals) -> Any:
        """Return the index of the recorded arrival of each message.

        The warm-up replays the last arrivals, before the first.
        """
        return (idx - self.profile.warm_up_count) % len(arrivals)

    def _repeats(self, idx: Any, drawn: Any) -> tuple[Any, Any]:
        """Return the positions of the messages that are published again, and how much later.

        Never those of the warm-up.
        """
        early, late = self.profile.duplicate_share, self.profile.late_duplicate_share
        if not early and not late:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        draw = uniform(self.seed, drawn, _REPEAT)
        again = np.flatnonzero((draw < early + late) & (idx >= self.profile.warm_up_count))
        early_us = round(self.profile.duplicate_after_seconds * 1e6)
        late_us = round((self.profile.late_duplicate_after_seconds or 0) * 1e6)
        return again, np.where(draw[again] < early, early_us, late_us)

    def _end_markers(self, groups: Any) -> tuple[Any, ...]:
        seconds = self.profile.end_markers_after_seconds + groups / self.profile.end_markers_per_second
        return (
            -1 - groups,
            np.ones(len(groups), np.int32),
            groups.astype(np.int32),
            np.rint(seconds * 1e6).astype(np.int64),
            self._group_shape.tasks[groups],
        )

    def _offsets_us(self, idx: Any) -> Any:
        warm_up_count = self.profile.warm_up_count
        is_measured = idx >= warm_up_count
        if not warm_up_count or is_measured.all():
            return self._measured_us(idx - warm_up_count)
        early_us = np.rint(idx * 1e6 / self.profile.first_per_second).astype(np.int64)
        early_us = np.minimum(
            early_us - round(self.profile.warm_up_seconds * 1e6), -1
        )  # a negative time marks a message of the warm-up
        return np.where(is_measured, self._measured_us(np.maximum(idx - warm_up_count, 0)), early_us)

    def _measured_us(self, numbers: Any) -> Any:
        if self.profile.replay is None or (arrivals := self.arrivals) is None:
            return _due_us(self.profile.steps, numbers)
        return arrivals.offsets_us(self.profile.replay.speed)[numbers]

    @cached_property
    def _group_shape(self) -> "_Shape":
        if self.arrivals is not None:
            return _shape_of(self.arrivals.group_counts.astype(np.float64), self.profile.publish_tasks)
        return _shape(self.profile.group_count, self.profile.group_skew, self.profile.publish_tasks)

    @cached_property
    def _first_failing(self) -> float:
        """Return the first idx that may fail, that of the load proper; infinity if the profile lets no message fail."""
        fails = self.profile.poison_share or self.profile.failure_share or self.profile.crash_share
        return self.profile.warm_up_count if fails else math.inf

    def _outcome_draws(self, idx: int) -> float:
        """Return the random number that decides on a message's failure.

        For a message that never fails, one that decides on none.
        """
        return uniform(self.seed, idx, _OUTCOME_DRAW) if idx >= self._first_failing else 1.0

    def is_poison(self, idx: int) -> bool:
        """Return whether a message fails at every receive. End markers and warm-up messages never fail."""
        return self._outcome_draws(idx) < self.profile.poison_share

    def fails_first(self, idx: int) -> bool:
        """Return whether a message is released at its first receive, and succeeds later."""
        poison = self.profile.poison_share
        return poison <= self._outcome_draws(idx) < poison + self.profile.failure_share

    def crashes_first(self, idx: int) -> bool:
        """Return whether the consumer of a message's first receive is to act as if it had crashed."""
        failing = self.profile.poison_share + self.profile.failure_share
        return failing <= self._outcome_draws(idx) < failing + self.profile.crash_share

    @cached_property
    def _pool(self) -> str:
        """Return random text, of which each payload is a piece."""
        size = _POOL_STARTS + self.profile.payload_bytes
        return base64.urlsafe_b64encode(hashlib.shake_128(f"{self.seed}".encode()).digest(size)).decode()

    def payloads(self, idx: Any) -> list[str]:
        """Return the payloads of messages: of letters, digits, `-` and `_`, which no encoding has to escape."""
        starts = idx * _POOL_STRIDE % _POOL_STARTS
        sizes = self.profile.payload_bytes
        if (arrivals := self.arrivals) is not None:
            sizes = trace.payload_bytes(arrivals.body_bytes[self._arrival_index(idx, arrivals)])
        ends = starts + np.where(idx < 0, 0, sizes)
        pool = self._pool
        return [pool[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]

    def body_template(self, run: str) -> BodyTemplate:
        """Return the frame of the bodies.

        `body_values` returns the values for it, among them each message's identity.
        """
        return BodyTemplate(f'{{"run":{json.dumps(run)},"group":"', '","idx":', ',"end":', ',"payload":"', '"}')

    def body_values(self, idx: Any, group_ids: Sequence[str], idx_texts: Sequence[str]) -> BodyValues:
        """Return the values of the bodies of planned messages.

        `idx` is a numpy array, `idx_texts` the same as texts.
        """
        ends = ["true" if is_end else "false" for is_end in (idx < 0).tolist()]
        return group_ids, idx_texts, ends, self.payloads(idx)


def silence_seconds(profile: Profile) -> float:
    """Return the longest time without a due message, from the start of the load to the first end marker.

    For a trace it is the trace's longest pause. Otherwise the rate is linear within a phase, so the longest gaps are
    beside the beginnings and ends of phases.
    """
    if profile.replay is not None:
        after_seconds = profile.end_markers_after_seconds - profile.duration_seconds
        return max(profile.replay.silence_seconds / profile.replay.speed, after_seconds)
    begun = np.floor(np.cumsum([0, *(step.message_count for step in profile.steps)])).astype(np.int64)
    near = np.unique(begun[:, None] + np.arange(-2, 3))
    numbers = near[(near >= 0) & (near < profile.measured_count)]
    seconds = _due_us(profile.steps, numbers) / 1e6
    gaps = np.diff(seconds)[np.diff(numbers) == 1]
    return float(max([seconds[0], *gaps, profile.end_markers_after_seconds - seconds[-1]]))


def as_arrow(column: Any, type_: pa.DataType) -> pa.Array:
    """Return a numpy column as an Arrow array without a copy; `pa.array` would import pandas first."""
    assert column.dtype.itemsize * 8 == type_.bit_width, "columns are computed as what they are sent as"
    return pa.Array.from_buffers(type_, len(column), [None, pa.py_buffer(column)])


@dataclass(frozen=True, slots=True)
class _Shape:
    """The groups' shares of messages and tasks: `cumulated` shares by group, and the (first) task of each."""

    cumulated: Any
    tasks: Any


@lru_cache(maxsize=4)
def _shape(group_count: int, skew: float, task_count: int) -> _Shape:
    """Return the shape of Zipf shares, cached in the process, because each task gets a copy of the plan without it."""
    weights = np.arange(1, group_count + 1, dtype=np.float64) ** -skew
    return _shape_of(weights, task_count)


def _shape_of(weights: Any, task_count: int) -> _Shape:
    shares = weights / weights.sum()
    return _Shape(np.cumsum(shares), np.array(_assign_tasks(shares.tolist(), task_count), np.int32))


def _assign_tasks(shares: list[float], task_count: int) -> list[int]:
    """Return the task of each share: the heaviest share first, each to the task with the smallest sum so far."""
    if task_count == 1:
        return [0] * len(shares)
    loads = [(0.0, task) for task in range(task_count)]
    tasks = []
    for share in shares:
        load, task = loads[0]
        tasks.append(task)
        heapq.heapreplace(loads, (load + share, task))
    return tasks


def _due_us(steps: tuple[Phase, ...], number: Any) -> Any:
    """Return when the integral of the rate reaches each number, in microseconds."""
    rates = np.array([step.messages_per_second for step in steps])
    seconds = np.array([step.duration_seconds for step in steps])
    slopes = np.array([(step.end_per_second - step.messages_per_second) / step.duration_seconds for step in steps])
    ended = np.cumsum([step.message_count for step in steps])
    step = np.minimum(np.searchsorted(ended, number, side="right"), len(steps) - 1)
    into = number - np.concatenate(([0.0], ended[:-1]))[step]
    rate = rates[step]
    # The usual formula with a difference in its numerator loses all its digits for a slope near 0; this one does not.
    root = rate + np.sqrt(np.maximum(rate * rate + 2 * slopes[step] * into, 0))
    within = np.divide(2 * into, root, out=np.zeros_like(into), where=root > 0)
    return np.rint((np.concatenate(([0.0], np.cumsum(seconds)[:-1]))[step] + within) * 1e6).astype(np.int64)
