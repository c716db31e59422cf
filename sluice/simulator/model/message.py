"""One message of a queue, and the rules for its body, attributes and ids."""

import base64
import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sluice import limits
from sluice.simulator.model.refusal import AwsRefusal, invalid_parameter, invalid_value, missing

SENDER_ID = "AIDASSYFHUBOBT7F4XT75"
"""The sender of every message: the simulator has no identities."""
_ID = re.compile(r"[0-9a-zA-Z!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]{1,128}")
_DATA_TYPE = re.compile(r"(String|Number|Binary)(\..+)?")
_ATTRIBUTE_NAME_BYTES_MAX = _DATA_TYPE_BYTES_MAX = 255  # documented as 256; "must be shorter than 256 Bytes"
_INVALID_CHARACTER = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_INVALID_CHARACTERS = (
    "Invalid characters found. Valid unicode characters are "
    "#x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF"
)


@dataclass(slots=True, kw_only=True)
class QueuedMessage:
    """A message in one queue; instants are seconds.

    Args:
        number: counts all messages that its queue ever got; the order of the queue.
        sent_at: when its producer sent it; a FIFO DLQ sets it anew.
        retained_from: the beginning of its retention period.
        visible_at: when it can be received again; while this is in the future, it is in flight or delayed.
        receives: ApproximateReceiveCount, which a DLQ continues [DLQ-07].
        receives_here: receives from this queue, which this queue's maxReceiveCount limits.
        handle: the receipt handle of the latest receive, the only valid one of a FIFO queue [VIS-05].
        is_visibility_changed: whether a consumer changed the visibility timeout after the latest receive.
        source_arn: the queue that a dead letter came from.
    """

    id: str
    body: str
    number: int
    sent_at: float
    retained_from: float
    visible_at: float
    group: str | None = None
    deduplication_id: str | None = None
    sequence_number: str | None = None
    attributes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    trace_header: str | None = None
    receives: int = 0
    receives_here: int = 0
    first_received_at: float | None = None
    received_at: float = 0.0
    handle: str | None = None
    is_visibility_changed: bool = False
    source_arn: str | None = None

    def is_visible(self, now: float) -> bool:
        """Return whether it can be received, unless an earlier message of its group is invisible."""
        return self.visible_at <= now

    def is_in_flight(self, now: float) -> bool:
        """Return whether a consumer has received it, and its visibility timeout has not ended."""
        return self.receives_here > 0 and not self.is_visible(now)

    def system_attributes(self) -> dict[str, str]:
        """Return the system attributes that ReceiveMessage reports [RCV-04]."""
        first_received_at = self.sent_at if self.first_received_at is None else self.first_received_at
        known = {
            "SenderId": SENDER_ID,
            "SentTimestamp": _milliseconds(self.sent_at),
            "ApproximateReceiveCount": str(self.receives),
            "ApproximateFirstReceiveTimestamp": _milliseconds(first_received_at),
            "SequenceNumber": self.sequence_number,
            "MessageDeduplicationId": self.deduplication_id,
            "MessageGroupId": self.group,
            "AWSTraceHeader": self.trace_header,
            "DeadLetterQueueSourceArn": self.source_arn,
        }
        return {name: value for name, value in known.items() if value is not None}


def _milliseconds(instant: float) -> str:
    return str(round(instant * 1_000))


def content_id(body: str) -> str:
    """Return the deduplication id by content: a hash of the body alone, without attributes [RCV-05, DED-10]."""
    return hashlib.sha256(body.encode()).hexdigest()


def check_id(name: str, value: str) -> None:
    """Refuse a group or deduplication id that is empty, too long or has other characters [SND-03, SND-05]."""
    if not _ID.fullmatch(value):
        raise invalid_parameter(
            name, value, f"{name} can only include alphanumeric and punctuation characters. 1 to 128 in length."
        )


def check_content(entry: Mapping[str, Any]) -> None:
    """Refuse a send whose body or attributes SQS would refuse."""
    if not entry["MessageBody"]:
        raise missing("MessageBody")  # [SND-12]
    if _INVALID_CHARACTER.search(entry["MessageBody"]):
        raise AwsRefusal("InvalidMessageContents", _INVALID_CHARACTERS)  # [SND-15]
    if "MessageAttributes" in entry:
        check_attributes(entry["MessageAttributes"])
    for name, value in entry.get("MessageSystemAttributes", {}).items():
        if name != "AWSTraceHeader":  # [SND-18]
            raise invalid_value(f"Message system attribute name '{name}' is invalid.")
        if value["DataType"] != "String" or not value.get("StringValue"):  # text not recorded
            raise invalid_value(f"Message system attribute '{name}' must contain a non-empty value of type 'String'.")


