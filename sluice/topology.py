"""An environment's topic, queues, DLQs and subscriptions, made by calls, as the stacks would make them.

For endpoints that CloudFormation does not reach: the simulator, and whatever answers like SQS and SNS.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sluice.declaration import Consumer, Environment, naming
from sluice.declaration.arguments import check_argument_types
from sluice.limits import FIFO_SUFFIX

_HIGH_THROUGHPUT = {
    "FifoQueue": "true",
    "DeduplicationScope": "messageGroup",
    "FifoThroughputLimit": "perMessageGroupId",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The resources that were made; queue URLs by name of the consumer.

    Args:
        topic_arn: of the first topic.
        queues: what its workers receive from.
        dead_letter_queues: what its workers could not handle.
        undelivered_queues: what SNS could not deliver.
    """

    topic_arn: str
    queues: Mapping[str, str]
    dead_letter_queues: Mapping[str, str]
    undelivered_queues: Mapping[str, str]


@check_argument_types
def deploy(environment: Environment, *, sqs: Any, sns: Any, visibility_timeout_seconds: int | None = None) -> Topology:
    """Make an environment's topics and, for each consumer, its queue, both DLQs and the subscription with its filter.

    Safe to repeat: what is there is changed to what is declared. Keys, alarms and services are not made; what is not
    declared any more is left.

    Args:
        environment: as it is declared.
        sqs: a client.
        sns: a client of the same account.
        visibility_timeout_seconds: of all queues; None is as each consumer declares it.
    """
    size = {"MaximumMessageSize": str(environment.event_bytes_max)}
    arns = {topic.name: _topic(sns, naming.topic_name(environment, topic.name), size) for topic in environment.topics}
    queues, dead, undelivered = {}, {}, {}
    for consumer in environment.consumers:
        topic_arn = arns[environment.topic(consumer.topic).name]
        retention = {"MessageRetentionPeriod": str(consumer.dead_letter_retention_seconds)}
        dead_name = naming.dead_letter_queue_name(environment, consumer)
        undelivered_name = naming.undelivered_queue_name(environment, consumer)
        dead_url, dead_arn = _queue(sqs, dead_name, retention)
        undelivered_url, undelivered_arn = _queue(sqs, undelivered_name, retention | _letting(topic_arn))
        seconds = consumer.visibility_timeout_seconds
        seconds = seconds if visibility_timeout_seconds is None else visibility_timeout_seconds
        redrive = {"deadLetterTargetArn": dead_arn, "maxReceiveCount": environment.max_receive_count(consumer)}
        attributes = {
            "MessageRetentionPeriod": str(consumer.message_retention_seconds),
            "RedrivePolicy": json.dumps(redrive),
            "VisibilityTimeout": str(seconds),
            **size,
        }
        url, arn = _queue(sqs, naming.queue_name(environment, consumer), attributes | _letting(topic_arn))
        _subscribe(sns, topic_arn, arn, _subscription(consumer, undelivered_arn))
        queues[consumer.name], dead[consumer.name], undelivered[consumer.name] = url, dead_url, undelivered_url
    return Topology(
        topic_arn=arns[environment.topics[0].name],
        queues=queues,
        dead_letter_queues=dead,
        undelivered_queues=undelivered,
    )


def _topic(sns: Any, name: str, attributes: Mapping[str, str]) -> str:
    """Make a topic, or give the one of that name these attributes; return its ARN."""
    try:
        return str(sns.create_topic(Name=name, Attributes={"FifoTopic": "true", **attributes})["TopicArn"])
    except sns.exceptions.InvalidParameterException:  # it is there, with others
        pages = sns.get_paginator("list_topics").paginate()
        arns = (topic["TopicArn"] for page in pages for topic in page["Topics"])
        arn = next((arn for arn in arns if arn.rpartition(":")[2] == name), None)
        if arn is None:
            raise
        for key, value in attributes.items():
            sns.set_topic_attributes(TopicArn=arn, AttributeName=key, AttributeValue=value)
        return str(arn)


def _queue(sqs: Any, name: str, attributes: Mapping[str, str]) -> tuple[str, str]:
    """Make a queue, FIFO where its name says so, or give the one of that name these attributes; return URL and ARN."""
    fifo = _HIGH_THROUGHPUT if name.endswith(FIFO_SUFFIX) else {}
    try:
        url = str(sqs.get_queue_url(QueueName=name)["QueueUrl"])
    except sqs.exceptions.QueueDoesNotExist:
        url = str(sqs.create_queue(QueueName=name, Attributes={**fifo, **attributes})["QueueUrl"])
    else:
        changed = {key: value for key, value in {**fifo, **attributes}.items() if key != "FifoQueue"}
        sqs.set_queue_attributes(QueueUrl=url, Attributes=changed)
    answer = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    return url, str(answer["Attributes"]["QueueArn"])


def _subscribe(sns: Any, topic_arn: str, queue_arn: str, attributes: Mapping[str, str]) -> None:
    """Subscribe a queue to a topic, or give its subscription these attributes."""
    pages = sns.get_paginator("list_subscriptions_by_topic").paginate(TopicArn=topic_arn)
    subscriptions = (each for page in pages for each in page["Subscriptions"])
    arn = next((each["SubscriptionArn"] for each in subscriptions if each["Endpoint"] == queue_arn), None)
    if arn is None:
        sns.subscribe(TopicArn=topic_arn, Protocol="sqs", Endpoint=queue_arn, Attributes=dict(attributes))
        return
    live = sns.get_subscription_attributes(SubscriptionArn=arn)["Attributes"]
    if "FilterPolicy" in live and "FilterPolicy" not in attributes:
        # Without a filter SNS delivers everything; a filter is taken away by an empty one.
        attributes = {"FilterPolicy": "{}", **attributes}
    for key, value in attributes.items():
        if live.get(key) != value:
            sns.set_subscription_attributes(SubscriptionArn=arn, AttributeName=key, AttributeValue=value)


def _subscription(consumer: Consumer, undelivered_arn: str) -> dict[str, str]:
    """Return the attributes of a consumer's subscription: raw delivery, its filter policy, and the DLQ."""
    policy = consumer.filter_policy
    filtered = {} if policy is None else {"FilterPolicy": json.dumps(policy)}
    redrive = json.dumps({"deadLetterTargetArn": undelivered_arn})
    return {"RawMessageDelivery": "true", "RedrivePolicy": redrive, **filtered}


def _letting(topic_arn: str) -> dict[str, str]:
    """Return the attribute of a queue whose policy lets the topic send to it."""
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": "sns.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": "*",  # of a queue's policy: this queue
        "Condition": {"ArnEquals": {"aws:SourceArn": topic_arn}},
    }
    return {"Policy": json.dumps({"Statement": [statement]})}
