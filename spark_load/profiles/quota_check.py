"""Quota check: how much of each limit a plan uses, why it is refused, and what to expect."""

from collections.abc import Iterator
from dataclasses import dataclass

from sluice import limits
from spark_load.profiles.load_estimate import CALL_SECONDS, LoadEstimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """How much of a limit is used.

    Args:
        name: what is limited.
        used: at the peak; of LocalStack's speed, on average.
        allowed: by AWS, or what LocalStack was measured to do.
        unit: of both.
        instead: what to do where it is not enough.
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


@dataclass(frozen=True, slots=True)
class QuotaCheck:
    """What a volume meets in a region."""

    load_estimate: LoadEstimate
    region: str

    @property
    def _peak(self) -> float:
        """Return the highest rate of publishes."""
        profile = self.load_estimate.profile
        return profile.peak_per_second * (1 + profile.duplicate_share + profile.late_duplicate_share)

    @property
    def _end_markers(self) -> float:
        """Return the rate of end markers, where it is kept up for a second."""
        return min(self.load_estimate.profile.group_count, self.load_estimate.profile.end_markers_per_second)

    def uses(self) -> Iterator[Use]:
        """Yield every limit there is."""
        if self.load_estimate.target == "localstack":
            yield self._localstack()
            return
        yield from self._topic() if self.load_estimate.profile.destination == "topic" else self._sends()
        in_answer = 1 if self.load_estimate.fails else limits.RECEIVE_MESSAGES_MAX
        yield Use(
            name=f"receive, a queue in {self.region}",
            used=self.load_estimate.profile.peak_per_second * self.load_estimate.queue_share / in_answer,
            allowed=self._queue_calls,
            unit="calls/s",
            instead="lower the rate, or choose a region with more",
        )

    @property
    def _queue_calls(self) -> int:
        return limits.QUEUE_CALLS_PER_SECOND.get(self.region, limits.QUEUE_CALLS_PER_SECOND_ELSEWHERE)

    def _localstack(self) -> Use:
        how = "topic to" if self.load_estimate.profile.destination == "topic" else "sent to"
        return Use(
            name=f"LocalStack, {how} {self.load_estimate.queue_count} queues",
            used=self.load_estimate.profile.messages_per_second,
            allowed=self.load_estimate.offerable_per_second,
            unit="messages/s",
            instead="lower the rate, or run it on AWS",
        )

    def _topic(self) -> Iterator[Use]:
        yield Use(
            name=f"publish, SNS FIFO in {self.region}",
            used=max(self._peak, self._end_markers),
            allowed=limits.TOPIC_MESSAGES_PER_SECOND.get(self.region, limits.TOPIC_MESSAGES_PER_SECOND_ELSEWHERE),
            unit="messages/s",
            instead="lower the rate, or choose destination 'queue'",
        )
        yield Use(
            name="publish, hottest group",
            used=self._peak * self.load_estimate.hottest_share,
            allowed=limits.TOPIC_GROUP_MESSAGES_PER_SECOND,
            unit="messages/s",
            instead="lower group_skew or the rate, or add groups",
        )

    def _sends(self) -> Iterator[Use]:
        profile = self.load_estimate.profile
        full = min(
            limits.PUBLISH_BATCH_ENTRIES_MAX, self.load_estimate.publish_fill * self._peak / profile.messages_per_second
        )
        yield Use(
            name=f"send, a queue in {self.region}",
            used=self._peak * self.load_estimate.queue_share / full,
            allowed=self._queue_calls,
            unit="calls/s",
            instead="lower the rate, add publish_linger_seconds to fill calls, or choose a region with more",
        )
        yield Use(
            name="send, hottest group",
            used=self._peak * self.load_estimate.hottest_share / (full if profile.batch_same_group else 1),
            allowed=limits.GROUP_CALLS_PER_SECOND,
            unit="calls/s",
            instead="lower group_skew or the rate, add groups, or allow batch_same_group",
        )

    def refusals(self) -> Iterator[str]:
        """Yield the reasons to refuse it. LocalStack has no quotas: too high a rate only takes longer."""
        if self.load_estimate.target == "aws":
            yield from (
                f"{use.name}: {use.used:,.0f} {use.unit} at the peak, allowed is {use.allowed:,.0f}; {use.instead}"
                for use in self.uses()
                if use.share > 1
            )

    def warnings(self) -> Iterator[str]:
        """Yield warnings: why the run will differ from the profile."""
        profile, estimate = self.load_estimate.profile, self.load_estimate
        if estimate.target == "localstack" and (use := self._localstack()).share > 1:
            yield (
                f"{use.name}: {use.used:,.0f} {use.unit} are offered, it can do about {use.allowed:,.0f}:"
                f" a backlog builds; {use.instead}"
            )
        yield from self._late()
        yield from self._behind()
        greatest, _ = estimate.backlogs
        if greatest > limits.FIFO_WINDOW_MESSAGES:
            yield (
                f"the backlog of a queue grows to about {greatest:,.0f} messages, and SQS looks for groups to serve in"
                f" the first {limits.FIFO_WINDOW_MESSAGES:,}"
            )
        if profile.drain_seconds_max is not None and estimate.drain_seconds > profile.drain_seconds_max:
            yield (
                f"draining takes about {estimate.drain_seconds:,.0f} s, and drain_seconds_max is"
                f" {profile.drain_seconds_max:g}: the threshold will be crossed"
            )

    def _late(self) -> Iterator[str]:
        profile = self.load_estimate.profile
        in_call = limits.PUBLISH_BATCH_ENTRIES_MAX if profile.batch_same_group else 1
        able = profile.producers_per_group * in_call / CALL_SECONDS
        offered = self._peak * self.load_estimate.hottest_share
        if offered > able:
            yield (
                f"the hottest group has {self.load_estimate.hottest_share:.1%} of the messages, {offered:,.0f}/s at"
                f" the peak,"
                f" and each after the answer to the one before about {able:,.0f}/s can be published: it will be late;"
                " lower group_skew or the rate, or allow batch_same_group"
            )

    def _behind(self) -> Iterator[str]:
        estimate, profile = self.load_estimate, self.load_estimate.profile
        come = profile.messages_per_second * estimate.queue_share
        if estimate.handled_per_second < come and not profile.consume_after_seconds:
            yield (
                f"the consumers of a queue ({profile.consumers_per_queue}) can work off about"
                f" {estimate.handled_per_second:,.0f} messages/s, and {come:,.0f}/s come:"
                f" {estimate.backlogs[1]:,.0f} are left to drain; add consumers_per_queue"
            )
