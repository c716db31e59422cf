"""A paused consumer's worker finishes what it has received, receives nothing more, and goes on after the pause."""

import threading
from collections.abc import Callable

import pytest
from sqlalchemy import Connection, Engine, select
from sqlalchemy.exc import OperationalError

from sluice.clock import eventually
from sluice.limits import WAIT_SECONDS_MAX
from sluice.messaging.errors import DeadLetterError
from sluice.messaging.inbox.groups import InboxPolicy
from sluice.messaging.inbox.pause import LOOK_SECONDS, PauseOperator, PauseWatch
from sluice.messaging.inbox.tables import audit, parked
from sluice.messaging.worker.processing.acknowledgements import Delete
from sluice.simulator.hook import Simulator
from tests.support.messaging.worker_threads import PATIENCE_SECONDS, MachineClock, running
from tests.support.messaging.world import KINDS_OF_ASYNCIO, WorkerParts, World, envelope

ANN = PauseOperator(consumer="billing", actor="ann", reason="the bank is closed")
BOB = PauseOperator(consumer="billing", actor="bob", reason="its handler does harm")
RECEIVE = "ReceiveMessage"


def _act(world: World, act: Callable[[Connection], None]) -> None:
    with world.engine.begin() as connection:
        act(connection)


def _step_later(world: World, worker: WorkerParts, steps: int = 3) -> None:
    """Take some steps of the lane, after the time in which it looks at the pause again."""
    world.simulator.advance(10)
    for _ in range(steps):
        worker.lane.step()


def _require_pause(world: World, worker: WorkerParts) -> None:
    """Pause the consumer; the test fails if its worker receives a message meanwhile, or does not go on afterwards."""
    world.send("a")
    world.work_until_idle(worker)
    received = len(worker.sqs_calls.of(RECEIVE))
    _act(world, ANN.pause)
    world.send("a", "b")
    _step_later(world, worker)
    assert len(worker.sqs_calls.of(RECEIVE)) == received
    assert world.committed_effects() == [("a", 1)]
    assert worker.parts.signs.liveness.overdue() == {}

    _act(world, BOB.resume)
    _step_later(world, worker)
    assert world.committed_effects() == [("a", 1), ("a", 2), ("b", 1)]
    assert {call.attempt for call in world.calls} == {1}


@pytest.mark.parametrize("kind", ["plain", *KINDS_OF_ASYNCIO])
def test_a_paused_consumers_worker_receives_nothing_until_it_is_resumed(engine: Engine, kind: str) -> None:
    """Plain and asyncio handlers take the same steps. Nothing of the pause uses up an attempt."""
    world = World(engine)

    _require_pause(world, world.worker(handlers=world.handlers_of_asyncio(kind)))


