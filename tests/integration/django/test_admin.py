"""The admin acts as the command line does: a dry run first, a reason, and a row of the audit."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.db import connections, transaction
from django.test import Client

from sluice.declaration import Consumer, Environment, Gaps, Poison, task_settings
from sluice.django import AtomicOutbox, models, orm_handler
from sluice.django.databases import joined_engine
from sluice.messaging import Event
from sluice.messaging.sqs import queue
from sluice.messaging.sqs.dead_letter_queue import Reading, StoredDeadLetter
from sluice.testing import SimulatedAws, WorkerHarness
from tests.support import shop
from tests.support.shop.models import Invoice
from tests.support.shop.urls import TOPIC


@pytest.fixture(scope="module")
def admin_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a database file with the tables of every app and a superuser, `ada`: to make it takes seconds."""
    file = tmp_path_factory.mktemp("admin") / "shop.db"
    shop.use("default", NAME=str(file))
    call_command("migrate", run_syncdb=True, verbosity=0)
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


@orm_handler("*")
def _bill(event: Event, _: object) -> None:
    """Fail on an order without its cents, as on a mistake of the producer."""
    Invoice.objects.create(order=event.group, cents=event.data["cents"])


_BILLING = Consumer(name="billing", poison=Poison.PARK, gaps=Gaps.HALT, max_attempts=2)


@pytest.fixture
def harness(sqlite: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkerHarness]:
    """Yield billing's worker; the admin's process knows billing's declaration and reaches the same SQS."""
    aws = SimulatedAws()
    environment = Environment(name="test", consumers=(_BILLING,))
    monkeypatch.setenv("SLUICE_ENV", "test")
    monkeypatch.setenv(task_settings.VARIABLE, task_settings.render(environment))
    monkeypatch.setattr(queue, "client", lambda *_, **__: aws.client("sqs"))
    made = WorkerHarness(_bill, aws=aws, database=joined_engine(sqlite), consumer=_BILLING)
    yield made
    made.close()


@pytest.fixture
def parked_group(client: Client, harness: WorkerHarness) -> WorkerHarness:
    """Let number 1 of a group die, and number 2 be parked behind it; return the worker."""
    for data in ({"mistake": 1}, {"mistake": 2}):
        harness.publish("order.placed", "order-7", data)
    harness.run()
    return harness


def _act(client: Client, model: str, action: str, key: object, **more: str) -> Any:
    form = {"action": action, "_selected_action": str(key), **more}
    return client.post(f"/admin/sluice/{model}/", form, follow="confirmed" in more)


def test_giving_up_a_number_needs_a_dry_run_and_a_reason(client: Client, parked_group: WorkerHarness) -> None:
    page = client.get("/admin/sluice/inboxexception/").content.decode()
    dead = models.InboxException.objects.get(state="dead")

    preview = _act(client, "inboxexception", "skip", dead.pk).content.decode()
    unexplained = _act(client, "inboxexception", "skip", dead.pk, confirmed="1", reason=" ").content.decode()
    before = models.InboxException.objects.get(pk=dead.pk).state, models.InboxAct.objects.count()
    done = _act(client, "inboxexception", "skip", dead.pk, confirmed="1", reason="agreed").content.decode()

    assert "order-7" in page
    assert "would give up number 1 of group order-7 of billing" in preview
    assert "the reason is empty" in unexplained
    assert before == ("dead", 0)
    assert "Done: give up number 1 of group order-7 of billing" in done
    assert models.InboxException.objects.get(pk=dead.pk).state == "skipped"
    written = models.InboxAct.objects.values_list("actor", "action", "consumer", "group_id", "seq", "reason")
    assert list(written) == [("ada", "skip", "billing", "order-7", 1, "agreed")]


def test_an_act_that_is_refused_says_why_and_changes_nothing(client: Client, parked_group: WorkerHarness) -> None:
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


def test_a_user_without_the_permission_can_neither_edit_nor_act(client: Client, parked_group: WorkerHarness) -> None:
    dead = models.InboxException.objects.get(state="dead")
    assert "_save" not in client.get(f"/admin/sluice/inboxexception/{dead.pk}/change/").content.decode()
    reader = Client()
    reader.force_login(User.objects.create_user("bob", is_staff=True))

    answer = _act(reader, "inboxexception", "skip", dead.pk, confirmed="1", reason="agreed")

    assert answer.status_code == 403
    assert models.InboxException.objects.get(pk=dead.pk).state == "dead"


