"""Automatic redrive: a task brings dead letters back, within declared bounds; an operator switches it on and off."""

import os
import sys
from collections import Counter
from dataclasses import dataclass, field

from sluice.cli.acts import actor
from sluice.cli.dlq.target import DlqTarget, letters_of, stoppable
from sluice.cli.targets import ConsumerTarget
from sluice.clock import Clock
from sluice.declaration import AutomaticRedrive, Consumer, naming
from sluice.errors import ConfigError
from sluice.messaging import failpoints
from sluice.messaging.database.choice import RowChoice
from sluice.messaging.failpoints import Failpoint
from sluice.messaging.inbox.redrive_guard import RedriveGuard, RedriveOperator, RedriveVerdict
from sluice.messaging.sqs.dead_letter_queue import DeadLetterQueue, Destination, Reading, StoredDeadLetter, peek
from sluice.messaging.sqs.rate_limit import Pace
from sluice.messaging.sqs.redrive import Choice, LeftReason, Redrive, RedriveResult, new_run
from sluice.messaging.waiting import Stop
from sluice.terminal import output
from sluice.terminal.exits import PARTLY

_SENT_AS = "automatic"
"""The same for all runs, in place of a run's id in deduplication ids.

If a run dies after it sent a message, the next run sends it under the same deduplication id, and SQS drops the copy.
"""
_FAILED = {LeftReason.BOUNCED, LeftReason.FAILED, LeftReason.LATE}
"""Reasons why a message was left in the DLQ that somebody has to look at."""


@dataclass(slots=True)
class _GuardedRun:
    """The filter and the destination of an automatic redrive, which both ask the guard about each message.

    Args:
        choice: only the dead letters that it matches.
        verdicts: the guard's answer about each message, by SQS message id.
    """

    guard: RedriveGuard
    destination: Destination
    choice: Choice
    failpoint: Failpoint
    verdicts: dict[str, RedriveVerdict] = field(default_factory=dict)

    def matches(self, dead_letter: StoredDeadLetter) -> bool:
        """Return whether a message may be brought back, and store the verdict."""
        verdict = self.guard.judge(dead_letter)
        before_us = self.choice.before_us
        if verdict is RedriveVerdict.BRING_BACK and not self.choice.matches(dead_letter):
            is_fresh = before_us is not None and dead_letter.sent_at_us >= before_us
            verdict = RedriveVerdict.TOO_FRESH if is_fresh else RedriveVerdict.NOT_CHOSEN
        self.verdicts[dead_letter.sqs_message_id] = verdict
        return verdict is RedriveVerdict.BRING_BACK

    def send(self, dead_letter: StoredDeadLetter, *, deduplication_id: str) -> str:
        """Record in the guard that a message is brought back, then send it."""
        self.guard.claim(dead_letter)
        self.failpoint("after_claim")
        return self.destination.send(dead_letter, deduplication_id=deduplication_id)

    def refusal_counts(self) -> dict[str, int]:
        """Return how many messages may not be brought back, by the name of the verdict in lower case."""
        refusals = [verdict for verdict in self.verdicts.values() if verdict is not RedriveVerdict.BRING_BACK]
        return {verdict.name.lower(): count for verdict, count in Counter(refusals).items()}


def redrive(dlq: DlqTarget, *, choice: RowChoice, older_than_seconds: int | None) -> None:
    """Bring back the dead letters that the guard lets through, and print a line of JSON.

    It exits with 1 if the guard switched automatic redrive off, if the run did not reach its end, or if a message was
    left for a reason in `_FAILED`.
    """
    bounds = _automatic_redrive(dlq.target.consumer)
    if dlq.is_undelivered:
        raise ConfigError(
            "--undelivered is given, allowed is the consumer's own DLQ: no inbox knows the other's messages"
        )
    failpoint = failpoints.from_environment(os.environ, failpoints.AUTOMATIC_REDRIVE)
    queue = dlq.open()
    destination = Destination(dlq.sqs(), naming.queue_name(dlq.target.environment, dlq.target.consumer))
    with stoppable() as (stop, clock):
        run = new_run(clock)
        chosen = letters_of(dlq.target, choice, clock, older_than_seconds=older_than_seconds)
        guard = RedriveGuard(dlq.target.engine, dlq.target.consumer.name, bounds, run=run, own_clock=clock)
        guard.begin()
        try:
            failpoint("after_begin")
            guarded = _GuardedRun(guard, destination, chosen, failpoint)
            result = _bring_back(queue, guarded, bounds, clock, stop)
        finally:
            guard.end()
    fields = {"run": run, "source": queue.name, "moved": len(result.moved), "left": guarded.refusal_counts()}
    ending = {"is_off": guard.is_off, "is_whole": result.is_whole, "error": result.error}
    output.as_json(fields | ending, indent=None)
    if guard.is_off or not result.is_whole or _FAILED & set(result.left.values()):
        sys.exit(PARTLY)


def _automatic_redrive(consumer: Consumer) -> AutomaticRedrive:
    """Return the bounds that a consumer declares; refuse a consumer that declares none."""
    if consumer.automatic_redrive is None:
        raise ConfigError(
            f"Consumer({consumer.name!r}).automatic_redrive is None, allowed is AutomaticRedrive(…); declare it, or use"
            " `dlq redrive`"
        )
    return consumer.automatic_redrive


def _bring_back(
    queue: DeadLetterQueue, guarded: _GuardedRun, bounds: AutomaticRedrive, clock: Clock, stop: Stop
) -> RedriveResult:
    """Judge the first messages, then bring back those that the guard lets through.

    The first pass only judges: where a message died again after it was brought back, the guard switches automatic
    redrive off, and the second pass brings nothing back.
    """

    def is_stopped() -> bool:
        return stop.is_stopped() or not guarded.guard.may_go_on()

    with Reading(queue, clock=clock) as reading:
        for dead_letter in peek(reading, bounds.messages_max, is_stopped=is_stopped):
            guarded.matches(dead_letter)
    return Redrive(
        queue,
        guarded,
        run=_SENT_AS,
        pace=Pace(None, clock=clock),
        clock=clock,
        choice=guarded,
        most=bounds.messages_max,
        is_stopped=is_stopped,
        failpoint=guarded.failpoint,
    ).work()


def operator(target: ConsumerTarget, reason: str) -> RedriveOperator:
    """Return the operator that switches a consumer's automatic redrive on or off.

    Raises:
        ConfigError: the consumer does not declare automatic redrive.
    """
    _automatic_redrive(target.consumer)
    return RedriveOperator(consumer=target.consumer.name, actor=actor(), reason=reason)
