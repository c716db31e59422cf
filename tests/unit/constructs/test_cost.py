"""The bill counts what the templates have: a stack that grows without it would make every estimate too low."""

from collections import Counter
from collections.abc import Mapping

import pytest

from sluice.cost.bill import MonthlyMessages, bill
from sluice.cost.prices import usd
from sluice.declaration import NewNetwork
from tests.support.declaration import ENVIRONMENTS
from tests.support.templates.environments import EDITED, EXTRA
from tests.support.templates.resources import Resource, StackTemplates, resources

IDLE = MonthlyMessages(messages=0, message_bytes=1)
TRACKING = 10  # metrics of the two alarms that target tracking makes for a service
KMS_REQUESTS = 3 * 8_760  # a month: three in five minutes
EVERY = {**ENVIRONMENTS, **EXTRA, **EDITED}


def _of(found: list[Resource], kind: str) -> list[Resource]:
    return [resource for resource in found if resource.kind == kind]


@pytest.mark.parametrize("name", EVERY)
def test_alarms_endpoints_keys_and_dashboards_are_as_many_as_are_paid_for(
    name: str, stacks: Mapping[str, StackTemplates], edited_stacks: Mapping[str, StackTemplates]
) -> None:
    """A resource that somebody else looks after is in no template, and costs nothing in the bill."""
    environment, found = EVERY[name], resources(edited_stacks[name] if name in EDITED else stacks[name])
    made = bill(environment, IDLE).lines
    alarms = [alarm.properties for alarm in _of(found, "AWS::CloudWatch::Alarm")]
    read = sum(sum("MetricStat" in metric for metric in alarm.get("Metrics", ())) or 1 for alarm in alarms)
    endpoints = Counter(endpoint.properties["VpcEndpointType"] for endpoint in _of(found, "AWS::EC2::VPCEndpoint"))
    zones = environment.network.availability_zones if isinstance(environment.network, NewNetwork) else 1
    encrypted = sum(
        "KmsMasterKeyId" in resource.properties
        for resource in (*_of(found, "AWS::SQS::Queue"), *_of(found, "AWS::SNS::Topic"))
        if not resource.name.endswith("-operators")  # asked for nothing while no alarm rings
    )
    insights = round(made["Container Insights"] / usd("Container Insights"))
    keys = made["KMS keys and their requests"] - encrypted * KMS_REQUESTS * usd("KMS request")

    tracked = len(_of(found, "AWS::ApplicationAutoScaling::ScalableTarget"))
    counted = {
        "alarms": round(made["alarms"] / usd("alarm")) - TRACKING * tracked,
        "endpoints": round(made["interface endpoints"] / usd("interface endpoint") / 730 / zones),
        "metrics of cluster and services": insights,
        "dashboards": round(made["dashboard"] / usd("dashboard")),
        "keys": round(keys, 6),
    }

    assert counted == {
        "alarms": read,
        "endpoints": endpoints["Interface"],
        "metrics of cluster and services": 13 * len(_of(found, "AWS::ECS::Cluster"))
        + 25 * len(_of(found, "AWS::ECS::Service")),
        "dashboards": len(_of(found, "AWS::CloudWatch::Dashboard")),
        "keys": len(_of(found, "AWS::KMS::Key")) * usd("KMS key"),
    }
