"""Users of a database for each role, made by its owner and let in with tokens, on a real Postgres.

Tokens are ours: a token of RDS is good for one user, and here is a password that the next one takes the place of. A
Postgres is set up as RDS is: its owner is no superuser, and a member of `rds_iam` is not let in with a password.
"""

import asyncio
import secrets
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event, make_url, text
from sqlalchemy.exc import OperationalError, ProgrammingError
from sqlalchemy.ext.asyncio import create_async_engine

from sluice.clock import VirtualClock
from sluice.declaration import DatabaseRole
from sluice.errors import ConfigError
from sluice.messaging import async_database_engine
from sluice.messaging.database import credentials, engines, failures, migrations, roles, rotation
from sluice.messaging.inbox import tables as inbox_tables
from sluice.messaging.outbox import tables as outbox_tables
from tests.integration.messaging.conftest import private_server
from tests.support.command_line import command_line
from tests.support.messaging.passwords import execute

_WORKER, _RELAY = DatabaseRole.WORKER.value, DatabaseRole.RELAY.value
_PARTS = (outbox_tables.versioned, inbox_tables.versioned)
# RDS's own line, with a method that is at hand: who is in rds_iam is let in by nothing but a token.
_RULES = "local all postgres trust\nlocal all +rds_iam {}\nlocal all all scram-sha-256\n"


class _Tokens:
    """A source of tokens: each is valid until the next one of its user."""

    def __init__(self, superuser: Engine) -> None:
        self._superuser, self._numbers, self.given, self.is_refused = superuser, count(1), 0, False

    def url_of(self, user: str) -> str:
        """Set a new token as the user's password and return the URL with it.

        While tokens are refused, the password is another one.
        """
        self.given += 1
        token = f"token-{next(self._numbers)}"
        execute(self._superuser, f"ALTER ROLE {user} PASSWORD '{'other' if self.is_refused else token}'")
        return self._superuser.url.set(username=user, password=token).render_as_string(hide_password=False)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Yield a Postgres for all tests of this module."""
    with private_server(tmp_path_factory) as made:
        yield made


@pytest.fixture
def superuser(server: Any) -> Iterator[Engine]:
    """Yield the superuser's engine on a new database; no role is left of the last one."""
    first = engines.engine(server.get_uri())
    owned = (*(role.value for role in DatabaseRole), "master", "reporting", "rds_iam")
    with first.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("DROP DATABASE IF EXISTS shop WITH (FORCE)"))
        for name in owned:
            connection.execute(text(f"DROP ROLE IF EXISTS {name}"))
        connection.execute(text("CREATE ROLE rds_iam"))
        connection.execute(text("CREATE ROLE master LOGIN CREATEROLE PASSWORD 'first'"))
        connection.execute(text("CREATE DATABASE shop OWNER master"))
    first.dispose()
    engine = engines.engine(make_url(server.get_uri()).set(database="shop").render_as_string(hide_password=False))
    _set_authentication(server, engine, "scram-sha-256")
    yield engine
    engine.dispose()


def _set_authentication(server: Any, superuser: Engine, method: str) -> None:
    """Let every role in by this method of authentication, and have the server read its rules again."""
    Path(server.pgdata, "pg_hba.conf").write_text(_RULES.format(method), encoding="ascii")
    execute(superuser, "SELECT pg_reload_conf()")


@pytest.fixture
def tables(superuser: Engine) -> Engine:
    """Return the superuser's engine, with the tables and roles made."""
    for versioned in _PARTS:
        list(migrations.upgrade(superuser, versioned))
    assert _create(superuser)
    return superuser


def _create(owner: Engine) -> list[str]:
    """Create the product's roles as the owner, and return the statements that were run."""
    with owner.begin() as connection:
        return roles.create(connection)


@pytest.fixture
def tokens(tables: Engine) -> _Tokens:
    """Return a source of tokens, by which users log in."""
    return _Tokens(tables)


@pytest.fixture
def clock() -> VirtualClock:
    """Return the clock by which connections are limited."""
    return VirtualClock()


