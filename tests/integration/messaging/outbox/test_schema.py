"""The outbox's tables in a real database, and what is told of tables that differ from them."""

import re
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, event, text
from sqlalchemy.exc import OperationalError

from sluice.messaging.database import engines, migrations, schema
from sluice.messaging.errors import OutboxError
from sluice.messaging.inbox import tables as inbox_tables
from sluice.messaging.outbox import tables
from sluice.messaging.outbox.store import Store

_UNFINISHED = "CREATE INDEX sluice_outbox_unfinished ON sluice_outbox (topic, group_id, group_seq)"


def make_tables(engine: Engine, sql: str, metadata: MetaData = tables.metadata) -> list[str]:
    """Create the tables from this SQL, and return the differences."""
    with engine.begin() as connection:
        metadata.drop_all(connection)
        for statement in sql.split(";\n"):
            if statement.strip():
                connection.execute(text(statement))
    with engine.connect() as connection:
        return schema.drift(connection, metadata)


def differences_after(engine: Engine, before: str, after: str, *, then: str = "") -> list[str]:
    """Create the tables from the printed SQL with one change and one more statement, and return the differences."""
    sql = schema.sql(engine.dialect.name, tables.metadata)
    assert before in sql
    return make_tables(engine, f"{sql.replace(before, after, 1)}\n{then}")


@pytest.mark.parametrize("metadata", [tables.metadata, inbox_tables.metadata], ids=["outbox", "inbox"])
def test_fresh_tables_have_no_drift(engine: Engine, metadata: MetaData) -> None:
    """Drift is a difference between a database's tables and this code's; the printed SQL makes none either."""
    with engine.begin() as connection:
        metadata.create_all(connection)

        assert schema.drift(connection, metadata) == []
    assert make_tables(engine, schema.sql(engine.dialect.name, metadata), metadata) == []


def test_every_missing_table_is_reported(engine: Engine) -> None:
    """The database is empty."""
    assert make_tables(engine, "") == [
        "table sluice_outbox is missing",
        "table sluice_outbox_audit is missing",
        "table sluice_outbox_bundle is missing",
        "table sluice_outbox_group is missing",
        "table sluice_outbox_lease is missing",
        "table sluice_outbox_switch is missing",
    ]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    ids=[
        "missing column",
        "other type",
        "column may be NULL",
        "no default",
        "unknown required column",
        "missing index",
        "missing unique constraint",
        "missing primary key",
    ],
    argvalues=[
        ("    last_error TEXT,\n", "", "column sluice_outbox.last_error is missing"),
        (
            "attempts INTEGER DEFAULT 0",
            "attempts TEXT DEFAULT '0'",
            "column sluice_outbox.attempts is TEXT, expected is INTEGER",
        ),
        ("body TEXT NOT NULL", "body TEXT", "column sluice_outbox.body may be NULL, expected is NOT NULL"),
        (
            "status TEXT DEFAULT 'pending' NOT NULL",
            "status TEXT NOT NULL",
            "column sluice_outbox.status has no default",
        ),
        (
            "    last_error TEXT,\n",
            "    last_error TEXT,\n    tenant TEXT NOT NULL,\n",
            "column sluice_outbox.tenant is required and not known here",
        ),
        (
            f"{_UNFINISHED} WHERE status <> 'sent';\n",
            "",
            "sluice_outbox has no index on (topic, group_id, group_seq)",
        ),
        (
            "CONSTRAINT sluice_outbox_event UNIQUE (topic, event_id)",
            "CHECK (true)",
            "sluice_outbox has no unique constraint on (topic, event_id)",
        ),
        (
            "led_since_us BIGINT,\n    PRIMARY KEY (topic)",
            "led_since_us BIGINT",
            "sluice_outbox_lease has no unique constraint on (topic)",
        ),
    ],
)
def test_each_kind_of_drift_is_reported(engine: Engine, before: str, after: str, message: str) -> None:
    """`before` is replaced by `after` in the SQL that creates the tables."""
    assert differences_after(engine, before, after) == [message]


def test_a_unique_index_of_some_rows_only_is_no_unique_constraint(engine: Engine) -> None:
    """Two events with one id could then be in the outbox."""
    constraint = "CONSTRAINT sluice_outbox_event UNIQUE (topic, event_id)"
    partial = "CREATE UNIQUE INDEX theirs ON sluice_outbox (topic, event_id) WHERE status = 'sent';"
    found = differences_after(engine, constraint, "CHECK (true)", then=partial)

    assert found == ["sluice_outbox has no unique constraint on (topic, event_id)"]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    ids=["deferred unique constraint", "deferred primary key", "narrower number", "shorter text"],
    argvalues=[
        (
            "UNIQUE (topic, event_id)",
            "UNIQUE (topic, event_id) DEFERRABLE",
            "sluice_outbox has no unique constraint on (topic, event_id)",
        ),
        (
            "led_since_us BIGINT,\n    PRIMARY KEY (topic)",
            "led_since_us BIGINT,\n    PRIMARY KEY (topic) DEFERRABLE",
            "sluice_outbox_lease has no unique constraint on (topic)",
        ),
        (
            "created_at_us BIGINT",
            "created_at_us INTEGER",
            "column sluice_outbox.created_at_us is INTEGER, expected is BIGINT",
        ),
        ("body TEXT", "body VARCHAR(1000)", "column sluice_outbox.body is VARCHAR(1000), expected is TEXT"),
    ],
)
def test_each_kind_of_drift_that_only_postgres_has_is_reported(
    postgres: Engine, before: str, after: str, message: str
) -> None:
    """The test needs Postgres: columns of SQLite take texts of any length, and its constraints cannot be deferred."""
    assert differences_after(postgres, before, after) == [message]


