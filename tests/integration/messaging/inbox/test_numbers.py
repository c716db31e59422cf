"""The inbox decides by a message's number, and records numbers that are missing, dead or given up."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, select

from sluice.messaging.database import engines
from sluice.messaging.envelope import TOMBSTONE
from sluice.messaging.inbox import tables
from sluice.messaging.inbox.sequence import Decision, State
from sluice.messaging.inbox.tables import exceptions
from tests.support.messaging.inbox_harness import (
    DROP,
    HANDLE,
    PARK,
    REJECT,
    RELEASE_TO_DLQ,
    START_US,
    GroupNumbers,
    InboxHarness,
    decoded_message,
    handle_message,
)
from tests.support.messaging.outbox.postgres_interleaving import await_lock_wait


def test_messages_in_order_move_the_position_and_leave_no_exception(engine: Engine) -> None:
    """An exception is a record of a number that did not come in its order."""
    harness = InboxHarness(engine)

    assert [harness.decide(seq).state for seq in (1, 2, 3)] == [State.CONTIGUOUS] * 3
    assert harness.numbers() == GroupNumbers(epoch=1, first=1, last=3)
    assert harness.number_records() == []


def test_g3_a_new_group_whose_first_messages_are_lost_misses_them(engine: Engine) -> None:
    """Number 3 comes first: it is handled, and 1 and 2 are recorded as a gap, which they fill when they come."""
    harness = InboxHarness(engine)

    assert harness.decide(3) == Decision(State.GAP, HANDLE)
    assert harness.numbers() == GroupNumbers(epoch=1, first=1, last=3)
    assert harness.number_records() == ["1-2 gap, open"]

    assert harness.decide(1) == Decision(State.FILLED, HANDLE)
    assert harness.bring(1, 3) == [DROP, DROP]
    assert harness.number_records() == ["1 filled, closed", "2 gap, open"]


def test_g3_a_new_group_waits_for_its_first_message_if_gaps_park(engine: Engine) -> None:
    """Numbers 2 and 3 are parked until 1 comes."""
    harness = InboxHarness(engine, parks_gaps=True)

    assert harness.bring(2, 3) == [PARK, PARK]
    assert harness.numbers() == GroupNumbers(epoch=1, first=1, last=0)
    assert harness.waits_for() == 1
    assert harness.number_records() == []
    assert harness.drain() == []

    assert harness.decide(1) == Decision(State.CONTIGUOUS, HANDLE)
    assert harness.drain() == [2, 3]
    assert harness.numbers() == GroupNumbers(epoch=1, first=1, last=3)
    assert harness.is_parked() is False
    assert harness.number_records() == []


def test_g3_a_new_group_waits_for_its_first_when_its_second_dies(engine: Engine) -> None:
    """A message that fails behind a missing one is parked, and not dead."""
    harness = InboxHarness(engine, parks_poison=True, parks_gaps=True)

    assert harness.bring(3) == [PARK]
    assert not harness.record_dead(2), "it is set aside, not dead"
    assert harness.bring(1) == [HANDLE]
    assert harness.drain() == [2, 3]


def test_g3_a_late_joining_declared_afterwards_unparks_waiting_groups(engine: Engine) -> None:
    """The consumer never got the numbers before 41. A group that waits for a dead message still waits."""
    harness = InboxHarness(engine, parks_poison=True, parks_gaps=True)
    harness.bring(41, 42, group="old")
    harness.record_dead(1, group="dead")
    harness.bring(2, group="dead")

    declared = harness.under(joined_at_us=START_US)

    assert harness.drain() == []
    assert declared.drain() == [41, 42]
    assert declared.numbers("old") == GroupNumbers(epoch=1, first=41, last=42)
    assert declared.number_records("old") == []
    assert declared.is_parked("old") is False
    assert declared.waits_for("dead") == 1


@pytest.mark.parametrize("epoch", [START_US // 1_000_000, 1], ids=["instant", "count"])
def test_g3_a_possibly_forgotten_group_begins_with_its_next_message(engine: Engine, epoch: int) -> None:
    """The group is older than the last deletion of old groups, so the inbox may have forgotten it.

    For a younger unknown group an earlier number is missing.
    """
    harness = InboxHarness(engine, parks_gaps=True)
    harness.bring(1, 2, 3, epoch=epoch)
    harness.clock.sleep(100)
    with engine.begin() as connection:
        assert harness.inbox.forget(connection, keep_seconds=50) == 1

    assert harness.decide(4, epoch=epoch) == Decision(State.CONTIGUOUS, HANDLE)
    assert harness.decide(4, group="young", epoch=START_US // 1_000_000 + 60) == Decision(State.GAP, PARK)


def test_g3_a_late_consumer_waits_for_a_first_message_that_died(
    engine: Engine,
) -> None:
    """That message is the group's baseline from its second attempt on, so later messages wait for it."""
    late = InboxHarness(engine, parks_poison=True, parks_gaps=True, joined_at_us=START_US)
    with engine.begin() as connection:
        late.inbox.begin_group(connection, decoded_message(41, receive_count=2))

    assert late.bring(42) == [PARK]
    assert late.drain() == []
    assert late.bring(41, copy="-redriven") == [HANDLE]
    assert late.drain() == [42]


