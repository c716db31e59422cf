"""Estimate a profile before it runs: its load against AWS's quotas, its time and its price.

Pure, and an estimate: its assumptions are those of `ASSUMPTIONS`, and counts are expected values.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from sluice import limits
from sluice.cost import prices
from sluice.declaration import Environment
from spark_load.profiles.load_estimate import CALL_SECONDS, EstimateTarget, LoadEstimate
from spark_load.profiles.profile import Profile
from spark_load.profiles.trace import OVERHEAD_BYTES

_SESSION_SECONDS = 20

ASSUMPTIONS = (
    f"a call takes {CALL_SECONDS * 1000:g} ms, and what comes due meanwhile shares the next one",
    "a receive brings what has come since the last one, at most ten; it waits one second when nothing has",
    f"Spark takes {_SESSION_SECONDS} s to start; judging is not counted",
    f"list prices of {prices.PRICE_REGION}, {prices.PRICE_DATE}, free tiers and Spark's own machines not counted",
)

_NUMBERS = (
    *("target", "queue_count", "seconds", "publish_seconds", "drain_seconds", "repeat_count", "published_bytes"),
    *("delivered_count", "calls", "messages_per_publish_call", "messages_per_receive_call", "hottest_share"),
    *("hottest_per_second", "cost", "refusals", "warnings", "cost_usd"),
)
"""Properties of an `Estimate` that its JSON has under the same names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """The use that a run makes of a limit: of a quota of AWS at the peak, of LocalStack's measured speed on average.

    `instead` says what to do if that is too much.
    """

    name: str
    used: float
    allowed: float
    unit: str
    instead: str

    @property
    def share(self) -> float:
        """Return the used share of what is allowed."""
        return self.used / self.allowed


