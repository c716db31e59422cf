"""Operators' actions on a consumer's inbox: each concerns one number of a group, and is audited with its reason.

A parked message whose attempts are used up is held: `retry` lets the worker try it again, `replace` does so with other
data. `skip` gives a number up, whether its message is parked, in the DLQ or nowhere: the group goes on without it, and
if the message arrives later it is dropped. The worker's drainer notices each action by itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, func, or_, select, tuple_, update

from sluice.messaging.database import engines
from sluice.messaging.database.audit import Operator
from sluice.messaging.database.choice import EVERYTHING, RowChoice
from sluice.messaging.envelope import decode
from sluice.messaging.errors import DeadLetterError
from sluice.messaging.inbox.awaiting import NEVER_US
from sluice.messaging.inbox.gaps import SequenceGaps
from sluice.messaging.inbox.groups import position_of
from sluice.messaging.inbox.sequence import Action, Arrival, decide
from sluice.messaging.inbox.tables import DEAD, SKIPPED, attempts, audit, exceptions, groups, parked
from sluice.messaging.outbox.operations import find_types
from sluice.messaging.sqs.dead_letter_queue import StoredDeadLetter, with_data

_READ_MAX = 100_000  # rows that one action or list reads
_OF_PARKED = ("group_id", "epoch", "last_seq", "awaits_seq", "awaits_until_us", "parked_at_us")


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxOperator(Operator):
    """An operator who acts on one consumer's inbox, with a reason.

    Raises:
        DeadLetterError: each action on a number raises it if the number has no record or is in another state.
    """

    consumer: str

    def retry(self, connection: Connection, group_id: str, seq: int, *, epoch: int | None = None) -> None:
        """Try a held message again, unchanged and with all its attempts; without an epoch, of the earliest."""
        found = self._held_message(connection, group_id, seq, epoch)
        self._change(connection, found, {})
        self._write_down(connection, "retry", group_id, seq, _message_fields(found))

    def retry_chosen(self, connection: Connection, *, choice: RowChoice, most: int | None) -> int:
        """Try the held messages that match again, and return how many there are; at most `most`, None is all."""
        found = self._require_any(_held_places(connection, self.consumer, choice)[:most], "held message")
        for group_id, epoch, seq in found:
            self.retry(connection, group_id, seq, epoch=epoch)
        return len(found)

    def replace(self, connection: Connection, group_id: str, seq: int, data: object) -> None:
        """Let the worker try a held message again, with other data. The audit keeps its old body.

        Raises:
            DeadLetterError: there is no such message, or it is not held.
            EnvelopeError: the data cannot be sent.
        """
        found = self._held_message(connection, group_id, seq)
        body = with_data(decode(found.body), data)
        self._change(connection, found, {"body": body})
        self._write_down(connection, "replace", group_id, seq, _message_fields(found))

    def skip(self, connection: Connection, group_id: str, seq: int, *, epoch: int | None = None) -> None:
        """Skip a number: the group goes on without it. The audit keeps the body of a parked message.

        Args:
            connection: a connection in a transaction, which the caller commits.
            group_id: the group.
            seq: the number.
            epoch: the epoch of the number; None means the epoch in which the number is dead, missing, parked or next.

        Raises:
            DeadLetterError: the group has received nothing; or the number is not missing, dead, parked or next; or it
                is so in several epochs, and no epoch is given.
        """
        place = (groups.c.consumer == self.consumer, groups.c.group_id == group_id)
        group = connection.execute(select(groups).where(*place).with_for_update()).one_or_none()
        if group is None:
            raise DeadLetterError(f"nothing of group {group_id!r} has come to {self.consumer}; see `dlq ls`")
        last_parked = self._last_parked(connection, group_id, group.epoch)
        is_awaited = group.last_seq < seq <= max(group.last_seq + 1, last_parked)  # later numbers may never be sent
        epoch = self._epoch_of(connection, group, seq, epoch, is_awaited=is_awaited)
        is_current = epoch == group.epoch
        known = SequenceGaps(self.consumer)
        exception = known.find(connection, group_id, epoch, seq)
        message = self._parked_row(connection, group_id, epoch, seq)
        self._require_open(group, seq, exception, is_awaited=is_awaited and is_current)
        now_us = engines.now_us(connection, self.clock)
        known.write_skipped(connection, group_id, epoch, seq, now_us, reason=self.reason)
        if message is not None:
            connection.execute(delete(parked).where(*self._position(parked, group_id, epoch, seq)))
        if is_current and seq == group.last_seq + 1:
            last_seq = known.over_skipped(connection, group_id, group.epoch, seq)
            passed = {"last_seq": last_seq, "last_event_id": None, "updated_at_us": now_us}
            connection.execute(update(groups).where(*place).values(passed))
        kept = {} if message is None else _message_fields(message)
        self._write_down(connection, "skip", group_id, seq, {"epoch": epoch, **kept})

    def skip_chosen(self, connection: Connection, *, choice: RowChoice, most: int | None) -> int:
        """Skip the dead, missing and held numbers that match, and return how many there are.

        Args:
            connection: a connection in a transaction, which the caller commits.
            choice: of their groups, types, reasons and times.
            most: at most this many, in the order of groups and numbers; None is all.
        """
        open_ranges = open_exceptions(connection, self.consumer, choice=choice, most=_READ_MAX)
        places = {
            (row["group_id"], row["epoch"], seq) for row in open_ranges for seq in range(row["seq"], row["through"] + 1)
        }
        held = _held_places(connection, self.consumer, choice)
        found = self._require_any(sorted(places.union(held))[:most], "dead, missing or held number")
        for group_id, epoch, seq in found:
            self.skip(connection, group_id, seq, epoch=epoch)
        return len(found)

    def skip_before(self, connection: Connection, epoch: int, group_id: str | None = None) -> tuple[int, int]:
        """Give up the missing numbers that parked groups wait for in earlier epochs, up to the last parked message.

        For an inbox that was restored: its lost rows were of numbers that were handled and will not arrive again. A
        group that waits for a dead number or a held message still waits for it, because that message exists and can be
        brought back.

        Returns:
            How many numbers were given up, and how many of the groups still wait for a number.
        """
        mine = [groups.c.consumer == self.consumer, groups.c.parked_at_us.is_not(None), groups.c.epoch < epoch]
        mine += [] if group_id is None else [groups.c.group_id == group_id]
        found = connection.execute(select(groups).where(*mine).order_by(groups.c.group_id).with_for_update()).all()
        skipped = [self._skip_missing(connection, row) for row in found]
        return sum(count for count, _ in skipped), sum(waits for _, waits in skipped)

    def _skip_missing(self, connection: Connection, group: Row[Any]) -> tuple[int, bool]:
        """Give up a group's missing numbers; return how many there were, and whether the group still waits."""
        here = (parked.c.consumer == self.consumer, parked.c.group_id == group.group_id, parked.c.epoch == group.epoch)
        rows = connection.execute(select(parked.c.seq, parked.c.held_at_us).where(*here)).all()
        held_by_seq = {row.seq: row.held_at_us is not None for row in rows}
        count = 0
        for seq in range(group.last_seq + 1, max(held_by_seq, default=group.last_seq + 1) + 1):
            exception = SequenceGaps(self.consumer).find(connection, group.group_id, group.epoch, seq)
            is_dead = exception is not None and exception.state == DEAD
            if is_dead or held_by_seq.get(seq):
                return count, True
            is_known = exception is not None and exception.state == SKIPPED
            if seq not in held_by_seq and not is_known:
                self.skip(connection, group.group_id, seq, epoch=group.epoch)
                count += 1
        return count, False

    def lower_baseline(self, connection: Connection, group_id: str, seq: int) -> None:
        """Lower a group's baseline: the numbers from `seq` to the old baseline are missing until they arrive.

        Raises:
            DeadLetterError: the group has received nothing, or the number is not before its baseline.
        """
        place = (groups.c.consumer == self.consumer, groups.c.group_id == group_id)
        group = connection.execute(select(groups).where(*place).with_for_update()).one_or_none()
        if group is None:
            raise DeadLetterError(f"nothing of group {group_id!r} has come to {self.consumer}; see `inbox ls`")
        if not 1 <= seq < group.first_seq:
            raise DeadLetterError(
                f"number is {seq}, allowed is 1 to {group.first_seq - 1}: the baseline of group {group_id!r} of"
                f" {self.consumer} is {group.first_seq}; see `inbox ls`"
            )
        now_us = engines.now_us(connection, self.clock)
        numbers = (seq, group.first_seq - 1)
        SequenceGaps(self.consumer).write_missing(connection, group_id, group.epoch, numbers, now_us)
        connection.execute(update(groups).where(*place).values(first_seq=seq))
        kept = {"epoch": group.epoch, "first_seq": group.first_seq}
        self._write_down(connection, "lower-baseline", group_id, seq, kept)

    def write_down(self, connection: Connection, action: str, dead_letter: StoredDeadLetter) -> None:
        """Audit an action on a message in the DLQ, with the message's body. Called before the action."""
        seq = None if dead_letter.envelope is None else dead_letter.envelope.seq
        kept = {"sqs_message_id": dead_letter.sqs_message_id, "fault": dead_letter.fault, "body": dead_letter.body}
        self._write_down(connection, action, dead_letter.message_group_id, seq, kept)

    def write_down_redrive(self, connection: Connection, detail: Mapping[str, Any]) -> None:
        """Audit a run that brought dead letters back, with the result of the run."""
        self._record(connection, audit, "redrive", {"consumer": self.consumer}, detail)

    def write_down_replay(
        self, connection: Connection, group_id: str | None, seq: int | None, detail: Mapping[str, Any]
    ) -> None:
        """Audit a replay: of a group from this number on, or of a topic's archive, which has neither."""
        place = {"consumer": self.consumer, "group_id": group_id, "seq": seq}
        self._record(connection, audit, "replay", place, detail)

    def _require_any(self, found: list[tuple[str, int, int]], what: str) -> list[tuple[str, int, int]]:
        if not found:
            raise DeadLetterError(f"no {what} of {self.consumer} matches; see `dlq ls`")
        return found

    def _held_message(self, connection: Connection, group_id: str, seq: int, epoch: int | None = None) -> Row[Any]:
        found = parked_message(connection, self.consumer, group_id, seq, epoch)
        where = f"message {seq} of group {group_id!r} of {self.consumer}"
        if found is None:
            raise DeadLetterError(f"{where} is not set aside in the inbox; see `dlq ls`")
        if found.held_at_us is None:
            raise DeadLetterError(
                f"{where} is set aside and waits for its turn, allowed is held: it is tried by itself; see `dlq ls`"
            )
        return found

    def _change(self, connection: Connection, found: Row[Any], values: Mapping[str, Any]) -> None:
        fresh = {"attempts": 0, "not_before_us": 0, "held_at_us": None, "last_error": None}
        place = self._position(parked, found.group_id, found.epoch, found.seq)
        connection.execute(update(parked).where(*place).values({**fresh, **values}))

    def _parked_row(self, connection: Connection, group_id: str, epoch: int, seq: int) -> Row[Any] | None:
        return connection.execute(select(parked).where(*self._position(parked, group_id, epoch, seq))).one_or_none()

    def _last_parked(self, connection: Connection, group_id: str, epoch: int) -> int:
        here = (parked.c.consumer == self.consumer, parked.c.group_id == group_id, parked.c.epoch == epoch)
        return connection.execute(select(func.max(parked.c.seq)).where(*here)).scalar_one() or 0

    def _epoch_of(
        self, connection: Connection, group: Row[Any], seq: int, epoch: int | None, *, is_awaited: bool
    ) -> int:
        """Return the epoch in which the number is open, because the same number may exist in several epochs."""
        if epoch is not None:
            return epoch
        is_open = (exceptions.c.closed_at_us.is_(None), exceptions.c.seq <= seq, exceptions.c.through >= seq)
        mine = (exceptions.c.consumer == self.consumer, exceptions.c.group_id == group.group_id)
        found = set(connection.execute(select(exceptions.c.epoch).where(*mine, *is_open)).scalars())
        found |= {group.epoch} if is_awaited else set()
        if len(found) > 1:
            epochs = ", ".join(map(str, sorted(found)))
            raise DeadLetterError(
                f"number {seq} of group {group.group_id!r} of {self.consumer} is open in epochs {epochs}, allowed is"
                " one; give --epoch"
            )
        return int(found.pop()) if found else int(group.epoch)

    def _require_open(self, group: Row[Any], seq: int, exception: Row[Any] | None, *, is_awaited: bool) -> None:
        is_missing = exception is not None and exception.closed_at_us is None
        is_skipped = exception is not None and exception.state == SKIPPED
        if is_skipped or not (is_missing or is_awaited):
            seen = "given up already" if is_skipped else "handled" if seq <= group.last_seq else "not due yet"
            raise DeadLetterError(
                f"number {seq} of group {group.group_id!r} of {self.consumer} is {seen}, allowed is one that is"
                f" missing, dead or set aside, or the next, which is {group.last_seq + 1}; see `dlq ls`"
            )

    def _position(self, table: Any, group_id: str, epoch: int, seq: int) -> tuple[Any, ...]:
        columns = table.c
        return (
            columns.consumer == self.consumer,
            columns.group_id == group_id,
            columns.epoch == epoch,
            columns.seq == seq,
        )

    def _write_down(
        self, connection: Connection, action: str, group_id: str, seq: int | None, detail: Mapping[str, Any]
    ) -> None:
        place = {"consumer": self.consumer, "group_id": group_id, "seq": seq}
        self._record(connection, audit, action, place, detail)


