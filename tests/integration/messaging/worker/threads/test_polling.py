"""A lane repeats a lost receive with its attempt id, and every call has its bounds (W13, X5 to X7, S1, S3)."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from sluice import limits
from sluice.aws.client import KINDS
from sluice.messaging.errors import TransientError
from sluice.messaging.handlers import Retry
from sluice.messaging.sqs import queue
from sluice.messaging.sqs.queue import Queue, ReceivedMessage
from sluice.messaging.worker.processing.acknowledgements import Release
from sluice.messaging.worker.processing.group_locks import GroupLocks
from sluice.messaging.worker.processing.message_lease import Heartbeat, MessageLease
from tests.support.endpoints.capturing_server import Reply, capturing
from tests.support.messaging.faulty_calls import Fault
from tests.support.messaging.world import BACKOFF, TIMEOUT_SECONDS, WorkerParts, World

RECEIVE = "ReceiveMessage"


def attempt_ids(worker: WorkerParts) -> list[str]:
    """Return the attempt id of each call that receives."""
    return [call["ReceiveRequestAttemptId"] for call in worker.sqs_calls.of(RECEIVE)]


def test_w13_a_receive_with_a_lost_answer_repeats_its_attempt_id(world: World) -> None:
    """SQS answers a repeated attempt id with the same message, instead of hiding it for a visibility timeout."""
    world.send("a", "a")
    worker = world.worker()
    worker.sqs_calls.faults = [Fault(operation=RECEIVE, lost=True), Fault(operation=RECEIVE, unreachable=True)]
    began_at = world.clock.monotonic()

    world.work_until_idle(worker)

    first, second, third, fourth = attempt_ids(worker)
    assert first == second == third != fourth
    assert [(call.place, call.attempt) for call in world.calls] == [(("a", 1), 1), (("a", 2), 1)]
    assert world.clock.monotonic() - began_at == pytest.approx(sum(worker.wait.waits), abs=0.1)
    assert len(worker.wait.waits) == 2


def test_w13_an_attempt_id_is_changed_after_four_minutes(world: World) -> None:
    """SQS remembers it for five minutes. Of receives after 0, 130 and 260 s only the last has a new one."""
    worker = world.worker()
    worker.sqs_calls.faults = [Fault(operation=RECEIVE, unreachable=True)] * 3
    for _ in range(3):
        worker.lane.step()
        world.simulator.advance(130)

    first, second, third = attempt_ids(worker)

    assert first == second != third


def test_w13_an_attempt_id_that_the_queue_refuses_is_changed(world: World) -> None:
    """SQS refuses the id of a lost answer when that answer's message is visible again before the repeat."""
    world.send("a")
    worker = world.worker()
    worker.sqs_calls.faults = [Fault(operation=RECEIVE, lost=True)]
    worker.lane.step()
    world.simulator.advance(TIMEOUT_SECONDS + 1)

    world.work_until_idle(worker)

    first, second, third = attempt_ids(worker)
    assert first == second != third
    assert world.committed_effects() == [("a", 1)]


def test_w13_a_receive_from_a_standard_queue_has_no_attempt_id(world: World) -> None:
    """SQS would refuse the parameter."""
    other = World(world.engine, consumer="search", simulator=world.simulator, is_ordered=False)
    other.send("a")
    worker = other.worker()

    other.work_until_idle(worker)

    assert other.committed_effects() == [("a", 1)]
    assert "ReceiveRequestAttemptId" not in worker.sqs_calls.of(RECEIVE)[0]


def test_x5_a_client_waits_for_a_long_poll_on_each_connection() -> None:
    """Botocore's own pool of 10 connections would make threads wait for each other."""
    config = queue.client("http://localhost:1", "us-east-1", connections=34).meta.config

    assert config.read_timeout > limits.WAIT_SECONDS_MAX
    assert config.max_pool_connections == 34


@pytest.mark.parametrize(
    ("timeout_seconds", "answer_seconds"), [(60, 5), (43_200, 5), (30, 3), (5, 1)], ids=["60 s", "12 h", "30 s", "5 s"]
)
def test_l1_an_unanswered_renewal_times_out_while_others_can_be_renewed(
    timeout_seconds: int, answer_seconds: float
) -> None:
    """A client of renewals waits for an answer for 5 s, and less if the visibility timeout is short."""
    config = queue.client(
        "http://localhost:1", "us-east-1", connections=2, answer_seconds=Heartbeat.answer_seconds(timeout_seconds)
    ).meta.config

    assert config.read_timeout == answer_seconds
    assert config.connect_timeout == min(4, answer_seconds)


@pytest.mark.parametrize("kind", KINDS)
def test_x6_the_client_tries_once(kind: str) -> None:
    """Retries are the worker's: botocore's own would multiply them."""
    with capturing(lambda _: Reply(503, b"")) as server:
        sqs = queue.client(server.url, "us-east-1", connections=1, kind=kind)
        with pytest.raises(TransientError):
            Queue(sqs, f"{server.url}/q.fifo").receive(attempt_id=None, wait_seconds=0)
        sqs.close()

    assert len(server.captured) == 1


def test_x6_releases_and_deletes_are_tried_three_times_and_a_receive_once(world: World) -> None:
    """No other layer repeats a call. A receive is not repeated within a step, because the next step receives again."""
    world.send("a", "b")
    world.handler_steps["a", 1] = [RuntimeError("boom")]
    worker = world.worker()
    worker.sqs_calls.faults = [
        Fault(operation=RECEIVE, unreachable=True),
        *[Fault(operation="ChangeMessageVisibility", unreachable=True)] * 3,
        *[Fault(operation="DeleteMessage", unreachable=True)] * 3,
    ]

    steps = [worker.lane.step() for _ in range(3)]

    assert steps == [False, True, True]
    assert world.called_places == [("a", 1), ("b", 1)]
    assert [len(worker.sqs_calls.of(name)) for name in (RECEIVE, "ChangeMessageVisibility", "DeleteMessage")] == [
        3,
        3,
        3,
    ]


