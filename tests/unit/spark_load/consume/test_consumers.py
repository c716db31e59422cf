"""What raw consumers and the readers of dead letters do, on the simulator: time passes only when they wait."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ReadTimeoutError

from sluice.clock import NotReached
from sluice.history.checker import Expectation, Finding, check_group, queue_context
from sluice.history.events import Event, Kind
from sluice.recorder.journal import Journal, events_of, read_journal
from sluice.recorder.recorder import Recorder
from sluice.saboteurs import sabotage
from sluice.simulator.hook import Simulator
from sluice.simulator.model import Refusal
from spark_load.consume.dead_letters import DeadLetters
from spark_load.consume.job import Consumer
from spark_load.consume.simulated_outcomes import messages_per_receive
from spark_load.plan.plan import Plan
from spark_load.profiles.profile import Profile
from spark_load.runtime.deployment import Deployment
from spark_load.runtime.task_context import Run, TaskContext

RUN, QUEUE, DEAD, UNDELIVERED = "run-1", "billing.fifo", "billing-dlq.fifo", "billing-undelivered-dlq.fifo"
_VISIBILITY_SECONDS, _RECEIVES_MAX = 30, 3
_PROFILE = Profile(messages_per_second=1, duration_seconds=100, group_count=2)


class _Fated(Plan):
    """A plan whose messages' fate is written in the test."""

    poison: tuple[int, ...] = ()
    fails: tuple[int, ...] = ()
    crashes: tuple[int, ...] = ()

    def is_poison(self, idx: int) -> bool:
        return idx in self.poison

    def fails_first(self, idx: int) -> bool:
        return idx in self.fails

    def crashes_first(self, idx: int) -> bool:
        return idx in self.crashes


class _Lossy(Simulator):
    """Loses, or refuses, the answers of the calls it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.loses: list[str] = []
        self.refuses: list[str] = []

    def _answer(self, service: str, operation: str, params: dict[str, Any]) -> dict[str, Any] | Refusal:
        if operation in self.refuses:
            self.refuses.remove(operation)
            return Refusal("ThrottlingException", "Rate exceeded")
        answered = super()._answer(service, operation, params)
        if operation in self.loses:
            self.loses.remove(operation)
            raise ReadTimeoutError(endpoint_url="http://simulator.invalid")
        return answered


@dataclass
class _Place:
    """A queue with its DLQs, one consumer's desk, and what is written down there."""

    simulator: _Lossy
    sqs: Any
    context: TaskContext
    run: Run
    plan: _Fated

    def send(self, idx: int, group: str = "a", run: str = RUN) -> None:
        self.sqs.send_message(
            QueueUrl=self.run.deployment.queue_urls[QUEUE],
            MessageBody=json.dumps({"run": run, "group": group, "idx": idx}),
            MessageGroupId=group,
            MessageDeduplicationId=f"{run}.{idx}",
        )

    def consumer(self) -> Consumer:
        return Consumer(self.context, self.run, QUEUE)

    def consume(self, polls: int) -> None:
        consumer = self.consumer()
        for _ in range(polls):
            consumer.poll()

    def profiled(self, **changes: Any) -> None:
        self.plan = _fated(replace(self.plan.profile, **changes), self.plan)
        self.run = replace(self.run, plan=self.plan)

    def events(self) -> list[Event]:
        self.context.journal.flush()
        return events_of(read_journal(self.context.journal.path))

    def recorded(self, *kinds: Kind) -> list[tuple[str, int | None]]:
        """Return (kind, idx) of what happened, in order of the answers."""
        events = [event for event in self.events() if event.kind in kinds]
        return [(event.kind, event.idx) for event in sorted(events, key=lambda event: event.responded_at_us or 0)]

    def judged(self) -> dict[str, Finding]:
        """Return what the checker says of each group."""
        of_group: dict[str | None, list[Event]] = {}
        for event in self.events():
            of_group.setdefault(event.message_group_id, []).append(event)
        around = queue_context(of_group.pop(None))
        expectation = Expectation(
            run=RUN,
            queues=(QUEUE,),
            visibility_timeout_seconds={QUEUE: _VISIBILITY_SECONDS},
            dead_letter_queues={QUEUE: DEAD},
            subscription_dead_letter_queues={QUEUE: UNDELIVERED},
            max_receive_count={QUEUE: _RECEIVES_MAX},
            effects_recorded=(QUEUE,),
        )
        return {str(group): check_group(events, expectation, around) for group, events in of_group.items()}


