"""A message is worked on as long as it is held, and let go of when it is not (L1 to L6, W11, W12)."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import override

import pytest
from sqlalchemy import Connection, Engine
from sqlalchemy.orm import Session

from sluice.clock import SystemClock, eventually
from sluice.messaging.envelope import Event
from sluice.messaging.errors import HoldLostError
from sluice.messaging.handlers import Ack, Context, Outcome, Retry
from sluice.messaging.inbox.admission import Admission, Inbox
from sluice.messaging.inbox.groups import DecodedMessage
from sluice.messaging.worker.processing.acknowledgements import Abandon, Delete
from sluice.messaging.worker.processing.message_lease import MARGIN_SECONDS, Heartbeat, MessageLease
from sluice.messaging.worker.processing.processor import MessageProcessor
from sluice.simulator.hook import Simulator
from tests.support.messaging.broken_workers import CommitsWithoutGate
from tests.support.messaging.faulty_calls import Fault
from tests.support.messaging.worker_threads import MachineClock
from tests.support.messaging.world import TIMEOUT_SECONDS, WorkerParts, World, places

EXTEND = "ChangeMessageVisibilityBatch"
HOUR = 3_600
_STEP_OF_TIMEOUT = 0.225
_PASSED_OF_8_HOURS = round(3 * _STEP_OF_TIMEOUT * 8 * HOUR)


def receive_lease(world: World, worker: WorkerParts, seconds_max: float = 10 * HOUR) -> MessageLease:
    """Receive a message and return its lease."""
    return MessageLease(
        world.receive(worker),
        clock=world.clock,
        timeout_seconds=world.settings.timeout_seconds,
        seconds_max=seconds_max,
    )


def handles(worker: WorkerParts) -> list[list[str]]:
    """Return the receipt handles of each call that extends visibility timeouts."""
    return [[entry["ReceiptHandle"] for entry in call["Entries"]] for call in worker.sqs_calls.of(EXTEND)]


def test_l1_a_renewal_that_failed_is_tried_again_before_the_end(world: World) -> None:
    """Half of the renewals fail, and the handler takes three visibility timeouts; its message is never lost."""
    world.send("a")
    worker = world.worker()

    def takes_long(_: Session, __: Event, context: Context) -> Outcome:
        for beat in range(3 * TIMEOUT_SECONDS):
            if beat % 2:
                worker.sqs_calls.faults = [Fault(operation=EXTEND, unreachable=True)]
            world.simulator.advance(1)
            worker.heartbeat.beat()
            context.hold.check()
        return Ack()

    world.handler_steps["a", 1] = [takes_long]
    worker.lane.step()

    assert world.called_places == [("a", 1)]
    assert world.committed_effects() == [("a", 1)]
    assert world.bodies_in_queue() == []
    assert 6 <= len(worker.sqs_calls.of(EXTEND)) <= 12  # two to four in each visibility timeout


def assert_a_lost_message_is_left_alone(
    world: World, kind: type[MessageProcessor], *, requests: bool, code: str | None
) -> None:
    """L1: a handler loses its message; nothing is committed, deleted or given back, and another worker does it."""
    world.send("a")
    worker = world.worker(kind=kind)

    def loses(_: Session, __: Event, context: Context) -> Outcome:
        if code is None:
            worker.sqs_calls.faults = [Fault(operation=EXTEND, unreachable=True)] * 100
        else:
            handle = worker.heartbeat.leases()[0].message.receipt_handle
            worker.sqs_calls.faults = [Fault(operation=EXTEND, failed={handle: (code, True)})]
        seconds = TIMEOUT_SECONDS + 1 if code is None else TIMEOUT_SECONDS // 2 + 1
        for _second in range(seconds):
            world.simulator.advance(1)
            worker.heartbeat.beat()
        if requests:
            context.hold.check()
            raise AssertionError("it was told that the message is still its own")
        return Ack()

    world.handler_steps["a", 1] = [loses]
    worker.lane.step()

    operations = {operation for operation, _ in worker.sqs_calls.log}
    assert operations == {"ReceiveMessage", EXTEND}
    assert world.committed_effects() == []
    world.work_until_idle(world.worker())
    assert world.committed_effects() == [("a", 1)]


@pytest.mark.parametrize("requests", [True, False], ids=["asks", "does not ask"])
@pytest.mark.parametrize("code", ["ReceiptHandleIsInvalid", None], ids=["refused", "run out"])
def test_l1_a_message_with_a_lost_lease_is_neither_committed_nor_deleted(
    world: World, *, requests: bool, code: str | None
) -> None:
    """SQS refuses the renewal, or none arrives in time; the handler learns of it if it asks."""
    assert_a_lost_message_is_left_alone(world, MessageProcessor, requests=requests, code=code)


def test_l1_a_worker_that_commits_what_it_has_lost_is_caught(world: World) -> None:
    """L1, negative control: the effect would be committed twice, by this worker and by the next."""
    with pytest.raises(AssertionError):
        assert_a_lost_message_is_left_alone(world, CommitsWithoutGate, requests=False, code="ReceiptHandleIsInvalid")


def test_l2_each_lease_of_a_batch_has_its_own_outcome(world: World) -> None:
    """One call extends three leases: one is extended, one is lost, and one fails for the moment and is tried again."""
    world.send("a", "b", "c")
    worker = world.worker()
    kept, lost, shaky = receive_lease(world, worker), receive_lease(world, worker), receive_lease(world, worker)
    failed = {
        lost.message.receipt_handle: ("ReceiptHandleIsInvalid", True),
        shaky.message.receipt_handle: ("InternalError", True),
    }
    worker.sqs_calls.faults = [Fault(operation=EXTEND, failed=failed)]
    heartbeat = worker.heartbeat

    with heartbeat.keeping(kept), heartbeat.keeping(lost), heartbeat.keeping(shaky):
        world.simulator.advance(20)
        heartbeat.beat()
        remaining = [round(lease.remaining_seconds()) for lease in (kept, lost, shaky)]
        heartbeat.beat()
        with pytest.raises(HoldLostError):
            lost.check()
        kept.check()
        shaky.check()

    assert remaining == [TIMEOUT_SECONDS, 0, 10]
    assert handles(worker)[1:] == [[shaky.message.receipt_handle]]
    assert round(shaky.remaining_seconds()) == TIMEOUT_SECONDS


def test_l2_leases_of_a_refused_batch_are_extended_one_by_one(world: World) -> None:
    """SQS refuses the whole call for one bad handle, and does not say which."""
    world.send("a", "b")
    worker = world.worker()
    kept, lost = receive_lease(world, worker), receive_lease(world, worker)
    by_itself = "ChangeMessageVisibility"
    worker.sqs_calls.faults = [Fault(operation=EXTEND, refused="InvalidParameterValue")]

    with worker.heartbeat.keeping(kept), worker.heartbeat.keeping(lost):
        worker.queue.delete(lost.message.receipt_handle)
        world.simulator.advance(20)
        worker.heartbeat.beat()

    assert [round(lease.remaining_seconds()) for lease in (kept, lost)] == [TIMEOUT_SECONDS, 0]
    assert len(worker.sqs_calls.of(by_itself)) == 2


def test_l3_the_lease_of_a_handled_message_is_not_extended(world: World) -> None:
    """Twelve leases need two calls, because SQS allows ten entries in a call.

    After ten messages are handled, one is enough.
    """
    world.send(*"abcdefghijkl")
    worker = world.worker()
    leases = [receive_lease(world, worker) for _ in range(12)]

    with ExitStack() as stack:
        for lease in leases:
            stack.enter_context(worker.heartbeat.keeping(lease))
        world.simulator.advance(20)
        worker.heartbeat.beat()
        for lease in leases[2:]:
            lease.finish()
        world.simulator.advance(20)
        worker.heartbeat.beat()

    in_order = [lease.message.receipt_handle for lease in leases]
    assert handles(worker) == [in_order[:10], in_order[10:], in_order[:2]]
    assert worker.heartbeat.leases() == []


def requested_seconds(worker: WorkerParts) -> list[int]:
    """Return the seconds that each entry of these calls asks for."""
    return [entry["VisibilityTimeout"] for call in worker.sqs_calls.of(EXTEND) for entry in call["Entries"]]


def test_l4_a_message_is_given_up_before_the_queues_longest_visibility(world: World) -> None:
    """SQS hides a message for at most twelve hours after its receive, however often that is extended."""
    other = World(world.engine, consumer="shipping", simulator=world.simulator, timeout_seconds=600)
    other.send("a")
    worker = other.worker()
    lease = receive_lease(other, worker, seconds_max=100 * HOUR)
    elapsed: list[float] = []

    with worker.heartbeat.keeping(lease):
        begun_at = world.clock.monotonic()
        while lease.remaining_seconds() > 0 and len(elapsed) < 1_000:
            elapsed.append(world.clock.monotonic() - begun_at)
            world.simulator.advance(100)
            worker.heartbeat.beat()

    assert 12 * HOUR - 200 <= elapsed[-1] < 12 * HOUR
    assert 0 < min(requested_seconds(worker)) <= max(requested_seconds(worker)) == 600
    with pytest.raises(HoldLostError):
        lease.check()


@pytest.mark.parametrize(
    ("timeout_seconds", "extensions"),
    [(2, [2]), (30, [30]), (7 * HOUR, [7 * HOUR]), (8 * HOUR, [12 * HOUR - _PASSED_OF_8_HOURS - 1]), (12 * HOUR, [])],
    ids=["2 s", "30 s", "7 h", "8 h", "12 h"],
)
def test_l4_a_lease_is_extended_as_far_as_twelve_hours_allow(
    world: World, timeout_seconds: int, extensions: list[int]
) -> None:
    """A lease of twelve hours cannot be extended.

    `extensions` are the seconds asked for in two thirds of the timeout and a little more; a lease keeps 1 s to spare.
    """
    other = World(world.engine, consumer="shipping", simulator=world.simulator, timeout_seconds=timeout_seconds)
    other.send("a")
    worker = other.worker()
    lease = receive_lease(other, worker, seconds_max=100 * HOUR)

    with worker.heartbeat.keeping(lease):
        for _ in range(3):
            world.simulator.advance(timeout_seconds * _STEP_OF_TIMEOUT)
            lease.check()
            worker.heartbeat.beat()

    assert requested_seconds(worker) == extensions


def test_l4_a_delay_ends_with_the_twelve_hours_of_its_receive(world: World) -> None:
    """A handler works for 20 s, then asks for a delay of twelve hours; the worker asks SQS for what is left of them."""
    world.send("a")

    def tarries(_: Session, __: Event, ___: Context) -> Outcome:
        world.simulator.advance(20)
        return Retry(delay_seconds=12 * HOUR)

    world.handler_steps["a", 1] = [tarries]
    worker = world.worker()

    worker.lane.step()
    (change,) = worker.sqs_calls.of("ChangeMessageVisibility")
    world.simulator.advance(change["VisibilityTimeout"] - 1)
    hidden = worker.queue.receive(attempt_id=None, wait_seconds=0)
    world.simulator.advance(2)

    assert 12 * HOUR - 20 - 2 * MARGIN_SECONDS - 1 <= change["VisibilityTimeout"] <= 12 * HOUR - 20 - MARGIN_SECONDS
    assert hidden is None
    assert world.receive(worker).receive_count == 2


def test_l4_a_handler_that_never_ends_is_given_up(world: World) -> None:
    """A lease is extended for ten visibility timeouts at most (`hold_seconds_max`)."""
    world.send("a")
    worker = world.worker()

    def never_ends(_: Session, __: Event, context: Context) -> Outcome:
        for _second in range(20 * TIMEOUT_SECONDS):
            world.simulator.advance(1)
            worker.heartbeat.beat()
            context.hold.check()
        return Ack()

    world.handler_steps["a", 1] = [never_ends]
    began_at = world.clock.monotonic()
    worker.lane.step()

    assert world.committed_effects() == []
    assert world.clock.monotonic() - began_at == pytest.approx(world.settings.hold_seconds_max, abs=2)


@pytest.mark.slow
def test_l5_a_handler_that_lets_nobody_else_run_keeps_its_message(on_postgres: Engine) -> None:
    """One handler sleeps, another computes without releasing the GIL, both for three visibility timeouts."""
    clock = MachineClock()
    world = World(on_postgres, simulator=Simulator(clock), timeout_seconds=2)
    world.send("a", "b")
    has_ended = threading.Event()

    def sleeps(_: Session, __: Event, ___: Context) -> Outcome:
        SystemClock().sleep(6)
        return Ack()

    def computes(_: Session, __: Event, ___: Context) -> Outcome:
        until = clock.monotonic() + 6
        while clock.monotonic() < until:
            sum(range(10_000))
        return Ack()

    def beats() -> None:
        while not has_ended.wait(worker.heartbeat.interval_seconds):
            worker.heartbeat.beat()

    world.handler_steps["a", 1], world.handler_steps["b", 1] = [sleeps], [computes]
    worker = world.worker(poll_seconds=0)
    with ThreadPoolExecutor(3) as pool:
        beating = pool.submit(beats)
        working = [pool.submit(worker.processor.process, world.receive(worker)) for _ in range(2)]
        ends = [future.result(60) for future in working]
        has_ended.set()
        beating.result(10)

    assert ends == [Delete(), Delete()]
    assert [call.attempt for call in world.calls] == [1, 1]
    assert sorted(world.committed_effects()) == [("a", 1), ("b", 1)]
    assert world.bodies_in_queue() == []
    assert len(worker.sqs_calls.of(EXTEND)) >= 4


def test_l6_a_lease_is_not_extended_during_its_messages_delete(world: World) -> None:
    """An extension that arrives after the delete would be refused, and look like a lost message."""
    world.send("a")
    beats: list[int] = []

    def beats_before_delete(here: str) -> None:
        if here in ("before_delete", "after_delete"):
            world.simulator.advance(TIMEOUT_SECONDS * 0.6)
            worker.heartbeat.beat()
            beats.append(len(worker.sqs_calls.of(EXTEND)))

    worker = world.worker(failpoint=beats_before_delete)
    worker.lane.step()

    assert beats == [0, 0]
    assert worker.heartbeat.leases() == []


def test_l6_a_delete_waits_for_a_call_that_extends_its_message(world: World) -> None:
    """Otherwise the extension could arrive after the delete."""
    world.send("a")
    worker = world.worker()
    lease = receive_lease(world, worker)
    is_asking, may_answer = threading.Event(), threading.Event()

    class Slow(Heartbeat):
        """A heartbeat whose call waits until the test lets it go on."""

        @override
        def _renew(self, wanted: list[MessageLease]) -> None:
            is_asking.set()
            assert may_answer.wait(30)
            super()._renew(wanted)

    heartbeat = Slow(worker.queue, timeout_seconds=TIMEOUT_SECONDS, clock=world.clock)
    finished = threading.Event()

    def finishes() -> None:
        lease.finish()
        finished.set()

    with heartbeat.keeping(lease), ThreadPoolExecutor(2) as pool:
        world.simulator.advance(20)
        beating = pool.submit(heartbeat.beat)
        assert is_asking.wait(30)
        finishing = pool.submit(finishes)
        assert not finished.wait(0.1)
        may_answer.set()
        beating.result(30)
        finishing.result(30)
        world.simulator.advance(20)
        heartbeat.beat()

    assert len(worker.sqs_calls.of(EXTEND)) == 1


class WaitsForRow(Inbox):
    """Waits for the row of the group until hardly anything is left of the timeout."""

    def __init__(self, world: World, seconds: float) -> None:
        super().__init__(world.policy, clock=world.clock)
        self._world, self._seconds = world, seconds

    @override
    def admit(self, connection: Connection, arrived: DecodedMessage) -> Admission:
        self._world.simulator.advance(self._seconds)
        return super().admit(connection, arrived)


@pytest.mark.parametrize(
    ("waited", "ending"),
    [(TIMEOUT_SECONDS - 2, Delete()), (TIMEOUT_SECONDS - 0.5, Abandon())],
    ids=["2 s are left", "half a second is left"],
)
def test_w11_no_handler_begins_just_before_its_lease_ends(world: World, waited: float, ending: object) -> None:
    """The message waits for its group's row until 2 s, or half a second, of its visibility timeout are left."""
    world.send("a")
    worker = world.worker(inbox=WaitsForRow(world, waited))

    ended = worker.processor.process(world.receive(worker))

    assert ended == ending
    assert world.committed_effects() == world.called_places == ([("a", 1)] if ending == Delete() else [])


