"""How a lane asks for messages, how often anything is asked, and how a worker ends (W13, X5 to X7, S1 to S3)."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse, HeadersDict
from sqlalchemy import Engine, event
from sqlalchemy.orm import Session
from structlog.testing import capture_logs

from sluice import limits
from sluice.clock import SystemClock
from sluice.messaging.backoff import Backoff
from sluice.messaging.envelope import Event
from sluice.messaging.errors import OutboxError, TransientError
from sluice.messaging.handlers import Ack, Context, Outcome, Retry
from sluice.messaging.sqs import queue
from sluice.messaging.sqs.queue import Queue, Received
from sluice.messaging.waiting import Stop
from sluice.messaging.worker.group_locks import GroupLocks
from sluice.messaging.worker.lane import Lane
from sluice.messaging.worker.message_lease import Heartbeat, MessageLease
from sluice.messaging.worker.processor import Release
from sluice.messaging.worker.scale_in_protection import Protection
from sluice.messaging.worker.settings import WorkerSettings
from sluice.messaging.worker.worker import Worker
from tests.support.worker_harness import TIMEOUT_SECONDS, Fault, Hands, World, places

RECEIVE = "ReceiveMessage"
SETTINGS = WorkerSettings(
    lanes=1,
    wait_seconds=0,
    drain_seconds=0.3,
    keep_inbox_seconds=1,
    backoff=Backoff(base_seconds=0.01, cap_seconds=0.01, floor_seconds=0.01),
)


def attempt_ids(worker: Hands) -> list[str]:
    """Return the attempt id of each receive."""
    return [call["ReceiveRequestAttemptId"] for call in worker.line.calls(RECEIVE)]


def test_w13_a_receive_whose_answer_was_lost_is_repeated_with_its_attempt_id(world: World) -> None:
    """W13: it brings the same message again, and the group does not stand still for a visibility timeout."""
    world.send("a", "a")
    worker = world.worker()
    worker.line.faults = [Fault(operation=RECEIVE, lost=True), Fault(operation=RECEIVE, unreachable=True)]
    began_at = world.clock.monotonic()

    world.work_off(worker)

    first, second, third, fourth = attempt_ids(worker)
    assert first == second == third != fourth
    assert [(call.place, call.attempt) for call in world.calls] == [(("a", 1), 1), (("a", 2), 1)]
    assert world.clock.monotonic() - began_at == pytest.approx(sum(worker.wait.waits), abs=0.1)
    assert len(worker.wait.waits) == 2


def test_w13_an_attempt_id_that_was_kept_for_too_long_is_changed(world: World) -> None:
    """W13: AWS remembers it for five minutes; after four the next receive has a fresh one."""
    worker = world.worker()
    worker.line.faults = [Fault(operation=RECEIVE, unreachable=True)] * 3
    for _ in range(3):
        worker.lane.step()
        world.simulator.advance(130)

    first, second, third = attempt_ids(worker)

    assert first == second != third


def test_w13_an_attempt_id_the_queue_refuses_is_changed(world: World) -> None:
    """W13: when the lost answer's message is visible again before the repeat, its id is worth nothing any more."""
    world.send("a")
    worker = world.worker()
    worker.line.faults = [Fault(operation=RECEIVE, lost=True)]
    worker.lane.step()
    world.simulator.advance(TIMEOUT_SECONDS + 1)

    world.work_off(worker)

    first, second, third = attempt_ids(worker)
    assert first == second != third
    assert world.effects() == [("a", 1)]


def test_w13_a_receive_from_a_standard_queue_has_no_attempt_id(world: World) -> None:
    """W13: it would be refused."""
    other = World(world.engine, consumer="search", simulator=world.simulator, is_ordered=False)
    other.send("a")
    worker = other.worker()

    other.work_off(worker)

    assert (other.effects(), "ReceiveRequestAttemptId" in worker.line.calls(RECEIVE)[0]) == ([("a", 1)], False)


