"""What an environment costs a month, by the prices of `sluice.prices` and what is counted in its templates."""

from dataclasses import dataclass

from docs.templates import Resource, Synthesized
from sluice import limits, naming
from sluice.prices import usd

HOURS = 730  # a month
_LOCALSTACK_ACCOUNT = "000000000000"
_DATA_KEY_SECONDS = 300  # SQS and SNS ask KMS again after so long
_MONTH_SECONDS = HOURS * 3_600
_CLUSTER_METRICS, _SERVICE_METRICS = 13, 15 + 10  # of a service itself, and of its task definition's family


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What an environment has, whether or not anybody sends anything.

    Args:
        vcpus: of all tasks together.
        memory_gb: of all tasks together.
        lanes: of all tasks together; each polls.
        endpoint_zones: interface endpoints times the zones each is in.
        keys: KMS keys.
        queues: queues a key encrypts.
        topics: topics a key encrypts.
        alarm_metrics: metrics read by alarms, those that target tracking makes for itself included.
        dashboards: dashboards.
        clusters: ECS clusters with Container Insights.
        services: ECS services in them.
    """

    vcpus: float = 0
    memory_gb: float = 0
    lanes: int = 0
    endpoint_zones: int = 0
    keys: int = 0
    queues: int = 0
    topics: int = 0
    alarm_metrics: int = 0
    dashboards: int = 0
    clusters: int = 0
    services: int = 0


def footprint(synthesized: Synthesized, *, at_max: bool = False) -> Footprint:
    """Return what an environment has with the fewest tasks declared, or the most, as counted in its templates.

    In LocalStack's account nothing is charged, and so nothing is counted.
    """
    environment = synthesized.environment
    if environment.account == _LOCALSTACK_ACCOUNT:
        return Footprint()
    counts = {one["ServiceName"]: one.get("DesiredCount", 0) for one in synthesized.of_type("AWS::ECS::Service")}
    for one in synthesized.of_type("AWS::ApplicationAutoScaling::ScalableTarget"):
        counts[one["ResourceId"].rpartition("/")[2]] = one["MaxCapacity" if at_max else "MinCapacity"]
    tasks = [(one, counts[one["Family"]]) for one in synthesized.of_type("AWS::ECS::TaskDefinition")]
    endpoints = synthesized.of_type("AWS::EC2::VPCEndpoint")
    encrypted = [
        kind
        for kind in ("AWS::SQS::Queue", "AWS::SNS::Topic")
        for one in synthesized.of_type(kind)
        if "KmsMasterKeyId" in one
    ]
    return Footprint(
        vcpus=sum(count * int(one["Cpu"]) for one, count in tasks) / 1_024,
        memory_gb=sum(count * int(one["Memory"]) for one, count in tasks) / 1_024,
        lanes=sum(one.lanes * counts[naming.service_name(environment, one.name)] for one in environment.consumers),
        endpoint_zones=sum(len(one["SubnetIds"]) for one in endpoints if one["VpcEndpointType"] == "Interface"),
        keys=len(synthesized.of_type("AWS::KMS::Key")),
        queues=encrypted.count("AWS::SQS::Queue"),
        topics=encrypted.count("AWS::SNS::Topic"),
        alarm_metrics=_alarm_metrics(synthesized),
        dashboards=len(synthesized.of_type("AWS::CloudWatch::Dashboard")),
        clusters=len(synthesized.of_type("AWS::ECS::Cluster")),
        services=len(synthesized.of_type("AWS::ECS::Service")),
    )


def _alarm_metrics(synthesized: Synthesized) -> int:
    """Return how many metrics alarms read. Target tracking keeps two alarms for each policy, high and low."""
    alarms = sum(_metrics(one.get("Metrics", [])) or 1 for one in synthesized.of_type("AWS::CloudWatch::Alarm"))
    tracked = [
        one["TargetTrackingScalingPolicyConfiguration"]["CustomizedMetricSpecification"]["Metrics"]
        for one in synthesized.of_type("AWS::ApplicationAutoScaling::ScalingPolicy")
        if "TargetTrackingScalingPolicyConfiguration" in one
    ]
    return alarms + 2 * sum(map(_metrics, tracked))


def _metrics(queries: list[Resource]) -> int:
    return sum("MetricStat" in one for one in queries)


def monthly(has: Footprint) -> dict[str, float]:
    """Return what a month costs before anybody sends a message, in US dollars by line; free tiers are not deducted."""
    # AWS's estimate, with one producer and one consumer: 2 requests per topic, 3 per queue and data key.
    kms_requests = _MONTH_SECONDS / _DATA_KEY_SECONDS * (2 * has.topics + 3 * has.queues)
    return {
        "Fargate": HOURS * (has.vcpus * usd("Fargate CPU") + has.memory_gb * usd("Fargate memory")),
        "interface endpoints": HOURS * has.endpoint_zones * usd("interface endpoint"),
        "Container Insights": (_CLUSTER_METRICS * has.clusters + _SERVICE_METRICS * has.services)
        * usd("Container Insights"),
        "alarms": has.alarm_metrics * usd("alarm"),
        "dashboard": has.dashboards * usd("dashboard"),
        "KMS keys and their requests": has.keys * usd("KMS key") + kms_requests * usd("KMS request"),
        "polling": has.lanes * _MONTH_SECONDS / limits.WAIT_SECONDS_MAX * usd("SQS FIFO request"),
    }
