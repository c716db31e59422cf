"""Every metric-math expression that is deployed, as queries of GetMetricData: of alarms, scaling policies, dashboard.

AWS: https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_MetricDataQuery.html and
https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/CloudWatch-Dashboard-Body-Structure.html
(read 2026-11-26).
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from botocore.validate import ParamValidator

type Queries = list[dict[str, Any]]

_PERIOD_SECONDS = 60
_IDS = re.compile(r"\b[a-z]\w*")  # functions are upper-case


def of_alarms(alarms: Mapping[str, Mapping[str, Any]]) -> dict[str, Queries]:
    """Return the queries of each alarm that is computed, by its name; as DescribeAlarms has them."""
    return {f"alarm {name}": alarm["Metrics"] for name, alarm in alarms.items() if alarm.get("Metrics")}


def of_template(template: Mapping[str, Any]) -> dict[str, Queries]:
    """Return the queries of each scaling policy and graph of a deployed template that is computed, by its place."""
    found = {}
    for id_, resource in template["Resources"].items():
        properties = resource.get("Properties", {})
        if resource["Type"] == "AWS::ApplicationAutoScaling::ScalingPolicy":
            tracked = properties.get("TargetTrackingScalingPolicyConfiguration", {})
            metrics = tracked.get("CustomizedMetricSpecification", {}).get("Metrics", [])
            if metrics:
                found[f"scaling policy {id_}"] = [_with_period(metric) for metric in metrics]
        if resource["Type"] == "AWS::CloudWatch::Dashboard":
            widgets = json.loads(_text(properties["DashboardBody"]))["widgets"]
            graphs = [widget["properties"].get("metrics", []) for widget in widgets if widget["type"] == "metric"]
            found |= {
                f"graph {id_}/{number}": queries for number, queries in enumerate(map(_of_graph, graphs)) if queries
            }
    return found


def _with_period(metric: Mapping[str, Any]) -> dict[str, Any]:
    """Return a metric of a scaling policy as a query: a policy has no period of its own."""
    if "MetricStat" not in metric:
        return dict(metric)
    return {**metric, "MetricStat": {**metric["MetricStat"], "Period": _PERIOD_SECONDS}}


def _of_graph(rows: Sequence[Sequence[Any]]) -> Queries:
    """Return the queries of a graph's rows; none if nothing in it is computed."""
    if not any(isinstance(row[0], dict) for row in rows):
        return []
    queries: Queries = []
    for number, row in enumerate(rows):
        *named, options = row if isinstance(row[-1], dict) else (*row, {})
        id_ = options.get("id", f"row{number}")
        if not named:
            queries.append({"Id": id_, "Expression": options["expression"]})
            continue
        namespace, name, *pairs = named
        dimensions = [{"Name": key, "Value": value} for key, value in zip(pairs[::2], pairs[1::2], strict=True)]
        metric = {"Namespace": namespace, "MetricName": name, "Dimensions": dimensions}
        stat = {
            "Metric": metric,
            "Period": options.get("period", _PERIOD_SECONDS),
            "Stat": options.get("stat", "Average"),
        }
        queries.append({"Id": id_, "MetricStat": stat, "ReturnData": False})
    return queries


def _text(value: Any) -> str:
    """Return the text of a property; what CloudFormation fills in, which no expression names, is a zero."""
    match value:
        case str():
            return value
        case {"Fn::Join": [str(separator), parts]}:
            return separator.join(map(_text, parts))
    return "0"


def faults(queries: Queries, shape: Any) -> Iterator[str]:
    """Yield what a service model says against queries, and which metric an expression names that is not there.

    Args:
        queries: of one alarm, policy or graph.
        shape: of `MetricDataQueries` in CloudWatch's service model, which botocore checks but for the longest length.
    """
    report = ParamValidator().validate(queries, shape)
    if report.has_errors():
        yield report.generate_report()
    ids = {query["Id"] for query in queries}
    longest = shape.member.members["Expression"].metadata["max"]
    for query in queries:
        expression = query.get("Expression")
        if expression is None:
            continue
        if len(expression) > longest:
            yield f"the expression {query['Id']} has {len(expression)} characters, allowed are {longest}"
        for name in sorted({*_IDS.findall(expression)} - ids):
            yield f"{name} in the expression {query['Id']} is the id of no query"
    if not any(query.get("ReturnData", True) for query in queries):
        yield "no query returns data"
