"""A bundle: each of its events has an effect, attempts and an end of its own, whatever becomes of the others."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, ClassVar, override
from unittest.mock import patch

import pytest
from sqlalchemy import Connection, Engine, text
from sqlalchemy.event import listen
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from sluice.errors import ConfigError
from sluice.messaging.bundle import BundledEvent, write_bundle
from sluice.messaging.database import connections
from sluice.messaging.database.answer_watch import shut_down
from sluice.messaging.database.transactions import BegunTransaction, Mark, MarkStatement
from sluice.messaging.envelope import Event
from sluice.messaging.failpoints import WORKER
from sluice.messaging.handlers import ANY, Ack, Context, Handlers, LaneHandler, Reject, Retry
from sluice.messaging.inbox.groups import DecodedMessage, InboxPolicy
from sluice.messaging.sqs.queue import ReceivedMessage
from sluice.messaging.worker.hooks import WorkerHooks
from sluice.messaging.worker.processing import bundle_processor
from sluice.messaging.worker.processing.acknowledgements import Acknowledgement, Delete, Release
from sluice.messaging.worker.processing.event_processor import AttemptResult, BundleProgress
from sluice.messaging.worker.processing.handler_runner import HandlerRunner
from sluice.messaging.worker.processing.message_lease import MessageLease
from sluice.messaging.worker.processing.processor import MessageProcessor
from tests.support.messaging.broken_workers import AcknowledgesAfterTheFirst, DiesWithItsNeighbours
from tests.support.messaging.connection_misdeeds import driver_of
from tests.support.messaging.faulty_calls import Fault, ProcessKill, failing_at
from tests.support.messaging.world import (
    MAX_ATTEMPTS,
    TIMEOUT_SECONDS,
    WorkerParts,
    World,
    envelope,
    in_memory_world,
    places,
)

COUNT = 4
NUMBERS = range(1, COUNT + 1)
SKIPPING = InboxPolicy(consumer="billing")
PARKING = InboxPolicy(consumer="billing", parks_poison=True, parks_gaps=True)
_DRAINING = ("in_drain", "before_drain_commit", "after_drain_commit")
SECOND_BY_DEFAULT = [2, *(pytest.param(number, marks=pytest.mark.slow) for number in NUMBERS if number != 2)]
KILLED_BY_DEFAULT = {("after_commit", 2), ("before_dead_letter", 1), ("after_dead_letter", 1), ("between_events", 2)}
OF_A_LANE = tuple(name for name in WORKER if name not in _DRAINING)


def in_group(*numbers: int) -> list[tuple[str, int]]:
    return [("a", number) for number in numbers]


@pytest.fixture
def engine() -> Iterator[Engine]:
    with in_memory_world() as made:
        yield made.engine


def _worlds() -> Iterator[Any]:
    by_day = {"skip-engine-each", "skip-engine-together"}
    for policy, database, commits in product(("skip", "park"), ("engine", "on_postgres"), ("each", "together")):
        id_ = f"{policy}-{database}-{commits}"
        yield pytest.param((policy, database, commits), id=id_, marks=() if id_ in by_day else pytest.mark.slow)


@pytest.fixture(params=_worlds())
def world(request: pytest.FixtureRequest) -> World:
    """Return a consumer of bundles on each database, with each policy for what is behind a dead event.

    It commits each event, or all events of a bundle together.
    """
    policy, database, commits = request.param
    engine: Engine = request.getfixturevalue(database)
    chosen = PARKING if policy == "park" else SKIPPING
    return World(engine, has_bundles=True, policy=chosen, commits_bundles=commits == "together")


def put_four(world: World) -> None:
    world.put_bundle(*(envelope("a", number) for number in NUMBERS))


def finish(world: World, *workers: WorkerParts) -> None:
    """Work until the queue is empty and nothing is parked that is due."""
    world.work_until_idle(*workers)
    while any(worker.drainer.step() for worker in workers):
        pass


def test_events_of_a_bundle_are_handled_in_order_and_deleted_once(world: World) -> None:
    """Four events are one message of SQS: four calls of the handler, and one delete."""
    put_four(world)
    worker = world.worker()

    world.work_until_idle(worker)

    assert world.committed_effects() == in_group(*NUMBERS)
    assert [call.attempt for call in world.calls] == [1] * COUNT
    assert len(worker.sqs_calls.of("DeleteMessage")) == 1


@pytest.mark.parametrize("poison", SECOND_BY_DEFAULT)
def test_a_dead_event_takes_no_neighbour_with_it(world: World, poison: int) -> None:
    """The event fails in each attempt; those behind it are handled at once, or are parked until its redrive."""
    put_four(world)
    world.handler_steps["a", poison] = [RuntimeError("poison")] * MAX_ATTEMPTS
    worker = world.worker()

    finish(world, worker)

    behind = [] if world.policy.parks_poison else [number for number in NUMBERS if number > poison]
    assert world.committed_effects() == in_group(*range(1, poison), *behind)
    assert places(world.bodies_in_dlq()) == in_group(poison)
    assert [call.attempt for call in world.calls if call.place == ("a", poison)] == [1, 2, 3]
    assert {call.attempt for call in world.calls if call.place != ("a", poison)} <= {1}

    world.redrive()
    finish(world, worker)

    assert sorted(world.committed_effects()) == in_group(*NUMBERS)
    assert world.bodies_in_dlq() == []
    if world.policy.parks_poison:
        assert world.committed_effects() == in_group(*NUMBERS)


@pytest.mark.parametrize("rejected", SECOND_BY_DEFAULT)
def test_a_rejected_event_is_dead_at_once_and_the_others_go_on(world: World, rejected: int) -> None:
    """One call of the handler is enough for a `Reject`; in a parked group those behind it are not called."""
    put_four(world)
    world.handler_steps["a", rejected] = [Reject("never")]

    finish(world, world.worker())

    assert places(world.bodies_in_dlq()) == in_group(rejected)
    assert world.exceptions()["a", rejected] == ("dead", "never")
    assert world.called_places.count(("a", rejected)) == 1
    called = range(1, rejected + 1) if world.policy.parks_poison else NUMBERS
    assert set(world.called_places) == set(in_group(*called))


def test_each_event_has_all_of_its_attempts(world: World) -> None:
    """The receives of one event would use up those of the next one, if they counted."""
    put_four(world)
    for number in NUMBERS:
        world.handler_steps["a", number] = [RuntimeError("not yet")] * (MAX_ATTEMPTS - 1)

    world.work_until_idle(world.worker())

    assert world.committed_effects() == in_group(*NUMBERS)
    assert [(call.place, call.attempt) for call in world.calls] == [
        (("a", number), attempt) for number in NUMBERS for attempt in (1, 2, 3)
    ]
    assert [call.is_last_attempt for call in world.calls] == [False, False, True] * COUNT
    assert world.bodies_in_dlq() == []


def test_every_event_of_a_bundle_can_be_dead(engine: Engine) -> None:
    """Each event uses up its own attempts and is a dead letter of its own."""
    world = World(engine, has_bundles=True)
    put_four(world)
    for number in NUMBERS:
        world.handler_steps["a", number] = [RuntimeError("poison")] * MAX_ATTEMPTS

    world.work_until_idle(world.worker())

    assert places(world.bodies_in_dlq()) == in_group(*NUMBERS)
    assert len(world.calls) == COUNT * MAX_ATTEMPTS


def test_a_retry_keeps_its_delay_and_the_order_of_the_group(world: World) -> None:
    """Event 2 of the first bundle asks for 40 s; the second bundle of the group waits behind it.

    In one transaction the retry rolls event 1 back, too, which is then handled again.
    """
    put_four(world)
    world.put_bundle(envelope("a", COUNT + 1), envelope("a", COUNT + 2))
    world.handler_steps["a", 2] = [Retry(delay_seconds=40)]

    world.work_until_idle(world.worker())

    handled_again = in_group(1) if world.settings.commits_bundles else []
    assert world.called_places == [*in_group(1, 2), *handled_again, *in_group(2, 3, 4, 5, 6)]
    assert world.committed_effects() == in_group(1, 2, 3, 4, 5, 6)
    assert world.calls[-5].time - world.calls[1].time >= 40


@pytest.mark.parametrize(
    ("failpoint", "place"),
    [
        pytest.param(failpoint, place, marks=() if (failpoint, place) in KILLED_BY_DEFAULT else pytest.mark.slow)
        for failpoint in OF_A_LANE
        for place in (1, 2, COUNT)
    ],
)
def test_a_worker_killed_anywhere_in_a_bundle_repeats_and_loses_nothing(
    world: World, failpoint: str, place: int
) -> None:
    """The process dies at the first, second or last time that it gets there; another one finishes."""
    put_four(world)
    world.handler_steps["a", 2] = [RuntimeError("not yet")]
    world.handler_steps["a", 3] = [Reject("never")]
    killed = world.worker(failpoint=failing_at(failpoint, place))

    try:
        finish(world, killed)
    except ProcessKill:
        killed.shutdown.set()
    world.simulator.advance(TIMEOUT_SECONDS + 1)
    finish(world, world.worker())

    behind = () if world.policy.parks_poison else (4,)
    assert world.committed_effects() == in_group(1, 2, *behind)
    assert places(world.bodies_in_dlq()) == in_group(3)


@pytest.mark.parametrize("commits_bundles", [False, True])
def test_an_event_that_kills_its_worker_each_time_is_dead_alone(engine: Engine, *, commits_bundles: bool) -> None:
    """Event 2 ends the process before its commit, each time: its neighbours have effects, with either way to commit."""
    kill_a_worker_at_each_receive(World(engine, has_bundles=True, commits_bundles=commits_bundles))


def kill_a_worker_at_each_receive(world: World, kind: type[MessageProcessor] = MessageProcessor) -> None:
    """Check that the event that ends its process is dead alone.

    The first time is not recorded, because the first receive of a bundle writes nothing. With one transaction those in
    front of the event are handled at the second receive, so that its second time is not recorded, either.
    """
    put_four(world)

    def kill(here: str) -> None:
        if here == "before_commit" and world.called_places[-1] == ("a", 2):
            raise ProcessKill(here)

    for _ in range(MAX_ATTEMPTS + 1 + world.settings.commits_bundles):
        with pytest.raises(ProcessKill):
            world.work_until_idle(world.worker(failpoint=kill, kind=kind))
        world.simulator.advance(TIMEOUT_SECONDS + 1)
    world.work_until_idle(world.worker(kind=kind))

    assert world.committed_effects() == in_group(1, 3, 4)
    assert places(world.bodies_in_dlq()) == in_group(2)


def test_a_bundle_that_comes_again_is_dropped(world: World) -> None:
    """The same four events are sent in two messages, as by a relay that got no answer."""
    worker = world.worker()
    sent = [envelope("a", number) for number in NUMBERS]
    for _ in range(2):
        world.put_bundle(*sent)

    world.work_until_idle(worker)

    assert world.committed_effects() == in_group(*NUMBERS)
    assert world.bodies_in_queue() == []


def test_copies_in_other_bundles_and_alone_are_handled_once(world: World) -> None:
    """A resend may draw other boundaries, and an older relay sends each event alone."""
    sent = {number: envelope("a", number) for number in NUMBERS}
    world.put_bundle(sent[1], sent[2])
    world.put_bundle(sent[2], sent[3])
    world.put(sent[3])
    world.put_bundle(sent[1], sent[2], sent[3], sent[4])

    world.work_until_idle(world.worker())

    assert world.committed_effects() == in_group(*NUMBERS)
    assert world.bodies_in_dlq() == []


def test_a_number_missing_in_a_bundle_is_a_gap(world: World) -> None:
    """Number 3 is handled at once, and 2 comes late; or 3 is parked until 2 is there."""
    world.put_bundle(envelope("a", 1), envelope("a", 3))
    worker = world.worker()
    finish(world, worker)

    assert world.committed_effects() == (in_group(1) if world.policy.parks_gaps else in_group(1, 3))

    world.put(envelope("a", 2))
    finish(world, worker)

    assert sorted(world.committed_effects()) == in_group(1, 2, 3)
    assert [call.is_late for call in world.calls] == [False, False, not world.policy.parks_gaps]


def test_a_bundle_may_begin_an_epoch(world: World) -> None:
    """A new epoch counts from 1 again, at the beginning of a bundle or in the middle of one."""
    put_four(world)
    world.put_bundle(envelope("a", 1, epoch=2), envelope("a", 2, epoch=2))
    world.put_bundle(envelope("a", 3, epoch=2), envelope("a", 1, epoch=3))

    world.work_until_idle(world.worker())

    assert world.committed_effects() == in_group(*NUMBERS, 1, 2, 3, 1)


def change_the_data(event: str) -> str:
    return json.dumps(json.loads(event) | {"data": "another"})


def take_another_group(event: str) -> str:
    del event
    return envelope("b", 2).body


def nest_a_bundle(event: str) -> str:
    del event
    return '{"sluice":2,"events":[]}'


@pytest.mark.parametrize("spoil", [change_the_data, take_another_group, nest_a_bundle])
@pytest.mark.parametrize("spoiled", SECOND_BY_DEFAULT)
def test_an_unreadable_event_is_dead_alone(engine: Engine, spoil: Callable[[str], str], spoiled: int) -> None:
    """One event's data is changed, its group is another one, or it is itself a bundle; the other three are handled."""
    world = World(engine, has_bundles=True)
    bodies = [envelope("a", number).body for number in NUMBERS]
    bodies[spoiled - 1] = spoil(bodies[spoiled - 1])
    world.put_body(write_bundle(bodies), "a")

    world.work_until_idle(world.worker())

    assert world.bodies_in_dlq() == [bodies[spoiled - 1]]
    assert world.committed_effects() == in_group(*(number for number in NUMBERS if number != spoiled))


