"""Events of a bundle in one transaction: none writes in another's name, and each commit but the worker's is noticed."""

import asyncio
import contextvars
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from sqlite3 import DatabaseError
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, insert, text
from sqlalchemy.event import listen
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from sluice.messaging.database.transactions import TransactionEndedError
from sluice.messaging.envelope import Event
from sluice.messaging.handlers import Context, Reject
from sluice.messaging.inbox.groups import InboxPolicy
from sluice.messaging.worker.processing import async_handlers
from tests.support.cases import one_case_in
from tests.support.messaging.connection_misdeeds import POSTGRES, SQLITE, KeptThings, driver_of
from tests.support.messaging.world import World, effects, envelope, in_memory_world, places

COUNT = 4
EVERY_EVENT = [("a", number) for number in range(1, COUNT + 1)]
_LEFT = insert(effects).values(consumer="nobody", group_id="left behind", seq=0)
_LEFT_SQL = "INSERT INTO effects (consumer, group_id, seq) VALUES ('nobody', 'left behind', 0)"


class Base(DeclarativeBase):
    pass


class LeftBehind(Base):
    __tablename__ = "effects"
    id: Mapped[int] = mapped_column(primary_key=True)
    consumer: Mapped[str] = mapped_column(default="nobody")
    group_id: Mapped[str] = mapped_column(default="left behind")
    seq: Mapped[int] = mapped_column(default=0)


def a_world(engine: Engine, *, commits_bundles: bool = True, **more: Any) -> World:
    world = World(engine, has_bundles=True, commits_bundles=commits_bundles, **more)
    world.put_bundle(*(envelope(*place) for place in EVERY_EVENT))
    return world


def rows_of_nobody(engine: Engine) -> int:
    with engine.connect() as connection:
        counted = text("SELECT count(*) FROM effects WHERE consumer = 'nobody'")
        return int(connection.execute(counted).scalar_one())


_WRITES: dict[str, Callable[[Session, Any], object]] = {
    "by the session": lambda session, _: session.execute(_LEFT),
    "by the driver": lambda _, driver: driver.execute(_LEFT_SQL),
    "by an object": lambda session, _: session.add(LeftBehind()),
}


def _leave_a_thread(write: Callable[[], object], run: Callable[[Callable[[], None]], object]) -> None:
    def go_on() -> None:
        KeptThings.go_on.wait(10)
        with suppress(Exception):
            write()

    KeptThings.threads.append(threading.Thread(target=run, args=(go_on,), daemon=True))
    KeptThings.threads[-1].start()


_callbacks = list[Callable[[], object]]()


async def _leave_a_callback(write: Callable[[], object]) -> None:
    """Leave a callback on the loop that goes on when the next handler has begun."""
    loop = asyncio.get_running_loop()

    def go_on() -> None:
        if go_on in _callbacks:
            loop.call_later(0.001, go_on)
            return
        with suppress(Exception):
            write()
        _callbacks.append(write)

    _callbacks.append(go_on)
    loop.call_soon(go_on)


async def _leave_a_task(write: Callable[[], object]) -> None:
    async def go_on() -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.sleep(0.01)
        write()

    asyncio.get_running_loop().create_task(go_on())
    await asyncio.sleep(0)


_LEAVES: dict[str, Callable[[Callable[[], object]], Any]] = {
    "thread": lambda write: _leave_a_thread(write, lambda go_on: go_on()),
    "thread with its context": lambda write: _leave_a_thread(write, contextvars.copy_context().run),
    "callback": _leave_a_callback,
}


async def _look_at_what_goes_on(*_: object) -> None:
    """Let threads and callbacks of the handler before go on, while this handler runs."""
    KeptThings.go_on_now()
    if _callbacks:
        _callbacks.clear()
        while not _callbacks:
            await asyncio.sleep(0.001)
        _callbacks.clear()


@pytest.mark.parametrize(("leave", "write"), one_case_in(3, _LEAVES, _WRITES))
def test_code_left_behind_by_a_handler_writes_nothing_of_the_next_event(engine: Engine, leave: str, write: str) -> None:
    """It goes on while the next event of the bundle is handled, with session, driver and objects of its own event."""
    world = a_world(engine)

    def handle(session: Session, *_: object) -> Any:
        driver = driver_of(session)
        return _LEAVES[leave](lambda: _WRITES[write](session, driver))

    world.handler_steps["a", 1] = [handle] * 2
    world.handler_steps["a", 2] = [_look_at_what_goes_on] * 2
    world.work_until_idle(world.worker())
    async_handlers.close()

    assert world.committed_effects() == EVERY_EVENT
    assert rows_of_nobody(engine) == 0
    assert {call.attempt for call in world.calls} == {1}


def test_a_task_that_a_handler_leaves_ends_with_its_own_event(engine: Engine) -> None:
    """It writes although it was cancelled, before its handler has returned: the row is of its own event."""
    world, ended = a_world(engine), list[int]()

    def handle(session: Session, *_: object) -> Any:
        def write() -> None:
            session.execute(_LEFT)
            ended.append(len(world.calls))

        return _leave_a_task(write)

    world.handler_steps["a", 1] = [handle]
    world.work_until_idle(world.worker())
    async_handlers.close()

    assert ended == [1]
    assert world.committed_effects() == EVERY_EVENT
    assert rows_of_nobody(engine) == 1


