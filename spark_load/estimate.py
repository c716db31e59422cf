"""What a profile will take before it runs: messages, calls, quotas, time and money. A pure function, and an estimate.

Its assumptions are those of `ASSUMPTIONS`; shares are taken for certain, so counts are expected values.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal

from sluice import limits, prices
from spark_load.profile import Phase, Profile

_CALL_SECONDS = 0.02
_WAIT_SECONDS = 1
_ENVELOPE_BYTES = 160  # of a body: run, group, idx and JSON
_SLICES = 100  # a phase is looked at in so many pieces, for the backlog
_SESSION_SECONDS = 20

ASSUMPTIONS = (
    f"a call takes {_CALL_SECONDS * 1000:g} ms, and what comes due meanwhile shares the next one",
    "a receive brings what has come since the last one, at most ten; it waits one second when nothing has",
    f"Spark takes {_SESSION_SECONDS} s to start; judging is not counted",
    f"list prices of {prices.PRICE_REGION}, {prices.PRICE_DATE}, free tiers and Spark's own machines not counted",
)

# Measured: docs/benchmarks.md and the end-to-end runs of this project, on two cores.
_LOCALSTACK_TOPIC_DELIVERIES_PER_SECOND = 270  # 90 messages to each of three queues
_LOCALSTACK_SENDS_PER_SECOND = 1_300
_LOCALSTACK_QUEUE_PER_SECOND = 800

type Target = Literal["aws", "localstack"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """How much of a limit is used at the peak.

    Args:
        name: what is limited.
        used: at the peak.
        allowed: by AWS, or what LocalStack was measured to do.
        unit: of both.
    """

    name: str
    used: float
    allowed: float
    unit: str

    @property
    def share(self) -> float:
        """Return the used share of what is allowed."""
        return self.used / self.allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What is to be expected of a run.

    Args:
        target: what it runs against: `aws` or `localstack`.
        queue_count: of the environment.
        seconds: of the whole run, from Spark's start to the end of the drain.
        publish_seconds: from the first message of the warm-up to the last end marker.
        drain_seconds: until the backlog at the end of the load is worked off.
        warm_up_count: messages of the warm-up.
        message_count: messages of the load proper.
        repeat_count: publishes of a message once more, inside the window or outside.
        end_marker_count: one for each group.
        published_bytes: bodies handed over, repeats and end markers among them.
        delivered_count: receives of messages, in all queues together.
        calls: by action, in all queues together.
        messages_per_publish_call: expected on average.
        messages_per_receive_call: expected on average, empty answers not counted.
        peak_per_second: highest rate of messages, repeats not counted.
        hottest_share: of the group with the most messages.
        hottest_per_second: its messages at the peak.
        uses: how much of each limit is used at the peak.
        cost: in US dollars by line; what it would cost on AWS, also where it does not run there.
        refusals: why it cannot work.
        warnings: why it will not be what it looks like.
    """

    target: Target
    queue_count: int
    seconds: float
    publish_seconds: float
    drain_seconds: float
    warm_up_count: int
    message_count: int
    repeat_count: int
    end_marker_count: int
    published_bytes: int
    delivered_count: int
    calls: Mapping[str, int]
    messages_per_publish_call: float
    messages_per_receive_call: float
    peak_per_second: float
    hottest_share: float
    hottest_per_second: float
    uses: tuple[Use, ...]
    cost: Mapping[str, float]
    refusals: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def cost_usd(self) -> float:
        """Return what the run costs on AWS, in US dollars."""
        return sum(self.cost.values())

    def as_json(self) -> dict[str, Any]:
        """Return all of it."""
        return asdict(self) | {
            "cost_usd": self.cost_usd,
            "price_date": prices.PRICE_DATE,
            "price_region": prices.PRICE_REGION,
            "assumptions": list(ASSUMPTIONS),
        }


