"""A relay sends events of a group in one message: whoever repeats it sends the same, and no event is in two."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, override
from unittest.mock import patch

import pytest
from sqlalchemy import Engine, delete, event, func, select, text, update
from sqlalchemy.exc import OperationalError

from sluice.clock import VirtualClock, eventually
from sluice.messaging import Event, failpoints
from sluice.messaging.bundle import events_of
from sluice.messaging.outbox import tables
from sluice.messaging.outbox.operations import OutboxOperator
from sluice.messaging.outbox.store import Head, PublishOutcome, PublishRefusal, PublishRetry, PublishSuccess
from sluice.messaging.relay.hooks import RelayHooks
from sluice.messaging.relay.lease import Lease
from sluice.messaging.relay.relay import Relay
from tests.support.messaging.faulty_calls import Fault, ProcessKill, failing_at
from tests.support.messaging.outbox.postgres_interleaving import is_anybody_waiting
from tests.support.messaging.outbox.simulated_relays import Meanwhile, work
from tests.support.messaging.world import QUEUES, SETTINGS, TOPIC, World

BUNDLED = replace(SETTINGS, bundle_events_max=5)
PAST_LEASE_SECONDS = SETTINGS.lease_seconds + 1
PAST_BACKOFF_SECONDS = SETTINGS.backoff.cap_seconds + 1


@pytest.fixture
def world(engine: Engine) -> World:
    """Return an outbox whose relays may send five events in a message, and a relay that has led it before."""
    made = World(engine)
    made.switch_bundles(5)
    return made


def a_leader(world: World, **more: Any) -> Relay:
    """Return a relay that leads and has walked over all groups once."""
    relay = world.relay(**{"settings": BUNDLED} | more)
    work(relay)
    return relay


def numbers(world: World) -> list[list[int]]:
    """Return the numbers of the events in each message of a queue, in the order received."""
    return [[arrived.seq for arrived in events_of(message["Body"])] for message in world.receive_all()]


def requests(world: World) -> list[tuple[list[int], str]]:
    """Return the numbers of the events in each published entry, and its deduplication id."""
    return [
        ([arrived.seq for arrived in events_of(entry["Message"])], entry["MessageDeduplicationId"])
        for call in world.sns_calls.requests
        for entry in call
    ]


def bundle_counts(world: World) -> dict[int, int]:
    """Return how many events are stored of the messages that begin with each number of the group."""
    first, count = tables.messages.c.group_seq, tables.bundles.c.event_count
    joined = select(first, count).join(tables.messages, tables.messages.c.id == tables.bundles.c.first_id)
    with world.engine.connect() as connection:
        return {row.group_seq: row.event_count for row in connection.execute(joined)}


def operate(world: World, action: Callable[[OutboxOperator, Any], object]) -> None:
    operator = OutboxOperator(actor="ada", reason="tests", topic=TOPIC, clock=world.clock)
    with world.engine.begin() as connection:
        action(operator, connection)


def test_a_backlog_of_a_group_is_sent_in_bundles(world: World) -> None:
    """Each event is marked sent, and nothing is left of what was stored."""
    relay = a_leader(world)
    world.commit(*["a"] * 12, "b")

    work(relay)

    assert sorted(numbers(world)) == [[1], [1, 2, 3, 4, 5], [6, 7, 8, 9, 10], [11, 12]]
    assert set(world.statuses().values()) == {"sent"}
    assert bundle_counts(world) == {}


@pytest.mark.parametrize(
    ("declared", "switched"),
    [(1, 5), (5, 1), (5, None), (3, 5), (5, 3)],
    ids=["declared 1", "switched to 1", "never switched", "declared fewer since", "declared more since"],
)
def test_bundles_are_off_unless_the_declared_number_is_switched_on(
    world: World, declared: int, switched: int | None
) -> None:
    """The operator looked at consumers for the number of then."""
    with world.engine.begin() as connection:
        connection.execute(delete(tables.switches))
    if switched is not None:
        world.switch_bundles(switched)
    relay = a_leader(world, settings=replace(SETTINGS, bundle_events_max=declared))
    world.commit(*["a"] * 3)

    work(relay)

    assert numbers(world) == [[1], [2], [3]]


def test_a_switch_is_read_with_the_next_look(world: World) -> None:
    """The same relay sends one event a message, and several after somebody switches, without a restart."""
    relay = a_leader(world)
    world.commit(*["a"] * 3)
    world.switch_bundles(1)
    relay.step()
    world.switch_bundles(5)

    work(relay)

    assert numbers(world) == [[1], [2, 3]]


def test_events_with_other_attributes_begin_another_message(world: World) -> None:
    """A subscription filters a message by its attributes, and all events of a bundle share them."""
    relay = a_leader(world)
    with world.engine.begin() as connection:
        types = ["placed", "placed", "paid", "placed", "placed"]
        world.outbox.write(connection, [Event(type=f"order.{type_}", group="a", data=None) for type_ in types])

    work(relay)

    assert numbers(world) == [[1, 2], [3], [4, 5]]


def test_a_bundle_is_at_most_as_large_as_a_message_may_be(world: World) -> None:
    """Some of the events fit into a message of 1,024 bytes together; ä takes two bytes, which is how SNS counts."""
    relay = a_leader(world, settings=replace(BUNDLED, event_bytes_max=1_024))
    with world.engine.begin() as connection:
        sizes = [300, 300, 300, 700, 300, 900]
        world.outbox.write(connection, [Event(type="t", group="a", data="ä" * (size // 2 - 100)) for size in sizes])

    work(relay)

    sent = world.receive_all()
    assert [event.seq for message in sent for event in events_of(message["Body"])] == [1, 2, 3, 4, 5, 6]
    assert max(len(message["Body"].encode()) for message in sent) <= 1_024
    assert len(sent) < 6


def test_one_event_alone_costs_no_further_statement(world: World) -> None:
    """Nothing is stored of an event that waits alone, and no statement is added."""
    statements: list[str] = []

    def count(*arguments: Any) -> None:
        statements.append(arguments[2])

    event.listen(world.engine, "before_cursor_execute", count)
    counts = []
    for settings in (BUNDLED, SETTINGS):
        relay = a_leader(world, settings=settings)
        world.commit("a")
        statements.clear()
        work(relay)
        counts.append(len(statements))
        relay.close()
    event.remove(world.engine, "before_cursor_execute", count)

    assert counts[0] == counts[1]


@pytest.mark.parametrize("failpoint", [*failpoints.RELAY_BUNDLES, *failpoints.RELAY])
def test_a_relay_killed_with_a_bundle_repeats_and_splits_nothing(world: World, failpoint: str) -> None:
    """Events are committed after its death, and the next leader takes what was stored with what is there."""
    relay = a_leader(world, failpoint=failing_at(failpoint))
    world.commit(*["a"] * 3)
    with pytest.raises(ProcessKill):
        work(relay)
    world.commit(*["a"] * 3)
    world.clock.sleep(PAST_LEASE_SECONDS)

    work(world.relay(settings=BUNDLED))

    assert [seq for message in numbers(world) for seq in message] == [1, 2, 3, 4, 5, 6]
    ids = {id_: seqs for seqs, id_ in requests(world)}
    assert len(ids) == len({tuple(seqs) for seqs in ids.values()})


def test_an_event_that_was_sent_alone_is_repeated_alone(world: World) -> None:
    """Its leader died before it knew the answer, and others wait behind the event now."""
    relay = a_leader(world, failpoint=failing_at("after_publish"))
    world.commit("a")
    with pytest.raises(ProcessKill):
        work(relay)
    world.commit(*["a"] * 3)
    world.clock.sleep(PAST_LEASE_SECONDS)

    work(world.relay(settings=BUNDLED))

    assert [seqs for seqs, _ in requests(world)] == [[1], [1], [2, 3, 4]]
    assert numbers(world) == [[1], [2, 3, 4]]


@pytest.mark.parametrize(
    "fault",
    [Fault(lost=True), Fault(unreachable=True), Fault(refused="InternalFailure")],
    ids=["lost answer", "unreachable", "internal failure"],
)
@pytest.mark.parametrize("first_count", [1, 3])
def test_a_message_without_an_answer_is_repeated_as_it_was(world: World, fault: Fault, first_count: int) -> None:
    """SNS may have taken the message, so it gets no further event and no other id, though two more are committed."""
    relay = a_leader(world)
    world.commit(*["a"] * first_count)
    world.sns_calls.faults.append(fault)
    work(relay)
    world.commit(*["a"] * 2)
    world.clock.sleep(PAST_BACKOFF_SECONDS)

    work(relay)

    first, again, *_ = requests(world)
    assert first == again
    assert [seq for message in numbers(world) for seq in message] == list(range(1, first_count + 3))


@pytest.mark.parametrize("first_count", [1, 3])
def test_an_answer_that_cannot_be_written_repeats_the_message_as_it_was(world: World, first_count: int) -> None:
    """The same relay leads on, and knows no longer what it has sent; two more events are committed meanwhile."""
    failing = [OperationalError("UPDATE", {}, Exception("the database is away"))]

    def fail_once(here: str) -> None:
        if here == "before_mark" and failing:
            raise failing.pop()

    relay = a_leader(world, failpoint=fail_once)
    world.commit(*["a"] * first_count)
    with pytest.raises(OperationalError):
        work(relay)
    world.commit(*["a"] * 2)

    work(relay)

    first, again, *_ = requests(world)
    assert first == again


def test_an_old_leader_that_wakes_sends_the_bundle_that_was_stored(world: World) -> None:
    """Another relay has led meanwhile, with further events; the topic takes both messages for one."""

    def others_lead(here: str) -> None:
        if here == "before_publish" and sleeping:
            sleeping.clear()
            world.commit(*["a"] * 4)
            world.clock.sleep(PAST_LEASE_SECONDS)
            work(world.relay(settings=BUNDLED))

    sleeping: list[bool] = []
    relay = a_leader(world, failpoint=others_lead)
    world.commit(*["a"] * 2)
    sleeping.append(True)

    work(relay)

    assert [seqs for seqs, _ in requests(world)] == [[1, 2], [3, 4, 5, 6], [1, 2]]
    assert numbers(world) == [[1, 2], [3, 4, 5, 6]]


def test_a_leader_whose_clock_stood_still_sends_nothing_of_the_next_leaders(world: World) -> None:
    """A suspended host does not see that its lease is over: the look that reads the head reads the token."""
    still = VirtualClock()
    lease = Lease(world.engine, TOPIC, lease_seconds=30, clock=world.clock, own_clock=still)
    relay = Relay(world.store, lease, world.publisher(), settings=BUNDLED, clock=still)
    work(relay)
    world.clock.sleep(PAST_LEASE_SECONDS)
    work(world.relay(settings=BUNDLED))
    world.commit("a")

    relay.step()

    assert world.sns_calls.requests == []
    assert not relay.is_leading


def test_a_takeover_that_an_error_cuts_short_begins_with_a_first_walk(world: World) -> None:
    """The relay has the lease, and an earlier leader may have sent the head alone."""
    relay = a_leader(world)
    world.clock.sleep(PAST_LEASE_SECONDS)
    dying = a_leader(world, failpoint=failing_at("after_publish"))
    world.commit("a")
    with pytest.raises(ProcessKill):
        work(dying)
    world.commit("a")
    world.clock.sleep(PAST_LEASE_SECONDS)
    acquire = relay._lease.acquire

    def cut_short() -> None:
        acquire()
        raise OperationalError("SELECT", {}, Exception("the database is away"))

    assert relay.step() is False
    with patch.object(relay._lease, "acquire", cut_short), pytest.raises(OperationalError):
        relay.step()

    work(relay)

    assert [seqs for seqs, _ in requests(world)] == [[1], [1], [2]]


def test_a_stored_bundle_is_sent_with_bundles_off(world: World) -> None:
    """A leader that dies after it stored a bundle, and one with bundles off: the event is sent as it was stored."""
    relay = a_leader(world, failpoint=failing_at("after_bundle"))
    world.commit(*["a"] * 3)
    with pytest.raises(ProcessKill):
        work(relay)
    world.switch_bundles(1)
    world.clock.sleep(PAST_LEASE_SECONDS)

    work(world.relay(settings=SETTINGS))

    assert numbers(world) == [[1, 2, 3]]


def test_a_refused_bundle_that_nobody_sent_before_goes_event_by_event(world: World) -> None:
    """Nothing of it has arrived. SNS does not name the bad event: it is the one that is refused alone."""
    outcomes: list[tuple[int, type[PublishOutcome]]] = []

    class OutcomeLog(RelayHooks):
        """Hooks that write down what became of each event."""

        @override
        def after_publish(self, head: Head, outcome: PublishOutcome) -> None:
            outcomes.append((head.group_seq, type(outcome)))

    relay = a_leader(world, hooks=[OutcomeLog()])
    world.commit(*["a"] * 3)
    refused = Fault(refused="InvalidParameter")
    world.sns_calls.faults += [refused, Fault(), refused]

    work(relay)

    assert [seqs for seqs, _ in requests(world)] == [[1, 2, 3], [1], [2]]
    assert world.statuses() == {("a", 1): "sent", ("a", 2): "quarantined", ("a", 3): "pending"}
    assert outcomes == [
        *((seq, PublishRetry) for seq in (1, 2, 3)),
        (1, PublishSuccess),
        (2, PublishRefusal),
    ]
    operate(world, lambda operator, connection: operator.unquarantine(connection, "a", 2))
    work(relay)
    assert numbers(world) == [[1], [2], [3]]
    assert bundle_counts(world) == {}


@pytest.mark.parametrize("action", ["unquarantine", "skip"])
def test_a_bundle_that_may_have_arrived_is_kept_after_a_refusal(world: World, action: str) -> None:
    """Another message with its events would be a copy. Who skips the first event accepts that."""
    relay = a_leader(world)
    world.commit(*["a"] * 3)
    world.sns_calls.faults += [Fault(lost=True), Fault(refused="InvalidParameter")]
    work(relay)
    world.clock.sleep(PAST_BACKOFF_SECONDS)
    work(relay)
    assert world.statuses() == {("a", 1): "quarantined", ("a", 2): "pending", ("a", 3): "pending"}
    assert bundle_counts(world) == {1: 3}
    world.commit("a")
    operate(world, lambda operator, connection: getattr(operator, action)(connection, "a", 1))

    work(relay)

    others = [[4]] if action == "unquarantine" else [[1], [2, 3, 4]]
    assert numbers(world) == [[1, 2, 3], *others]
    assert set(world.statuses().values()) == {"sent"}
    assert bundle_counts(world) == {}


def test_a_stored_bundle_is_sent_though_events_may_be_smaller_now(world: World) -> None:
    """Its first try may have arrived, and its deduplication id is that of all its events."""
    relay = a_leader(world)
    world.commit(*["a"] * 3)
    world.sns_calls.faults.append(Fault(lost=True))
    work(relay)
    relay.close()
    world.clock.sleep(PAST_BACKOFF_SECONDS)

    work(world.relay(settings=replace(BUNDLED, event_bytes_max=500)))

    assert [seqs for seqs, _ in requests(world)] == [[1, 2, 3], [1, 2, 3]]
    assert numbers(world) == [[1, 2, 3]]


def test_a_resent_part_of_a_bundle_is_another_message(world: World) -> None:
    """An event that was never sent stays apart from it: its relay may be about to send it alone."""
    relay = a_leader(world)
    world.commit(*["a"] * 5)
    work(relay)
    world.receive_all()
    world.commit(*["a"] * 2)
    operate(world, lambda operator, connection: operator.resend_ranges(connection, [("a", 2, 4)]))
    assert bundle_counts(world) == {6: 1}

    work(relay)

    assert numbers(world) == [[2, 3, 4], [6], [7]]
    assert len({id_ for _, id_ in requests(world)}) == len(requests(world))


def test_a_resend_does_not_hide_an_event_that_was_sent_alone(world: World) -> None:
    """Its leader died with the answer, and the next one finds resent events in front of it."""
    relay = a_leader(world, failpoint=failing_at("after_publish", 2))
    world.commit("a")
    work(relay)
    world.commit("a")
    with pytest.raises(ProcessKill):
        work(relay)
    operate(world, lambda operator, connection: operator.resend(connection, "a", 1))
    world.commit("a")
    world.clock.sleep(PAST_LEASE_SECONDS)

    work(world.relay(settings=BUNDLED))

    assert [seqs for seqs, _ in requests(world)] == [[1], [2], [1], [2], [3]]


def test_a_resend_keeps_apart_what_is_sent_before_its_commit(postgres: Engine) -> None:
    """The head that it finds may be sent before it commits, and the next one alone, by a leader that dies."""
    world = World(postgres)
    relay = a_leader(world, failpoint=failing_at("after_publish", 3))
    world.commit(*["a"] * 3)
    relay.step()
    relay.step()
    assert world.statuses()["a", 1] == "sent"
    operator = OutboxOperator(actor="ada", reason="tests", topic=TOPIC, clock=world.clock)
    with ThreadPoolExecutor(1) as pool:
        with postgres.begin() as connection:
            operator.resend(connection, "a", 1)
            assert connection.execute(text("SHOW idle_in_transaction_session_timeout")).scalar() == "30s"
            dying = pool.submit(work, relay)
            eventually(lambda: dying.done() or is_anybody_waiting(postgres), timeout_seconds=20, describe="the relay")
        with pytest.raises(ProcessKill):
            dying.result()
    world.switch_bundles(5)
    world.commit("a")
    world.clock.sleep(PAST_LEASE_SECONDS)

    work(world.relay(settings=BUNDLED))

    sent = [seqs for seqs, _ in requests(world)]
    assert not ([3] in sent and [3, 4] in sent)
    assert sent[-1][-1] == 4


def test_a_key_that_somebody_holds_stops_only_its_bundle(postgres: Engine) -> None:
    """An operator of older code has not committed what it stores of a head."""
    world = World(postgres)
    world.switch_bundles(5)
    relay = a_leader(world)
    world.commit("a", "a", "b")
    first = select(tables.messages.c.id).where(tables.messages.c.group_id == "a").limit(1)

    with postgres.begin() as connection:
        first_id = connection.execute(first.order_by(tables.messages.c.group_seq)).scalar()
        connection.execute(tables.bundles.insert().values(first_id=first_id, event_count=1))
        work(relay)
        assert [seqs for seqs, _ in requests(world)] == [[1]]
        assert world.statuses()["b", 1] == "sent"
    work(relay)

    assert [seqs for seqs, _ in requests(world)] == [[1], [1], [2]]


def test_a_look_of_an_earlier_leader_takes_no_event_that_was_resent(world: World) -> None:
    """It has read the head of a stored bundle. Another leader sends that, and one of its events is resent."""
    relay = a_leader(world)
    world.commit(*["a"] * 2)
    world.sns_calls.faults.append(Fault(unreachable=True))
    work(relay)
    world.clock.sleep(PAST_BACKOFF_SECONDS)
    gather = world.store.gather

    def gather_late(*arguments: Any, **more: Any) -> list[Head]:
        world.clock.sleep(PAST_LEASE_SECONDS)
        with patch.object(world.store, "gather", gather):
            work(world.relay(settings=BUNDLED))
        operate(world, lambda operator, connection: operator.resend(connection, "a", 2))
        return gather(*arguments, **more)

    with patch.object(world.store, "gather", gather_late):
        relay.step()
    work(relay)

    assert [seqs for seqs, _ in requests(world)] == [[1, 2], [1, 2]]
    assert not relay.is_leading


def test_a_range_is_resent_with_one_look_for_the_head(world: World) -> None:
    """The look reads what is unfinished, by its index, and none of the events that were sent."""
    relay = a_leader(world)
    world.commit(*["a"] * 4)
    work(relay)
    world.commit("a")
    looks: list[str] = []

    def note(*arguments: Any) -> None:
        if "status != 'sent'" in arguments[2]:
            looks.append(arguments[2])

    event.listen(world.engine, "before_cursor_execute", note)
    operate(world, lambda operator, connection: operator.resend_ranges(connection, [("a", 1, 4)]))
    event.remove(world.engine, "before_cursor_execute", note)

    assert len(looks) == 1


def test_a_bundle_that_somebody_tore_is_quarantined(world: World) -> None:
    """The message that was stored cannot be made again: nobody guesses what it was."""
    relay = a_leader(world, failpoint=failing_at("after_bundle"))
    world.commit(*["a"] * 3)
    with pytest.raises(ProcessKill):
        work(relay)
    with world.engine.begin() as connection:
        connection.execute(
            update(tables.messages).where(tables.messages.c.group_seq == 2).values(attributes=json.dumps({"type": "x"}))
        )
    world.clock.sleep(PAST_LEASE_SECONDS)

    work(world.relay(settings=BUNDLED))

    assert world.statuses()["a", 1] == "quarantined"
    assert numbers(world) == []


def test_a_restored_outbox_sends_the_events_again_and_in_order(world: World) -> None:
    """The copies may be in other bundles; a consumer's inbox knows each event by its number."""
    relay = a_leader(world)
    world.commit(*["a"] * 3)
    with world.engine.connect() as connection:
        rows = [dict(row) for row in connection.execute(select(tables.messages)).mappings()]
    work(relay)
    with world.engine.begin() as connection:
        connection.execute(delete(tables.messages))
        connection.execute(tables.messages.insert(), rows)
    world.clock.sleep(PAST_LEASE_SECONDS)

    work(world.relay(settings=BUNDLED))

    assert numbers(world) == [[1, 2, 3], [1], [2, 3]]


def test_stored_bundles_are_deleted_with_their_events(world: World) -> None:
    """A relay of older code marks events as sent and leaves what is stored."""
    relay = a_leader(world, failpoint=failing_at("after_bundle"))
    world.commit(*["a"] * 3)
    with pytest.raises(ProcessKill):
        work(relay)
    world.change(status="sent", sent_at_us=world.clock.now_us())
    world.clock.sleep(SETTINGS.keep_sent_seconds + 60)

    work(world.relay(settings=BUNDLED))

    with world.engine.connect() as connection:
        counts = [
            connection.execute(select(func.count()).select_from(table)).scalar()
            for table in (tables.messages, tables.bundles)
        ]
    assert counts == [0, 0]


def test_events_committed_while_a_bundle_is_sent_are_in_the_next(world: World) -> None:
    """They are committed inside the publishing call, when the first message has already been put together."""
    late = [2]

    def commit_late(_: object) -> None:
        if late:
            world.commit(*["a"] * late.pop())

    relay = a_leader(world, publish=Meanwhile(world.publisher(), commit_late))
    world.commit(*["a"] * 2)

    work(relay)

    assert numbers(world) == [[1, 2], [3, 4]]
    assert len(world.receive_all(QUEUES[1])) == 2
