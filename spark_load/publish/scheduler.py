"""What a publisher has to send, group by group: a group's next message waits for the answer to the one before.

Pure bookkeeping: no clock, no calls. Who empties it decides when.
"""

import heapq
from collections import deque
from collections.abc import Iterable, Sequence

from spark_load.publish.transport import Message


class GroupScheduler:
    """The messages that are due; those of group g go to address g modulo their number.

    If `is_batched`, a call may hold several messages of one group. It never holds one message twice.
    """

    def __init__(self, *, address_count: int, is_batched: bool) -> None:
        self._address_count, self._is_batched = address_count, is_batched
        self._groups: dict[int, deque[Message]] = {}  # with a message waiting, resting or on its way
        self._ready: list[list[tuple[int, int]]] = [[] for _ in range(address_count)]  # heaps: intended instant, group
        self._resting: list[tuple[float, int]] = []
        self._abandoned: set[int] = set()
        self.waiting_count = 0

    def add(self, due: Iterable[Message]) -> int:
        """Put messages behind those of their groups; return how many were not, because their group was abandoned."""
        refused = 0
        for message in due:
            group = message.group_number
            if group in self._abandoned:
                refused += 1
                continue
            self.waiting_count += 1
            if group in self._groups:
                self._groups[group].append(message)
            else:
                self._groups[group] = deque((message,))
                self._make_ready(group)
        return refused

    def _make_ready(self, group: int) -> None:
        """Let the group's first message go, before what was to go later: what is overdue waits for nothing else."""
        heapq.heappush(self._ready[group % self._address_count], (self._groups[group][0].intended_at_us, group))

    @property
    def is_empty(self) -> bool:
        """Return whether nothing waits, rests or is on its way."""
        return not self._groups

    def ready_count(self, queue_index: int) -> int:
        """Return of how many groups a message may go now."""
        return len(self._ready[queue_index])

    def head_us(self, queue_index: int) -> int | None:
        """Return the intended instant of the message that would go first; None when none may."""
        ready = self._ready[queue_index]
        return ready[0][0] if ready else None

    def take(self, queue_index: int, room: int) -> list[Message]:
        """Take the messages of one call, at most `room`. Their groups wait until they are settled."""
        taken: list[Message] = []
        ready = self._ready[queue_index]
        while ready and len(taken) < room:
            waiting = self._groups[heapq.heappop(ready)[1]]
            taken.append(waiting.popleft())
            if self._is_batched:
                seen = {taken[-1].idx}
                while waiting and len(taken) < room and waiting[0].idx not in seen:
                    seen.add(waiting[0].idx)
                    taken.append(waiting.popleft())
        self.waiting_count -= len(taken)
        return taken

    def settle(self, groups: Iterable[int]) -> None:
        """Let go on with groups all of whose messages on their way were acknowledged."""
        for group in groups:
            if self._groups[group]:
                self._make_ready(group)
            else:
                del self._groups[group]

    def put_back(self, group: int, messages: Sequence[Message], *, until: float) -> None:
        """Put messages of a group before what waits there; nothing of it goes until that instant."""
        self._groups[group].extendleft(reversed(messages))
        self.waiting_count += len(messages)
        heapq.heappush(self._resting, (until, group))

    def wake(self, now: float) -> None:
        """Let go on with the groups that have rested."""
        while self._resting and self._resting[0][0] <= now:
            _, group = heapq.heappop(self._resting)
            self._make_ready(group)

    @property
    def wakes_at(self) -> float | None:
        """Return when the next group has rested; None when none rests."""
        return self._resting[0][0] if self._resting else None

    def abandon(self, group: int) -> int:
        """Give a group up, for good; return how many messages waited behind those on their way."""
        self._abandoned.add(group)
        behind = len(self._groups.pop(group))
        self.waiting_count -= behind
        return behind
