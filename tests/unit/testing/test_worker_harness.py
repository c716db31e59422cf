"""A handler is put through redelivery, crash and poison: effects in the transaction are single, all others are not."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog
from sqlalchemy import Column, Integer, MetaData, Table, Text, insert, select
from sqlalchemy.orm import Session

from sluice.declaration import Consumer, Gaps, Poison
from sluice.messaging import Context, Event, Outbox, Reject, Retry, handler
from sluice.messaging.envelope import Envelope
from sluice.messaging.handlers import Ack, Handlers, Outcome
from sluice.testing import SimulatedAws, WorkerHarness

type Make = Callable[..., WorkerHarness]

metadata = MetaData()
effects = Table("effect", metadata, Column("id", Integer, primary_key=True), Column("text", Text, nullable=False))


def write(session: Session, event: Event, context: Context) -> None:
    if event.data == "poison":
        raise ValueError("it is poison")
    session.execute(insert(effects).values(text=f"{event.group} {event.data}"))


@pytest.fixture
def harness(worker_harness: Make) -> WorkerHarness:
    return worker_harness(write, tables=metadata)


@pytest.fixture
def parking(worker_harness: Make) -> WorkerHarness:
    """Return a harness that parks, and whose handler refuses the first event the first time."""
    outcomes: list[Reject | None] = [Reject("not yet")]

    def refuse_first(session: Session, event: Event, context: Context) -> Reject | None:
        write(session, event, context)
        return outcomes.pop() if outcomes else None

    consumer = Consumer(name="patient", poison=Poison.PARK, gaps=Gaps.HALT)
    return worker_harness(refuse_first, consumer=consumer, tables=metadata)


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Check that a test leaves no thread behind; a thread of an earlier test may end meanwhile."""
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) - before == set()


def effects_of(harness: WorkerHarness) -> list[str]:
    with harness.session() as session:
        return list(session.scalars(select(effects.c.text).order_by(effects.c.id)))


def test_an_event_is_handled_once_and_leaves_nothing(harness: WorkerHarness) -> None:
    """The event passes outbox, topic and queue. A second run finds nothing to do and moves no clock."""
    sent = harness.publish("order.placed", "g", "a")

    (handled,) = harness.run()
    ended_at = harness.clock.monotonic()

    assert handled.id == sent.id
    assert handled.type == "order.placed"
    assert handled.group == "g"
    assert handled.data == "a"
    assert effects_of(harness) == ["g a"]
    assert harness.run() == []
    assert harness.clock.monotonic() == ended_at


def test_each_group_is_handled_in_order(harness: WorkerHarness) -> None:
    for data in ("a", "b", "c"):
        for group in ("g", "h"):
            harness.publish("order.placed", group, data)

    handled = harness.run()

    assert [event.data for event in handled if event.group == "g"] == ["a", "b", "c"]
    assert [event.data for event in handled if event.group == "h"] == ["a", "b", "c"]


def test_a_redelivery_has_no_second_effect(harness: WorkerHarness) -> None:
    harness.publish("order.placed", "g", "a")
    harness.run()

    again = harness.redeliver()

    assert again == []
    assert effects_of(harness) == ["g a"]
    assert len(harness.attempts) == 1


def test_a_crash_before_the_commit_leaves_its_message_to_the_next_worker(harness: WorkerHarness) -> None:
    """The message comes again after its visibility timeout, as attempt 2."""
    harness.publish("order.placed", "g", "a")
    began_at = harness.clock.monotonic()

    harness.crash_before_commit()
    assert effects_of(harness) == []
    harness.run()

    assert effects_of(harness) == ["g a"]
    assert [(attempt.number, attempt.outcome) for attempt in harness.attempts] == [(1, None), (2, Ack())]
    assert harness.clock.monotonic() - began_at == pytest.approx(harness.consumer.visibility_timeout_seconds, abs=1)


def test_a_crash_after_the_commit_leaves_one_effect(harness: WorkerHarness) -> None:
    harness.publish("order.placed", "g", "a")

    harness.crash_after_commit()
    assert effects_of(harness) == ["g a"]
    handled = harness.run()

    assert handled == []
    assert effects_of(harness) == ["g a"]