def test_the_death_of_an_unreadable_event_is_told_once(engine: Engine) -> None:
    """Also where its bundle comes again before it is reached."""

    class DeathReasons(WorkerHooks):
        deaths: ClassVar[list[str]] = []

        @override
        def dead_lettered(self, _: object, reason: str) -> None:
            self.deaths.append(reason)

    world = World(engine, has_bundles=True)
    world.handler_steps["a", 1] = [Retry()]
    world.put_body(write_bundle([envelope("a", 1).body, nest_a_bundle("")]), "a")

    world.work_until_idle(world.worker(hooks=[DeathReasons()]))

    assert len(DeathReasons.deaths) == 1


def test_a_message_that_is_no_event_is_dead_as_it_is(world: World) -> None:
    """The DLQ gets the body unchanged, and no handler is called."""
    world.put_body("no envelope", "a")

    world.work_until_idle(world.worker())

    assert world.bodies_in_dlq() == ["no envelope"]
    assert world.calls == []


def test_a_worker_that_stops_releases_the_rest_of_a_bundle(world: World) -> None:
    """It is asked to stop while it handles event 2; another worker handles 3 and 4 in their first attempts."""
    put_four(world)
    stopping = world.worker()

    def stop(*_: Any) -> None:
        stopping.wait.has_stop_request = True

    world.handler_steps["a", 2] = [stop]
    stopping.lane.step()

    assert world.committed_effects() == in_group(1, 2)

    world.work_until_idle(world.worker())

    assert world.committed_effects() == in_group(*NUMBERS)
    assert [call.attempt for call in world.calls] == [1] * COUNT