def test_x5_a_call_may_take_as_long_as_a_long_poll_and_every_thread_has_a_connection() -> None:
    """X5: botocore's own read timeout of 60 s and pool of 10 are not relied on."""
    config = queue.client("http://localhost:1", "us-east-1", connections=34).meta.config

    assert config.read_timeout > limits.WAIT_SECONDS_MAX
    assert config.max_pool_connections == 34


@pytest.mark.parametrize(("timeout_seconds", "answer_seconds"), [(60, 5), (43_200, 5), (30, 3), (5, 1)])
def test_l1_a_renewal_nobody_answers_leaves_time_for_others(timeout_seconds: int, answer_seconds: float) -> None:
    """L1: it is not waited for as long as a long poll may take."""
    config = queue.client(
        "http://localhost:1", "us-east-1", connections=2, answer_seconds=Heartbeat.answer_seconds(timeout_seconds)
    ).meta.config

    assert (config.read_timeout, config.connect_timeout) == (answer_seconds, min(4, answer_seconds))


def test_x6_the_client_tries_once() -> None:
    """X6: whoever calls owns the retries."""
    sqs = queue.client("http://localhost:1", "us-east-1", connections=1)
    requests: list[Any] = []

    def fails(request: Any, **_: Any) -> AWSResponse:
        requests.append(request)
        return AWSResponse(request.url, 503, HeadersDict({}), Empty())

    sqs.meta.events.register_last("before-send.sqs", fails)
    with pytest.raises(TransientError):
        Queue(sqs, "http://localhost:1/q.fifo").receive(attempt_id=None, wait_seconds=0)

    assert len(requests) == 1


class Empty:
    """A body without anything."""

    def stream(self, **_: Any) -> list[bytes]:
        """Return it."""
        return [b""]


def test_x6_each_step_is_tried_as_often_as_its_one_owner_says(world: World) -> None:
    """X6: a receive once per step, a release and a delete three times; a failed handler not at all by the worker."""
    world.send("a", "b")
    world.says["a", 1] = [RuntimeError("boom")]
    worker = world.worker()
    worker.line.faults = [
        Fault(operation=RECEIVE, unreachable=True),
        *[Fault(operation="ChangeMessageVisibility", unreachable=True)] * 3,
        *[Fault(operation="DeleteMessage", unreachable=True)] * 3,
    ]

    steps = [worker.lane.step() for _ in range(3)]

    assert steps == [False, True, True]
    assert world.called == [("a", 1), ("b", 1)]
    assert [len(worker.line.calls(name)) for name in (RECEIVE, "ChangeMessageVisibility", "DeleteMessage")] == [3, 3, 3]


def test_x6_what_could_not_be_given_back_comes_again_by_itself(world: World) -> None:
    """X6: when the three tries are over the visibility timeout does it."""
    world.send("a")
    world.says["a", 1] = [RuntimeError("boom")]
    worker = world.worker()
    worker.line.faults = [Fault(operation="ChangeMessageVisibility", unreachable=True)] * 3

    world.work_off(worker)

    first, second = world.calls
    assert TIMEOUT_SECONDS <= second.time - first.time <= TIMEOUT_SECONDS + 1


def test_x7_groups_that_failed_together_do_not_come_back_together(world: World) -> None:
    """X7: also in whole seconds, which are all SQS knows, their delays are spread over what the backoff allows."""
    groups = [f"g{number}" for number in range(60)]
    world.send(*groups)
    for group in groups:
        world.says[group, 1] = [RuntimeError("down")]
    worker = world.worker()

    for _ in groups:
        worker.lane.step()
    delays = [call["VisibilityTimeout"] for call in worker.line.calls("ChangeMessageVisibility")]

    # 1 to 4 s evenly, rounded up.
    shares = {seconds: delays.count(seconds) / 60 for seconds in sorted(set(delays))}
    assert shares == {
        2: pytest.approx(1 / 3, abs=0.1),
        3: pytest.approx(1 / 3, abs=0.1),
        4: pytest.approx(1 / 3, abs=0.1),
    }


