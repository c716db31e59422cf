"""Queue attributes: their defaults, and the names and values that AWS refuses."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from sluice import limits
from sluice.simulator.model.operation import as_spelled
from sluice.simulator.model.refusal import AwsRefusal, invalid_parameter, invalid_value

_RANGES = {  # [CRE-18]
    "DelaySeconds": (0, 900),
    "MaximumMessageSize": (limits.MESSAGE_BYTES_MIN, limits.MESSAGE_BYTES_MAX),
    "MessageRetentionPeriod": (limits.MESSAGE_RETENTION_SECONDS_MIN, limits.MESSAGE_RETENTION_SECONDS_MAX),
    "ReceiveMessageWaitTimeSeconds": (0, limits.WAIT_SECONDS_MAX),
    "VisibilityTimeout": (0, limits.VISIBILITY_TIMEOUT_SECONDS_MAX),
    "KmsDataKeyReusePeriodSeconds": (60, 86_400),
}
_CHOICES = {
    "ContentBasedDeduplication": ("true", "false"),
    "DeduplicationScope": ("queue", "messageGroup"),
    "FifoThroughputLimit": ("perQueue", "perMessageGroupId"),
    "SqsManagedSseEnabled": ("true", "false"),
}
BOOLEANS = ("FifoQueue", "ContentBasedDeduplication", "SqsManagedSseEnabled")
_REMOVABLE = ("Policy", "RedrivePolicy", "RedriveAllowPolicy", "KmsMasterKeyId")  # an empty value removes them
_FIFO_ONLY = ("DeduplicationScope", "FifoThroughputLimit")
SETTABLE = {*_RANGES, *_CHOICES, *_REMOVABLE, "FifoQueue"}
ALLOWED_SOURCES_MAX = 10

_DEFAULTS = {  # [CRE-01, CRE-02]
    "DelaySeconds": "0",
    "MaximumMessageSize": str(limits.MESSAGE_BYTES_MAX),
    "MessageRetentionPeriod": "345600",
    "ReceiveMessageWaitTimeSeconds": "0",
    "SqsManagedSseEnabled": "true",
    "VisibilityTimeout": "30",
}
_FIFO_DEFAULTS = {
    "ContentBasedDeduplication": "false",
    "DeduplicationScope": "queue",
    "FifoQueue": "true",
    "FifoThroughputLimit": "perQueue",
}

type FindQueue = Callable[[str], Mapping[str, str] | None]
"""Takes an ARN and returns the attributes of that queue; None if there is no such queue."""


def defaults(*, is_fifo: bool) -> dict[str, str]:
    """Return the attributes of a queue that was created without any."""
    return _DEFAULTS | (_FIFO_DEFAULTS if is_fifo else {})


def check_name(name: str, *, is_fifo: bool) -> None:
    """Refuse a queue name, or a name that contradicts the queue's type [CRE-10, CRE-11, CRE-12]."""
    stem = name.removesuffix(limits.FIFO_SUFFIX)
    if not re.fullmatch(r"[A-Za-z0-9_-]+", stem) or len(name) > limits.QUEUE_NAME_CHARACTERS_MAX:
        raise invalid_value("Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length")
    if is_fifo != name.endswith(limits.FIFO_SUFFIX):
        raise invalid_value(
            "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, must end with "
            ".fifo suffix and be 1 to 80 in length."
        )


def check(wanted: Mapping[str, str], *, current: Mapping[str, str], arn: str, find_queue: FindQueue) -> dict[str, str]:
    """Return a queue's attributes after `wanted` is applied to `current`, in AWS's own spelling.

    Args:
        wanted: the attributes of CreateQueue or SetQueueAttributes.
        current: all attributes before.
        arn: of the queue.
        find_queue: finds the DLQ that a redrive policy names.

    Raises:
        AwsRefusal: AWS would refuse one of them; a bad name has another error code than a bad value [ERR-03].
    """
    is_fifo, wanted = "FifoQueue" in current, as_spelled(wanted, BOOLEANS)
    for name, value in wanted.items():
        _check_attribute(name, value, is_fifo=is_fifo)
    # A KMS key replaces SQS's own encryption; a request for both is refused [CRE-23, CRE-26].
    applied = dict(current) | ({"SqsManagedSseEnabled": "false"} if wanted.get("KmsMasterKeyId") else {}) | dict(wanted)
    if applied.get("KmsMasterKeyId") and applied["SqsManagedSseEnabled"] == "true":
        raise AwsRefusal(
            "InvalidAttributeName",
            "You can use one type of server-side encryption (SSE) at one time. "
            "You can either enable KMS SSE or SQS SSE.",
        )
    if applied.get("FifoThroughputLimit") == "perMessageGroupId" and applied["DeduplicationScope"] != "messageGroup":
        raise invalid_value(  # [CRE-16], text not recorded
            "FifoThroughputLimit perMessageGroupId is allowed only when DeduplicationScope is messageGroup."
        )
    if wanted.get("RedrivePolicy"):
        applied["RedrivePolicy"] = redrive_policy(
            wanted["RedrivePolicy"], arn=arn, is_fifo=is_fifo, find_queue=find_queue
        )
    if wanted.get("RedriveAllowPolicy"):
        _check_allow_policy(wanted["RedriveAllowPolicy"])
    return {name: value for name, value in applied.items() if value != "" or name not in _REMOVABLE}