def test_a_lost_lease_stops_the_work_on_a_bundle(world: World) -> None:
    """The handler of the second event takes longer than the visibility timeout, and nothing extends it."""
    put_four(world)
    world.handler_steps["a", 2] = [lambda *_: world.simulator.advance(TIMEOUT_SECONDS + 1)]
    slow, other = world.worker(), world.worker()

    slow.lane.step()
    assert world.committed_effects() == ([] if world.settings.commits_bundles else in_group(1))

    world.work_until_idle(other)
    assert world.committed_effects() == in_group(*NUMBERS)


def test_a_long_bundle_keeps_its_lease(world: World) -> None:
    """Each event has as long as a message of its own; all of them together take longer than one may."""
    put_four(world)
    worker = world.worker()

    def take_long(*_arguments: Any) -> None:
        for _ in range(int(8 * TIMEOUT_SECONDS / 10)):
            world.simulator.advance(10)
            worker.heartbeat.beat()

    for number in NUMBERS:
        world.handler_steps["a", number] = [take_long]
    world.work_until_idle(worker)

    assert world.committed_effects() == in_group(*NUMBERS)
    assert [call.attempt for call in world.calls] == [1] * COUNT


def test_a_dlq_that_does_not_answer_keeps_the_bundle_in_the_queue(world: World) -> None:
    """The first send of event 2's dead letter fails; the bundle comes again, and event 2 is not tried again."""
    put_four(world)
    world.handler_steps["a", 2] = [Reject("never")]
    worker = world.worker()
    worker.sqs_calls.operations += ("sqs.SendMessage",)
    worker.sqs_calls.faults.append(Fault(operation="SendMessage", unreachable=True))

    finish(world, worker)

    assert places(world.bodies_in_dlq()) == in_group(2)
    assert world.called_places.count(("a", 2)) == 1


