"""`sluice replay` hands the past to a consumer in order, each event once, and refuses what it cannot."""

import json

import pytest
from sqlalchemy import BigInteger, Boolean, Column, Integer, MetaData, Table, Text, insert, select
from sqlalchemy.orm import Session

from sluice.declaration import naming
from sluice.messaging import Ack, Context, Event, Outcome, Reject
from tests.support.messaging.operated_shop import AUDIT, BILLING, LOCAL, SHIPPING, OperatedShop

QUEUE = naming.queue_name(LOCAL, AUDIT)
REASON = ("--reason", "audit is new")
_EFFECTS = Table(
    "effects",
    MetaData(),
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("group_id", Text),
    Column("cents", Integer),
    Column("is_late", Boolean),
    comment="what the handler did; nothing here keeps a second one out",
)


def _write_effect(session: Session, event: Event, context: Context) -> Outcome:
    """Write the event into a table that takes every repeat; an event without cents is rejected."""
    if not event.data["cents"]:
        return Reject("no cents")
    row = {"group_id": event.group, "cents": event.data["cents"], "is_late": context.is_late}
    session.execute(insert(_EFFECTS).values(row))
    return Ack()


def _make_used(shop: OperatedShop) -> OperatedShop:
    """Let the shop have sent three events of group a and one of group b, which the consumer audit never received."""
    _EFFECTS.metadata.create_all(shop.engine)
    shop.commit("a", 1, 2, 3)
    shop.commit("b", 1)
    shop.relay()
    shop.purge(QUEUE)
    return shop


@pytest.fixture
def used_shop_on_sqlite(shop: OperatedShop) -> OperatedShop:
    return _make_used(shop)


@pytest.fixture
def used_shop(either_shop: OperatedShop) -> OperatedShop:
    return _make_used(either_shop)


def _work(shop: OperatedShop) -> None:
    """Let a worker of audit handle what is in its queue, then what is set aside."""
    of_others, shop.handler = shop.handler, _write_effect
    shop.work(AUDIT)
    shop.handler = of_others


def _effects_of(shop: OperatedShop, group: str) -> list[int]:
    """Return the cents that the handler wrote for a group, in the order of writing."""
    written = select(_EFFECTS.c.cents).where(_EFFECTS.c.group_id == group).order_by(_EFFECTS.c.id)
    with shop.engine.connect() as connection:
        return list(connection.execute(written).scalars())


def _late_effects(shop: OperatedShop) -> list[int]:
    """Return the cents that the handler wrote late."""
    with shop.engine.connect() as connection:
        return list(connection.execute(select(_EFFECTS.c.cents).where(_EFFECTS.c.is_late)).scalars())


def _replay(shop: OperatedShop, *more: str, since: str = "1d") -> tuple[int, str, str]:
    return shop.sluice("replay", "--consumer", "audit", "--from", since, *REASON, *more)


def _counts(shop: OperatedShop, *more: str) -> tuple[int, dict[str, int]]:
    """Return the exit code of a planned replay, and how many events have which outcome, without zeros."""
    printed, code = shop.json("replay", "--consumer", "audit", "--from", "1d", *REASON, *more)
    return code, {outcome: count for outcome, count in printed["events"].items() if count}


def test_a_new_consumer_handles_the_past_in_order_before_live_messages(used_shop: OperatedShop) -> None:
    """Number 4 is in audit's queue before the replay, and number 5 comes after it: both wait for 1 to 3."""
    shop = used_shop
    shop.commit("a", 4)
    shop.relay()

    code, printed, failed = _replay(shop, "--yes")
    assert code == 0, failed
    assert printed.splitlines()[0] == "done: set aside 5 events of 2 groups for audit, in order"
    shop.commit("a", 5)
    shop.relay()
    _work(shop)

    assert _effects_of(shop, "a") == [1, 2, 3, 4, 5]
    assert _effects_of(shop, "b") == [1]
    assert _late_effects(shop) == []


