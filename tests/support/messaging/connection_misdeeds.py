"""Misdeeds of a handler to connection, session, thread and process, for the next message to find: a table to extend.

Drawn from https://www.psycopg.org/psycopg3/docs/api/connections.html, https://www.sqlite.org/pragma.html,
https://www.postgresql.org/docs/18/sql-discard.html, https://www.postgresql.org/docs/18/runtime-config-client.html,
https://docs.python.org/3/library/sqlite3.html and https://docs.sqlalchemy.org/en/21/core/events.html (read 2026-11-26).
"""

import asyncio
import contextvars
import decimal
import gc
import io
import locale
import logging
import os
import resource
import signal
import socket
import sqlite3
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import set_json_loads
from psycopg.types.string import StrDumper
from sqlalchemy import Engine, event, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from sluice.terminal import streams

type SessionChange = Callable[[Session], object]

OUTPUT = streams.stream(os.open(os.devnull, os.O_WRONLY), None)
"""The standard output of handlers, which they may close; pytest's own stays."""
GUEST, ELSEWHERE = "sluice_guest", "sluice_elsewhere"
SQLITE, POSTGRES = "sqlite", "postgresql"
NOTE: contextvars.ContextVar[str] = contextvars.ContextVar("note", default="none")


class Leftover(NamedTuple):
    """One misdeed, and the databases on which a handler can commit it."""

    name: str
    act: SessionChange
    databases: tuple[str, ...] = (SQLITE, POSTGRES)


class KeptThings:
    """The objects that misdeeds keep, and the threads that they start; `end` waits for the threads."""

    kept: ClassVar[list[Any]] = []
    threads: ClassVar[list[threading.Thread]] = []
    errors: ClassVar[list[BaseException]] = []
    go_on = threading.Event()

    @classmethod
    def go_on_now(cls) -> None:
        """Let the threads that handlers left behind continue now, while the next handler runs."""
        cls.go_on.set()
        for thread in cls.threads:
            thread.join(10)
        cls.threads.clear()
        cls.go_on.clear()

    @classmethod
    def end(cls) -> None:
        """Forget everything."""
        cls.go_on_now()
        for kept in cls.kept:
            with suppress(Exception):
                kept.close()
        cls.kept.clear()


def driver_of(session: Session) -> Any:
    return session.connection().connection.driver_connection


def _keep(value: Any) -> None:
    KeptThings.kept.append(value)


def _sql(*statements: str) -> SessionChange:
    def act(session: Session) -> None:
        for statement in statements:
            session.execute(text(statement.replace(":", "\\:")))

    return act


def _raw(*statements: str) -> SessionChange:
    def act(session: Session) -> None:
        for statement in statements:
            driver_of(session).execute(statement)

    return act


def _driver(do: Callable[[Any], object]) -> SessionChange:
    return lambda session: do(driver_of(session))


def _set(name: str, value: object) -> SessionChange:
    return lambda session: setattr(driver_of(session), name, value)


def _suppressing(act: SessionChange) -> SessionChange:
    def quietly(session: Session) -> None:
        with suppress(SQLAlchemyError, psycopg.Error, sqlite3.Error):
            act(session)

    return quietly


def _in_thread(use: Callable[[Any], object], held: Callable[[Session], Any]) -> SessionChange:
    """Return a misdeed that leaves a thread with a reference; the thread continues after its handler has returned."""

    def act(session: Session) -> None:
        holds = [held(session)]

        def go_on() -> None:
            KeptThings.go_on.wait(10)
            try:
                use(holds[0])
            except BaseException as error:
                KeptThings.errors.append(error)
            holds.clear()

        thread = threading.Thread(target=go_on, daemon=True)
        KeptThings.threads.append(thread)
        thread.start()

    return act


def _after_a_rollback(act: SessionChange) -> SessionChange:
    def roll_back_before(session: Session) -> None:
        driver_of(session).rollback()
        act(session)

    return roll_back_before


# Name of a setting of Postgres to a value that it has nowhere by default.
_SETTINGS = {
    "search_path": ELSEWHERE,
    "session_replication_role": "replica",
    "statement_timeout": "'1ms'",
    "lock_timeout": "'1ms'",
    "idle_in_transaction_session_timeout": "'77s'",
    "transaction_timeout": "'55s'",
    "default_transaction_read_only": "on",
    "default_transaction_isolation": "serializable",
    "default_transaction_deferrable": "on",
    "row_security": "off",
    "check_function_bodies": "off",
    "synchronous_commit": "off",
    "DateStyle": "'German, DMY'",
    "IntervalStyle": "sql_standard",
    "TimeZone": "'Asia/Tokyo'",
    "client_encoding": "LATIN1",
    "bytea_output": "escape",
    "extra_float_digits": "-5",
    "standard_conforming_strings": "off",
    "escape_string_warning": "off",
    "backslash_quote": "off",
    "quote_all_identifiers": "on",
    "transform_null_equals": "on",
    "array_nulls": "off",
    "lc_monetary": "'C'",
    "xmlbinary": "hex",
    "xmloption": "document",
    "enable_seqscan": "off",
    "work_mem": "'64kB'",
    "temp_buffers": "'1MB'",
    "client_min_messages": "debug5",
    "application_name": "'somebody'",
    "default_tablespace": "pg_default",
    "default_table_access_method": "heap",
    "default_toast_compression": "pglz",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
    "lo_compat_privileges": "on",
    "password_encryption": "md5",
    "vacuum_cost_delay": "10",
    "constraint_exclusion": "on",
    "gin_fuzzy_search_limit": "7",
    "commit_siblings": "9",
    "allow_system_table_mods": "on",
    "zero_damaged_pages": "on",
    "log_statement": "'none'",
    "max_parallel_workers_per_gather": "0",
    "event_triggers": "off",
}