def _message_fields(message: Row[Any]) -> dict[str, Any]:
    return {
        "event_id": message.event_id,
        "sqs_message_id": message.sqs_message_id,
        "attempts": message.attempts,
        "last_error": message.last_error,
        "body": message.body,
    }


def _held_places(connection: Connection, consumer: str, choice: RowChoice) -> list[tuple[str, int, int]]:
    """Return group, epoch and number of the held messages that match."""
    rows = parked_messages(connection, consumer, choice=choice)
    return [(row["group_id"], row["epoch"], row["seq"]) for row in rows if row["held_at_us"] is not None]


def parked_message(
    connection: Connection, consumer: str, group_id: str, seq: int, epoch: int | None = None
) -> Row[Any] | None:
    """Return the row of a parked message, of the earliest epoch if none is given; None if there is none."""
    place = [parked.c.consumer == consumer, parked.c.group_id == group_id, parked.c.seq == seq]
    place += [] if epoch is None else [parked.c.epoch == epoch]
    return connection.execute(select(parked).where(*place).order_by(parked.c.epoch).limit(1)).one_or_none()


def listed_groups(
    connection: Connection, consumer: str, *, choice: RowChoice, most: int
) -> tuple[list[dict[str, Any]], int]:
    """Return up to `most` groups, by their ids, and how many groups match.

    The time of a group is that of its last message. If `choice` has types or a reason, only groups with a dead or
    parked message of that type or reason match.

    Each group is a dict of group_id, epoch, first_seq, last_seq, awaits_seq, parked_at_us, updated_at_us.
    """
    names = ("group_id", "epoch", "first_seq", "last_seq", "awaits_seq", "parked_at_us", "updated_at_us")
    here = [groups.c.consumer == consumer, choice.in_groups(groups.c.group_id)]
    here.append(choice.is_since(groups.c.updated_at_us))
    if choice.types or choice.died_of is not None:
        open_now = RowChoice(groups=choice.groups, types=choice.types, died_of=choice.died_of)
        waiting = {row["group_id"] for row in open_exceptions(connection, consumer, choice=open_now, most=_READ_MAX)}
        waiting |= {row["group_id"] for row in parked_messages(connection, consumer, choice=open_now)}
        here.append(groups.c.group_id.in_(sorted(waiting)))
    count = connection.execute(select(func.count()).select_from(groups).where(*here)).scalar_one()
    columns = (groups.c[name] for name in names)
    found = select(*columns).where(*here).order_by(groups.c.group_id).limit(most)
    return [dict(row) for row in connection.execute(found).mappings()], int(count)


