"""Handlers on Django's ORM whose events come in a bundle: a commit each, or one for all of them."""

from contextlib import suppress
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from sluice.declaration import Commit, Consumer
from sluice.django import orm_handler
from sluice.messaging import Context, Event
from sluice.testing import WorkerHarness
from tests.integration.django.test_handlers import MISDEEDS, harness, invoices
from tests.support.cases import one_case_in
from tests.support.shop.models import Invoice

NUMBERS = ["1", "2", "3", "4", "5"]


def a_worker(alias: str, handle: Any, commit: Commit) -> Any:
    """Return a worker that gets the first event of a group alone, and four in a bundle."""
    return harness(alias, handle, consumer=Consumer(name="consumer", commit=commit), bundle_events_max=5)


def publish_five(worker: WorkerHarness) -> None:
    with worker.session() as session:
        for _ in NUMBERS:
            worker.outbox.add(session, Event(type="order.placed", group="order-7", data=None))
        session.commit()
    worker.run()


@pytest.mark.parametrize("commit", Commit)
def test_on_commit_is_called_once_for_each_event_after_its_commit(alias: str, commit: Commit) -> None:
    """Each event's function sees its own row; with one commit it sees those of all events."""
    calls = list[tuple[str, list[str]]]()

    @orm_handler("order.placed", using=alias)
    def invoice(event: Event, context: Context) -> None:
        order = str(context.seq)
        Invoice.objects.using(alias).create(order=order)
        transaction.on_commit(lambda: calls.append((order, invoices(alias))), using=alias)
        with suppress(IntegrityError), transaction.atomic(using=alias):
            transaction.on_commit(lambda: calls.append(("rolled back", [])), using=alias)
            raise IntegrityError

    with a_worker(alias, invoice, commit) as worker:
        publish_five(worker)

    seen = [NUMBERS[: position + 1] if commit is Commit.EVENT else NUMBERS for position in range(5)]
    assert calls == list(zip(NUMBERS, [["1"], *seen[1:]], strict=True))


@pytest.mark.parametrize("commit", Commit)
def test_on_commit_of_a_failed_event_is_never_called(alias: str, commit: Commit) -> None:
    """Those in front of the failed event are called once, though their handlers are called twice in one commit."""
    calls, attempts = list[tuple[str, int]](), list[str]()

    @orm_handler("order.placed", using=alias)
    def invoice(event: Event, context: Context) -> None:
        order, attempt = str(context.seq), context.attempt
        attempts.append(order)
        Invoice.objects.using(alias).create(order=order)
        transaction.on_commit(lambda: calls.append((order, attempt)), using=alias)
        if (order, attempt) == ("3", 1):
            raise ValueError

    with a_worker(alias, invoice, commit) as worker:
        publish_five(worker)

    assert invoices(alias) == NUMBERS
    assert calls == [("1", 1), ("2", 1), ("3", 2), ("4", 1), ("5", 1)]
    assert attempts == ["1", "2", "3", *(["2"] if commit is Commit.BUNDLE else []), "3", "4", "5"]


@pytest.mark.parametrize("misdeed", one_case_in(12, MISDEEDS))
def test_a_misbehaving_event_in_one_commit_is_done_once_or_dead(alias: str, misdeed: str) -> None:
    """The third event's handler misbehaves after its effect; its neighbours in the bundle have theirs."""

    @orm_handler("order.placed", using=alias)
    def invoice(event: Event, context: Context) -> None:
        Invoice.objects.using(alias).create(order=str(context.seq))
        if context.seq == 3:
            MISDEEDS[misdeed](alias)

    with a_worker(alias, invoice, Commit.BUNDLE) as worker:
        publish_five(worker)
        dead = len(worker.dead_letters)

    effects = invoices(alias)
    assert [order for order in effects if order != "3"] == ["1", "2", "4", "5"]
    assert effects.count("3") + dead == 1
