"""No effect of a message differs for what another message's handler did to connection, session, thread or process."""

import inspect
import secrets
import weakref
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, delete, event, make_url, table, text
from sqlalchemy.engine.events import ConnectionEvents
from sqlalchemy.orm import Session

from sluice.messaging.database import engines
from sluice.messaging.database.transactions import MessageSessions
from sluice.messaging.envelope import Event
from sluice.messaging.handlers import Context, Reject
from sluice.messaging.inbox.groups import InboxPolicy
from sluice.messaging.worker.processing import async_handlers
from sluice.messaging.worker.processing.process_state import ProcessState
from tests.support.cases import one_case_in
from tests.support.messaging import connection_misdeeds
from tests.support.messaging.connection_misdeeds import ELSEWHERE, GUEST, POSTGRES, SQLITE, KeptThings, Leftover
from tests.support.messaging.world import KINDS_OF_ASYNCIO, MAX_ATTEMPTS, World, create_tables, envelope, places

_AUDITED = {
    SQLITE: ["CREATE TRIGGER audits AFTER INSERT ON effects BEGIN INSERT INTO audit VALUES (new.seq); END"],
    POSTGRES: [
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN INSERT INTO audit VALUES (new.seq); RETURN NULL; END'",
        "CREATE TRIGGER audits AFTER INSERT ON effects FOR EACH ROW EXECUTE FUNCTION note()",
    ],
}


def _create_audited_tables(engine: Engine) -> None:
    """Create all tables, and a trigger that notes the number of each effect in the table audit."""
    create_tables(engine)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE audit (seq int)"))
        for statement in _AUDITED[engine.dialect.name]:
            connection.execute(text(statement))


