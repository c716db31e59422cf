"""Somebody sets the clock of the database's server, forward and backward: nothing is lost, doubled or held up by it.

Relays and workers measure by their own monotonic clock, which nobody sets.
"""

import random
from collections import defaultdict
from typing import Any

import pytest
from sqlalchemy import Engine

from sluice.messaging import Outbox
from sluice.messaging.database import engines
from sluice.messaging.handlers import Retry
from sluice.messaging.inbox.admission import Inbox
from sluice.messaging.outbox.store import Store
from sluice.messaging.relay.lease import Lease
from sluice.messaging.relay.relay import Relay
from tests.support.cases import one_case_in
from tests.support.messaging.faulty_calls import Fault
from tests.support.messaging.outbox.simulated_relays import work
from tests.support.messaging.world import SETTINGS, TOPIC, CallsInTurn, World, create_tables

_JUMPS_SECONDS = (-400 * 86_400, -86_400, -3_600, -1, 1, 3_600, 86_400, 30 * 86_400)
_GROUPS = tuple("abcd")
_TURNS = 30


class _SetClock:
    """The clock of a database's server, which is set now and then."""

    def __init__(self, clock: Any) -> None:
        self._clock, self.set_by_us = clock, 500 * 86_400_000_000

    def now_us(self) -> int:
        return int(self._clock.now_us()) + self.set_by_us

    def monotonic(self) -> float:
        return float(self._clock.monotonic())

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)


class _World(World):
    """A world whose database has a clock of its own."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.of_database = _SetClock(self.clock)
        self.outbox = Outbox(TOPIC, clock=self.of_database)
        self.store = Store(engine, TOPIC, clock=self.of_database)
        self.inbox = Inbox(self.policy, clock=self.of_database)

    def relay(self, *_: object, **__: object) -> Relay:
        """Return a relay whose lease is by the database's clock, and whose waits are by the host's."""
        lease = Lease(
            self.engine,
            TOPIC,
            lease_seconds=SETTINGS.lease_seconds,
            clock=self.of_database,
            own_clock=self.clock,
        )
        return Relay(self.store, lease, self.publisher(), settings=SETTINGS, clock=self.clock, calls=CallsInTurn)


@pytest.mark.parametrize("seed", one_case_in(4, range(8)))
def test_a_clock_that_is_set_loses_doubles_and_holds_up_nothing(seed: int) -> None:
    """Producers, two relays and a worker take random turns while the database's clock jumps by seconds to years.

    Calls to SNS fail, handlers ask for retries and relays die meanwhile; everything is delivered in the end.
    """
    rng = random.Random(seed)  # noqa: S311 (chance, not a secret)
    engine = engines.engine("sqlite://")
    create_tables(engine)
    world, committed = _World(engine), defaultdict[str, int](int)
    relays, worker = [world.relay(), world.relay()], world.worker()
    for _ in range(_TURNS):
        world.of_database.set_by_us += 1_000_000 * rng.choice(_JUMPS_SECONDS) * (rng.random() < 0.5)
        groups = rng.choices(_GROUPS, k=rng.randint(1, 3))
        world.commit(*groups)
        for group in groups:
            committed[group] += 1
        if rng.random() < 0.3:
            world.sns_calls.faults.append(rng.choice([Fault(unreachable=True), Fault(lost=True)]))
        if rng.random() < 0.3:
            group = rng.choice(groups)
            world.handler_steps[group, committed[group]] = [Retry(delay_seconds=1)]
        work(rng.choice(relays))
        if rng.random() < 0.2:
            relays[rng.randrange(2)] = world.relay()  # one that died, with its lease
        worker.lane.step()
        world.simulator.advance(rng.uniform(0, 5))
    world.sns_calls.faults.clear()
    for _ in range(3):  # who led may be gone: a lease's time and more
        world.simulator.advance(2 * SETTINGS.lease_seconds)
        for relay in relays:
            work(relay)
    world.work_until_idle(worker, steps_max=2_000)
    effects = world.committed_effects()
    engine.dispose()

    assert {group: [seq for its, seq in effects if its == group] for group in committed} == {
        group: list(range(1, last + 1)) for group, last in committed.items()
    }
    assert world.bodies_in_dlq() == []
