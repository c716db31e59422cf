"""The rights on the tables that `schema apply --roles` gives each role, on a real Postgres: enough, and no more."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import pytest
from sqlalchemy import Engine, make_url, text
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.orm import Session

from sluice.declaration import AutomaticRedrive, DatabaseRole
from sluice.messaging import Event, Outbox
from sluice.messaging.bundle import events_of
from sluice.messaging.database import engines, migrations, roles
from sluice.messaging.database.migrations import VersionedTables
from sluice.messaging.handlers import Reject
from sluice.messaging.inbox import maintenance
from sluice.messaging.inbox import tables as inbox_tables
from sluice.messaging.inbox.admission import Inbox
from sluice.messaging.inbox.groups import InboxPolicy
from sluice.messaging.inbox.operations import InboxOperator
from sluice.messaging.inbox.redrive_guard import RedriveGuard, RedriveOperator, RedriveVerdict
from sluice.messaging.outbox import tables as outbox_tables
from sluice.messaging.outbox.operations import OutboxOperator
from sluice.messaging.sqs.dead_letter_queue import StoredDeadLetter
from tests.integration.messaging.conftest import private_server
from tests.support.command_line import command_line
from tests.support.messaging.inbox_harness import decoded_message
from tests.support.messaging.outbox.simulated_relays import work
from tests.support.messaging.world import SETTINGS, TOPIC, World, create_tables, envelope


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Yield an engine of the tables' owner, on a Postgres whose roles have been made."""
    with private_server(tmp_path_factory) as made:
        engine = engines.engine(made.get_uri())
        _prepare(engine)
        yield engine
        engine.dispose()


@pytest.fixture
def owner(server: Engine) -> Engine:
    """Return the engine of the owner; the tables are empty."""
    _empty(server)
    return server


def _prepare(engine: Engine) -> None:
    """Create all tables and the roles with their rights."""
    for versioned in (outbox_tables.versioned, inbox_tables.versioned):
        list(migrations.upgrade(engine, versioned))
    with engine.begin() as connection:
        roles.create(connection)
    create_tables(engine)  # those of the handler, too


@contextmanager
def _engine_as(owner: Engine, role: DatabaseRole) -> Iterator[Engine]:
    """Yield an engine that connects as a role."""
    engine = engines.engine(make_url(owner.url).set(username=role.value).render_as_string(hide_password=False))
    try:
        yield engine
    finally:
        engine.dispose()


def _produce(producer: Engine, owner: Engine) -> None:
    """Commit events of a new group and of one that is known."""
    for _ in range(2):
        with Session(producer) as session:
            Outbox(TOPIC, notify=True).add(session, Event(type="t", group="a", data=None))
            session.commit()

    assert _rows(owner, "sluice_outbox", "sluice_outbox_group") == [2, 1]


def _relay(relaying: Engine, owner: Engine) -> None:
    """Publish committed events in a bundle; later delete them and their group."""
    World(owner).switch_bundles(2)
    world = World(relaying)
    relay = world.relay(settings=replace(SETTINGS, bundle_events_max=2))
    _require(relaying, outbox_tables.versioned)
    work(relay)
    World(owner).commit("a", "a")

    work(relay)
    published = [(event.event.group, event.seq) for each in world.receive_all() for event in events_of(each["Body"])]
    for seconds in (SETTINGS.keep_sent_seconds, SETTINGS.keep_groups_seconds):
        world.simulator.advance(seconds + 120)
        work(relay)
    relay.close()

    assert published == [("a", 1), ("a", 2)]
    assert world.store.lag().pending_count == 0
    assert _rows(owner, "sluice_outbox", "sluice_outbox_group") == [0, 0]


def _work(working: Engine, owner: Engine) -> None:
    """Park behind a dead message and a gap, drain after a failure, and delete old rows."""
    world = World(working, policy=InboxPolicy(consumer="billing", parks_poison=True, parks_gaps=True))
    worker = world.worker(poll_seconds=0)
    _require(working, inbox_tables.versioned)

    world.handler_steps["a", 1], world.handler_steps["a", 2] = (
        [Reject("no such customer")],
        [RuntimeError("the bank is away")],
    )
    world.send("a", "a")
    world.put(envelope("b", 2))
    world.work_until_idle(worker, steps_max=20)
    world.redrive()
    world.put(envelope("b", 1))
    world.work_until_idle(worker, steps_max=20)
    for _ in range(3):
        worker.drainer.step()
        world.simulator.advance(60)
    counted = maintenance.counts(working, "billing")
    for _ in range(2):
        world.simulator.advance(100)
        with working.begin() as connection:
            world.inbox.forget(connection, 1)
        world.send("c")
        world.work_until_idle(worker, steps_max=20)

    assert sorted(world.committed_effects()) == [("a", 1), ("a", 2), ("b", 1), ("b", 2), ("c", 1), ("c", 2)]
    assert set(counted.values()) == {0}
    assert _rows(owner, "sluice_inbox_group", "sluice_inbox_exception") == [1, 0]


def _redrive(redriving: Engine, owner: Engine) -> None:
    """Begin a run, bring a message back whose death is recorded, and end; an operator's switch writes the same."""
    came = decoded_message(1)
    with owner.begin() as connection:
        inbox = Inbox(InboxPolicy(consumer="billing"))
        assert inbox.record_dead(connection, came, "the bank is away", is_permanent=False)
    dead_letter = StoredDeadLetter(
        sqs_message_id=came.sqs_message_id,
        first_ids=frozenset({came.sqs_message_id}),
        receipt_handle="handle",
        message_group_id="a",
        body=came.body,
        attributes={},
        trace_header=None,
        receive_count=1,
        sent_at_us=0,
        envelope=came.envelope,
        fault=None,
    )
    guard = RedriveGuard(redriving, "billing", AutomaticRedrive(), run="r")
    _require(redriving, inbox_tables.versioned)

    guard.begin()
    verdict = guard.judge(dead_letter)
    guard.claim(dead_letter)
    guard.end()

    assert verdict is RedriveVerdict.BRING_BACK