def _groups(client: Client, action: str = "", **more: str) -> str:
    """Return the page of groups, or what an action on the group order-7 of billing answers."""
    url = "/admin/sluice/inboxexception/groups/"
    form = {"action": action, "_selected_action": '["billing", "order-7"]', **more}
    answer = client.post(url, form, follow=True) if action else client.get(url, more)
    return str(answer.content.decode())


def _audit() -> list[tuple[str, str, str]]:
    return list(models.InboxAct.objects.order_by("id").values_list("actor", "action", "group_id"))


def test_the_page_of_groups_shows_what_a_parked_group_waits_for(client: Client, parked_group: WorkerHarness) -> None:
    cells = re.findall(r"<td>(?:<a [^>]*>)?([^<]*)", _groups(client).rpartition("<tbody>")[2])

    consumer, group, _epoch, first, last, parked_since, waits_for, parked, held, missing, dead = cells[1:12]
    assert consumer == "billing"
    assert group == "order-7"
    assert first == "1"
    assert last == "0"
    assert waits_for == "1"
    assert parked == "1"
    assert held == "0"
    assert missing == "0"
    assert dead == "1"
    assert parked_since != ""
    assert "order-7" not in _groups(client, consumer="shipping")
    assert "order-7" in _groups(client, q="der-7", parked="1")
    assert "/groups/" in client.get("/admin/sluice/inboxparked/").content.decode()


def test_a_groups_awaited_number_is_given_up_on_its_page(client: Client, parked_group: WorkerHarness) -> None:
    preview = _groups(client, "skip")
    before = _audit()
    done = _groups(client, "skip", confirmed="1", reason="agreed")

    assert "would give up number 1 of group order-7 of billing" in preview
    assert before == []
    assert "Done: give up number 1 of group order-7 of billing" in done
    assert _audit() == [("ada", "skip", "order-7")]


def test_dead_letters_come_back_by_the_number_or_by_the_group(client: Client, parked_group: WorkerHarness) -> None:
    """The handler still fails, so a message that was brought back dies again, and its number with it."""
    dead = models.InboxException.objects.get(state="dead")

    preview = _act(client, "inboxexception", "redrive", dead.pk).content.decode()
    by_number = _act(client, "inboxexception", "redrive", dead.pk, confirmed="1", reason="mended").content.decode()
    bodies_back = len(parked_group.aws.bodies(parked_group.queue_url))
    parked_group.run()
    by_group = _groups(client, "redrive", confirmed="1", reason="mended again")

    assert "would send up to 1 of about 1 messages of sluice-test-billing-dlq.fifo" in preview
    assert "1 brought back" in by_number
    assert bodies_back == 1
    assert "1 brought back" in by_group
    assert [(actor, action) for actor, action, _ in _audit()] == [("ada", "redrive")] * 2
    assert "mended" in models.InboxAct.objects.earliest("id").reason


def test_a_dead_letter_comes_back_with_other_data(client: Client, parked_group: WorkerHarness) -> None:
    dead = models.InboxException.objects.get(state="dead")
    sent = {"confirmed": "1", "reason": "the cents were missing"}

    preview = _act(client, "inboxexception", "replace", dead.pk).content.decode()
    refused = _act(client, "inboxexception", "replace", dead.pk, data="{", **sent).content.decode()
    done = _act(client, "inboxexception", "replace", dead.pk, data='{"cents": 5}', **sent).content.decode()
    parked_group.run()

    assert "&quot;mistake&quot;: 1" in preview
    assert "the data is not JSON" in refused
    assert '">{</textarea>' in refused
    assert "Done: replace message 1 of group order-7" in done
    assert [invoice.cents for invoice in Invoice.objects.all()] == [5]
    assert _audit() == [("ada", "replace", "order-7")]
    assert '\\"mistake\\":1' in models.InboxAct.objects.get().detail


