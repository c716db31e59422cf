"""A consumer decides about a message by its number and the record of that number: every case."""

from typing import Any

import pytest

from sluice.messaging.inbox.sequence import (
    Action,
    Arrival,
    Decision,
    NumberRecord,
    Position,
    State,
    baseline,
    decide,
    needs_known,
)

BEGINS = Position(epoch=2, first_seq=1, last_seq=0)
BEGINS_AT_900 = Position(epoch=2, first_seq=900, last_seq=899)
EXPECTS_5 = Position(epoch=2, first_seq=3, last_seq=5, last_event_id="e5")
DEAD_5 = Position(epoch=2, first_seq=3, last_seq=5, last_event_id=None)
PARKED = Position(epoch=2, first_seq=3, last_seq=5, last_event_id="e5", awaits_seq=6, is_parked=True)
DRAINING = Position(epoch=2, first_seq=3, last_seq=6, last_event_id="e6", awaits_seq=6, is_parked=True)

NEXT = Decision(State.CONTIGUOUS, Action.HANDLE)
DUPLICATE = Decision(State.DUPLICATE, Action.DROP)
PARK = Decision(State.GAP, Action.PARK)
LATE = Decision(State.LATE, Action.HANDLE)
FILLED = Decision(State.FILLED, Action.HANDLE)
DYING = Decision(State.LATE, Action.RELEASE_TO_DLQ)


def arrival(
    seq: int, *, epoch: int = 2, event_id: str | None = None, copy: str = "m", count: int = 1, first: int = 1
) -> Arrival:
    """Return a message that arrives with this number."""
    event_id = f"e{seq}" if event_id is None else event_id
    return Arrival(epoch=epoch, seq=seq, event_id=event_id, sqs_message_id=copy, receive_count=count, first=first)


def refusal(reason: str) -> Decision:
    """Return the decision to reject a message for this reason."""
    return Decision(State.LATE, Action.REJECT, reason)


@pytest.mark.parametrize(
    ("position", "arrival", "expected"),
    [
        (BEGINS, arrival(1), NEXT),
        (BEGINS, arrival(2), Decision(State.GAP, Action.HANDLE)),
        (BEGINS_AT_900, arrival(900), NEXT),
        (EXPECTS_5, arrival(6), NEXT),
        (EXPECTS_5, arrival(5), DUPLICATE),
        (EXPECTS_5, arrival(4), DUPLICATE),
        (EXPECTS_5, arrival(3), DUPLICATE),
        (EXPECTS_5, arrival(4, event_id="another"), DUPLICATE),
        (DEAD_5, arrival(5, event_id="another"), DUPLICATE),
        (EXPECTS_5, arrival(2), FILLED),
        (PARKED, arrival(2), FILLED),
        (
            EXPECTS_5,
            arrival(5, event_id="another"),
            refusal("has the number of event e5; was the database restored without begin-epoch?"),
        ),
        (EXPECTS_5, arrival(900, epoch=1), refusal("is of epoch 1, and epoch 2 has begun")),
        (PARKED, arrival(6), NEXT),
        (PARKED, arrival(7), PARK),
        (PARKED, arrival(1, epoch=3), PARK),
        (PARKED, arrival(5), DUPLICATE),
        (DRAINING, arrival(7), NEXT),
        (DRAINING, arrival(8), PARK),
        (DRAINING, arrival(1, epoch=3), PARK),
    ],
)
def test_a_number_without_a_record_is_decided_by_its_position(
    position: Position, arrival: Arrival, expected: Decision
) -> None:
    """W17, G1, G3: the next number is handled, an old one is dropped or refused; a parked group accepts one only."""
    assert decide(position, None, arrival, parks_gaps=False) == expected


@pytest.mark.parametrize(
    ("position", "parks_gaps", "action"),
    [
        (EXPECTS_5, False, Action.HANDLE),
        (EXPECTS_5, True, Action.PARK),
        (PARKED, False, Action.PARK),
        (BEGINS, False, Action.HANDLE),
        (BEGINS, True, Action.PARK),
    ],
)
def test_a_message_behind_a_missing_number_is_handled_or_parked(
    position: Position, *, parks_gaps: bool, action: Action
) -> None:
    """Numbers 6 and 7 are missing. A policy parks at gaps, and a group that is parked already stays parked."""
    assert decide(position, None, arrival(8), parks_gaps=parks_gaps) == Decision(State.GAP, action)


_NOW_US = 1_763_839_800_000_000  # 2025-11-22
_DAY_US = 86_400_000_000
_TODAY = _NOW_US // 1_000_000 - 60


