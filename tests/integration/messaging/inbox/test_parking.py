"""A parked group sets its messages aside, waits as long as declared, and takes them up again in order."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, delete, insert, select, update

from sluice.messaging.inbox.sequence import Decision, State
from sluice.messaging.inbox.tables import exceptions, groups, parked
from tests.support.messaging.inbox_harness import (
    DROP,
    HANDLE,
    PARK,
    START_US,
    GroupNumbers,
    InboxHarness,
    decoded_message,
)

_WAIT_SECONDS = 100


@pytest.fixture
def parking(engine: Engine) -> InboxHarness:
    """Return an inbox that parks every message behind a dead or a missing one."""
    return InboxHarness(engine, parks_poison=True, parks_gaps=True)


@pytest.fixture
def waiting(engine: Engine) -> InboxHarness:
    """Return an inbox that waits a while for a missing number, and goes on without a dead one."""
    return InboxHarness(engine, parks_gaps=True, gap_wait_us=_WAIT_SECONDS * 1_000_000)


def test_d2_a_parked_group_is_handled_in_order_after_the_redrive(parking: InboxHarness) -> None:
    """2 dies; 3, 5 and 4 are parked. After the redrive of 2 they are drained as 3, 4, 5."""
    assert parking.bring(1) == [HANDLE]
    assert parking.record_dead(2)
    assert parking.bring(3, 5, 4) == [PARK, PARK, PARK]
    assert parking.waits_for() == 2
    assert parking.drain() == []
    assert parking.set_aside_numbers() == [3, 4, 5]

    assert parking.decide(2, copy="-redriven") == Decision(State.CONTIGUOUS, HANDLE)
    assert parking.drain() == [3, 4, 5]

    assert parking.numbers() == GroupNumbers(epoch=1, first=1, last=5)
    assert parking.is_parked() is False
    assert parking.set_aside_numbers() == []
    assert parking.number_records() == ["2 redriven, closed"]
    assert parking.bring(6) == [HANDLE]


def test_d9_live_traffic_goes_to_the_end_while_a_group_is_drained(parking: InboxHarness) -> None:
    """A message that is received again is handled if its number is the next one, even while it is parked."""
    parking.record_dead(1)
    parking.bring(2, 3)
    parking.bring(1, copy="-redriven")

    assert parking.bring(4) == [PARK]
    message = parking.take()
    assert message is not None
    assert message.envelope.seq == 2
    assert parking.bring(5, 3, 2) == [PARK, HANDLE, DROP]

    assert parking.drain() == [4, 5]
    assert not parking.is_parked()


def test_a_group_whose_first_message_dies_is_parked_until_it_is_back(parking: InboxHarness) -> None:
    """Message 2 waits for the redriven message 1."""
    assert parking.record_dead(1)
    assert parking.bring(2) == [PARK]
    assert parking.waits_for() == 1

    assert parking.bring(1, copy="-redriven") == [HANDLE]
    assert parking.drain() == [2]
    assert parking.numbers() == GroupNumbers(epoch=1, first=1, last=2)


def test_a_late_consumer_waits_for_its_first_message_that_died(engine: Engine) -> None:
    """The consumer joined at number 7, which died."""
    late = InboxHarness(engine, parks_poison=True, parks_gaps=True, joined_at_us=START_US)
    assert late.record_dead(7)
    assert late.bring(8) == [PARK]
    assert late.waits_for() == 7
    assert late.drain() == []

    assert late.bring(7, copy="-redriven") == [HANDLE]
    assert late.drain() == [8]
    assert late.numbers() == GroupNumbers(epoch=1, first=7, last=8)


def test_a_group_without_parked_messages_is_unparked_too(parking: InboxHarness) -> None:
    """Its dead message came back before any other message of the group."""
    parking.record_dead(1)
    parking.bring(1, copy="-redriven")
    assert parking.is_parked()

    assert parking.drain() == []

    assert not parking.is_parked()
    assert parking.inbox.due(parking.engine) == []


def test_a_group_stays_parked_until_its_last_message_is_committed(parking: InboxHarness) -> None:
    """A drainer has taken message 2, and has not committed it."""
    parking.record_dead(1)
    parking.bring(2)
    parking.bring(1, copy="-redriven")

    assert parking.peek() is not None

    assert parking.is_parked() is True
    assert parking.set_aside_numbers() == [2]
    assert parking.numbers() == GroupNumbers(epoch=1, first=1, last=1)
    assert parking.drain() == [2]
    assert not parking.is_parked()


def test_a_second_death_parks_the_group_again(parking: InboxHarness) -> None:
    """First the redriven message 1 dies again, and then 2."""
    parking.record_dead(1)
    parking.bring(3)
    assert parking.record_dead(1, copy="-redriven")
    assert parking.waits_for() == 1
    parking.bring(1, copy="-redriven-again")

    assert parking.record_dead(2)

    assert parking.waits_for() == 2
    assert parking.drain() == []
    parking.bring(2, copy="-redriven")
    assert parking.drain() == [3]


def test_a_message_that_dies_in_a_group_parked_meanwhile_is_set_aside(parking: InboxHarness) -> None:
    """The dead message has to wait for its turn.

    It is parked and tried again then, and no message of the group is lost.
    """
    parking.bring(1)
    parking.record_dead(2)

    assert not parking.record_dead(3)

    assert parking.waits_for() == 2
    assert parking.set_aside_numbers() == [3]
    assert parking.number_records() == ["2 dead, open"]


def test_a_missing_number_is_waited_for_exactly_the_declared_time(waiting: InboxHarness) -> None:
    """One microsecond before its end nothing is drained; then 4 is handled, and 2 and 3 are recorded as a gap."""
    assert waiting.bring(1, 4) == [HANDLE, PARK]
    waiting.clock.sleep(_WAIT_SECONDS - 0.000_001)
    assert waiting.drain() == []
    assert waiting.waits_for() == 2

    waiting.clock.sleep(0.000_001)

    assert waiting.drain() == [4]
    assert waiting.number_records() == ["2-3 gap, open"]
    assert waiting.is_parked() is False
    assert waiting.decide(3) == Decision(State.FILLED, HANDLE)


def test_each_missing_number_has_a_wait_of_its_own(waiting: InboxHarness) -> None:
    """The wait for 2 does not begin anew when 5 comes; the wait for 4 begins when 3 is handled."""
    waiting.bring(1, 3)
    waiting.clock.sleep(_WAIT_SECONDS - 1)
    waiting.bring(5)
    waiting.clock.sleep(1)

    assert waiting.drain() == [3]
    assert waiting.waits_for() == 4

    waiting.clock.sleep(_WAIT_SECONDS - 1)
    assert waiting.drain() == []
    waiting.clock.sleep(1)
    assert waiting.drain() == [5]
    assert waiting.number_records() == ["2 gap, open", "4 gap, open"]


def test_a_missing_number_that_comes_in_time_leaves_no_record(waiting: InboxHarness) -> None:
    """Number 2 comes while 3 still waits for it, so no gap was ever recorded."""
    waiting.bring(1, 3)

    assert waiting.bring(2) == [HANDLE]
    assert waiting.drain() == [3]
    assert waiting.number_records() == []
    assert waiting.is_parked() is False


def test_halt_waits_until_the_missing_number_is_skipped(engine: Engine) -> None:
    """The policy HALT has no end of the wait: an operator gives number 2 up."""
    harness = InboxHarness(engine, parks_gaps=True)
    harness.bring(1, 3)
    harness.clock.sleep(10_000_000)
    assert harness.drain() == []

    harness.skip(2)

    assert harness.drain() == [3]
    assert harness.number_records() == ["2 skipped, closed"]
    assert harness.bring(2) == [DROP]


def test_a_dead_message_is_waited_for_without_end(engine: Engine) -> None:
    """The declared wait is for missing numbers only."""
    harness = InboxHarness(engine, parks_poison=True, parks_gaps=True, gap_wait_us=1_000_000)
    harness.bring(1, 3)
    assert harness.record_dead(2)
    harness.clock.sleep(10_000)

    assert harness.drain() == []
    assert harness.waits_for() == 2


def test_a_hole_behind_a_redriven_message_waits_though_the_drainer_died(engine: Engine) -> None:
    """A drainer dies between two messages of a group, before it records which number is missing next.

    The wait for that number begins even so.
    """
    harness = InboxHarness(engine, parks_poison=True, parks_gaps=True, gap_wait_us=1_000_000)
    harness.record_dead(1)
    harness.bring(2, 4)
    harness.bring(1, copy="-redriven")
    assert harness.take() is not None

    assert harness.drain() == []
    assert harness.waits_for() == 3
    harness.clock.sleep(1)
    assert harness.drain() == [4]


def test_a_drainer_passes_numbers_that_were_skipped_in_advance(parking: InboxHarness) -> None:
    """3 and 4 were given up, so 5 follows 2."""
    parking.record_dead(1)
    parking.bring(2, 5)
    parking.skip(3)
    parking.skip(4)
    assert parking.drain() == []

    parking.bring(1, copy="-redriven")

    assert parking.drain() == [2, 5]
    assert parking.is_parked() is False
    assert parking.numbers() == GroupNumbers(epoch=1, first=1, last=5)


def test_a_skip_of_a_held_message_continues_the_group(parking: InboxHarness) -> None:
    """Held means: its attempts are used up, and it blocks its group."""
    parking.record_dead(1)
    parking.bring(2, 3)
    parking.bring(1, copy="-redriven")
    parking.hold()

    parking.skip(2)

    assert parking.drain() == [3]
    assert parking.bring(2) == [DROP]


def test_a_skipped_message_is_not_handled_when_the_wait_before_it_ends(waiting: InboxHarness) -> None:
    """No message is parked behind the missing number.

    The end of the wait gives up all numbers up to the last known one.
    """
    waiting.bring(1, 3)
    waiting.skip(3)
    waiting.clock.sleep(_WAIT_SECONDS)

    assert waiting.drain() == []

    assert waiting.is_parked() is False
    assert waiting.numbers() == GroupNumbers(epoch=1, first=1, last=3)
    assert waiting.number_records() == ["2 gap, open", "3 skipped, closed"]
    assert waiting.bring(3, 4) == [DROP, HANDLE]


def test_a_parked_message_is_set_aside_once_however_often_it_comes(parking: InboxHarness) -> None:
    """W7: the message was parked, and its worker died before the delete."""
    parking.record_dead(1)

    assert parking.bring(2, 2, 2) == [PARK, PARK, PARK]
    assert parking.set_aside_numbers() == [2]


def test_a_held_message_holds_its_group_until_an_operator_acts(parking: InboxHarness) -> None:
    """No time and no drainer frees it; `retry` does."""
    parking.record_dead(1)
    parking.bring(2, 3)
    parking.bring(1, copy="-redriven")
    parking.hold()
    parking.clock.sleep(100_000)

    assert parking.inbox.due(parking.engine) == []
    assert parking.inbox.counts(parking.engine) == {
        "parked_groups": 1,
        "parked_messages": 2,
        "held_messages": 1,
        "open_exceptions": 0,
        "redrive_off": 0,
        "paused": 0,
    }

    with parking.engine.begin() as connection:
        parking.operator.retry(connection, "a", 2)
    assert parking.drain() == [2, 3]


def test_a_failed_message_is_tried_again_after_its_delay(parking: InboxHarness) -> None:
    """5 s later its second attempt begins."""
    parking.record_dead(1)
    parking.bring(2, 3)
    parking.bring(1, copy="-redriven")
    parking.hold(is_held=False, delay_us=5_000_000)

    assert parking.drain() == []
    parking.clock.sleep(5)
    assert parking.begin()
    message = parking.take()
    assert message is not None
    assert message.envelope.seq == 2
    assert message.attempts == 2


def test_a_message_that_kills_whoever_tries_it_is_held_in_the_end(parking: InboxHarness) -> None:
    """An attempt counts from its beginning, unless its worker takes it back; the group waits for an operator."""
    parking.record_dead(1)
    parking.bring(2)
    parking.bring(1, copy="-redriven")

    assert parking.begin(attempts_max=2)
    message = parking.peek()
    assert message is not None
    with parking.engine.begin() as connection:
        parking.inbox.cancel_attempt(connection, message)
    begun = []
    for _ in range(3):
        begun.append(parking.begin(attempts_max=2))
        assert not parking.begin(attempts_max=2), "two have begun one attempt"
        parking.clock.sleep(3)
    assert begun == [True, True, False]

    assert parking.inbox.counts(parking.engine)["held_messages"] == 1
    assert parking.inbox.due(parking.engine) == []


def test_a_second_drainers_failure_does_not_free_a_held_message(parking: InboxHarness) -> None:
    """Two drainers may have tried one message: the record of the first one stays."""
    parking.record_dead(1)
    parking.bring(2)
    parking.bring(1, copy="-redriven")
    message = parking.peek()
    assert message is not None

    with parking.engine.begin() as connection:
        parking.fail(connection, message, is_held=True)
    with parking.engine.begin() as connection:
        parking.fail(connection, message, is_held=False)

    assert parking.inbox.counts(parking.engine)["held_messages"] == 1


def test_a_new_epoch_comes_behind_deferred_messages_of_the_old_epoch(parking: InboxHarness) -> None:
    """6 waits for the dead 5, so the messages of epoch 2 are parked behind it."""
    parking.bring(1, 2, 3, 4)
    parking.record_dead(5)
    parking.bring(6)
    assert parking.bring(1, epoch=2) == [PARK]
    parking.bring(5, copy="-redriven")

    assert parking.bring(2, epoch=2) == [PARK]

    assert parking.drain() == [6, 1, 2]
    assert parking.numbers() == GroupNumbers(epoch=2, first=1, last=2)
    assert parking.is_parked() is False


def test_a_new_epoch_behind_deferred_messages_waits_for_its_first_number(parking: InboxHarness) -> None:
    """Epoch 2 begins with 41, which has not come when 3, the last of epoch 1, is drained."""
    parking.bring(1, 3)
    assert parking.bring(42, 43, epoch=2, first=41) == [PARK, PARK]
    parking.bring(2)

    assert parking.drain() == [3]
    assert parking.numbers() == GroupNumbers(epoch=2, first=41, last=40)
    assert parking.waits_for() == 41
    assert parking.bring(41, epoch=2, first=41) == [HANDLE]
    assert parking.drain() == [42, 43]
    assert parking.numbers() == GroupNumbers(epoch=2, first=41, last=43)
    assert parking.is_parked() is False


def test_w5_an_unreadable_message_parks_its_group(parking: InboxHarness) -> None:
    """The number of an unreadable message is not known, so the group waits for its next number.

    A group that waits already is not changed.
    """
    parking.bring(1)
    with parking.engine.begin() as connection:
        parking.inbox.record_unreadable(connection, "a")
        parking.inbox.record_unreadable(connection, "of which nothing came")
    assert parking.bring(3) == [PARK]

    assert parking.bring(2) == [HANDLE]
    assert parking.drain() == [3]
    assert parking.numbers("of which nothing came") is None


def test_an_unreadable_message_prolongs_no_wait(engine: Engine) -> None:
    """Its record parks a group that is already parked; the wait for number 2 ends as before."""
    harness = InboxHarness(engine, parks_poison=True, parks_gaps=True, gap_wait_us=1_000_000)
    harness.bring(1, 3)
    with engine.begin() as connection:
        harness.inbox.record_unreadable(connection, "a")
    harness.clock.sleep(1)

    assert harness.drain() == [3]


def test_a_group_that_was_parked_is_drained_under_another_policy(parking: InboxHarness) -> None:
    """The new policy parks nothing: what is parked is drained, and the dead message 1 is late."""
    parking.record_dead(1)
    parking.bring(2, 4)
    changed = parking.under(parks_poison=False, parks_gaps=False)

    assert changed.bring(5) == [PARK]
    assert changed.drain() == [2, 4, 5]

    assert changed.is_parked() is False
    assert changed.bring(6) == [HANDLE]
    assert changed.number_records() == ["1 dead, open", "3 gap, open"]
    assert changed.decide(1, copy="-redriven") == Decision(State.LATE, HANDLE)


def test_a_waiting_group_takes_over_a_newly_declared_wait(engine: Engine) -> None:
    """The wait begins when a drainer first sees the new declaration, not when the number was first missing."""
    halting = InboxHarness(engine, parks_poison=True, parks_gaps=True)
    halting.bring(1, 3)
    halting.clock.sleep(3_600)
    waiting = halting.under(gap_wait_us=1_000_000)

    assert waiting.drain() == []
    waiting.clock.sleep(0.999_999)
    assert waiting.drain() == []
    waiting.clock.sleep(0.000_001)

    assert waiting.drain() == [3]
    assert waiting.number_records() == ["2 gap, open"]
    assert waiting.is_parked() is False


def test_every_wait_policy_waits_for_a_dead_message(engine: Engine) -> None:
    """A dead message is no missing number.

    The group waits for it whether it died before or after waiting was declared, and whether it could be read or not.
    """
    halting = InboxHarness(engine, parks_poison=True, parks_gaps=True)
    waiting = halting.under(gap_wait_us=1_000_000)
    for harness, group in ((halting, "a"), (waiting, "b"), (halting, "c"), (waiting, "d")):
        harness.bring(1, group=group)
    halting.record_dead(2, group="a")
    waiting.record_dead(2, group="b")
    with engine.begin() as connection:
        halting.inbox.record_unreadable(connection, "c")
        waiting.inbox.record_unreadable(connection, "d")
        connection.execute(
            update(groups).where(groups.c.group_id == "a").values(awaits_until_us=None)
        )  # as it was once

    for _ in range(3):
        waiting.clock.sleep(3_600)
        assert waiting.drain() == []
    assert [waiting.waits_for(group) for group in "abcd"] == [2, 2, 2, 2]


def test_a_waiting_group_halts_when_that_is_declared(engine: Engine) -> None:
    """The wait of a second, which had begun, has no end any more."""
    waiting = InboxHarness(engine, parks_poison=True, parks_gaps=True, gap_wait_us=1_000_000)
    waiting.bring(1, 3)
    halting = waiting.under(gap_wait_us=None)

    halting.clock.sleep(3_600)

    assert halting.drain() == []
    assert halting.waits_for() == 2


type _State = dict[str, int | None]
type _Rows = list[tuple[int, int, bool, int]]
# Any state of a group, even one that no sequence of events leads to.
_ROWS = st.lists(
    st.tuples(st.integers(1, 3), st.integers(1, 8), st.booleans(), st.sampled_from([0, 50])),
    max_size=4,
    unique_by=lambda row: row[:2],
)
_STATES = st.fixed_dictionaries(
    {
        "epoch": st.integers(1, 3),
        "last_seq": st.integers(0, 6),
        "awaits_seq": st.none() | st.integers(1, 8),
        "awaits_until_us": st.sampled_from([None, START_US - 1, START_US, START_US + 1]),
    }
)
_SKIPPED = st.sets(st.integers(1, 8), max_size=2)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    state=_STATES,
    rows=_ROWS,
    skipped=_SKIPPED,
    policy=st.sampled_from([{}, {"parks_gaps": True}, {"parks_gaps": True, "gap_wait_us": 1}]),
)
def test_a_group_is_due_exactly_if_taking_it_up_changes_something(
    in_memory: Engine, state: _State, rows: _Rows, skipped: set[int], policy: dict[str, Any]
) -> None:
    """A group that is due without need would be taken up again and again; one that is not due, never."""
    harness = InboxHarness(in_memory, **policy)
    _set(in_memory, state, rows, skipped)

    before = _all(in_memory)
    was_due = harness.inbox.due(in_memory) == ["a"]
    harness.begin()

    assert was_due == (_all(in_memory) != before)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    state=_STATES,
    rows=_ROWS,
    skipped=_SKIPPED,
    policy=st.sampled_from([{}, {"parks_gaps": True, "gap_wait_us": 1}]),
)
def test_time_alone_unparks_a_group_with_a_limited_wait(
    in_memory: Engine, state: _State, rows: _Rows, skipped: set[int], policy: dict[str, Any]
) -> None:
    """The group has a time until which it waits for a missing number, and none of its messages is held."""
    harness = InboxHarness(in_memory, **policy)
    until_us = START_US if state["awaits_until_us"] is None else state["awaits_until_us"]
    _set(in_memory, state | {"awaits_until_us": until_us}, [(*row[:2], False, row[3]) for row in rows], skipped)

    for _ in range(10):
        harness.clock.sleep(1)
        harness.drain()

    assert harness.is_parked() is False
    assert harness.set_aside_numbers() == []


def _set(engine: Engine, state: _State, rows: _Rows, skipped: set[int]) -> None:
    """Replace the inbox's rows by a parked group in this state, with these parked messages and skipped numbers."""
    with engine.begin() as connection:
        for table in (groups, parked, exceptions):
            connection.execute(delete(table))
        more = {"first_seq": 1, "parked_at_us": START_US, "updated_at_us": START_US}
        connection.execute(insert(groups).values(consumer="billing", group_id="a", **state, **more))
        for seq in skipped:
            known = {"state": "skipped", "seen_at_us": START_US, "closed_at_us": START_US}
            place = {"epoch": state["epoch"], "seq": seq, "through": seq}
            connection.execute(insert(exceptions).values(consumer="billing", group_id="a", **place, **known))
        for epoch, seq, is_held, delay_us in rows:
            message = decoded_message(seq, epoch=epoch)
            connection.execute(
                insert(parked).values(
                    consumer="billing",
                    group_id="a",
                    epoch=epoch,
                    seq=seq,
                    event_id=message.envelope.event.id,
                    body=message.body,
                    attributes="{}",
                    sqs_message_id=message.sqs_message_id,
                    not_before_us=START_US + delay_us,
                    held_at_us=START_US if is_held else None,
                    parked_at_us=START_US,
                )
            )


def _all(engine: Engine) -> list[Any]:
    """Return every row of the inbox, to see that nothing has changed."""
    with engine.connect() as connection:
        return [connection.execute(select(table)).all() for table in (groups, parked, exceptions)]
