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
from spark_load.plan.body_template import GAP, BodyTemplate
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


type Entry = tuple[str, str | None, str | None, str | None]
"""Of one message, as in `EntryResults`."""
_MISSING: Entry = (_INFO, NOT_IN_ANSWER, None, None)


class Unreadable(Exception):
    """Raised for an answer that is none; its name is botocore's."""


@dataclass(frozen=True, slots=True)
class Format:
    """How a service is spoken to.

    Args:
        headers: of every request, lower case, sorted, all signed.
        template: address, frame of the bodies, and number of messages to a request's body, with GAP for each value: of
            each message the values of its body, and its two ids.
        decode: an answer's body to its entries that were taken, and those that were refused; raises Unreadable.
        error_code: headers and body of a refusal to its code; None when it has none.
    """

    headers: tuple[tuple[str, str], ...]
    template: Callable[[str, BodyTemplate, int], str]
    decode: Callable[[str], tuple[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]]]
    error_code: Callable[[Mapping[str, str], str], str | None]

    def encode(self, call: Call) -> bytes:
        """Return the body of a request."""
        own, sent = slice(call.begin, call.end), call.sent
        parts = _pieces(self.template, call.address, sent.template, call.size).copy()
        columns = (*sent.values, sent.message_group_ids, sent.deduplication_ids)
        for position, column in enumerate(columns):
            parts[2 * position + 1 :: 2 * len(columns)] = column[own]
        return "".join(parts).encode("ascii")

    def results(self, call: Call, body: str) -> EntryResults:
        """Return what a good answer says of a call's messages; raise Unreadable."""
        ids = _IDS[: call.size]
        try:
            taken, refused = self.decode(body)
            if not refused and len(taken) == len(ids) and all(map(_has_id, taken, ids)):
                columns = [[entry.get(name) for entry in taken] for name in ("MessageId", "SequenceNumber")]
                return EntryResults([_OK] * len(ids), [None] * len(ids), *columns)
            by_id = {entry["Id"]: _taken(entry) for entry in taken} | {
                entry["Id"]: _refused(entry) for entry in refused
            }
        except (AttributeError, KeyError, TypeError):
            by_id = {}  # as botocore takes what is not JSON: an answer without entries
        return EntryResults(*zip(*[by_id.get(id_, _MISSING) for id_ in ids], strict=True))


@lru_cache(_TEMPLATES_KEPT)
def _pieces(
    template: Callable[[str, BodyTemplate, int], str], address: str, body: BodyTemplate, count: int
) -> list[str]:
    """Return what stands around the values of a request, with an empty piece for each of them."""
    return [part for piece in template(address, body, count).split(GAP) for part in (piece, "")][:-1]


def _json_template(address: str, body: BodyTemplate, count: int) -> str:
    text = body.escaped(lambda piece: encode_basestring_ascii(piece)[1:-1])
    entries = [
        f'{{"Id": "{id_}", "MessageBody": "{text}", "MessageGroupId": "{GAP}", "MessageDeduplicationId": "{GAP}"}}'
        for id_ in _IDS[:count]
    ]
    return f'{{"QueueUrl": {encode_basestring_ascii(address)}, "Entries": [{", ".join(entries)}]}}'


def _has_id(entry: Mapping[str, Any], id_: str) -> bool:
    return bool(entry["Id"] == id_)


def _taken(entry: Mapping[str, Any]) -> Entry:
    return _OK, None, entry.get("MessageId"), entry.get("SequenceNumber")


def _refused(entry: Mapping[str, Any]) -> Entry:
    """Return what a failed entry says: the sender's fault had no effect, the service's may have had one."""
    is_senders = entry.get("SenderFault") in {True, "true"}
    return _FAIL if is_senders else _INFO, entry.get("Code"), None, None


def _json_results(body: str) -> tuple[list[Any], list[Any]]:
    try:
        answer = json.loads(body)
    except ValueError:
        return [], []
    return answer.get("Successful") or [], answer.get("Failed") or []


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


def _form_template(address: str, body: BodyTemplate, count: int) -> str:
    text = body.escaped(quote_plus)
    starts = [f"&PublishBatchRequestEntries.member.{position + 1}" for position in range(count)]
    entries = [
        f"{start}.Id={id_}{start}.Message={text}{start}.MessageGroupId={GAP}{start}.MessageDeduplicationId={GAP}"
        for id_, start in zip(_IDS, starts, strict=False)
    ]
    return f"Action=PublishBatch&Version=2010-03-31&TopicArn={quote_plus(address)}{''.join(entries)}"


def _xml_results(body: str) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    if "<PublishBatchResult" not in body:
        raise Unreadable
    return _members(body, "Successful"), _members(body, "Failed")


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
