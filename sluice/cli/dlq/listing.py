"""Listings of dead letters and of SQS's move tasks."""

import json
import sys
from dataclasses import asdict
from typing import Any

from sqlalchemy import Engine

from sluice.cli.acts import instant_text, print_intent
from sluice.cli.dlq.target import DlqTarget, queue_client, require_reasons, stoppable
from sluice.cli.targets import ConsumerTarget, consumer_of, inbox_database
from sluice.declaration import Consumer, Environment, naming
from sluice.endpoint import checked_url
from sluice.errors import EndpointError
from sluice.messaging.database import engines
from sluice.messaging.database.choice import RowChoice
from sluice.messaging.inbox import operations
from sluice.messaging.inbox.death_reasons import DeathReason, group_reasons
from sluice.messaging.inbox.tables import DEAD
from sluice.messaging.sqs import dead_letter_queue
from sluice.messaging.sqs.dead_letter_queue import DeadLetterQueue, Reading, StoredDeadLetter
from sluice.messaging.sqs.redrive import MoveTask, MoveTasks
from sluice.terminal import output
from sluice.terminal.exits import COULD_NOT, PARTLY

_PEEKED_MAX = 10_000
"""The most dead letters that are received to find those that match the filters."""
_SHOWN_CHARACTERS = 500
"""The most characters of a message's data that are printed without --json."""


def list_queues(
    *,
    environment: Environment,
    consumer_name: str | None,
    dsn: str | None,
    endpoint_url: str | None,
    choice: RowChoice,
    most: int,
    is_each: bool,
    as_json: bool,
) -> None:
    """Print the two DLQs of each consumer, and, where a database is named, what its inbox waits for.

    Args:
        environment: as declared.
        consumer_name: only this consumer; None is all.
        dsn: URL of the inboxes' database; None is the one that variables name, if any.
        endpoint_url: of SQS; None is AWS.
        choice: filters on what inboxes wait for.
        most: at most this many parked groups, and this many open numbers, of each consumer.
        is_each: print each dead number, in place of one line for each reason.
        as_json: print JSON.

    Raises:
        EndpointError: none of the DLQs is there.
    """
    consumers = environment.consumers if consumer_name is None else (consumer_of(environment, consumer_name),)
    sqs = queue_client(environment, None if endpoint_url is None else checked_url(endpoint_url))
    with inbox_database(environment, dsn) as database:
        listings = [_dead_letter_queues(sqs, environment, consumer) for consumer in consumers]
        if database is not None:
            waiting = (_waiting(database, consumer, choice, most) for consumer in consumers)
            listings = [listing | waiting_fields for listing, waiting_fields in zip(listings, waiting, strict=True)]
    if not any(queue["is_there"] for listing in listings for queue in listing["queues"]):
        names = ", ".join(queue["queue"] for listing in listings for queue in listing["queues"])
        raise EndpointError(
            f"none of {names} is at {sqs.meta.endpoint_url}; deploy the environment's stacks there, or correct --env or"
            " --endpoint-url"
        )
    if as_json:
        output.as_json({"environment": environment.name, "is_approximate": True, "consumers": listings})
    else:
        for listing in listings:
            _print_listing(listing, is_each=is_each)


def _dead_letter_queues(sqs: Any, environment: Environment, consumer: Consumer) -> dict[str, Any]:
    """Return a consumer's name and the JSON fields of its two DLQs: dead letters, and what SNS could not deliver."""
    names = {
        "dead": naming.dead_letter_queue_name(environment, consumer),
        "undelivered": naming.undelivered_queue_name(environment, consumer),
    }
    return {
        "consumer": consumer.name,
        "queues": [{"holds": holds, "queue": name, **_queue(sqs, name)} for holds, name in names.items()],
    }


def _waiting(database: Engine, consumer: Consumer, choice: RowChoice, most: int) -> dict[str, Any]:
    """Return the JSON fields of what an inbox waits for: parked groups, dead and missing numbers, reasons of death.

    `is_cut` says that `most` was reached, so that there may be more.
    """
    with engines.reading(database) as connection, engines.explaining_missing_tables():
        parked = operations.parked_groups(connection, consumer.name, choice=choice, most=most)
        exceptions = operations.open_exceptions(connection, consumer.name, choice=choice, most=most)
    dead = ((row["group_id"], row["reason"], row["seen_at_us"]) for row in exceptions if row["state"] == DEAD)
    return {
        "parked": parked,
        "exceptions": exceptions,
        "reasons": [asdict(reason) for reason in group_reasons(dead)],
        "is_cut": most in (len(parked), len(exceptions)),
    }


def _queue(sqs: Any, name: str) -> dict[str, Any]:
    """Return the JSON fields of a DLQ: whether it is there, its counts, and the move task that runs on it."""
    try:
        queue = DeadLetterQueue(sqs, name)
    except EndpointError:
        return {"is_there": False}
    running = MoveTasks(sqs, queue.arn).running()
    return {"is_there": True, **queue.counts, "move_task": None if running is None else _move_task_fields(running)}