def test_s1_what_comes_after_the_end_was_asked_for_is_worked_on(world: World) -> None:
    """S1, S5: the poll was under way; given back, its message would have used up an attempt."""
    world.send("a")
    worker = world.worker()
    worker.wait.is_over = True

    worker.lane.step()

    assert (world.effects(), world.left(), world.dead()) == ([("a", 1)], [], [])


def test_s3_a_worker_that_stops_still_gives_back(world: World) -> None:
    """S3: what ends the handlers does not end a release that has to be tried again."""
    world.send("a")
    world.says["a", 1] = [Retry(0)]
    worker = world.worker()
    worker.wait.is_over = True
    worker.line.faults = [Fault(operation="ChangeMessageVisibility", unreachable=True)] * 2

    ended = worker.processor.process(world.receive(worker))

    assert ended == Release(0)
    assert len(worker.line.calls("ChangeMessageVisibility")) == 3
    assert world.receive(worker).receive_count == 2


def worker_of(hands: Hands, stop: Stop, settings: WorkerSettings, *more: Lane) -> Worker:
    """Return a whole worker, with threads, on the machine's clock; with more lanes than the one."""
    parts = replace(hands.parts, lanes=[*hands.parts.lanes, *more], protection=Protection(None, SystemClock()))
    return Worker(parts, settings=settings, stop=stop, clock=SystemClock())


@pytest.mark.parametrize("requests", [True, False], ids=["asks", "does not ask"])
def test_s2_a_worker_ends_in_time_whatever_its_handler_does(on_file: Engine, *, requests: bool) -> None:
    """S2, S3: asked twice, it ends once, gives back what it has, and nothing of that is committed."""
    world = World(on_file)
    world.send("a", "a")
    hands, stop = world.worker(poll_seconds=0), Stop()
    is_in_handler, may_end = threading.Event(), threading.Event()
    ended: list[str] = []

    def lingers(_: Session, __: Event, context: Context) -> Outcome:
        is_in_handler.set()
        while not may_end.wait(0.01):
            if requests:
                context.hold.check()
        ended.append("by itself")
        return Ack()

    world.says["a", 1] = [lingers]
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(worker_of(hands, stop, SETTINGS).run)
        assert is_in_handler.wait(30)
        stop.request()
        stop.request()
        running.result(SETTINGS.drain_seconds + 5)
    given_back = hands.line.calls("ChangeMessageVisibility")
    may_end.set()
    join_lanes()

    assert [call["VisibilityTimeout"] for call in given_back] == [0]
    assert ended == ([] if requests else ["by itself"])
    assert (world.effects(), places(world.left())) == ([], [("a", 1), ("a", 2)])
    assert hands.line.calls("DeleteMessage") == []


def test_s2_a_worker_ends_in_time_though_its_database_does_not_answer_a_commit(on_file: Engine) -> None:
    """S2: what becomes of the commit is open; its message is given back, and the inbox knows it if it came through."""
    world = World(on_file)
    world.send("a")
    hands, stop = world.worker(poll_seconds=0), Stop()
    is_in_commit, may_end = threading.Event(), threading.Event()

    @event.listens_for(on_file, "commit")
    def hangs(_: object) -> None:
        is_in_commit.set()
        assert may_end.wait(30)

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(worker_of(hands, stop, SETTINGS).run)
        assert is_in_commit.wait(30)
        stop.request()
        try:
            running.result(SETTINGS.drain_seconds + 5)
        finally:
            may_end.set()
    join_lanes()

    assert [call["VisibilityTimeout"] for call in hands.line.calls("ChangeMessageVisibility")] == [0]
    assert world.effects() == [("a", 1)]
    world.work_off(world.worker())
    assert world.called == [("a", 1)]