def test_a_dead_letter_is_sent_once_although_its_bundle_returns(engine: Engine) -> None:
    """The event behind it fails for longer than SQS remembers the first copy."""
    world = World(engine, has_bundles=True)
    put_four(world)
    world.handler_steps["a", 1] = [Reject("never")]
    world.handler_steps["a", 2] = [Retry(delay_seconds=400), Retry(delay_seconds=400)]

    world.work_until_idle(world.worker())

    assert places(world.bodies_in_dlq()) == in_group(1)
    assert world.committed_effects() == in_group(2, 3, 4)


def test_hooks_are_called_for_each_event(engine: Engine) -> None:
    """Each call has its own event's number and body, and the one message id of SQS."""

    class HandledEvents(WorkerHooks):
        def __init__(self) -> None:
            self.seen: list[tuple[int, str, str]] = []

        @override
        def before_acknowledge(self, settled: Any) -> None:
            message = settled.message
            self.seen.append((message.envelope.seq, message.body, message.sqs_message_id))

    world, hook = World(engine, has_bundles=True), HandledEvents()
    sent = [envelope("a", number) for number in NUMBERS]
    world.put_bundle(*sent)

    world.work_until_idle(world.worker(hooks=[hook]))

    assert [entry[:2] for entry in hook.seen] == [(envelope.seq, envelope.body) for envelope in sent]
    assert len({entry[2] for entry in hook.seen}) == 1