_SESSIONS = {
    "temp table that shadows": "CREATE TEMP TABLE effects AS SELECT * FROM effects WHERE false",
    "temp view that shadows": "CREATE TEMP VIEW groups_seen AS SELECT 1",
    "temp table kept at commit": "CREATE TEMP TABLE mine (n int) ON COMMIT PRESERVE ROWS",
    "temp sequence": "CREATE TEMP SEQUENCE numbers",
    "temp function": "CREATE FUNCTION pg_temp.now() RETURNS timestamptz LANGUAGE sql AS 'SELECT null::timestamptz'",
    "temp type": "CREATE TYPE pg_temp.effects AS (n int)",
    "temp domain": "CREATE DOMAIN pg_temp.text AS varchar(1)",
    "temp index": "CREATE TEMP TABLE indexed (n int); CREATE INDEX ON indexed (n)",
    "temp trigger": "CREATE TEMP TABLE watched (n int) ON COMMIT DELETE ROWS",
    "SET ROLE": f"SET ROLE {GUEST}",
    "SET SESSION AUTHORIZATION": f"SET SESSION AUTHORIZATION {GUEST}",
    "role by set_config": f"SELECT set_config('role', '{GUEST}', false)",
    "search path by set_config": f"SELECT set_config('search_path', '{ELSEWHERE}', false)",
    "SET SESSION CHARACTERISTICS": "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
    "isolation for the session": "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    "SET TIME ZONE": "SET TIME ZONE 'Asia/Tokyo'",
    "SET NAMES": "SET NAMES 'LATIN1'",
    "session lock": "SELECT pg_advisory_lock(4711)",
    "session lock, shared": "SELECT pg_advisory_lock_shared(4712)",
    "session lock, twice": "SELECT pg_advisory_lock(4713), pg_advisory_lock(4713)",
    "session lock of two keys": "SELECT pg_try_advisory_lock(47, 14)",
    "LISTEN": "LISTEN somebody",
    "WITH HOLD cursor": "DECLARE held CURSOR WITH HOLD FOR SELECT 1",
    "WITH HOLD cursor, fetched": "DECLARE held SCROLL CURSOR WITH HOLD FOR SELECT generate_series(1, 9)",
    "cursor": "DECLARE plain CURSOR FOR SELECT 1",
    "PREPARE": "PREPARE prepared AS SELECT 1",
    "PREPARE with parameters": "PREPARE prepared (int) AS SELECT $1",
    "sequence was used": "SELECT nextval('effects_id_seq')",
    "RESET ALL": "RESET ALL",
    "DISCARD TEMP": "DISCARD TEMP",
    "SET LOCAL": f"SET LOCAL search_path = {ELSEWHERE}",
    "search path of a block": (
        f"DO $$ BEGIN PERFORM set_config('search_path', '{ELSEWHERE}', false); SET ROLE {GUEST}; END $$"
    ),
    "constraints deferred": "SET CONSTRAINTS ALL DEFERRED",
    "deletes and rolls back to a savepoint": "SAVEPOINT s; DELETE FROM effects; ROLLBACK TO s",
    "savepoint left open": "SAVEPOINT left_open",
    "lock of a table": "LOCK TABLE effects IN ROW EXCLUSIVE MODE",
    "fails": "SELECT 1 / 0",
    "NOTIFY": "NOTIFY somebody, 'x'",
}


def _copy_unfinished(session: Session) -> None:
    copy = driver_of(session).cursor().copy("COPY effects (consumer, group_id, seq) FROM STDIN")
    _keep(copy)
    copy.__enter__().write_row(("nobody", "copied", 1))


def _copy_out_unfinished(session: Session) -> None:
    copy = driver_of(session).cursor().copy("COPY (SELECT generate_series(1, 100000)) TO STDOUT")
    _keep(copy)
    copy.__enter__().read()


def _pipeline_open(session: Session) -> None:
    pipeline = driver_of(session).pipeline()
    _keep(pipeline)
    pipeline.__enter__()


def _pipeline_in_error(session: Session) -> None:
    _pipeline_open(session)
    driver_of(session).execute("SELECT 1 / 0")


def _stream_unread(session: Session) -> None:
    stream = driver_of(session).cursor().stream("SELECT generate_series(1, 100000)")
    _keep(stream)
    next(stream)


def _cursor_open(session: Session) -> None:
    cursor = driver_of(session).cursor()
    cursor.execute("SELECT 1")
    _keep(cursor)


def _named_cursor(session: Session) -> None:
    cursor = driver_of(session).cursor(name="named", withhold=True)
    cursor.execute("SELECT generate_series(1, 9)")
    _keep(cursor)


def _transaction_open(session: Session) -> None:
    opened = driver_of(session).transaction()
    _keep(opened)
    opened.__enter__()


def _lock_kept(session: Session) -> None:
    driver_of(session).lock.acquire()


def _prepares(session: Session) -> None:
    driver = driver_of(session)
    driver.prepare_threshold = 0
    for _ in range(3):
        driver.execute("SELECT count(*) FROM effects WHERE seq = %s", [1]).fetchone()


