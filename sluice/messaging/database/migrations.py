"""The version of the tables, and the steps from one version to the next.

Version 1 is made from the metadata. Each later version has a step: statements that change existing tables. New tables
are made from the metadata. Each step is one transaction with the row that records its version, and begins with a lock:
if several processes upgrade at once, one of them does the step. If that process dies, its step is rolled back, and
another process does it.

A project's own migrations may have made the tables, or have upgraded them without the record. Then the version is
recognized: the steps from each version on are tried in a transaction that is rolled back, and the version fits if the
result is this code's tables.

During a rolling deployment the previous version of the code works on the new tables. So a step only adds: tables,
columns that may be NULL or have a default, and indexes that are not unique; or it changes the collation of keys, which
no code names. A step that removes something names the oldest code that does not need it (`readable_from`), which is
older than the step itself. So at least two versions of the code can use any tables.

https://www.postgresql.org/docs/18/explicit-locking.html#ADVISORY-LOCKS, https://www.sqlite.org/lang_transaction.html
(read 2026-11-23)
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from sqlalchemy import Column, Connection, Engine, Integer, MetaData, Table, Text, inspect, select, text
from sqlalchemy.exc import DBAPIError

from sluice.errors import ConfigError
from sluice.messaging.database import engines, failures, schema
from sluice.messaging.errors import OutboxError
from sluice.messaging.failpoints import Failpoint, do_nothing

_LOCK = 0x736C75696365  # "sluice": of all advisory locks of a database this one is ours
_LOCK_SECONDS = 10  # an ALTER TABLE that waits longer would keep all others from the table meanwhile

_UNBOUNDED = text(  # a role may have short ones; older servers lack the second
    "SELECT set_config(name, '0', true) FROM pg_settings WHERE name IN ('statement_timeout', 'transaction_timeout')"
)

versions = Table(
    "sluice_schema",
    MetaData(),
    Column("part", Text, primary_key=True),
    Column("version", Integer, nullable=False),
    Column("readable_from", Integer, nullable=False),
    comment="the version of each part's tables, and the oldest version of the code that can use them",
)


@dataclass(frozen=True, slots=True)
class Step:
    """A migration step from one version of the tables to the next.

    Args:
        statements: SQL that works on both kinds of database.
        readable_from: the oldest version of the code that can use the tables after the step.
        recollates: whether the step lets Postgres compare keys byte by byte; SQLite always does.
    """

    statements: tuple[str, ...] = ()
    readable_from: int = 1
    recollates: bool = False


@dataclass(frozen=True, slots=True)
class VersionedTables:
    """The tables of one part, outbox or inbox, and the steps to the version this code needs.

    Args:
        metadata: the tables of the last version.
        steps: from version 1 to 2, from 2 to 3, and so on.
    """

    part: str
    metadata: MetaData
    steps: tuple[Step, ...] = ()

    def __post_init__(self) -> None:
        oldest = [1, *(step.readable_from for step in self.steps)]
        assert all(before <= after for before, after in pairwise(oldest)), "old code does not become able again"
        assert all(step.readable_from <= version for version, step in enumerate(self.steps, 1)), "it runs meanwhile"

    @property
    def version(self) -> int:
        """Return the version this code needs."""
        return 1 + len(self.steps)

    @property
    def readable_from(self) -> int:
        """Return the oldest version of the code that can use the tables this code makes."""
        return self.steps[-1].readable_from if self.steps else 1


@dataclass(frozen=True, slots=True)
class TablesVersion:
    """The version of a part's tables as the database has it."""

    version: int
    readable_from: int


