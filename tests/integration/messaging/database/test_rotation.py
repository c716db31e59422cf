"""Credentials that change under an engine, on a real Postgres that checks passwords."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError
from sqlalchemy import Engine, make_url, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine

from sluice.clock import VirtualClock
from sluice.messaging import async_database_engine
from sluice.messaging.database import engines, failures, rotation
from sluice.messaging.database.rotation import rotating_engine
from tests.support.messaging.passwords import change_password, execute, owner_of

_THREADS = 12


class _Secret:
    """The secret: its current password, how often it was read, and whether Secrets Manager answers."""

    def __init__(self, place: str) -> None:
        self._place, self.value, self.reads, self.is_away = make_url(place), "first", 0, False

    def read(self) -> str:
        """Return the URL with the secret's current password, and count the reads.

        While Secrets Manager is away, fail.
        """
        self.reads += 1
        if self.is_away:
            raise EndpointConnectionError(endpoint_url="https://secretsmanager")
        url = self._place.set(username="consumer", password=self.value)
        return url.render_as_string(hide_password=False)


@pytest.fixture
def owner(private_postgres: Any) -> Iterator[Engine]:
    """Yield an engine on a Postgres where the consumer needs a password, "first" at the beginning."""
    with owner_of(private_postgres) as engine:
        yield engine


@pytest.fixture
def clock() -> VirtualClock:
    """Return the clock by which the secret is read again."""
    return VirtualClock()


@pytest.fixture
def secret(owner: Engine) -> _Secret:
    """Return the secret, which has the first password."""
    return _Secret(owner.url.render_as_string(hide_password=False))


@pytest.fixture
def engine(secret: _Secret, clock: VirtualClock) -> Iterator[Engine]:
    """Yield an engine that reads its password from the secret."""
    engine = rotating_engine(secret.read, clock)
    yield engine
    engine.dispose()


def _user(engine: Engine) -> str:
    """Return the role in which the engine's connections work."""
    with engine.connect() as connection:
        return str(connection.execute(text("SELECT current_user")).scalar_one())


def test_a_new_connection_uses_the_new_password_and_open_ones_stay(
    owner: Engine, engine: Engine, secret: _Secret, clock: VirtualClock
) -> None:
    """The open connection still has its temporary table after the change."""
    with engine.connect() as held:
        held.execute(text("CREATE TEMPORARY TABLE kept (id INTEGER)"))
        clock.sleep(10)
        secret.value = "second"
        change_password(owner, "second")

        assert _user(engine) == "consumer"

        assert held.execute(text("SELECT count(*) FROM kept")).scalar_one() == 0
    assert secret.reads == 2


def test_the_secret_is_read_again_after_a_minute_and_not_before(
    owner: Engine, engine: Engine, secret: _Secret, clock: VirtualClock
) -> None:
    """With two alternating users the old password stays valid, so that no refusal shows that the secret has changed."""
    for seconds, reads in ((0, 1), (59, 1), (1, 2), (59, 2)):
        clock.sleep(seconds)
        engine.dispose()
        assert _user(engine) == "consumer"
        assert secret.reads == reads


def test_a_refusal_during_a_rotation_counts_as_an_outage(
    owner: Engine, engine: Engine, secret: _Secret, clock: VirtualClock
) -> None:
    """The database has the second password before the secret has it. A process waits, and does not end."""
    refusals = engines.Refusals(engine)
    change_password(owner, "second")
    for _ in range(3):
        clock.sleep(rotation.REPEAT_SECONDS)
        with pytest.raises(
            OperationalError, match=r"refuses the credentials for now .*password authentication"
        ) as away:
            _user(engine)
        assert failures.may_pass(away.value)
        assert not engines.is_refused(away.value.orig)
    assert secret.reads == 4
    assert refusals.message is None

    secret.value = "second"
    clock.sleep(rotation.REPEAT_SECONDS)

    assert _user(engine) == "consumer"


