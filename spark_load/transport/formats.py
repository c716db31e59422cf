"""The two batch calls on the wire, as botocore writes and reads them: SNS in the query protocol, SQS in JSON 1.0."""

import html
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import batched
from json.encoder import encode_basestring_ascii
from typing import Any, NamedTuple

from sluice import limits
from sluice.history import Outcome
from spark_load.transport import Call, Message

_OK, _FAIL, _INFO = Outcome.OK.value, Outcome.FAIL.value, Outcome.INFO.value
_NOT_IN_ANSWER = "NotInAnswer"
_IDS = tuple(str(position) for position in range(limits.PUBLISH_BATCH_ENTRIES_MAX))
_FIELD = re.compile(r"<(Id|MessageId|SequenceNumber|Code|SenderFault)>([^<]*)</")
_CODE = re.compile(r"<Code>([^<]*)</Code>")


class Said(NamedTuple):
    """What an answer says of one message."""

    outcome: str
    error: str | None = None
    message_id: str | None = None
    sequence_number: str | None = None


_MISSING = Said(_INFO, _NOT_IN_ANSWER)


class Unreadable(Exception):
    """Raised for an answer that is none; its name is botocore's."""


@dataclass(frozen=True, slots=True)
class Format:
    """How a service is spoken to.

    Args:
        service: as in a signature.
        headers: of every request, lower case, sorted, all signed.
        encode: makes the body of a request.
        decode: an answer's body to what it says of each Id; raises Unreadable.
        error_code: headers and body of a refusal to its code; None when it has none.
    """

    service: str
    headers: tuple[tuple[str, str], ...]
    encode: Callable[[Call], bytes]
    decode: Callable[[str], Mapping[str, Said]]
    error_code: Callable[[Mapping[str, str], str], str | None]

    def said(self, call: Call, body: str) -> list[Said]:
        """Return what a good answer says of each message of its call, in order; raise Unreadable."""
        by_id = self.decode(body)
        return [by_id.get(id_, _MISSING) for id_ in _IDS[: len(call.messages)]]


# --- SQS -------------------------------------------------------------------------------------------------------------


def _json(text: str) -> str:
    return encode_basestring_ascii(text)[1:-1]


def _json_entry(position: int, message: Message) -> str:
    return (
        f'{{"Id": "{position}", "MessageBody": "{_json(message.head)}{message.plain}{_json(message.foot)}",'
        f' "MessageGroupId": {encode_basestring_ascii(message.message_group_id)},'
        f' "MessageDeduplicationId": {encode_basestring_ascii(message.deduplication_id)}}}'
    )


def _json_call(call: Call) -> bytes:
    entries = ", ".join([_json_entry(position, message) for position, message in enumerate(call.messages)])
    return f'{{"QueueUrl": {encode_basestring_ascii(call.address)}, "Entries": [{entries}]}}'.encode("ascii")


def _json_said(body: str) -> dict[str, Said]:
    try:
        answer = json.loads(body)
        taken = {
            entry["Id"]: Said(_OK, None, entry.get("MessageId"), entry.get("SequenceNumber"))
            for entry in answer.get("Successful") or ()
        }
        refused = {entry["Id"]: _refused(entry, entry.get("SenderFault")) for entry in answer.get("Failed") or ()}
    except (ValueError, AttributeError, KeyError, TypeError):
        return {}  # as botocore takes what is no JSON: an answer without entries
    return taken | refused


def _refused(entry: Mapping[str, Any], sender_fault: object) -> Said:
    """Return what a failed entry says: the sender's fault had no effect, the service's may have had one."""
    return Said(_FAIL if sender_fault else _INFO, entry.get("Code"))


def _json_error(headers: Mapping[str, str], body: str) -> str | None:
    """Return the code of the older protocol where it is given, as botocore does."""
    if "x-amzn-query-error" in headers:
        return headers["x-amzn-query-error"].split(";")[0]
    try:
        said = json.loads(body)
        code = str(said.get("__type") or said.get("code") or "")
    except (ValueError, AttributeError):
        return None
    return code.rsplit("#", 1)[-1].split(":", maxsplit=1)[0] or None


# --- SNS -------------------------------------------------------------------------------------------------------------


_UNRESERVED = bytes(range(128)).translate(
    None, bytes(c for c in range(128) if not (chr(c).isalnum() or chr(c) in "_.-~"))
)
_ESCAPED = {bytes((c,)): b"%%%02X" % c for c in range(256)} | {b" ": b"+"}
_REPLACEMENTS_KEPT = 256
_IN_ORDER = b"%+"  # what escapes are made of comes first


