"""A password that is rotated under a real worker and a real relay, whose Postgres is behind TLS."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from emulator import localstack
from sluice.clock import eventually
from sluice.declaration import naming
from sluice.messaging import Event, Outbox
from sluice.messaging.database import engines
from sluice.messaging.outbox import tables
from tests.support.endpoints.tls_postgres import Authority, TlsPostgres
from tests.support.processes import worker_processes
from tests.support.processes.messaging_process import PATIENCE_SECONDS, MessagingProcess
from tests.support.processes.worker_processes import WorkerFleet, consumer

_END_CONNECTIONS = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = 'tasks'"
_GROUPS = ("a", "b", "c")


class _RotatedDatabase:
    """A Postgres behind TLS, its user's password, and the secret with it: user and password only, as RDS has it."""

    def __init__(self, owner: Engine, secrets: Any, name: str) -> None:
        self.owner, self._secrets = owner, secrets
        self._run("CREATE ROLE tasks SUPERUSER LOGIN PASSWORD 'first'", "SELECT pg_reload_conf()")
        self.arn = secrets.create_secret(Name=name, SecretString=self._content("first"))["ARN"]

    def set_in_database(self, password: str) -> None:
        """Change the password, and end all connections, so that every process has to connect again."""
        self._run(f"ALTER ROLE tasks PASSWORD '{password}'", _END_CONNECTIONS)

    def set_as_current(self, password: str) -> None:
        """Store this password as the secret's current version."""
        self._secrets.put_secret_value(SecretId=self.arn, SecretString=self._content(password))

    def variables(self, port: int, authority: Authority) -> dict[str, str]:
        """Return what a task is given; no URL."""
        return {
            "SLUICE_DSN": "",
            "SLUICE_DATABASE_SECRET_ARN": self.arn,
            "SLUICE_DATABASE_HOST": "localhost",
            "SLUICE_DATABASE_PORT": str(port),
            "SLUICE_DATABASE_NAME": "postgres",
            "SLUICE_DATABASE_CA": str(authority.certificate),
        }

    @staticmethod
    def _content(password: str) -> str:
        return json.dumps({"username": "tasks", "password": password})

    def _run(self, *statements: str) -> None:
        for statement in statements:  # each committed: whoever connects again meets the new password
            with self.owner.begin() as connection:
                connection.execute(text(statement))


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Return a certificate authority of this test's own."""
    return Authority.make(tmp_path / "authority")


@pytest.fixture
def owner(private_postgres: Any) -> Iterator[Engine]:
    """Yield an engine of a Postgres that lets everybody else in with a password only."""
    engine = engines.engine(private_postgres.get_uri())
    Path(private_postgres.pgdata, "pg_hba.conf").write_text(
        "local all postgres trust\nlocal all all scram-sha-256\n", encoding="ascii"
    )
    with engine.begin() as connection:
        tables.metadata.create_all(connection)
    yield engine
    engine.dispose()


@pytest.fixture
def fleet(owner: Engine, localstack_shared: localstack.Emulator, tmp_path: Path) -> Iterator[WorkerFleet]:
    """Yield the processes of one consumer with this Postgres."""
    with worker_processes.open_fleet(owner, localstack_shared, tmp_path, consumer()) as made:
        yield made


@pytest.fixture
def database(fleet: WorkerFleet, localstack_shared: localstack.Emulator) -> _RotatedDatabase:
    """Return the Postgres with a user whose password is in a secret of LocalStack."""
    region = fleet.environment.region
    secrets = boto3.client("secretsmanager", endpoint_url=localstack_shared.endpoint_url, region_name=region)
    return _RotatedDatabase(fleet.engine, secrets, fleet.environment.name)


def _commit(fleet: WorkerFleet, count: int) -> None:
    """Commit `count` events in each group, each in a transaction of its own."""
    for _ in range(count):
        for group in _GROUPS:
            with Session(fleet.engine) as session:
                topic = naming.topic_name(fleet.environment)
                Outbox(topic).add(session, Event(type="deed", group=group, data={}))
                session.commit()


def _await_done(fleet: WorkerFleet, count: int, *processes: MessagingProcess) -> None:
    """Wait until so many events of each group are handled, while all these processes run."""

    def is_done() -> bool:
        assert all(process.is_running for process in processes), [process.log for process in processes]
        return sum(map(len, fleet.committed_effects().values())) >= count * len(_GROUPS)

    eventually(is_done, timeout_seconds=PATIENCE_SECONDS, describe=f"{count} events of each group to be handled")


def test_a_rotated_password_stops_no_process_and_loses_no_message(
    fleet: WorkerFleet, database: _RotatedDatabase, authority: Authority
) -> None:
    """Between the two steps of a rotation the database refuses the old password and the secret's.

    Messages wait meanwhile, and are handled when the processes have read the new password.
    """
    with TlsPostgres(database.owner, authority.certify("localhost")) as line:
        variables = database.variables(line.port, authority)
        with fleet.command("relay", **variables) as relay, fleet.worker(**variables) as worker:
            _commit(fleet, 3)
            _await_done(fleet, 3, relay, worker)

            database.set_in_database("second")
            _commit(fleet, 3)
            relay.await_logged("the database does not answer")
            worker.await_logged("the database refused")
            database.set_as_current("second")
            _commit(fleet, 3)
            _await_done(fleet, 9, relay, worker)

            database.set_in_database("third")
            database.set_as_current("third")
            _commit(fleet, 3)
            _await_done(fleet, 12, relay, worker)
            for process in (worker, relay):
                process.stop()

    assert fleet.committed_effects() == {group: list(range(1, 13)) for group in _GROUPS}
    for process in (worker, relay):
        assert len(process.log_entries("the database's credentials have changed")) == 2
        assert "first" not in process.log
        assert "third" not in process.log


@pytest.mark.parametrize(
    ("host", "is_trusted", "message"),
    [
        ("localhost", False, "certificate verify failed"),
        ("db.example.com", True, 'server certificate for "db.example.com" does not match host name "localhost"'),
    ],
    ids=["another authority", "another host"],
)
def test_an_unverifiable_server_is_refused_at_once_in_one_line(
    fleet: WorkerFleet,
    database: _RotatedDatabase,
    authority: Authority,
    tmp_path: Path,
    host: str,
    is_trusted: bool,  # noqa: FBT001 (a parameter of the test)
    message: str,
) -> None:
    """Its certificate is of another authority or for another host; not even `--wait 600` lets a command wait."""
    other = authority if is_trusted else Authority.make(tmp_path / "other")
    with TlsPostgres(database.owner, authority.certify(host)) as line:
        variables = database.variables(line.port, other)
        for command in (["schema", "apply", "--wait", "600"], ["relay"], ["worker", "--consumer", "billing"]):
            with fleet.command(*command, **variables) as refused:
                assert refused.wait_for_exit() == 2, command
                last = refused.log.splitlines()[-1]
            assert last.startswith("sluice: the database does not do it (connection failed: "), last
            assert message in last, last