@pytest.mark.slow
def test_a_planned_replay_changes_nothing(used_shop: OperatedShop) -> None:
    """Without --yes the command counts the events, and every row stays as it is."""
    before = used_shop.dump()

    code, printed, _ = _replay(used_shop)

    assert code == 0
    assert printed.splitlines() == ["would set aside 4 events of 2 groups for audit, in order; add --yes to do it"]
    assert used_shop.dump() == before


@pytest.mark.slow
def test_other_consumers_get_nothing_of_a_replay(used_shop: OperatedShop) -> None:
    """A resend through the topic would put the events into each queue; a replay writes only audit's inbox."""
    shop = used_shop
    shop.work(BILLING, SHIPPING)
    before = {
        name: shop.sqs.get_queue_attributes(QueueUrl=shop.url(name), AttributeNames=["All"])["Attributes"]
        for name in (naming.queue_name(LOCAL, each) for each in LOCAL.consumers)
    }

    _replay(shop, "--yes")

    assert {
        name: shop.sqs.get_queue_attributes(QueueUrl=shop.url(name), AttributeNames=["All"])["Attributes"]
        for name in before
    } == before


def test_a_replay_is_audited_with_its_numbers_and_its_reason(used_shop_on_sqlite: OperatedShop) -> None:
    """Each number in the audit's detail is a pair of epoch and number."""
    shop = used_shop_on_sqlite
    _replay(shop, "--group", "a", "--yes")

    _, printed, _ = shop.sluice("dlq", "audit", "--consumer", "audit")

    (act,) = map(json.loads, printed.splitlines())
    assert act["action"] == "replay"
    assert act["reason"] == "audit is new"
    assert [act["group_id"], act["seq"]] == ["a", 1]
    detail = json.loads(act["detail"])
    assert detail["events"] == 3
    assert [numbers[1] for numbers in (detail["first"], detail["last"])] == [1, 3]


def test_handled_events_are_refused_or_left_out(used_shop_on_sqlite: OperatedShop) -> None:
    """Audit has handled group a already: the whole replay is refused, unless --unhandled leaves those events out."""
    shop = used_shop_on_sqlite
    _replay(shop, "--group", "a", "--yes")
    _work(shop)
    before = shop.dump()

    code, _, failed = _replay(shop, "--yes")
    assert code == 3
    assert failed.splitlines()[-1] == (
        "sluice: nothing is replayed: events handled or given up already: 3; audit would drop them, --unhandled leaves"
        " them out"
    )
    assert shop.dump() == before

    code, printed, _ = _replay(shop, "--unhandled", "--yes")
    assert code == 0
    assert printed.splitlines() == [
        "done: set aside 1 event of 2 groups for audit, in order",
        "3 are handled or given up already, and are left out",
    ]
    _work(shop)
    assert _effects_of(shop, "a") == [1, 2, 3]
    assert _effects_of(shop, "b") == [1]


@pytest.mark.slow
def test_a_replay_that_is_done_again_sets_nothing_aside_twice(used_shop: OperatedShop) -> None:
    """All four events are set aside by the first replay, and are not handled yet when the second one comes."""
    _replay(used_shop, "--yes")

    assert _counts(used_shop, "--yes") == (0, {"set_aside": 4})
    _work(used_shop)
    assert _effects_of(used_shop, "a") == [1, 2, 3]


@pytest.mark.slow
def test_a_restored_consumer_goes_on_from_the_number_that_it_remembers(used_shop: OperatedShop) -> None:
    """Its database was restored to a state after number 1: it handled 2 and 3, and lost both."""
    shop = used_shop
    _replay(shop, "--group", "a", "--yes")
    _work(shop)
    shop.execute("UPDATE sluice_inbox_group SET last_seq = 1, last_event_id = NULL WHERE consumer = 'audit'")
    shop.execute("DELETE FROM effects WHERE cents > 1")
    shop.commit("a", 4)
    shop.relay()

    assert _replay(shop, "--group", "a", "--unhandled", "--yes")[0] == 0
    _work(shop)

    assert _effects_of(shop, "a") == [1, 2, 3, 4]


