"""The body of a message: an event with its number in its group, versioned, and validated before it is stored.

The body is one JSON object, because raw delivery removes all metadata of SNS. A consumer needs nothing but the body:

    {"sluice": 1, "id": …, "type": …, "group": …, "seq": …, "epoch": …, "at": …, "trace": {…}, "hash": …, "data": …}

`version`, the version of the data, follows the type unless it is 1. `seq` counts 1, 2, 3 … in its group without a hole.
`epoch` is the time at which this counting began, in seconds since 1970. If the counter of a group was deleted, or its
database was restored, the group gets a later epoch. After a restore the numbers continue after the last one that the
database has, and `first` is the first number of the epoch. AWS's own SequenceNumber orders messages but has holes, so
it cannot show a loss.
"""

import hashlib
import json
import re
import sys
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, ClassVar

from sluice import limits
from sluice.filter_cost import SENT_TYPE
from sluice.messaging.errors import EnvelopeError

VERSION = 1
RESERVED = "sluice."
"""The prefix of the types of Sluice's own events; consumers count these events, and no handler gets them."""
TOMBSTONE = f"{RESERVED}tombstone"
"""The type of a message that is published in place of a skipped event: it uses the number, and has no data."""
_DATA_VERSION_MAX = 999_999
_SEQ_MAX = 2**63 - 2  # one less than a database's largest number, so that there is a next one
# Bytes of the body that are only known at the commit: two numbers of up to 19 digits in place of one digit each, a
# third
# number with its name, a time in place of `null`.
_NUMBERS_BYTES, _INSTANT_BYTES = 2 * 18 + len(',"first":') + 19, 30
_TYPE = re.compile(r"[A-Za-z0-9_.-]{1,256}")
_ATTRIBUTE_NAME = re.compile(r"(?!(?i:aws\.|amazon\.))(?!\.)(?!.*\.\.)[A-Za-z0-9_.-]{1,256}(?<!\.)")
_IDENTIFIER = re.compile(r"[A-Za-z0-9!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]{1,128}")
_NOT_ALLOWED = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NOT_ALLOWED_IN_JSON = re.compile("[^\u0000-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # JSON escapes controls


def current_trace() -> dict[str, str]:
    """Return OpenTelemetry's current span as W3C headers, for an event's `trace`; empty if there is no span."""
    if "opentelemetry.trace" not in sys.modules:  # without OpenTelemetry there is no span
        return {}
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415 (optional)

    headers: dict[str, str] = {}
    # Only the trace context: other propagated values of the process, such as baggage, do not belong into an outbox.
    TraceContextTextMapPropagator().inject(headers)
    return headers


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened in a producer, validated when the event is made.

    AWS: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html (characters, group),
    https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-message-metadata.html (attributes),
    https://docs.aws.amazon.com/sns/latest/dg/sns-large-payload-raw-message-delivery.html (more than ten attributes are
    lost on raw delivery) (read 2026-11-21).

    Args:
        type: what happened, e.g. `order.placed`; also sent as the message attribute `type`, for filter policies.
        group: message group, within which order is kept: usually the id of the order, customer or other thing that
            changed.
        data: any value that JSON can represent.
        version: version of the data's shape, from 1; `event_of` takes it from the class of the data.
        attributes: further message attributes, text by name, for filter policies; at most nine.
        id: unique among all events for ever; the deduplication id of its message.
        at: when it happened, aware; None means when it is committed.
        trace: trace context as headers, e.g. `traceparent`, carried to the consumer. An outbox fills an empty trace
            with OpenTelemetry's current span.

    Raises:
        EnvelopeError: a field cannot be sent; the message names it.
    """

    type: str
    group: str
    data: Any
    version: int = 1
    attributes: Mapping[str, str] = field(default_factory=dict, hash=False)
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    at: datetime | None = None
    trace: Mapping[str, str] = field(default_factory=dict, hash=False)
    _is_own: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_type(self.type, is_own=self._is_own)
        check_version(self.version)
        for name, seen in (("group", self.group), ("id", self.id)):
            if not _matches(_IDENTIFIER, seen):
                raise _refusal(name, seen, "1 to 128 ASCII letters, digits and punctuation")
        if self.at is not None and not _is_instant(self.at):
            raise _refusal("at", self.at, "an aware datetime in the years 1 to 9999 UTC, or None")
        _check_attributes(self.attributes)
        _check_trace(self.trace)
        # The event keeps copies, the data in the form that JSON has: later changes of the caller's objects change no
        # message.
        object.__setattr__(self, "attributes", dict(self.attributes))
        object.__setattr__(self, "trace", dict(self.trace))
        object.__setattr__(self, "data", _copy_as_json("data", self.data))
        _check_characters("data", self.data)

    @cached_property
    def content_hash(self) -> str:
        """Return the SHA-256 of type and data, in hex.

        Two events with one id are the same event if their hashes are equal.
        """
        return _content_hash(self.type, self.data)

    @cached_property
    def body_around_numbers(self) -> tuple[str, str]:
        """Return the two parts of the message's body: before the number, and after the time of the event.

        The database writes the part between them: `7,"epoch":1767225600,"first":5,"at":"2026-01-01T00:00:00+00:00"`,
        with `first` unless it is 1.
        """
        version = {} if self.version == 1 else {"version": self.version}
        front = {"sluice": VERSION, "id": self.id, "type": self.type, **version, "group": self.group}
        trace = {"trace": dict(self.trace)} if self.trace else {}
        back = {**trace, "hash": self.content_hash, "data": self.data}
        return f'{_as_json(front)[:-1]},"seq":', f",{_as_json(back)[1:]}"

    @cached_property
    def size_bytes(self) -> int:
        """Return the maximum size of the message in bytes: body, and names, types and values of attributes."""
        body = len(Envelope(event=self, seq=1, epoch=1).body.encode())
        not_yet = _NUMBERS_BYTES + (_INSTANT_BYTES if self.at is None else 0)
        return body + not_yet + attributes_bytes(self.message_attributes)

    def check_size(self, event_bytes_max: int) -> None:
        """Refuse the event if its message might be larger than the topic accepts.

        Raises:
            EnvelopeError: the message might be larger.
        """
        if (size_bytes := self.size_bytes) > event_bytes_max:
            raise EnvelopeError(
                f"data makes a message of {size_bytes} bytes with its attributes, allowed are {event_bytes_max}; keep"
                " what is large elsewhere and send where it is, or raise event_bytes_max of the environment"
            )

    def with_current_trace(self) -> "Event":
        """Return the event with the current span, unless the event has a trace or there is no span."""
        if self.trace or not (trace := current_trace()):
            return self
        return replace(self, trace=trace)

    @property
    def message_attributes(self) -> dict[str, str]:
        """Return all message attributes, text by name."""
        return {"type": self.type, **self.attributes}


@dataclass(frozen=True, kw_only=True)
class OwnEvent(Event):
    """An event of Sluice's own: a number that is accounted for, and nothing happened."""

    _is_own: ClassVar[bool] = True


