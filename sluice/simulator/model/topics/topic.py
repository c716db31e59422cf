"""One topic: its attributes, the deduplication ids it remembers, its archive, and its subscriptions' settings."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sluice import limits
from sluice.simulator.model.filter_policy import accepts_attributes, accepts_body
from sluice.simulator.model.message import content_id
from sluice.simulator.model.refusal import sns_invalid

FIRST_SEQUENCE_NUMBER = 10_000_000_000_000_000_000  # 20 digits
SEQUENCE_STEP = 1_000
_SETTABLE = {
    *("ContentBasedDeduplication", "FifoThroughputScope", "ArchivePolicy", "MaximumMessageSize"),
    *("DisplayName", "Policy", "DeliveryPolicy", "KmsMasterKeyId", "TracingConfig", "SignatureVersion"),
}
_ALLOWED = {
    "FifoTopic": ("true", "false"),
    "ContentBasedDeduplication": ("true", "false"),
    "FifoThroughputScope": ("Topic", "MessageGroup"),
}

_DELIVERY_POLICY = {
    "defaultHealthyRetryPolicy": {
        "minDelayTarget": 20,
        "maxDelayTarget": 20,
        "numRetries": 3,
        "numMaxDelayRetries": 0,
        "numNoDelayRetries": 0,
        "numMinDelayRetries": 0,
        "backoffFunction": "linear",
    },
    "disableSubscriptionOverrides": False,
    "defaultRequestPolicy": {"headerContentType": "text/plain; charset=UTF-8"},
}  # recorded [SNS-149]
_OWNERS_ACTIONS = (  # the actions that a topic's default policy allows
    *("GetTopicAttributes", "SetTopicAttributes", "AddPermission", "RemovePermission", "DeleteTopic"),
    *("Subscribe", "ListSubscriptionsByTopic", "Publish"),
)
ACTIONS = (*_OWNERS_ACTIONS, "Receive")  # the actions that AddPermission accepts [SNS-147]
BOOLEANS = ("FifoTopic", "ContentBasedDeduplication", "RawMessageDelivery")  # also of its subscriptions


@dataclass(frozen=True, slots=True)
class PublishResult:
    """The answer to a publish, and its instant in seconds; only a FIFO topic gives a sequence number."""

    message_id: str
    sequence_number: str | None
    published_at: float


@dataclass(frozen=True, slots=True)
class ArchivedMessage:
    """An archive's record of a publish: its parameters, its answer, and its deduplication id."""

    entry: Mapping[str, Any]
    published: PublishResult
    deduplication_id: str


@dataclass(slots=True, kw_only=True)
class Subscription:
    """One subscription of a queue, which needs no confirmation in the same account [SNS-36].

    Args:
        endpoint: the queue's ARN.
        is_orphaned: whether its topic was deleted.
        gone_at: the instant from which it cannot be read, a while after its topic was deleted [SNS-150].
    """

    arn: str
    topic_arn: str
    endpoint: str
    attributes: dict[str, str] = field(default_factory=dict)
    is_orphaned: bool = False
    gone_at: float = math.inf

    def is_raw(self) -> bool:
        """Return whether the queue gets messages without an envelope [SNS-14]."""
        return self.attributes.get("RawMessageDelivery") == "true"

    def wants(self, body: str, attributes: Mapping[str, Mapping[str, Any]]) -> bool:
        """Return whether the filter policy lets a message through [SNS-38]."""
        if not self.attributes.get("FilterPolicy"):
            return True
        policy = json.loads(self.attributes["FilterPolicy"])
        if self.attributes.get("FilterPolicyScope") != "MessageBody":
            return accepts_attributes(policy, attributes)
        return accepts_body(policy, body)

    def dead_letter_arn(self) -> str | None:
        """Return the ARN of the DLQ for messages that the queue does not take; None without a DLQ."""
        policy = self.attributes.get("RedrivePolicy")
        return None if not policy else str(json.loads(policy)["deadLetterTargetArn"])

    def replay_policy(self) -> Mapping[str, str]:
        """Return the replay policy: from when until when archived messages are delivered again; may be empty."""
        policy: Mapping[str, str] = json.loads(self.attributes.get("ReplayPolicy") or "{}")
        return policy

    def is_paused(self, published_at: float) -> bool:
        """Return whether the ending point of a replay lies before this publish, which is not delivered [SNS-163]."""
        until = _instant(self.replay_policy().get("EndingPoint"))
        return until is not None and published_at > until


