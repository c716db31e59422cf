"""Mutants of every rule of topics, subscriptions, publishes and deliveries."""

# ruff: noqa: E501 (a table: one row per mutant)
import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from sluice import limits
from sluice.simulator.model import policies
from sluice.simulator.model.message import content_id
from sluice.simulator.model.queues.queue import SimulatedQueue
from sluice.simulator.model.topics import delivery, publishing, sns, topic
from sluice.simulator.model.topics.delivery import Delivery
from sluice.simulator.model.topics.sns import Sns
from sluice.simulator.model.topics.topic import PublishResult, SimulatedTopic, Subscription
from tests.mutants.mutant import Mutant, after, nothing, returning, without

_FIRST = SimulatedTopic.earlier_publish
_DELIVER = Delivery._deliver
_FAN_OUT = Delivery.fan_out
_SUBSCRIBE = Sns._subscribe
_CREATE_TOPIC = Sns._create_topic
_PUBLISH_BATCH = Sns._publish_batch


def _window_of(seconds: float) -> Callable[..., PublishResult | None]:
    def first(self: SimulatedTopic, key: tuple[str, str], now: float) -> PublishResult | None:
        published = self._published.get(key)
        return None if published is None or now >= published.published_at + seconds else published

    return first


def _extend_by_repeats(self: SimulatedTopic, key: tuple[str, str], now: float) -> PublishResult | None:
    published = _FIRST(self, key, now)
    if published is not None:
        self._published[key] = replace(published, published_at=now)
    return published


def _repeat_answer(**changed: Callable[[dict[str, Any]], Any]) -> Callable[..., dict[str, Any]]:
    """Return a fan-out whose answers to repeats differ."""

    def fan_out(self: Delivery, of: SimulatedTopic, entry: Mapping[str, Any], now: float) -> dict[str, Any]:
        answers: set[str] = of.__dict__.setdefault("answered", set())
        answer = _FAN_OUT(self, of, entry, now)
        is_repeat = answer["MessageId"] in answers
        answers.add(answer["MessageId"])
        return answer | ({name: value(answer) for name, value in changed.items()} if is_repeat else {})

    return fan_out


