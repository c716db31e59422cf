"""The handlers under what a queue does to them. SQS, SNS and time are simulated: no server, no waiting."""

from sqlalchemy import select

from project_module.handlers import Base, Invoice
from project_module.producer import place


def invoices(harness):
    """Return every invoice, as order and amount."""
    with harness.session() as session:
        return [(invoice.order, invoice.cents) for invoice in session.scalars(select(Invoice).order_by(Invoice.id))]


def test_an_order_is_invoiced(worker_harness):
    """From the producer's transaction through outbox, relay, topic, queue and worker to the invoice."""
    harness = worker_harness("project_module.handlers", tables=Base.metadata)
    with harness.session() as session:
        place(session, harness.outbox, total_cents=1250)
        session.commit()

    harness.run()

    assert invoices(harness) == [("order-1", 1250)]


def test_a_redelivered_message_has_no_second_effect(worker_harness):
    """SQS may deliver a message again after it was handled; the inbox knows it."""
    harness = worker_harness("project_module.handlers", tables=Base.metadata)
    harness.publish("order.placed", "order-1", {"total_cents": 1250})
    harness.run()

    harness.redeliver()

    assert invoices(harness) == [("order-1", 1250)]


def test_a_worker_that_dies_before_its_commit_leaves_no_trace(worker_harness):
    """The message comes again when its visibility timeout ends, and has its effect then, once."""
    harness = worker_harness("project_module.handlers", tables=Base.metadata)
    harness.publish("order.placed", "order-1", {"total_cents": 1250})

    harness.crash_before_commit()
    before = invoices(harness)
    harness.run()

    assert before == []
    assert invoices(harness) == [("order-1", 1250)]


def test_a_poison_message_goes_to_the_dlq_and_its_group_goes_on(worker_harness):
    """The handler rejects the first order; the second is invoiced."""
    harness = worker_harness("project_module.handlers", tables=Base.metadata)
    harness.publish("order.placed", "order-1", {"total_cents": -1})
    harness.publish("order.placed", "order-1", {"total_cents": 1250})

    harness.run()

    (dead_letter,) = harness.dead_letters
    assert dead_letter.reason == "order order-1 costs -1 cents, allowed is 0 or more"
    assert invoices(harness) == [("order-1", 1250)]