@dataclass(frozen=True)
class Estimate(LoadEstimate):
    """The estimate of a run in a region. AWS's quotas depend on the region; LocalStack has no quotas, but a speed."""

    region: str = "us-east-1"

    @classmethod
    def of(cls, profile: Profile, environment: Environment, target: EstimateTarget) -> "Estimate":
        """Return the estimate of a run of the profile in a declared environment."""
        return cls(
            profile,
            queue_count=len(environment.consumers_of(environment.topics[0])),
            target=target,
            max_receive_count=max(consumer.max_attempts for consumer in environment.consumers),
            event_bytes_max=environment.event_bytes_max,
            region=environment.region,
        )

    @property
    def seconds(self) -> float:
        """Return the time of the whole run, from Spark's start to the end of the drain."""
        return _SESSION_SECONDS + self.publish_seconds + self.drain_seconds

    @property
    def published_bytes(self) -> int:
        """Return the size of all published bodies, repeats and end markers included."""
        return self.published_count * self.body_bytes

    @property
    def delivered_count(self) -> int:
        """Return the number of receives of messages, in all queues together."""
        return self.received_count * self.copies

    @property
    def hottest_per_second(self) -> float:
        """Return the messages of the hottest group at the peak."""
        return self.hottest_share * self.profile.peak_per_second

    @property
    def cost_usd(self) -> float:
        """Return the price of the run on AWS, in US dollars."""
        return sum(self.cost.values())

    def as_json(self) -> dict[str, Any]:
        """Return the whole estimate as JSON."""
        profile = self.profile
        return {
            **{name: getattr(self, name) for name in _NUMBERS},
            "warm_up_count": profile.warm_up_count,
            "message_count": profile.measured_count,
            "end_marker_count": profile.group_count,
            "peak_per_second": profile.peak_per_second,
            "uses": [asdict(use) for use in self.uses],
            "price_date": prices.PRICE_DATE,
            "price_region": prices.PRICE_REGION,
            "assumptions": list(ASSUMPTIONS),
        }

    @cached_property
    def uses(self) -> tuple[Use, ...]:
        """Return how much of each limit is used."""
        if self.target == "localstack":
            return (self._localstack_use(),)
        receive = Use(
            name=f"receive, a queue in {self.region}",
            used=self.profile.peak_per_second * self.queue_share / (1 if self.fails else limits.RECEIVE_MESSAGES_MAX),
            allowed=self._queue_calls,
            unit="calls/s",
            instead="lower the rate, or choose a region with more",
        )
        return *(self._topic_uses() if self.profile.has_topic else self._send_uses()), receive

    @property
    def _published_per_second(self) -> float:
        """Return the highest rate of publishes."""
        return self.profile.peak_per_second * (1 + self.profile.duplicate_share + self.profile.late_duplicate_share)

    @property
    def _queue_calls(self) -> int:
        return limits.QUEUE_CALLS_PER_SECOND.get(self.region, limits.QUEUE_CALLS_PER_SECOND_ELSEWHERE)

    def _localstack_use(self) -> Use:
        how = "topic to" if self.profile.has_topic else "sent to"
        return Use(
            name=f"LocalStack, {how} {self.queue_count} queues",
            used=self.profile.messages_per_second,
            allowed=self.offerable_per_second,
            unit="messages/s",
            instead="lower the rate, or run it on AWS",
        )

    def _topic_uses(self) -> Iterator[Use]:
        end_markers_per_second = min(self.profile.group_count, self.profile.end_markers_per_second)
        yield Use(
            name=f"publish, SNS FIFO in {self.region}",
            used=max(self._published_per_second, end_markers_per_second),
            allowed=limits.TOPIC_MESSAGES_PER_SECOND.get(self.region, limits.TOPIC_MESSAGES_PER_SECOND_ELSEWHERE),
            unit="messages/s",
            instead="lower the rate, or choose destination 'queue'",
        )
        yield Use(
            name="publish, hottest group",
            used=self._published_per_second * self.hottest_share,
            allowed=limits.TOPIC_GROUP_MESSAGES_PER_SECOND,
            unit="messages/s",
            instead="lower group_skew or the rate, or add groups",
        )

    def _send_uses(self) -> Iterator[Use]:
        profile = self.profile
        full = min(
            limits.PUBLISH_BATCH_ENTRIES_MAX,
            self.messages_per_publish_call * self._published_per_second / profile.messages_per_second,
        )
        yield Use(
            name=f"send, a queue in {self.region}",
            used=self._published_per_second * self.queue_share / full,
            allowed=self._queue_calls,
            unit="calls/s",
            instead="lower the rate, add publish_linger_seconds to fill calls, or choose a region with more",
        )
        yield Use(
            name="send, hottest group",
            used=self._published_per_second * self.hottest_share,
            allowed=limits.GROUP_CALLS_PER_SECOND,
            unit="calls/s",
            instead="lower group_skew or the rate, or add groups",
        )

    @property
    def refusals(self) -> tuple[str, ...]:
        """Return the reasons why the profile cannot work.

        LocalStack has no quotas: too high a rate only takes longer.
        """
        if self.profile.largest_bytes > self.event_bytes_max:
            return (
                f"payload_bytes is {self.profile.payload_bytes}, allowed is at most"
                f" {self.event_bytes_max - OVERHEAD_BYTES}: the environment's event_bytes_max is"
                f" {self.event_bytes_max}, {OVERHEAD_BYTES} of them for what is around it; lower it, or raise"
                " event_bytes_max",
            )
        if self.target == "localstack":
            return ()
        return tuple(
            f"{use.name}: {use.used:,.0f} {use.unit} at the peak, allowed is {use.allowed:,.0f}; {use.instead}"
            for use in self.uses
            if use.share > 1
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return the reasons why the run will differ from the profile."""
        return tuple(self._warnings())

    def _warnings(self) -> Iterator[str]:
        profile = self.profile
        if self.target == "localstack" and (use := self._localstack_use()).share > 1:
            yield (
                f"{use.name}: {use.used:,.0f} {use.unit} are offered, it can do about {use.allowed:,.0f}:"
                f" a backlog builds; {use.instead}"
            )
        able_per_second = 1 / CALL_SECONDS
        offered_per_second = self._published_per_second * self.hottest_share
        if offered_per_second > able_per_second:
            yield (
                f"the hottest group has {self.hottest_share:.1%} of the messages, {offered_per_second:,.0f}/s at the"
                f" peak, and one after the other about {able_per_second:,.0f}/s can be published: they will be late;"
                " lower group_skew or the rate"
            )
        arriving_per_second = profile.messages_per_second * self.queue_share
        greatest, left = self.backlogs
        grows = profile.consume_after_seconds or profile.minute_seconds  # then the backlog is the purpose of the run
        if self.handled_per_second < arriving_per_second and not grows:
            yield (
                f"the consumers of a queue ({profile.consumers_per_queue}) can work off about"
                f" {self.handled_per_second:,.0f} messages/s, and {arriving_per_second:,.0f}/s come:"
                f" {left:,.0f} are left to drain; add consumers_per_queue"
            )
        if greatest > limits.FIFO_WINDOW_MESSAGES:
            yield (
                f"the backlog of a queue grows to about {greatest:,.0f} messages, and SQS looks for groups to serve in"
                f" the first {limits.FIFO_WINDOW_MESSAGES:,}"
            )
        if profile.drain_seconds_max is not None and self.drain_seconds > profile.drain_seconds_max:
            yield (
                f"draining takes about {self.drain_seconds:,.0f} s, and drain_seconds_max is"
                f" {profile.drain_seconds_max:g}: the threshold will be crossed"
            )