def test_a_worker_that_does_not_look_at_the_pause_is_caught(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control."""
    monkeypatch.setattr(PauseWatch, "is_paused", lambda *_, **__: False)

    with pytest.raises(AssertionError):
        _require_pause(world, world.worker())


def test_a_worker_that_starts_during_a_pause_receives_nothing(world: World) -> None:
    """Its first step looks at the pause before it receives."""
    _act(world, ANN.pause)
    world.send("a")
    worker = world.worker()
    world.simulator.advance(10)

    worker.lane.step()

    assert worker.sqs_calls.of(RECEIVE) == []
    assert worker.lane.active_at >= world.clock.monotonic(), "its queue does not count as empty"


def test_no_lane_waits_for_the_first_look_of_another(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that does not answer would hold up one after the other."""
    pause = world.worker().parts.pause
    other = threading.Thread(target=pause.is_paused)

    def look(*_: object) -> None:
        other.start()
        other.join(PATIENCE_SECONDS)
        assert not other.is_alive()

    monkeypatch.setattr("sluice.messaging.inbox.pause.find_pause", look)
    assert not pause.is_paused()


def test_a_message_that_was_received_before_the_pause_is_handled(world: World) -> None:
    """To release it would use up one of its attempts."""
    world.send("a")
    worker = world.worker()
    message = world.receive(worker)
    _act(world, ANN.pause)

    assert worker.processor.process(message) == Delete()
    assert world.committed_effects() == [("a", 1)]


def test_a_bundle_is_released_between_two_events_and_uses_up_no_attempt(engine: Engine) -> None:
    """The pause comes after the receive: event 1 is in work and is finished, and 2 and 3 wait for the resume."""
    world = World(engine, has_bundles=True)
    world.put_bundle(*(envelope("a", number) for number in (1, 2, 3)))
    worker = world.worker()

    message = world.receive(worker)
    _act(world, ANN.pause)
    assert worker.parts.pause.is_paused()
    worker.processor.process(message)
    assert world.committed_effects() == [("a", 1)]
    world.simulator.advance(LOOK_SECONDS + WAIT_SECONDS_MAX - 1)
    assert worker.queue.receive(attempt_id=None, wait_seconds=0) is None, "a poll that is still open"

    _act(world, BOB.resume)
    _step_later(world, worker)
    assert world.committed_effects() == [("a", 1), ("a", 2), ("a", 3)]
    assert {call.attempt for call in world.calls} == {1}


def test_parked_messages_wait_during_a_pause_and_use_up_no_attempt(engine: Engine) -> None:
    """The pause comes after the drainer has claimed the group: message 2 is in work and finished, 3 and 4 wait."""
    world = World(engine, policy=InboxPolicy(consumer="billing", parks_poison=True, parks_gaps=True))
    worker = world.park("a", behind=3)
    world.simulator.advance(LOOK_SECONDS)
    (claimed,) = worker.drainer.claim()
    _act(world, ANN.pause)
    world.handler_steps["a", 2] = [lambda *_: world.simulator.advance(10)]

    assert worker.drainer.drain(claimed) == 1
    world.simulator.advance(LOOK_SECONDS)
    assert worker.drainer.claim() == []
    with engine.connect() as connection:
        assert set(connection.execute(select(parked.c.attempts)).scalars()) == {0}

    _act(world, ANN.resume)
    world.simulator.advance(LOOK_SECONDS)
    assert worker.drainer.step() == 2
    assert world.committed_effects() == [("a", 1), ("a", 2), ("a", 3), ("a", 4)]


def test_a_database_that_does_not_answer_leaves_the_last_answer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first answer nothing is received."""
    world.send("a")
    worker = world.worker()
    away = OperationalError("SELECT", {}, Exception("the server closed the connection"))

    def fail(*_: object) -> None:
        raise away

    with monkeypatch.context() as patched:
        patched.setattr("sluice.messaging.inbox.pause.find_pause", fail)
        worker.lane.step()
        assert worker.sqs_calls.of(RECEIVE) == []
    worker.lane.step()
    with monkeypatch.context() as patched:
        patched.setattr("sluice.messaging.inbox.pause.find_pause", fail)
        world.send("a")
        _step_later(world, worker, steps=1)

    assert world.committed_effects() == [("a", 1), ("a", 2)]


def test_running_lanes_go_on_after_a_pause(on_postgres: Engine) -> None:
    """The thread that looks for parked groups looks at the pause for all lanes."""
    world = World(on_postgres, simulator=Simulator(MachineClock()))
    _act(world, ANN.pause)
    world.send("a", "b")
    worker_parts = world.worker(poll_seconds=0)
    with running(worker_parts, worker_parts.lane):
        eventually(lambda: len(worker_parts.wait.waits) > 0, timeout_seconds=PATIENCE_SECONDS, describe="a lane waits")
        assert world.calls == []
        _act(world, BOB.resume)
        eventually(
            lambda: len(world.committed_effects()) == 2, timeout_seconds=PATIENCE_SECONDS, describe="both are handled"
        )


def test_the_second_of_two_operators_learns_who_paused_the_consumer(engine: Engine) -> None:
    """Both act at once: the second waits for the first one's transaction."""
    refusals: list[str] = []

    def pause_too() -> None:
        try:
            with engine.begin() as connection:
                BOB.pause(connection)
        except DeadLetterError as error:
            refusals.append(str(error))

    second = threading.Thread(target=pause_too)
    with engine.begin() as connection:
        ANN.pause(connection)
        second.start()
    second.join()

    (refusal,) = refusals
    assert refusal.startswith("billing is paused already since 20")
    assert refusal.endswith("by ann: the bank is closed; see `inbox resume`")
    with engine.begin() as connection:
        BOB.resume(connection)
        with pytest.raises(DeadLetterError, match="billing is not paused"):
            ANN.resume(connection)
        acts = connection.execute(select(audit.c.action, audit.c.actor, audit.c.reason).order_by(audit.c.id)).all()
    assert [tuple(act) for act in acts] == [("pause", "ann", ANN.reason), ("resume", "bob", BOB.reason)]