def form_quoted(text: str) -> bytes:
    """Return what `quote_plus` does, in a tenth of its time: one replacement for each byte that occurs."""
    quoted = text.encode()
    reserved = quoted.translate(None, _UNRESERVED)
    if reserved:
        for one, escaped in _replacements(reserved):
            quoted = quoted.replace(one, escaped)
    return quoted


@lru_cache(_REPLACEMENTS_KEPT)
def _replacements(reserved: bytes) -> tuple[tuple[bytes, bytes], ...]:
    """Return what is replaced by what where these bytes occur: the same for bodies of one make."""
    found = set(reserved)
    ordered = (*(byte for byte in _IN_ORDER if byte in found), *found.difference(_IN_ORDER))
    return tuple((bytes((byte,)), _ESCAPED[bytes((byte,))]) for byte in ordered)


def _form_entry(position: int, message: Message, quoted: tuple[bytes, ...]) -> bytes:
    head, foot, group_id, deduplication_id = quoted
    body = b"%b%b%b" % (head, message.plain.encode("ascii"), foot)
    return _FORM_ENTRIES[position] % (body, group_id, deduplication_id)


def _form_call(call: Call) -> bytes:
    texts = [text for one in call.messages for text in (one.head, one.foot, one.message_group_id, one.deduplication_id)]
    quoted = _all_form_quoted([*texts, call.address])
    entries = map(_form_entry, range(len(call.messages)), call.messages, batched(quoted[:-1], 4))
    return b"".join((b"Action=PublishBatch&Version=2010-03-31&TopicArn=", quoted[-1], *entries))


_FORM_ENTRIES = tuple(
    b"".join(
        (
            b"&PublishBatchRequestEntries.member.%d.Id=%d" % (position + 1, position),
            b"&PublishBatchRequestEntries.member.%d.Message=%%b" % (position + 1),
            b"&PublishBatchRequestEntries.member.%d.MessageGroupId=%%b" % (position + 1),
            b"&PublishBatchRequestEntries.member.%d.MessageDeduplicationId=%%b" % (position + 1),
        )
    )
    for position in range(limits.PUBLISH_BATCH_ENTRIES_MAX)
)


def _all_form_quoted(texts: list[str]) -> list[bytes]:
    """Return each text quoted; all at once, unless one of them has what they are kept apart with."""
    quoted = form_quoted("\0".join(texts)).split(b"%00")
    return quoted if len(quoted) == len(texts) else [form_quoted(text) for text in texts]


def _xml_said(body: str) -> dict[str, Said]:
    if "<PublishBatchResult" not in body:
        raise Unreadable
    said = {}
    for entry in _members(body, "Successful"):
        said[entry["Id"]] = Said(_OK, None, entry.get("MessageId"), entry.get("SequenceNumber"))
    for entry in _members(body, "Failed"):
        said[entry["Id"]] = _refused(entry, entry.get("SenderFault") == "true")
    return said


def _members(body: str, list_name: str) -> list[dict[str, str]]:
    """Return the members of one list of the answer; text between tags holds no `<`, so no parser is needed."""
    _, _, rest = body.partition(f"<{list_name}>")
    listed, _, _ = rest.partition(f"</{list_name}>")
    members = [dict(_FIELD.findall(member)) for member in listed.split("<member>")[1:]]
    if "&" in listed:
        members = [{name: html.unescape(value) for name, value in member.items()} for member in members]
    return [member for member in members if "Id" in member]


def _xml_error(_: Mapping[str, str], body: str) -> str | None:
    found = _CODE.search(body)
    return None if found is None else html.unescape(found[1])


FORMATS: Mapping[str, Format] = {
    "sns": Format(
        service="sns",
        headers=(("content-type", "application/x-www-form-urlencoded; charset=utf-8"),),
        encode=_form_call,
        decode=_xml_said,
        error_code=_xml_error,
    ),
    "sqs": Format(
        service="sqs",
        headers=(
            ("content-type", "application/x-amz-json-1.0"),
            ("x-amz-target", "AmazonSQS.SendMessageBatch"),
            ("x-amzn-query-mode", "true"),
        ),
        encode=_json_call,
        decode=_json_said,
        error_code=_json_error,
    ),
}
"""Service to its format."""