def test_g3_the_tail_of_an_epoch_is_missing_before_the_next(engine: Engine) -> None:
    """A restored producer remembers number 10, which never came: it is listed, and handled when it comes."""
    harness = InboxHarness(engine)
    harness.bring(8, 9, first=8)

    assert harness.decide(11, epoch=2, first=11) == Decision(State.CONTIGUOUS, HANDLE)

    assert harness.number_records() == ["10 gap, open"]
    assert harness.decide(10, first=8) == Decision(State.FILLED, HANDLE)
    assert harness.bring(10, first=8) == [DROP]


def test_w15_a_group_that_is_being_worked_on_is_not_forgotten(on_postgres: Engine) -> None:
    """Forgetting waits for the group's row and looks again; else the messages set aside behind it would be lost."""
    harness = InboxHarness(on_postgres, parks_gaps=True)
    harness.bring(1, 2)
    harness.clock.sleep(200)
    with ThreadPoolExecutor(1) as pool, on_postgres.connect() as working:
        harness.inbox.admit(working, decoded_message(4))
        forgetting = pool.submit(_forget, harness)
        await_lock_wait(on_postgres)
        working.commit()
        assert forgetting.result(10) == 0

    assert harness.set_aside_numbers() == [4]
    assert harness.bring(3) == [HANDLE]
    assert harness.drain() == [4]


def _forget(harness: InboxHarness) -> int:
    """Delete records that were closed more than 100 seconds ago, and return how many rows were deleted."""
    with harness.engine.begin() as connection:
        return harness.inbox.forget(connection, keep_seconds=100)


def test_w15_a_later_number_stays_given_up_while_the_group_is_parked(engine: Engine) -> None:
    """Otherwise the group would wait for a number of which the inbox has no record any more."""
    harness = InboxHarness(engine, parks_poison=True, parks_gaps=True)
    harness.bring(1, 3, 4, 5)
    harness.skip(4)
    harness.clock.sleep(200)
    _forget(harness)

    harness.bring(2)

    assert harness.drain() == [3, 5]


def test_w15_numbers_from_before_the_baseline_live_as_long_as_the_group(engine: Engine) -> None:
    """Number 5 came before the baseline 41. While the group lives, a repeat of 5 is recognised."""
    harness = InboxHarness(engine, joined_at_us=START_US)
    harness.bring(41, 42, 5)
    harness.clock.sleep(200)
    harness.bring(43)
    _forget(harness)

    assert harness.bring(5) == [DROP]
    harness.clock.sleep(200)
    assert _forget(harness) == 1
    assert harness.numbers() is None
    assert harness.number_records() == []


