"""The workers' Postgres behind a line, and the commands that restart a server."""

import os
import socket
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from sluice.clock import eventually
from sluice.errors import ConfigError
from spark_load.faults import servers
from spark_load.faults.lines import Lines
from spark_load.faults.servers import Postgres, Restarts


@pytest.fixture
def lines() -> Iterator[Lines]:
    """Yield TCP lines that faults can cut or delay."""
    with Lines() as lines:
        yield lines


def test_only_a_postgres_url_with_one_host_gets_a_line() -> None:
    """Faults are injected into one line, so several hosts are refused; SQLite has no connection to cut."""
    assert [Postgres.of(url) for url in (None, "sqlite:///a.db")] == [None, None]
    found = Postgres.of("postgresql+psycopg://u@/n?host=/run/postgres&port=6000")
    assert found is not None
    assert found.host == "/run/postgres"
    assert found.port == 6000
    for url, named in (
        ("postgresql:///n", "no host"),
        ("postgresql://u@/n?host=a,b", "a,b"),
        ("postgresql://u@/n?host=a:5433&host=b:5434", "a,b"),
    ):
        with pytest.raises(ConfigError, match=f"SLUICE_DSN names {named}, allowed with faults is one host"):
            Postgres.of(url)
    for url in (
        "postgresql://u@h:one/n",
        "postgresql://u@h/n?port=one",
        "postgresql://u@h:65536/n",
        "postgresql://[::1",
    ):
        with pytest.raises(ConfigError, match="SLUICE_DSN has a port that cannot be read, allowed is a number"):
            Postgres.of(url)


def test_a_dsn_that_no_worker_can_use_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    found = list[str]()
    for url in ("sqlite:///a.db", "postgresql://u@h/n"):
        monkeypatch.setenv("SLUICE_DSN", url)
        found.append(servers.database())
    for url in ("", "nonsense", "mysql://u@h/n", "postgresql+psycopg2://u@h/n"):
        monkeypatch.setenv("SLUICE_DSN", url)
        with pytest.raises(ConfigError, match="SLUICE_DSN is no URL of a database that workers use, allowed is one"):
            servers.database()

    assert found == ["other", "postgres"]


def test_a_workers_url_through_a_line_changes_only_address_and_port(
    lines: Lines,
) -> None:
    """The host's name stays, because the server's certificate is verified by it."""
    server_url = Postgres.of("postgresql://u:p%2Fw@db.example/n?sslmode=verify-full")
    assert server_url is not None

    line_url = make_url(server_url.behind(lines, "billing-0:database"))

    assert line_url.username == "u"
    assert line_url.password == "p/w"  # noqa: S105 (a password of the test)
    assert line_url.host == "db.example"
    assert line_url.database == "n"
    assert dict(line_url.query) == {"sslmode": "verify-full", "hostaddr": "127.0.0.1"}
    assert line_url.port not in (None, 5432)


@pytest.mark.parametrize(
    ("url", "host", "port", "password"),
    [
        ("postgresql://u:p@[::1]:6000/n", "::1", 6000, "p"),
        ("postgresql://u:1#p/w?@db.example/n", "db.example", 5432, "1#p/w?"),
        ("postgresql://u:p@/n?host=db.example:6000", "db.example", 6000, "p"),
    ],
)
def test_a_line_leads_to_the_host_that_sqlalchemy_takes(
    lines: Lines, url: str, host: str, port: int, password: str
) -> None:
    """The line must read host and port from the URL as SQLAlchemy does, or it would harm another server."""
    server_url = Postgres.of(url)
    assert server_url is not None

    line_url = make_url(server_url.behind(lines, "billing-0:database"))

    assert server_url.host == host
    assert server_url.port == port
    assert line_url.username == "u"
    assert line_url.password == password
    assert line_url.host == host
    assert line_url.database == "n"
    assert dict(line_url.query) == {"hostaddr": "127.0.0.1"}


def test_a_line_leads_to_the_hostaddr_of_a_url(lines: Lines) -> None:
    """Postgres's client connects to `hostaddr`, and uses the host only for the certificate."""
    with socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler) as server:
        server_url = Postgres.of(f"postgresql://u@nowhere.invalid:{server.server_address[1]}/n?hostaddr=127.0.0.1")
        assert server_url is not None
        line_url = make_url(server_url.behind(lines, "billing-0:database"))

        server.socket.settimeout(5)
        with socket.create_connection(("127.0.0.1", line_url.port or 0)):
            server.socket.accept()[0].close()


