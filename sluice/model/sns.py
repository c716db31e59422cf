"""The operations of SNS that fan out to queues."""

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from sluice import limits
from sluice.model.message import Message, check_id, size_bytes
from sluice.model.queue import Queue
from sluice.model.refusal import Refusal, sns_invalid
from sluice.model.sqs import Answer, Params, Sqs
from sluice.model.topic import Published, Subscription, Topic, check_attribute, check_topic

_ENTRIES_MAX = 10
_PAGE = 100
_ARN_PARTS = 6
_SUBSCRIPTION_ATTRIBUTES = (
    *("RawMessageDelivery", "FilterPolicy", "FilterPolicyScope", "RedrivePolicy", "DeliveryPolicy"),
    *("ReplayPolicy", "SubscriptionRoleArn"),
)
_NO_GROUP = "The MessageGroupId parameter is required for FIFO topics"
_NO_ID = "The topic should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly"


class Sns:
    """All topics of one account and region.

    Args:
        sqs: where subscribed queues are.
        arn_prefix: what topic ARNs begin with.
        new_id: makes message and subscription ids.
    """

    def __init__(self, sqs: Sqs, *, arn_prefix: str, new_id: Callable[[], str]) -> None:
        self._sqs, self._arn_prefix, self._new_id = sqs, arn_prefix, new_id
        self.topics: dict[str, Topic] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self._operations: dict[str, Callable[[Params, float], Answer]] = {
            "CreateTopic": self._create_topic,
            "DeleteTopic": self._delete_topic,
            "ListTopics": self._list_topics,
            "GetTopicAttributes": self._get_topic_attributes,
            "SetTopicAttributes": self._set_topic_attributes,
            "Subscribe": self._subscribe,
            "Unsubscribe": self._unsubscribe,
            "ListSubscriptions": self._list_subscriptions,
            "ListSubscriptionsByTopic": self._list_subscriptions_by_topic,
            "GetSubscriptionAttributes": self._get_subscription_attributes,
            "SetSubscriptionAttributes": self._set_subscription_attributes,
            "Publish": self._publish,
            "PublishBatch": self._publish_batch,
            "TagResource": self._tag_resource,
            "UntagResource": self._untag_resource,
            "ListTagsForResource": self._list_tags_for_resource,
        }

    def call(self, operation: str, params: Params, now: float) -> Answer:
        """Answer one call.

        Raises:
            Refusal: AWS would refuse it, or the operation is not modelled.
        """
        if operation not in self._operations:
            raise Refusal("UnsupportedOperation", f"{operation} is not modelled.")
        self._sqs.settle(now)
        return self._operations[operation](params, now)

    def _topic(self, arn: str) -> Topic:
        parts = len(arn.split(":"))
        if parts < _ARN_PARTS:  # [ERR-05]
            raise sns_invalid(f"TopicArn Reason: An ARN must have at least 6 elements, not {parts}")
        topic = self.topics.get(arn)
        if topic is None:
            raise Refusal("NotFound", "Topic does not exist", status=404)
        return topic

    def _subscription(self, arn: str) -> Subscription:
        subscription = self.subscriptions.get(arn)
        if subscription is None:
            raise Refusal("NotFound", "Subscription does not exist", status=404)
        return subscription

    def subscriptions_of(self, topic: Topic) -> list[Subscription]:
        """Return who is subscribed to a topic, in the order they did."""
        return [subscription for subscription in self.subscriptions.values() if subscription.topic_arn == topic.arn]

    def _create_topic(self, params: Params, now: float) -> Answer:
        del now
        name, given = params["Name"], dict(params.get("Attributes", {}))
        check_topic(name, given)
        if given.get("FifoTopic") == "true":
            given = {"ContentBasedDeduplication": "false"} | given
        existing = self.topics.get(self._arn_prefix + name)
        if existing is not None and any(existing.attributes.get(key) != value for key, value in given.items()):
            raise sns_invalid("Attributes Reason: Topic already exists with different attributes")
        topic = existing or Topic(self._arn_prefix + name, given)
        self.topics[topic.arn] = topic
        topic.tags.update({tag["Key"]: tag["Value"] for tag in params.get("Tags", [])})
        return {"TopicArn": topic.arn}

    def _delete_topic(self, params: Params, now: float) -> Answer:
        """Delete a topic and its subscriptions; again is no error."""
        del now
        topic = self.topics.get(params["TopicArn"])
        if topic is not None and topic.attributes.get("ArchivePolicy") not in (None, "", "{}"):  # [SNS-40]
            raise sns_invalid("Topic has an archive policy; remove it before deleting the topic")
        if topic is not None:
            del self.topics[topic.arn]
            for subscription in self.subscriptions_of(topic):
                del self.subscriptions[subscription.arn]
        return {}

    def _list_topics(self, params: Params, now: float) -> Answer:
        del now
        return _page("Topics", [{"TopicArn": arn} for arn in self.topics], params)

    def _get_topic_attributes(self, params: Params, now: float) -> Answer:
        del now
        topic = self._topic(params["TopicArn"])
        known = {
            "TopicArn": topic.arn,
            "Owner": topic.arn.split(":")[4],
            "DisplayName": "",
            "SubscriptionsConfirmed": str(len(self.subscriptions_of(topic))),
            "SubscriptionsPending": "0",
            "SubscriptionsDeleted": str(topic.deleted_subscriptions),
        }
        return {"Attributes": known | topic.attributes}

    def _set_topic_attributes(self, params: Params, now: float) -> Answer:
        del now
        topic = self._topic(params["TopicArn"])
        name, value = params["AttributeName"], params.get("AttributeValue", "")
        check_attribute(name, value, is_fifo=topic.is_fifo)
        if name == "FifoThroughputScope" and topic.attributes.get(name) == "MessageGroup" and value != "MessageGroup":
            raise sns_invalid("FifoThroughputScope cannot be changed from MessageGroup")  # [SNS-39], text not recorded
        topic.attributes[name] = value
        return {}

    def _subscribe(self, params: Params, now: float) -> Answer:
        """Subscribe a queue; the same again returns the same [SNS-36]."""
        del now
        topic, endpoint = self._topic(params["TopicArn"]), params.get("Endpoint", "")
        self._check_endpoint(topic, params["Protocol"], endpoint)
        attributes = dict(params.get("Attributes", {}))
        for name, value in attributes.items():
            self._check_subscription_attribute(topic, name, value)
        for existing in self.subscriptions_of(topic):
            if existing.endpoint == endpoint:
                if any(existing.attributes.get(name) != value for name, value in attributes.items()):
                    raise sns_invalid("Attributes Reason: Subscription already exists with different attributes")
                return {"SubscriptionArn": existing.arn}
        arn = f"{topic.arn}:{self._new_id()}"
        self.subscriptions[arn] = Subscription(arn=arn, topic_arn=topic.arn, endpoint=endpoint, attributes=attributes)
        return {"SubscriptionArn": arn}

    @staticmethod
    def _check_endpoint(topic: Topic, protocol: str, endpoint: str) -> None:
        if protocol != "sqs":
            reason = "Invalid protocol type: " if topic.is_fifo else "this model delivers to sqs only, not to "
            raise sns_invalid(reason + protocol)  # [SNS-07]
        if not re.fullmatch(r"arn:[\w-]+:sqs:[\w-]+:\d{12}:[\w.-]+", endpoint):
            raise sns_invalid("SQS endpoint ARN")  # [SNS-35]
        if endpoint.endswith(limits.FIFO_SUFFIX) and not topic.is_fifo:  # [SNS-05]; the other way is allowed [SNS-06]
            raise sns_invalid(
                "Invalid parameter: Endpoint Reason: FIFO SQS Queues can not be subscribed to standard SNS topics"
            )

    @staticmethod
    def _check_subscription_attribute(topic: Topic, name: str, value: str) -> None:
        if name not in _SUBSCRIPTION_ATTRIBUTES:
            raise sns_invalid("AttributeName")
        if name == "RedrivePolicy" and value:
            target = str(json.loads(value).get("deadLetterTargetArn"))
            if topic.is_fifo and not target.endswith(limits.FIFO_SUFFIX):  # [SNS-08]
                raise sns_invalid(
                    "RedrivePolicy: must use a FIFO queue as DLQ for a FIFO Subscription to a FIFO Topic."
                )

    def _unsubscribe(self, params: Params, now: float) -> Answer:
        del now
        subscription = self.subscriptions.pop(params["SubscriptionArn"], None)
        if subscription is not None:
            self.topics[subscription.topic_arn].deleted_subscriptions += 1
        return {}

    def _list_subscriptions(self, params: Params, now: float) -> Answer:
        del now
        return _page("Subscriptions", [_listed(each) for each in self.subscriptions.values()], params)

    def _list_subscriptions_by_topic(self, params: Params, now: float) -> Answer:
        del now
        listed = [_listed(each) for each in self.subscriptions_of(self._topic(params["TopicArn"]))]
        return _page("Subscriptions", listed, params)

    def _get_subscription_attributes(self, params: Params, now: float) -> Answer:
        del now
        subscription = self._subscription(params["SubscriptionArn"])
        known = {
            "SubscriptionArn": subscription.arn,
            "TopicArn": subscription.topic_arn,
            "Protocol": "sqs",
            "Endpoint": subscription.endpoint,
            "Owner": subscription.arn.split(":")[4],
            "RawMessageDelivery": "false",
            "PendingConfirmation": "false",
            "ConfirmationWasAuthenticated": "true",
        }
        scope = {"FilterPolicyScope": "MessageAttributes"} if subscription.attributes.get("FilterPolicy") else {}
        return {"Attributes": known | scope | subscription.attributes}

    def _set_subscription_attributes(self, params: Params, now: float) -> Answer:
        del now
        subscription = self._subscription(params["SubscriptionArn"])
        name, value = params["AttributeName"], params.get("AttributeValue", "")
        self._check_subscription_attribute(self.topics[subscription.topic_arn], name, value)
        subscription.attributes[name] = value
        return {}

    def _publish(self, params: Params, now: float) -> Answer:
        topic = self._topic(params.get("TopicArn") or params.get("TargetArn", ""))  # [SNS-37]
        self._check_publish(topic, params)
        if _size_bytes(params) > topic.bytes_max():
            raise sns_invalid("Message too long")
        return self._fan_out(topic, params, now)

    @staticmethod
    def _check_publish(topic: Topic, entry: Params) -> None:
        """Refuse what a topic of this type cannot take [SNS-09, SNS-10, SNS-11, SNS-26]."""
        if not entry["Message"]:
            raise sns_invalid("Empty message")
        given = {name: entry[name] for name in ("MessageGroupId", "MessageDeduplicationId") if name in entry}
        if topic.is_fifo and "MessageGroupId" not in given:
            raise sns_invalid(_NO_GROUP)
        if topic.is_fifo and "MessageDeduplicationId" not in given and not topic.is_by_content():
            raise sns_invalid(_NO_ID)
        if not topic.is_fifo and "MessageDeduplicationId" in given:
            raise sns_invalid(
                "MessageDeduplicationId Reason: "
                "The request includes MessageDeduplicationId parameter that is not valid for this topic type"
            )
        for name, value in given.items():
            try:
                check_id(name, value)
            except Refusal as refusal:  # the rule is SQS's [LIM-07], text not recorded
                raise sns_invalid(f"{name} Reason: {refusal.text.partition('Reason: ')[2]}") from None

    def _fan_out(self, topic: Topic, entry: Params, now: float) -> Answer:
        """Deliver to every subscription, unless the topic remembers the id [SNS-18, SNS-19, SNS-20]."""
        if not topic.is_fifo:
            published = Published(self._new_id(), None, now)
            self._deliver_to_all(topic, entry, published, None, now)
            return {"MessageId": published.message_id}
        deduplication_id = topic.deduplication_id(entry["Message"], entry.get("MessageDeduplicationId"))
        key = topic.key(deduplication_id, entry["MessageGroupId"])
        first = topic.first(key, now)
        published = first or Published(self._new_id(), topic.next_sequence_number(), now)
        if first is None:
            topic.remember(key, published)
            self._deliver_to_all(topic, entry, published, deduplication_id, now)
        return {"MessageId": published.message_id, "SequenceNumber": published.sequence_number}

    def _deliver_to_all(
        self, topic: Topic, entry: Params, published: Published, deduplication_id: str | None, now: float
    ) -> None:
        for subscription in self.subscriptions_of(topic):
            if subscription.wants(entry["Message"], entry.get("MessageAttributes", {})):
                self._deliver(topic, subscription, entry, published, deduplication_id, now)

    def _deliver(
        self,
        topic: Topic,
        subscription: Subscription,
        entry: Params,
        published: Published,
        deduplication_id: str | None,
        now: float,
    ) -> None:
        """Put a copy into the queue, else into the subscription's DLQ [SNS-31, SNS-32], else nowhere [SNS-44]."""
        is_raw = subscription.is_raw()
        body = entry["Message"] if is_raw else _envelope(topic, entry, published)
        attributes = entry.get("MessageAttributes", {}) if is_raw else {}
        for arn in (subscription.endpoint, subscription.dead_letter_arn()):
            queue = self._sqs.queues.get(arn or "")
            if queue is None or not may_send(queue, topic.arn):
                continue
            if size_bytes({"MessageBody": body, "MessageAttributes": attributes}) > queue.seconds("MaximumMessageSize"):
                continue
            copy = Message(
                id=self._new_id(),
                body=body,
                number=0,
                sent_at=now,
                retained_from=now,
                visible_at=now,
                group=entry.get("MessageGroupId"),
                deduplication_id=deduplication_id if queue.is_fifo else None,
                attributes=attributes,
            )
            queue.send(copy, now)
            queue.settle(now)
            return

    def _publish_batch(self, params: Params, now: float) -> Answer:
        topic, entries = self._topic(params["TopicArn"]), params["PublishBatchRequestEntries"]
        _check_batch(entries)
        for entry in entries:
            self._check_publish(topic, entry)
        if sum(_size_bytes(entry) for entry in entries) > topic.bytes_max():  # [SNS-28]
            raise Refusal("BatchRequestTooLong", "The length of all the messages put together is more than the limit.")
        return {
            "Successful": [{"Id": entry["Id"]} | self._fan_out(topic, entry, now) for entry in entries],
            "Failed": [],
        }

    def _tag_resource(self, params: Params, now: float) -> Answer:
        del now
        self._topic(params["ResourceArn"]).tags.update({tag["Key"]: tag["Value"] for tag in params["Tags"]})
        return {}

    def _untag_resource(self, params: Params, now: float) -> Answer:
        del now
        topic = self._topic(params["ResourceArn"])
        topic.tags = {name: value for name, value in topic.tags.items() if name not in params["TagKeys"]}
        return {}

    def _list_tags_for_resource(self, params: Params, now: float) -> Answer:
        del now
        tags = self._topic(params["ResourceArn"]).tags
        return {"Tags": [{"Key": name, "Value": value} for name, value in tags.items()]}


