"""Hooks of a worker: metrics, spans, recorders and programs override its methods.

A hook is called on the thread that works on the message, and `not_deleted` on a thread that deletes; several threads
may call a hook at once. An exception of a hook is logged and changes nothing: the message is still handled, deleted or
tried again.
"""
# ruff: noqa: ARG002 (the base hooks ignore their arguments)

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from sluice.messaging.envelope import Envelope, Event
from sluice.messaging.handlers import Context, Outcome
from sluice.messaging.hooks import HookSet, harmless
from sluice.messaging.inbox.groups import DecodedMessage
from sluice.messaging.inbox.sequence import Decision
from sluice.messaging.sqs.queue import ReceivedMessage

type TakeOutcome = Callable[[Outcome], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledMessage:
    """A message that needs no further attempt.

    Args:
        decision: whether it was handled, parked or a duplicate, and the state of its number.
        begun_at_us: when work on it began, microseconds UTC.
    """

    message: DecodedMessage
    decision: Decision
    begun_at_us: int


class Gauges(Protocol):
    """Numbers that a worker reads when a hook requests them."""

    def inbox_counts(self) -> Mapping[str, int]:
        """Return how many messages the inbox has parked, held and open; this queries the database."""

    def stuck_count(self) -> int:
        """Return how many threads of the worker are overdue with their sign of life."""


class WorkerHooks:
    """Hooks that do nothing; override the methods you need, and pass the hooks to `build_worker(…, hooks=[…])`."""

    def handling(self, event: Event, context: Context) -> AbstractContextManager[TakeOutcome]:
        """Return the block in which an event is handled and its effect committed.

        The block's value is called with the outcome. If the message was lost, an exception passes through the block.
        """
        return _NOTHING

    def before_acknowledge(self, settled: SettledMessage) -> None:
        """Called before a message is deleted, after its effect was committed or nothing had to be committed."""

    def after_drain(self, envelope: Envelope) -> None:
        """Called when the effect of a parked message is committed."""

    def after_passing_over(self, envelope: Envelope) -> None:
        """Called when an event of a type that is not the consumer's was marked as handled without calling a handler."""

    def before_retry(self, envelope: Envelope, reason: str) -> None:
        """Called before a message that was not handled is released for another attempt."""

    def dead_lettered(self, envelope: Envelope | None, reason: str) -> None:
        """Called when a message is recorded as dead, or a parked one as held for an operator.

        The queue moves a dead message to the DLQ afterwards. The envelope is None if it cannot be read.
        """

    def after_loss(self, message: ReceivedMessage, reason: str) -> None:
        """Called when another consumer may hold the message; nothing was committed."""

    def not_deleted(self, message: ReceivedMessage) -> None:
        """Called when a message could not be deleted; it will be received again."""

    def overdue(self, count: int) -> None:
        """Called before the worker ends because `count` handlers are past their deadline and have not ended."""

    def tick(self, gauges: Gauges) -> None:
        """Called every second, by a thread that does nothing urgent."""

    def before_invocation(self, messages: Sequence[ReceivedMessage]) -> None:
        """Called when an invocation of a Lambda function begins, with its batch, which another process received."""

    def after_invocation(self, gauges: Gauges | None, seconds_max: float) -> None:
        """Called when an invocation of a Lambda function ends: its process may be frozen then, or ended.

        Args:
            gauges: for an invocation of its schedule, which may query the database for them; else None.
            seconds_max: how long all hooks may take; afterwards Lambda ends the process, and the whole batch comes
                again.
        """

    def after_end(self) -> None:
        """Called last, when no message is worked on any more."""


class WorkerHookSet(HookSet[WorkerHooks]):
    """Several hooks of one worker."""

    def __init__(self, hooks: Sequence[WorkerHooks] = ()) -> None:
        super().__init__(hooks)
        self._around = [hook for hook in hooks if type(hook).handling is not WorkerHooks.handling]

    def handling(self, event: Event, context: Context) -> AbstractContextManager[TakeOutcome]:
        """Return a context manager that enters the `handling` of all hooks."""
        return _Handling(self._around, event, context) if self._around else _NOTHING


class _Handling:
    """Blocks of several hooks: entered in order, left in reverse, and none can keep the handler from being called."""

    def __init__(self, hooks: Sequence[WorkerHooks], event: Event, context: Context) -> None:
        self._hooks, self._event, self._context = hooks, event, context
        self._entered: list[tuple[WorkerHooks, AbstractContextManager[TakeOutcome], TakeOutcome]] = []

    def __enter__(self) -> TakeOutcome:
        for hook in self._hooks:
            with harmless(hook):
                block = hook.handling(self._event, self._context)
                self._entered.append((hook, block, block.__enter__()))
        return self._take

    def _take(self, outcome: Outcome) -> None:
        for hook, _, take in self._entered:
            with harmless(hook):
                take(outcome)

    def __exit__(self, *raised: object) -> None:
        for hook, block, _ in reversed(self._entered):
            with harmless(hook):
                block.__exit__(*raised)  # type: ignore[arg-type]


def _ignore(_: Outcome) -> None:
    pass


_NOTHING = nullcontext(_ignore)