@pytest.fixture(scope="module")
def on_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Yield an engine on an SQLite file for all tests of this module, because each case begins with empty tables."""
    made = engines.engine(f"sqlite:///{tmp_path_factory.mktemp('leftovers') / 'inbox.db'}")
    _create_audited_tables(made)
    yield made
    made.dispose()


@pytest.fixture(scope="module")
def on_postgres_once(postgres_url: str) -> Iterator[Engine]:
    """Yield an engine on a schema, beside another one with the same tables, and a role that may write both."""
    name = f"test_{secrets.token_hex(8)}"
    server = engines.engine(postgres_url)
    made = []
    with server.begin() as connection:
        connection.execute(text(f"DROP SCHEMA IF EXISTS {ELSEWHERE} CASCADE"))
        if not connection.execute(text("SELECT 1 FROM pg_roles WHERE rolname = :name"), {"name": GUEST}).scalar():
            connection.execute(text(f"CREATE ROLE {GUEST}"))
    for schema_name in (ELSEWHERE, name):
        with server.begin() as connection:
            connection.execute(text(f"CREATE SCHEMA {schema_name}"))
        url = make_url(postgres_url).update_query_dict({"options": f"-csearch_path={schema_name}"})
        made.append(engines.engine(url.render_as_string(hide_password=False)))
        _create_audited_tables(made[-1])
        with server.begin() as connection:
            connection.execute(text(f"GRANT USAGE ON SCHEMA {schema_name} TO {GUEST}"))
            connection.execute(text(f"GRANT ALL ON ALL TABLES IN SCHEMA {schema_name} TO {GUEST}"))
            connection.execute(text(f"GRANT ALL ON ALL SEQUENCES IN SCHEMA {schema_name} TO {GUEST}"))
    yield made[-1]
    for engine in made:
        engine.dispose()
    with server.begin() as connection:
        for schema_name in (ELSEWHERE, name):
            connection.execute(text(f"DROP SCHEMA {schema_name} CASCADE"))
    server.dispose()


class Case:
    """A message whose handler misbehaves at each attempt, and others of its group and of another.

    Each message has the same lane, and so the same connection, as far as there is one.
    """

    place, others = ("a", 1), (("b", 1), ("b", 2), ("a", 2))
    """The group and number of the message whose handler misbehaves, and of those whose handlers look."""

    def __init__(self, engine: Engine, kind: str = "plain") -> None:
        self.engine, self.found, self.kind = engine, dict[tuple[str, int], dict[str, Any]](), kind
        engine.dispose()
        with engine.begin() as connection:
            for name in ("effects", "audit", "sluice_inbox_group", "sluice_inbox_exception"):
                connection.execute(delete(table(name)))
        self.world = self.make_world()

    def make_world(self) -> World:
        """Return the world of the case."""
        return World(self.engine)

    def run(self, act: Callable[[Session], object], *, is_early: bool = False) -> dict[str, Any]:
        """Return what the other messages' handlers saw, and the rows of their effects."""

        def misbehave(session: Session, _: Event, context: Context) -> Any:
            done = act(session)
            if self.fails(context) and done is None:
                raise ValueError("once more")
            return done if inspect.isawaitable(done) else None

        world = self.world
        worker = world.worker(handlers=world.handlers_of_asyncio(self.kind))
        world.handler_steps[self.place] = [misbehave] * 3
        for place in self.others:
            world.handler_steps[place] = [self._look] * 3
        # The process is the test's own afterwards.
        with ProcessState().handling(), redirect_stdout(connection_misdeeds.OUTPUT):
            for send in self.sends():
                send()
                worker.lane.step()
                if is_early:
                    KeptThings.go_on_now()
            world.work_until_idle(worker)
            KeptThings.end()
        async_handlers.close()
        rows, effects, dead = (
            connection_misdeeds.engine_looks(self.engine),
            world.committed_effects(),
            places(world.bodies_in_dlq()),
        )
        assert self.place in effects + dead, "the misdeed's own message is lost"
        return {
            "found": self.found,
            "effects": sorted(place for place in effects if place != self.place),
            "audit": rows["audit"] - effects.count(self.place),
            "positions": world.last_numbers(),
            "dead": [place for place in dead if place != self.place],
        }

    def fails(self, context: Context) -> bool:
        """Return whether the handler that misbehaves fails then: here at its first attempt."""
        return context.attempt == 1

    def sends(self) -> list[Callable[[], object]]:
        """Return what sends the messages."""
        return [partial(self.world.send, *groups) for groups in (("a",), ("b",), ("a", "b"))]

    def _look(self, session: Session, event: Event, context: Context) -> None:
        """Note the state of process, session and connection, as the next handler meets it."""
        KeptThings.go_on_now()
        looks = connection_misdeeds
        found = looks.process_looks() | looks.sqlalchemy_looks(session) | looks.session_looks(session)
        self.found[event.group, context.seq] = found | looks.driver_looks(session)


class CaseInBundle(Case):
    """The second event of a bundle, whose handlers share a transaction; those behind it look, and the next bundle's."""

    place, others = ("a", 2), (("a", 3), ("a", 4), ("b", 1))

    def make_world(self) -> World:
        """Return a world with a commit for a bundle."""
        return World(self.engine, has_bundles=True, commits_bundles=True)

    def fails(self, _: Context) -> bool:
        """Return that it never fails: each event would have a transaction of its own."""
        return False

    def sends(self) -> list[Callable[[], object]]:
        """Return what puts two bundles into the queue."""
        return [
            partial(self.world.put_bundle, *(envelope("a", number) for number in range(1, 5))),
            partial(self.world.put_bundle, envelope("b", 1), envelope("b", 2)),
        ]


def misdeeds_in_bundles() -> list[Leftover]:
    """Return the misdeeds on Postgres that the next handler of a shared transaction must not meet.

    A prepared statement stays until the commit: psycopg knows its own by name.
    """
    return [misdeed for misdeed in connection_misdeeds.misdeeds_on(POSTGRES) if "PREPARE" not in misdeed.name]


_expected: dict[tuple[type[Case], str, str], dict[str, Any]] = {}