def _with_a_plain_thread(write: Callable[[], object]) -> None:
    def write_unless_refused() -> None:
        with suppress(Exception):
            write()

    thread = threading.Thread(target=write_unless_refused)
    thread.start()
    thread.join()


async def _with_a_thread_of_asyncio(write: Callable[[], object]) -> None:
    await asyncio.to_thread(write)


@pytest.mark.parametrize(
    ("use", "calls"),
    [
        pytest.param(_with_a_plain_thread, [1, 1, 2, 3, 4], id="thread"),
        pytest.param(_with_a_thread_of_asyncio, [1, 2, 3, 4], id="to_thread"),
    ],
)
def test_a_handler_may_use_its_session_on_its_own_thread(
    engine: Engine, use: Callable[[Callable[[], object]], Any], calls: list[int]
) -> None:
    """A thread without the handler's context may be anybody's: then each event has a transaction of its own."""
    world = a_world(engine)

    def handle(session: Session, *_: object) -> Any:
        driver = driver_of(session)
        return use(lambda: (session.execute(_LEFT), driver.execute(_LEFT_SQL)))

    for place in EVERY_EVENT:
        world.handler_steps[place] = [handle] * 2
    world.work_until_idle(world.worker())
    async_handlers.close()

    assert world.committed_effects() == EVERY_EVENT
    assert rows_of_nobody(engine) == 2 * COUNT
    assert [seq for _, seq in world.called_places] == calls
    assert {call.attempt for call in world.calls} == {1}


def _executes(*statements: str) -> Callable[[Session], object]:
    return lambda session: [driver_of(session).execute(statement) for statement in statements]


_COMMITS: dict[str, dict[str, Callable[[Session], object]]] = {
    SQLITE: {
        "driver": lambda session: driver_of(session).commit(),
        "connection": lambda session: session.connection().commit(),
        "COMMIT": _executes("COMMIT"),
    },
    POSTGRES: {
        "driver": lambda session: driver_of(session).commit(),
        "connection": lambda session: session.connection().commit(),
        "COMMIT": _executes("COMMIT"),
        "COMMIT in a string": lambda session: session.execute(text("SELECT 1; COMMIT")),
        "COMMIT and BEGIN": _executes("SELECT 1; COMMIT; BEGIN"),
        "ROLLBACK and BEGIN": _executes("SELECT 1; ROLLBACK; BEGIN"),
    },
}


@pytest.mark.parametrize(
    ("engine", "way"), [(database, way) for database, ways in _COMMITS.items() for way in ways], indirect=["engine"]
)
def test_a_hook_that_commits_is_its_own_events_misdeed(engine: Engine, way: str) -> None:
    """The hook runs in the worker's own commit. Its event ends as with a commit each: its effect is not there twice."""
    ends, act = list[object](), _COMMITS[engine.dialect.name][way]

    def handle(session: Session, _: Event, __: Context) -> None:
        listen(session, "before_commit", act)

    for commits_bundles in (False, True):
        world = a_world(engine, consumer=f"billing-{commits_bundles}", commits_bundles=commits_bundles)
        world.handler_steps["a", 2] = [handle] * 9
        world.work_until_idle(world.worker())
        committed, calls = world.committed_effects(), world.called_places.count(("a", 2))
        ends.append((committed, world.exceptions(), places(world.bodies_in_dlq()), calls))

        assert [place for place in committed if place != ("a", 2)] == [("a", 1), ("a", 3), ("a", 4)]
        assert committed.count(("a", 2)) <= 1
        assert ("a", 2) in [*committed, *places(world.bodies_in_dlq())]
    assert ends[0] == ends[1]


@pytest.mark.parametrize("commits_bundles", [False, True], ids=["each", "together"])
def test_an_outbox_event_is_kept_although_the_next_handler_commits(
    on_postgres: Engine, *, commits_bundles: bool
) -> None:
    """Events are numbered in the commit; the handler of event 2 commits below SQLAlchemy, and begins anew."""
    world = a_world(on_postgres, commits_bundles=commits_bundles)

    def publish(session: Session, event: Event, context: Context) -> None:
        world.outbox.add(session, Event(type="follows", group=f"of-{context.seq}", data=None))

    def commit_unseen(session: Session, *_: object) -> None:
        driver_of(session).execute("SELECT 1; COMMIT; BEGIN")

    for place in EVERY_EVENT:
        world.handler_steps[place] = [publish] * 2
    world.handler_steps["a", 2] = [commit_unseen]
    world.work_until_idle(world.worker())

    assert sorted(world.statuses()) == [("of-1", 1), ("of-3", 1), ("of-4", 1)]
    assert world.exceptions()["a", 2] == ("dead", TransactionEndedError.COMMITTED)
    assert world.committed_effects() == EVERY_EVENT


