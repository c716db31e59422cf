"""An inbox used as a worker and its drainer do, without either: number by number, on a virtual clock."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, select

from sluice.clock import VirtualClock
from sluice.messaging.envelope import Envelope, any_event
from sluice.messaging.inbox.admission import Inbox
from sluice.messaging.inbox.groups import DecodedMessage, InboxPolicy
from sluice.messaging.inbox.operations import InboxOperator
from sluice.messaging.inbox.parking import ParkedMessage
from sluice.messaging.inbox.replaying import ReplayedGroup, ReplayOutcome
from sluice.messaging.inbox.sequence import Action, Decision
from sluice.messaging.inbox.tables import exceptions, groups, parked

HANDLE, DROP, PARK = Action.HANDLE, Action.DROP, Action.PARK
REJECT, RELEASE_TO_DLQ = Action.REJECT, Action.RELEASE_TO_DLQ
START_US = 1_767_225_600_000_000  # 2026-01-01


def decoded_message(
    seq: int, *, group: str = "a", epoch: int = 1, first: int = 1, copy: str = "", receive_count: int = 1, **more: Any
) -> DecodedMessage:
    """Return a message with its number; `copy` makes another message of the same event, `more` another event."""
    event = any_event(**{"type": "order.placed", "group": group, "data": None, "id": f"{group}-{epoch}-{seq}"} | more)
    envelope = Envelope(event=event, seq=seq, epoch=epoch, first=first)
    return DecodedMessage(
        envelope=envelope,
        body=envelope.body,
        attributes={},
        sqs_message_id=f"sqs-{event.id}{copy}",
        receive_count=receive_count,
    )


def handle_message(inbox: Inbox, connection: Connection, came: DecodedMessage) -> Decision:
    """Admit a message, and mark it if it is to be handled, as the worker does around its handler."""
    admission = inbox.admit(connection, came)
    if admission.decision.action is Action.HANDLE:
        inbox.mark(connection, came.envelope, admission)
    return admission.decision


def mark_next_parked(inbox: Inbox, connection: Connection, group: str = "a") -> ParkedMessage | None:
    """Lock the next parked message of a group and mark it, as the drainer does around its handler."""
    message = inbox.lock_next_parked(connection, group)
    if message is not None:
        inbox.mark_parked(connection, message)
    return message


class GroupNumbers(NamedTuple):
    """A group's epoch, the first number of the group in that epoch, and the last number that the inbox has passed."""

    epoch: int
    first: int
    last: int


