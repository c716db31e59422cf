"""Calling a handler inside its transaction, and making one of three outcomes of whatever comes of it.

Whether the message is fresh from the queue or was set aside makes no difference here. A handler is somebody else's
code: it may raise anything, end the transaction behind SQLAlchemy's back, or fork. Nothing is committed but the
transaction that was begun, with the inbox's mark in it, which is written when the handler has returned.
"""

import contextvars
import decimal
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from sqlalchemy.exc import DatabaseError, DBAPIError
from sqlalchemy.orm import Session

from sluice.messaging import failpoints
from sluice.messaging.database import failures
from sluice.messaging.database.transactions import BegunTransaction, Mark, TransactionEndedError
from sluice.messaging.envelope import Envelope
from sluice.messaging.errors import HoldLostError, PermanentError, TransientError
from sluice.messaging.failpoints import Failpoint
from sluice.messaging.handlers import Ack, Context, Handler, Handlers, MessageHold, Outcome, Reject, Retry
from sluice.messaging.worker.hooks import WorkerHooks, WorkerHookSet
from sluice.messaging.worker.processing import async_handlers
from sluice.messaging.worker.processing.process_state import process_state
from sluice.terminal.logger import Logger
from sluice.terminal.printable import exception_text, printable, text_of

_log = Logger()
CALLED = "sluice_handler_called"
"""In `Session.info` of a transaction once its handler is called: what fails from then on may be the handler's."""
BEGUN = "sluice_begun"
"""In `Session.info`: the `BegunTransaction` of a handler that may have committed, which the database did not tell."""
_FORKED = 70  # EX_SOFTWARE: the exit code of a child that came back from a handler


class DatabaseFailedError(Exception):
    """Raised when the database may be why a handler, or the commit after it, failed; it was raised from that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerAttempt:
    """One attempt at a message.

    Args:
        session: in whose transaction the group of the message is locked.
        mark: writes into the transaction that the message is handled.
        transaction_id: Postgres's, where locking the group has returned that.
    """

    session: Session
    envelope: Envelope
    context: Context
    mark: Mark
    before_commit: str
    transaction_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerRunner:
    """Runs a consumer's handlers."""

    handlers: Handlers
    failpoint: Failpoint = failpoints.do_nothing
    hooks: WorkerHookSet = field(default_factory=WorkerHookSet)

    def run(self, attempt: HandlerAttempt) -> Outcome:
        """Call the handler, mark the message as handled and commit; anything but Ack means that nothing was committed.

        Raises:
            HoldLostError: the message may be somebody else's; nothing was committed.
            DatabaseFailedError: the database did not do it, or ended the connection; whether it was committed is
                unknown when that came of the commit.
        """
        with self.hooks.handling(attempt.envelope.event, attempt.context) as take:
            outcome = self._run(attempt)
            take(outcome)
        return outcome

    def _run(self, attempt: HandlerAttempt) -> Outcome:
        type_ = attempt.envelope.event.type
        handler = self.handlers.find(type_)
        if handler is None:
            return Reject(f"there is no handler for {type_!r}; add one, or one for '*'")
        attempt.session.info[CALLED] = True
        begun = BegunTransaction(attempt.session, attempt.transaction_id)
        try:
            # What a handler leaves in its context, the decimal one included, is none of the next message's.
            outcome = contextvars.copy_context().run(self._attempt, handler, attempt, begun)
            if not isinstance(outcome, Ack) and begun.may_have_committed():
                outcome = Reject(TransactionEndedError.COMMITTED)
        except (DBAPIError, DatabaseFailedError, HoldLostError):
            if not _may_have_committed(begun, attempt.session):
                raise
            outcome = Reject(TransactionEndedError.COMMITTED)
        if isinstance(outcome, Ack) and self.handlers.passes_over(type_):
            self.hooks.call(WorkerHooks.after_passing_over, attempt.envelope)
        return outcome

    def _attempt(self, handler: Handler, attempt: HandlerAttempt, begun: BegunTransaction) -> Outcome:
        with begun, decimal.localcontext(), process_state.handling():
            outcome = _shield(lambda: _call_handler(handler, attempt, begun), attempt.context.hold, begun)
            if isinstance(outcome, Ack):
                self.failpoint(attempt.before_commit)
                attempt.context.hold.check()
                outcome = _shield(lambda: _commit(attempt, begun), attempt.context.hold, begun)
        return outcome


def _may_have_committed(begun: BegunTransaction, session: Session) -> bool:
    try:
        return begun.may_have_committed()
    except DBAPIError:  # nobody calls the handler again before this was told
        session.info[BEGUN] = begun
        return False


def _call_handler(handler: Handler, attempt: HandlerAttempt, begun: BegunTransaction) -> Outcome:
    """Call the handler; after Ack its transaction can be committed."""
    with _in_this_process():
        returned = async_handlers.await_result(handler(attempt.session, attempt.envelope.event, attempt.context))
        begun.return_to_worker()
        if not isinstance(returned, Ack | None):
            return _store_reason(returned)
        attempt.session.flush()  # what it brings to light is the handler's, and needs no gate
        begun.require_open()
    return Ack()


def _commit(attempt: HandlerAttempt, begun: BegunTransaction) -> Outcome:
    with _in_this_process():
        begun.commit(attempt.mark)
    return Ack()


def _store_reason(returned: object) -> Outcome:
    """Return what a handler returned, other than Ack, with a reason that can be stored."""
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


def _shield(act: Callable[[], Outcome], hold: MessageHold, begun: BegunTransaction) -> Outcome:
    """Return the outcome, whatever somebody else's code raises meanwhile: only a signal ends a worker.

    Raises:
        HoldLostError: the message may really be somebody else's.
        DatabaseFailedError: the database may be why, and whoever asks it again will know.
    """
    try:
        return act()
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
        if isinstance(error, DatabaseError) and begun.has_refused_driver:
            return Retry(reason=TransactionEndedError.ENDED)
        if failures.may_pass(error):
            raise DatabaseFailedError from error
        _log.warning("the handler failed", exc_info=True)
        return Retry(reason=exception_text(error))


@contextmanager
def _in_this_process() -> Iterator[None]:
    """End a child process that comes back from a handler that forked: it would commit, and delete, on our sockets."""
    pid = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != pid:
            os._exit(_FORKED)
