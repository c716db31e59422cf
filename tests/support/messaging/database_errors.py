"""Errors of a database: those of SQLite as its driver raises them, those of Postgres from the server itself."""

import sqlite3

from sqlalchemy import Connection


def busy() -> sqlite3.OperationalError:
    """Return the error of SQLite's driver while another connection writes."""
    error = sqlite3.OperationalError("database is locked")
    error.sqlite_errorcode = sqlite3.SQLITE_BUSY
    return error


def fail_with(connection: Connection, sqlstate: str) -> None:
    """Let Postgres refuse a statement of this connection with an SQLSTATE."""
    connection.exec_driver_sql(f"DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{sqlstate}'; END $$")
