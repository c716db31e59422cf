"""A password that was changed after a process read it: the process ends, and one that reads it anew goes on."""

import random
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest
from sqlalchemy import Engine, make_url
from sqlalchemy.orm import Session

from sluice.messaging.database import engines
from sluice.messaging.envelope import Event
from sluice.messaging.errors import OutboxError
from sluice.messaging.handlers import Ack, Context, Outcome
from sluice.messaging.outbox import tables
from sluice.messaging.outbox.store import Store
from sluice.messaging.relay.lease import Lease
from sluice.messaging.relay.relay import Relay, RelaySettings, run
from sluice.messaging.waiting import Stop
from sluice.simulator.hook import Simulator
from tests.support.messaging.passwords import change_password, execute, owner_of
from tests.support.messaging.worker_threads import MachineClock, join_threads, running
from tests.support.messaging.world import World, create_tables

_END_CONNECTIONS = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = 'consumer'"


@pytest.fixture
def owner(private_postgres: Any) -> Iterator[Engine]:
    """Yield an engine on a Postgres that lets a consumer in with a password only: with "first" for now."""
    with owner_of(private_postgres) as engine:
        execute(engine, "ALTER ROLE consumer SUPERUSER")
        create_tables(engine)
        yield engine


def _rotate(owner: Engine) -> None:
    """Change the consumer's password, and end its connections."""
    change_password(owner, "second")
    execute(owner, _END_CONNECTIONS)


def _with_password(owner: Engine, password: str) -> Engine:
    """Return an engine that connects as the consumer with this password."""
    url = make_url(owner.url).set(username="consumer", password=password)
    return engines.engine(url.render_as_string(hide_password=False))


def test_a_worker_whose_password_was_changed_ends_and_says_so(owner: Engine) -> None:
    """The present message's effect is rolled back. A worker with the new password handles the message again."""
    first, second = _with_password(owner, "first"), _with_password(owner, "second")
    world = World(first, simulator=Simulator(MachineClock()))
    world.send("a", "a")

    def change_the_password(_: Session, __: Event, ___: Context) -> Outcome:
        _rotate(owner)
        return Ack()

    world.handler_steps["a", 1] = [change_the_password]
    with (
        running(world.worker(poll_seconds=0)) as worker,
        pytest.raises(OutboxError, match=r"refuses the credentials.*password authentication failed"),
    ):
        worker.wait_for_end()
    join_threads()
    world.engine = second
    world.work_until_idle(world.worker(poll_seconds=0), steps_max=100_000)

    assert world.committed_effects() == [("a", 1), ("a", 2)]
    assert [(call.place, call.attempt) for call in world.calls] == [(("a", 1), 1), (("a", 1), 2), (("a", 2), 1)]
    first.dispose()
    second.dispose()


def test_a_relay_whose_password_was_changed_ends_and_says_so(owner: Engine) -> None:
    """A relay that goes on trying a wrong password would publish nothing and look alive."""
    with owner.begin() as connection:
        tables.metadata.create_all(connection)
    engine, settings = _with_password(owner, "first"), RelaySettings()
    relay = Relay(Store(engine, "orders"), Lease(engine, "orders", lease_seconds=30), Mock(), settings=settings)
    assert not relay.step()

    _rotate(owner)

    with pytest.raises(OutboxError, match=r"refuses the credentials.*password authentication failed"):
        run(relay, Stop(), settings, rng=random.Random(1))  # noqa: S311 (no secret)
    engine.dispose()
