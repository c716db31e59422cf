"""Move dead letters back to their queue: one by one (client engine), or by SQS itself (native engine).

The client engine moves each group's messages in order, and each message in three steps: send the copy, wait for the
confirmation, delete the original. A message that cannot be sent, or that is not selected, stays in the DLQ, together
with the messages behind it in its group. The native engine is a move task of SQS: it has no filter, and moved messages
have no order with messages that are sent meanwhile.

AWS: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_StartMessageMoveTask.html,
API_ListMessageMoveTasks.html, API_CancelMessageMoveTask.html (read 2026-11-21).
"""

import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Protocol

from sluice import limits
from sluice.clock import Clock
from sluice.errors import ConfigError
from sluice.messaging.errors import HoldLostError, TransientError
from sluice.messaging.failpoints import Failpoint, do_nothing
from sluice.messaging.sqs import dead_letter_queue
from sluice.messaging.sqs.dead_letter_queue import (
    DeadLetterQueue,
    Reading,
    StoredDeadLetter,
    asking,
    deduplication_id,
)
from sluice.messaging.sqs.rate_limit import Pace

_FAILURES_MAX = 10  # failures in a row; after these the destination counts as unreachable
_HOLD_SHARE = 0.5  # messages received at once have to be sent within this share of the hold
_TASKS = 10  # most tasks that one ListMessageMoveTasks returns
_UNSEEN_MAX = 15  # lists without the task that was started; after these it counts as lost
_ENDED = ("COMPLETED", "CANCELLED", "FAILED")


class LeftReason(StrEnum):
    """Why a message was left in the DLQ."""

    UNWANTED = "it does not match"
    BEHIND = "it is behind one of its group that was left"
    BOUNCED = "it was brought back in this run, and died again"
    FAILED = "it could not be sent, or not be deleted"
    LATE = "its turn did not come: its hold was over, or the run was stopped"


class Selection(Protocol):
    """The selection of messages that are brought back."""

    def matches(self, dead_letter: StoredDeadLetter, /) -> bool:
        """Return whether a message is brought back.

        Called in each pass, for the first message of a group before later ones.
        """


class RedriveSender(Protocol):
    """A sender of dead letters: `Destination`, or a check in front of it."""

    def send(self, dead_letter: StoredDeadLetter, /, *, deduplication_id: str) -> str:
        """Send a copy and return its SQS message id.

        Raises:
            TransientError: the copy may or may not be in the queue.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A selection of the messages that match every given condition.

    Args:
        groups: only messages of these groups; empty means any group.
        before_us: only messages that arrived in the DLQ before this time; None means any time.
        since_us: only messages that arrived in the DLQ from this time on; None means any time.
        died_of: whether the recorded reason of a message is wanted; None means any reason.
    """

    groups: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()
    event_ids: frozenset[str] = frozenset()
    before_us: int | None = None
    since_us: int | None = None
    died_of: Callable[[StoredDeadLetter], bool] | None = None

    @property
    def is_any(self) -> bool:
        """Return whether everything matches."""
        return self == Choice()

    def matches(self, dead_letter: StoredDeadLetter) -> bool:
        """Return whether a message matches, or an event of it; an unreadable body has neither type nor event."""
        return any(map(self._matches, dead_letter.events))

    def _matches(self, dead_letter: StoredDeadLetter) -> bool:
        event = None if dead_letter.envelope is None else dead_letter.envelope.event
        return (
            (not self.groups or dead_letter.message_group_id in self.groups)
            and (not self.types or (event is not None and event.type in self.types))
            and (not self.event_ids or (event is not None and event.id in self.event_ids))
            and (self.before_us is None or dead_letter.sent_at_us < self.before_us)
            and (self.since_us is None or dead_letter.sent_at_us >= self.since_us)
            and (self.died_of is None or self.died_of(dead_letter))
        )


@dataclass(slots=True)
class RedriveResult:
    """The result of a run.

    Args:
        moved: the place of each event that was brought back: (group, number); the number is None if the body is not
            an envelope.
        left: the SQS message id of each message that stayed, to the reason.
        error: the error of the last message that failed.
        is_whole: whether the run came to its end; False if it was stopped or gave up.
    """

    moved: list[tuple[str, int | None]] = field(default_factory=list)
    left: dict[str, LeftReason] = field(default_factory=dict)
    error: str | None = None
    is_whole: bool = True

    def left_counts(self) -> dict[str, int]:
        """Return how many messages were left, by reason."""
        return {why.name.lower(): count for why, count in Counter(self.left.values()).items()}


