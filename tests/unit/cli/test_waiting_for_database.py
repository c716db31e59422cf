"""A worker, or a command that upgrades, waits for a database that does not answer yet."""

from collections.abc import Callable
from math import inf
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.exc import DBAPIError, OperationalError, ProgrammingError

from sluice.cli.services.running import await_database
from sluice.clock import SystemClock
from sluice.messaging import alive
from sluice.messaging.database.server_settings import OnStandby
from sluice.messaging.liveness import AliveFile

NO_CONNECTION = OperationalError("SELECT", None, psycopg.OperationalError("connection refused"))
NO_RIGHTS = ProgrammingError("SELECT", None, psycopg.errors.InsufficientPrivilege("not you"))
WRONG_CERTIFICATE = OperationalError("SELECT", None, psycopg.OperationalError("SSL error: certificate verify failed"))


class InstantWaits:
    """A stoppable clock whose waits take no time; it is stopped after so many of them."""

    def __init__(self, count: int = 100) -> None:
        self.waited: list[float] = []
        self._count = count

    def wait(self, seconds: float) -> None:
        self.waited.append(seconds)

    def is_stopped(self) -> bool:
        return len(self.waited) == self._count


def _function_that_raises(*errors: Exception) -> Callable[[], None]:
    """Return a function that raises these errors, one at each call, and then succeeds."""
    left = list(errors)

    def act() -> None:
        if left:
            raise left.pop(0)

    return act


@pytest.mark.parametrize("error", [NO_CONNECTION, OnStandby("the database is a standby")])
def test_the_database_is_tried_again_with_growing_pauses_until_it_answers(error: Exception) -> None:
    """Five failures; the pauses begin with at most a second."""
    turns = InstantWaits()

    assert await_database(_function_that_raises(*[error] * 5), turns)
    assert len(turns.waited) == 5
    assert turns.waited[0] <= 1 < max(turns.waited)


def test_a_stop_ends_the_wait() -> None:
    """The process is told to end at the third wait."""
    assert not await_database(_function_that_raises(*[NO_CONNECTION] * 9), InstantWaits(3))


@pytest.mark.parametrize(("error", "ends_at"), [(NO_RIGHTS, inf), (WRONG_CERTIFICATE, inf), (NO_CONNECTION, 0.0)])
def test_an_error_that_lasts_or_comes_too_late_is_raised_at_once(error: DBAPIError, ends_at: float) -> None:
    """Missing rights and a wrong certificate do not mend themselves; the last case is behind the deadline."""
    turns = InstantWaits()

    with pytest.raises(type(error)) as raised:
        await_database(_function_that_raises(error), turns, ends_at=ends_at)

    assert raised.value == error
    assert turns.waited == []


def test_a_process_that_waits_for_its_database_is_alive(tmp_path: Path) -> None:
    """Otherwise its health check would replace it by one that waits as well."""
    shown = AliveFile(tmp_path / "alive", SystemClock())
    before = alive.read(tmp_path / "alive")

    await_database(_function_that_raises(NO_CONNECTION), InstantWaits(), alive=shown)

    after = alive.read(tmp_path / "alive")
    assert after.monotonic_seconds > before.monotonic_seconds
    assert after.overdue == {}
