"""Test promises on the user's own queue, DLQ and topic ("bring your own queues").

Only tests that need no special resources run; the others are deselected. The run deletes only its own messages, and
neither purges nor changes anything. It knows its messages by their group: each group and deduplication id gets a prefix
when it is sent, which is removed when it is received.
"""

import contextlib
import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from contract_tests.resources import QueueUnderTest, TopicUnderTest
from contract_tests.targets.binding import Target
from sluice.clock import eventually
from sluice.errors import EndpointError

# By promise: how often its test receives one message. The queue's redrive policy has to allow so many receives.
WITH_QUEUE: Mapping[str, int] = {
    id_: receives
    for receives, ids in {
        1: "GRP-01 SLU-01 GRP-04 GRP-05 GRP-06 GRP-07 GRP-15 RCV-08 RCV-16 SND-10 ORD-04 VIS-06 VIS-13 DED-01 DED-09"
        " DED-15 SLU-45 SND-02 SND-12 SND-15 SND-16 SND-17 SND-18 SND-21 SLU-34 SLU-35 SLU-40 SLU-41 BAT-01 BAT-02"
        " BAT-03 BAT-04 BAT-06 BAT-09 BAT-12 BAT-13 BAT-14 BAT-16 SLU-31 RCV-02 RCV-03 RCV-04 RCV-10 RCV-11 RCV-14"
        " RCV-18 RCV-19 SLU-33 SLU-39 SLU-47 SND-36 VIS-28 RCV-30",
        2: "GRP-02 GRP-03 GRP-08 GRP-09 GRP-10 GRP-12 GRP-13 VIS-11 SLU-37 ORD-01 ORD-02 VIS-04 VIS-05 RCV-17 SND-11"
        " SLU-32 RCV-15 BAT-15 VIS-30 RCV-28",
        3: "VIS-14 VIS-29",
        4: "RCV-06",
        6: "RCV-07",
    }.items()
    for id_ in ids.split()
}
# By promise: the maxReceiveCount that the queue needs for its test.
WITH_DLQ: Mapping[str, int] = {
    **dict.fromkeys(("DED-13", "DED-16", "DLQ-04", "DLQ-06", "DLQ-07", "DLQ-08"), 1),
    **dict.fromkeys(("DLQ-01", "DLQ-21"), 2),
    "SLU-04": 5,
}
WITH_TOPIC = frozenset(
    (
        *("SNS-09", "SNS-12", "SNS-14", "SNS-18", "SNS-25", "SNS-26", "SNS-27", "SNS-37"),
        *("SNS-52", "SNS-53", "SNS-54", "SNS-55", "SNS-58", "SNS-59", "SNS-70", "SNS-71"),
    )
)

_ALLOWED = frozenset(
    (
        *("SendMessage", "SendMessageBatch", "ReceiveMessage", "DeleteMessage", "DeleteMessageBatch"),
        *("ChangeMessageVisibility", "ChangeMessageVisibilityBatch", "GetQueueAttributes", "GetQueueUrl"),
        *("Publish", "PublishBatch", "ListSubscriptionsByTopic", "GetSubscriptionAttributes"),
    )
)
_COUNTERS = {
    "ApproximateNumberOfMessages": "visible",
    "ApproximateNumberOfMessagesNotVisible": "in flight",
    "ApproximateNumberOfMessagesDelayed": "delayed",
}
_RUN = f"sluice-{uuid.uuid4().hex[:8]}-"  # all tests of a run are in one process
_IDS = ("MessageGroupId", "MessageDeduplicationId", "ReceiveRequestAttemptId")
_BATCHES = ("Entries", "PublishBatchRequestEntries")


