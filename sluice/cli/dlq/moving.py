"""Redrive by a command: this process, or a move task of SQS, brings dead letters back."""

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from sqlalchemy.exc import SQLAlchemyError

from sluice import limits
from sluice.cli.acts import actor
from sluice.cli.dlq.target import DlqTarget, letters_of, stoppable
from sluice.clock import Clock, SystemClock
from sluice.declaration import naming
from sluice.errors import ConfigError
from sluice.messaging import failpoints
from sluice.messaging.database import engines
from sluice.messaging.database.choice import RowChoice
from sluice.messaging.errors import OutboxError
from sluice.messaging.inbox.operations import InboxOperator
from sluice.messaging.sqs import dead_letter_queue
from sluice.messaging.sqs.dead_letter_limits import CLIENT, NATIVE, RATE_MAX
from sluice.messaging.sqs.dead_letter_queue import DeadLetterQueue, Destination, Reading, StoredDeadLetter
from sluice.messaging.sqs.rate_limit import Pace
from sluice.messaging.sqs.redrive import (
    Choice,
    LeftReason,
    MoveTasks,
    Redrive,
    RedriveResult,
    batch_of,
    checked_run,
    new_run,
)
from sluice.terminal import output
from sluice.terminal.exits import COULD_NOT, PARTLY

_FOLLOW_SECONDS = 2  # between two looks at a move task
_RECORDED_MAX = 1_000  # messages that a run's row of the audit names
_FAILURE_REASONS = {LeftReason.BEHIND, LeftReason.BOUNCED, LeftReason.FAILED, LeftReason.LATE}
"""Reasons why a message was left that make the command exit with 1."""


def redrive(
    dlq: DlqTarget,
    *,
    engine: str,
    to: str | None,
    rate: float | None,
    choice: RowChoice,
    event_ids: Iterable[str],
    older_than: int | None,
    canary: int | None,
    most: int | None,
    run: str | None,
    no_wait: bool,
    as_json: bool,
    confirmed: bool,
) -> None:
    """Bring dead letters back, by this process or by a move task of SQS, or print a preview without `confirmed`.

    Each argument is the command's option of that name.
    """
    if canary is not None and most is not None:
        raise ConfigError("--canary and --limit are given, allowed is one of them: both are how many come back")
    chosen = letters_of(dlq.target, choice, SystemClock(), event_ids=event_ids, older_than_seconds=older_than)
    if engine == NATIVE:
        if not chosen.is_any or canary is not None or most is not None or run is not None:
            raise ConfigError(
                "--engine is 'native' with a filter, --limit, --canary or --run, allowed are --to, --rate and"
                " --no-wait: a move task moves everything; use the client engine, or leave them out"
            )
        _redrive_natively(dlq, to, rate, is_followed=not no_wait, as_json=as_json, confirmed=confirmed)
        return
    if no_wait:
        raise ConfigError("--no-wait is given with the client engine, allowed is native; leave it out")
    name = destination_name(dlq, to)
    run = None if run is None else checked_run(run)
    batch = batch_of(rate, dlq.hold_seconds)
    queue, destination = dlq.open(), Destination(dlq.sqs(), name)
    if confirmed:
        _redrive_from_here(dlq, queue, destination, chosen, rate, batch, canary, most, run, as_json)
    else:
        _print_preview(queue, name, chosen, canary if most is None else most, as_json)


def destination_name(dlq: DlqTarget, to: str | None = None) -> str:
    """Return the name of the queue that dead letters are sent to: `to`, or the consumer's queue if that is None.

    Raises:
        ConfigError: `to` is no name of a FIFO queue, or names the DLQ itself.
    """
    name = naming.queue_name(dlq.target.environment, dlq.target.consumer) if to is None else to
    if name == dlq.name or not name.endswith(limits.FIFO_SUFFIX):
        raise ConfigError(f"--to is {name!r}, allowed is the name of another FIFO queue, which ends with .fifo")
    return name


def _print_preview(queue: DeadLetterQueue, destination: str, choice: Choice, canary: int | None, as_json: bool) -> None:
    """Print what a run would do, after a look at the first messages; nothing is sent."""
    with stoppable() as (stop, clock):
        seen, matching = look(queue, choice, clock, is_stopped=stop.is_stopped)
    if as_json:
        about = sum(queue.counts.values())
        preview = {"is_done": False, "source": queue.name, "destination": destination, "about": about}
        output.as_json(preview | {"seen": seen, "matching": matching, "canary": canary})
        return
    described = describe_preview(queue, destination, choice, canary, seen=seen, matching=matching)
    output.line(f"{described}; add --yes to do it" if seen else described)