def _fated(profile: Profile, like: _Fated | None = None) -> _Fated:
    plan = _Fated(profile, seed=1)
    for outcome_name in ("poison", "fails", "crashes"):
        object.__setattr__(plan, outcome_name, getattr(like, outcome_name, ()))
    return plan


@pytest.fixture
def place(tmp_path: Path) -> Iterator[_Place]:
    """Yield a place nothing is wrong with."""
    simulator = _Lossy()
    sqs: Any = simulator.client("sqs")
    made = {name: sqs.create_queue(QueueName=name, Attributes={"FifoQueue": "true"}) for name in (DEAD, UNDELIVERED)}
    urls = {name: answer["QueueUrl"] for name, answer in made.items()}
    arns = {name: _arn(sqs, url) for name, url in urls.items()}
    policy = json.dumps({"deadLetterTargetArn": arns[DEAD], "maxReceiveCount": _RECEIVES_MAX})
    attributes = {"FifoQueue": "true", "RedrivePolicy": policy, "VisibilityTimeout": str(_VISIBILITY_SECONDS)}
    url = sqs.create_queue(QueueName=QUEUE, Attributes=attributes)["QueueUrl"]
    deployment = Deployment(
        endpoint_url="http://simulator.invalid",
        region="us-east-1",
        topic_arn="",
        topic="",
        queue_urls={QUEUE: url},
        dead_letter_queues={QUEUE: DEAD},
        visibility_timeout_seconds={QUEUE: _VISIBILITY_SECONDS},
        max_receive_count={QUEUE: _RECEIVES_MAX},
        undelivered_queues={QUEUE: UNDELIVERED},
        further_urls=urls,
        arns=arns | {QUEUE: _arn(sqs, url)},
    )
    plan = _fated(_PROFILE)
    run = Run(id=RUN, folder=tmp_path, deployment=deployment, plan=plan, clock_id="c", clock_offset_us=0)
    common = {"run": RUN, "worker": "consume-0", "clock_id": "c"}
    with Journal(tmp_path, "consume-0", common=common, clock=simulator.clock) as journal:
        recorder = Recorder(journal, names=deployment.names(), clock=simulator.clock)
        recorder.attach(sqs)
        context = TaskContext(
            None, sqs, recorder, journal, run.coordinator(simulator.clock), simulator.clock, "consume-0"
        )
        yield _Place(simulator, sqs, context, run, plan)


