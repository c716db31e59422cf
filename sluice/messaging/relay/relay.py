"""The relay: takes what was committed to the outbox to the topic, each group in the order of its numbers.

One relay leads a topic; others stand by. The leader reads heads, one per group, lets go of the database, publishes up
to ten of them in one call, and writes down what became of each under its token. A message is taken only when the one in
front of it is sent, so there is never more than one of a group on its way. What has no answer is sent again with the
same deduplication id. Should a paused leader publish after another took over, the topic deduplicates it for five
minutes, and after that the consumer's inbox does: SNS knows no token.
"""

import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol

import structlog
from sqlalchemy import Connection
from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError

from sluice import limits
from sluice.clock import Clock, SystemClock
from sluice.errors import ConfigError
from sluice.messaging import failpoints
from sluice.messaging.backoff import Backoff
from sluice.messaging.database import engines
from sluice.messaging.errors import LeaseLost, OutboxError
from sluice.messaging.failpoints import Failpoint
from sluice.messaging.hooks import HookSet
from sluice.messaging.liveness import Watch
from sluice.messaging.outbox.store import DELETED_MAX, HEADS_MAX, Head, PublishOutcome, Refused, Retry, Sent, Store
from sluice.messaging.relay import publisher
from sluice.messaging.relay.hooks import RelayHooks
from sluice.messaging.relay.lease import Lease
from sluice.messaging.relay.publisher import BatchRefused
from sluice.messaging.waiting import Wait
from sluice.terminal.printable import printable

_log = structlog.get_logger()
_POLL_SECONDS_MIN, _POLL_SECONDS_MAX = 0.001, 60
_LEASE_SECONDS_MAX = 86_400
_KEEP_GROUPS_SECONDS_MAX = 315_360_000  # ten years, as the declaration has it
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INSTANT_US_MAX = 253_402_300_799_999_999  # the last that datetime knows
_STANDBY_SECONDS = 1  # standby poll interval
_FORGET_SECONDS = 30
_FORGET_TIMES_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaySettings:
    """How a relay goes about it.

    Args:
        poll_seconds: rest between two looks when nothing is due, before jitter; a third of the lease at most.
        lease_seconds: how long a leader that says nothing remains leader; longer than two calls may take.
        keep_sent_seconds: how long what was sent can be sent again; then it is deleted.
        keep_groups_seconds: how long a group that is not used goes on counting; the largest `inbox_retention_seconds`
            of the topic's consumers, and longer than `keep_sent_seconds`.
        event_bytes_max: size of the largest message, and of a whole call; what is larger is quarantined and not sent.
        backoff: between two tries of a group; its longest delay fits into a lease's bound, a day.

    Raises:
        ConfigError: a value, or their relation, cannot be right.
    """

    poll_seconds: float = 0.1
    lease_seconds: float = 30
    keep_sent_seconds: float = 7 * 86_400
    keep_groups_seconds: float = 60 * 86_400
    event_bytes_max: int = limits.PUBLISH_BYTES_MAX
    backoff: Backoff = field(default_factory=lambda: Backoff(base_seconds=0.5, cap_seconds=60, floor_seconds=0.1))

    def __post_init__(self) -> None:
        # `not a <= value <= b` refuses what is not a number, too.
        if not _POLL_SECONDS_MIN <= self.poll_seconds <= _POLL_SECONDS_MAX:
            raise ConfigError(
                f"poll is {self.poll_seconds:g} s, allowed is {_POLL_SECONDS_MIN} to {_POLL_SECONDS_MAX}; change --poll"
            )
        if not 2 * publisher.CALL_SECONDS_MAX < self.lease_seconds <= _LEASE_SECONDS_MAX:
            raise ConfigError(
                f"lease is {self.lease_seconds:g} s, allowed is more than {2 * publisher.CALL_SECONDS_MAX}, up to"
                f" {_LEASE_SECONDS_MAX}: a call may take {publisher.CALL_SECONDS_MAX}, and nobody may take over"
                " meanwhile; change --lease"
            )
        if self.poll_seconds > self.lease_seconds / 3:
            raise ConfigError(
                f"poll is {self.poll_seconds:g} s, allowed is up to {self.lease_seconds / 3:g}, a third of the lease,"
                " which is renewed between two looks; change --poll or --lease"
            )
        if not 0 < self.keep_groups_seconds <= _KEEP_GROUPS_SECONDS_MAX:
            raise ConfigError(
                f"inbox_retention_seconds is {self.keep_groups_seconds:g}, allowed is more than 0, up to"
                f" {_KEEP_GROUPS_SECONDS_MAX}; correct the declaration"
            )
        if not 0 <= self.keep_sent_seconds < self.keep_groups_seconds:
            raise ConfigError(
                f"keep is {self.keep_sent_seconds:g} s, allowed is 0 or more, less than {self.keep_groups_seconds:g}:"
                " the consumers' inboxes (inbox_retention_seconds) forget what is sent again later; change --keep"
            )
        if not self.backoff.cap_seconds <= _LEASE_SECONDS_MAX:
            raise ConfigError(f"backoff is up to {self.backoff.cap_seconds:g} s, allowed is up to {_LEASE_SECONDS_MAX}")


