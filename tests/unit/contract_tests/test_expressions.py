"""The contract STK-07 reads deployed expressions, and finds faults in them where nothing computes them."""

from typing import Any

import botocore.session
import pytest

from contract_tests.deployment.expressions import faults, of_alarms, of_template

QUEUE = {
    "Metric": {"Namespace": "AWS/SQS", "MetricName": "Seen", "Dimensions": [{"Name": "QueueName", "Value": "q"}]},
    "Stat": "Sum",
}
STAT = {"Id": "seen", "MetricStat": {**QUEUE, "Period": 60}, "ReturnData": False}


@pytest.fixture(scope="module")
def shape() -> Any:
    model = botocore.session.get_session().get_service_model("cloudwatch").operation_model("GetMetricData")
    assert model.input_shape is not None
    return model.input_shape.members["MetricDataQueries"]


@pytest.mark.parametrize(
    ("expression", "more", "found"),
    [
        ("IF(seen > 1, seen)", {}, []),
        ("seen + 0 * " + "1" * 2_037, {}, []),  # as long as may be
        ("seen + 0 * " + "1" * 2_038, {}, ["the expression e has 2049 characters, allowed are 2048"]),
        ("seen + sent", {}, ["sent in the expression e is the id of no query"]),
        ("seen", {"ReturnData": False}, ["no query returns data"]),
        ("seen", {"Period": "60"}, ["Invalid type for parameter [1].Period"]),
        ("seen", {"Statistic": "Sum"}, ['Unknown parameter in [1]: "Statistic"']),
    ],
)
def test_a_query_that_cloudwatch_would_refuse_has_faults(
    expression: str, more: dict[str, Any], found: list[str], shape: Any
) -> None:
    queries = [STAT, {"Id": "e", "Expression": expression, **more}]

    seen = [*faults(queries, shape)]

    assert len(seen) == len(found)
    assert all(wanted in text for wanted, text in zip(found, seen, strict=True))


def test_only_metrics_that_an_expression_computes_are_queried(shape: Any) -> None:
    policy = {
        "Type": "AWS::ApplicationAutoScaling::ScalingPolicy",
        "Properties": {
            "TargetTrackingScalingPolicyConfiguration": {
                "CustomizedMetricSpecification": {
                    "Metrics": [
                        {"Id": "seen", "MetricStat": QUEUE, "ReturnData": False},
                        {"Id": "e", "Expression": "seen"},
                    ]
                }
            }
        },
    }
    graph = '{"type": "metric", "properties": {"metrics": [["AWS/SQS", "Seen", "QueueName", "q", {"id": "seen"}], %s]}}'
    plain, computed = graph % '["AWS/SQS", "Sent", {}]', graph % '[{"expression": "seen * 2", "id": "twice"}]'
    body = {
        "Fn::Join": [
            "",
            ['{"widgets": [' + plain + ", ", computed, ', {"type": "text", "region": "', {"Ref": "R"}, '"}]}'],
        ]
    }
    dashboard = {"Type": "AWS::CloudWatch::Dashboard", "Properties": {"DashboardBody": body}}
    other = {"Type": "AWS::SQS::Queue"}

    requests = of_template({"Resources": {"P": policy, "D": dashboard, "Q": other}})

    assert list(requests) == ["scaling policy P", "graph D/1"]
    assert requests["scaling policy P"][0]["MetricStat"]["Period"] == 60
    assert [query.get("Expression") for query in requests["graph D/1"]] == [None, "seen * 2"]
    assert [*faults(requests["scaling policy P"], shape), *faults(requests["graph D/1"], shape)] == []
    assert of_alarms({"plain": {"MetricName": "Seen"}, "sum": {"Metrics": [STAT]}}) == {"alarm sum": [STAT]}
