"""A standard queue: no order, repeats, no deduplication. The same worker reads it, and effects are still once."""

import json
import random
from typing import Any

import pytest
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from sluice.declaration import Consumer, metrics
from sluice.messaging import Ack, Context, Event, Outcome, Retry
from sluice.messaging.database import engines
from sluice.messaging.envelope import Envelope
from sluice.messaging.handlers import Handlers
from sluice.messaging.inbox.tables import exceptions
from sluice.messaging.sqs.queue import Queue
from sluice.messaging.telemetry.metrics import WorkerTally
from sluice.messaging.worker.build import build_worker
from sluice.simulator.hook import Simulator


class StandardQueueService:
    """A worker of one lane on a standard queue; `handled` has epoch, number and lateness of each handled message."""

    def __init__(self, engine: Engine, consumer: Consumer) -> None:
        simulator = Simulator()
        self.engine, self.sqs = engine, simulator.client("sqs")
        dead_letters = self.sqs.create_queue(QueueName="orders-dlq")["QueueUrl"]
        queue_attributes = self.sqs.get_queue_attributes(QueueUrl=dead_letters, AttributeNames=["QueueArn"])
        policy = {"deadLetterTargetArn": queue_attributes["Attributes"]["QueueArn"], "maxReceiveCount": "5"}
        attributes = {"RedrivePolicy": json.dumps(policy)}
        self.url = str(self.sqs.create_queue(QueueName="orders", Attributes=attributes)["QueueUrl"])
        self.failing: set[int] = set()
        self.handled: list[tuple[int, int, bool]] = []
        self.tally = WorkerTally()
        worker = build_worker(
            consumer,
            queue=Queue(self.sqs, self.url),
            database=engine,
            handlers=Handlers({"*": self._handle}),
            lanes=1,
            clock=simulator.clock,
            rng=random.Random(1),  # noqa: S311 (jitter is not a secret)
            hooks=[self.tally],
        )
        self._lane = worker.parts.lanes[0]

    def _handle(self, _: Session, __: Event, context: Context) -> Outcome:
        """Retry the numbers that are to fail once, and note every other message as handled."""
        if context.seq in self.failing and context.attempt == 1:
            return Retry(delay_seconds=5)
        self.handled.append((context.epoch, context.seq, context.is_late))
        return Ack()

    def send(self, *numbers: int, epoch: int = 1, **parameters: Any) -> None:
        """Send the group's events with these numbers, one after the other; a number is always the same event."""
        for seq in numbers:
            event = Event(type="order.placed", group="g", data={}, id=f"event-{epoch}-{seq}")
            body = Envelope(event=event, seq=seq, epoch=epoch).body
            self.sqs.send_message(QueueUrl=self.url, MessageBody=body, **parameters)

    def work(self) -> list[tuple[int, int, bool]]:
        """Work until no message arrives."""
        while self._lane.step():
            pass
        return self.handled

    def exceptions(self) -> list[tuple[int, int, int, str, bool]]:
        """Return the inbox's exceptions: epoch, first and last number, state, and whether the row is closed."""
        with engines.reading(self.engine) as connection:
            rows = connection.execute(select(exceptions).order_by(exceptions.c.epoch, exceptions.c.seq))
            return [(row.epoch, row.seq, row.through, row.state, row.closed_at_us is not None) for row in rows]


@pytest.fixture
def standard_service(on_file: Engine) -> StandardQueueService:
    """Return billing's worker on a standard queue."""
    return StandardQueueService(on_file, Consumer(name="billing"))


def test_a_failing_message_is_overtaken_and_handled_late(standard_service: StandardQueueService) -> None:
    """The handler learns that it is late, and the gap counts as filled. On a FIFO queue 3 and 4 would have waited."""
    standard_service.failing = {2}
    standard_service.send(1, 2, 3, 4)

    handled = standard_service.work()

    assert handled == [(1, 1, False), (1, 3, False), (1, 4, False), (1, 2, True)]
    assert standard_service.exceptions() == [(1, 2, 2, "filled", True)]


def test_repeats_in_any_order_are_handled_once_each(standard_service: StandardQueueService) -> None:
    """`True` means late: a higher number was handled before. Five of the ten sends are repeats."""
    standard_service.send(3, 5, 3, 1, 5, 4, 2, 1, 4, 2)

    handled = standard_service.work()

    assert handled == [(1, 3, False), (1, 5, False), (1, 1, True), (1, 4, True), (1, 2, True)]
    assert standard_service.tally.take()[metrics.DUPLICATES] == 5
    assert [(seq, through, state, is_over) for _, seq, through, state, is_over in standard_service.exceptions()] == [
        (1, 1, "filled", True),
        (2, 2, "filled", True),
        (4, 4, "filled", True),
    ]


def test_a_number_that_never_came_stays_an_open_gap(standard_service: StandardQueueService) -> None:
    """The inbox has seen numbers 4 and 1, so 2 and 3 are missing."""
    standard_service.send(4, 1)

    standard_service.work()

    assert standard_service.exceptions() == [(1, 1, 1, "filled", True), (1, 2, 3, "gap", False)]


def test_a_late_message_behind_a_filter_policy_is_no_repeat(on_file: Engine) -> None:
    """With a filter policy gaps are lawful.

    The inbox records them too, or number 2 after 5 would look like a repeat.
    """
    standard_service = StandardQueueService(on_file, Consumer(name="audit", filter_policy={"type": ["order.placed"]}))
    standard_service.send(5, 2, 5, 2)

    handled = standard_service.work()

    assert handled == [(1, 5, False), (1, 2, True)]


def test_a_new_epoch_may_begin_with_any_of_its_messages(standard_service: StandardQueueService) -> None:
    """A producer begins an epoch after its database was restored. Of epoch 2, number 4 comes first and 3 late."""
    standard_service.send(1, 2)
    standard_service.send(4, 3, 4, 5, epoch=2)

    handled = standard_service.work()

    assert handled == [(1, 1, False), (1, 2, False), (2, 4, False), (2, 3, True), (2, 5, False)]


def test_a_message_may_have_a_group_or_none(standard_service: StandardQueueService) -> None:
    """A standard queue takes a message group id too, for fairness; direct sends and standard topics need none."""
    standard_service.send(1)
    standard_service.send(2, MessageGroupId="g")

    handled = standard_service.work()

    assert handled == [(1, 1, False), (1, 2, False)]
