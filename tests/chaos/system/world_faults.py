"""Faults of the world around the product, as data: settings of a database, what a handler leaves behind, signals."""

import contextlib
import signal
from collections.abc import Mapping, Sequence
from enum import StrEnum

import psycopg
from psycopg import sql
from sqlalchemy import text
from sqlalchemy.orm import Session

from sluice.clock import eventually

_UP_SECONDS_MAX = 60
_OWN = "-c statement_timeout=0 -c default_transaction_read_only=off -c sluice_chaos.full=off"


class WorldFault(StrEnum):
    """The faults of the world around a run, besides those of a load test."""

    SETTING = "setting"
    CROWD = "crowd"
    SIGNALS = "signals"
    MISDEED = "misdeed"


SETTINGS: Mapping[str, Mapping[str, str]] = {
    "read-only": {"default_transaction_read_only": "on"},
    "disk-full": {"sluice_chaos.full": "on"},
    "statement-timeout": {"statement_timeout": "20ms"},
}
"""Settings of the whole server, by name of the fault: to value."""
SIGNALS: Mapping[str, Sequence[signal.Signals]] = {
    "terminated-twice": (signal.SIGTERM, signal.SIGTERM),
    "terminal-ended": (signal.SIGHUP,),
    "interrupted-and-terminated": (signal.SIGINT, signal.SIGTERM),
}
"""What a process gets, in order."""
MISDEEDS: Mapping[str, Sequence[str]] = {
    "temporary-table": ("CREATE TEMP TABLE IF NOT EXISTS chaos_effect (LIKE public.chaos_effect INCLUDING ALL)",),
    "temporary-inbox": ("CREATE TEMP TABLE IF NOT EXISTS sluice_inbox_group (LIKE public.sluice_inbox_group)",),
    "search-path": ("CREATE SCHEMA IF NOT EXISTS elsewhere", "SET search_path = elsewhere, public"),
    "no-triggers": ("SET session_replication_role = replica",),
    "role": ("SET ROLE pg_monitor",),
    "only-reads": ("SET default_transaction_read_only = on",),
    "impatient": ("SET statement_timeout = 1",),
    "weak": ("SET synchronous_commit = off",),
    "other-time": ("SET TimeZone = 'Asia/Kathmandu'", "SET DateStyle = 'German'"),
    "advisory-lock": ("SELECT pg_advisory_lock(1)", "LISTEN elsewhere"),
    "cursor": ("DECLARE kept CURSOR WITH HOLD FOR SELECT generate_series(1, 10)", "PREPARE plan AS SELECT 1"),
}
"""Statements that a handler leaves something behind with, on its connection, for whoever has it next."""
REFUSE = """
CREATE FUNCTION chaos_refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF current_setting('sluice_chaos.full', true) = 'on' THEN
    RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full';
  END IF;
  RETURN NULL;
END $$
"""
REFUSE_EACH = """
CREATE TRIGGER chaos_full BEFORE INSERT OR UPDATE OR DELETE ON {} FOR EACH STATEMENT EXECUTE FUNCTION chaos_refuse()
"""
"""A disk that is full, for whoever has no tmpfs: no statement that writes to a table succeeds."""


def misbehave(session: Session, name: str) -> None:
    """Do what a handler must not, on its connection."""
    for statement in MISDEEDS[name]:
        session.execute(text(statement))


class Setup:
    """A server whose settings are changed, or that has no connection left for anybody else.

    Args:
        dsn: of the server, as its superuser.
    """

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._crowd: list[psycopg.Connection] = []

    def begin(self, name: str) -> None:
        """Change what a fault changes."""
        self._alter(SETTINGS[name])

    def end(self) -> None:
        """Reset every setting that a fault may have changed."""
        self._alter(dict.fromkeys((setting for settings in SETTINGS.values() for setting in settings), None))

    def crowd(self) -> bool:
        """Take every connection that is left; return whether there were any."""
        with contextlib.suppress(psycopg.OperationalError):
            while True:
                self._crowd.append(self._connect())
        return bool(self._crowd)

    def disperse(self) -> None:
        """Let other clients connect again."""
        while self._crowd:
            self._crowd.pop().close()

    def _alter(self, settings: Mapping[str, str] | Mapping[str, None]) -> None:
        def alter() -> bool:
            try:
                connection = self._crowd[0] if self._crowd else self._connect()  # a crowd leaves nobody another one
                for name, value in settings.items():
                    changed = sql.SQL("RESET {}") if value is None else sql.SQL("SET {} = {}")
                    parts = [sql.Identifier(*name.split(".")), *([] if value is None else [sql.Literal(value)])]
                    connection.execute(sql.SQL("ALTER SYSTEM ") + changed.format(*parts))
                connection.execute("SELECT pg_reload_conf()")
            except psycopg.OperationalError:  # the server restarts
                self.disperse()
                return False
            if connection not in self._crowd:
                connection.close()
            return True

        eventually(alter, timeout_seconds=_UP_SECONDS_MAX, describe="the database to take a setting")

    def _connect(self) -> psycopg.Connection:
        return psycopg.connect(self._dsn, options=_OWN, autocommit=True)