def test_g3_a_late_consumer_takes_the_first_number_as_its_baseline(engine: Engine) -> None:
    """Earlier numbers are not missing; if they come, they are handled once."""
    harness = InboxHarness(engine, joined_at_us=START_US)

    assert harness.decide(41) == Decision(State.CONTIGUOUS, HANDLE)
    assert harness.numbers() == GroupNumbers(epoch=1, first=41, last=41)
    assert harness.number_records() == []

    assert [harness.decide(seq) for seq in (1, 2, 40)] == [Decision(State.FILLED, HANDLE)] * 3
    assert harness.bring(1, 2, 40, 41) == [DROP] * 4
    assert harness.decide(42) == Decision(State.CONTIGUOUS, HANDLE)
    assert harness.inbox.counts(engine)["open_exceptions"] == 0


def test_a_gap_is_recorded_and_the_group_goes_on(engine: Engine) -> None:
    """5 comes after 1: it is handled, and 2 to 4 are one open record."""
    harness = InboxHarness(engine)

    assert harness.bring(1, 5) == [HANDLE, HANDLE]
    assert harness.numbers() == GroupNumbers(epoch=1, first=1, last=5)
    assert harness.number_records() == ["2-4 gap, open"]
    assert harness.inbox.counts(engine)["open_exceptions"] == 1


def test_g5_a_gap_is_filled_with_its_times_and_after_a_restart(engine: Engine) -> None:
    """Number 3 of the gap 2 to 4 comes 7 s later, so the record becomes three, and 3 is closed."""
    harness = InboxHarness(engine)
    harness.bring(1, 5)
    harness.clock.sleep(7)
    restarted = harness.under()

    assert restarted.decide(3) == Decision(State.FILLED, HANDLE)

    assert harness.number_records() == ["2 gap, open", "3 filled, closed", "4 gap, open"]
    with engine.connect() as connection:
        times = select(exceptions.c.seen_at_us, exceptions.c.closed_at_us).order_by(exceptions.c.seq)
        assert [tuple(row) for row in connection.execute(times)] == [
            (START_US, None),
            (START_US, START_US + 7_000_000),
            (START_US, None),
        ]
    assert harness.bring(3) == [DROP]


def test_g6_a_rolled_back_message_counts_as_not_received(engine: Engine) -> None:
    """The position is in the transaction of the effect."""
    harness = InboxHarness(engine)
    harness.bring(1)

    with engine.connect() as connection:
        handle_message(harness.inbox, connection, decoded_message(2))
        connection.rollback()

    assert harness.numbers() == GroupNumbers(epoch=1, first=1, last=1)
    assert harness.bring(2) == [HANDLE]


def test_w17_an_older_number_is_dropped_or_refused_but_not_applied(engine: Engine) -> None:
    """A repeat of the same event is dropped; another event under a handled number is refused."""
    harness = InboxHarness(engine)
    harness.bring(1, 2, 3)

    assert harness.decide(2, copy="-again") == Decision(State.DUPLICATE, DROP)
    other = harness.decide(3, id="other")
    assert other.action is REJECT
    assert "a-1-3" in other.reason


def test_w17_a_refused_event_stays_refused_and_the_right_one_a_repeat(engine: Engine) -> None:
    """Number 2 was handled; another event under it is dead, and counts as no missing number."""
    harness = InboxHarness(engine)
    harness.bring(1, 2)
    assert harness.record_dead(2, id="other")

    assert harness.bring(2, id="other", receive_count=2) == [RELEASE_TO_DLQ]
    assert harness.bring(2, id="other", copy="-redriven") == [REJECT]
    assert harness.bring(2, copy="-again") == [DROP]
    assert harness.inbox.counts(engine)["open_exceptions"] == 0


def test_w16_two_consumers_in_the_same_tables_do_not_affect_each_other(engine: Engine) -> None:
    """Billing misses number 2, shipping does not."""
    billing, shipping = InboxHarness(engine), InboxHarness(engine, consumer="shipping")

    assert billing.bring(1, 3, 1) == [HANDLE, HANDLE, DROP]
    assert shipping.bring(1, 2, 3, 1) == [HANDLE, HANDLE, HANDLE, DROP]
    assert billing.number_records() == ["2 gap, open"]
    assert shipping.number_records() == []
    assert shipping.inbox.counts(engine)["open_exceptions"] == 0