class SimulatedTopic:
    """A topic, FIFO or standard.

    Args:
        arn: ends with `.fifo` if, and only if, it is a FIFO topic.
        attributes: as `check_topic` has accepted them.
    """

    def __init__(self, arn: str, attributes: dict[str, str]) -> None:
        self.arn, self.attributes = arn, attributes
        self.tags: dict[str, str] = {}
        self.deleted_subscriptions = 0
        self._published: dict[tuple[str, str], PublishResult] = {}
        self._archive: list[ArchivedMessage] = []
        self._numbers = 0

    @property
    def is_fifo(self) -> bool:
        """Return whether it is a FIFO topic."""
        return self.attributes.get("FifoTopic") == "true"

    def bytes_max(self) -> int:
        """Return the largest size of a message in bytes [SNS-29, SNS-30]."""
        return int(self.attributes.get("MaximumMessageSize", limits.PUBLISH_BYTES_MAX))

    def is_by_content(self) -> bool:
        """Return whether a message without a deduplication id gets a hash of its content as its id."""
        return self.attributes.get("ContentBasedDeduplication") == "true"

    def policy(self) -> dict[str, Any]:
        """Return the resource policy; by default it allows the topic's own account [SNS-149]."""
        if self.attributes.get("Policy"):
            policy: dict[str, Any] = json.loads(self.attributes["Policy"])
            return policy
        owners = {
            "Sid": "__default_statement_ID",
            "Effect": "Allow",
            "Principal": {"AWS": "*"},
            "Action": [f"SNS:{action}" for action in _OWNERS_ACTIONS],
            "Resource": self.arn,
            "Condition": {"StringEquals": {"AWS:SourceOwner": self.arn.split(":")[4]}},
        }
        return {"Version": "2008-10-17", "Id": "__default_policy_ID", "Statement": [owners]}

    def effective_delivery_policy(self) -> dict[str, Any]:
        """Return the retries of deliveries by HTTP: the values of DeliveryPolicy, and AWS's defaults for the others."""
        given = _dict(json.loads(self.attributes.get("DeliveryPolicy") or "{}").get("http"))
        merged = {
            name: {**default, **_dict(given.get(name))} if isinstance(default, dict) else given.get(name, default)
            for name, default in _DELIVERY_POLICY.items()
        }
        return {"http": merged}

    def deduplication_id(self, body: str, requested: str | None) -> str:
        """Return the deduplication id of a message: the requested one, or the hash of its body [SNS-16]."""
        return content_id(body) if requested is None else requested

    def deduplication_key(self, deduplication_id: str, group: str) -> tuple[str, str]:
        """Return the key by which two publishes are the same: the id, in the topic or a group [SNS-19, SNS-39]."""
        return (group if self.attributes.get("FifoThroughputScope") == "MessageGroup" else "", deduplication_id)

    def earlier_publish(self, key: tuple[str, str], now: float) -> PublishResult | None:
        """Return the result of a publish with this key in the last five minutes; None without one [SNS-18]."""
        first = self._published.get(key)
        return None if first is None or now >= first.published_at + limits.DEDUPLICATION_WINDOW_SECONDS else first

    def remember(self, key: tuple[str, str], published: PublishResult) -> None:
        """Remember the result of a publish by its key, for the next five minutes."""
        self._published[key] = published

    def has_archive(self) -> bool:
        """Return whether it archives published messages."""
        return self.attributes.get("ArchivePolicy") not in (None, "", "{}")

    def archive(self, archived: ArchivedMessage) -> None:
        """Put a publish into the archive, if the topic has one."""
        if self.has_archive():
            self._archive.append(archived)

    def messages_to_replay(self, policy: Mapping[str, str]) -> list[ArchivedMessage]:
        """Return the archived messages between a replay policy's two instants, the oldest first."""
        if not policy:
            return []
        since, until = (_instant(policy.get(name)) for name in ("StartingPoint", "EndingPoint"))
        return [
            archived
            for archived in self._archive
            if (since is None or since <= archived.published.published_at)
            and (until is None or archived.published.published_at <= until)
        ]

    def next_sequence_number(self) -> str:
        """Return a number above all earlier ones; the queues give the delivered copies other numbers [SNS-12]."""
        self._numbers += 1
        return str(FIRST_SEQUENCE_NUMBER + self._numbers * SEQUENCE_STEP)


def _dict(value: object) -> Mapping[str, Any]:
    """Return a value that is a dict, and an empty dict for anything else."""
    return value if isinstance(value, dict) else {}


