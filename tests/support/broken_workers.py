"""Workers that are broken, each in one way: a check that never fails proves nothing, so each is caught by one."""

from functools import partial
from typing import Any

from sqlalchemy.orm import Session

from sluice.messaging.handlers import Ack, Context, Outcome, Reject, Retry
from sluice.messaging.inbox.groups import Arrived
from sluice.messaging.inbox.sequence import Action, Decision, State
from sluice.messaging.sqs.queue import Received
from sluice.messaging.worker.message_lease import Hold
from sluice.messaging.worker.processor import Back, Done, Ending, Work


class DeletesFirst(Work):
    """Broken: deletes a message before it is handled, so that a crash loses it (W7)."""

    def do(self, message: Received, *, asked_at: float | None = None) -> Ending:
        """Delete, then work."""
        self._queue.delete(message.receipt_handle)
        return super().do(message, asked_at=asked_at)


class DeletesFailed(Work):
    """Broken: takes a failed message out of its group's way, so that the next one is handled before it (W1)."""

    def _end(self, hold: Hold, ending: Ending) -> None:
        super()._end(hold, Done() if isinstance(ending, Back) else ending)


class InboxApart(Work):
    """Broken: marks a message as handled in a transaction before that of its effect (W8)."""

    def _transact(self, hold: Hold, arrived: Arrived) -> Decision | Retry | Reject:
        with Session(self._engine) as session:
            admission = self._inbox.admit(session.connection(), arrived)
            decision = admission.decision
            if decision.action is Action.HANDLE:
                self._inbox.mark(session.connection(), arrived.envelope, admission)
            session.commit()
        return decision if decision.action is not Action.HANDLE else self._handle(hold, arrived, decision)

    def _handle(self, hold: Hold, arrived: Arrived, decision: Decision) -> Decision | Retry | Reject:
        with Session(self._engine) as session:
            session.connection()
            self._failpoint("in_transaction")
            outcome = self._performed(session, arrived, self._context(hold, arrived, decision), hold)
        return decision if isinstance(outcome, Ack) else outcome

    def _performed(self, session: Session, arrived: Arrived, context: Context, hold: Any) -> Outcome:
        return self._performer.perform(
            session, arrived.envelope, context, hold, mark=lambda _: None, before_commit="before_commit"
        )


class RemembersInMemory(InboxApart):
    """Broken: knows what it has handled for as long as it lives, so it may take a refused delete for one (W6)."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._seen: set[str] = set()

    def _transact(self, hold: Hold, arrived: Arrived) -> Decision | Retry | Reject:
        if arrived.envelope.event.id in self._seen:
            return Decision(State.DUPLICATE, Action.DROP)
        said = self._handle(hold, arrived, Decision(State.CONTIGUOUS, Action.HANDLE))
        self._seen.add(arrived.envelope.event.id)
        return said


class _NoGate:
    """Lets everything be committed."""

    def check(self) -> None:
        """Let it."""


class CommitsUngated(Work):
    """Broken: commits what may be somebody else's by now, in the belief that its delete will tell (L1)."""

    def _transact(self, hold: Hold, arrived: Arrived) -> Decision | Retry | Reject:
        with Session(self._engine) as session:
            admission = self._inbox.admit(session.connection(), arrived)
            decision = admission.decision
            context = self._context(hold, arrived, decision)
            mark = partial(self._inbox.mark, envelope=arrived.envelope, admission=admission)
            outcome = self._performer.perform(
                session, arrived.envelope, context, _NoGate(), mark=mark, before_commit="before_commit"
            )
        return decision if isinstance(outcome, Ack) else outcome


class CommitsWhatIsThere(Work):
    """Broken: commits whatever transaction the handler left behind (W8)."""

    def _transact(self, hold: Hold, arrived: Arrived) -> Decision | Retry | Reject:
        with Session(self._engine) as session:
            admission = self._inbox.admit(session.connection(), arrived)
            self._inbox.mark(session.connection(), arrived.envelope, admission)
            event = arrived.envelope.event
            handler = self._performer.handlers.find(event.type)
            assert handler is not None
            handler(session, event, self._context(hold, arrived, admission.decision))
            session.commit()
        return admission.decision
