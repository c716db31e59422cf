"""`sluice outbox verify` finds planted losses and names them; what it cannot judge is UNKNOWN, with the reason."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from sqlalchemy import select

from emulator import localstack
from sluice.clock import SystemClock
from sluice.declaration import naming
from sluice.messaging.outbox import tables as outbox
from sluice.messaging.reconciliation import comparison
from sluice.messaging.reconciliation.comparison import Reconciliation
from sluice.messaging.reconciliation.routes import Cause, Judgement, QueuePlace
from sluice.messaging.reconciliation.states import GroupSnapshot, NumberState
from tests.support.command_line import Run
from tests.support.messaging.operated_shop import AUDIT, BILLING, LOCAL, SHIPPING, TOPIC, OperatedShop

QUEUE, DEAD = naming.queue_name(LOCAL, BILLING), naming.dead_letter_queue_name(LOCAL, BILLING)


@pytest.fixture
def calm_shop(shop: OperatedShop) -> OperatedShop:
    """Return a shop in which every consumer has handled everything."""
    return _make_calm(shop)


def _make_calm(shop: OperatedShop) -> OperatedShop:
    """Let every consumer have handled number 1 of groups a and b, an hour ago."""
    shop.commit("a", 100)
    shop.commit("b", 100)
    shop.relay()
    shop.work()
    shop.age()
    return shop


def _verify(shop: OperatedShop, *more: str) -> tuple[str, int, dict[str, Any]]:
    """Return the verdict of `outbox verify`, its exit code, and its row of each consumer."""
    printed, code = shop.json("outbox", "verify", "--in-flight", "10m", *more)
    return printed["verdict"], code, {row["consumer"]: row for row in printed["consumers"]}


def _missing(row: dict[str, Any]) -> list[tuple[str, int, int, str]]:
    """Return group, first and last number, and cause of each finding of a consumer."""
    return [(found["group"], found["first"], found["last"], found["cause"]) for found in row["findings"]]


def _undecided_numbers(row: dict[str, Any]) -> list[tuple[str, int, int]]:
    """Return group, first and last number of what is not judged of a consumer."""
    return [(found["group"], found["first"], found["last"]) for found in row["undecided"]]


def _publish(shop: OperatedShop, *groups: str, **attributes: str) -> None:
    """Commit an event to each of these groups and let the relay publish them."""
    for group in groups:
        shop.commit(group, 200, **attributes)
    shop.relay()


def test_a_calm_shop_is_valid(calm_shop: OperatedShop) -> None:
    """Two events, each handled by three consumers."""
    verdict, code, consumers = _verify(calm_shop)

    assert verdict == "VALID"
    assert code == 0
    assert [row["states"] for row in consumers.values()] == [{"handled": 2}] * 3


def test_a_purged_queue_is_found_and_resent(either_shop: OperatedShop) -> None:
    """Without the command, the loss would show only when the next message of a group comes."""
    shop = _make_calm(either_shop)
    shop.commit("a", 200, 300)
    _publish(shop, "b")
    shop.work(SHIPPING, AUDIT)
    shop.purge(QUEUE)

    young, young_code, consumers = _verify(shop)
    assert young == "UNKNOWN"
    assert young_code == 2
    assert _missing(consumers["billing"]) == []
    reason = f"sent less than 10 min ago and not there yet, and {QUEUE} holds about 0"
    assert consumers["billing"]["unknown"] == [f"3 numbers: {reason}"]
    assert _undecided_numbers(consumers["billing"]) == [("a", 2, 3), ("b", 2, 2)]
    assert [consumers[name]["verdict"] for name in ("shipping", "audit")] == ["VALID", "VALID"]

    shop.age()
    verdict, code, consumers = _verify(shop)
    assert verdict == "INVALID"
    assert code == 1
    assert _missing(consumers["billing"]) == [("a", 2, 3, "not-in-queue"), ("b", 2, 2, "not-in-queue")]

    resent = shop.sluice("outbox", "resend", "a", "2-3", "--reason", "billing's queue was purged", "--yes")
    shop.sluice("outbox", "resend", "--group", "b", "--reason", "billing's queue was purged", "--yes")
    assert resent[1].splitlines() == ["done: resend what was sent of 2 to 3 of group a", "2 messages resent"]
    shop.relay()
    shop.work()
    assert _verify(shop)[:2] == ("VALID", 0)


def test_a_deleted_subscription_is_found(calm_shop: OperatedShop) -> None:
    """At once as a wrong setting; later the event that was published without it is a loss."""
    shop = calm_shop
    shop.sns.unsubscribe(SubscriptionArn=shop.subscription_of(BILLING))
    _publish(shop, "a")
    shop.work()

    before, code, consumers = _verify(shop)
    assert before == "INVALID"
    assert code == 1
    assert consumers["billing"]["wrong"] == ["the consumer's queue is not subscribed to the topic"]

    shop.age()
    _, _, consumers = _verify(shop)
    assert _missing(consumers["billing"]) == [("a", 2, 2, "no-subscription")]


def test_a_filter_policy_that_swallows_is_found(calm_shop: OperatedShop) -> None:
    """Number 3 passes it; it was lost otherwise."""
    shop = calm_shop
    shop.sns.set_subscription_attributes(
        SubscriptionArn=shop.subscription_of(BILLING),
        AttributeName="FilterPolicy",
        AttributeValue=json.dumps({"country": ["de"]}),
    )
    _publish(shop, "a", country="fr")
    _publish(shop, "a", country="de")
    shop.purge(QUEUE)
    shop.work()
    shop.age()

    _, code, consumers = _verify(shop)

    assert code == 1
    assert consumers["billing"]["wrong"] == [
        'the live subscription\'s filter policy is {"country": ["de"]}, declared is null'
    ]
    assert _missing(consumers["billing"]) == [("a", 2, 2, "filtered"), ("a", 3, 3, "not-in-queue")]


def _unsubscribe(shop: OperatedShop) -> None:
    shop.sns.unsubscribe(SubscriptionArn=shop.subscription_of(BILLING))


def _set_filter(shop: OperatedShop) -> None:
    policy = {"AttributeName": "FilterPolicy", "AttributeValue": json.dumps({"country": ["de"]})}
    shop.sns.set_subscription_attributes(SubscriptionArn=shop.subscription_of(BILLING), **policy)


@pytest.mark.parametrize(
    ("act", "cause"),
    [(_unsubscribe, "no-subscription"), (_set_filter, "filtered")],
    ids=["unsubscribed", "filter policy"],
)
def test_an_earlier_loss_is_not_blamed_on_the_subscription(
    calm_shop: OperatedShop, act: Callable[[OperatedShop], None], cause: str
) -> None:
    """Number 2 of group a was lost before number 2 of group b came: the subscription was right until then."""
    shop = calm_shop
    _publish(shop, "a")
    shop.purge(QUEUE)
    _publish(shop, "b")
    shop.work()
    act(shop)
    _publish(shop, "b")
    shop.work()
    shop.age()

    _, _, consumers = _verify(shop)

    assert _missing(consumers["billing"]) == [("a", 2, 2, "not-in-queue"), ("b", 3, 3, cause)]


def test_a_deleted_row_of_an_inbox_is_named_as_a_possible_cause(calm_shop: OperatedShop) -> None:
    """Its message was handled; a purge of the group's first message looks the same."""
    calm_shop.execute("DELETE FROM sluice_inbox_group WHERE consumer = 'billing' AND group_id = 'a'")

    _, code, consumers = _verify(calm_shop)

    assert code == 1
    assert _missing(consumers["billing"]) == [("a", 1, 1, "no-position")]
    assert consumers["billing"]["findings"][0]["why"].endswith("or somebody deleted the row")