@pytest.mark.slow
def test_events_behind_live_messages_are_refused_or_late(used_shop: OperatedShop) -> None:
    """The worker ran before the replay, so group a began with number 4 for this consumer."""
    shop = used_shop
    shop.work(BILLING, SHIPPING)
    shop.commit("a", 4)
    shop.relay()
    _work(shop)

    code, _, failed = _replay(shop, "--unhandled", "--yes")
    assert code == 3
    assert failed.splitlines()[-1] == (
        "sluice: nothing is replayed: events behind later numbers of their group: 3 (such as 1 to 3 of a); they cannot"
        " be handled in order, --late handle has them handled late, --late leave-out leaves them out"
    )

    code, printed, _ = _replay(shop, "--unhandled", "--late", "handle", "--yes")
    assert code == 0
    assert "3 are behind later numbers of their group, and are published again" in printed.splitlines()
    shop.relay()
    shop.work(BILLING, SHIPPING)
    _work(shop)
    assert _effects_of(shop, "a") == [4, 1, 2, 3]
    assert _late_effects(shop) == [1, 2, 3]
    assert _effects_of(shop, "b") == [1]
    assert shop.sluice("outbox", "verify", "--in-flight", "1m")[0] != 1


@pytest.mark.slow
def test_late_events_are_left_out_if_asked(used_shop_on_sqlite: OperatedShop) -> None:
    """Number 4 was handled without 1 to 3, which would come late; of the rest only group b's event is to handle."""
    shop = used_shop_on_sqlite
    shop.commit("a", 4)
    shop.relay()
    _work(shop)

    code, counts = _counts(shop, "--unhandled", "--late", "leave-out", "--yes")
    shop.relay()
    _work(shop)

    assert code == 0
    assert counts == {"to_handle": 1, "late": 3, "handled": 1}
    assert _effects_of(shop, "a") == [4]


def test_a_consumer_without_subscription_is_refused(used_shop_on_sqlite: OperatedShop) -> None:
    """Live events would not come to that consumer, so it would miss what is committed after the replay."""
    shop = used_shop_on_sqlite
    shop.sns.unsubscribe(SubscriptionArn=shop.subscription_of(AUDIT))

    code, _, failed = _replay(shop, "--yes")

    assert code == 3
    assert failed.startswith("sluice: the queue of audit is not subscribed to the topic, allowed is a subscribed one")


@pytest.mark.slow
def test_a_subscription_that_cannot_be_read_leaves_it_unknown(used_shop_on_sqlite: OperatedShop) -> None:
    """AWS denies the call: the command ends with 2, and not as if the consumer had no subscription."""
    used_shop_on_sqlite.denied = {"ListSubscriptionsByTopic"}

    code, _, failed = _replay(used_shop_on_sqlite, "--yes")

    assert code == 2
    assert failed.startswith("sluice: the subscription of audit cannot be read")


@pytest.mark.slow
def test_an_event_of_an_earlier_epoch_is_refused(used_shop: OperatedShop) -> None:
    """The inbox would reject it, and it would end in the DLQ."""
    shop = used_shop
    shop.sluice("outbox", "begin-epoch", "--reason", "restored", "--yes")
    shop.commit("a", 4)
    shop.relay()
    _work(shop)

    assert _counts(shop) == (3, {"rejected": 3, "handled": 1, "to_handle": 1})


@pytest.mark.slow
def test_events_of_two_epochs_are_handled_in_order(used_shop: OperatedShop) -> None:
    """Numbers 1 to 3 belong to the first epoch; the cents 4 and 5 are numbers 1 and 2 of the second."""
    shop = used_shop
    shop.sluice("outbox", "begin-epoch", "--reason", "restored", "--yes")
    shop.commit("a", 4, 5)
    shop.relay()

    assert _replay(shop, "--yes")[0] == 0
    _work(shop)

    assert _effects_of(shop, "a") == [1, 2, 3, 4, 5]


