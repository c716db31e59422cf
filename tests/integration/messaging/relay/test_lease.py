"""One relay leads at a time, by the database's clock, and a stale token changes nothing (P13, P18)."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import patch

import pytest
from sqlalchemy import Engine, select, update
from sqlalchemy.exc import OperationalError

from sluice.clock import VirtualClock
from sluice.messaging.database import engines
from sluice.messaging.errors import LeaseLostError, OutboxError
from sluice.messaging.outbox import tables
from sluice.messaging.outbox.store import PublishSuccess, Store
from sluice.messaging.relay.lease import Lease
from sluice.messaging.relay.relay import Relay, RelaySettings
from tests.support.messaging.outbox.postgres_interleaving import await_lock_wait
from tests.support.messaging.outbox.simulated_relays import work
from tests.support.messaging.world import TOPIC, CallsInTurn, World

HOUR_US = 3_600_000_000
EXPIRED_SECONDS = 31


@pytest.fixture
def clock() -> VirtualClock:
    """Return the database's clock, which a test moves."""
    return VirtualClock(1_767_225_600_000_000)


def _lease(
    engine: Engine, owner: str, clock: VirtualClock | None, topic: str = TOPIC, own_clock: VirtualClock | None = None
) -> Lease:
    """Return a relay's lease on the topic, by these clocks of the database and of the relay."""
    return Lease(engine, topic, lease_seconds=30, owner=owner, clock=clock, own_clock=own_clock)


def _stored_lease(engine: Engine) -> tuple[str, int, int]:
    """Return owner, token and end of the lease in the database."""
    with engine.connect() as connection:
        columns = (tables.leases.c.owner, tables.leases.c.token, tables.leases.c.expires_at_us)
        owner, token, expires_at_us = connection.execute(select(*columns)).one()
    return owner, token, expires_at_us


def test_another_relay_leads_exactly_when_the_lease_runs_out(engine: Engine, clock: VirtualClock) -> None:
    """A lease is 30 s long. The other relay's lease has the next token."""
    lease, other = _lease(engine, "one", clock), _lease(engine, "other", clock)

    led = [lease.acquire(), other.acquire()]
    clock.sleep(29.999999)
    led.append(other.acquire())
    clock.sleep(0.000001)
    led.append(other.acquire())

    assert led == [True, False, False, True]
    assert _stored_lease(engine)[:2] == ("other", 2)


def test_a_relay_that_renews_its_lease_keeps_leading(engine: Engine, clock: VirtualClock) -> None:
    """Every 20 of 30 s; a write renews it, too."""
    lease, other = _lease(engine, "one", clock), _lease(engine, "other", clock)
    lease.acquire()
    clock.sleep(20)
    lease.renew()
    clock.sleep(20)
    with lease.writing():
        pass
    clock.sleep(20)

    assert not other.acquire()
    assert _stored_lease(engine)[:2] == ("one", 1)


def test_a_leader_renews_an_expired_lease_that_nobody_took(engine: Engine, clock: VirtualClock) -> None:
    """Its token is still the lease's, so no other relay has written meanwhile."""
    lease = _lease(engine, "one", clock)
    lease.acquire()
    clock.sleep(EXPIRED_SECONDS)

    lease.renew()

    assert lease.token == 1
    assert _lease(engine, "other", clock).acquire() is False


def test_each_topic_has_a_lease_of_its_own(engine: Engine, clock: VirtualClock) -> None:
    """Relays of two topics lead side by side in one database."""
    led = [_lease(engine, topic, clock, topic).acquire() for topic in ("a.fifo", "b.fifo")]

    assert led == [True, True]


def test_a_released_lease_can_be_acquired_at_once(engine: Engine, clock: VirtualClock) -> None:
    """A relay that has already lost the lease cannot release it."""
    lease, other, third = (_lease(engine, owner, clock) for owner in ("one", "other", "third"))
    lease.acquire()
    clock.sleep(EXPIRED_SECONDS)
    other.acquire()

    lease.release()
    taken_from_other = third.acquire()
    other.release()

    assert not taken_from_other
    assert third.acquire()
    assert lease.token is None
    assert other.token is None
    assert third.token == 3


def test_p13_a_stale_token_changes_nothing_and_its_holder_notices(engine: Engine) -> None:
    """The zombie has read a message before another relay led; its mark is refused, because its token is old."""
    world = World(engine)
    world.commit("a")
    zombie, leader = world.lease(), world.lease()
    zombie.acquire()
    heads = world.store.look().heads
    world.clock.sleep(EXPIRED_SECONDS)
    leader.acquire()

    with pytest.raises(LeaseLostError, match="with token 1, and another leads now"), zombie.writing() as connection:
        world.store.mark(connection, [(heads[0], PublishSuccess("of the zombie"), 0)])

    assert world.statuses() == {("a", 1): "pending"}
    assert zombie.token is None
    assert leader.token == 2
    leader.renew()


