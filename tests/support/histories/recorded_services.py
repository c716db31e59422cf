"""A service without Sluice, on the simulator: its recording by `record`, and the checker's findings."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from sluice.history.events import HistoryEvent
from sluice.judge.checker import Activity, Expectation, Finding, check_group, queue_context
from sluice.judge.counts import count, facts
from sluice.judge.reading.columns import Events
from sluice.recorder.journal import SCHEMA, SUFFIX, events_of, read_journal
from sluice.simulator.hook import Simulator

VISIBILITY_SECONDS, RECEIVES_MAX = 30, 3
QUEUE, DEAD, TOPIC = "billing.fifo", "billing-dead.fifo", "orders.fifo"
CUSTOMERS = ("ann", "bob", "cid")
_ROUNDS_MAX = 100


def queue_arn(sqs: Any, url: str) -> str:
    return str(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"])


def create_queue(sqs: Any, name: str, *, dead_letter_url: str | None = None) -> str:
    """Create a FIFO queue, for consumers if it has a dead-letter queue; return its URL."""
    attributes = {"FifoQueue": "true"}
    if dead_letter_url is not None:
        policy = {"deadLetterTargetArn": queue_arn(sqs, dead_letter_url), "maxReceiveCount": RECEIVES_MAX}
        attributes |= {"RedrivePolicy": json.dumps(policy), "VisibilityTimeout": str(VISIBILITY_SECONDS)}
    return str(sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"])


def subscribe(
    sns: Any, sqs: Any, *, topic_arn: str, url: str, is_raw: bool, attributes: Mapping[str, str] | None = None
) -> None:
    """Let the topic send to the queue, without an envelope if `is_raw`; attributes are further ones of Subscribe."""
    may_send = {
        "Effect": "Allow",
        "Principal": {"Service": "sns.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": queue_arn(sqs, url),
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": [may_send]})
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy})
    raw = {"RawMessageDelivery": "true"} if is_raw else {}
    raw |= attributes or {}
    sns.subscribe(TopicArn=topic_arn, Protocol="sqs", Endpoint=queue_arn(sqs, url), Attributes=raw)


class OrderService:
    """An order service with a topic, a queue and a dead-letter queue: its bodies, its ids.

    Args:
        is_raw: whether the queue gets bodies without an envelope.
    """

    def __init__(self, *, is_raw: bool = True) -> None:
        self.simulator = Simulator()
        self.sns, self.sqs = self.simulator.client("sns"), self.simulator.client("sqs")
        self.dead_url = create_queue(self.sqs, DEAD)
        self.url = create_queue(self.sqs, QUEUE, dead_letter_url=self.dead_url)
        attributes = {"FifoTopic": "true", "ContentBasedDeduplication": "true"}
        self.topic_arn = self.sns.create_topic(Name=TOPIC, Attributes=attributes)["TopicArn"]
        subscribe(self.sns, self.sqs, topic_arn=self.topic_arn, url=self.url, is_raw=is_raw)

    @property
    def clients(self) -> list[Any]:
        """Return the clients to record."""
        return [self.sns, self.sqs]

    def order(self, customer: str, number: int, *, deduplication_id: str | None = None) -> None:
        """Publish one order; without a deduplication id the topic takes the body's hash."""
        more = {} if deduplication_id is None else {"MessageDeduplicationId": deduplication_id}
        self.sns.publish(
            TopicArn=self.topic_arn,
            Message=json.dumps({"order": number, "customer": customer, "lines": ["a", "b"]}),
            MessageGroupId=customer,
            MessageAttributes={"type": {"DataType": "String", "StringValue": "placed"}},
            **more,
        )

    def trade(self, *, count: int = 10) -> None:
        """Let every customer order four times, one after the other, and bill every order, up to `count` per receive."""
        for number in range(4):
            for customer in CUSTOMERS:
                self.order(customer, number, deduplication_id=f"{customer}/{number}")
        self.bill(count=count)

    def receive(self, url: str | None = None, *, count: int = 10, requests: Sequence[str] = ("All",)) -> list[str]:
        """Return the receipt handles of one receive."""
        answer = self.sqs.receive_message(
            QueueUrl=self.url if url is None else url,
            MaxNumberOfMessages=count,
            WaitTimeSeconds=20,
            MessageSystemAttributeNames=list(requests),
            MessageAttributeNames=["All"],
        )
        return [message["ReceiptHandle"] for message in answer.get("Messages", [])]

    def bill(self, url: str | None = None, *, count: int = 10, requests: Sequence[str] = ("All",)) -> None:
        """Receive and delete until no message arrives for longer than any lease."""
        quiet_seconds = 0
        for _ in range(_ROUNDS_MAX):
            handles = self.receive(url, count=count, requests=requests)
            for handle in handles:
                self.sqs.delete_message(QueueUrl=self.url if url is None else url, ReceiptHandle=handle)
            quiet_seconds = 0 if handles else quiet_seconds + 20
            if quiet_seconds > VISIBILITY_SECONDS:
                return
        raise AssertionError(f"the queue was not empty after {_ROUNDS_MAX} receives")


def read_recording(folder: Path) -> list[HistoryEvent]:
    return [event for path in sorted(folder.glob(f"*{SUFFIX}")) for event in events_of(read_journal(path))]


def judge_groups(events: list[HistoryEvent], **more: Any) -> dict[str, Finding]:
    """Return the finding of each group of a recording."""
    expectation = Expectation(
        run=next(event.run for event in events),
        queues=(QUEUE,),
        visibility_timeout_seconds={QUEUE: VISIBILITY_SECONDS},
        dead_letter_queues={QUEUE: DEAD},
        max_receive_count={QUEUE: RECEIVES_MAX},
        is_planned=False,
        **more,
    )
    return findings(events, expectation)


def anomalies(found: dict[str, Finding]) -> set[str]:
    """Return the ids of all violations of all groups."""
    return {violation.anomaly for finding in found.values() for violation in finding.violations}


def doubts(found: dict[str, Finding]) -> Iterator[str]:
    """Yield the unknowns of all groups."""
    for finding in found.values():
        yield from finding.unknowns


def activity_of(events: Iterable[HistoryEvent]) -> Mapping[str, list[Activity]]:
    """Return the receives of each queue by second, as the judge counts them."""
    expectation = Expectation(run="", queues=(), visibility_timeout_seconds={})
    table = pa.Table.from_pylist([asdict(event) for event in events], schema=SCHEMA)
    return facts(count(Events(table), expectation), expectation).activity


def findings(events: Iterable[HistoryEvent], expectation: Expectation) -> dict[str, Finding]:
    """Return the checker's finding for each group."""
    of_group: dict[str | None, list[HistoryEvent]] = defaultdict(list)
    for event in events:
        of_group[event.message_group_id].append(event)
    ungrouped = of_group.pop(None, [])
    around = queue_context(ungrouped, queues=expectation.queues, dead_letter_queues=expectation.dead_letter_queues)
    around = replace(around, activity=activity_of(ungrouped))
    return {group: check_group(its, expectation, around) for group, its in of_group.items() if group is not None}
