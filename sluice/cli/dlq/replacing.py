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
from sluice.messaging.inbox import operations
from sluice.messaging.inbox.operations import InboxOperator
from sluice.messaging.sqs import dead_letter_queue
from sluice.messaging.sqs.dead_letter_queue import Destination, Reading, StoredDeadLetter


@dataclass(frozen=True, slots=True, kw_only=True)
class _Selection:
    """The message to replace: its name for the operator, its ids, and its corrected body."""

    described: str
    matches: Callable[[StoredDeadLetter], bool]
    body_of: Callable[[StoredDeadLetter], str]


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
    """Bring a message of the DLQ back with other data, or another whole body; change the data of one that is held."""
    numbered = (group_id, seq, data)
    if numbered == (None, None, None) and message_id is not None and body is not None:
        _replace_dead(dlq, operator, _by_message_id(message_id, _text(body, "--body").strip()), confirmed=confirmed)
        return
    if (message_id, body) != (None, None) or group_id is None or seq is None or data is None:
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
        _replace_dead(dlq, operator, _by_group_and_number(group_id, seq, new_data), confirmed=confirmed)


def _text(given: TextIO, option: str) -> str:
    try:
        return given.read()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{option} is not text in UTF-8 ({error.reason} at byte {error.start}); give one") from error


def _json(data: TextIO) -> object:
    try:
        return json.loads(_text(data, "--data"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"--data is not JSON ({error}); give the event's data, as `dlq inspect --json` shows it"
        ) from error


def _is_parked(target: ConsumerTarget, group_id: str, seq: int) -> bool:
    with engines.reading(target.engine) as connection, engines.explaining_missing_tables():
        return operations.parked_message(connection, target.consumer.name, group_id, seq) is not None


def _by_message_id(message_id: str, body: str) -> _Selection:
    return _Selection(
        described=f"message {message_id}",
        matches=lambda dead_letter: dead_letter.sqs_message_id == message_id,
        body_of=lambda dead_letter: dead_letter_queue.checked_body(dead_letter, body),
    )


def _by_group_and_number(group_id: str, seq: int, data: object) -> _Selection:
    def matches(dead_letter: StoredDeadLetter) -> bool:
        return (
            dead_letter.message_group_id == group_id
            and dead_letter.envelope is not None
            and dead_letter.envelope.seq == seq
        )

    def body_of(dead_letter: StoredDeadLetter) -> str:
        assert dead_letter.envelope is not None
        return dead_letter_queue.with_data(dead_letter.envelope, data)

    return _Selection(described=f"message {seq} of group {group_id}", matches=matches, body_of=body_of)


def _replace_dead(dlq: DlqTarget, operator: InboxOperator, wanted: _Selection, *, confirmed: bool) -> None:
    engine, failpoint = dlq.target.engine, failpoints.from_environment(os.environ, failpoints.DEAD_LETTERS)
    queue = dlq.open()
    destination = Destination(dlq.sqs(), naming.queue_name(dlq.target.environment, dlq.target.consumer))
    with Reading(queue, clock=SystemClock()) as reading:
        dead_letter = dead_letter_queue.find(reading, wanted.described, wanted.matches)
        body = wanted.body_of(dead_letter)
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
    print_intent(f"replace {wanted.described} of {queue.name} and send it to {destination.name}", confirmed=confirmed)


def _write_down(engine: Engine, operator: InboxOperator, action: str, dead_letter: StoredDeadLetter) -> None:
    """Write an act down before it is done: afterwards the body may be nowhere else."""
    with engine.begin() as connection, engines.explaining_missing_tables():
        operator.write_down(connection, action, dead_letter)


def purge(dlq: DlqTarget, operator: InboxOperator, message_id: str, *, confirmed: bool) -> None:
    """Delete one message of the DLQ for good."""
    engine = dlq.target.engine
    described, queue = f"message {message_id}", dlq.open()
    with Reading(queue, clock=SystemClock()) as reading:
        dead_letter = dead_letter_queue.find(
            reading, described, lambda dead_letter: dead_letter.sqs_message_id == message_id
        )
        if confirmed:
            _write_down(engine, operator, "purge-one", dead_letter)
            reading.delete(dead_letter)
    envelope = dead_letter.envelope
    what = "no envelope" if envelope is None else f"number {envelope.seq} of group {envelope.event.group}"
    print_intent(f"delete {described} of {queue.name}, which is {what}", confirmed=confirmed)
