"""`sluice outbox bundles on` looks at functions and subscriptions; whatever it cannot read keeps bundles off."""

import json
from dataclasses import replace

import pytest

from sluice import topology
from sluice.cli.bundles import find_obstacles
from sluice.declaration import Consumer, Environment, Lambda, Topic, naming, task_settings
from sluice.simulator.hook import Simulator

_BILLING = Consumer(
    name="billing", handlers="their.billing", visibility_timeout_seconds=180, runtime=Lambda(timeout_seconds=30)
)
DECLARED = Environment(name="shop", topics=(Topic(bundle_events_max=10),), consumers=(_BILLING,))
FUNCTION = naming.function_name(DECLARED, _BILLING)


@pytest.fixture
def aws() -> Simulator:
    """Return an account in which the declared queues are deployed, and the function is not."""
    aws = Simulator()
    topology.deploy(DECLARED, sqs=aws.client("sqs"), sns=aws.client("sns"))
    return aws


def _deploy_function(aws: Simulator, variables: dict[str, str] | None) -> None:
    more = {} if variables is None else {"Environment": {"Variables": variables}}
    role = "arn:aws:iam::000000000000:role/r"
    aws.client("lambda").create_function(FunctionName=FUNCTION, Role=role, Code={}, Timeout=30, **more)


def _settings(environment: Environment) -> dict[str, str]:
    written = task_settings.render(task_settings.task_environment(environment, environment.consumers[0]))
    return {task_settings.VARIABLE: written}


def _obstacles(aws: Simulator, declared: Environment = DECLARED) -> list[str]:
    return list(find_obstacles(declared, *(aws.client(name) for name in ("sqs", "sns", "lambda"))))


def test_a_function_that_knows_the_declared_number_is_no_obstacle(aws: Simulator) -> None:
    """Its settings are in a variable that the stacks write."""
    _deploy_function(aws, _settings(DECLARED))

    assert _obstacles(aws) == []


@pytest.mark.parametrize("variables", [_settings(replace(DECLARED, topics=(Topic(),))), {}, None])
def test_a_function_of_other_settings_is_an_obstacle(aws: Simulator, variables: dict[str, str] | None) -> None:
    """It was not deployed since, or has no settings at all; its queue looks the same either way."""
    _deploy_function(aws, variables)

    (obstacle,) = _obstacles(aws)

    assert obstacle.startswith(f"{FUNCTION}: ")
    assert "allowed is bundle_events_max 10" in obstacle


def test_a_function_that_cannot_be_read_is_an_obstacle(aws: Simulator) -> None:
    """Unknown is 1."""
    (obstacle,) = _obstacles(aws)

    assert obstacle.startswith(f"{FUNCTION}: ")
    assert "ResourceNotFoundException" in obstacle


@pytest.mark.parametrize(("scope", "obstacle_count"), [("MessageBody", 1), ("MessageAttributes", 0)])
def test_a_filter_on_the_body_is_an_obstacle(aws: Simulator, scope: str, obstacle_count: int) -> None:
    """A bundle has another body than its events, so SNS would drop it without a trace."""
    _deploy_function(aws, _settings(DECLARED))
    sqs, sns = aws.client("sqs"), aws.client("sns")
    url = sqs.create_queue(QueueName="theirs.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    topic_arn = naming.topic_arn(DECLARED, "000000000000")
    filtered = {"FilterPolicy": json.dumps({"type": ["order.placed"]}), "FilterPolicyScope": scope}
    sns.subscribe(TopicArn=topic_arn, Protocol="sqs", Endpoint=arn, Attributes=filtered)
    declared = replace(DECLARED, topics=(Topic(bundle_events_max=10, foreign_subscribers_read_bundles=True),))

    found = _obstacles(aws, declared)

    assert len(found) == obstacle_count
    assert all("theirs.fifo" in obstacle for obstacle in found)