def _instant(text: str | None) -> float | None:
    return None if text is None else datetime.fromisoformat(text).timestamp()


def check_replay(topic: SimulatedTopic, value: str) -> None:
    """Refuse a malformed replay policy, and any of a topic without an archive; AWS's texts are not recorded."""
    try:
        policy = json.loads(value)
        points = [_instant(policy.get(name)) for name in ("StartingPoint", "EndingPoint")]
    except (ValueError, AttributeError, TypeError):
        raise sns_invalid("ReplayPolicy: failed to parse") from None
    if policy and (not topic.has_archive() or policy.get("PointType") != "Timestamp" or points[0] is None):
        raise sns_invalid("ReplayPolicy: Invalid policy.")


def check_topic(name: str, attributes: Mapping[str, str]) -> None:
    """Refuse an invalid name, a name that contradicts the topic's type [SNS-01], and an invalid attribute."""
    _check_choice("FifoTopic", attributes.get("FifoTopic", "false"))
    stem = name.removesuffix(limits.FIFO_SUFFIX)
    is_fifo = attributes.get("FifoTopic") == "true"
    well_formed = re.fullmatch(r"[A-Za-z0-9_-]+", stem) and len(name) <= limits.TOPIC_NAME_CHARACTERS_MAX
    if not well_formed or is_fifo != name.endswith(limits.FIFO_SUFFIX):
        raise sns_invalid("Topic Name")
    for attribute, value in attributes.items():
        if attribute != "FifoTopic":
            check_attribute(attribute, value, is_fifo=is_fifo)


def _check_choice(name: str, value: str) -> None:
    if value not in _ALLOWED.get(name, (value,)):
        raise sns_invalid(f"Attributes Reason: {name}: Invalid value [{value}].")


def check_attribute(name: str, value: str, *, is_fifo: bool) -> None:
    """Refuse an attribute that does not exist, that cannot be changed [SNS-04], or whose value AWS would refuse."""
    if name not in _SETTABLE:
        raise sns_invalid("AttributeName")
    _check_choice(name, value)
    if name == "ArchivePolicy" and value not in ("", "{}") and not (is_fifo and _is_archive_policy(value)):  # [SNS-40]
        raise sns_invalid("Attributes Reason: ArchivePolicy: Invalid policy.")
    if name in ("Policy", "DeliveryPolicy") and value and not _is_object(value):  # text not recorded
        raise sns_invalid(f"{name}: failed to parse JSON.")
    sizes = range(limits.MESSAGE_BYTES_MIN, limits.MESSAGE_BYTES_MAX + 1)
    if name == "MaximumMessageSize" and not (value.isdecimal() and int(value) in sizes):
        raise sns_invalid(f"Attributes Reason: MaximumMessageSize: Invalid value [{value}].")


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _is_archive_policy(value: str) -> bool:
    try:
        days = str(json.loads(value)["MessageRetentionPeriod"])
    except (ValueError, KeyError, TypeError):
        return False
    return days.isdecimal() and 1 <= int(days) <= limits.ARCHIVE_DAYS_MAX


def check_redrive(topic: SimulatedTopic, value: str, reason: str) -> None:
    """Refuse a subscription's redrive policy, by its DLQ [SNS-08, SNS-34].

    The DLQ must be in the topic's account and Region, and for a FIFO topic a FIFO queue. `reason` is the beginning of
    AWS's text, which differs between Subscribe and SetSubscriptionAttributes.
    """
    try:
        policy = json.loads(value)
    except (ValueError, RecursionError):
        raise sns_invalid(f"{reason}RedrivePolicy: failed to parse JSON.") from None
    target = str(policy.get("deadLetterTargetArn")) if isinstance(policy, dict) else ""
    if not re.fullmatch(r"arn:[\w-]+:sqs:[\w-]+:\d{12}:[\w.-]+", target):
        raise sns_invalid(f"{reason}RedrivePolicy: deadLetterTargetArn is an invalid arn")
    if topic.is_fifo and not target.endswith(limits.FIFO_SUFFIX):
        raise sns_invalid("RedrivePolicy: must use a FIFO queue as DLQ for a FIFO Subscription to a FIFO Topic.")
    if target.split(":")[3:5] != topic.arn.split(":")[3:5]:  # text not recorded
        raise sns_invalid(f"{reason}RedrivePolicy: deadLetterTargetArn must be in the same account and Region")