@pytest.mark.parametrize("message_id", [None, "somebody's"])
def test_a_row_that_nobody_published_is_found(calm_shop: OperatedShop, message_id: str | None) -> None:
    """A row without SNS's message id is found at once.

    A row with one is found when it is old enough and no consumer has it.
    """
    shop = calm_shop
    shop.commit("a", 200)
    sql = "UPDATE sluice_outbox SET status = 'sent', sns_message_id = :id, sent_at_us = created_at_us"
    shop.execute(f"{sql} WHERE status = 'pending'", id=message_id)
    if message_id is not None:
        shop.age()

    _, code, consumers = _verify(shop)

    cause = "not-published" if message_id is None else "nowhere"
    assert code == 1
    assert [_missing(row) for row in consumers.values()] == [[("a", 2, 2, cause)]] * 3


def test_a_lost_message_with_a_later_number_is_found(calm_shop: OperatedShop) -> None:
    """Message 2 is deleted from the queue, and 3 is handled."""
    shop = calm_shop
    _publish(shop, "a")
    shop.purge(QUEUE)
    _publish(shop, "a")
    shop.work()
    shop.age()

    _, code, consumers = _verify(shop)

    assert code == 1
    assert _missing(consumers["billing"]) == [("a", 2, 2, "not-in-queue")]


