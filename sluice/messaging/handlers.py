"""Handlers: a consumer's functions for events, and the outcomes they return.

    @handler("order.placed")
    def invoice(session: Session, event: Event, context: Context) -> Outcome:
        session.add(Invoice(order=event.group, cents=event.data["total_cents"]))
        return Ack()

Three things are committed together or not at all: the rows that a handler writes through `session`, the inbox's mark
that the message was handled, and the events that the handler adds to an outbox. The handler neither commits nor rolls
back. After a rollback it may be called again for the same message, so its effects elsewhere have to tolerate a repeat.

    @handler("order.shipped")
    async def notify(session: AsyncSession, event: Event, context: Context) -> None:
        response = await client.post(f"/parcels/{event.group}", headers={"Idempotency-Key": event.id})
        session.add(Parcel(order=event.group, number=response.json()["number"]))

An `async def` handler whose first parameter is annotated as `AsyncSession` shares one event loop with the other
handlers of its process. Its transaction begins at the first use of its session, and contains the inbox's mark too.
Any other `async def` handler runs on an event loop of its lane, with a session that blocks that lane.

Under `@handler(OrderPlaced)`, a class of `event_types`, it gets the data as that class, and the event is
`context.event`. Data that the class refuses is rejected before the handler is called.
"""

import importlib.util
import inspect
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from types import ModuleType
from typing import TYPE_CHECKING, Any, Never, Protocol, cast, overload

from sqlalchemy.orm import Session

from sluice import limits
from sluice.declaration import Consumer, Environment
from sluice.declaration.validation import is_a, require
from sluice.errors import ConfigError
from sluice.messaging.envelope import RESERVED, Event, is_type
from sluice.messaging.errors import EnvelopeError, PermanentError
from sluice.terminal import output
from sluice.terminal.printable import printable

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession

ANY = "*"
"""The type of a handler for every event that has no handler of its own."""
_MARK = "__sluice_types__"
"""Attribute of a handler: the types that it handles, each with the class of its data, or None."""
_RAISED_CHARACTERS_MAX = 500


@dataclass(frozen=True, slots=True)
class Ack:
    """The message was handled: commit the effect and delete the message."""


@dataclass(frozen=True, slots=True)
class Retry:
    """The message cannot be handled now: roll back and receive it again; after the last attempt it goes to the DLQ.

    Args:
        delay_seconds: time until it is received again; None leaves it to the worker's backoff.
        reason: shown in the log and in the inbox.

    Raises:
        FieldError: the delay is negative, or longer than the longest visibility timeout.
    """

    delay_seconds: float | None = None
    reason: str = "the handler asked for a retry"

    def __post_init__(self) -> None:
        seconds, most = self.delay_seconds, limits.VISIBILITY_TIMEOUT_SECONDS_MAX
        is_met = seconds is None or (is_a(seconds, float) and 0 <= seconds <= most)
        require(self, is_met, field="delay_seconds", allowed=f"0 to {most}, or None for the backoff")


@dataclass(frozen=True, slots=True)
class Reject:
    """The message can never be handled unchanged: roll back and let it go to the DLQ.

    Args:
        reason: the reason. Somebody will read it at three in the morning.
    """

    reason: str


type Outcome = Ack | Retry | Reject


class MessageHold(Protocol):
    """The message lease for a handler: whether the message still belongs to the worker, and for how long."""

    def check(self) -> None:
        """Raise HoldLostError if another consumer may hold the message."""

    def remaining_seconds(self) -> float:
        """Return for how long the message certainly still belongs to the worker."""


class _NoEvent:
    """Replaces the event of a context that a test makes without one: reading any attribute of it raises an error."""

    def __getattr__(self, name: str) -> Never:
        raise AttributeError(f"context.event.{name} is read of a Context without its event; make it with event=…")


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Facts about an event, for its handler.

    Args:
        event: the event; a handler of untyped events also gets it as its second argument. A worker always sets it.
        consumer: name of the consumer.
        seq: number of the event in its group.
        epoch: epoch of the number.
        attempt: number of the attempt, from 1: how often the message was received.
        is_last_attempt: whether the message goes to the DLQ if this attempt fails.
        is_late: whether later events of the group were handled before this one.
        attributes: message attributes, text by name.
        hold: the message lease. A long handler calls `context.hold.check()` now and then, which raises once its work
            could not be committed any more.
    """

    event: Event = cast("Event", _NoEvent())  # noqa: RUF009 (a constant)
    consumer: str
    seq: int
    epoch: int
    attempt: int
    is_last_attempt: bool
    is_late: bool
    attributes: Mapping[str, str]
    hold: MessageHold


type AsyncHandler = Callable[[AsyncSession, Event, Context], Awaitable[Outcome | None]]
"""A handler that shares an event loop with other handlers."""
type LaneHandler = Callable[[Session, Event, Context], Outcome | Awaitable[Outcome | None] | None]
"""A handler that runs on the thread of its lane."""
type Handler = LaneHandler | AsyncHandler
"""A handler, possibly `async def`. Returning nothing means Ack; an exception means Retry, a PermanentError Reject."""

type TypedHandler[D] = (
    Callable[[Session, D, Context], Outcome | Awaitable[Outcome | None] | None]
    | Callable[[AsyncSession, D, Context], Awaitable[Outcome | None]]
)
"""A handler that gets the event's data as an instance of a class, in place of the event."""


