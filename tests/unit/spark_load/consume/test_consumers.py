"""Raw consumers and readers of dead letters work on the simulator, whose clock moves only when they wait."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, override

import pytest
from botocore.exceptions import ReadTimeoutError

from sluice.clock import NotReachedError
from sluice.history.events import HistoryEvent, Kind
from sluice.judge.checker import Expectation, Finding
from sluice.recorder.journal import Journal, events_of, read_journal
from sluice.recorder.recorder import Recorder
from sluice.saboteurs import sabotage
from sluice.simulator.hook import Simulator
from sluice.simulator.model import AwsRefusal
from spark_load.consume.dead_letters import DeadLetters
from spark_load.consume.job import ConsumerTask, messages_per_receive
from spark_load.plan.plan import Plan
from spark_load.profiles.profile import Profile
from spark_load.runtime.coordinator import RunStep
from spark_load.runtime.deployment import LoadDeployment
from spark_load.runtime.task_context import LoadRun, TaskContext
from tests.support.histories.recorded_services import (
    RECEIVES_MAX,
    VISIBILITY_SECONDS,
    create_queue,
    findings,
    queue_arn,
)

RUN, QUEUE, DEAD, UNDELIVERED = "run-1", "billing.fifo", "billing-dlq.fifo", "billing-undelivered-dlq.fifo"
_OUTCOMES = {"poison", "fails", "crashes"}
_PROFILE = Profile(messages_per_second=1, duration_seconds=100, group_count=2)


class _PlannedOutcomes(Plan):
    """A plan in which a test says which messages fail, crash their consumer, or are poison."""

    poison: tuple[int, ...] = ()
    fails: tuple[int, ...] = ()
    crashes: tuple[int, ...] = ()

    @override
    def is_poison(self, idx: int) -> bool:
        return idx in self.poison

    @override
    def fails_first(self, idx: int) -> bool:
        return idx in self.fails

    @override
    def crashes_first(self, idx: int) -> bool:
        return idx in self.crashes


class _Lossy(Simulator):
    """A client whose answers are lost, or replaced by a refusal, for the calls that a test names."""

    def __init__(self) -> None:
        super().__init__()
        self.loses: list[str] = []
        self.refuses: list[str] = []

    @override
    def _answer(self, service: str, operation: str, params: dict[str, Any]) -> dict[str, Any] | AwsRefusal:
        if operation in self.refuses:
            self.refuses.remove(operation)
            return AwsRefusal("ThrottlingException", "Rate exceeded")
        answered = super()._answer(service, operation, params)
        if operation in self.loses:
            self.loses.remove(operation)
            raise ReadTimeoutError(endpoint_url="http://simulator.invalid")
        return answered


@dataclass
class _SimulatedConsumer:
    """A queue with its DLQs, a consumer of it, and the consumer's journal."""

    simulator: _Lossy
    sqs: Any
    context: TaskContext
    run: LoadRun

    def send(self, idx: int, group: str = "a", run: str = RUN) -> None:
        self.sqs.send_message(
            QueueUrl=self.run.deployment.queue_urls[QUEUE],
            MessageBody=json.dumps({"run": run, "group": group, "idx": idx}),
            MessageGroupId=group,
            MessageDeduplicationId=f"{run}.{idx}",
        )

    def consume(self, polls: int) -> None:
        task = ConsumerTask(self.context, self.run, QUEUE)
        for _ in range(polls):
            task.poll()

    def take_profile(self, **changes: Any) -> None:
        """Use another profile, and other messages that fail, crash their consumer, or are poison."""
        fields = {name: value for name, value in changes.items() if name not in _OUTCOMES}
        plan = _PlannedOutcomes(replace(_PROFILE, **fields), seed=1)
        for name in _OUTCOMES & changes.keys():
            object.__setattr__(plan, name, changes[name])
        self.run = replace(self.run, plan=plan)

    def events(self) -> list[HistoryEvent]:
        self.context.journal.flush()
        return events_of(read_journal(self.context.journal.path))

    def recorded_events(self, *kinds: Kind) -> list[str]:
        """Return (kind, idx) of each recorded event, in the order of the answers."""
        events = [event for event in self.events() if event.kind in kinds]
        return [f"{event.kind} {event.idx}" for event in sorted(events, key=lambda event: event.responded_at_us or 0)]

    def judge(self) -> dict[str, Finding]:
        """Return the checker's finding in each group."""
        expectation = Expectation(
            run=RUN,
            queues=(QUEUE,),
            visibility_timeout_seconds={QUEUE: VISIBILITY_SECONDS},
            dead_letter_queues={QUEUE: DEAD},
            subscription_dead_letter_queues={QUEUE: UNDELIVERED},
            max_receive_count={QUEUE: RECEIVES_MAX},
            effects_recorded=(QUEUE,),
        )
        return findings(self.events(), expectation)


