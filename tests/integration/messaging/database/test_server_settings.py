"""Settings of a database and a role, on a real Postgres: each keeps every promise, or is refused in one line."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, create_engine, func, make_url, select, text
from sqlalchemy.orm import Session

from sluice.clock import eventually
from sluice.messaging import Context, Event, Outbox
from sluice.messaging.database import engines, migrations, server_settings
from sluice.messaging.envelope import decode
from sluice.messaging.errors import OutboxError
from sluice.messaging.inbox import tables as inbox_tables
from sluice.messaging.outbox import tables as outbox_tables
from tests.integration.messaging.conftest import private_server
from tests.support.cases import one_case_in
from tests.support.command_line import command_line
from tests.support.messaging.outbox.simulated_relays import work
from tests.support.messaging.world import TOPIC, World, create_tables, effects, places
from tests.support.processes import postgres_server

_GROUPS = ("a", "B-2", "a")
_TEXT = "Straße „北“"
_RIGHTS = outbox_tables.RELAY_RIGHTS | inbox_tables.WORKER_RIGHTS
_RESET = "reset it for database and role"

_PLANS = (
    *("seqscan", "indexscan", "indexonlyscan", "bitmapscan", "sort", "incremental_sort", "hashagg", "hashjoin"),
    *("mergejoin", "nestloop", "material", "memoize", "tidscan", "gathermerge", "async_append", "parallel_append"),
)
ACCEPTED = (
    *(f"synchronous_commit={value}" for value in ("off", "local", "remote_write", "on", "remote_apply")),
    *(f"default_transaction_isolation={value}" for value in ("read_uncommitted", "repeatable_read", "serializable")),
    "default_transaction_deferrable=on commit_delay=1000 commit_siblings=0 wal_compression=on track_counts=off",
    "session_replication_role=replica row_security=off",
    "session_replication_role=local event_triggers=off restrict_nonsystem_relation_kind=view,foreign-table",
    "search_path=theirs,public,pg_catalog",
    "statement_timeout=60s lock_timeout=5s idle_in_transaction_session_timeout=10s idle_session_timeout=10s"
    " transaction_timeout=60s",
    "standard_conforming_strings=off escape_string_warning=off backslash_quote=off quote_all_identifiers=on",
    "array_nulls=off",
    "transform_null_equals=on",
    "DateStyle=German,DMY IntervalStyle=sql_standard TimeZone=Asia/Kathmandu bytea_output=escape extra_float_digits=-15"
    " xmloption=document lc_messages=C.utf8 lc_numeric=C.utf8 lc_time=C.utf8 client_min_messages=debug5",
    "DateStyle=SQL,MDY IntervalStyle=iso_8601 TimeZone=America/St_Johns client_min_messages=error application_name=ä",
    *(f"client_encoding={value}" for value in ("LATIN1", "SQL_ASCII", "WIN1252")),
    "default_tablespace=nowhere temp_tablespaces=nowhere check_function_bodies=off",
    "jit=on jit_above_cost=0 plan_cache_mode=force_generic_plan",
    " ".join(f"enable_{kind}=off" for kind in _PLANS),
    "plan_cache_mode=force_custom_plan debug_parallel_query=regress parallel_setup_cost=0 work_mem=64kB"
    " temp_buffers=800kB max_stack_depth=100kB from_collapse_limit=1 join_collapse_limit=1 geqo_threshold=2"
    " cursor_tuple_fraction=0 constraint_exclusion=on",
    "log_statement=all log_duration=on log_min_messages=debug1 log_min_error_statement=debug1 debug_print_plan=on"
    " track_activities=off track_io_timing=on stats_fetch_consistency=snapshot compute_query_id=on"
    " backend_flush_after=1 default_toast_compression=pglz gin_fuzzy_search_limit=1 lo_compat_privileges=on"
    " vacuum_cost_delay=100 deadlock_timeout=1ms temp_file_limit=1024"
    " log_lock_waits=on maintenance_work_mem=1MB createrole_self_grant=set allow_in_place_tablespaces=on",
)
"""Settings that a role may have: every guarantee holds."""
REFUSED = {
    "zero_damaged_pages=on": "zero_damaged_pages is on, allowed is off: it drops the rows of a damaged page unseen;"
    f" {_RESET}",
    "ignore_checksum_failure=on": "ignore_checksum_failure is on, allowed is off: it takes damaged rows for sound ones;"
    f" {_RESET}",
    "exit_on_error=on": f"exit_on_error is on, allowed is off: it ends a connection at every lost race; {_RESET}",
    "default_transaction_read_only=on": "default_transaction_read_only is on, allowed is off: nothing can be written;"
    f" {_RESET}, or start again once it is over",
    "statement_timeout=900": "statement_timeout is 900 ms, allowed is 0 or at least 1000 ms: a transaction would seldom"
    f" end; {_RESET}",
    "transaction_timeout=999": "transaction_timeout is 999 ms, allowed is 0 or at least 1000 ms: a transaction would"
    f" seldom end; {_RESET}",
}
"""Setting of a role to the line that refuses it."""
_NO_TABLE = (
    "sluice_inbox_parked is a view or a foreign table, allowed is a table: a row may be dropped, or committed"
    " elsewhere; use the schema, or the server, where it is a table"
)
CHANGES = {
    "ALTER TABLE sluice_outbox SET UNLOGGED": "table sluice_outbox is UNLOGGED or temporary, allowed is a permanent"
    " one: a crash empties it; run ALTER TABLE sluice_outbox SET LOGGED",
    "ALTER TABLE sluice_inbox_group SET UNLOGGED": "table sluice_inbox_group is UNLOGGED or temporary, allowed is a"
    " permanent one: a crash empties it; run ALTER TABLE sluice_inbox_group SET LOGGED",
    "ALTER TABLE sluice_outbox ENABLE ROW LEVEL SECURITY": "row-level security of sluice_outbox is active for app,"
    " allowed is none: it would not see every row; disable it, or run ALTER ROLE app BYPASSRLS",
    "CREATE RULE r AS ON INSERT TO sluice_inbox_parked DO INSTEAD NOTHING": "rule r of sluice_inbox_parked rewrites"
    " statements, allowed is none; run DROP RULE r ON sluice_inbox_parked",
    "CREATE TRIGGER t BEFORE INSERT ON sluice_outbox_lease FOR EACH ROW EXECUTE FUNCTION nothing()": "trigger t of"
    " sluice_outbox_lease is BEFORE each row, allowed are AFTER triggers: it may change or drop a row; run DROP TRIGGER"
    " t ON sluice_outbox_lease",
    "CREATE SCHEMA app AUTHORIZATION app; CREATE TABLE app.sluice_outbox_group (LIKE sluice_outbox_group)": "the tables"
    " are found in several schemas (sluice_outbox in public, sluice_outbox_group in app, sluice_outbox_lease in public,"
    " sluice_outbox_bundle in public, sluice_outbox_switch in public,"
    " sluice_inbox_group in public, sluice_inbox_exception in public, sluice_inbox_parked in public,"
    " sluice_inbox_consumer in public, sluice_inbox_redrive in public, sluice_inbox_pause in public,"
    " sluice_inbox_attempt in public, sluice_inbox_bundle in public), allowed is one;"
    " correct the role's search_path",
    "ALTER TABLE sluice_inbox_parked RENAME TO kept; CREATE VIEW sluice_inbox_parked AS TABLE kept": _NO_TABLE,
    "ALTER TABLE sluice_inbox_parked RENAME TO kept; CREATE FOREIGN DATA WRAPPER theirs; CREATE SERVER theirs FOREIGN"
    " DATA WRAPPER theirs; CREATE FOREIGN TABLE sluice_inbox_parked (consumer text) SERVER theirs": _NO_TABLE,
    "REVOKE DELETE ON sluice_outbox FROM app": "role app lacks DELETE on sluice_outbox, allowed is a role that has it;"
    " run GRANT DELETE ON sluice_outbox TO app",
    "REVOKE SELECT ON sluice_inbox_bundle FROM app": "role app lacks SELECT on sluice_inbox_bundle, allowed is a role"
    " that has it; run GRANT SELECT ON sluice_inbox_bundle TO app",
    "REVOKE ALL ON sluice_inbox_consumer FROM app": "role app lacks SELECT, INSERT, UPDATE on sluice_inbox_consumer,"
    " allowed is a role that has it; run GRANT SELECT, INSERT, UPDATE ON sluice_inbox_consumer TO app",
}
"""Somebody's change of our tables to the line that refuses it."""
HARMLESS = (
    "CREATE TRIGGER t AFTER INSERT ON sluice_outbox FOR EACH ROW EXECUTE FUNCTION nothing()",
    "CREATE TRIGGER t BEFORE INSERT ON sluice_outbox FOR EACH STATEMENT EXECUTE FUNCTION nothing()",
    "ALTER TABLE sluice_outbox SET (autovacuum_enabled = off)",
    "ALTER TABLE sluice_outbox ENABLE ROW LEVEL SECURITY; ALTER ROLE app BYPASSRLS",
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Yield a Postgres on which the role `app` has all rights on the tables, and owns none."""
    with private_server(tmp_path_factory) as made:
        engine = engines.engine(made.get_uri())
        for versioned in (outbox_tables.versioned, inbox_tables.versioned):
            list(migrations.upgrade(engine, versioned))
        create_tables(engine)
        with engine.begin() as connection:
            connection.exec_driver_sql(
                "CREATE ROLE app LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA public TO app;"
                " GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO app;"
                " CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';"
                " CREATE SCHEMA theirs; GRANT USAGE ON SCHEMA theirs TO app;"  # whose functions come before Postgres's
                " CREATE FUNCTION theirs.txid_current() RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint';"
                " CREATE FUNCTION theirs.clock_timestamp() RETURNS timestamptz LANGUAGE sql"
                " AS 'SELECT null::timestamptz';"
                " CREATE FUNCTION theirs.to_char(timestamp, text) RETURNS text LANGUAGE sql AS 'SELECT null::text'"
            )
        engine.dispose()
        yield made


@pytest.fixture
def owner(server: Any) -> Iterator[psycopg.Connection[Any]]:
    """Yield a connection of the owner; afterwards the role's settings and the tables are reset."""
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        yield connection
        connection.execute("SET default_transaction_read_only = off")
        for whose in ("ROLE app", "DATABASE postgres", "ROLE app IN DATABASE postgres", "SYSTEM"):
            connection.execute(f"ALTER {whose} RESET ALL")
        connection.execute("SELECT pg_reload_conf()")


@contextmanager
def _engine_of_app(server: Any) -> Iterator[Engine]:
    """Yield an engine of the role app, whose settings each test changes."""
    engine = engines.engine(make_url(server.get_uri()).set(username="app").render_as_string(hide_password=False))
    yield engine
    engine.dispose()


def _require(engine: Engine) -> None:
    """Refuse the server's settings as a worker does when it starts."""
    with engines.reading(engine) as connection:
        server_settings.require(connection, _RIGHTS)


def _deliver(engine: Engine) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """Commit, publish and handle; return the delivered events, and the handler's effects."""
    world = World(engine)
    world.start_over()
    relay = world.relay()
    with Session(engine) as session:
        for group in _GROUPS:
            world.outbox.add(session, Event(type="order.placed", group=group, data=_TEXT))
        session.commit()
    work(relay)
    relay.close()
    with engine.begin() as connection:
        for table in (*inbox_tables.metadata.sorted_tables, effects):
            connection.execute(table.delete())
    inbox = World(engine)
    inbox.send(*_GROUPS)
    inbox.work_until_idle(inbox.worker(poll_seconds=0), steps_max=20)
    received = world.receive_all()
    assert {decode(message["Body"]).event.data for message in received} == {_TEXT}
    return places([message["Body"] for message in received]), inbox.committed_effects()


def _set(owner: psycopg.Connection[Any], settings: str, *, whose: str = "ROLE app") -> None:
    """Set server settings for a role or a database, given as NAME=VALUE with blanks between them."""
    for setting in settings.split():
        name, _, value = setting.partition("=")
        value = (
            value.replace(",", "', '")
            if name == "search_path"
            else value.replace("read_", "read ").replace("_read", " read")
        )
        owner.execute(f"ALTER {whose} SET {name} = '{value}'")


@pytest.mark.parametrize("settings", ACCEPTED)
def test_a_role_whose_settings_are_accepted_has_every_guarantee(
    server: Any, owner: psycopg.Connection[Any], settings: str
) -> None:
    """With these settings three events are published and handled once and in order."""
    owner.execute("ALTER ROLE app RESET search_path")
    _set(owner, settings)

    with _engine_of_app(server) as engine:
        _require(engine)
        published, effects = _deliver(engine)

    assert sorted(published) == sorted(effects) == [("B-2", 1), ("a", 1), ("a", 2)]
    assert [seq for group, seq in effects if group == "a"] == [1, 2]


@pytest.mark.parametrize(
    ("whose", "setting"), one_case_in(3, ["ROLE app", "DATABASE postgres", "ROLE app IN DATABASE postgres"], REFUSED)
)
def test_a_setting_that_may_lose_rows_is_refused_wherever_it_is_set(
    server: Any, owner: psycopg.Connection[Any], whose: str, setting: str
) -> None:
    """For the role, the database, or the role in the database."""
    _set(owner, setting, whose=whose)

    with _engine_of_app(server) as engine, pytest.raises(OutboxError) as refused:
        _require(engine)
    owner.execute("SET default_transaction_read_only = off")
    owner.execute(f"ALTER {whose} RESET {setting.partition('=')[0]}")

    assert str(refused.value) == REFUSED[setting]


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
@pytest.mark.parametrize("is_aurora", [False, True])
def test_a_server_that_may_lose_commits_is_refused_unless_it_is_aurora(
    server: Any, owner: psycopg.Connection[Any], setting: str, *, is_aurora: bool
) -> None:
    """Aurora's storage keeps the log itself; it is known by a function that only it has."""
    owner.execute(f"ALTER SYSTEM SET {setting} = off")
    owner.execute("SELECT pg_reload_conf()")
    if is_aurora:
        owner.execute("CREATE FUNCTION aurora_version() RETURNS text LANGUAGE sql AS $$SELECT '17.4'$$")
    eventually(lambda: _setting_value(server, setting) == "off", timeout_seconds=30, describe="the reload")

    with _engine_of_app(server) as engine, engines.reading(engine) as connection:
        found = list(server_settings.faults(connection, _RIGHTS))
    owner.execute("DROP FUNCTION IF EXISTS aurora_version")
    owner.execute(f"ALTER SYSTEM RESET {setting}")
    owner.execute("SELECT pg_reload_conf()")
    eventually(lambda: _setting_value(server, setting) == "on", timeout_seconds=30, describe="the reload")

    assert [sentence.partition(":")[0] for sentence in found] == [f"{setting} is off, allowed is on"] * (not is_aurora)


def _setting_value(server: Any, setting: str) -> object:
    """Return the value of a setting in a new connection."""
    with psycopg.connect(server.get_uri()) as connection:
        row = connection.execute("SELECT current_setting(%s)", [setting]).fetchone()
    assert row is not None
    return row[0]


@pytest.mark.parametrize(("change", "line"), [*CHANGES.items(), *((change, None) for change in HARMLESS)])
def test_changed_tables_are_refused_if_rows_might_be_lost(
    server: Any, owner: psycopg.Connection[Any], change: str, line: str | None
) -> None:
    """Rules, triggers, row-level security and unlogged tables may lose rows.

    `line` is None for a change that loses nothing.
    """
    owner.execute("ALTER ROLE app RESET ALL")
    with _engine_of_app(server) as engine:
        owner.execute(change)
        with engines.reading(engine) as connection:
            found = list(server_settings.faults(connection, _RIGHTS))
        _reset_tables(owner)
        _require(engine)

    assert found[:1] == ([] if line is None else [line])


def _reset_tables(owner: psycopg.Connection[Any]) -> None:
    """Undo whatever a test has changed about tables, triggers and rights."""
    if owner.execute("SELECT to_regclass('kept')").fetchone() != (None,):
        owner.execute("DROP FOREIGN DATA WRAPPER IF EXISTS theirs CASCADE; DROP VIEW IF EXISTS sluice_inbox_parked")
        owner.execute("ALTER TABLE kept RENAME TO sluice_inbox_parked")
    owner.execute("DROP RULE IF EXISTS r ON sluice_inbox_parked; DROP SCHEMA IF EXISTS app CASCADE")
    for table in ("sluice_outbox", "sluice_outbox_lease", "sluice_inbox_group"):
        owner.execute(f"ALTER TABLE {table} SET LOGGED; DROP TRIGGER IF EXISTS t ON {table}")
    owner.execute("ALTER TABLE sluice_outbox DISABLE ROW LEVEL SECURITY; ALTER ROLE app NOBYPASSRLS")
    owner.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO app")


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_database_in_another_encoding_than_utf8_is_refused(
    server: Any,
    owner: psycopg.Connection[Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    encoding: str,
) -> None:
    """`schema apply` refuses it before tables exist, and so does a producer's write: it cannot store every event."""
    owner.execute(f"CREATE DATABASE {encoding} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
    url = make_url(server.get_uri()).set(database=encoding.lower()).render_as_string(hide_password=False)
    line = (
        f"server_encoding is {encoding}, allowed is UTF8: it cannot store every event and reason; create a database"
        " with ENCODING 'UTF8' TEMPLATE template0, and move the tables there"
    )

    with command_line(monkeypatch, capsys) as run:
        applied = run("schema", "apply", "--dsn", url)
    engine = engines.engine(url)
    with engine.begin() as connection:
        outbox_tables.metadata.create_all(connection)
        with pytest.raises(OutboxError) as refused:
            Outbox(TOPIC).write(connection, [Event(type="t", group="a", data=None)])
    engine.dispose()

    assert applied == (2, "", f"sluice: {line}\n")
    assert str(refused.value) == line


def test_a_producer_whose_connection_cannot_write_every_text_is_refused(server: Any) -> None:
    """The program's engine has the client encoding latin1."""
    url = make_url(server.get_uri()).set(drivername="postgresql+psycopg")
    theirs = create_engine(url.update_query_dict({"client_encoding": "latin1"}))
    with Session(theirs) as session:
        Outbox(TOPIC).add(session, Event(type="t", group="a", data=_TEXT))
        with pytest.raises(OutboxError) as refused:
            session.commit()
    theirs.dispose()

    assert str(refused.value) == (
        "client_encoding is LATIN1, allowed is UTF8: it cannot store every event and reason; connect with"
        " client_encoding=utf8, or open the database with engines.engine"
    )


@pytest.mark.parametrize(
    "command",
    [
        ("relay", "--topic-arn", "arn:aws:sns:eu-central-1:123456789012:events.fifo"),
        ("worker", "--consumer", "billing"),
    ],
    ids=["relay", "worker"],
)
def test_relay_and_worker_refuse_a_lossy_setting_at_their_start(
    server: Any,
    owner: psycopg.Connection[Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: Sequence[str],
) -> None:
    """`zero_damaged_pages` drops the rows of a damaged page."""
    _set(owner, "zero_damaged_pages=on")
    url = make_url(server.get_uri()).set(username="app").render_as_string(hide_password=False)

    with command_line(monkeypatch, capsys) as run:
        code, printed, error = run(*command, "--env", "local", "--dsn", url, "--endpoint-url", "http://127.0.0.1:9")

    assert code == 2
    assert printed == ""
    assert error.splitlines()[-1] == f"sluice: {REFUSED['zero_damaged_pages=on']}"


def test_outbox_check_names_every_wrong_setting(
    server: Any, owner: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A process that starts names only the first one."""
    _set(owner, "zero_damaged_pages=on statement_timeout=900")
    url = make_url(server.get_uri()).set(username="app").render_as_string(hide_password=False)

    with command_line(monkeypatch, capsys) as run:
        code, printed, error = run("outbox", "check", "--env", "local", "--dsn", url)

    assert code == 1
    assert error == ""
    assert printed.splitlines() == [REFUSED["statement_timeout=900"], REFUSED["zero_damaged_pages=on"]]


def test_outbox_check_names_a_changed_collation(
    server: Any, owner: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An upgrade of the operating system may change the order of texts, and indexes in the old order miss rows."""
    owner.execute("UPDATE pg_database SET datcollversion = '2.31' WHERE datname = 'postgres'")
    with command_line(monkeypatch, capsys) as run:
        changed = run("outbox", "check", "--env", "local", "--dsn", server.get_uri())
        owner.execute("UPDATE pg_database SET datcollversion = NULL WHERE datname = 'postgres'")
        refreshed = run("outbox", "check", "--env", "local", "--dsn", server.get_uri())

    assert changed[0] == 1
    assert refreshed[0] == 0
    assert changed[1] == (
        "the collation of DATABASE postgres is of version None, allowed is that of its indexes, 2.31: unique indexes of"
        " your own tables may let a second row pass; run REINDEX DATABASE, then ALTER DATABASE postgres REFRESH"
        " COLLATION VERSION\n"
    )


@pytest.mark.parametrize("whose", ["ROLE ALL", "DATABASE postgres"])
def test_a_delivered_effect_survives_a_crash_under_asynchronous_commits(crashing: Any, whose: str) -> None:
    """The server is killed after each act: only a commit of the program's own (`theirs`) may be lost.

    An event that a relay could publish, a relay's token and a worker's effect are committed synchronously, and stay.
    """
    engine = engines.engine(crashing.get_uri())
    with engine.begin() as connection:
        connection.exec_driver_sql(f"ALTER {whose} SET synchronous_commit = off")
    engine.dispose()
    outbox = World(engine)
    outbox.start_over()
    inbox = World(engine)
    inbox.send("a")

    def theirs() -> None:
        with engine.begin() as connection:  # nothing that we keep
            connection.execute(effects.insert().values(consumer="theirs", group_id="z", seq=0))

    found = []
    for act in (theirs, lambda: outbox.commit("a"), lambda: outbox.lease().acquire(), lambda: _work(inbox)):
        act()
        postgres_server.restart(crashing, "immediate")
        engine.dispose()
        with engine.connect() as connection:
            found.append(
                [
                    connection.execute(select(func.count()).select_from(table)).scalar_one()
                    for table in (outbox_tables.messages, outbox_tables.leases, effects)
                ]
            )
    engine.dispose()

    assert found == [[0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1]]


def _work(inbox: World) -> None:
    """Let a worker handle a message whose handler switches synchronous commit off."""

    def commit_asynchronously(session: Session, _: Event, __: Context) -> None:
        session.execute(text("SET LOCAL synchronous_commit = off"))

    inbox.handler_steps["a", 1] = [commit_asynchronously]
    inbox.work_until_idle(inbox.worker(poll_seconds=0), steps_max=20)


def test_a_crash_under_a_handler_costs_its_message_no_attempt(crashing: Any) -> None:
    """After a crash Postgres gives ids of transactions that it forgot to new ones, which are committed here."""
    engine = engines.engine(crashing.get_uri())
    world = World(engine)
    world.send("a")

    def crash(session: Session, _: Event, __: Context) -> None:
        own_id = session.execute(text("SELECT txid_current()")).scalar_one()
        postgres_server.restart(crashing, "immediate")
        others, new_id = engines.engine(crashing.get_uri()), 0
        while new_id < own_id:
            with others.begin() as connection:
                connection.execute(effects.insert().values(consumer="theirs", group_id="z", seq=0))
                new_id = connection.execute(text("SELECT txid_current()")).scalar_one()
        others.dispose()
        session.execute(text("SELECT 1"))

    world.handler_steps["a", 1] = [crash]
    world.work_until_idle(world.worker(poll_seconds=0), steps_max=50)
    handled = world.committed_effects()
    engine.dispose()

    assert handled == [("a", 1)]
    assert [call.attempt for call in world.calls] == [1, 1]


@pytest.fixture
def crashing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Yield a Postgres with tables that writes its log late, so that a crash takes back all that did not wait."""
    with private_server(tmp_path_factory) as made:
        engine = engines.engine(made.get_uri())
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("ALTER SYSTEM SET wal_writer_delay = '10s'")
            connection.exec_driver_sql("ALTER SYSTEM SET autovacuum = off")
        with engine.begin() as connection:
            outbox_tables.metadata.create_all(connection)
        create_tables(engine)
        engine.dispose()
        postgres_server.restart(made, "fast")
        yield made


@pytest.mark.parametrize(
    ("statement", "line"),
    ids=["trigger", "memory journal", "truncate journal", "foreign keys", "no checks", "recursive triggers"],
    argvalues=[
        (
            "CREATE TRIGGER t BEFORE INSERT ON sluice_outbox BEGIN SELECT RAISE(IGNORE); END",
            "trigger t of sluice_outbox may change or drop a row, allowed is none; run DROP TRIGGER t",
        ),
        (
            "PRAGMA journal_mode = MEMORY",
            "PRAGMA journal_mode is memory, allowed is one of wal, delete, truncate, persist: a crash may damage the"
            " file; put it where WAL works, on a disk of this machine",
        ),
        ("PRAGMA journal_mode = TRUNCATE", None),
        ("PRAGMA foreign_keys = ON", None),
        ("PRAGMA ignore_check_constraints = ON", None),
        ("PRAGMA recursive_triggers = ON", None),
    ],
)
def test_an_sqlite_setting_is_refused_if_rows_might_be_lost(
    database_folder: Path, statement: str, line: str | None
) -> None:
    """`line` is None for a setting that loses nothing."""
    engine = engines.engine(f"sqlite:///{database_folder / 'outbox.db'}")
    with engine.begin() as connection:
        outbox_tables.metadata.create_all(connection)
    with engine.connect() as connection:
        driver: Any = connection.connection.driver_connection
        driver.execute(statement).close()
        found = list(server_settings.faults(connection, _RIGHTS))
    engine.dispose()

    assert found == ([] if line is None else [line])


def test_a_statement_that_keeps_its_commit_is_compiled_once() -> None:
    """Compiling costs more than executing: a worker would take twice the processor time for a message."""
    compiled: dict[Any, Any] = {}
    engine = engines.engine("sqlite://")
    with engine.connect().execution_options(compiled_cache=compiled) as connection:
        for _ in range(3):
            server_settings.keep_commit(connection)
    engine.dispose()

    assert len(compiled) == 1


def test_a_database_in_memory_is_refused_where_processes_work_on_it() -> None:
    """It ends with its process, and no other process can see it."""
    engine = engines.engine("sqlite://")
    with engine.connect() as connection:
        found = list(server_settings.faults(connection, _RIGHTS))
    engine.dispose()

    assert found == [
        "the database is in memory, allowed is a file: it ends with this process; give --dsn sqlite:///FILE"
    ]


def test_sqlite_in_utf_16_has_every_guarantee(database_folder: Path) -> None:
    """Three events are published and handled once and in order."""
    path = database_folder / "utf16.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("PRAGMA encoding = 'UTF-16le'; CREATE TABLE theirs (x)")
    engine = engines.engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        outbox_tables.metadata.create_all(connection)
    create_tables(engine)

    published, effects = _deliver(engine)
    engine.dispose()

    assert sorted(published) == sorted(effects) == [("B-2", 1), ("a", 1), ("a", 2)]


def test_an_sqlite_file_that_a_uri_names_is_found(database_folder: Path) -> None:
    """The file's name has a space, which a URI escapes."""
    (database_folder / "a b.db").touch()

    engine = engines.engine(f"sqlite:///file:{database_folder}/a%2520b.db?uri=true")

    engines.require_there(engine)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT 1")).scalar_one() == 1
    engine.dispose()


def test_a_read_only_sqlite_file_is_refused_in_one_line(
    database_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The URI opens the file read-only, because the tests may run as root, who can write every file."""
    with command_line(monkeypatch, capsys) as run:
        code, printed, error = run(
            "schema", "apply", "--dsn", f"sqlite:///file:{database_folder}/x.db?mode=ro&uri=true"
        )

    assert code == 2
    assert printed == ""
    assert error == "sluice: the database does not do it (unable to open database file); look at --dsn\n"


def test_a_standby_is_named_and_its_end_waited_for(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Relay and worker wait without an end, `schema apply` for its declared time."""
    with private_server(tmp_path_factory) as made:
        engine = engines.engine(made.get_uri())
        for versioned in (outbox_tables.versioned, inbox_tables.versioned):
            list(migrations.upgrade(engine, versioned))
        engine.dispose()
        (Path(made.pgdata) / "standby.signal").touch()
        postgres_server.restart(made, "fast")
        with command_line(monkeypatch, capsys) as run:
            applied = run("schema", "apply", "--wait", "0", "--dsn", made.get_uri())
        with engines.reading(engine) as connection, pytest.raises(server_settings.OnStandby):
            server_settings.require(connection, _RIGHTS)
        engine.dispose()
        (Path(made.pgdata) / "standby.signal").unlink()
        postgres_server.restart(made, "fast")
        _require(engine)
        engine.dispose()

    assert applied == (
        2,
        "",
        "sluice: the database is a standby (pg_is_in_recovery() is true), allowed is a primary; correct --dsn, or wait"
        " until the failover is over\n",
    )
