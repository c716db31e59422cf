"""The tables' versions: many processes at once, killed anywhere, old code beside new, on both kinds of database."""

import re
import secrets
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Column, Engine, Integer, MetaData, Table, inspect, make_url, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from sluice.clock import eventually
from sluice.errors import ConfigError
from sluice.messaging import Event, Outbox
from sluice.messaging import tables as all_tables
from sluice.messaging.database import engines, failures, migrations, schema
from sluice.messaging.database.migrations import Step, VersionedTables
from sluice.messaging.errors import OutboxError
from sluice.messaging.inbox import tables as inbox_tables
from sluice.messaging.outbox import tables
from tests.support.cases import one_case_in
from tests.support.messaging.outbox.schema_versions import FIRST_TABLES, KILLED, NAMES, UpgradeProcess, version
from tests.support.project import PROJECT

_PROCESSES = 3
_PARTS = (tables.versioned, inbox_tables.versioned)
_OPERATORS = PROJECT / "docs" / "guides" / "operators.md"


@pytest.fixture(params=schema.names())
def empty_database(request: pytest.FixtureRequest, database_folder: Path) -> Iterator[Engine]:
    """Yield an engine on a database without tables, once for each kind of database."""
    if request.param == "sqlite":
        yield from _disposing(engines.engine(f"sqlite:///{database_folder / 'empty.db'}"))
        return
    yield from _empty_postgres(request.getfixturevalue("postgres_url"))


def _empty_postgres(url: str) -> Iterator[Engine]:
    """Yield an engine on an empty schema of Postgres, which is dropped at the end."""
    name = f"empty_{secrets.token_hex(8)}"
    server = engines.engine(url)
    with server.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {name}"))
    yield from _disposing(engines.engine(_dsn(server, options=f"-csearch_path={name}")))
    with server.begin() as connection:
        connection.execute(text(f"DROP SCHEMA {name} CASCADE"))
    server.dispose()


def _disposing(engine: Engine) -> Iterator[Engine]:
    """Yield an engine, and close its connections at the end."""
    yield engine
    engine.dispose()


def _dsn(engine: Engine, **query: str) -> str:
    """Return the engine's URL with its password, and with these options of the query."""
    return make_url(engine.url).update_query_dict(query).render_as_string(hide_password=False)


def _upgrade(engine: Engine, number: int) -> list[int]:
    """Upgrade the outbox's tables to a version of this test's own, and return the versions it went through."""
    return list(migrations.upgrade(engine, version(number)))


def _require(engine: Engine, number: int) -> None:
    """Refuse tables that code of this version cannot use."""
    with engine.connect() as connection:
        migrations.require(connection, version(number))


def _recorded_version(engine: Engine) -> tuple[Any, ...]:
    """Return part, version and oldest usable code as the database has recorded them."""
    with engine.connect() as connection:
        return tuple(connection.execute(text("SELECT part, version, readable_from FROM sluice_schema")).one())


def _commit_event(engine: Engine) -> None:
    """Add an event, as a producer of the first version does."""
    with Session(engine) as session:
        Outbox("orders.fifo").add(session, Event(type="t", group="a", data={"n": 1}))
        session.commit()


def test_an_empty_database_gets_the_newest_tables_in_one_step(empty_database: Engine) -> None:
    """`version(3)` are tables of this test's own: version 3 of the outbox, which code from version 2 on can use."""
    assert _upgrade(empty_database, 3) == [3]
    assert _upgrade(empty_database, 3) == []

    assert _recorded_version(empty_database) == ("outbox", 3, 2)
    _require(empty_database, 3)


def test_each_step_keeps_the_rows_and_serves_code_of_the_version_before(empty_database: Engine) -> None:
    """Old code adds an event before each step; the column `tenant` of a later version is NULL in both."""
    _upgrade(empty_database, 1)
    for number in (2, 3):
        _commit_event(empty_database)

        assert _upgrade(empty_database, number) == [number]

        _require(empty_database, number)
        _require(empty_database, number - 1)
        assert _upgrade(empty_database, number - 1) == []
    with empty_database.connect() as connection:
        rows = connection.execute(text("SELECT group_seq, tenant FROM sluice_outbox ORDER BY group_seq")).all()
    assert [tuple(row) for row in rows] == [(1, None), (2, None)]


