"""A worker with its threads ends in time, whatever its handler and its database do (S2, S3)."""

import threading
from dataclasses import replace

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.orm import Session

from sluice.messaging.database import connections
from sluice.messaging.envelope import Event
from sluice.messaging.errors import OutboxError
from sluice.messaging.handlers import Ack, Context, Outcome
from sluice.messaging.waiting import Stop
from sluice.messaging.worker.lane import Lane
from sluice.simulator.hook import Simulator
from tests.support.messaging.faulty_calls import seeded_random
from tests.support.messaging.worker_threads import SETTINGS, MachineClock, hanging, join_threads, running
from tests.support.messaging.world import World, places

IN_TIME_SECONDS = SETTINGS.drain_seconds + 5


@pytest.mark.parametrize("requests", [True, False], ids=["asks", "does not ask"])
def test_s2_a_worker_ends_in_time_whatever_its_handler_does(on_file: Engine, *, requests: bool) -> None:
    """At its deadline it releases the message, whether the handler asks if the message is still held, or never does."""
    world = World(on_file)
    world.send("a", "a")
    worker_parts = world.worker(poll_seconds=0)
    is_in_handler, may_end = threading.Event(), threading.Event()
    ended: list[str] = []

    def lingers(_: Session, __: Event, context: Context) -> Outcome:
        is_in_handler.set()
        while not may_end.wait(0.01):
            if requests:
                context.hold.check()
        ended.append("by itself")
        return Ack()

    world.handler_steps["a", 1] = [lingers]
    with running(worker_parts) as worker:
        assert is_in_handler.wait(30)
        worker.stop.request()
        worker.stop.request()  # as a second SIGTERM does, which must not cut the end short
        worker.wait_for_end(IN_TIME_SECONDS)
    releases = worker_parts.sqs_calls.of("ChangeMessageVisibility")
    may_end.set()
    join_threads()

    assert [call["VisibilityTimeout"] for call in releases] == [0]
    assert ended == ([] if requests else ["by itself"])
    assert world.committed_effects() == []
    assert places(world.bodies_in_queue()) == [("a", 1), ("a", 2)]
    assert worker_parts.sqs_calls.of("DeleteMessage") == []


def test_s2_a_worker_ends_in_time_despite_an_unanswered_commit(on_file: Engine) -> None:
    """Nobody knows whether the commit succeeded. The message is released, and the inbox recognises it if it did."""
    world = World(on_file)
    world.send("a")
    worker_parts = world.worker(poll_seconds=0)
    is_in_commit, may_end = threading.Event(), threading.Event()

    @event.listens_for(on_file, "commit")
    def hangs(_: object) -> None:
        if world.calls:
            is_in_commit.set()
            assert may_end.wait(30)

    with running(worker_parts) as worker:
        assert is_in_commit.wait(30)
        worker.stop.request()
        try:
            worker.wait_for_end(IN_TIME_SECONDS)
        finally:
            may_end.set()
    join_threads()

    assert [call["VisibilityTimeout"] for call in worker_parts.sqs_calls.of("ChangeMessageVisibility")] == [0]
    assert world.committed_effects() == [("a", 1)]
    world.work_until_idle(world.worker())
    assert world.called_places == [("a", 1)]


def test_s2_a_worker_finishes_its_present_message_before_it_ends(on_file: Engine) -> None:
    """The stop is requested inside the handler of the first message; the second stays in the queue."""
    world, stop = World(on_file), Stop()
    world.send("a", "a")
    world.handler_steps["a", 1] = [lambda *_: stop.request()]

    with running(world.worker(poll_seconds=0), stop=stop) as worker:
        worker.wait_for_end()

    assert world.committed_effects() == [("a", 1)]
    assert places(world.bodies_in_queue()) == [("a", 2)]


def test_a_worker_goes_on_after_an_error_outside_of_handlers(on_file: Engine) -> None:
    """The error is raised behind the first receive. That message stays in the queue, and the next one is handled."""
    world, stop = World(on_file), Stop()
    world.send("a", "b")
    world.handler_steps["b", 1] = [lambda *_: stop.request()]
    seen: list[str] = []

    def breaks_once(here: str) -> None:
        seen.append(here)
        if seen == ["after_receive"]:
            raise ZeroDivisionError

    with running(world.worker(poll_seconds=0, failpoint=breaks_once), stop=stop) as worker:
        worker.wait_for_end()

    assert world.committed_effects() == [("b", 1)]
    assert places(world.bodies_in_queue()) == [("a", 1)]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_worker_whose_lane_has_died_ends_with_an_error(on_file: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that looks alive and does nothing is worse than one that ends: whoever runs it starts another."""
    worker_parts = World(on_file).worker(poll_seconds=0)

    def exits() -> bool:
        raise SystemExit

    monkeypatch.setattr(worker_parts.lane, "step", exits)

    with running(worker_parts) as worker, pytest.raises(OutboxError, match="lane-0 ended by itself"):
        worker.wait_for_end()


def test_a_handler_that_never_ends_ends_its_worker_without_a_loss(on_postgres: Engine) -> None:
    """Other groups are handled meanwhile. The next worker handles the group again, from the message that hung."""
    world = World(on_postgres, simulator=Simulator(MachineClock()), timeout_seconds=2)
    world.settings = replace(world.settings, hold_seconds_max=2.0)
    connections.end_waits(on_postgres, 2)
    world.send("a", "a", "b")
    worker_parts = world.worker(poll_seconds=0)
    other = Lane(
        worker_parts.queue,
        worker_parts.processor,
        settings=SETTINGS,
        wait=worker_parts.wait,
        clock=world.clock,
        rng=seeded_random(2),
        signs=worker_parts.parts.signs,
        pause=worker_parts.parts.pause,
    )
    with hanging(world, ("a", 1)), running(worker_parts, other) as worker:
        with pytest.raises(OutboxError, match="of group a was given up and has not ended"):
            worker.wait_for_end()
        called = sorted((call.place, call.attempt) for call in world.calls)
    world.work_until_idle(world.worker(poll_seconds=0), steps_max=100_000)

    assert called == [(("a", 1), 1), (("b", 1), 1)]
    assert [place for place in world.committed_effects() if place[0] == "a"] == [("a", 1), ("a", 2)]
    assert [call.attempt for call in world.calls if call.place == ("a", 2)] == [1]
    assert world.bodies_in_queue() == []
    assert world.bodies_in_dlq() == []
