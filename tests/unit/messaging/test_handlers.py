"""Which handler is called for an event, and how ambiguous or impossible handlers are refused."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from sluice.declaration import Consumer, Environment, NewDatabase
from sluice.errors import ConfigError
from sluice.history import events
from sluice.messaging import Ack, Context, Event, Outcome, Reject, Retry, handler
from sluice.messaging.envelope import TOMBSTONE
from sluice.messaging.handlers import ANY, Handlers, require_handlers


@handler("order.placed", "order.paid")
def bill(_: Session, __: Event, ___: Context) -> Outcome:
    """Handle orders that are placed or paid."""
    return Ack()


@handler(ANY)
def log(_: Session, __: Event, ___: Context) -> Outcome:
    """Handle every type that has no other handler."""
    return Ack()


def a_module(**names: object) -> ModuleType:
    """Return a module with these names."""
    made = ModuleType("billing")
    vars(made).update(names)
    return made


def test_a_handler_is_found_by_its_types() -> None:
    """`log` is for any other type. Names that are no handlers are ignored."""
    handlers = Handlers.of(a_module(bill=bill, log=log, other=len, number=7))

    assert [handlers.find(type_) for type_ in ("order.placed", "order.paid", "order.shipped")] == [bill, bill, log]


def test_a_type_without_a_handler_is_not_found() -> None:
    assert Handlers.of(a_module(bill=bill)).find("order.shipped") is None


@pytest.mark.parametrize("type_", [TOMBSTONE, events.END_TYPE])
def test_messages_of_sluice_itself_reach_no_handler(type_: str) -> None:
    """Not even the one for all types: a tombstone and an end marker are acknowledged by Sluice."""
    find = Handlers.of(a_module(log=log)).find(type_)

    assert find is not None
    assert find is not log


def test_types_that_other_consumers_declare_are_passed_over() -> None:
    """Such a type is acknowledged without an effect.

    A type that nobody declares is rejected, and a handler for all gets both.
    """
    billing, shipping = Consumer(name="billing"), Consumer(name="shipping", types=("order.sent", "order.paid"))
    environment = Environment(name="dev", account="000000000000", consumers=(billing, shipping))

    handlers = Handlers.of(a_module(bill=bill)).of_consumer(billing, environment)

    passed = [type_ for type_ in ("order.placed", "order.paid", "order.sent", "x") if handlers.passes_over(type_)]
    assert passed == ["order.sent"]
    assert handlers.find("x") is None
    assert handlers.find("order.paid") is bill
    assert handlers.find("order.sent") not in (None, bill)
    everything = Handlers.of(a_module(bill=bill, log=log)).of_consumer(billing, environment)
    assert everything.find("order.sent") is log


def test_events_of_undeclared_types_are_passed_over() -> None:
    """The consumer declares three types and handles two: the third is rejected, and the description says so."""
    consumer = Consumer(name="billing", types=("order.placed", "order.paid", "order.gone"))

    handlers = Handlers.of(a_module(bill=bill)).of_consumer(consumer)

    assert [handlers.passes_over(type_) for type_ in ("order.paid", "order.gone", "x")] == [False, False, True]
    assert handlers.find("order.gone") is None
    assert handlers.find("order.paid") == bill
    assert handlers.describe() == "order.gone go to its DLQ: Consumer.types has them, and no handler"


def test_a_handler_of_a_type_that_is_not_the_consumers_is_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        Handlers.of(a_module(bill=bill)).of_consumer(Consumer(name="billing", types=("order.placed",)))

    assert str(refused.value) == (
        "there is a handler for 'order.paid', which is not among the types of its consumer: nothing would call it;"
        " add it to Consumer.types, or remove the handler"
    )


def test_synthesis_says_which_types_go_to_which_dlq(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two consumers of a topic each have a handler for their own type. Declared types end the warning."""
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("first", "second"):
        source = f"from sluice.messaging import handler\n@handler('{name}.done')\ndef f(session, event, context): ...\n"
        (tmp_path / f"sluice_types_{name}.py").write_text(source, encoding="utf-8")
    consumers = [Consumer(name=name, handlers=f"sluice_types_{name}") for name in ("first", "second")]
    of = partial(Environment, name="dev", account="000000000000", database=NewDatabase())

    require_handlers(of(consumers=tuple(consumers)), source="environments.py")
    before = capsys.readouterr().err.splitlines()
    named = tuple(replace(consumer, types=(f"{consumer.name}.done",)) for consumer in consumers)
    require_handlers(of(consumers=named), source="environments.py")

    assert before[0] == (
        "Consumer('first') in environments.py: second.done, every other type but first.done goes to its DLQ: it has"
        " neither a handler for them nor one for '*'; to pass over what is for others, name its types or theirs in"
        " Consumer.types"
    )
    assert len(before) == 2
    assert capsys.readouterr().err == ""


