"""SNS of one account: its topics and subscriptions, and the table of all operations; it delivers to queues only."""

import json
import re
from collections.abc import Callable, Mapping

from sluice import limits
from sluice.simulator.model import permissions
from sluice.simulator.model.filter_policy import check_policy
from sluice.simulator.model.operation import AnswerFields, ModelOperation, Params, as_spelled
from sluice.simulator.model.queues.queue import SimulatedQueue
from sluice.simulator.model.refusal import AwsRefusal, sns_invalid
from sluice.simulator.model.topics.delivery import Delivery
from sluice.simulator.model.topics.publishing import check_batch, check_publish, publish_bytes
from sluice.simulator.model.topics.topic import (
    ACTIONS,
    BOOLEANS,
    SimulatedTopic,
    Subscription,
    check_attribute,
    check_redrive,
    check_replay,
    check_topic,
)

_PAGE = 100  # entries of a page of a listing
_PROTOCOLS = ("http", "https", "email", "email-json", "sms", "sqs", "application", "lambda", "firehose")
_ARN_PARTS = 6
_SUBSCRIPTION_READABLE_SECONDS = 1  # after its topic was deleted; AWS's own time is not recorded
_SUBSCRIPTION_ATTRIBUTES = (
    *("RawMessageDelivery", "FilterPolicy", "FilterPolicyScope", "RedrivePolicy", "DeliveryPolicy"),
    *("ReplayPolicy", "SubscriptionRoleArn"),
)


