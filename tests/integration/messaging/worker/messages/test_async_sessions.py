"""A handler of asyncio has a session whose transaction is the inbox's, and the guards of every other handler."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import structlog
from sqlalchemy import Engine, func, insert, select, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from sluice.clock import SystemClock, eventually
from sluice.messaging import Event
from sluice.messaging.database import connections
from sluice.messaging.envelope import Envelope
from sluice.messaging.handlers import ANY, Context, Handlers
from sluice.messaging.inbox.groups import InboxPolicy
from sluice.messaging.worker.lane import Lane
from sluice.messaging.worker.processing import async_handlers
from sluice.simulator.hook import Simulator
from tests.support.messaging.broken_workers import AdmitsOnce
from tests.support.messaging.faulty_calls import seeded_random
from tests.support.messaging.worker_threads import SETTINGS, MachineClock, running
from tests.support.messaging.world import TIMEOUT_SECONDS, World, effects


class Base(DeclarativeBase):
    pass


class Parcel(Base):
    __tablename__ = "parcel"

    id: Mapped[int] = mapped_column(primary_key=True)


type AsyncStep = Callable[[AsyncSession, Event, Context], Awaitable[Any]]


@pytest.fixture(autouse=True)
def _close_loop() -> Iterator[None]:
    """Close the event loop of asyncio handlers after each test."""
    yield
    async_handlers.close()


def _handlers(step: AsyncStep) -> Handlers:
    """Return handlers that run this step for every event."""

    async def handle(session: AsyncSession, event: Event, context: Context) -> Any:
        return await step(session, event, context)

    return Handlers({ANY: handle})


async def _write(world: World, session: AsyncSession, event: Event, context: Context) -> None:
    """Write the effect of an event, in a session of asyncio."""
    row = insert(effects).values(consumer=world.consumer, group_id=event.group, seq=context.seq)
    await session.execute(row)


def test_an_asyncio_handlers_effect_mark_and_event_are_committed_together(world_on_each_database: World) -> None:
    """The mark says in the inbox that the message was handled.

    The first attempt fails, and leaves none of the three.
    """
    world = world_on_each_database

    async def handle(session: AsyncSession, event: Event, context: Context) -> None:
        await asyncio.sleep(0)
        await _write(world, session, event, context)
        if context.seq == 1 and context.attempt == 1:
            raise ValueError("once more")
        world.outbox.add(session, Event(type="parcel.sent", group=event.group, data=context.seq))

    world.send("a", "a", "b")
    world.work_until_idle(world.worker(handlers=_handlers(handle)))

    assert sorted(world.committed_effects()) == [("a", 1), ("a", 2), ("b", 1)]
    assert world.exceptions() == {}
    assert world.last_numbers() == {"a": 2, "b": 1}
    assert sorted(world.statuses()) == [("a", 1), ("a", 2), ("b", 1)]


def test_every_method_of_an_async_session_works_but_connection(engine: Engine) -> None:
    """`connection` would let a handler commit below the session, so it is refused."""
    Base.metadata.create_all(engine)
    world, found = World(engine), list[Any]()

    async def handle(session: AsyncSession, event: Event, context: Context) -> None:
        session.add(Parcel(id=1))
        await session.flush()
        async with session.begin_nested():
            session.add_all([Parcel(id=2), Parcel(id=3)])
        with suppress(ZeroDivisionError):
            async with session.begin_nested():
                await session.merge(Parcel(id=4))
                await session.flush()
                1 / 0  # noqa: B018 (the error)
        found.append((await session.execute(text("SELECT 1"))).scalar_one())
        found.append(await session.scalar(select(func.count()).select_from(Parcel)))
        found.append([parcel.id for parcel in await session.scalars(select(Parcel).order_by(Parcel.id))])
        found.append([row.id async for row in await session.stream_scalars(select(Parcel).order_by(Parcel.id))])
        found.append([row async for row in await session.stream(text("SELECT id FROM parcel ORDER BY id"))])
        found.append((await session.execute(insert(Parcel).returning(Parcel.id), [{"id": 5}, {"id": 6}])).all())
        found.append((await session.get_one(Parcel, 2)).id)
        found.append(await session.run_sync(lambda inner: inner.connection().scalar(text("SELECT 7"))))
        await session.refresh(await session.get_one(Parcel, 1))
        await session.delete(await session.get_one(Parcel, 3))
        with pytest.raises(SQLAlchemyError, match=r"allowed is `session\.execute`"):
            await session.connection()
        await _write(world, session, event, context)

    world.send("a")
    world.work_until_idle(world.worker(handlers=_handlers(handle)))

    ids = [1, 2, 3]
    assert found == [1, 3, ids, ids, [(number,) for number in ids], [(5,), (6,)], 2, 7]
    with Session(engine) as session:
        assert sorted(session.scalars(select(Parcel.id))) == [1, 2, 5, 6]
    assert world.committed_effects() == [("a", 1)]
    assert world.bodies_in_dlq() == []


def test_an_async_session_takes_a_connection_at_its_first_statement(engine: Engine) -> None:
    """A handler that only waits for something else needs none, so few connections serve many handlers."""
    world, seen = World(engine), list[int]()
    pool: Any = engine.pool

    async def handle(session: AsyncSession, event: Event, context: Context) -> None:
        seen.append(pool.checkedout())
        session.add(Parcel(id=1))
        session.expunge_all()
        seen.append(pool.checkedout())
        await _write(world, session, event, context)
        seen.append(pool.checkedout())

    world.send("a")
    world.work_until_idle(world.worker(handlers=_handlers(handle)))

    assert seen == [0, 0, 1]
    assert world.committed_effects() == [("a", 1)]


@pytest.mark.parametrize("is_used", [True, False])
def test_a_message_that_another_worker_handled_meanwhile_has_no_second_effect(engine: Engine, *, is_used: bool) -> None:
    """The inbox is asked before an asyncio handler and again at its first statement.

    `is_used` says if there is a statement.
    """
    world = World(engine)
    calls = list[str]()

    async def handle(session: AsyncSession, event: Event, context: Context) -> None:
        calls.append(event.id)
        if len(calls) == 1:
            await asyncio.to_thread(_handle_elsewhere, world, sent)
        with suppress(Exception):
            if is_used:
                await _write(world, session, event, context)

    (sent,) = world.send("a")
    world.work_until_idle(world.worker(handlers=_handlers(handle)))

    assert calls == [sent.event.id]
    assert world.committed_effects() == [("a", 1)]
    assert world.last_numbers() == {"a": 1}
    assert world.bodies_in_dlq() == []


def test_a_worker_that_asks_the_inbox_once_is_caught(engine: Engine) -> None:
    """Negative control: another worker handles the message after the inbox was asked, so its effect is there twice."""
    world = World(engine)

    async def handle(session: AsyncSession, event: Event, context: Context) -> None:
        await asyncio.to_thread(_handle_elsewhere, world, sent)
        await _write(world, session, event, context)

    (sent,) = world.send("a")
    world.work_until_idle(world.worker(handlers=_handlers(handle), kind=AdmitsOnce))

    assert world.committed_effects() == [("a", 1), ("a", 1)]


def test_a_parked_message_is_handled_by_asyncio(engine: Engine) -> None:
    """A parked message waits in the inbox's table for one before it, and a drainer handles it, not a lane."""
    world = World(engine, policy=InboxPolicy(consumer="billing", parks_poison=True, parks_gaps=True))

    async def handle(session: AsyncSession, event: Event, context: Context) -> None:
        await _write(world, session, event, context)

    world.park("a")
    worker = world.worker(handlers=_handlers(handle))
    worker.drainer.step()

    assert world.committed_effects() == [("a", 1), ("a", 2)]
    assert world.parked_places() == []


