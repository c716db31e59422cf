"""Counters of groups that are not used are forgotten, and no (epoch, seq) is ever given twice by it."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Connection, Engine, select, update
from sqlalchemy.exc import OperationalError

from sluice.messaging import Event, Outbox
from sluice.messaging.database import engines
from sluice.messaging.envelope import decode
from sluice.messaging.outbox import tables
from sluice.messaging.outbox.operations import OutboxOperator
from sluice.messaging.outbox.store import Store
from sluice.messaging.relay.relay import RelaySettings
from tests.support.messaging.faulty_calls import Fault
from tests.support.messaging.outbox.postgres_interleaving import await_lock_wait
from tests.support.messaging.outbox.simulated_relays import work
from tests.support.messaging.world import TOPIC, World

DAY = 86_400
SETTINGS = RelaySettings(keep_sent_seconds=7 * DAY, keep_groups_seconds=60 * DAY)
OUTBOX = Outbox(TOPIC)

type Counter = tuple[int, int, int]
"""Epoch, first and last number of a group."""


@pytest.fixture
def postgres_with_an_idle_group(postgres: Engine, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """Return a Postgres with a group that was not used for long, where the deletion waits for any lock."""
    monkeypatch.setattr(engines, "_LOCK_MILLISECONDS", 20_000)
    _make_idle_groups(postgres, "a")
    return postgres


def _make_idle_groups(engine: Engine, *groups: str) -> None:
    """Make groups that have counted to 1, that have no message left, and that were not used for long."""
    with engine.begin() as connection:
        OUTBOX.write(connection, [Event(type="t", group=group, data=None) for group in groups])
        connection.execute(tables.messages.delete())
        connection.execute(update(tables.groups).values(epoch=1_000, updated_at_us=0))


def _counters(engine: Engine) -> dict[str, Counter]:
    """Return the counter of each group in the outbox."""
    columns = tables.groups.c
    with engine.connect() as connection:
        rows = connection.execute(select(columns.group_id, columns.epoch, columns.first_seq, columns.last_seq)).all()
    return {group: (epoch, first, last) for group, epoch, first, last in rows}


def _forget_idle_groups(engine: Engine) -> int:
    """Forget the groups that were not used for sixty days, and return how many were."""
    with engine.begin() as connection:
        return Store(engine, TOPIC).forget_groups(connection, 60 * DAY)


def _write_event(connection: Connection) -> tuple[int, int]:
    """Add an event of group a, and return the epoch and number that it got."""
    event = Event(type="t", group="a", data=None)
    OUTBOX.write(connection, [event])
    ours = tables.messages.c.event_id == event.id
    envelope = decode(connection.execute(select(tables.messages.c.body).where(ours)).scalar_one())
    return envelope.epoch, envelope.seq


def test_a_group_that_was_forgotten_counts_anew_under_a_later_epoch(world: World) -> None:
    """Sent messages are deleted after seven days, and their group sixty days later.

    Its next event is number 1 of a later epoch, so that no consumer takes it for an old message.
    """
    relay = world.relay(settings=SETTINGS)
    began = world.clock.now_us() // 1_000_000
    world.commit("a", "a")
    work(relay)

    received = world.receive_all()
    world.clock.sleep(8 * DAY)
    work(relay)
    world.clock.sleep(60 * DAY - 1)
    work(relay)
    before = _counters(world.engine)
    world.clock.sleep(120)
    work(relay)
    after = _counters(world.engine)
    world.clock.sleep(10)
    world.commit("a")
    work(relay)

    assert before == {"a": (began, 1, 2)}
    assert after == {}
    envelopes = [decode(message["Body"]) for message in received + world.receive_all()]
    assert [(envelope.seq, envelope.first) for envelope in envelopes] == [(1, 1), (2, 1), (1, 1)]
    assert [envelope.epoch - began for envelope in envelopes] == [0, 0, 68 * DAY + 129]


@pytest.mark.parametrize("status", ["pending", "sent", "quarantined"])
def test_a_group_with_a_message_in_the_outbox_is_not_forgotten(world: World, status: str) -> None:
    """The status of that message does not matter. Group b has no message left, and is forgotten."""
    world.commit("a", "b")
    with world.engine.begin() as connection:
        left = tables.messages.c.group_id == "a"
        connection.execute(tables.messages.delete().where(~left))
        never_old_us = 2**60  # later than the clock ever is
        connection.execute(update(tables.messages).values(status=status, sent_at_us=never_old_us))
    world.clock.sleep(61 * DAY)

    with world.engine.begin() as connection:
        count = world.store.forget_groups(connection, 60 * DAY)

    assert count == 1
    assert list(_counters(world.engine)) == ["a"]


def test_a_group_is_kept_sixty_days_after_its_last_sent_row(world: World) -> None:
    """SNS refused the message for two months.

    The sixty days begin when the row is deleted after its send, not at the commit.
    """
    world.commit("a")
    world.sns_calls.faults = [Fault(refused="InvalidParameter")]
    relay = world.relay(settings=SETTINGS)
    work(relay)
    world.clock.sleep(61 * DAY)
    world.change(status="pending")
    work(relay)
    assert world.receive_places() == [("a", 1)]

    kept = []
    for _ in range(6):
        world.clock.sleep(12 * DAY)
        work(relay)
        kept.append((world.statuses(), list(_counters(world.engine))))

    assert kept == [*[({}, ["a"])] * 6]
    world.clock.sleep(120)
    work(relay)
    assert _counters(world.engine) == {}


def test_a_group_reused_within_a_minute_is_not_forgotten_sooner(world: World) -> None:
    """On Postgres the row keeps the time of its first use within a minute.

    An update that changes no index costs less.
    """
    world.commit("a")
    world.clock.sleep(61)
    began_us = world.clock.now_us()
    world.commit("a")
    world.clock.sleep(59)
    world.commit("a")
    with world.engine.begin() as connection:
        connection.execute(tables.messages.delete())
        instant_us = connection.execute(select(tables.groups.c.updated_at_us)).scalar_one() - began_us

    counts = list[int]()
    for pause_seconds in (60 * DAY - 1, 62):
        world.clock.sleep(pause_seconds)
        with world.engine.begin() as connection:
            counts.append(world.store.forget_groups(connection, 60 * DAY))

    assert instant_us == (0 if world.engine.dialect.name == "postgresql" else 59_000_000)
    assert counts == [0, 1]


def test_idle_groups_are_forgotten_a_thousand_at_a_time(world: World) -> None:
    """Of 1,500 idle groups the first call takes 1,000, and the relay's later steps the rest.

    Another topic's group stays.
    """
    others = Outbox("others.fifo", clock=world.clock)
    events = [Event(type="t", group=f"g{number}", data=None) for number in range(1_500)]
    with world.engine.begin() as connection:
        world.outbox.write(connection, events)
        others.write(connection, events[:1])
        connection.execute(tables.messages.delete())
    world.clock.sleep(61 * DAY)

    with world.engine.begin() as connection:
        first = world.store.forget_groups(connection, 60 * DAY)
    work(world.relay(settings=SETTINGS))

    assert first == 1_000
    with world.engine.connect() as connection:
        assert connection.execute(select(tables.groups.c.topic)).scalars().all() == ["others.fifo"]


def test_a_group_with_an_epoch_ahead_of_the_clock_is_kept(world: World) -> None:
    """Its epoch is ahead of the clock, which was put back. If it were made anew now, its epoch would not be later."""
    now = world.clock.now_us() // 1_000_000
    world.commit("a")
    with world.engine.begin() as connection:
        connection.execute(tables.messages.delete())
        connection.execute(update(tables.groups).values(epoch=now + 100 * DAY))
    world.clock.sleep(61 * DAY)
    relay = world.relay(settings=SETTINGS)

    work(relay)
    early = len(_counters(world.engine))
    world.clock.sleep(100 * DAY)
    work(relay)

    assert early == 1
    assert _counters(world.engine) == {}


def test_a_group_forgotten_after_a_begun_epoch_gets_a_later_one(world: World) -> None:
    """An operator begins an epoch, the group is forgotten, and its next event begins it anew with number 1."""
    world.commit("a")
    with world.engine.begin() as connection:
        begun = OutboxOperator(topic=TOPIC, actor="ada", reason="restored", clock=world.clock).begin_epoch(connection)
        connection.execute(tables.messages.delete())
    world.clock.sleep(61 * DAY)
    work(world.relay(settings=SETTINGS))

    world.commit("a")

    epoch, first, last = _counters(world.engine)["a"]
    assert epoch > begun
    assert first == 1
    assert last == 1


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
def test_a_producers_open_transaction_keeps_its_idle_group(postgres_with_an_idle_group: Engine, isolation: str) -> None:
    """The deletion waits for the writer's commit, and then finds that the group has got another number."""
    with ThreadPoolExecutor(1) as pool, postgres_with_an_idle_group.connect() as writer:
        writer.execution_options(isolation_level=isolation)
        with writer.begin():
            numbered = _write_event(writer)
            forgetting = pool.submit(_forget_idle_groups, postgres_with_an_idle_group)
            await_lock_wait(postgres_with_an_idle_group)
        count = forgetting.result(timeout=20)

    assert numbered == (1_000, 2)
    assert count == 0
    assert _counters(postgres_with_an_idle_group) == {"a": (1_000, 1, 2)}