def upgrade(engine: Engine, tables: VersionedTables, *, failpoint: Failpoint = do_nothing) -> Iterator[int]:
    """Bring tables to this code's version, and yield each version once it is committed; none if there is nothing to do.

    Safe to repeat, to run in many processes at once, and while workers and relays use the tables. Tables of a later
    version that this code can use are left as they are.

    Raises:
        ConfigError: the tables are too new for this code, or so old that the code which may be running could not use
            the new ones.
        OutboxError: the tables have been changed by somebody else, so that this code cannot use them.
        DBAPIError: a step failed; the steps whose versions were yielded before are committed.
    """
    version = _upgrade_once(engine, tables, failpoint)
    while version is not None:
        yield version
        version = _upgrade_once(engine, tables, failpoint)


def upgrade_sql(kind: str, tables: VersionedTables, version: int) -> Iterator[str]:
    """Yield the statements that bring tables of an older version to this code's, and record the version.

    Args:
        kind: the kind of database: sqlite or postgresql.
        tables: the tables that this code needs.
        version: the version of the existing tables.

    Raises:
        ConfigError: there is no such older version.
        OutboxError: there is no SQL for this kind of database.
    """
    if not 1 <= version < tables.version:
        raise ConfigError(
            f"the {tables.part}'s tables are of version {version}, allowed is 1 to {tables.version - 1}; this code's"
            f" are of version {tables.version}"
        )
    steps = tables.steps[version - 1 :]
    statements = (statement for step in steps for statement in step.statements)
    yield from schema.upgrade_sql(kind, tables.metadata, statements, recollates=any(step.recollates for step in steps))
    yield from schema.upgrade_sql(kind, versions.metadata, (), recollates=False)
    values = {"part": tables.part, "version": tables.version, "readable_from": tables.readable_from}
    for statement in (versions.delete().where(versions.c.part == tables.part), versions.insert().values(values)):
        yield f"{' '.join(str(statement.compile(compile_kwargs={'literal_binds': True})).split())};"


def require(connection: Connection, tables: VersionedTables) -> None:
    """Refuse tables that this code cannot use. Tables without a recorded version are compared with the needed ones.

    Raises:
        ConfigError: the tables are too new for this code.
        OutboxError: the tables are missing, of an older version, or changed by somebody else.
    """
    found = _read_version(connection, tables)
    if found is not None:
        _require_readable(tables, found)
        if found.version < tables.version:
            raise OutboxError(
                f"the {tables.part}'s tables are of version {found.version}, this code needs {tables.version}; run"
                f" `sluice schema apply {tables.part}`"
            )
    _require_no_drift(connection, tables)


def _upgrade_once(engine: Engine, tables: VersionedTables, failpoint: Failpoint) -> int | None:
    """Do the next step in a transaction; return the version that it leads to, None if there is nothing to do."""
    with engine.begin() as connection:
        lock(connection)
        failpoint("before_step")
        found = _read_version(connection, tables)
        if found is None:
            version = _create_tables(connection, tables)
        else:
            _require_readable(tables, found)
            if found.version >= tables.version:
                _require_no_drift(connection, tables)
                return None
            _require_running_code(tables, found)
            tables.metadata.create_all(connection)
            version = found.version + 1
            if not _take_step(connection, tables, found.version):
                version = _recognize_version(connection, tables)
        _record_version(connection, tables, version, is_first=found is None)
        failpoint("in_step")
    failpoint("after_step")
    return version


def _create_tables(connection: Connection, tables: VersionedTables) -> int:
    """Create tables without a recorded version, or recognize existing ones; return their version."""
    versions.create(connection, checkfirst=True)
    names = {table.name for table in tables.metadata.sorted_tables}
    is_new = not names & set(inspect(connection).get_table_names())
    tables.metadata.create_all(connection)
    return tables.version if is_new else _recognize_version(connection, tables)


def _take_step(connection: Connection, tables: VersionedTables, version: int) -> bool:
    """Bring tables of a version to the next one; return False, and change nothing, if they are not of that version.

    Raises:
        OutboxError: a key exists twice, so its index cannot be created.
        DBAPIError: the database failed for another reason: a lock timeout, or a missing right.
    """
    step = tables.steps[version - 1]
    try:
        with connection.begin_nested():
            for statement in step.statements:
                connection.execute(text(statement))
            if step.recollates and connection.dialect.name == "postgresql":
                schema.recollate(connection, tables.metadata)
    except DBAPIError as error:
        if not failures.does_not_fit(error):
            raise
        return False
    return True