class Publish(Protocol):
    """Publishes a batch."""

    def publish(self, heads: Sequence[Head]) -> list[PublishOutcome]:
        """Return each head's outcome, in the order given; raise BatchRefused where each has to be tried alone."""


class Relay:
    """One relay of one topic. Runs on one thread; `step` by `step`, or until stopped with `run`.

    Args:
        clock: measures how long the lease still holds.
    """

    def __init__(
        self,
        store: Store,
        lease: Lease,
        publish: Publish,
        *,
        settings: RelaySettings,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        failpoint: Failpoint = failpoints.unarmed,
        hooks: Sequence[RelayHooks] = (),
    ) -> None:
        self._store, self._lease, self._publish, self._settings = store, lease, publish, settings
        self._clock = SystemClock() if clock is None else clock
        self._rng = random.Random() if rng is None else rng  # noqa: S311 (jitter is not a secret)
        self._failpoint, self._hooks = failpoint, HookSet(hooks)
        self._after = ""
        self._was_due = False
        self._batches: deque[list[Head]] = deque()
        self._looked_at, self._looked_at_us = 0.0, 0
        self._renewed_at = 0.0
        self._forgot_at = float("-inf")
        self._counts: Counter[type[PublishOutcome]] = Counter()
        self._stands_by_for: int | None = None

    @property
    def is_leading(self) -> bool:
        """Return whether it leads, as far as it knows."""
        return self._lease.token is not None

    @property
    def is_standing_by(self) -> bool:
        """Return whether another leads, as far as it knows."""
        return self._stands_by_for is not None

    def step(self) -> bool:
        """Lead, look for heads that are due, or publish one batch of them. Return whether there may be more to do.

        Raises:
            OutboxError: the tables are missing.
        """
        try:
            if not self._lead():
                return False
            self._hooks.call(RelayHooks.tick, self._store.lag)
            self._forget_old()
            if not self._batches:
                return self._look()
            self._send(self._batches.popleft())
        except LeaseLost as lost:
            _log.warning("lease lost", why=str(lost))
            return False
        return True

    def close(self) -> None:
        """Let another lead at once, and say what was done."""
        is_given_back = False
        try:
            is_given_back = self._lease.release()
        except (SQLAlchemyError, OutboxError) as error:
            _log.warning("the lease was not given back and runs out by itself", error=_log_fields(error))
        _log.info(
            "stopped",
            owner=self._lease.owner,
            published=self._counts[Sent],
            retried=self._counts[Retry],
            refused=self._counts[Refused],
            lease_given_back=is_given_back,
        )
        self._hooks.call(RelayHooks.ended)

    def _lead(self) -> bool:
        if not self.is_leading:
            invoked_us = self._clock.monotonic()
            if self._lease.acquire():
                self._renewed_at, self._after, self._was_due = invoked_us, "", False
                self._batches.clear()  # what it took when it led before
                self._stands_by_for = None
                _log.info("leading", owner=self._lease.owner, token=self._lease.token)
            else:
                self._stand_by()
        elif self._clock.monotonic() - self._renewed_at > self._settings.lease_seconds / 3:
            self._renew()
        return self.is_leading

    def _stand_by(self) -> None:
        """Say who leads, once for each that does."""
        leader = self._lease.seen
        if leader is not None and leader.token != self._stands_by_for:
            self._stands_by_for = leader.token
            until = (_EPOCH + timedelta(microseconds=min(leader.expires_at_us, _INSTANT_US_MAX))).isoformat()
            _log.info("standing by", owner=self._lease.owner, leader=leader.owner, token=leader.token, until=until)

    def _renew(self) -> None:
        invoked_us = self._clock.monotonic()
        self._lease.renew()
        self._renewed_at = invoked_us

    def _look(self) -> bool:
        """Take the heads of the next groups that are due; return False when a whole walk over all found none."""
        self._looked_at = self._clock.monotonic()
        heads, self._looked_at_us = self._store.heads(self._after)
        due = [head for head in heads if head.is_due(self._looked_at_us)]
        self._batches.extend(publisher.batches(due, self._settings.event_bytes_max))
        self._was_due = self._was_due or bool(due)
        if len(heads) == HEADS_MAX:
            self._after = heads[-1].group_id
            return True
        was_due, self._was_due, self._after = self._was_due, False, ""
        return was_due

    def _send(self, batch: Sequence[Head]) -> None:
        self._failpoint("after_claim")
        if self._clock.monotonic() - self._renewed_at > self._settings.lease_seconds - publisher.CALL_SECONDS_MAX:
            self._renew()  # the call has to end while nobody else may lead
        taken_at_us = self._looked_at_us + round((self._clock.monotonic() - self._looked_at) * 1_000_000)
        for head in batch:
            self._hooks.call(RelayHooks.before_publish, head, taken_at_us)
        self._failpoint("before_publish")
        try:
            refused = publisher.too_large(batch, self._settings.event_bytes_max)
            outcomes = self._publish.publish(batch) if refused is None else refused
        except BatchRefused:
            self._batches.extendleft([head] for head in reversed(batch))
            return
        self._failpoint("after_publish")
        invoked_us = self._clock.monotonic()
        with self._lease.writing() as connection:
            self._failpoint("before_mark")
            delays_us = [self._delay_us(head) for head in batch]
            self._store.mark(connection, list(zip(batch, outcomes, delays_us, strict=True)))
        self._renewed_at = invoked_us
        self._failpoint("after_mark")
        self._report(batch, outcomes)

    def _delay_us(self, head: Head) -> int:
        return round(self._settings.backoff.seconds(head.attempts + 1, self._rng.random()) * 1_000_000)

    def _report(self, batch: Sequence[Head], outcomes: Sequence[PublishOutcome]) -> None:
        for head, outcome in zip(batch, outcomes, strict=True):
            self._counts[type(outcome)] += 1
            self._hooks.call(RelayHooks.after_publish, head, outcome)
            log_fields = {"group": head.group_id, "seq": head.group_seq, "event_id": head.event_id}
            match outcome:
                case Sent():
                    _log.debug("published", **log_fields, sns_message_id=outcome.sns_message_id)
                case Retry():
                    _log.warning("not published, will be tried again", **log_fields, error=outcome.error)
                case Refused():
                    _log.error("quarantined: its group is blocked", **log_fields, error=outcome.error)

    def _forget_old(self) -> None:
        """Delete what was sent long ago, and groups nobody uses, each time some seconds have passed."""
        if self._clock.monotonic() - self._forgot_at >= _FORGET_SECONDS:
            self._forgot_at = self._clock.monotonic()
            self._forget(self._store.forget_sent, self._settings.keep_sent_seconds)
            self._forget(self._store.forget_groups, self._settings.keep_groups_seconds)

    def _forget(self, forget: Callable[[Connection, float], int], keep_seconds: float) -> None:
        """Delete what is old, until there is nothing more, or a producer is in the way: then at the next time."""
        try:
            for _ in range(_FORGET_TIMES_MAX):
                with self._lease.writing() as connection:
                    if forget(connection, keep_seconds) < DELETED_MAX:
                        break
        except OperationalError as error:
            if not engines.is_locked(error):
                raise


