"""A failure that may be the message's own costs it an attempt, and a failure of the database costs none.

The errors are the databases' own: Postgres raises each SQLSTATE at the place that a test says, and what can be brought
about is: locks, timeouts, limits, files without room.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event, make_url, text
from sqlalchemy.orm import Session

from sluice.messaging.database import engines
from sluice.messaging.handlers import Reject
from sluice.messaging.inbox.groups import InboxPolicy
from tests.support.messaging.database_errors import fail_with
from tests.support.messaging.world import WorkerParts, World

FAILURE_COUNT = 4
"""How often each message's fault is there: once more than a transaction is tried in one receive."""
NEVER, TRIED, DEAD = 1, 2, None
"""The attempt that succeeds: the first; the second, as the first was used up by three tries; none, as each was used."""
AFTER_THE_CALL = {
    **dict.fromkeys(("53100", "53300"), NEVER),
    **dict.fromkeys(("08006", "40001", "40P01", "55P03", "57P01", "25006", "53000", "58030", "XX000"), TRIED),
    **dict.fromkeys(("57014", "25P04", "53200", "53400", "22012", "23505", "54000", "42P01", "42501", "P0001"), DEAD),
}
"""From the call of the handler to the commit, a failure that only this message has may be its own."""
BEFORE_THE_CALL = {
    **dict.fromkeys(AFTER_THE_CALL, NEVER),
    **dict.fromkeys(("22012", "23505", "54000"), DEAD),
}
"""Before it, only what the message holds can be at fault."""


class PostgresRefusals:
    """Lets Postgres refuse calls for a group with the SQLSTATE in the group's name, a number of times."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def refuse_first_calls(self, connection: Connection, group_id: str) -> None:
        """Let the first calls for a group be refused with the SQLSTATE that is the group's name."""
        if self.counts[group_id] < FAILURE_COUNT:
            self.counts[group_id] += 1
            fail_with(connection, group_id)

    def before(self, call: Callable[..., Any], group_of: Callable[..., str]) -> Callable[..., Any]:
        """Return a method of the inbox that meets the fault of a group first."""

        def faulty(connection: Connection, *arguments: Any, **options: Any) -> Any:
            self.refuse_first_calls(connection, group_of(*arguments, **options))
            return call(connection, *arguments, **options)

        return faulty


def _attempts(world: World, states: dict[str, Any]) -> dict[str, int | None]:
    """Return by group the attempt that had an effect; None if the message is dead."""
    done = {group for group, _ in world.committed_effects()}
    last = {call.place[0]: call.attempt for call in world.calls}
    return {group: last[group] if group in done else None for group in states}


def _work_until_idle(world: World, states: dict[str, Any]) -> dict[str, int | None]:
    """Send a message to each of these groups, work until nothing is left, and return the attempts counted for each."""
    world.send(*states)
    world.work_until_idle(world.worker(), steps_max=1_000)
    return _attempts(world, states)