@pytest.mark.parametrize("is_applied", [False, True])
def test_p13_a_takeover_whose_commit_fails_leads_nobody(
    engine: Engine, clock: VirtualClock, *, is_applied: bool
) -> None:
    """Rolled back, the next relay gets the same token; applied without an answer, it costs one lease."""
    lease, failing, other = (_lease(engine, owner, clock) for owner in ("one", "failing", "other"))
    lease.acquire()
    clock.sleep(EXPIRED_SECONDS)
    commit = engine.dialect.do_commit

    def fail(connection: Any) -> None:
        if is_applied:
            commit(connection)
        raise OperationalError("COMMIT", {}, Exception("no answer"))

    with patch.object(engine.dialect, "do_commit", fail), pytest.raises(OperationalError):
        failing.acquire()

    assert other.acquire() is not is_applied
    with pytest.raises(LeaseLostError):
        failing.renew()
    clock.sleep(EXPIRED_SECONDS)
    assert other.acquire()


def test_p13_a_takeover_waits_for_a_write_and_then_fails(postgres: Engine, clock: VirtualClock) -> None:
    """The lease has expired, but the leader's write, which locks its row, renews it."""
    writer, other = _lease(postgres, "writer", clock), _lease(postgres, "other", clock)
    writer.acquire()
    clock.sleep(EXPIRED_SECONDS)

    with ThreadPoolExecutor(1) as pool:
        with writer.writing():
            taking = pool.submit(other.acquire)
            await_lock_wait(postgres)
        taken = taking.result(timeout=10)

    assert not taken
    assert _stored_lease(postgres)[:2] == ("writer", 1)


def test_p13_a_write_waits_for_a_takeover_and_then_fails(postgres: Engine, clock: VirtualClock) -> None:
    """The takeover has locked the lease's row, and commits another token."""
    zombie = _lease(postgres, "zombie", clock)
    zombie.acquire()
    takeover = update(tables.leases).values(owner="other", token=2, expires_at_us=clock.now_us() + 30_000_000)

    with ThreadPoolExecutor(1) as pool:
        with postgres.begin() as connection:
            connection.execute(takeover)
            writing = pool.submit(zombie.renew)
            await_lock_wait(postgres)
        with pytest.raises(LeaseLostError):
            writing.result(timeout=10)

    assert _stored_lease(postgres)[:2] == ("other", 2)


def test_p13_a_single_relay_of_many_inserts_the_first_lease(postgres: Engine, clock: VirtualClock) -> None:
    """Eight relays of a new topic acquire its lease at once."""
    leases = [_lease(postgres, str(number), clock) for number in range(8)]

    with ThreadPoolExecutor(8) as pool:
        led = list(pool.map(Lease.acquire, leases))

    assert led.count(True) == 1
    assert _stored_lease(postgres)[:2] == (leases[led.index(True)].owner, 1)


def test_p18_a_lease_ends_by_the_clock_of_the_database(engine: Engine) -> None:
    """No clock is given, as in production: the stored end is the database's time and 30 s."""
    store, lease = Store(engine, TOPIC), _lease(engine, "one", None)

    before_us = store.look().now_us
    lease.acquire()
    after_us = store.look().now_us

    assert before_us + 30_000_000 <= _stored_lease(engine)[2] <= after_us + 30_000_000


@pytest.mark.parametrize("ahead_us", [HOUR_US, -HOUR_US])
def test_p18_the_clocks_of_the_relays_hosts_do_not_matter(
    postgres: Engine, monkeypatch: pytest.MonkeyPatch, ahead_us: int
) -> None:
    """A host's clock is an hour ahead or behind.

    Its relay neither takes a valid lease, nor waits longer for one that has ended.
    """
    real, real_ns = time.time, time.time_ns  # noqa: TID251 (this is the clock that is wrong here)
    right = _lease(postgres, "right", None)
    right.acquire()
    monkeypatch.setattr(time, "time", lambda: real() + ahead_us / 1_000_000)
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + ahead_us * 1_000)
    relay_with_wrong_clock = Relay(
        Store(postgres, TOPIC),
        _lease(postgres, "relay_with_wrong_clock", None),
        World(postgres).publisher(),
        settings=RelaySettings(),
        calls=CallsInTurn,
    )

    relay_with_wrong_clock.step()
    led_early = relay_with_wrong_clock.is_leading
    with postgres.begin() as connection:
        database_us = engines.now_us(connection, None)
        connection.execute(update(tables.leases).values(expires_at_us=database_us))
    relay_with_wrong_clock.step()

    assert led_early is False
    assert relay_with_wrong_clock.is_leading is True


