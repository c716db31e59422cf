"""The variants of a virtual run: the product, also with asyncio and Django, and broken ones, which must be INVALID."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import override
from unittest import mock

from botocore.exceptions import BotoCoreError, ClientError
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from sluice.declaration import Commit
from sluice.messaging import Ack, Context, Event, Outcome
from sluice.messaging.envelope import decode
from sluice.messaging.errors import HoldLostError, TransientError
from sluice.messaging.handlers import Handler
from sluice.messaging.sqs.queue import Queue
from tests.chaos.virtual.bundled_run import BundledRun
from tests.chaos.virtual.django_run import Django, DjangoMarksBefore, DjangoOutsideAtomic
from tests.chaos.virtual.function_run import BundledFunctionRun, FunctionRun
from tests.chaos.virtual.schedules import (
    Publish,
    Story,
    bundled_function_story,
    bundled_story,
    function_story,
    story,
)
from tests.chaos.virtual.virtual_run import Process, VirtualRun, event_of
from tests.support.messaging import world
from tests.support.messaging.broken_functions import MISTAKES
from tests.support.messaging.broken_workers import AcknowledgesAfterTheFirst, DiesWithItsNeighbours, MarksBefore
from tests.support.messaging.outbox.broken_stores import ForgetsBoundaries


@dataclass(frozen=True, slots=True)
class _PlainConsumer:
    """A consumer without an inbox: what it receives it handles, and deletes before or after that."""

    run: VirtualRun
    queue: Queue
    deletes_first: bool

    def step(self) -> bool:
        """Receive one message and handle it."""
        with suppress(TransientError, HoldLostError, RuntimeError):
            message = self.queue.receive(attempt_id=None, wait_seconds=0)
            if message is None:
                return False
            self.run.reach("after_receive")
            if self.deletes_first:
                self.queue.delete(message.receipt_handle)
                self.run.reach("after_delete")
            with Session(self.run.engine) as session:
                self.run.write_effect(session, decode(message.body).event)
                self.run.reach("before_commit")
                session.commit()
            self.run.reach("after_commit")
            if not self.deletes_first:
                self.queue.delete(message.receipt_handle)
            return True
        return False


class NoInbox(VirtualRun):
    """Deletes after the commit, and remembers nothing: what comes again is done again."""

    def new_worker(self) -> Process:
        """Return a plain consumer."""
        return _PlainConsumer(self, Queue(self.client("sqs"), self.url), deletes_first=False)


class DeletesFirst(VirtualRun):
    """Deletes before the commit: what dies in between is lost."""

    def new_worker(self) -> Process:
        """Return a plain consumer that deletes first."""
        return _PlainConsumer(self, Queue(self.client("sqs"), self.url), deletes_first=True)


class OutsideOutbox(VirtualRun):
    """Commits its own row, and hands the event over in a transaction of its own: what dies in between is lost."""

    def produce(self, publish: Publish) -> None:
        """Commit the row, then the event."""
        with Session(self.engine) as session:
            session.execute(
                text("INSERT INTO committed (number, group_id) VALUES (:number, :group)"),
                {"number": publish.number, "group": publish.group},
            )
            self.reach("before_commit")
            session.commit()
        self.reach("between")
        with Session(self.engine) as session, suppress(BotoCoreError, ClientError):
            self.outbox.add(session, event_of(publish))
            session.commit()
        self.reach("after_commit")


class DeletesWholeBatches(VirtualRun):
    """Takes a delete batch as a whole: an entry that failed is forgotten, and its message comes again."""

    def new_worker(self) -> Process:
        """Return a worker whose queue hides which entries failed."""
        with mock.patch.object(world, "Queue", _WholeBatches):
            return super().new_worker()


class _WholeBatches(Queue):
    """Takes an answer to a batch for the answer to each of its entries."""

    @override
    def delete_batch(self, receipt_handles: Sequence[str]) -> list[HoldLostError | TransientError | None]:
        """Delete messages, and report each as deleted."""
        super().delete_batch(receipt_handles)
        return [None] * len(receipt_handles)


class Asyncio(VirtualRun):
    """Has a handler of asyncio, which waits for something else before it uses its session."""

    def handler(self) -> Handler:
        """Return the handler."""

        async def handle(session: AsyncSession, of: Event, _context: Context) -> Outcome:
            await session.run_sync(lambda _: self.reach("in_handler"))
            await session.run_sync(self.write_effect, of)
            return Ack()

        return handle


class AsyncioMarksBefore(Asyncio):
    """The same, and marks before the handler: what fails then has no effect."""

    processor = MarksBefore


VARIANTS: dict[str, Callable[[Story, Path], VirtualRun]] = {
    "sound": VirtualRun,
    "asyncio": Asyncio,
    "django": Django,
    "lambda": FunctionRun,
    "bundles": BundledRun,
    "bundles-together": partial(BundledRun, commit=Commit.BUNDLE),
    "bundled-lambda": BundledFunctionRun,
    "no-inbox": NoInbox,
    "outside-outbox": OutsideOutbox,
    "delete-first": DeletesFirst,
    "whole-batches": DeletesWholeBatches,
    "asyncio-marks-before": AsyncioMarksBefore,
    "django-marks-before": DjangoMarksBefore,
    "django-outside-atomic": DjangoOutsideAtomic,
    "bundles-unstored": partial(BundledRun, kind_of_store=ForgetsBoundaries),
    "bundles-die-together": partial(BundledRun, processor=DiesWithItsNeighbours),
    "bundles-after-the-first": partial(BundledRun, processor=AcknowledgesAfterTheFirst),
    **{f"lambda-{mistake}": partial(FunctionRun, mistake=mistake) for mistake in MISTAKES},
    "bundled-lambda-after-the-first": partial(BundledFunctionRun, processor=AcknowledgesAfterTheFirst),
}
"""By name; only the first seven are to be valid."""


def story_of(variant: str) -> Callable[..., Story]:
    """Return what makes the stories of a variant."""
    if variant.startswith("bundled-lambda"):
        return bundled_function_story
    if variant.startswith("bundles"):
        return bundled_story
    return function_story if variant.startswith("lambda") else story