def _check_batch(entries: list[Params]) -> None:
    """Refuse a batch as a whole [SNS-25, SNS-27]."""
    if not entries:
        raise Refusal("EmptyBatchRequest", "The batch request doesn't contain any entries.")
    if len(entries) > _ENTRIES_MAX:
        raise Refusal("TooManyEntriesInBatchRequest", "The batch request contains more entries than permissible.")
    ids = [entry["Id"] for entry in entries]
    if len(set(ids)) < len(ids):
        raise Refusal("BatchEntryIdsNotDistinct", "Two or more batch entries in the request have the same Id.")
    for id_ in ids:
        if len(id_) > 80:
            raise Refusal("InvalidBatchEntryId", f"The Id of a batch entry in the batch request is too long: {id_}")
        if not re.fullmatch(r"[A-Za-z0-9_-]+", id_):
            raise Refusal(
                "InvalidBatchEntryId",
                f"The Id of a batch entry in the batch request contains an impermissible character: {id_}",
            )


def _size_bytes(entry: Params) -> int:
    return size_bytes({"MessageBody": entry["Message"], "MessageAttributes": entry.get("MessageAttributes", {})})


def _listed(subscription: Subscription) -> Answer:
    return {
        "SubscriptionArn": subscription.arn,
        "Owner": subscription.arn.split(":")[4],
        "Protocol": "sqs",
        "Endpoint": subscription.endpoint,
        "TopicArn": subscription.topic_arn,
    }


