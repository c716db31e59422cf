"""The Lambda function of a consumer: batches of mixed groups, with every way in which an invocation can end.

The same test judges the product's function and each classic mistake: what the right one passes, every wrong one fails.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, NoReturn

import pytest
from sqlalchemy.orm import Session
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from sluice.declaration import Commit, Consumer, Gaps, Lambda, Poison
from sluice.declaration.fields.functions import SCHEDULED_EVENT
from sluice.messaging import Ack, Context, Event, Outcome, Reject, Retry
from sluice.messaging.aws_lambda.handler import LambdaHandler
from sluice.messaging.bundle import write_bundle
from sluice.messaging.envelope import Envelope
from sluice.messaging.errors import TransientError
from sluice.messaging.inbox.pause import PauseOperator
from sluice.simulator.model import AwsRefusal
from sluice.testing import LambdaHarness
from sluice.testing.lambda_harness import Function, FunctionContext
from tests.support.messaging.broken_functions import (
    count_receives_as_attempts,
    delete_before_commit,
    lose_the_mark,
    remember_failed_groups,
    report_only_the_failed,
    stop_the_whole_batch,
    succeed_after_errors,
)

type Harness = Callable[..., LambdaHarness]
RUNTIME = Lambda(batch_size=10, timeout_seconds=1)
BATCHES = Consumer(
    name="billing",
    handlers="their.handlers",
    max_attempts=3,
    processing_seconds=0.1,
    visibility_timeout_seconds=6,
    stop_timeout_seconds=1,
    runtime=RUNTIME,
)
"""A throttled batch is given up after six seconds, so that a test has many receives in few steps."""


class Handling:
    """A handler that writes down whom it was called for, and ends as a test says."""

    def __init__(self, **outcomes: list[Outcome]) -> None:
        self._outcomes, self.called = outcomes, list[str]()

    def __call__(self, _: Session, event: Event, __: Context) -> Outcome:
        """Return the next outcome for the event's data; without one it was handled."""
        self.called.append(event.data)
        left = self._outcomes.get(event.data, [])
        return left.pop(0) if left else Ack()


def effects_of(harness: LambdaHarness) -> list[str]:
    """Return the data of the events whose effect was committed, in that order."""
    return [attempt.event.data for attempt in harness.attempts if isinstance(attempt.outcome, Ack)]


def publish_groups(harness: LambdaHarness, *names: str) -> None:
    """Publish events in this order: `a1` is the first of group `a`."""
    for name in names:
        harness.publish("order.placed", name[0], name)


# --- one test for the right function and for each mistake


def faults_of(harness: LambdaHarness, *, rejected: set[str], published: list[str]) -> set[str]:
    """Return in which ways a function broke its promise: the names of the mistakes."""
    handled = effects_of(harness)
    faults = set()
    if any(count > 1 for count in Counter(handled).values()):
        faults.add("an effect twice")
    dead = {dead_letter.event.data for dead_letter in harness.dead_letters if dead_letter.event is not None}
    tried = {attempt.event.data for attempt in harness.attempts}
    if dead - tried:
        faults.add("dead and never tried")
    if dead & tried - rejected:
        faults.add("dead before its attempts were used up")
    if set(published) - set(handled) - dead:
        faults.add("lost")
    for group in {name[0] for name in handled}:
        of_group = [name for name in handled if name[0] == group]
        if of_group != sorted(of_group):
            faults.add("out of order")
    return faults