@pytest.fixture
def consumer(tmp_path: Path) -> Iterator[_SimulatedConsumer]:
    """Yield a raw consumer of a simulated queue, and its journal."""
    simulator = _Lossy()
    sqs: Any = simulator.client("sqs")
    further_urls = {name: create_queue(sqs, name) for name in (DEAD, UNDELIVERED)}
    urls = {**further_urls, QUEUE: create_queue(sqs, QUEUE, dead_letter_url=further_urls[DEAD])}
    deployment = LoadDeployment(
        endpoint_url="http://simulator.invalid",
        region="us-east-1",
        topic_arn="",
        topic="",
        queue_urls={QUEUE: urls[QUEUE]},
        dead_letter_queues={QUEUE: DEAD},
        visibility_timeout_seconds={QUEUE: VISIBILITY_SECONDS},
        max_receive_count={QUEUE: RECEIVES_MAX},
        undelivered_queues={QUEUE: UNDELIVERED},
        further_urls=further_urls,
        arns={name: queue_arn(sqs, url) for name, url in urls.items()},
    )
    plan = _PlannedOutcomes(_PROFILE, seed=1)
    run = LoadRun(id=RUN, folder=tmp_path, deployment=deployment, plan=plan, clock_id="c", clock_offset_us=0)
    common = {"run": RUN, "worker": "consume-0", "clock_id": "c"}
    with Journal(tmp_path, "consume-0", common=common, clock=simulator.clock) as journal:
        recorder = Recorder(journal, names=deployment.names(), clock=simulator.clock)
        recorder.attach(sqs)
        context = TaskContext(
            None, sqs, recorder, journal, run.coordinator(simulator.clock), simulator.clock, "consume-0"
        )
        yield _SimulatedConsumer(simulator, sqs, context, run)


def _is_sane(consumer: _SimulatedConsumer) -> bool:
    """Return whether the judge finds neither a violation nor anything unknown."""
    return all(not found.violations and not found.unknowns for found in consumer.judge().values())


def test_a_handled_message_is_recorded_before_its_delete(consumer: _SimulatedConsumer) -> None:
    """Otherwise a consumer that dies in between would look as if it had deleted a message unhandled.

    The end marker (-1) is only deleted.
    """
    consumer.take_profile(handler_seconds=0.5)
    for idx in (0, 1, -1):
        consumer.send(idx)

    consumer.consume(1)

    handled = [event for event in consumer.events() if event.kind == Kind.HANDLED]
    assert consumer.recorded_events(Kind.HANDLED, Kind.DELETED) == [
        "handled 0",
        "handled 1",
        "deleted 0",
        "deleted 1",
        "deleted -1",
    ]
    assert [(event.responded_at_us or 0) - (event.invoked_at_us or 0) for event in handled] == [500_000, 500_000]
    assert _is_sane(consumer)


def test_a_failed_message_is_given_back_and_returns_before_its_successor(consumer: _SimulatedConsumer) -> None:
    """A profile with failures receives one message at a time, so no message behind the failed one is in flight."""
    consumer.take_profile(fails=(0,), failure_share=0.5)
    for idx in (0, 1, -1):
        consumer.send(idx)

    consumer.consume(4)

    assert consumer.recorded_events(Kind.RECEIVED, Kind.VISIBILITY_CHANGED, Kind.HANDLED) == [
        "received 0",
        "visibility_changed 0",
        "received 0",
        "handled 0",
        "received 1",
        "handled 1",
        "received -1",
    ]
    assert _is_sane(consumer)


def test_a_crashed_consumer_holds_its_group_until_the_lease_has_run_out(consumer: _SimulatedConsumer) -> None:
    """The crash leaves message a0 hidden for 7 s. Group b is handled meanwhile, and a1 after a0."""
    consumer.take_profile(crashes=(0,), crash_share=0.5, visibility_timeout_seconds=7)
    consumer.send(0, "a")
    consumer.send(1, "a")
    consumer.send(2, "b")

    consumer.consume(12)

    received = {}
    for event in consumer.events():
        if event.kind == Kind.RECEIVED:
            received[event.idx, event.receive_count] = event.responded_at_us or 0
    waited_seconds = (received[0, 2] - received[0, 1]) / 1e6
    assert consumer.recorded_events(Kind.HANDLED) == ["handled 2", "handled 0", "handled 1"]
    assert 7 <= waited_seconds < 8.5
    assert _is_sane(consumer)


