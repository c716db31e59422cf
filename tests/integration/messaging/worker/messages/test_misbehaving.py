"""No message is ever gone without its effect, a dead letter, or a parked row, whatever its handler does."""

import asyncio
import contextvars
import itertools
import os
from contextlib import suppress
from sqlite3 import DatabaseError
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, text
from sqlalchemy.event import listen
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from sluice.messaging.envelope import Event
from sluice.messaging.handlers import ANY, Ack, Context, Handlers, Outcome
from sluice.messaging.inbox.groups import InboxPolicy
from sluice.messaging.inbox.tables import parked
from sluice.messaging.worker.processing import async_handlers
from sluice.terminal.printable import CHARACTERS_MAX
from tests.support.cases import one_case_in
from tests.support.messaging.broken_workers import CommitsWhatIsThere
from tests.support.messaging.misbehaving_handlers import ENDINGS, MISDEEDS
from tests.support.messaging.world import KINDS_OF_ASYNCIO, MAX_ATTEMPTS, World, envelope, places

_consumers = (f"consumer-{number}" for number in itertools.count())


def _misbehaving(faulty_worker: str, ending: str) -> Any:
    """Return a handler that does this misdeed and then ends in this way."""

    def handle(session: Session, _: Event, __: Context) -> object:
        MISDEEDS[faulty_worker](session)
        return ENDINGS[ending]()

    return handle


@pytest.mark.parametrize(("kind", "faulty_worker", "ending"), one_case_in(40, KINDS_OF_ASYNCIO, MISDEEDS, ENDINGS))
def test_a_misbehaving_asyncio_handlers_message_is_done_once_or_dead(
    on_postgres: Engine, kind: str, faulty_worker: str, ending: str
) -> None:
    """Each kind of misbehaviour runs on the lane's thread, and again statement by statement from the event loop."""
    _assert_misbehaviour_loses_nothing(on_postgres, faulty_worker, ending, kind)
    async_handlers.close()


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "faulty_worker", "ending"), one_case_in(1, KINDS_OF_ASYNCIO, MISDEEDS, ENDINGS))
def test_a_misbehaving_asyncio_handlers_message_is_done_once_or_dead_on_sqlite(
    on_file: Engine, kind: str, faulty_worker: str, ending: str
) -> None:
    """Each misdeed with each ending: an outcome to return or an error to raise."""
    _assert_misbehaviour_loses_nothing(on_file, faulty_worker, ending, kind)
    async_handlers.close()


def _handlers_that_misbehave_before_the_effect(world: World, faulty_worker: str, ending: str) -> Handlers:
    """Return handlers: that of the first message misbehaves before its effect, and continues."""

    def handle(session: Session, event: Event, context: Context) -> Any:
        if context.seq > 1:
            return world._handle(session, event, context)
        MISDEEDS[faulty_worker](session)
        world._handle(session, event, context)
        return ENDINGS[ending]()

    return Handlers({ANY: handle})


def _assert_accounted_for(world: World, *, may_repeat: bool = False) -> None:
    """Assert that the first message has one effect or is dead with a printable reason, and the second has one."""
    effects, dead = world.committed_effects(), places(world.bodies_in_dlq())
    assert world.bodies_in_queue() == []
    if may_repeat:
        assert dead.count(("a", 1)) == 1
    else:
        assert effects.count(("a", 1)) + dead.count(("a", 1)) == 1, (effects, dead)
    assert effects.count(("a", 2)) == 1
    assert world.last_numbers() == {"a": 2}
    if ("a", 1) in dead:
        state, reason = world.exceptions()["a", 1]
        assert state == "dead"
        assert reason
        assert reason is not None
        assert reason.isprintable()
        assert len(reason) <= CHARACTERS_MAX + len("attempt 3: ")


@pytest.mark.parametrize(("faulty_worker", "ending"), one_case_in(64, MISDEEDS, ENDINGS))
def test_a_misbehaving_handlers_message_is_done_once_or_dead(on_file: Engine, faulty_worker: str, ending: str) -> None:
    """The handler misbehaves in every attempt: it closes its session, commits, forks, and so on.

    Then it ends in some way.
    """
    _assert_misbehaviour_loses_nothing(on_file, faulty_worker, ending)