def test_a_producer_that_rolls_back_does_not_keep_its_idle_group(postgres_with_an_idle_group: Engine) -> None:
    """The deletion waits for the producer, and then finds the group as idle as before."""
    with ThreadPoolExecutor(1) as pool, postgres_with_an_idle_group.connect() as writer:
        with writer.begin() as begun:
            _write_event(writer)
            forgetting = pool.submit(_forget_idle_groups, postgres_with_an_idle_group)
            await_lock_wait(postgres_with_an_idle_group)
            begun.rollback()
        count = forgetting.result(timeout=20)

    assert count == 1
    assert _counters(postgres_with_an_idle_group) == {}


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
def test_a_producer_that_waits_for_the_deletion_begins_a_new_epoch(
    postgres_with_an_idle_group: Engine, isolation: str
) -> None:
    """The group is gone when the deletion commits, so its next event is number 1 of the present second's epoch."""
    with (
        ThreadPoolExecutor(1) as pool,
        postgres_with_an_idle_group.connect() as writer,
        postgres_with_an_idle_group.connect() as forgetting,
    ):
        writer.execution_options(isolation_level=isolation)
        with forgetting.begin():
            now = engines.now_us(forgetting, None) // 1_000_000
            assert Store(postgres_with_an_idle_group, TOPIC).forget_groups(forgetting, 60 * DAY) == 1
            adding = pool.submit(_add_and_commit, writer)
            await_lock_wait(postgres_with_an_idle_group)
        epoch, seq = adding.result(timeout=20)

    assert now <= epoch <= now + 60
    assert seq == 1
    assert _counters(postgres_with_an_idle_group) == {"a": (epoch, 1, 1)}