def run(relay: Relay, wait: Wait, settings: RelaySettings, *, rng: random.Random, watch: Watch | None = None) -> None:
    """Run a relay until it is told to stop; then let another lead, whatever it ended for.

    A database that does not answer is tried again after a while: nothing is lost meanwhile, it is the outbox.

    Raises:
        OutboxError: it refuses the credentials.
    """
    try:
        _run(relay, wait, settings, rng, watch)
    finally:
        relay.close()


def _run(relay: Relay, wait: Wait, settings: RelaySettings, rng: random.Random, watch: Watch | None) -> None:
    failures = 0
    while not wait.is_stopped():
        try:
            is_busy = relay.step()
            failures = 0
        except (OperationalError, InterfaceError) as error:
            if (reason := engines.refusal(error.orig)) is not None:
                raise OutboxError(f"{engines.REFUSED.format(reason=reason)}; start the relay again") from error
            failures += 1
            is_busy = False
            _log.error("the database does not answer", error=_log_fields(error))
        pause_seconds = 0.0
        if not is_busy:
            seconds = settings.poll_seconds if relay.is_leading else _STANDBY_SECONDS
            if failures:
                seconds = settings.backoff.seconds(failures, rng.random())
            pause_seconds = seconds * (0.75 + rng.random() / 2)
        if watch is not None:
            watch.look(pause_seconds)
        if not is_busy:
            wait.wait(pause_seconds)


def _log_fields(error: Exception) -> str:
    return printable(getattr(error, "orig", None) or error)
