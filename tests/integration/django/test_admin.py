"""The admin acts as the command line does: a dry run first, a reason, and a row of the audit."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connections, transaction
from django.test import Client

from sluice.declaration import Consumer, Gaps, Poison
from sluice.django import AtomicOutbox, models
from sluice.django.databases import joined_engine
from sluice.messaging import Event
from sluice.messaging.handlers import Handlers
from sluice.testing import SimulatedAws, WorkerHarness
from tests.support import shop
from tests.support.shop.urls import TOPIC


@pytest.fixture(scope="module")
def admin_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a database file with the tables of every app and a superuser, `ada`: to make it takes seconds."""
    file = tmp_path_factory.mktemp("admin") / "shop.db"
    shop.use("default", NAME=str(file))
    call_command("migrate", verbosity=0)
    User.objects.create_superuser("ada")
    connections.close_all()
    return file


@pytest.fixture
def client(admin_file: Path, sqlite: str, tmp_path: Path) -> Client:
    """Return ada's browser."""
    shop.use(sqlite, NAME=str(shutil.copy(admin_file, tmp_path)))
    made = Client()
    made.force_login(User.objects.get())
    return made


def _fail(*_: Any) -> None:
    raise ValueError


@pytest.fixture
def parked_group(sqlite: str) -> None:
    """Let number 1 of a group die, and number 2 be parked behind it."""
    consumer = Consumer(name="billing", poison=Poison.PARK, gaps=Gaps.HALT, max_attempts=2)
    engine, aws = joined_engine(sqlite), SimulatedAws()
    harness = WorkerHarness(Handlers({"*": _fail}), aws=aws, database=engine, consumer=consumer)
    for number in (1, 2):
        harness.publish("order.placed", "order-7", {"number": number})
    harness.run()
    harness.close()


def _act(client: Client, model: str, action: str, key: object, **more: str) -> Any:
    form = {"action": action, "_selected_action": str(key), **more}
    return client.post(f"/admin/sluice/{model}/", form, follow="confirmed" in more)


def test_giving_up_a_number_needs_a_dry_run_and_a_reason(client: Client, parked_group: None) -> None:
    page = client.get("/admin/sluice/inboxexception/").content.decode()
    dead = models.InboxException.objects.get(state="dead")

    preview = _act(client, "inboxexception", "skip", dead.pk).content.decode()
    unexplained = _act(client, "inboxexception", "skip", dead.pk, confirmed="1", reason=" ").content.decode()
    before = models.InboxException.objects.get(pk=dead.pk).state, models.InboxAct.objects.count()
    done = _act(client, "inboxexception", "skip", dead.pk, confirmed="1", reason="agreed").content.decode()

    assert "order-7" in page
    assert "would: give up number 1 of group order-7" in preview
    assert "the reason is empty" in unexplained
    assert before == ("dead", 0)
    assert "Done: give up number 1 of group order-7" in done
    assert models.InboxException.objects.get(pk=dead.pk).state == "skipped"
    written = models.InboxAct.objects.values_list("actor", "action", "consumer", "group_id", "seq", "reason")
    assert list(written) == [("ada", "skip", "billing", "order-7", 1, "agreed")]


def test_an_act_that_is_refused_says_why_and_changes_nothing(client: Client, parked_group: None) -> None:
    parked = models.InboxParked.objects.get()

    page = client.get("/admin/sluice/inboxparked/").content.decode()
    answer = _act(client, "inboxparked", "retry", parked.pk, confirmed="1", reason="agreed").content.decode()

    assert "order-7" in page
    assert "waits for its turn, allowed is held" in answer
    assert not models.InboxAct.objects.exists()


def test_a_message_of_the_outbox_is_published_again(client: Client) -> None:
    with transaction.atomic():
        AtomicOutbox(TOPIC).add(Event(type="order.placed", group="order-7", data={}))
    models.OutboxMessage.objects.update(status="sent")
    message = models.OutboxMessage.objects.get()

    _act(client, "outboxmessage", "resend", message.pk)
    before = models.OutboxMessage.objects.get().status
    _act(client, "outboxmessage", "resend", message.pk, confirmed="1", reason="billing lost it")

    assert before == "sent"
    assert models.OutboxMessage.objects.get().status == "pending"
    assert models.OutboxAct.objects.values_list("actor", "action", "reason").get() == (
        "ada",
        "resend",
        "billing lost it",
    )
    assert client.get("/admin/sluice/outboxact/").status_code == 200


def test_nobody_edits_a_row_or_acts_without_the_right(client: Client, parked_group: None) -> None:
    dead = models.InboxException.objects.get(state="dead")
    assert "_save" not in client.get(f"/admin/sluice/inboxexception/{dead.pk}/change/").content.decode()
    reader = Client()
    reader.force_login(User.objects.create_user("bob", is_staff=True))

    answer = _act(reader, "inboxexception", "skip", dead.pk, confirmed="1", reason="agreed")

    assert answer.status_code == 403
    assert models.InboxException.objects.get(pk=dead.pk).state == "dead"