@pytest.mark.parametrize(("commits_bundles", "count"), [(False, COUNT), (True, 1)], ids=["each", "together"])
def test_events_of_a_bundle_have_a_commit_each_or_one(engine: Engine, *, commits_bundles: bool, count: int) -> None:
    """The commits of the database are counted while one bundle of four is handled."""
    world, commits = World(engine, has_bundles=True, commits_bundles=commits_bundles), list[Connection]()
    put_four(world)
    worker = world.worker()
    assert not worker.parts.pause.is_paused()  # a look is a transaction of its own
    listen(engine, "commit", commits.append)

    worker.lane.step()

    assert len(commits) == count
    assert world.committed_effects() == in_group(*NUMBERS)


def test_a_handler_cannot_roll_back_the_event_before_it(world: World) -> None:
    """The handler of event 1 leaves a savepoint, and the one of event 2 rolls back to it."""
    roll_back_a_neighbour(world)


def executing(statement: str) -> LaneHandler:
    def handle(session: Session, *_: object) -> None:
        session.execute(text(statement))

    return handle


def roll_back_a_neighbour(world: World, kind: type[MessageProcessor] = MessageProcessor) -> None:
    """Check that an event keeps its effect whose handler leaves a savepoint that the next handler rolls back to."""
    put_four(world)
    world.handler_steps["a", 2] = [executing("ROLLBACK TO SAVEPOINT left")]

    world.handler_steps["a", 1] = [executing("SAVEPOINT left")]
    world.work_until_idle(world.worker(kind=kind))

    assert world.committed_effects() == in_group(*NUMBERS)


def test_hooks_of_a_failed_handlers_session_are_not_called(world: World) -> None:
    """Of Django's `on_commit` too: a savepoint would leave them to the commit of those before it."""
    put_four(world)
    called = list[int]()

    def hang_a_hook(number: int) -> LaneHandler:
        def handle(session: Session, *_: object) -> None:
            listen(session, "after_commit", lambda _: called.append(number))

        return handle

    def fail(session: Session, *_: object) -> Retry:
        listen(session, "after_commit", lambda _: called.append(-2))
        return Retry()

    world.handler_steps["a", 1] = [hang_a_hook(1)] * 2
    world.handler_steps["a", 2] = [fail, hang_a_hook(2)]
    world.work_until_idle(world.worker())

    assert called == [1, 2]


