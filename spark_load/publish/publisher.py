"""One publish task: it sends each message at its planned time, whether or not earlier answers are late.

A group has at most one message in flight: of two in a call the first could fail and the second succeed, which would
reorder them. A failed call is repeated with the same deduplication ids while SNS remembers them. After that its groups
are abandoned, because their later messages would overtake it.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sluice import limits
from sluice.clock import Clock
from sluice.error_codes import is_throttled
from spark_load.plan.plan import MEASURE, WARM_UP, Plan, message_group_id
from spark_load.publish.bodies import bodies, message_keys
from spark_load.publish.pacing import PublishPace, RetryPolicy
from spark_load.publish.scheduler import GroupScheduler
from spark_load.publish.transport import OutgoingMessages, Transport, TransportAnswer, TransportCall
from spark_load.runtime.coordinator import RunCoordinator, RunStep, TaskProgress

_LOOK_AHEAD = 20_000  # messages that wait in the scheduler; no more are read from the plan
_ADMITTED_MAX = 2_000  # messages that become due in one round, so that answers are read in between
_WAIT_SECONDS_MAX = 0.2  # between two looks at whether the driver has stopped the run
_MEASURE_WAIT_SECONDS = 7_200
_NEVER_US = 2**62
_COLUMNS = ("idx", "publish_attempt", "group_number", "offset_us")


class LoadPublisher:
    """Publishes one task's share to the topic's ARN, or to the queues' URLs in the plan's order."""

    def __init__(
        self,
        plan: Plan,
        *,
        run: str,
        addresses: list[str],
        transport: Transport,
        coordinator: RunCoordinator,
        clock: Clock,
        name: str,
        event_bytes_max: int,
        sent_before: Mapping[tuple[int, int], int] | None = None,
    ) -> None:
        self._plan, self._run, self._addresses, self._transport = plan, run, addresses, transport
        self._coordinator, self._clock = coordinator, clock
        profile = plan.profile
        bundle_max = min(profile.bundle_events_max, max(1, event_bytes_max // profile.largest_bytes))
        self._scheduler = GroupScheduler(
            group_count=profile.group_count,
            address_count=len(addresses),
            bundle_max=bundle_max,
            sent_before=sent_before,
        )
        self._retry_policy = RetryPolicy(self._uniform)
        self._progress = TaskProgress(worker=name, role="publish")
        self._room = min(limits.PUBLISH_BATCH_ENTRIES_MAX, event_bytes_max // (profile.largest_bytes * bundle_max))
        self._linger_us = round(profile.publish_linger_seconds * 1_000_000)
        self._on_their_way: dict[TransportCall, list[int]] = {}  # the rows of the scheduler, by call
        self._calls_at: Counter[str] = Counter()  # calls in flight, by address
        self._bodies = bodies(plan, run)

    def _uniform(self, key: str) -> float:
        digest = hashlib.blake2b(f"{self._plan.seed}.{self._progress.worker}.{key}".encode(), digest_size=8).digest()
        return int.from_bytes(digest) / 2**64

    def publish(self, rows: Iterator[pa.RecordBatch]) -> TaskProgress:
        """Publish every row of the plan at its time, or until it is told to stop; return the task's progress.

        Rows come by offset, ascending, columns as in `plan.SCHEMA`; negative offsets are the warm-up.
        """
        self._coordinator.report(self._progress, now=True)
        upcoming = _PlanCursor(rows)
        start_us = self._coordinator.wait_for(RunStep.START)
        if self._plan.profile.warm_up_count:
            before_us = round(self._plan.profile.warm_up_seconds * 1_000_000)
            self._publish_phase(upcoming, start_us + before_us, until_us=0)
            self._coordinator.report(self._progress, now=True)
            start_us = self._coordinator.wait_for(RunStep.MEASURE, _MEASURE_WAIT_SECONDS)
        self._publish_phase(upcoming, start_us, until_us=None)
        self._coordinator.report(self._progress, now=True)
        return self._progress

    def unsent(self, rows: pa.RecordBatch, not_again: pa.Array) -> pa.RecordBatch:
        """Return rows of the plan without the messages, by their keys, that an earlier process of this task published.

        The removed messages still get their numbers, so that later messages of their groups count on.
        """
        groups = rows.column("group_number").to_numpy()
        numbers = pa.array(self._bodies.numbers(rows.column("idx").to_numpy(), groups), pa.int64())
        group_ids = pa.array(map(message_group_id, groups.tolist()), pa.string())
        keys = message_keys(numbers, group_ids, has_envelopes=self._plan.profile.has_services)
        return rows.filter(pc.invert(pc.is_in(keys, not_again)))

    def _publish_phase(self, upcoming: "_PlanCursor", base_us: int, *, until_us: int | None) -> None:
        """Publish the rows before `until_us` along the plan; the plan's instant 0 is `base_us`, microseconds UTC."""
        now_us = self._clock.now_us() - base_us
        first_us = min(now_us, upcoming.offset_us)
        pace = PublishPace(ratio=self._plan.profile.catch_up_ratio, start_us=first_us, now_us=now_us)
        is_blocked = False
        while not self._is_over(upcoming, until_us) and not self._coordinator.is_stopped():
            now_us = self._clock.now_us() - base_us
            due_us = pace.until_us(now_us, is_blocked=is_blocked)
            room = min(_ADMITTED_MAX, _LOOK_AHEAD - self._scheduler.waiting_count)
            for rows in upcoming.take(due_us if until_us is None else min(due_us, until_us - 1), room):
                self._progress.abandoned += self._scheduler.add(self._scheduler_columns(rows, base_us))
            self._scheduler.wake(self._clock.monotonic())
            self._send(base_us + now_us, MEASURE if until_us is None else WARM_UP)
            is_blocked = self._is_blocked()
            self._process_answers(self._wait(upcoming, pace, base_us, until_us))
            self._coordinator.report(self._progress)

    def _is_over(self, upcoming: "_PlanCursor", until_us: int | None) -> bool:
        return self._scheduler.is_empty and not upcoming.is_before(until_us)

    def _scheduler_columns(self, rows: pa.RecordBatch, base_us: int) -> dict[str, Any]:
        """Return rows of the plan in the columns that the scheduler takes."""
        idx, attempts, groups, offsets = (rows.column(name).to_numpy() for name in _COLUMNS)
        return {
            "planned_idx": idx,
            "idx": self._bodies.numbers(idx, groups),
            "publish_attempt": attempts,
            "group_number": groups,
            "intended_at_us": base_us + offsets,
        }

    def _send(self, now_us: int, phase: str) -> None:
        """Send full calls, and calls whose first message has waited long enough, as far as the transport has room."""
        taken: list[tuple[str, list[int]]] = []
        room = self._transport.room
        for queue_index, address in enumerate(self._addresses):
            while len(taken) < room and self._is_due(queue_index, now_us):
                taken.append((address, self._scheduler.take(queue_index, self._room)))
                self._calls_at[address] += 1
        if taken:
            messages = self._messages([row for _, rows in taken for row in rows], phase)
            ends = accumulate(len(rows) for _, rows in taken)
            sent = {
                TransportCall(address, messages, end - len(rows), end): rows
                for (address, rows), end in zip(taken, ends, strict=True)
            }
            self._on_their_way |= sent
            self._transport.send(list(sent))

    def _messages(self, rows: Sequence[int], phase: str) -> OutgoingMessages:
        """Return the messages of the scheduler's rows, made column by column, because there are many."""
        planned_idx, idx, attempts, groups, intended_us = self._scheduler.columns(rows).values()
        idx_texts = list(map(str, planned_idx.tolist()))
        group_ids = list(map(message_group_id, groups.tolist()))
        return OutgoingMessages(
            idx=idx,
            publish_attempt=attempts,
            intended_at_us=intended_us,
            message_group_ids=group_ids,
            deduplication_ids=list(map(f"{self._run}.".__add__, idx_texts)),
            phase=phase,
            template=self._bodies.template,
            values=self._bodies.values(planned_idx, group_ids, idx_texts, idx),
        )

    def _is_blocked(self) -> bool:
        """Return whether no message can be sent, although the transport has as many calls in flight as it may have."""
        ready_count = sum(self._scheduler.ready_count(queue_index) for queue_index in range(len(self._addresses)))
        return self._transport.room == 0 and ready_count >= len(self._on_their_way) * self._room

    def _is_due(self, queue_index: int, now_us: int) -> bool:
        """Return whether a call is to be made: a full one, or one whose first message has waited long enough."""
        if self._scheduler.ready_count(queue_index) >= self._room:
            return True
        head_us = self._scheduler.head_us(queue_index)
        return head_us is not None and not self._is_filling(queue_index) and now_us - head_us >= self._linger_us

    def _is_filling(self, queue_index: int) -> bool:
        """Return whether a partial call waits for the previous answer of its address.

        With linger, at most one partial call per address is in flight. On a machine that is too slow for the rate,
        calls would otherwise be many and small, and make it slower yet.
        """
        return self._linger_us > 0 and self._calls_at[self._addresses[queue_index]] > 0

    def _wait(
        self, upcoming: "_PlanCursor", pace: PublishPace, base_us: int, until_us: int | None
    ) -> Sequence[TransportAnswer]:
        """Wait for answers, or until the next message is due; return the answers."""
        now_us = self._clock.now_us() - base_us
        waits = [_WAIT_SECONDS_MAX]
        if self._transport.room:
            open_ = (queue_index for queue_index in range(len(self._addresses)) if not self._is_filling(queue_index))
            heads = (self._scheduler.head_us(queue_index) for queue_index in open_)
            waits += [
                (head_us - base_us + self._linger_us - now_us) / 1_000_000 for head_us in heads if head_us is not None
            ]
            if upcoming.is_before(until_us) and self._scheduler.waiting_count < _LOOK_AHEAD:
                waits.append(pace.seconds_to(upcoming.offset_us, now_us))
            if self._scheduler.wakes_at is not None:
                waits.append(self._scheduler.wakes_at - self._clock.monotonic())
        wait = (
            max(0, math.ceil(min(waits) * 1_000_000)) / 1_000_000
        )  # rounded up: a wait that ends too early would be repeated without end
        if self._on_their_way:
            return self._transport.answers(wait)
        self._clock.sleep(wait)
        return ()

    def _process_answers(self, answers: Sequence[TransportAnswer]) -> None:
        """Let the groups of acknowledged messages continue, and schedule retries of the others."""
        settled: list[int] = []
        partly: list[tuple[list[int], Mapping[int, str]]] = []
        for call, errors in answers:
            self._calls_at[call.address] -= 1
            rows = self._on_their_way.pop(call)
            if errors:
                partly.append((rows, errors))
            else:
                settled += rows
        self._settle(settled)
        for rows, errors in partly:
            self._process_partial_failure(rows, errors)

    def _settle(self, rows: list[int]) -> None:
        """Count acknowledged messages, and let their groups continue."""
        if rows:
            self._progress.done += len(rows)
            self._retry_policy.forget_failures(self._scheduler.groups(rows))
            self._scheduler.settle(rows)

    def _process_partial_failure(self, rows: list[int], errors: Mapping[int, str]) -> None:
        """Let the groups continue whose message was accepted; retry the failed ones later, a bundle as a whole."""
        groups = self._scheduler.groups(rows)
        failed = {groups[position]: code for position, code in errors.items()}
        self._settle([row for row, group in zip(rows, groups, strict=True) if group not in failed])
        for group, code in failed.items():
            self._handle_failure(rows[groups.index(group)], code)

    def _handle_failure(self, row: int, code: str) -> None:
        """Schedule the retry of a failed message, or abandon its group if it is too late."""
        if is_throttled(code):
            self._progress.throttled += 1
        else:
            self._progress.failed += 1
        (group,) = self._scheduler.groups([row])
        now = self._clock.monotonic()
        rest_seconds = self._retry_policy.rest_seconds(group, code, now)
        if rest_seconds is None:
            self._progress.abandoned += 1 + self._scheduler.abandon(row)
        else:
            self._scheduler.put_back(row, until=now + rest_seconds)


class _PlanCursor:
    """The rows of the plan that are not due yet, in the order of their time."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._index = self._end = 0
        self._open()

    def _open(self) -> None:
        while self._index == self._end and (batch := next(self._batches, None)) is not None:
            self._rows, self._offsets = batch, batch.column("offset_us").to_numpy()
            self._index, self._end = 0, len(batch)
        self._next_us = int(self._offsets[self._index]) if self._index < self._end else _NEVER_US

    @property
    def offset_us(self) -> int:
        """Return the offset of the next row; far in the future if none is left."""
        return self._next_us

    def is_before(self, until_us: int | None) -> bool:
        """Return whether a row is left that is due before an instant."""
        return self._next_us < (_NEVER_US if until_us is None else until_us)

    def take(self, until_us: float, room: int) -> Iterator[pa.RecordBatch]:
        """Remove and return the rows that are due by an instant, at most `room` of them."""
        while room > 0 and self._next_us <= until_us:
            looked = self._offsets[self._index : self._index + room]
            count = int(np.searchsorted(looked, until_us, side="right"))
            yield self._rows.slice(self._index, count)
            room -= count
            self._index += count
            self._open()
