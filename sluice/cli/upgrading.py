"""The tables of outbox and inbox: how a command upgrades them, and says how they differ from what is needed."""

import os
import random
import sys
from pathlib import Path

import structlog
from sqlalchemy import Engine, MetaData
from sqlalchemy.exc import DBAPIError

from sluice.cli.services.running import log_to
from sluice.clock import SystemClock
from sluice.declaration import load_task_declaration
from sluice.errors import EndpointError
from sluice.messaging import failpoints
from sluice.messaging.backoff import Backoff
from sluice.messaging.database import connections, engines, migrations, schema
from sluice.messaging.database.migrations import VersionedTables
from sluice.messaging.database.rotation import SECRET_VARIABLE, runtime_engine
from sluice.messaging.failpoints import Failpoint
from sluice.messaging.inbox import tables as inbox_tables
from sluice.messaging.outbox import tables as outbox_tables
from sluice.messaging.waiting import Stop, Wait
from sluice.terminal import output
from sluice.terminal.exits import PARTLY

_log = structlog.get_logger()
_PARTS = {tables.part: tables for tables in (outbox_tables.versioned, inbox_tables.versioned)}
_BACKOFF = Backoff(base_seconds=1, cap_seconds=10, floor_seconds=0.5)
_ANSWER_SECONDS = 60  # for one statement of a step


def upgrade(
    *,
    part: str | None,
    wait_seconds: float,
    environment_name: str,
    declaration: Path | None,
    dsn: str | None,
    log_level: str,
) -> None:
    """Upgrade the tables of a part, or of both, of the database that is named."""
    log_to(sys.stderr, log_level)
    stop, failpoint = Stop(), failpoints.from_environment(os.environ, failpoints.SCHEMA)
    stop.on_signals()
    has_region = not dsn and SECRET_VARIABLE in os.environ  # a URL needs no declaration: who takes the outbox has none
    region = load_task_declaration(declaration).environment(environment_name).region if has_region else ""
    engine = runtime_engine(region, dsn)
    connections.end_waits(engine, _ANSWER_SECONDS)
    ends_at = SystemClock().monotonic() + wait_seconds
    try:
        for tables in _PARTS.values() if part is None else [_PARTS[part]]:
            _upgrade(engine, tables, ends_at=ends_at, wait=stop, failpoint=failpoint)
            output.line(f"the {tables.part}'s tables are as this version needs them", is_error=True)
    finally:
        engine.dispose()


def print_sql(kind: str, part: str | None) -> None:
    """Print the SQL that creates the tables of a part, or of both, in a kind of database."""
    parts = _PARTS.values() if part is None else [_PARTS[part]]
    output.lines("\n".join(schema.sql(kind, tables.metadata) for tables in parts).removesuffix("\n"))


def _upgrade(engine: Engine, tables: VersionedTables, *, ends_at: float, wait: Wait, failpoint: Failpoint) -> None:
    """Upgrade tables of one part, and try again until then where the database is away.

    Raises:
        EndpointError: it was stopped before the end.
        DBAPIError: the database did not do it, and time was up or another try would not succeed either.
    """
    clock, rng, failures = SystemClock(), random.Random(), 0  # noqa: S311 (jitter is not a secret)
    while not wait.is_stopped():
        try:
            for version in migrations.upgrade(engine, tables, failpoint=failpoint):
                _log.info("upgraded", part=tables.part, version=version)
        except DBAPIError as error:
            failures += 1
            pause_seconds, left_seconds = _BACKOFF.seconds(failures, rng.random()), ends_at - clock.monotonic()
            if not engines.may_pass_at_start(error) or left_seconds < pause_seconds:
                raise
            reason = str(error.orig).strip().splitlines()[0]
            _log.warning("the database does not answer yet", error=reason, left_seconds=round(left_seconds))
            wait.wait(pause_seconds)
        else:
            return
    raise EndpointError(f"stopped before the {tables.part}'s tables were upgraded; run it again")


def report_drift(engine: Engine, metadata: MetaData) -> None:
    """Print where a database's tables differ from what is needed, a line each; then exit with 1."""
    with engine.connect() as connection:
        found = schema.drift(connection, metadata)
    for sentence in found:
        output.line(sentence)
    if found:
        sys.exit(PARTLY)
    output.line("the tables are as this version needs them", is_error=True)
