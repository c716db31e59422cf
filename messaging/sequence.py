"""What a numbered message means to a consumer that is somewhere in its group: pure, without a database.

A producer's numbers are 1, 2, 3 … in each group and epoch, so a consumer can tell a repeat from news and see a hole.
Where it has been is one row per group; numbers that did not simply come and pass have a row of their own (`Known`).
"""

from dataclasses import dataclass
from enum import StrEnum

from messaging.inbox_tables import DEAD, GAP, SKIPPED


class State(StrEnum):
    """What a message is, by its number."""

    CONTIGUOUS = "contiguous"
    DUPLICATE = "duplicate"
    LATE = "late"
    GAP = "gap"
    FILLED = "filled"
    SKIPPED = "skipped"


class Action(StrEnum):
    """What is done with it: hand it to the handler, drop it, set it aside, refuse it, or let it die on."""

    HANDLE = "handle"
    DROP = "drop"
    PARK = "park"
    REJECT = "reject"
    BURN = "burn"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A message as the sequence sees it.

    Args:
        sqs_message_id: a redriven copy has another one, or a lower receive count.
        receive_count: how often it was received.
    """

    epoch: int
    seq: int
    event_id: str
    sqs_message_id: str
    receive_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """How far a consumer is in a group.

    Args:
        epoch: of the numbers; 0 before the first message.
        first_seq: number of the first message it saw in that epoch.
        last_seq: everything up to here is accounted for.
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
class Known:
    """What is written down about a number.

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
    """What a message is, and what is done with it."""

    state: State
    action: Action
    reason: str = ""


def decide(at: Position, known: Known | None, arrival: Arrival, *, parks_gaps: bool) -> Decision:
    """Return what an arriving message is and what is to be done with it.

    Args:
        at: where the consumer is in the message's group.
        known: what is written down about its number; needs to be looked up only where `needs_known` says so.
        arrival: the message.
        parks_gaps: set aside what comes behind a missing number, instead of handling it.
    """
    if known is not None and _is_dying(known, arrival):
        return Decision(State.LATE, Action.BURN)
    if known is not None and not known.is_refused:
        return _decide_known(at, known, arrival)
    if (arrival.epoch, arrival.seq) <= (at.epoch, at.last_seq):
        return _decide_old(at, arrival)
    if arrival.epoch == at.epoch and arrival.seq > at.last_seq + 1:
        return Decision(State.GAP, Action.PARK if at.is_parked or parks_gaps else Action.HANDLE)
    # The last of an epoch may be set aside when the next one begins: it comes first.
    if arrival.epoch > at.epoch and at.is_parked:
        return Decision(State.GAP, Action.PARK)
    return Decision(State.CONTIGUOUS, Action.HANDLE)


def needs_known(at: Position, arrival: Arrival) -> bool:
    """Return whether something may be written down about the number of a message."""
    return at.is_parked or arrival.epoch < at.epoch or (arrival.epoch == at.epoch and arrival.seq <= at.last_seq)


def _is_dying(known: Known, arrival: Arrival) -> bool:
    """Return whether it is the copy that died, on its way to the DLQ."""
    is_same = known.state == DEAD and known.sqs_message_id == arrival.sqs_message_id
    return is_same and known.receive_count is not None and arrival.receive_count > known.receive_count


def _decide_known(at: Position, known: Known, arrival: Arrival) -> Decision:
    if known.state == DEAD:
        is_next = (arrival.epoch, arrival.seq) == (at.epoch, at.last_seq + 1)
        return Decision(State.CONTIGUOUS if is_next else State.LATE, Action.HANDLE)
    if known.state == GAP:
        return Decision(State.FILLED, Action.HANDLE)
    return Decision(State.SKIPPED if known.state == SKIPPED else State.DUPLICATE, Action.DROP)


def _decide_old(at: Position, arrival: Arrival) -> Decision:
    if arrival.epoch < at.epoch:
        return Decision(State.LATE, Action.REJECT, f"is of epoch {arrival.epoch}, and epoch {at.epoch} has begun")
    if arrival.seq < at.first_seq:
        said = f"comes before {at.first_seq}, the first of its group that was seen here"
        return Decision(State.LATE, Action.REJECT, said)
    if arrival.seq == at.last_seq and at.last_event_id not in (None, arrival.event_id):
        said = f"has the number of event {at.last_event_id}; was the producer's database restored without begin-epoch?"
        return Decision(State.LATE, Action.REJECT, said)
    return Decision(State.DUPLICATE, Action.DROP)