def test_a_handler_is_cancelled_at_its_deadline_and_its_message_comes_again(engine: Engine) -> None:
    """Its effect is rolled back, and the second attempt commits one."""
    world, ends = World(engine), list[str]()

    async def handle(session: AsyncSession, event: Event, context: Context) -> None:
        await _write(world, session, event, context)
        if context.attempt == 1:
            world.simulator.advance(10 * TIMEOUT_SECONDS + 1)  # a handler may take ten visibility timeouts
            try:
                await asyncio.Event().wait()
            finally:
                ends.append("cancelled")

    world.send("a")
    world.work_until_idle(world.worker(handlers=_handlers(handle)))

    assert ends == ["cancelled"]
    assert world.committed_effects() == [("a", 1)]
    assert world.last_numbers() == {"a": 1}


def test_a_cancelled_statement_rolls_its_attempt_back(on_postgres: Engine) -> None:
    """The handler swallows the timeout of its statement.

    Nobody may use the connection until the statement has ended.
    """
    world, seen = World(on_postgres), list[str]()

    async def handle(session: AsyncSession, event: Event, context: Context) -> None:
        await _write(world, session, event, context)
        if context.attempt == 1:
            try:
                await asyncio.wait_for(session.execute(text("SELECT pg_sleep(0.3)")), 0.05)
            except TimeoutError:
                seen.append("timed out")

    world.send("a")
    world.work_until_idle(world.worker(handlers=_handlers(handle)))

    assert seen == ["timed out"]
    assert world.committed_effects() == [("a", 1)]
    assert world.last_numbers() == {"a": 1}
    assert world.bodies_in_dlq() == []


def test_a_statement_without_an_answer_is_given_up_and_blocks_no_task(on_postgres: Engine) -> None:
    """A statement of 2 s is given up after the allowed second. A task that counts each 10 ms runs meanwhile."""
    connections.end_waits(on_postgres, 1.0)
    world, others = World(on_postgres), list[int]()

    async def handle(session: AsyncSession, event: Event, context: Context) -> None:
        async def count() -> None:
            while True:
                others.append(1)
                await asyncio.sleep(0.01)

        counting = asyncio.create_task(count())
        if context.attempt == 1:
            await session.execute(text("SELECT pg_sleep(2)"))
        counting.cancel()
        await _write(world, session, event, context)

    world.send("a")
    world.work_until_idle(world.worker(handlers=_handlers(handle)))

    assert len(others) > 20
    assert world.committed_effects() == [("a", 1)]
    assert world.last_numbers() == {"a": 1}


