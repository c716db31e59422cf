"""A replay: events that an outbox still keeps are parked in a consumer's inbox, from which its worker handles them.

No queue and no topic is used. So no deduplication window can swallow an event, no other consumer gets one, and the
order is that of the numbers. `docs/decisions/0023-replay-into-the-inbox.md` says why.

Pending events are replayed as well: an event may have been published before the consumer was subscribed, and be marked
as sent only later. The inbox drops the copy from the queue by its number. Nothing behind a quarantined event is
replayed, because its relay has not published it to anyone.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from sqlalchemy import Connection, Engine, Row, func, select

from sluice.messaging.database import engines
from sluice.messaging.envelope import decode
from sluice.messaging.errors import OutboxError
from sluice.messaging.inbox.groups import DecodedMessage, InboxPolicy
from sluice.messaging.inbox.operations import InboxOperator
from sluice.messaging.inbox.replaying import ReplayedGroup, ReplayOutcome
from sluice.messaging.outbox.operations import RESENT_MAX
from sluice.messaging.outbox.tables import QUARANTINED, SENT, messages

_PAGE = 500
_COLUMNS = ("group_seq", "status", "event_id", "body", "attributes", "created_at_us", "sent_at_us")

type Accepts = Callable[[Mapping[str, str], str], bool]
"""Whether the consumer's filter policy lets a message through, by its attributes and its body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """The part of the past that is replayed.

    Args:
        topic: the topic's name in the outbox.
        from_us: events that were committed before are left out, microseconds UTC by the outbox's database.
        to_us: events that were committed later are left out; None leaves none out.
        groups: only these groups; empty means all.
    """

    topic: str
    from_us: int
    to_us: int | None = None
    groups: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptNumbers:
    """The first and the last number of one group that are in the outbox and in the replayed part of the past."""

    group_id: str
    first: int
    last: int


@dataclass(slots=True, kw_only=True)
class GroupReplay:
    """The replay of one group, planned or done.

    Args:
        counts: the number of events of each outcome.
        begins_at: the first number that is handled, if the group has earlier ones that are not; else None.
        late: ranges (first, last) of sent numbers that can only be handled late.
        filtered: the number of events that the consumer's filter policy leaves out.
        first: (epoch, number) of the first event to handle; None if there is none.
        last: (epoch, number) of the last event to handle; None if there is none.
    """

    group_id: str
    counts: Counter[ReplayOutcome] = field(default_factory=Counter)
    begins_at: int | None = None
    late: list[tuple[int, int]] = field(default_factory=list)
    filtered: int = 0
    first: tuple[int, int] | None = None
    last: tuple[int, int] | None = None

    def add_late(self, seq: int) -> None:
        """Add a number that can only be handled late. A range holds as many numbers as one resend may."""
        if self.late and self.late[-1][1] == seq - 1 and seq - self.late[-1][0] < RESENT_MAX:
            self.late[-1] = (self.late[-1][0], seq)
        else:
            self.late.append((seq, seq))


class Replay:
    """One replay of kept events to one consumer.

    Args:
        outbox: the engine of the outbox's database.
        inbox: the engine of the database of the consumer's inbox.
        operator: acts on that inbox, with a reason.
        accepts: the consumer's filter policy.
    """

    def __init__(
        self,
        outbox: Engine,
        inbox: Engine,
        *,
        past: Past,
        policy: InboxPolicy,
        operator: InboxOperator,
        accepts: Accepts,
    ) -> None:
        self._outbox, self._inbox, self._past = outbox, inbox, past
        self._policy, self._operator, self._accepts = policy, operator, accepts

    def kept_numbers(self) -> list[KeptNumbers]:
        """Return the numbers of each group that are kept, in the order of the groups' ids.

        Raises:
            OutboxError: there are none.
        """
        columns = messages.c
        here = [columns.topic == self._past.topic, columns.created_at_us >= self._past.from_us]
        here += [] if self._past.to_us is None else [columns.created_at_us <= self._past.to_us]
        here += [columns.group_id.in_(sorted(self._past.groups))] if self._past.groups else []
        bounds = (func.min(columns.group_seq), func.max(columns.group_seq))
        ordered = select(columns.group_id, *bounds).where(*here).group_by(columns.group_id).order_by(columns.group_id)
        with engines.reading(self._outbox) as connection, engines.explaining_missing_tables():
            rows = connection.execute(ordered).all()
        if not rows:
            raise OutboxError(
                f"the outbox of {self._past.topic} keeps no event of that time and those groups; see `sluice outbox ls"
                " --status sent`, or replay the topic's archive (--archive start)"
            )
        return [KeptNumbers(group_id=group_id, first=first, last=last) for group_id, first, last in rows]

    def plan(self, kept: KeptNumbers) -> GroupReplay:
        """Return what a replay of a group's kept events would do now. Nothing is written."""
        with engines.reading(self._inbox) as connection, engines.explaining_missing_tables():
            return self._go_through(connection, kept, sets_aside=False)

    def carry_out(self, kept: KeptNumbers, allowed: frozenset[ReplayOutcome]) -> GroupReplay | None:
        """Park a group's events in the inbox, in one transaction with the row of the audit, and return what was done.

        If an event has another outcome than the allowed ones by now, nothing is written and None is returned.
        """
        with self._inbox.connect() as connection, engines.explaining_missing_tables():
            done = self._go_through(connection, kept, sets_aside=True)
            if not allowed.issuperset(done.counts):
                connection.rollback()
                return None
            if done.first is not None and done.last is not None:
                detail = {"first": done.first, "last": done.last, "events": done.counts[ReplayOutcome.TO_HANDLE]}
                self._operator.write_down_replay(connection, kept.group_id, done.first[1], detail)
            connection.commit()
        return done

    def _go_through(self, connection: Connection, kept: KeptNumbers, *, sets_aside: bool) -> GroupReplay:
        """Return the outcomes of a group's events; if `sets_aside`, park those that are to be handled."""
        found = GroupReplay(group_id=kept.group_id)
        group: ReplayedGroup | None = None
        for page in self._pages(kept):
            to_handle = []
            for row in page:
                message = self._to_message(row)
                if group is None:
                    group = ReplayedGroup(
                        connection,
                        self._policy,
                        kept.group_id,
                        message.arrival,
                        locks=sets_aside,
                        clock=self._operator.clock,
                    )
                if not self._accepts(message.attributes, message.body):
                    found.filtered += 1
                    continue
                if self._note_outcome(found, group, message, row) is ReplayOutcome.TO_HANDLE:
                    to_handle.append(message)
            if group is not None and sets_aside and to_handle:
                group.set_aside(to_handle)
        return found

    def _note_outcome(
        self, found: GroupReplay, group: ReplayedGroup, message: DecodedMessage, row: Row[Any]
    ) -> ReplayOutcome:
        """Count the outcome of an event, and return it."""
        arrival = message.arrival
        outcome = group.outcome(arrival, row.sent_at_us or row.created_at_us)
        if outcome is ReplayOutcome.LATE and row.status != SENT:
            return outcome  # the relay has still to publish it
        found.counts[outcome] += 1
        if outcome is ReplayOutcome.LATE:
            found.add_late(arrival.seq)
        if outcome is ReplayOutcome.TO_HANDLE:
            found.last = (arrival.epoch, arrival.seq)
            if found.first is None:
                found.first = found.last
                found.begins_at = arrival.seq if group.may_begin_at(arrival) and arrival.seq > arrival.first else None
        return outcome

    def _pages(self, kept: KeptNumbers) -> Iterator[list[Row[Any]]]:
        """Yield a group's rows of the outbox by number, up to the first quarantined one, 500 at a time."""
        columns = messages.c
        here = (columns.topic == self._past.topic, columns.group_id == kept.group_id)
        numbers = columns.group_seq.between(kept.first, kept.last)
        ordered = select(*(columns[name] for name in _COLUMNS)).where(*here, numbers).order_by(columns.group_seq)
        with engines.reading(self._outbox) as connection:
            for page in connection.execute(ordered.execution_options(yield_per=_PAGE)).partitions():
                published = list(takewhile(lambda row: row.status != QUARANTINED, page))
                yield published
                if len(published) < len(page):
                    return

    def _to_message(self, row: Row[Any]) -> DecodedMessage:
        """Return an event of the outbox as the worker would have received it; its id in the inbox is no id of SQS."""
        return DecodedMessage(
            envelope=decode(row.body),
            body=row.body,
            attributes=json.loads(row.attributes),
            sqs_message_id=f"replay-{self._policy.consumer}-{row.event_id}",
            receive_count=0,
        )
