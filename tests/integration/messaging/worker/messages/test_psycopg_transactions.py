"""A handler uses psycopg's own `connection.transaction()` inside its transaction: a savepoint, and nothing more.

https://www.psycopg.org/psycopg3/docs/basic/transactions.html#transaction-contexts (read 2026-11-27)
"""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from sluice.messaging.envelope import Event
from sluice.messaging.handlers import Context
from tests.support.messaging.connection_misdeeds import driver_of
from tests.support.messaging.world import MAX_ATTEMPTS, World

_INSERT = "INSERT INTO effects (consumer, group_id, seq) VALUES ('billing', '{}', 0)"


def _write(driver: Any, group_id: str) -> None:
    """Insert an effect by the driver's connection."""
    driver.execute(_INSERT.format(group_id))


def _block(session: Session) -> None:
    """Write inside a transaction block of psycopg."""
    with driver_of(session).transaction():
        _write(driver_of(session), "inner")


def _block_that_fails(session: Session) -> None:
    """Write in a block that fails, then after the block."""
    with suppress(ValueError), driver_of(session).transaction():
        _write(driver_of(session), "lost")
        raise ValueError("the block's own")
    _write(driver_of(session), "after")


def _block_rolled_back(session: Session) -> None:
    """Write in a block that rolls itself back."""
    with driver_of(session).transaction() as block:
        _write(driver_of(session), "lost")
        raise psycopg.Rollback(block)


def _block_forced_back(session: Session) -> None:
    """Write in a block that is always rolled back."""
    with driver_of(session).transaction(force_rollback=True):
        _write(driver_of(session), "lost")


def _block_after_an_error(session: Session) -> None:
    """Let a statement fail in a block, then write after the block."""
    with suppress(psycopg.errors.DivisionByZero), driver_of(session).transaction():
        driver_of(session).execute("SELECT 1 / 0")
    _write(driver_of(session), "after")


def _blocks_in_blocks(session: Session) -> None:
    """Write in an inner block that fails, then in the outer one."""
    driver = driver_of(session)
    with driver.transaction("outer"), suppress(ValueError), driver.transaction("inner"):
        _write(driver, "lost")
        raise ValueError("the inner block's")
    _write(driver, "after")


def _block_around_the_session(session: Session) -> None:
    """Write by the session, in a savepoint inside a block of the driver."""
    with driver_of(session).transaction(), session.begin_nested():
        session.execute(text(_INSERT.format("inner")))


def _block_with_a_pipeline(session: Session) -> None:
    """Write in a pipeline inside a block."""
    with driver_of(session).transaction(), driver_of(session).pipeline():
        _write(driver_of(session), "inner")


def _rollback_in_a_block(session: Session) -> None:
    """Roll the session back while a block is open."""
    with driver_of(session).transaction():
        session.rollback()


def _rollback_before_a_block(session: Session) -> None:
    """Roll the session back and write in a block afterwards."""
    session.rollback()
    _block(session)


def _driver_kept_through_a_rollback(session: Session) -> None:
    """Keep the driver's connection through a rollback, and commit a block of its own."""
    driver = driver_of(session)
    session.rollback()
    with driver.transaction():
        _write(driver, "alone")


def _commit_in_a_block(session: Session) -> None:
    """Execute COMMIT inside a block."""
    with driver_of(session).transaction():
        _write(driver_of(session), "alone")
        driver_of(session).execute("COMMIT")


def _session_commit_in_a_block(session: Session) -> None:
    """Commit the session inside a block."""
    with driver_of(session).transaction():
        session.commit()


_ALLOWED: dict[str, tuple[Callable[[Session], None], list[str]]] = {
    "a block": (_block, ["inner"]),
    "a block that fails": (_block_that_fails, ["after"]),
    "a block rolled back": (_block_rolled_back, []),
    "a block forced back": (_block_forced_back, []),
    "a block after an error": (_block_after_an_error, ["after"]),
    "blocks in blocks": (_blocks_in_blocks, ["after"]),
    "a block around the session": (_block_around_the_session, ["inner"]),
    "a block with a pipeline": (_block_with_a_pipeline, ["inner"]),
}
_REFUSED: dict[str, Callable[[Session], None]] = {
    "a rollback in a block": _rollback_in_a_block,
    "a rollback before a block": _rollback_before_a_block,
    "the driver, through a rollback": _driver_kept_through_a_rollback,
    "COMMIT in a block": _commit_in_a_block,
    "the session's commit in a block": _session_commit_in_a_block,
}


def _work_until_idle(engine: Engine, act: Callable[[Session], None]) -> World:
    """Let a worker handle three messages, whose first handler does this act in every attempt."""

    def handle(session: Session, _: Event, __: Context) -> None:
        act(session)

    world = World(engine)
    world.handler_steps["a", 1] = [handle] * 100
    world.send("a", "a", "b")
    world.work_until_idle(world.worker())
    return world


@pytest.mark.parametrize("name", _ALLOWED)
def test_psycopgs_transaction_in_a_handler_is_a_savepoint(on_postgres: Engine, name: str) -> None:
    """The rows of `written` are committed with the message's effect, in one attempt."""
    act, written = _ALLOWED[name]

    world = _work_until_idle(on_postgres, act)

    assert sorted(world.committed_effects()) == sorted(
        [("a", 1), ("a", 2), ("b", 1), *((group, 0) for group in written)]
    )
    assert world.called_places.count(("a", 1)) == 1


@pytest.mark.parametrize("name", _REFUSED)
def test_a_psycopg_block_that_would_end_the_transaction_is_refused(on_postgres: Engine, name: str) -> None:
    """The first message has no effect and fails each attempt.

    Or the handler's own commit succeeded and was noticed: then there is one effect and one attempt.
    """
    world = _work_until_idle(on_postgres, _REFUSED[name])

    effects, calls = Counter(world.committed_effects()), world.called_places.count(("a", 1))
    own_count = max(effects.pop(("alone", 0), 0), effects.pop(("a", 1), 0))
    assert effects == {("a", 2): 1, ("b", 1): 1}
    assert own_count in (0, 1)
    assert calls == (1 if own_count else MAX_ATTEMPTS)
