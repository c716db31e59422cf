"""The alarms by which ECS takes a version back that starts and then fails every message."""

import pytest

from sluice.declaration import Environment
from tests.support.templates.resources import Resource, of_kind
from tests.unit.constructs.expectations import CONSUMERS

ALARM = "AWS::CloudWatch::Alarm"


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_more_dead_letters_than_a_minute_before_ring_for_a_while(
    declared_resources: list[Resource], environment: Environment, consumer: str
) -> None:
    """Old dead letters do not ring: ECS ignores alarms that ring when a deployment begins.

    Only ECS receives this alarm.
    """
    name = f"sluice-{environment.name}-{consumer}"

    assert of_kind(declared_resources, ALARM)[f"{name}-dying"] == {
        "AlarmName": f"{name}-dying",
        "AlarmDescription": "Dead letters increase. While a version is deployed, ECS takes it back.",
        "Metrics": [
            {
                "Id": "expr_1",
                "Label": "more dead letters than a minute before",
                "Expression": "DIFF(FILL(dead, REPEAT))",
                "ReturnData": True,
            },
            {
                "Id": "dead",
                "MetricStat": {
                    "Metric": {
                        "Namespace": "AWS/SQS",
                        "MetricName": "ApproximateNumberOfMessagesVisible",
                        "Dimensions": [{"Name": "QueueName", "Value": f"{name}-dlq.fifo"}],
                    },
                    "Stat": "Maximum",
                    "Period": 60,
                },
                "ReturnData": False,
            },
        ],
        "Threshold": 1,
        "ComparisonOperator": "GreaterThanOrEqualToThreshold",
        "DatapointsToAlarm": 1,
        "EvaluationPeriods": 15,
        "TreatMissingData": "notBreaching",
    }


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_a_message_that_a_worker_gives_up_rings_for_a_while(
    declared_resources: list[Resource], environment: Environment, consumer: str
) -> None:
    """The alarm reads the workers' own counter: the metrics of an unused DLQ begin up to 15 minutes late."""
    name = f"sluice-{environment.name}-{consumer}"

    assert of_kind(declared_resources, ALARM)[f"{name}-failing"] == {
        "AlarmName": f"{name}-failing",
        "AlarmDescription": "Workers give messages up. While a version is deployed, ECS takes it back.",
        "Namespace": "Sluice",
        "MetricName": "InboxDead",
        "Dimensions": [{"Name": "Queue", "Value": f"{name}.fifo"}],
        "Statistic": "Sum",
        "Period": 60,
        "Threshold": 1,
        "ComparisonOperator": "GreaterThanOrEqualToThreshold",
        "DatapointsToAlarm": 1,
        "EvaluationPeriods": 15,
        "TreatMissingData": "notBreaching",
    }


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_late_messages_ring_as_operators_hear_of_them(
    declared_resources: list[Resource], environment: Environment, consumer: str
) -> None:
    """The alarm has the metric, threshold and minutes of the operators' alarm.

    An idle queue does not ring, so that it can be deployed.
    """
    alarms, name = of_kind(declared_resources, ALARM), f"sluice-{environment.name}-{consumer}"
    delayed, late = alarms[f"{name}-delayed"], alarms[f"{name}-late"]

    own = ("AlarmName", "AlarmDescription", "TreatMissingData", "AlarmActions", "OKActions")
    assert {key: value for key, value in delayed.items() if key not in own} == {
        key: value for key, value in late.items() if key not in own
    }
    assert [delayed.get(key) for key in own[2:]] == ["notBreaching", None, None]


def test_each_alarm_is_made_before_the_service_that_names_it(
    declared_resources: list[Resource], environment: Environment
) -> None:
    """ECS refuses an alarm that does not exist.

    The alarms are in the service's own stack, because another stack would be a circular dependency.
    """
    made = {
        resource.name for resource in declared_resources if resource.kind == ALARM and resource.stack == "consumers"
    }
    services = [resource for resource in declared_resources if resource.kind == "AWS::ECS::Service"]
    watched = {service.name: service.properties["DeploymentConfiguration"].get("Alarms") for service in services}

    for service in (service for service in services if watched[service.name]):
        named = watched[service.name]["AlarmNames"]
        assert len(named) == 3
        assert set(named) <= made & set(service.depends_on)
    assert {name for name, alarms in watched.items() if alarms} == {
        f"sluice-{environment.name}-{consumer}" for consumer in CONSUMERS
    }
