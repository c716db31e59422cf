"""Events that a Django project adds are committed with its rows, or not at all."""

import threading
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType

import pytest
from django.core.management import call_command
from django.db import OperationalError, connections, transaction
from django.test import Client

from sluice.django import AtomicOutbox
from sluice.django.databases import joined_engine, worker_engine
from sluice.django.models import OutboxGroup, OutboxMessage
from sluice.errors import ConfigError
from sluice.messaging import Event
from sluice.messaging.database import failures
from sluice.messaging.errors import OutboxError
from tests.support import shop
from tests.support.shop.models import Invoice
from tests.support.shop.urls import TOPIC


def an_order(group: str = "order-1") -> Event:
    return Event(type="order.placed", group=group, data={"total_cents": 1_250})


def numbers(alias: str) -> list[tuple[str, int]]:
    found = OutboxMessage.objects.using(alias).order_by("group_id", "group_seq")
    return list(found.values_list("group_id", "group_seq"))


def test_an_event_is_committed_with_the_rows(alias: str) -> None:
    outbox = AtomicOutbox(TOPIC, using=alias)

    with transaction.atomic(using=alias):
        Invoice.objects.using(alias).create(order="order-1")
        outbox.add(an_order("order-2"), an_order(), an_order("order-2"))
    with suppress(ValueError), transaction.atomic(using=alias):
        outbox.add(an_order())
        raise ValueError

    assert numbers(alias) == [("order-1", 1), ("order-2", 1), ("order-2", 2)]
    assert OutboxMessage.objects.using(alias).filter(status="pending").count() == 3


def test_a_rolled_back_savepoint_takes_its_event_and_its_number(alias: str) -> None:
    outbox = AtomicOutbox(TOPIC, using=alias)

    with transaction.atomic(using=alias):
        outbox.add(an_order())
        with suppress(ValueError), transaction.atomic(using=alias):
            outbox.add(an_order(), an_order("order-2"))
            raise ValueError
        with transaction.atomic(using=alias):
            outbox.add(an_order())

    assert numbers(alias) == [("order-1", 1), ("order-1", 2)]
    assert OutboxGroup.objects.using(alias).values_list("group_id", "last_seq").get() == ("order-1", 2)


def test_an_event_outside_of_atomic_is_refused(alias: str) -> None:
    with pytest.raises(OutboxError) as refused:
        AtomicOutbox(TOPIC, using=alias).add(an_order())

    assert str(refused.value) == (
        f"an event is added outside of a transaction of database '{alias}', allowed is inside"
        f" transaction.atomic(using='{alias}'): its row would be committed without it"
    )
    assert numbers(alias) == []


def test_atomic_on_another_database_does_not_count(sqlite: str, postgres: str) -> None:
    with transaction.atomic(using=postgres), pytest.raises(OutboxError, match="database 'default', allowed is inside"):
        AtomicOutbox(TOPIC).add(an_order())

    with transaction.atomic(using=postgres):
        AtomicOutbox(TOPIC).add(an_order(), using=postgres)

    assert numbers(sqlite) == []
    assert numbers(postgres) == [("order-1", 1)]


def test_a_durable_block_and_a_transaction_by_hand_keep_their_event(alias: str) -> None:
    with transaction.atomic(using=alias, durable=True):
        AtomicOutbox(TOPIC, using=alias).add(an_order())
    transaction.set_autocommit(False, using=alias)
    AtomicOutbox(TOPIC, using=alias).add(an_order())
    transaction.rollback(using=alias)
    AtomicOutbox(TOPIC, using=alias).add(an_order())
    transaction.commit(using=alias)
    transaction.set_autocommit(True, using=alias)

    assert numbers(alias) == [("order-1", 1), ("order-1", 2)]


def test_an_atomic_request_that_fails_publishes_nothing(sqlite: str) -> None:
    shop.use(sqlite, ATOMIC_REQUESTS=True)
    client = Client(raise_request_exception=False)
    try:
        answers = [client.get(path).status_code for path in ("/orders/order-1", "/orders/order-2?fails=1")]
    finally:
        shop.use(sqlite, ATOMIC_REQUESTS=False)

    assert answers == [201, 500]
    assert numbers(sqlite) == [("order-1", 1)]


