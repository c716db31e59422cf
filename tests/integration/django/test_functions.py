"""Handlers of Django's ORM in a Lambda function: the same transaction, order and attempts as with a worker."""

from sluice.declaration import Consumer, Lambda
from sluice.django import orm_handler
from sluice.django.databases import worker_engine
from sluice.messaging import Context, Event, Outcome, Reject, Retry
from sluice.messaging.handlers import Handlers
from sluice.testing import LambdaHarness, SimulatedAws
from tests.support.shop.models import Invoice

_BILLING = Consumer(
    name="billing",
    handlers="shop.handlers",
    max_attempts=3,
    processing_seconds=0.1,
    runtime=Lambda(batch_size=10, timeout_seconds=5),
)


def test_effects_of_the_orm_are_once_and_in_order_in_a_function(alias: str) -> None:
    """A retry, a refusal, a crash before the commit and a batch that comes again, in batches of two groups."""
    outcomes: dict[str, list[Outcome]] = {"a1": [Retry(delay_seconds=1)], "b1": [Reject("not ours")]}

    @orm_handler("order.placed", using=alias)
    def invoice(event: Event, _: Context) -> Outcome | None:
        """Write an invoice, and end as the test says."""
        Invoice.objects.using(alias).create(order=event.data)
        left = outcomes.get(event.data, [])
        return left.pop(0) if left else None

    engine = worker_engine(alias)
    harness = LambdaHarness(Handlers.of_function(invoice), consumer=_BILLING, aws=SimulatedAws(), database=engine)
    for name in ("a1", "b1", "a2", "b2"):
        harness.publish("order.placed", name[0], name)
    harness.crash_before_commit()
    harness.run()
    repeated = harness.redeliver()

    written = list(Invoice.objects.using(alias).order_by("id").values_list("order", flat=True))
    dead = [dead_letter.event and dead_letter.event.data for dead_letter in harness.dead_letters]
    harness.close()
    engine.dispose()
    assert [order for order in written if order.startswith("a")] == ["a1", "a2"]
    assert [order for order in written if order.startswith("b")] == ["b2"]
    assert dead == ["b1"]
    assert repeated == []
