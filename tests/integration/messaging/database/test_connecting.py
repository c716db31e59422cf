"""Outbox and inbox connect to a Postgres over TLS unless the secret says otherwise, and never wait for ever."""

import contextlib
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, create_engine, make_url, text
from sqlalchemy.exc import OperationalError
from structlog.testing import capture_logs

from sluice.messaging.database import connections, credentials, engines
from sluice.messaging.database.credentials import database_url
from sluice.messaging.relay import commit_wait
from sluice.messaging.relay.commit_wait import CommitWait
from sluice.messaging.waiting import Stop
from tests.support.command_line import command_line
from tests.support.endpoints.tcp_proxy import TcpProxy

_TIMEOUTS = ("connect_timeout", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout")


class _Secrets:
    """A client of Secrets Manager with one secret of these fields."""

    def __init__(self, **answers: Any) -> None:
        self._text = json.dumps(answers)

    def get_secret_value(self, **_: str) -> dict[str, str]:
        return {"SecretString": self._text}


class _ToSocket(TcpProxy):
    """A TCP port that leads to a socket file: over the file itself libpq never uses TLS."""

    def __init__(self, path: Path) -> None:
        self._path = path
        super().__init__("http://nowhere:1")

    def _reach(self) -> socket.socket:
        """Connect to the server's Unix socket."""
        reached = socket.socket(socket.AF_UNIX)
        reached.connect(str(self._path))
        return reached


@pytest.fixture
def port(private_postgres: Any) -> Iterator[int]:
    """Yield the port of a Postgres without TLS that lets everybody in."""
    folder = make_url(private_postgres.get_uri()).query["host"]
    with _ToSocket(Path(str(folder), ".s.PGSQL.5432")) as line:
        yield make_url(line.url).port or 0


def _answer(port: int, **more: str) -> object:
    """Return what a database at this port answers to SELECT 1, reached by a secret with these fields."""
    place = {"username": "postgres", "password": "unused", "host": "127.0.0.1", "port": port, "dbname": "postgres"}
    secret = _Secrets(**place, **more)
    engine = engines.engine(database_url(secret, "arn:secret", {}))
    try:
        with engine.connect() as connection:
            return connection.execute(text("SELECT 1")).scalar_one()
    finally:
        engine.dispose()


def test_a_database_without_tls_gets_no_password_unless_the_secret_says_so(port: int) -> None:
    """The secret says so by `sslmode=disable`."""
    for more in ({}, {"sslmode": "require"}):
        with pytest.raises(OperationalError, match="server does not support SSL, but SSL was required"):
            _answer(port, **more)

    assert _answer(port, sslmode="disable") == 1


@pytest.mark.parametrize("option", ["autocommit=true", "row_factory=dict_row", "cursor_factory=ClientCursor"])
def test_a_dsn_with_an_argument_of_the_driver_opens_a_plain_connection(postgres: Engine, option: str) -> None:
    """With autocommit, for example, each statement of a handler would be committed by itself.

    Such an argument in the DSN has no effect on the engine's connections.
    """
    engine = engines.engine(f"{postgres.url.render_as_string(hide_password=False)}&{option}")
    with engine.connect() as connection:
        driver: Any = connection.connection.driver_connection
        row = connection.execute(text("SELECT 1, 2")).one()
    engine.dispose()

    assert driver.autocommit is False
    assert tuple(row) == (1, 2)


def test_the_connection_that_listens_has_the_timeouts_of_all_others(postgres: Engine) -> None:
    """Both kinds of connection notice a host that disappears without closing its sockets."""
    with closing(CommitWait(postgres, "events.fifo", Stop())) as wait, postgres.connect() as other:
        wait.wait(0)
        assert wait._connection is not None
        listening = wait._connection.info.get_parameters()
        driver: Any = other.connection.driver_connection
        others = driver.info.get_parameters()

    assert {name: listening.get(name) for name in _TIMEOUTS} == {name: others[name] for name in _TIMEOUTS}
    assert others["connect_timeout"] == "5"


def test_a_secrets_manager_that_never_answers_ends_a_command_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server accepts connections and never answers.

    Without a timeout a task would wait for ever, and ECS would not replace it.
    """
    configured = credentials.client("eu-central-1").meta.config
    monkeypatch.setattr(credentials, "_ANSWER_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent, command_line(monkeypatch, capsys) as run:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setenv("AWS_ENDPOINT_URL_SECRETS_MANAGER", url)
        monkeypatch.setenv("SLUICE_DATABASE_SECRET_ARN", "arn:secret")
        code, printed, error = run("schema", "apply", "--log-level", "error")
        connections = _waiting(silent)

    assert configured.connect_timeout == 2
    assert configured.read_timeout == 3
    assert configured.retries["total_max_attempts"] == 2
    assert code == 2
    assert printed == ""
    assert connections == 2
    assert error == (
        f'sluice: AWS does not answer as hoped (Read timeout on endpoint URL: "{url}/"); look at --endpoint-url\n'
    )


def _waiting(server: socket.socket) -> int:
    """Return how many connections were made to a server that has accepted none."""
    server.settimeout(0)
    count = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            server.accept()[0].close()
            count += 1
    return count


def test_a_pooled_connection_is_pinged_only_after_a_pause(postgres: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ping before each transaction would cost a round trip each time."""
    engine = engines.engine(postgres.url.render_as_string(hide_password=False))
    ping, pauses = engine.dialect.do_ping, list[float]()

    def count_ping(connection: Any) -> bool:  # a mock would keep the connection, which then is closed
        pauses.append(pause_seconds)
        return ping(connection)

    monkeypatch.setattr(engine.dialect, "do_ping", count_ping)

    for pause_seconds in (60, 60, 0, 0):
        monkeypatch.setattr(connections, "_IDLE_SECONDS", pause_seconds)
        with engine.begin() as connection:
            connection.execute(text("SELECT 1"))
    engine.dispose()

    assert pauses == [0, 0]


def test_reading_statements_reuse_one_pooled_connection(postgres: Engine) -> None:
    """Three reads are answered by the same server process."""
    engine = engines.engine(postgres.url.render_as_string(hide_password=False))
    seen = set()
    for _ in range(3):
        with engines.looking(engine) as connection:
            seen.add(connection.execute(text("SELECT pg_backend_pid()")).scalar_one())
    engine.dispose()

    assert len(seen) == 1


def test_a_connection_that_was_ended_in_a_pause_is_not_used(postgres: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server ended it while it was in the pool. Any pause, here 0 s, makes the engine ask whether it is alive."""
    monkeypatch.setattr(connections, "_IDLE_SECONDS", 0)
    engine = engines.engine(postgres.url.render_as_string(hide_password=False))
    with engine.begin() as connection:
        pid = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
    with postgres.begin() as connection:
        connection.execute(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": pid})

    with engine.begin() as connection:
        other = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
    engine.dispose()

    assert other != pid


@pytest.mark.parametrize("make", [engines.engine, create_engine], ids=["ours", "somebody else's"])
def test_a_connection_lent_during_its_engines_disposal_is_closed_afterwards(
    engine: Engine, make: Callable[[str], Engine]
) -> None:
    """No code takes it from its old pool again, so the server would keep it until it is garbage collected."""
    made = make(engine.url.render_as_string(hide_password=False))
    connections.close_changed_connections(made)
    with made.connect() as connection:
        connection.execute(text("SELECT 1"))
        driver: Any = connection.connection.driver_connection
        made.dispose()
        connection.execute(text("SELECT 1"))

    with closing(driver), pytest.raises(made.dialect.loaded_dbapi.Error, match="closed"):
        driver.execute("SELECT 1")
    made.dispose()


def test_returning_a_connection_after_its_rollback_causes_no_warning(postgres: Engine) -> None:
    """The server's log would have a line for each message whose handler failed."""
    notices = list[object]()
    with postgres.connect() as connection:
        connection.execute(text("SELECT 1"))
        connections.lend(connection)
        driver: Any = connection.connection.driver_connection
        driver.add_notice_handler(lambda notice: notices.append(notice.message_primary))
        connection.execute(text("SELECT 1"))
        driver.rollback()

    assert notices == []


def test_a_connection_that_could_not_listen_is_in_no_transaction_later(postgres: Engine) -> None:
    """A listening connection commits each statement by itself; this one must not, because it returns to the pool."""
    engine = engines.engine(postgres.url.render_as_string(hide_password=False))
    with pytest.raises(psycopg.errors.SyntaxError):
        engines.listening(engine, "")
    with engine.connect() as connection:
        driver: Any = connection.connection.driver_connection
        commits_alone = driver.autocommit
    engine.dispose()

    assert not commits_alone


@pytest.mark.parametrize("is_pooled", [False, True])
def test_a_relay_warns_of_a_pooler_if_its_own_notification_is_missing(
    postgres: Engine, monkeypatch: pytest.MonkeyPatch, *, is_pooled: bool
) -> None:
    """A pooler in transaction mode sends LISTEN to one server connection, and reads notifications from another.

    Here the connection listens to another channel instead. With `is_pooled` False nothing is changed.
    """
    listening = engines.listening

    def listen_through_pooler(engine: Engine, channel: str) -> psycopg.Connection[Any]:
        listening(engine, channel).close()
        return listening(engine, "nothing")

    monkeypatch.setattr(commit_wait, "_SELF_TEST_SECONDS", 0.1 if is_pooled else 20)
    if is_pooled:
        monkeypatch.setattr(engines, "listening", listen_through_pooler)
    with closing(CommitWait(postgres, "events.fifo", Stop())) as wait, capture_logs() as logged:
        wait.wait(0)
        wait.wait(0)

        assert wait.is_notified() is not is_pooled

    lines = [line["event"] for line in logged]
    assert len(lines) == is_pooled
    assert all("as through a pooler in transaction mode; give --dsn" in line for line in lines)


def test_a_relay_that_may_not_listen_waits_without(postgres: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A standby refuses LISTEN with an error of another class than that of a connection that is lost."""
    monkeypatch.setattr(commit_wait, "channel", lambda _: "")  # which Postgres refuses, too
    wait = CommitWait(postgres, "events.fifo", Stop())
    with capture_logs() as logged:
        wait.wait(0)

    assert [line["event"] for line in logged] == ["not listening for commits"]