class Redrive:
    """One run of the client engine.

    Args:
        run: the id of the run; another run with the same id finishes a run that died.
        batch: how many messages are received at once; see `batch_of`.
        most: stop after this many messages; None means all.

    Raises:
        ConfigError: the id has characters or a length that are not allowed.
    """

    def __init__(
        self,
        source: DeadLetterQueue,
        destination: RedriveSender,
        *,
        run: str,
        pace: Pace,
        clock: Clock,
        choice: Selection = Choice(),
        batch: int = limits.RECEIVE_MESSAGES_MAX,
        most: int | None = None,
        is_stopped: Callable[[], bool] = lambda: False,
        failpoint: Failpoint = do_nothing,
        on_moved: Callable[[StoredDeadLetter], None] = lambda _: None,
    ) -> None:
        self._source, self._destination, self._run = source, destination, checked_run(run)
        self._choice, self._pace, self._clock = choice, pace, clock
        self._batch, self._most, self._is_stopped = batch, most, is_stopped
        self._failpoint, self._on_moved = failpoint, on_moved
        self._sent: dict[str, str] = {}  # SQS message id in the DLQ -> that of its copy
        self._copies: set[str] = set()
        self._failures = 0
        self.result = RedriveResult()

    def work(self) -> RedriveResult:
        """Go through the DLQ until a pass brings nothing back, or the DLQ does not answer; return the result."""
        try:
            while self._pass() and not self._is_over():
                pass
            self.result.is_whole = not self._is_over() or self._is_enough()
        except TransientError as error:
            self.result.error, self.result.is_whole = str(error), False
        return self.result

    def _pass(self) -> bool:
        """Process every message that can be received, once; return whether any message was brought back."""
        moved_before = len(self.result.moved)
        seen: set[str] = set()
        blocked: set[str] = set()
        with Reading(self._source, clock=self._clock) as reading:
            while not self._is_over() and (dead_letters := reading.receive(self._batch)):
                for dead_letter in dead_letters:
                    if dead_letter.sqs_message_id not in seen and not self._is_over():
                        seen.add(dead_letter.sqs_message_id)
                        self._handle(reading, dead_letter, blocked)
        return len(self.result.moved) > moved_before

    def _handle(self, reading: Reading, dead_letter: StoredDeadLetter, blocked: set[str]) -> None:
        """Bring a message back, or leave it, and then block the messages behind it in its group."""
        why = self._reason_to_leave(dead_letter, blocked) or self._bring_back(reading, dead_letter)
        if why is None:
            self.result.left.pop(dead_letter.sqs_message_id, None)
            self._on_moved(dead_letter)
        else:
            self.result.left[dead_letter.sqs_message_id] = why
            blocked.add(dead_letter.message_group_id)

    def _reason_to_leave(self, dead_letter: StoredDeadLetter, blocked: set[str]) -> LeftReason | None:
        """Return why a message must stay in the DLQ; None if it may be brought back."""
        # A copy is matched as well: at one that died again the guard of automatic redrive may switch itself off.
        is_wanted = self._choice.matches(dead_letter)
        if dead_letter.first_ids & self._copies:
            return LeftReason.BOUNCED
        if not is_wanted:
            return LeftReason.UNWANTED
        return LeftReason.BEHIND if dead_letter.message_group_id in blocked else None

    def _bring_back(self, reading: Reading, dead_letter: StoredDeadLetter) -> LeftReason | None:
        """Move a message to the destination; return the reason if it was left, or None."""
        self._pace.take()
        if self._is_stopped() or not reading.is_safe(dead_letter):
            return LeftReason.LATE
        try:
            dead_letter_queue.move(reading, dead_letter, self._send, failpoint=self._failpoint)
        except (HoldLostError, TransientError) as error:
            self._failures += 1
            self.result.error = str(error)
            return LeftReason.FAILED
        self._failures = 0
        for each in dead_letter.events:
            seq = None if each.envelope is None else each.envelope.seq
            self.result.moved.append((dead_letter.message_group_id, seq))
        return None

    def _send(self, dead_letter: StoredDeadLetter) -> None:
        """Send the letter, unless its copy was sent before and only the delete failed."""
        if dead_letter.sqs_message_id not in self._sent:
            fresh = deduplication_id("redrive", self._run, dead_letter.sqs_message_id)
            copy_id = self._destination.send(dead_letter, deduplication_id=fresh)
            self._sent[dead_letter.sqs_message_id] = copy_id
            self._copies.add(copy_id)

    def _is_enough(self) -> bool:
        return self._most is not None and len(self.result.moved) >= self._most

    def _is_over(self) -> bool:
        return self._is_stopped() or self._is_enough() or self._failures >= _FAILURES_MAX


def new_run(clock: Clock) -> str:
    """Return a new id for a run, made of the time and a random part."""
    return f"{datetime.fromtimestamp(clock.now_us() / 1_000_000, UTC):%Y%m%d-%H%M}-{secrets.token_hex(2)}"