def test_g4_a_tombstone_is_no_gap(engine: Engine) -> None:
    """It stands for an event that the producer skipped; its number is recorded as skipped."""
    harness = InboxHarness(engine)

    assert harness.bring(1) + harness.bring(2, type=TOMBSTONE, id="stone") + harness.bring(3) == [HANDLE] * 3
    assert harness.number_records() == ["2 skipped, closed"]
    assert harness.decide(2, type=TOMBSTONE, id="stone", copy="-again") == Decision(State.SKIPPED, DROP)


def test_g4_a_tombstone_closes_what_was_missing_or_dead(engine: Engine) -> None:
    """2 and 3 are missing, and 5 is dead."""
    harness = InboxHarness(engine)
    harness.bring(1, 4)
    harness.record_dead(5)

    assert harness.bring(2, 3, 5, type=TOMBSTONE, id="stone") == [HANDLE] * 3
    assert harness.number_records() == ["2 skipped, closed", "3 skipped, closed", "5 skipped, closed"]


def test_g4_a_number_that_an_operator_skips_is_dropped_without_a_gap(engine: Engine) -> None:
    """When number 3 comes after all, it is dropped; 4 is still handled."""
    harness = InboxHarness(engine)
    harness.bring(1, 5)

    harness.skip(3)

    assert harness.number_records() == ["2 gap, open", "3 skipped, closed", "4 gap, open"]
    assert harness.bring(3, 4) == [DROP, HANDLE]


def test_g2_behind_a_filter_policy_nothing_is_missing_and_nothing_is_lost(engine: Engine) -> None:
    """Missing numbers are lawful there, so none is recorded.

    A message that the queue dead-lettered is handled when it is brought back.
    """
    harness = InboxHarness(engine, records_gaps=False)

    assert harness.bring(1, 4) == [HANDLE, HANDLE]

    assert harness.inbox.counts(engine)["open_exceptions"] == 0
    assert harness.decide(2) == Decision(State.FILLED, HANDLE)
    assert harness.bring(2, 4) == [DROP, DROP]
    assert harness.inbox.counts(engine)["open_exceptions"] == 0


def test_g1_a_decoded_message_has_no_sequence_number_of_sqs() -> None:
    """SQS's SequenceNumber has holes, so the inbox must not count by it."""
    assert not [name for name in decoded_message(1).arrival.__dataclass_fields__ if "sequence" in name]


def test_d2_without_parking_a_redriven_message_is_handled_late(engine: Engine) -> None:
    """Its successor was handled meanwhile; a further copy is dropped."""
    harness = InboxHarness(engine)
    harness.bring(1)
    assert harness.record_dead(2)
    assert harness.bring(3) == [HANDLE]
    assert harness.number_records() == ["2 dead, open"]

    assert harness.decide(2, copy="-redriven") == Decision(State.LATE, HANDLE)
    assert harness.number_records() == ["2 redriven, closed"]
    assert harness.bring(2, copy="-again") == [DROP]


def test_d13_a_redriven_dead_message_is_recognised_by_its_receive_count(engine: Engine) -> None:
    """A higher count is the dead message on its way to the DLQ; a count of 1 is its redriven copy."""
    harness = InboxHarness(engine)
    harness.record_dead(1, receive_count=2)

    assert harness.bring(1, receive_count=3) == [RELEASE_TO_DLQ]
    assert harness.bring(1, receive_count=1) == [HANDLE]


def test_no_death_is_recorded_of_a_message_that_was_handled(engine: Engine) -> None:
    """Another worker has handled a copy of it: the message is deleted, not dead-lettered."""
    harness = InboxHarness(engine)
    harness.bring(1, 2)

    assert not harness.record_dead(2)
    assert harness.number_records() == []


def test_recording_a_recorded_death_again_returns_true(engine: Engine) -> None:
    """A second try, made because the answer to the first was lost, finds the death recorded once."""
    harness = InboxHarness(engine)
    harness.bring(1)

    assert harness.record_dead(2)
    assert harness.record_dead(2)
    assert harness.record_dead(2, receive_count=2)
    assert harness.number_records() == ["2 dead, open"]


