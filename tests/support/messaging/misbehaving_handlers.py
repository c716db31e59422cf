"""Misdeeds of handlers, each done after the effect was written: a test chooses how the handler ends then."""

import asyncio
import os
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from sluice.messaging.errors import HoldLostError, PermanentError, TransientError
from sluice.messaging.handlers import Ack, Reject, Retry

type FaultyWorker = Callable[[Session], object]
type Ending = Callable[[], object]


class CustomError(BaseException):
    """A BaseException that is not an Exception."""


class SilentError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def _driver(session: Session) -> Any:
    return session.connection().connection.driver_connection


def _write(session: Session) -> None:
    session.execute(text("INSERT INTO effects (consumer, group_id, seq) VALUES ('nobody', 'after the end', 1)"))


def _swallow(session: Session) -> None:
    with suppress(DBAPIError):
        session.execute(text("SELECT 1 / 0 FROM nowhere"))


def _roll_back_to_a_savepoint(session: Session) -> None:
    with suppress(ZeroDivisionError), session.begin_nested():
        raise ZeroDivisionError


def _fork(_: Session) -> None:
    """Fork, and return from the handler in the child process as well."""
    with warnings.catch_warnings(action="ignore"):  # that threads and fork do not go together
        pid = os.fork()
    if pid:
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 70


def _kill_connection(session: Session) -> None:
    if session.connection().dialect.name == "postgresql":
        session.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
    _driver(session).close()


def _state(statement: str) -> FaultyWorker:
    return lambda session: session.execute(text(statement))


def _in_turn(*misdeeds: FaultyWorker) -> FaultyWorker:
    def do(session: Session) -> None:
        for faulty_worker in misdeeds:
            faulty_worker(session)

    return do


def _call_suppressed(act: Callable[[], object]) -> None:
    with suppress(Exception):
        act()


MISDEEDS: dict[str, FaultyWorker] = {
    "does nothing wrong": lambda _: None,
    "statement ROLLBACK": _state("ROLLBACK"),
    "statement ROLLBACK, and writes": _in_turn(_state("ROLLBACK"), _write),
    "statement ROLLBACK, BEGIN, and writes": _in_turn(_state("ROLLBACK"), _state("BEGIN"), _write),
    "statement ROLLBACK, unnoticed": lambda session: _call_suppressed(lambda: _state("ROLLBACK")(session)),
    "statement COMMIT": _state("COMMIT"),
    "driver rolls back": lambda session: _driver(session).rollback(),
    "driver rolls back, and writes": _in_turn(lambda session: _driver(session).rollback(), _write),
    "driver commits": lambda session: _driver(session).commit(),
    "driver closes": lambda session: _driver(session).close(),
    "connection is killed": _kill_connection,
    "connection is invalidated": lambda session: session.connection().invalidate(),
    "connection is closed": lambda session: session.connection().close(),
    "transaction rolls back": lambda session: session.connection().get_transaction().rollback(),  # type: ignore[union-attr]
    "session rolls back": Session.rollback,
    "session rolls back, and writes": _in_turn(Session.rollback, _write),
    "session commits": Session.commit,
    "session closes": Session.close,
    "session is invalidated": Session.invalidate,
    "leaves a savepoint open": Session.begin_nested,
    "rolls back to a savepoint": _roll_back_to_a_savepoint,
    "swallows an error": _swallow,
    "forks": _fork,
}


def _raising(error: BaseException) -> Ending:
    def end() -> object:
        raise error

    return end


ENDINGS: dict[str, Ending] = {
    "Ack": Ack,
    "nothing": lambda: None,
    "Retry": lambda: Retry(delay_seconds=0),
    "Retry without a reason": lambda: Retry(delay_seconds=0, reason=None),  # type: ignore[arg-type]
    "Reject": lambda: Reject("no such customer"),
    "Reject(5)": lambda: Reject(5),  # type: ignore[arg-type]
    "Reject(None)": lambda: Reject(None),  # type: ignore[arg-type]
    "Reject of control characters": lambda: Reject("\x1b[2J\x00\ud800"),
    "nonsense": lambda: "done",
    "ValueError": _raising(ValueError("a" * 10_000_000)),
    "no text": _raising(SilentError()),
    "SystemExit": _raising(SystemExit(0)),
    "KeyboardInterrupt": _raising(KeyboardInterrupt()),
    "GeneratorExit": _raising(GeneratorExit()),
    "CancelledError": _raising(asyncio.CancelledError()),
    "CustomError": _raising(CustomError("boom")),
    "TransientError": _raising(TransientError("the bank is closed")),
    "PermanentError": _raising(PermanentError(None)),
    "HoldLostError": _raising(HoldLostError("the handler's own idea")),
}