@overload
def handler[H: Handler](*types: str) -> Callable[[H], H]: ...
@overload
def handler[D](*types: type[D]) -> Callable[[TypedHandler[D]], TypedHandler[D]]: ...
def handler(*types: Any) -> Callable[[Any], Any]:
    """Mark a function as the handler of events of these types; `*` means every type without a handler of its own.

    Args:
        types: types of events, or classes under `@event_type`.

    Raises:
        ConfigError: no type is given, or one is not a valid type of event, or is reserved for Sluice.
    """
    read = dict(map(_type_and_model, types))
    if not read:
        raise ConfigError('handler is given (), allowed are types of events: @handler("order.placed")')
    _require_types_of_events(read)

    def mark(function: Any) -> Any:
        setattr(function, _MARK, read)
        return function

    return mark


def _type_and_model(given: object) -> tuple[str, type | None]:
    """Return (type of event, class of its data or None) for an argument of `handler`."""
    if isinstance(given, str) and given:
        return given, None
    if not isinstance(given, type):
        raise ConfigError(
            f'handler is given {printable(repr(given))}, allowed are types of events: @handler("order.placed")'
        )
    from sluice.messaging.event_types import event_type_of  # noqa: PLC0415 (pydantic, where a class is read)

    return event_type_of(given).type_, given


def _require_types_of_events(types: Iterable[str]) -> None:
    """Refuse a type that no event has, because nothing would call its handler.

    Raises:
        ConfigError: the type is not valid, or is reserved for Sluice.
    """
    for type_ in types:
        if type_.startswith(RESERVED):
            raise ConfigError(
                f"handler is given {printable(repr(type_))}, allowed are types that do not begin with {RESERVED!r}:"
                " Sluice's own events are counted, and no handler gets them"
            )
        if type_ != ANY and not is_type(type_):
            raise ConfigError(
                f"handler is given {printable(repr(type_))}, allowed are whole types of events, of 1 to 256 letters,"
                f" digits and . _ -, or {ANY!r} alone: no event has that type, and nothing would call it"
            )


