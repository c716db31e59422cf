"""Typed events: what is refused when a class is declared, when an event is made, and when it is read."""

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from types import ModuleType
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, Field, field_validator
from sqlalchemy.orm import Session

from sluice.errors import ConfigError
from sluice.messaging import Ack, Context, Event, Outcome, TransientError, event_of, event_type, handler
from sluice.messaging.envelope import Envelope, decode
from sluice.messaging.errors import EnvelopeError
from sluice.messaging.event_types import read
from sluice.messaging.handlers import Handlers
from sluice.testing import WorkerHarness
from tests.support.project import PROJECT


@event_type("order.placed")
@dataclass(frozen=True)
class PlacedInEuros:
    """Version 1 of an order: its total as text."""

    total: str


def in_cents(old: PlacedInEuros) -> "PlacedInCents":
    """Make version 2 of version 1."""
    return PlacedInCents(cents=int(Decimal(old.total) * 100))


@event_type("order.placed", version=2, previous=PlacedInEuros, upcast=in_cents)
@dataclass(frozen=True)
class PlacedInCents:
    """Version 2 of an order: its total in cents."""

    cents: Annotated[int, Field(ge=0)]


def with_currency(old: PlacedInCents) -> "PlacedInCurrency":
    """Make version 3 of version 2."""
    return PlacedInCurrency(cents=old.cents, currency="EUR")


@event_type("order.placed", version=3, previous=PlacedInCents, upcast=with_currency)
class PlacedInCurrency(BaseModel):
    """Version 3 of an order, as a pydantic model."""

    cents: int
    currency: Literal["EUR", "CHF"]


class Colour(Enum):
    RED = "red"


@dataclass
class Line:
    cents: int
    on: date


@event_type("order.described")
@dataclass
class ParcelData:
    lines: list[Line]
    id: UUID
    described_at: datetime
    price: Decimal
    colour: Colour
    note: str | None = None
    share: float = 1
    tags: set[str] = field(default_factory=set)
    pair: tuple[int, str] = (1, "a")


@event_type("order.picked")
class PickedItem(BaseModel):
    model_config = ConfigDict(extra="forbid")
    shelf: str = Field(alias="shelfName")

    @field_validator("shelf")
    @classmethod
    def check_shelf(cls, shelf: str) -> str:
        if shelf == "busy":
            raise TransientError("the shelf is asked for later")
        if shelf == "lost":
            raise KeyError(shelf)
        return shelf


DESCRIBED = ParcelData(
    lines=[Line(cents=5, on=date(2026, 11, 27))],
    id=UUID(int=7),
    described_at=datetime(2026, 11, 27, tzinfo=UTC),
    price=Decimal("1.10"),
    colour=Colour.RED,
    tags={"new"},
)


def refusal(act: Callable[[], object], kind: type[Exception] = EnvelopeError) -> str:
    """Return the one-line error that this act raises."""
    with pytest.raises(kind) as raised:
        act()
    assert len(str(raised.value).splitlines()) == 1
    return str(raised.value)


@pytest.mark.parametrize("data", [DESCRIBED, PlacedInCurrency(cents=5, currency="CHF"), PickedItem(shelfName="a")])
def test_typed_data_survives_sending_and_reading(data: Any) -> None:
    """With dates, decimals, enums, sets and nested dataclasses."""
    sent = event_of(data, group="order-7", attributes={"country": "CH"})

    arrived = decode(Envelope(event=sent, seq=1, epoch=1).body).event

    assert read(type(data), arrived) == data
    assert arrived.type == sent.type
    assert arrived.version == sent.version


def test_the_first_version_is_not_written_into_the_body() -> None:
    """So the body equals that of an untyped event, which older consumers read."""
    first = event_of(PlacedInEuros(total="1"), group="a", id="e")
    third = event_of(PlacedInCurrency(cents=5, currency="EUR"), group="a", id="e")

    assert first == Event(type="order.placed", group="a", data={"total": "1"}, id="e")
    assert '"version"' not in Envelope(event=first, seq=1, epoch=1).body
    assert '"type":"order.placed","version":3,' in Envelope(event=third, seq=1, epoch=1).body


