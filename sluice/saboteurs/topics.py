"""Saboteurs of topics, of their subscriptions, and of the copies that they deliver."""

import json
from collections.abc import Mapping
from typing import Any

from botocore.awsrequest import AWSResponse

from sluice.limits import MESSAGE_BYTES_MAX, MESSAGE_BYTES_MIN
from sluice.saboteurs.base import (
    RECEIVE,
    TOPIC_ATTRIBUTES,
    Edit,
    Hook,
    Saboteur,
    SqsCaller,
    answer_with,
    change,
    ignore,
    misreport,
    of_received,
    omit,
    only_show,
    refuse_with,
    report,
)


class _IgnoreSubscribe(Hook):
    """Confirms a subscription, and does not send it."""

    operations = ("sns.Subscribe",)

    def answer(self, operation: str, params: Mapping[str, Any]) -> tuple[AWSResponse, dict[str, Any]] | None:
        return answer_with(SubscriptionArn=f"{params['TopicArn']}:ignored")


class _IgnoreStandardQueues(_IgnoreSubscribe):
    """Does so for standard queues only."""

    def answer(self, operation: str, params: Mapping[str, Any]) -> tuple[AWSResponse, dict[str, Any]] | None:
        return None if params["Endpoint"].endswith(".fifo") else super().answer(operation, params)


class _LoseSecondSubscription(_IgnoreSubscribe):
    """Does so for the second subscription only."""

    def answer(self, operation: str, params: Mapping[str, Any]) -> tuple[AWSResponse, dict[str, Any]] | None:
        self.strikes()
        return super().answer(operation, params) if self._opportunities == 2 else None


class _IgnoreTargetArn(Hook):
    """Confirms a publish that names its topic by TargetArn, and does not send it."""

    operations = ("sns.Publish",)

    def answer(self, operation: str, params: Mapping[str, Any]) -> tuple[AWSResponse, dict[str, Any]] | None:
        return answer_with(MessageId="ignored", SequenceNumber="1") if "TargetArn" in params else None


class _IgnoreQueuePolicies(SqsCaller):
    """Gives each subscribed queue a policy that allows every topic to send."""

    operations = ("sns.Subscribe",)

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        statement = {"Effect": "Allow", "Principal": "*", "Action": "sqs:SendMessage", "Resource": params["Endpoint"]}
        url = self.sqs.get_queue_url(QueueName=params["Endpoint"].rpartition(":")[2])["QueueUrl"]
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        self.sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy})


class _DeliverThePast(Hook):
    """Adds to a queue's first received messages those that were published before the queue was subscribed."""

    operations = ("sns.Publish", "sns.Subscribe", *RECEIVE)

    def begin(self) -> None:
        self._published: list[str] = []  # bodies
        self._past: dict[str, list[str]] = {}  # bodies published before the subscription, by the queue's name

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        if "Message" in params:  # the answer to a publish
            self._published.append(params["Message"])
        elif "Endpoint" in params:  # the answer to a subscribe
            self._past[params["Endpoint"].rpartition(":")[2]] = list(self._published)
        elif parsed.get("Messages"):
            past = self._past.pop(params["QueueUrl"].rpartition("/")[2], [])
            first = parsed["Messages"][0]
            parsed["Messages"] = [{**first, "Body": body} for body in past] + parsed["Messages"]


class _IgnoreTopicPolicy(Hook):
    operations = ("sns.SetTopicAttributes",)

    def answer(self, operation: str, params: Mapping[str, Any]) -> tuple[AWSResponse, dict[str, Any]] | None:
        return answer_with() if params["AttributeName"] == "Policy" else None


class _ForgetOrphans(Hook):
    """Refuses to show the subscriptions of a deleted topic, which AWS shows a little longer."""

    operations = ("sns.DeleteTopic", "sns.GetSubscriptionAttributes")

    def begin(self) -> None:
        self._deleted: set[str] = set()

    def answer(self, operation: str, params: Mapping[str, Any]) -> tuple[AWSResponse, dict[str, Any]] | None:
        if operation == "sns.DeleteTopic":
            self._deleted.add(params["TopicArn"])
        elif params["SubscriptionArn"].rpartition(":")[0] in self._deleted:
            return refuse_with("NotFound", "Subscription does not exist")
        return None