@pytest.mark.parametrize(
    ("arrival", "given", "first"),
    [
        (arrival(1, epoch=_TODAY), {}, 1),
        (arrival(41, epoch=_TODAY), {}, 1),
        (arrival(41, epoch=1), {}, 1),
        (arrival(41, epoch=_TODAY, first=40), {}, 40),
        (arrival(41, epoch=_TODAY), {"joined_at_us": _NOW_US}, 41),
        (arrival(41, epoch=1), {"joined_at_us": _NOW_US}, 41),
        (arrival(41, epoch=_TODAY), {"joined_at_us": _NOW_US - _DAY_US}, 1),
        (arrival(41, epoch=_TODAY), {"forgotten_before_us": _NOW_US - _DAY_US}, 1),
        (arrival(41, epoch=_TODAY - 86_400), {"forgotten_before_us": _NOW_US - _DAY_US}, 41),
        (arrival(41, epoch=1), {"forgotten_before_us": _NOW_US - _DAY_US}, 41),
    ],
    ids=[
        "the first",
        "a later one",
        "a later one of a producer that counts epochs",
        "a later one after a restore",
        "older than the consumer",
        "of a producer that counts epochs, and the consumer joined late",
        "younger than the consumer",
        "younger than what was forgotten",
        "so old that it may be forgotten",
        "no telling how old, and something was forgotten",
    ],
)
def test_g3_the_first_message_of_a_group_sets_the_expected_numbers(
    arrival: Arrival, given: dict[str, Any], first: int
) -> None:
    """Number 41 comes first: were 1 to 40 lost, or are they older than the consumer or than what its inbox remembers?

    Epochs are seconds, except of producers that count them from 1.
    """
    assert baseline(arrival, **({"joined_at_us": None, "forgotten_before_us": None} | given)) == first


@pytest.mark.parametrize(
    ("known", "arrival", "expected"),
    [
        (NumberRecord(state="gap"), arrival(4), Decision(State.FILLED, Action.HANDLE)),
        (NumberRecord(state="filled"), arrival(4), DUPLICATE),
        (NumberRecord(state="redriven"), arrival(4), DUPLICATE),
        (NumberRecord(state="skipped"), arrival(4), Decision(State.SKIPPED, Action.DROP)),
        (NumberRecord(state="skipped"), arrival(4, event_id="another", copy="n"), Decision(State.SKIPPED, Action.DROP)),
    ],
)
def test_a_number_with_a_record_is_decided_by_the_record(
    known: NumberRecord, arrival: Arrival, expected: Decision
) -> None:
    """G4, G5: a missing number is handled once, a skipped one never."""
    assert decide(EXPECTS_5, known, arrival, parks_gaps=False) == expected


DIED = NumberRecord(state="dead", sqs_message_id="m", receive_count=2)


@pytest.mark.parametrize(
    ("arrival", "expected"),
    [
        (arrival(4, count=3), DYING),
        (arrival(4, count=2), LATE),
        (arrival(4, count=1), LATE),
        (arrival(4, copy="another", count=9), LATE),
    ],
    ids=["on its way to the DLQ", "the same receive", "brought back by SQS", "brought back by a client"],
)
def test_d13_a_dead_message_is_released_and_its_copy_handled(arrival: Arrival, expected: Decision) -> None:
    """Its further receives are left to SQS, which moves it; a copy that was brought back is handled."""
    assert decide(EXPECTS_5, DIED, arrival, parks_gaps=False) == expected


REFUSED = NumberRecord(state="dead", sqs_message_id="m", receive_count=2, is_refused=True)


@pytest.mark.parametrize(
    ("arrival", "expected"),
    [
        (arrival(2, count=3), DYING),
        (arrival(2, copy="another"), FILLED),
        (arrival(4, copy="another"), DUPLICATE),
    ],
    ids=["on its way to the DLQ", "brought back, from before the baseline", "of a number that has come"],
)
def test_d13_a_message_that_died_of_its_number_is_judged_anew(arrival: Arrival, expected: Decision) -> None:
    """Its number never counted as missing; an older version refused numbers before the first message."""
    assert decide(EXPECTS_5, REFUSED, arrival, parks_gaps=False) == expected


def test_d13_a_dead_message_of_a_parked_group_is_its_next() -> None:
    """Its redriven copy is the number for which the group waits."""
    assert decide(PARKED, DIED, arrival(6, copy="another"), parks_gaps=False) == NEXT


@pytest.mark.parametrize(
    ("position", "arrival", "needed"),
    [
        (BEGINS, arrival(1), False),
        (EXPECTS_5, arrival(2), True),
        (EXPECTS_5, arrival(6), False),
        (EXPECTS_5, arrival(8), False),
        (EXPECTS_5, arrival(5), True),
        (EXPECTS_5, arrival(9, epoch=1), True),
        (PARKED, arrival(6), True),
        (PARKED, arrival(1, epoch=3), True),
    ],
)
def test_a_record_is_looked_up_only_for_numbers_that_may_have_one(
    position: Position, arrival: Arrival, *, needed: bool
) -> None:
    """The common case, the next number, costs no query."""
    assert needs_known(position, arrival) == needed


@pytest.mark.parametrize(("position", "awaits"), [(EXPECTS_5, False), (PARKED, True), (DRAINING, False)])
def test_a_parked_group_waits_until_its_number_has_arrived(position: Position, *, awaits: bool) -> None:
    """Then the group is drained, and waits for nothing."""
    assert position.is_awaiting == awaits