@pytest.mark.parametrize("version", [0, -1, True, "2", 2.0, None, 10**6])
def test_a_version_is_a_whole_number_from_1(version: Any) -> None:
    shown = f"version is {version!r}, allowed is a whole number of 1 to 999999"

    assert refusal(lambda: Event(type="a", group="a", data=None, version=version)) == shown
    assert refusal(lambda: event_type("a", version=version), ConfigError) == f"event_type is given another {shown}"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (PlacedInEuros(total=12), "order.placed version 1: total is 12, allowed is a valid string"),  # type: ignore[arg-type]
        (PlacedInCents(cents="5"), "order.placed version 2: cents is '5', allowed is a valid integer"),  # type: ignore[arg-type]
        (PlacedInCents(cents=-5), "order.placed version 2: cents is -5, allowed is greater than or equal to 0"),
        (
            PlacedInCurrency.model_construct(cents=5, currency="USD"),
            "order.placed version 3: currency is 'USD', allowed is 'EUR' or 'CHF'",
        ),
        (
            replace(DESCRIBED, lines=[Line(cents=5, on="x")], note=7),  # type: ignore[arg-type]
            "order.described version 1: lines[0].on is 'x', allowed is a valid date in the format YYYY-MM-DD, input is"
            " too short (and 1 more)",
        ),
        (replace(DESCRIBED, colour="blue"), "order.described version 1: colour is 'blue', allowed is 'red'"),  # type: ignore[arg-type]
        (replace(DESCRIBED, share=float("nan")), "data is nothing JSON can say"),
        (replace(DESCRIBED, note=object()), "order.described version 1: data cannot be written as JSON"),  # type: ignore[arg-type]
        (PickedItem.model_construct(), "order.picked version 1: shelfName is missing, allowed is a value"),
        (
            PickedItem(shelfName="x" * 9).model_copy(update={"shelf": "lost"}),
            "order.picked version 1: PickedItem raised KeyError",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_event_of_refuses_data_that_its_class_refuses(data: object, message: str) -> None:
    """Dataclasses check nothing when they are made; the refusal names the field, its value and what is allowed."""
    assert refusal(lambda: event_of(data, group="order-7")).startswith(message)


@pytest.mark.parametrize(
    ("version", "data", "message"),
    [
        (1, {"total": 5}, "order.placed version 1: total is 5, allowed is a valid string"),
        (1, {"total": "x"}, "order.placed version 2: upcast raised InvalidOperation: [<class 'decimal.Conversion"),
        (1, {"total": "-1"}, "order.placed version 2: cents is -100, allowed is greater than or equal to 0"),
        (2, {}, "order.placed version 2: cents is missing, allowed is a value"),
        (2, [], "order.placed version 2: data is [], allowed is an object"),
        (3, None, "order.placed version 3: data is None, allowed is an object"),
        (
            4,
            {},
            "version of 'order.placed' is 4, allowed is 1 to 3 of PlacedInCurrency; deploy a consumer that reads it,"
            " then redrive",
        ),
    ],
)
def test_read_refuses_wrong_data_and_unknown_versions(version: int, data: object, message: str) -> None:
    """Data is checked against the class of its version, and again after each upcast."""
    event = Event(type="order.placed", group="order-7", data=data, version=version)

    assert refusal(lambda: read(PlacedInCurrency, event)).startswith(message)


def test_older_versions_are_upcast_step_by_step() -> None:
    """Version 1 becomes 2 and then 3, version 2 becomes 3."""
    first = event_of(PlacedInEuros(total="12.50"), group="order-7")
    second = event_of(PlacedInCents(cents=5), group="order-7")

    assert read(PlacedInCurrency, first) == PlacedInCurrency(cents=1250, currency="EUR")
    assert read(PlacedInCurrency, second) == PlacedInCurrency(cents=5, currency="EUR")


def test_an_upcast_returns_the_class_of_its_version() -> None:
    """Anything else is refused when an event is read."""

    @event_type("order.placed", version=2, previous=PlacedInEuros, upcast=lambda _: {"cents": 5})  # type: ignore[arg-type]
    @dataclass
    class OrderMapping:
        cents: int

    message = refusal(lambda: read(OrderMapping, event_of(PlacedInEuros(total="1"), group="a")))

    assert message == "order.placed version 2: upcast returned {'cents': 5}, allowed is a OrderMapping"


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: event_type("order placed"), "event_type is given another type is 'order placed', allowed is 1 to 256"),
        (
            lambda: event_type("sluice.tombstone"),
            "event_type is given another type is 'sluice.tombstone', allowed is one",
        ),
        (lambda: event_type("a")(str), "event_type('a', version=1) of str: allowed is a dataclass or pydantic model"),
        (
            lambda: event_type("order.placed", version=3, previous=PlacedInEuros, upcast=str)(Line),  # type: ignore[arg-type]
            "event_type('order.placed', version=3) of Line: previous is order.placed version 1, allowed is order.placed"
            " version 2, or the chain has a gap",
        ),
        (
            lambda: event_type("order.paid", version=2, previous=PlacedInEuros, upcast=str)(Line),  # type: ignore[arg-type]
            "event_type('order.paid', version=2) of Line: previous is order.placed version 1, allowed is order.paid",
        ),
        (
            lambda: event_type("order.placed", version=2, previous=PlacedInEuros)(Line),  # type: ignore[call-overload]
            "event_type('order.placed', version=2) of Line has previous or upcast alone, allowed are both or neither",
        ),
        (lambda: event_type("a", version=2, previous=Line, upcast=str)(Line), "Line is no type of event, allowed is a"),  # type: ignore[arg-type]
        (lambda: event_of(Line(1, date(2026, 1, 1)), group="a"), "Line is no type of event, allowed is a class under"),
        (lambda: event_of({"cents": 5}, group="a"), "dict is no type of event, allowed is a class under @event_type("),
        (lambda: handler(Line), "Line is no type of event, allowed is a class under @event_type("),
        (lambda: handler(DESCRIBED), "handler is given ParcelData("),  # type: ignore[call-overload]
    ],
)
def test_a_wrong_event_type_or_handler_is_refused_at_its_declaration(
    declare: Callable[[], object], message: str
) -> None:
    assert refusal(declare, ConfigError).startswith(message)