@pytest.fixture
def relay_clock() -> VirtualClock:
    """Return the clock of a relay's host, which measures how long a lease has not changed."""
    return VirtualClock()


def _put_back(clock: VirtualClock, seconds: int) -> VirtualClock:
    """Return a clock that is `seconds` behind another clock, as if it had been put back."""
    return VirtualClock(clock.now_us() - seconds * 1_000_000)


def test_p18_a_database_clock_put_back_costs_one_lease_without_leader(
    engine: Engine, clock: VirtualClock, relay_clock: VirtualClock
) -> None:
    """The leader is dead.

    By the database's clock, which was put back, its lease ends in an hour, but the standby counts the 30 s that pass.
    """
    dead, standby = (
        _lease(engine, "dead", clock),
        _lease(engine, "standby", _put_back(clock, 3_600), own_clock=relay_clock),
    )
    dead.acquire()

    led = [standby.acquire()]
    relay_clock.sleep(30)
    led.append(standby.acquire())
    relay_clock.sleep(0.000001)
    led.append(standby.acquire())

    assert led == [False, False, True]
    assert _stored_lease(engine) == ("standby", 2, clock.now_us() - HOUR_US + 30_000_000)
    with pytest.raises(LeaseLostError):
        dead.renew()


def test_p18_a_leader_that_renews_keeps_leading_after_a_clock_jump(
    engine: Engine, clock: VirtualClock, relay_clock: VirtualClock
) -> None:
    """The database's clock was put back an hour; each renewal within 30 s shows the standby that the leader lives."""
    leader, standby = (
        _lease(engine, "leader", clock),
        _lease(engine, "standby", _put_back(clock, 3_600), own_clock=relay_clock),
    )
    leader.acquire()

    led = []
    for _ in range(10):
        led.append(standby.acquire())
        relay_clock.sleep(29)
        clock.sleep(0.000001)  # it hardly runs, but it runs
        leader.renew()

    assert led == [False] * 10
    assert standby.seen is not None
    assert standby.seen.owner == "leader"
    assert standby.seen.token == 1
    assert standby.seen.lease_us == 30_000_000


def test_a_standby_waits_for_the_length_of_the_leaders_lease(
    engine: Engine, clock: VirtualClock, relay_clock: VirtualClock
) -> None:
    """The leader's lease is 300 s long, and the standby's own would be 30 s."""
    long = Lease(engine, TOPIC, lease_seconds=300, owner="long", clock=clock)
    standby = _lease(engine, "standby", _put_back(clock, 3_600), own_clock=relay_clock)
    long.acquire()
    standby.acquire()

    relay_clock.sleep(299)
    early = standby.acquire()
    relay_clock.sleep(2)

    assert early is False
    assert standby.acquire() is True


def test_p13_only_one_of_two_leaders_after_a_clock_jump_writes(engine: Engine) -> None:
    """An hour ahead, the lease of a leader that is alive has run out; its token is stale at its next write."""
    world = World(engine)
    world.commit("a")
    leader, other = world.relay(), world.lease()
    leader.step()
    world.clock.sleep(3_600)

    taken = other.acquire()
    work(leader)

    assert taken is True
    assert leader.is_leading is False
    assert other.token == 2
    assert world.statuses() == {("a", 1): "pending"}
    assert world.receive_places() == []


def test_p13_a_lease_that_was_renewed_meanwhile_is_not_taken_over(
    postgres: Engine, clock: VirtualClock, relay_clock: VirtualClock
) -> None:
    """The standby has counted 31 s. While it takes over, it waits for a write of the leader, which renews the lease."""
    leader, standby = _lease(postgres, "leader", clock), _lease(postgres, "standby", clock, own_clock=relay_clock)
    leader.acquire()
    standby.acquire()
    relay_clock.sleep(EXPIRED_SECONDS)
    clock.sleep(1)

    with ThreadPoolExecutor(1) as pool:
        with leader.writing():
            taking = pool.submit(standby.acquire)
            await_lock_wait(postgres)
        taken = taking.result(timeout=10)

    assert not taken
    assert _stored_lease(postgres)[:2] == ("leader", 1)


def test_acquiring_a_lease_without_tables_is_refused(engine: Engine, clock: VirtualClock) -> None:
    """The message names the command that creates them."""
    with engine.begin() as connection:
        tables.metadata.drop_all(connection)

    with pytest.raises(OutboxError, match="schema apply outbox"):
        _lease(engine, "one", clock).acquire()