def test_w11_a_lane_receives_a_single_message_at_a_time(world: World) -> None:
    """A second message would spend its visibility timeout waiting for the first."""
    world.send("a", "b")
    worker = world.worker()

    worker.lane.step()

    assert [call["MaxNumberOfMessages"] for call in worker.sqs_calls.of("ReceiveMessage")] == [1]
    assert places(world.bodies_in_queue()) == [("b", 1)]


def receive_again(world: World, *, gives_up: bool) -> tuple[object, object, list[int]]:
    """W12: let a second lane receive a message while the first is still in its handler.

    `gives_up` says whether the first handler ends when its lease does. Return how the first and the second lane ended,
    and the number of handler calls seen inside the first handler.
    """
    world.send("a")
    worker = world.worker()
    is_in_handler, may_end = threading.Event(), threading.Event()
    inside: list[int] = []

    def lingers(_: Session, __: Event, context: Context) -> Outcome:
        inside.append(len(world.calls))
        is_in_handler.set()
        if gives_up:
            eventually(
                lambda: context.hold.remaining_seconds() == 0,
                timeout_seconds=30,
                describe="the lease to be lost",
                clock=SystemClock(),
            )
            inside.append(len(world.calls))
            context.hold.check()
        assert may_end.wait(30)
        return Ack()

    world.handler_steps["a", 1] = [lingers]
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(worker.processor.process, world.receive(worker))
        assert is_in_handler.wait(30)
        world.simulator.advance(world.settings.timeout_seconds + 1)
        # Only its own clock tells the first that its time is over: it is as if that had been extended.
        worker.heartbeat.leases()[0].note_extension(world.clock.monotonic(), HOUR)
        second = pool.submit(worker.processor.process, world.receive(worker))
        if not gives_up:
            eventually(lambda: len(worker.heartbeat.leases()) == 2, timeout_seconds=30, describe="the second to wait")
            world.simulator.advance(world.settings.timeout_seconds + 1)
        ended = second.result(60)
        may_end.set()
        return first.result(60), ended, inside


def test_w12_a_group_received_again_waits_for_its_present_lane(on_file: Engine) -> None:
    """The second lane handles the message after the first has left it, so no two handlers of a group run at once."""
    world = World(on_file)

    first, second, inside = receive_again(world, gives_up=True)

    assert first == Abandon()
    assert second == Delete()
    assert inside == [1, 1]
    assert world.called_places == [("a", 1), ("a", 1)]
    assert world.committed_effects() == [("a", 1)]
    assert world.bodies_in_queue() == []


def test_w12_a_lane_that_does_not_leave_keeps_its_group(on_file: Engine) -> None:
    """The second lane waits for its whole lease, and gives the message up without a call of the handler."""
    world = World(on_file, timeout_seconds=2)

    first, second, inside = receive_again(world, gives_up=False)

    assert first == Abandon()
    assert second == Abandon()
    assert inside == [1]
    assert world.called_places == [("a", 1)]
    assert world.committed_effects() == []
    assert places(world.bodies_in_queue()) == [("a", 1)]