class Sns:
    """All topics of one account and region.

    Args:
        queues: the account's queues by ARN; the caller adds and removes queues later.
        arn_prefix: the beginning of topic ARNs.
        new_id: makes message and subscription ids.
    """

    def __init__(self, queues: Mapping[str, SimulatedQueue], *, arn_prefix: str, new_id: Callable[[], str]) -> None:
        self._arn_prefix, self._new_id = arn_prefix, new_id
        self.topics: dict[str, SimulatedTopic] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self._delivery = Delivery(queues, self.subscriptions_of, new_id)
        self.operations: Mapping[str, ModelOperation] = {
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
            "AddPermission": self._add_permission,
            "RemovePermission": self._remove_permission,
            "Publish": self._publish,
            "PublishBatch": self._publish_batch,
            "TagResource": self._tag_resource,
            "UntagResource": self._untag_resource,
            "ListTagsForResource": self._list_tags_for_resource,
        }

    def _check_topic_arn(self, arn: str) -> None:
        """Refuse a text that is no ARN [ERR-05, SNS-145], and a topic of another Region [SNS-143, SNS-144]."""
        _check_arn("TopicArn", arn)
        if arn.split(":")[3] != self._arn_prefix.split(":")[3]:
            raise sns_invalid("TopicArn")

    def _topic(self, arn: str) -> SimulatedTopic:
        self._check_topic_arn(arn)
        topic = self.topics.get(arn)
        if topic is None:
            raise AwsRefusal("NotFound", "Topic does not exist", status=404)
        return topic

    def _subscription(self, arn: str, now: float) -> Subscription:
        subscription = self.subscriptions.get(arn)
        if subscription is None or subscription.gone_at <= now:
            raise AwsRefusal("NotFound", "Subscription does not exist", status=404)
        return subscription

    def subscriptions_of(self, topic: SimulatedTopic) -> list[Subscription]:
        """Return the subscriptions of a topic, the oldest first."""
        return [each for each in self._living_subscriptions() if each.topic_arn == topic.arn]

    def _living_subscriptions(self) -> list[Subscription]:
        """Return all subscriptions whose topic was not deleted."""
        return [subscription for subscription in self.subscriptions.values() if not subscription.is_orphaned]

    def _create_topic(self, params: Params, now: float) -> AnswerFields:
        name, requested = params["Name"], as_spelled(params.get("Attributes", {}), BOOLEANS)
        check_topic(name, requested)
        if requested.get("FifoTopic") == "true":
            requested = {"ContentBasedDeduplication": "false"} | requested
        existing = self.topics.get(self._arn_prefix + name)
        if existing is not None and any(existing.attributes.get(key) != value for key, value in requested.items()):
            raise sns_invalid("Attributes Reason: Topic already exists with different attributes")
        tags = _tags(params.get("Tags", []))
        if existing is not None and any(existing.tags.get(key) != value for key, value in tags.items()):
            raise sns_invalid("Tags Reason: Topic already exists with different tags")
        topic = existing or SimulatedTopic(self._arn_prefix + name, requested)
        if existing is None and requested.get("ArchivePolicy"):
            topic.attributes["BeginningArchiveTime"] = str(now)
        self.topics[topic.arn] = topic
        topic.tags.update(tags)
        return {"TopicArn": topic.arn}

    def _delete_topic(self, params: Params, now: float) -> AnswerFields:
        """Delete a topic and its subscriptions; a topic that does not exist is no error [SNS-125].

        The subscriptions can still be read for a while.
        """
        self._check_topic_arn(params["TopicArn"])
        topic = self.topics.get(params["TopicArn"])
        if topic is not None and topic.has_archive():  # [SNS-41]
            raise AwsRefusal("InvalidState", "Invalid state: Cannot delete a topic with an ArchivePolicy")
        if topic is not None:
            del self.topics[topic.arn]
            for subscription in self.subscriptions_of(topic):
                subscription.is_orphaned, subscription.gone_at = True, now + _SUBSCRIPTION_READABLE_SECONDS
        return {}

    def _list_topics(self, params: Params, _: float) -> AnswerFields:
        return _page("Topics", [{"TopicArn": arn} for arn in self.topics], params)

    def _get_topic_attributes(self, params: Params, _: float) -> AnswerFields:
        topic = self._topic(params["TopicArn"])
        known = {
            "TopicArn": topic.arn,
            "Owner": topic.arn.split(":")[4],
            "DisplayName": "",
            "SubscriptionsConfirmed": str(len(self.subscriptions_of(topic))),
            "SubscriptionsPending": "0",
            "SubscriptionsDeleted": str(topic.deleted_subscriptions),
            "Policy": json.dumps(topic.policy()),
            "EffectiveDeliveryPolicy": json.dumps(topic.effective_delivery_policy()),
        }
        return {"Attributes": known | topic.attributes}

    def _set_topic_attributes(self, params: Params, _: float) -> AnswerFields:
        topic = self._topic(params["TopicArn"])
        name, value = _attribute(params)
        check_attribute(name, value, is_fifo=topic.is_fifo)
        if name == "FifoThroughputScope" and topic.attributes.get(name) == "MessageGroup" and value != "MessageGroup":
            raise sns_invalid("FifoThroughputScope cannot be changed from MessageGroup")  # [SNS-39], text not recorded
        topic.attributes[name] = value
        return {}

    def _subscribe(self, params: Params, now: float) -> AnswerFields:
        """Subscribe a queue; a repeated call returns the same subscription [SNS-36]."""
        topic, endpoint = self._topic(params["TopicArn"]), params.get("Endpoint", "")
        self._check_endpoint(topic, params["Protocol"], endpoint)
        attributes = as_spelled(params.get("Attributes", {}), BOOLEANS)
        for name, value in attributes.items():
            self._check_subscription_attribute(topic, name, value, attributes, at_once=True)
        for existing in self.subscriptions_of(topic):
            if existing.endpoint == endpoint:
                if any(existing.attributes.get(name) != value for name, value in attributes.items()):
                    raise sns_invalid("Attributes Reason: Subscription already exists with different attributes")
                return {"SubscriptionArn": existing.arn}
        arn = f"{topic.arn}:{self._new_id()}"
        subscription = Subscription(arn=arn, topic_arn=topic.arn, endpoint=endpoint, attributes=attributes)
        self.subscriptions[arn] = subscription
        self._delivery.replay(topic, subscription, now)
        return {"SubscriptionArn": arn}

    @staticmethod
    def _check_endpoint(topic: SimulatedTopic, protocol: str, endpoint: str) -> None:
        if protocol not in _PROTOCOLS:
            raise sns_invalid(f"Amazon SNS does not support this protocol string: {protocol}")
        if protocol != "sqs":
            reason = "Invalid protocol type: " if topic.is_fifo else "this model delivers to sqs only, not to "
            raise sns_invalid(reason + protocol)  # [SNS-07]
        if not re.fullmatch(r"arn:[\w-]+:sqs:[\w-]+:\d{12}:[\w.-]+", endpoint):
            raise sns_invalid("SQS endpoint ARN")  # [SNS-35]
        # A FIFO topic may have a standard queue [SNS-06]; a standard topic must not have a FIFO queue [SNS-05].
        if endpoint.endswith(limits.FIFO_SUFFIX) and not topic.is_fifo:
            raise sns_invalid(
                "Invalid parameter: Endpoint Reason: FIFO SQS Queues can not be subscribed to standard SNS topics"
            )

    @staticmethod
    def _check_subscription_attribute(
        topic: SimulatedTopic, name: str, value: str, others: Mapping[str, str], *, at_once: bool = False
    ) -> None:
        """Refuse an attribute of a subscription [SNS-61].

        Args:
            topic: of the subscription.
            name: of the attribute.
            value: of the attribute.
            others: all attributes of the subscription.
            at_once: whether the attribute comes with Subscribe, for which SNS's text begins differently.
        """
        reason = "Attributes Reason: " if at_once else ""
        if name not in _SUBSCRIPTION_ATTRIBUTES:
            raise sns_invalid("AttributeName")
        if name == "RawMessageDelivery" and value not in ("true", "false"):
            raise sns_invalid(f"{reason}{name}: Invalid value [{value}]. Must be true or false.")
        if name == "FilterPolicyScope" and value not in ("MessageBody", "MessageAttributes"):  # [SNS-82]
            raise sns_invalid(
                f"{reason}{name}: Invalid value [{value}]. Please use either MessageBody or MessageAttributes"
            )
        if name == "FilterPolicy" and value:
            check_policy(value, is_of_body=others.get("FilterPolicyScope") == "MessageBody", reason=reason)
        if name == "RedrivePolicy" and value:
            check_redrive(topic, value, reason)
        if name == "ReplayPolicy" and value:
            check_replay(topic, value)

    def _add_permission(self, params: Params, _: float) -> AnswerFields:
        """Allow accounts some actions, by a statement whose label the policy does not have yet [SNS-146, SNS-147]."""
        topic, label = self._topic(params["TopicArn"]), params["Label"]
        if permissions.has_label(topic.policy(), label):
            raise sns_invalid("Statement already exists")
        if not set(params["ActionName"]) <= set(ACTIONS):
            raise sns_invalid("Policy statement action out of service scope!")
        added = permissions.statement(
            service="SNS",
            label=label,
            accounts=params["AWSAccountId"],
            actions=params["ActionName"],
            resource=topic.arn,
        )
        topic.attributes["Policy"] = json.dumps(permissions.with_statement(topic.policy(), added))
        return {}

    def _remove_permission(self, params: Params, _: float) -> AnswerFields:
        """Remove the statement of a label; an unknown label changes nothing, as AWS's answer is not recorded."""
        topic = self._topic(params["TopicArn"])
        topic.attributes["Policy"] = json.dumps(permissions.without_label(topic.policy(), params["Label"]))
        return {}

    def _unsubscribe(self, params: Params, _: float) -> AnswerFields:
        """End a subscription; one that does not exist is no error [SNS-64], an ARN of something else is [SNS-142]."""
        arn = params["SubscriptionArn"]
        _check_arn("SubscriptionArn", arn)
        if len(arn.split(":")) == _ARN_PARTS:
            raise sns_invalid("SubscriptionId")
        subscription = self.subscriptions.pop(arn, None)
        if subscription is not None and not subscription.is_orphaned:
            self.topics[subscription.topic_arn].deleted_subscriptions += 1
        return {}

    def _list_subscriptions(self, params: Params, _: float) -> AnswerFields:
        return _page(
            "Subscriptions",
            [_subscription_entry(subscription) for subscription in self._living_subscriptions()],
            params,
        )

    def _list_subscriptions_by_topic(self, params: Params, _: float) -> AnswerFields:
        listed = [
            _subscription_entry(subscription) for subscription in self.subscriptions_of(self._topic(params["TopicArn"]))
        ]
        return _page("Subscriptions", listed, params)

    def _get_subscription_attributes(self, params: Params, now: float) -> AnswerFields:
        subscription = self._subscription(params["SubscriptionArn"], now)
        known = {
            "SubscriptionArn": subscription.arn,
            "TopicArn": subscription.topic_arn,
            "Protocol": "sqs",
            "Endpoint": subscription.endpoint,
            "Owner": subscription.arn.split(":")[4],
            "RawMessageDelivery": "false",
            "PendingConfirmation": "false",
            "ConfirmationWasAuthenticated": "true",
            "SubscriptionPrincipal": f"arn:aws:iam::{subscription.arn.split(':')[4]}:user/simulated",
        }
        scope = {"FilterPolicyScope": "MessageAttributes"} if subscription.attributes.get("FilterPolicy") else {}
        status = {"ReplayStatus": "Completed"} if subscription.replay_policy() else {}  # it ends at once [SNS-136]
        return {"Attributes": known | scope | status | subscription.attributes}

    def _set_subscription_attributes(self, params: Params, now: float) -> AnswerFields:
        subscription = self._subscription(params["SubscriptionArn"], now)
        name, value = _attribute(params)
        topic = self._topic(subscription.topic_arn)
        self._check_subscription_attribute(topic, name, value, subscription.attributes)
        subscription.attributes[name] = value
        if name == "ReplayPolicy":
            self._delivery.replay(topic, subscription, now)
        return {}

    def _publish(self, params: Params, now: float) -> AnswerFields:
        topic = self._topic(params.get("TopicArn") or params.get("TargetArn", ""))  # [SNS-37]
        check_publish(topic, params)
        if publish_bytes(params) > topic.bytes_max():
            raise sns_invalid("Message too long")
        return self._delivery.fan_out(topic, params, now)

    def _publish_batch(self, params: Params, now: float) -> AnswerFields:
        topic, entries = self._topic(params["TopicArn"]), params["PublishBatchRequestEntries"]
        check_batch(entries)
        for entry in entries:
            check_publish(topic, entry)
        if sum(publish_bytes(entry) for entry in entries) > topic.bytes_max():  # [SNS-28]
            raise AwsRefusal(
                "BatchRequestTooLong", "The length of all the messages put together is more than the limit."
            )
        return {
            "Successful": [{"Id": entry["Id"]} | self._delivery.fan_out(topic, entry, now) for entry in entries],
            "Failed": [],
        }

    def _tag_resource(self, params: Params, _: float) -> AnswerFields:
        self._topic(params["ResourceArn"]).tags.update(_tags(params["Tags"]))
        return {}

    def _untag_resource(self, params: Params, _: float) -> AnswerFields:
        topic = self._topic(params["ResourceArn"])
        topic.tags = {name: value for name, value in topic.tags.items() if name not in params["TagKeys"]}
        return {}

    def _list_tags_for_resource(self, params: Params, _: float) -> AnswerFields:
        tags = self._topic(params["ResourceArn"]).tags
        return {"Tags": [{"Key": name, "Value": value} for name, value in tags.items()]}


