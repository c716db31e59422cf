"""A replay sets the past aside in a group, in order and beside live messages, and knows what it may not set aside."""

from collections.abc import Callable

import pytest
from sqlalchemy import Engine, insert

from sluice.messaging.inbox.parking import store_parked
from sluice.messaging.inbox.replaying import ReplayOutcome
from sluice.messaging.inbox.tables import consumers
from tests.support.messaging.faulty_calls import seeded_random
from tests.support.messaging.inbox_harness import (
    DROP,
    HANDLE,
    PARK,
    START_US,
    GroupNumbers,
    InboxHarness,
    decoded_message,
)

TO_HANDLE, SET_ASIDE, LATE = ReplayOutcome.TO_HANDLE, ReplayOutcome.SET_ASIDE, ReplayOutcome.LATE
HANDLED, REJECTED, FORGOTTEN = ReplayOutcome.HANDLED, ReplayOutcome.REJECTED, ReplayOutcome.FORGOTTEN
_LAST, _LIVE_FROM = 12, 6


@pytest.fixture
def inbox(engine: Engine) -> InboxHarness:
    """Return an inbox that goes on without dead and missing messages, the default."""
    return InboxHarness(engine)


@pytest.fixture
def halting(in_memory: Engine) -> InboxHarness:
    """Return an inbox that waits for dead and missing messages."""
    return InboxHarness(in_memory, parks_poison=True, parks_gaps=True)


def test_a_group_that_is_unknown_begins_with_the_first_replayed_number(inbox: InboxHarness) -> None:
    assert inbox.replay(1, 2, 3) == [TO_HANDLE] * 3
    assert inbox.bring(5, 4) == [PARK, PARK]

    assert inbox.drain() == [1, 2, 3, 4, 5]
    assert inbox.numbers() == GroupNumbers(epoch=1, first=1, last=5)
    assert not inbox.is_parked()
    assert inbox.number_records() == []


def test_a_live_copy_of_a_replayed_number_is_handled_once(inbox: InboxHarness) -> None:
    inbox.replay(1, 2)

    assert inbox.bring(1, 2, 1) == [HANDLE, HANDLE, DROP]
    assert inbox.drain() == []
    assert not inbox.is_parked()


def test_a_group_in_use_goes_on_with_the_replayed_numbers(inbox: InboxHarness) -> None:
    """As after a restore of the consumer's database: numbers 2 and 3 were handled, and are not any more."""
    inbox.bring(1)

    assert inbox.replay(1, 2, 3) == [HANDLED, TO_HANDLE, TO_HANDLE]
    assert inbox.bring(4) == [PARK]
    assert inbox.drain() == [2, 3, 4]


def test_numbers_behind_the_position_are_late(inbox: InboxHarness) -> None:
    """Number 4 made 1 to 3 missing. Those before a baseline are late as well."""
    inbox.bring(4)

    assert inbox.replay(1, 2, 3, 4, 5) == [LATE, LATE, LATE, HANDLED, TO_HANDLE]


def test_a_number_that_was_given_up_is_not_handled(inbox: InboxHarness) -> None:
    inbox.bring(4)
    inbox.skip(2)

    assert inbox.replay(1, 2) == [LATE, HANDLED]


def test_numbers_of_an_earlier_epoch_are_rejected(inbox: InboxHarness) -> None:
    inbox.bring(1, epoch=2)

    assert inbox.replay(1, epoch=1) == [REJECTED]


def test_numbers_of_a_later_epoch_follow(inbox: InboxHarness) -> None:
    inbox.bring(1, 2)

    assert inbox.replay(1, 2, epoch=2) == [TO_HANDLE, TO_HANDLE]
    assert inbox.drain() == [1, 2]
    assert inbox.numbers() == GroupNumbers(epoch=2, first=1, last=2)


def test_a_group_that_waits_for_its_first_number_gets_it(halting: InboxHarness) -> None:
    """A new consumer that halts at gaps: live messages came before the replay, and wait."""
    assert halting.bring(4, 5) == [PARK, PARK]

    assert halting.replay(1, 2, 3, 4) == [TO_HANDLE, TO_HANDLE, TO_HANDLE, SET_ASIDE]
    assert halting.drain() == [1, 2, 3, 4, 5]


def test_a_later_beginning_never_passes_waiting_messages(halting: InboxHarness) -> None:
    halting.bring(4)

    assert halting.replay(6, 7) == [TO_HANDLE, TO_HANDLE]
    assert halting.drain() == [4]
    assert halting.waits_for() == 5
    assert halting.bring(5) == [HANDLE]
    assert halting.drain() == [6, 7]


def test_a_dead_number_that_a_group_waits_for_is_replayed(halting: InboxHarness) -> None:
    halting.bring(1)
    halting.record_dead(2)
    halting.bring(3)

    assert halting.replay(2, 3) == [TO_HANDLE, SET_ASIDE]
    assert halting.drain() == [2, 3]
    assert halting.number_records() == ["2 redriven, closed"]


def test_an_event_that_the_inbox_may_have_forgotten_is_not_set_aside(inbox: InboxHarness) -> None:
    """The rows of groups without messages before that time are deleted, and with them what was handled."""
    with inbox.engine.begin() as connection:
        connection.execute(insert(consumers).values(consumer="billing", forgotten_before_us=START_US))

    assert inbox.replay(1, sent_at_us=START_US) == [FORGOTTEN]
    assert inbox.replay(2, sent_at_us=START_US + 3_600_000_000) == [TO_HANDLE]


def _handle_past_and_present(inbox: InboxHarness, seed: int, replay: Callable[..., object]) -> list[int]:
    """Replay numbers 1 to 9 while 6 to 12 come live and again; return the numbers in the order of handling.

    The replay comes first, because a live message before it would be the group's beginning. Then live messages, their
    repeats, and a drainer take turns at random.
    """
    random, handled = seeded_random(seed), list[int]()
    came = _LIVE_FROM
    replay(*range(1, _LIVE_FROM + random.randint(0, _LAST - _LIVE_FROM)))
    while came <= _LAST:
        match random.choice(["live", "repeat", "drain"]):
            case "live":
                handled += [came] if inbox.bring(came) == [HANDLE] else []
                came += 1
            case "repeat":
                seq = random.randint(1, came)
                handled += [seq] if inbox.bring(seq) == [HANDLE] else []
            case _:
                handled += inbox.drain()
    return handled + inbox.drain()


@pytest.mark.parametrize("seed", range(6))
def test_past_and_present_are_handled_once_and_in_order(in_memory: Engine, seed: int) -> None:
    inbox = InboxHarness(in_memory)

    assert _handle_past_and_present(inbox, seed, inbox.replay) == list(range(1, _LAST + 1))


def test_a_replay_that_parks_no_group_is_found(in_memory: Engine) -> None:
    """A replay that stores its messages, and marks the group not as parked, lets live messages overtake them."""
    inbox = InboxHarness(in_memory)

    def replay_without_parking(*seqs: int) -> None:
        with in_memory.begin() as connection:
            store_parked(connection, "billing", [decoded_message(seq) for seq in seqs], START_US)

    assert _handle_past_and_present(inbox, 0, replay_without_parking) != list(range(1, _LAST + 1))
