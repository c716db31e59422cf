"""Upgrade the tables of outbox and inbox, print their SQL, and report where a database's tables differ.

After the upgrade, a command of the project may make the project's own tables (`Environment.migrate`).
"""

import fcntl
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from sqlalchemy import Engine, MetaData, text

from sluice.cli.services.running import await_database, log_to
from sluice.clock import SystemClock
from sluice.declaration import load_task_declaration
from sluice.errors import ConfigError, EndpointError
from sluice.messaging import failpoints
from sluice.messaging.database import connections, engines, migrations, roles, schema, server_settings
from sluice.messaging.database.migrations import VersionedTables
from sluice.messaging.database.rotation import is_named, runtime_engine
from sluice.messaging.failpoints import Failpoint
from sluice.messaging.inbox import tables as inbox_tables
from sluice.messaging.outbox import tables as outbox_tables
from sluice.messaging.waiting import Stop, Wait
from sluice.terminal import output
from sluice.terminal.exits import PARTLY
from sluice.terminal.logger import Logger

_log = Logger()
_PARTS = {tables.part: tables for tables in (outbox_tables.versioned, inbox_tables.versioned)}
_ANSWER_SECONDS = 3_600  # timeout of one statement; a step may make an index on a large table
_MIGRATION_LOCK = 0x736C756963656D  # number of our advisory lock in Postgres: "sluicem" in ASCII
_LOOK_SECONDS = 0.2  # between two tries to take the lock, and between two looks whether the command has ended
_END_SECONDS = 20  # between SIGTERM and SIGKILL to the command; ECS kills the task after 30


def upgrade(
    *,
    part: str | None,
    wait_seconds: float,
    has_roles: bool,
    migration: str | None,
    environment_name: str,
    declaration: Path | None,
    dsn: str | None,
    log_level: str,
) -> None:
    """Upgrade the tables of one part, or of both; then, if requested, make roles and run the project's migration.

    Each argument is the option of that name of `sluice schema apply`.
    """
    log_to(sys.stderr, log_level)
    command = None if migration is None else _split_command(migration)
    stop, failpoint = Stop(), failpoints.from_environment(os.environ, failpoints.SCHEMA)
    stop.on_signals()
    # The region is for a token or a secret. With a URL no declaration is read: a producer may have none.
    has_region = not dsn and is_named()
    region = load_task_declaration(declaration).environment(environment_name).region if has_region else ""
    engine = runtime_engine(region, dsn)
    connections.end_waits(engine, _ANSWER_SECONDS)
    ends_at = SystemClock().monotonic() + wait_seconds
    try:
        for tables in _PARTS.values() if part is None else [_PARTS[part]]:
            _upgrade(engine, tables, ends_at=ends_at, wait=stop, failpoint=failpoint)
            output.line(f"the {tables.part}'s tables are as this version needs them", is_error=True)
        if has_roles:
            _create_roles(engine, ends_at=ends_at, wait=stop)
        if command is not None:
            with _migration_lock(engine, stop):
                _run_migration(command, os.environ | ({"SLUICE_DSN": dsn} if dsn else {}), stop)
    finally:
        engine.dispose()


def print_sql(kind: str, part: str | None, version: int | None) -> None:
    """Print the SQL that creates the tables of one part, or of both; with a version, the SQL that upgrades from it.

    `kind` is `postgresql` or `sqlite`.
    """
    parts = _PARTS.values() if part is None else [_PARTS[part]]
    if version is None:
        output.lines("\n".join(schema.sql(kind, tables.metadata) for tables in parts).removesuffix("\n"))
    else:
        output.lines("\n\n".join(line for tables in parts for line in migrations.upgrade_sql(kind, tables, version)))


def _upgrade(engine: Engine, tables: VersionedTables, *, ends_at: float, wait: Wait, failpoint: Failpoint) -> None:
    """Upgrade the tables of one part; while the database does not answer, try again until `ends_at`.

    Raises:
        EndpointError: the process was asked to stop.
        DBAPIError: the database refused, or did not answer until `ends_at`.
    """

    def upgrade_once() -> None:
        with engines.reading(engine) as connection:
            server_settings.require(connection, {})
        for version in migrations.upgrade(engine, tables, failpoint=failpoint):
            _log.info("upgraded", part=tables.part, version=version)

    if not await_database(upgrade_once, wait, ends_at=ends_at):
        raise EndpointError(f"stopped before the {tables.part}'s tables were upgraded; run it again")


