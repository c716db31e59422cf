"""The plan: a pure function of (profile, seed, idx). Any task computes its own part of it, and computes it again alike.

A message's group, payload and repeat follow from hashes of (seed, idx), its time from idx alone, so nothing depends on
how Spark cuts the work up. End markers come after everything, one for each group, with idx -1 - (number of the group).
"""

import bisect
import hashlib
import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from sluice.history import Identity, deduplication_id, make_body
from spark_load.profile import Profile

_END_MARKERS_AFTER_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One publish.

    Args:
        idx: of the message; negative for an end marker.
        publish_attempt: 1, or 2 for the intended repeat.
        group_number: of its message group.
        offset_us: when, in microseconds from the start of the run.
        task: which publish task does it.
    """

    idx: int
    publish_attempt: int
    group_number: int
    offset_us: int
    task: int


def message_group_id(group_number: int) -> str:
    """Return the message group id of a group."""
    return f"g{group_number:06d}"


@dataclass(frozen=True)
class Plan:
    """All publishes of one run."""

    profile: Profile
    seed: int

    def _uniform(self, idx: int, purpose: str) -> float:
        digest = hashlib.blake2b(f"{self.seed}.{idx}.{purpose}".encode(), digest_size=8).digest()
        return int.from_bytes(digest) / 2**64

    @cached_property
    def _shares(self) -> list[float]:
        """Return each group's share of the messages; Zipf."""
        weights = [(rank + 1) ** -self.profile.group_skew for rank in range(self.profile.group_count)]
        total = sum(weights)
        return [weight / total for weight in weights]

    @cached_property
    def _cumulated(self) -> list[float]:
        return list(itertools.accumulate(self._shares))

    @cached_property
    def _tasks(self) -> list[int]:
        """Return the publish task of each group: the heaviest first, each to the task with the least so far."""
        loads = [(0.0, task) for task in range(self.profile.publish_tasks)]
        tasks = []
        for share in self._shares:
            load, task = heapq.heappop(loads)
            tasks.append(task)
            heapq.heappush(loads, (load + share, task))
        return tasks

    @property
    def row_count(self) -> int:
        """Return how many numbers `rows` is defined for: every message and every end marker."""
        return self.profile.message_count + self.profile.group_count

    def rows(self, number: int) -> Iterator[Planned]:
        """Yield the publishes of the number-th message or end marker, 0 <= number < row_count."""
        if number >= self.profile.message_count:
            yield self._end_marker(number - self.profile.message_count)
            return
        group = min(bisect.bisect_right(self._cumulated, self._uniform(number, "group")), self.profile.group_count - 1)
        offset_us = round(number * 1_000_000 / self.profile.messages_per_second)
        task = self._tasks[group]
        yield Planned(idx=number, publish_attempt=1, group_number=group, offset_us=offset_us, task=task)
        if self._uniform(number, "repeat") < self.profile.duplicate_share:
            again_us = offset_us + round(self.profile.duplicate_after_seconds * 1_000_000)
            yield Planned(idx=number, publish_attempt=2, group_number=group, offset_us=again_us, task=task)

    def _end_marker(self, group: int) -> Planned:
        after = self.profile.duration_seconds + self.profile.duplicate_after_seconds + _END_MARKERS_AFTER_SECONDS
        offset_us = round(after * 1_000_000)
        return Planned(
            idx=-1 - group, publish_attempt=1, group_number=group, offset_us=offset_us, task=self._tasks[group]
        )

    def identity(self, planned: Planned, run: str) -> Identity:
        """Return the identity of a planned message in a run."""
        return Identity(run=run, message_group_id=message_group_id(planned.group_number), idx=planned.idx)

    def body(self, planned: Planned, run: str) -> str:
        """Return the body of a planned message: identity, and random text that follows from (seed, idx)."""
        payload = ""
        if planned.idx >= 0:
            size = self.profile.payload_bytes
            payload = hashlib.shake_128(f"{self.seed}.{planned.idx}".encode()).hexdigest((size + 1) // 2)[:size]
        return make_body(self.identity(planned, run), is_end=planned.idx < 0, payload=payload)

    def deduplication_id(self, planned: Planned, run: str) -> str:
        """Return the deduplication id: the same for a message and its repeat."""
        return deduplication_id(self.identity(planned, run))
