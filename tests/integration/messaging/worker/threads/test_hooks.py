"""A worker calls its hooks in order, and a hook that fails costs no message anything."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from types import TracebackType
from typing import Any, override

import pytest
from sqlalchemy.orm import Session
from structlog.testing import capture_logs

from sluice.declaration import Consumer
from sluice.messaging.envelope import Event
from sluice.messaging.errors import HoldLostError
from sluice.messaging.handlers import Ack, Context, Outcome, Reject, Retry
from sluice.messaging.inbox.groups import InboxPolicy
from sluice.messaging.waiting import Stop
from sluice.messaging.worker.hooks import TakeOutcome, WorkerHooks, WorkerHookSet
from sluice.messaging.worker.settings import WorkerSettings
from sluice.messaging.worker.worker import Worker
from tests.support.messaging.faulty_calls import Fault
from tests.support.messaging.world import MAX_ATTEMPTS, WorkerParts, World, envelope

PARKS = InboxPolicy(consumer="billing", parks_poison=True, parks_gaps=True)
SETTINGS = WorkerSettings(lanes=1, wait_seconds=0, drain_seconds=1, keep_inbox_seconds=86_400)
NAMES = [name for name in vars(WorkerHooks) if not name.startswith("_")]


class NotingHook(WorkerHooks):
    """Notes each call: its name, and of a message its group and number."""

    def __init__(self) -> None:
        self.noted: list[str] = []

    def note(self, name: str, *arguments: Any) -> None:
        """Note a hook's name with the group and number of each message it was called with."""
        found = [
            getattr(item, "envelope", item)
            for item in [getattr(argument, "message", argument) for argument in arguments]
        ]
        places = [f"{item.event.group}{item.seq}" for item in found if hasattr(item, "event")]
        self.noted.append(" ".join([name, *places]))

    @override
    def handling(self, event: Event, context: Context) -> AbstractContextManager[TakeOutcome]:
        self.note(f"handling {event.group}{context.seq}")
        return nullcontext(lambda outcome: self.note(type(outcome).__name__))


def _noting(name: str) -> Callable[..., None]:
    """Return a hook that notes its name and its messages."""
    return lambda self, *arguments: self.note(name, *arguments)


for _name in set(NAMES) - {"handling"}:
    setattr(NotingHook, _name, _noting(_name))


class FailingHook(WorkerHooks):
    """A hook that raises when its method of this name is called: a method of hooks, or a step of `handling`'s block."""

    def __init__(self, name: str) -> None:
        def fail(*_: object) -> Any:
            self.called_count += 1
            raise RuntimeError("boom")

        self.called_count = 0
        self.fail, self.name = fail, name
        setattr(self, name, fail)

    @override
    def handling(self, event: Event, context: Context) -> AbstractContextManager[TakeOutcome]:
        return (
            _FailingBlock(self)
            if self.name.startswith("__") or self.name == "take"
            else super().handling(event, context)
        )


class _FailingBlock(AbstractContextManager[TakeOutcome]):
    """A context manager that fails when it is entered, when it takes the outcome, or when it is left."""

    def __init__(self, hook: FailingHook) -> None:
        self._hook = hook

    def __enter__(self) -> TakeOutcome:
        self._fail_in("__enter__")
        return lambda _: self._fail_in("take")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        self._fail_in("__exit__")
        return True  # would swallow what the handler raised

    def _fail_in(self, name: str) -> None:
        """Fail if this is the method that is to fail."""
        if self._hook.name == name:
            self._hook.fail()