def test_a_new_epoch_is_a_new_baseline(engine: Engine) -> None:
    """A message of the old epoch that was missing or dead is still handled, and changes no position."""
    harness = InboxHarness(engine)
    harness.bring(1, 2, 3, 4, 6)
    harness.record_dead(7)

    assert harness.decide(4, epoch=2, first=3) == Decision(State.GAP, HANDLE)
    assert harness.decide(3, epoch=2, first=3) == Decision(State.FILLED, HANDLE)

    assert harness.numbers() == GroupNumbers(epoch=2, first=3, last=4)
    assert "epoch 2 has begun" in harness.decide(4).reason
    assert harness.decide(5) == Decision(State.FILLED, HANDLE)
    assert harness.decide(7, copy="-redriven") == Decision(State.LATE, HANDLE)
    assert harness.numbers() == GroupNumbers(epoch=2, first=3, last=4)


def test_w15_rows_that_are_younger_parked_or_open_are_kept(engine: Engine) -> None:
    """Old rows of the groups idle and closed are deleted after 100 s."""
    harness = InboxHarness(engine)
    parking = harness.under(parks_gaps=True)
    harness.bring(1, group="idle")
    harness.bring(1, 3, group="open")
    parking.bring(1, 3, group="parked")
    harness.bring(1, 3, 2, group="closed")
    harness.clock.sleep(100)
    harness.bring(1, group="young")
    harness.clock.sleep(50)

    with engine.begin() as connection:
        forgotten = harness.inbox.forget(connection, keep_seconds=100)

    assert forgotten == 2
    assert [name for name in ("idle", "open", "parked", "closed", "young") if harness.numbers(name)] == [
        "open",
        "parked",
        "young",
    ]
    assert harness.number_records("closed") == []
    assert harness.bring(2, group="open") == [HANDLE]


def test_w15_closed_exceptions_are_forgotten_so_many_at_a_time(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction that deletes millions of rows would make everybody wait."""
    monkeypatch.setattr("sluice.messaging.inbox.maintenance.FORGOTTEN_MAX", 3)
    harness = InboxHarness(engine, records_gaps=False)
    harness.bring(*range(2, 16, 2))
    assert len(harness.number_records()) == 7
    harness.clock.sleep(101)

    left = []
    for _ in range(3):
        with engine.begin() as connection:
            harness.inbox.forget(connection, keep_seconds=100)
        left.append(len(harness.number_records()))

    assert left == [4, 1, 0]


def test_w15_a_group_is_kept_as_long_as_records_of_its_numbers(engine: Engine) -> None:
    """Otherwise a number that an operator skipped would be handled when it comes."""
    harness = InboxHarness(engine)
    harness.bring(1, 3)
    harness.clock.sleep(100)
    harness.skip(2)
    harness.clock.sleep(50)

    with engine.begin() as connection:
        assert harness.inbox.forget(connection, keep_seconds=100) == 0

    assert harness.bring(2) == [DROP]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(fills=st.lists(st.integers(2, 59), max_size=25, unique=True), dead=st.sets(st.integers(2, 59), max_size=5))
def test_a_gap_is_split_into_ranges_without_hole_or_overlap(fills: Sequence[int], dead: set[int]) -> None:
    """Numbers 2 to 59 are missing and come, or die, in random order; each number is in exactly one record."""
    engine = engines.engine("sqlite://")
    with engine.begin() as connection:
        tables.metadata.create_all(connection)
    harness = InboxHarness(engine)
    harness.bring(1, 60)

    for seq in fills:
        if seq in dead:
            harness.record_dead(seq)
        else:
            harness.bring(seq)

    became = dict.fromkeys(range(2, 60), "gap")
    became |= {seq: "dead" if seq in dead else "filled" for seq in fills}
    rows = harness.number_rows()
    assert [seq for row in rows for seq in range(row.seq, row.through + 1)] == list(became)
    assert {seq: row.state for row in rows for seq in range(row.seq, row.through + 1)} == became
    engine.dispose()
