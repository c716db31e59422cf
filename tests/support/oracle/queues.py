"""A model of SQS FIFO queues behind one SNS topic, for one message group, the environment's freedom included.

Written from AWS's documents alone; it shares no code with the checker. A message is in a queue from its publish on, or
from any later instant (SNS delivers at once and says not by when). A message stays hidden at least for its visibility
timeout, and for as long as the queue likes after it (VIS-15). Nothing behind a hidden message is delivered (GRP-10).

A receive repeated with its attempt id brings the same messages and handles, and hides them anew, while nobody deleted,
hid or received one of them (RCV-11, RCV-28, RCV-30); for five minutes (RCV-13, RCV-32). What brings something else with
that id is a receive like any other, and comes when the id is too old or a message may be free again; of an id that is
refused nobody says for how long. Whether a repeat is counted nobody says either. A repeat is repeated as it was: one
whose answer was lost hides no shorter than its receive did.

A move task receives as a consumer does, from the front of the group (MOV-20, MOV-26), and puts a new message with
another id at the end of the group in its destination (MOV-18). Whether that counts its receives anew is disputed
(MOV-19), so it may be dead-lettered again at any time until it had all the receives of a new one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

NEVER_US = 2**62
ATTEMPT_US = 300_000_000
MOVES_MAX = 2
"""How often one move task moves one message: what comes to the DLQ while it runs it may move as well."""

type CopyPlace = Literal["waiting", "held", "gone", "dead"]
"""Where a copy is: it may be received, it is in flight, it was deleted, or it went to the DLQ."""


@dataclass(frozen=True, slots=True)
class Copy:
    """One published message in one queue.

    Args:
        idx: of the message.
        instance: which publish made it, from 0: a repeat after the window makes another copy.
        sqs_message_id: once an answer showed it.
        sqs_sequence_number: once an answer showed it.
        place: where it is.
        handle: of the newest receive, "" when that receive's answer was lost.
        free_at_us: the earliest instant at which it may be received again.
        receives: how often it was received here.
        is_given_back: whether it was received with a timeout of 0, or its timeout was set to 0: nobody holds it.
        is_changed: whether its visibility timeout was changed since its newest receive.
        is_moved: whether a move task brought it.
        moved_by: the move tasks that moved it so far, in order.
        former_id: the SQS message id it had in the DLQ it was moved from.
        seen_us: when it certainly was in the queue: it had been sent, or the first answer with it had come.
    """

    idx: int
    instance: int
    sqs_message_id: str | None = None
    sqs_sequence_number: str | None = None
    place: CopyPlace = "waiting"
    handle: str = ""
    free_at_us: int = 0
    receives: int = 0
    is_given_back: bool = False
    is_changed: bool = False
    is_moved: bool = False
    moved_by: tuple[int, ...] = ()
    former_id: str | None = None
    seen_us: int = NEVER_US


@dataclass(frozen=True, slots=True)
class ReceiveAttempt:
    """The messages that a receive brought, as far as it can be repeated.

    Args:
        id: the attempt id; None of a receive nobody saw the answer of: it may be any.
        members: (instance, handle, how often it had been received with that), in order; a handle of "" is not known.
        from_us: the earliest instant of the first receive.
        until_us: the latest instant of the last repeat.
    """

    id: str | None
    members: tuple[tuple[int, str, int], ...]
    from_us: int
    until_us: int = NEVER_US


@dataclass(frozen=True, slots=True)
class AnsweredMessage:
    """One message of an answer; a None was not recorded and fits anything."""

    idx: int
    sqs_message_id: str | None
    sqs_sequence_number: str | None
    handle: str
    receive_count: int | None
    visibility_us: int
    is_given_back: bool = False
    in_queue_us: int = NEVER_US


@dataclass(frozen=True, slots=True)
class GroupCopies:
    """The copies of one group in one queue, in the order the queue has them.

    Args:
        copies: in order.
        receives_max: of the redrive policy; None without one, or when nobody knows it.
        may_die_early: whether a message may be dead-lettered after any receive: nobody knows how many it may have.
        is_dead_letter_queue: whether only the order of first receives is looked at: operators read it as they like.
        handles: every receipt handle given out here, to its copy's instance.
        attempts: the receives that may be repeated.
        purges: when each confirmed purge was asked for, and by when it was over.
    """

    copies: tuple[Copy, ...] = ()
    receives_max: int | None = None
    may_die_early: bool = False
    is_dead_letter_queue: bool = False
    handles: frozenset[tuple[str, int]] = field(default_factory=frozenset)
    attempts: tuple[ReceiveAttempt, ...] = ()
    purges: tuple[tuple[int, int], ...] = ()

    def with_copy(self, copy: Copy) -> "GroupCopies":
        """Return the queue with one copy more, at the end of the group."""
        return replace(self, copies=(*self.copies, copy))

    def answering(self, instance: int, id_: str | None, number: str | None) -> "GroupCopies | None":
        """Return the queue whose copy an answer to a send named; None if that contradicts what is known of it."""
        position = next(place for place, copy in enumerate(self.copies) if copy.instance == instance)
        copy = self.copies[position]
        is_same = id_ is None or id_ == copy.sqs_message_id or (copy.sqs_message_id is None and id_ not in self._ids())
        if not is_same or not (number is None or self._is_in_order(position, number)):
            return None
        known = id_ or copy.sqs_message_id, number or copy.sqs_sequence_number
        return self.with_copy_changed(position, sqs_message_id=known[0], sqs_sequence_number=known[1])

    def with_copy_changed(self, position: int, **changes: object) -> "GroupCopies":
        """Return the queue with the copy at a position changed."""
        copies = list(self.copies)
        copies[position] = replace(copies[position], **changes)  # type: ignore[arg-type]
        return replace(self, copies=tuple(copies))

    def receiving(
        self, answer: Sequence[AnsweredMessage], at_us: int
    ) -> Iterator[tuple["GroupCopies", tuple[Copy, ...]]]:
        """Yield every state a receive with this answer may leave, with the copies it moved to the DLQ.

        The queue walks along the group: what is gone it passes, at what is hidden it stops, what had all its receives
        dies, and everything else is in the answer, in order. It may end early: an answer may hold fewer than there are.
        """
        yield from self._walk(0, tuple(answer), (), at_us)

    def _walk(
        self, position: int, answer: tuple[AnsweredMessage, ...], dead: tuple[Copy, ...], at_us: int
    ) -> Iterator[tuple["GroupCopies", tuple[Copy, ...]]]:
        if not answer:
            yield self, dead
        if position == len(self.copies):
            return
        copy = self.copies[position]
        if copy.place in ("gone", "dead"):
            yield from self._walk(position + 1, answer, dead, at_us)
            return
        if at_us < copy.free_at_us:
            return
        if self.is_dead_letter_queue and copy.place == "held":
            yield from self._walk(position + 1, answer, dead, at_us)
        if copy.is_moved or (self.may_die_early and copy.receives):
            yield from self.with_copy_changed(position, place="dead")._walk(position + 1, answer, (*dead, copy), at_us)
        if self.receives_max is not None and copy.receives >= self.receives_max:
            yield from self.with_copy_changed(position, place="dead")._walk(position + 1, answer, (*dead, copy), at_us)
        elif answer and self._fits(position, answer[0]) and not self._is_purged(copy, at_us):
            delivered = self._deliver(position, answer[0], at_us)
            yield from delivered._walk(position + 1, answer[1:], dead, at_us)
            is_hidden = answer[0].visibility_us > 0 or not answer[0].handle  # of a lost answer nobody knows
            if answer[1:] and not is_hidden:  # it may come again in the same answer (VIS-12)
                yield from delivered._walk(0, answer[1:], dead, at_us)

    def _is_purged(self, copy: Copy, at_us: int) -> bool:
        """Return whether a purge that is over has removed a copy: it was in the queue when that was asked for."""
        return any(copy.seen_us < began_us and at_us > ended_us for began_us, ended_us in self.purges)

    def removing(self, position: int) -> "GroupCopies":
        """Return the queue without the copy at a position, which a purge removed."""
        return self.with_copy_changed(position, place="gone")

    def _deliver(self, position: int, received: AnsweredMessage, at_us: int) -> "GroupCopies":
        copy = self.copies[position]
        delivered = self.with_copy_changed(
            position,
            sqs_message_id=received.sqs_message_id or copy.sqs_message_id,
            sqs_sequence_number=received.sqs_sequence_number or copy.sqs_sequence_number,
            place="held",
            handle=received.handle,
            free_at_us=at_us + received.visibility_us,
            receives=max(copy.receives + 1, (self.is_dead_letter_queue and received.receive_count) or 0),
            is_given_back=received.is_given_back,
            is_changed=False,
            seen_us=min(copy.seen_us, received.in_queue_us),
        )
        return replace(delivered, handles=self.handles | {(received.handle, copy.instance)})

    def receiving_unseen(self, at_us: int) -> Iterator[tuple["GroupCopies", tuple[Copy, ...]]]:
        """Yield every state that a receive whose answer was lost may leave: any messages, for any time."""
        available = [copy for copy in self.copies if copy.place in ("waiting", "held")]
        for count in range(len(available) + 1):
            answer = [
                AnsweredMessage(copy.idx, copy.sqs_message_id, copy.sqs_sequence_number, "", None, 0)
                for copy in available
                if self.receives_max is None or copy.receives < self.receives_max
            ][:count]
            for state, dead in self.receiving(answer, at_us):
                yield state.remembering(None, self, from_us=at_us), dead

    def remembering(self, attempt_id: str | None, before: "GroupCopies", *, from_us: int) -> "GroupCopies":
        """Return the queue that remembers what the last receive brought, which was made from the state before."""
        receives = {copy.instance: copy.receives for copy in before.copies}
        members = tuple(
            (copy.instance, copy.handle, copy.receives)
            for copy in self.copies
            if copy.place == "held" and copy.receives != receives.get(copy.instance)
        )
        others = tuple(attempt for attempt in self.attempts if attempt_id is None or attempt.id != attempt_id)
        return replace(self, attempts=(*others, ReceiveAttempt(attempt_id, members, from_us))) if members else self

    def settle_attempts(self, until_us: int) -> "GroupCopies":
        """Return the queue, in which every receive so far happened before an instant."""
        if all(attempt.until_us <= until_us for attempt in self.attempts):
            return self
        attempts = tuple(replace(each, until_us=min(each.until_us, until_us)) for each in self.attempts)
        return replace(self, attempts=attempts)

    def repeating(self, attempt_id: str, answer: Sequence[AnsweredMessage], at_us: int) -> Iterator["GroupCopies"]:
        """Yield every state that the repeat of a receive with this answer may leave."""
        for attempt in self.attempts:
            is_known = attempt.id == attempt_id or (
                attempt.id is None and all(other.id != attempt_id for other in self.attempts)
            )
            if is_known and self._is_repeatable(attempt) and at_us - attempt.until_us < ATTEMPT_US:
                yield from self._repeat(attempt, attempt_id, answer, at_us)

    def may_be_new(self, attempt_id: str, at_us: int, by_us: int) -> bool:
        """Return whether a receive may bring new messages, although its attempt id may have been used before.

        Otherwise it repeats the answer of the earlier receive. It is a new one for certain neither before the earlier
        one is five minutes old, nor while all messages of that one are held as they were received.

        Args:
            attempt_id: its ReceiveRequestAttemptId.
            at_us: the instant at which it happens.
            by_us: the latest instant at which it may have happened.
        """
        attempt = next((attempt for attempt in self.attempts if attempt.id == attempt_id), None)
        if attempt is None or by_us - attempt.from_us >= ATTEMPT_US or not self._is_repeatable(attempt):
            return True
        members = {instance for instance, _, _ in attempt.members}
        return any(copy.free_at_us <= at_us for copy in self.copies if copy.instance in members)

    def _is_repeatable(self, attempt: ReceiveAttempt) -> bool:
        """Return whether all that a receive brought is still held as it was received."""
        members = {instance: receives for instance, _, receives in attempt.members}
        held = [copy for copy in self.copies if copy.instance in members and copy.place == "held"]
        return len(held) == len(members) and all(
            copy.receives == members[copy.instance] and not copy.is_changed for copy in held
        )

    def _repeat(
        self, attempt: ReceiveAttempt, attempt_id: str, answer: Sequence[AnsweredMessage], at_us: int
    ) -> Iterator["GroupCopies"]:
        if len(answer) != len(attempt.members):
            return
        state, members = self, []
        for (instance, handle, _), received in zip(attempt.members, answer, strict=True):
            position = next(place for place, copy in enumerate(state.copies) if copy.instance == instance)
            copy = state.copies[position]
            is_counted = received.receive_count == copy.receives + 1 and copy.receives != self.receives_max
            uncounted = replace(copy, receives=copy.receives - (not is_counted))
            before = replace(state, copies=(*state.copies[:position], uncounted, *state.copies[position + 1 :]))
            if handle not in ("", received.handle) or not before._fits(position, received):
                return
            state = before._deliver(position, received, at_us)
            members.append((instance, received.handle, state.copies[position].receives))
        others = tuple(other for other in self.attempts if other is not attempt)
        again = ReceiveAttempt(attempt_id, tuple(members), attempt.from_us)
        yield replace(state, attempts=(*others, again))

    def moving(self, number: int, at_us: int) -> "tuple[GroupCopies, Copy] | None":
        """Return the queue without the first message of the group, which a move task takes; None if it cannot."""
        for position, copy in enumerate(self.copies):
            if copy.place in ("gone", "dead"):
                continue
            if at_us < copy.free_at_us or copy.moved_by.count(number) >= MOVES_MAX:
                return None
            return self.with_copy_changed(position, place="gone"), replace(copy, moved_by=(*copy.moved_by, number))
        return None

    def with_moved(self, copy: Copy) -> "GroupCopies":
        """Return the queue with what a move task brought: a new message, at the end of the group."""
        moved = Copy(
            copy.idx, -1 - len(self.copies), is_moved=True, moved_by=copy.moved_by, former_id=copy.sqs_message_id
        )
        return self.with_copy(moved)

    def settling(
        self, handle: str, visibility_seconds: int | None, at_us: int, until_us: int | None
    ) -> Iterator[tuple["GroupCopies", int]]:
        """Yield every (state, instant) that a delete, or a visibility change, with this handle may leave.

        The newest handle works while it holds the message (VIS-01), and the queue may take longer to let go than the
        timeout says. An older handle, or one whose time was over, does nothing; whether it is refused or confirmed for
        that nobody recorded on FIFO. What was given back at once, nobody holds and nobody can delete (VIS-04).

        Args:
            handle: of the receipt.
            visibility_seconds: of the change; None deletes.
            at_us: the earliest instant of the call's effect.
            until_us: the latest, of a call that was confirmed; None when nobody answered.
        """
        instance = dict(self.handles).get(handle)
        position = next((i for i, copy in enumerate(self.copies) if copy.instance == instance), None)
        if position is None:  # nobody has this handle yet
            yield self, at_us
            return
        copy = self.copies[position]
        is_newest = copy.place == "held" and copy.handle == handle
        if is_newest and visibility_seconds is None:
            if not copy.is_given_back:
                yield self.with_copy_changed(position, place="gone"), at_us
        elif is_newest and visibility_seconds is not None:
            free_at_us, is_given_back = at_us + visibility_seconds * 1_000_000, visibility_seconds == 0
            changed = self.with_copy_changed(
                position, free_at_us=free_at_us, is_given_back=is_given_back, is_changed=True
            )
            yield changed, at_us
        late_us = max(at_us, copy.free_at_us) if is_newest and until_us is not None else at_us
        if until_us is None or late_us <= until_us:
            yield self, late_us

    def _fits(self, position: int, received: AnsweredMessage) -> bool:
        copy = self.copies[position]
        id_, number = received.sqs_message_id, received.sqs_sequence_number
        return (
            copy.idx == received.idx
            and self._is_counted(copy, received.receive_count)
            and (id_ is None or id_ == copy.sqs_message_id or (copy.sqs_message_id is None and id_ not in self._ids()))
            and (number is None or self._is_in_order(position, number))
        )

    def _is_counted(self, copy: Copy, receive_count: int | None) -> bool:
        if receive_count is None or receive_count == copy.receives + 1:
            return True
        goes_on = self.is_dead_letter_queue or copy.is_moved  # DLQ-07, MOV-19
        return goes_on and receive_count > copy.receives

    def _ids(self) -> set[str | None]:
        return {id_ for copy in self.copies for id_ in (copy.sqs_message_id, copy.former_id)}

    def _is_in_order(self, position: int, number: str) -> bool:
        numbers = [copy.sqs_sequence_number for copy in self.copies]
        return (
            numbers[position] in (None, number)
            and all(other < number for other in numbers[:position] if other is not None)
            and all(other > number for other in numbers[position + 1 :] if other is not None)
        )
