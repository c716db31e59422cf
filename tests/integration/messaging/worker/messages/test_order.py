"""Within a group nothing overtakes, whatever fails (W1 to W5, W10).

A check that two tests call is a function: one calls it with the worker, one with a worker that is broken in just that
way and has to be caught.
"""

import itertools
import json
from dataclasses import replace

import pytest
import structlog
from sqlalchemy import Engine

from sluice.declaration import metrics
from sluice.messaging.handlers import Ack, Reject, Retry
from sluice.messaging.inbox.groups import InboxPolicy
from sluice.messaging.outbox.operations import OutboxOperator
from sluice.messaging.worker.processing.processor import MessageProcessor
from tests.support.messaging.broken_workers import DeletesFailedMessages
from tests.support.messaging.outbox.simulated_relays import work
from tests.support.messaging.world import MAX_ATTEMPTS, POLL_SECONDS, SETTINGS, TOPIC, World, envelope, places

VALID_BODY = json.loads(envelope("a", 2).body)


def assert_later_messages_wait(world: World, kind: type[MessageProcessor]) -> None:
    """W1: the head of a group fails twice; nothing behind it is handled or deleted before it."""
    world.send("a", "a", "b", "a")
    world.handler_steps["a", 1] = [Retry(delay_seconds=5), RuntimeError("not yet")]
    worker = world.worker(kind=kind)

    world.work_until_idle(worker)

    assert [place for place in world.committed_effects() if place[0] == "a"] == [("a", 1), ("a", 2), ("a", 3)]
    assert [place for place in world.called_places if place[0] == "a"] == [*[("a", 1)] * 3, ("a", 2), ("a", 3)]
    assert len(worker.sqs_calls.of("DeleteMessage")) == 4


def test_w1_a_message_waits_until_the_failed_message_before_it_is_handled(world: World) -> None:
    """The first message of a group fails twice, and the other two of the group wait for it."""
    assert_later_messages_wait(world, MessageProcessor)


def test_w1_a_worker_that_goes_on_behind_a_failure_is_caught(world: World) -> None:
    """W1, negative control: a worker that deletes failed messages lets the next one overtake."""
    with pytest.raises(AssertionError):
        assert_later_messages_wait(world, DeletesFailedMessages)


def test_w2_w3_a_group_comes_again_only_after_its_delay(world: World) -> None:
    """Another group is handled at once while the first one waits for 40 s."""
    world.send("a", "a", "b", "b")
    world.handler_steps["a", 1] = [Retry(delay_seconds=40)]

    world.work_until_idle(world.worker())

    assert world.called_places == [("a", 1), ("b", 1), ("b", 2), ("a", 1), ("a", 2)]
    times = {(call.place, call.attempt): call.time for call in world.calls}
    assert 40 <= times[("a", 1), 2] - times[("a", 1), 1] <= 40 + POLL_SECONDS
    assert times[("b", 2), 1] - times[("a", 1), 1] < 1


def test_w2_w3_the_queue_keeps_a_message_during_its_backoff(world: World) -> None:
    """The worker changes the visibility timeout and waits nowhere itself, so its lane is free for other groups."""
    world.send("a")
    world.handler_steps["a", 1] = [RuntimeError("one"), RuntimeError("two")]
    worker = world.worker()

    world.work_until_idle(worker)

    timeouts = [params["VisibilityTimeout"] for params in worker.sqs_calls.of("ChangeMessageVisibility")]
    times = [call.time for call in world.calls]
    waited = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert 1 <= timeouts[0] <= 4  # the backoff doubles after each failure
    assert 1 <= timeouts[1] <= 8
    assert waited == [pytest.approx(seconds, abs=0.1) for seconds in timeouts]
    assert worker.wait.waits == []


def test_w4_messages_behind_a_failing_one_keep_all_their_attempts(world: World) -> None:
    """A lane receives one message at a time, so a failure uses up no attempt of the messages behind it."""
    world.send("a", "a", "a")
    world.handler_steps["a", 1] = [RuntimeError("poison")] * MAX_ATTEMPTS

    world.work_until_idle(world.worker())

    assert [(call.place, call.attempt) for call in world.calls] == [
        (("a", 1), 1),
        (("a", 1), 2),
        (("a", 1), 3),
        (("a", 2), 1),
        (("a", 3), 1),
    ]
    assert places(world.bodies_in_dlq()) == [("a", 1)]
    assert world.committed_effects() == [("a", 2), ("a", 3)]


@pytest.mark.parametrize(
    "body",
    [
        "no JSON at all",
        json.dumps(VALID_BODY | {"sluice": 2}),
        json.dumps(VALID_BODY | {"data": {"n": 2_000}}),
        json.dumps(VALID_BODY | {"seq": 0}),
        envelope("other", 2).body,
    ],
    ids=["garbage", "version", "hash", "number", "group"],
)
def test_w5_an_unreadable_message_is_poison_and_its_group_waits(world: World, body: str) -> None:
    """The message behind it is handled only after SQS has moved the unreadable one to the DLQ."""
    dead_before: list[list[str]] = []

    def looks(*_: object) -> Ack:
        dead_before.append(world.bodies_in_dlq())
        return Ack()

    world.put(envelope("a", 1))
    world.put_body(body, "a")
    world.put(envelope("a", 3))
    world.handler_steps["a", 3] = [looks]

    world.work_until_idle(world.worker())

    assert world.called_places == [("a", 1), ("a", 3)]
    assert world.committed_effects() == [("a", 1), ("a", 3)]
    assert dead_before == [[body]]