def _print_listing(listing: dict[str, Any], *, is_each: bool) -> None:
    """Print a consumer's queues, parked groups and open numbers; dead numbers by reason unless `is_each`."""
    output.wrapped_line(listing["consumer"])
    for queue in listing["queues"]:
        output.wrapped_line(f"  {queue['holds']:<12} {_queue_line(queue)}  {queue['queue']}")
    for group in listing.get("parked", ()):
        waits = f"waits for number {group['last_seq'] + 1} of epoch {group['epoch']}"
        output.wrapped_line(
            f"  parked       group {group['group_id']} {waits} since {instant_text(group['parked_at_us'])};"
            f" {group['parked_count']} set aside"
        )
        for held in group["held"]:
            output.wrapped_line(
                f"    held       number {held['seq']} of epoch {held['epoch']} after {held['attempts']} attempts:"
                f" {held['last_error']}"
            )
    exceptions = listing.get("exceptions", [])
    dead = [row for row in exceptions if row["state"] == DEAD]
    is_by_reason = len(listing.get("reasons", ())) < len(dead) and not is_each
    for reason in listing["reasons"] if is_by_reason else ():
        summary = DeathReason(**reason).summarize()
        output.wrapped_line(f"  dead         {summary}, since {instant_text(reason['since_us'])}")
    for exception in (row for row in exceptions if not (is_by_reason and row["state"] == DEAD)):
        numbers = (
            str(exception["seq"])
            if exception["seq"] == exception["through"]
            else f"{exception['seq']} to {exception['through']}"
        )
        why = f": {exception['reason']}" if exception["reason"] else ""
        output.wrapped_line(
            f"  {exception['state']:<12} group {exception['group_id']} number {numbers} of epoch {exception['epoch']}"
            f" since {instant_text(exception['seen_at_us'])}{why}"
        )
    if listing.get("is_cut"):
        output.line("there may be more; raise --limit, or choose with --group, --died-of, --since", is_error=True)


def _queue_line(queue: dict[str, Any]) -> str:
    """Return the counts of a DLQ in words."""
    if not queue["is_there"]:
        return "is not there"
    line = f"about {queue['visible'] + queue['delayed']}"
    if queue["in_flight"]:
        line += f", {queue['in_flight']} in flight"
    if queue["move_task"]:
        line += f", a move task has moved {queue['move_task']['moved']}"
    return line


def show_dead_letters(dlq: DlqTarget, choice: RowChoice, most: int, *, as_json: bool) -> None:
    """Print the first messages of each group of a DLQ, and release them again.

    Args:
        dlq: the queue to look into.
        choice: filters on the messages.
        most: at most this many messages are shown.
        as_json: print JSON.
    """
    if choice.died_of is not None:
        require_reasons(dlq.target)
    queue = dlq.open()
    with stoppable() as (stop, clock), Reading(queue, clock=clock) as reading:
        received_max = most if choice.is_any else _PEEKED_MAX
        dead_letters = dead_letter_queue.peek(reading, received_max, is_stopped=stop.is_stopped)
        groups: dict[str, list[dict[str, Any]]] = {}
        shown = 0
        for dead_letter in (event for each in dead_letters for event in each.events):
            if shown == most or not _is_chosen(dead_letter, choice):
                continue
            facts = inbox_facts(dlq.target, dead_letter)
            if choice.matches_reason((facts["known"] or {}).get("reason")):
                groups.setdefault(dead_letter.message_group_id, []).append(dead_letter_fields(dead_letter, **facts))
                shown += 1
    if as_json:
        groups_shown = [{"group": group, "first": len(rows), "messages": rows} for group, rows in groups.items()]
        output.as_json({"queue": queue.name, "may_be_more": True, "groups": groups_shown})
    else:
        for group, rows in groups.items():
            _show_group(group, rows)
        if dead_letters and not groups:
            output.line(f"none of the {len(dead_letters)} messages that can be seen in {queue.name} matches")
        elif not groups:
            about = queue.counts
            flying = about["in_flight"]
            output.line(f"nothing to be had in {queue.name}; SQS says about {about['visible']}, and in flight {flying}")
    if stop.is_stopped():
        output.line("stopped; what was seen is given back", is_error=True)
        sys.exit(PARTLY)


def _is_chosen(dead_letter: StoredDeadLetter, choice: RowChoice) -> bool:
    """Return whether a message matches the filters on group, type and time; only an inbox knows its reason."""
    type_ = None if dead_letter.envelope is None else dead_letter.envelope.event.type
    is_in_group = choice.matches_group(dead_letter.message_group_id)
    return is_in_group and choice.matches_type(type_) and choice.matches_instant(dead_letter.sent_at_us)


