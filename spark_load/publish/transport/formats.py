"""The two batch calls on the wire, as botocore writes and reads them: SNS in the query protocol, SQS in JSON 1.0."""

import html
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from typing import Any, NamedTuple
from urllib.parse import quote_plus

from sluice import limits
from sluice.history.events import Outcome
from spark_load.plan.body_template import BodyTemplate
from spark_load.publish.transport import Call

_OK, _FAIL, _INFO = Outcome.OK.value, Outcome.FAIL.value, Outcome.INFO.value
NOT_IN_ANSWER = "NotInAnswer"
_TEMPLATES_KEPT = 64
_IDS = tuple(str(position) for position in range(limits.PUBLISH_BATCH_ENTRIES_MAX))
_FIELD = re.compile(r"<(member|Id|MessageId|SequenceNumber|Code|SenderFault)>([^<]*)")
_CODE = re.compile(r"<Code>([^<]*)</Code>")


class EntryResults(NamedTuple):
    """What an answer says of a call: a column each, an entry for each of its messages; None where it says nothing."""

    outcomes: Sequence[str]
    errors: Sequence[str | None]
    message_ids: Sequence[str | None]
    sequence_numbers: Sequence[str | None]

    @classmethod
    def alike(cls, count: int, outcome: str, error: str | None = None) -> "EntryResults":
        """Return the same for all, without ids."""
        nothing = [None] * count
        return cls([outcome] * count, [error] * count, nothing, nothing)


type _Entry = tuple[str, str | None, str | None, str | None]
"""Of one message, as in `EntryResults`."""
_MISSING: _Entry = (_INFO, NOT_IN_ANSWER, None, None)


class Unreadable(Exception):
    """Raised for an answer that is none; its name is botocore's."""


@dataclass(frozen=True, slots=True)
class Format:
    """How a service is spoken to.

    Args:
        headers: of every request, lower case, sorted, all signed.
        template: address and body templates to that of a request's body, with gaps as those of `_values`.
        decode: an answer's body to what it says of each Id; raises Unreadable.
        error_code: headers and body of a refusal to its code; None when it has none.
    """

    headers: tuple[tuple[str, str], ...]
    template: Callable[[str, tuple[BodyTemplate, ...]], str]
    decode: Callable[[str], Mapping[str, _Entry]]
    error_code: Callable[[Mapping[str, str], str], str | None]

    def encode(self, call: Call) -> bytes:
        """Return the body of a request."""
        frames = tuple([frame for frame, _ in call.bodies])
        return (self.template(call.address, frames) % _values(call)).encode("ascii")

    def results(self, call: Call, body: str) -> EntryResults:
        """Return what a good answer says of a call's messages; raise Unreadable."""
        by_id = self.decode(body)
        return EntryResults(*zip(*[by_id.get(id_, _MISSING) for id_ in _IDS[: len(call.messages)]], strict=True))


def _values(call: Call) -> tuple[object, ...]:
    """Return what stands in the gaps of a call: of each message the values of its body, and its two ids."""
    values: list[object] = []
    for message, (_, of_body) in zip(call.messages, call.bodies, strict=True):
        values += of_body
        values += (message.message_group_id, message.deduplication_id)
    return tuple(values)


@lru_cache(_TEMPLATES_KEPT)
def _json_template(address: str, frames: tuple[BodyTemplate, ...]) -> str:
    entries = ", ".join(map(_json_entry, range(len(frames)), frames))
    queue_url = BodyTemplate(address).escaped(encode_basestring_ascii)
    return f'{{"QueueUrl": {queue_url}, "Entries": [{entries}]}}'


def _json_entry(position: int, template: BodyTemplate) -> str:
    body = template.escaped(lambda piece: encode_basestring_ascii(piece)[1:-1])
    return f'{{"Id": "{position}", "MessageBody": "{body}", "MessageGroupId": "%s", "MessageDeduplicationId": "%s"}}'


def _json_results(body: str) -> dict[str, _Entry]:
    try:
        answer = json.loads(body)
        taken = {
            entry["Id"]: (_OK, None, entry.get("MessageId"), entry.get("SequenceNumber"))
            for entry in answer.get("Successful") or ()
        }
        refused = {entry["Id"]: _refused(entry, entry.get("SenderFault")) for entry in answer.get("Failed") or ()}
    except (ValueError, AttributeError, KeyError, TypeError):
        return {}  # as botocore takes what is not JSON: an answer without entries
    return taken | refused


def _refused(entry: Mapping[str, Any], sender_fault: object) -> _Entry:
    """Return what a failed entry says: the sender's fault had no effect, the service's may have had one."""
    return _FAIL if sender_fault else _INFO, entry.get("Code"), None, None


def _json_error(headers: Mapping[str, str], body: str) -> str | None:
    """Return the code of the older protocol where it is given, as botocore does."""
    if "x-amzn-query-error" in headers:
        return headers["x-amzn-query-error"].split(";")[0]
    try:
        fields = json.loads(body)
        code = str(fields.get("__type") or fields.get("code") or "")
    except (ValueError, AttributeError):
        return None
    return code.rsplit("#", 1)[-1].split(":", maxsplit=1)[0] or None


@lru_cache(_TEMPLATES_KEPT)
def _form_template(address: str, frames: tuple[BodyTemplate, ...]) -> str:
    topic = BodyTemplate(address).escaped(quote_plus)
    entries = "".join(map(_form_entry, range(len(frames)), frames))
    return f"Action=PublishBatch&Version=2010-03-31&TopicArn={topic}{entries}"


def _form_entry(position: int, template: BodyTemplate) -> str:
    start = f"&PublishBatchRequestEntries.member.{position + 1}"
    body = template.escaped(quote_plus)
    return f"{start}.Id={position}{start}.Message={body}{start}.MessageGroupId=%s{start}.MessageDeduplicationId=%s"


def _xml_results(body: str) -> dict[str, _Entry]:
    if "<PublishBatchResult" not in body:
        raise Unreadable
    entries: dict[str, _Entry] = {}
    for entry in _members(body, "Successful"):
        entries[entry["Id"]] = _OK, None, entry.get("MessageId"), entry.get("SequenceNumber")
    for entry in _members(body, "Failed"):
        entries[entry["Id"]] = _refused(entry, entry.get("SenderFault") == "true")
    return entries


def _members(body: str, list_name: str) -> list[dict[str, str]]:
    """Return the members of one list of the answer; text between tags holds no `<`, so no parser is needed."""
    _, _, rest = body.partition(f"<{list_name}>")
    listed, _, _ = rest.partition(f"</{list_name}>")
    members: list[dict[str, str]] = []
    for name, value in _FIELD.findall(listed):
        if name == "member":
            members.append({})
        elif members:
            members[-1][name] = value
    if "&" in listed:
        members = [{name: html.unescape(value) for name, value in member.items()} for member in members]
    return [member for member in members if "Id" in member]


def _xml_error(_: Mapping[str, str], body: str) -> str | None:
    found = _CODE.search(body)
    return None if found is None else html.unescape(found[1])


FORMATS: Mapping[str, Format] = {
    "sns": Format(
        headers=(("content-type", "application/x-www-form-urlencoded; charset=utf-8"),),
        template=_form_template,
        decode=_xml_results,
        error_code=_xml_error,
    ),
    "sqs": Format(
        headers=(
            ("content-type", "application/x-amz-json-1.0"),
            ("x-amz-target", "AmazonSQS.SendMessageBatch"),
            ("x-amzn-query-mode", "true"),
        ),
        template=_json_template,
        decode=_json_results,
        error_code=_json_error,
    ),
}
"""Service to its format."""
