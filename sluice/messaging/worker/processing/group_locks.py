"""At most one thread of a process works on a group at a time.

The queue already ensures that, except if a lease was lost: then the message is delivered again while its first handler
still runs.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sluice.messaging.waiting import Wait
from sluice.messaging.worker.processing.message_lease import MessageLease
from sluice.terminal.logger import Logger

_log = Logger()


class GroupLocks:
    """Keeps the groups that are worked on, each with the lease of its message."""

    def __init__(self) -> None:
        self._left = threading.Condition()
        self._active: dict[str, MessageLease] = {}

    @contextmanager
    def alone(self, group_id: str, lease: MessageLease, wait: Wait) -> Iterator[bool]:
        """Yield whether this thread alone works on the group.

        An earlier handler of the group is made to give up, and waited for as long as the message is ours. Releasing the
        message instead would use up one of its attempts, and then one of each message behind it.
        """
        with self._left:
            if group_id in self._active and not self._active[group_id].is_done:
                self._active[group_id].lose("its group was received again")
                _log.warning("its group's last handler still runs, and is waited for")
            while group_id in self._active and lease.remaining_seconds() > 0 and not wait.is_stopped():
                self._left.wait(timeout=min(1.0, lease.remaining_seconds()))
            is_alone = group_id not in self._active
            if is_alone:
                self._active[group_id] = lease
        try:
            yield is_alone
        finally:
            with self._left:
                if is_alone:
                    del self._active[group_id]
                    self._left.notify_all()