def checked_run(run: str) -> str:
    """Return the id of a run.

    Raises:
        ConfigError: the id has characters or a length that are not allowed.
    """
    if not re.fullmatch(rf"[A-Za-z0-9_.-]{{1,{dead_letter_queue.RUN_CHARACTERS_MAX}}}", run):
        raise ConfigError(
            f"run is {run!r}, allowed are 1 to {dead_letter_queue.RUN_CHARACTERS_MAX} letters, digits and . _ -; give"
            " the --run that was printed, or none"
        )
    return run


def batch_of(rate: float | None, hold_seconds: int) -> int:
    """Return how many messages may be received at once, so that each is sent before its hold ends.

    Args:
        rate: messages per second; None is as fast as possible.
        hold_seconds: how long received messages stay hidden.

    Raises:
        ConfigError: at this rate not even one message is sent before its hold ends.
    """
    most = limits.RECEIVE_MESSAGES_MAX
    if rate is None:
        return most
    if rate * hold_seconds * _HOLD_SHARE < 1:
        raise ConfigError(
            f"--rate is {rate:g} a second with a --hold of {hold_seconds} s, allowed is a hold of at least"
            f" {1 / (rate * _HOLD_SHARE):g} s; raise one of them"
        )
    return min(most, int(rate * hold_seconds * _HOLD_SHARE))


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveTask:
    """A move task of SQS, from the list of tasks.

    Args:
        handle: the handle to cancel the task; None if it has ended.
        moved: how many messages were moved, approximately.
        to_move: how many messages there were at its start, approximately; None is unknown.
    """

    status: str
    handle: str | None
    moved: int
    to_move: int | None
    destination_arn: str | None
    rate: int | None
    started_at_us: int
    failure: str | None

    @property
    def has_ended(self) -> bool:
        """Return whether the task has ended."""
        return self.status in _ENDED


class MoveTasks:
    """The move tasks of a DLQ; SQS runs one at a time.

    Each method raises TransientError if SQS refuses or does not answer.

    Args:
        sqs: a client that does not retry.
    """

    def __init__(self, sqs: Any, source_arn: str) -> None:
        self._sqs, self._source_arn = sqs, source_arn
        self._before_us = 0  # when the latest task before the one started here began

    def start(self, destination_arn: str, *, rate: int | None) -> None:
        """Start a task that moves at most `rate` messages per second; with None SQS chooses the rate."""
        self._before_us = max((task.started_at_us for task in self.list_latest()), default=0)
        limited = {} if rate is None else {"MaxNumberOfMessagesPerSecond": rate}
        with asking():
            self._sqs.start_message_move_task(SourceArn=self._source_arn, DestinationArn=destination_arn, **limited)

    def list_latest(self) -> list[MoveTask]:
        """Return the tasks that SQS still lists, the latest first."""
        with asking():
            answer = self._sqs.list_message_move_tasks(SourceArn=self._source_arn, MaxResults=_TASKS)
        return [_task(result) for result in answer.get("Results", [])]

    def running(self) -> MoveTask | None:
        """Return the running task, which can be cancelled; None if no task runs."""
        return next((task for task in self.list_latest() if task.handle is not None), None)

    def cancel(self, task: MoveTask) -> int:
        """Cancel a task, and return how many messages it has moved, approximately; the moved messages stay moved."""
        with asking():
            answer = self._sqs.cancel_message_move_task(TaskHandle=task.handle)
        return int(answer["ApproximateNumberOfMessagesMoved"])

    def follow(self, *, clock: Clock, every_seconds: float) -> Iterator[MoveTask]:
        """Yield the state of the task that was started here, again and again, until the task has ended."""
        unseen = 0
        while unseen < _UNSEEN_MAX:
            task = next((task for task in self.list_latest() if task.started_at_us > self._before_us), None)
            if task is None:
                unseen += 1
            else:
                yield task
                if task.has_ended:
                    return
            clock.sleep(every_seconds)
        raise TransientError("SQS was told to move messages and tells of no such task; see `dlq status`")


def _task(listed: dict[str, Any]) -> MoveTask:
    started = listed["StartedTimestamp"]
    milliseconds = started.timestamp() * 1_000 if isinstance(started, datetime) else started
    return MoveTask(
        status=listed["Status"],
        handle=listed.get("TaskHandle"),
        moved=int(listed.get("ApproximateNumberOfMessagesMoved", 0)),
        to_move=listed.get("ApproximateNumberOfMessagesToMove"),
        destination_arn=listed.get("DestinationArn"),
        rate=listed.get("MaxNumberOfMessagesPerSecond"),
        started_at_us=round(milliseconds * 1_000),
        failure=listed.get("FailureReason"),
    )
