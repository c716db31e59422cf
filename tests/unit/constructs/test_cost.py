"""The bill counts what the templates have: a stack that grows without it would make every estimate too low."""

from collections import Counter

from sluice.cost.bill import MonthlyMessages, bill
from sluice.cost.prices import usd
from sluice.declaration import Environment, NewNetwork
from tests.support.templates.resources import Resource

IDLE = MonthlyMessages(messages=0, message_bytes=1)
TRACKING = 6  # metrics of the two alarms that target tracking makes for a service


def _of(found: list[Resource], kind: str) -> list[Resource]:
    return [resource for resource in found if resource.kind == kind]


def test_alarms_endpoints_keys_and_dashboards_are_as_many_as_are_paid_for(
    declared: list[Resource], environment: Environment
) -> None:
    made = bill(environment, IDLE).lines
    alarms = [alarm.properties for alarm in _of(declared, "AWS::CloudWatch::Alarm")]
    read = sum(sum("MetricStat" in metric for metric in alarm.get("Metrics", ())) or 1 for alarm in alarms)
    endpoints = Counter(endpoint.properties["VpcEndpointType"] for endpoint in _of(declared, "AWS::EC2::VPCEndpoint"))
    assert isinstance(environment.network, NewNetwork)
    zone_hours = 730 * environment.network.availability_zones

    counted = {
        "alarms": round(made["alarms"] / usd("alarm")) - TRACKING * len(environment.consumers),
        "endpoints": round(made["interface endpoints"] / usd("interface endpoint") / zone_hours),
        "services": (round(made["Container Insights"] / usd("Container Insights")) - 13) // 25,
        "dashboards": round(made["dashboard"] / usd("dashboard")),
    }

    assert counted == {
        "alarms": read,
        "endpoints": endpoints["Interface"],
        "services": len(_of(declared, "AWS::ECS::Service")),
        "dashboards": len(_of(declared, "AWS::CloudWatch::Dashboard")),
    }