@pytest.mark.parametrize(
    "number", [0, pytest.param(1, marks=pytest.mark.slow), 2], ids=["empty", "version 1", "version 2"]
)
def test_any_number_of_processes_upgrade_at_once(empty_database: Engine, number: int) -> None:
    """All of them succeed, and the tables are of the last version that the code before may upgrade to."""
    if number:
        _upgrade(empty_database, number)
    last = 2 if number == 1 else 3

    processes = [UpgradeProcess(_dsn(empty_database), last) for _ in range(_PROCESSES)]

    assert [process.wait_for_end() for process in processes] == [0] * _PROCESSES
    assert _recorded_version(empty_database)[1] == last
    _require(empty_database, last)


@pytest.mark.parametrize(("before", "name"), one_case_in(3, [0, 1, 2], NAMES))
def test_the_next_upgrade_succeeds_wherever_one_was_killed(empty_database: Engine, before: int, name: str) -> None:
    """A process is killed with -9 at each failpoint. Until the step is committed the tables serve the old code."""
    if before:
        _upgrade(empty_database, before)
        _commit_event(empty_database)
    last = before + 1

    assert UpgradeProcess(_dsn(empty_database), last, failpoint=name).wait_for_end() == KILLED
    if name != "after_step" and before:
        _require(empty_database, before)
        with pytest.raises(
            OutboxError, match=f"tables are of version {before}, this code needs {last}; run `sluice sc"
        ):
            _require(empty_database, last)
    assert UpgradeProcess(_dsn(empty_database), last).wait_for_end() == 0

    _require(empty_database, last)
    assert _recorded_version(empty_database)[1] == last


def test_code_too_old_for_the_tables_is_refused_and_changes_nothing(empty_database: Engine) -> None:
    """Version 3 can be used by code from version 2 on, and this code is of version 1."""
    _upgrade(empty_database, 3)
    message = (
        "the outbox's tables are of version 3, which needs code of version 2 or later, and this code is of version 1;"
        " deploy a later Sluice"
    )

    with pytest.raises(ConfigError) as upgraded:
        _upgrade(empty_database, 1)
    with pytest.raises(ConfigError) as required:
        _require(empty_database, 1)

    assert str(upgraded.value) == str(required.value) == message
    assert _recorded_version(empty_database) == ("outbox", 3, 2)


def test_an_upgrade_that_would_break_running_code_is_refused(empty_database: Engine) -> None:
    """The upgrade is from version 1 to 3, and code of version 1 cannot use version 3."""
    _upgrade(empty_database, 1)

    with pytest.raises(ConfigError, match=r"which cannot use version 3; deploy a Sluice of version 2 first$"):
        _upgrade(empty_database, 3)

    assert _recorded_version(empty_database)[1] == 1
    _require(empty_database, 1)


@pytest.mark.parametrize(
    ("made", "code", "upgraded"), [(1, 2, [1, 2]), (2, 2, [2]), (2, 3, [2, 3]), (3, 3, [3])], ids=str
)
def test_tables_that_the_host_created_are_recorded_with_their_version(
    empty_database: Engine, made: int, code: int, upgraded: list[int]
) -> None:
    """A host may create our tables by migrations of its own, so no version is recorded.

    The upgrade finds it out and goes on.
    """
    with empty_database.begin() as connection:
        version(made).metadata.create_all(connection)
    _commit_event(empty_database)
    _require(empty_database, made)

    assert _upgrade(empty_database, code) == upgraded

    _require(empty_database, code)
    assert _recorded_version(empty_database)[1] == code


def test_tables_that_the_host_upgraded_are_recorded_and_not_changed(empty_database: Engine) -> None:
    """The host ran the statements of step 2, which would fail if they were run again."""
    _upgrade(empty_database, 1)
    with empty_database.begin() as connection:
        for statement in version(2).steps[0].statements:
            connection.execute(text(statement))

    assert _upgrade(empty_database, 2) == [2]

    _require(empty_database, 2)