def estimate(
    profile: Profile,
    *,
    queue_count: int,
    region: str = "us-east-1",
    target: Target = "aws",
    max_receive_count: int = 5,
) -> Estimate:
    """Return what a run of the profile is expected to take.

    Args:
        profile: what is offered.
        queue_count: queues that get every message.
        region: whose quotas count.
        target: `localstack` has no quotas, but a speed.
        max_receive_count: receives after which a poisoned message is dead-lettered.
    """
    sums = _Sums(profile, queue_count, region, target, max_receive_count)
    return Estimate(
        target=target,
        queue_count=queue_count,
        seconds=_SESSION_SECONDS + sums.publish_seconds + sums.drain_seconds,
        publish_seconds=sums.publish_seconds,
        drain_seconds=sums.drain_seconds,
        warm_up_count=profile.warm_up_count,
        message_count=profile.measured_count,
        repeat_count=sums.early_repeats + sums.late_repeats,
        end_marker_count=profile.group_count,
        published_bytes=round(sums.published * sums.body_bytes),
        delivered_count=sums.received * queue_count,
        calls=sums.calls,
        messages_per_publish_call=sums.publish_fill,
        messages_per_receive_call=sums.receive_fill,
        peak_per_second=profile.peak_per_second,
        hottest_share=sums.hottest_share,
        hottest_per_second=sums.hottest_share * profile.peak_per_second,
        uses=sums.uses,
        cost=sums.cost,
        refusals=tuple(sums.refusals()),
        warnings=tuple(sums.warnings()),
    )