def _arn(sqs: Any, url: str) -> str:
    return str(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"])


def _is_sane(place: _Place) -> bool:
    return all(not found.violations and not found.unknowns for found in place.judged().values())


def test_what_is_handled_is_written_down_before_it_is_deleted(place: _Place) -> None:
    """Ten at once, each handled for its time, then one call deletes them; end markers have no effect."""
    place.profiled(handler_seconds=0.5)
    for idx in (0, 1, -1):
        place.send(idx)

    place.consume(1)

    handled = [event for event in place.events() if event.kind == Kind.HANDLED]
    assert place.recorded(Kind.HANDLED, Kind.DELETED) == [
        ("handled", 0),
        ("handled", 1),
        ("deleted", 0),
        ("deleted", 1),
        ("deleted", -1),
    ]
    assert [(event.responded_at_us or 0) - (event.invoked_at_us or 0) for event in handled] == [500_000, 500_000]
    assert _is_sane(place)


def test_a_message_that_fails_is_given_back_and_comes_again_before_its_successor(place: _Place) -> None:
    """One at a time where something is to fail: nothing behind it is held, and nothing overtakes it."""
    place.plan.fails = (0,)
    place.profiled(failure_share=0.5)
    for idx in (0, 1, -1):
        place.send(idx)

    place.consume(4)

    found = place.recorded(Kind.RECEIVED, Kind.VISIBILITY_CHANGED, Kind.HANDLED)
    assert found == [
        ("received", 0),
        ("visibility_changed", 0),
        ("received", 0),
        ("handled", 0),
        ("received", 1),
        ("handled", 1),
        ("received", -1),
    ]
    assert _is_sane(place)


def test_a_crashed_consumer_holds_its_group_until_the_lease_has_run_out(place: _Place) -> None:
    """A crashed consumer neither deletes nor releases: only its group waits for the visibility timeout."""
    place.plan.crashes = (0,)
    place.profiled(crash_share=0.5, visibility_timeout_seconds=7)
    place.send(0, "a")
    place.send(1, "a")
    place.send(2, "b")

    place.consume(12)

    received = {}
    for event in place.events():
        if event.kind == Kind.RECEIVED:
            received[event.idx, event.receive_count] = event.responded_at_us or 0
    waited_seconds = (received[0, 2] - received[0, 1]) / 1e6
    assert place.recorded(Kind.HANDLED) == [("handled", 2), ("handled", 0), ("handled", 1)]
    assert 7 <= waited_seconds < 8.5
    assert _is_sane(place)


def test_a_poisoned_message_ends_in_the_dlq_and_its_group_goes_on(place: _Place) -> None:
    """It fails as often as it may; only then its successors come, and none of their receives is used up."""
    place.plan.poison = (1,)
    place.profiled(poison_share=0.5)
    for idx in (0, 1, 2, -1):
        place.send(idx)

    place.consume(8)
    found = DeadLetters(place.context, place.run).read(keeps=False)

    counts = [(event.queue, event.idx, event.receive_count) for event in place.events() if event.kind == Kind.RECEIVED]
    assert counts == [
        (QUEUE, 0, 1),
        (QUEUE, 1, 1),
        (QUEUE, 1, 2),
        (QUEUE, 1, 3),
        (QUEUE, 2, 1),
        (QUEUE, -1, 1),
        (DEAD, 1, 4),
    ]
    assert found == {DEAD: 1, UNDELIVERED: 0}
    assert _is_sane(place)


def _attempt_ids(place: _Place) -> list[str | None]:
    polls = [event for event in place.events() if event.kind == Kind.POLL]
    return [event.receive_request_attempt_id for event in polls]


def test_a_receive_without_an_answer_is_asked_again_with_its_attempt_id(place: _Place) -> None:
    """The same message comes at once, for the first time; otherwise it would be held by nobody for half a minute."""
    place.send(0)
    place.simulator.loses = ["ReceiveMessage"]

    place.consume(3)

    ids = _attempt_ids(place)
    (received,) = [event for event in place.events() if event.kind == Kind.RECEIVED]
    assert ids[0] == ids[1] != ids[2]
    assert received.receive_count == 1
    assert place.recorded(Kind.HANDLED) == [("handled", 0)]


def test_an_attempt_id_is_used_twice_and_not_three_times(place: _Place) -> None:
    """What the second answer held may have been somebody else's by the time of a third."""
    place.simulator.loses = ["ReceiveMessage", "ReceiveMessage"]

    place.consume(3)

    ids = _attempt_ids(place)
    assert ids[0] == ids[1] != ids[2]


def test_a_refused_receive_has_no_answer_to_ask_for(place: _Place) -> None:
    """A throttled receive leased nothing."""
    place.simulator.refuses = ["ReceiveMessage"]

    place.consume(2)

    first, second = _attempt_ids(place)
    assert first != second


def test_a_delete_that_is_refused_is_tried_again(place: _Place) -> None:
    """Otherwise the message comes again, and a consumer without an inbox has its effect twice."""
    place.send(0)
    place.simulator.refuses = ["DeleteMessageBatch"]

    place.consume(2)
    place.simulator.advance(_VISIBILITY_SECONDS + 1)
    place.consume(1)

    assert place.recorded(Kind.HANDLED) == [("handled", 0)]


def test_a_strangers_message_is_left_alone(place: _Place) -> None:
    """Neither handled nor deleted nor given back: whoever waits for it gets it when its lease ends."""
    place.send(0, run="theirs")

    place.consume(2)
    place.simulator.advance(_VISIBILITY_SECONDS + 1)
    left = place.sqs.receive_message(QueueUrl=place.run.deployment.queue_urls[QUEUE])["Messages"]

    assert len(left) == 1
    assert place.recorded(Kind.HANDLED, Kind.DELETED, Kind.VISIBILITY_CHANGED) == []


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
    """Half a lease of 30 s is enough for five messages of 3 s; what may fail comes alone."""
    profile = replace(_PROFILE, **changes)

    assert messages_per_receive(profile, visibility_timeout_seconds=_VISIBILITY_SECONDS) == expected


# --- dead letters ----------------------------------------------------------------------------------------------------


def _poisoned(place: _Place) -> DeadLetters:
    """Return the DLQ's reader, when messages 0 and 2 of group a are dead and all others were consumed."""
    place.plan.poison = (0, 2)
    place.profiled(poison_share=0.5, redrive=True)
    for idx in (0, 1, 2, 3, -1):
        place.send(idx)
    place.consume(12)
    return DeadLetters(place.context, place.run)


def test_dead_letters_are_read_moved_back_and_handled_then(place: _Place) -> None:
    """Seen in the DLQ first, so that the judge knows what a task that says only how many has moved."""
    dead_letters = _poisoned(place)

    found = dead_letters.read(keeps=True)
    place.context.coordinator.redriven()
    moved = dead_letters.bring_back([queue for queue, count in found.items() if count])
    place.consume(3)
    again = dead_letters.read(keeps=False)
    is_empty = dead_letters.probe()

    (redriven,) = [event for event in place.events() if event.kind == Kind.REDRIVEN]
    assert (found[DEAD], moved, again[DEAD], is_empty) == (2, 2, 0, True)
    assert (redriven.queue, redriven.outcome, redriven.moved_count) == (DEAD, "ok", 2)
    assert json.loads(redriven.detail or "") == {"destination": QUEUE}
    assert place.recorded(Kind.HANDLED) == [("handled", 1), ("handled", 3), ("handled", 0), ("handled", 2)]
    assert _is_sane(place)


def test_from_a_dlq_that_had_nothing_nothing_is_brought_back(place: _Place) -> None:
    """A move task there would be one more the judge has to reckon with."""
    dead_letters = _poisoned(place)

    assert dead_letters.bring_back([]) == 0
    assert [event for event in place.events() if event.kind == Kind.REDRIVEN] == []


def _lose(place: _Place) -> None:
    place.sqs.purge_queue(QueueUrl=place.run.deployment.urls[QUEUE])


def _leave(place: _Place) -> None:
    """Do nothing."""


@pytest.mark.parametrize(("sabotage", "shows"), [(_leave, set()), (_lose, {"F8"})])
def test_what_a_move_task_loses_is_found(place: _Place, sabotage: Callable[[_Place], None], shows: set[str]) -> None:
    """Both queues probed empty, and the messages in neither: that is what probes and the first reading are for."""
    dead_letters = _poisoned(place)
    dead_letters.bring_back([queue for queue, count in dead_letters.read(keeps=True).items() if count])
    place.context.coordinator.redriven()
    sabotage(place)

    place.consume(3)
    dead_letters.read(keeps=False)
    dead_letters.probe()

    assert {violation.anomaly for violation in place.judged()["a"].violations} == shows


def test_a_move_task_that_does_not_end_well_is_no_move(place: _Place) -> None:
    """It is on record as of unknown outcome, so nothing is judged by it, and the run hears of it."""
    dead_letters = _poisoned(place)
    sabotage((place.sqs,), "ignore-move-task")
    dead_letters.read(keeps=True)

    with pytest.raises(NotReached, match=r"the move task of billing-dlq\.fifo ended as NOT_LISTED \(no reason\)"):
        dead_letters.bring_back([DEAD])

    (redriven,) = [event for event in place.events() if event.kind == Kind.REDRIVEN]
    assert (redriven.outcome, redriven.error) == ("info", "NOT_LISTED")


def test_a_queue_with_a_message_in_it_is_not_said_to_be_empty(place: _Place) -> None:
    """Probes go on for a while, and then say so; what is on record is what they saw."""
    place.send(0)

    assert not DeadLetters(place.context, place.run).probe()

    seen = {event.visible_count for event in place.events() if event.kind == Kind.PROBE and event.queue == QUEUE}
    assert seen == {1}


def test_a_strangers_dead_letter_is_left_where_it_is(place: _Place) -> None:
    """It is given back, and can be received at once by whoever it belongs to."""
    url = place.run.deployment.urls[UNDELIVERED]
    place.sqs.send_message(QueueUrl=url, MessageBody="theirs", MessageGroupId="g", MessageDeduplicationId="theirs")

    found = DeadLetters(place.context, place.run).read(keeps=False)

    assert found == {DEAD: 0, UNDELIVERED: 0}
    assert place.sqs.receive_message(QueueUrl=url)["Messages"][0]["Body"] == "theirs"
