"""Connections that a server refuses: decided by the SQLSTATE of its answer, which may be in any language."""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError, OperationalError

from sluice.messaging.database import engines, failures
from tests.integration.messaging.conftest import private_server

_ROLES = """
    CREATE ROLE scram LOGIN PASSWORD 'right'; CREATE ROLE full LOGIN PASSWORD 'right' CONNECTION LIMIT 0;
    CREATE ROLE group_role PASSWORD 'right'; CREATE ROLE kept_out LOGIN PASSWORD 'right'
"""
_RULES = "local all kept_out reject\nlocal all scram,full,group_role scram-sha-256\nlocal all all trust\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Yield a Postgres whose roles are refused, each for another reason."""
    with private_server(tmp_path_factory) as made:
        with psycopg.connect(made.get_uri(), autocommit=True) as owner:
            owner.execute("SET password_encryption = 'scram-sha-256'")
            owner.execute(_ROLES)
            Path(made.pgdata, "pg_hba.conf").write_text(_RULES)
            owner.execute("SELECT pg_reload_conf()")
        yield made


@pytest.mark.parametrize(
    ("role", "password", "database", "state", "is_refused", "may_pass"),
    [
        ("scram", "wrong", "postgres", "28P01", True, False),
        ("nobody", "right", "postgres", "28000", True, False),
        ("group_role", "right", "postgres", "28000", True, False),
        ("kept_out", "right", "postgres", "28000", True, False),
        ("full", "right", "postgres", "53300", False, True),
        ("scram", "right", "nowhere", "3D000", False, False),
    ],
    ids=["wrong password", "unknown role", "role without login", "pg_hba rejects", "role is full", "no such database"],
)
def test_a_refused_connection_has_the_sqlstate_of_the_answer(
    server: Any, role: str, password: str, database: str, state: str, *, is_refused: bool, may_pass: bool
) -> None:
    """A process knows by the SQLSTATE if its credentials are refused, and if waiting may help."""
    url = make_url(server.get_uri()).set(username=role, password=password, database=database)
    engine = engines.engine(url.render_as_string(hide_password=False))

    with pytest.raises(DBAPIError) as error:
        engine.connect()

    assert failures.state(error.value) == state
    assert engines.is_refused(error.value.orig) is is_refused
    assert engines.may_pass_at_start(error.value) is may_pass


def _answer_in_german(listener: socket.socket, state: bytes) -> None:
    """Refuse each connection with an SQLSTATE and a German message, as a Postgres with German messages does."""
    fields = (b"SFATAL", b"VFATAL", b"C" + state, "MPasswort-Authentifizierung für »x« fehlgeschlagen".encode(), b"")
    body = b"\0".join(fields) + b"\0"
    while True:
        try:
            taken, _ = listener.accept()
        except OSError:
            return
        with taken:
            taken.recv(65_536)
            taken.sendall(b"E" + (len(body) + 4).to_bytes(4) + body)


@pytest.mark.parametrize(
    ("state", "is_refused"), [("28P01", True), ("57P03", False)], ids=["wrong password", "server is starting"]
)
def test_a_refusal_in_german_is_recognised_by_its_sqlstate(state: str, *, is_refused: bool) -> None:
    """The text of an answer depends on the server's language, so only the SQLSTATE decides if waiting may help."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        threading.Thread(target=_answer_in_german, args=(listener, state.encode()), daemon=True).start()
        port = listener.getsockname()[1]
        engine = engines.engine(f"postgresql://x:y@127.0.0.1:{port}/db?sslmode=disable&gssencmode=disable")
        with pytest.raises(OperationalError) as error:
            engine.connect()
        listener.shutdown(socket.SHUT_RDWR)

    assert "fehlgeschlagen" in str(error.value.orig)
    assert engines.is_refused(error.value.orig) is is_refused
    assert engines.may_pass_at_start(error.value) is not is_refused


def test_a_server_that_is_not_there_is_waited_for() -> None:
    """Nothing listens at the port, so there is no SQLSTATE, and the loss of the connection stands for it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(OperationalError) as error:
        engines.engine(f"postgresql://x:y@127.0.0.1:{port}/db").connect()

    assert failures.state(error.value) == failures.LOST
    assert engines.may_pass_at_start(error.value)
