"""Handlers on Django's ORM: one transaction with the inbox, and the guards of every other handler."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
import pytest
from django.db import DatabaseError, IntegrityError, close_old_connections, connections, transaction
from django.utils import timezone
from sqlalchemy import text

from sluice.clock import eventually
from sluice.django import AtomicOutbox, orm_handler
from sluice.django.databases import worker_engine
from sluice.django.models import InboxException, InboxGroup, InboxPause
from sluice.errors import ConfigError
from sluice.messaging import Ack, Context, Event, Outcome, Reject, Retry
from sluice.messaging.handlers import Handlers
from sluice.messaging.inbox.pause import PauseOperator
from sluice.testing import SimulatedAws, WorkerHarness
from tests.support.cases import one_case_in
from tests.support.shop.models import Invoice

type HandlerPart = Callable[[str], object]


def invoices(alias: str) -> list[str]:
    return list(Invoice.objects.using(alias).order_by("id").values_list("order", flat=True))


@contextmanager
def harness(alias: str, handle: Any, **options: Any) -> Iterator[WorkerHarness]:
    """Yield a worker on the project's database."""
    engine = worker_engine(alias)
    made = WorkerHarness(Handlers.of_function(handle), aws=SimulatedAws(), database=engine, **options)
    try:
        yield made
    finally:
        made.close()
        engine.dispose()


def test_an_effect_of_the_orm_happens_once_however_often_messages_come(alias: str) -> None:
    seen = list[tuple[bool, bool]]()

    @orm_handler("order.placed", using=alias)
    def invoice(event: Event, context: Context) -> None:
        """Write an invoice."""
        Invoice.objects.using(alias).create(order=event.group)
        found = connections[alias]
        seen.append((found.in_atomic_block, found.get_autocommit()))

    with harness(alias, invoice) as worker:
        worker.publish("order.placed", "order-7")
        worker.crash_before_commit()
        assert invoices(alias) == []
        worker.run()
        worker.redeliver()

    assert invoices(alias) == ["order-7"]
    assert seen == [(True, False)] * 2
    assert InboxGroup.objects.using(alias).get().last_seq == 1


def test_a_paused_consumer_calls_no_handler_until_it_is_resumed(alias: str) -> None:
    operator = PauseOperator(consumer="consumer", actor="ann", reason="the bank is closed")

    @orm_handler("order.placed", using=alias)
    def invoice(event: Event, context: Context) -> None:
        Invoice.objects.using(alias).create(order=event.group)

    with harness(alias, invoice) as worker:
        with worker.engine.begin() as connection:
            operator.pause(connection)
        worker.publish("order.placed", "order-7")
        worker.run(for_seconds=20)
        paused = invoices(alias)
        with worker.engine.begin() as connection:
            operator.resume(connection)
        worker.aws.advance(10)
        worker.run()

    assert paused == []
    assert invoices(alias) == ["order-7"]
    assert InboxPause.objects.using(alias).count() == 0


def test_a_handler_that_fails_leaves_nothing(alias: str) -> None:
    outcomes: list[Outcome | Exception] = [ValueError("no"), Retry(delay_seconds=1), Reject("never")]

    @orm_handler("order.placed", using=alias)
    def invoice(event: Event, context: Context) -> Outcome:
        Invoice.objects.using(alias).create(order=event.group)
        ended = outcomes.pop(0)
        if isinstance(ended, Exception):
            raise ended
        return ended

    with harness(alias, invoice) as worker:
        worker.publish("order.placed", "order-7")
        worker.run()
        reasons = [dead_letter.reason for dead_letter in worker.dead_letters]

    assert invoices(alias) == []
    assert reasons == ["never"]


def test_a_handlers_rolled_back_savepoint_takes_nothing_else_along(alias: str) -> None:
    @orm_handler("order.placed", using=alias)
    def invoice(event: Event, context: Context) -> None:
        with suppress(IntegrityError), transaction.atomic(using=alias):
            Invoice.objects.using(alias).create(id=1, order="first")
            Invoice.objects.using(alias).create(id=1, order="second")
        Invoice.objects.using(alias).create(order="after")

    with harness(alias, invoice) as worker:
        worker.publish("order.placed", "order-7")
        worker.run()

    assert invoices(alias) == ["after"]


