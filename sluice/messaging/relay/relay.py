"""The relay publishes the committed events of the outbox to the topic, each group in the order of its numbers.

One relay leads a topic; others stand by. The leader reads heads, one per group, and ends its transaction. It publishes
up to ten heads in one call, and several calls at once. It writes the outcomes of all calls that have been answered in
one transaction, under its token. A message is read only after the one before it in its group was sent, and a group with
a message under way is passed over, so at most one message of a group is under way. A message without an answer is sent
again with the same deduplication id. If a paused leader publishes after another relay took over, the topic deduplicates
the message for five minutes, and after that the consumer's inbox does: SNS does not check the token.

A message may have several events of a group, if an operator switched that on. Which they are is committed under the
token before they are sent, so whoever repeats the message sends the same. An event that is sent alone needs no such
commit, if nobody sends it together with others later. A new leader cannot know what its predecessors sent, so it sends
each head of its first walk over the groups alone, unless something is stored of it: at the takeover these were the only
events that could be on their way. In later walks a head that was not tried is its own. After an error that leaves it
unknown what was tried, it begins with a first walk again. A look reads the lease's token together with the heads, so no
relay takes a head of another's leadership.
"""

import logging
import random
import sqlite3
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from datetime import UTC, datetime, timedelta

import psycopg
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from sluice import limits
from sluice.clock import Clock, SystemClock
from sluice.declaration.validation import between, declaration_class, require, satisfying
from sluice.messaging import failpoints
from sluice.messaging.backoff import Backoff
from sluice.messaging.database import engines, failures
from sluice.messaging.errors import LeaseLostError, OutboxError
from sluice.messaging.failpoints import Failpoint
from sluice.messaging.hooks import HookSet
from sluice.messaging.liveness import LivenessWatch
from sluice.messaging.outbox.store import (
    DELETED_MAX,
    HEADS_MAX,
    Head,
    PublishOutcome,
    PublishRefusal,
    PublishRetry,
    PublishSuccess,
    Store,
    events_of_message,
)
from sluice.messaging.relay import publisher
from sluice.messaging.relay.calls import Calls, CallsAtOnce, RelayPublish
from sluice.messaging.relay.hooks import RelayHooks
from sluice.messaging.relay.lease import Lease
from sluice.messaging.relay.publisher import BoundedPublish
from sluice.messaging.waiting import Wait
from sluice.terminal.logger import Logger
from sluice.terminal.printable import printable

_log = Logger()
_TORN = PublishRefusal(
    "not all events that are stored of its message wait behind it, as somebody changed them; `sluice outbox"
    " unquarantine` sends it alone"
)
_LEASE_SECONDS_MAX = 86_400
_KEEP_GROUPS_SECONDS_MAX = 315_360_000  # ten years, the same limit as in the declaration
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INSTANT_US_MAX = 253_402_300_799_999_999  # the last instant that datetime can represent
_NOTIFIED_SECONDS = 5.0  # between two polls while commits end the wait; they find commits without a notification
_STANDBY_SECONDS = 1  # between two attempts of a standby to acquire the lease
_REST_SECONDS_MIN = 0.004
_REST_SHARE = 1 / 16  # rest for this share of the time since a head was due
_FORGET_SECONDS = 30  # between two deletions of old rows
_FORGET_TIMES_MAX = 100  # transactions of one deletion; older rows that are left are deleted by the next


