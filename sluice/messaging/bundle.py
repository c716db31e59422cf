"""A bundle: consecutive events of one group in one message.

The body of a bundle is one JSON object with exactly these two members, in this order:

    {"sluice": 2, "events": [event, event, …]}

Each event is what the body of its own message would be (`envelope`), so it keeps its id, number, epoch, time and trace.
A reader in any language handles the events in the order of the list, each as if it had come in a message of its own
with the attributes of this one. A relay writes a single event as that message, and never as a bundle of one.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from sluice.limits import BUNDLE_EVENTS_MAX
from sluice.messaging.envelope import Envelope, envelope_of, fields_of
from sluice.messaging.errors import EnvelopeError

VERSION = 2
"""The version of a body that is a bundle."""
_FRONT = f'{{"sluice":{VERSION},"events":['
_BACK = "]}"
_BEGIN = re.compile(rf'\s*\{{\s*"sluice"\s*:\s*{VERSION}\s*,\s*"events"\s*:\s*\[\s*')
_BETWEEN, _END = re.compile(r"\s*,\s*"), re.compile(r"\s*\]\s*\}\s*")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class BundledEvent:
    """An event as a bundle holds it.

    Args:
        body: its text in the bundle, the body of its own message.
        envelope: None if the body cannot be read.
        fault: why it cannot be read.
    """

    body: str
    envelope: Envelope | None
    fault: str = ""


def write_bundle(bodies: Sequence[str]) -> str:
    """Return the body of the message that holds events with these bodies; one event is its own message."""
    return bodies[0] if len(bodies) == 1 else f"{_FRONT}{','.join(bodies)}{_BACK}"


def bundle_bytes(sizes: Sequence[int]) -> int:
    """Return the size of a bundle's body, given the sizes of its events' bodies, in bytes."""
    return sum(sizes) + (0 if len(sizes) == 1 else len(_FRONT) + len(sizes) - 1 + len(_BACK))


def read_body(body: str) -> tuple[BundledEvent, ...]:
    """Return the events in a body, in order: one, or those of a bundle.

    Raises:
        EnvelopeError: the body is neither. An event of a bundle that cannot be read raises nothing: the others can.
    """
    fields = fields_of(body)
    version = fields.get("sluice")
    if type(version) is int and version == VERSION:
        return tuple(_split(body))
    return (BundledEvent(body, envelope_of(fields)),)


def events_of(body: str) -> list[Envelope]:
    """Return the events of a message in order, each with its number in its group: one, or those of a bundle.

    For subscribers without Sluice's worker. The attributes of each event are the message's, and are not returned.

    Raises:
        EnvelopeError: the body, or an event of its bundle, cannot be read.
    """
    found = []
    for position, event in enumerate(read_body(body)):
        if event.envelope is None:
            raise EnvelopeError(f"event {position} of the bundle: {event.fault}")
        found.append(event.envelope)
    return found


def _split(body: str) -> list[BundledEvent]:
    """Return the events of a bundle with their own text, which is not to be written anew: it may be a dead letter."""
    begun = _BEGIN.match(body)
    if begun is None:
        raise EnvelopeError(f"the bundle has other members, allowed are sluice and events, as in {_FRONT}…{_BACK}")
    events, position = list[BundledEvent](), begun.end()
    if _END.match(body, position):
        raise EnvelopeError("the bundle has no event, allowed is one or more")
    while True:
        fields, end = _DECODER.raw_decode(body, position)
        events.append(_event(body[position:end], fields))
        between = _BETWEEN.match(body, end)
        if between is None:
            break
        position = between.end()
        if len(events) == BUNDLE_EVENTS_MAX:
            raise EnvelopeError(f"the bundle has more than {BUNDLE_EVENTS_MAX} events, allowed are so many")
    if _END.fullmatch(body, end) is None:
        raise EnvelopeError(
            f"the bundle has members behind its events, allowed are sluice and events: {_FRONT}…{_BACK}"
        )
    return events


def _event(body: str, fields: object) -> BundledEvent:
    try:
        return BundledEvent(body, envelope_of(fields if isinstance(fields, dict) else {}))
    except EnvelopeError as error:
        return BundledEvent(body, None, str(error))
