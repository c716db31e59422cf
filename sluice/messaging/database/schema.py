"""Tables as SQL, and the differences between them and a database.

Hosts own their migrations: they copy the SQL into them, and `outbox check` and `inbox check` later compare the tables
with the needs of this version. Producers need the outbox's tables, consumers the inbox's; both fit into one database.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Connection,
    Dialect,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    TextClause,
    UniqueConstraint,
    func,
    inspect,
    select,
    text,
)
from sqlalchemy.dialects.postgresql.base import PGDialect
from sqlalchemy.dialects.sqlite.base import SQLiteDialect
from sqlalchemy.engine.interfaces import ReflectedIndex
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import ColumnCollectionConstraint, CreateIndex, CreateTable
from sqlalchemy.types import TypeEngine

from sluice.messaging.database import failures
from sluice.messaging.errors import OutboxError

NUMBER = BigInteger().with_variant(Integer, "sqlite")
"""A number the database gives by itself: SQLite does so only for INTEGER."""
KEY = Text().with_variant(Text(collation="C"), "postgresql")
"""Text in a key: compared byte by byte, as SQLite does; a system's own collation may change with the system.

https://www.postgresql.org/docs/18/collation.html (read 2026-11-26)
"""
_COLLATIONS = text(
    "SELECT attname, collname FROM pg_attribute JOIN pg_collation ON pg_collation.oid = attcollation"
    " WHERE attrelid = CAST(:table AS regclass) AND NOT attisdropped"
)
_OTHER_COLLATIONS = text(
    "SELECT part.name, part.coll FROM pragma_index_list(:table) AS made, pragma_index_xinfo(made.name) AS part"
    " WHERE part.key AND part.coll <> 'BINARY'"
)
_INVALID = text(
    "SELECT indexed.relname FROM pg_index JOIN pg_class AS indexed ON indexed.oid = indexrelid"
    " WHERE NOT indisvalid AND indrelid = CAST(:table AS regclass)"
)
# An insert with ON CONFLICT refuses it.
# https://www.postgresql.org/docs/18/sql-insert.html#SQL-ON-CONFLICT (read 2026-11-27)
_DEFERRABLE = text(
    "SELECT indexed.relname FROM pg_index JOIN pg_class AS indexed ON indexed.oid = indexrelid"
    " WHERE NOT indimmediate AND indrelid = CAST(:table AS regclass)"
)
_PARTIAL = {"postgresql_where", "sqlite_where"}
_MAY_READ = text("SELECT has_table_privilege(to_regclass(:table), 'SELECT')")
_IS_THERE = text("SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = :table")
_NAMED_MAX = 10
_KINDS = (Boolean, Integer, String)
"""Kinds of column types: a column of one kind cannot hold a value of another."""
_DIALECTS: dict[str, Dialect] = {"sqlite": SQLiteDialect(), "postgresql": PGDialect()}  # type: ignore[no-untyped-call]


def partial_index(name: str, *columns: str, where: str) -> Index:
    """Return an index of the rows that meet a condition, for either kind of database."""
    return Index(name, *columns, sqlite_where=text(where), postgresql_where=text(where))


def may_read(connection: Connection, table: Table) -> bool:
    """Return whether a table exists and may be read.

    https://www.postgresql.org/docs/18/functions-info.html (of no table NULL; read 2026-11-27)
    """
    sql = _MAY_READ if connection.dialect.name == "postgresql" else _IS_THERE
    return bool(connection.execute(sql, {"table": table.name}).scalar_one())


def names() -> tuple[str, ...]:
    """Return the kinds of database there is SQL for."""
    return tuple(_DIALECTS)


def sql(name: str, metadata: MetaData) -> str:
    """Return the statements that create tables and their indexes in a kind of database.

    Raises:
        OutboxError: there is no SQL for this kind of database.
    """
    dialect = _dialect(name)
    statements = []
    for table in metadata.sorted_tables:
        statements.append(_compile(CreateTable(table), dialect))
        statements += [_compile(CreateIndex(index), dialect) for index in sorted(table.indexes, key=_name)]
    return "\n\n".join(statements) + "\n"


def upgrade_sql(name: str, metadata: MetaData, steps: Iterable[str], *, recollates: bool) -> Iterator[str]:
    """Yield the statements that bring tables of an older version to the one that `metadata` has.

    Args:
        name: the kind of database.
        metadata: the tables of the last version.
        steps: SQL statements of the steps between the versions.
        recollates: whether one of the steps lets Postgres compare keys byte by byte.

    Raises:
        OutboxError: there are none for this kind of database.
    """
    dialect = _dialect(name)
    for table in metadata.sorted_tables:
        yield _compile(CreateTable(table, if_not_exists=True), dialect)
    yield from (f"{statement};" for statement in steps)
    for table in metadata.sorted_tables:
        for index in sorted(table.indexes, key=_name):
            yield _compile(CreateIndex(index, if_not_exists=True), dialect)
        if recollates and dialect.name == "postgresql" and _keys(table):
            yield from (f"{statement};" for statement in _recollations(table))


def _dialect(name: str) -> Dialect:
    if name not in _DIALECTS:
        raise OutboxError(f"database is {name!r}, allowed is one of {', '.join(_DIALECTS)}")
    return _DIALECTS[name]


def _name(index: Index) -> str:
    return index.name or ""


def _compile(statement: CreateTable | CreateIndex, dialect: Dialect) -> str:
    """Return a statement as SQL that ends with a semicolon, indented by spaces."""
    lines = str(statement.compile(dialect=dialect)).strip().splitlines()
    return "\n".join(line.rstrip().replace("\t", "    ") for line in lines) + ";"


def drift(connection: Connection, metadata: MetaData) -> list[str]:
    """Return a sentence for each difference between a database's tables and the needed ones; empty if they fit."""
    missing = missing_tables(connection, metadata)
    sentences = [f"table {table.name} is missing" for table in missing]
    for table in metadata.sorted_tables:
        if table not in missing:
            sentences += _column_drift(connection, table) + _index_drift(connection, table)
    return sentences