class InboxHarness:
    """One consumer's inbox; `policy` is its policy for missing numbers."""

    def __init__(
        self, engine: Engine, *, consumer: str = "billing", clock: VirtualClock | None = None, **policy: Any
    ) -> None:
        self.engine = engine
        self.clock = VirtualClock(START_US) if clock is None else clock
        self.policy = InboxPolicy(consumer=consumer, **policy)
        self.inbox = Inbox(self.policy, clock=self.clock)

    def under(self, **policy: Any) -> "InboxHarness":
        """Return a harness on the same database and clock whose policy has these fields changed."""
        changed = InboxHarness(self.engine, clock=self.clock)
        changed.policy = replace(self.policy, **policy)
        changed.inbox = Inbox(changed.policy, clock=self.clock)
        return changed

    def decide(self, seq: int, **more: Any) -> Decision:
        """Let message number `seq` come, handle it if it is to be handled, and return the inbox's decision."""
        with self.engine.begin() as connection:
            return handle_message(self.inbox, connection, decoded_message(seq, **more))

    def bring(self, *seqs: int, **more: Any) -> list[Action]:
        """Let messages with these numbers come one after the other, and return the action for each."""
        return [self.decide(seq, **more).action for seq in seqs]

    def record_dead(self, seq: int, **more: Any) -> bool:
        """Record message number `seq` as dead, as the worker does when its handler rejects it."""
        with self.engine.begin() as connection:
            return self.inbox.record_dead(
                connection, decoded_message(seq, **more), "no such customer", is_permanent=True
            )

    def replay(self, *seqs: int, sent_at_us: int = START_US, **more: Any) -> list[ReplayOutcome]:
        """Set aside what is to be handled of these numbers of group a, as a replay does; return the outcome of each."""
        messages = [decoded_message(seq, copy="-replayed", receive_count=0, **more) for seq in seqs]
        with self.engine.begin() as connection:
            first = messages[0].arrival
            group = ReplayedGroup(connection, self.policy, "a", first, locks=True, clock=self.clock)
            outcomes = [group.outcome(message.arrival, sent_at_us) for message in messages]
            chosen = [
                message
                for message, outcome in zip(messages, outcomes, strict=True)
                if outcome is ReplayOutcome.TO_HANDLE
            ]
            if chosen:
                group.set_aside(chosen)
        return outcomes

    def skip(self, seq: int, *, group: str = "a") -> None:
        """Give a number up, as an operator does."""
        with self.engine.begin() as connection:
            self.operator.skip(connection, group, seq)

    @property
    def operator(self) -> InboxOperator:
        """Return an operator of the consumer's inbox."""
        return InboxOperator(consumer=self.policy.consumer, actor="ann", reason="is lost", clock=self.clock)

    def take(self, group: str = "a") -> ParkedMessage | None:
        """Take up the next parked message of a group and mark it, in a transaction."""
        with self.engine.begin() as connection:
            return mark_next_parked(self.inbox, connection, group)

    def drain(self) -> list[int]:
        """Take up every due parked message, as a drainer does; return the numbers."""
        taken = []
        for group in self.inbox.due(self.engine):
            while message := self.take(group):
                taken.append(message.envelope.seq)
        return taken

    def begin(self, group: str = "a", *, attempts_max: int = 5) -> bool:
        """Begin an attempt at the next parked message of a group; return whether there is one that may be tried."""
        with self.engine.begin() as connection:
            return self.inbox.begin_attempt(connection, group, attempts_max=attempts_max) is not None

    def peek(self, group: str = "a") -> ParkedMessage | None:
        """Return the next parked message of a group without taking it up."""
        with self.engine.connect() as connection:
            message = self.inbox.lock_next_parked(connection, group)
            connection.rollback()
            return message

    def hold(self, *, is_held: bool = True, delay_us: int = 0) -> None:
        """Let the attempt at the next parked message fail."""
        assert self.begin()
        message = self.peek()
        assert message is not None
        with self.engine.begin() as connection:
            self.fail(connection, message, is_held=is_held, delay_us=delay_us)

    def fail(self, connection: Connection, message: ParkedMessage, *, is_held: bool, delay_us: int = 0) -> None:
        """Write down that the attempt at a parked message has failed."""
        self.inbox.retry_parked(connection, message, reason="boom", delay_us=delay_us, is_held=is_held)

    def numbers(self, group: str = "a") -> GroupNumbers | None:
        """Return the numbers of a group that the inbox has passed; None if it knows no such group."""
        row = self._group(group)
        return None if row is None else GroupNumbers(row.epoch, row.first_seq, row.last_seq)

    def waits_for(self, group: str = "a") -> int | None:
        """Return the number that a parked group waits for; None if it is not parked."""
        row = self._group(group)
        return None if row is None or row.parked_at_us is None else row.awaits_seq

    def is_parked(self, group: str = "a") -> bool:
        """Return whether a group is parked, so that its messages are set aside."""
        row = self._group(group)
        return row is not None and row.parked_at_us is not None

    def _group(self, group: str) -> Any:
        """Return the inbox's row of a group; None if there is none."""
        found = select(groups).where(groups.c.consumer == self.policy.consumer, groups.c.group_id == group)
        with self.engine.connect() as connection:
            return connection.execute(found).one_or_none()

    def number_records(self, group: str = "a") -> list[str]:
        """Return the records of a group's numbers as text, such as `2-4 gap, open` and `5 skipped, closed`."""
        return [
            f"{row.seq}{'' if row.through == row.seq else f'-{row.through}'} {row.state},"
            f" {'open' if row.closed_at_us is None else 'closed'}"
            for row in self.number_rows(group)
        ]

    def number_rows(self, group: str = "a") -> Sequence[Any]:
        """Return the inbox's rows about numbers of a group that were not handled in order, by epoch and number."""
        found = select(exceptions).where(exceptions.c.consumer == self.policy.consumer, exceptions.c.group_id == group)
        with self.engine.connect() as connection:
            return connection.execute(found.order_by(exceptions.c.epoch, exceptions.c.seq)).all()

    def set_aside_numbers(self) -> list[int]:
        """Return the numbers of the messages that are parked now, of all groups, in order of epoch and number."""
        found = select(parked.c.seq).where(parked.c.consumer == self.policy.consumer)
        with self.engine.connect() as connection:
            return list(connection.execute(found.order_by(parked.c.epoch, parked.c.seq)).scalars())