@pytest.mark.parametrize(
    ("before", "after"),
    ids=["nullable column", "column with a default", "text without a limit", "wider number", "index of another name"],
    argvalues=[
        ("    last_error TEXT,\n", "    last_error TEXT,\n    tenant TEXT,\n"),
        ("    last_error TEXT,\n", "    last_error TEXT,\n    tenant TEXT DEFAULT 'x' NOT NULL,\n"),
        ("last_error TEXT", "last_error VARCHAR"),
        ("attempts INTEGER", "attempts BIGINT"),
        (_UNFINISHED, _UNFINISHED.replace("sluice_outbox_unfinished", "theirs")),
    ],
)
def test_differences_a_host_may_have_are_not_reported(engine: Engine, before: str, after: str) -> None:
    """Further columns that need no value, wider types, and indexes with other names."""
    assert differences_after(engine, before, after) == []


def test_the_statement_that_reads_heads_is_never_prepared(postgres: Engine) -> None:
    """Postgres would go on with a plan that it made while the outbox was small."""
    store = Store(postgres, "plans.fifo")

    for _ in range(20):
        store.look()

    with engines.reading(postgres) as connection:
        assert connection.execute(text("SELECT statement FROM pg_prepared_statements")).scalars().all() == []


@pytest.mark.parametrize(
    ("waiting", "is_counted"), [(20, True), (4_000, False)], ids=["few wait", "most wait and no statistics"]
)
def test_the_queries_of_metrics_scan_no_whole_table(engine: Engine, waiting: int, *, is_counted: bool) -> None:
    """Each of the three uses a partial index in its order, even without statistics of a table with a long history."""
    rows = [_message_columns(number, "pending" if number < waiting else "sent") for number in range(5_000)]
    with engine.begin() as connection:
        connection.execute(tables.messages.insert(), rows)
        connection.execute(text("ANALYZE" if is_counted else "SELECT 1"))
    statements: list[tuple[str, Any]] = []

    @event.listens_for(engine, "before_cursor_execute")
    def _keep(_: object, __: object, statement: str, parameters: Any, *___: object) -> None:
        if "SELECT" in statement:
            statements.append((statement, parameters))

    lag = Store(engine, "t.fifo").lag()

    plan = _plan(engine, statements)
    assert lag.pending_count == waiting
    assert set(re.findall(r"sluice_outbox_[a-z]+", plan)) == {"sluice_outbox_oldest", "sluice_outbox_quarantined"}
    assert re.findall(r"Seq Scan|SCAN sluice_outbox|Sort|TEMP B-TREE", plan) == []


def _message_columns(number: int, status: str) -> dict[str, object]:
    """Return the columns of an outbox message with that number and status."""
    own = {name: f"{name}-{number}" for name in ("group_id", "event_id", "deduplication_id")}
    rest = {"topic": "t.fifo", "group_seq": 1, "type": "a.b", "body": "x" * 250, "attributes": "{}"}
    return own | rest | {"status": status, "created_at_us": number}


def _plan(engine: Engine, statements: list[tuple[str, Any]]) -> str:
    """Return the plan of the last of the statements, which follow each other in a transaction."""
    *before, (statement, parameters) = statements
    explain = "EXPLAIN" if engine.dialect.name == "postgresql" else "EXPLAIN QUERY PLAN"
    with engine.begin() as connection:
        for earlier in before:
            connection.exec_driver_sql(*earlier)
        return "\n".join(str(row[-1]) for row in connection.exec_driver_sql(f"{explain} {statement}", parameters))


def test_sql_for_another_kind_of_database_is_refused() -> None:
    """The refusal names the kinds that are allowed."""
    with pytest.raises(OutboxError, match=r"^database is 'oracle', allowed is one of sqlite, postgresql$"):
        schema.sql("oracle", tables.metadata)


def test_an_invalid_index_counts_as_missing_until_it_is_rebuilt(postgres: Engine) -> None:
    """A CREATE INDEX CONCURRENTLY that fails leaves an index behind that Postgres maintains and does not use."""
    with postgres.begin() as connection:
        tables.metadata.create_all(connection)
        connection.execute(text("DROP INDEX sluice_outbox_unfinished"))
    with postgres.connect() as writer, postgres.connect().execution_options(isolation_level="AUTOCOMMIT") as migration:
        writer.execute(text("LOCK TABLE sluice_outbox IN ROW EXCLUSIVE MODE"))
        migration.execute(text("SET lock_timeout = '20ms'"))
        with pytest.raises(OperationalError, match="lock timeout"):
            migration.execute(text(f"{_UNFINISHED} WHERE status <> 'sent'".replace("INDEX", "INDEX CONCURRENTLY")))
        writer.rollback()
        seen = schema.drift(migration, tables.metadata)
        with pytest.raises(OutboxError) as caught:
            list(migrations.upgrade(postgres, tables.versioned))
        migration.execute(text(seen[0].rpartition(": ")[2]))
        mended = schema.drift(migration, tables.metadata)

    assert seen == [
        "sluice_outbox has no index on (topic, group_id, group_seq); sluice_outbox_unfinished is INVALID:"
        " REINDEX INDEX CONCURRENTLY sluice_outbox_unfinished"
    ]
    assert seen[0] in str(caught.value)
    assert mended == []
    assert list(migrations.upgrade(postgres, tables.versioned)) == [tables.versioned.version]
