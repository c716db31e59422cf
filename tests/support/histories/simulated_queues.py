"""Queues and subscriptions of the simulator, and what the checker says of what happened there."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

import pyarrow as pa

from sluice.history.events import Event
from sluice.judge.checker import Activity, Expectation, Finding, check_group, queue_context
from sluice.judge.counts import count, facts
from sluice.judge.reading.columns import Events
from sluice.recorder.journal import SCHEMA

VISIBILITY_SECONDS, RECEIVES_MAX = 30, 3


def queue_arn(sqs: Any, url: str) -> str:
    return str(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"])


def create_queue(sqs: Any, name: str, *, dead_letter_url: str | None = None) -> str:
    """Create a FIFO queue, for consumers if it has a dead-letter queue; return its URL."""
    attributes = {"FifoQueue": "true"}
    if dead_letter_url is not None:
        policy = {"deadLetterTargetArn": queue_arn(sqs, dead_letter_url), "maxReceiveCount": RECEIVES_MAX}
        attributes |= {"RedrivePolicy": json.dumps(policy), "VisibilityTimeout": str(VISIBILITY_SECONDS)}
    return str(sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"])


def subscribe(sns: Any, sqs: Any, *, topic_arn: str, url: str, is_raw: bool) -> None:
    """Let the topic send to the queue, without an envelope if `is_raw`."""
    may_send = {
        "Effect": "Allow",
        "Principal": {"Service": "sns.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": queue_arn(sqs, url),
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": [may_send]})
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy})
    raw = {"RawMessageDelivery": "true"} if is_raw else {}
    sns.subscribe(TopicArn=topic_arn, Protocol="sqs", Endpoint=queue_arn(sqs, url), Attributes=raw)


def activity_of(events: Iterable[Event]) -> Mapping[str, list[Activity]]:
    """Return the receives asked of each queue, as the judge counts them."""
    expectation = Expectation(run="", queues=(), visibility_timeout_seconds={})
    table = pa.Table.from_pylist([asdict(event) for event in events], schema=SCHEMA)
    return facts(count(Events(table), expectation), expectation).activity


def findings(events: Iterable[Event], expectation: Expectation) -> dict[str, Finding]:
    """Return what the checker says of each group."""
    of_group: dict[str | None, list[Event]] = defaultdict(list)
    for event in events:
        of_group[event.message_group_id].append(event)
    ungrouped = of_group.pop(None, [])
    around = queue_context(ungrouped, queues=expectation.queues, dead_letter_queues=expectation.dead_letter_queues)
    around = replace(around, activity=activity_of(ungrouped))
    return {group: check_group(its, expectation, around) for group, its in of_group.items() if group is not None}