def _sets_when_garbage(session: Session) -> None:
    driver = driver_of(session)

    def set_quietly() -> None:
        with suppress(psycopg.Error):
            driver.execute(f"SET search_path = {ELSEWHERE}")

    weakref.finalize(session, set_quietly)


def _is_at_work(driver: Any) -> None:
    driver.execute("SELECT pg_sleep(0.3)")


class _Loader(psycopg.adapt.Loader):
    def load(self, data: Any) -> Any:
        return f"loaded {bytes(data)!r}"


class _Dumper(StrDumper):
    def dump(self, obj: str) -> bytes:
        return b"dumped " + obj.encode()


class _Cursor(psycopg.Cursor[Any]):
    def fetchone(self) -> Any:
        return ("nothing",)

    def fetchall(self) -> Any:
        return []


_PSYCOPG: dict[str, SessionChange] = {
    "row factory": _set("row_factory", dict_row),
    "cursor factory": _set("cursor_factory", _Cursor),
    "client cursor factory": _set("cursor_factory", psycopg.ClientCursor),
    "raw cursor factory": _set("cursor_factory", psycopg.RawCursor),
    "server cursor factory": _set("server_cursor_factory", psycopg.RawServerCursor),
    "prepare threshold": _set("prepare_threshold", 0),
    "prepared max": _set("prepared_max", 1),
    "prepares statements": _prepares,
    "sets when it is garbage": _sets_when_garbage,
    "sets without an answer": _driver(
        lambda driver: driver.pgconn.send_query(f"SET search_path = {ELSEWHERE}".encode())
    ),
    "blocks the calls of libpq": _driver(lambda driver: setattr(driver.pgconn, "nonblocking", 0)),
    "pipeline of libpq": _driver(lambda driver: driver.pgconn.enter_pipeline_mode()),
    "autocommit": _suppressing(_set("autocommit", value=True)),
    "autocommit after a rollback": _after_a_rollback(_set("autocommit", value=True)),
    "isolation level": _suppressing(_set("isolation_level", psycopg.IsolationLevel.SERIALIZABLE)),
    "isolation level after a rollback": _after_a_rollback(_set("isolation_level", psycopg.IsolationLevel.SERIALIZABLE)),
    "read only after a rollback": _after_a_rollback(_set("read_only", value=True)),
    "deferrable after a rollback": _after_a_rollback(_set("deferrable", value=True)),
    "loader for int": _driver(lambda driver: driver.adapters.register_loader("int4", _Loader)),
    "loader for bigint": _driver(lambda driver: driver.adapters.register_loader("int8", _Loader)),
    "loader for text": _driver(lambda driver: driver.adapters.register_loader("text", _Loader)),
    "dumper for str": _driver(lambda driver: driver.adapters.register_dumper(str, _Dumper)),
    "loads of JSON": _driver(lambda driver: set_json_loads(lambda _: "loaded", driver)),
    "type registered": _driver(lambda driver: psycopg.types.TypeInfo("effect", 0, 0).register(driver)),
    "notice handler": _driver(lambda driver: driver.add_notice_handler(_keep)),
    "notify handler": _driver(lambda driver: driver.add_notify_handler(_keep)),
    "notice handler of libpq": _driver(lambda driver: setattr(driver.pgconn, "notice_handler", None)),
    "notify handler of libpq": _driver(lambda driver: setattr(driver.pgconn, "notify_handler", _keep)),
    "method replaced": _driver(lambda driver: setattr(driver, "execute", lambda *_: None)),
    "commit replaced": _driver(lambda driver: setattr(driver, "tpc_prepare", lambda *_: None)),
    "attribute set": _driver(lambda driver: setattr(driver, "tenant", "somebody")),
    "pipeline open": _pipeline_open,
    "pipeline in error": _suppressing(_pipeline_in_error),
    "COPY in unfinished": _copy_unfinished,
    "COPY out unfinished": _copy_out_unfinished,
    "results unread": _stream_unread,
    "cursor open": _cursor_open,
    "named cursor with hold": _named_cursor,
    "transaction context open": _transaction_open,
    "connection kept": lambda session: _keep(driver_of(session)),
    "connection of libpq kept": lambda session: _keep(driver_of(session).pgconn),
    "lock of the driver kept": _lock_kept,
    "lock of the driver replaced": _driver(lambda driver: setattr(driver, "lock", threading.RLock())),
    "query cancelled": _driver(lambda driver: driver.cancel_safe()),
    "notification left": _sql("LISTEN somebody", "NOTIFY somebody, 'x'"),
    "driver closed": _driver(lambda driver: driver.close()),
    "driver as a context": _suppressing(_driver(lambda driver: driver.__exit__(None, None, None))),
    "driver rolls back": _driver(lambda driver: driver.rollback()),
    "driver rolls back, and sets": _suppressing(
        lambda session: (driver_of(session).rollback(), driver_of(session).execute(f"SET search_path = {ELSEWHERE}"))
    ),
    "driver commits": _suppressing(_driver(lambda driver: driver.commit())),
    "backend ended": _suppressing(_sql("SELECT pg_terminate_backend(pg_backend_pid())")),
    "tpc begun": _suppressing(_driver(lambda driver: driver.tpc_begin(driver.xid(1, "a", "b")))),
    "thread sets": _in_thread(lambda driver: driver.execute(f"SET search_path = {ELSEWHERE}"), driver_of),
    "thread sets by libpq": _in_thread(
        lambda pgconn: pgconn.exec_(f"SET search_path = {ELSEWHERE}".encode()),
        lambda session: driver_of(session).pgconn,
    ),
    "thread at work": _in_thread(_is_at_work, driver_of),
    "thread holds a cursor": _in_thread(
        lambda cursor: cursor.execute("DELETE FROM effects"), lambda session: driver_of(session).cursor()
    ),
    "thread writes and commits": _in_thread(
        lambda driver: (driver.execute("DELETE FROM effects"), driver.commit()), driver_of
    ),
    "thread closes": _in_thread(lambda driver: driver.close(), driver_of),
    "string sets and commits": _suppressing(_sql(f"SET search_path = {ELSEWHERE}; COMMIT")),
    "string commits and begins": _suppressing(_sql(f"SET search_path = {ELSEWHERE}; COMMIT; BEGIN")),
    "commit and chain": _suppressing(_raw(f"SET search_path = {ELSEWHERE}", "COMMIT AND CHAIN")),
    "rollback and chain": _suppressing(_raw("ROLLBACK AND CHAIN", f"SET search_path = {ELSEWHERE}")),
    "prepared transaction": _suppressing(_sql("SELECT 1; PREPARE TRANSACTION 'x'")),
}