def test_an_engine_of_somebody_else_commits_each_event_alone(on_postgres: Engine) -> None:
    """Nothing keeps its connections from what a handler left behind."""
    engine = create_engine(on_postgres.url)
    world, commits = a_world(engine), list[object]()
    listen(engine, "commit", commits.append)

    world.work_until_idle(world.worker())

    assert world.committed_effects() == EVERY_EVENT
    assert len(commits) >= COUNT
    engine.dispose()


def test_events_of_two_groups_in_a_bundle_are_handled_once_each(engine: Engine) -> None:
    """On a standard queue nothing refuses such a message, which comes again in another one; no relay writes it."""
    world = World(engine, has_bundles=True, commits_bundles=True, is_ordered=False)
    for _ in range(2):
        world.put_bundle(envelope("a", 1), envelope("b", 2), envelope("b", 3))

    world.work_until_idle(world.worker())

    assert sorted(world.committed_effects()) == [("a", 1), ("b", 2), ("b", 3)]


@pytest.mark.parametrize("commits_bundles", [False, True], ids=["each", "together"])
def test_events_parked_behind_a_dead_one_stay_in_order_over_bundles(*, commits_bundles: bool) -> None:
    """Event 2 of the first bundle is dead; those behind it and the next bundle are parked, in one commit or in many."""
    parking = InboxPolicy(consumer="billing", parks_poison=True, parks_gaps=True)
    with in_memory_world() as made:
        world = a_world(made.engine, commits_bundles=commits_bundles, policy=parking)
        world.put_bundle(envelope("a", 5), envelope("a", 6))
        world.handler_steps["a", 2] = [Reject("never")]
        worker = world.worker()
        world.work_until_idle(worker)

        assert world.committed_effects() == [("a", 1)]
        assert world.parked_places() == [("a", number) for number in (3, 4, 5, 6)]

        world.redrive()
        world.put_bundle(envelope("a", 7), envelope("a", 8))
        world.work_until_idle(worker)
        while worker.drainer.step():
            pass

        assert world.committed_effects() == [("a", number) for number in range(1, 9)]


def _executing(statement: str) -> Callable[..., None]:
    def handle(session: Session, *_: object) -> None:
        session.execute(text(statement))

    return handle


def test_a_handler_that_hides_the_inboxs_table_has_its_own_transaction(engine: Engine) -> None:
    """Its neighbour takes the other table away before the commit, whose own mark could not tell."""
    world, name = a_world(engine), "sluice_inbox_group"
    is_postgres = engine.dialect.name == POSTGRES
    if is_postgres:
        hide = f"CREATE TEMP TABLE {name} AS SELECT * FROM {name}"  # noqa: S608 (a test's own names)
        world.handler_steps["a", 1] = [_executing(hide)]
        world.handler_steps["a", 2] = [_executing(f"DROP TABLE pg_temp.{name}")]

    world.work_until_idle(world.worker())

    assert world.committed_effects() == EVERY_EVENT
    assert world.called_places.count(("a", 1)) == 1 + is_postgres


@pytest.mark.parametrize("seq", [1, 2, COUNT])
def test_a_handler_of_a_bundle_that_closes_its_descriptor_harms_no_event(on_postgres: Engine, seq: int) -> None:
    """The socket is closed below psycopg. Its event is handled at a later try over another connection."""
    world = a_world(on_postgres)
    world.handler_steps["a", seq] = [lambda session, *_: os.close(driver_of(session).fileno())]

    world.work_until_idle(world.worker())

    assert world.committed_effects() == EVERY_EVENT
    assert world.bodies_in_dlq() == []


@pytest.mark.parametrize("commits_bundles", [False, True], ids=["each", "together"])
def test_a_refused_commit_that_a_handler_passes_over_harms_no_event(engine: Engine, *, commits_bundles: bool) -> None:
    """The session takes no statement more, so the transaction ends with this event."""
    world = a_world(engine, commits_bundles=commits_bundles)

    def commit(session: Session, *_: object) -> None:
        with suppress(TransactionEndedError, SQLAlchemyError):
            session.commit()

    world.handler_steps["a", 2] = [commit] * 9
    world.work_until_idle(world.worker())

    assert sorted([*world.committed_effects(), *places(world.bodies_in_dlq())]) == EVERY_EVENT


@pytest.mark.parametrize("commits_bundles", [False, True], ids=["each", "together"])
def test_a_handler_that_sets_autocommit_on_sqlite_loses_no_effect(on_file: Engine, *, commits_bundles: bool) -> None:
    """Python sets it although the commit that belongs to it is refused, and then a commit does nothing."""
    world = a_world(on_file, commits_bundles=commits_bundles)

    def set_autocommit(session: Session, *_: object) -> None:
        with suppress(DatabaseError):
            driver_of(session).autocommit = True

    world.handler_steps["a", 2] = [set_autocommit] * 9
    world.work_until_idle(world.worker())

    assert world.committed_effects() == [("a", 1), ("a", 3), ("a", 4)]
    assert places(world.bodies_in_dlq()) == [("a", 2)]
    assert "autocommit" in str(world.exceptions()["a", 2][1])
