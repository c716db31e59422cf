"""Concurrent transactions on one group, on a real Postgres: which one waits, and what it sees afterwards."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from sqlalchemy import Connection, Engine, text

from sluice.clock import SystemClock, eventually
from sluice.messaging.inbox.sequence import Action, Decision, State
from tests.support.messaging.inbox_harness import (
    GroupNumbers,
    InboxHarness,
    decoded_message,
    handle_message,
    mark_next_parked,
)
from tests.support.messaging.outbox.postgres_interleaving import is_waiting

_SECONDS_MAX = 20
_HANDLED, _REPEATED = Decision(State.CONTIGUOUS, Action.HANDLE), Decision(State.DUPLICATE, Action.DROP)


@pytest.fixture
def parking(on_postgres: Engine) -> InboxHarness:
    """Return an inbox with a group whose first message was dead and is back, and whose second is parked."""
    harness = InboxHarness(on_postgres, parks_poison=True, parks_gaps=True)
    harness.record_dead(1)
    harness.bring(2)
    harness.bring(1, copy="-redriven")
    return harness


@contextmanager
def _waiting[T](engine: Engine, act: Callable[[Connection], T]) -> Iterator[Future[T]]:
    """Yield the future result of a transaction in another thread that waits for a lock; it is committed afterwards."""
    with engine.connect() as watcher, ThreadPoolExecutor(1) as pool, engine.connect() as connection:
        pid = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
        connection.execute(text(f"SET LOCAL lock_timeout = '{_SECONDS_MAX}s'"))

        def act_and_commit() -> T:
            done = act(connection)
            connection.commit()
            return done

        acting = pool.submit(act_and_commit)
        eventually(
            lambda: is_waiting(watcher, pid) or acting.done(),
            timeout_seconds=_SECONDS_MAX,
            describe="the other transaction to wait for the lock",
            interval_seconds=0.005,
            clock=SystemClock(),
        )
        assert not acting.done(), "it did not wait"
        yield acting


@pytest.mark.parametrize("seq", [1, 2], ids=["first of its group", "later"])
@pytest.mark.parametrize(("is_committed", "second"), [(True, _REPEATED), (False, _HANDLED)])
def test_w9_of_two_with_copies_of_a_message_the_second_waits(
    on_postgres: Engine, seq: int, second: Decision, *, is_committed: bool
) -> None:
    """Once the first has ended, the second drops its copy if the first committed, and else handles it."""
    harness = InboxHarness(on_postgres)
    harness.bring(*range(1, seq))
    copy = decoded_message(seq, copy="-again")

    with on_postgres.connect() as first:
        assert handle_message(harness.inbox, first, decoded_message(seq)) == _HANDLED
        with _waiting(on_postgres, lambda connection: handle_message(harness.inbox, connection, copy)) as acting:
            first.commit() if is_committed else first.rollback()
            assert acting.result(_SECONDS_MAX) == second

    assert harness.numbers() == GroupNumbers(epoch=1, first=1, last=seq)


@pytest.mark.parametrize(
    ("is_committed", "expected"),
    [(True, _HANDLED), (False, Decision(State.GAP, Action.PARK))],
    ids=["drainer commits", "drainer rolls back"],
)
def test_d9_a_live_message_waits_for_the_drainer(
    parking: InboxHarness, expected: Decision, *, is_committed: bool
) -> None:
    """Message 3 is handled if the drainer has committed message 2, and else is parked behind it."""
    with parking.engine.connect() as drainer:
        assert mark_next_parked(parking.inbox, drainer) is not None
        with _waiting(parking.engine, lambda live: handle_message(parking.inbox, live, decoded_message(3))) as acting:
            drainer.commit() if is_committed else drainer.rollback()
            assert acting.result(_SECONDS_MAX) == expected

    assert parking.drain() == ([] if is_committed else [2, 3])
    assert parking.numbers() == GroupNumbers(epoch=1, first=1, last=3)
    assert parking.is_parked() is False


def test_a_second_drainer_goes_on_with_another_group(parking: InboxHarness) -> None:
    """It does not wait for the first group's row: the lock timeout is 1 ms."""
    parking.record_dead(1, group="b")
    parking.bring(2, group="b")
    parking.bring(1, group="b", copy="-redriven")

    with parking.engine.connect() as first, parking.engine.connect() as second:
        second.execute(text("SET LOCAL lock_timeout = '1ms'"))
        assert parking.inbox.lock_next_parked(first, "a") is not None

        assert parking.inbox.due(parking.engine) == ["a", "b"]
        assert parking.inbox.lock_next_parked(second, "a") is None
        assert parking.inbox.lock_next_parked(second, "b") is not None


def test_a_drainer_leaves_a_group_alone_whose_message_is_being_handled(parking: InboxHarness) -> None:
    """Afterwards nothing is left to drain, and it only ends the parking."""
    with parking.engine.connect() as live, parking.engine.connect() as drainer:
        drainer.execute(text("SET LOCAL lock_timeout = '1ms'"))
        assert handle_message(parking.inbox, live, decoded_message(2, copy="-again")) == _HANDLED
        assert parking.inbox.lock_next_parked(drainer, "a") is None
        live.commit()

    assert parking.drain() == []
    assert parking.numbers() == GroupNumbers(epoch=1, first=1, last=2)
    assert parking.set_aside_numbers() == []
    assert parking.is_parked() is False


def test_a_skip_waits_for_the_message_it_is_about(parking: InboxHarness) -> None:
    """A drainer handles the message meanwhile, so the skip is refused."""
    with parking.engine.connect() as drainer:
        assert mark_next_parked(parking.inbox, drainer) is not None

        def skip(connection: Connection) -> str:
            with pytest.raises(Exception, match="is handled") as raised:
                parking.operator.skip(connection, "a", 2)
            return str(raised.value)

        with _waiting(parking.engine, skip) as acting:
            drainer.commit()
            assert "allowed is one that is missing" in acting.result(_SECONDS_MAX)