def _repeat_delivered(self: Delivery, of: SimulatedTopic, entry: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Deliver a repeat too, to who subscribed meanwhile."""
    before = len(of._published)
    answer = _FAN_OUT(self, of, entry, now)
    if of.is_fifo and len(of._published) == before:
        id_ = of.deduplication_id(entry["Message"], entry.get("MessageDeduplicationId"))
        published = PublishResult(answer["MessageId"], answer["SequenceNumber"], now)
        self._deliver_to_all(of, entry, published, id_, now)
    return answer


def _change_envelope(**changed: Any) -> Callable[..., str]:
    """Return an envelope with other fields; None leaves one out."""

    def change(text: str, *_: Any) -> str:
        fields = {**json.loads(text), **changed}
        return json.dumps({name: value for name, value in fields.items() if value is not None})

    return change


def _with_id_of_publish(
    self: Delivery, of: SimulatedTopic, to: Subscription, entry: Any, published: PublishResult, *more: Any
) -> None:
    made, self._new_id = self._new_id, lambda: f"{published.message_id}{to.arn[-1:]}"[:36]
    try:
        _DELIVER(self, of, to, entry, published, *more)
    finally:
        self._new_id = made


def _with_own_deduplication_id(
    self: Delivery,
    of: SimulatedTopic,
    to: Subscription,
    entry: Any,
    published: PublishResult,
    _id: str | None,
    now: float,
) -> None:
    _DELIVER(self, of, to, entry, published, published.message_id if of.is_fifo else None, now)


def _always_new(self: Sns, params: Mapping[str, Any], now: float) -> dict[str, Any]:
    before, self.subscriptions = self.subscriptions, {}
    try:
        return _SUBSCRIBE(self, params, now)
    finally:
        before.update(self.subscriptions)
        self.subscriptions = before


def _subscribe_without(*names: str) -> Callable[..., dict[str, Any]]:
    def subscribe(self: Sns, params: Mapping[str, Any], now: float) -> dict[str, Any]:
        kept = {name: value for name, value in params.get("Attributes", {}).items() if name not in names}
        return _SUBSCRIBE(self, {**params, "Attributes": kept}, now)

    return subscribe


def _ignoring(rule: str, *names: str) -> Callable[..., dict[str, Any]]:
    """Return a setter that has no effect on these attributes."""
    original = getattr(Sns, rule)

    def change(self: Sns, params: Mapping[str, Any], now: float) -> dict[str, Any]:
        if params["AttributeName"] in names:
            return {}
        answer: dict[str, Any] = original(self, params, now)
        return answer

    return change


def _all_removed(self: Sns, params: Mapping[str, Any], _now: float) -> dict[str, Any]:
    self._topic(params["ResourceArn"]).tags = {}
    return {}


def _check_arn_only(_self: Sns, arn: str) -> None:
    sns._check_arn("TopicArn", arn)


def _policy_as_given(self: SimulatedTopic) -> dict[str, Any]:
    policy: dict[str, Any] = json.loads(self.attributes.get("Policy", "{}"))
    return policy


def _keep_tags(self: Sns, params: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Give a new topic the tags of a deleted one of its name."""
    kept: dict[str, dict[str, str]] = self.__dict__.setdefault("kept_tags", {})
    answer = _CREATE_TOPIC(self, params, now)
    tags = self.topics[answer["TopicArn"]].tags
    kept.setdefault(answer["TopicArn"], tags)
    tags.update(kept[answer["TopicArn"]])
    return answer


def _batch_one_by_one(self: Sns, params: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Publish a batch backwards."""
    entries = params["PublishBatchRequestEntries"]
    return _PUBLISH_BATCH(self, {**params, "PublishBatchRequestEntries": entries[::-1]}, now)


def _constant_numbers(result: dict[str, Any], *_: Any) -> dict[str, Any]:
    number = result["Successful"][0].get("SequenceNumber") if result["Successful"] else None
    return {
        **result,
        "Successful": [entry | ({"SequenceNumber": number} if number else {}) for entry in result["Successful"]],
    }


def _whole_message(entry: Mapping[str, Any]) -> str:
    return str(entry["Message"])


def _default_of(entry: Mapping[str, Any]) -> str:
    return str(json.loads(entry["Message"])["default"] if entry.get("MessageStructure") == "json" else entry["Message"])


def _any_allow(queue: SimulatedQueue, topic_arn: str) -> bool:
    """Return whether a statement allows it, whatever another one denies."""
    statements = json.loads(queue.attributes.get("Policy", '{"Statement": []}'))["Statement"]
    return any(_MAY_SEND(_with_policy(queue, {"Statement": [each]}), topic_arn) for each in statements)


def _with_policy(queue: SimulatedQueue, policy: dict[str, Any]) -> SimulatedQueue:
    other = copy.copy(queue)
    other.attributes = queue.attributes | {"Policy": json.dumps(policy)}
    return other


_MAY_SEND = delivery.may_send
_CHECK_PUBLISH = (sns, "check_publish")
_CHECK_SUBSCRIPTION = (Sns, "_check_subscription_attribute")
_CHECK_BATCH = (sns, "check_batch")
_ADD_PERMISSION = (Sns, "_add_permission")
_REMOVE_PERMISSION = (Sns, "_remove_permission")
MUTANTS = (
    # What a topic remembers.
    Mutant("topic-window-of-a-minute", "a topic remembers for a minute", SimulatedTopic, "earlier_publish", _window_of(60)),
    Mutant("topic-window-of-four-minutes", "a topic remembers for four minutes", SimulatedTopic, "earlier_publish", _window_of(240)),
    Mutant("topic-window-for-ever", "a topic never forgets", SimulatedTopic, "earlier_publish", _window_of(10**9)),
    Mutant("topic-window-extended", "a repeat extends a topic's window", SimulatedTopic, "earlier_publish", _extend_by_repeats),
    Mutant("topic-by-group-always", "every topic deduplicates per group", SimulatedTopic, "deduplication_key", lambda _self, id_, group: (group, id_)),
    Mutant("topic-by-content-always", "a topic goes by content, whatever the id", SimulatedTopic, "deduplication_id", lambda _self, body, _requested: content_id(body)),
    Mutant("topic-needs-no-id", "a topic needs no id", SimulatedTopic, "is_by_content", returning(value=True)),
    Mutant("topic-repeat-new-id", "a repeated publish's answer has a new id", Delivery, "fan_out", _repeat_answer(MessageId=lambda answer: answer["MessageId"][::-1])),
    Mutant("topic-repeat-new-number", "a repeated publish's answer has a new number", Delivery, "fan_out", _repeat_answer(SequenceNumber=lambda answer: answer["SequenceNumber"][:-1] + "1")),
    Mutant("topic-repeat-to-new", "who subscribes later gets the repeat", Delivery, "fan_out", _repeat_delivered),
    Mutant("topic-numbers-constant", "a topic's sequence numbers are one", SimulatedTopic, "next_sequence_number", returning(str(topic.FIRST_SEQUENCE_NUMBER))),
    # Delivery.
    Mutant("envelope-without-number", "the envelope has no sequence number", delivery, "envelope", after(delivery, "envelope", _change_envelope(SequenceNumber=None))),
    Mutant("envelope-without-subject", "the envelope has no subject", delivery, "envelope", after(delivery, "envelope", _change_envelope(Subject=None))),
    Mutant("envelope-without-attributes", "the envelope has no attributes", delivery, "envelope", after(delivery, "envelope", _change_envelope(MessageAttributes={}))),
    Mutant("envelope-without-time", "the envelope has no time", delivery, "envelope", after(delivery, "envelope", _change_envelope(Timestamp="1970-01-01T00:00:00.000Z"))),
    Mutant("envelope-of-other-topic", "the envelope names another topic", delivery, "envelope", after(delivery, "envelope", _change_envelope(TopicArn="arn:aws:sns:us-east-1:000000000000:other.fifo"))),
    Mutant("envelope-of-other-id", "the envelope has another message id", delivery, "envelope", after(delivery, "envelope", _change_envelope(MessageId="00000000-0000-0000-0000-000000000000"))),
    Mutant("envelope-type", "the envelope is no notification", delivery, "envelope", after(delivery, "envelope", _change_envelope(Type="Message"))),
    Mutant("copy-id-of-publish", "a copy has the publish's message id", Delivery, "_deliver", _with_id_of_publish),
    Mutant("copy-own-deduplication-id", "a copy has a deduplication id of its own", Delivery, "_deliver", _with_own_deduplication_id),
    Mutant("group-to-standard", "a FIFO topic gives a standard queue the group", delivery, "_group_for", lambda _queue, _topic, entry: entry.get("MessageGroupId")),
    Mutant("no-group-to-standard", "a standard topic gives a standard queue no group", delivery, "_group_for", lambda queue, _topic, entry: entry.get("MessageGroupId") if queue.is_fifo else None),
    Mutant("deny-ignored", "a queue policy's Deny has no effect", delivery, "may_send", _any_allow),
    Mutant("any-source-may-send", "the condition of a queue policy has no effect", policies, "_is_condition_met", returning(value=True)),
    Mutant("structure-ignored", "a message by protocol is delivered whole", delivery, "message_of", _whole_message),
    Mutant("protocol-ignored", "a message by protocol is delivered as its default", delivery, "message_of", _default_of),
    # Publishes.
    Mutant("publish-unchecked", "publishes are not checked", *_CHECK_PUBLISH, nothing),
    Mutant("publish-empty", "a publish may be empty", *_CHECK_PUBLISH, without(*_CHECK_PUBLISH, "Empty message")),
    Mutant("publish-without-group", "a FIFO topic needs no group", Sns, "_publish", without(Sns, "_publish", "MessageGroupId parameter is required", instead={"MessageId": "m"})),
    Mutant("publish-id-to-standard", "a standard topic takes a deduplication id", *_CHECK_PUBLISH, without(*_CHECK_PUBLISH, "not valid for this topic type")),
    Mutant("publish-structure-unchecked", "a message by protocol is not read", *_CHECK_PUBLISH, without(*_CHECK_PUBLISH, "Message Structure")),
    Mutant("publish-attributes-unchecked", "attributes of a publish may have any type and value", publishing, "_check_attributes", nothing),
    Mutant("publish-names-unchecked", "attributes of a publish may have any name", publishing, "_check_name", nothing),
    Mutant("publish-any-size", "a publish may have any size", sns, "publish_bytes", returning(0)),
    Mutant("publish-attributes-have-no-size", "attributes do not count towards a publish's size", sns, "publish_bytes", lambda entry: len(entry["Message"].encode())),
    Mutant("publish-up-to-a-mebibyte", "a publish may have 1 MiB on every topic", limits, "PUBLISH_BYTES_MAX", 1_048_576, read_by=(SimulatedTopic, "bytes_max")),
    Mutant("publish-eleven-entries", "a batch of publishes may have eleven entries", publishing, "_ENTRIES_MAX", 11, read_by=(sns, "check_batch")),
    Mutant("publish-empty-batch", "a batch of publishes may be empty", *_CHECK_BATCH, without(*_CHECK_BATCH, "EmptyBatchRequest")),
    Mutant("publish-ids-repeated", "two entries of publishes may have one id", *_CHECK_BATCH, without(*_CHECK_BATCH, "BatchEntryIdsNotDistinct")),
    Mutant("publish-entry-ids-any", "the id of a publish's entry may be anything", *_CHECK_BATCH, without(*_CHECK_BATCH, "InvalidBatchEntryId")),
    Mutant("publish-batch-backwards", "a batch of publishes is taken backwards", Sns, "_publish_batch", _batch_one_by_one),
    Mutant("publish-batch-one-number", "a batch of publishes answers one number", Sns, "_publish_batch", after(Sns, "_publish_batch", _constant_numbers)),
    Mutant("publish-unknown-topic", "a publish to no topic is no mistake", Sns, "_publish", without(Sns, "_publish", "Topic does not exist", instead={"MessageId": "m"})),
    # Topics.
    Mutant("topic-any-name", "a topic may have any name", sns, "check_topic", without(sns, "check_topic", "Topic Name")),
    Mutant("topic-attribute-ignored", "SetTopicAttributes has no effect", Sns, "_set_topic_attributes", returning({})),
    Mutant("topic-content-based-kept", "a topic's ContentBasedDeduplication cannot be changed", Sns, "_set_topic_attributes", _ignoring("_set_topic_attributes", "ContentBasedDeduplication")),
    Mutant("topic-size-kept", "a topic's MaximumMessageSize cannot be changed", Sns, "_set_topic_attributes", _ignoring("_set_topic_attributes", "MaximumMessageSize")),
    Mutant("topic-scope-turned-back", "FifoThroughputScope can be turned back", Sns, "_set_topic_attributes", without(Sns, "_set_topic_attributes", "cannot be changed from MessageGroup", instead={})),
    Mutant("topic-made-again", "a topic can be made again with other attributes", Sns, "_create_topic", without(Sns, "_create_topic", "already exists with different attributes", instead={"TopicArn": "arn:aws:sns:us-east-1:0:t"})),
    Mutant("topic-tags-made-again", "a topic can be made again with other tags", Sns, "_create_topic", without(Sns, "_create_topic", "already exists with different tags", instead={"TopicArn": "arn:aws:sns:us-east-1:0:t"})),
    Mutant("topic-tags-lost", "TagResource has no effect", Sns, "_tag_resource", returning({})),
    Mutant("topic-untags-all", "UntagResource removes every tag", Sns, "_untag_resource", _all_removed),
    Mutant("topic-untags-nothing", "UntagResource has no effect", Sns, "_untag_resource", returning({})),
    Mutant("topic-tags-twice", "two tags of one key are taken", sns, "_tags", lambda pairs: {tag["Key"]: tag["Value"] for tag in pairs}),
    Mutant("topic-with-archive-deleted", "a topic with an archive can be deleted", Sns, "_delete_topic", without(Sns, "_delete_topic", "ArchivePolicy", instead={})),
    Mutant("topic-archive-any-days", "an archive may keep messages for any time", topic, "_is_archive_policy", returning(value=True)),
    Mutant("topic-keeps-tags", "a topic that is made again has the tags it had", Sns, "_create_topic", _keep_tags),
    Mutant("topic-arn-any", "the ARN of a topic may be any text", Sns, "_check_topic_arn", nothing),
    Mutant("topic-region-unchecked", "a topic of another Region is one that does not exist", Sns, "_check_topic_arn", _check_arn_only),
    Mutant("topic-without-policy", "a new topic has no policy", SimulatedTopic, "policy", _policy_as_given),
    Mutant("topic-without-delivery-policy", "a new topic has no effective delivery policy", SimulatedTopic, "effective_delivery_policy", returning({})),
    Mutant("topic-policy-kept", "a changed Policy of a topic has no effect", Sns, "_set_topic_attributes", _ignoring("_set_topic_attributes", "Policy")),
    Mutant("topic-permission-lost", "AddPermission of a topic has no effect", *_ADD_PERMISSION, returning({})),
    Mutant("topic-permission-kept", "RemovePermission of a topic has no effect", *_REMOVE_PERMISSION, returning({})),
    Mutant("topic-permission-twice", "two permissions of a topic may have one label", *_ADD_PERMISSION, without(*_ADD_PERMISSION, "already exists", instead={})),
    Mutant("topic-permission-any-action", "a permission may be for an action that SNS does not have", *_ADD_PERMISSION, without(*_ADD_PERMISSION, "out of service scope", instead={})),
    Mutant("topic-permission-of-none", "a permission may be added to a topic that does not exist", *_ADD_PERMISSION, without(*_ADD_PERMISSION, "Topic does not exist", instead={})),
    Mutant("topic-permission-off-none", "a permission may be removed from a topic that does not exist", *_REMOVE_PERMISSION, without(*_REMOVE_PERMISSION, "Topic does not exist", instead={})),
    # Subscriptions.
    Mutant("subscription-gone-at-once", "a subscription is gone with its topic", sns, "_SUBSCRIPTION_READABLE_SECONDS", 0, read_by=(Sns, "_delete_topic")),
    Mutant("unsubscribe-any-text", "Unsubscribe takes what is no ARN", Sns, "_unsubscribe", without(Sns, "_unsubscribe", "An ARN must have", instead={})),
    Mutant("unsubscribe-topic", "Unsubscribe takes the ARN of a topic", Sns, "_unsubscribe", without(Sns, "_unsubscribe", "SubscriptionId", instead={})),
    Mutant("replay-never-stops", "a replay's ending point stops no subscription", Subscription, "is_paused", returning(value=False)),
    Mutant("replay-stops-at-once", "a replay policy stops its subscription", Subscription, "is_paused", lambda self, _: bool(self.replay_policy())),
    Mutant("subscribed-twice", "subscribing again makes another subscription", Sns, "_subscribe", _always_new),
    Mutant("subscribed-again-otherwise", "subscribing again with other attributes is no mistake", Sns, "_subscribe", without(Sns, "_subscribe", "already exists with different attributes", instead={"SubscriptionArn": "arn"})),
    Mutant("subscribed-without-attributes", "attributes given with Subscribe have no effect", Sns, "_subscribe", _subscribe_without("FilterPolicy", "FilterPolicyScope", "RedrivePolicy", "RawMessageDelivery")),
    Mutant("subscribed-without-redrive", "a RedrivePolicy given with Subscribe has no effect", Sns, "_subscribe", _subscribe_without("RedrivePolicy")),
    Mutant("fifo-queue-to-standard", "a FIFO queue can be subscribed to a standard topic", Sns, "_check_endpoint", staticmethod(without(Sns, "_check_endpoint", "FIFO SQS Queues can not"))),
    Mutant("endpoint-any", "an endpoint need not be an ARN", Sns, "_check_endpoint", staticmethod(without(Sns, "_check_endpoint", "SQS endpoint ARN"))),
    Mutant("protocol-unknown", "a protocol need not exist", Sns, "_check_endpoint", staticmethod(without(Sns, "_check_endpoint", "does not support this protocol"))),
    Mutant("subscription-attribute-ignored", "SetSubscriptionAttributes has no effect", Sns, "_set_subscription_attributes", returning({})),
    Mutant("raw-kept", "a changed RawMessageDelivery has no effect", Sns, "_set_subscription_attributes", _ignoring("_set_subscription_attributes", "RawMessageDelivery")),
    Mutant("filter-kept", "a changed FilterPolicy has no effect", Sns, "_set_subscription_attributes", _ignoring("_set_subscription_attributes", "FilterPolicy")),
    Mutant("scope-kept", "a changed FilterPolicyScope has no effect", Sns, "_set_subscription_attributes", _ignoring("_set_subscription_attributes", "FilterPolicyScope")),
    Mutant("subscription-unknown-attribute", "an unknown attribute of a subscription is taken", *_CHECK_SUBSCRIPTION, staticmethod(without(*_CHECK_SUBSCRIPTION, "Invalid parameter: AttributeName"))),
    Mutant("raw-any-value", "RawMessageDelivery may be anything", *_CHECK_SUBSCRIPTION, staticmethod(without(*_CHECK_SUBSCRIPTION, "RawMessageDelivery: Invalid value"))),
    Mutant("scope-any-value", "FilterPolicyScope may be anything", *_CHECK_SUBSCRIPTION, staticmethod(without(*_CHECK_SUBSCRIPTION, "FilterPolicyScope: Invalid value"))),
    Mutant("subscription-any-dlq", "the DLQ of a subscription may be anything", sns, "check_redrive", nothing),
    Mutant("subscription-standard-dlq", "a FIFO subscription may have a standard DLQ", sns, "check_redrive", without(sns, "check_redrive", "must use a FIFO queue")),
    Mutant("subscription-foreign-dlq", "the DLQ of a subscription may be in another Region", sns, "check_redrive", without(sns, "check_redrive", "same account and Region")),
    Mutant("unsubscribe-ignored", "Unsubscribe has no effect", Sns, "_unsubscribe", returning({})),
    Mutant("raw-never-read", "a subscription does not say that it is raw", Sns, "_get_subscription_attributes", after(Sns, "_get_subscription_attributes", lambda result, *_: {"Attributes": result["Attributes"] | {"RawMessageDelivery": "false"}})),
)  # fmt: skip