def test_credentials_that_remain_refused_are_refused_in_the_end(
    owner: Engine, engine: Engine, clock: VirtualClock
) -> None:
    """A rotation takes no longer than the grace time, so after it the process ends with the reason."""
    refusals = engines.Refusals(engine)
    change_password(owner, "second")
    for _ in range(4):
        clock.sleep(rotation.GRACE_SECONDS / 4)
        with pytest.raises(OperationalError, match="for now"):
            _user(engine)

    clock.sleep(rotation.GRACE_SECONDS / 4)
    with pytest.raises(OperationalError) as refused:
        _user(engine)

    assert engines.is_refused(refused.value.orig)
    assert refusals.message is not None


def test_two_rotations_far_apart_are_not_one_that_takes_long(
    owner: Engine, engine: Engine, clock: VirtualClock
) -> None:
    """A refusal in the first, and no other connection until the second."""
    for password in ("second", "third"):
        change_password(owner, password)
        clock.sleep(rotation.GRACE_SECONDS + 1)
        with pytest.raises(OperationalError, match="for now"):
            _user(engine)


def test_many_threads_that_are_refused_at_once_read_the_secret_once(
    owner: Engine, engine: Engine, secret: _Secret, clock: VirtualClock
) -> None:
    """Once at the start, and once after the refusal: Secrets Manager limits calls."""
    users: list[str] = []
    clock.sleep(10)
    secret.value = "second"
    change_password(owner, "second")
    barrier = threading.Barrier(_THREADS)

    def connect() -> None:
        barrier.wait()
        users.append(_user(engine))

    threads = [threading.Thread(target=connect) for _ in range(_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert users == ["consumer"] * _THREADS
    assert secret.reads == 2


def test_a_secret_that_cannot_be_read_leaves_the_last_credentials(
    engine: Engine, secret: _Secret, clock: VirtualClock
) -> None:
    """They are probably still valid; an outage of Secrets Manager stops nobody."""
    secret.is_away = True
    clock.sleep(rotation.FRESH_SECONDS)

    assert _user(engine) == "consumer"

    assert secret.reads == 2


def test_a_connection_that_listens_has_the_new_password_too(
    owner: Engine, engine: Engine, secret: _Secret, clock: VirtualClock
) -> None:
    """It is opened outside the pool, and receives a notification."""
    clock.sleep(10)
    secret.value = "second"
    change_password(owner, "second")

    listening = engines.listening(engine, "orders")

    execute(owner, "NOTIFY orders")
    assert [notice.channel for notice in listening.notifies(timeout=5, stop_after=1)] == ["orders"]
    assert list(listening.notifies(timeout=0)) == []
    assert listening.execute("SELECT 1").fetchone() == (1,)
    listening.close()


def test_an_async_engine_learns_the_new_password_within_its_loop(
    owner: Engine, secret: _Secret, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first refusal makes the engine read the secret again.

    A password that stays refused counts as a database outage.
    """
    monkeypatch.setenv(rotation.SECRET_VARIABLE, "arn")
    monkeypatch.setattr("sluice.messaging.database.credentials.client", lambda _: None)
    monkeypatch.setattr("sluice.messaging.database.credentials.database_url", lambda *_: secret.read())
    monkeypatch.setattr("sluice.messaging.database.rotation.REPEAT_SECONDS", 0)

    async def user(engine: AsyncEngine) -> str:
        async with engine.connect() as connection:
            return str((await connection.execute(text("SELECT current_user"))).scalar_one())

    async def run() -> None:
        engine = async_database_engine("us-east-1")
        async with engine.connect() as held:
            change_password(owner, "second")
            with pytest.raises(OperationalError, match=r"refuses the credentials for now .*password authentication"):
                await user(engine)
            secret.value = "second"
            assert await asyncio.gather(*(user(engine) for _ in range(5))) == ["consumer"] * 5
            assert (await held.execute(text("SELECT 1"))).scalar_one() == 1
        await engine.dispose()

    asyncio.run(run())