def test_one_function_under_two_names_is_one_handler() -> None:
    assert Handlers.of(a_module(bill=bill, invoice=bill)).find("order.paid") is bill


@handler("order.paid")
def bill_again(_: Session, __: Event, ___: Context) -> Outcome:
    """Handle a type that `bill` handles, too."""
    return Ack()


@pytest.mark.parametrize(
    ("names", "refusal"),
    [
        ({"bill": bill, "also": bill_again}, "has two handlers for 'order.paid', allowed is one; merge them"),
        ({"other": len}, "has no handlers, allowed is one or more functions under @handler(type)"),
    ],
    ids=["two for one type", "none"],
)
def test_a_module_with_another_number_of_handlers_is_refused(names: dict[str, object], refusal: str) -> None:
    """With two for one type, chance would decide; without any, every message would go to the DLQ."""
    with pytest.raises(ConfigError) as refused:
        Handlers.of(a_module(**names))

    assert str(refused.value) == f"module billing {refusal}"


def without_context(_: Session, __: Event) -> Outcome:
    return Ack()


def with_more(_: Session, __: Event, ___: Context, more: int) -> Outcome:
    return Ack()


@pytest.mark.parametrize("function", [without_context, with_more])
def test_a_handler_that_cannot_be_called_is_refused(function: Any) -> None:
    """Otherwise it would fail at every attempt, and every message would go to the DLQ."""
    module = a_module(bill=handler("order.placed")(function))

    with pytest.raises(ConfigError, match=r"^the handler of 'order.placed' in module billing takes \(") as refused:
        Handlers.of(module)

    assert str(refused.value).endswith("allowed is what (session, event, context) can be given to")


async def by_class(_: AsyncSession, __: Event, ___: Context) -> None: ...


async def by_name(_: "AsyncSession", __: Event, ___: Context) -> None: ...


async def by_unknown_name(_: "orm.AsyncSession", __: "Imported", ___: Context) -> None: ...  # type: ignore[name-defined]  # noqa: F821


class Instance:
    async def __call__(self, _: AsyncSession, __: Event, ___: Context) -> None: ...


@wraps(by_class)
def with_a_decorator(*given: Any) -> Any:
    return by_class(*given)


async def on_its_lane(_: Session, __: Event, ___: Context) -> None: ...


async def without_annotations(_, __, ___):  # type: ignore[no-untyped-def]
    """Has the session of every other handler."""


@pytest.mark.parametrize(
    ("function", "is_expected"),
    [
        *[(function, True) for function in (by_class, by_name, by_unknown_name, Instance(), with_a_decorator)],
        *[(function, False) for function in (bill, on_its_lane, without_annotations, len)],
    ],
)
def test_a_handler_has_an_async_session_by_its_annotation(function: Any, *, is_expected: bool) -> None:
    """Also if the annotation is text, or the handler an object or decorated."""
    handlers = Handlers({"order.placed": function, ANY: bill}, types=["order.placed", "sent"])

    assert handlers.takes_async_session("order.placed") is is_expected
    assert not any(map(handlers.takes_async_session, ("sent", "of others", TOMBSTONE)))


class OwnSession(AsyncSession):
    pass


def cannot_await(_: AsyncSession, __: Event, ___: Context) -> None: ...


async def of_a_class_of_its_own(_: OwnSession, __: Event, ___: Context) -> None: ...


@pytest.mark.parametrize(
    ("function", "refusal"),
    [
        (cannot_await, "and is no `async def`, allowed is one: nothing else can await what it executes"),
        (of_a_class_of_its_own, "allowed is sqlalchemy.ext.asyncio.AsyncSession"),
    ],
)
def test_a_handler_that_could_not_use_its_async_session_is_refused(function: Any, refusal: str) -> None:
    with pytest.raises(ConfigError, match=f"^handler {function.__name__} takes an AsyncSession .*{refusal}$"):
        Handlers.of_function(function)


def test_an_async_session_without_greenlet_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)

    with pytest.raises(ConfigError, match=r"greenlet is missing; pip install 'sqlalchemy\[asyncio\]'$"):
        Handlers.of_function(by_class)


def takes_anything(*given: object) -> Outcome:
    return Ack()


def with_a_default(_: Session, __: Event, ___: Context, retries: int = 3) -> Outcome:
    return Ack()


@pytest.mark.parametrize("function", [takes_anything, with_a_default])
def test_a_handler_may_take_more_than_it_is_given(function: Any) -> None:
    assert Handlers.of(a_module(bill=handler("order.placed")(function))).find("order.placed") is function


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a folder from which modules can be imported; they are forgotten at the end."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_handler_of_a_type_of_sluices_own_is_refused() -> None:
    """The worker never calls a handler for such an event."""
    with pytest.raises(ConfigError) as refused:
        handler("order.paid", TOMBSTONE)

    assert str(refused.value) == (
        "handler is given 'sluice.tombstone', allowed are types that do not begin with 'sluice.': Sluice's own events"
        " are counted, and no handler gets them"
    )


