"""Who waits for what never comes, a handler or a database that does not answer, and what it costs the others."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sluice.messaging.database import engines
from sluice.messaging.envelope import Event
from sluice.messaging.errors import OutboxError
from sluice.messaging.handlers import Ack, Context, Outcome
from sluice.messaging.waiting import Stop
from sluice.messaging.worker.lane import Lane
from sluice.messaging.worker.processor import Abandon
from sluice.messaging.worker.settings import WorkerSettings
from sluice.simulator.hook import Simulator
from tests.integration.messaging.worker.test_hold import MachineClock
from tests.integration.messaging.worker.test_polling import join_lanes, worker_of
from tests.support.worker_harness import TIMEOUT_SECONDS, World, seeded
from tests.support.worker_processes import DatabaseLine

PATIENCE_SECONDS = 30
SETTINGS = WorkerSettings(lanes=2, wait_seconds=0, drain_seconds=0.5, keep_inbox_seconds=86_400)


def test_a_handler_that_never_ends_ends_its_worker_and_nothing_behind_it(on_postgres: Engine) -> None:
    """What follows it in its group is not touched, other groups go on, and another worker does all of it in order."""
    world = World(on_postgres, simulator=Simulator(MachineClock()), timeout_seconds=2)
    world.settings = replace(world.settings, hold_seconds_max=2.0)
    engines.end_waits(on_postgres, 2)
    world.send("a", "a", "b")
    may_end = threading.Event()

    def never_ends(_: Session, __: Event, ___: Context) -> Outcome:
        assert may_end.wait(PATIENCE_SECONDS)
        return Ack()

    world.says["a", 1] = [never_ends]
    hands, stop = world.worker(poll_seconds=0), Stop()
    other = Lane(
        hands.queue,
        hands.processor,
        settings=SETTINGS,
        wait=hands.wait,
        clock=world.clock,
        rng=seeded(2),
        signs=hands.parts.signs,
    )
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(worker_of(hands, stop, SETTINGS, other).run)
        try:
            with pytest.raises(OutboxError, match="of group a was given up and has not ended"):
                running.result(PATIENCE_SECONDS)
            called = sorted((call.place, call.attempt) for call in world.calls)
        finally:
            stop.request()
            may_end.set()
    join_lanes()
    world.work_off(world.worker(poll_seconds=0), steps_max=100_000)

    assert called == [(("a", 1), 1), (("b", 1), 1)]
    assert [place for place in world.effects() if place[0] == "a"] == [("a", 1), ("a", 2)]
    assert [call.attempt for call in world.calls if call.place == ("a", 2)] == [1]
    assert (world.left(), world.dead()) == ([], [])


def test_a_database_that_falls_silent_is_waited_for_so_long_and_costs_one_message_an_attempt(
    on_postgres: Engine,
) -> None:
    """Its host still acknowledges what it is sent, so no keepalive notices; nothing new is received meanwhile."""
    with DatabaseLine(on_postgres) as line:
        silent = line.engine()
        engines.end_waits(silent, 1)
        world = World(silent)
        world.send("warm")
        worker = world.worker()
        world.work_off(worker)
        world.send("a", "a", "b", "c")
        worker.wait.meanwhile = lambda: world.simulator.advance(TIMEOUT_SECONDS)
        line.hold()

        ended = worker.processor.process(world.receive(worker))
        worker.lane.step()
        received = len(worker.line.calls("ReceiveMessage"))
        line.let_go()
        world.work_off(worker)
        silent.dispose()
    world.engine = on_postgres

    assert (ended, received) == (Abandon(), 2)
    attempts = {place: attempt for call in world.calls for place, attempt in [(call.place, call.attempt)]}
    assert attempts == {("warm", 1): 1, ("a", 1): 2, ("a", 2): 1, ("b", 1): 1, ("c", 1): 1}
    assert sorted(world.effects()) == sorted(attempts)
    assert (world.left(), world.dead()) == ([], [])