def any_event(*, type: str, **fields: Any) -> Event:  # noqa: A002 (its name)
    """Return an event of any type: a producer's, or Sluice's own."""
    return (OwnEvent if type.startswith(RESERVED) else Event)(type=type, **fields)


@dataclass(frozen=True, kw_only=True)
class Envelope:
    """An event with its number: the content of a message.

    Args:
        event: the event.
        seq: its number in its group, without holes.
        epoch: when the group began to count, in seconds since 1970; a producer with its own numbers may count 1, 2 …
        first: the first number of the group in this epoch.
        committed_at: the time in the body if the event has no `at`.
    """

    event: Event
    seq: int
    epoch: int
    first: int = 1
    committed_at: datetime | None = None

    @cached_property
    def body(self) -> str:
        """Return the message body: the same text every time, so that a repeat repeats it."""
        before, after = self.event.body_around_numbers
        instant = self.committed_at if self.event.at is None else self.event.at
        written = "null" if instant is None else f'"{instant.astimezone(UTC).isoformat()}"'
        first = "" if self.first == 1 else f',"first":{self.first}'
        return f'{before}{self.seq},"epoch":{self.epoch}{first},"at":{written}{after}'

    @property
    def deduplication_id(self) -> str:
        """Return the deduplication id of the message, the same for every publish of it."""
        return self.event.id

    def as_tombstone(self, *, is_same_event: bool = False) -> "Envelope":
        """Return the tombstone of the same number, without data.

        It is published if the event is skipped, as another event. If the event was published and is erased, the
        tombstone is the same event: who has handled it drops the tombstone as a repeat.
        """
        of = self.event
        id_ = of.id if is_same_event else str(uuid.uuid4())
        event = OwnEvent(type=TOMBSTONE, group=of.group, data=None, id=id_, at=of.at, trace=of.trace)
        return replace(self, event=event)


