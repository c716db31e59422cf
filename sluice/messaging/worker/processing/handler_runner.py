"""Calls a handler inside its transaction, and turns every result into one of three outcomes.

Messages from the queue and parked messages are treated alike. A handler is the user's code: it may raise anything, end
the transaction behind SQLAlchemy's back, or fork. Only the transaction that was begun for the handler is committed,
with the inbox's mark in it, which is written after the handler returned.
"""

import contextvars
import decimal
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Self, cast

from sqlalchemy import Connection
from sqlalchemy.exc import DatabaseError, DBAPIError
from sqlalchemy.orm import Session

from sluice.messaging import failpoints
from sluice.messaging.database import connections, failures
from sluice.messaging.database.transactions import (
    BegunTransaction,
    Mark,
    MarkStatement,
    MessageSession,
    TransactionEndedError,
)
from sluice.messaging.envelope import Envelope
from sluice.messaging.errors import HoldLostError, PermanentError, TransientError
from sluice.messaging.failpoints import Failpoint
from sluice.messaging.handlers import Ack, AsyncHandler, Context, Handler, Handlers, MessageHold, Outcome, Reject, Retry
from sluice.messaging.outbox.sessions import number_now
from sluice.messaging.worker.hooks import WorkerHooks, WorkerHookSet
from sluice.messaging.worker.processing import async_handlers
from sluice.messaging.worker.processing.process_state import ProcessGuard, process_state
from sluice.terminal.logger import Logger
from sluice.terminal.printable import exception_text, printable, text_of

_log = Logger()
CALLED = "sluice_handler_called"
"""Key in `Session.info` that is set before the handler is called: a later error may be the handler's."""
BEGUN = "sluice_begun"
"""Key in `Session.info`: the `BegunTransaction` of a handler that may have committed without an answer of the database.
"""


class DatabaseFailedError(Exception):
    """Raised from an error of a handler or of its commit, if the database may be the cause."""


class AdmissionChangedError(Exception):
    """Raised when a message is decided about again, at the first use of its session, and the decision is another."""


class TransactionMark(NamedTuple):
    """The mark of a message whose group is locked, and the transaction that the mark belongs to.

    Args:
        mark: writes into the transaction that the message is handled.
        transaction_id: the id of Postgres, if the statement that locked the group returned it.
        statement: returns the one statement of Postgres that does the same, if one suffices.
        was_committed: returns whether the transaction may have been committed, by the rows that it would have left;
            None means that only its id tells.
    """

    mark: Mark
    transaction_id: int | None = None
    statement: Callable[[], MarkStatement | None] = lambda: None
    was_committed: Callable[[Connection], bool] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerAttempt:
    """One attempt at a message.

    Args:
        session: the session whose transaction locks the group of the message.
        admit: decides in the transaction that the message is handled.
        is_late: whether the transaction begins at the first use of the session, instead of before the handler.
        shared: the transaction, guarded, if later events of a bundle share it: then it is marked, and not committed.
    """

    session: Session
    envelope: Envelope
    context: Context
    admit: Callable[[], TransactionMark]
    before_commit: str
    is_late: bool = False
    shared: BegunTransaction | None = None