@declaration_class
class RelaySettings:
    """The settings of a relay.

    Args:
        poll_seconds: longest rest between two looks when nothing is due, before jitter; a third of the lease at most.
        lease_seconds: how long a leader that does not renew its lease remains the leader; longer than two calls may
            take.
        keep_sent_seconds: how long a sent message can be sent again; after that it is deleted.
        keep_groups_seconds: how long the counter of an unused group is kept; the largest `inbox_retention_seconds` of
            the topic's consumers, and longer than `keep_sent_seconds`.
        event_bytes_max: size of the largest message, and of a whole call; a larger message is quarantined and not sent.
        bundle_events_max: events of a group that one message may have, where an operator switched this number on.
        backoff: the delay between two tries of a group; its longest delay is at most a day, the longest lease.

    Raises:
        FieldError: a value is out of its bounds, or two values contradict each other.
    """

    poll_seconds: float = between(0.001, 60, "seconds; change --poll", default=0.1)
    lease_seconds: float = satisfying(
        lambda seen: 2 * publisher.CALL_SECONDS_MAX < seen <= _LEASE_SECONDS_MAX,
        f"more than {2 * publisher.CALL_SECONDS_MAX}, up to {_LEASE_SECONDS_MAX} seconds: a call may take"
        f" {publisher.CALL_SECONDS_MAX}, and nobody may take over meanwhile; change --lease",
        default=30,
    )
    keep_sent_seconds: float = 7 * 86_400
    keep_groups_seconds: float = satisfying(
        lambda seen: 0 < seen <= _KEEP_GROUPS_SECONDS_MAX,
        f"more than 0, up to {_KEEP_GROUPS_SECONDS_MAX} seconds; correct inbox_retention_seconds in the declaration",
        default=60 * 86_400,
    )
    event_bytes_max: int = limits.PUBLISH_BYTES_MAX
    bundle_events_max: int = 1
    backoff: Backoff = field(default_factory=lambda: Backoff(base_seconds=0.5, cap_seconds=60, floor_seconds=0.1))

    def __post_init__(self) -> None:
        require(
            self,
            self.poll_seconds <= self.lease_seconds / 3,
            field="poll_seconds",
            allowed=f"up to {self.lease_seconds / 3:g} seconds, a third of the lease, which is renewed between two"
            " looks; change --poll or --lease",
        )
        require(
            self,
            0 <= self.keep_sent_seconds < self.keep_groups_seconds,
            field="keep_sent_seconds",
            allowed=f"0 or more, less than {self.keep_groups_seconds:g} seconds: the consumers' inboxes"
            " (inbox_retention_seconds) forget what is sent again later; change --keep",
        )
        require(
            self,
            self.backoff.cap_seconds <= _LEASE_SECONDS_MAX,
            field="backoff.cap_seconds",
            seen=self.backoff.cap_seconds,
            allowed=f"up to {_LEASE_SECONDS_MAX} seconds",
        )