@dataclass(frozen=True, slots=True, kw_only=True)
class ByoQueues:
    """The user's own resources.

    Args:
        queue_url: a FIFO queue that nobody else uses during the run.
        dlq_url: the queue's DLQ; None if none is given.
        topic_arn: a FIFO topic whose only subscription is that queue, with raw delivery; None if none is given.
    """

    queue_url: str
    dlq_url: str | None = None
    topic_arn: str | None = None

    def promises(self, target: Target) -> frozenset[str]:
        """Return the ids of the promises that can be tested on these resources.

        Raises:
            EndpointError: a resource does not exist, is not as the tests need it, or has messages.
        """
        sqs, sns = target.make_client("sqs"), target.make_client("sns")
        try:
            attributes = _checked_queue(sqs, self.queue_url, "--queue-url")
            policy = json.loads(attributes.get("RedrivePolicy", "{}"))
            receives_max = int(policy.get("maxReceiveCount", 1_000))
            found = {id_ for id_, receives in WITH_QUEUE.items() if receives <= receives_max}
            if self.dlq_url is not None:
                dlq_arn = _checked_queue(sqs, self.dlq_url, "--dlq-url")["QueueArn"]
                if policy.get("deadLetterTargetArn") != dlq_arn:
                    raise EndpointError(
                        f"the redrive policy of {self.queue_url} names {policy.get('deadLetterTargetArn')},"
                        f" not {dlq_arn}; name its own DLQ, or leave --dlq-url out"
                    )
                found |= {id_ for id_, needed in WITH_DLQ.items() if needed == receives_max}
            if self.topic_arn is not None:
                _check_topic(sns, self.topic_arn, attributes["QueueArn"])
                found |= WITH_TOPIC
        except ClientError as error:
            raise EndpointError(f"the given resources cannot be used: {error}") from error
        return frozenset(found)


def _checked_queue(sqs: Any, url: str, option: str) -> dict[str, str]:
    """Return a queue's attributes; refuse a queue that is not FIFO, has a delay, or has messages."""
    attributes: dict[str, str] = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    if attributes.get("FifoQueue") != "true" or attributes.get("DelaySeconds", "0") != "0":
        raise EndpointError(f"{option} {url} is not a FIFO queue without delay; name one that is")
    if any(attributes[name] != "0" for name in _COUNTERS):
        held = ", ".join(f"{attributes[name]} {word}" for name, word in _COUNTERS.items())
        raise EndpointError(f"{option} {url} holds messages ({held}), allowed is an empty queue; they are not touched")
    return attributes


def _check_topic(sns: Any, arn: str, queue_arn: str) -> None:
    """Refuse a topic with another subscription than the queue's, or without raw delivery of all messages."""
    pages = sns.get_paginator("list_subscriptions_by_topic").paginate(TopicArn=arn)
    subscriptions = [subscription for page in pages for subscription in page["Subscriptions"]]
    endpoints = [subscription["Endpoint"] for subscription in subscriptions]
    if endpoints != [queue_arn]:
        raise EndpointError(
            f"--topic-arn {arn} has the subscribers {endpoints}, allowed is [{queue_arn!r}]: others would get the"
            " messages of the tests"
        )
    attributes = sns.get_subscription_attributes(SubscriptionArn=subscriptions[0]["SubscriptionArn"])["Attributes"]
    if attributes.get("RawMessageDelivery") != "true" or "FilterPolicy" in attributes:
        raise EndpointError(
            f"the subscription of {queue_arn} has an envelope or a filter; allowed is raw delivery of all"
        )


