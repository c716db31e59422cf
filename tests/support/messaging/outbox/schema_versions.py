"""Made-up versions of the outbox's tables, and processes that upgrade to them, which can be killed."""

import os
import signal
import sys
from pathlib import Path

from sqlalchemy import BigInteger, Column, Index, MetaData, Table, Text

from sluice.errors import MessagingError
from sluice.messaging.database import engines, migrations
from sluice.messaging.database.migrations import Step, VersionedTables
from sluice.messaging.failpoints import from_environment
from sluice.messaging.outbox import tables
from tests.support.processes.forking import forking

FIRST_TABLES = Path(__file__).with_name("first_tables")
"""A folder with the SQL of the first tables of outbox and inbox, by kind of database; it never changes."""
NAMES = ("before_step", "in_step", "after_step")
_STEPS = (
    Step(("ALTER TABLE sluice_outbox ADD COLUMN tenant TEXT",)),
    Step(
        (
            "ALTER TABLE sluice_outbox_lease ADD COLUMN renewed_at_us BIGINT DEFAULT 0 NOT NULL",
            "CREATE INDEX sluice_outbox_tenant ON sluice_outbox (topic, tenant)",
        ),
        readable_from=2,
    ),
)
_forked = forking(__name__)


def version(number: int) -> VersionedTables:
    """Return the outbox's tables in version 1 to 3; version 3 has one more table."""
    metadata = MetaData()
    for table in tables.metadata.sorted_tables:
        table.to_metadata(metadata)
    if number > 1:
        metadata.tables["sluice_outbox"].append_column(Column("tenant", Text))
    if number > 2:
        Index("sluice_outbox_tenant", *(metadata.tables["sluice_outbox"].c[name] for name in ("topic", "tenant")))
        lease = metadata.tables["sluice_outbox_lease"]
        lease.append_column(Column("renewed_at_us", BigInteger, nullable=False, server_default="0"))
        Table("sluice_outbox_extra", metadata, Column("name", Text, primary_key=True))
    return VersionedTables("outbox", metadata, _STEPS[: number - 1])


class UpgradeProcess:
    """A process that upgrades a database to a version, and dies at a failpoint if one is armed."""

    def __init__(self, dsn: str, number: int, *, failpoint: str | None = None) -> None:
        self._process = _forked.Process(target=_upgrade, args=(dsn, number, failpoint), daemon=True)
        self._process.start()

    def wait_for_end(self) -> int | None:
        """Wait for its end; return its exit code, below zero the signal that ended it."""
        self._process.join(60)
        if self._process.is_alive():
            self._process.kill()
        return self._process.exitcode


KILLED = -signal.SIGKILL


def _upgrade(dsn: str, number: int, failpoint: str | None) -> None:
    armed = {} if failpoint is None else {"SLUICE_FAILPOINT": failpoint}
    engine = engines.engine(dsn)
    try:
        list(migrations.upgrade(engine, version(number), failpoint=from_environment(armed, NAMES)))
    except MessagingError as error:
        os.write(sys.stderr.fileno(), f"{error}\n".encode())
        sys.exit(1)