def test_a_commit_that_fails_is_repeated_for_each_event_alone(world: World) -> None:
    """A hook of the session, which only the commit calls, refuses one event."""
    put_four(world)

    def refuse_the_commit(session: Session, *_: object) -> None:
        def refuse(_: Session) -> None:
            raise ValueError("not this one")

        listen(session, "before_commit", refuse)

    world.handler_steps["a", 2] = [refuse_the_commit] * (MAX_ATTEMPTS + 1)
    finish(world, world.worker())

    assert world.committed_effects() == in_group(1, *(() if world.policy.parks_poison else (3, 4)))
    assert places(world.bodies_in_dlq()) == in_group(2)


def test_a_connection_lost_in_a_bundle_repeats_and_loses_nothing(on_postgres: Engine) -> None:
    """The connection is cut in event 3: nothing of the one transaction is committed, and all four come again."""
    world = World(on_postgres, has_bundles=True, commits_bundles=True)
    put_four(world)
    world.handler_steps["a", 3] = [lambda session, *_: shut_down(driver_of(session))]

    world.work_until_idle(world.worker())

    assert world.committed_effects() == in_group(*NUMBERS)
    assert world.called_places == in_group(1, 2, 3, *NUMBERS)


@pytest.mark.parametrize("database", ["on_file", "on_postgres"])
def test_a_temporary_table_of_one_event_takes_no_effect_of_the_next(
    request: pytest.FixtureRequest, database: str
) -> None:
    """It has the name of the table of effects: what events 3 and 4 wrote there would be lost with the connection."""
    world = World(request.getfixturevalue(database), has_bundles=True, commits_bundles=True)
    put_four(world)
    made = text("CREATE TEMP TABLE effects AS SELECT * FROM effects")

    world.handler_steps["a", 2] = [lambda session, *_: session.execute(made) and None]
    world.work_until_idle(world.worker())

    assert world.committed_effects() == in_group(*NUMBERS)
    assert world.called_places == in_group(*NUMBERS)


def test_a_setting_of_one_event_is_reset_for_the_next(on_postgres: Engine) -> None:
    """The limit that the worker itself set for the transaction stays."""
    connections.end_waits(on_postgres, 90)
    world, seen = World(on_postgres, has_bundles=True, commits_bundles=True), list[str]()
    put_four(world)

    def look(session: Session, *_: object) -> None:
        names = ("work_mem", "idle_in_transaction_session_timeout")
        seen.extend(session.execute(text(f"SHOW {name}")).scalar_one() for name in names)
        session.execute(text("SET work_mem = '1MB'"))

    world.handler_steps["a", 2] = [look]
    world.handler_steps["a", 3] = [look]
    world.work_until_idle(world.worker())

    assert world.committed_effects() == in_group(*NUMBERS)
    assert seen[0] == seen[2] != "1MB"
    assert seen[1] == seen[3] == "90s"


def test_one_transaction_refuses_a_handler_that_takes_an_async_session(engine: Engine) -> None:
    """The worker is refused when it is built: an asyncio handler has a session of its own for each event."""

    async def handle(_: AsyncSession, __: Event, ___: Context) -> None: ...

    world = World(engine, commits_bundles=True)

    with pytest.raises(ConfigError) as refused:
        world.worker(handlers=Handlers({ANY: handle}))

    assert "allowed with Commit.BUNDLE are handlers that take a Session" in str(refused.value)


# --- negative controls: the same checks fail a worker that is broken in one way


class CountsReceives(MessageProcessor):
    """Broken: takes each receive of a bundle for an attempt at each of its events."""

    @override
    def _begin_attempt(
        self,
        lease: MessageLease,
        arrived: DecodedMessage,
        progress: BundleProgress | None,
    ) -> tuple[DecodedMessage, Retry | Reject | None]:
        return replace(arrived, attempt=arrived.receive_count), None


class GoesOnBehindAFailure(MessageProcessor):
    """Broken: goes on with the next event of a bundle when one has failed."""

    @override
    def _work_on_event(self, *arguments: Any) -> Acknowledgement:
        ended = super()._work_on_event(*arguments)
        return Delete() if isinstance(ended, Release) else ended