def test_before_the_handler_only_refused_data_costs_an_attempt(
    on_postgres: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The inbox's first statement meets the SQLSTATE that is the group's name; the table has the attempts counted."""
    world, faults = World(on_postgres), PostgresRefusals()
    monkeypatch.setattr(
        world.inbox, "admit", faults.before(world.inbox.admit, lambda arrived: arrived.envelope.event.group)
    )

    assert _work_until_idle(world, BEFORE_THE_CALL) == BEFORE_THE_CALL


def test_each_sqlstate_in_a_handler_costs_the_attempts_of_its_row(on_postgres: Engine) -> None:
    """Each group's handler meets the SQLSTATE that is the group's name; the attempts counted are those in the table."""
    world, faults = World(on_postgres), PostgresRefusals()
    for group in AFTER_THE_CALL:
        world.handler_steps[group, 1] = [
            lambda session, event, _: faults.refuse_first_calls(session.connection(), event.group)
        ] * 100

    assert _work_until_idle(world, AFTER_THE_CALL) == AFTER_THE_CALL


def test_an_error_of_the_driver_costs_the_same_attempts(on_postgres: Engine) -> None:
    """It may be raised as it is, as the cause of another error, or in a group of errors."""
    world, faults = World(on_postgres), PostgresRefusals()

    def ask_driver(session: Session, received: Any, _: Any) -> None:
        with session.connection().connection.driver_connection.cursor() as cursor:  # type: ignore[union-attr]
            if faults.counts[received.group] < FAILURE_COUNT:
                faults.counts[received.group] += 1
                cursor.execute(f"DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{received.group}'; END $$")

    def wrap(session: Session, received: Any, _: Any) -> None:
        try:
            ask_driver(session, received, _)
        except Exception as error:
            raise ValueError("the order cannot be stored") from error

    def gather(session: Session, received: Any, _: Any) -> None:
        """Raise a group of errors, as tasks of asyncio do."""
        try:
            ask_driver(session, received, _)
        except Exception as error:
            raise ExceptionGroup("unhandled errors", [ValueError("of another task"), error]) from None

    for number, group in enumerate(AFTER_THE_CALL):
        world.handler_steps[group, 1] = [(ask_driver, wrap, gather)[number % 3]] * 100

    assert _work_until_idle(world, AFTER_THE_CALL) == AFTER_THE_CALL


def test_each_sqlstate_at_the_inboxs_mark_costs_the_attempts_of_its_row(
    on_postgres: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mark is the statement that notes in the inbox that a message was handled."""
    world, faults = World(on_postgres), PostgresRefusals()
    monkeypatch.setattr(
        world.inbox, "mark", faults.before(world.inbox.mark, lambda envelope, **_: envelope.event.group)
    )

    assert _work_until_idle(world, AFTER_THE_CALL) == AFTER_THE_CALL


def test_each_sqlstate_at_the_commit_costs_the_attempts_of_its_row(on_postgres: Engine) -> None:
    """A deferred trigger lets the commit itself fail."""
    with on_postgres.begin() as connection:
        connection.execute(text("CREATE TABLE late (state text)"))
        connection.execute(
            text(
                "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS"
                " $$ BEGIN RAISE EXCEPTION USING ERRCODE = NEW.state; END $$"
            )
        )
        connection.execute(
            text(
                "CREATE CONSTRAINT TRIGGER fail AFTER INSERT ON late DEFERRABLE INITIALLY DEFERRED"
                " FOR EACH ROW EXECUTE FUNCTION fail()"
            )
        )
    world, counts = World(on_postgres), Counter[str]()

    def fail_late(session: Session, received: Any, _: Any) -> None:
        counts[received.group] += 1
        if counts[received.group] <= FAILURE_COUNT:
            session.execute(text("INSERT INTO late VALUES (:state)"), {"state": received.group})

    for group in AFTER_THE_CALL:
        world.handler_steps[group, 1] = [fail_late] * 100

    assert _work_until_idle(world, AFTER_THE_CALL) == AFTER_THE_CALL


def test_a_rejected_message_is_recorded_when_the_database_is_back(
    on_postgres: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record is no attempt at the message: it is tried until it succeeds or the lease ends."""
    world, faults = World(on_postgres), PostgresRefusals()
    states = [state for state, attempt in BEFORE_THE_CALL.items() if attempt is NEVER]
    for group in states:
        world.handler_steps[group, 1] = [Reject("never")]
    record = faults.before(world.inbox.record_dead, lambda arrived, *_, **__: arrived.envelope.event.group)
    monkeypatch.setattr(world.inbox, "record_dead", record)

    _work_until_idle(world, dict.fromkeys(states))

    assert world.exceptions() == {(group, 1): ("dead", "never") for group in states}
    assert [call.place[0] for call in world.calls] == states


@pytest.mark.slow  # an hour of a full disk
def test_a_full_disk_under_the_handlers_table_alone_costs_no_attempt(on_postgres: Engine) -> None:
    """The inbox is elsewhere, and can be written: more is received meanwhile, and each receive would be an attempt."""
    world = World(on_postgres, max_attempts=1)
    ends_at = world.clock.monotonic() + 400  # longer than a lease of ten visibility timeouts

    def write(session: Session, *_: Any) -> None:
        if world.clock.monotonic() < ends_at:
            fail_with(session.connection(), "53100")

    world.send("a")
    world.handler_steps["a", 1] = [write] * 10_000
    worker = world.worker()
    worker.wait.meanwhile = worker.heartbeat.beat

    world.work_until_idle(worker)

    assert world.committed_effects() == [("a", 1)]
    assert {call.attempt for call in world.calls} == {1}
    assert world.clock.monotonic() < ends_at + 20


@pytest.mark.parametrize("place", ["handler", "before the handler"])
def test_a_failure_of_the_server_costs_a_parked_message_no_attempt(
    on_postgres: Engine, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """A drainer tries a parked message again later and not at once, so one failure of its handler is one attempt.

    The failures happen in the handler, where only a full disk or server costs none, or before it, where none costs one.
    """
    world = World(on_postgres, policy=InboxPolicy(consumer="billing", parks_poison=True, parks_gaps=True))
    is_called = place == "handler"
    expected = {
        state: 1 if not is_called or state in ("53100", "53300") else 2
        for state, attempt in AFTER_THE_CALL.items()
        if is_called or attempt is not DEAD
    }
    worker = world.park(*sorted(expected))
    faults = PostgresRefusals()
    faults.counts.update(dict.fromkeys(expected, FAILURE_COUNT - 1))
    if is_called:
        for group in expected:
            world.handler_steps[group, 2] = [
                lambda session, event, _: faults.refuse_first_calls(session.connection(), event.group)
            ]
    else:
        taken_up = faults.before(world.inbox.lock_next_parked, lambda group_id: group_id)
        monkeypatch.setattr(world.inbox, "lock_next_parked", taken_up)

    for _ in range(10):
        worker.drainer.step()
        world.simulator.advance(10)

    assert _attempts(world, expected) == expected
    assert world.parked_places() == []


@contextmanager
def _locked_row(engine: Engine, world: World) -> Iterator[Connection]:
    """Yield a connection that locks a group's row until it is rolled back."""
    world.send("a")
    world.work_until_idle(world.worker())
    with engine.connect() as connection:
        connection.execute(text("SELECT * FROM sluice_inbox_group WHERE group_id = 'a' FOR UPDATE"))
        yield connection


def _attempts_until_the_fault_ends(world: World, worker: WorkerParts, end: Callable[[], Any]) -> list[int]:
    """Handle all messages, end the fault at the tenth wait, and return the attempts that were made."""
    world.calls.clear()
    worker.wait.meanwhile = lambda: end() if len(worker.wait.waits) == 10 else None
    world.work_until_idle(worker)
    assert len(worker.wait.waits) >= 10
    return [call.attempt for call in world.calls]


@pytest.mark.parametrize("setting", ["statement_timeout", "lock_timeout"])
def test_a_roles_timeout_on_the_groups_row_costs_no_attempt(on_postgres: Engine, setting: str) -> None:
    """Another worker holds the row for a while; the wait for it is not the message's failure."""
    world = World(on_postgres)
    with _locked_row(on_postgres, world) as holder:
        options = f"{on_postgres.url.query['options']} -c{setting}=20ms"
        world.engine = impatient = engines.engine(
            make_url(on_postgres.url).update_query_dict({"options": options}).render_as_string(hide_password=False)
        )
        world.send("a")

        assert _attempts_until_the_fault_ends(world, world.worker(), holder.rollback) == [1]

    impatient.dispose()


def test_a_server_without_a_free_connection_costs_no_attempt(on_postgres: Engine) -> None:
    """A role may open one connection, and another program has it.

    For a refused connection libpq reports no SQLSTATE.
    """
    role = f"r{make_url(on_postgres.url).query['application_name']}"
    schema_name = role.removeprefix("r")
    with on_postgres.begin() as connection:
        connection.execute(text(f"CREATE ROLE {role} LOGIN CONNECTION LIMIT 1 PASSWORD 'some'"))
        connection.execute(text(f"GRANT ALL ON SCHEMA {schema_name} TO {role}"))
        connection.execute(text(f"GRANT ALL ON ALL TABLES IN SCHEMA {schema_name} TO {role}"))
        connection.execute(text(f"GRANT ALL ON ALL SEQUENCES IN SCHEMA {schema_name} TO {role}"))
    url = on_postgres.url.set(username=role, password="some").render_as_string(hide_password=False)  # noqa: S106
    world, limited, greedy = World(on_postgres), engines.engine(url), engines.engine(url)
    world.send("a", "b")
    world.engine = limited
    worker = world.worker()
    with closing(greedy.connect()) as only:
        world.engine = on_postgres
        attempts = _attempts_until_the_fault_ends(world, worker, only.invalidate)

    limited.dispose()
    greedy.dispose()
    with on_postgres.begin() as connection:
        connection.execute(text(f"DROP OWNED BY {role}"))
        connection.execute(text(f"DROP ROLE {role}"))
    assert attempts == [1, 1]


@pytest.mark.parametrize("pragma", ["max_page_count = 1", "query_only = 1"])
def test_a_full_or_read_only_sqlite_file_costs_no_attempt(on_file: Engine, pragma: str) -> None:
    """SQLite's limit is at least the file's size, so the handler writes more than the last page has room for."""
    world = World(on_file)
    is_over: list[bool] = []

    @event.listens_for(on_file, "checkout")
    def limit(connection: Any, *_: object) -> None:
        connection.execute("PRAGMA max_page_count = 1000000; " if is_over else f"PRAGMA {pragma}").close()
        if is_over:
            connection.execute("PRAGMA query_only = 0").close()

    def write(session: Session, *_: object) -> None:
        session.execute(text("CREATE TABLE IF NOT EXISTS large (body text)"))
        session.execute(text("INSERT INTO large VALUES (:body)"), {"body": "-" * 100_000})

    world.send("a", "b")
    for group in "ab":
        world.handler_steps[group, 1] = [write] * 100

    attempts = _attempts_until_the_fault_ends(world, world.worker(), lambda: is_over.append(True))

    assert set(attempts) == {1}
    assert sorted(world.committed_effects()) == [("a", 1), ("b", 1)]