def test_an_unreadable_message_is_counted_and_reported_once(world: World) -> None:
    """SQS delivers it three times before it moves it to the DLQ; only the first delivery counts."""
    world.put_body("no JSON at all", "a")
    worker = world.worker()

    with structlog.testing.capture_logs() as logged:
        world.work_until_idle(worker)

    assert len(world.bodies_in_dlq()) == 1
    assert worker.tally.take()[metrics.DEAD] == 1
    assert [entry["log_level"] for entry in logged if "reason" in entry] == ["error"]


def test_w10_no_state_of_a_failure_reaches_the_next_message(world: World) -> None:
    """After an error and a rejection, the third message is at its first attempt, in time, and without log context."""
    world.send("a", "a", "a")
    world.handler_steps["a", 1] = [RuntimeError("once")]
    world.handler_steps["a", 2] = [Reject("never")]

    world.work_until_idle(world.worker())

    last = world.calls[-1]
    assert last.place == ("a", 3)
    assert last.attempt == 1
    assert last.is_last_attempt is False
    assert last.is_late is False
    assert world.committed_effects() == [("a", 1), ("a", 3)]
    assert structlog.contextvars.get_contextvars() == {}


def test_g3_a_new_groups_first_message_that_comes_last_is_handled_late(engine: Engine) -> None:
    """SNS could not deliver number 1, and it is redriven after the numbers behind it.

    Until then the inbox has an open exception: number 1 is missing.
    """
    world = World(engine, policy=InboxPolicy(consumer="billing", parks_poison=False, parks_gaps=False))
    worker = world.worker()
    world.put(envelope("order-1", 2))
    world.put(envelope("order-1", 3))
    world.work_until_idle(worker)
    assert world.committed_effects() == [("order-1", 2), ("order-1", 3)]
    assert world.inbox.counts(engine)["open_exceptions"] == 1

    world.put(envelope("order-1", 1))
    world.work_until_idle(worker)

    assert world.committed_effects() == [("order-1", 2), ("order-1", 3), ("order-1", 1)]
    assert [call.is_late for call in world.calls if call.place == ("order-1", 1)] == [True]
    _assert_nothing_is_left(world)


def test_g3_messages_are_parked_until_the_new_groups_first_one_comes(engine: Engine) -> None:
    """SNS could not deliver number 1, and it is redriven after the numbers behind it.

    Those waited in the inbox's table.
    """
    world = World(engine, policy=InboxPolicy(consumer="billing", parks_poison=True, parks_gaps=True))
    worker = world.worker()
    world.put(envelope("order-1", 2))
    world.put(envelope("order-1", 3))
    world.work_until_idle(worker)
    assert world.committed_effects() == []
    assert world.inbox.counts(engine)["parked_groups"] == 1

    world.put(envelope("order-1", 1))
    world.work_until_idle(worker)
    worker.drainer.step()

    assert world.committed_effects() == [("order-1", 1), ("order-1", 2), ("order-1", 3)]
    assert [call.is_late for call in world.calls if call.place == ("order-1", 1)] == [False]
    _assert_nothing_is_left(world)


def test_g3_a_bundle_waits_for_its_groups_lost_first_message(engine: Engine) -> None:
    """Number 1 goes alone and is lost in the queue; 2 and 3 are one message, and come before 1 is resent."""
    policy = InboxPolicy(consumer="billing", parks_poison=True, parks_gaps=True)
    world = World(engine, policy=policy, has_bundles=True, commits_bundles=True)
    world.switch_bundles(5)
    relay, worker = world.relay(settings=replace(SETTINGS, bundle_events_max=5)), world.worker()
    world.commit("order-1", "order-1", "order-1")
    work(relay)
    worker.queue.delete_batch([world.receive(worker).receipt_handle])

    world.work_until_idle(worker)

    assert world.committed_effects() == []
    assert world.parked_places() == [("order-1", 2), ("order-1", 3)]

    with engine.begin() as connection:
        OutboxOperator(actor="ada", reason="tests", topic=TOPIC, clock=world.clock).resend(connection, "order-1", 1)
    work(relay)
    world.work_until_idle(worker)
    worker.drainer.step()

    assert world.committed_effects() == [("order-1", 1), ("order-1", 2), ("order-1", 3)]
    _assert_nothing_is_left(world)


def _assert_nothing_is_left(world: World) -> None:
    """Check that no message is dead, in the queue or parked, and that the inbox has no open exception."""
    assert world.bodies_in_dlq() == []
    assert world.bodies_in_queue() == []
    assert world.parked_places() == []
    assert world.inbox.counts(world.engine)["open_exceptions"] == 0