@pytest.mark.parametrize(("faulty_worker", "ending"), one_case_in(64, MISDEEDS, ENDINGS))
def test_a_misbehaving_handlers_message_is_done_once_or_dead_on_postgres(
    on_postgres: Engine, faulty_worker: str, ending: str
) -> None:
    """The handler misbehaves in every attempt: it closes its session, commits, forks, and so on.

    Then it ends in some way.
    """
    _assert_misbehaviour_loses_nothing(on_postgres, faulty_worker, ending)


@pytest.mark.parametrize(
    ("faulty_worker", "ending"),
    # a child would write as well
    one_case_in(12, [name for name in MISDEEDS if name != "forks"], ["Ack", "Reject", "CustomError"]),
)
def test_misbehaving_before_the_effect_leaves_a_message_done_once_or_dead(
    engine: Engine, faulty_worker: str, ending: str
) -> None:
    """A commit before the effect must not count: the message would be marked as handled without its effect."""
    world = World(engine)
    world.send("a", "a")

    world.work_until_idle(
        world.worker(handlers=_handlers_that_misbehave_before_the_effect(world, faulty_worker, ending))
    )

    _assert_accounted_for(world, may_repeat=_repeats(engine, faulty_worker))


@pytest.mark.parametrize(("faulty_worker", "ending"), one_case_in(64, MISDEEDS, ENDINGS))
def test_a_misbehaving_handlers_event_in_a_bundle_harms_none_beside_it(
    engine: Engine, faulty_worker: str, ending: str
) -> None:
    """The second of four events that share a transaction is done once or dead, and the others are done once."""
    world = World(engine, has_bundles=True, commits_bundles=True)
    world.put_bundle(*(envelope("a", number) for number in range(1, 5)))
    world.handler_steps["a", 2] = [_misbehaving(faulty_worker, ending)] * 9 * MAX_ATTEMPTS

    world.work_until_idle(world.worker())

    effects, dead = world.committed_effects(), places(world.bodies_in_dlq())
    assert [place for place in effects if place != ("a", 2)] == [("a", 1), ("a", 3), ("a", 4)]
    assert set(dead) <= {("a", 2)}
    assert [*effects, *dead].count(("a", 2)) == 1 or _repeats(engine, faulty_worker)
    assert world.bodies_in_queue() == []
    assert _rows_of_nobody(world) == []


def _repeats(engine: Engine, faulty_worker: str) -> bool:
    """Return whether a misdeed may commit the effect before the inbox's mark, so that it is repeated."""
    return faulty_worker == "driver commits" and engine.dialect.name == "postgresql"


def _assert_misbehaviour_loses_nothing(engine: Engine, faulty_worker: str, ending: str, kind: str = "plain") -> None:
    """Let a message's handler misbehave in every attempt, and check that each message is accounted for."""
    world = World(engine)
    world.send("a", "a")
    world.handler_steps["a", 1] = [_misbehaving(faulty_worker, ending)] * 3 * MAX_ATTEMPTS

    world.work_until_idle(world.worker(handlers=world.handlers_of_asyncio(kind)))

    _assert_accounted_for(world, may_repeat=_repeats(engine, faulty_worker))
    assert _rows_of_nobody(world) == []
    assert len([call for call in world.calls if call.place == ("a", 1)]) <= 3 * MAX_ATTEMPTS


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    deeds=st.lists(st.tuples(st.sampled_from(sorted(MISDEEDS)), st.sampled_from(sorted(ENDINGS))), max_size=4),
    is_parking=st.booleans(),
)
def test_misbehaving_differently_each_time_leaves_a_message_done_once_or_dead(
    engine: Engine, deeds: list[tuple[str, str]], *, is_parking: bool
) -> None:
    """Up to four misdeeds and endings, drawn at random, are those of the first message's attempts."""
    consumer = next(_consumers)
    policy = InboxPolicy(consumer=consumer, parks_poison=is_parking, parks_gaps=is_parking)
    world = World(engine, consumer=consumer, policy=policy)
    world.send("a", "a")
    world.handler_steps["a", 1] = [_misbehaving(*deed) for deed in deeds]
    worker = world.worker()

    world.work_until_idle(worker)
    may_repeat = any(_repeats(engine, faulty_worker) for faulty_worker, _ in deeds)
    if is_parking and world.bodies_in_dlq():
        assert places(world.bodies_in_dlq()) == [("a", 1)]
        world.handler_steps.clear()
        world.redrive()
        world.work_until_idle(worker)
        worker.drainer.step()
        assert may_repeat or world.committed_effects() == [("a", 1), ("a", 2)]

    if not may_repeat:
        _assert_accounted_for(world)