def _check_arn(parameter: str, arn: str) -> None:
    parts = len(arn.split(":"))
    if parts < _ARN_PARTS:
        raise sns_invalid(f"{parameter} Reason: An ARN must have at least 6 elements, not {parts}")


def _attribute(params: Params) -> tuple[str, str]:
    """Return (name, value) of the attribute that a call sets."""
    name = params["AttributeName"]
    return name, as_spelled({name: params.get("AttributeValue", "")}, BOOLEANS)[name]


def _tags(pairs: list[Mapping[str, str]]) -> dict[str, str]:
    tags = {tag["Key"]: tag["Value"] for tag in pairs}
    if len(tags) < len(pairs):
        raise sns_invalid("Duplicated keys are not allowed.")
    return tags


def _subscription_entry(subscription: Subscription) -> AnswerFields:
    return {
        "SubscriptionArn": subscription.arn,
        "Owner": subscription.arn.split(":")[4],
        "Protocol": "sqs",
        "Endpoint": subscription.endpoint,
        "TopicArn": subscription.topic_arn,
    }


def _page(key: str, items: list[AnswerFields], params: Params) -> AnswerFields:
    """Return one page of a listing as SNS answers it: its items under `key`, from where NextToken says."""
    token = params.get("NextToken") or "0"
    if not token.isdecimal():  # text not recorded
        raise sns_invalid("NextToken")
    start = int(token)
    more = {"NextToken": str(start + _PAGE)} if start + _PAGE < len(items) else {}
    return {key: items[start : start + _PAGE]} | more