class Handlers:
    """The handlers of one consumer. Events for other consumers are passed over: counted, and not handled.

    Args:
        by_type: type of event -> handler; `*` for every type without a handler of its own.
        types: the types that the consumer declares; None if it declares none.
        elsewhere: the types that other consumers of the topic declare.
    """

    def __init__(
        self, by_type: Mapping[str, Handler], *, types: Sequence[str] | None = None, elsewhere: Iterable[str] = ()
    ) -> None:
        _require_types_of_events(by_type)
        self._by_type, self._elsewhere = dict(by_type), frozenset(elsewhere)
        self._types = None if types is None else frozenset(types)
        self._of_asyncio = {id(function) for function in self._by_type.values() if _takes_async_session(function)}
        idle = sorted(self._by_type.keys() - {ANY} - (self._by_type.keys() if self._types is None else self._types))
        if idle:
            raise ConfigError(
                f"there is a handler for {idle[0]!r}, which is not among the types of its consumer: nothing would call"
                " it; add it to Consumer.types, or remove the handler"
            )

    def of_consumer(self, consumer: Consumer, environment: Environment | None = None) -> "Handlers":
        """Return these handlers with the declared types of their consumer, and of the environment's other consumers.

        Raises:
            ConfigError: a handler is for a type that the consumer does not declare.
        """
        return Handlers(self._by_type, types=consumer.types, elsewhere=_types_of_others(consumer, environment))

    @classmethod
    def of(cls, module: ModuleType) -> "Handlers":
        """Return the handlers of a module.

        Raises:
            ConfigError: the module has no handler, two handlers for one type, or a handler that cannot take a session,
                an event and a context.
        """
        return cls(_by_type(module.__name__, vars(module).values()))

    @classmethod
    def of_function(cls, function: Handler | TypedHandler[Any]) -> "Handlers":
        """Return one function as the handler of the types that it is marked with, or of every type if it is not marked.

        Raises:
            ConfigError: the function is a generator, and a call would not run its body.
        """
        if not hasattr(function, _MARK):
            function = handler(ANY)(function)
        return cls(_by_type(getattr(function, "__module__", "?"), [function]))

    @classmethod
    def load(cls, name: str) -> "Handlers":
        """Return the handlers of a module by the module's name.

        Raises:
            ConfigError: there is no such module, it cannot be imported, or it has no handler, or two for one type.
        """
        missing = ConfigError(
            f"handlers are {name!r}, and there is no such module; put it on the Python path, or correct"
            " Consumer.handlers in the declaration"
        )
        if not all(part.isidentifier() for part in name.split(".")):
            raise missing
        try:
            module = importlib.import_module(name)
        except BaseException as error:  # the import runs the user's module, which may raise anything
            if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
                raise missing from error
            raise ConfigError(
                f"handlers are {name!r}, and importing that module raised {type(error).__name__}:"
                f" {printable(error, characters_max=_RAISED_CHARACTERS_MAX)}; fix the module, or correct"
                " Consumer.handlers in the declaration"
            ) from error
        return cls.of(module)

    def find(self, type_: str) -> Handler | None:
        """Return the handler of a type of event; None without one. If it is passed over, one that does nothing."""
        if type_.startswith(RESERVED) or self.passes_over(type_):
            return _nothing
        return self._by_type.get(type_, self._by_type.get(ANY))

    def passes_over(self, type_: str) -> bool:
        """Return whether events of a type are for other consumers: they are counted, and no handler is called."""
        if type_.startswith(RESERVED):
            return False
        if self._types is not None:
            return type_ not in self._types
        return type_ in self._elsewhere and not self._by_type.keys() & {type_, ANY}

    def model_of(self, type_: str) -> type | None:
        """Return the class of the data of a type of event; None if its handler gets untyped events."""
        models: Mapping[str, type | None] = getattr(self.find(type_), _MARK, {})
        return models.get(type_)

    def takes_async_session(self, type_: str) -> bool:
        """Return whether the handler of a type of event shares an event loop with other handlers."""
        return bool(self._of_asyncio) and id(self.find(type_)) in self._of_asyncio

    def require_sessions(self) -> None:
        """Refuse a handler that takes an AsyncSession, where the events of a bundle have one transaction.

        Raises:
            ConfigError: there is one.
        """
        if self._of_asyncio:
            raise ConfigError(
                "a handler takes an AsyncSession, allowed with Commit.BUNDLE are handlers that take a Session: the"
                " transaction of the others begins at the first use of their session, and is theirs alone"
            )

    @property
    def names(self) -> frozenset[str]:
        """Return the types that the consumer declares, or else those of its handlers without `*`."""
        return frozenset(self._by_type.keys() - {ANY}) if self._types is None else self._types

    def describe(self, known: Iterable[str] = ()) -> str | None:
        """Return a sentence on the types that have no handler and so go to the DLQ; None if there are none.

        Args:
            known: the types that the topic's consumers name, which the sentence lists.
        """
        if ANY in self._by_type:
            return None
        if self._types is not None:
            lacking = ", ".join(sorted(self._types - self._by_type.keys()))
            return f"{lacking} go to its DLQ: Consumer.types has them, and no handler" if lacking else None
        dead = sorted(set(known) - self._by_type.keys() - self._elsewhere)
        others = [*dead, "every other type" if dead else "every type"]
        return (
            f"{', '.join(others)} but {', '.join(sorted(self.names))}"
            f" goes to its DLQ: it has neither a handler for them nor one for {ANY!r}; to pass over what is for others,"
            " name its types or theirs in Consumer.types"
        )


def require_handlers(environment: Environment, *, source: str) -> None:
    """Refuse handlers that a worker would refuse at its start, and log which types of events go to which DLQ.

    A consumer with an image of its own is not checked, because its handlers are in the image.

    Raises:
        ConfigError: the handlers of a consumer are missing or not valid.
    """
    loaded = {}
    for consumer in environment.consumers:
        if consumer.handlers is not None and consumer.image is None:
            try:
                loaded[consumer] = Handlers.load(consumer.handlers).of_consumer(consumer, environment)
            except ConfigError as error:
                raise ConfigError(f"Consumer({consumer.name!r}) in {source}: {error}") from error
    for consumer, handlers in loaded.items():
        beside = environment.consumers_of(environment.topic(consumer.topic))
        known = (other.names for name, other in loaded.items() if name in beside)
        dead = None if "type" in (consumer.filter_policy or ()) else handlers.describe(frozenset().union(*known))
        if dead is not None:
            output.line(f"Consumer({consumer.name!r}) in {source}: {dead}", is_error=True)