def test_an_event_of_a_handler_is_published_with_its_effect(alias: str) -> None:
    handled = list[str]()

    @orm_handler("*", using=alias)
    def follow(event: Event, context: Context) -> None:
        handled.append(event.type)
        if event.type == "order.placed":
            AtomicOutbox(worker.outbox.topic, using=alias).add(Event(type="invoice.sent", group=event.group, data={}))

    with harness(alias, follow) as worker:
        worker.publish("order.placed", "order-7")
        worker.crash_before_commit()
        worker.run()

    assert handled == ["order.placed", "order.placed", "invoice.sent"]


def test_on_commit_is_called_after_the_worker_has_committed_and_never_without(alias: str) -> None:
    calls = list[tuple[int, list[str]]]()

    @orm_handler("order.placed", using=alias)
    def invoice(event: Event, context: Context) -> None:
        attempt = context.attempt
        Invoice.objects.using(alias).create(order=event.group)
        transaction.on_commit(lambda: calls.append((attempt, invoices(alias))), using=alias)
        transaction.on_commit(lambda: 1 // 0, using=alias)
        if attempt == 1:
            raise ValueError

    with harness(alias, invoice) as worker:
        worker.publish("order.placed", "order-7")
        worker.run()
        assert worker.dead_letters == []

    assert calls == [(2, ["order-7"])]


def _driver(alias: str) -> Any:
    return connections[alias].connection


def _execute(statement: str) -> HandlerPart:
    def execute(alias: str) -> None:
        with connections[alias].cursor() as cursor:
            cursor.execute(statement)

    return execute


def _break(alias: str) -> None:
    with suppress(DatabaseError):
        _execute("SELECT 1 / 0 FROM nowhere")(alias)


def _hide(alias: str) -> None:
    """Take the worker's connection out of Django's hands."""
    connections[alias] = connections.create_connection(alias)


def _commit_what_it_has_hidden(alias: str) -> None:
    driver = _driver(alias)
    _hide(alias)
    with suppress(psycopg.Error, sqlite3.Error):
        driver.commit()


def _read_by_another(alias: str) -> None:
    _hide(alias)
    invoices(alias)


def _hide_within_a_block(alias: str) -> None:
    with transaction.atomic(using=alias):
        _hide(alias)


def _replace_the_drivers(alias: str) -> None:
    another = connections.create_connection(alias)
    another.connect()
    connections[alias].connection = another.connection


def _connect_anew_and_hide(alias: str) -> None:
    connections[alias].connect()
    _hide(alias)


MISDEEDS: dict[str, HandlerPart] = {
    "does nothing wrong": lambda _: None,
    "commits by Django": lambda alias: transaction.commit(using=alias),
    "rolls back by Django": lambda alias: transaction.rollback(using=alias),
    "switches autocommit on": lambda alias: transaction.set_autocommit(True, using=alias),
    "begins a durable block": lambda alias: transaction.atomic(using=alias, durable=True).__enter__(),
    "commits by SQL": _execute("COMMIT"),
    "commits by SQL after a comment": _execute("/* then */ COMMIT"),
    "rolls back by SQL": _execute("ROLLBACK"),
    "commits by the driver": lambda alias: _driver(alias).commit(),
    "rolls back by the driver": lambda alias: _driver(alias).rollback(),
    "swallows an error": _break,
    "has it rolled back": lambda alias: transaction.set_rollback(True, using=alias),
    "leaves a block open": lambda alias: transaction.atomic(using=alias).__enter__(),
    "closes its connection": lambda alias: connections[alias].close(),
    "closes the driver's": lambda alias: _driver(alias).close(),
    "closes all connections": lambda _: connections.close_all(),
    "closes old connections": lambda _: close_old_connections(),
    "commits what it has hidden": _commit_what_it_has_hidden,
    "hides its connection": _hide,
    "reads by another connection": _read_by_another,
    "hides its connection within a block": _hide_within_a_block,
    "forgets its connection": connections.__delitem__,
    "puts nothing in its place": lambda alias: connections.__setitem__(alias, None),
    "replaces the driver's": _replace_the_drivers,
    "connects anew": lambda alias: connections[alias].connect(),
    "connects anew and hides that": _connect_anew_and_hide,
}
_HARMLESS = ("does nothing wrong", "closes old connections")
_ENDINGS: dict[str, Callable[[], object]] = {
    "nothing": lambda: None,
    "Ack": Ack,
    "Reject": lambda: Reject("no"),
    "ValueError": lambda: 1 / 0,
}


@pytest.mark.parametrize(("misdeed", "ending"), one_case_in(20, MISDEEDS, _ENDINGS))
def test_a_message_whose_handler_misbehaves_is_done_once_or_dead(alias: str, misdeed: str, ending: str) -> None:
    _misbehave(alias, misdeed, ending)


@pytest.mark.slow
@pytest.mark.parametrize("ending", _ENDINGS)
@pytest.mark.parametrize("misdeed", MISDEEDS)
def test_every_message_of_a_misbehaving_django_handler_is_done_once_or_dead(
    alias: str, misdeed: str, ending: str
) -> None:
    _misbehave(alias, misdeed, ending)


def _misbehave(alias: str, misdeed: str, ending: str) -> None:
    """Let the first message's handler misbehave at every attempt, after its effect; the second's does not."""

    @orm_handler("order.placed", using=alias)
    def invoice(event: Event, context: Context) -> Any:
        Invoice.objects.using(alias).create(order=f"{event.group} {context.seq}")
        if context.seq == 1:
            MISDEEDS[misdeed](alias)
            return _ENDINGS[ending]()
        return None

    with harness(alias, invoice) as worker:
        worker.publish("order.placed", "order-7")
        worker.publish("order.placed", "order-7")
        worker.run()
        dead = len(worker.dead_letters)

    effects = invoices(alias)
    assert effects.count("order-7 1") + dead == 1, effects
    assert effects.count("order-7 2") == 1, effects
    is_harmless = misdeed in _HARMLESS or (misdeed == "swallows an error" and connections[alias].vendor == "sqlite")
    assert dead == (ending in ("Reject", "ValueError") or not is_harmless)  # an error ends no transaction of SQLite
    assert InboxException.objects.using(alias).filter(state="dead").exclude(reason="").count() == dead


def test_a_handler_that_writes_by_another_connection_is_called_once(postgres: str) -> None:
    """The handler has committed on that connection; the worker's connection is closed."""
    servers, own = list[int](), connections[postgres]

    @orm_handler("order.placed", using=postgres)
    def invoice(event: Event, context: Context) -> None:
        servers.append(_driver(postgres).info.backend_pid)
        if event.group == "a":
            _hide(postgres)
        Invoice.objects.using(postgres).create(order=event.group)
        if event.group == "a":
            raise ValueError

    with harness(postgres, invoice) as worker:
        for group in ("a", "b"):
            worker.publish("order.placed", group)
            worker.run()
        (dead_letter,) = worker.dead_letters

    assert "put another connection in the place of Django's" in dead_letter.reason
    assert invoices(postgres) == ["a", "b"]
    assert len(servers) == 2
    assert len(set(servers)) == 2
    assert connections[postgres] is own


_kept = list[Any]()
LEFTOVERS: dict[str, HandlerPart] = {
    "a setting": _execute("SET work_mem = '1MB'"),
    "a time zone": _execute("SET TIME ZONE 'Asia/Tokyo'"),
    "a temporary table": _execute("CREATE TEMPORARY TABLE shop_invoice (id integer)"),
    "a wrapper": lambda alias: connections[alias].execute_wrappers.append(lambda *_: 1 / 0),
    "a cursor": lambda alias: _kept.append(connections[alias].cursor()),
    "a query log": lambda alias: setattr(connections[alias], "force_debug_cursor", True),
}
_ON_SQLITE = {name: act for name, act in LEFTOVERS.items() if name not in ("a setting", "a time zone")}


@pytest.mark.parametrize("leftover", LEFTOVERS)
def test_nothing_that_a_handler_leaves_reaches_the_next_on_postgres(postgres: str, leftover: str) -> None:
    _leave(postgres, leftover)


@pytest.mark.parametrize("leftover", _ON_SQLITE)
def test_nothing_that_a_handler_leaves_reaches_the_next_on_sqlite(sqlite: str, leftover: str) -> None:
    _leave(sqlite, leftover)


def _leave(alias: str, leftover: str) -> None:
    found_settings, own = set[Any](), connections[alias]

    @orm_handler("order.placed", using=alias)
    def invoice(event: Event, context: Context) -> None:
        found = connections[alias]
        if found.vendor == "postgresql":
            with found.cursor() as cursor:
                cursor.execute("SELECT current_setting('TimeZone'), current_setting('work_mem')")
                found_settings.add(cursor.fetchone())
        assert not found.force_debug_cursor
        Invoice.objects.using(alias).create(order=event.group)
        if event.group == "a":
            LEFTOVERS[leftover](alias)

    with harness(alias, invoice) as worker:
        for group in ("a", "b"):
            worker.publish("order.placed", group)
            worker.run()
    _kept.clear()

    assert invoices(alias) == ["a", "b"]
    assert found_settings in (set(), {("UTC", "4MB")})
    assert connections[alias] is own


def test_a_thread_that_a_handler_left_behind_writes_nothing_of_another_message(alias: str) -> None:
    may_write, ended, errors = threading.Event(), list[threading.Thread](), list[Exception]()

    @orm_handler("order.placed", using=alias)
    def invoice(event: Event, context: Context) -> None:
        if event.group == "b":
            may_write.set()
            eventually(lambda: not ended[0].is_alive(), timeout_seconds=30, describe="the thread has ended")
        Invoice.objects.using(alias).create(order=event.group)
        if event.group == "a":
            found = connections[alias]
            found.inc_thread_sharing()
            ended.append(threading.Thread(target=write_later, args=(found,)))
            ended[0].start()

    def write_later(found: Any) -> None:
        may_write.wait()
        try:
            with found.cursor() as cursor:
                cursor.execute("DELETE FROM shop_invoice")
        except Exception as error:
            errors.append(error)

    with harness(alias, invoice) as worker:
        for group in ("a", "b"):
            worker.publish("order.placed", group)
            worker.run()

    assert invoices(alias) == ["a", "b"]
    assert len(errors) == 1


def test_a_handlers_other_database_commits_by_its_own_transactions(sqlite: str, postgres: str) -> None:
    """A transaction that the handler leaves open there is rolled back."""

    @orm_handler("order.placed", using=postgres)
    def invoice(event: Event, context: Context) -> None:
        Invoice.objects.using(postgres).create(order=event.group)
        with transaction.atomic(using=sqlite):
            Invoice.objects.using(sqlite).create(order="committed")
        transaction.set_autocommit(False, using=sqlite)
        Invoice.objects.using(sqlite).create(order="left open")

    with harness(postgres, invoice) as worker:
        worker.publish("order.placed", "order-7")
        worker.run()

    assert invoices(postgres) == ["order-7"]
    assert invoices(sqlite) == ["committed"]


def test_a_worker_on_another_database_than_the_handlers_is_refused(sqlite: str, postgres: str) -> None:
    @orm_handler("order.placed", using=postgres)
    def invoice(event: Event, context: Context) -> None:
        Invoice.objects.using(postgres).create(order=event.group)

    with harness(sqlite, invoice) as worker:
        worker.publish("order.placed", "order-7")
        worker.run()
        assert "start it by `manage.py sluice_worker --database postgresql`" in worker.dead_letters[0].reason


async def _asynchronous(event: Event, context: Context) -> None:
    """Do nothing."""


@pytest.mark.parametrize(
    ("function", "message"),
    [(_asynchronous, "is `async def`, allowed is a function"), (lambda _: None, "takes .*, allowed is what")],
)
def test_a_function_that_is_no_handler_is_refused(function: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        orm_handler("order.placed")(function)


def test_a_handler_has_djangos_functions_types_and_role(alias: str) -> None:
    @orm_handler("order.placed", using=alias)
    def invoice(event: Event, context: Context) -> None:
        made = Invoice.objects.using(alias).create(order=event.group, cents=5)
        found = Invoice.objects.using(alias).filter(
            cents__regex="^5$", made_at__date=timezone.localdate(made.made_at), order__iexact="ORDER-7"
        )
        assert found.get().made_at.tzinfo is not None
        assert next(iter(Invoice.objects.using(alias).iterator(chunk_size=1))).order == "order-7"

    with harness(alias, invoice) as worker:
        worker.publish("order.placed", "order-7")
        worker.run()
        assert [dead_letter.reason for dead_letter in worker.dead_letters] == []


def test_a_workers_connection_has_the_options_of_django(postgres: str) -> None:
    options = connections[postgres].settings_dict["OPTIONS"]
    with connections[postgres].cursor() as cursor:
        cursor.execute("DROP ROLE IF EXISTS shop_role; CREATE ROLE shop_role; GRANT shop_role TO CURRENT_USER")
    connections.settings[postgres]["OPTIONS"] = options | {"assume_role": "shop_role", "isolation_level": 3}
    engine = worker_engine(postgres)
    try:
        with engine.connect() as connection:
            shown = connection.execute(text("SELECT current_user, current_setting('transaction_isolation')")).one()
    finally:
        engine.dispose()

    assert tuple(shown) == ("shop_role", "repeatable read")