def work_on_a_difficult_bundle(engine: Engine, kind: type[MessageProcessor], *, commits_bundles: bool = False) -> None:
    """Check what becomes of a bundle of which each event fails in another way, and of one that goes well."""
    world = World(engine, has_bundles=True, commits_bundles=commits_bundles)
    put_four(world)
    world.put_bundle(envelope("a", 5), envelope("a", 6))
    if not commits_bundles:
        world.handler_steps["a", 1] = [RuntimeError("not yet")] * 2
    world.handler_steps["a", 2] = [RuntimeError("not yet")] * 2
    world.handler_steps["a", 3] = [Reject("never")]

    world.work_until_idle(world.worker(kind=kind))

    assert world.committed_effects() == in_group(1, 2, 4, 5, 6)
    assert places(world.bodies_in_dlq()) == in_group(3)


@pytest.mark.parametrize("commits_bundles", [False, True])
def test_a_difficult_bundle_ends_as_its_events_say(engine: Engine, *, commits_bundles: bool) -> None:
    """The same check has to catch the broken workers below."""
    work_on_a_difficult_bundle(engine, MessageProcessor, commits_bundles=commits_bundles)


@pytest.mark.parametrize(
    "kind", [AcknowledgesAfterTheFirst, CountsReceives, GoesOnBehindAFailure, DiesWithItsNeighbours]
)
def test_a_worker_that_takes_bundles_wrongly_is_caught(engine: Engine, kind: type[MessageProcessor]) -> None:
    """Negative control: each broken worker fails the check of the test above."""
    with pytest.raises(AssertionError):
        work_on_a_difficult_bundle(engine, kind)


class IsTogetherAtEachReceive(MessageProcessor):
    """Broken: has one transaction for a bundle also after an attempt that came to no end."""

    @override
    def _is_together(self, message: ReceivedMessage) -> bool:
        return True


class CommitsBehindAFailure(MessageProcessor):
    """Broken: commits what events of a bundle did together with what a failed one did."""

    @override
    def _transact_together(
        self,
        lease: MessageLease,
        events: Sequence[BundledEvent],
        begin: int,
        results: dict[int, AttemptResult],
        tries: Iterator[int],
        session: Session,
    ) -> None:
        super()._transact_together(lease, events, begin, results, tries, session)
        session.commit()


class NeverCommits(MessageProcessor):
    """Broken: takes the events of a bundle for handled without their commit."""

    @override
    def _transact_together(
        self,
        lease: MessageLease,
        events: Sequence[BundledEvent],
        begin: int,
        results: dict[int, AttemptResult],
        tries: Iterator[int],
        session: Session,
    ) -> None:
        with patch.object(HandlerRunner, "commit", return_value=Ack()):
            super()._transact_together(lease, events, begin, results, tries, session)


class KeepsSavepoints(BegunTransaction):
    """Broken: lets a handler roll back to a savepoint of the one before it."""

    @override
    def keep(self, mark: Mark, statement: Callable[[], MarkStatement | None] = lambda: None) -> None:
        mark(self._connection)


def test_one_transaction_at_each_receive_is_caught(engine: Engine) -> None:
    """Negative control: a worker that never handles events apart repeats those in front of the one that kills it."""
    with pytest.raises(AssertionError):
        kill_a_worker_at_each_receive(World(engine, has_bundles=True, commits_bundles=True), IsTogetherAtEachReceive)


@pytest.mark.parametrize("kind", [CommitsBehindAFailure, NeverCommits])
def test_a_worker_that_commits_a_bundle_wrongly_is_caught(engine: Engine, kind: type[MessageProcessor]) -> None:
    """Negative control: each broken worker commits the one transaction at the wrong place, or not at all."""
    with pytest.raises(AssertionError):
        work_on_a_difficult_bundle(engine, kind, commits_bundles=True)


def test_a_savepoint_that_is_kept_is_caught(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: the worker leaves the handler's savepoint open for the next handler."""
    monkeypatch.setattr(bundle_processor, "BegunTransaction", KeepsSavepoints)
    with pytest.raises(AssertionError):
        roll_back_a_neighbour(World(engine, has_bundles=True, commits_bundles=True))