@pytest.mark.parametrize(
    ("change", "first"),
    [
        ("ALTER TABLE sluice_outbox DROP COLUMN last_error", "column sluice_outbox.last_error is missing"),
        ("DROP INDEX sluice_outbox_tenant", "sluice_outbox has no index on (topic, tenant)"),
    ],
    ids=["column", "index"],
)
def test_tables_that_match_no_version_are_refused_and_left_alone(
    empty_database: Engine, change: str, first: str
) -> None:
    """The table that step 3 adds is missing, as in version 2, and a column or an index of that step is missing, too."""
    with empty_database.begin() as connection:
        version(3).metadata.create_all(connection)
        connection.execute(text("DROP TABLE sluice_outbox_extra"))
        connection.execute(text(change))

    with pytest.raises(OutboxError) as refused:
        _upgrade(empty_database, 3)

    assert str(refused.value) == (
        f"the outbox's tables were made by somebody else and are of no version up to 3 ({first}); bring them to that of"
        " `sluice schema sql`"
    )
    assert set(inspect(empty_database).get_table_names()) == {table.name for table in tables.metadata.sorted_tables}


def test_tables_with_a_further_column_that_has_a_default_are_accepted(empty_database: Engine) -> None:
    """A host's column does not disturb us, because our INSERT statements need not name it."""
    with empty_database.begin() as connection:
        version(3).metadata.create_all(connection)
        connection.execute(text("DROP TABLE sluice_outbox_extra"))
        connection.execute(text("ALTER TABLE sluice_outbox ADD COLUMN more TEXT DEFAULT 'x' NOT NULL"))

    assert _upgrade(empty_database, 3) == [3]


@pytest.mark.parametrize("versioned", [tables.versioned, inbox_tables.versioned], ids=["outbox", "inbox"])
def test_the_very_first_tables_can_be_upgraded_to_this_code(empty_database: Engine, versioned: VersionedTables) -> None:
    """This fails if a table was changed without a step, or in another way than its step does."""
    _make_first_tables(empty_database)

    assert list(migrations.upgrade(empty_database, versioned)) == list(range(1, versioned.version + 1))

    with empty_database.connect() as connection:
        migrations.require(connection, versioned)


def _make_first_tables(engine: Engine) -> None:
    """Create the tables as the very first version created them."""
    sql = (FIRST_TABLES / f"{engine.dialect.name}.sql").read_text()
    with engine.begin() as connection:
        for statement in filter(str.strip, sql.split(";\n")):
            connection.execute(text(statement))


@pytest.mark.parametrize(
    ("versioned", "version_before"),
    [
        pytest.param(
            *(versioned, version_before),
            id=f"{versioned.part}-{version_before}",
            marks=[pytest.mark.slow] * (1 < version_before < versioned.version - 1),
        )
        for versioned in _PARTS
        for version_before in range(1, versioned.version)
    ],
)
def test_the_printed_sql_upgrades_the_tables_of_each_version(
    empty_database: Engine, versioned: VersionedTables, version_before: int
) -> None:
    """A host's own migrations run this SQL. Afterwards nothing is left for `schema apply`."""
    _make_first_tables(empty_database)
    if version_before > 1:
        _run_upgrade_sql(empty_database, replace(versioned, steps=versioned.steps[: version_before - 1]), 1)

    _run_upgrade_sql(empty_database, versioned, version_before)

    assert _recorded_version(empty_database) == (versioned.part, versioned.version, versioned.readable_from)
    with empty_database.connect() as connection:
        migrations.require(connection, versioned)
    assert list(migrations.upgrade(empty_database, versioned)) == []


def _run_upgrade_sql(engine: Engine, versioned: VersionedTables, version_before: int) -> None:
    """Run the printed SQL of the upgrade from a version."""
    with engine.begin() as connection:
        for statement in migrations.upgrade_sql(engine.dialect.name, versioned, version_before):
            connection.exec_driver_sql(statement)


@pytest.mark.parametrize("versioned", _PARTS, ids=["outbox", "inbox"])
def test_the_sql_of_an_upgrade_from_another_version_is_refused(versioned: VersionedTables) -> None:
    """There is no SQL from no version, nor from the newest one."""
    for version_ in (0, versioned.version):
        with pytest.raises(ConfigError, match=f"are of version {version_}, allowed is 1 to {versioned.version - 1}; "):
            list(migrations.upgrade_sql("sqlite", versioned, version_))