def decode(body: str) -> Envelope:
    """Return the envelope in a body. Its event has no message attributes, because the body does not contain them.

    Raises:
        EnvelopeError: the body is not an envelope, has another version, or its content does not match its hash.
    """
    return envelope_of(fields_of(body))


def fields_of(body: str) -> dict[str, Any]:
    """Return the fields of the JSON object in a body, which is an envelope or a bundle of them.

    Raises:
        EnvelopeError: the body is no text, or no JSON object.
    """
    if type(body) is not str:
        raise EnvelopeError(f"body is a {type(body).__name__}, allowed is a text")
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise EnvelopeError(f"body is not JSON ({error}); it is not from a Sluice outbox") from error
    return fields if isinstance(fields, dict) else {}


def envelope_of(fields: Mapping[str, Any]) -> Envelope:
    """Return the envelope with these fields; see `decode`.

    Raises:
        EnvelopeError: they are not those of an envelope, are of another version, or do not match their hash.
    """
    version = fields.get("sluice")
    if type(version) is not int or version != VERSION:  # excludes True, which equals 1
        raise EnvelopeError(f"sluice is {version!r}, allowed is {VERSION}; upgrade whoever is behind")
    for name, kind in (("id", str), ("type", str), ("group", str), ("seq", int), ("epoch", int), ("hash", str)):
        if type(value := fields.get(name)) is not kind:
            raise _refusal(name, value, f"a value of type {kind.__name__}")
    for name in ("seq", "epoch"):
        if not 1 <= fields[name] <= _SEQ_MAX:
            raise _refusal(name, fields[name], f"1 to {_SEQ_MAX}")
    first = fields.get("first", 1)
    if type(first) is not int or not 1 <= first <= fields["seq"]:
        raise _refusal("first", first, f"1 to seq, which is {fields['seq']}")
    if "data" not in fields:
        raise _refusal("data", None, "a value")
    event = any_event(
        type=fields["type"],
        group=fields["group"],
        data=fields["data"],
        version=fields.get("version", 1),
        id=fields["id"],
        at=_instant(fields.get("at")),
        trace=fields.get("trace", {}),
    )
    hashed = event.content_hash
    if fields["hash"] != hashed:
        raise _refusal("hash", fields["hash"], f"{hashed}, which is that of type and data")
    return Envelope(event=event, seq=fields["seq"], epoch=fields["epoch"], first=first)


def is_type(type_: object) -> bool:
    """Return whether a value is a type of 1 to 256 letters, digits and . _ -."""
    return _matches(_TYPE, type_)


def check_type(type_: object, *, is_own: bool = False) -> None:
    """Refuse a value that is not a valid type of an event.

    Raises:
        EnvelopeError: the type is not valid, or is reserved for Sluice's own events.
    """
    if not is_type(type_):
        raise _refusal("type", type_, "1 to 256 letters, digits and . _ -")
    if not is_own and str(type_).startswith(RESERVED):
        raise _refusal("type", type_, f"one that does not begin with {RESERVED!r}, as Sluice's own do")


def check_version(version: object) -> None:
    """Refuse a value that is not a valid version of an event's data.

    Raises:
        EnvelopeError: the version is not valid.
    """
    if type(version) is not int or not 1 <= version <= _DATA_VERSION_MAX:  # excludes True
        raise _refusal("version", version, f"a whole number of 1 to {_DATA_VERSION_MAX}")