def join_lanes() -> None:
    """Wait for the threads a worker has left behind, which have connections."""
    for thread in threading.enumerate():
        if thread.name.startswith(("lane-", "drain")):
            thread.join(30)


def test_s2_a_worker_finishes_what_it_has_when_there_is_time(on_file: Engine) -> None:
    """S2: the message in the handler is done and deleted; the next one is not begun."""
    world = World(on_file)
    world.send("a", "a")
    hands, stop = world.worker(poll_seconds=0), Stop()

    def requests_the_end(_: Session, __: Event, ___: Context) -> Outcome:
        stop.request()
        return Ack()

    world.says["a", 1] = [requests_the_end]
    worker_of(hands, stop, SETTINGS).run()

    assert (world.effects(), places(world.left())) == ([("a", 1)], [("a", 2)])


def test_a_worker_goes_on_after_an_error_nobody_thought_of(on_file: Engine) -> None:
    """What breaks out of one message's work leaves the lane running; the message comes again by itself."""
    world = World(on_file)
    world.send("a", "b")
    stop = Stop()
    world.says["b", 1] = [lambda *_: stop.request()]
    seen: list[str] = []

    def breaks_once(here: str) -> None:
        seen.append(here)
        if seen == ["after_receive"]:
            raise ZeroDivisionError

    hands = world.worker(poll_seconds=0, failpoint=breaks_once)
    worker_of(hands, stop, SETTINGS).run()

    assert world.effects() == [("b", 1)]
    assert places(world.left()) == [("a", 1)]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_lane_that_is_gone_ends_the_worker(on_file: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that looks alive and does nothing is worse than one that ends: whoever runs it starts another."""
    world = World(on_file)
    hands = world.worker(poll_seconds=0)

    def exits() -> bool:
        raise SystemExit

    monkeypatch.setattr(hands.lane, "step", exits)

    with pytest.raises(OutboxError, match="lane-0 ended by itself"):
        worker_of(hands, Stop(), SETTINGS).run()


def test_a_hold_counts_from_the_poll_that_brought_the_message(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the answer was on its way: its visibility timeout began when SQS handed it out."""
    world.send("a")
    worker = world.worker()
    receive, remaining = worker.queue.receive, []

    def receive_slowly(**named: Any) -> Received | None:
        message = receive(**named)
        world.simulator.advance(12)
        return message

    monkeypatch.setattr(worker.queue, "receive", receive_slowly)
    world.says["a", 1] = [lambda _, __, context: remaining.append(context.hold.remaining_seconds())]

    worker.lane.step()

    assert remaining == [pytest.approx(TIMEOUT_SECONDS - 12, abs=0.1)]
    assert world.effects() == [("a", 1)]


def test_w12_a_lane_that_only_ends_its_message_is_no_handler_that_still_runs(world: World) -> None:
    """W12: between its delete and its leaving the group's next message may come: nothing is lost or logged."""
    world.send("a", "b")
    worker = world.worker()
    ending, following = (
        MessageLease(world.receive(worker), clock=world.clock, timeout_seconds=30, seconds_max=300) for _ in range(2)
    )
    groups = GroupLocks()
    worker.wait.is_over = True  # so that nobody waits here

    with capture_logs() as logged, groups.alone("a", ending, worker.wait):
        ending.finish()
        with groups.alone("a", following, worker.wait) as is_alone:
            assert not is_alone

    ending.check()
    assert logged == []


def test_an_empty_answer_long_before_the_polls_end_is_not_asked_for_again_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy's page with status 200 reads as an empty queue: it would be polled as fast as it answers."""
    worker = world.worker()
    monkeypatch.setattr(worker.queue, "receive", lambda **_: None)

    assert not worker.lane.step()

    assert worker.wait.waits == [0.1]


def test_an_empty_answer_at_the_polls_end_is_what_it_is(world: World) -> None:
    """The next poll begins at once."""
    worker = world.worker()

    assert not worker.lane.step()

    assert worker.wait.waits == []