def _assert_misdeed_leaves_nothing(
    engine: Engine, misdeed: Leftover, *, is_early: bool = False, kind: str = "plain", case: type[Case] = Case
) -> None:
    """Run the same messages without and with the misdeed, and check that the next handlers find no difference.

    Args:
        engine: the inbox's database.
        misdeed: what the handler of the first message does.
        is_early: whether threads of the misdeed end before the next message is handled.
        kind: the kind of handlers: plain functions, or one of asyncio.
        case: the messages, and where the one of the misdeed stands.
    """
    key = case, engine.dialect.name, kind
    if key not in _expected:
        _expected[key] = case(engine, kind).run(lambda _: None)
    expected = _expected[key]
    assert len(expected["found"]) == 3
    assert len(expected["effects"]) >= 3
    assert expected["dead"] == []

    seen = case(engine, kind).run(misdeed.act, is_early=is_early)

    assert seen["found"].keys() == expected["found"].keys()
    differences = [
        (place, name, before.get(name), after.get(name))
        for place, before in expected["found"].items()
        for after in [seen["found"][place]]
        for name in before.keys() | after.keys()
        if before.get(name) != after.get(name)
    ]
    assert differences == []
    del seen["found"]
    assert seen == {name: expected[name] for name in seen}


@pytest.mark.parametrize("misdeed", one_case_in(24, connection_misdeeds.misdeeds_on(SQLITE)))
def test_a_handlers_misdeed_changes_nothing_for_the_next_on_sqlite(on_sqlite: Engine, misdeed: Leftover) -> None:
    """A misdeed changes connection, session, thread or process: a setting, a temporary table, an open cursor."""
    _assert_misdeed_leaves_nothing(on_sqlite, misdeed)


def test_an_sqlite_connection_stays_open_where_handlers_change_rows_alone(tmp_path: Path) -> None:
    """Opening another connection costs time for each message: docs/decisions/0017-sql-by-sqlalchemy.md."""
    engine = engines.engine(f"sqlite:///{tmp_path / 'inbox.db'}")
    create_tables(engine)
    world = World(engine)
    worker, opened = world.worker(), list[object]()
    for number in range(5):
        world.send("a")
        worker.lane.step()
        if number == 0:  # the first is that of the test, which sends
            event.listen(engine, "connect", lambda connection, _: opened.append(connection))

    assert [seq for _, seq in world.committed_effects()] == [1, 2, 3, 4, 5]
    assert opened == []
    engine.dispose()


@pytest.mark.parametrize("misdeed", one_case_in(24, connection_misdeeds.misdeeds_on(POSTGRES)))
def test_a_handlers_misdeed_changes_nothing_for_the_next_on_postgres(
    on_postgres_once: Engine, misdeed: Leftover
) -> None:
    """A misdeed changes connection, session, thread or process: a role, a lock, a prepared statement."""
    _assert_misdeed_leaves_nothing(on_postgres_once, misdeed)


@pytest.mark.parametrize(
    ("kind", "misdeed"), one_case_in(240, KINDS_OF_ASYNCIO, connection_misdeeds.misdeeds_on(SQLITE))
)
def test_an_asyncio_handlers_misdeed_changes_nothing_for_the_next_on_sqlite(
    on_sqlite: Engine, kind: str, misdeed: Leftover
) -> None:
    """Each kind of asyncio handler misbehaves in the ways of a plain one; one of 120 cases is quick."""
    _assert_misdeed_leaves_nothing(on_sqlite, misdeed, kind=kind)


@pytest.mark.parametrize(
    ("kind", "misdeed"), one_case_in(240, KINDS_OF_ASYNCIO, connection_misdeeds.misdeeds_on(POSTGRES))
)
def test_an_asyncio_handlers_misdeed_changes_nothing_for_the_next_on_postgres(
    on_postgres_once: Engine, kind: str, misdeed: Leftover
) -> None:
    """Each kind of asyncio handler misbehaves in the ways of a plain one; one of 120 cases is quick."""
    _assert_misdeed_leaves_nothing(on_postgres_once, misdeed, kind=kind)