def let_everything_happen(world: World, hooks: list[WorkerHooks]) -> WorkerParts:
    """Let each event happen that a hook can learn of.

    A message is retried, rejected, parked and drained, delivered twice, lost, not deleted, and passed over because
    another consumer's handlers are for its type; and the worker does its maintenance, is overdue, and ends.
    """
    handlers = world.handlers.of_consumer(Consumer(name="shipping", types=("order.placed",)))
    worker = world.worker(hooks=hooks, handlers=handlers)
    sent = world.send("a", "a")
    world.handler_steps["a", 1] = [Retry(0), Reject("no such customer")]
    world.work_until_idle(worker)
    world.redrive()
    world.work_until_idle(worker)
    worker.drainer.step()
    world.put(sent[0])
    worker.sqs_calls.faults = [Fault(operation="DeleteMessage", refused="ReceiptHandleIsInvalid")]
    world.work_until_idle(worker)

    def loses(_: Session, __: Event, context: Context) -> Outcome:
        worker.heartbeat.leases()[0].lose("by this test")  # as if SQS had refused to extend it
        context.hold.check()
        raise AssertionError("it was told that the message is still its own")

    world.send("a")
    world.handler_steps["a", 3] = [loses]
    world.work_until_idle(worker)
    world.put(envelope("a", 4, type="order.shipped"))
    world.work_until_idle(worker)
    whole_worker = Worker(worker.parts, settings=SETTINGS, stop=Stop(), clock=world.clock)
    whole_worker.maintain()
    worker.parts.hooks.call(WorkerHooks.overdue, 1)
    worker.parts.hooks.call(WorkerHooks.before_invocation, ())  # as a Lambda function does
    worker.parts.hooks.call(WorkerHooks.after_invocation, None, 1.0)
    whole_worker._end([], [], [])
    return worker


@pytest.fixture
def parking(world: World) -> World:
    """Return a consumer that parks the messages behind a dead one."""
    return World(world.engine, consumer="shipping", policy=replace(PARKS, consumer="shipping"))


def test_hooks_are_called_in_order(parking: World) -> None:
    """The names of the hooks, each with the group and number of its message, in the order of the events."""
    noting = NotingHook()

    let_everything_happen(parking, [noting])

    assert noting.noted == [
        *("handling a1", "Retry", "before_retry a1"),
        *("handling a1", "Reject", "dead_lettered a1"),
        *("before_acknowledge a2",),
        *("handling a1", "Ack", "before_acknowledge a1"),
        *("handling a2", "Ack", "after_drain a2"),
        *("before_acknowledge a1", "not_deleted", "before_acknowledge a1"),
        *("handling a3", "after_loss", "handling a3", "Ack", "before_acknowledge a3"),
        *("handling a4", "after_passing_over a4", "Ack", "before_acknowledge a4"),
        *("tick", "overdue", "before_invocation", "after_invocation", "after_end"),
    ]


@pytest.mark.parametrize("name", [*NAMES, "__enter__", "take", "__exit__"])
def test_a_hook_that_fails_costs_no_message_anything(parking: World, name: str) -> None:
    """The error is logged once for each call.

    Every message is handled, and the hooks behind the failing one are called.
    """
    failing, noting = FailingHook(name), NotingHook()

    with capture_logs() as logged:
        let_everything_happen(parking, [failing, noting])

    failed = [entry for entry in logged if entry["event"] == "a hook failed"]
    assert failing.called_count == len(failed) > 0
    assert failed[0]["hook"] == "FailingHook"
    assert failed[0]["error"] == "RuntimeError: boom"
    assert parking.committed_effects() == [("a", 1), ("a", 2), ("a", 3)]
    assert parking.bodies_in_queue() == []
    assert parking.bodies_in_dlq() == []
    assert parking.parked_places() == []
    assert max(call.attempt for call in parking.calls) < MAX_ATTEMPTS
    assert noting.noted[-1] == "after_end"


def _take_and_raise(take: TakeOutcome) -> None:
    """Take an outcome, and fail as if the message's hold were lost."""
    take(Ack())
    raise HoldLostError("too late")


def test_a_lost_lease_is_raised_through_every_hook() -> None:
    """A block that returns True when it is left has no say: the worker would take the message for handled."""
    swallowing = FailingHook("take")
    hooks = WorkerHookSet([swallowing])
    event = Event(type="a", group="b", data={})
    context: Any = None

    with pytest.raises(HoldLostError), hooks.handling(event, context) as take:
        _take_and_raise(take)

    assert swallowing.called_count == 1