def test_a_purged_dlq_is_found(calm_shop: OperatedShop) -> None:
    """The inbox knows that message 2 is dead, and no DLQ has it."""
    shop = calm_shop
    shop.commit("a", -5)
    shop.relay()
    shop.work()
    shop.age()
    assert _verify(shop)[0] == "VALID"

    shop.purge(DEAD)

    _, code, consumers = _verify(shop)
    assert code == 1
    assert _missing(consumers["billing"]) == [("a", 2, 2, "not-in-dlq")]


def test_a_message_that_may_be_in_a_queue_is_not_judged(calm_shop: OperatedShop) -> None:
    """Old as it is, the queue keeps it for days, and holds something."""
    shop = calm_shop
    _publish(shop, "a")
    shop.work(SHIPPING, AUDIT)
    shop.age()

    verdict, code, consumers = _verify(shop)

    assert verdict == "UNKNOWN"
    assert code == 2
    assert consumers["billing"]["unknown"] == [f"1 number: it may be among the about 1 messages of {QUEUE}"]


def test_an_inbox_elsewhere_is_not_taken_for_a_loss(calm_shop: OperatedShop) -> None:
    """Nothing of shipping is in this database: UNKNOWN, with the option that names another one."""
    shop = calm_shop
    shop.execute("DELETE FROM sluice_inbox_group WHERE consumer = 'shipping'")

    verdict, _, consumers = _verify(shop)

    assert verdict == "UNKNOWN"
    assert consumers["shipping"]["findings"] == []
    assert "see --inbox" in consumers["shipping"]["unknown"][0]


def test_each_groups_epoch_is_listed_after_a_restore(calm_shop: OperatedShop) -> None:
    """The outbox was restored to before group a, which consumers have handled. A new epoch makes it valid."""
    shop = calm_shop
    shop.execute("UPDATE sluice_outbox_group SET last_seq = 0 WHERE group_id = 'a'")
    shop.execute("DELETE FROM sluice_outbox WHERE group_id = 'a'")

    printed, code = shop.json("outbox", "verify", "--in-flight", "10m")
    assert code == 1
    (restored,) = printed["restored"]
    assert restored["group"] == "a"
    assert restored["ahead"] == ["billing", "shipping", "audit"]

    _, begun, _ = shop.sluice("outbox", "begin-epoch", "--reason", "restored to 02:00", "--yes")
    printed, code = shop.json("outbox", "verify", "--in-flight", "10m", "--epochs")
    with shop.engine.connect() as connection:
        (epoch,) = set(connection.execute(select(outbox.groups.c.epoch)).scalars())
    assert code == 0
    assert printed["restored"] == []
    assert printed["groups_by_epoch"] == {str(epoch): 2}
    rows = {row["group"]: (row["epoch"], row["first_seq"]) for row in printed["epochs"]}
    assert rows == {"a": (epoch, 1), "b": (epoch, 2)}
    assert str(epoch) in begun


