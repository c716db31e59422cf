"""Servers that a load test uses but did not start: the workers' Postgres, behind a line, and restart commands."""

import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from sqlalchemy import URL, make_url
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.exc import ArgumentError

from sluice.clock import SystemClock
from sluice.errors import ConfigError
from spark_load.faults.lines import Lines
from spark_load.faults.shapes import DatabaseKind

DSN = "SLUICE_DSN"
"""The variable with the URL of the workers' database; without it each consumer has an SQLite file of the run."""
RESTARTS: Mapping[str, str] = {"endpoint": "SLUICE_RESTART_ENDPOINT", "database": "SLUICE_RESTART_DATABASE"}
"""The variable with the shell command that restarts a server, and returns when the server is back; by server."""
_PORT, _PORT_MAX = 5432, 65_535
_DIALECT = PGDialect_psycopg()  # type: ignore[no-untyped-call]
_DRIVERS = ("postgresql", "postgresql+psycopg", "sqlite", "sqlite+pysqlite")
_LOOPBACK = "127.0.0.1"
COMMAND_SECONDS_MAX = 120
"""A restart command that takes longer is killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Postgres:
    """The address to which the URL of a Postgres leads.

    Args:
        url: as SQLAlchemy takes it.
        host: a name, an address, or the folder of a Unix socket.
    """

    url: URL
    host: str
    port: int

    @classmethod
    def of(cls, url: str | None) -> Self | None:
        """Return the address in the URL of a Postgres; None if the URL is of another database.

        Raises:
            ConfigError: the URL names no host, or several, or a port that is no number, or it cannot be parsed.
        """
        if not (url or "").startswith("postgresql"):
            return None
        try:
            parsed = make_url(url or "")
            # The host may stand in the URL's address or in its query; the driver's arguments have it in one place.
            _, arguments = _DIALECT.create_connect_args(parsed)  # type: ignore[no-untyped-call]
            host, port = arguments.get("host"), arguments.get("port", _PORT)
            if not host or "," in host:
                raise ConfigError(
                    f"{DSN} names {host or 'no host'}, allowed with faults is one host; name it in the URL"
                )
            port = int(port)
        except (ArgumentError, ValueError):  # not shown, because their text may contain a part of the password
            port = 0
        if not 1 <= port <= _PORT_MAX:
            raise ConfigError(
                f"{DSN} has a port that cannot be read, allowed is a number up to {_PORT_MAX}, in a URL such as"
                " postgresql://user@host:5432/name; correct the URL"
            )
        return cls(url=parsed, host=host, port=port)

    def behind(self, lines: Lines, name: str) -> str:
        """Open a line to the Postgres, and return the URL of the line's near end.

        A certificate is still checked against the server's own host name.
        """
        query = {key: value for key, value in self.url.query.items() if key not in ("host", "port")}
        if self.host.startswith("/"):
            port, host = lines.to_socket(name, f"{self.host}/.s.PGSQL.{self.port}"), _LOOPBACK
        else:
            far = query.get("hostaddr", self.host)
            assert isinstance(far, str)
            port, host = lines.to_server(name, far, self.port), self.host
            query["hostaddr"] = _LOOPBACK
        return self.url.set(host=host, port=port, query=query).render_as_string(hide_password=False)


def database() -> DatabaseKind:
    """Return the kind of the workers' database.

    Raises:
        ConfigError: no worker can use the database that is named, or no line can lead to it.
    """
    url = os.environ.get(DSN)
    if url is None:
        return "own"
    if url.partition(":")[0] not in _DRIVERS:  # the value is not shown: it may be a password
        raise ConfigError(
            f"{DSN} is no URL of a database that workers use, allowed is one that begins with"
            f" {', '.join(f'{driver}:' for driver in _DRIVERS)}; give one such as postgresql://user@host/name"
        )
    return "other" if Postgres.of(url) is None else "postgres"


def restartable() -> list[str]:
    """Return the servers for which a restart command is given."""
    return [name for name, variable in RESTARTS.items() if os.environ.get(variable, "").strip()]


class Restarts:
    """Commands that restart a server of the load test; each takes its own time."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._running: dict[str, tuple[subprocess.Popen[bytes], float]] = {}
        self._left: list[subprocess.Popen[bytes]] = []

    def begin(self, target: str) -> None:
        """Start the restart command of a server.

        Its output goes to standard error, because standard output is for `--json`.
        """
        command = subprocess.Popen(  # noqa: S602 (the caller's own command, as in a Makefile)
            os.environ[RESTARTS[target]],
            shell=True,
            stdin=subprocess.DEVNULL,
            stdout=2,
            process_group=0,
        )
        self._running[target] = command, self._clock.monotonic() + COMMAND_SECONDS_MAX

    def is_over(self, target: str) -> bool:
        """Return whether the restart command of a server has ended, or takes too long."""
        command, until = self._running[target]
        return command.poll() is not None or self._clock.monotonic() > until

    def end(self, target: str) -> bool:
        """Wait for the command, at most until two minutes after its start; return whether it succeeded."""
        command, until = self._running.pop(target)
        try:
            return command.wait(max(0.0, until - self._clock.monotonic())) == 0
        except subprocess.TimeoutExpired:
            try:
                os.killpg(command.pid, signal.SIGKILL)
                command.wait()
            except PermissionError:  # the command runs as another user, by sudo
                self._left.append(command)
            return False