# PRAGMA of SQLite to a value that it has nowhere by default.
_PRAGMAS = {
    "query_only": "ON",
    "foreign_keys": "ON",
    "recursive_triggers": "ON",
    "reverse_unordered_selects": "ON",
    "ignore_check_constraints": "ON",
    "case_sensitive_like": "ON",
    "synchronous": "OFF",
    "busy_timeout": "1",
    "cache_size": "3",
    "cache_spill": "OFF",
    "cell_size_check": "ON",
    "checkpoint_fullfsync": "ON",
    "fullfsync": "ON",
    "wal_autocheckpoint": "7",
    "automatic_index": "OFF",
    "defer_foreign_keys": "ON",
    "legacy_alter_table": "ON",
    "writable_schema": "ON",
    "trusted_schema": "OFF",
    "threads": "1",
    "temp_store": "MEMORY",
    "mmap_size": "65536",
    "journal_size_limit": "4096",
    "secure_delete": "ON",
    "soft_heap_limit": "100000000",
    "max_page_count": "1000000",
    "analysis_limit": "9",
    "locking_mode": "NORMAL",
    "read_uncommitted": "ON",
    "count_changes": "ON",
    "empty_result_callbacks": "ON",
    "full_column_names": "ON",
    "short_column_names": "OFF",
}

_SQLITE_SQL = {
    "temp table that shadows": "CREATE TEMP TABLE effects (id integer, consumer, group_id, seq)",
    "temp view that shadows": "CREATE TEMP VIEW effects AS SELECT 1 AS id, '' AS consumer, '' AS group_id, 1 AS seq",
    "temp trigger": "CREATE TEMP TRIGGER swallow BEFORE INSERT ON main.effects BEGIN SELECT RAISE(IGNORE); END",
    "temp trigger that doubles": (
        "CREATE TEMP TRIGGER doubles AFTER INSERT ON main.effects BEGIN INSERT INTO audit VALUES (new.seq); END"
    ),
    "temp table": "CREATE TEMP TABLE mine (n int)",
    "temp table of words": "CREATE VIRTUAL TABLE temp.words USING fts5(word)",
    "exclusive lock": "PRAGMA locking_mode = EXCLUSIVE",
    "heap limit by a function": "SELECT * FROM pragma_soft_heap_limit(77777777)",
    "savepoint of the worker": "RELEASE SAVEPOINT sluice_handler",
    "temp table with an index": "CREATE TEMP TABLE indexed (n int unique)",
    "savepoint left open": "SAVEPOINT left_open",
    "fails": "SELECT nothing FROM nowhere",
}


def _blob_open(session: Session) -> None:
    driver = driver_of(session)
    driver.execute("CREATE TEMP TABLE blobs (b blob)")
    driver.execute("INSERT INTO temp.blobs VALUES (zeroblob(9))")
    _keep(driver.blobopen("blobs", "b", 1, name="temp"))


def _statement_unread(session: Session) -> None:
    cursor = driver_of(session).execute("SELECT 1 UNION SELECT 2")
    next(cursor)
    _keep(cursor)


class _Sum:
    def step(self, _: object) -> None: ...

    def finalize(self) -> int:
        return 7


def _sets_behind_the_commit(session: Session) -> None:
    driver = driver_of(session)
    event.listen(session, "after_commit", lambda _: driver.execute("PRAGMA query_only = ON"))


def _cursor_in_a_circle(session: Session) -> None:
    cursor = driver_of(session).execute("SELECT 1 UNION SELECT 2")
    circle: list[Any] = [cursor]
    circle.append(circle)


def _backs_up_from_nothing(driver: Any) -> None:
    with closing(sqlite3.connect(":memory:")) as empty:
        empty.backup(driver)


def _replaces_tokenizer(driver: Any) -> None:
    """Replace one tokenizer by another: https://www.sqlite.org/fts3.html#custom_application_defined_tokenizers."""
    (porter,) = driver.execute("SELECT fts3_tokenizer(?)", ["porter"]).fetchone()
    driver.execute("SELECT length(fts3_tokenizer(?, ?))", ["simple", porter]).close()


