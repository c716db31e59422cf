"""The checker on random histories: random scripts of calls on the simulator must show no violation."""

import json
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sluice.history.events import HistoryEvent, Kind
from sluice.judge.checker import Expectation, Finding
from sluice.recorder.journal import Journal, events_of, read_journal
from sluice.recorder.recorder import Recorder
from sluice.simulator.hook import Simulator
from tests.support.histories.builders import shift_event
from tests.support.histories.recorded_services import (
    RECEIVES_MAX,
    VISIBILITY_SECONDS,
    create_queue,
    findings,
    queue_arn,
    subscribe,
)

RUN = "simulated"
QUEUES = ("billing.fifo", "shipping.fifo")
GROUPS = ("a", "b")
_ROUNDS_MAX = 200
_EXPECTATION = Expectation(
    run=RUN,
    queues=QUEUES,
    visibility_timeout_seconds=dict.fromkeys(QUEUES, VISIBILITY_SECONDS),
    dead_letter_queues={queue: f"dead-{queue}" for queue in QUEUES},
    max_receive_count=dict.fromkeys(QUEUES, RECEIVES_MAX),
    stuck_seconds_max=60,
)

type ConsumerStep = Callable[["_Life"], None]


class _Life:
    """A topic, two queues with DLQs on the simulator, and the record of all calls."""

    def __init__(self, folder: Path, *, is_raw: bool = True) -> None:
        self.simulator = Simulator()
        self.sns, self.sqs = self.simulator.client("sns"), self.simulator.client("sqs")
        self.urls: dict[str, str] = {}
        topic = self.sns.create_topic(Name="events.fifo", Attributes={"FifoTopic": "true"})["TopicArn"]
        for queue in QUEUES:
            dead = f"dead-{queue}"
            self.urls[dead] = create_queue(self.sqs, dead)
            self.urls[queue] = create_queue(self.sqs, queue, dead_letter_url=self.urls[dead])
            subscribe(self.sns, self.sqs, topic_arn=topic, url=self.urls[queue], is_raw=is_raw)
        self.topic, self.held, self.idx = topic, defaultdict[str, list[str]](list), 0
        common = {"run": RUN, "worker": "w", "clock_id": "c"}
        self.journal = Journal(folder, "w", common=common, clock=self.simulator.clock)
        recorder = Recorder(
            self.journal,
            names={url: name for name, url in self.urls.items()} | {topic: "events.fifo"},
            clock=self.simulator.clock,
        )
        for client in (self.sns, self.sqs):
            recorder.attach(client)

    def publish(self, group: str, idx: int) -> None:
        self.sns.publish(
            TopicArn=self.topic,
            Message=json.dumps({"run": RUN, "group": group, "idx": idx}),
            MessageGroupId=group,
            MessageDeduplicationId=f"{RUN}.{idx}",
            MessageAttributes={"type": {"DataType": "String", "StringValue": "order"}},
        )

    def receive(self, queue: str, *, count: int = 10, wait_seconds: int = 0) -> list[str]:
        answer = self.sqs.receive_message(
            QueueUrl=self.urls[queue],
            MaxNumberOfMessages=count,
            WaitTimeSeconds=wait_seconds,
            MessageSystemAttributeNames=["All"],
            MessageAttributeNames=["All"],
        )
        return [message["ReceiptHandle"] for message in answer.get("Messages", [])]

    def delete(self, queue: str, handles: Iterable[str]) -> None:
        for handle in handles:
            try:
                self.sqs.delete_message(QueueUrl=self.urls[queue], ReceiptHandle=handle)
            except self.sqs.exceptions.ClientError:
                return  # its time was over

    def give_back(self, queue: str, handle: str, *, seconds: int) -> None:
        try:
            self.sqs.change_message_visibility(
                QueueUrl=self.urls[queue], ReceiptHandle=handle, VisibilityTimeout=seconds
            )
        except self.sqs.exceptions.ClientError:
            return

    def work_until_idle(self, queue: str) -> None:
        """Receive and delete until no message arrives for longer than any lease."""
        quiet = 0
        for _ in range(_ROUNDS_MAX):
            handles = self.receive(queue, wait_seconds=20)
            self.delete(queue, handles)
            quiet = 0 if handles else quiet + 1
            if quiet > VISIBILITY_SECONDS * 2 // 20 + 1:
                return
        raise AssertionError(f"{queue} was not empty after {_ROUNDS_MAX} receives")

    def bring_back(self, queue: str) -> None:
        """Look at the dead letters, start a move task, and see that it is over."""
        dead = f"dead-{queue}"
        self.receive(dead)
        self.simulator.advance(VISIBILITY_SECONDS + 1)
        arn = queue_arn(self.sqs, self.urls[dead])
        assert self.sqs.start_message_move_task(SourceArn=arn)["TaskHandle"]
        self.simulator.advance(60)
        self.sqs.list_message_move_tasks(SourceArn=arn)

    def events(self) -> list[HistoryEvent]:
        self.journal.close()
        return events_of(read_journal(self.journal.path))


def _publish(group: str) -> ConsumerStep:
    def step(life: _Life) -> None:
        life.publish(group, life.idx)
        life.idx += 1

    return step