def test_a_poisoned_message_ends_in_the_dlq_and_its_group_goes_on(consumer: _SimulatedConsumer) -> None:
    """It fails at each of its receives; then its successors arrive, each at its first receive."""
    consumer.take_profile(poison=(1,), poison_share=0.5)
    for idx in (0, 1, 2, -1):
        consumer.send(idx)

    consumer.consume(8)
    found = DeadLetters(consumer.context, consumer.run).read(keeps=False)

    received = [event for event in consumer.events() if event.kind == Kind.RECEIVED]
    assert [(event.idx, event.receive_count) for event in received] == [
        *((0, 1), (1, 1), (1, 2), (1, 3), (2, 1), (-1, 1)),
        (1, 4),
    ]
    assert [event.queue for event in received] == [QUEUE] * 6 + [DEAD]
    assert found == {DEAD: 1, UNDELIVERED: 0}
    assert _is_sane(consumer)


def _attempt_ids(consumer: _SimulatedConsumer) -> list[str | None]:
    """Return the attempt id of each receive, in order."""
    polls = [event for event in consumer.events() if event.kind == Kind.POLL]
    return [event.receive_request_attempt_id for event in polls]


def test_a_receive_without_an_answer_is_asked_again_with_its_attempt_id(consumer: _SimulatedConsumer) -> None:
    """The repeat returns the same message at its first receive; otherwise it would be hidden for half a minute."""
    consumer.send(0)
    consumer.simulator.loses = ["ReceiveMessage"]

    consumer.consume(3)

    ids = _attempt_ids(consumer)
    (received,) = [event for event in consumer.events() if event.kind == Kind.RECEIVED]
    assert ids[0] == ids[1] != ids[2]
    assert received.receive_count == 1
    assert consumer.recorded_events(Kind.HANDLED) == ["handled 0"]


def test_an_attempt_id_is_used_twice_and_not_three_times(consumer: _SimulatedConsumer) -> None:
    """By the time of a third receive, the messages may belong to another consumer."""
    consumer.simulator.loses = ["ReceiveMessage", "ReceiveMessage"]

    consumer.consume(3)

    ids = _attempt_ids(consumer)
    assert ids[0] == ids[1] != ids[2]


def test_a_receive_after_a_refused_one_has_a_new_attempt_id(consumer: _SimulatedConsumer) -> None:
    """A refusal is an answer, so there is none to ask for again."""
    consumer.simulator.refuses = ["ReceiveMessage"]

    consumer.consume(2)

    first, second = _attempt_ids(consumer)
    assert first != second


def test_a_delete_that_is_refused_is_tried_again(consumer: _SimulatedConsumer) -> None:
    """Otherwise the message would be received again, and a consumer without an inbox would handle it twice."""
    consumer.send(0)
    consumer.simulator.refuses = ["DeleteMessageBatch"]

    consumer.consume(2)
    consumer.simulator.advance(VISIBILITY_SECONDS + 1)
    consumer.consume(1)

    assert consumer.recorded_events(Kind.HANDLED) == ["handled 0"]


def test_a_message_of_another_run_is_neither_handled_nor_deleted(consumer: _SimulatedConsumer) -> None:
    """The queue may be shared; the message comes again after its visibility timeout."""
    consumer.send(0, run="theirs")

    consumer.consume(2)
    consumer.simulator.advance(VISIBILITY_SECONDS + 1)
    left = consumer.sqs.receive_message(QueueUrl=consumer.run.deployment.queue_urls[QUEUE])["Messages"]

    assert len(left) == 1
    assert consumer.recorded_events(Kind.HANDLED, Kind.DELETED, Kind.VISIBILITY_CHANGED) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 10),
        ({"failure_share": 0.1}, 1),
        ({"crash_share": 0.1}, 1),
        ({"poison_share": 0.1}, 1),
        ({"handler_seconds": 0.1}, 10),
        ({"handler_seconds": 3}, 5),
        ({"handler_seconds": 3, "visibility_timeout_seconds": 12}, 2),
        ({"handler_seconds": 20}, 1),
    ],
)
def test_a_receive_asks_for_what_can_be_handled_in_time(changes: dict[str, Any], expected: int) -> None:
    """Half a lease of 30 s is enough for five messages of 3 s; with failures, a receive asks for one."""
    profile = replace(_PROFILE, **changes)

    assert messages_per_receive(profile, visibility_timeout_seconds=VISIBILITY_SECONDS) == expected


# --- dead letters ----------------------------------------------------------------------------------------------------


