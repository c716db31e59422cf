"""The endpoints of a new network pass every call of a task or a producer that takes one, and no other."""

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

import pytest

from sluice.declaration import Environment
from tests.support.declaration import ENVIRONMENTS
from tests.support.templates.environments import BUNDLED, EDITED, FULL, REDRIVEN
from tests.support.templates.resources import Resource, StackTemplates, of_kind, resources

_PULL = {"ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"}
_WORK_OFF = {
    *("sqs:ChangeMessageVisibility", "sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:GetQueueUrl"),
    "sqs:ReceiveMessage",
}
_OTHERWISE = {"DescribeSecret"}
"""Given by CDK beside what ECS calls."""
_WITHOUT_ENDPOINT = {"ecs", "kms", "rds-db"}
"""Asked of ECS's agent on the task's own machine, asked by SQS, SNS and Secrets Manager, and of the database."""


def _each(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def _arn_of(resource: str, environment: Environment) -> str:
    """Return the ARN of a resource that a template refers to."""
    place = f"{environment.region}:{environment.account or '<AWS::AccountId>'}"
    if found := re.fullmatch(r"Arn\((/ecs/.+)\)", resource):
        return f"arn:aws:logs:{place}:log-group:{found[1]}"
    if found := re.fullmatch(r"Ref\((.+\.fifo)\)", resource):
        return f"arn:aws:sns:{place}:{found[1]}"
    if resource.startswith("MasterUserSecret."):
        return f"arn:aws:secretsmanager:{place}:secret:rds!cluster-0a1b-AbCdEf"
    return resource


def _calls(found: list[Resource], environment: Environment) -> set[tuple[str, str]]:
    """Return the calls that tasks, ECS on their behalf, and producers may make: action and ARN."""
    policies = [
        *(
            policy
            for policy in of_kind(found, "AWS::IAM::Policy").values()
            if any("TaskDefinition" in role for role in policy["Roles"])
        ),
        *of_kind(found, "AWS::IAM::ManagedPolicy").values(),
    ]
    return {
        (action, _arn_of(resource, environment))
        for policy in policies
        for statement in policy["PolicyDocument"]["Statement"]
        for action in _each(statement["Action"])
        for resource in _each(statement["Resource"])
        if action.partition(":")[0] not in _WITHOUT_ENDPOINT and action.partition(":")[2] not in _OTHERWISE
    }


def _let_through(found: list[Resource]) -> Iterator[tuple[str, str, str]]:
    """Yield the service of an endpoint, an action that passes it, and the ARN that this is for."""
    for endpoint in of_kind(found, "AWS::EC2::VPCEndpoint").values():
        service = endpoint["ServiceName"].rpartition("amazonaws.")[2].partition(".")[2]
        for statement in endpoint["PolicyDocument"]["Statement"]:
            assert statement["Effect"] == "Allow"
            assert statement["Principal"] == {"AWS": "*"}
            for action in _each(statement["Action"]):
                for resource in _each(statement["Resource"]):
                    yield service.partition(".")[0], action, resource


@pytest.fixture(params=["prod", "full", REDRIVEN, BUNDLED])
def case(
    request: pytest.FixtureRequest,
    by_environment: Mapping[str, list[Resource]],
    edited_stacks: Mapping[str, StackTemplates],
) -> tuple[list[Resource], Environment]:
    """Return the resources of an environment in a new network, and its declaration."""
    if request.param in EDITED:
        return resources(edited_stacks[request.param]), EDITED[request.param]
    return by_environment[request.param], {**ENVIRONMENTS, "full": FULL}[request.param]


def test_every_call_passes_its_endpoint_and_nothing_passes_that_nobody_calls(
    case: tuple[list[Resource], Environment],
) -> None:
    """The calls include a pull of another account's image, a dead letter sent back, and a bundle's dead event."""
    found, environment = case
    calls, passing = _calls(found, environment), set(_let_through(found))

    blocked = [
        (action, arn)
        for action, arn in sorted(calls)
        if not any(action == name and fnmatchcase(arn, pattern) for _, name, pattern in passing)
    ]
    unused = [
        (action, pattern)
        for service, action, pattern in sorted(passing)
        if service != "s3" and not any(action == name and fnmatchcase(arn, pattern) for name, arn in calls)
    ]
    assert blocked == []
    assert unused == []
    assert all(service == action.partition(":")[0] for service, action, _ in passing)


def test_actions_of_tasks_have_an_endpoint(edited_stacks: Mapping[str, StackTemplates]) -> None:
    """The list is written by hand: a new call needs an endpoint, which costs money, or cannot leave the network."""
    found = resources(edited_stacks[REDRIVEN])

    called: dict[str, set[str]] = {}
    for service, action, _ in _let_through(found):
        called.setdefault(service, set()).add(action)
    assert called == {
        "ecr": {*_PULL, "ecr:GetAuthorizationToken"},
        "logs": {"logs:CreateLogStream", "logs:PutLogEvents"},
        "s3": {"s3:GetObject"},
        "secretsmanager": {"secretsmanager:GetSecretValue"},
        "sns": {"sns:Publish", "sns:ListSubscriptionsByTopic", "sns:GetSubscriptionAttributes"},
        "sqs": {*_WORK_OFF, "sqs:SendMessage"},
    }


def test_layers_come_from_ecrs_own_bucket_of_the_region(full: list[Resource]) -> None:
    layers: list[Any] = [each for each in _let_through(full) if each[0] == "s3"]

    assert layers == [("s3", "s3:GetObject", "arn:aws:s3:::prod-eu-central-1-starport-layer-bucket/*")]