def test_a_producer_with_an_old_snapshot_begins_a_new_epoch(postgres_with_an_idle_group: Engine) -> None:
    """The transaction's snapshot is older than the deletion of the group; its event still begins a new epoch."""
    with postgres_with_an_idle_group.connect() as writer:
        writer.execution_options(isolation_level="REPEATABLE READ")
        with writer.begin():
            seen = writer.execute(select(tables.groups.c.last_seq)).scalars().all()
            assert _forget_idle_groups(postgres_with_an_idle_group) == 1
            epoch, seq = _write_event(writer)

    assert seen == [1]
    assert epoch > 1_000
    assert seq == 1
    assert _counters(postgres_with_an_idle_group) == {"a": (epoch, 1, 1)}


def _add_and_commit(writer: Connection) -> tuple[int, int]:
    """Add an event of group a in a transaction of its own, and return its epoch and number."""
    with writer.begin():
        return _write_event(writer)


def _forget_groups(store: Store, connection: Connection) -> int:
    """Forget the groups that were not used for sixty days."""
    return store.forget_groups(connection, 60 * DAY)


def _forget_sent(store: Store, connection: Connection) -> int:
    """Forget the messages that were sent more than a second ago."""
    return store.forget_sent(connection, 1)


@pytest.mark.parametrize("forget", [_forget_groups, _forget_sent], ids=["groups", "sent messages"])
def test_p6_an_open_transaction_of_a_producer_delays_no_relay(
    postgres: Engine, forget: Callable[[Store, Connection], int]
) -> None:
    """The producer has locked a row that the relay wants to forget; the relay still publishes other groups."""
    world = World(postgres)
    world.commit("a")
    work(world.relay())
    world.receive_all()
    with postgres.begin() as connection:
        if forget is _forget_groups:
            connection.execute(tables.messages.delete())
    world.clock.sleep(61 * DAY)
    relay = world.relay(settings=SETTINGS)

    with postgres.connect() as producer, producer.begin():
        OUTBOX.write(producer, [Event(type="t", group="a", data=None)])
        with pytest.raises(OperationalError, match="lock timeout"), postgres.begin() as connection:
            forget(world.store, connection)
        world.commit("b")
        work(relay)

        assert world.receive_places() == [("b", 1)]
        assert _counters(postgres).keys() == {"a", "b"}