def _check_attribute(name: str, value: str, *, is_fifo: bool) -> None:
    if name not in SETTABLE or (not is_fifo and name in ("FifoQueue", "ContentBasedDeduplication")):
        raise AwsRefusal("InvalidAttributeName", f"Unknown Attribute {name}.")  # [CRE-07, CRE-13]
    if not is_fifo and name in _FIFO_ONLY:
        raise AwsRefusal("InvalidAttributeName", f"You can specify the {name} only when FifoQueue is set to true.")
    if name == "FifoQueue" and value != "true":  # [CRE-14]
        raise AwsRefusal(
            "InvalidAttributeValue",
            "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not supported.",
        )
    if not _is_allowed(name, value):
        raise AwsRefusal("InvalidAttributeValue", f"Invalid value for the parameter {name}.")


def _is_allowed(name: str, value: str) -> bool:
    """Return whether AWS takes this value for a queue's attribute."""
    if name in _RANGES:
        least, most = _RANGES[name]
        return value.isdecimal() and least <= int(value) <= most
    if name == "Policy" and value:
        return _is_json_object(value)
    return value in _CHOICES.get(name, (value,))


def redrive_policy(text: str, *, arn: str, is_fifo: bool, find_queue: FindQueue) -> str:
    """Check a redrive policy, and return it as the JSON that AWS stores, maxReceiveCount as a number [DLQ-13].

    Args:
        text: the policy as the caller gave it.
        arn: of the source queue.
        is_fifo: whether the source is a FIFO queue.
        find_queue: finds the DLQ.
    """
    target, count = _read_redrive_policy(text)
    dlq = find_queue(target)
    if dlq is None:
        raise invalid_parameter("RedrivePolicy", text, "Dead letter target does not exist.")  # [DLQ-10]
    if is_fifo != ("FifoQueue" in dlq):
        # AWS's text ends with two full stops [DLQ-09].
        raise invalid_parameter("RedrivePolicy", text, "Dead-letter queue must be same type of queue as the source..")
    if not _allows(dlq.get("RedriveAllowPolicy"), source=arn):  # [DLQ-18], text not recorded
        raise invalid_parameter("RedrivePolicy", text, "The dead letter target does not allow this queue as a source.")
    return json.dumps({"deadLetterTargetArn": target, "maxReceiveCount": count}, separators=(",", ":"))


def _read_redrive_policy(text: str) -> tuple[str, int]:
    """Return (DLQ's ARN, maxReceiveCount) of a well-formed redrive policy [DLQ-11, DLQ-12, DLQ-14, DLQ-15]."""
    policy = _json_map("RedrivePolicy", text)
    for name in ("maxReceiveCount", "deadLetterTargetArn"):
        if name not in policy:
            raise invalid_parameter(
                "RedrivePolicy", text, f"Redrive policy does not contain mandatory attribute: {name}."
            )
    if set(policy) - {"maxReceiveCount", "deadLetterTargetArn"}:
        raise invalid_parameter(
            "RedrivePolicy", text, "Only following attributes are supported: [maxReceiveCount, deadLetterTargetArn]."
        )
    target, count = str(policy["deadLetterTargetArn"]), str(policy["maxReceiveCount"])
    if not count.isdecimal() or not limits.MAX_RECEIVE_COUNT_MIN <= int(count) <= limits.MAX_RECEIVE_COUNT_MAX:
        raise invalid_parameter(
            "RedrivePolicy",
            text,
            f"Invalid value for maxReceiveCount: {count}, valid values are from 1 to 1000 both inclusive.",
        )
    if not re.fullmatch(r"arn:aws[\w-]*:sqs:[\w-]+:\d{12}:[\w.-]+", target):
        raise invalid_parameter("RedrivePolicy", text, "Only SQS queues are valid resources for deadLetterTargetArn.")
    return target, int(count)


def _json_map(name: str, text: str) -> dict[str, Any]:
    if not _is_json_object(text):
        raise invalid_value(f"Invalid value for the parameter {name}. Reason: Redrive policy is not a valid JSON map.")
    return dict(json.loads(text))


def _is_json_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _check_allow_policy(text: str) -> None:
    """Refuse a malformed RedriveAllowPolicy [DLQ-18]; AWS's texts are not recorded."""
    policy = _json_map("RedriveAllowPolicy", text)
    permission, sources = policy.get("redrivePermission"), policy.get("sourceQueueArns")
    if permission not in ("allowAll", "denyAll", "byQueue") or (permission == "byQueue") != bool(sources):
        raise invalid_parameter("RedriveAllowPolicy", text, "Amazon SQS can't create the redrive allow policy.")
    if sources and len(sources) > ALLOWED_SOURCES_MAX:
        raise invalid_parameter(
            "RedriveAllowPolicy", text, "The maximum number of source queue ARNs you can specify is 10."
        )


def _allows(allow_policy: str | None, *, source: str) -> bool:
    """Return whether a DLQ's RedriveAllowPolicy allows the source queue with this ARN; without a policy, all are."""
    policy = {"redrivePermission": "allowAll"} if allow_policy is None else json.loads(allow_policy)
    return bool(policy["redrivePermission"] == "allowAll" or source in policy.get("sourceQueueArns", ()))
