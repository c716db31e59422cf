"""What SQS FIFO queues behind one SNS topic may do with one message group, the environment's freedom included.

Written from AWS's documents alone; it shares no code with the checker. A message is in a queue from its publish on, or
from any later instant (SNS delivers at once and says not by when). A message stays hidden at least for its visibility
timeout, and for as long as the queue likes after it (VIS-15). Nothing behind a hidden message is delivered (GRP-10).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

NEVER_US = 2**62

type Place = Literal["waiting", "held", "gone", "dead"]
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
    """

    idx: int
    instance: int
    sqs_message_id: str | None = None
    sqs_sequence_number: str | None = None
    place: Place = "waiting"
    handle: str = ""
    free_at_us: int = 0
    receives: int = 0
    is_given_back: bool = False


@dataclass(frozen=True, slots=True)
class Received:
    """One message of an answer; a None was not recorded and fits anything."""

    idx: int
    sqs_message_id: str | None
    sqs_sequence_number: str | None
    handle: str
    receive_count: int | None
    visibility_us: int


@dataclass(frozen=True, slots=True)
class QueueState:
    """The copies of one group in one queue, in the order the queue has them.

    Args:
        copies: in order.
        receives_max: of the redrive policy; None without one, or when nobody knows it.
        may_die_early: whether a message may be dead-lettered after any receive: nobody knows how many it may have.
        is_dead_letter_queue: whether only the order of first receives is looked at: operators read it as they like.
        handles: every receipt handle given out here, to its copy's instance.
    """

    copies: tuple[Copy, ...] = ()
    receives_max: int | None = None
    may_die_early: bool = False
    is_dead_letter_queue: bool = False
    handles: frozenset[tuple[str, int]] = field(default_factory=frozenset)

    def with_copy(self, copy: Copy) -> "QueueState":
        """Return the queue with one copy more, at the end of the group."""
        return replace(self, copies=(*self.copies, copy))

    def changed(self, position: int, **changes: object) -> "QueueState":
        """Return the queue with the copy at a position changed."""
        copies = list(self.copies)
        copies[position] = replace(copies[position], **changes)  # type: ignore[arg-type]
        return replace(self, copies=tuple(copies))

    def receiving(self, answer: Sequence[Received], at_us: int) -> Iterator[tuple["QueueState", tuple[Copy, ...]]]:
        """Yield every state a receive with this answer may leave, with the copies it moved to the DLQ.

        The queue walks along the group: what is gone it passes, at what is hidden it stops, what had all its receives
        dies, and everything else is in the answer, in order. It may end early: an answer may hold fewer than there are.
        """
        yield from self._walk(0, tuple(answer), (), at_us)

    def _walk(
        self, position: int, answer: tuple[Received, ...], dead: tuple[Copy, ...], at_us: int
    ) -> Iterator[tuple["QueueState", tuple[Copy, ...]]]:
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
        if self.may_die_early and copy.receives:
            yield from self.changed(position, place="dead")._walk(position + 1, answer, (*dead, copy), at_us)
        if self.receives_max is not None and copy.receives >= self.receives_max:
            yield from self.changed(position, place="dead")._walk(position + 1, answer, (*dead, copy), at_us)
        elif answer and self._fits(position, answer[0]):
            delivered = self._delivered(position, answer[0], at_us)
            yield from delivered._walk(position + 1, answer[1:], dead, at_us)
            is_hidden = answer[0].visibility_us > 0 or not answer[0].handle  # of a lost answer nobody knows
            if answer[1:] and not is_hidden:  # it may come again in the same answer (VIS-12)
                yield from delivered._walk(0, answer[1:], dead, at_us)

    def _delivered(self, position: int, received: Received, at_us: int) -> "QueueState":
        copy = self.copies[position]
        delivered = self.changed(
            position,
            sqs_message_id=received.sqs_message_id or copy.sqs_message_id,
            sqs_sequence_number=received.sqs_sequence_number or copy.sqs_sequence_number,
            place="held",
            handle=received.handle,
            free_at_us=at_us + received.visibility_us,
            receives=copy.receives + 1,
            is_given_back=received.visibility_us == 0,
        )
        return replace(delivered, handles=self.handles | {(received.handle, copy.instance)})

    def receiving_unseen(self, at_us: int) -> Iterator[tuple["QueueState", tuple[Copy, ...]]]:
        """Yield every state that a receive whose answer was lost may leave: any messages, for any time."""
        available = [copy for copy in self.copies if copy.place in ("waiting", "held")]
        for count in range(len(available) + 1):
            answer = [
                Received(copy.idx, copy.sqs_message_id, copy.sqs_sequence_number, "", None, 0)
                for copy in available
                if self.receives_max is None or copy.receives < self.receives_max
            ][:count]
            yield from self.receiving(answer, at_us)

    def settling(
        self, handle: str, visibility_seconds: int | None, at_us: int, until_us: int | None
    ) -> Iterator[tuple["QueueState", int]]:
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
                yield self.changed(position, place="gone"), at_us
        elif is_newest and visibility_seconds is not None:
            free_at_us, is_given_back = at_us + visibility_seconds * 1_000_000, visibility_seconds == 0
            yield self.changed(position, free_at_us=free_at_us, is_given_back=is_given_back), at_us
        late_us = max(at_us, copy.free_at_us) if is_newest and until_us is not None else at_us
        if until_us is None or late_us <= until_us:
            yield self, late_us

    def _fits(self, position: int, received: Received) -> bool:
        copy = self.copies[position]
        id_, number = received.sqs_message_id, received.sqs_sequence_number
        return (
            copy.idx == received.idx
            and received.receive_count in (None, copy.receives + 1)
            and (id_ is None or id_ == copy.sqs_message_id or (copy.sqs_message_id is None and id_ not in self._ids()))
            and (number is None or self._is_in_order(position, number))
        )

    def _ids(self) -> set[str | None]:
        return {copy.sqs_message_id for copy in self.copies}

    def _is_in_order(self, position: int, number: str) -> bool:
        numbers = [copy.sqs_sequence_number for copy in self.copies]
        return (
            numbers[position] in (None, number)
            and all(other < number for other in numbers[:position] if other is not None)
            and all(other > number for other in numbers[position + 1 :] if other is not None)
        )
