"""The meaning of a numbered message to a consumer that is somewhere in its group: pure, without a database.

A producer's numbers are 1, 2, 3 … in each group and epoch, so a consumer can tell a repeat from news and see a hole,
also in front of the first message it sees. Where it has been is one row per group; numbers that did not simply come and
pass have a row of their own (`NumberRecord`).
"""

from dataclasses import dataclass
from enum import StrEnum

from sluice.messaging.inbox.tables import DEAD, GAP, SKIPPED


class State(StrEnum):
    """The state of a message, by its number."""

    CONTIGUOUS = "contiguous"
    DUPLICATE = "duplicate"
    LATE = "late"
    GAP = "gap"
    FILLED = "filled"
    SKIPPED = "skipped"


class Action(StrEnum):
    """The action on a message: hand it to the handler, drop it, set it aside, refuse it, or let it die on."""

    HANDLE = "handle"
    DROP = "drop"
    PARK = "park"
    REJECT = "reject"
    RELEASE_TO_DLQ = "release_to_dlq"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A message as the sequence sees it.

    Args:
        epoch: when its group began to count, seconds since 1970; or a count of epochs, from 1.
        sqs_message_id: a redriven copy has another one, or a lower receive count.
        first: the first number of its group in the epoch.
    """

    epoch: int
    seq: int
    event_id: str
    sqs_message_id: str
    receive_count: int
    first: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The position of a consumer in a group.

    Args:
        epoch: of the numbers; 0 before the first message.
        first_seq: the baseline, the first number of the epoch that is expected here.
        last_seq: everything from the baseline up to here is accounted for.
        last_event_id: the event that had that number; None when it was skipped or died.
        awaits_seq: the number a parked group waits for.
        is_parked: whether later numbers are set aside.
    """

    epoch: int
    first_seq: int
    last_seq: int
    last_event_id: str | None = None
    awaits_seq: int | None = None
    is_parked: bool = False

    @property
    def is_awaiting(self) -> bool:
        """Return whether the number it was parked for has still not come."""
        return self.is_parked and self.awaits_seq is not None and self.last_seq < self.awaits_seq


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberRecord:
    """The record of a number.

    Args:
        state: gap, filled, dead, redriven or skipped.
        sqs_message_id: of the message that died.
        receive_count: when it died.
        is_refused: whether it died because of its number, which is not missing for that.
    """

    state: str
    sqs_message_id: str | None = None
    receive_count: int | None = None
    is_refused: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about a message: its state, and what is done with it."""

    state: State
    action: Action
    reason: str = ""


def baseline(arrival: Arrival, *, joined_at_us: int | None, forgotten_before_us: int | None) -> int:
    """Return the first number that is expected of an epoch whose first message is here.

    That is the first the producer gave, so what did not come before this message is missing. It is the message's own
    number where the consumer cannot have seen the beginning: the group is older than the consumer, or so old that the
    inbox may have forgotten it.

    Args:
        arrival: the first message of the epoch that came.
        joined_at_us: when the consumer joined; None is before everything.
        forgotten_before_us: groups nothing came for since then may be forgotten; None where none is. Both are
            microseconds UTC.
    """
    began_us = arrival.epoch * 1_000_000  # a count of epochs is not an instant, and before every one
    is_older = joined_at_us is not None and began_us < joined_at_us
    may_be_forgotten = forgotten_before_us is not None and began_us < forgotten_before_us
    return arrival.seq if is_older or may_be_forgotten else arrival.first


def decide(position: Position, known: NumberRecord | None, arrival: Arrival, *, parks_gaps: bool) -> Decision:
    """Return what an arriving message is and what is to be done with it.

    Args:
        position: where the consumer is in the message's group; in front of the epoch's baseline where the epoch begins
            here.
        known: what is written down about its number; needs to be looked up only where `needs_known` says so.
        arrival: the message.
        parks_gaps: set aside what comes behind a missing number, instead of handling it.
    """
    if known is not None and _is_dying(known, arrival):
        return Decision(State.LATE, Action.RELEASE_TO_DLQ)
    if known is not None and not known.is_refused:
        return _decide_known(position, known, arrival)
    if (arrival.epoch, arrival.seq) <= (position.epoch, position.last_seq):
        return _decide_old(position, arrival)
    # the group is parked, and the last of its epoch may be set aside: it comes first
    if arrival.epoch > position.epoch:
        return Decision(State.GAP, Action.PARK)
    if arrival.seq > position.last_seq + 1:
        return Decision(State.GAP, Action.PARK if position.is_parked or parks_gaps else Action.HANDLE)
    return Decision(State.CONTIGUOUS, Action.HANDLE)


def needs_known(position: Position, arrival: Arrival) -> bool:
    """Return whether something may be written down about the number of a message."""
    return (
        position.is_parked
        or arrival.epoch < position.epoch
        or (arrival.epoch == position.epoch and arrival.seq <= position.last_seq)
    )


def _is_dying(known: NumberRecord, arrival: Arrival) -> bool:
    """Return whether it is the copy that died, on its way to the DLQ."""
    is_same = known.state == DEAD and known.sqs_message_id == arrival.sqs_message_id
    return is_same and known.receive_count is not None and arrival.receive_count > known.receive_count


def _decide_known(position: Position, known: NumberRecord, arrival: Arrival) -> Decision:
    if known.state == DEAD:
        is_next = (arrival.epoch, arrival.seq) == (position.epoch, position.last_seq + 1)
        return Decision(State.CONTIGUOUS if is_next else State.LATE, Action.HANDLE)
    if known.state == GAP:
        return Decision(State.FILLED, Action.HANDLE)
    return Decision(State.SKIPPED if known.state == SKIPPED else State.DUPLICATE, Action.DROP)


def _decide_old(position: Position, arrival: Arrival) -> Decision:
    if arrival.epoch < position.epoch:
        return Decision(State.LATE, Action.REJECT, f"is of epoch {arrival.epoch}, and epoch {position.epoch} has begun")
    if arrival.seq < position.first_seq:  # a replay, a backfill, a redrive: news, since what came of it would be known
        return Decision(State.FILLED, Action.HANDLE)
    if arrival.seq == position.last_seq and position.last_event_id not in (None, arrival.event_id):
        reason = f"has the number of event {position.last_event_id}; was the database restored without begin-epoch?"
        return Decision(State.LATE, Action.REJECT, reason)
    return Decision(State.DUPLICATE, Action.DROP)