@pytest.mark.parametrize("type_", ["order.*", "**", "order placed", "bestellung.für", "a" * 257])
def test_a_handler_of_a_type_that_no_event_has_is_refused(type_: str) -> None:
    """There are no wildcards but `*` itself."""
    with pytest.raises(ConfigError, match="no event has that type, and nothing would call it") as marked:
        handler(type_)
    with pytest.raises(ConfigError) as given:
        Handlers({type_: bill})

    assert str(given.value) == str(marked.value)


@pytest.mark.parametrize("types", [(), ("",), ("order.placed", 7), (bill,)])
def test_a_handler_without_a_type_is_refused_by_the_decorator(types: tuple[Any, ...]) -> None:
    """Otherwise the module would have a function that nothing calls."""
    with pytest.raises(ConfigError, match=r'^handler is given .*, allowed are types of events: @handler\("order'):
        handler(*types)


def test_a_module_is_loaded_by_its_name(folder: Path) -> None:
    (folder / "sluice_test_good.py").write_text(
        "from sluice.messaging import handler\n@handler('a')\ndef f(session, event, context): ...\n", encoding="utf-8"
    )

    found = Handlers.load("sluice_test_good").find("a")

    assert found is not None
    assert found.__module__ == "sluice_test_good"


@pytest.mark.parametrize("name", ["sluice_test_none", "sluice_test_none.handlers", "messaging.sluice_test_none"])
def test_a_missing_module_is_refused(name: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Handlers.load(name)

    assert str(refused.value) == (
        f"handlers are {name!r}, and there is no such module; put it on the Python path, or correct Consumer.handlers"
        " in the declaration"
    )


@pytest.mark.parametrize("name", ["", ".handlers", "a..b"])
def test_an_invalid_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="handlers are"):
        Handlers.load(name)


@pytest.mark.parametrize(
    ("source", "raised"),
    [
        ("import sluice_test_needed", "ModuleNotFoundError: No module named 'sluice_test_needed'"),
        ("from sluice.messaging import nothing", "ImportError: cannot import name 'nothing' from 'sluice.messaging'"),
        ("def f(:", "SyntaxError: invalid syntax (sluice_test_broken.py, line 1)"),
        ("import sys; sys.exit(0)", "SystemExit: 0"),
        ("import os; os.environ['SLUICE_TEST_UNSET']", "KeyError: 'SLUICE_TEST_UNSET'"),
        ("raise RuntimeError('\\x1b[2J\\n' + 10_000_000 * 'x')", "RuntimeError: \\x1b[2J\\nxxx"),
    ],
)
def test_a_module_that_cannot_be_imported_is_refused(folder: Path, source: str, raised: str) -> None:
    """In one printable line of limited length, with the exception."""
    (folder / "sluice_test_broken.py").write_text(f"{source}\n", encoding="utf-8")

    with pytest.raises(ConfigError) as refused:
        Handlers.load("sluice_test_broken")

    text = str(refused.value)
    assert text.startswith(f"handlers are 'sluice_test_broken', and importing that module raised {raised}")
    assert text.endswith("; fix the module, or correct Consumer.handlers in the declaration")
    assert text.isprintable()
    assert len(text) < 800


@pytest.mark.parametrize("seconds", [0, 0.5, 43_200, None])
def test_a_retry_takes_a_delay_the_queue_knows(seconds: float | None) -> None:
    """L4: twelve hours is the longest."""
    assert Retry(delay_seconds=seconds).delay_seconds == seconds


@pytest.mark.parametrize("seconds", [-0.5, 43_201, float("inf"), float("nan"), "5"])
def test_l4_a_retry_with_an_impossible_delay_is_refused(seconds: Any) -> None:
    """Otherwise SQS would refuse it later, when nobody could correct it."""
    with pytest.raises(ConfigError) as refused:
        Retry(delay_seconds=seconds)

    assert str(refused.value) == (f"Retry.delay_seconds is {seconds!r}, allowed is 0 to 43200, or None for the backoff")


def test_a_reject_has_a_reason() -> None:
    """The reason is recorded with the dead message."""
    with pytest.raises(TypeError):
        Reject()  # type: ignore[call-arg]


def test_a_context_that_a_test_makes_needs_no_event_that_nobody_reads() -> None:
    """Older tests make contexts without an event; reading the missing event raises an error."""
    made = Context(
        consumer="billing",
        seq=1,
        epoch=1,
        attempt=1,
        is_last_attempt=False,
        is_late=False,
        attributes={},
        hold=cast("Any", None),
    )

    assert bill(Session(), Event(type="order.placed", group="order-7", data=None), replace(made, seq=2)) == Ack()
    with pytest.raises(AttributeError, match=r"^context\.event\.group is read of a Context without its event; make"):
        print(made.event.group)