def look(queue: DeadLetterQueue, choice: Choice, clock: Clock, *, is_stopped: Callable[[], bool]) -> tuple[int, int]:
    """Receive the messages that a run would receive first, and release them.

    Returns:
        How many there were, at most ten, and how many of them match the filters.
    """
    with Reading(queue, clock=clock) as reading:
        dead_letters = dead_letter_queue.peek(reading, limits.RECEIVE_MESSAGES_MAX, is_stopped=is_stopped)
    return len(dead_letters), sum(choice.matches(dead_letter) for dead_letter in dead_letters)


def describe_preview(
    queue: DeadLetterQueue, destination: str, choice: Choice, canary: int | None, *, seen: int, matching: int
) -> str:
    """Return in words what a run would do; `seen` and `matching` are the numbers that `look` returned."""
    about = sum(queue.counts.values())
    if not seen:
        return f"nothing to be had in {queue.name}; SQS says about {about}"
    which = f"{'what matches' if canary is None else f'up to {canary}'} of "
    matching_text = "" if choice.is_any else f"; of the first {seen} to be had {matching} match"
    return (
        f"would send {'' if choice.is_any and canary is None else which}about {about} messages of {queue.name} to"
        f" {destination}{matching_text}"
    )


def _redrive_from_here(
    dlq: DlqTarget,
    queue: DeadLetterQueue,
    destination: Destination,
    choice: Choice,
    rate: float | None,
    batch: int,
    canary: int | None,
    most: int | None,
    run: str | None,
    as_json: bool,
) -> None:
    """Bring dead letters back from this process with a progress bar, print the result, and exit with its code."""
    with stoppable() as (stop, clock), output.progress(sum(queue.counts.values())) as advance:
        run = new_run(clock) if run is None else run
        output.line(f"run {run}: {queue.name} to {destination.name}", is_error=True)
        result = bring_back(
            dlq,
            queue,
            destination,
            choice,
            who=actor(),
            warn=partial(output.line, is_error=True),
            run=run,
            clock=clock,
            rate=rate,
            batch=batch,
            most=canary if most is None else most,
            is_stopped=stop.is_stopped,
            on_moved=lambda _: advance(1),
        )
    if as_json:
        result_fields = {"is_done": True, "run": run, "source": queue.name, "destination": destination.name}
        places = [{"group": group, "seq": seq} for group, seq in result.moved]
        left = {"left": result.left_counts(), "error": result.error, "is_whole": result.is_whole}
        output.as_json(result_fields | {"moved": places} | left)
    else:
        _show(result, run, canary)
    _exit(result)


def bring_back(
    dlq: DlqTarget,
    queue: DeadLetterQueue,
    destination: Destination,
    choice: Choice,
    *,
    who: str,
    warn: Callable[[str], object],
    run: str,
    clock: Clock,
    is_stopped: Callable[[], bool],
    rate: float | None = None,
    batch: int = limits.RECEIVE_MESSAGES_MAX,
    most: int | None = None,
    why: str | None = None,
    on_moved: Callable[[StoredDeadLetter], None] = lambda _: None,
) -> RedriveResult:
    """Bring dead letters back from this process, and write the run into the inbox's audit in the name of `who`.

    The audit's reason is the run's id and `why`. If the audit cannot be written, `warn` is called with a sentence about
    it, and the messages stay brought back.
    """
    moved: list[StoredDeadLetter] = []

    def count(dead_letter: StoredDeadLetter) -> None:
        moved.append(dead_letter)
        on_moved(dead_letter)

    result = Redrive(
        queue,
        destination,
        run=run,
        pace=Pace(rate, clock=clock),
        clock=clock,
        choice=choice,
        batch=batch,
        most=most,
        is_stopped=is_stopped,
        failpoint=failpoints.from_environment(os.environ, failpoints.DEAD_LETTERS),
        on_moved=count,
    ).work()
    reason = f"run {run}, to {destination.name}{'' if why is None else f': {why}'}"
    _record(dlq, who, warn, reason, CLIENT, [_place(event) for each in moved for event in each.events], result)
    return result


def _place(dead_letter: StoredDeadLetter) -> tuple[str, int | None, int | None]:
    """Return group, epoch and number of an event; epoch and number are None where its body is not an envelope."""
    envelope = dead_letter.envelope
    if envelope is None:
        return dead_letter.message_group_id, None, None
    return dead_letter.message_group_id, envelope.epoch, envelope.seq