def _operate(operating: Engine, owner: Engine) -> None:
    """Repair in outbox and inbox, with the audit of both."""
    _produce(owner, owner)
    with owner.begin() as connection:
        connection.execute(text("UPDATE sluice_outbox SET status = 'quarantined' WHERE group_seq = 1"))
        Inbox(InboxPolicy(consumer="billing")).record_dead(connection, decoded_message(1), "refused", is_permanent=True)
    with operating.begin() as connection:
        outbox = OutboxOperator(actor="me", reason="x", topic=TOPIC)
        outbox.skip(connection, "a", 1)
        outbox.begin_epoch(connection)
        InboxOperator(actor="me", reason="x", consumer="billing").skip(connection, "a", 1)
        RedriveOperator(actor="me", reason="x", consumer="billing").switch_off(connection)

    assert _rows(owner, "sluice_outbox_audit", "sluice_inbox_audit") == [2, 2]


def _look(reading: Engine, owner: Engine) -> None:
    """Read outbox and inbox, and write nothing."""
    _produce(owner, owner)
    for versioned in (outbox_tables.versioned, inbox_tables.versioned):
        _require(reading, versioned)

    counted = maintenance.counts(reading, "billing")

    assert set(counted.values()) == {0}
    with pytest.raises(ProgrammingError, match="permission denied"), reading.begin() as connection:
        connection.execute(text("DELETE FROM sluice_outbox"))


_WORK: Mapping[DatabaseRole, Callable[[Engine, Engine], None]] = {
    DatabaseRole.PRODUCER: _produce,
    DatabaseRole.RELAY: _relay,
    DatabaseRole.WORKER: _work,
    DatabaseRole.REDRIVE: _redrive,
    DatabaseRole.OPERATOR: _operate,
    DatabaseRole.READER: _look,
}


def _require(engine: Engine, versioned: VersionedTables) -> None:
    """Refuse tables of another version, as each process does when it starts."""
    with engine.connect() as connection:
        migrations.require(connection, versioned)


def _rows(owner: Engine, *names: str) -> list[int]:
    """Return how many rows each of these tables has."""
    with owner.connect() as connection:
        return [connection.execute(text(f"SELECT count(*) FROM {name}")).scalar_one() for name in names]  # noqa: S608


def _empty(owner: Engine) -> None:
    """Delete the rows of all tables."""
    names = {*outbox_tables.metadata.tables, *inbox_tables.metadata.tables, "effects"}
    with owner.begin() as connection:
        connection.execute(text(f"TRUNCATE {', '.join(sorted(names))}"))


@pytest.mark.parametrize("role", DatabaseRole)
def test_each_role_can_do_its_work_with_its_rights(owner: Engine, role: DatabaseRole) -> None:
    """The work raises an error if a right is missing."""
    with _engine_as(owner, role) as engine:
        _WORK[role](engine, owner)


@pytest.mark.parametrize(
    "role",
    [
        DatabaseRole.PRODUCER,
        DatabaseRole.RELAY,
        pytest.param(DatabaseRole.WORKER, marks=pytest.mark.slow),
        DatabaseRole.REDRIVE,
    ],
)
def test_no_role_has_a_right_that_it_does_not_need(owner: Engine, role: DatabaseRole) -> None:
    """If any one of its rights on tables is revoked, the role's work fails."""
    unneeded = []
    with owner.connect() as connection:
        granted = text(
            "SELECT privilege_type, table_name FROM information_schema.role_table_grants WHERE grantee = :it"
        )
        rights = [
            (right, table) for right, table in connection.execute(granted, {"it": role.value}) if table != "effects"
        ]

    for right, table in rights:
        _empty(owner)
        with owner.begin() as connection:
            connection.execute(text(f"REVOKE {right} ON {table} FROM {role.value}"))
        try:
            with _engine_as(owner, role) as engine:
                _WORK[role](engine, owner)
            unneeded.append((right, table))
        except (ProgrammingError, AssertionError):
            pass
        with owner.begin() as connection:
            connection.execute(text(f"GRANT {right} ON {table} TO {role.value}"))

    assert unneeded == []


def test_a_role_that_owns_no_tables_cannot_upgrade_them(
    owner: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If nothing is to upgrade, its command succeeds; else one line says why it failed.

    A task's role meets such tables if the owner has not applied the schema before the deployment.
    """
    dsn = make_url(owner.url).set(username=DatabaseRole.WORKER.value).render_as_string(hide_password=False)
    with command_line(monkeypatch, capsys) as run:
        done = run("schema", "apply", "--dsn", dsn)
        with owner.begin() as connection:
            connection.execute(text("UPDATE sluice_schema SET version = 1 WHERE part = 'inbox'"))
            connection.execute(text("ALTER TABLE sluice_inbox_exception DROP COLUMN is_permanent"))
        refused = run("schema", "apply", "inbox", "--dsn", dsn)
        list(migrations.upgrade(owner, inbox_tables.versioned))

    assert done[0] == 0
    assert refused[0] == 2
    assert refused[2] == (
        "sluice: the database does not do it (must be owner of table sluice_inbox_exception); look at --dsn\n"
    )