@dataclass(frozen=True)
class _Sums:
    profile: Profile
    queue_count: int
    region: str
    target: Target
    max_receive_count: int

    @property
    def body_bytes(self) -> int:
        return self.profile.payload_bytes + _ENVELOPE_BYTES

    @property
    def early_repeats(self) -> int:
        return round(self.profile.duplicate_share * self.profile.measured_count)

    @property
    def late_repeats(self) -> int:
        return round(self.profile.late_duplicate_share * self.profile.measured_count)

    @property
    def published(self) -> int:
        """Return publishes of everything, into one destination."""
        return self.profile.message_count + self.early_repeats + self.late_repeats + self.profile.group_count

    @property
    def kept(self) -> int:
        """Return what a queue gets: repeats inside the window are suppressed."""
        return self.published - self.early_repeats

    @property
    def given_back(self) -> int:
        """Return how often a message of one queue is given back."""
        first = round(self.profile.failure_share * self.profile.measured_count)
        return first + self._poisoned * self.max_receive_count

    @property
    def _poisoned(self) -> int:
        return round(self.profile.poison_share * self.profile.measured_count)

    @property
    def received(self) -> int:
        """Return receives of messages from one queue, and of its dead letters from the DLQ."""
        again = round((self.profile.failure_share + self.profile.crash_share) * self.profile.measured_count)
        dead = self._poisoned * (self.max_receive_count - 1 + 1 + self.profile.redrive)
        return self.kept + again + dead

    @cached_property
    def publish_fill(self) -> float:
        """Return how many messages share a publish call."""
        profile = self.profile
        due = profile.messages_per_second / profile.publish_tasks * (profile.publish_linger_seconds + _CALL_SECONDS)
        room = min(limits.PUBLISH_BATCH_ENTRIES_MAX, limits.PUBLISH_BYTES_MAX // self.body_bytes)
        if not profile.batch_same_group:
            room = min(room, math.ceil(profile.group_count * profile.producers_per_group / profile.publish_tasks))
        return max(1.0, min(due, room))

    @cached_property
    def receive_fill(self) -> float:
        """Return how many messages a receive brings; one where some are to fail, see `handling`."""
        profile = self.profile
        if profile.failure_share or profile.crash_share or profile.poison_share:
            return 1.0
        if profile.consume_after_seconds:
            return float(limits.RECEIVE_MESSAGES_MAX)
        between = profile.poll_pause_seconds + 2 * _CALL_SECONDS
        come = profile.messages_per_second / profile.consumers_per_queue * between
        return max(1.0, min(come, limits.RECEIVE_MESSAGES_MAX))

    @property
    def publish_seconds(self) -> float:
        return self.profile.warm_up_seconds + self.profile.publish_seconds

    @property
    def queue_per_second(self) -> float:
        """Return how many messages a second the consumers of a queue can work off."""
        profile = self.profile
        most = limits.RECEIVE_MESSAGES_MAX if self.receive_fill > 1 or not self._fails else 1
        round_seconds = 2 * _CALL_SECONDS + profile.poll_pause_seconds + most * profile.handler_seconds
        able = profile.consumers_per_queue * most / round_seconds
        return min(able, _LOCALSTACK_QUEUE_PER_SECOND) if self.target == "localstack" else able

    @property
    def _fails(self) -> bool:
        return bool(self.profile.failure_share or self.profile.crash_share or self.profile.poison_share)

    @property
    def through_per_second(self) -> float:
        """Return how many messages a second come all the way through a queue."""
        if self.target == "aws":
            return self.queue_per_second
        topic = self.profile.destination == "topic"
        total = _LOCALSTACK_TOPIC_DELIVERIES_PER_SECOND if topic else _LOCALSTACK_SENDS_PER_SECOND
        return min(self.queue_per_second, total / self.queue_count)

    @cached_property
    def backlogs(self) -> tuple[float, float]:
        """Return the greatest backlog of a queue, and the one when everything was published."""
        profile, able = self.profile, self.through_per_second
        more = self.received / max(1, profile.message_count)  # receives of a message
        backlog = greatest = at_seconds = 0.0
        silence = profile.end_markers_after_seconds - profile.duration_seconds
        ends = Phase(
            duration_seconds=max(profile.publish_seconds - profile.end_markers_after_seconds, 1e-6),
            messages_per_second=profile.end_markers_per_second,
        )
        for phase in (*profile.steps, Phase(duration_seconds=silence, messages_per_second=0), ends):
            seconds = phase.duration_seconds / _SLICES
            for number in range(_SLICES):
                rate = _between(phase.messages_per_second, phase.end_per_second, (number + 0.5) / _SLICES)
                is_consumed = at_seconds >= profile.consume_after_seconds
                backlog = max(0.0, backlog + (rate * more - is_consumed * able) * seconds)
                greatest = max(greatest, backlog)
                at_seconds += seconds
        return greatest, backlog

    @property
    def drain_seconds(self) -> float:
        waiting = max(0.0, self.profile.consume_after_seconds - self.profile.publish_seconds)
        lease = (self.profile.visibility_timeout_seconds or 30) if self.profile.crash_share else 0
        return waiting + self.backlogs[1] / self.through_per_second + lease

    @cached_property
    def hottest_share(self) -> float:
        return 1 / math.fsum(rank**-self.profile.group_skew for rank in range(1, self.profile.group_count + 1))

    @cached_property
    def calls(self) -> dict[str, int]:
        destinations = 1 if self.profile.destination == "topic" else self.queue_count
        active_seconds = self.publish_seconds + self.drain_seconds - self.profile.consume_after_seconds
        polls = self.profile.consumers_per_queue * active_seconds / (_WAIT_SECONDS + self.profile.poll_pause_seconds)
        receives = max(math.ceil(self.received / self.receive_fill), math.ceil(polls))
        deleted = self.kept - (0 if self.profile.redrive else self._poisoned)
        return {
            "publish": destinations * math.ceil(self.published / self.publish_fill),
            "receive": self.queue_count * receives,
            "delete": self.queue_count * math.ceil(deleted / self.receive_fill),
            "change visibility": self.queue_count * self.given_back,
        }

    @property
    def cost(self) -> dict[str, float]:
        request = prices.usd("SQS FIFO request")
        answers = math.ceil(self.received / self.receive_fill) * self.queue_count
        others = self.calls["receive"] - answers + self.calls["delete"] + self.calls["change visibility"]
        receive = answers * prices.requests(self.receive_fill * self.body_bytes)
        if self.profile.destination == "queue":
            send = self.calls["publish"] * prices.requests(self.publish_fill * self.body_bytes)
            return {"SQS send": send * request, "SQS receive, delete": (receive + others) * request}
        delivered = self.kept * self.queue_count
        return {
            **prices.fan_out(published=self.published, delivered=delivered, message_bytes=self.body_bytes),
            "SQS send": delivered * prices.requests(self.body_bytes) * request,
            "SQS receive, delete": (receive + others) * request,
        }

    @cached_property
    def uses(self) -> tuple[Use, ...]:
        return tuple(self._on_aws() if self.target == "aws" else self._on_localstack())

    @property
    def _peak(self) -> float:
        """Return the highest rate of publishes."""
        return self.profile.peak_per_second * (1 + self.profile.duplicate_share + self.profile.late_duplicate_share)

    def _on_aws(self) -> Iterator[Use]:
        peak, hottest = self._peak, self._peak * self.hottest_share
        calls = limits.QUEUE_CALLS_PER_SECOND.get(self.region, limits.QUEUE_CALLS_PER_SECOND_ELSEWHERE)
        if self.profile.destination == "topic":
            messages = limits.TOPIC_MESSAGES_PER_SECOND.get(self.region, limits.TOPIC_MESSAGES_PER_SECOND_ELSEWHERE)
            yield Use(name=f"SNS FIFO in {self.region}", used=peak, allowed=messages, unit="messages/s")
            group = limits.TOPIC_GROUP_MESSAGES_PER_SECOND
            yield Use(name="hottest group, topic", used=hottest, allowed=group, unit="messages/s")
        else:
            yield Use(name=f"send to a queue in {self.region}", used=peak / self._full, allowed=calls, unit="calls/s")
            in_call = self._full if self.profile.batch_same_group else 1
            yield Use(
                name="hottest group, send",
                used=hottest / in_call,
                allowed=limits.GROUP_CALLS_PER_SECOND,
                unit="calls/s",
            )
        peak_receives = self.profile.peak_per_second / (1 if self._fails else limits.RECEIVE_MESSAGES_MAX)
        yield Use(name=f"receive from a queue in {self.region}", used=peak_receives, allowed=calls, unit="calls/s")

    @property
    def _full(self) -> float:
        """Return how many messages a publish call holds at the peak."""
        return max(self.publish_fill, min(10.0, self.publish_fill * self._peak / self.profile.messages_per_second))

    def _on_localstack(self) -> Iterator[Use]:
        rate = self.profile.messages_per_second
        if self.profile.destination == "topic":
            able = _LOCALSTACK_TOPIC_DELIVERIES_PER_SECOND / self.queue_count
            name = f"LocalStack, topic to {self.queue_count} queues, on average"
        else:
            able = _LOCALSTACK_SENDS_PER_SECOND / self.queue_count
            name = f"LocalStack, sent to {self.queue_count} queues, on average"
        yield Use(name=name, used=rate, allowed=able, unit="messages/s")

    def refusals(self) -> Iterator[str]:
        for use in self.uses:
            if use.share > 1 and self.target == "aws":
                yield (
                    f"{use.name}: {use.used:,.0f} {use.unit} at the peak, allowed is {use.allowed:,.0f};"
                    f" {self._instead(use)}"
                )

    def _instead(self, use: Use) -> str:
        if "hottest" in use.name:
            return "lower group_skew or the rate, or add groups"
        if use.name.startswith("SNS"):
            return "lower the rate, or choose destination 'queue'"
        return "lower the rate, or choose a region with more"

    def warnings(self) -> Iterator[str]:
        profile = self.profile
        hottest, able = self._peak * self.hottest_share, self._group_per_second
        if hottest > able:
            yield (
                f"the hottest group has {self.hottest_share:.1%} of the messages, {hottest:,.0f}/s at the peak, and one"
                f" after the other about {able:,.0f}/s can be published: it will be late; lower group_skew or the rate,"
                " or allow batch_same_group"
            )
        yield from (
            f"{use.name}: {use.used:,.0f} {use.unit} are offered, it can do about {use.allowed:,.0f}: a backlog builds"
            for use in self.uses
            if use.share > 1 and self.target == "localstack"
        )
        greatest, left = self.backlogs
        if greatest > limits.FIFO_WINDOW_MESSAGES:
            yield (
                f"the backlog of a queue grows to about {greatest:,.0f} messages, and SQS looks for groups to serve in"
                f" the first {limits.FIFO_WINDOW_MESSAGES:,}"
            )
        if self.queue_per_second < profile.messages_per_second and not profile.consume_after_seconds:
            yield (
                f"the {profile.consumers_per_queue} consumers of a queue can work off about"
                f" {self.queue_per_second:,.0f} messages/s, and {profile.messages_per_second:,.0f}/s are offered:"
                f" {left:,.0f} are left to drain; add consumers_per_queue"
            )
        if profile.drain_seconds_max is not None and self.drain_seconds > profile.drain_seconds_max:
            yield (
                f"draining takes about {self.drain_seconds:,.0f} s, and drain_seconds_max is"
                f" {profile.drain_seconds_max:g}: the threshold will be crossed"
            )

    @property
    def _group_per_second(self) -> float:
        """Return how many messages of one group can be published, each after the answer to the one before."""
        in_call = limits.PUBLISH_BATCH_ENTRIES_MAX if self.profile.batch_same_group else 1
        return self.profile.producers_per_group * in_call / _CALL_SECONDS


def _between(start: float, end: float, share: float) -> float:
    return start + (end - start) * share