@pytest.mark.parametrize("misdeed", one_case_in(8, connection_misdeeds.misdeeds_of_threads(SQLITE)))
def test_a_handlers_thread_changes_nothing_for_the_next_message_on_sqlite(on_sqlite: Engine, misdeed: Leftover) -> None:
    """The thread changed the connection while it was in its pool, and no reference to the connection is left."""
    _assert_misdeed_leaves_nothing(on_sqlite, misdeed, is_early=True)


@pytest.mark.parametrize("misdeed", one_case_in(8, connection_misdeeds.misdeeds_of_threads(POSTGRES)))
def test_a_handlers_thread_changes_nothing_for_the_next_message_on_postgres(
    on_postgres_once: Engine, misdeed: Leftover
) -> None:
    """The thread changed the connection while it was in its pool, and no reference to the connection is left."""
    _assert_misdeed_leaves_nothing(on_postgres_once, misdeed, is_early=True)


@pytest.mark.parametrize("misdeed", one_case_in(24, connection_misdeeds.misdeeds_on(SQLITE)))
def test_a_misdeed_in_a_bundle_changes_nothing_for_the_next_on_sqlite(on_sqlite: Engine, misdeed: Leftover) -> None:
    """Its handlers share a transaction until one leaves more than rows: that one is the last."""
    _assert_misdeed_leaves_nothing(on_sqlite, misdeed, case=CaseInBundle)


@pytest.mark.parametrize("misdeed", one_case_in(24, misdeeds_in_bundles()))
def test_a_misdeed_in_a_bundle_changes_nothing_for_the_next_on_postgres(
    on_postgres_once: Engine, misdeed: Leftover
) -> None:
    """Its handlers share a transaction until one leaves more than rows: that one is the last."""
    _assert_misdeed_leaves_nothing(on_postgres_once, misdeed, case=CaseInBundle)


def _handle_in_turn(world: World, *handlers: Callable[[Session], object]) -> None:
    """Let each handler handle a message of one group, on one connection."""
    worker = world.worker()
    for number, handler in enumerate(handlers, 1):
        world.handler_steps["a", number] = [lambda session, *_, handler=handler: handler(session)]
        world.send("a")
        worker.lane.step()
    assert world.committed_effects() == [("a", number) for number in range(1, len(handlers) + 1)]


def test_a_handlers_seed_repeats_no_other_messages_random_numbers(on_postgres: Engine) -> None:
    """Postgres keeps the seed for the session, and the next message may get the same connection."""
    seen = list[object]()

    def seed(session: Session) -> None:
        session.execute(text("SELECT setseed(0.5)"))

    def draw(session: Session) -> None:
        seen.append(session.execute(text("SELECT random()")).scalar_one())

    _handle_in_turn(World(on_postgres), seed, draw, seed, draw)

    assert len(set(seen)) == 2


def test_handlers_that_prepare_the_same_statement_do_not_fail(on_postgres: Engine) -> None:
    """Psycopg remembers the names of its prepared statements, and the server drops them after each message."""

    def prepare(session: Session) -> None:
        driver = connection_misdeeds.driver_of(session)
        driver.prepare_threshold, before = 0, driver.prepare_threshold
        driver.execute("SELECT count(*) FROM effects WHERE seq = %s", [1])
        driver.prepare_threshold = before

    _handle_in_turn(World(on_postgres), prepare, prepare, prepare)  # asserts the three effects


def test_statements_that_an_engines_listener_prepares_stay_usable(on_postgres: Engine) -> None:
    """The program's listener lets psycopg prepare every statement, and the server drops them after each message."""

    def prepare(connection: Any, _: object) -> None:
        connection.prepare_threshold = 0

    on_postgres.dispose()
    event.listen(on_postgres, "connect", prepare)

    _handle_in_turn(World(on_postgres), *[lambda _: None] * 3)  # asserts the three effects


def _hiding_handler(name: str) -> Any:
    """Return a handler that hides a table behind a temporary one of the same name."""

    def hide(session: Session, _: Event, __: Context) -> None:
        session.execute(text(f"CREATE TEMP TABLE {name} AS SELECT * FROM {name}"))  # noqa: S608 (a test's own names)

    return hide


