"""What SQS takes out of a queue by itself: what is older than the queue keeps it, and what is purged.

AWS: a message is gone when its retention ends, in flight or not, and its group goes on (VIS-16, VIS-17); retention
counts anew in the DLQ of a FIFO queue (DLQ-08) and after a move task (MOV-18). A purge takes up to 60 seconds, removes
what is in flight too, and may remove what is sent meanwhile (PUR-02, PUR-04). It forgets deduplication ids (DED-14).
"""

from collections.abc import Iterable

from sluice import limits
from sluice.history.events import Event, Outcome
from sluice.judge.checker.clocks import NEVER_US
from sluice.judge.checker.group import Group, invoked, responded


def removed_from_us(group: Group, queue: str, publishes: Iterable[Event]) -> int:
    """Return the earliest instant at which what was published may have been taken out of a queue; never, if it was not.

    The instant is by any clock of the group, as far as it is known how far these are apart.
    """
    sent_us = [invoked(attempt) for attempt in publishes if attempt.outcome != Outcome.FAIL]
    return removed_after_us(group, queue, min(sent_us)) if sent_us else NEVER_US


def removed_after_us(group: Group, queue: str, arrived_us: int) -> int:
    """Return the same for what came into the queue no earlier than at an instant."""
    bound_us = group.widest_us if group.widest_us < NEVER_US else 0
    around_us = group.around_bound_us if group.around_bound_us < NEVER_US else 0
    kept_us = group.expectation.retention_seconds.get(queue, limits.MESSAGE_RETENTION_SECONDS) * 1_000_000
    purged_us = [
        max(purge.began_at_us - around_us, arrived_us - bound_us)
        for purge in group.around.purges
        if purge.queue == queue and arrived_us <= purge.ended_at_us + around_us
    ]
    return min([arrived_us + kept_us - bound_us, *purged_us])


def may_be_removed(group: Group, queue: str, idx: int) -> bool:
    """Return whether a message may have been taken out of a queue before its group was received there last."""
    if not group.may_be_kept_no_longer:
        return False
    received = group.received.get(queue, [])
    removed_us = removed_from_us(group, queue, group.publishes.get(idx, ()))
    return any(removed_us <= responded(event) for event in received[-1:])