def _record(
    dlq: DlqTarget,
    who: str,
    warn: Callable[[str], object],
    reason: str,
    engine: str,
    moved: Sequence[tuple[str, int | None, int | None]],
    result: RedriveResult,
) -> None:
    """Write a run into the inbox's audit, if the inbox's database is named; if that fails, only warn."""
    if dlq.target.database is None:
        return
    operator = InboxOperator(consumer=dlq.target.consumer.name, actor=who, reason=reason)
    detail = {
        "engine": engine,
        "queue": dlq.name,
        "moved": moved[:_RECORDED_MAX],
        "moved_count": len(moved),
        "left": result.left_counts(),
        "error": result.error,
        "is_whole": result.is_whole,
    }
    try:
        with dlq.target.database.begin() as connection, engines.explaining_missing_tables():
            operator.write_down_redrive(connection, detail)
    except (SQLAlchemyError, OutboxError) as error:
        why = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        warn(f"the audit does not have this run: its row could not be written ({why})")


def _show(result: RedriveResult, run: str, canary: int | None) -> None:
    """Print what a run brought back and left, and the operator's next step."""
    for line in describe_result(result):
        output.line(line)
    if result.error is not None:
        output.line(f"the last error: {result.error}", is_error=True)
    if not result.is_whole:
        output.line(f"stopped before the end; go on with --run {run}", is_error=True)
    elif canary is not None and result.moved:
        places = ", ".join(f"number {seq} of group {group}" for group, seq in result.moved[:10])
        output.line(
            f"look whether the consumer handles {places}: its log, its effect, and whether `dlq ls` shows it again."
            " Then bring the rest back without --canary"
        )


def describe_result(result: RedriveResult) -> list[str]:
    """Return in words how many messages a run has brought back, and how many it has left for which reason."""
    lines = [f"{len(result.moved)} brought back"]
    counts = Counter(result.left.values())
    lines += [f"{counts[why]} left: {why.value}" for why in LeftReason if counts[why]]
    if LeftReason.UNWANTED in result.left.values():
        lines.append("what is behind a message that does not match cannot be had without it, and stays too")
    return lines


def _exit(result: RedriveResult) -> None:
    """Exit with 2 if messages were left and none came back, with 1 if some were left that should have come back."""
    if not result.moved and (result.left or not result.is_whole):
        sys.exit(COULD_NOT)
    if not result.is_whole or _FAILURE_REASONS & set(result.left.values()):
        sys.exit(PARTLY)


def _whole(rate: float | None) -> int | None:
    """Return the rate of a move task, for which SQS takes whole messages a second only."""
    if rate is not None and rate != int(rate):
        raise ConfigError(f"--rate is {rate:g} with the native engine, allowed are whole numbers from 1 to {RATE_MAX}")
    return None if rate is None else int(rate)


def _redrive_natively(
    dlq: DlqTarget, to: str | None, rate: float | None, *, is_followed: bool, as_json: bool, confirmed: bool
) -> None:
    """Start a move task of SQS, which moves every message; without `confirmed` only print how many there are.

    With `is_followed` it waits for the end of the task.
    """
    destination, whole_rate = destination_name(dlq, to), _whole(rate)
    if dlq.is_undelivered:
        raise ConfigError(
            "--engine is 'native' with --undelivered, allowed is client: SQS takes back only what came from a queue"
        )
    queue, sqs = dlq.open(), dlq.sqs()
    # Without a destination SQS refuses messages that were sent to the DLQ by hand, because it knows no source of them.
    destination_arn = Destination(sqs, destination).arn
    tasks = MoveTasks(sqs, queue.arn)
    about = sum(queue.counts.values())
    if not confirmed:
        output.line(
            f"would let SQS move about {about} messages of {queue.name} to {destination}, between what comes there"
            " meanwhile; add --yes to do it"
        )
        return
    tasks.start(destination_arn, rate=whole_rate)
    warn = partial(output.line, is_error=True)
    _record(dlq, actor(), warn, f"a move task to {destination}", NATIVE, [], RedriveResult())
    if not is_followed:
        output.line(f"SQS moves about {about} messages of {queue.name}; see `dlq status`, `dlq cancel`")
        return
    with stoppable() as (stop, clock), output.progress(about) as advance:
        moved_before = 0
        for task in tasks.follow(clock=clock, every_seconds=_FOLLOW_SECONDS):
            advance(task.moved - moved_before)
            moved_before = task.moved
            if stop.is_stopped():
                break
    if as_json:
        result_fields = {"is_done": True, "status": task.status, "moved": task.moved, "failure": task.failure}
        output.as_json({"source": queue.name, "destination": destination} | result_fields)
    else:
        failure_text = f": {task.failure}" if task.failure else ""
        output.line(f"{task.status.lower()}, about {task.moved} moved{failure_text}")
    if not task.has_ended:
        output.line("SQS goes on without this process; see `dlq status`, `dlq cancel`", is_error=True)
    if task.status != "COMPLETED":
        sys.exit(PARTLY if task.moved or not task.has_ended else COULD_NOT)
