"""Settings of a database and a role: one that would break a promise is overridden, or refused in one line.

Somebody else sets up the database. A setting that takes a commit back after a crash is overridden inside each
transaction that has to last (`DURABLE`); what cannot be overridden is refused (`require`). All other settings were
found harmless: docs/architecture/databases.md says why.

https://www.postgresql.org/docs/18/runtime-config.html, https://www.postgresql.org/docs/18/ddl-rowsecurity.html,
https://www.postgresql.org/docs/18/rules.html, https://www.postgresql.org/docs/18/catalog-pg-class.html,
https://www.sqlite.org/pragma.html (read 2026-11-26)
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sqlalchemy import Boolean, Connection, select, text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from sluice.messaging.errors import OutboxError

_FULL = 2
_LASTING_JOURNALS = ("wal", "delete", "truncate", "persist")
_MILLISECONDS_MIN = 1_000
_TIMEOUTS = ("statement_timeout", "transaction_timeout")
_ENCODINGS = {
    "server_encoding": "create a database with ENCODING 'UTF8' TEMPLATE template0, and move the tables there",
    "client_encoding": "connect with client_encoding=utf8, or open the database with engines.engine",
}
# Setting: the value allowed, what another would do, and the next step.
_ALLOWED = {
    "fsync": ("on", "a crash of its host may take back what was committed", "set it on, and reload the server"),
    "full_page_writes": (
        "on",
        "a crash of its host may leave pages half written",
        "set it on, and reload the server",
    ),
    "data_sync_retry": ("off", "a write that failed may count as done", "set it off, and restart the server"),
    "zero_damaged_pages": ("off", "it drops the rows of a damaged page unseen", "reset it for database and role"),
    "ignore_checksum_failure": ("off", "it takes damaged rows for sound ones", "reset it for database and role"),
    "exit_on_error": ("off", "it ends a connection at every lost race", "reset it for database and role"),
    "default_transaction_read_only": (
        "off",
        "nothing can be written",
        "reset it for database and role, or start again once it is over",
    ),
}
# Aurora's storage keeps the log itself and never writes a page torn, whatever these two are:
# https://docs.aws.amazon.com/AmazonRDS/latest/AuroraUserGuide/Aurora.Overview.StorageReliability.html; its parameter
# groups have neither, and aurora_version() is its own (AuroraPostgreSQL.Reference.ParameterGroups,
# Appendix.AuroraPostgreSQL.Functions; read 2026-11-26).
_NOT_AURORAS = ("fsync", "full_page_writes")
_SETTINGS = text(
    "SELECT name, setting, pg_is_in_recovery(), to_regproc('aurora_version') IS NOT NULL FROM pg_settings"
    " WHERE name = ANY(CAST(:names AS text[])) ORDER BY name"
)
_COLLATIONS_SINCE = (15,)
# https://www.postgresql.org/docs/18/catalog-pg-database.html, https://www.postgresql.org/docs/18/sql-altercollation.html
# (read 2026-11-26)
_COLLATIONS = text("""
    SELECT 'DATABASE' AS kind, quote_ident(datname) AS name, datcollversion AS recorded,
        pg_database_collation_actual_version(oid) AS actual
    FROM pg_database WHERE datname = current_database() AND datcollversion IS NOT NULL
    UNION ALL
    SELECT 'COLLATION', CAST(CAST(oid AS regcollation) AS text), collversion, pg_collation_actual_version(oid)
    FROM pg_collation WHERE collversion IS NOT NULL
""")
_TABLES = text("""
    SELECT wanted.name, namespace.nspname AS schema, found.relkind IN ('r', 'p') AS is_table,
        found.relpersistence = 'p' AS is_logged,
        row_security_active(found.oid) AS is_filtered,
        ARRAY(SELECT CAST(tgname AS text) FROM pg_trigger
            WHERE tgrelid = found.oid AND NOT tgisinternal AND tgenabled <> 'D' AND tgtype & 3 = 3 -- BEFORE each row
            ORDER BY 1) AS triggers,
        ARRAY(SELECT CAST(rulename AS text) FROM pg_rewrite
            WHERE ev_class = found.oid AND ev_enabled <> 'D' ORDER BY 1) AS rules,
        ARRAY(SELECT needed FROM unnest(string_to_array(wanted.rights, ', ')) AS needed WHERE NOT CASE needed
            WHEN 'DELETE' THEN has_table_privilege(found.oid, needed)
            ELSE has_any_column_privilege(found.oid, needed) END) AS lacking,
        ARRAY(SELECT CAST(nspname AS text) FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
            WHERE relname = wanted.name AND nspname = ANY(current_schemas(true)) ORDER BY 1) AS schemas,
        CAST(current_user AS text) AS role
    FROM unnest(CAST(:names AS text[]), CAST(:rights AS text[])) WITH ORDINALITY AS wanted (name, rights, place)
    JOIN pg_class AS found ON found.oid = to_regclass(wanted.name)
    JOIN pg_namespace AS namespace ON namespace.oid = found.relnamespace
    ORDER BY wanted.place