def test_a_database_that_may_lose_a_commit_is_refused(sqlite: str) -> None:
    shop.use(sqlite, OPTIONS={"init_command": "PRAGMA synchronous=NORMAL"})

    with pytest.raises(OutboxError, match="PRAGMA synchronous is 1, allowed is 2"), transaction.atomic():
        AtomicOutbox(TOPIC).add(an_order())


def test_a_commit_waits_for_the_disk_on_postgres(postgres: str) -> None:
    with transaction.atomic(using=postgres), connections[postgres].cursor() as cursor:
        cursor.execute("SET LOCAL synchronous_commit = off")
        AtomicOutbox(TOPIC, using=postgres).add(an_order())
        cursor.execute("SHOW synchronous_commit")
        assert cursor.fetchone() == ("on",)


def test_missing_tables_are_reported_in_one_line(alias: str) -> None:
    with connections[alias].cursor() as cursor:
        cursor.execute("DROP TABLE sluice_outbox_group")

    message = f"run `manage.py migrate sluice --database {alias}`$"
    with pytest.raises(OutboxError, match=message), transaction.atomic(using=alias):
        AtomicOutbox(TOPIC, using=alias).add(an_order())


def test_writers_of_one_group_wait_for_each_other(postgres: str) -> None:
    """The numbers of the group are in the order of the commits."""
    outbox, is_added, second = AtomicOutbox(TOPIC, using=postgres), threading.Event(), list[str]()

    def add_second() -> None:
        with transaction.atomic(using=postgres):
            is_added.set()
            outbox.add(an_order())
            second.append("committed")
        connections.close_all()

    thread = threading.Thread(target=add_second)
    with transaction.atomic(using=postgres):
        outbox.add(an_order())
        thread.start()
        is_added.wait()
        assert second == []
    thread.join()

    assert numbers(postgres) == [("order-1", 1), ("order-1", 2)]


def test_groups_taken_in_different_orders_end_in_a_deadlock_that_loses_nothing(postgres: str) -> None:
    outbox, errors = AtomicOutbox(TOPIC, using=postgres), list[OperationalError]()
    have_first = threading.Barrier(2, timeout=30)

    def add(first: str, second: str) -> None:
        try:
            with transaction.atomic(using=postgres):
                outbox.add(an_order(first))
                have_first.wait()
                outbox.add(an_order(second))
        except OperationalError as error:
            errors.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=add, args=groups) for groups in ("ab", "ba")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [failures.state(error) for error in errors] == ["40P01"]
    assert numbers(postgres) == [("a", 1), ("b", 1)]


_REFUSED = (
    "the driver of Django's database 'postgresql' is psycopg2, allowed is psycopg 3: psycopg2 tells neither a"
    " transaction's id nor its end to a guard; pip install 'psycopg[binary]>=3.2'"
)


@pytest.fixture
def psycopg2(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a database the driver module psycopg2, which Django's backend uses if psycopg 3 is missing."""
    monkeypatch.setattr(connections["postgresql"], "Database", ModuleType("psycopg2"))


@pytest.mark.parametrize(
    "use",
    [worker_engine, joined_engine, lambda alias: AtomicOutbox(TOPIC, using=alias).add(an_order())],
    ids=["a worker", "a test", "the outbox"],
)
def test_psycopg2_is_refused_in_a_line(psycopg2: None, use: Callable[[str], object]) -> None:
    with pytest.raises(ConfigError) as refused:
        use("postgresql")

    assert str(refused.value) == _REFUSED


@pytest.mark.parametrize("command", ["sluice_relay", "sluice_worker"])
def test_commands_refuse_psycopg2_in_a_line(psycopg2: None, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--consumer", "billing", "--handlers", "json"] * (command == "sluice_worker")

    with pytest.raises(SystemExit) as ended:
        call_command(command, *options, database="postgresql")

    assert ended.value.code == 3
    assert capsys.readouterr().err == f"sluice: {_REFUSED}\n"