def test_alembic_finds_no_difference_and_drops_no_table_of_ours(empty_database: Engine) -> None:
    """The guide shows two ways to exclude our tables; without them Alembic would drop them."""
    for versioned in _PARTS:
        list(migrations.upgrade(empty_database, versioned))
    own = MetaData()
    Table("orders", own, Column("id", Integer, primary_key=True))
    own.create_all(empty_database)

    def differences(target: Any, **options: Any) -> list[Any]:
        exact = {"compare_type": True, "compare_server_default": True}
        with empty_database.connect() as connection:
            found: list[Any] = compare_metadata(MigrationContext.configure(connection, opts=exact | options), target)
        return found

    assert differences([own, all_tables.metadata]) == []
    assert differences(own, include_name=all_tables.include_name) == []
    dropped = {table.name for kind, table in differences(own) if kind == "remove_table"}
    assert dropped == set(all_tables.metadata.tables)


@pytest.fixture
def postgres_before_byte_collation(postgres_url: str) -> Iterator[Engine]:
    """Yield an engine on Postgres with the tables of the version before keys were compared byte by byte."""
    for made in _empty_postgres(postgres_url):
        with made.begin() as connection:
            for statement in filter(str.strip, (FIRST_TABLES / "postgresql.sql").read_text().split(";\n")):
                connection.execute(text(statement))
            for versioned in _PARTS:
                for step in versioned.steps[:1]:
                    for statement in step.statements:
                        connection.execute(text(statement))
        yield made


def _insert_behind_the_index(engine: Engine, index: str, statement: str) -> None:
    """Insert a row as after a change of collation: the unique index does not find the one that is there."""
    unready = f"UPDATE pg_index SET indisready = :is_ready WHERE indexrelid = CAST('{index}' AS regclass)"  # noqa: S608
    for sql, parameters in ((unready, {"is_ready": False}), (statement, {}), (unready, {"is_ready": True})):
        with engine.begin() as connection:
            connection.execute(text(sql), parameters)