@pytest.fixture
def worker(tokens: _Tokens, clock: VirtualClock) -> Iterator[Engine]:
    """Yield an engine of the worker's user, with a new token for each connection."""
    engine = rotation.token_engine(lambda: tokens.url_of(_WORKER), clock)
    yield engine
    engine.dispose()


def _user(engine: Engine) -> str:
    """Return the role in which the engine's connections work."""
    with engine.connect() as connection:
        return str(connection.execute(text("SELECT current_user")).scalar_one())


def test_every_connection_has_its_own_token_and_can_outlive_it(worker: Engine, tokens: _Tokens) -> None:
    """Earlier tokens are refused by then, as RDS refuses tokens older than 15 minutes."""
    with worker.connect() as first, worker.connect() as second:
        third = engines.listening(worker, "orders")

        users = [connection.execute(text("SELECT current_user")).scalar_one() for connection in (first, second)]

    assert users == [_WORKER, _WORKER]
    assert third.execute("SELECT current_user").fetchone() == (_WORKER,)
    assert tokens.given == 4  # one for the engine itself
    third.close()


def test_connections_with_tokens_are_opened_at_a_limited_rate(
    worker: Engine, clock: VirtualClock, tokens: _Tokens
) -> None:
    """RDS refuses more than some hundred logins by IAM a second, for all processes together."""
    began = clock.monotonic()
    held = [worker.connect() for _ in range(21)]

    assert clock.monotonic() - began == pytest.approx(20 / rotation.CONNECTIONS_PER_SECOND)
    for connection in held:
        connection.close()