class _Transaction:
    """The transaction of an attempt: it begins before its handler, or at the first use of its session.

    `begun` is None until then. An error at its beginning is raised again after the handler, even if the handler caught
    it.
    """

    def __init__(self, attempt: HandlerAttempt) -> None:
        self._attempt = attempt
        self.begun: BegunTransaction | None = None
        self._mark: TransactionMark | None = None
        self._is_kept = False
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        session = self._attempt.session
        if self._attempt.is_late and isinstance(session, MessageSession):
            session.begin_late = self.begin
            connections.end_own_work()
            return self
        try:
            self.begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._let_begin()
        if self.begun is not None and not self._is_kept:
            self.begun.release()
        connections.begin_own_work()

    def begin(self) -> BegunTransaction:
        """Begin the transaction, unless it has begun. Runs on the thread of the lane.

        Raises:
            AdmissionChangedError: the decision about the message has changed meanwhile.
            HoldLostError: another consumer may have the message.
            DBAPIError, OutboxError: the database does not let the transaction begin.
        """
        if self._error is not None:
            raise self._error
        if self.begun is None:
            self._let_begin()
            connections.begin_own_work()
            try:
                self._mark = self._attempt.admit()
                begun = self._attempt.shared
                if begun is None:
                    begun = BegunTransaction(self._attempt.session, self._mark.transaction_id, self._mark.was_committed)
                    begun.guard()
                else:
                    begun.lend()
                self.begun = begun
            except BaseException as error:
                self._error = error
                self._let_begin(self.begin)
                raise
            finally:
                connections.end_own_work()
            self._attempt.session.info[CALLED] = True
        return self.begun

    def _let_begin(self, begin: Callable[[], object] | None = None) -> None:
        if isinstance(self._attempt.session, MessageSession):
            self._attempt.session.begin_late = begin

    def require_no_error(self) -> None:
        """Raise the error that kept the transaction from beginning, if there was one."""
        if self._error is not None:
            raise self._error

    def commit(self) -> None:
        """Commit the transaction, or keep it open for the next event of its bundle; see `BegunTransaction`.

        A hook of the commit is the last handler's to share it: only then is the mark behind what the hook does. So is
        what a handler leaves on a connection to SQLite, which cannot be reset.

        Raises:
            TransactionEndedError: it was used by what an earlier handler left behind, or is not whole.
        """
        assert self._mark is not None, "it has begun"
        shared = self._attempt.shared
        if shared is None:
            self.begin().commit(self._mark.mark)
            return
        if shared.has_refused_others:
            raise TransactionEndedError(connections.LEFT_BEHIND)
        if shared.has_last_handler:
            shared.commit(self._mark.mark)
            return
        number_now(self._attempt.session)  # a later handler's own commit, if unseen, would commit the rows without them
        shared.keep(self._mark.mark, self._mark.statement)
        self._is_kept = True

    @property
    def has_refused_driver(self) -> bool:
        """Return whether the transaction has refused a call of its driver."""
        return self.begun is not None and self.begun.has_refused_driver

    def may_have_committed(self) -> bool:
        """Return whether anybody but the worker may have committed it.

        Raises:
            DBAPIError: the database cannot be asked.
        """
        return self.begun is not None and self.begun.may_have_committed()


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerRunner:
    """Runs a consumer's handlers."""

    handlers: Handlers
    failpoint: Failpoint = failpoints.do_nothing
    hooks: WorkerHookSet = field(default_factory=WorkerHookSet)

    def run(self, attempt: HandlerAttempt) -> Outcome:
        """Call the handler, mark the message as handled and commit. After any outcome but Ack nothing was committed.

        Raises:
            AdmissionChangedError: the message has to be decided about again; nothing was committed.
            HoldLostError: another consumer may have the message; nothing was committed.
            DatabaseFailedError: a statement or the connection failed; if the commit itself failed, it is unknown
                whether it took effect.
        """
        with self.hooks.handling(attempt.envelope.event, attempt.context) as take:
            outcome = self._run(attempt)
            take(outcome)
        return outcome

    def commit(self, begun: BegunTransaction, hold: MessageHold) -> Outcome:
        """Commit a transaction in which events of a bundle were marked. After any outcome but Ack nothing was.

        Raises:
            HoldLostError, DatabaseFailedError: see `run`.
        """
        act = partial(_commit, partial(begun.commit, _mark_nothing))
        with decimal.localcontext(), process_state.handling():
            self.failpoint("before_commit")
            hold.check()
            outcome = contextvars.copy_context().run(_shield, act, hold, begun)
        if not isinstance(outcome, Ack):
            _log.error(
                "a bundle is not committed as a whole; each of its events is looked at alone", reason=outcome.reason
            )
        return outcome

    def _run(self, attempt: HandlerAttempt) -> Outcome:
        type_ = attempt.envelope.event.type
        handler = self.handlers.find(type_)
        if handler is None:
            return Reject(f"there is no handler for {type_!r}; add one, or one for '*'")
        transaction = _Transaction(attempt)
        try:
            # A copied context: the changes of a handler, of the decimal context too, do not reach the next message.
            outcome = contextvars.copy_context().run(self._attempt, handler, attempt, transaction)
            if not isinstance(outcome, Ack) and transaction.may_have_committed():
                outcome = Reject(TransactionEndedError.COMMITTED)
        except (DBAPIError, DatabaseFailedError, HoldLostError):
            if not _may_have_committed(transaction, attempt.session):
                raise
            outcome = Reject(TransactionEndedError.COMMITTED)
        if isinstance(outcome, Ack) and self.handlers.passes_over(type_):
            self.hooks.call(WorkerHooks.after_passing_over, attempt.envelope)
        return outcome

    def _attempt(self, handler: Handler, attempt: HandlerAttempt, transaction: _Transaction) -> Outcome:
        with transaction, decimal.localcontext(), process_state.handling():
            is_async = self.handlers.takes_async_session(attempt.envelope.event.type)
            call = partial(_call_handler, handler, attempt, transaction, is_async=is_async)
            outcome = _shield(call, attempt.context.hold, transaction)
            transaction.require_no_error()
            if isinstance(outcome, Ack):
                self.failpoint(attempt.before_commit)
                attempt.context.hold.check()
                outcome = _shield(partial(_commit, transaction.commit), attempt.context.hold, transaction)
        return outcome