""")


class OnStandby(OutboxError):
    """Raised if the database is a standby, which may soon be the primary, or was it until now."""


class _Durable(FunctionElement[bool]):
    """The SQL expression TRUE; see `DURABLE`. It is a function element, because SQLAlchemy can cache such statements.

    https://docs.sqlalchemy.org/en/21/core/compiler.html#enabling-caching-support-for-custom-constructs (read
    2026-11-26)
    """

    inherit_cache = True
    name = "durable"
    type = Boolean()


DURABLE = _Durable()
"""True. Where Postgres evaluates it, in any statement, the commit of that transaction waits for the disk.

Also where database, role or session have `synchronous_commit = off`: a commit would be seen, and published, before it
is on the disk, and a crash would take it back. A standby that has to confirm is waited for as well.
https://www.postgresql.org/docs/18/wal-async-commit.html,
https://docs.sqlalchemy.org/en/21/core/compiler.html (read 2026-11-26)
"""
DURABLE_SQL = """(pg_catalog.set_config('synchronous_commit',
    CASE pg_catalog.current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true)
    IS NOT NULL)"""
"""The same as text inside another statement of Postgres."""


@compiles(_Durable)
def _compile(_: _Durable, compiler: SQLCompiler, **__: object) -> str:
    return DURABLE_SQL if compiler.dialect.name == "postgresql" else "(1 = 1)"


def keep_commit(connection: Connection) -> None:
    """Let the transaction's commit wait for the disk, with an additional round trip; see `DURABLE`."""
    connection.execute(select(DURABLE))


def require_durable(connection: Connection) -> None:
    """Refuse a connection that may lose a commit to a power cut, or cannot store every event; without a round trip.

    On Postgres only the encodings are checked, which the server tells at the connect; `DURABLE` makes it keep a commit.
    https://www.postgresql.org/docs/18/libpq-status.html#LIBPQ-PQPARAMETERSTATUS (read 2026-11-26).

    Raises:
        OutboxError: an encoding is not UTF8, or SQLite's `PRAGMA synchronous` is less than FULL.
    """
    if connection.dialect.name != "sqlite":
        status = _parameter_status(connection.connection.driver_connection)
        for name, step in _ENCODINGS.items():
            encoding = status(name)
            if encoding != "UTF8":
                raise OutboxError(
                    f"{name} is {encoding}, allowed is UTF8: it cannot store every event and reason; {step}"
                )
        return
    seen = int(connection.exec_driver_sql("PRAGMA synchronous").scalar_one())
    if seen < _FULL:
        raise OutboxError(
            f"PRAGMA synchronous is {seen}, allowed is {_FULL} (FULL) or more: a message could be out whose commit"
            " a power cut takes back; open the database with engines.engine or make_durable"
        )


def _parameter_status(driver: Any) -> Callable[[str], str | None]:
    """Return a function that returns a setting that the server reported at the connect.

    https://magicstack.github.io/asyncpg/current/api/index.html#asyncpg.connection.Connection.get_settings (read
    2026-11-27)
    """
    if (settings := getattr(driver, "get_settings", None)) is not None:
        return lambda name: getattr(settings(), name, None)
    tell = getattr(getattr(driver, "info", None), "parameter_status", None)
    return (lambda _: "UTF8") if tell is None else tell  # a driver of somebody else's, which the engines refuse


def require(connection: Connection, rights: Mapping[str, str]) -> None:
    """Refuse a database, or its tables, if they would break a promise. Called by relay and worker at their start.

    Args:
        connection: a connection of the role that is going to work.
        rights: table to the needed rights on it, such as `SELECT, UPDATE`.

    Raises:
        OnStandby: the database is a standby.
        OutboxError: a setting or a right would lose data.
    """
    for sentence in faults(connection, rights):
        raise OutboxError(sentence)