class Relay:
    """One relay of one topic. It runs on one thread: call `step` repeatedly, or let `run` do it.

    Args:
        calls: the publishing calls of this relay that are under way.
        clock: measures how long the lease still holds.
    """

    def __init__(
        self,
        store: Store,
        lease: Lease,
        publish: RelayPublish,
        *,
        settings: RelaySettings,
        calls: Callable[[RelayPublish], Calls] = CallsAtOnce,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        failpoint: Failpoint = failpoints.do_nothing,
        hooks: Sequence[RelayHooks] = (),
    ) -> None:
        self._store, self._lease, self._publish, self._settings = store, lease, publish, settings
        self._calls = calls(BoundedPublish(publish, settings.event_bytes_max))
        self._clock = SystemClock() if clock is None else clock
        self._rng = random.Random() if rng is None else rng  # noqa: S311 (jitter is not a secret)
        self._failpoint, self._hooks = failpoint, HookSet(hooks)
        self._walked_to = ""  # the next look reads the groups behind this one; "" begins a walk over all groups
        self._has_walk_due_heads = self._is_walk_over = False
        self._is_first_walk = True  # heads may have been sent alone by an earlier leader
        self._walked_token: int | None = None  # the leadership that walk and batches are of
        self._batches: deque[list[Head]] = deque()
        self._taken_groups: set[str] = set()  # groups with a message in a batch or in a call
        self._looked_at, self._looked_at_us = 0.0, 0
        self._renewed_at = 0.0
        self._last_work_at = float("-inf")  # when a look last found due messages, or outcomes were written
        self._forgot_at = float("-inf")
        self._counts: Counter[type[PublishOutcome]] = Counter()
        self._stands_by_for: int | None = None

    @property
    def is_leading(self) -> bool:
        """Return whether this relay leads, as far as it knows."""
        return self._lease.token is not None

    @property
    def is_standing_by(self) -> bool:
        """Return whether another relay leads, as far as this one knows."""
        return self._stands_by_for is not None

    @property
    def rest_seconds(self) -> float:
        """Return how long to rest before the next look, before jitter.

        It grows with the time in which nothing was due.
        """
        idle_seconds = self._clock.monotonic() - self._last_work_at
        return min(self._settings.poll_seconds, max(_REST_SECONDS_MIN, idle_seconds * _REST_SHARE))

    def step(self) -> bool:
        """Do one step: lead, look for due heads, or begin calls and collect answers.

        Return whether there may be more to do.

        Raises:
            OutboxError: the tables are missing.
        """
        try:
            if not self._lead():
                return False
            self._hooks.call(RelayHooks.tick, self._store.lag)
            self._forget_old()
            while self._batches and len(self._calls) < self._calls.most:
                self._begin_call(self._batches.popleft())
            if not self._calls:
                return self._look()
            if self._batches or self._is_walk_over or len(self._calls) == self._calls.most:
                self._collect(self.rest_seconds)
            else:
                self._look()
        except LeaseLostError as lost:
            _log.warning("lease lost", why=str(lost))
            return False
        return True

    def close(self) -> None:
        """Finish the calls under way, release the lease, and log what was done.

        Raises:
            BaseException: a call under way raised it.
        """
        is_given_back, raised = False, None
        try:
            raised = self._finish_calls()
            is_given_back = not self._calls and self._lease.release()
        except (SQLAlchemyError, OutboxError, LeaseLostError) as error:
            _log.warning("the lease was not given back and runs out by itself", error=_error_text(error))
        _log.info(
            "stopped",
            owner=self._lease.owner,
            published=self._counts[PublishSuccess],
            retried=self._counts[PublishRetry],
            refused=self._counts[PublishRefusal],
            lease_given_back=is_given_back,
        )
        self._hooks.call(RelayHooks.after_end)
        if raised is not None:
            raise raised

    def _lead(self) -> bool:
        """Acquire the lease, or renew it in time; return whether this relay leads."""
        if not self.is_leading:
            self._walked_token = None
            self._calls.collect(0)  # drop the answers to calls of an earlier leadership
            if self._calls:
                return False  # wait for the earlier calls, so that new ones come after them
            invoked_at = self._clock.monotonic()
            if self._lease.acquire():
                self._renewed_at = invoked_at
            else:
                self._log_leader()
        elif self._clock.monotonic() - self._renewed_at > self._settings.lease_seconds / 3:
            self._renew()
        if self._lease.token != self._walked_token:
            self._begin_first_walk()
            self._batches.clear()  # batches of an earlier leadership
            self._taken_groups.clear()
            self._stands_by_for, self._walked_token = None, self._lease.token
            _log.info("leading", owner=self._lease.owner, token=self._lease.token)
        return self.is_leading

    def _log_leader(self) -> None:
        """Log that this relay stands by and which relay leads, once for each leader."""
        leader = self._lease.seen
        if leader is not None and leader.token != self._stands_by_for:
            self._stands_by_for = leader.token
            until = (_EPOCH + timedelta(microseconds=min(leader.expires_at_us, _INSTANT_US_MAX))).isoformat()
            _log.info("standing by", owner=self._lease.owner, leader=leader.owner, token=leader.token, until=until)

    def _renew(self) -> None:
        invoked_at = self._clock.monotonic()
        self._lease.renew()
        self._renewed_at = invoked_at

    def _begin_first_walk(self) -> None:
        """Begin a walk over all groups that finds each event that may be on its way."""
        self._walked_to, self._has_walk_due_heads, self._is_first_walk = "", False, True

    def _look(self) -> bool:
        """Read the next heads, and put those that are due into batches.

        Return False if a walk over all groups ends here and none of them had a due head.
        """
        self._looked_at = self._clock.monotonic()
        look = self._store.look(self._walked_to, has_bundles=self._settings.bundle_events_max > 1)
        self._lease.require(look.token)
        heads, self._looked_at_us = look.heads, look.now_us
        pause_us_max = round(self._settings.backoff.cap_seconds * 1_000_000)
        due = [
            head
            for head in heads
            if head.is_due(self._looked_at_us, pause_us_max) and head.group_id not in self._taken_groups
        ]
        allowed = events_of_message(declared=self._settings.bundle_events_max, switched=look.bundle_events_max)
        due = self._bundle(due, 1 if self._is_first_walk else allowed)
        if torn := [(head, _TORN) for head in due if not head.is_whole]:
            self._mark(torn)
            self._report(torn)
            due = [head for head in due if head.is_whole]
        if due:
            self._batches.extend(publisher.batches(due, self._settings.event_bytes_max))
            self._taken_groups.update(head.group_id for head in due)
            self._has_walk_due_heads, self._last_work_at = True, self._looked_at
        if len(heads) == HEADS_MAX:
            self._walked_to = heads[-1].group_id
            return True
        had_due_heads = self._has_walk_due_heads
        self._has_walk_due_heads, self._walked_to, self._is_walk_over = False, "", True
        self._is_first_walk = False
        return had_due_heads

    def _bundle(self, due: Sequence[Head], bundle_events_max: int) -> list[Head]:
        """Return heads with the events that are in their messages, after these were stored.

        A head of which something else was stored meanwhile is left out: the next look reads that. If somebody is about
        to store it, all heads that this look bundles wait for a later one.
        """
        gathered = self._store.gather(
            due,
            token=self._lease.token,
            bundle_events_max=bundle_events_max,
            event_bytes_max=self._settings.event_bytes_max,
        )
        unstored = [head for head in gathered if head.is_new_bundle]
        if not unstored:
            return gathered
        invoked_at, stored_ids = self._clock.monotonic(), set[int]()
        with _giving_way():
            with self._lease.writing() as connection:
                self._failpoint("before_bundle")
                stored_ids = self._store.store_bundles(connection, unstored)
            self._renewed_at = invoked_at
        self._failpoint("after_bundle")
        return [head for head in gathered if not head.is_new_bundle or head.id in stored_ids]

    def _begin_call(self, batch: Sequence[Head]) -> None:
        """Begin to publish a batch. If that fails, the next look may read its messages again."""
        with self._freeing_groups_of_unknown_heads(batch):
            self._publish_batch(batch)

    @contextmanager
    def _freeing_groups_of_unknown_heads(self, heads: Sequence[Head]) -> Iterator[None]:
        """Let the next looks take messages of these heads' groups if an error leaves it unknown what was sent."""
        try:
            yield
        except BaseException:
            self._free_groups(heads)
            self._begin_first_walk()
            raise

    def _publish_batch(self, batch: Sequence[Head]) -> None:
        self._failpoint("after_claim")
        if self._clock.monotonic() - self._renewed_at > self._settings.lease_seconds - publisher.CALL_SECONDS_MAX:
            self._renew()  # the call has to end before the lease does
        taken_at_us = self._looked_at_us + round((self._clock.monotonic() - self._looked_at) * 1_000_000)
        for head in batch:
            for event in head.events:
                self._hooks.call(RelayHooks.before_publish, event, taken_at_us)
        self._failpoint("before_publish")
        self._calls.begin(batch)

    def _free_groups(self, heads: Iterable[Head]) -> None:
        """Let the next look take messages of these heads' groups again."""
        self._taken_groups.difference_update(head.group_id for head in heads)

    def _collect(self, wait_seconds: float) -> None:
        """Write the outcomes of all calls whose answers have arrived, in one transaction."""
        self._is_walk_over = False
        outcomes: list[tuple[Head, PublishOutcome]] = []
        for answer in self._calls.collect(wait_seconds):
            self._failpoint("after_publish")
            if answer.outcomes is None:
                self._batches.extendleft([head] for head in reversed(answer.heads))
            else:
                outcomes += zip(answer.heads, answer.outcomes, strict=True)
        if outcomes:
            heads = [head for head, _ in outcomes]
            with self._freeing_groups_of_unknown_heads(heads):
                self._mark(outcomes)
            self._free_groups(heads)
            self._report([pair for head, outcome in outcomes for pair in _outcomes_of_events(head, outcome)])

    def _mark(self, outcomes: Sequence[tuple[Head, PublishOutcome]]) -> None:
        """Write outcomes and renew the lease, in one transaction.

        The database extends the lease during the write. This relay counts from the time before it, so that it never
        thinks that its lease lasts longer than it does.
        """
        invoked_at = self._clock.monotonic()
        with self._lease.writing() as connection:
            self._failpoint("before_mark")
            self._store.mark(connection, [(head, outcome, self._delay_us(head, outcome)) for head, outcome in outcomes])
        self._renewed_at = self._last_work_at = invoked_at
        self._failpoint("after_mark")

    def _delay_us(self, head: Head, outcome: PublishOutcome) -> int:
        if not isinstance(outcome, PublishRetry):
            return 0
        return round(self._settings.backoff.seconds(head.attempts + 1, self._rng.random()) * 1_000_000)

    def _finish_calls(self) -> BaseException | None:
        """Wait until all calls under way have ended, and write their outcomes while the lease is held.

        Returns:
            The last exception that a call raised; None if no call raised any.

        Raises:
            SQLAlchemyError, LeaseLostError: outcomes cannot be written; nevertheless no call is under way any more.
        """
        ends_at = self._clock.monotonic() + publisher.CALL_SECONDS_MAX
        unwritten: SQLAlchemyError | LeaseLostError | None = None
        raised: BaseException | None = None
        while self._calls and self._clock.monotonic() < ends_at:
            try:
                if unwritten is None:
                    self._collect(_REST_SECONDS_MIN)
                else:
                    self._calls.collect(_REST_SECONDS_MIN)
            except (SQLAlchemyError, LeaseLostError) as error:
                unwritten = error
            except BaseException as error:
                raised = error
        if unwritten is not None:
            raise unwritten
        return raised

    def _report(self, outcomes: Sequence[tuple[Head, PublishOutcome]]) -> None:
        is_debugged = _log.is_enabled_for(logging.DEBUG)
        for head, outcome in outcomes:
            self._counts[type(outcome)] += 1
            self._hooks.call(RelayHooks.after_publish, head, outcome)
            log_fields = {"group": head.group_id, "seq": head.group_seq, "event_id": head.event_id}
            match outcome:
                case PublishSuccess():
                    if is_debugged:
                        _log.debug("published", **log_fields, sns_message_id=outcome.sns_message_id)
                case PublishRetry():
                    _log.warning("not published, will be tried again", **log_fields, error=outcome.error)
                case PublishRefusal():
                    _log.error("quarantined: its group is blocked", **log_fields, error=outcome.error)

    def _forget_old(self) -> None:
        """Delete messages that were sent long ago and groups that are not used any more, every few seconds."""
        if self._clock.monotonic() - self._forgot_at >= _FORGET_SECONDS:
            self._forgot_at = self._clock.monotonic()
            self._forget(self._store.forget_sent, self._settings.keep_sent_seconds)
            self._forget(self._store.forget_groups, self._settings.keep_groups_seconds)

    def _forget(self, forget: Callable[[Connection, float], int], keep_seconds: float) -> None:
        """Delete old rows in small transactions, until none is left or the limit is reached.

        If a producer holds a lock, stop and try again next time.
        """
        with _giving_way():
            for _ in range(_FORGET_TIMES_MAX):
                with self._lease.writing() as connection:
                    if forget(connection, keep_seconds) < DELETED_MAX:
                        break