_SQLITE: dict[str, SessionChange] = {
    "row factory": _set("row_factory", sqlite3.Row),
    "row factory of nothing": _set("row_factory", lambda *_: ("nothing",)),
    "text factory": _set("text_factory", bytes),
    "isolation level": _suppressing(_set("isolation_level", "EXCLUSIVE")),
    "isolation level deferred": _suppressing(_set("isolation_level", "DEFERRED")),
    "isolation level None": _suppressing(_set("isolation_level", None)),
    "autocommit": _suppressing(_set("autocommit", value=True)),
    "autocommit off": _suppressing(_set("autocommit", value=False)),
    "function": _driver(lambda driver: driver.create_function("lower", 1, lambda _: "low")),
    "function of two": _driver(lambda driver: driver.create_function("coalesce2", 2, max)),
    "aggregate": _driver(lambda driver: driver.create_aggregate("count", 1, _Sum)),
    "window function": _driver(lambda driver: driver.create_window_function("sum", 1, None)),
    "collation": _driver(lambda driver: driver.create_collation("NOCASE", lambda *_: 0)),
    "authorizer": _suppressing(_driver(lambda driver: driver.set_authorizer(lambda *_: sqlite3.SQLITE_DENY))),
    "authorizer of none": _suppressing(_driver(lambda driver: driver.set_authorizer(None))),
    "trace": _driver(lambda driver: driver.set_trace_callback(_keep)),
    "progress handler": _driver(lambda driver: driver.set_progress_handler(lambda: 1, 100_000)),
    "limit": _driver(lambda driver: driver.setlimit(sqlite3.SQLITE_LIMIT_COLUMN, 5)),
    "limit of length": _driver(lambda driver: driver.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, 200)),
    "limit of expressions": _driver(lambda driver: driver.setlimit(sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 2)),
    "limit of attached": _driver(lambda driver: driver.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)),
    "extensions": _driver(lambda driver: driver.enable_load_extension(1)),
    "configuration": _driver(lambda driver: driver.setconfig(sqlite3.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)),
    "configuration of views": _driver(lambda driver: driver.setconfig(sqlite3.SQLITE_DBCONFIG_ENABLE_VIEW, 0)),
    "configuration of quotes": _driver(lambda driver: driver.setconfig(sqlite3.SQLITE_DBCONFIG_DQS_DML, 0)),
    "blob open": _blob_open,
    "statement unread": _statement_unread,
    "cursor kept": lambda session: _keep(driver_of(session).cursor()),
    "cursor in a circle": _cursor_in_a_circle,
    "cursor of another class": _driver(lambda driver: sqlite3.Cursor(driver).execute("PRAGMA query_only = ON")),
    "set behind the commit": _sets_behind_the_commit,
    "connection kept": lambda session: _keep(driver_of(session)),
    "reference kept": lambda session: _keep(weakref.ref(driver_of(session))),
    "made anew": _suppressing(_driver(lambda driver: driver.__init__(":memory:"))),
    "interrupted": _driver(lambda driver: driver.interrupt()),
    "heap limit in capitals": _suppressing(_raw("PRAGMA SOFT_HEAP_LIMIT = 77777777")),
    "driver closed": _driver(lambda driver: driver.close()),
    "driver rolls back": _suppressing(_driver(lambda driver: driver.rollback())),
    "driver commits": _suppressing(_driver(lambda driver: driver.commit())),
    "driver as a context": _suppressing(_driver(lambda driver: driver.__exit__(None, None, None))),
    "script": _suppressing(_driver(lambda driver: driver.executescript("SELECT 1; COMMIT; SELECT 2"))),
    "backup over it": _suppressing(_driver(_backs_up_from_nothing)),
    "database attached": _suppressing(_raw("ATTACH ':memory:' AS elsewhere")),
    "thread sets": _in_thread(lambda driver: driver.execute("PRAGMA query_only = ON"), driver_of),
    "thread writes": _in_thread(lambda driver: driver.execute("DELETE FROM effects"), driver_of),
    "thread writes and commits": _in_thread(
        lambda driver: (driver.execute("DELETE FROM effects"), driver.commit()), driver_of
    ),
    "thread holds a cursor": _in_thread(
        lambda cursor: cursor.execute("DELETE FROM effects"), lambda session: driver_of(session).cursor()
    ),
    "thread closes": _in_thread(lambda driver: driver.close(), driver_of),
    "thread sets a factory": _in_thread(lambda driver: setattr(driver, "row_factory", sqlite3.Row), driver_of),
    "thread makes a function": _in_thread(
        lambda driver: driver.create_function("lower", 1, lambda _: "low"), driver_of
    ),
    "thread sets by a cursor of another class": _in_thread(
        lambda driver: sqlite3.Cursor(driver).execute("PRAGMA recursive_triggers = ON").close(), driver_of
    ),
    "tokenizer": _suppressing(_driver(_replaces_tokenizer)),
}


def _swallow(*_: object, **__: object) -> None:
    raise RuntimeError("a listener that somebody left")


def _alter(_: object, __: object, statement: str, parameters: object, *___: object) -> tuple[str, object]:
    return statement.replace("effects", "nowhere"), parameters


def _second_session(session: Session) -> None:
    second = Session(session.get_bind())
    _keep(second)
    second.execute(text("SELECT 1"))
    if session.get_bind().dialect.name == SQLITE:
        second.close()


def _second_connection(statement: str) -> SessionChange:
    """Return a misdeed that executes and commits a statement on a second connection from the pool."""

    def act(session: Session) -> None:
        bind: Any = session.get_bind()
        with closing(bind.raw_connection()) as second:
            second.driver_connection.execute(statement)
            second.driver_connection.commit()

    return act