@pytest.mark.parametrize("crash", [WorkerHarness.crash_before_commit, WorkerHarness.crash_after_commit])
def test_a_crash_that_no_event_can_reach_fails_the_test(
    harness: WorkerHarness, crash: Callable[[WorkerHarness], None]
) -> None:
    with pytest.raises(AssertionError, match="publish an event first"):
        crash(harness)

    harness.publish("order.placed", "g", "poison")
    with pytest.raises(AssertionError, match="every attempt failed"):
        crash(harness)


def test_there_is_nothing_to_redeliver_before_anything_was_acknowledged(harness: WorkerHarness) -> None:
    harness.publish("order.placed", "g", "a")

    with pytest.raises(AssertionError, match=r"call run\(\) first"):
        harness.redeliver()


def test_poison_reaches_the_dlq_with_its_reason_and_the_group_continues(harness: WorkerHarness) -> None:
    harness.publish("order.placed", "g", "poison")
    harness.publish("order.placed", "g", "b")
    began_at = harness.clock.monotonic()

    handled = harness.run()

    (dead_letter,) = harness.dead_letters
    assert dead_letter.event is not None
    assert dead_letter.event.data == "poison"
    assert dead_letter.reason == "attempt 5: ValueError: it is poison"
    assert [event.data for event in handled] == ["b"]
    assert [attempt.number for attempt in harness.attempts if attempt.event.data == "poison"] == [1, 2, 3, 4, 5]
    assert harness.clock.monotonic() - began_at > 4  # seconds of backoff between the five attempts


def test_an_unreadable_message_is_a_dead_letter(harness: WorkerHarness) -> None:
    harness.send_body("hello", "g")

    harness.run()

    (dead_letter,) = harness.dead_letters
    assert dead_letter.event is None
    assert dead_letter.body == "hello"
    assert dead_letter.reason.startswith("it cannot be read: body is not JSON")


def test_a_message_that_kills_every_worker_is_a_dead_letter(worker_harness: Make) -> None:
    """SQS alone moves it there, and the group goes on."""
    consumer = Consumer(name="fragile", max_attempts=2)
    harness = worker_harness(write, consumer=consumer, tables=metadata)
    harness.publish("order.placed", "g", "a")

    harness.crash_before_commit()
    harness.crash_before_commit()
    handled = harness.run()

    assert handled == []
    assert [dead_letter.reason for dead_letter in harness.dead_letters] == [
        "SQS moved it after 2 receives; no attempt came to an end"
    ]


def test_a_parked_group_waits_until_the_poison_is_back(parking: WorkerHarness) -> None:
    """Later messages of the group wait, and other groups are handled.

    When the poison message is redriven and no longer fails, all follow in order.
    """
    for group, data in (("g", "a"), ("g", "b"), ("g", "c"), ("h", "d")):
        parking.publish("order.placed", group, data)

    parking.run()
    assert effects_of(parking) == ["h d"]
    assert [event.data for event in parking.parked] == ["b", "c"]
    assert [dead_letter.reason for dead_letter in parking.dead_letters] == ["not yet"]

    parking.redrive()
    parking.run()
    assert effects_of(parking) == ["h d", "g a", "g b", "g c"]
    assert parking.parked == []


def test_a_worker_that_dies_with_parked_messages_leaves_one_effect_each(parking: WorkerHarness) -> None:
    """A parked message is handled in a transaction of its own, in which a worker may die, too."""
    for data in ("a", "b", "c"):
        parking.publish("order.placed", "g", data)
    parking.run()
    parking.redrive()

    parking.crash_after_commit()  # with a, which is back
    parking.crash_before_commit()  # with b, which was parked
    parking.crash_after_commit()
    assert effects_of(parking) == ["g a", "g b"]
    parking.run()

    assert effects_of(parking) == ["g a", "g b", "g c"]
    assert [event.data for event in parking.parked] == []


