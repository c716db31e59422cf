"""Delivery of published messages: to which queues, in which envelope, and whether the queue's policy allows it."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from sluice import limits
from sluice.simulator.model.message import QueuedMessage, size_bytes
from sluice.simulator.model.operation import AnswerFields, Params
from sluice.simulator.model.policies import PolicyDecision, PolicyRequest, decide
from sluice.simulator.model.queues.queue import SimulatedQueue
from sluice.simulator.model.topics.publishing import message_of
from sluice.simulator.model.topics.topic import ArchivedMessage, PublishResult, SimulatedTopic, Subscription


class Delivery:
    """Delivers published messages to the subscribers.

    Args:
        queues: the account's queues by ARN.
        subscriptions_of: returns the subscriptions of a topic.
        new_id: makes message ids.
    """

    def __init__(
        self,
        queues: Mapping[str, SimulatedQueue],
        subscriptions_of: Callable[[SimulatedTopic], list[Subscription]],
        new_id: Callable[[], str],
    ) -> None:
        self._queues, self._subscriptions_of, self._new_id = queues, subscriptions_of, new_id

    def fan_out(self, topic: SimulatedTopic, entry: Params, now: float) -> AnswerFields:
        """Deliver a publish to every subscription, and return its answer [SNS-18, SNS-19, SNS-20].

        A FIFO topic does not deliver a message again whose deduplication id it remembers: it repeats the answer.
        """
        if not topic.is_fifo:
            published = PublishResult(self._new_id(), None, now)
            self._deliver_to_all(topic, entry, published, None, now)
            return {"MessageId": published.message_id}
        deduplication_id = topic.deduplication_id(entry["Message"], entry.get("MessageDeduplicationId"))
        key = topic.deduplication_key(deduplication_id, entry["MessageGroupId"])
        first = topic.earlier_publish(key, now)
        published = first or PublishResult(self._new_id(), topic.next_sequence_number(), now)
        if first is None:
            topic.remember(key, published)
            topic.archive(ArchivedMessage(entry, published, deduplication_id))
            self._deliver_to_all(topic, entry, published, deduplication_id, now)
        return {"MessageId": published.message_id, "SequenceNumber": published.sequence_number}

    def replay(self, topic: SimulatedTopic, subscription: Subscription, now: float) -> None:
        """Deliver archived messages again to one subscription, as its replay policy asks [SNS-103, SNS-104]."""
        for archived in topic.messages_to_replay(subscription.replay_policy()):
            entry = {**archived.entry, "Replayed": True}
            if subscription.wants(entry["Message"], entry.get("MessageAttributes", {})):
                self._deliver(topic, subscription, entry, archived.published, archived.deduplication_id, now)

    def _deliver_to_all(
        self, topic: SimulatedTopic, entry: Params, published: PublishResult, deduplication_id: str | None, now: float
    ) -> None:
        for subscription in self._subscriptions_of(topic):
            if not subscription.is_paused(published.published_at) and subscription.wants(
                entry["Message"], entry.get("MessageAttributes", {})
            ):
                self._deliver(topic, subscription, entry, published, deduplication_id, now)

    def _deliver(
        self,
        topic: SimulatedTopic,
        subscription: Subscription,
        entry: Params,
        published: PublishResult,
        deduplication_id: str | None,
        now: float,
    ) -> None:
        """Put a copy into the queue, or, if that fails, into the subscription's DLQ [SNS-31, SNS-32].

        If the DLQ does not take it either, the message is lost, and the publisher is not told [SNS-44].
        """
        is_raw = subscription.is_raw()
        body = message_of(entry) if is_raw else envelope(topic, subscription, entry, published)
        attributes = entry.get("MessageAttributes", {}) if is_raw else {}
        for arn in (subscription.endpoint, subscription.dead_letter_arn()):
            queue = self._queues.get(arn or "")
            has_too_many_attributes = len(attributes) > limits.MESSAGE_ATTRIBUTES_MAX  # [SNS-83]
            if queue is None or has_too_many_attributes or not may_send(queue, topic.arn):
                continue
            if size_bytes({"MessageBody": body, "MessageAttributes": attributes}) > queue.seconds("MaximumMessageSize"):
                continue
            copy = QueuedMessage(
                id=self._new_id(),
                body=body,
                number=0,
                sent_at=now,
                retained_from=now,
                visible_at=now,
                group=_group_for(queue, topic, entry),
                deduplication_id=deduplication_id if queue.is_fifo else None,
                attributes=attributes,
            )
            queue.send(copy, now)
            queue.settle(now)
            return


def _group_for(queue: SimulatedQueue, topic: SimulatedTopic, entry: Params) -> str | None:
    """Return the group of a delivered copy; a FIFO topic gives no group to a standard queue, a standard topic does.

    Both were recorded from AWS.
    """
    return entry.get("MessageGroupId") if queue.is_fifo or not topic.is_fifo else None


def envelope(topic: SimulatedTopic, subscription: Subscription, entry: Params, published: PublishResult) -> str:
    """Return the JSON text that a queue without raw delivery gets; it has no signature, as on FIFO topics."""
    known = {
        "Type": "Notification",
        "MessageId": published.message_id,
        "SequenceNumber": published.sequence_number,
        "TopicArn": topic.arn,
        "Subject": entry.get("Subject"),
        "Message": message_of(entry),
        "Timestamp": datetime.fromtimestamp(published.published_at, UTC).isoformat(timespec="milliseconds")[:-6] + "Z",
        "UnsubscribeURL": f"https://sns.us-east-1.amazonaws.com/?Action=Unsubscribe&SubscriptionArn={subscription.arn}",
        "MessageAttributes": {
            name: {"Type": value["DataType"], "Value": value.get("StringValue", value.get("BinaryValue"))}
            for name, value in entry.get("MessageAttributes", {}).items()
        }
        or None,
        "Replayed": entry.get("Replayed"),
    }
    return json.dumps({name: value for name, value in known.items() if value is not None})


def may_send(queue: SimulatedQueue, topic_arn: str) -> bool:
    """Return whether the queue's policy allows the topic to send; without a policy, no topic may [SNS-44].

    A malformed policy, or one with an element that `policies` does not know, allows nobody.
    """
    context = {
        "aws:sourcearn": topic_arn,
        "aws:sourceaccount": topic_arn.split(":")[4],
        "aws:securetransport": "true",
    }
    request = PolicyRequest(
        principal="sns.amazonaws.com", action="sqs:SendMessage", resource=queue.arn, context=context
    )
    try:
        return decide(json.loads(queue.attributes.get("Policy", "{}")), request) is PolicyDecision.ALLOW
    except (ValueError, LookupError, AttributeError, TypeError):
        return False