def attributes_bytes(attributes: Mapping[str, str]) -> int:
    """Return the size of text attributes in bytes: name, type and value."""
    return sum(len(name.encode()) + len(SENT_TYPE) + len(value.encode()) for name, value in attributes.items())


def _refusal(name: str, seen: object, allowed: str) -> EnvelopeError:
    shown = repr(seen)
    shown = shown if len(shown) <= 200 else f"{shown[:199]}…"
    return EnvelopeError(f"{name} is {shown}, allowed is {allowed}")


def _is_instant(seen: object) -> bool:
    try:
        return isinstance(seen, datetime) and seen.utcoffset() is not None and bool(seen.astimezone(UTC))
    except OverflowError:
        return False


def _matches(pattern: re.Pattern[str], seen: object) -> bool:
    return isinstance(seen, str) and pattern.fullmatch(seen) is not None


def _check_attributes(attributes: Mapping[str, str]) -> None:
    if not isinstance(attributes, Mapping):
        raise _refusal("attributes", attributes, "text by name")
    most = limits.MESSAGE_ATTRIBUTES_MAX
    if len(attributes) >= most:
        raise EnvelopeError(
            f"attributes are {len(attributes)}, allowed are {most - 1}: `type` is one too, and SNS loses a message with"
            f" more than {most}"
        )
    for name, value in attributes.items():
        if not _matches(_ATTRIBUTE_NAME, name) or name == "type":
            raise _refusal(
                "attributes",
                name,
                "names of 1 to 256 letters, digits and . _ -, without 'AWS.' or 'Amazon.' in front, single inner dots,"
                " and not 'type'",
            )
        if not isinstance(value, str) or not value:
            raise _refusal(f"attributes[{name!r}]", value, "text that is not empty")
        _check_characters(f"attributes[{name!r}]", value, is_escaped=False)


def _check_trace(trace: Mapping[str, str]) -> None:
    if not (isinstance(trace, Mapping) and all(isinstance(text, str) for pair in trace.items() for text in pair)):
        raise _refusal("trace", trace, "text by name, as a propagator writes it")
    for name, value in trace.items():
        _check_characters(f"trace[{name!r}]", value)


def _copy_as_json(name: str, value: object) -> Any:
    try:
        return json.loads(_as_json([[value]]))[0][0]
    except (TypeError, ValueError, RecursionError) as error:
        raise EnvelopeError(f"{name} is nothing JSON can say ({error}); allowed is what json.dumps takes") from error


def _check_characters(name: str, value: object, *, is_escaped: bool = True) -> None:
    """Refuse characters AWS refuses; control characters in a body are escaped by JSON and never reach it."""
    for path, text in _texts(name, value):
        found = (_NOT_ALLOWED_IN_JSON if is_escaped else _NOT_ALLOWED).search(text)
        if found is not None:
            raise EnvelopeError(
                f"{path} has U+{ord(found[0]):04X} at character {found.start()}, allowed is what XML 1.0 allows: tab,"
                " newline, return and all from U+0020 on but surrogates, U+FFFE and U+FFFF"
            )


def _texts(path: str, value: object) -> Iterator[tuple[str, str]]:
    """Yield the path and text of every text in a JSON value, names included.

    Without recursion, since JSON may be deep.
    """
    waiting = [(path, value)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, str):
            yield path, value
        elif isinstance(value, dict):
            waiting += [(f"a name in {path}", name) for name in value]
            waiting += [(f"{path}[{name!r}]", inner) for name, inner in value.items()]
        elif isinstance(value, list):
            waiting += [(f"{path}[{number}]", inner) for number, inner in enumerate(value)]


def _as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _content_hash(type_: str, data: object) -> str:
    canonical = json.dumps([type_, data], sort_keys=True, allow_nan=False, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _instant(written: object) -> datetime | None:
    if written is None:
        return None
    try:
        return datetime.fromisoformat(str(written))
    except ValueError as error:
        raise EnvelopeError(f"at is {written!r}, allowed is an instant as ISO 8601 writes it, or null") from error
