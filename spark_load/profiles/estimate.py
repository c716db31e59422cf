"""What a profile will take before it runs: messages, calls, quotas, time and money. A pure function, and an estimate.

Its assumptions are those of `ASSUMPTIONS`; shares are taken for certain, so counts are expected values.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sluice.declaration import Environment, prices
from spark_load.profiles.load_estimate import CALL_SECONDS, LoadEstimate, Target
from spark_load.profiles.profile import Profile
from spark_load.profiles.quota_check import QuotaCheck, Use

_SESSION_SECONDS = 20

ASSUMPTIONS = (
    f"a call takes {CALL_SECONDS * 1000:g} ms, and what comes due meanwhile shares the next one",
    "a receive brings what has come since the last one, at most ten; it waits one second when nothing has",
    f"Spark takes {_SESSION_SECONDS} s to start; judging is not counted",
    f"list prices of {prices.PRICE_REGION}, {prices.PRICE_DATE}, free tiers and Spark's own machines not counted",
)


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


def estimate_for(profile: Profile, environment: Environment, target: Target) -> Estimate:
    """Return what a run of the profile in a declared environment is expected to take."""
    return estimate(
        profile,
        queue_count=len(environment.consumers),
        region=environment.region,
        target=target,
        max_receive_count=max(consumer.max_attempts for consumer in environment.consumers),
    )


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
    load_estimate = LoadEstimate(profile, queue_count, target, max_receive_count)
    quota_check = QuotaCheck(load_estimate, region)
    return Estimate(
        target=target,
        queue_count=queue_count,
        seconds=_SESSION_SECONDS + load_estimate.publish_seconds + load_estimate.drain_seconds,
        publish_seconds=load_estimate.publish_seconds,
        drain_seconds=load_estimate.drain_seconds,
        warm_up_count=profile.warm_up_count,
        message_count=profile.measured_count,
        repeat_count=load_estimate.early_repeats + load_estimate.late_repeats,
        end_marker_count=profile.group_count,
        published_bytes=load_estimate.published * load_estimate.body_bytes,
        delivered_count=load_estimate.received * load_estimate.copies,
        calls=load_estimate.calls,
        messages_per_publish_call=load_estimate.publish_fill,
        messages_per_receive_call=load_estimate.receive_fill,
        peak_per_second=profile.peak_per_second,
        hottest_share=load_estimate.hottest_share,
        hottest_per_second=load_estimate.hottest_share * profile.peak_per_second,
        uses=tuple(quota_check.uses()),
        cost=load_estimate.cost,
        refusals=tuple(quota_check.refusals()),
        warnings=tuple(quota_check.warnings()),
    )