@pytest.mark.parametrize(
    ("broken", "faults"),
    [
        pytest.param(None, set(), id="the-product"),
        pytest.param(report_only_the_failed, {"out of order"}, id="report-only-the-failed"),
        pytest.param(
            stop_the_whole_batch,
            {"a failure held up another group"},
            id="stop-the-whole-batch",
            marks=pytest.mark.slow,
        ),
        pytest.param(delete_before_commit, {"lost"}, id="delete-before-commit"),
        pytest.param(
            remember_failed_groups,
            {"dead and never tried", "lost"},
            id="remember-failed-groups",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            count_receives_as_attempts,
            {"dead and never tried", "dead before its attempts were used up"},
            id="count-receives-as-attempts",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_batch_keeps_order_and_effects_whatever_fails(
    lambda_harness: Harness, broken: Callable[[LambdaHandler], Function] | None, faults: set[str]
) -> None:
    """Retries, a refusal, throttles and a crash, in batches of three mixed groups."""
    handling = Handling(a1=[Retry(), Retry()], c2=[Reject("not ours")])
    harness = lambda_harness(handling, consumer=BATCHES, broken=broken)
    published = ["a1", "b1", "c1", "a2", "b2", "c2", "a3", "b3", "c3"]
    publish_groups(harness, *published)

    harness.run(for_seconds=0)
    held_up = {"b1", "b2", "b3", "c1"} - set(effects_of(harness))
    harness.throttle(30)
    harness.run()

    found = faults_of(harness, rejected={"c2"}, published=published)
    if held_up:
        found.add("a failure held up another group")
    assert found == faults if broken is None else found & faults


@pytest.mark.parametrize(
    ("broken", "effects"),
    [
        pytest.param(None, ["a1"], id="the-product"),
        pytest.param(succeed_after_errors, [], id="succeed-after-errors"),
    ],
)
def test_an_invocation_that_fails_as_a_whole_loses_nothing(
    lambda_harness: Harness,
    monkeypatch: pytest.MonkeyPatch,
    broken: Callable[[LambdaHandler], Function] | None,
    effects: list[str],
) -> None:
    """SQS does not answer the first question of a new process. A function that hides this loses its batch."""
    harness = lambda_harness(Handling(), consumer=BATCHES, broken=broken)
    publish_groups(harness, "a1")

    def refuse(_: object, __: float) -> NoReturn:
        raise AwsRefusal("ServiceUnavailable", "try again", status=503)

    monkeypatch.setitem(harness.aws.account.sqs.operations, "GetQueueUrl", refuse)
    with suppress(TransientError):
        harness.run()
    monkeypatch.undo()
    harness.run()

    assert effects_of(harness) == effects


@pytest.mark.parametrize(
    ("broken", "effects"),
    [
        pytest.param(None, ["a1", "b1", "a2"], id="the-product"),
        pytest.param(lose_the_mark, ["a1", "b1", "a2", "a1", "b1", "a2"], id="lose-the-mark"),
    ],
)
def test_a_batch_that_comes_again_has_one_effect(
    lambda_harness: Harness, broken: Callable[[LambdaHandler], Function] | None, effects: list[str]
) -> None:
    """Lambda is at least once: it may invoke a function again with a batch that was handled and answered for."""
    harness = lambda_harness(Handling(), consumer=BATCHES, broken=broken)
    publish_groups(harness, "a1", "b1", "a2")
    harness.run()

    harness.redeliver()

    assert sorted(effects_of(harness)) == sorted(effects)


# --- attempts


def test_throttled_receives_are_no_attempts(lambda_harness: Harness) -> None:
    """After nine receives without an invocation a message has its first attempt, and all of its attempts."""
    handling = Handling(a1=[Retry(), Retry()])
    harness = lambda_harness(handling, consumer=BATCHES)
    publish_groups(harness, "a1")
    harness.throttle(54)

    harness.run()

    assert [(attempt.number, type(attempt.outcome)) for attempt in harness.attempts] == [
        (1, Retry),
        (2, Retry),
        (3, Ack),
    ]
    assert harness.dead_letters == []


def test_the_log_names_attempts_and_not_receives(lambda_harness: Harness) -> None:
    """A message that was received several times and never tried is logged with its first attempt."""
    harness = lambda_harness(Handling(a1=[Retry(reason="not yet")]), consumer=BATCHES)
    publish_groups(harness, "a1")
    harness.throttle(18)

    with capture_logs(processors=[merge_contextvars]) as logged:
        harness.run()

    attempts = [line["attempt"] for line in logged if line["event"] in ("not handled, and comes again", "handled")]
    assert attempts == [1, 2]


def test_failed_attempts_end_in_the_dlq_with_the_last_reason(lambda_harness: Harness) -> None:
    """The third of three attempts is the last; the message behind it in its group is handled afterwards."""
    harness = lambda_harness(Handling(a1=[Retry(reason=f"no {number}") for number in (1, 2, 3)]), consumer=BATCHES)
    publish_groups(harness, "a1", "a2")

    harness.run()

    assert [
        (dead_letter.event and dead_letter.event.data, dead_letter.reason) for dead_letter in harness.dead_letters
    ] == [("a1", "attempt 3: no 3")]
    assert effects_of(harness) == ["a2"]


def test_an_attempt_that_crashed_does_not_count(lambda_harness: Harness) -> None:
    """More crashes before the commit than attempts are allowed, and the message is handled by its first attempt."""
    harness = lambda_harness(Handling(), consumer=BATCHES)
    publish_groups(harness, "a1", "b1")

    for _ in range(BATCHES.max_attempts + 2):
        harness.crash_before_commit()
    harness.run()

    assert sorted(effects_of(harness)) == ["a1", "b1"]
    assert harness.dead_letters == []
    assert {attempt.number for attempt in harness.attempts} == {1}


def test_a_message_whose_handler_always_ends_the_process_dies_alone(lambda_harness: Harness) -> None:
    """It is dead after so many attempts without an end; what is behind it in its batch has receives left."""
    declared = replace(BATCHES, max_attempts=1, runtime=replace(RUNTIME, receives_max=80))  # the least
    handling = Handling()
    harness = lambda_harness(handling, consumer=declared)
    publish_groups(harness, "a1", "a2", "b1")

    for _ in range(5):  # 80 / (2 x 10 x 1) - 1 = 3 in a row, and the first receive, which writes nothing
        with suppress(AssertionError):
            harness.crash_at("before_commit", when=lambda: handling.called[-1] == "a1")
    harness.run()

    assert [dead_letter.reason for dead_letter in harness.dead_letters] == [
        "3 attempts in a row came to no end; see the function's log"
    ]
    assert effects_of(harness) == ["b1", "a2"]


def test_a_group_that_may_end_the_process_is_worked_on_last(lambda_harness: Harness) -> None:
    """Its batch was killed twice; the other group's message is handled before the third invocation is killed, too."""
    handling = Handling()
    harness = lambda_harness(handling, consumer=BATCHES)
    publish_groups(harness, "a1", "b1")

    for _ in range(3):
        harness.crash_at("before_commit", when=lambda: handling.called[-1] == "a1")

    assert effects_of(harness) == ["b1"]


# --- the time of an invocation

_SLOW = replace(BATCHES, processing_seconds=1, visibility_timeout_seconds=60, runtime=Lambda(batch_size=10))


class SlowHandling(Handling):
    """A handler that takes its time by the clock of the harness, which a test sets.

    Args:
        seconds: how long it takes, by the event's data; `default` for all others.
    """

    harness: LambdaHarness

    def __init__(self, default: float, outcomes: dict[str, list[Outcome]] | None = None, **seconds: float) -> None:
        super().__init__(**({} if outcomes is None else outcomes))
        self._default, self._seconds, self.begun = default, seconds, list[tuple[int, str]]()

    def __call__(self, session: Session, event: Event, context: Context) -> Outcome:
        """Take its time, and write down the number of the invocation."""
        self.begun.append((len(self.harness.events), event.data))
        self.harness.aws.advance(self._seconds.get(event.data, self._default))
        return super().__call__(session, event, context)


@pytest.mark.parametrize("is_bundled", [False, True])
def test_no_message_dies_because_invocations_end_in_the_middle_of_it(
    lambda_harness: Harness, *, is_bundled: bool
) -> None:
    """Handlers take longer than declared: each invocation cuts the third message, four times the same."""
    handling = SlowHandling(4.2)
    declared = replace(_SLOW, max_attempts=12)  # after three attempts in a row without an end the fourth is not made
    harness = handling.harness = lambda_harness(handling, consumer=declared)
    names = [f"{group}{number}" for number in range(1, 6) for group in "bc"]
    publish_groups(harness, *names[:2])
    if is_bundled:
        harness.send_body(bundle_body("a1", "a2"), "a")
    else:
        publish_groups(harness, "a1")

    for first in range(2, 10, 2):
        harness.run(for_seconds=0)
        harness.aws.advance(61)
        publish_groups(harness, *names[first : first + 2])
    harness.run()

    assert harness.dead_letters == []
    assert sorted(effects_of(harness)) == sorted([*names, "a1", *["a2"] * is_bundled])


def test_a_message_that_takes_all_time_dies_in_the_end(lambda_harness: Harness) -> None:
    """It has the whole invocation each time, and no invocation is long enough."""
    handling = SlowHandling(9.5)
    declared = replace(_SLOW, max_attempts=1, runtime=Lambda(receives_max=8))
    harness = handling.harness = lambda_harness(handling, consumer=declared)
    publish_groups(harness, "a1")

    harness.run(for_seconds=3_600)

    assert [dead.reason for dead in harness.dead_letters] == [
        "3 attempts in a row came to no end; see the function's log"
    ]


def test_a_message_is_begun_only_with_the_time_that_one_takes(lambda_harness: Harness) -> None:
    """The first one of an invocation is begun in any case. A bundle stops between its events."""
    handling = SlowHandling(4.5)
    declared = replace(BATCHES, processing_seconds=5, visibility_timeout_seconds=60, runtime=Lambda(batch_size=2))
    harness = handling.harness = lambda_harness(handling, consumer=declared)
    publish_groups(harness, "a1", "b1")
    harness.run()
    harness.send_body(bundle_body("c1", "c2"), "c")
    harness.run()

    assert handling.begun == [(1, "a1"), (2, "b1"), (3, "c1"), (4, "c2")]


def test_nothing_is_committed_in_the_last_second_of_an_invocation(lambda_harness: Harness) -> None:
    """The second message is begun with three seconds left, and its handler ends with half a second left."""
    handling = SlowHandling(2.5, a1=7.0)
    harness = handling.harness = lambda_harness(handling, consumer=_SLOW)
    publish_groups(harness, "a1", "b1")

    harness.run()

    assert handling.begun == [(1, "a1"), (1, "b1"), (2, "b1")]


def test_a_message_that_may_end_the_process_gets_half_of_an_invocation(lambda_harness: Harness) -> None:
    """With less time its end would say nothing about it: it comes again, and is no attempt."""
    handling = SlowHandling(0.0, b1=6.0)
    harness = handling.harness = lambda_harness(handling, consumer=_SLOW)
    publish_groups(harness, "a1")
    for _ in range(2):
        harness.crash_at("before_commit")
    publish_groups(harness, "b1")

    harness.aws.advance(60)
    harness.run()

    assert handling.begun == [(1, "a1"), (2, "a1"), (3, "b1"), (4, "a1")]


def test_a_parked_message_is_begun_in_an_invocations_first_half(lambda_harness: Harness) -> None:
    """An attempt at it counts when it begins, so one that Lambda ends would be used up."""
    invocations = 0

    def count_invocations(handler: LambdaHandler) -> Function:
        def function(event: dict[str, Any], context: FunctionContext) -> dict[str, Any]:
            nonlocal invocations
            invocations += 1
            return handler(event, context)

        return function

    begun, first = list[tuple[int, str]](), [Reject("not yet")]

    def handle(_: Session, event: Event, __: Context) -> Outcome:
        if first:
            return first.pop()
        begun.append((invocations, event.data))
        harness.aws.advance(4)
        return Ack()

    declared = replace(_SLOW, poison=Poison.PARK, gaps=Gaps.HALT)
    harness = lambda_harness(handle, consumer=declared, broken=count_invocations)
    publish_groups(harness, "a1", "a2", "a3", "a4")
    harness.run()
    harness.redrive()
    harness.run()

    assert begun == [(2, "a1"), (3, "a2"), (3, "a3"), (4, "a4")]


# --- death, and what may happen before the message is gone


def test_a_death_is_finished_by_the_next_invocation(lambda_harness: Harness) -> None:
    """The process ends between the record in the inbox and the DLQ: the message is in the DLQ once, with its reason."""
    harness = lambda_harness(Handling(a1=[Reject("not ours")]), consumer=BATCHES)
    publish_groups(harness, "a1")

    harness.crash_at("after_death")
    assert harness.dead_letters == []
    harness.run()

    assert [dead_letter.reason for dead_letter in harness.dead_letters] == ["not ours"]
    assert len(harness.attempts) == 1


def test_a_body_that_cannot_be_read_is_dead_at_its_first_receive(lambda_harness: Harness) -> None:
    """It goes to the DLQ as it is, and holds up nothing behind it."""
    harness = lambda_harness(Handling(), consumer=BATCHES)
    harness.send_body("no envelope", "a")
    publish_groups(harness, "a1")

    harness.run()

    assert [dead_letter.body for dead_letter in harness.dead_letters] == ["no envelope"]
    assert len(harness.events) == 1, "one invocation was enough"
    assert effects_of(harness) == ["a1"]


# --- bundles


def bundle_body(*names: str) -> str:
    """Return the body of a bundle of these events: `a1` is the first of group `a`."""
    events = [Event(type="order.placed", group=name[0], data=name) for name in names]
    numbered = [Envelope(event=event, seq=int(event.data[1:]), epoch=1) for event in events]
    return write_bundle([envelope.body for envelope in numbered])


def events_taken(harness: LambdaHarness) -> list[str]:
    """Return the data of events that a handler took, in that order; with one commit some are handed out twice."""
    return list(dict.fromkeys(effects_of(harness)))


each_commit = pytest.mark.parametrize("consumer", [BATCHES, replace(BATCHES, commit=Commit.BUNDLE)], ids=list(Commit))


@each_commit
def test_events_of_a_bundle_have_ends_of_their_own_in_a_batch(lambda_harness: Harness, consumer: Consumer) -> None:
    """One event fails twice, one is refused, and each of both ends only what is behind it in its own group."""
    handling = Handling(a1=[Retry(), Retry()], a2=[Retry(), Retry()], b2=[Reject("not ours")])
    harness = lambda_harness(handling, consumer=consumer)
    for names in (("a1", "a2", "a3"), ("b1", "b2", "b3"), ("a4", "a5")):
        harness.send_body(bundle_body(*names), names[0][0])

    harness.throttle(3)
    harness.run()

    assert [name for name in events_taken(harness) if name[0] == "a"] == ["a1", "a2", "a3", "a4", "a5"]
    assert [name for name in events_taken(harness) if name[0] == "b"] == ["b1", "b3"]
    assert [dead.event.data for dead in harness.dead_letters if dead.event is not None] == ["b2"]
    assert handling.called.count("a2") == BATCHES.max_attempts


@each_commit
@pytest.mark.parametrize("place", [1, 2, 3])
def test_a_dead_event_takes_no_neighbour_with_it(lambda_harness: Harness, place: int, consumer: Consumer) -> None:
    failures: dict[str, list[Outcome]] = {f"a{place}": [Retry()] * BATCHES.max_attempts}
    harness = lambda_harness(Handling(**failures), consumer=consumer)
    harness.send_body(bundle_body("a1", "a2", "a3"), "a")

    harness.run()

    assert events_taken(harness) == [f"a{number}" for number in (1, 2, 3) if number != place]
    assert [dead.event.data for dead in harness.dead_letters if dead.event is not None] == [f"a{place}"]


@each_commit
@pytest.mark.parametrize("failpoint", ["after_commit", "before_dead_letter", "after_dead_letter", "between_events"])
def test_a_process_that_ends_within_a_bundle_repeats_nothing(
    lambda_harness: Harness, failpoint: str, consumer: Consumer
) -> None:
    harness = lambda_harness(Handling(a2=[Reject("not ours")] * 2), consumer=consumer)
    harness.send_body(bundle_body("a1", "a2", "a3"), "a")

    harness.crash_at(failpoint)
    harness.run()

    assert events_taken(harness) == ["a1", "a3"]
    assert [dead.event.data for dead in harness.dead_letters if dead.event is not None] == ["a2"]


def test_a_pause_that_the_schedule_has_seen_ends_with_the_mapping(lambda_harness: Harness) -> None:
    """A process that handled the schedule during a pause gets the first batch after it; nothing has looked since."""
    pausing = PauseOperator(consumer=BATCHES.name, actor="ann", reason="the bank is closed")

    def invoke_during_a_pause(handler: LambdaHandler) -> Function:
        def function(event: dict[str, Any], context: FunctionContext) -> dict[str, Any]:
            with handler.worker.parts.engine.begin() as connection:
                pausing.pause(connection)
            handler(dict(SCHEDULED_EVENT), context)
            with handler.worker.parts.engine.begin() as connection:
                pausing.resume(connection)
            assert len(harness.events) == 1, "the bundle comes again"
            return handler(event, context)

        return function

    harness = lambda_harness(Handling(), consumer=BATCHES, broken=invoke_during_a_pause)
    harness.send_body(bundle_body("a1", "a2", "a3"), "a")

    harness.run(for_seconds=0)

    assert effects_of(harness) == ["a1", "a2", "a3"]


def test_a_bundle_that_ends_the_process_comes_behind_other_groups(lambda_harness: Harness) -> None:
    """From its third receive on: the second is the first that is written down."""
    handling = Handling()
    harness = lambda_harness(handling, consumer=BATCHES)
    harness.send_body(bundle_body("a1", "a2"), "a")
    publish_groups(harness, "b1")

    for _ in range(3):
        harness.crash_at("before_commit", when=lambda: handling.called[-1] == "a1")

    assert effects_of(harness) == ["b1"]
