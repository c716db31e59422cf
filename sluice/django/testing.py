"""Tests of a project's own handlers and producers, on the simulator and on Django's test database.

    class InvoiceTest(TestCase):
        def test_an_order_is_invoiced_once(self):
            harness = self.worker_harness("shop.handlers", topic=outbox.topic)
            self.client.post("/orders/7")
            harness.run()
            harness.redeliver()
            self.assertEqual(Invoice.objects.count(), 1)

Outbox, relay, worker and inbox are the real ones, on Django's connection. In a `TestCase` they work inside the
transaction that Django rolls back after the test; in a `TransactionTestCase` they commit transactions of their own.
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
        """Return a worker for your handlers; all workers of one test share one simulated AWS and its clock.

        In a `TestCase`, as in any of Django's, a function that a handler gives to `transaction.on_commit` is called
        only by the method captureOnCommitCallbacks.

        Args:
            handlers: the name of a module, a module, or a function under `sluice.django.orm_handler`.
            consumer: the declaration of the consumer; None is one with all defaults.
            topic: the topic of your own outbox, whose events the worker gets; None makes a topic for `publish`.
            using: alias of the database of the handlers.
        """
        self._simulated_aws = self._simulated_aws or SimulatedAws()
        harness = WorkerHarness(
            handlers, aws=self._simulated_aws, database=joined_engine(using), consumer=consumer, topic=topic
        )
        self.addCleanup(harness.close)
        return harness


class TestCase(_Harness, test.TestCase):
    """Django's `TestCase` with a worker."""


class TransactionTestCase(_Harness, test.TransactionTestCase):
    """Django's `TransactionTestCase` with a worker."""
