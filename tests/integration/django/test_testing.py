"""Tests of a Django project drive a worker on Django's own connection."""

import unittest
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections, transaction
from django.test import Client

from sluice.django import orm_handler
from sluice.django.models import InboxGroup, OutboxMessage
from sluice.django.testing import TestCase, TransactionTestCase
from sluice.messaging import Context, Event
from tests.support.shop.models import Invoice
from tests.support.shop.urls import TOPIC


def _tests(kind: Any, alias: str) -> Any:
    calls = list[str]()

    @orm_handler("order.placed", using=alias)
    def invoice(event: Event, context: Context) -> None:
        Invoice.objects.using(alias).create(order=f"invoice of {event.group}")
        transaction.on_commit(lambda: calls.append(event.group), using=alias)
        if event.group == "bad" or context.attempt == 1:
            raise ValueError
        if event.group == "hiding":
            connections[alias] = connections.create_connection(alias)

    class ShopTest(kind):  # type: ignore[misc]
        databases = (alias,)

        def test_an_order_is_invoiced_once(self) -> None:
            if alias == "default":
                worker = self.worker_harness(invoice, topic=TOPIC, using=alias)
                with transaction.atomic():
                    assert Client().get("/orders/order-7").status_code == 201
            else:
                worker = self.worker_harness(invoice, using=alias)
                worker.publish("order.placed", "order-7")
            worker.publish("order.placed", "bad")
            worker.publish("order.placed", "hiding")
            worker.run()
            worker.redeliver()
            found = Invoice.objects.using(alias).filter(order__startswith="invoice")
            assert list(found.values_list("order", flat=True)) == ["invoice of order-7"]
            assert len(worker.dead_letters) == 2
            assert calls == (["order-7"] if kind is TransactionTestCase else [])

    return unittest.TestLoader().loadTestsFromTestCase(ShopTest)


def test_a_test_case_hands_its_events_to_a_worker_within_its_transaction(alias: str) -> None:
    _run(alias, TestCase)

    assert not OutboxMessage.objects.using(alias).exists()
    assert not InboxGroup.objects.using(alias).exists()


@pytest.mark.slow
def test_a_transaction_test_case_hands_its_events_to_a_committing_worker(sqlite: str) -> None:
    call_command("migrate", verbosity=0)  # it flushes every table in the end

    _run(sqlite, TransactionTestCase)


@pytest.mark.slow
def test_a_misbehaving_handlers_message_is_done_once_or_dead_on_postgres(postgres: str) -> None:
    call_command("migrate", database=postgres, verbosity=0)

    _run(postgres, TransactionTestCase)


def _run(alias: str, kind: Any) -> None:
    result = unittest.TextTestRunner().run(_tests(kind, alias))

    assert result.testsRun == 1
    assert result.errors == []
    assert result.failures == []
    assert not connections[alias].in_atomic_block