def _page(key: str, items: list[Answer], params: Params) -> Answer:
    start = int(params.get("NextToken") or 0)
    more = {"NextToken": str(start + _PAGE)} if start + _PAGE < len(items) else {}
    return {key: items[start : start + _PAGE]} | more


def _envelope(topic: Topic, entry: Params, published: Published) -> str:
    """Return what a queue without raw delivery gets; FIFO topics do not sign it."""
    known = {
        "Type": "Notification",
        "MessageId": published.message_id,
        "SequenceNumber": published.sequence_number,
        "TopicArn": topic.arn,
        "Subject": entry.get("Subject"),
        "Message": entry["Message"],
        "Timestamp": datetime.fromtimestamp(published.at, UTC).isoformat(timespec="milliseconds")[:-6] + "Z",
        "UnsubscribeURL": "https://sns.us-east-1.amazonaws.com/?Action=Unsubscribe",
        "MessageAttributes": {
            name: {"Type": value["DataType"], "Value": value.get("StringValue", value.get("BinaryValue"))}
            for name, value in entry.get("MessageAttributes", {}).items()
        }
        or None,
    }
    return json.dumps({name: value for name, value in known.items() if value is not None})


def may_send(queue: Queue, topic_arn: str) -> bool:
    """Return whether the queue's policy lets the topic send: without one, publishing succeeds in vain [SNS-44].

    Reads what such policies are made of: Effect, the service principal, the action, and a condition on the source.
    """
    given = queue.attributes.get("Policy")
    statements = [] if given is None else json.loads(given)["Statement"]
    applying = [
        statement
        for statement in (statements if isinstance(statements, list) else [statements])
        if _is_about(statement, topic_arn)
    ]
    effects = {statement["Effect"] for statement in applying}
    return effects == {"Allow"}


def _is_about(statement: Mapping[str, Any], topic_arn: str) -> bool:
    principal = statement.get("Principal", "*")
    services = _list(principal.get("Service", principal.get("AWS"))) if isinstance(principal, Mapping) else [principal]
    actions = {action.lower() for action in _list(statement.get("Action", "*"))}
    if not {"*", "sns.amazonaws.com"} & set(services) or not {"*", "sqs:*", "sqs:sendmessage"} & actions:
        return False
    for comparison, wanted in statement.get("Condition", {}).items():
        for name, value in wanted.items():
            if not _holds(comparison, name, _list(value), topic_arn):
                return False
    return True


def _holds(comparison: str, name: str, values: list[str], topic_arn: str) -> bool:
    if name.lower() == "aws:securetransport":
        return values[0].lower() == "true"
    if name.lower() not in ("aws:sourcearn", "aws:sourceaccount"):
        return False
    seen = topic_arn if name.lower() == "aws:sourcearn" else topic_arn.split(":")[4]
    return any(re.fullmatch(re.escape(value).replace(r"\*", ".*"), seen) for value in values) != ("Not" in comparison)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
