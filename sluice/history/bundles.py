"""The events of a message. Each event of a bundle is recorded and judged as a message of its own.

A bundle is the body `{"sluice": 2, "events": [event, …]}`, each event being what the body of its own message would be.
The events of a bundle travel, are received and are deleted together. Whatever the judge expects of messages holds for
them, if each has ids of its own: `<id>.<position>` for the message's SQS message id, SNS message id and deduplication
id, `<number>.<position with four digits>` for its sequence number, from position 0. A sequence number with a position
sorts, as text, behind the events in front of it, and before the next message.
"""

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sluice.history.events import HistoryEvent, Identity, Kind, identity_in
from sluice.limits import BUNDLE_EVENTS_MAX

POSITION_DIGITS = 4
_BEGIN = re.compile(r'\s*\{\s*"sluice"\s*:\s*2\s*,\s*"events"\s*:\s*\[\s*')
_BETWEEN, _END = re.compile(r"\s*,\s*"), re.compile(r"\s*\]\s*\}\s*")
_DECODER = json.JSONDecoder()
_OF_MESSAGES = (Kind.PUBLISHED, Kind.RECEIVED, Kind.HANDLED, Kind.PARKED)


@dataclass(frozen=True, slots=True)
class BundledBody:
    """An event of a bundle.

    Args:
        body: its text, the body of its own message.
        event_id: its id, which is the deduplication id of its own message; None if it states none.
        message_group_id: its group; None if it states none.
    """

    body: str
    event_id: str | None
    message_group_id: str | None


def bundled_bodies(body: str) -> list[BundledBody]:
    """Return the events of a bundle in order; an empty list for any other body, which is one message.

    A body with the two members of a bundle of which no element is an event is not a bundle, but another program's; and
    one with more events than a bundle may have is one message, which its consumer rejects as a whole.
    """
    begun = _BEGIN.match(body)
    if begun is None:
        return []
    found, is_sluice, position = list[BundledBody](), False, begun.end()
    try:
        while len(found) < BUNDLE_EVENTS_MAX:
            fields, end = _DECODER.raw_decode(body, position)
            found.append(_bundled_body(body[position:end], fields))
            is_sluice = is_sluice or (isinstance(fields, dict) and _is_event(fields))
            between = _BETWEEN.match(body, end)
            if between is None:
                return found if is_sluice and _END.fullmatch(body, end) else []
            position = between.end()
    except (ValueError, RecursionError):
        pass
    return []


def bundle_body(bodies: Sequence[str]) -> str:
    """Return the body of a bundle of events with these bodies; one event is its own message."""
    return bodies[0] if len(bodies) == 1 else f'{{"sluice":2,"events":[{",".join(bodies)}]}}'


def bundle_id(ids: Sequence[str]) -> str:
    """Return the deduplication id of a bundle of events with these ids."""
    return ids[0] if len(ids) == 1 else hashlib.sha256("\n".join(ids).encode()).hexdigest()


def part_id(id_: str, position: int) -> str:
    """Return the id of an event of a bundle: of a message's id, and the event's position in it."""
    return f"{id_}.{position}"


def part_position(id_: str | None) -> int:
    """Return the position in its bundle of what has this id; 0 for what came alone."""
    position = (id_ or "").rpartition(".")[2]
    return int(position) if "." in (id_ or "") and position.isdecimal() else 0


def whole_bundles(events: Iterable[HistoryEvent]) -> set[str]:
    """Return the ids of bundles that some rows record as one message, and others as events.

    The first were written by a recorder that does not know bundles. The id is a deduplication id or an SQS message id.
    A row with the number or body of one of the bundle's events is no such row: that event came without the others.
    """
    parted, whole = defaultdict[tuple[str, str], set[int | str]](set), list[tuple[tuple[str, str], set[int | str]]]()
    for event in events:
        is_part = "." in (event.sqs_message_id or event.sns_message_id or "")
        for name, id_ in (("deduplication", event.deduplication_id), ("message", event.sqs_message_id)):
            if id_ is None or event.kind not in _OF_MESSAGES:
                continue
            content = {of for of in (event.idx, event.body_hash) if of is not None}
            if is_part:
                parted[name, id_.rpartition(".")[0]] |= content
            else:
                whole.append(((name, id_), content))
    return {key[1] for key, content in whole if key in parted and content.isdisjoint(parted[key])}


def part_number(number: str, position: int) -> str:
    """Return the sequence number of an event of a bundle."""
    return f"{number}.{position:0{POSITION_DIGITS}}"


def message_number(number: str) -> str:
    """Return the sequence number of the message in which something came, be it alone or in a bundle."""
    return number.partition(".")[0]


def identities_in(message: Mapping[str, Any]) -> list[tuple[Identity | None, str]]:
    """Return identity and body of each event of a message as ReceiveMessage gives it, with all system attributes."""
    bundled = bundled_bodies(message["Body"])
    if not bundled:
        return [(identity_in(message), message["Body"])]
    return [(identity_in({**message, "Body": event.body}), event.body) for event in bundled]


def _bundled_body(body: str, fields: Any) -> BundledBody:
    known = fields if isinstance(fields, dict) else {}
    id_, group = known.get("id"), known.get("group")
    if id_ is None and "run" in known and "idx" in known:
        id_ = f"{known['run']}.{known['idx']}"  # of a load test that sends without an outbox
    return BundledBody(body, id_ if isinstance(id_, str) else None, group if isinstance(group, str) else None)


def _is_event(fields: Mapping[str, Any]) -> bool:
    return (fields.get("sluice") == 1 and "seq" in fields) or {"run", "group", "idx"} <= fields.keys()