@pytest.mark.slow
def test_events_that_the_inbox_may_have_forgotten_are_refused(used_shop: OperatedShop) -> None:
    """The inbox deletes rows of groups without messages, and remembers up to when: here a time behind all events.

    So it cannot say whether it handled them, and the replay is refused with exit code 3.
    """
    shop = used_shop
    shop.execute("INSERT INTO sluice_inbox_consumer VALUES ('audit', :now)", now=4_000_000_000_000_000)

    assert _counts(shop) == (3, {"forgotten": 4})
    assert _counts(shop, "--unhandled", "--yes") == (0, {"forgotten": 4})
    _work(shop)
    assert _effects_of(shop, "a") == []


@pytest.mark.slow
def test_nothing_behind_a_quarantined_event_is_replayed(used_shop_on_sqlite: OperatedShop) -> None:
    """Number 2 may still be published: number 3 must not be handled before it."""
    shop = used_shop_on_sqlite
    shop.execute("UPDATE sluice_outbox SET status = 'quarantined' WHERE group_id = 'a' AND group_seq = 2")

    assert _counts(shop, "--yes") == (0, {"to_handle": 2})
    _work(shop)
    assert _effects_of(shop, "a") == [1]


def test_only_what_passes_the_live_filter_policy_is_replayed(used_shop_on_sqlite: OperatedShop) -> None:
    """Only the fourth event of group a has the attribute that audit's subscription asks for."""
    shop = used_shop_on_sqlite
    shop.commit("a", 4, country="de")
    policy = json.dumps({"country": ["de"]})
    arn = shop.subscription_of(AUDIT)
    shop.sns.set_subscription_attributes(SubscriptionArn=arn, AttributeName="FilterPolicy", AttributeValue=policy)

    _, printed, _ = _replay(shop, "--yes")
    _work(shop)

    assert printed.splitlines()[1] == "4 do not pass the consumer's filter policy"
    assert _effects_of(shop, "a") == [4]


@pytest.mark.slow
def test_a_replay_ends_at_the_given_time(used_shop_on_sqlite: OperatedShop) -> None:
    """Three events are five hours old and one is new: --to leaves the new one out."""
    shop = used_shop_on_sqlite
    shop.age(hours=5)
    shop.commit("a", 4)

    assert _counts(shop, "--to", "1h", "--group", "a") == (0, {"to_handle": 3})
    assert _counts(shop, "--group", "a") == (0, {"to_handle": 4})


@pytest.mark.slow
def test_a_group_may_begin_with_a_later_number(used_shop: OperatedShop) -> None:
    """The outbox has deleted number 1."""
    shop = used_shop
    shop.execute("DELETE FROM sluice_outbox WHERE group_id = 'a' AND group_seq = 1")

    _, printed, _ = _replay(shop, "--yes")
    _work(shop)

    assert printed.splitlines()[1] == "1 group handed out from a later number on: a at 2"
    assert _effects_of(shop, "a") == [2, 3]


@pytest.mark.slow
def test_nothing_that_is_kept_is_an_error(used_shop_on_sqlite: OperatedShop) -> None:
    """No group has this name, so that a typing error is not taken for a finished replay."""
    code, _, failed = _replay(used_shop_on_sqlite, "--group", "none", "--yes")

    assert code == 2
    assert failed.startswith("sluice: the outbox of sluice-local-events.fifo keeps no event of that time")


@pytest.mark.slow
def test_a_replayed_event_that_fails_for_good_is_held_with_its_group(used_shop: OperatedShop) -> None:
    """It is in no queue, so it cannot go to a DLQ; the consumer audit goes on without dead messages otherwise."""
    shop = used_shop
    shop.commit("c", 1, 0, 2)

    _replay(shop, "--group", "c", "--yes")
    _work(shop)
    assert _effects_of(shop, "c") == [1]

    assert shop.sluice("dlq", "skip", "c", "2", "--consumer", "audit", *REASON, "--yes")[0] == 0
    _work(shop)
    assert _effects_of(shop, "c") == [1, 2]