def _types_of_others(consumer: Consumer, environment: Environment | None) -> Iterator[str]:
    """Yield the types that other consumers of the topic declare."""
    if environment is not None:
        for other in environment.consumers_of(environment.topic(consumer.topic)):
            if other.name != consumer.name:
                yield from other.types or ()


def _by_type(name: str, values: Iterable[object]) -> dict[str, Handler]:
    """Return type of event -> handler for the marked functions among a module's values.

    Args:
        name: the module's name, for errors.
        values: functions and other values of the module.

    Raises:
        ConfigError: no function is marked, one cannot be called as a handler, or two are for one type.
    """
    found: dict[str, Handler] = {}
    for function in values:
        for type_ in inspect.getattr_static(function, _MARK, ()):
            if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
                raise ConfigError(
                    f"the handler of {type_!r} in module {name} yields, allowed is a function or `async def` that"
                    " returns an outcome: nothing would ever run it"
                )
            if not _can_be_called(function):
                raise ConfigError(
                    f"the handler of {type_!r} in module {name} takes {inspect.signature(function)},"  # type: ignore[arg-type]
                    " allowed is what (session, event, context) can be given to"
                )
            if found.setdefault(type_, function) is not function:  # type: ignore[arg-type]
                raise ConfigError(f"module {name} has two handlers for {type_!r}, allowed is one; merge them")
    if not found:
        raise ConfigError(f"module {name} has no handlers, allowed is one or more functions under @handler(type)")
    return {type_: _with_data_read(function, getattr(function, _MARK)[type_]) for type_, function in found.items()}


def _with_data_read(function: Handler, model: type | None) -> Handler:
    """Return a handler that calls `function` with the event's data as an instance of `model`.

    Without a model, return `function` itself.

    Raises:
        ConfigError: pydantic cannot read the class.
    """
    if model is None:
        return function
    from sluice.messaging import event_types  # noqa: PLC0415 (as above)

    event_types.require_readable(model)

    @wraps(function)
    def read_and_handle(session: Any, event: Event, context: Context) -> Outcome | Awaitable[Outcome | None] | None:
        try:
            data: Any = event_types.read(model, event)
        except EnvelopeError as error:
            raise PermanentError(str(error)) from error
        return function(session, data, context)

    return inspect.markcoroutinefunction(read_and_handle) if inspect.iscoroutinefunction(function) else read_and_handle


def _can_be_called(function: object) -> bool:
    """Return whether a function takes a session, an event and a context; True if Python cannot tell."""
    try:
        inspect.signature(function).bind(None, None, None)  # type: ignore[arg-type]
    except TypeError:
        return False
    except ValueError:
        pass
    return True


def _takes_async_session(function: object) -> bool:
    """Return whether a handler's first parameter is annotated as SQLAlchemy's AsyncSession, by class or by name.

    Raises:
        ConfigError: the handler is not `async def`, names a subclass of AsyncSession, or greenlet is not installed.
    """
    annotation = _first_annotation(function)
    loaded = sys.modules.get("sqlalchemy.ext.asyncio")  # a module that has the class has imported it
    is_class = loaded is not None and isinstance(annotation, type) and issubclass(annotation, loaded.AsyncSession)
    if not (is_class or (isinstance(annotation, str) and annotation.rpartition(".")[2] == "AsyncSession")):
        return False
    name = f"handler {getattr(function, '__qualname__', function)} takes an AsyncSession"
    if loaded is not None and is_class and annotation is not loaded.AsyncSession:
        raise ConfigError(f"{name} of its own class, {annotation}, allowed is sqlalchemy.ext.asyncio.AsyncSession")
    inner = inspect.unwrap(function)  # type: ignore[arg-type]
    if not any(map(inspect.iscoroutinefunction, (inner, getattr(inner, "__call__", None)))):  # noqa: B004
        raise ConfigError(f"{name} and is no `async def`, allowed is one: nothing else can await what it executes")
    if importlib.util.find_spec("greenlet") is None:
        raise ConfigError(f"{name}, for which greenlet is missing; pip install 'sqlalchemy[asyncio]'")
    return True


def _first_annotation(function: object) -> object:
    """Return the annotation of the first parameter, as a string if it cannot be evaluated; None if there is none."""
    for is_evaluated in (True, False):
        # a name in the annotation may be imported for type checkers only
        with suppress(NameError, TypeError, ValueError):
            parameters = inspect.signature(function, eval_str=is_evaluated).parameters  # type: ignore[arg-type]
            return next((parameter.annotation for parameter in parameters.values()), None)
    return None


def _nothing(_: Session, __: Event, ___: Context) -> Outcome:
    """Do nothing: an event without data, or for other consumers, only has a number that is counted."""
    return Ack()