def _poison(consumer: _SimulatedConsumer) -> DeadLetters:
    """Consume group a until messages 0 and 2, which fail at every attempt, are in the DLQ; return the DLQ's reader.

    The other messages are handled. Number -1 is the group's end marker.
    """
    consumer.take_profile(poison=(0, 2), poison_share=0.5, redrive=True)
    for idx in (0, 1, 2, 3, -1):
        consumer.send(idx)
    consumer.consume(12)
    return DeadLetters(consumer.context, consumer.run)


def test_dead_letters_are_read_moved_back_and_handled_then(consumer: _SimulatedConsumer) -> None:
    """The DLQ is read first: a move task reports only a number of messages, and the judge must know which."""
    dead_letters = _poison(consumer)

    found = dead_letters.read(keeps=True)
    consumer.context.coordinator.reach(RunStep.REDRIVEN)
    moved = dead_letters.bring_back([queue for queue, count in found.items() if count])
    consumer.consume(3)
    again = dead_letters.read(keeps=False)
    is_empty = dead_letters.probe()

    (redriven,) = [event for event in consumer.events() if event.kind == Kind.REDRIVEN]
    assert found[DEAD] == 2
    assert moved == 2
    assert again[DEAD] == 0
    assert is_empty is True
    assert redriven.queue == DEAD
    assert redriven.outcome == "ok"
    assert redriven.moved_count == 2
    assert json.loads(redriven.detail or "") == {"destination": None}
    assert consumer.recorded_events(Kind.HANDLED) == ["handled 1", "handled 3", "handled 0", "handled 2"]
    assert _is_sane(consumer)


def test_nothing_is_brought_back_from_an_empty_dlq(consumer: _SimulatedConsumer) -> None:
    """The judge would have to consider a move task of an empty DLQ, too, so none is started."""
    dead_letters = _poison(consumer)

    assert dead_letters.bring_back([]) == 0
    assert [event for event in consumer.events() if event.kind == Kind.REDRIVEN] == []


@pytest.mark.parametrize(("is_lost", "shows"), [(False, set()), (True, {"F8"})])
def test_messages_lost_by_a_move_task_are_found(
    consumer: _SimulatedConsumer, shows: set[str], *, is_lost: bool
) -> None:
    """The first reading found the messages, and later probes find both queues empty: so they are lost.

    A purge that was recorded is no loss, one that nobody recorded is.
    """
    dead_letters = _poison(consumer)
    dead_letters.bring_back([queue for queue, count in dead_letters.read(keeps=True).items() if count])
    consumer.context.coordinator.reach(RunStep.REDRIVEN)
    if is_lost:
        consumer.simulator.client("sqs").purge_queue(QueueUrl=consumer.run.deployment.urls[QUEUE])

    consumer.consume(3)
    dead_letters.read(keeps=False)
    dead_letters.probe()

    assert {violation.anomaly for violation in consumer.judge()["a"].violations} == shows


def test_a_move_task_that_does_not_end_well_is_no_move(consumer: _SimulatedConsumer) -> None:
    """It is recorded with an unknown outcome, so it excuses no message, and the run reports it."""
    dead_letters = _poison(consumer)
    sabotage((consumer.sqs,), "ignore-move-task")
    dead_letters.read(keeps=True)

    with pytest.raises(NotReachedError, match=r"the move task of billing-dlq\.fifo ended as NOT_LISTED \(no reason\)"):
        dead_letters.bring_back([DEAD])

    (redriven,) = [event for event in consumer.events() if event.kind == Kind.REDRIVEN]
    assert redriven.outcome == "info"
    assert redriven.responded_at_us is None


def test_a_queue_with_a_message_in_it_is_not_called_empty(consumer: _SimulatedConsumer) -> None:
    """The probe, a request for the queue's counts, is recorded."""
    consumer.send(0)

    assert not DeadLetters(consumer.context, consumer.run).probe()

    seen = {event.visible_count for event in consumer.events() if event.kind == Kind.PROBE and event.queue == QUEUE}
    assert seen == {1}


def test_a_dead_letter_of_another_run_is_not_read(consumer: _SimulatedConsumer) -> None:
    url = consumer.run.deployment.urls[UNDELIVERED]
    consumer.sqs.send_message(QueueUrl=url, MessageBody="theirs", MessageGroupId="g", MessageDeduplicationId="theirs")

    found = DeadLetters(consumer.context, consumer.run).read(keeps=False)

    assert found == {DEAD: 0, UNDELIVERED: 0}
    assert consumer.sqs.receive_message(QueueUrl=url)["Messages"][0]["Body"] == "theirs"
