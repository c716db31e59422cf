"""A Lambda function on Postgres: parked messages, asyncio, a deadline, a batch that comes again."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from sluice.declaration import Consumer, Gaps, Lambda, Poison
from sluice.messaging import Ack, Context, Event, Reject, handler
from sluice.testing import LambdaHarness
from sluice.testing.lambda_harness import Function
from tests.support.messaging.broken_functions import ignore_the_deadline

type Harness = Callable[..., LambdaHarness]
_OPTIONS: dict[str, Any] = {
    "name": "billing",
    "handlers": "their.handlers",
    "max_attempts": 2,
    "processing_seconds": 0.1,
    "runtime": Lambda(batch_size=10, timeout_seconds=5),
}


def handled_events(harness: LambdaHarness) -> list[tuple[str, int]]:
    """Return data and number of the attempts that handled an event, in their order."""
    return [(attempt.event.data, attempt.number) for attempt in harness.attempts if isinstance(attempt.outcome, Ack)]


def test_a_functions_schedule_handles_its_parked_messages(lambda_harness: Harness, postgres: Engine) -> None:
    """A message behind a dead one waits in the inbox, and is handled after the dead one was redriven."""
    is_refused = True

    def refuse_first(_: Session, event: Event, __: Context) -> Reject | None:
        return Reject("not yet") if event.data == "a1" and is_refused else None

    declared = Consumer(**_OPTIONS, poison=Poison.PARK, gaps=Gaps.HALT)
    harness = lambda_harness(refuse_first, consumer=declared, database=postgres)
    for name in ("a1", "a2", "b1"):
        harness.publish("order.placed", name[0], name)
    harness.run()
    assert [event.data for event in harness.parked] == ["a2"]
    assert handled_events(harness) == [("b1", 1)]

    is_refused = False
    harness.redrive()
    harness.run()

    assert handled_events(harness) == [("b1", 1), ("a1", 1), ("a2", 1)]


def test_a_handler_of_asyncio_runs_in_a_function(lambda_harness: Harness, postgres: Engine) -> None:
    """A function has no lanes, but handles `async def` handlers as a worker does."""

    @handler("order.placed")
    async def bill(session: Session, _: Event, __: Context) -> None:
        session.execute(text("SELECT 1"))

    harness = lambda_harness(bill, consumer=Consumer(**_OPTIONS), database=postgres)
    harness.publish("order.placed", "a", "a1")

    harness.run()

    assert handled_events(harness) == [("a1", 1)]


@pytest.mark.parametrize(
    ("broken", "attempts"),
    [
        pytest.param(None, ["a1", "a1", "a2"], id="the-product"),
        pytest.param(ignore_the_deadline, ["a1", "a2"], id="ignore-the-deadline"),
    ],
)
def test_nothing_is_committed_once_the_time_of_an_invocation_is_over(
    lambda_harness: Harness, postgres: Engine, broken: Callable[..., Function] | None, attempts: list[str]
) -> None:
    """The handler takes too long the first time: its effect is rolled back, and the message behind it is not begun.

    A function that ignores its deadline commits it too late, and begins the next message.
    """
    slow = ["a1"]

    def bill(_: Session, event: Event, __: Context) -> None:
        if event.data in slow:
            slow.remove(event.data)
            harness.aws.advance(4.6)  # of five seconds: the last half second is no time to commit in

    harness = lambda_harness(bill, consumer=Consumer(**_OPTIONS), database=postgres, broken=broken)
    harness.publish("order.placed", "a", "a1")
    harness.publish("order.placed", "a", "a2")

    harness.run()

    assert handled_events(harness) == [("a1", 1), ("a2", 1)]
    assert [attempt.event.data for attempt in harness.attempts] == attempts


@pytest.mark.parametrize("times", [1, 2])
def test_a_batch_that_comes_again_has_no_effect(lambda_harness: Harness, postgres: Engine, times: int) -> None:
    """Lambda may deliver a batch again. The inbox knows its messages, and the function reports no failure."""
    harness = lambda_harness(lambda _, __, ___: None, consumer=Consumer(**_OPTIONS), database=postgres)
    harness.publish("order.placed", "a", "a1")
    harness.run()

    assert [harness.redeliver() for _ in range(times)] == [[]] * times