def test_resend_and_verify_refuse_wrong_options_in_one_line(shop: OperatedShop) -> None:
    """Nothing was sent yet, so there is no range of numbers to resend."""
    shop.commit("a", 100)
    refused = {
        ("resend", "a"): "give GROUP and its numbers",
        ("resend", "a", "9-3"): "a range whose first number is not after its last",
        ("resend", "a", "1-3"): f"no number from 1 to 3 of group 'a' of {TOPIC} is sent and in the outbox",
    }

    for arguments, expected in refused.items():
        code, _, failed = shop.sluice("outbox", *arguments, "--reason", "x")
        assert code in (2, 3), failed
        assert expected in failed, failed
    code, _, failed = shop.sluice("outbox", "verify", "--in-flight", "5s")
    assert code == 3, failed
    assert "allowed is 60 to" in failed, failed


def _property(printed: dict[str, Any], name: str) -> tuple[str, int, int]:
    """Return verdict, violations and opportunities of a property."""
    (found,) = (each for each in printed["properties"] if each["property"] == name)
    return found["verdict"], found["violations"], found["opportunities"]


def test_many_epochs_are_counted_and_the_latest_listed(calm_shop: OperatedShop) -> None:
    """Each second in which a group begins is an epoch; the hourly verdict is one line of the log."""
    row = "INSERT INTO sluice_outbox_group (topic, group_id, epoch, first_seq, last_seq, updated_at_us)"
    for epoch in range(1, 21):
        calm_shop.execute(f"{row} VALUES ('{TOPIC}', 'old-{epoch}', {epoch}, 1, 1, 0)")

    printed, _ = calm_shop.json("outbox", "verify", "--in-flight", "10m")
    _, text, _ = calm_shop.sluice("outbox", "verify", "--in-flight", "10m")

    assert printed["group_count"] == 22
    assert len(printed["groups_by_epoch"]) == 10
    assert printed["epoch_count"] in (21, 22)  # groups a and b may begin in one second
    assert f"epochs: 22 groups in {printed['epoch_count']} epochs; --epochs lists them\n" in text


def test_each_property_is_judged_with_its_opportunities(calm_shop: OperatedShop) -> None:
    """Two messages went to three consumers; no letter has died, so nothing shows whether letters are kept."""
    printed, _ = calm_shop.json("outbox", "verify", "--in-flight", "10m")

    assert {each["property"]: _property(printed, each["property"]) for each in printed["properties"]} == {
        "published": ("VALID", 0, 2),
        "subscribed": ("VALID", 0, 3),
        "arrived": ("VALID", 0, 6),
        "dead-kept": ("not exercised", 0, 0),
        "continued": ("VALID", 0, 2),
    }


def test_a_loss_beside_old_dead_letters_is_certain_though_not_by_number(
    calm_shop: OperatedShop, tmp_path: Path
) -> None:
    """Two letters are dead and one message has not come, and the DLQ holds two: some of the three are lost."""
    shop = calm_shop
    shop.commit("a", -5)
    shop.commit("b", -6)
    shop.relay()
    shop.work()
    shop.age()
    _publish(shop, "c")
    shop.work(SHIPPING, AUDIT)
    shop.purge(QUEUE)
    shop.age()

    printed, code = shop.json("outbox", "verify", "--in-flight", "10m")
    page = tmp_path / "verdict.html"
    _, text, _ = shop.sluice("outbox", "verify", "--in-flight", "10m", "--page", str(page))

    (billing,) = (row for row in printed["consumers"] if row["consumer"] == "billing")
    assert printed["verdict"] == "INVALID"
    assert code == 1
    assert billing["missing"] == 1
    assert billing["findings"] == []
    means = (
        f"at least 1 of 3 messages: 1 have not come and 2 are dead, and {DEAD} hold about 2; which of them is not known"
    )
    assert billing["shortage"] == {"lost": 1, "missing": 1, "dead": 2, "held": 2, "queues": [DEAD], "means": means}
    assert _undecided_numbers(billing) == [("c", 1, 1)]
    assert f"  missing  {means}\n" in text
    assert "           group c number 1 of epoch " in text
    lost, undecided = page.read_text(encoding="utf-8").split('<h2 id="unknown">')
    assert f"<td>{means}</td>" in lost
    assert "<td>billing</td><td>c</td>" in undecided
    assert _property(printed, "arrived")[:2] == ("INVALID", 1)