def missing_tables(connection: Connection, metadata: MetaData) -> list[Table]:
    """Return the needed tables that a database does not have."""
    existing = set(inspect(connection).get_table_names())
    return [table for table in metadata.sorted_tables if table.name not in existing]


def _column_drift(connection: Connection, table: Table) -> list[str]:
    """Return a sentence for each column that is missing, of another kind, or unknown and required."""
    seen = {column["name"]: column for column in inspect(connection).get_columns(table.name)}
    sentences = []
    for column in table.columns:
        if column.name not in seen:
            sentences.append(f"column {table.name}.{column.name} is missing")
            continue
        there = seen[column.name]
        wanted = column.type.dialect_impl(connection.dialect)
        if not _accepts_values_of(connection, there["type"], wanted):
            expected = column.type.compile(connection.dialect)
            sentences.append(f"column {table.name}.{column.name} is {there['type']}, expected is {expected}")
        if bool(there["nullable"]) and not column.nullable:
            sentences.append(f"column {table.name}.{column.name} may be NULL, expected is NOT NULL")
        if column.server_default is not None and there["default"] is None:
            sentences.append(f"column {table.name}.{column.name} has no default")
    sentences += _collation_drift(connection, table)
    extra = [name for name, column in seen.items() if name not in table.columns and _is_required(column)]
    return sentences + [f"column {table.name}.{name} is required and not known here" for name in extra]


def _accepts_values_of(connection: Connection, there: TypeEngine[Any], wanted: TypeEngine[Any]) -> bool:
    """Return whether a column of type `there` accepts every value of the wanted type; SQLite's accept any length."""
    if not any(isinstance(there, kind) and isinstance(wanted, kind) for kind in _KINDS):
        return False
    is_short = isinstance(wanted, BigInteger) and not isinstance(there, BigInteger)
    return connection.dialect.name == "sqlite" or not (is_short or getattr(there, "length", None))


def _collation_drift(connection: Connection, table: Table) -> list[str]:
    """Return a sentence for each key that is not compared byte by byte: an index might treat two values as equal."""
    if connection.dialect.name == "postgresql":
        seen = dict(map(tuple, connection.execute(_COLLATIONS, {"table": table.name})))
        expected = "C"
    else:
        rows = connection.execute(_OTHER_COLLATIONS, {"table": table.name})
        seen, expected = dict(map(tuple, rows)), "BINARY"
    return [
        f'column {table.name}.{column.name} has the collation "{seen[column.name]}", expected is "{expected}"'
        for column in table.columns
        if column.type is KEY and seen.get(column.name, expected) != expected
    ]


def recollate(connection: Connection, metadata: MetaData) -> None:
    """Let Postgres compare the keys of tables byte by byte: it rebuilds their indexes and renews its statistics.

    An earlier change of the system's collation may have broken a unique index. So keys that exist twice are looked for
    first, in every row and without an index, while everybody may write.
    https://www.postgresql.org/docs/18/sql-altertable.html, https://www.postgresql.org/docs/18/collation.html
    (read 2026-11-26)

    Raises:
        OutboxError: a key is there twice, or a view, a policy or the like depends on one.
    """
    existing = set(inspect(connection).get_table_names())
    others = [table for table in metadata.sorted_tables if table.name in existing]
    others = [table for table in others if _collation_drift(connection, table)]
    for table in others:
        for constraint in sorted(table.constraints, key=lambda constraint: str(constraint.name)):
            if isinstance(constraint, UniqueConstraint | PrimaryKeyConstraint):
                _require_single(connection, table, constraint)
    for table in others:
        alteration, count = _recollations(table)
        try:
            connection.execute(text(alteration))
        except DBAPIError as error:
            if not failures.is_not_supported(error):
                raise
            reason = " ".join(str(error.orig).split())
            raise OutboxError(
                f'the keys of {table.name} cannot get the collation "C" ({reason}), allowed is nothing that depends on'
                " them meanwhile; drop it, run this again, and create it again"
            ) from error
        connection.execute(text(count))