@pytest.mark.slow
def test_a_held_message_is_tried_again_with_other_data(client: Client, parked_group: WorkerHarness) -> None:
    """Number 1 is given up; number 2 uses up its attempts, and is held."""
    _groups(client, "skip", confirmed="1", reason="agreed")
    parked_group.run()
    held = models.InboxParked.objects.get(held_at_us__isnull=False)

    preview = _act(client, "inboxparked", "replace", held.pk).content.decode()
    _act(client, "inboxparked", "replace", held.pk, confirmed="1", reason="corrected", data='{"cents": 7}')
    parked_group.run()

    assert "&quot;mistake&quot;: 2" in preview
    assert [invoice.cents for invoice in Invoice.objects.all()] == [7]
    assert _audit() == [("ada", "skip", "order-7"), ("ada", "replace", "order-7")]


@pytest.mark.slow
def test_a_dead_letter_is_deleted_and_the_audit_keeps_its_body(client: Client, parked_group: WorkerHarness) -> None:
    dead = models.InboxException.objects.get(state="dead")
    letters = parked_group.dead_letter_queue_url

    _act(client, "inboxexception", "purge_one", dead.pk)
    before = len(parked_group.aws.bodies(letters))
    _act(client, "inboxexception", "purge_one", dead.pk, confirmed="1", reason="a test")

    assert before == 1
    assert len(parked_group.aws.bodies(letters)) == 0
    assert '\\"mistake\\":1' in models.InboxAct.objects.get(action="purge-one").detail


@pytest.mark.slow
def test_an_act_on_a_dlq_is_refused_in_a_line(
    client: Client, parked_group: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing number is in no DLQ, two rows would get the data of one, and the environment is not declared."""
    dead = models.InboxException.objects.get(state="dead")
    missing = models.InboxException.objects.get(pk=dead.pk)
    missing.pk, missing.seq, missing.through, missing.state = None, 8, 9, "gap"
    missing.save(force_insert=True)

    of_gap = _act(client, "inboxexception", "redrive", missing.pk).content.decode()
    form = {"action": "replace", "_selected_action": [str(dead.pk), str(missing.pk)]}
    of_two = client.post("/admin/sluice/inboxexception/", form, follow=True).content.decode()
    monkeypatch.setenv("SLUICE_ENV", "elsewhere")
    undeclared = _act(client, "inboxexception", "redrive", dead.pk).content.decode()

    assert "number 8 of group order-7 of billing is gap, allowed is dead" in of_gap
    assert "2 rows are selected, allowed are 1 to 1" in of_two
    assert "elsewhere" in undeclared
    assert _audit() == []


def test_an_act_commits_by_itself_where_requests_are_transactions(
    client: Client, parked_group: WorkerHarness, sqlite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The audit has a body before its message is deleted, whatever becomes of the request after that."""
    shop.use(sqlite, ATOMIC_REQUESTS=True)
    dead = models.InboxException.objects.get(state="dead")
    audited: list[tuple[bool, int]] = []
    delete = Reading.delete

    def observe(reading: Reading, dead_letter: StoredDeadLetter) -> None:
        audited.append((connections[sqlite].in_atomic_block, models.InboxAct.objects.count()))
        delete(reading, dead_letter)

    monkeypatch.setattr(Reading, "delete", observe)

    _act(client, "inboxexception", "purge_one", dead.pk, confirmed="1", reason="a test")
    shop.use(sqlite, ATOMIC_REQUESTS=False)

    is_in_transaction, rows_of_audit = False, 1
    assert audited == [(is_in_transaction, rows_of_audit)]


def test_the_page_of_groups_needs_a_permission_to_view_and_act(client: Client, parked_group: WorkerHarness) -> None:
    reader = Client()
    reader.force_login(User.objects.create_user("eve", is_staff=True))
    url = "/admin/sluice/inboxexception/groups/"

    assert reader.get(url).status_code == 403
    User.objects.get(username="eve").user_permissions.add(Permission.objects.get(codename="view_inboxgroup"))
    form = {"action": "skip", "_selected_action": '["billing", "order-7"]', "confirmed": "1", "reason": "agreed"}

    assert "order-7" in reader.get(url).content.decode()
    assert reader.post(url, form).status_code == 403
    assert client.post(url, {**form, "_selected_action": "nonsense"}).status_code == 400
    assert client.post(url, {**form, "action": "nonsense"}).status_code == 400
    assert _audit() == []