def test_a_dead_letter_deleted_beside_another_is_a_certain_loss(calm_shop: OperatedShop) -> None:
    """Two are dead and the DLQ holds one, so one is lost, though nobody knows which."""
    shop = calm_shop
    shop.commit("a", -5)
    shop.commit("b", -6)
    shop.relay()
    shop.work()
    shop.age()
    (message,) = shop.sqs.receive_message(QueueUrl=shop.url(DEAD))["Messages"]
    shop.sqs.delete_message(QueueUrl=shop.url(DEAD), ReceiptHandle=message["ReceiptHandle"])

    _, code, consumers = _verify(shop)

    assert code == 1
    assert consumers["billing"]["shortage"]["lost"] == 1


def test_queues_that_hold_enough_leave_a_message_unknown(calm_shop: OperatedShop) -> None:
    """The DLQ holds one letter that nobody recorded, which may be the message that has not come."""
    shop = calm_shop
    _publish(shop, "a")
    shop.work(SHIPPING, AUDIT)
    shop.purge(QUEUE)
    send = {"MessageGroupId": "x", "MessageDeduplicationId": "x", "MessageBody": "x"}
    shop.sqs.send_message(QueueUrl=shop.url(DEAD), **send)
    shop.age()

    verdict, _, consumers = _verify(shop)

    assert verdict == "UNKNOWN"
    assert consumers["billing"]["shortage"] is None


def test_a_group_is_read_only_where_it_is_unusual(calm_shop: OperatedShop) -> None:
    """Of seven numbers one is dead, and the last was purged; the others were handled in order."""
    shop = calm_shop
    shop.commit("a", 100, 100, -5, 100, 100)
    shop.relay()
    shop.work()
    _publish(shop, "a")
    shop.work(SHIPPING, AUDIT)
    shop.purge(QUEUE)
    shop.purge(DEAD)
    shop.age()

    _, code, consumers = _verify(shop)

    assert code == 1
    assert _missing(consumers["billing"]) == [("a", 7, 7, "not-in-queue"), ("a", 4, 4, "not-in-dlq")]
    assert consumers["billing"]["states"] == {"handled": 6, "dead": 1, "has not come": 1}


def test_the_hourly_look_leaves_young_messages_out(calm_shop: OperatedShop) -> None:
    """A young message that is lost is neither judged nor unknown; an hour later it is lost."""
    shop = calm_shop
    _publish(shop, "c")
    shop.work(SHIPPING, AUDIT)
    shop.purge(QUEUE)

    young, young_code, _ = _verify(shop, "--old-only")
    shop.age()
    old, old_code, consumers = _verify(shop, "--old-only")

    assert young == "VALID"
    assert young_code == 0
    assert old == "INVALID"
    assert old_code == 1
    assert _missing(consumers["billing"]) == [("c", 1, 1, "no-position")]


