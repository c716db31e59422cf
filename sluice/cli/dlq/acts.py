"""What `sluice dlq …` does to one message, and to one number of a group."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TextIO

import click
from sqlalchemy import Engine

from sluice.cli.dlq.place import queue_client
from sluice.cli.place import ConsumerTarget
from sluice.cli.tables.acts import act, actor, print_acts, print_intent
from sluice.clock import SystemClock
from sluice.declaration import naming
from sluice.errors import ConfigError
from sluice.messaging import failpoints
from sluice.messaging.database import engines
from sluice.messaging.inbox import operations, tables
from sluice.messaging.inbox.operations import InboxOperator
from sluice.messaging.sqs import dead_letter_queue
from sluice.messaging.sqs.dead_letter_queue import DeadLetter, DeadLetterQueue, Destination, Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """The message that is meant: what it is called, by what it is known, and its body, put right."""

    described: str
    matches: Callable[[DeadLetter], bool]
    body_of: Callable[[DeadLetter], str]


def replace(
    *,
    place: ConsumerTarget,
    queue: DeadLetterQueue,
    group_id: str | None,
    seq: int | None,
    data: TextIO | None,
    message_id: str | None,
    body: TextIO | None,
    reason: str,
    confirmed: bool,
) -> None:
    """Run `dlq replace`."""
    operator = InboxOperator(consumer=place.consumer.name, actor=actor(), reason=reason)
    given = tuple(item is not None for item in (group_id, seq, data, message_id, body))
    if given == (False, False, False, True, True):
        assert message_id is not None
        assert body is not None
        _replace_dead(place, queue, operator, _named(message_id, body), confirmed=confirmed)
        return
    if given != (True, True, True, False, False):
        raise click.UsageError("give GROUP and SEQ with --data, or --message-id with --body")
    assert group_id is not None
    assert seq is not None
    assert data is not None
    new_body = _json(data)
    if _is_parked(place, group_id, seq):
        act(
            place.engine,
            f"replace message {seq} of group {group_id}, which is held, and have it tried again",
            lambda connection: operator.replace(connection, group_id, seq, new_body),
            confirmed=confirmed,
        )
    else:
        _replace_dead(place, queue, operator, _numbered(group_id, seq, new_body), confirmed=confirmed)


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


def _is_parked(place: ConsumerTarget, group_id: str, seq: int) -> bool:
    with engines.reading(place.engine) as connection, engines.explaining_missing_tables():
        return operations.parked_message(connection, place.consumer.name, group_id, seq) is not None


def _numbered(group_id: str, seq: int, data: object) -> _Wanted:
    def matches(dead_letter: DeadLetter) -> bool:
        return (
            dead_letter.message_group_id == group_id
            and dead_letter.envelope is not None
            and dead_letter.envelope.seq == seq
        )

    def body_of(dead_letter: DeadLetter) -> str:
        assert dead_letter.envelope is not None
        return dead_letter_queue.with_data(dead_letter.envelope, data)

    return _Wanted(described=f"message {seq} of group {group_id}", matches=matches, body_of=body_of)


def _named(message_id: str, body: TextIO) -> _Wanted:
    whole = _text(body, "--body").strip()
    return _Wanted(
        described=f"message {message_id}",
        matches=lambda dead_letter: dead_letter.sqs_message_id == message_id,
        body_of=lambda dead_letter: dead_letter_queue.checked_body(dead_letter, whole),
    )


def _replace_dead(
    place: ConsumerTarget, queue: DeadLetterQueue, operator: InboxOperator, wanted: _Wanted, *, confirmed: bool
) -> None:
    sqs = queue_client(place.environment, place.endpoint_url)
    destination = Destination(sqs, naming.queue_name(place.environment, place.consumer))
    engine, failpoint = place.engine, failpoints.from_environment(os.environ, failpoints.DEAD_LETTERS)
    with Reading(queue, clock=SystemClock()) as reading:
        dead_letter = dead_letter_queue.find(reading, wanted.described, wanted.matches)
        body = wanted.body_of(dead_letter)
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


def _write_down(engine: Engine, operator: InboxOperator, action: str, dead_letter: DeadLetter) -> None:
    """Write an act down before it is done: afterwards the body may be nowhere else."""
    with engine.begin() as connection, engines.explaining_missing_tables():
        operator.write_down(connection, action, dead_letter)


def purge_one(*, place: ConsumerTarget, queue: DeadLetterQueue, message_id: str, reason: str, confirmed: bool) -> None:
    """Run `dlq purge-one`."""
    operator = InboxOperator(consumer=place.consumer.name, actor=actor(), reason=reason)
    described = f"message {message_id}"
    engine = place.engine
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


def retry(*, place: ConsumerTarget, group_id: str, seq: int, reason: str, confirmed: bool) -> None:
    """Run `dlq retry`."""
    operator = InboxOperator(consumer=place.consumer.name, actor=actor(), reason=reason)
    description = f"have message {seq} of group {group_id} tried again"
    act(place.engine, description, lambda connection: operator.retry(connection, group_id, seq), confirmed=confirmed)


def skip(*, place: ConsumerTarget, group_id: str, seq: int, epoch: int | None, reason: str, confirmed: bool) -> None:
    """Run `dlq skip`."""
    operator = InboxOperator(consumer=place.consumer.name, actor=actor(), reason=reason)
    description = f"give up number {seq} of group {group_id}"
    act(
        place.engine,
        description,
        lambda connection: operator.skip(connection, group_id, seq, epoch=epoch),
        confirmed=confirmed,
    )


def audit(*, place: ConsumerTarget, most: int) -> None:
    """Run `dlq audit`."""
    print_acts(place.engine, tables.audit.c.consumer, place.consumer.name, most=most)