def test_a_gap_is_given_up_when_its_wait_is_over(worker_harness: Make) -> None:
    """With `Gaps.WAIT` messages behind a missing number wait for the declared time, which `run` lets pass."""
    consumer = Consumer(name="waiting", gaps=Gaps.WAIT, gap_wait_seconds=300)
    harness = worker_harness(write, consumer=consumer, tables=metadata)
    missing = Envelope(event=Event(type="order.placed", group="g", data="a"), seq=1, epoch=1)
    behind = Envelope(event=Event(type="order.placed", group="g", data="b"), seq=2, epoch=1)
    harness.send_body(behind.body, "g")

    assert harness.run(for_seconds=299) == []
    assert [event.data for event in harness.parked] == ["b"]
    assert [event.data for event in harness.run()] == ["b"]
    harness.send_body(missing.body, "g")
    harness.run()

    assert effects_of(harness) == ["g b", "g a"]


def test_a_retry_keeps_its_delay_and_run_can_stop_before_it(worker_harness: Make) -> None:
    """After 29 of the delay's 30 seconds nothing was tried again. After two more seconds it was."""

    def wait_once(session: Session, event: Event, context: Context) -> Retry | None:
        return Retry(delay_seconds=30) if context.attempt == 1 else None

    harness = worker_harness(wait_once)
    harness.publish("order.placed", "g", "a")

    assert harness.run(for_seconds=29) == []
    assert len(harness.attempts) == 1
    assert len(harness.run(for_seconds=2)) == 1


def test_an_event_that_a_handler_publishes_is_handled_in_turn(worker_harness: Make) -> None:
    """The event is committed with the effect. A worker that dies before the commit publishes nothing."""

    @handler("order.placed")
    def place(session: Session, event: Event, context: Context) -> None:
        shop.outbox.add(session, Event(type="invoice.due", group=event.group, data="due", id="1"))

    @handler("invoice.due")
    def due(session: Session, event: Event, context: Context) -> None:
        write(session, event, context)

    shop: WorkerHarness = worker_harness(Handlers({"order.placed": place, "invoice.due": due}), tables=metadata)
    shop.publish("order.placed", "g", "a")

    shop.crash_before_commit()
    handled = shop.run()

    assert [event.type for event in handled] == ["order.placed", "invoice.due"]
    assert effects_of(shop) == ["g due"]


