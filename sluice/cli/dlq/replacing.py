"""Acts on one dead letter: bring it back with another body, or delete it."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TextIO

import click
from sqlalchemy import Engine

from sluice.cli.acts import act, print_intent
from sluice.cli.dlq.target import DlqTarget
from sluice.cli.targets import ConsumerTarget
from sluice.clock import SystemClock
from sluice.declaration import naming
from sluice.errors import ConfigError
from sluice.messaging import failpoints
from sluice.messaging.database import engines
from sluice.messaging.errors import DeadLetterError
from sluice.messaging.inbox import operations
from sluice.messaging.inbox.operations import InboxOperator
from sluice.messaging.sqs import dead_letter_queue
from sluice.messaging.sqs.dead_letter_queue import Destination, Reading, StoredDeadLetter


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedDeadLetter:
    """The dead letter that an act is about.

    Args:
        described: its name in sentences, such as `message 7 of group order-1`.
        matches: returns whether a dead letter is the wanted one.
    """

    described: str
    matches: Callable[[StoredDeadLetter], bool]


def replace(
    dlq: DlqTarget,
    operator: InboxOperator,
    *,
    group_id: str | None,
    seq: int | None,
    data: TextIO | None,
    message_id: str | None,
    body: TextIO | None,
    confirmed: bool,
) -> None:
    """Bring a message of the DLQ back with other data or another body, or change the data of a held message.

    Either `group_id`, `seq` and `data` are given, or `message_id` and `body`.
    """
    is_numbered = group_id is not None or seq is not None or data is not None
    if not is_numbered and message_id is not None and body is not None:
        whole = _text(body, "--body").strip()
        described = replace_dead(
            dlq,
            operator,
            by_message_id(message_id),
            lambda dead_letter: dead_letter_queue.checked_body(dead_letter, whole),
            confirmed=confirmed,
        )
        print_intent(described, confirmed=confirmed)
        return
    if message_id is not None or body is not None or group_id is None or seq is None or data is None:
        raise click.UsageError("give GROUP and SEQ with --data, or --message-id with --body")
    new_data = _json(data)
    if _is_parked(dlq.target, group_id, seq):
        act(
            dlq.target.engine,
            f"replace message {seq} of group {group_id}, which is held, and have it tried again",
            partial(operator.replace, group_id=group_id, seq=seq, data=new_data),
            confirmed=confirmed,
        )
    else:
        described = replace_dead(dlq, operator, by_number(group_id, seq), body_with_data(new_data), confirmed=confirmed)
        print_intent(described, confirmed=confirmed)


def _text(given: TextIO, option: str) -> str:
    """Return the text of an option's file; refuse bytes that are not UTF-8."""
    try:
        return given.read()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{option} is not text in UTF-8 ({error.reason} at byte {error.start}); give one") from error


def _json(data: TextIO) -> object:
    """Return the value of the JSON in the file of `--data`."""
    try:
        return json.loads(_text(data, "--data"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"--data is not JSON ({error}); give the event's data, as `dlq inspect --json` shows it"
        ) from error


def _is_parked(target: ConsumerTarget, group_id: str, seq: int) -> bool:
    """Return whether the inbox stores the message of this number."""
    with engines.reading(target.engine) as connection, engines.explaining_missing_tables():
        return operations.parked_message(connection, target.consumer.name, group_id, seq) is not None


def by_message_id(message_id: str) -> WantedDeadLetter:
    """Return the description of a dead letter that is named by its SQS message id."""
    return WantedDeadLetter(
        described=f"message {message_id}", matches=lambda dead_letter: dead_letter.sqs_message_id == message_id
    )


def by_number(group_id: str, seq: int, *, epoch: int | None = None) -> WantedDeadLetter:
    """Return the description of a dead letter that is named by group and number; an epoch of None is any epoch."""

    def matches(dead_letter: StoredDeadLetter) -> bool:
        envelope = dead_letter.envelope
        return (
            dead_letter.message_group_id == group_id
            and envelope is not None
            and envelope.seq == seq
            and epoch in (None, envelope.epoch)
        )

    return WantedDeadLetter(described=f"message {seq} of group {group_id}", matches=matches)


def body_with_data(data: object) -> Callable[[StoredDeadLetter], str]:
    """Return a function from a dead letter to its body with this data in place of its own."""

    def body_of(dead_letter: StoredDeadLetter) -> str:
        assert dead_letter.envelope is not None, "it was recognized by its number"
        return dead_letter_queue.with_data(dead_letter.envelope, data)

    return body_of


def replace_dead(
    dlq: DlqTarget,
    operator: InboxOperator,
    wanted: WantedDeadLetter,
    body_of: Callable[[StoredDeadLetter], str],
    *,
    confirmed: bool,
) -> str:
    """Send a dead letter to its consumer's queue with another body, and delete it from the DLQ.

    Without `confirmed`, it only looks for the dead letter and checks the body.

    Returns:
        The act in words, for `print_intent`.

    Raises:
        DeadLetterError: the dead letter is not among those that can be seen.
        EnvelopeError: the body cannot be sent.
    """
    engine, failpoint = dlq.target.engine, failpoints.from_environment(os.environ, failpoints.DEAD_LETTERS)
    queue = dlq.open()
    destination = Destination(dlq.sqs(), naming.queue_name(dlq.target.environment, dlq.target.consumer))
    with Reading(queue, clock=SystemClock()) as reading:
        dead_letter = dead_letter_queue.find(reading, wanted.described, wanted.matches)
        body = dead_letter.message_body(body_of(dead_letter))
        dead_letter_queue.check_size(dead_letter, body, dlq.target.environment.event_bytes_max)
        if confirmed:
            _write_down(engine, operator, "replace", dead_letter)
            fresh = dead_letter_queue.replacing(dead_letter, body)
            dead_letter_queue.move(
                reading,
                dead_letter,
                lambda value: destination.send(value, deduplication_id=fresh, body=body),
                failpoint=failpoint,
            )
    return f"replace {wanted.described} of {queue.name} and send it to {destination.name}"


def _write_down(engine: Engine, operator: InboxOperator, action: str, dead_letter: StoredDeadLetter) -> None:
    """Write an act and the message's body into the audit before the act: afterwards the body may be nowhere else."""
    with engine.begin() as connection, engines.explaining_missing_tables():
        operator.write_down(connection, action, dead_letter)


def purge(dlq: DlqTarget, operator: InboxOperator, wanted: WantedDeadLetter, *, confirmed: bool) -> str:
    """Delete one message of the DLQ for good, and return the act in words; without `confirmed` only look for it.

    Raises:
        DeadLetterError: the message is not among those that can be seen, or is an event of a bundle.
    """
    engine, queue = dlq.target.engine, dlq.open()
    with Reading(queue, clock=SystemClock()) as reading:
        dead_letter = dead_letter_queue.find(reading, wanted.described, wanted.matches)
        if dead_letter.position is not None:
            raise DeadLetterError(
                f"{wanted.described} is one of the {len(dead_letter.bundled)} events of message"
                f" {dead_letter.sqs_message_id}, which is deleted as a whole (`dlq purge-one --message-id`); to drop"
                " one, give its number up (`dlq skip`) and bring the message back, for the others"
            )
        if confirmed:
            _write_down(engine, operator, "purge-one", dead_letter)
            reading.delete(dead_letter)
    numbers = [str(each.envelope.seq) for each in dead_letter.events if each.envelope is not None]
    what = f"number {', '.join(numbers)} of group {dead_letter.message_group_id}" if numbers else "no envelope"
    return f"delete {wanted.described} of {queue.name}, which is {what}"