class ByoQueueResources:
    """Gives a test the user's resources where `Resources` would make new ones.

    Args:
        target: the endpoint under test.
        byo: the user's resources.
        sqs: a client that only this test uses; its calls are changed by hooks.
        sns: the same for SNS.
        number: of the test, unique in the process; part of the prefix of its messages.
    """

    def __init__(self, target: Target, byo: ByoQueues, sqs: Any, sns: Any, *, number: int) -> None:
        self._target, self._byo, self._sqs, self._sns = target, byo, sqs, sns
        self._prefix = f"{_RUN}{number}-"
        self._handles: list[tuple[str, str]] = []
        for client in (sqs, sns):
            client.meta.events.register("before-call", self._refuse)
            for operation in ("sqs.SendMessage", "sqs.SendMessageBatch", "sns.Publish", "sns.PublishBatch"):
                client.meta.events.register(f"provide-client-params.{operation}", self._mark)
        sqs.meta.events.register("provide-client-params.sqs.ReceiveMessage", self._request_group)
        sqs.meta.events.register("after-call.sqs.ReceiveMessage", self._unmark)

    def fifo_queue(self, *, hint: str = "q", **_: object) -> QueueUnderTest:
        """Return the DLQ if `hint` is "dlq", else the queue; other arguments are ignored, because nothing is made."""
        url = self._byo.dlq_url if hint == "dlq" else self._byo.queue_url
        assert url is not None, "the tests that ask for a DLQ are deselected where none was given"
        arn = self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        return QueueUnderTest(self._sqs, arn.rpartition(":")[2], url, arn, self._target.patience_seconds)

    def queue_with_dlq(self, **_: object) -> tuple[QueueUnderTest, QueueUnderTest]:
        """Return the queue and the DLQ."""
        return self.fifo_queue(), self.fifo_queue(hint="dlq")

    def fifo_topic(self, *_: QueueUnderTest) -> TopicUnderTest:
        """Return the topic."""
        assert self._byo.topic_arn is not None, "the tests that ask for a topic are deselected where none was given"
        return TopicUnderTest(self._sns, self._byo.topic_arn)

    def close(self) -> None:
        """Delete the messages of the test, and wait until both queues are empty.

        Raises:
            NotReachedError: a message is still there when the target's patience ends.
        """
        for url, handle in self._handles:
            with contextlib.suppress(ClientError):  # an expired handle: the message is received again below
                self._sqs.delete_message(QueueUrl=url, ReceiptHandle=handle)
        for url in filter(None, (self._byo.queue_url, self._byo.dlq_url)):
            eventually(
                self._emptying(url),
                until=lambda left: set(left.values()) == {0},
                timeout_seconds=self._target.patience_seconds,
                describe=f"{url} to be empty",
            )

    def _emptying(self, url: str) -> Callable[[], dict[str, int]]:
        """Return a function that deletes the messages of one receive, and returns their number and the counts."""
        wait_seconds = 0 if self._byo.topic_arn is None else 1  # a published message may not have arrived yet

        def empty() -> dict[str, int]:
            answer = self._sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=wait_seconds)
            for message in answer.get("Messages", []):
                self._sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            attributes = self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=list(_COUNTERS))["Attributes"]
            counted = {word: int(attributes[name]) for name, word in _COUNTERS.items()}
            return {"received": len(answer.get("Messages", [])), **counted}

        return empty

    @staticmethod
    def _refuse(model: Any, **_: object) -> None:
        """Refuse calls that would change or purge the user's resources; botocore calls this before each call."""
        if model.name not in _ALLOWED:
            raise RuntimeError(f"{model.name} is not for resources of somebody else; take the promise out of the table")

    def _mark(self, params: dict[str, Any], **_: object) -> dict[str, Any]:
        """Return a send's parameters with the prefix before each id; botocore calls this before each send."""
        marked = {name: self._prefix_id(name, value) for name, value in params.items()}
        for batch in _BATCHES:
            if batch in params:
                marked[batch] = [
                    {name: self._prefix_id(name, value) for name, value in param.items()} for param in params[batch]
                ]
        return marked

    def _prefix_id(self, name: str, value: Any) -> Any:
        return f"{self._prefix}{value}" if name in _IDS and value else value

    def _request_group(self, params: dict[str, Any], context: dict[str, Any], **_: object) -> dict[str, Any]:
        """Return a receive's parameters with a request for the group, by which `_unmark` knows the test's messages.

        The context stores whether the test itself requested the group.
        """
        parameter = "AttributeNames" if "AttributeNames" in params else "MessageSystemAttributeNames"
        parameter = "MessageSystemAttributeNames" if "MessageSystemAttributeNames" in params else parameter
        names = params.get(parameter, [])
        context["sluice_hide_group"] = not {"All", "MessageGroupId"} & set(names)
        context["sluice_queue"] = params["QueueUrl"]
        marked = {name: self._prefix_id(name, value) for name, value in params.items()}
        return {**marked, parameter: [*names, "MessageGroupId"]} if context["sluice_hide_group"] else marked

    def _unmark(self, parsed: dict[str, Any], context: dict[str, Any], **_: object) -> None:
        """Change the answer of a receive: keep this test's messages, without the prefix.

        Messages that an earlier test left are deleted. A message of somebody else is released, and refused.
        """
        url, kept = context["sluice_queue"], []
        for message in parsed.get("Messages", []):
            attributes = message["Attributes"]
            group = attributes["MessageGroupId"]
            if group.startswith(self._prefix):
                self._handles.append((url, message["ReceiptHandle"]))
                kept.append(self._restore(message, hide_group=context["sluice_hide_group"]))
            elif group.startswith(_RUN):
                self._sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            else:
                self._sqs.change_message_visibility(
                    QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
                )
                raise EndpointError(f"{url} brought a message of somebody else (group {group!r}); it was given back")
        parsed.pop("Messages", None)
        if kept:
            parsed["Messages"] = kept

    def _restore(self, message: dict[str, Any], *, hide_group: bool) -> dict[str, Any]:
        """Return a message without the prefix in its ids, and without the group if the test did not request it."""
        attributes = {
            name: value.removeprefix(self._prefix) if name in _IDS else value
            for name, value in message["Attributes"].items()
            if not (hide_group and name == "MessageGroupId")
        }
        rest = {name: value for name, value in message.items() if name != "Attributes"}
        return rest | ({"Attributes": attributes} if attributes else {})
