"""Broken workers, each in one way.

A test that never fails proves nothing, so each broken worker is caught by a test.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any, override

from sqlalchemy.orm import Session

from sluice.messaging.bundle import BundledEvent
from sluice.messaging.errors import HoldLostError, TransientError
from sluice.messaging.handlers import Ack, Reject, Retry
from sluice.messaging.inbox.groups import DecodedMessage
from sluice.messaging.inbox.sequence import Action, Decision, State
from sluice.messaging.sqs.dead_letter_queue import DeadLetterSender
from sluice.messaging.sqs.queue import ReceivedMessage
from sluice.messaging.worker.processing.acknowledgements import Acknowledgement, Delete, MoveToDlq, Release
from sluice.messaging.worker.processing.deleter import Deleter
from sluice.messaging.worker.processing.handler_runner import HandlerAttempt, TransactionMark
from sluice.messaging.worker.processing.message_lease import MessageLease
from sluice.messaging.worker.processing.processor import MessageProcessor
from sluice.messaging.worker.processing.transactions import TakeConnection


class DeletesFirst(MessageProcessor):
    """Broken: deletes a message before it is handled, so that a crash loses it (W7)."""

    @override
    def process(self, message: ReceivedMessage, *, requested_at: float | None = None) -> Acknowledgement:
        self._queue.delete(message.receipt_handle)
        return super().process(message, requested_at=requested_at)


class DeletesFailedMessages(MessageProcessor):
    """Broken: deletes a failed message, so that the next one of its group is handled before it (W1)."""

    @override
    def _acknowledge(self, lease: MessageLease, acknowledgement: Acknowledgement) -> None:
        super()._acknowledge(lease, Delete() if isinstance(acknowledgement, Release) else acknowledgement)


class _MarksNothing(MessageProcessor):
    def _run_without_mark(
        self, lease: MessageLease, arrived: DecodedMessage, session: Session, decision: Decision
    ) -> Decision | Retry | Reject:
        """Run the handler in a transaction that marks nothing."""
        outcome = self._runner.run(
            HandlerAttempt(
                session=session,
                envelope=arrived.envelope,
                context=self._context(lease, arrived, decision),
                admit=lambda: TransactionMark(lambda _: None),
                before_commit="before_commit",
            )
        )
        return decision if isinstance(outcome, Ack) else outcome


class InboxApart(_MarksNothing):
    """Broken: marks a message as handled in a transaction before that of its effect (rule W8)."""

    @override
    def _transact(self, lease: MessageLease, arrived: DecodedMessage, session: Session) -> Decision | Retry | Reject:
        admission = self._inbox.admit(session.connection(), arrived)
        decision = admission.decision
        if decision.action is Action.HANDLE:
            self._inbox.mark(session.connection(), arrived.envelope, admission)
        session.commit()
        return decision if decision.action is not Action.HANDLE else self._effect(lease, arrived, decision)

    def _effect(self, lease: MessageLease, arrived: DecodedMessage, decision: Decision) -> Decision | Retry | Reject:
        with Session(self._engine) as session:
            session.connection()
            self._failpoint("in_transaction")
            return self._run_without_mark(lease, arrived, session, decision)


class RemembersInMemory(InboxApart):
    """Broken: remembers handled messages only in memory (W6)."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._seen: set[str] = set()

    @override
    def _transact(self, lease: MessageLease, arrived: DecodedMessage, session: Session) -> Decision | Retry | Reject:
        if arrived.envelope.event.id in self._seen:
            return Decision(State.DUPLICATE, Action.DROP)
        ended = self._effect(lease, arrived, Decision(State.CONTIGUOUS, Action.HANDLE))
        self._seen.add(arrived.envelope.event.id)
        return ended


class KeepsNoInbox(_MarksNothing):
    """Broken: handles every received message, and marks nothing (W6)."""

    @override
    def _transact(self, lease: MessageLease, arrived: DecodedMessage, session: Session) -> Decision | Retry | Reject:
        decision = Decision(State.CONTIGUOUS, Action.HANDLE)
        session.connection()
        return self._run_without_mark(lease, arrived, session, decision)