def _repeat(group: str) -> ConsumerStep:
    """Publish the newest message of a group again; its deduplication id may be in the window of its own group only."""

    def step(life: _Life) -> None:
        if life.idx:
            life.publish(group, life.idx)
            life.publish(group, life.idx)
            life.idx += 1

    return step


def _receive(queue: str, count: int) -> ConsumerStep:
    def step(life: _Life) -> None:
        life.held[queue] += life.receive(queue, count=count)

    return step


def _delete(queue: str) -> ConsumerStep:
    def step(life: _Life) -> None:
        if life.held[queue]:
            life.delete(queue, [life.held[queue].pop(0)])

    return step


def _give_back(queue: str, seconds: int) -> ConsumerStep:
    def step(life: _Life) -> None:
        if life.held[queue]:
            life.give_back(queue, life.held[queue].pop(), seconds=seconds)

    return step


def _wait(seconds: float) -> ConsumerStep:
    return lambda life: life.simulator.advance(seconds)


_QUEUE, _GROUP = st.sampled_from(QUEUES), st.sampled_from(GROUPS)
_STEPS: st.SearchStrategy[ConsumerStep] = st.one_of(
    st.builds(_publish, _GROUP),
    st.builds(_repeat, _GROUP),
    st.builds(_receive, _QUEUE, st.sampled_from([1, 3, 10])),
    st.builds(_delete, _QUEUE),
    st.builds(_give_back, _QUEUE, st.sampled_from([0, 5, 60])),
    st.builds(_wait, st.sampled_from([0.5, 5.0, 31.0])),
)


def _live(steps: Iterable[ConsumerStep], *, brings_back: bool = False, is_raw: bool = True) -> list[HistoryEvent]:
    """Return the settled history of a random script.

    At its end, each group has an end marker and each queue is empty.
    """
    with tempfile.TemporaryDirectory() as folder:
        life = _Life(Path(folder), is_raw=is_raw)
        for step in steps:
            step(life)
        for number, group in enumerate(GROUPS):
            life.publish(group, -1 - number)
        for queue in QUEUES:
            life.work_until_idle(queue)
            if brings_back:
                life.bring_back(queue)
                life.work_until_idle(queue)
            life.work_until_idle(f"dead-{queue}")
        return life.events()


def _judge(events: list[HistoryEvent]) -> dict[str, Finding]:
    assert any(event.kind == Kind.POLL for event in events), "polls are on record"
    return findings(events, _EXPECTATION)


_LIVES: dict[str, Any] = {"steps": st.lists(_STEPS, min_size=3, max_size=40), "brings_back": st.booleans()}
_PATIENT: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}


@settings(max_examples=12, **_PATIENT)  # the deep test below looks further
@given(**_LIVES)
def test_histories_of_the_simulator_show_no_anomaly(*, steps: list[ConsumerStep], brings_back: bool) -> None:
    """Lost answers, ended leases, repeats, dead letters and redrives are lawful, and leave no question open."""
    _assert_lawful(steps, brings_back=brings_back)


@pytest.mark.deep
@settings(max_examples=500, **_PATIENT)
@given(**_LIVES)
def test_many_histories_of_the_simulator_show_no_anomaly(*, steps: list[ConsumerStep], brings_back: bool) -> None:
    _assert_lawful(steps, brings_back=brings_back)


def _assert_lawful(steps: list[ConsumerStep], *, brings_back: bool) -> None:
    found = _judge(_live(steps, brings_back=brings_back))

    assert {group: (finding.violations, finding.unknowns) for group, finding in found.items()} == dict.fromkeys(
        GROUPS, ((), ())
    )


# --- changed afterwards -----------------------------------------------------------------------------------------------


def _is_receive(event: HistoryEvent, idx: int) -> bool:
    return (event.kind, event.idx, event.queue) == (Kind.RECEIVED, idx, QUEUES[0])


def test_a_foreign_message_is_no_anomaly_of_its_group() -> None:
    """`check_run` judges messages of another run; as one of this run, the message would be a second copy."""
    events = _live([*[_publish("a")] * 5, _wait(2), _receive(QUEUES[0], 1), _delete(QUEUES[0])])
    copies = [
        replace(shift_event(event, 100_000_000), call_id="later", sqs_message_id="theirs")
        for event in events
        if _is_receive(event, 2)
    ]
    foreign = [replace(event, message_run="older") for event in copies]

    assert _judge([*events, *foreign])["a"].violations == ()
    assert "B1" in {violation.anomaly for violation in _judge([*events, *copies])["a"].violations}


def test_an_envelope_is_looked_into_and_must_name_its_message() -> None:
    wrapped = _live([_publish("a")] * 3, is_raw=False)
    stray = [replace(event, sns_message_id="other") if _is_receive(event, 1) else event for event in wrapped]

    assert {event.sns_message_id is None for event in wrapped if event.kind == Kind.RECEIVED} == {False}
    assert _judge(wrapped)["a"].violations == ()
    assert [violation.anomaly for violation in _judge(stray)["a"].violations] == ["G4"]