@pytest.mark.parametrize("act", ["stop", "task that exits", "task that goes on"])
def test_an_event_loop_that_a_handler_disturbs_serves_the_next_message(world_on_each_database: World, act: str) -> None:
    """The handler stops the loop, starts a task that exits, or leaves a task behind. That one is cancelled."""
    world, cancelled = world_on_each_database, list[str]()

    async def exits() -> None:
        raise SystemExit(3)

    async def goes_on() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append("a")

    async def handle(session: AsyncSession, event: Event, context: Context) -> None:
        match act:
            case "stop":
                asyncio.get_running_loop().stop()
            case "task that exits":
                task = asyncio.create_task(exits())
                with suppress(SystemExit):
                    await task
            case _:
                kept.add(asyncio.create_task(goes_on()))
                await asyncio.sleep(0)
        await _write(world, session, event, context)

    kept = set[asyncio.Task[None]]()
    world.send("a", "b")
    world.work_until_idle(world.worker(handlers=_handlers(handle)))

    assert sorted(world.committed_effects()) == [("a", 1), ("b", 1)]
    assert cancelled == ["a", "a"] * (act == "task that goes on")


def test_a_handler_that_blocks_the_event_loop_is_named_in_the_log(world_on_each_database: World) -> None:
    """All asyncio handlers share the loop, so an operator must learn which one holds up the others."""
    world, may_end = world_on_each_database, threading.Event()

    async def block(session: AsyncSession, event: Event, context: Context) -> None:
        assert may_end.wait(30)

    world.send("a")
    with structlog.testing.capture_logs() as logged, ThreadPoolExecutor(1) as pool:
        stepping = pool.submit(world.worker(handlers=Handlers({ANY: block})).lane.step)
        eventually(async_handlers.blocker, timeout_seconds=20, describe="the loop is blocked")
        named = async_handlers.blocker()
        may_end.set()
        stepping.result()

    assert named is not None
    assert "block with event" in named
    assert [entry["blocked_by"] for entry in logged if "blocks the event loop" in entry["event"]] == [named]
    assert async_handlers.blocker() is None
    assert world.last_numbers() == {"a": 1}


def test_handlers_wait_side_by_side_over_few_connections(on_postgres: Engine) -> None:
    """Thirty lanes run thirty groups at once over four connections, and each group in order."""
    groups = [f"g{number}" for number in range(30)]
    world = World(on_postgres, simulator=Simulator(clock=MachineClock()))
    world.settings = replace(world.settings, database_connections=4)
    seen, waiting, most = list[int](), 0, 0
    pool: Any = on_postgres.pool

    async def handle(session: AsyncSession, event: Event, context: Context) -> None:
        nonlocal waiting, most
        waiting, most = waiting + 1, max(most, waiting + 1)
        await asyncio.sleep(0.5)
        waiting -= 1
        await _write(world, session, event, context)
        seen.append(pool.checkedout())

    world.send(*groups, *groups)
    worker_parts = world.worker(handlers=_handlers(handle))
    lane = worker_parts.lane
    lanes = [
        Lane(
            worker_parts.queue,
            worker_parts.processor,
            settings=SETTINGS,
            wait=lane._wait,
            clock=SystemClock(),
            rng=seeded_random(number),
            signs=worker_parts.parts.signs,
            pause=worker_parts.parts.pause,
        )
        for number in range(29)
    ]
    with running(worker_parts, *lanes) as worker:
        eventually(lambda: len(world.committed_effects()) == 60, timeout_seconds=60, describe="all effects are there")
        worker.stop.request()
        worker.wait_for_end()

    assert most > 15  # of 30: on a busy machine not all are seen at once
    assert max(seen) <= 4 + 3  # the drainer, the maintenance of the inbox and this test have a connection each
    for group in groups:
        assert [place for place in world.committed_effects() if place[0] == group] == [(group, 1), (group, 2)]


def test_a_worker_that_stops_cancels_an_asyncio_handler_that_does_not_end(on_postgres: Engine) -> None:
    """Its message stays in the queue, and nothing of it is committed."""
    world = World(on_postgres, simulator=Simulator(clock=MachineClock()))
    begun, ends = threading.Event(), list[str]()

    async def handle(session: AsyncSession, event: Event, context: Context) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ends.append("cancelled")

    world.send("a")
    with running(world.worker(handlers=_handlers(handle))) as worker:
        assert begun.wait(30)
        worker.stop.request()
        worker.wait_for_end()

    assert ends == ["cancelled"]
    assert world.committed_effects() == []
    assert len(world.bodies_in_queue()) == 1


def _handle_elsewhere(world: World, sent: Envelope) -> None:
    """Handle a message as another worker does, which has received it again."""
    copy = World(world.engine)
    copy.put(sent)
    copy.work_until_idle(copy.worker())
