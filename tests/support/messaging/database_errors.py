"""Errors of a database: those of SQLite as its driver raises them, those of Postgres from the server itself."""

import sqlite3

from sqlalchemy import Connection


def busy() -> sqlite3.OperationalError:
    """Return the error of SQLite's driver while another connection writes."""
    error = sqlite3.OperationalError("database is locked")
    error.sqlite_errorcode = sqlite3.SQLITE_BUSY
    return error


def fail_with(connection: Connection, sqlstate: str) -> None:
    """Execute a statement that Postgres refuses with this SQLSTATE; the error is raised here."""
    connection.exec_driver_sql(f"DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{sqlstate}'; END $$")