def _documented_sql(name: str) -> str:
    """Return the SQL block of this name in the operators' guide."""
    block = re.search(rf"<!-- {name} -->\n```sql\n(.*?)```", _OPERATORS.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None, f"{_OPERATORS} has no block {name}"
    return block[1]


def test_duplicate_keys_are_named_before_a_step_builds_their_index(postgres_before_byte_collation: Engine) -> None:
    """A change of collation can break an index, and then a group gets a second counter.

    The upgrade refuses and names the guide. The guide's statements mend the tables: the later counter stays.
    """
    _commit_event(postgres_before_byte_collation)
    _insert_behind_the_index(
        postgres_before_byte_collation,
        "sluice_outbox_group_pkey",
        "INSERT INTO sluice_outbox_group SELECT topic, group_id, epoch + 1, 1, 2, 0 FROM sluice_outbox_group",
    )
    _insert_behind_the_index(
        postgres_before_byte_collation,
        "sluice_inbox_group_pkey",
        "INSERT INTO sluice_inbox_group (consumer, group_id, epoch, first_seq, last_seq, updated_at_us)"
        " SELECT 'billing', 'g' || n % 11, n, 1, n, 0 FROM generate_series(1, 22) AS n",
    )
    for _ in range(2):
        _insert_behind_the_index(
            postgres_before_byte_collation,
            "sluice_inbox_parked_pkey",
            "INSERT INTO sluice_inbox_parked (consumer, group_id, epoch, seq, event_id, body, attributes,"
            " sqs_message_id, attempts, not_before_us, parked_at_us)"
            " VALUES ('billing', 'g', 1, 2, 'e', '{}', '{}', 'm', 1, 0, 0)",
        )

    refused = []
    for versioned in _PARTS:
        with pytest.raises(OutboxError) as error:
            list(migrations.upgrade(postgres_before_byte_collation, versioned))
        refused.append(str(error.value))
    with postgres_before_byte_collation.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(_documented_sql("second counters"))
    upgraded = [list(migrations.upgrade(postgres_before_byte_collation, versioned)) for versioned in _PARTS]

    advice = "allowed is one of each: a change of collation broke its index; see `A second counter` in"
    assert refused[0] == (
        f"sluice_outbox_group has rows of one key (topic 'orders.fifo', group_id 'a': 2 rows), {advice}"
        " docs/guides/operators.md"
    )
    assert refused[1].startswith("sluice_inbox_group has rows of one key (consumer 'billing', group_id 'g0': 2 rows; ")
    assert "group_id 'g8': 2 rows and more)" in refused[1]
    assert upgraded == [[2, 3, 4, 5], [2, 3, 4, 5, 6, 7]]
    with postgres_before_byte_collation.connect() as connection:
        assert connection.execute(text("SELECT last_seq, epoch FROM sluice_outbox_group")).one()[0] == 2
        kept = connection.execute(text("SELECT last_seq FROM sluice_inbox_group ORDER BY last_seq")).scalars()
        assert list(kept) == list(range(12, 23))


def test_the_step_gives_keys_the_c_collation(postgres_before_byte_collation: Engine) -> None:
    """The collation "C" compares byte by byte, and no upgrade of the operating system changes it.

    Any other is reported.
    """
    with postgres_before_byte_collation.connect() as connection:
        before = schema.drift(connection, tables.metadata)
    list(migrations.upgrade(postgres_before_byte_collation, tables.versioned))
    with postgres_before_byte_collation.begin() as connection:
        after = schema.drift(connection, tables.metadata)
        connection.execute(text('ALTER TABLE sluice_outbox_lease ALTER COLUMN topic TYPE text COLLATE "POSIX"'))
        changed = schema.drift(connection, tables.metadata)

    assert before[0] == "table sluice_outbox_bundle is missing"
    assert before[2] == 'column sluice_outbox.topic has the collation "default", expected is "C"'
    assert after == []
    assert changed == ['column sluice_outbox_lease.topic has the collation "POSIX", expected is "C"']


@pytest.mark.parametrize(
    ("made", "dependent"),
    [
        ("CREATE VIEW waiting AS SELECT topic, count(*) FROM sluice_outbox GROUP BY topic", "view waiting"),
        ("CREATE POLICY mine ON sluice_outbox USING (topic = 'orders.fifo')", "policy mine"),
    ],
    ids=["view", "policy"],
)
def test_a_view_or_policy_on_a_key_column_refuses_the_step(
    postgres_before_byte_collation: Engine, made: str, dependent: str
) -> None:
    """Postgres cannot change a column's collation while one depends on it.

    The refusal names it, and nothing is changed.
    """
    with postgres_before_byte_collation.begin() as connection:
        connection.execute(text(made))

    with pytest.raises(OutboxError, match=rf"{dependent}.*; drop it, run this again, and create it again") as error:
        list(migrations.upgrade(postgres_before_byte_collation, tables.versioned))

    assert "\n" not in str(error.value)
    with postgres_before_byte_collation.connect() as connection:
        assert schema.drift(connection, tables.metadata)[2].startswith("column sluice_outbox.topic has the collation")


def test_the_guides_way_for_large_tables_builds_every_index_before(postgres_before_byte_collation: Engine) -> None:
    """The guide builds the indexes while everybody works.

    The step, which locks the tables, then builds none of theirs.
    """
    _commit_event(postgres_before_byte_collation)
    with postgres_before_byte_collation.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for statement in filter(str.strip, _documented_sql("large tables").split(";\n")):
            connection.exec_driver_sql(statement)
    built = _index_files(postgres_before_byte_collation)

    for versioned in _PARTS:
        list(migrations.upgrade(postgres_before_byte_collation, versioned))
        with postgres_before_byte_collation.connect() as connection:
            migrations.require(connection, versioned)
    assert _index_files(postgres_before_byte_collation) == built


def _index_files(engine: Engine) -> set[int]:
    """Return the files of the indexes of large tables."""
    files = (
        "SELECT pg_relation_filenode(indexrelid) FROM pg_index WHERE indrelid IN (CAST('sluice_outbox' AS regclass),"
        " CAST('sluice_outbox_group' AS regclass), CAST('sluice_inbox_group' AS regclass))"
    )
    with engine.connect() as connection:
        return set(connection.execute(text(files)).scalars())


def test_an_sqlite_key_that_ignores_case_is_reported(database_folder: Path) -> None:
    """SQLite would take the groups `a` and `A` for one."""
    sql = schema.sql("sqlite", tables.metadata).replace(
        "group_id TEXT NOT NULL", "group_id TEXT COLLATE NOCASE NOT NULL"
    )
    for engine in _disposing(engines.engine(f"sqlite:///{database_folder / 'theirs.db'}")):
        with engine.begin() as connection:
            for statement in filter(str.strip, sql.split(";\n")):
                connection.execute(text(statement))
            found = schema.drift(connection, tables.metadata)

    assert found == [
        f'column {table}.group_id has the collation "NOCASE", expected is "BINARY"'
        for table in ("sluice_outbox", "sluice_outbox_group")
    ]


def test_an_upgrade_of_changed_tables_names_the_difference(empty_database: Engine) -> None:
    """Somebody dropped a column of recorded tables."""
    _upgrade(empty_database, 1)
    with empty_database.begin() as connection:
        connection.execute(text("ALTER TABLE sluice_outbox DROP COLUMN last_error"))

    with pytest.raises(OutboxError, match=r"\(column sluice_outbox\.last_error is missing\); see `sluice outbox check"):
        _upgrade(empty_database, 1)


@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_step_gives_up_when_its_lock_timeout_is_over(
    postgres: Engine, monkeypatch: pytest.MonkeyPatch, *, is_recorded: bool
) -> None:
    """A step that waits for a writer makes others wait behind it. It is rolled back, and a later try succeeds."""
    monkeypatch.setattr(migrations, "_LOCK_SECONDS", 1)
    if is_recorded:
        _upgrade(postgres, 1)
    with postgres.begin() as writer:
        writer.execute(text("LOCK TABLE sluice_outbox IN ROW EXCLUSIVE MODE"))
        with pytest.raises(OperationalError) as error:
            _upgrade(postgres, 2)
        assert failures.may_pass(error.value)

    assert _upgrade(postgres, 2)[-1] == 2


@pytest.mark.parametrize("level", ["read committed", "repeatable read", "serializable"])
def test_a_second_upgrade_sees_the_first_at_any_isolation_level(postgres: Engine, level: str) -> None:
    """Both transactions begin before the first commits, and the second finds nothing to do.

    A role or a database may have any of the levels as its default.
    """
    strict = engines.engine(
        _with_options(postgres, f"-cdefault_transaction_isolation={level.replace(' ', chr(92) + ' ')}")
    )
    with ThreadPoolExecutor(1) as pool:
        waiting: list[Future[list[int]]] = []

        def begin_another_upgrade(name: str) -> None:
            if name == "in_step" and not waiting:
                waiting.append(pool.submit(_upgrade, strict, 1))
                eventually(lambda: _has_waiter(postgres), timeout_seconds=30, describe="another process to wait")

        assert list(migrations.upgrade(strict, version(1), failpoint=begin_another_upgrade)) == [1]
        assert waiting[0].result() == []
    strict.dispose()


def _with_options(engine: Engine, *more: str) -> str:
    """Return the engine's URL with more options for the Postgres server."""
    return _dsn(engine, options=" ".join((str(make_url(engine.url).query["options"]), *more)))


def _has_waiter(engine: Engine) -> bool:
    """Return whether a process waits for the lock of upgrades."""
    with engine.connect() as connection:
        waiters = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = :lock"
        return bool(connection.execute(text(waiters), {"lock": migrations._LOCK & 0xFFFFFFFF}).scalar_one())


@pytest.mark.parametrize(
    "steps",
    [(Step((), 2),), (Step((), 1), Step((), 3)), (Step((), 1), Step((), 2), Step((), 1))],
    ids=["first needs 2", "second needs 3", "third needs less than the second"],
)
def test_a_version_that_older_code_could_not_use_cannot_be_defined(steps: tuple[Step, ...]) -> None:
    """A step's second value is the oldest code that can use it. It is at most the version before, and never sinks."""
    with pytest.raises(AssertionError):
        VersionedTables("outbox", tables.metadata, steps)