def faults(connection: Connection, rights: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each setting that would break a promise.

    Raises:
        OnStandby: the database is a standby.
    """
    if connection.dialect.name == "sqlite":
        yield from _sqlite_faults(connection, rights)
        return
    require_durable(connection)
    settings = connection.execute(_SETTINGS, {"names": [*_ALLOWED, *_TIMEOUTS]}).all()
    for name, seen, is_standby, is_aurora in settings:
        if is_standby:
            raise OnStandby(
                "the database is a standby (pg_is_in_recovery() is true), allowed is a primary; correct --dsn, or wait"
                " until the failover is over"
            )
        if name in _TIMEOUTS:
            if 0 < int(seen) < _MILLISECONDS_MIN:
                yield (
                    f"{name} is {seen} ms, allowed is 0 or at least {_MILLISECONDS_MIN} ms: a transaction would seldom"
                    " end; reset it for database and role"
                )
        elif seen != _ALLOWED[name][0] and not (is_aurora and name in _NOT_AURORAS):
            allowed, effect, step = _ALLOWED[name]
            yield f"{name} is {seen}, allowed is {allowed}: {effect}; {step}"
    yield from _table_faults(connection, rights)


def collation_faults(connection: Connection) -> Iterator[str]:
    """Yield a sentence for each collation of Postgres that is of another version than the indexes made with it.

    Sluice's own tables use none of these collations; the project's tables may.
    """
    if connection.dialect.name == "sqlite" or (connection.dialect.server_version_info or ()) < _COLLATIONS_SINCE:
        return
    for row in connection.execute(_COLLATIONS):
        if row.recorded != row.actual:
            yield (
                f"the collation of {row.kind} {row.name} is of version {row.actual}, allowed is that of its indexes,"
                f" {row.recorded}: unique indexes of your own tables may let a second row pass; run REINDEX DATABASE,"
                f" then ALTER {row.kind} {row.name} REFRESH COLLATION VERSION"
            )


def _table_faults(connection: Connection, rights: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each fault of the tables on Postgres: schema, kind, triggers, rules and missing rights."""
    rows = connection.execute(_TABLES, {"names": list(rights), "rights": list(rights.values())}).all()
    if len({row.schema for row in rows}) > 1:
        places = ", ".join(f"{row.name} in {row.schema}" for row in rows)
        yield f"the tables are found in several schemas ({places}), allowed is one; correct the role's search_path"
    for row in rows:
        if len(row.schemas) > 1:
            yield (
                f"table {row.name} is in the schemas {' and '.join(row.schemas)}, allowed is one of search_path:"
                " another role may use the other; drop one, or correct search_path"
            )
        if not row.is_table:
            yield (
                f"{row.name} is a view or a foreign table, allowed is a table: a row may be dropped, or committed"
                " elsewhere; use the schema, or the server, where it is a table"
            )
            continue
        if not row.is_logged:
            yield (
                f"table {row.name} is UNLOGGED or temporary, allowed is a permanent one: a crash empties it; run ALTER"
                f" TABLE {row.name} SET LOGGED"
            )
        if row.is_filtered:
            yield (
                f"row-level security of {row.name} is active for {row.role}, allowed is none: it would not see every"
                f" row; disable it, or run ALTER ROLE {row.role} BYPASSRLS"
            )
        for trigger in row.triggers:
            yield (
                f"trigger {trigger} of {row.name} is BEFORE each row, allowed are AFTER triggers: it may change or drop"
                f" a row; run DROP TRIGGER {trigger} ON {row.name}"
            )
        for rule in row.rules:
            yield (
                f"rule {rule} of {row.name} rewrites statements, allowed is none; run DROP RULE {rule} ON {row.name}"
            )
        if row.lacking:
            lacking = ", ".join(row.lacking)
            yield (
                f"role {row.role} lacks {lacking} on {row.name}, allowed is a role that has it; run GRANT {lacking} ON"
                f" {row.name} TO {row.role}"
            )


def _sqlite_faults(connection: Connection, rights: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each fault of an SQLite database: in memory, a journal that may be lost, triggers."""
    require_durable(connection)
    path = connection.exec_driver_sql("SELECT file FROM pragma_database_list WHERE name = 'main'").scalar_one()
    if not path:
        yield "the database is in memory, allowed is a file: it ends with this process; give --dsn sqlite:///FILE"
        return
    journal = connection.exec_driver_sql("PRAGMA journal_mode").scalar_one()
    if journal not in _LASTING_JOURNALS:
        yield (
            f"PRAGMA journal_mode is {journal}, allowed is one of {', '.join(_LASTING_JOURNALS)}: a crash may damage"
            " the file; put it where WAL works, on a disk of this machine"
        )
    triggers = connection.exec_driver_sql("SELECT name, tbl_name FROM sqlite_master WHERE type = 'trigger' ORDER BY 1")
    for trigger, table in triggers.all():
        if table in rights:
            yield (
                f"trigger {trigger} of {table} may change or drop a row, allowed is none; run DROP TRIGGER {trigger}"
            )
