"""The consumer's Lambda function under what a queue and Lambda do to it, in virtual time: no server, no waiting."""

from sqlalchemy import select

from environments import INVOICES
from project_module.handlers import Base, Invoice


def invoices(harness):
    """Return every invoice, as order and amount."""
    with harness.session() as session:
        return [(invoice.order, invoice.cents) for invoice in session.scalars(select(Invoice).order_by(Invoice.id))]


def test_a_throttled_function_handles_the_order_later(lambda_harness):
    """Forty throttled invocations are receives of the message, and no attempt at it."""
    harness = lambda_harness("project_module.handlers", consumer=INVOICES, tables=Base.metadata)
    harness.publish("order.placed", "order-1", {"total_cents": 1250})
    harness.throttle(40)

    harness.run()

    assert invoices(harness) == [("order-1", 1250)]
    assert [attempt.number for attempt in harness.attempts] == [1]


def test_a_batch_that_comes_again_has_no_second_effect(lambda_harness):
    """Lambda may invoke a function twice with the same batch; the inbox knows its messages."""
    harness = lambda_harness("project_module.handlers", consumer=INVOICES, tables=Base.metadata)
    harness.publish("order.placed", "order-1", {"total_cents": 1250})
    harness.run()

    harness.redeliver()

    assert invoices(harness) == [("order-1", 1250)]