class _NoGate:
    def check(self) -> None:
        """Allow every commit."""

    def remaining_seconds(self) -> float:
        """Return that it holds for ever."""
        return inf


class CommitsWithoutGate(MessageProcessor):
    """Broken: commits even if another consumer may have the message, and relies on the delete to notice it (L1)."""

    @override
    def _transact(self, lease: MessageLease, arrived: DecodedMessage, session: Session) -> Decision | Retry | Reject:
        admission = self._inbox.admit(session.connection(), arrived)
        outcome = self._runner.run(
            HandlerAttempt(
                session=session,
                envelope=arrived.envelope,
                context=replace(self._context(lease, arrived, admission.decision), hold=_NoGate()),
                admit=lambda: TransactionMark(
                    partial(self._inbox.mark, envelope=arrived.envelope, admission=admission)
                ),
                before_commit="before_commit",
            )
        )
        return admission.decision if isinstance(outcome, Ack) else outcome


class AdmitsOnce(MessageProcessor):
    """Broken: begins the transaction of a handler of asyncio without deciding again about its message (W6)."""

    @override
    def _admit_again(
        self,
        lease: MessageLease,
        arrived: DecodedMessage,
        decided: Decision,
        session: Session,
        take_connection: TakeConnection,
    ) -> TransactionMark:
        take_connection()
        admission = self._inbox.admit(session.connection(), arrived)
        return self._mark_of(arrived, replace(admission, decision=decided))


class MarksBefore(MessageProcessor):
    """Broken: marks a message as handled at its decision, before a handler of asyncio begins (rule W8)."""

    @override
    def _decide_now(self, lease: MessageLease, arrived: DecodedMessage, session: Session) -> Decision:
        admission = self._inbox.admit(session.connection(), arrived)
        if admission.decision.action is Action.HANDLE:
            self._inbox.mark(session.connection(), arrived.envelope, admission)
        session.commit()
        return admission.decision

    @override
    def _admit_again(
        self,
        lease: MessageLease,
        arrived: DecodedMessage,
        decided: Decision,
        session: Session,
        take_connection: TakeConnection,
    ) -> TransactionMark:
        take_connection()
        session.connection()
        return TransactionMark(lambda _: None)


class CommitsWhatIsThere(MessageProcessor):
    """Broken: commits whatever transaction the handler left behind (rule W8)."""

    @override
    def _transact(self, lease: MessageLease, arrived: DecodedMessage, session: Session) -> Decision | Retry | Reject:
        admission = self._inbox.admit(session.connection(), arrived)
        self._inbox.mark(session.connection(), arrived.envelope, replace(admission, lock=None))
        event = arrived.envelope.event
        handler: Any = self._runner.handlers.find(event.type)
        handler(session, event, self._context(lease, arrived, admission.decision))
        session.commit()
        return admission.decision


class TakesABatchAsAWhole(Deleter):
    """Broken: takes every message of a call that was answered for deleted (W6)."""

    @override
    def _try_deletes(
        self, messages: Sequence[ReceivedMessage]
    ) -> list[tuple[ReceivedMessage, HoldLostError | TransientError | None]]:
        super()._try_deletes(messages)
        return [(message, None) for message in messages]


class AcknowledgesAfterTheFirst(MessageProcessor):
    """Broken: takes a bundle for handled when its first event is."""

    @override
    def _work_on_events(
        self, lease: MessageLease, events: Sequence[BundledEvent], dead_letters: DeadLetterSender
    ) -> Acknowledgement:
        return super()._work_on_events(lease, events[:1], dead_letters)


class DiesWithItsNeighbours(MessageProcessor):
    """Broken: sends the events behind a dead one of their bundle to the DLQ, too."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._with_dead_events = set[str]()

    @override
    def _work_on_event(
        self, lease: MessageLease, event: BundledEvent, position: int | None = None, *arguments: Any
    ) -> Acknowledgement:
        id_ = lease.message.sqs_message_id
        if id_ in self._with_dead_events:
            return MoveToDlq()
        ended = super()._work_on_event(lease, event, position, *arguments)
        if position is not None and isinstance(ended, MoveToDlq):
            self._with_dead_events.add(id_)
        return ended