@contextmanager
def _giving_way() -> Iterator[None]:
    """End a transaction that waits too long for a lock, and go on without it."""
    try:
        yield
    except DBAPIError as error:
        if not failures.is_locked(error):
            raise


def _outcomes_of_events(head: Head, outcome: PublishOutcome) -> list[tuple[Head, PublishOutcome]]:
    """Return the outcome of each event of a message: a refusal quarantines one at most, the others go again."""
    again = PublishRetry(outcome.error) if isinstance(outcome, PublishRefusal) else outcome
    first = again if head.is_new_bundle else outcome
    return [(head, first), *((event, again) for event in head.followers)]


def run(
    relay: Relay,
    wait: Wait,
    settings: RelaySettings,
    *,
    rng: random.Random,
    watch: LivenessWatch | None = None,
    is_notified: Callable[[], bool] = bool,
) -> None:
    """Run a relay until it is told to stop. At the end release the lease, whatever the reason for the end is.

    If the database does not answer, or is read-only, the relay tries again after a while: nothing is lost, because the
    messages are in the outbox.

    `is_notified` says whether the database notifies `wait` of commits, so that each ends the wait. While it does, the
    relay polls every five seconds, or every `poll_seconds` if that is longer, and finds only messages whose
    notification was missed.

    Raises:
        OutboxError: the database refuses the credentials or a statement of the relay: tables or rights are missing.
    """
    try:
        _run(relay, wait, settings, rng, watch, is_notified=is_notified)
    finally:
        relay.close()