def parked_groups(
    connection: Connection,
    consumer: str,
    *,
    choice: RowChoice = EVERYTHING,
    most: int,
    after: tuple[int, str] | None = None,
) -> list[dict[str, Any]]:
    """Return up to `most` parked groups, those parked longest first; with `after`, those after that time and group.

    The time of a group is when it was parked. If `choice` has types or a reason, only groups with a parked message of
    that type or reason match.

    Each group is a dict of group_id, epoch, last_seq, awaits_seq, awaits_until_us, parked_at_us, and of its parked
    messages: parked_count, held (a list of dicts of epoch, seq, attempts, last_error).
    """
    here = [groups.c.consumer == consumer, groups.c.parked_at_us.is_not(None)]
    columns = (groups.c[name] for name in _OF_PARKED)
    here += [choice.in_groups(groups.c.group_id), choice.is_since(groups.c.parked_at_us)]
    if choice.types or choice.died_of is not None:
        of_messages = RowChoice(groups=choice.groups, types=choice.types, died_of=choice.died_of)
        wanted = {row["group_id"] for row in parked_messages(connection, consumer, choice=of_messages)}
        here.append(groups.c.group_id.in_(sorted(wanted)))
    if after is not None:
        here.append(tuple_(groups.c.parked_at_us, groups.c.group_id) > after)
    ordered = select(*columns).where(*here).order_by(groups.c.parked_at_us, groups.c.group_id)
    rows = connection.execute(ordered.limit(most))
    return [_parked_group(connection, consumer, dict(row)) for row in rows.mappings().all()]