def test_a_handler_that_publishes_to_itself_for_ever_fails_the_test(
    worker_harness: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluice.testing.harness._STEPS_MAX", 5)

    def again(session: Session, event: Event, context: Context) -> None:
        shop.outbox.add(session, Event(type="again", group=event.group, data=None))

    shop: WorkerHarness = worker_harness(again)
    shop.publish("again", "g")

    with pytest.raises(AssertionError, match="still at work after 5 steps"):
        shop.run()


def test_an_async_handler_for_a_type_gets_only_that_type(worker_harness: Make) -> None:
    """A handler for a type gets only that type. An event that no handler is for becomes a dead letter."""

    @handler("order.placed")
    async def place(session: Session, event: Event, context: Context) -> None:
        write(session, event, context)

    harness = worker_harness(place, tables=metadata)
    harness.publish("order.placed", "g", "a")
    harness.publish("order.lost", "g", "b")
    harness.run()

    assert effects_of(harness) == ["g a"]
    assert [dead_letter.reason for dead_letter in harness.dead_letters] == [
        "there is no handler for 'order.lost'; add one, or one for '*'"
    ]


def test_an_async_handler_is_awaited_where_a_loop_runs_already(worker_harness: Make) -> None:
    """This happens in an asynchronous test, a notebook or a web server.

    The harness's own loop lives on from message to message.
    """
    loops = []

    async def place(session: Session, event: Event, context: Context) -> None:
        await asyncio.sleep(0)
        loops.append(asyncio.get_running_loop())
        write(session, event, context)

    harness = worker_harness(place, tables=metadata)
    for data in ("a", "b"):
        harness.publish("order.placed", "g", data)

    async def run() -> None:
        harness.run()
        assert asyncio.get_running_loop() not in loops

    asyncio.run(run())

    assert effects_of(harness) == ["g a", "g b"]
    assert len(set(loops)) == 1


def test_two_consumers_of_one_topic_get_what_their_filters_let_through(worker_harness: Make) -> None:
    """A filter policy goes by the event's attributes; each consumer has a database of its own."""
    german = Consumer(name="german", filter_policy={"country": ["de"]})
    everybody = Consumer(name="everybody")
    of_german = worker_harness(write, consumer=german, tables=metadata)
    of_everybody = worker_harness(write, consumer=everybody, tables=metadata)

    of_everybody.publish("order.placed", "g", "a", attributes={"country": "de"})
    of_everybody.publish("order.placed", "g", "b", attributes={"country": "fr"})
    of_german.run()
    of_everybody.run()

    assert effects_of(of_german) == ["g a"]
    assert effects_of(of_everybody) == ["g a", "g b"]


def test_two_runs_of_a_test_have_the_same_attempts_and_times(worker_harness: Make) -> None:
    def story() -> list[Any]:
        aws = SimulatedAws()
        harness = WorkerHarness(write, aws=aws, database="sqlite://", tables=metadata)
        for number, data in enumerate(("a", "poison", "b")):
            harness.publish(Event(type="order.placed", group="g", data=data, id=str(number)))
        harness.crash_before_commit()
        harness.run()
        found = [aws.clock.now_us(), harness.attempts, harness.dead_letters, effects_of(harness)]
        harness.close()
        return found

    assert story() == story()


def test_a_failure_is_logged_plainly_after_another_test_captured_logs(
    worker_harness: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rich's traceback of SQLAlchemy's frames takes most of such a test's time."""
    with structlog.testing.capture_logs():
        pass
    harness = worker_harness(write, tables=metadata)
    harness.publish("order.placed", "g", "poison")
    harness.run()
    harness.close()

    assert "\nTraceback (most recent call last):\n" in capsys.readouterr().out


def test_the_harness_keeps_the_users_log_configuration(
    worker_harness: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    configured = structlog.get_config()
    structlog.configure(processors=[structlog.processors.JSONRenderer()])
    harness = worker_harness(write, tables=metadata)
    harness.publish("order.placed", "g", "poison")
    harness.run()
    structlog.configure(**configured)

    assert '"event": "the handler failed"' in capsys.readouterr().out


def test_an_effect_outside_the_transaction_is_seen_twice_after_a_crash(worker_harness: Make) -> None:
    """Negative control: the e-mail is sent twice and the row written once, as a user's own test has to show."""
    emails: list[str] = []

    def fail_once(session: Session, event: Event, context: Context) -> None:
        write(session, event, context)
        emails.append(event.id)

    harness = worker_harness(fail_once, tables=metadata)
    harness.publish("order.placed", "g", "a")
    harness.crash_before_commit()
    harness.run()

    assert len(emails) == 2
    assert effects_of(harness) == ["g a"]


def test_a_handler_that_commits_by_itself_has_no_effect(worker_harness: Make) -> None:
    """Broken on purpose: it is refused, attempt after attempt, and ends in the DLQ with the reason."""

    def fail_again(session: Session, event: Event, context: Context) -> None:
        write(session, event, context)
        session.commit()

    harness = worker_harness(fail_again, tables=metadata)
    harness.publish("order.placed", "g", "a")
    harness.run()

    (dead_letter,) = harness.dead_letters
    assert "transaction" in dead_letter.reason
    assert effects_of(harness) == []


def test_events_of_a_bundle_are_handled_one_by_one(worker_harness: Make) -> None:
    """One of them is rejected: it is a dead letter of its own, and its neighbours have their effects."""

    def refuse_c(session: Session, event: Event, context: Context) -> Outcome:
        write(session, event, context)
        return Reject("no c") if event.data == "c" else Ack()

    harness = worker_harness(refuse_c, tables=metadata, bundle_events_max=5)
    with harness.session() as session:
        for data in "abcd":
            harness.outbox.add(session, Event(type="order.placed", group="g", data=data))
        session.commit()
    harness.run()

    assert effects_of(harness) == ["g a", "g b", "g d"]
    assert [(found.event and found.event.data, found.reason) for found in harness.dead_letters] == [("c", "no c")]
    assert len(harness.attempts) == 4


def test_run_leaves_events_for_another_topic_in_the_outbox(harness: WorkerHarness) -> None:
    """An event that a handler publishes elsewhere stays in the outbox, and `run` ends."""
    with harness.session() as session:
        Outbox("elsewhere.fifo").add(session, Event(type="a", group="g", data=1))
        session.commit()

    assert harness.run() == []