def _run(
    relay: Relay,
    wait: Wait,
    settings: RelaySettings,
    rng: random.Random,
    watch: LivenessWatch | None,
    *,
    is_notified: Callable[[], bool],
) -> None:
    failed_count = 0
    while not wait.is_stopped():
        try:
            is_busy = relay.step()
            failed_count = 0
        except (SQLAlchemyError, psycopg.Error, sqlite3.Error) as error:
            _raise_unless_passing(error)
            failed_count += 1
            is_busy = False
            only_reads = failures.is_only_read(error)
            event = (
                "the database only reads: new connections are tried" if only_reads else "the database does not answer"
            )
            _log.error(event, error=_error_text(error), failures=failed_count)
        pause_seconds = 0.0
        if not is_busy:
            seconds = max(settings.poll_seconds, _NOTIFIED_SECONDS) if is_notified() else relay.rest_seconds
            seconds = seconds if relay.is_leading else _STANDBY_SECONDS
            if failed_count:
                seconds = settings.backoff.seconds(failed_count, rng.random())
            pause_seconds = seconds * (0.75 + rng.random() / 2)
        if watch is not None:
            watch.look(pause_seconds)
        if not is_busy:
            wait.wait(pause_seconds)


def _raise_unless_passing(error: Exception) -> None:
    """Return if the error may pass by itself, and raise if only another configuration mends it.

    Raises:
        OutboxError: the database refuses the credentials or a statement of the relay.
    """
    if (reason := engines.refusal(getattr(error, "orig", error))) is not None:
        raise OutboxError(f"{engines.REFUSED.format(reason=reason)}; start the relay again") from error
    if not failures.may_pass(error):
        raise OutboxError(
            f"the database refuses what the relay does ({_error_text(error)}); compare its tables and rights with"
            " `sluice outbox check`, and start the relay again"
        ) from error


def _error_text(error: Exception) -> str:
    """Return the text of the driver's error, without SQLAlchemy's text of the statement."""
    return printable(getattr(error, "orig", None) or error)