def _parked_group(connection: Connection, consumer: str, row: Mapping[str, Any]) -> dict[str, Any]:
    until_us = None if row["awaits_until_us"] == NEVER_US else row["awaits_until_us"]
    return {**row, "awaits_until_us": until_us, **_parked_fields(connection, consumer, row["group_id"])}


def _parked_fields(connection: Connection, consumer: str, group_id: str) -> dict[str, Any]:
    """Return the number of a group's parked messages, and up to ten of the held ones."""
    here = (parked.c.consumer == consumer, parked.c.group_id == group_id)
    count = connection.execute(select(func.count()).select_from(parked).where(*here)).scalar_one()
    columns = (parked.c.epoch, parked.c.seq, parked.c.attempts, parked.c.last_error)
    held = select(*columns).where(*here, parked.c.held_at_us.is_not(None)).order_by(parked.c.epoch, parked.c.seq)
    return {"parked_count": count, "held": [dict(row) for row in connection.execute(held.limit(10)).mappings()]}


def parked_messages(connection: Connection, consumer: str, *, choice: RowChoice) -> list[dict[str, Any]]:
    """Return up to `_READ_MAX` messages that are set aside, by group and number.

    Each is a dict of group_id, epoch, seq, event_id, type, attempts, last_error, parked_at_us, held_at_us.
    """
    names = ("group_id", "epoch", "seq", "event_id", "attempts", "last_error", "parked_at_us", "held_at_us")
    here = (parked.c.consumer == consumer, choice.in_groups(parked.c.group_id), choice.of_reason(parked.c.last_error))
    columns = (*(parked.c[name] for name in names), parked.c.body)
    ordered = select(*columns).where(*here, choice.is_since(parked.c.parked_at_us))
    rows = connection.execute(ordered.order_by(parked.c.group_id, parked.c.epoch, parked.c.seq).limit(_READ_MAX))
    found = [{**row, "type": decode(row["body"]).event.type} for row in rows.mappings()]
    return [
        {name: value for name, value in row.items() if name != "body"}
        for row in found
        if choice.matches_type(row["type"])
    ]