class _RenameRepeats(Hook):
    """Answers another ARN if a topic or subscription is created that was created before."""

    operations = ("sns.Subscribe", "sns.CreateTopic")

    def begin(self) -> None:
        self._answered: set[str] = set()

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        for name in ("SubscriptionArn", "TopicArn"):
            if name in parsed and parsed[name] in self._answered:
                parsed[name] += "-again"
            self._answered.add(parsed.get(name, ""))


def _resize(factor: float) -> Edit:
    """Return an edit that multiplies a new topic's MaximumMessageSize, within the bounds that SNS allows."""

    def edit(params: dict[str, Any]) -> None:
        attributes = params.get("Attributes", {})
        if size := attributes.get("MaximumMessageSize"):
            resized = round(int(size) * factor)
            attributes["MaximumMessageSize"] = str(max(MESSAGE_BYTES_MIN, min(MESSAGE_BYTES_MAX, resized)))

    return edit


def _unwrap(params: dict[str, Any]) -> None:
    params["Attributes"] = params.get("Attributes", {}) | {"RawMessageDelivery": "true"}


class _ReusePublishIds(Hook):
    """Gives received copies the message id and sequence number that the last publish returned."""

    operations = ("sns.Publish", *RECEIVE)

    def begin(self) -> None:
        self._published: dict[str, str] = {}

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        if "TopicArn" in params:
            self._published = {name: parsed[name] for name in ("MessageId", "SequenceNumber") if name in parsed}
            return
        for message in parsed.get("Messages", []):
            message["MessageId"] = self._published.get("MessageId", message["MessageId"])
            message["Attributes"]["SequenceNumber"] = self._published.get("SequenceNumber", "")


def _disguise_replay(message: dict[str, Any]) -> None:
    """Remove the mark of a replayed message from its envelope."""
    if '"Replayed"' in message["Body"]:
        envelope = json.loads(message["Body"])
        del envelope["Replayed"]
        message["Body"] = json.dumps(envelope)


def _lift_ending_point(params: dict[str, Any]) -> None:
    """Remove the ending point of a replay policy that is given with Subscribe."""
    attributes = params.get("Attributes", {})
    if "ReplayPolicy" in attributes:
        policy = json.loads(attributes["ReplayPolicy"])
        params["Attributes"] = attributes | {
            "ReplayPolicy": json.dumps({name: value for name, value in policy.items() if name != "EndingPoint"})
        }


def _widen_archive_period(params: dict[str, Any]) -> None:
    if params.get("AttributeName") == "ArchivePolicy" and params["AttributeValue"] != "{}":
        params["AttributeValue"] = '{"MessageRetentionPeriod": "365"}'


def _strip_topic(parsed: dict[str, Any]) -> None:
    parsed["Attributes"] = {name: parsed["Attributes"][name] for name in ("Owner", "TopicArn")}