def test_a_subclass_of_an_event_type_is_no_event_type() -> None:
    class Special(PlacedInCurrency):
        pass

    assert refusal(lambda: event_of(Special(cents=5, currency="EUR"), group="a"), ConfigError).startswith("Special is")


def test_a_field_unknown_to_pydantic_is_refused_when_handlers_load() -> None:
    @event_type("order.held")
    @dataclass
    class HeldItem:
        by: ModuleType

    @handler(HeldItem)
    def hold(_: Session, __: HeldItem, ___: Context) -> None:
        return None

    message = refusal(lambda: Handlers.of_function(hold), ConfigError)

    assert re.match(r"HeldItem has a field that pydantic cannot read: .*module", message)


SEEN: list[object] = []


@handler(PlacedInCurrency)
def bill(_: Session, order: PlacedInCurrency, context: Context) -> Outcome:
    """Note an order with its group and attempt."""
    SEEN.append((order, context.event.group, context.attempt))
    return Ack()


@handler(PickedItem)
async def pick(_: Session, picked: PickedItem, context: Context) -> None:
    """Note a picked item."""
    SEEN.append(picked)


def a_module() -> ModuleType:
    """Return a module with both handlers."""
    made = ModuleType("billing")
    vars(made).update(bill=bill, pick=pick)
    return made


def test_a_handler_gets_the_typed_value(worker_harness: Callable[..., WorkerHarness]) -> None:
    """An event of version 1 is upcast for the handler of version 3."""
    SEEN.clear()
    harness = worker_harness(a_module())

    harness.publish(event_of(PlacedInEuros(total="12.50"), group="order-7"))
    harness.publish(event_of(PickedItem(shelfName="a"), group="order-7"))
    harness.run()

    assert [(PlacedInCurrency(cents=1250, currency="EUR"), "order-7", 1), PickedItem(shelfName="a")] == SEEN


def test_data_that_the_class_refuses_is_dead_at_its_first_attempt(worker_harness: Callable[..., WorkerHarness]) -> None:
    """The handler is not called, the reason is recorded, and the group goes on."""
    SEEN.clear()
    harness = worker_harness(a_module())
    harness.publish("order.placed", "order-7", {"total": 5})
    harness.publish("order.placed", "order-7", {"total": "1"})
    harness.publish("order.picked", "order-7", {"shelfName": "lost"})

    harness.run()

    assert [dead_letter.reason for dead_letter in harness.dead_letters] == [
        "order.placed version 1: total is 5, allowed is a valid string",
        "order.picked version 1: PickedItem raised KeyError: 'lost'",
    ]
    assert [(PlacedInCurrency(cents=100, currency="EUR"), "order-7", 1)] == SEEN


def test_a_validator_may_ask_for_a_retry() -> None:
    """It may call another service, which may be unreachable."""
    with pytest.raises(TransientError, match="the shelf is asked for later"):
        read(PickedItem, Event(type="order.picked", group="a", data={"shelfName": "busy"}))


def test_pydantic_is_imported_only_where_events_are_typed() -> None:
    """Its import costs every process time; `event_of` imports it."""
    program = (
        "import sys; from sluice.messaging import Event, Outbox, handler, worker\n"
        "assert 'pydantic' not in sys.modules\nfrom sluice.messaging import event_of\nassert 'pydantic' in sys.modules"
    )

    subprocess.run([sys.executable, "-c", program], check=True, cwd=PROJECT)