def open_exceptions(
    connection: Connection, consumer: str, *, choice: RowChoice = EVERYTHING, most: int
) -> list[dict[str, Any]]:
    """Return up to `most` ranges of numbers that are dead or missing, the longest known first.

    The type of a dead number is read from the outbox, if the outbox is in the same database and may be read.

    Each range is a dict of group_id, epoch, seq, through, state, reason, event_id, receive_count, seen_at_us, type.
    """
    names = ("group_id", "epoch", "seq", "through", "state", "reason", "event_id", "receive_count", "seen_at_us")
    here = (exceptions.c.consumer == consumer, exceptions.c.closed_at_us.is_(None))
    chosen = (choice.in_groups(exceptions.c.group_id), choice.is_since(exceptions.c.seen_at_us))
    columns = (exceptions.c[name] for name in names)
    ordered = select(*columns).where(*here, *chosen, choice.of_reason(exceptions.c.reason))
    ordered = ordered.order_by(exceptions.c.seen_at_us, exceptions.c.id)
    rows = [dict(row) for row in connection.execute(ordered.limit(_READ_MAX if choice.types else most)).mappings()]
    types = find_types(connection, {row["event_id"] for row in rows if row["event_id"] is not None})
    typed = [{**row, "type": types.get(row["event_id"])} for row in rows]
    return [row for row in typed if choice.matches_type(row["type"])][:most]