def _metrics_and_verdict(shop: OperatedShop) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the metrics of a verdict, and the verdict, each a line of the log."""
    _, printed, failed = shop.sluice("outbox", "verify", "--old-only", "--in-flight", "10m", "--metrics")
    lines = [json.loads(line) for line in printed.splitlines()]
    assert len(lines) == 2, failed
    names = [each["Name"] for each in lines[0]["_aws"]["CloudWatchMetrics"][0]["Metrics"]]
    return {name: lines[0][name] for name in ("Topic", *names)}, lines[1]


def test_the_verdict_is_written_as_metrics_and_a_line(calm_shop: OperatedShop) -> None:
    """For an alarm: the number of verified, broken and unknown groups."""
    shop = calm_shop
    valid, _ = _metrics_and_verdict(shop)
    _publish(shop, "c")
    shop.work(SHIPPING, AUDIT)
    shop.purge(QUEUE)
    shop.age()

    invalid, verdict = _metrics_and_verdict(shop)

    assert valid == {"Topic": TOPIC, "OutboxUnknown": 0, "OutboxVerified": 2, "OutboxBroken": 0}
    assert invalid == {"Topic": TOPIC, "OutboxUnknown": 0, "OutboxVerified": 3, "OutboxBroken": 1}
    assert verdict["verdict"] == "INVALID"


def test_databases_that_cannot_be_read_are_no_verdict(calm_shop: OperatedShop) -> None:
    """A count of zero lost messages would keep the alarm for a missing verdict silent."""
    calm_shop.execute("ALTER TABLE sluice_inbox_parked RENAME TO elsewhere")

    measured, verdict = _metrics_and_verdict(calm_shop)

    assert measured == {"Topic": TOPIC, "OutboxUnknown": 5}
    assert verdict["verdict"] == "UNKNOWN"


def test_the_verdict_is_drawn_as_a_page(calm_shop: OperatedShop, tmp_path: Path) -> None:
    """Text of a message is shown as text."""
    shop = calm_shop
    _publish(shop, "<b>c</b>")
    shop.work(SHIPPING, AUDIT)
    shop.purge(QUEUE)
    shop.age()

    code, _, failed = shop.sluice("outbox", "verify", "--in-flight", "10m", "--page", str(tmp_path / "verdict.html"))

    page = (tmp_path / "verdict.html").read_text(encoding="utf-8")
    assert code == 1, failed
    assert '<div class="verdict violated">' in page
    assert "<td>&lt;b&gt;c&lt;/b&gt;</td><td>" in page
    assert "<b>c" not in page
    assert "every message has come to every consumer, or is in one of its queues" in page


def test_the_hourly_verdict_is_read_from_its_log_and_drawn(
    calm_shop: OperatedShop, localstack_shared: localstack.Emulator, tmp_path: Path, run: Run
) -> None:
    """Without a database. The lines are those that the task prints; the newest verdict counts."""
    shop, group = calm_shop, "/ecs/sluice-local-outbox_verdict"
    hourly = ("outbox", "verify", "--hourly", "--endpoint-url", localstack_shared.endpoint_url)
    valid = shop.sluice("outbox", "verify", "--old-only", "--in-flight", "10m", "--metrics")[1]
    _publish(shop, "c")
    shop.purge(QUEUE)
    shop.work()
    shop.age()
    invalid = shop.sluice("outbox", "verify", "--old-only", "--in-flight", "10m", "--metrics")[1]
    logs = boto3.client("logs", endpoint_url=localstack_shared.endpoint_url, region_name="us-east-1")
    logs.create_log_group(logGroupName=group)
    logs.create_log_stream(logGroupName=group, logStreamName="task/1")

    none_yet = run(*hourly)
    now_ms = SystemClock().now_us() // 1_000
    for age_ms, printed in ((3_600_000, valid), (0, invalid)):
        events = [{"timestamp": now_ms - age_ms, "message": line} for line in ("not JSON", *printed.splitlines())]
        logs.put_log_events(logGroupName=group, logStreamName="task/1", logEvents=events)
    code, found, _ = run(*hourly, "--page", str(tmp_path / "verdict.html"))

    assert none_yet == (2, "", f"the log group {group} has no verdict of the last 3 hours\n")
    assert code == 1
    assert "missing  group c number 1 of epoch" in found
    assert "<td>c</td>" in (tmp_path / "verdict.html").read_text(encoding="utf-8")
    assert run(*hourly, "--epochs")[0] == 3


def test_a_verdict_fits_an_event_of_the_log(calm_shop: OperatedShop) -> None:
    """Of 500 lost groups at three consumers a line lists fewer than the limit allows."""
    for number in range(500):
        calm_shop.commit(f"group-{number}", 200)
    sql = "UPDATE sluice_outbox SET status = 'sent', sent_at_us = created_at_us"
    calm_shop.execute(f"{sql} WHERE status = 'pending'")

    _, printed, _ = calm_shop.sluice("outbox", "verify", "--metrics", "--limit", "500")

    line = printed.splitlines()[1]
    assert len(line) <= 200_000
    assert [(row["missing"], row["is_cut"]) for row in json.loads(line)["consumers"]] == [(500, True)] * 3


MUTANTS: dict[str, tuple[Any, str, Any]] = {
    "a queue may hold what it does not": (QueuePlace, "may_hold", lambda *_, **__: True),
    "every number was handled": (GroupSnapshot, "state_of", lambda *_: NumberState.HANDLED),
    "every group is in order": (Reconciliation, "_suspect", lambda *_: SimpleNamespace(routes=[])),
    "numbers after the position were handled in order": (
        GroupSnapshot,
        "handled_ranges",
        lambda _, __, first: [(first, 2**62)],
    ),
    "no cause is found": (comparison, "_cause", lambda *_, **__: None),
    "a message is always young": (Reconciliation, "_is_old", lambda *_: False),
    "dead letters are not looked for": (Reconciliation, "_check_dead_letters", lambda *_: None),
    "nothing is added to the findings": (Judgement, "find", lambda *_: None),
    "a row without a message id was published": (
        comparison,
        "_cause",
        lambda _, row, *__, **___: Cause.NOT_IN_QUEUE if row.sns_message_id is None else None,
    ),
}
"""Each rule of the comparison, muted: class or module, name, and what stands in its place."""


def _plant_losses(shop: OperatedShop) -> None:
    """Plant a loss of each kind, in a group of its own, and let it grow old."""
    shop.commit("dlq", -5)
    shop.relay()
    shop.work()
    _publish(shop, "purge")
    shop.work(SHIPPING, AUDIT)
    shop.purge(QUEUE)
    for consumer in LOCAL.consumers:
        shop.purge(naming.dead_letter_queue_name(LOCAL, consumer))
    shop.commit("row", 200)
    shop.execute("UPDATE sluice_outbox SET status = 'sent', sent_at_us = created_at_us WHERE status = 'pending'")
    shop.commit("nowhere", 200)
    mark = "UPDATE sluice_outbox SET status = 'sent', sns_message_id = 'x', sent_at_us = created_at_us"
    shop.execute(f"{mark} WHERE status = 'pending'")
    shop.age()


def _causes(shop: OperatedShop) -> set[str]:
    """Return the causes of all losses that are found."""
    try:
        _, _, consumers = _verify(shop)
    except AssertionError:  # a command that failed printed nothing
        return set()
    return {found["cause"] for row in consumers.values() for found in row["findings"]}


@pytest.mark.slow
def test_each_muted_rule_hides_a_planted_loss(calm_shop: OperatedShop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deleted subscription and a filter name the same loss otherwise, so they are planted in tests of their own."""
    _plant_losses(calm_shop)
    planted = {"no-position", "not-published", "nowhere", "not-in-dlq"}

    whole = _causes(calm_shop)
    muted = {}
    for name, (owner, attribute, muting) in MUTANTS.items():
        with monkeypatch.context() as patch:
            patch.setattr(owner, attribute, muting)
            muted[name] = _causes(calm_shop)

    assert whole == planted
    assert [name for name, found in muted.items() if found >= planted] == []
