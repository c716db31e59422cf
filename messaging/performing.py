"""Calling a handler inside its transaction, and making one of three outcomes of whatever comes of it.

Whether the message is fresh from the queue or was set aside makes no difference here.
"""

import re
from asyncio import CancelledError
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

import structlog
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from messaging import databases, failpoints
from messaging.envelope import Envelope
from messaging.errors import HoldLost, PermanentError, TransientError
from messaging.failpoints import Failpoint
from messaging.handlers import Ack, Context, Handlers, Outcome, Reject, Retry
from messaging.hold import Guard
from messaging.tracing import NoTracing, Tracing

_log = structlog.get_logger()
_WENT_ON = "the handler went on after an error of the database, allowed is to let it pass, or a savepoint around it"
_REASON_CHARACTERS_MAX = 2_000
_NOT_STORED = re.compile("[\x00\ud800-\udfff]")  # Postgres knows no NUL, and UTF-8 no half of a pair


class Recorder(Protocol):
    """Writes down what happens, for the checker; `wire.recorder.Recorder` is one."""

    def handled(
        self,
        *,
        queue_url: str,
        body: str,
        sqs_message_id: str,
        receive_count: int,
        begun_at_us: int,
        is_parked: bool,
        state: str,
    ) -> None:
        """Take in that a message's effect was committed, or that it was set aside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Performer:
    """Performs messages with a consumer's handlers.

    Args:
        handlers: by type of event.
        failpoint: where a test lets the worker die.
        tracing: where spans go.
    """

    handlers: Handlers
    failpoint: Failpoint = failpoints.unarmed
    tracing: Tracing = field(default_factory=NoTracing)

    def perform(
        self, session: Session, envelope: Envelope, context: Context, guard: Guard, *, before_commit: str
    ) -> Outcome:
        """Call the handler and commit; anything but Ack means that nothing was committed.

        Args:
            session: in whose transaction the inbox has been written.
            envelope: the message.
            context: for the handler.
            guard: whose message it has to be still when it is committed.
            before_commit: name of the failpoint.

        Raises:
            HoldLost: the message may be somebody else's; nothing was committed.
            DBAPIError: the database is away; whether it was committed is unknown when it went away meanwhile.
        """
        with self.tracing.handling(envelope.event, context) as told:
            outcome = _storable(self._outcome(lambda: self._perform(session, envelope, context, guard, before_commit)))
            told(outcome)
        return outcome

    def _perform(
        self, session: Session, envelope: Envelope, context: Context, guard: Guard, before_commit: str
    ) -> Outcome:
        event = envelope.event
        handler = self.handlers.find(event.type)
        if handler is None:
            return Reject(f"there is no handler for {event.type!r}; add one, or one for '*'")
        transaction = session.get_transaction()
        said = handler(session, event, context)
        outcome = Ack() if said is None else said
        if session.get_transaction() is not transaction:
            return Retry(reason="the handler committed or rolled back, allowed is neither: the worker does")
        if isinstance(outcome, Ack):
            self.failpoint(before_commit)
            session.flush()  # what it brings to light is the handler's, and needs no gate
            if databases.has_failed(session.connection()):
                return Retry(reason=_WENT_ON)
            guard.check()
            session.commit()
        elif not isinstance(outcome, Retry | Reject):
            return Retry(reason=f"the handler returned {said!r}, allowed is Ack, Retry, Reject or nothing")
        return outcome

    def _outcome(self, perform: Callable[[], Outcome]) -> Outcome:
        try:
            return perform()
        except HoldLost:
            raise
        except PermanentError as error:
            return Reject(str(error))
        except TransientError as error:
            return Retry(reason=str(error))
        except (Exception, SystemExit, CancelledError) as error:  # whatever a handler does wrong, the worker goes on
            if isinstance(error, DBAPIError) and databases.is_away(error):
                raise
            _log.warning("the handler failed", exc_info=True)
            return Retry(reason=f"{type(error).__name__}: {error}")


def _storable(outcome: Outcome) -> Outcome:
    """Return it with a reason that a database can store, whatever a handler has made it of."""
    if isinstance(outcome, Ack):
        return outcome
    return replace(
        outcome, reason=_NOT_STORED.sub("\N{REPLACEMENT CHARACTER}", outcome.reason)[:_REASON_CHARACTERS_MAX]
    )
