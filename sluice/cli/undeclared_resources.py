"""An `Environment` for a relay's topic or a worker's queue that no `environments.py` declares, read from live SQS.

AWS: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_GetQueueAttributes.html
(read 2026-11-21).
"""

import json
import os
from collections.abc import Mapping
from typing import Any

from sluice import limits
from sluice.declaration import Consumer, Environment, is_declared, task_settings
from sluice.declaration.fields.existing import ExistingQueue
from sluice.declaration.fields.topics import ExistingTopic, Topic
from sluice.endpoint import checked_url
from sluice.errors import ConfigError


def environment_of(name: str, options: Mapping[str, Any]) -> Environment | None:
    """Return an environment with the topic or the queue that the options name.

    Args:
        name: the name that the environment gets.
        options: the options of `sluice relay` or `sluice worker`, by name.

    Returns:
        None where there is a declaration, or where the options name neither topic nor queue.

    Raises:
        ConfigError: the queue has no DLQ, or no consumer is named, or a worker could not keep its promises there.
        TransientError, EndpointError: the queue's attributes could not be read.
    """
    if is_declared() or task_settings.VARIABLE in os.environ:
        return None
    if options.get("topic_arn"):
        return _environment_of_topic(name, options["topic_arn"].strip())
    if options.get("queue_url"):
        return _environment_of_queue(name, options)
    return None


def _environment_of_topic(name: str, arn: str) -> Environment:
    """Return an environment with this topic, for a relay.

    Its consumers are not known. One with all defaults stands for them: for as long as its inbox keeps a group, the
    relay keeps the group's counter.
    """
    topic = ExistingTopic(arn=arn, relay=True)
    return Environment(name=name, region=arn.split(":")[3], topics=(topic,), consumers=(Consumer(name="undeclared"),))


def _environment_of_queue(name: str, options: Mapping[str, Any]) -> Environment:
    """Return an environment with one consumer whose values are the live attributes of the queue, for a worker."""
    import boto3

    from sluice import sdk
    from sluice.messaging.sqs.queue import Queue

    if not options.get("consumer_name"):
        raise ConfigError("no consumer is named, allowed is a name by which its inbox remembers; give --consumer")
    endpoint = options.get("endpoint_url")
    session = boto3.session.Session()
    sqs = session.client(
        "sqs",
        region_name=session.region_name or "us-east-1",
        endpoint_url=None if endpoint is None else checked_url(endpoint),
        config=sdk.config(),
    )
    url = options["queue_url"].strip()
    live = Queue(sqs, url).attributes()
    if "RedrivePolicy" not in live:
        raise ConfigError(
            f"queue {url} has no RedrivePolicy, allowed is one with a DLQ, or a poison message comes for ever"
        )
    redrive, arn = json.loads(live["RedrivePolicy"]), live["QueueArn"]
    receives_max = int(redrive["maxReceiveCount"])
    max_attempts = _max_attempts(url, receives_max, options.get("max_attempts"))
    retention_seconds = int(live["MessageRetentionPeriod"])
    consumer = Consumer(
        name=options["consumer_name"],
        handlers=options.get("module"),
        fifo=live.get("FifoQueue") == "true",
        queue=ExistingQueue(arn=arn, dead_letter_queue_arn=redrive["deadLetterTargetArn"]),
        visibility_timeout_seconds=int(live["VisibilityTimeout"]),
        max_attempts=max_attempts,
        message_retention_seconds=retention_seconds,
    )
    region, account = arn.split(":")[3:5]
    # Which events a message may have is not known: two stand for several.
    topics = (Topic(bundle_events_max=1 if max_attempts == receives_max else 2),)
    return Environment(name=name, region=region, account=account, topics=topics, consumers=(consumer,))


def _max_attempts(url: str, receives_max: int, given: int | None) -> int:
    """Return the most attempts at a message: each receive is one, unless the queue has SQS's most receives.

    Raises:
        ConfigError: the queue has these, and `given` is None; or it has fewer, and other attempts are given.
    """
    if receives_max == limits.MAX_RECEIVE_COUNT_MAX and given is None:
        raise ConfigError(
            f"the maxReceiveCount of queue {url} is {receives_max}, which is that of bundles of events and no number of"
            " attempts, allowed is one with --max-attempts"
        )
    if receives_max < limits.MAX_RECEIVE_COUNT_MAX and given not in (None, receives_max):
        raise ConfigError(
            f"--max-attempts is {given}, allowed is {receives_max}, the maxReceiveCount of queue {url}: SQS moves a"
            " message to the DLQ after these receives; leave it out"
        )
    return receives_max if given is None else given