def _create_roles(engine: Engine, *, ends_at: float, wait: Wait) -> None:
    """Make the database's users with the rights that each part needs, and log each statement.

    Raises:
        EndpointError: the process was asked to stop.
        ConfigError, DBAPIError: the users cannot be made.
    """

    def create_once() -> None:
        with engine.begin() as connection:
            statements = roles.create(connection)
        for statement in statements:
            _log.info("changed a role", statement=statement)

    if not await_database(create_once, wait, ends_at=ends_at):
        raise EndpointError("stopped before the database's roles were made; run it again")
    output.line("the database's roles have the rights that they need", is_error=True)


def _split_command(migration: str) -> list[str]:
    """Return the words of the command in `--migrate`, split as a shell does."""
    try:
        command = shlex.split(migration)
    except ValueError as error:
        raise ConfigError(f"--migrate is {migration!r} ({error}), allowed is a command; correct its quotes") from error
    if not command:
        raise ConfigError("--migrate is empty, allowed is a command such as 'alembic upgrade head'; leave it out")
    return command


@contextmanager
def _migration_lock(engine: Engine, wait: Wait) -> Iterator[None]:
    """Hold the database's lock for migrations inside the `with` block; other processes wait for it.

    The wait ends early when the process is asked to stop. On Postgres the lock belongs to a transaction, so that it
    holds behind a pooler, too. The transaction reads no table, so that it keeps back neither vacuum nor an index that
    is made concurrently; the timeouts of idle transactions are switched off for it.
    https://www.postgresql.org/docs/18/explicit-locking.html#ADVISORY-LOCKS (read 2026-11-26)
    """
    if engines.is_in_memory(engine.url):
        yield
        return
    if engine.dialect.name != "postgresql":
        engine.dispose()  # closing the file below would end the locks of open SQLite connections of this process
        with Path(str(engine.url.database)).open("rb") as file:
            _await_lock(partial(_try_lock, file.fileno()), wait)
            yield
        return
    with engine.connect() as connection:
        timeouts = "name IN ('idle_in_transaction_session_timeout', 'transaction_timeout')"
        connection.execute(text(f"SELECT set_config(name, '0', true) FROM pg_settings WHERE {timeouts}"))  # noqa: S608
        lock = text(f"SELECT pg_try_advisory_xact_lock({_MIGRATION_LOCK})")
        _await_lock(lambda: connection.execute(lock).scalar_one(), wait)
        yield


def _await_lock(take_lock: Callable[[], bool], wait: Wait) -> None:
    """Call `take_lock` until it returns True, or until the process is asked to stop."""
    if take_lock():
        return
    _log.info("another process runs the project's migration; it is waited for")
    while not (wait.is_stopped() or take_lock()):
        wait.wait(_LOOK_SECONDS)


def _try_lock(file: int) -> bool:
    """Try to lock a file, and return whether this process has the lock now; `file` is its descriptor."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _run_migration(command: Sequence[str], variables: Mapping[str, str], wait: Wait) -> None:
    """Run the project's migration to its end; when this process is asked to stop, end the migration first.

    Raises:
        ConfigError: the command cannot be started.
        EndpointError: the command failed, or was stopped.
    """
    if wait.is_stopped():
        raise EndpointError(f"stopped before `{shlex.join(command)}` began; run it again")
    try:
        child = subprocess.Popen(command, env=variables)
    except OSError as error:
        raise ConfigError(
            f"--migrate is `{shlex.join(command)}`, which cannot be run ({error.strerror}: {command[0]}); correct"
            " Environment.migrate in the declaration"
        ) from error
    while child.poll() is None and not wait.is_stopped():
        wait.wait(_LOOK_SECONDS)
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        raise EndpointError(f"stopped while `{shlex.join(command)}` ran; run it again")
    if child.returncode:
        code = child.returncode
        ended = f"exit code {code}" if code > 0 else signal.Signals(-code).name
        raise EndpointError(
            f"`{shlex.join(command)}` ended with {ended}, and says why above; correct it, and run this again"
        )
    output.line(f"`{shlex.join(command)}` has made the tables of this project", is_error=True)


def report_drift(engine: Engine, metadata: MetaData) -> None:
    """Print each difference between a database's tables and those that this version needs; exit with 1 if there is one.

    Settings of the server and collations that would break a promise count as differences.
    """
    with engine.connect() as connection:
        found = schema.drift(connection, metadata)
        found += server_settings.faults(connection, dict.fromkeys(metadata.tables, ""))
        found += server_settings.collation_faults(connection)
    for sentence in found:
        output.line(sentence)
    if found:
        sys.exit(PARTLY)
    output.line("the tables are as this version needs them", is_error=True)
