"""Looking up what was found in the templates, and what every check looks up: kinds, policies, metric math."""

import re
from collections.abc import Iterator
from typing import Any

from tests.unit.stacks.synthesis import Properties, Resource

TOPIC, QUEUE, SUBSCRIPTION = "AWS::SNS::Topic", "AWS::SQS::Queue", "AWS::SNS::Subscription"
TOPIC_POLICY, QUEUE_POLICY, KEY = "AWS::SNS::TopicPolicy", "AWS::SQS::QueuePolicy", "AWS::KMS::Key"
ALARM, LOG_GROUP = "AWS::CloudWatch::Alarm", "AWS::Logs::LogGroup"
SERVICE, TASK_DEFINITION = "AWS::ECS::Service", "AWS::ECS::TaskDefinition"

type Found = list[Resource]


def of_kind(found: Found, kind: str) -> list[Resource]:
    """Return the resources of that type; unlike the tests' own, it takes two of one name."""
    return [one for one in found if one.kind == kind]


def properties(found: Found, kind: str, name: str) -> Properties:
    """Return the properties of the resource of that type and name; none if there is none."""
    return next((one.properties for one in found if one.kind == kind and one.name == name), {})


def as_list(value: Any) -> list[Any]:
    """Return what CloudFormation takes as one or many as many."""
    return value if isinstance(value, list) else [value]


def allowances(resource: Resource) -> Iterator[Properties]:
    """Yield what a policy, a key or a role allows, statement by statement."""
    documents = [resource.properties.get(key) for key in ("PolicyDocument", "KeyPolicy", "AssumeRolePolicyDocument")]
    inline = [policy["PolicyDocument"] for policy in resource.properties.get("Policies", ())]
    for document in (*documents, *inline):
        yield from (one for one in (document or {}).get("Statement", ()) if one["Effect"] == "Allow")


def metric_math(whose: str, queries: list[Properties]) -> Iterator[str]:
    """Check metric math: every id is given and used, there is one result, and gaps are filled as they may be.

    With the last value; with a number only before the first, and only running tasks.
    """
    expression = " ".join(query["Expression"] for query in queries if "Expression" in query)
    given = sorted(query["Id"] for query in queries if "MetricStat" in query)
    if given != sorted(set(re.findall(r"\b[a-z]+\b", expression))):
        yield f"{whose} is given {given}"
    if [query.get("ReturnData", True) for query in queries].count(True) != 1:
        yield f"{whose} has not one result"
    for id_ in sorted(set(re.findall(r"FILL\((\w+), [^R]", expression))):
        yield f"{whose} takes a late {id_} for a number"
    for id_ in sorted({*re.findall(r"FILL\(FILL\((\w+), REPEAT\),", expression)} - {"running"}):
        yield f"{whose} takes {id_}, if never reported, for a number"
