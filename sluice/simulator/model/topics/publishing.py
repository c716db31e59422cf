"""The rules of publishing: which publishes SNS refuses, and with which text."""

import json
import re

from sluice.simulator.model.message import check_id, size_bytes
from sluice.simulator.model.operation import Params
from sluice.simulator.model.refusal import AwsRefusal, sns_invalid
from sluice.simulator.model.topics.topic import SimulatedTopic

_ENTRIES_MAX = 10
_NAME_BYTES_MAX = 256
_SUBJECT_CHARACTERS_MAX = 99
_NO_GROUP = "The MessageGroupId parameter is required for FIFO topics"
_NO_ID = "The topic should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly"


def check_publish(topic: SimulatedTopic, entry: Params) -> None:
    """Refuse a publish that SNS would refuse for a topic of this type [SNS-09, SNS-10, SNS-11, SNS-26]."""
    if "Subject" in entry and not _is_subject(entry["Subject"]):
        raise sns_invalid("Subject")
    if not entry["Message"]:
        raise sns_invalid("Empty message")
    if entry.get("MessageStructure") == "json":
        message_of(entry)  # raises if the structure is malformed
    _check_attributes(entry)
    ids = {name: entry[name] for name in ("MessageGroupId", "MessageDeduplicationId") if name in entry}
    if topic.is_fifo and "MessageGroupId" not in ids:
        raise sns_invalid(_NO_GROUP)
    if topic.is_fifo and "MessageDeduplicationId" not in ids and not topic.is_by_content():
        raise sns_invalid(_NO_ID)
    if not topic.is_fifo and "MessageDeduplicationId" in ids:
        raise sns_invalid(
            "MessageDeduplicationId Reason: "
            "The request includes MessageDeduplicationId parameter that is not valid for this topic type"
        )
    for name, value in ids.items():
        try:
            check_id(name, value)
        except AwsRefusal as refusal:  # SNS has the same rule as SQS [LIM-07]; its text is not recorded
            raise sns_invalid(f"{name} Reason: {refusal.text.partition('Reason: ')[2]}") from None


def _is_subject(text: str) -> bool:
    """Return whether SNS accepts a subject, as API_Publish documents; only an empty one's refusal is recorded."""
    return 0 < len(text) <= _SUBJECT_CHARACTERS_MAX and text.isprintable()


def message_of(entry: Params) -> str:
    """Return the text that queues get of a publish: with MessageStructure json only its `sqs` or `default` [SNS-53]."""
    if entry.get("MessageStructure") != "json":
        return str(entry["Message"])
    try:
        by_protocol = json.loads(entry["Message"])
    except (ValueError, RecursionError):
        raise sns_invalid("Message Structure - JSON message body failed to parse") from None
    entries = by_protocol.items() if isinstance(by_protocol, dict) else ()
    texts = {protocol: text for protocol, text in entries if isinstance(text, str)}  # others are ignored
    if "default" not in texts:
        raise sns_invalid("Message Structure - No default entry in JSON message body")
    return texts.get("sqs", texts["default"])


def _check_attributes(entry: Params) -> None:
    """Refuse message attributes whose name, type or value SNS would refuse [SNS-54, SNS-55]."""
    for name, attribute in entry.get("MessageAttributes", {}).items():
        _check_name(name)
        type_ = attribute["DataType"]
        kind = type_.partition(".")[0]
        if kind not in ("String", "Number", "Binary"):
            raise _bad_attribute(
                f"The message attribute '{name}' has an invalid message attribute type, the set of supported type "
                "prefixes is Binary, Number, and String."
            )
        field = "Binary" if kind == "Binary" else "String"
        if f"{field}Value" not in attribute and attribute.keys() != {"DataType"}:
            raise _bad_attribute(f"The message attribute '{name}' with type '{type_}' must use field '{field}'.")
        if not attribute.get(f"{field}Value"):
            raise _bad_attribute(
                f"The message attribute '{name}' must contain non-empty message attribute value for message attribute "
                f"type '{type_}'."
            )


def _check_name(name: str) -> None:
    if len(name.encode()) > _NAME_BYTES_MAX:
        raise _bad_attribute("Length of message attribute name must be less than 256 bytes.")
    invalid = re.search(r"[^A-Za-z0-9_.-]", name)
    if invalid:
        raise _bad_attribute(
            f"Invalid non-alphanumeric character '#x{ord(invalid[0]):X}' was found in the message attribute name. "
            "Can only include alphanumeric characters, hyphens, underscores, or dots."
        )
    for end, is_bad in (("starting", name.startswith(".")), ("ending", name.endswith("."))):
        if is_bad:
            raise _bad_attribute(f"Invalid message attribute name {end} with character '.' was found.")
    if ".." in name:
        raise _bad_attribute("Message attribute name can not have successive '.' character.")


def _bad_attribute(text: str) -> AwsRefusal:
    return AwsRefusal("ParameterValueInvalid", text)


def check_batch(entries: list[Params]) -> None:
    """Refuse the whole batch for its number of entries or for their ids [SNS-25, SNS-27]."""
    if not entries:
        raise AwsRefusal("EmptyBatchRequest", "The batch request doesn't contain any entries.")
    if len(entries) > _ENTRIES_MAX:
        raise AwsRefusal("TooManyEntriesInBatchRequest", "The batch request contains more entries than permissible.")
    ids = [entry["Id"] for entry in entries]
    if len(set(ids)) < len(ids):
        raise AwsRefusal("BatchEntryIdsNotDistinct", "Two or more batch entries in the request have the same Id.")
    for id_ in ids:
        if len(id_) > 80:
            raise AwsRefusal("InvalidBatchEntryId", f"The Id of a batch entry in the batch request is too long: {id_}")
        if not re.fullmatch(r"[A-Za-z0-9_-]+", id_):
            raise AwsRefusal(
                "InvalidBatchEntryId",
                f"The Id of a batch entry in the batch request contains an impermissible character: {id_}",
            )


def publish_bytes(entry: Params) -> int:
    """Return the size of a publish as SNS counts it: its message and its attributes."""
    return size_bytes({"MessageBody": entry["Message"], "MessageAttributes": entry.get("MessageAttributes", {})})
