"""Settings of a worker: its lanes and its end, and how each message is worked on."""

from dataclasses import field
from math import inf

from sluice import limits
from sluice.declaration import HANDLER_TIMEOUTS_MAX, RETRY_SECONDS_MAX, Commit, Consumer, Lambda, Topic
from sluice.declaration.bundles import check_bundle_events
from sluice.declaration.validation import declaration_class, require, satisfying
from sluice.messaging.backoff import Backoff

_WAIT_SECONDS_MIN = 1  # shorter polls cost more requests than they save time
_LAST_SECONDS = 2.0  # rest of the stop timeout for releasing unfinished messages and ending


def _is_duration(seconds: float) -> bool:
    return 0 <= seconds < inf


@declaration_class
class ProcessorSettings:
    """The settings of the work on messages.

    Args:
        max_attempts: receives before the queue moves a message to the DLQ: its maxReceiveCount.
        hold_seconds_max: a handler that takes longer has failed.
        backoff: the delay between two tries of a message.
        is_ordered: False for a standard queue, where several messages of one group may be worked on at once.
        database_connections: how many lanes have a connection at once; None means all lanes.
        unfinished_max: a message is dead after so many attempts in a row that came to no end. None where they count
            as attempts.
        needed_seconds: an event of a bundle behind the first one of a receive is begun only with so much time left.
        has_bundles: whether the queue's maxReceiveCount is for bundles, and not `max_attempts`: then the inbox counts
            the attempts at each event, and the worker sends a dead one to the DLQ. Of a bundle it always does.
        commits_bundles: whether the events of a bundle have one transaction at its first receive.
    """

    consumer: str
    max_attempts: int
    timeout_seconds: int
    hold_seconds_max: float
    backoff: Backoff = field(
        default_factory=lambda: Backoff(base_seconds=4, cap_seconds=RETRY_SECONDS_MAX, floor_seconds=1)
    )
    database_backoff: Backoff = field(
        default_factory=lambda: Backoff(base_seconds=0.2, cap_seconds=5, floor_seconds=0.1)
    )
    is_ordered: bool = True
    database_connections: int | None = None
    unfinished_max: int | None = None
    needed_seconds: float = 0.0
    has_bundles: bool = False
    commits_bundles: bool = False

    @classmethod
    def of_function(cls, consumer: Consumer, function: Lambda, *, bundle_events_max: int = 1) -> "ProcessorSettings":
        """Return what a consumer declares whose handlers a Lambda function runs.

        Each of the events of a batch may be in front of all others, and make as many attempts as it has, with
        `unfinished_max` between two: that is half of the receives after which SQS moves the last of them to the DLQ.
        The other half is for receives without an attempt.

        Raises:
            FieldError: its function cannot work on so many events within the receives and the time of one message.
        """
        if bundle_events_max > 1:
            check_bundle_events(Topic(bundle_events_max=bundle_events_max), consumer)
        receives_each = function.receives_max // (2 * function.batch_size * bundle_events_max)
        return cls(
            consumer=consumer.name,
            max_attempts=consumer.max_attempts,
            timeout_seconds=consumer.visibility_timeout_seconds,
            hold_seconds_max=float(function.timeout_seconds),
            unfinished_max=receives_each // consumer.max_attempts - 1,
            needed_seconds=consumer.processing_seconds,
            has_bundles=bundle_events_max > 1,
            commits_bundles=consumer.commit is Commit.BUNDLE,
        )

    @classmethod
    def of_consumer(
        cls, consumer: Consumer, *, is_ordered: bool = True, bundle_events_max: int = 1
    ) -> "ProcessorSettings":
        """Return the settings that a consumer declares, where its topic allows so many events in a message.

        Raises:
            FieldError: a Lambda function runs its handlers, and a worker would count receives as attempts.
        """
        require(
            consumer,
            consumer.runtime is None,
            field="runtime",
            allowed="None for a worker: the function runs the handlers, or `lambda_harness` in a test",
        )
        return cls(
            consumer=consumer.name,
            max_attempts=consumer.max_attempts,
            timeout_seconds=consumer.visibility_timeout_seconds,
            hold_seconds_max=float(HANDLER_TIMEOUTS_MAX * consumer.visibility_timeout_seconds),
            is_ordered=is_ordered,
            database_connections=consumer.database_connections,
            has_bundles=bundle_events_max > 1,
            commits_bundles=consumer.commit is Commit.BUNDLE,
        )


@declaration_class
class WorkerSettings:
    """The settings of a worker.

    Args:
        drain_seconds: the time that lanes have to finish after SIGTERM.
        keep_inbox_seconds: how long the inbox keeps a group without messages.
        backoff: the delay between two polls of a queue that does not answer.
        idle_seconds: end the worker after this time without a message; None means never.

    Raises:
        FieldError: a value is out of its bounds, or two values contradict each other.
    """

    lanes: int = satisfying(lambda seen: seen >= 1, "1 or more; change --lanes")
    wait_seconds: int
    drain_seconds: float = satisfying(_is_duration, "0 or more seconds, and finite")
    keep_inbox_seconds: float = satisfying(_is_duration, "0 or more seconds, and finite")
    backoff: Backoff = field(default_factory=lambda: Backoff(base_seconds=0.5, cap_seconds=20, floor_seconds=0.1))
    idle_seconds: float | None = satisfying(
        _is_duration, "0 or more seconds, or None; change --until-idle", default=None
    )

    def __post_init__(self) -> None:
        longest = max(_WAIT_SECONDS_MIN, min(limits.WAIT_SECONDS_MAX, self.drain_seconds))
        require(
            self,
            0 <= self.wait_seconds <= longest,
            field="wait_seconds",
            allowed=f"0 to {longest:g}: what a poll brings after SIGTERM has to be worked on in time",
        )

    @classmethod
    def of_consumer(
        cls,
        consumer: Consumer,
        *,
        lanes: int | None = None,
        idle_seconds: float | None = None,
    ) -> "WorkerSettings":
        """Return the settings that a consumer declares, with another number of lanes if it is given."""
        drain_seconds = max(0.0, consumer.stop_timeout_seconds - _LAST_SECONDS)
        # A lease counts from the beginning of the poll: at most a third of the timeout may have passed when it returns.
        longest_seconds = min(limits.WAIT_SECONDS_MAX, drain_seconds / 2, consumer.visibility_timeout_seconds / 3)
        wait_seconds = max(_WAIT_SECONDS_MIN, int(longest_seconds))
        return cls(
            lanes=consumer.lanes if lanes is None else lanes,
            wait_seconds=wait_seconds if idle_seconds is None else _WAIT_SECONDS_MIN,
            drain_seconds=drain_seconds,
            keep_inbox_seconds=consumer.inbox_retention_seconds,
            idle_seconds=idle_seconds,
        )