def test_x6_a_message_that_could_not_be_released_is_delivered_again(world: World) -> None:
    """It comes after its visibility timeout, instead of after the delay that the release asked for."""
    world.send("a")
    world.handler_steps["a", 1] = [RuntimeError("boom")]
    worker = world.worker()
    worker.sqs_calls.faults = [Fault(operation="ChangeMessageVisibility", unreachable=True)] * 3

    world.work_until_idle(worker)

    first, second = world.calls
    assert TIMEOUT_SECONDS <= second.time - first.time <= TIMEOUT_SECONDS + 1


def test_x7_messages_that_failed_together_are_released_with_different_delays(world: World) -> None:
    """The delays are whole seconds, because SQS knows no others, and are spread over the whole range of the backoff."""
    groups = [f"g{number}" for number in range(60)]
    world.send(*groups)
    for group in groups:
        world.handler_steps[group, 1] = [RuntimeError("down")]
    worker = world.worker()

    for _ in groups:
        worker.lane.step()
    delays = [call["VisibilityTimeout"] for call in worker.sqs_calls.of("ChangeMessageVisibility")]

    # The first backoff is drawn evenly from 1 to 4 s, and rounded up.
    shares = {seconds: delays.count(seconds) / 60 for seconds in sorted(set(delays))}
    assert shares == {
        2: pytest.approx(1 / 3, abs=0.1),
        3: pytest.approx(1 / 3, abs=0.1),
        4: pytest.approx(1 / 3, abs=0.1),
    }


def test_s1_a_message_received_after_the_stop_request_is_handled(world: World) -> None:
    """S1, S5: the poll was open when the stop came. A release of its message would use up an attempt."""
    world.send("a")
    worker = world.worker()
    worker.wait.has_stop_request = True

    worker.lane.step()

    assert world.committed_effects() == [("a", 1)]
    assert world.bodies_in_queue() == []
    assert world.bodies_in_dlq() == []


def test_s3_a_worker_that_stops_repeats_a_failed_release(world: World) -> None:
    """Otherwise the message would be invisible for its whole visibility timeout."""
    world.send("a")
    world.handler_steps["a", 1] = [Retry(0)]
    worker = world.worker()
    worker.wait.has_stop_request = True
    worker.sqs_calls.faults = [Fault(operation="ChangeMessageVisibility", unreachable=True)] * 2

    ended = worker.processor.process(world.receive(worker))

    assert ended == Release(0)
    assert len(worker.sqs_calls.of("ChangeMessageVisibility")) == 3
    assert world.receive(worker).receive_count == 2


def test_a_lease_counts_from_the_poll_that_brought_the_message(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The visibility timeout begins when SQS hands the message out, however long the answer takes: here 12 s."""
    world.send("a")
    worker = world.worker()
    receive, remaining = worker.queue.receive, []

    def receive_slowly(**named: Any) -> ReceivedMessage | None:
        message = receive(**named)
        world.simulator.advance(12)
        return message

    monkeypatch.setattr(worker.queue, "receive", receive_slowly)
    world.handler_steps["a", 1] = [lambda _, __, context: remaining.append(context.hold.remaining_seconds())]

    worker.lane.step()

    assert remaining == [pytest.approx(TIMEOUT_SECONDS - 12, abs=0.1)]
    assert world.committed_effects() == [("a", 1)]


def test_w12_a_group_is_locked_until_its_message_is_ended(world: World) -> None:
    """A lane that finished its handler and only ends its message keeps the group's lock, and logs no collision."""
    world.send("a", "b")
    worker = world.worker()
    ending, following = (
        MessageLease(world.receive(worker), clock=world.clock, timeout_seconds=30, seconds_max=300) for _ in range(2)
    )
    groups = GroupLocks()
    worker.wait.has_stop_request = True  # so that nobody waits here

    with capture_logs() as logged, groups.alone("a", ending, worker.wait):
        ending.finish()
        with groups.alone("a", following, worker.wait) as is_alone:
            assert not is_alone

    ending.check()
    assert logged == []


@pytest.mark.parametrize(("is_early", "waits"), [(True, [0.1]), (False, [])], ids=["long before", "at the end"])
def test_a_pause_follows_an_empty_answer_that_came_early(
    world: World, monkeypatch: pytest.MonkeyPatch, waits: list[float], *, is_early: bool
) -> None:
    """A proxy's page with status 200 reads as an empty queue.

    Without a pause it would be polled as fast as it answers.
    """
    worker = world.worker()
    if is_early:
        monkeypatch.setattr(worker.queue, "receive", lambda **_: None)

    assert not worker.lane.step()

    assert worker.wait.waits == waits


def test_a_lane_rests_longer_after_each_unforeseen_error_in_a_row(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A successful receive does not shorten the pause; a handled message does."""
    world.send(*"abcdefgh")
    worker = world.worker()

    def fail_once() -> float:
        with monkeypatch.context() as patched:
            patched.setattr(worker.processor, "process", lambda *_, **__: 1 // 0)
            with pytest.raises(ZeroDivisionError):
                worker.lane.step()
        worker.lane.rest()  # as the worker's thread does
        return worker.wait.waits[-1]

    growing = [fail_once() for _ in range(6)]
    worker.lane.step()
    after = fail_once()

    assert max(growing) > 2 * BACKOFF.base_seconds >= 2 * after
    assert world.committed_effects() == [("g", 1)]
