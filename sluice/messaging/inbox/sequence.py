"""The meaning of a numbered message for a consumer at a position in its group: pure functions, without a database.

A producer's numbers are 1, 2, 3 … in each group and epoch, so a consumer can tell a repeat from a new message, and
notices a hole, even before the first message it receives. Its position is one row per group. A number that did not
arrive in order and get handled has a row of its own (`NumberRecord`).
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
    """The action on a message: hand it to the handler, drop it, park it, refuse it, or release it to the DLQ."""

    HANDLE = "handle"
    DROP = "drop"
    PARK = "park"
    REJECT = "reject"
    RELEASE_TO_DLQ = "release_to_dlq"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """The part of a message that decides about its number.

    Args:
        epoch: when its group began to count, seconds since 1970; or a count of epochs, from 1.
        sqs_message_id: the id in this queue; a redriven copy has another one, or a lower receive count.
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
        epoch: the epoch of the numbers; 0 before the first message.
        first_seq: the baseline, the first number of the epoch that this consumer expects.
        last_seq: every number from the baseline to this one is accounted for.
        last_event_id: the event with the number `last_seq`; None if that number was skipped or died.
        awaits_seq: the number that a parked group waits for.
        is_parked: whether later numbers are parked.
    """

    epoch: int
    first_seq: int
    last_seq: int
    last_event_id: str | None = None
    awaits_seq: int | None = None
    is_parked: bool = False

    @property
    def is_awaiting(self) -> bool:
        """Return whether the number that the group is parked for has still not arrived."""
        return self.is_parked and self.awaits_seq is not None and self.last_seq < self.awaits_seq


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberRecord:
    """The record of a number.

    Args:
        state: gap, filled, dead, redriven or skipped.
        sqs_message_id: the SQS message id of the dead message.
        receive_count: the receive count of the message when it died.
        is_refused: whether the message died because of its number; then the number does not count as missing.
    """

    state: str
    sqs_message_id: str | None = None
    receive_count: int | None = None
    is_refused: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about a message: its state, and the action on it."""

    state: State
    action: Action
    reason: str = ""


def baseline(arrival: Arrival, *, joined_at_us: int | None, forgotten_before_us: int | None) -> int:
    """Return the first number that the consumer expects in an epoch, given the first message of it that arrived.

    This is the first number that the producer gave, so the numbers before this message are missing. It is the message's
    own number if the consumer cannot have seen the beginning: the group is older than the consumer, or so old that the
    inbox may have deleted its row.

    Args:
        arrival: the first message of the epoch that arrived.
        joined_at_us: when the consumer joined, microseconds UTC; None means before every group began.
        forgotten_before_us: the rows of groups that received nothing since then may be deleted, microseconds UTC; None
            if no row is deleted.
    """
    began_us = arrival.epoch * 1_000_000  # a count of epochs is so small that it is before every joining
    is_older = joined_at_us is not None and began_us < joined_at_us
    may_be_forgotten = forgotten_before_us is not None and began_us < forgotten_before_us
    return arrival.seq if is_older or may_be_forgotten else arrival.first


def decide(position: Position, known: NumberRecord | None, arrival: Arrival, *, parks_gaps: bool) -> Decision:
    """Return the state of an arriving message and the action on it.

    Args:
        position: the consumer's position in the message's group; if the message begins an epoch, the position before
            the epoch's baseline.
        known: the record of its number; it has to be looked up only if `needs_known` returns True.
        arrival: the message.
        parks_gaps: whether messages behind a missing number are parked instead of handled.
    """
    if known is not None and _is_dying(known, arrival):
        return Decision(State.LATE, Action.RELEASE_TO_DLQ)
    if known is not None and not known.is_refused:
        return _decide_known(position, known, arrival)
    if (arrival.epoch, arrival.seq) <= (position.epoch, position.last_seq):
        return _decide_old(position, arrival)
    # the group is parked, and the last message of its epoch may be parked: that is handled first
    if arrival.epoch > position.epoch:
        return Decision(State.GAP, Action.PARK)
    if arrival.seq > position.last_seq + 1:
        return Decision(State.GAP, Action.PARK if position.is_parked or parks_gaps else Action.HANDLE)
    return Decision(State.CONTIGUOUS, Action.HANDLE)


def needs_known(position: Position, arrival: Arrival) -> bool:
    """Return whether there may be a record of a message's number."""
    return (
        position.is_parked
        or arrival.epoch < position.epoch
        or (arrival.epoch == position.epoch and arrival.seq <= position.last_seq)
    )


def _is_dying(known: NumberRecord, arrival: Arrival) -> bool:
    """Return whether this is the copy that was recorded as dead, on its way to the DLQ."""
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
    # a replay, a backfill or a redrive: it is new, because a handled number would have a record
    if arrival.seq < position.first_seq:
        return Decision(State.FILLED, Action.HANDLE)
    if arrival.seq == position.last_seq and position.last_event_id not in (None, arrival.event_id):
        reason = f"has the number of event {position.last_event_id}; was the database restored without begin-epoch?"
        return Decision(State.LATE, Action.REJECT, reason)
    return Decision(State.DUPLICATE, Action.DROP)