def inbox_facts(target: ConsumerTarget, dead_letter: StoredDeadLetter) -> dict[str, Any]:
    """Return the inbox's record of a message (`known`), and whether its number is handled or given up.

    Of an event of a bundle also what became of it (`outcome`). All are None without a database; `known` is None as well
    where the inbox has no record, and `outcome` of a message of its own.
    """
    if target.database is None:
        return {"known": None, "is_done_with": None, "outcome": None}
    name, is_bundled = target.consumer.name, dead_letter.position is not None
    with engines.reading(target.database) as connection, engines.explaining_missing_tables():
        return {
            "known": operations.dead_letter_record(connection, name, dead_letter),
            "is_done_with": operations.is_done_with(connection, name, dead_letter),
            "outcome": operations.outcome_in_words(connection, name, dead_letter) if is_bundled else None,
        }


def dead_letter_fields(
    dead_letter: StoredDeadLetter, *, known: dict[str, Any] | None, is_done_with: bool | None, outcome: str | None
) -> dict[str, Any]:
    """Return the JSON fields of a message, or of an event of a bundle; the others are those of `inbox_facts`."""
    fields: dict[str, Any] = {
        "sqs_message_id": dead_letter.sqs_message_id,
        "in_dlq_since": instant_text(dead_letter.sent_at_us),
        "receive_count": dead_letter.receive_count,
        "attributes": {
            name: attribute.get("StringValue", "(binary)") for name, attribute in dead_letter.attributes.items()
        },
        "known": known,
        "is_done_with": is_done_with,
    }
    if dead_letter.position is not None:
        fields["bundle"] = {"event": dead_letter.position + 1, "of": len(dead_letter.bundled), "outcome": outcome}
    if dead_letter.envelope is None:
        return fields | {"undecodable": dead_letter.fault, "body": dead_letter.body}
    envelope = dead_letter.envelope
    event = {"type": envelope.event.type, "seq": envelope.seq, "epoch": envelope.epoch, "event_id": envelope.event.id}
    return fields | event | {"data": envelope.event.data}


def _show_group(group: str, rows: list[dict[str, Any]]) -> None:
    """Print the messages of a group; `rows` are the fields of `dead_letter_fields`."""
    output.line(f"first {len(rows)} of group {group}, more may be behind")
    for row in rows:
        if "undecodable" in row:
            output.line(f"  message {row['sqs_message_id']} is not an envelope: {row['undecodable']}")
        else:
            output.line(f"  number {row['seq']} (epoch {row['epoch']}), {row['type']}, event {row['event_id']}")
            output.line(f"    message {row['sqs_message_id']}")
        if "bundle" in row:
            bundle = row["bundle"]
            outcome = f": {bundle['outcome']}" if bundle["outcome"] else ""
            output.line(f"    event {bundle['event']} of {bundle['of']} of that message{outcome}")
        output.line(f"    here since {row['in_dlq_since']}, received {row['receive_count']} times")
        if row["known"] is not None:
            known = row["known"]
            output.line(f"    {known['state']} since {instant_text(known['seen_at_us'])}: {known['reason']}")
        if row["is_done_with"]:
            output.line("    its number is handled or given up: the inbox drops it if it is brought back")
        shown = row["body"] if "undecodable" in row else json.dumps(row["data"], ensure_ascii=False)
        cut = "" if len(shown) <= _SHOWN_CHARACTERS else f"… ({len(shown)} characters; --json shows all)"
        output.line(f"    {shown[:_SHOWN_CHARACTERS]}{cut}")


def show_move_tasks(dlq: DlqTarget, *, as_json: bool) -> None:
    """Print the move tasks of a DLQ, the latest first."""
    queue = dlq.open()
    tasks = [_move_task_fields(task) for task in MoveTasks(dlq.sqs(), queue.arn).list_latest()]
    if as_json:
        output.as_json({"queue": queue.name, "is_approximate": True, "tasks": tasks})
        return
    for task in tasks:
        of_how_many = "" if task["to_move"] is None else f" of about {task['to_move']}"
        failure_text = f": {task['failure']}" if task["failure"] else ""
        output.line(
            f"{task['status']:<10} started {task['started_at']}, moved about {task['moved']}{of_how_many}{failure_text}"
        )
    if not tasks:
        output.line(f"no move tasks of {queue.name}")


def cancel_move_task(dlq: DlqTarget, *, confirmed: bool) -> None:
    """Cancel the move task that runs on a DLQ; exit with 2 if none runs."""
    queue = dlq.open()
    tasks = MoveTasks(dlq.sqs(), queue.arn)
    running = tasks.running()
    if running is None:
        output.line(f"no move task runs on {queue.name}; see `dlq status`", is_error=True)
        sys.exit(COULD_NOT)
    moved = tasks.cancel(running) if confirmed else running.moved
    print_intent(f"cancel the move task of {queue.name}, which has moved about {moved}", confirmed=confirmed)


def _move_task_fields(task: MoveTask) -> dict[str, Any]:
    return {
        "status": task.status,
        "started_at": instant_text(task.started_at_us),
        "moved": task.moved,
        "to_move": task.to_move,
        "rate": task.rate,
        "destination_arn": task.destination_arn,
        "failure": task.failure,
    }