def _second_connection_in_a_thread(statement: str) -> SessionChange:
    def act(session: Session) -> None:
        thread = threading.Thread(target=_second_connection(statement), args=(session,))
        thread.start()
        thread.join()

    return act


# What is set on a second connection, by name, on each database.
_SECOND: dict[str, dict[str, str]] = {
    POSTGRES: {
        "search path": f"SET search_path = {ELSEWHERE}",
        "temp table that shadows": "CREATE TEMP TABLE effects AS SELECT * FROM effects WHERE false",
        "session lock": "SELECT pg_advisory_lock(4714)",
    },
    SQLITE: {
        "query_only": "PRAGMA query_only = ON",
        "temp table that shadows": _SQLITE_SQL["temp table that shadows"],
        "temp trigger": _SQLITE_SQL["temp trigger"],
    },
}


def _uses_session(session: Session) -> None:
    with session:
        session.execute(text("DELETE FROM effects"))


_SQLALCHEMY: dict[str, SessionChange] = {
    "session info": lambda session: session.info.update(tenant="somebody"),
    "info of the connection": lambda session: session.connection().info.update(tenant="somebody"),
    "info of the pool": lambda session: session.connection().connection.record_info.update(  # type: ignore[union-attr]
        tenant="somebody"
    ),
    "session reset": Session.reset,
    "session invalidated": Session.invalidate,
    "no autoflush": lambda session: setattr(session, "autoflush", False),
    "no expiry": lambda session: setattr(session, "expire_on_commit", False),
    "session kept": _keep,
    "session closed": Session.close,
    "session rolled back": Session.rollback,
    "session committed": _suppressing(Session.commit),
    "nested session": lambda session: _keep(session.begin_nested()),
    "bind of nothing": lambda session: setattr(session, "bind", None),
    "second session": _second_session,
    "listener of the session": lambda session: event.listen(session, "before_flush", _swallow),
    "listener of the connection": lambda session: event.listen(
        session.connection(), "before_cursor_execute", _alter, retval=True
    ),
    "listener of the engine": lambda session: event.listen(
        session.get_bind(), "before_cursor_execute", _alter, retval=True
    ),
    "listener of the engine's commit": lambda session: event.listen(session.get_bind(), "commit", _swallow),
    "listener of the engine's begin": lambda session: event.listen(session.get_bind(), "begin", _swallow),
    "listener of the engine's rollback": lambda session: event.listen(session.get_bind(), "rollback", _swallow),
    "listener of the engine's statements": lambda session: event.listen(session.get_bind(), "before_execute", _swallow),
    "listener of the session's end": lambda session: event.listen(session, "after_transaction_end", _swallow),
    "listener of the session's rollback": lambda session: event.listen(session, "after_soft_rollback", _swallow),
    "pooled connection closed": lambda session: session.connection().connection.close(),
    "pooled connection invalidated softly": lambda session: session.connection().connection.invalidate(soft=True),
    "options of the engine": lambda session: session.get_bind().update_execution_options(  # type: ignore[union-attr]
        schema_translate_map={None: ELSEWHERE}
    ),
    "options of the connection": lambda session: session.connection().execution_options(
        schema_translate_map={None: ELSEWHERE}
    ),
    "options of streaming": lambda session: session.connection().execution_options(stream_results=True),
    "autocommit of the connection": _suppressing(
        lambda session: session.connection().execution_options(isolation_level="AUTOCOMMIT")
    ),
    "connection detached": lambda session: session.connection().detach(),
    "connection invalidated": lambda session: session.connection().invalidate(),
    "connection closed": lambda session: session.connection().close(),
    "connection kept": lambda session: _keep(session.connection()),
    "pooled connection kept": lambda session: _keep(session.connection().connection),
    "result unread": lambda session: _keep(session.execute(text("SELECT 1 UNION SELECT 2"))),
    "engine disposed": lambda session: session.get_bind().dispose(),  # type: ignore[union-attr]
    "thread uses the session": _in_thread(_uses_session, lambda session: session),
    "thread uses the connection": _in_thread(
        lambda connection: connection.execute(text("DELETE FROM effects")), lambda session: session.connection()
    ),
}


def _loop_changed(_: Session) -> Any:
    async def change() -> None:
        asyncio.get_running_loop().set_task_factory(lambda loop, work, **named: asyncio.Task(work, loop=loop, **named))

    return change()


def _loop_handler(_: Session) -> Any:
    async def change() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        asyncio.get_running_loop().set_debug(True)

    return change()


def _limit(resource_number: int, soft: int) -> None:
    resource.setrlimit(resource_number, (soft, resource.getrlimit(resource_number)[1]))