@pytest.mark.parametrize(("faulty_worker", "ending"), one_case_in(12, MISDEEDS, ["Ack", "CustomError"]))
def test_a_parked_message_of_a_misbehaving_handler_is_done_once_or_held(
    engine: Engine, faulty_worker: str, ending: str
) -> None:
    """A parked message is in no queue any more, so its row stays until it has an effect."""
    world = World(engine, policy=InboxPolicy(consumer="billing", parks_poison=True, parks_gaps=True))
    world.handler_steps["a", 2] = [_misbehaving(faulty_worker, ending)] * 3 * MAX_ATTEMPTS
    worker = world.park("a")

    for _ in range(2 * MAX_ATTEMPTS):
        worker.drainer.step()
        world.simulator.advance(301)

    if _repeats(engine, faulty_worker):
        assert world.parked_places() == [("a", 2)]
    else:
        assert world.committed_effects().count(("a", 2)) + world.parked_places().count(("a", 2)) == 1
    assert _rows_of_nobody(world) == []
    with engine.connect() as connection:
        for row in connection.execute(parked.select()):
            assert row.held_at_us is not None
            assert row.last_error
            assert row.last_error.isprintable()


def _rows_of_nobody(world: World) -> list[Any]:
    """Return the rows that handlers wrote after they had ended their transaction."""
    other = World.__new__(World)
    other.engine, other.consumer = world.engine, "nobody"
    return other.committed_effects()


def test_a_worker_that_commits_without_a_look_at_the_transaction_is_caught(on_postgres: Engine) -> None:
    """Negative control: a handler rolls back below the ORM, so the message is deleted without an effect."""
    world = World(on_postgres)
    world.send("a", "a")
    world.handler_steps["a", 1] = [_misbehaving("statement ROLLBACK", "Ack")]

    world.work_until_idle(world.worker(kind=CommitsWhatIsThere))

    with pytest.raises(AssertionError):
        _assert_accounted_for(world)


def _handler_with_a_commit_hook(act: Any) -> Any:
    """Return a handler that does the act in the session's hook before its commit."""

    def handle(session: Session, _: Event, __: Context) -> None:
        listen(session, "before_commit", act)

    return handle


def _fails_unnoticed(session: Session) -> None:
    """Let a statement fail and swallow the error."""
    with suppress(DBAPIError):
        session.execute(text("INSERT INTO not_there VALUES (1)"))


def _rolls_back_below(session: Session) -> None:
    """Roll the driver's connection back, below the session, and swallow the error."""
    with suppress(DBAPIError, DatabaseError):
        session.connection().connection.driver_connection.rollback()  # type: ignore[union-attr]


def _commits_below(session: Session) -> None:
    """Commit the driver's connection, below the session, and swallow the error."""
    with suppress(Exception):
        session.connection().connection.driver_connection.commit()  # type: ignore[union-attr]


def _commits_the_connection(session: Session) -> None:
    """Commit SQLAlchemy's connection, below the session, and swallow the error."""
    with suppress(Exception):
        session.connection().commit()


@pytest.mark.parametrize("act", [_fails_unnoticed, _rolls_back_below, _commits_below, _commits_the_connection])
def test_a_commit_hook_that_misbehaves_loses_no_message(engine: Engine, act: Any) -> None:
    """The worker looks at the transaction after all hooks, directly before the commit."""
    world = World(engine)
    world.send("a", "a")
    world.handler_steps["a", 1] = [_handler_with_a_commit_hook(act)] * 100

    world.work_until_idle(world.worker())

    _assert_accounted_for(world)


_marked: contextvars.ContextVar[str] = contextvars.ContextVar("_marked", default="")


