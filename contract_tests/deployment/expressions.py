"""The deployed metric-math expressions of alarms, scaling policies and dashboards, as queries of GetMetricData.

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
_IDS = re.compile(r"\b[a-z]\w*")  # ids of metrics are lower-case, functions upper-case


def of_alarms(alarms: Mapping[str, Mapping[str, Any]]) -> dict[str, Queries]:
    """Return the queries of each alarm with an expression, by the alarm's name; `alarms` are from DescribeAlarms."""
    return {f"alarm {name}": alarm["Metrics"] for name, alarm in alarms.items() if alarm.get("Metrics")}


def of_template(template: Mapping[str, Any]) -> dict[str, Queries]:
    """Return the queries of each scaling policy and graph with an expression in a template, by their place in it."""
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
    """Return a metric of a scaling policy as a query; a query needs a period, which the policy does not have."""
    if "MetricStat" not in metric:
        return dict(metric)
    return {**metric, "MetricStat": {**metric["MetricStat"], "Period": _PERIOD_SECONDS}}


def _of_graph(rows: Sequence[Sequence[Any]]) -> Queries:
    """Return the queries of a dashboard's graph; none if the graph has no expression.

    A row is namespace, metric, then names and values of dimensions in turn, and at the end an object of options.
    """
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
    """Return the text of a template's property, with "0" for values that CloudFormation fills in at deployment."""
    match value:
        case str():
            return value
        case {"Fn::Join": [str(separator), parts]}:
            return separator.join(map(_text, parts))
    return "0"


def faults(queries: Queries, shape: Any) -> Iterator[str]:
    """Yield the faults of queries: breaches of CloudWatch's service model, and ids in expressions that no query has.

    Args:
        queries: of one alarm, policy or graph.
        shape: of `MetricDataQueries` in CloudWatch's service model; botocore checks all of it except maximum lengths.
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
