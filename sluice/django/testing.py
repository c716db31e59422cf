"""Tests of a project's own handlers and producers, on the simulator and on Django's test database.

    class InvoiceTest(TestCase):
        def test_an_order_is_invoiced_once(self):
            harness = self.worker_harness("shop.handlers", topic=outbox.topic)
            self.client.post("/orders/7")
            harness.run()
            harness.redeliver()
            self.assertEqual(Invoice.objects.count(), 1)

Outbox, relay, worker and inbox are the product's own, on Django's connection: in a `TestCase` within the transaction
that Django rolls back after the test, in a `TransactionTestCase` in transactions of their own.
"""

from typing import Any

from django import test
from django.db import DEFAULT_DB_ALIAS

from sluice.declaration import Consumer
from sluice.django.databases import joined_engine
from sluice.testing import SimulatedAws, WorkerHarness


class _Harness(test.SimpleTestCase):
    _simulated_aws: SimulatedAws | None = None

    def worker_harness(
        self,
        handlers: Any,
        *,
        consumer: Consumer | None = None,
        topic: str | None = None,
        using: str = DEFAULT_DB_ALIAS,
    ) -> WorkerHarness:
        """Return a worker for your handlers; several of one test share the simulated topic and its clock.

        A function that a handler gives to `transaction.on_commit` is called as in any test of Django: in a `TestCase`,
        only by the method of Django's that captures them.

        Args:
            handlers: the name of a module, a module, or a function under `sluice.django.orm_handler`.
            consumer: its declaration; None is one with all defaults.
            topic: of your own outbox, whose events it gets; None is one of its own, for `publish`.
            using: alias of the database of the handlers.
        """
        self._simulated_aws = self._simulated_aws or SimulatedAws()
        made = WorkerHarness(
            handlers, aws=self._simulated_aws, database=joined_engine(using), consumer=consumer, topic=topic
        )
        self.addCleanup(made.close)
        return made


class TestCase(_Harness, test.TestCase):
    """Django's `TestCase` with a worker."""


class TransactionTestCase(_Harness, test.TransactionTestCase):
    """Django's `TransactionTestCase` with a worker."""