def _recognize_version(connection: Connection, tables: VersionedTables) -> int:
    """Return the version of tables that somebody else made: the one from which the steps lead to this code's tables.

    Raises:
        OutboxError: the steps lead there from no version.
    """
    found = schema.drift(connection, tables.metadata)
    for version in range(tables.version, 0, -1):
        tried = connection.begin_nested()
        is_whole = all(_take_step(connection, tables, left) for left in range(version, tables.version))
        fits = is_whole and not schema.drift(connection, tables.metadata)
        tried.rollback()
        if fits:
            return version
    raise OutboxError(
        f"the {tables.part}'s tables were made by somebody else and are of no version up to {tables.version}"
        f" ({found[0]}); bring them to that of `sluice schema sql`"
    )


def lock(connection: Connection) -> None:
    """Keep other processes from upgrading until the transaction ends. A transaction of SQLite has begun with a lock.

    A process that has waited for the lock must see what the process before it committed. Under a stricter isolation
    level, which a database or a role may have by default, it would not.
    https://www.postgresql.org/docs/18/transaction-iso.html (read 2026-11-23)
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SET TRANSACTION ISOLATION LEVEL READ COMMITTED"))
        connection.execute(text(f"SET LOCAL lock_timeout = '{_LOCK_SECONDS}s'"))
        connection.execute(_UNBOUNDED)
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))


def _read_version(connection: Connection, tables: VersionedTables) -> TablesVersion | None:
    """Return the recorded version of a part's tables; None if none is recorded."""
    if not inspect(connection).has_table(versions.name):
        return None
    columns = (versions.c.version, versions.c.readable_from)
    row = connection.execute(select(*columns).where(versions.c.part == tables.part)).one_or_none()
    return None if row is None else TablesVersion(row.version, row.readable_from)


def _record_version(connection: Connection, tables: VersionedTables, version: int, *, is_first: bool) -> None:
    readable_from = 1 if version == 1 else tables.steps[version - 2].readable_from
    values = {"version": version, "readable_from": readable_from}
    if is_first:
        connection.execute(versions.insert().values(part=tables.part, **values))
    else:
        connection.execute(versions.update().where(versions.c.part == tables.part).values(values))


def _require_readable(tables: VersionedTables, found: TablesVersion) -> None:
    """Refuse tables that are too new for this code."""
    if found.readable_from > tables.version:
        raise ConfigError(
            f"the {tables.part}'s tables are of version {found.version}, which needs code of version"
            f" {found.readable_from} or later, and this code is of version {tables.version}; deploy a later Sluice"
        )


def _require_running_code(tables: VersionedTables, found: TablesVersion) -> None:
    """Refuse an upgrade after which code of the tables' present version, which may be running, could not use them."""
    if tables.readable_from > found.version:
        raise ConfigError(
            f"the {tables.part}'s tables are of version {found.version}, and code of that version may be running, which"
            f" cannot use version {tables.version}; deploy a Sluice of version {tables.readable_from} first"
        )


def _require_no_drift(connection: Connection, tables: VersionedTables) -> None:
    """Refuse tables that differ from those of this version."""
    found = schema.drift(connection, tables.metadata)
    if not found:
        return
    if len(schema.missing_tables(connection, tables.metadata)) == len(tables.metadata.tables):
        raise OutboxError(engines.NO_TABLES.format(part=tables.part))
    raise OutboxError(
        f"the {tables.part}'s tables are not as this version needs them ({found[0]}); see `sluice"
        f" {tables.part} check`, and `sluice schema apply {tables.part}`"
    )
