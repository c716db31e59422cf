"""Typed events: the data of a type of event as a dataclass or a pydantic model, version by version.

    @event_type("order.placed")
    @dataclass(frozen=True)
    class OrderPlaced:
        total_cents: int

    outbox.add(session, event_of(OrderPlaced(total_cents=1250), group="order-7"))

    @handler(OrderPlaced)
    def invoice(session: Session, order: OrderPlaced, context: Context) -> Outcome: ...

Both sides go by what the class reads from JSON in pydantic's strict mode: `"12"` is no number there. So a producer can
send nothing that its own class refuses, dataclasses included, which check nothing when they are made.

https://pydantic.dev/docs/validation/latest/concepts/strict_mode/ (from JSON, a strict `datetime` is still text;
read 2026-11-27)
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from functools import cache
from typing import Any, Protocol, overload

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic_core import ErrorDetails, PydanticSerializationError

from sluice.errors import ConfigError, MessagingError
from sluice.messaging.envelope import Event, check_type, check_version
from sluice.messaging.errors import EnvelopeError
from sluice.terminal.printable import exception_text, printable, text_of

_MARK = "__sluice_event_type__"
_SHOWN_CHARACTERS_MAX = 200
_PYDANTIC_BEGINS = "Input should be "


@dataclass(frozen=True, slots=True, kw_only=True)
class EventType:
    """A version of a type of event, with the class of its data.

    Args:
        type_: type of the event.
        version: version of the data's shape.
        model: a dataclass or pydantic model.
        previous: the version before it, if the class reads that version too.
        upcast: turns data of the previous version into data of this version.
    """

    type_: str
    version: int
    model: type
    previous: "EventType | None" = None
    upcast: Callable[[Any], object] | None = None

    @property
    def versions(self) -> "Mapping[int, EventType]":
        """Return every version that the class reads, by number, this version first, without a gap."""
        before = {} if self.previous is None else self.previous.versions
        return {self.version: self, **before}

    @property
    def versions_text(self) -> str:
        """Return the versions that are read, as `2` or `1 to 3`."""
        first = min(self.versions)
        return f"{self.version}" if first == self.version else f"{first} to {self.version}"

    def __str__(self) -> str:
        return f"{self.type_} version {self.version}"


class Declare(Protocol):
    """A decorator that declares a class, and returns it."""

    def __call__[D](self, model: type[D], /) -> type[D]:
        """Declare the class as the data of a type of events."""


@overload
def event_type(type_: str, *, version: int = 1) -> Declare: ...
@overload
def event_type[D, P](
    type_: str, *, version: int, previous: type[P], upcast: Callable[[P], D]
) -> Callable[[type[D]], type[D]]: ...
def event_type(
    type_: str, *, version: int = 1, previous: type | None = None, upcast: Callable[[Any], Any] | None = None
) -> Callable[[Any], Any]:
    """Declare that a dataclass or pydantic model is the data of a type of event, in one version.

    Args:
        type_: type of the event.
        version: version of the data's shape; increase it by one with every change that an older consumer cannot read.
        previous: class of the previous version, whose events this class reads too.
        upcast: turns data of `previous` into data of this version.

    Raises:
        ConfigError: the type or version is not valid, the class is neither a dataclass nor a pydantic model, or
            `previous` is not the version before.
    """
    try:
        check_type(type_)
        check_version(version)
    except EnvelopeError as error:
        raise ConfigError(f"event_type is given another {error}") from error

    def declare(model: Any) -> Any:
        name = f"event_type({type_!r}, version={version}) of {model.__name__}"
        if not (isinstance(model, type) and (is_dataclass(model) or issubclass(model, BaseModel))):
            raise ConfigError(f"{name}: allowed is a dataclass or pydantic model; put @dataclass below it")
        if (previous is None) != (upcast is None):
            raise ConfigError(f"{name} has previous or upcast alone, allowed are both or neither")
        before = None if previous is None else event_type_of(previous)
        if before is not None and (before.type_, before.version) != (type_, version - 1):
            raise ConfigError(
                f"{name}: previous is {before}, allowed is {type_} version {version - 1}, or the chain has a gap"
            )
        found = EventType(type_=type_, version=version, model=model, previous=before, upcast=upcast)
        setattr(model, _MARK, found)
        return model

    return declare


def event_type_of(model: type) -> EventType:
    """Return the type of event that a class is declared as.

    Raises:
        ConfigError: the class itself is not declared; the declaration of a base class does not count.
    """
    found = vars(model).get(_MARK) if isinstance(model, type) else None
    if not isinstance(found, EventType):
        name = printable(getattr(model, "__name__", text_of(model)))
        raise ConfigError(f"{name} is no type of event, allowed is a class under @event_type('order.placed')")
    return found


def event_of(data: object, *, group: str, **fields: Any) -> Event:
    """Return the event of typed data: its type and version are those of the data's class.

    Args:
        data: an instance of a class under `@event_type`.
        group: message group.
        fields: `attributes`, `id`, `at` and `trace`, the same as of `Event`.

    Raises:
        EnvelopeError: a field of the data has a value that its class does not allow; the message names it.
        ConfigError: the class of the data is not declared.
    """
    of = event_type_of(type(data))
    event = Event(type=of.type_, version=of.version, group=group, data=_as_json(of, data), **fields)
    _read(of, event.data)
    return event


def read(model: type, event: Event) -> object:
    """Return an event's data as an instance of the class that a consumer reads.

    Args:
        model: the class; older versions are upcast to it.
        event: an event of its type.

    Raises:
        EnvelopeError: the class does not read the event's version, a field has a value that it does not allow, or an
            upcast fails.
    """
    of = event_type_of(model)
    versions = of.versions
    if event.version not in versions:
        raise EnvelopeError(
            f"version of {of.type_!r} is {event.version}, allowed is {of.versions_text} of"
            f" {model.__name__}; deploy a consumer that reads it, then redrive"
        )
    value = _read(versions[event.version], event.data)
    for version in range(event.version + 1, of.version + 1):
        value = _upcast(versions[version], value)
    return value


def require_readable(model: type) -> None:
    """Refuse a class for which pydantic cannot build a reader.

    Raises:
        ConfigError: pydantic cannot read the class, or the class of an earlier version.
    """
    for of in event_type_of(model).versions.values():
        adapter(of.model)


@cache
def adapter(model: type) -> TypeAdapter[Any]:
    """Return pydantic's reader and writer of a class.

    Raises:
        ConfigError: pydantic cannot read one of its fields.
    """
    try:
        return TypeAdapter(model)
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        message = printable(str(error).partition("\n")[0])
        raise ConfigError(f"{model.__name__} has a field that pydantic cannot read: {message}") from error


def _as_json(of: EventType, data: object) -> Any:
    try:
        return adapter(of.model).dump_python(data, mode="json", by_alias=True, warnings="none")
    except PydanticSerializationError as error:
        raise EnvelopeError(f"{of}: data cannot be written as JSON: {printable(error)}") from error


def _read(of: EventType, data: object) -> Any:
    try:
        return adapter(of.model).validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        raise EnvelopeError(f"{of}: {_explain(error)}") from error
    except MessagingError:
        raise
    except Exception as error:  # of a validator or __post_init__: the same data fails it every time
        raise EnvelopeError(f"{of}: {of.model.__name__} raised {exception_text(error)}") from error


def _upcast(of: EventType, value: object) -> object:
    """Turn data of the previous version into this version.

    An upcast may return a value that the class does not allow.
    """
    assert of.upcast is not None, of
    try:
        upcast = of.upcast(value)
    except MessagingError:
        raise
    except Exception as error:  # an upcast is the user's code, and may raise anything
        raise EnvelopeError(f"{of}: upcast raised {exception_text(error)}") from error
    if type(upcast) is not of.model:
        raise EnvelopeError(f"{of}: upcast returned {printable(text_of(upcast))}, allowed is a {of.model.__name__}")
    return _read(of, _as_json(of, upcast))


def _explain(error: ValidationError) -> str:
    """Return in one line the first wrong field, the value seen and the value allowed, and how many more are wrong."""
    first, *others = error.errors(include_url=False, include_context=False)
    more = f" (and {len(others)} more)" if others else ""
    return f"{_explain_field(first)}{more}"


def _explain_field(error: ErrorDetails) -> str:
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error["loc"]).removeprefix(".")
    field = printable(place) or "data"
    if error["type"] == "missing":
        return f"{field} is missing, allowed is a value"
    seen = printable(text_of(error["input"]), characters_max=_SHOWN_CHARACTERS_MAX)
    return f"{field} is {seen}, allowed is {printable(error['msg'].removeprefix(_PYDANTIC_BEGINS))}"