def test_a_handler_that_hides_the_inboxs_groups_commits_only_counted_work(engine: Engine) -> None:
    """A handler hides the inbox's table of groups behind a temporary table of the same name.

    Postgres then finds a row of the temporary table and commits nothing; SQLite names the schema and is not deceived.
    `c` is a message in order, the second of `a` is parked.
    """
    world = World(engine, policy=InboxPolicy(consumer="billing", parks_poison=True, parks_gaps=True))
    world.park("a")
    worker = world.worker()
    world.send("c")
    world.handler_steps["c", 1], world.handler_steps["a", 2] = (
        [_hiding_handler("sluice_inbox_group")] * 9,
        [_hiding_handler("sluice_inbox_group")] * 9,
    )
    world.work_until_idle(worker)
    for _ in range(MAX_ATTEMPTS):
        worker.drainer.step()
        world.simulator.advance(301)

    handled = [("a", 1)] if engine.dialect.name == POSTGRES else [("a", 1), ("c", 1), ("a", 2)]
    assert world.committed_effects() == handled
    assert world.last_numbers() == {"a": handled.count(("a", 2)) + 1, "c": handled.count(("c", 1))}


def test_a_handler_that_hides_the_inboxs_exceptions_commits_only_counted_work(engine: Engine) -> None:
    """A dead message comes back, and its handler hides the table in which its death is recorded."""
    world = World(engine)
    world.handler_steps["a", 1] = [Reject("no such customer"), *[_hiding_handler("sluice_inbox_exception")] * 9]
    world.send("a")
    for _ in range(2):
        world.work_until_idle(world.worker())
        world.redrive()
    world.work_until_idle(world.worker())

    state, _ = world.exceptions()["a", 1]
    assert (world.committed_effects(), state) == (
        ([], "dead") if engine.dialect.name == POSTGRES else ([("a", 1)], "redriven")
    )


def _listen(name: str, engine: Engine) -> None:
    """Leave a listener for the event of this name on the engine."""
    event.listen(engine, name, lambda *_: None)


_LEFT_ON_ENGINE: dict[str, Callable[[Engine], object]] = {
    **{f"listener of {name}": partial(_listen, name) for name in vars(ConnectionEvents) if name[0] not in "_d"},
    "options": lambda engine: engine.update_execution_options(schema_translate_map={None: ELSEWHERE}),
    "attribute": lambda engine: setattr(engine, "hide_parameters", False),
    "reference": KeptThings.kept.append,
    "weak reference": lambda engine: KeptThings.kept.append(weakref.ref(engine)),
}


@pytest.mark.parametrize("name", _LEFT_ON_ENGINE)
def test_an_engine_that_a_handler_changed_is_used_for_no_other_message(on_sqlite: Engine, name: str) -> None:
    """Three messages use the session's engine in turn, and only the second one's handler changes it."""
    sessions, found = MessageSessions(on_sqlite), list[dict[str, Any]]()
    for leave in (lambda _: None, _LEFT_ON_ENGINE[name], lambda _: None):
        with sessions.open() as session:
            session.execute(text("SELECT 1"))
            found.append(vars(session.bind))
            leave(session.bind)  # type: ignore[arg-type]

    assert found[0] is found[1]  # to make one costs each message: docs/decisions/0017-sql-by-sqlalchemy.md
    assert found[1] is not found[2]
    KeptThings.end()


def test_a_change_of_the_programs_engine_holds_for_the_next_message(on_file: Engine) -> None:
    """The sessions of messages have an engine of their own, which is made of the program's."""
    sessions = MessageSessions(on_file)
    with sessions.open():
        pass
    on_file.update_execution_options(schema_translate_map={None: ELSEWHERE})

    with sessions.open() as session:
        assert session.get_bind().get_execution_options()["schema_translate_map"] == {None: ELSEWHERE}
