"""Somebody else's order service: customers place orders, an invoice is written for each. It knows nothing of Sluice."""

import json
import uuid
from collections.abc import Iterator
from typing import Any

TOPIC, QUEUE = "shop-orders.fifo", "shop-invoices.fifo"
_VISIBILITY_SECONDS = 30
_WAIT_SECONDS = 2
_ANSWER_LOST_EVERY = 5


def set_up(sns: Any, sqs: Any) -> tuple[str, str]:
    """Create topic and queue where they are missing; return the topic's ARN and the queue's URL."""
    topic_arn = sns.create_topic(Name=TOPIC, Attributes={"FifoTopic": "true"})["TopicArn"]
    attributes = {"FifoQueue": "true", "VisibilityTimeout": str(_VISIBILITY_SECONDS)}
    url = sqs.create_queue(QueueName=QUEUE, Attributes=attributes)["QueueUrl"]
    queue_arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    may_send = {
        "Effect": "Allow",
        "Principal": {"Service": "sns.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": queue_arn,
        "Condition": {"ArnEquals": {"aws:SourceArn": topic_arn}},
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": [may_send]})
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy})
    sns.subscribe(TopicArn=topic_arn, Protocol="sqs", Endpoint=queue_arn, Attributes={"RawMessageDelivery": "true"})
    return topic_arn, url


def order_id(body: str) -> str:
    """Return what tells an order from every other."""
    return str(json.loads(body)["order_id"])


def place_orders(sns: Any, topic_arn: str, *, customer_count: int, order_count: int, retries_anew: bool) -> int:
    """Publish every customer's orders, in their order; return how many orders there were.

    Now and then an answer is lost on the way, and the order is published again.

    Args:
        sns: a client.
        topic_arn: where.
        customer_count: how many customers.
        order_count: of each customer.
        retries_anew: whether a repeat gets a deduplication id of its own, which is the mistake to be found.
    """
    count = 0
    for number in range(order_count):
        for customer in range(customer_count):
            order = {"order_id": str(uuid.uuid4()), "customer": f"customer-{customer}", "total_cents": 100 * number}
            count += 1
            for attempt in range(2 if count % _ANSWER_LOST_EVERY == 0 else 1):
                sns.publish(
                    TopicArn=topic_arn,
                    Message=json.dumps(order),
                    MessageGroupId=order["customer"],
                    MessageDeduplicationId=f"{order['order_id']}-{attempt}" if retries_anew else order["order_id"],
                )
    return count


def invoices(sqs: Any, url: str) -> Iterator[str]:
    """Yield the id of every order an invoice is written for, until no order comes any more."""
    while True:
        answer = sqs.receive_message(
            QueueUrl=url,
            MaxNumberOfMessages=10,
            WaitTimeSeconds=_WAIT_SECONDS,
            MessageSystemAttributeNames=["All"],
        )
        if not answer.get("Messages"):
            return
        for message in answer["Messages"]:
            yield order_id(message["Body"])
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