_PROCESS: dict[str, SessionChange] = {
    "context variable": lambda _: NOTE.set("somebody's"),
    "precision": lambda _: setattr(decimal.getcontext(), "prec", 3),
    "decimal context": lambda _: decimal.setcontext(decimal.Context(prec=2, rounding=decimal.ROUND_DOWN)),
    "decimal traps": lambda _: decimal.getcontext().traps.update({decimal.Inexact: True}),
    "folder": lambda _: os.chdir("/"),
    "environment": lambda _: os.environ.update(TENANT="somebody"),
    "environment, less": lambda _: os.environ.pop("PATH", None),
    "locale": lambda _: locale.setlocale(locale.LC_ALL, "C"),
    "warnings": lambda _: warnings.simplefilter("error"),
    "recursion limit": lambda _: sys.setrecursionlimit(3_333),
    "switch interval": lambda _: sys.setswitchinterval(0.5),
    "digits of int": lambda _: sys.set_int_max_str_digits(999),
    "default timeout": lambda _: socket.setdefaulttimeout(0.01),
    "collector": lambda _: gc.disable(),
    "file mask": lambda _: os.umask(0o777),
    "standard output": lambda _: setattr(sys, "stdout", io.StringIO()),
    "standard output closed": lambda _: sys.stdout.close(),
    "standard output without its file": lambda _: sys.stdout.detach(),  # type: ignore[union-attr]
    "encoding of standard output": lambda _: sys.stdout.reconfigure(  # type: ignore[union-attr]
        encoding="ascii", errors="strict"
    ),
    "import path": lambda _: sys.path.insert(0, "/nowhere"),
    "excepthook": lambda _: setattr(sys, "excepthook", print),
    "unraisable hook": lambda _: setattr(sys, "unraisablehook", print),
    "display hook": lambda _: setattr(sys, "displayhook", print),
    "hooks of generators": lambda _: sys.set_asyncgen_hooks(firstiter=print),
    "trace function": lambda _: sys.settrace(lambda *_: None),
    "profile function": lambda _: sys.setprofile(lambda *_: None),
    "signals blocked": lambda _: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]),
    "limit of files": lambda _: _limit(resource.RLIMIT_NOFILE, 64),
    "limit of a file's size": lambda _: _limit(resource.RLIMIT_FSIZE, 100_000_000),
    "thresholds of the collector": lambda _: gc.set_threshold(1, 1, 1),
    "debugging of the collector": lambda _: gc.set_debug(gc.DEBUG_SAVEALL),
    "stack of threads": lambda _: threading.stack_size(65_536),
    "logging disabled": lambda _: logging.disable(),
    "signal handler": lambda _: signal.signal(signal.SIGUSR1, signal.SIG_IGN),
    "alarm": lambda _: signal.setitimer(signal.ITIMER_REAL, 300),
    "timer of processor time": lambda _: signal.setitimer(signal.ITIMER_PROF, 300),
    "timer of the process's time": lambda _: signal.setitimer(signal.ITIMER_VIRTUAL, 300),
    "trace function of threads": lambda _: threading.settrace(lambda *_: None),
    "profile function of threads": lambda _: threading.setprofile(lambda *_: None),
    "limit of threads": lambda _: _limit(resource.RLIMIT_NPROC, 9_999),
    "limit of data": lambda _: _limit(resource.RLIMIT_DATA, 2**40),
    "limit of the stack": lambda _: _limit(resource.RLIMIT_STACK, 2**20),
    "task factory of the loop": _loop_changed,
    "exception handler of the loop": _loop_handler,
}


def _misdeeds() -> Iterator[Leftover]:
    for name, value in _SETTINGS.items():
        yield Leftover(f"SET {name}", _suppressing(_sql(f"SET {name} = {value}")), (POSTGRES,))
    for name, statement in _SESSIONS.items():
        yield Leftover(name, _suppressing(_sql(statement)), (POSTGRES,))
    for name, act in _PSYCOPG.items():
        yield Leftover(name, act, (POSTGRES,))
    for name, value in _PRAGMAS.items():
        yield Leftover(f"PRAGMA {name}", _sql(f"PRAGMA {name} = {value}"), (SQLITE,))
    for name, statement in _SQLITE_SQL.items():
        yield Leftover(name, _suppressing(_sql(statement)), (SQLITE,))
    for name, act in _SQLITE.items():
        yield Leftover(name, act, (SQLITE,))
    for database, statements in _SECOND.items():
        for name, statement in statements.items():
            yield Leftover(f"second connection: {name}", _second_connection(statement), (database,))
            in_a_thread = _second_connection_in_a_thread(statement)
            yield Leftover(f"second connection of a thread: {name}", in_a_thread, (database,))
    for name, act in (_SQLALCHEMY | _PROCESS).items():
        yield Leftover(name, act)


MISDEEDS = tuple(_misdeeds())


def misdeeds_of_threads(database: str) -> list[Leftover]:
    """Return the misdeeds of a handler's threads on a kind of database.

    Without those on libpq's own connection to Postgres, which docs/guarantees.md excludes.
    """
    return [case for case in misdeeds_on(database) if case.name.startswith("thread ") and "libpq" not in case.name]


def misdeeds_on(database: str) -> list[Leftover]:
    """Return the misdeeds of handlers on a kind of database."""
    return [misdeed for misdeed in MISDEEDS if database in misdeed.databases]


# What the next message finds.

_SESSION_LOOKS = {
    POSTGRES: {
        "settings": "SELECT name, setting FROM pg_catalog.pg_settings",
        "role": "SELECT current_user, session_user, current_setting('role')",
        "search path": "SELECT current_schemas(false)",
        "temp relations": "SELECT relname FROM pg_class WHERE relnamespace = pg_my_temp_schema()",
        "temp functions": "SELECT proname FROM pg_proc WHERE pronamespace = pg_my_temp_schema()",
        "temp types": "SELECT typname FROM pg_type WHERE typnamespace = pg_my_temp_schema()",
        "prepared": "SELECT name FROM pg_prepared_statements",
        "cursors": "SELECT name FROM pg_cursors WHERE name <> ''",
        "channels": "SELECT pg_listening_channels()",
        "locks": "SELECT objid FROM pg_locks WHERE locktype = 'advisory'",
        "isolation": "SELECT current_setting('transaction_isolation'), current_setting('transaction_read_only')",
        "types": "SELECT 5::int4, 5::int8, 'x'::text, true, '{\"a\"\\:1}'::json, '1 day'::interval, 0.1::float8",
    },
    SQLITE: {
        # "like" shows this one, which cannot be read.
        **{name: f"PRAGMA {name}" for name in _PRAGMAS if name != "case_sensitive_like"},
        "temp relations": "SELECT name FROM sqlite_temp_schema",
        "databases": "SELECT name FROM pragma_database_list",
        "functions": "SELECT count(*) FROM pragma_function_list",
        "collations": "SELECT name FROM pragma_collation_list",
        "like": "SELECT 'a' LIKE 'A', lower('ABC'), 'a' = 'A' COLLATE NOCASE, count(1)",
        "types": "SELECT 5, 'x', 0.5, x'00', NULL",
    },
}