def _recollations(table: Table) -> tuple[str, str]:
    """Return two statements of Postgres: compare the keys of a table byte by byte, and renew their statistics."""
    keys = _keys(table)
    changes = ", ".join(f'ALTER COLUMN {name} TYPE text COLLATE "C"' for name in keys)
    return f"ALTER TABLE {table.name} {changes}", f"ANALYZE {table.name} ({', '.join(keys)})"


def _keys(table: Table) -> list[str]:
    """Return the names of a table's columns that are keys."""
    return [column.name for column in table.columns if column.type is KEY]


def _require_single(connection: Connection, table: Table, constraint: ColumnCollectionConstraint) -> None:
    """Refuse a table in which several rows have the same key of a unique constraint."""
    if not any(column.type is KEY for column in constraint.columns):
        return
    keys = [column.collate("C") if column.type is KEY else column for column in constraint.columns]
    twice = select(*keys, func.count()).group_by(*keys).having(func.count() > 1).order_by(*keys).limit(_NAMED_MAX + 1)
    rows = connection.execute(twice).all()
    if rows:
        keys_shown = [", ".join(map(_name_and_value, _names(constraint), row)) + f": {row[-1]} rows" for row in rows]
        more = " and more" * (len(rows) > _NAMED_MAX)
        raise OutboxError(
            f"{table.name} has rows of one key ({'; '.join(keys_shown[:_NAMED_MAX])}{more}), allowed is one of each: a"
            " change of collation broke its index; see `A second counter` in docs/guides/operators.md"
        )


def _name_and_value(name: str, value: object) -> str:
    return f"{name} {value!r}"


def _is_required(column: object) -> bool:
    assert isinstance(column, dict)
    return not column["nullable"] and column["default"] is None


def _index_drift(connection: Connection, table: Table) -> list[str]:
    """Return a sentence for each unique constraint and index that is missing, deferrable or not valid."""
    found, invalid = inspect(connection), _find_indexes(connection, table, _INVALID)
    deferrable = _find_indexes(connection, table, _DEFERRABLE)
    valid = [index for index in found.get_indexes(table.name) if index["name"] not in invalid]
    plain = {_columns(index) for index in valid if not index["unique"]}  # Postgres lists constraints' own too
    whole = [index for index in valid if not _PARTIAL & index.get("dialect_options", {}).keys()]
    unique = {_columns(index) for index in whole if index["unique"] and index["name"] not in deferrable}
    key = found.get_pk_constraint(table.name)
    named = [(made["name"], made["column_names"]) for made in found.get_unique_constraints(table.name)]
    named.append((key["name"], key["constrained_columns"]))
    unique |= {tuple(columns) for name, columns in named if name not in invalid | deferrable}
    sentences = [
        f"{table.name} has no unique constraint on ({', '.join(columns)})"
        for columns in sorted(
            _names(constraint)
            for constraint in table.constraints
            if isinstance(constraint, UniqueConstraint | PrimaryKeyConstraint)
        )
        if columns not in unique
    ]
    for index in sorted(table.indexes, key=_names):
        if _names(index) not in plain:
            mend = f"; {index.name} is INVALID: REINDEX INDEX CONCURRENTLY {index.name}" * (index.name in invalid)
            sentences.append(f"{table.name} has no index on ({', '.join(_names(index))}){mend}")
    return sentences


def _find_indexes(connection: Connection, table: Table, statement: TextClause) -> set[str]:
    """Return the names of a table's indexes that a statement of Postgres selects; none on SQLite.

    An index is INVALID, and Postgres does not use it, while a CREATE INDEX CONCURRENTLY goes on or when it has failed.
    https://www.postgresql.org/docs/18/sql-createindex.html#SQL-CREATEINDEX-CONCURRENTLY (read 2026-11-24)
    """
    if connection.dialect.name != "postgresql":
        return set()
    return set(connection.execute(statement, {"table": table.name}).scalars())


def _columns(index: ReflectedIndex) -> tuple[str, ...]:
    return tuple(map(str, index["column_names"]))


def _names(columned: Index | ColumnCollectionConstraint) -> tuple[str, ...]:
    return tuple(str(column.name) for column in columned.columns)