def _may_have_committed(transaction: _Transaction, session: Session) -> bool:
    try:
        return transaction.may_have_committed()
    except DBAPIError:  # the handler is not called again before the database has answered
        session.info[BEGUN] = transaction.begun
        return False


def _call_handler(handler: Handler, attempt: HandlerAttempt, transaction: _Transaction, *, is_async: bool) -> Outcome:
    """Call the handler; after Ack its transaction can be committed."""
    with ProcessGuard():
        returned = (_await_together if is_async else _await_alone)(handler, attempt)
        if isinstance(returned, Ack | None):
            transaction.begin()
        if transaction.begun is not None:
            transaction.begun.return_to_worker()
        if not isinstance(returned, Ack | None):
            return _storable_outcome(returned)
        attempt.session.flush()  # an error of the flush is the handler's, and the flush needs no gate
        transaction.begin().require_open()
    return Ack()


def _await_alone(handler: Handler, attempt: HandlerAttempt) -> object:
    """Call a handler with the session on the thread of its lane, and return its result."""
    return async_handlers.await_result(handler(attempt.session, attempt.envelope.event, attempt.context))  # type: ignore[arg-type]


def _await_together(handler: Handler, attempt: HandlerAttempt) -> object:
    """Call a handler with a session of asyncio on the event loop of the process, and return its result."""
    from sluice.messaging.database.async_sessions import async_session  # noqa: PLC0415 (needs greenlet)

    event, context, session = attempt.envelope.event, attempt.context, async_session(attempt.session)
    name = f"{getattr(handler, '__qualname__', handler)} with event {event.id} of group {event.group}"
    call = partial(cast("AsyncHandler", handler), session, event, context)
    return async_handlers.await_together(call, name=printable(name), check=context.hold.check)


def _commit(commit: Callable[[], None]) -> Outcome:
    with ProcessGuard():
        commit()
    return Ack()


def _mark_nothing(_: Connection) -> None:
    """Mark nothing: each event of the bundle is marked."""


def _storable_outcome(returned: object) -> Outcome:
    """Return the outcome of a handler that did not return Ack, with a reason that can be stored."""
    match returned:
        case Retry():
            return Retry(delay_seconds=returned.delay_seconds, reason=_reason(returned.reason))
        case Reject():
            return Reject(_reason(returned.reason))
    return Retry(
        reason=printable(f"the handler returned {text_of(returned)}, allowed is Ack, Retry, Reject or nothing")
    )


def _reason(given: object) -> str:
    return "the handler gave no reason" if given is None or given == "" else printable(given)


def _shield(act: Callable[[], Outcome], hold: MessageHold, transaction: _Transaction | BegunTransaction) -> Outcome:
    """Return the outcome, and turn every exception of the handler into one: only a signal ends a worker.

    Raises:
        AdmissionChangedError: the message has to be decided about again.
        HoldLostError: another consumer may really have the message.
        DatabaseFailedError: the database may be the cause; the caller checks the database.
    """
    try:
        return act()
    except AdmissionChangedError:
        raise
    except HoldLostError as error:
        hold.check()
        return Retry(reason=exception_text(error))
    except PermanentError as error:
        return Reject(_reason(error))
    except (TransientError, TransactionEndedError) as error:
        if failures.is_never_a_messages(error):
            raise DatabaseFailedError from error
        return Retry(reason=_reason(error))
    except BaseException as error:
        if isinstance(error, DatabaseError) and transaction.has_refused_driver:
            return Retry(reason=TransactionEndedError.ENDED)
        if failures.may_pass(error):
            raise DatabaseFailedError from error
        _log.warning("the handler failed", exc_info=True)
        return Retry(reason=exception_text(error))