def session_looks(session: Session) -> dict[str, object]:
    """Return the state that a handler's SQL sees, by name."""
    looks = _SESSION_LOOKS[session.get_bind().dialect.name]
    return {name: sorted(map(str, session.execute(text(sql)).all())) for name, sql in looks.items()}


def driver_looks(session: Session) -> dict[str, object]:
    """Return the state of the driver that a handler sees."""
    driver = driver_of(session)
    names = {
        POSTGRES: (
            *("autocommit", "isolation_level", "read_only", "deferrable", "row_factory", "cursor_factory"),
            *("server_cursor_factory", "prepare_threshold", "prepared_max"),
        ),
        SQLITE: ("isolation_level", "row_factory", "text_factory", "in_transaction", "autocommit"),
    }[session.get_bind().dialect.name]
    found: dict[str, object] = {name: str(getattr(driver, name)) for name in names}
    found["row"] = driver.execute("SELECT 1, 'x'").fetchone()
    found["others"] = sorted(vars(driver).keys() & {"tenant", "execute", "tpc_prepare"})
    if isinstance(driver, sqlite3.Connection):
        found["limits"] = [driver.getlimit(limit) for limit in range(11)]
        with suppress(sqlite3.OperationalError):  # a build may have none
            found["tokenizer"] = driver.execute("SELECT hex(fts3_tokenizer(?))", ["simple"]).fetchone()
        found["configuration"] = [driver.getconfig(option) for option in range(1002, 1018)]
    else:
        found["dumped"] = driver.execute("SELECT %s::text", ["x"]).fetchone()
        found["pipeline"] = str(driver.pgconn.pipeline_status)
    return found


def _others_info(session: Session) -> list[str]:
    return [str(name) for name in session.info if not str(name).startswith("sluice")]


def sqlalchemy_looks(session: Session) -> dict[str, object]:
    """Return the state of the session that a handler sees."""
    bind: Any = session.get_bind()
    options = {name: value for name, value in bind.get_execution_options().items() if name.startswith("schema")}
    of_connection = sorted(session.connection().get_execution_options())
    return {
        "session": (
            session.autoflush,
            session.expire_on_commit,
            sorted(_others_info(session)),
            session.in_nested_transaction(),
        ),
        "options": (options, of_connection),
        "infos": [
            [name for name in info if not str(name).startswith("sluice")]
            for info in (session.connection().info, session.connection().connection.record_info or {})
        ],
        "identities": len(session.identity_map),
    }


def _function_of(hook: Any) -> Any:
    """Return a hook without the event loop that it belongs to."""
    return getattr(hook, "__func__", hook)


def _print_error() -> str | None:
    """Return what a handler meets that prints; None if nothing."""
    try:
        print("ä", end="", flush=True)
    except Exception as error:
        return repr(error)
    return None


def process_looks() -> dict[str, object]:
    """Return the state of thread and process that a handler sees."""
    mask = os.umask(0o22)
    os.umask(mask)
    return {
        "context": NOTE.get(),
        "decimal": str(decimal.getcontext()),
        "folder": str(Path.cwd()),
        "environment": {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")},
        "locale": locale.setlocale(locale.LC_ALL),
        "warnings": list(map(str, warnings.filters)),
        "limits": (sys.getrecursionlimit(), sys.getswitchinterval(), sys.get_int_max_str_digits()),
        "timeout": socket.getdefaulttimeout(),
        "collector": (gc.isenabled(), gc.get_threshold(), gc.get_debug()),
        "mask": mask,
        "streams": (sys.stdout, sys.stderr),
        "path": list(sys.path),
        "hooks": (sys.excepthook, sys.unraisablehook, sys.displayhook, *map(_function_of, sys.get_asyncgen_hooks())),
        "functions of the thread": (sys.gettrace(), sys.getprofile()),
        "signals blocked": signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        "limits of the system": [
            resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))
            for name in ("NOFILE", "FSIZE", "NPROC", "DATA", "STACK")
        ],
        "stack of threads": threading.stack_size(),
        "logging": logging.root.isEnabledFor(logging.CRITICAL),
        "signal": signal.getsignal(signal.SIGUSR1),
        "timers": [
            signal.getitimer(timer)[0] > 0 for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
        ],
        "print": _print_error(),
        "functions of new threads": (threading.gettrace(), threading.getprofile()),
    }


def engine_looks(engine: Engine) -> dict[str, Any]:
    """Return the contents of the database."""
    with engine.connect() as connection:
        return {
            "effects": connection.execute(text("SELECT consumer, group_id, seq FROM effects ORDER BY id")).all(),
            "audit": connection.execute(text("SELECT count(*) FROM audit")).scalar_one(),
        }