def test_concurrent_threads_each_connect_with_a_valid_token(worker: Engine) -> None:
    """A token is valid until the next one here, so each thread must connect before the next token is made."""
    users: list[str] = []
    threads = [threading.Thread(target=lambda: users.append(_user(worker))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert set(users) == {_WORKER}


def test_a_refused_token_counts_as_a_database_outage(worker: Engine, tokens: _Tokens, clock: VirtualClock) -> None:
    """RDS also refuses valid tokens: shortly after a policy was attached, or if IAM is called too often."""
    tokens.is_refused = True
    with pytest.raises(OperationalError, match="refuses the credentials for now") as away:
        _user(worker)

    tokens.is_refused = False
    clock.sleep(rotation.REPEAT_SECONDS)

    assert failures.may_pass(away.value)
    assert _user(worker) == _WORKER


def test_an_engine_of_asyncio_has_a_token_for_each_connection(tokens: _Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    """Earlier tokens are refused by then; connections that they opened continue, with the role's rights."""
    monkeypatch.setenv(credentials.USER_VARIABLE, _WORKER)
    monkeypatch.setattr("sluice.messaging.database.credentials.token_url", lambda _, user, __: tokens.url_of(user))

    async def run() -> None:
        engine = async_database_engine("us-east-1")
        async with engine.connect() as first, engine.connect() as second, engine.connect() as third:
            users = [await connection.scalar(text("SELECT current_user")) for connection in (first, second, third)]
            assert users == [_WORKER] * 3
            assert tokens.given == 4  # one for the engine itself
            old = engine.url
            tokens.is_refused = True
            with pytest.raises(OperationalError, match="refuses the credentials for now"):
                await engine.connect()
            tokens.is_refused = False
            assert await first.scalar(text("SELECT count(*) FROM sluice_inbox_group")) == 0
        await engine.dispose()
        stale = create_async_engine(old)
        with pytest.raises(OperationalError, match="password authentication failed"):
            await stale.connect()
        await stale.dispose()

    asyncio.run(run())


def test_a_second_run_restores_the_rights_that_somebody_changed(tables: Engine) -> None:
    """Missing rights are granted, and further ones on our tables revoked. Without changes it runs no statement."""
    assert _create(tables) == []
    execute(
        tables,
        f"GRANT DELETE ON sluice_inbox_group TO {_RELAY}",
        f"REVOKE UPDATE ON sluice_outbox FROM {_RELAY}",
    )

    assert _create(tables) == [
        f"GRANT UPDATE ON sluice_outbox TO {_RELAY}",
        f"REVOKE DELETE ON sluice_inbox_group FROM {_RELAY}",
    ]


def test_many_tasks_make_the_roles_at_once(superuser: Engine) -> None:
    """At a deployment, each task makes the roles before its service starts."""
    for versioned in _PARTS:
        list(migrations.upgrade(superuser, versioned))
    with ThreadPoolExecutor(8) as tasks:
        done = list(tasks.map(_create, [superuser] * 8))

    assert sorted(map(bool, done)) == [False] * 7 + [True]
    assert _create(superuser) == []


def test_tables_of_the_project_are_the_workers_and_producers_before_and_after(superuser: Engine) -> None:
    """The project's tables exist when roles are introduced. A right that the project revokes later stays revoked."""
    execute(superuser, "CREATE TABLE ledger (id bigserial)", 'CREATE TABLE "Order" (id int)')
    for versioned in _PARTS:
        list(migrations.upgrade(superuser, versioned))
    _create(superuser)
    execute(superuser, "CREATE TABLE later (id bigserial)", f"REVOKE DELETE ON ledger FROM {_WORKER}")
    _create(superuser)

    for name in (DatabaseRole.PRODUCER.value, _WORKER):
        execute(
            superuser,
            f"SET LOCAL ROLE {name}",
            "INSERT INTO ledger DEFAULT VALUES",
            "INSERT INTO later DEFAULT VALUES",
            'UPDATE "Order" SET id = 1',
        )
    for name, statement in (
        (_WORKER, "DELETE FROM ledger"),
        (_RELAY, "SELECT * FROM ledger"),
        (_WORKER, "SELECT * FROM sluice_outbox"),
        (DatabaseRole.PRODUCER.value, "SELECT * FROM sluice_inbox_group"),
    ):
        with pytest.raises(ProgrammingError, match="permission denied"):
            execute(superuser, f"SET LOCAL ROLE {name}", statement)


def test_grants_cover_tables_of_the_project_of_any_name_and_schema(superuser: Engine) -> None:
    """Names with spaces, percent signs and backslashes, and views."""
    execute(
        superuser,
        'CREATE SCHEMA "the shop"',
        'CREATE TABLE "the shop".ledger (id bigserial)',
        'CREATE TABLE "50%, \\:or less" (id int)',
        "CREATE VIEW latest AS SELECT 1 AS id",
    )
    for versioned in _PARTS:
        list(migrations.upgrade(superuser, versioned))
    _create(superuser)

    execute(
        superuser,
        f"SET LOCAL ROLE {_WORKER}",
        'INSERT INTO "the shop".ledger DEFAULT VALUES',
        'INSERT INTO "50%, \\:or less" VALUES (1)',
        "SELECT * FROM latest",
    )


def test_users_may_connect_to_a_database_closed_to_the_public(superuser: Engine) -> None:
    """The grants include database and schema, and a second run finds nothing to change."""
    execute(superuser, "REVOKE ALL ON DATABASE shop FROM PUBLIC", "REVOKE ALL ON SCHEMA public FROM PUBLIC")
    for versioned in _PARTS:
        list(migrations.upgrade(superuser, versioned))
    _create(superuser)

    worker = engines.engine(_Tokens(superuser).url_of(_WORKER))
    execute(worker, "SELECT * FROM sluice_inbox_group")

    worker.dispose()
    assert _create(superuser) == []


def test_a_second_database_of_the_server_gives_its_own_tables_too(tables: Engine) -> None:
    """Roles are the server's: they are there already, as after a restore into a new database."""
    name = f"second_{secrets.token_hex(4)}"
    with tables.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    second = engines.engine(tables.url.set(database=name).render_as_string(hide_password=False))
    try:
        execute(second, "CREATE TABLE ledger (id bigserial)")
        for versioned in _PARTS:
            list(migrations.upgrade(second, versioned))
        _create(second)
        execute(second, "CREATE TABLE later (id bigserial)")

        for table in ("ledger", "later"):
            execute(second, f"SET LOCAL ROLE {_WORKER}", f"INSERT INTO {table} DEFAULT VALUES")
        assert _create(second) == []
    finally:
        second.dispose()
        with tables.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))


def test_a_user_who_does_not_own_the_tables_is_refused(superuser: Engine) -> None:
    """Postgres would grant nothing in this case, and only warn."""
    for versioned in _PARTS:
        list(migrations.upgrade(superuser, versioned))
    execute(superuser, "DROP ROLE rds_iam")
    master = engines.engine(_master(superuser))

    with pytest.raises(ProgrammingError, match="permission denied"):
        _create(master)
    execute(superuser, "GRANT ALL ON ALL TABLES IN SCHEMA public TO master")
    execute(superuser, "GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO master")
    with pytest.raises(ConfigError, match="does not own"):
        _create(master)

    master.dispose()


def _master(superuser: Engine) -> str:
    """Return the URL with which the master user connects."""
    return superuser.url.set(username="master", password="first").render_as_string(hide_password=False)  # noqa: S106


def _grant_as_rds(
    connection: Any, cursor: object, statement: str, parameters: object, context: object, is_many: object
) -> tuple[str, object]:
    """Let the owner give `rds_iam` away, which RDS does though he is no member of it."""
    if statement.startswith("GRANT rds_iam"):
        statement = f"RESET SESSION AUTHORIZATION; {statement}; SET SESSION AUTHORIZATION master"
    return statement, parameters


@pytest.fixture
def rds(superuser: Engine, server: Any) -> Engine:
    """Return the superuser's engine on what lets members of rds_iam in with nothing but a token, as RDS does."""
    _set_authentication(server, superuser, "reject")
    event.listen(superuser, "before_cursor_execute", _grant_as_rds, retval=True)
    return superuser


def _create_as_master(rds: Engine) -> list[str]:
    """Create the product's roles as RDS's master user, and return the statements that were run."""
    with rds.begin() as connection:
        connection.execute(text("SET SESSION AUTHORIZATION master"))
        done = roles.create(connection)
        connection.execute(text("RESET SESSION AUTHORIZATION"))
    return done


def test_an_owner_who_creates_token_users_still_logs_in_by_password(rds: Engine) -> None:
    """Postgres makes the creator of a user its member. An indirect member of rds_iam could only log in with a token."""
    master = engines.engine(_master(rds))
    for versioned in _PARTS:
        list(migrations.upgrade(master, versioned))

    assert f"GRANT rds_iam TO {_WORKER}" in _create_as_master(rds)
    assert _create_as_master(rds) == []

    master.dispose()
    assert _user(master) == "master"
    master.dispose()
    with rds.connect() as connection:
        found = connection.execute(text("SELECT rolname FROM pg_roles WHERE rolname LIKE 'sluice%'")).scalars()
        assert set(found) == {role.value for role in DatabaseRole}
    worker = engines.engine(rds.url.set(username=_WORKER).render_as_string(hide_password=False))
    with pytest.raises(OperationalError, match=r"pg_hba\.conf rejects"):
        _user(worker)


def test_an_owner_who_would_lock_himself_out_is_refused(rds: Engine) -> None:
    """The user exists already, and the owner is its member."""
    master = engines.engine(_master(rds))
    execute(master, f"CREATE ROLE {_WORKER} LOGIN")

    with pytest.raises(ConfigError, match="a member of them here, and so of rds_iam"):
        _create_as_master(rds)

    master.dispose()
    assert _user(master) == "master"
    master.dispose()
    execute(rds, f"GRANT rds_iam TO {_WORKER}")  # as it would have been
    with pytest.raises(OperationalError, match=r"pg_hba\.conf rejects"):
        _user(master)


def test_an_owner_without_rds_iam_makes_roles_without_it(
    superuser: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Anywhere but on RDS; the tables were made before."""
    execute(superuser, "DROP ROLE rds_iam")
    master = _master(superuser)
    with command_line(monkeypatch, capsys) as run:
        made = run("schema", "apply", "--roles", "--dsn", master)
        again = run("schema", "apply", "--roles", "--dsn", master)

    assert made[0] == 0
    assert again[0] == 0
    assert made[2].splitlines()[-1] == "the database's roles have the rights that they need"
    assert "changed a role" in made[2]
    assert "changed a role" not in again[2]


def test_sqlite_has_no_roles() -> None:
    """The refusal says that SQLite has no users."""
    engine = engines.engine("sqlite://")
    with engine.connect() as connection, pytest.raises(ConfigError, match="SQLite has no users"):
        roles.create(connection)
    engine.dispose()


def test_a_token_of_rds_is_made_of_what_the_variables_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """The token is signed locally, without a call; the connection uses verified TLS."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    variables = {
        "SLUICE_DATABASE_USER": _WORKER,
        "SLUICE_DATABASE_HOST": "shop.cluster-abc.eu-west-1.rds.amazonaws.com",
        "SLUICE_DATABASE_PORT": "5433",
        "SLUICE_DATABASE_NAME": "sluice",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    url = rotation.runtime_engine("eu-west-1").url

    place = "shop.cluster-abc.eu-west-1.rds.amazonaws.com:5433"
    assert str(url.password).startswith(f"{place}/?Action=connect&DBUser={_WORKER}&X-Amz-Algorithm=AWS4-HMAC-SHA256")
    assert "%2Feu-west-1%2Frds-db%2Faws4_request" in str(url.password)
    assert url.username == _WORKER
    assert f"{url.host}:{url.port}" == place
    assert url.database == "sluice"
    assert url.query == {"sslmode": "verify-full", "sslrootcert": str(credentials.RDS_CERTIFICATES)}
    monkeypatch.delenv("SLUICE_DATABASE_HOST")
    with pytest.raises(ConfigError, match="SLUICE_DATABASE_HOST is not set"):
        rotation.runtime_engine("eu-west-1")


@pytest.mark.parametrize(
    ("name", "value"),
    [("HOST", "[shop"), ("PORT", "http"), ("PORT", "0"), ("PORT", "70000"), ("PORT", "5432/x")],
    ids=["host is no host", "port is a word", "port is 0", "port is above 65535", "port with a path"],
)
def test_an_invalid_place_is_refused_before_a_token_is_made_for_it(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """Host or port come from variables; the refusal names the variable."""
    variables = {"USER": _WORKER, "HOST": "shop.example", "PORT": "5432", "NAME": "sluice"} | {name: value}
    for part, given in variables.items():
        monkeypatch.setenv(f"SLUICE_DATABASE_{part}", given)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")

    with pytest.raises(ConfigError, match=f"SLUICE_DATABASE_{name}"):
        rotation.runtime_engine("eu-west-1")


def test_precedence_is_the_secret_then_the_user_then_the_secrets_arn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """During a deployment, tasks of the old and of the new version both find their variables."""
    monkeypatch.setenv("SLUICE_DATABASE_SECRET", '{"username": "sluice", "password": "p"}')
    monkeypatch.setenv("SLUICE_DATABASE_USER", _WORKER)
    monkeypatch.setenv("SLUICE_DATABASE_SECRET_ARN", "arn:aws:secretsmanager:eu-west-1:111122223333:secret:s-AbCdEf")
    monkeypatch.setenv("SLUICE_DATABASE_HOST", "shop.eu-west-1.rds.amazonaws.com")
    monkeypatch.setenv("SLUICE_DATABASE_NAME", "sluice")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")

    users = [rotation.runtime_engine("eu-west-1").url.username]
    monkeypatch.delenv("SLUICE_DATABASE_SECRET")
    users.append(rotation.runtime_engine("eu-west-1").url.username)

    assert users == ["sluice", _WORKER]