SABOTEURS = {
    "ignore-subscribe": Saboteur("confirms a subscription and does not make it", _IgnoreSubscribe),
    "lose-second-subscription": Saboteur(
        "confirms the second subscription and does not make it", _LoseSecondSubscription
    ),
    "ignore-standard-queues": Saboteur(
        "confirms the subscription of a standard queue and does not make it", _IgnoreStandardQueues
    ),
    "ignore-unsubscribe": Saboteur("confirms an unsubscribe and does not do it", ignore("sns.Unsubscribe")),
    "keep-topics": Saboteur("confirms that a topic is deleted and keeps it", ignore("sns.DeleteTopic")),
    "ignore-topic-policy": Saboteur("confirms a policy of a topic and does not keep it", _IgnoreTopicPolicy),
    "forget-orphans": Saboteur("denies the subscriptions of a deleted topic at once", _ForgetOrphans),
    "skip-replays": Saboteur("subscribes without the replay policy", omit("ReplayPolicy", of="sns.Subscribe")),
    "disguise-replays": Saboteur("delivers replayed messages as if they were new", of_received(_disguise_replay)),
    "lift-ending-points": Saboteur(
        "replays without the ending point that was given", change(_lift_ending_point, "sns.Subscribe")
    ),
    "never-complete-replays": Saboteur(
        "reports every replay as in progress", report("sns.GetSubscriptionAttributes", ReplayStatus="In progress")
    ),
    "widen-archive-period": Saboteur(
        "keeps archives for a year whatever was asked for", change(_widen_archive_period, "sns.SetTopicAttributes")
    ),
    "ignore-message-structure": Saboteur(
        "delivers the message for all protocols whole", omit("MessageStructure", of="sns.Publish")
    ),
    "invent-message-size": Saboteur(
        "reports a message size where none was set",
        misreport(lambda parsed: parsed["Attributes"].setdefault("MaximumMessageSize", "262144"), TOPIC_ATTRIBUTES),
    ),
    "ignore-target-arn": Saboteur("acknowledges what is published by TargetArn and drops it", _IgnoreTargetArn),
    "ignore-queue-policies": Saboteur("lets every topic send to every subscribed queue", _IgnoreQueuePolicies),
    "deliver-the-past": Saboteur("delivers to a subscriber what was published before", _DeliverThePast),
    "reverse-publish-results": Saboteur(
        "returns the results of a batch in reverse",
        misreport(lambda parsed: parsed["Successful"].reverse(), "sns.PublishBatch"),
    ),
    "leave-pending": Saboteur(
        "reports subscriptions as not confirmed", report("sns.GetSubscriptionAttributes", PendingConfirmation="true")
    ),
    "rename-repeats": Saboteur("gives a topic or subscription asked for again another ARN", _RenameRepeats),
    "strip-topic": Saboteur("reports topics without their attributes", misreport(_strip_topic, TOPIC_ATTRIBUTES)),
    "ignore-message-size": Saboteur(
        "makes topics of the usual message size", omit("MaximumMessageSize", of="sns.CreateTopic")
    ),
    "shrink-topic-size": Saboteur("makes topics of half the size", change(_resize(1 / 2), "sns.CreateTopic")),
    "raise-topic-size": Saboteur("makes topics of twice the size", change(_resize(2), "sns.CreateTopic")),
    "unwrap-deliveries": Saboteur(
        "delivers without the envelope where one is wanted", change(_unwrap, "sns.Subscribe")
    ),
    "wrap-raw-deliveries": Saboteur(
        "delivers with the envelope where none is wanted", omit("RawMessageDelivery", of="sns.Subscribe")
    ),
    "reuse-publish-ids": Saboteur("delivers copies under the ids of their publish", _ReusePublishIds),
    "ignore-filter-policy": Saboteur(
        "delivers what a filter policy keeps out", omit("FilterPolicy", "FilterPolicyScope", of="sns.Subscribe")
    ),
    "ignore-filter-scope": Saboteur(
        "takes every filter policy for one of attributes", omit("FilterPolicyScope", of="sns.Subscribe")
    ),
    **{
        f"only-show-{suffix}": Saboteur(
            f"shows a changed {name} and does not apply it", only_show(name, "sns.Subscription")
        )
        for suffix, name in (
            ("raw-delivery", "RawMessageDelivery"),
            ("filter-policy", "FilterPolicy"),
            ("filter-scope", "FilterPolicyScope"),
            ("undelivered", "RedrivePolicy"),
            ("replay-policy", "ReplayPolicy"),
        )
    },
    "only-show-topic-ids": Saboteur(
        "shows a topic's changed ContentBasedDeduplication and does not apply it",
        only_show("ContentBasedDeduplication", "sns.Topic"),
    ),
    "lose-undelivered": Saboteur("makes subscriptions without a DLQ", omit("RedrivePolicy", of="sns.Subscribe")),
}
