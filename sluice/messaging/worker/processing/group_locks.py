"""One thread of a process works on a group at a time.

The queue sees to that as well, but for a lease that was lost: then its message comes again while its handler still
runs.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sluice.messaging.waiting import Wait
from sluice.messaging.worker.processing.message_lease import MessageLease
from sluice.terminal.logger import Logger

_log = Logger()


class GroupLocks:
    """Knows which groups are worked on, by the lease of each one's message."""

    def __init__(self) -> None:
        self._left = threading.Condition()
        self._active: dict[str, MessageLease] = {}

    @contextmanager
    def alone(self, group_id: str, lease: MessageLease, wait: Wait) -> Iterator[bool]:
        """Yield whether this is the only one; makes another give up, and waits for it while the message is ours.

        To give the message back would use up an attempt at it, and then at all that follow it.
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