def check_attributes(attributes: Mapping[str, Any]) -> None:
    """Refuse too many attributes [SND-17], and an attribute whose name or value SQS would refuse."""
    attributes_max = limits.MESSAGE_ATTRIBUTES_MAX
    if len(attributes) > attributes_max:
        raise invalid_value(
            f"Number of message attributes [{len(attributes)}] exceeds the allowed maximum [{attributes_max}]."
        )
    for name, value in attributes.items():
        _check_attribute_name(name)
        _check_attribute_value(name, value)


def _check_attribute_name(name: str) -> None:
    """Refuse the name of an attribute; AWS's texts are not recorded."""
    if len(name.encode()) > _ATTRIBUTE_NAME_BYTES_MAX:
        raise invalid_value("Message (user) attribute names must be shorter than 256 Bytes")
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", name):
        raise invalid_value(
            "Message (user) attributes name can only contain upper and lower score characters, digits, periods, "
            "hyphens and underscores. "
        )
    if name.lower().startswith(("aws.", "amazon.")) or name.startswith(".") or name.endswith("."):
        raise invalid_value(
            "You can't use message attribute names beginning with 'AWS.' or 'Amazon.'. These strings are reserved for "
            "internal use. Additionally, they cannot start or end with '.'."
        )
    if ".." in name:
        raise invalid_value("Message (user) attribute names cannot have successive periods.")


def _check_attribute_value(name: str, value: Mapping[str, Any]) -> None:
    """Refuse the type or value of an attribute; only AWS's text about an empty value is recorded [SND-16]."""
    type_ = value["DataType"]
    kind = _DATA_TYPE.fullmatch(type_)
    if kind is None:
        raise invalid_value(
            "Type for parameter MessageAttributes.Attribute_name.DataType must be prefixed "
            f'with "String", "Binary", or "Number", but was: {type_}'
        )
    if len(type_.encode()) > _DATA_TYPE_BYTES_MAX:
        raise invalid_value("Message (user) attribute types must be shorter than 256 Bytes")
    field_ = "BinaryValue" if kind[1] == "Binary" else "StringValue"
    if not value.get(field_):
        raise invalid_value(f"Message (user) attribute '{name}' must contain a non-empty value of type '{type_}'.")
    if field_ == "StringValue" and _INVALID_CHARACTER.search(value[field_]):
        raise invalid_value(_INVALID_CHARACTERS)
    if kind[1] == "Number" and not _is_number(value[field_]):
        raise invalid_value(f"Can't cast the value of message (user) attribute '{name}' to a number.")


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def check_size(entry: Mapping[str, Any], *, bytes_max: int) -> None:
    """Refuse a message larger than its queue allows; for an entry of a batch AWS's text differs [SND-14, BAT-08]."""
    if size_bytes(entry) > bytes_max:
        are_invalid = "cannot be validated" if "Id" in entry else "are invalid"
        raise invalid_value(
            f"One or more parameters {are_invalid}. Reason: Message must be shorter than {bytes_max} bytes."
        )


def size_bytes(entry: Mapping[str, Any]) -> int:
    """Return a message's size as SQS counts it: body, and the names, types and values of attributes."""
    attributes = entry.get("MessageAttributes", {})
    return len(entry["MessageBody"].encode()) + sum(
        len(name.encode()) + len(value["DataType"].encode()) + len(_value(value)) for name, value in attributes.items()
    )


def _value(attribute: Mapping[str, Any]) -> bytes:
    """Return an attribute's value as bytes; a binary value is given as base64, as a request has it."""
    if "BinaryValue" in attribute:
        return base64.b64decode(attribute["BinaryValue"])
    return str(attribute.get("StringValue", "")).encode()


def md5(text: str) -> str:
    """Return the checksum SQS gives for a body."""
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def md5_of_attributes(attributes: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the checksum SQS gives for message attributes.

    AWS: SQSDeveloperGuide/sqs-message-metadata.html#sqs-attributes-md5-message-digest-calculation (read 2026-11-20).
    """
    digest = hashlib.md5(usedforsecurity=False)
    for name, attribute in sorted(attributes.items()):
        for part in (name.encode(), attribute["DataType"].encode()):
            digest.update(len(part).to_bytes(4) + part)
        value = _value(attribute)
        digest.update((b"\2" if "BinaryValue" in attribute else b"\1") + len(value).to_bytes(4) + value)
    return digest.hexdigest()


def select_attributes(
    attributes: Mapping[str, Mapping[str, Any]], requested: list[str]
) -> dict[str, Mapping[str, Any]]:
    """Return the attributes that a receive requested: all, by name, or by `prefix.*` [RCV-07]."""
    if {"All", ".*", "*"} & set(requested):
        return dict(attributes)
    prefixes = tuple(name.removesuffix("*") for name in requested if name.endswith(".*"))
    return {
        name: value
        for name, value in attributes.items()
        if name in requested or (prefixes and name.startswith(prefixes))
    }