def test_an_async_handler_runs_in_its_transaction_on_its_lanes_loop(world_on_each_database: World) -> None:
    """Both messages of a lane, a worker's thread, run on the same event loop."""
    world = world_on_each_database
    loops = []

    async def handle(_: Session, __: Event, ___: Context) -> Outcome:
        await asyncio.sleep(0)
        loops.append(asyncio.get_running_loop())
        return Ack()

    world.handler_steps["a", 1], world.handler_steps["a", 2] = [handle], [handle]
    world.send("a", "a")

    world.work_until_idle(world.worker())
    async_handlers.close()

    assert world.committed_effects() == [("a", 1), ("a", 2)]
    assert len(loops) == 2
    assert loops[0] is loops[1]
    assert world.bodies_in_dlq() == []
    assert world.last_numbers() == {"a": 2}


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_async_handler_may_end_in_every_way(world: World, ending: str) -> None:
    """Each outcome to return and each error to raise ends as it does for a plain handler."""

    async def handle(_: Session, __: Event, ___: Context) -> Any:
        await asyncio.sleep(0)
        return ENDINGS[ending]()

    behaviour: Any = handle
    world.handler_steps["a", 1] = [behaviour] * 3 * MAX_ATTEMPTS
    world.send("a", "a")

    world.work_until_idle(world.worker())
    async_handlers.close()

    _assert_accounted_for(world)
    assert (("a", 1) in world.committed_effects()) == (ending in ("Ack", "nothing"))


def test_tasks_of_an_async_handler_end_with_its_attempt(world: World) -> None:
    """A task that is left behind is cancelled in the lane's context, and does not hold the message up."""
    seen: list[str] = []

    async def goes_on() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append(f"cancelled in {_marked.get()}")
            raise

    async def handle(_: Session, __: Event, ___: Context) -> None:
        task = asyncio.create_task(goes_on())
        await asyncio.sleep(0)
        assert not task.done()

    world.handler_steps["a", 1] = [handle]
    world.send("a")
    token = _marked.set("the lane's context")

    world.work_until_idle(world.worker())
    _marked.reset(token)
    async_handlers.close()

    assert seen == ["cancelled in the lane's context"]
    assert world.committed_effects() == [("a", 1)]


@pytest.mark.parametrize("act", ["stop", "close"])
def test_a_loop_that_a_handler_damaged_is_replaced_for_the_next_message(world: World, act: str) -> None:
    """The message itself may die; the next message of its group is handled."""

    async def damages(_: Session, __: Event, ___: Context) -> None:
        loop = asyncio.get_running_loop()
        loop.stop() if act == "stop" else loop.call_soon(loop.stop)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def behaves(_: Session, __: Event, ___: Context) -> None:
        await asyncio.sleep(0)

    bad: Any = damages
    world.handler_steps["a", 1], world.handler_steps["a", 2] = [bad] * 3 * MAX_ATTEMPTS, [behaves]
    world.send("a", "a")

    world.work_until_idle(world.worker())
    async_handlers.close()

    assert ("a", 2) in world.committed_effects()


_SETTING_THAT_BREAKS_STATEMENTS = {"postgresql": "SET search_path TO nowhere", "sqlite": "PRAGMA query_only = ON"}


def test_a_setting_that_breaks_the_connection_holds_up_no_later_message(engine: Engine) -> None:
    """When the next message fails over this connection, the worker closes the connection."""
    setting = _SETTING_THAT_BREAKS_STATEMENTS[engine.dialect.name]
    world = World(engine)
    world.send("a", "b", "c")
    world.handler_steps["a", 1] = [lambda session, *_: session.execute(text(setting)) and None]

    world.work_until_idle(world.worker())

    assert sorted(world.committed_effects())[1:] == [("b", 1), ("c", 1)]


def _close_descriptor(session: Session, _: Event, __: Context) -> None:
    """Close the socket of the connection, below psycopg."""
    os.close(session.connection().connection.driver_connection.fileno())  # type: ignore[union-attr]


def test_a_handler_that_closes_the_descriptor_of_its_connection_harms_no_message(on_postgres: Engine) -> None:
    """Its own message is handled at a later try over another connection."""
    world = World(on_postgres)
    world.send("a", "a", "b")
    world.handler_steps["a", 1] = [_close_descriptor]

    world.work_until_idle(world.worker())

    assert sorted(world.committed_effects()) == [("a", 1), ("a", 2), ("b", 1)]