def dead_letter_record(connection: Connection, consumer: str, dead_letter: StoredDeadLetter) -> dict[str, Any] | None:
    """Return the record of a dead letter, a dict of state, reason, receive_count, seen_at_us; None if it has none."""
    is_same: ColumnElement[bool] = exceptions.c.sqs_message_id.in_(dead_letter.first_ids)
    if dead_letter.envelope is not None:
        is_same = or_(
            is_same,
            and_(
                exceptions.c.epoch == dead_letter.envelope.epoch,
                exceptions.c.seq <= dead_letter.envelope.seq,
                exceptions.c.through >= dead_letter.envelope.seq,
            ),
        )
    columns = (exceptions.c[name] for name in ("state", "reason", "receive_count", "seen_at_us"))
    here = (exceptions.c.consumer == consumer, exceptions.c.group_id == dead_letter.message_group_id)
    row = connection.execute(select(*columns).where(*here, is_same).limit(1)).mappings().one_or_none()
    return None if row is None else dict(row)


def outcome_in_words(connection: Connection, consumer: str, dead_letter: StoredDeadLetter) -> str:
    """Return what became of an event of a bundle that is a dead letter as a whole, in words."""
    if is_done_with(connection, consumer, dead_letter):
        return "handled or given up: dropped if it is brought back"
    envelope, record = dead_letter.envelope, dead_letter_record(connection, consumer, dead_letter)
    if record is not None and record["state"] == DEAD:
        return f"dead: {record['reason']}"
    if envelope is not None:
        p = parked.c
        place = (p.group_id == envelope.event.group, p.epoch == envelope.epoch, p.seq == envelope.seq)
        if connection.execute(select(p.seq).where(p.consumer == consumer, *place)).first() is not None:
            return "set aside in the inbox: dropped if it is brought back"
    a = attempts.c
    tried = select(a.failed_count + a.unfinished_count)
    tried = tried.where(a.consumer == consumer, a.sqs_message_id.in_(dead_letter.first_ids))
    count = connection.execute(tried).scalar() or 0
    return f"not handled, {count} attempts are recorded" if count else "not handled, and no attempt is recorded"


def is_done_with(connection: Connection, consumer: str, dead_letter: StoredDeadLetter) -> bool:
    """Return whether the inbox would drop a returned dead letter, because its number is handled or given up."""
    if dead_letter.envelope is None:
        return False
    envelope = dead_letter.envelope
    place = (groups.c.consumer == consumer, groups.c.group_id == envelope.event.group)
    row = connection.execute(select(groups).where(*place)).one_or_none()
    if row is None or row.epoch < envelope.epoch:
        return False
    arrival = Arrival(
        epoch=envelope.epoch,
        seq=envelope.seq,
        event_id=envelope.event.id,
        sqs_message_id="",  # the id of the copy is not known yet
        receive_count=1,
        first=envelope.first,
    )
    known = SequenceGaps(consumer).record_of(connection, envelope.event.group, envelope.epoch, envelope.seq)
    return decide(position_of(row), known, arrival, parks_gaps=False).action is Action.DROP