@pytest.mark.parametrize("is_socket", [True, False])
def test_a_line_passes_connections_on_to_the_server(lines: Lines, tmp_path: Path, *, is_socket: bool) -> None:
    """A server on a socket file, or on a port, answers each connection with its own error."""

    class Refusing(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(1)
            self.request.sendall(b"E" + (4 + 1 + 8 + 1).to_bytes(4) + b"Mit's me\0\0")

    path = str(tmp_path / ".s.PGSQL.5432")
    server = (
        socketserver.UnixStreamServer(path, Refusing)
        if is_socket
        else socketserver.TCPServer(("127.0.0.1", 0), Refusing)
    )
    host = f"/n?host={tmp_path}" if is_socket else f"127.0.0.1:{server.server_address[1]}/n?"
    with server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        server_url = Postgres.of(f"postgresql://u@{host}&sslmode=disable")
        assert server_url is not None
        line_url = make_url(server_url.behind(lines, "billing-0:database"))

        with pytest.raises(psycopg.OperationalError, match="it's me"):
            psycopg.connect(line_url.render_as_string(hide_password=False)).close()
        server.shutdown()


def test_a_restart_lasts_as_long_as_the_callers_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SLUICE_RESTART_DATABASE is the command. A restart whose command fails is not done."""
    monkeypatch.delenv("SLUICE_RESTART_ENDPOINT", raising=False)
    monkeypatch.setenv("SLUICE_RESTART_DATABASE", f"echo begun > {tmp_path}/log; read -r word < {tmp_path}/go; $word")
    restarts = Restarts()
    assert servers.restartable() == ["database"]

    found = []
    for word in ("true", "false"):
        os.mkfifo(tmp_path / "go")
        restarts.begin("database")
        eventually((tmp_path / "log").exists, timeout_seconds=30, describe="the command to begin")
        assert not restarts.is_over("database")
        (tmp_path / "go").write_text(f"{word}\n", encoding="utf-8")
        found.append(restarts.end("database"))
        (tmp_path / "go").unlink()

    assert found == [True, False]


def test_an_empty_restart_command_counts_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell would run it without an effect, and report success."""
    for variable in servers.RESTARTS.values():
        monkeypatch.setenv(variable, " ")

    assert servers.restartable() == []


def test_a_restart_prints_nothing_where_the_verdict_is_printed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The command's output goes to standard error."""
    monkeypatch.setenv("SLUICE_RESTART_DATABASE", "echo it is back; echo with a warning >&2")
    restarts = Restarts()
    restarts.begin("database")

    assert restarts.end("database")
    assert capfd.readouterr() == ("", "it is back\nwith a warning\n")


def test_a_restart_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that its command has started are ended, too; otherwise the run would not end."""
    os.mkfifo(tmp_path / "never")
    monkeypatch.setattr(servers, "COMMAND_SECONDS_MAX", 0.2)
    monkeypatch.setenv("SLUICE_RESTART_DATABASE", f"cat {tmp_path}/never; true")
    restarts = Restarts()
    restarts.begin("database")

    eventually(lambda: restarts.is_over("database"), timeout_seconds=30, describe="the command to be given up")
    assert not restarts.end("database")
    eventually(lambda: not _is_read(tmp_path / "never"), timeout_seconds=30, describe="its child to have ended")


def _is_read(pipe: Path) -> bool:
    """Return whether a process reads the pipe."""
    try:
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


def test_a_hanging_restart_of_another_user_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command under sudo belongs to another user and cannot be killed; waiting for it would not end either."""
    os.mkfifo(tmp_path / "go")
    monkeypatch.setattr(servers, "COMMAND_SECONDS_MAX", 0.2)
    monkeypatch.setenv("SLUICE_RESTART_DATABASE", f"read -r word < {tmp_path}/go")
    restarts = Restarts()
    restarts.begin("database")

    def refuses(*_: object) -> None:
        raise PermissionError

    with monkeypatch.context() as patch:
        patch.setattr(os, "killpg", refuses)
        assert not restarts.end("database")
    (tmp_path / "go").write_text("on\n", encoding="utf-8")
    assert [command.wait(30) for command in restarts._left] == [0]
