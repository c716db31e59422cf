"""`python -m messaging dlq …`: looking at dead letters and at SQS's move tasks."""

import json
import sys
from typing import Any

import click
from sqlalchemy import Engine

from messaging import databases, dead_letters, inbox_operations
from messaging.cli.acts import meant, say, written
from messaging.cli.dlq_acts import audit, purge_one, replace, retry, skip
from messaging.cli.dlq_moving import redrive
from messaging.cli.dlq_place import at_dlq, queue_client, stoppable
from messaging.cli.exits import COULD_NOT, PARTLY
from messaging.cli.place import (
    ConsumerPlace,
    consumer_of,
    dsn_option,
    endpoint_option,
    environment_option,
    inbox_database,
)
from messaging.dead_letters import DeadLetterQueue, Letter, Reading
from messaging.redrive import MoveTask, MoveTasks
from sluice import environments, naming
from sluice.declaration import Consumer, Environment
from sluice.endpoint import checked_url
from sluice.errors import EndpointError

_ROWS_MAX = 1_000
_SHOWN_CHARACTERS = 500


@click.group()
def dlq() -> None:
    """Look at dead letters, understand them, mend them and bring them back.

    \b
    What is there, and why? Neither changes anything:
      python -m messaging dlq ls
      python -m messaging dlq inspect --consumer billing
    The handler was wrong, and a new one runs? One first, then the rest:
      python -m messaging dlq redrive --consumer billing --canary 1 --yes
      python -m messaging dlq redrive --consumer billing --yes
    The message is wrong? The same event, with data that is right:
      python -m messaging dlq replace order-1 7 --data right.json --consumer billing --reason "..." --yes
    It will never do? Its group goes on without it:
      python -m messaging dlq skip order-1 7 --consumer billing --reason "..." --yes
      python -m messaging dlq purge-one --message-id ID --consumer billing --reason "..." --yes

    Every act is only said, until it is given --yes. What changes or removes a message takes a reason, and the inbox's
    audit keeps it with the body.
    """


@dlq.command("ls")
@environment_option("Declared environment whose consumers are meant.")
@click.option("--consumer", "consumer_name", envvar="SLUICE_CONSUMER", metavar="NAME", help="Only this consumer.")
@dsn_option("The inboxes' database, for what is parked, dead and missing: e.g. sqlite:///billing.db")
@endpoint_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def ls(
    environment_name: str, consumer_name: str | None, dsn: str | None, endpoint_url: str | None, as_json: bool
) -> None:
    """List the DLQs of an environment's consumers, and with a database what their inboxes wait for.

    Counts are SQS's own, and approximate: they can be a minute late.
    """
    environment = environments.environment(environment_name)
    consumers = environment.consumers if consumer_name is None else (consumer_of(environment, consumer_name),)
    sqs = queue_client(environment, None if endpoint_url is None else checked_url(endpoint_url))
    with inbox_database(environment, dsn) as database:
        found = [_listed(sqs, environment, consumer, database) for consumer in consumers]
    if not any(queue["is_there"] for one in found for queue in one["queues"]):
        names = ", ".join(queue["queue"] for one in found for queue in one["queues"])
        raise EndpointError(
            f"none of {names} is at {sqs.meta.endpoint_url}; deploy the environment's stacks there, or correct --env or"
            " --endpoint-url"
        )
    if as_json:
        click.echo(json.dumps({"environment": environment.name, "is_approximate": True, "consumers": found}, indent=2))
    else:
        for one in found:
            _show_listed(one)


def _listed(sqs: Any, environment: Environment, consumer: Consumer, database: Engine | None) -> dict[str, Any]:
    names = {
        "dead": naming.dead_letter_queue_name(environment, consumer),
        "undelivered": naming.undelivered_queue_name(environment, consumer),
    }
    listed: dict[str, Any] = {
        "consumer": consumer.name,
        "queues": [{"holds": holds, "queue": name, **_queue(sqs, name)} for holds, name in names.items()],
    }
    if database is not None:
        with databases.reading(database) as connection, databases.explaining_missing_tables():
            listed["parked"] = inbox_operations.parked_groups(connection, consumer.name, most=_ROWS_MAX)
            listed["exceptions"] = inbox_operations.open_exceptions(connection, consumer.name, most=_ROWS_MAX)
    return listed


def _queue(sqs: Any, name: str) -> dict[str, Any]:
    try:
        queue = DeadLetterQueue(sqs, name)
    except EndpointError:
        return {"is_there": False}
    running = MoveTasks(sqs, queue.arn).running()
    return {"is_there": True, **queue.counts, "move_task": None if running is None else _task_said(running)}


def _show_listed(one: dict[str, Any]) -> None:
    click.echo(one["consumer"])
    for queue in one["queues"]:
        click.echo(f"  {queue['holds']:<12} {_queue_line(queue)}  {queue['queue']}")
    for group in one.get("parked", ()):
        waits = f"waits for number {group['last_seq'] + 1}"
        click.echo(
            f"  parked       group {group['group_id']} {waits} since {written(group['parked_at_us'])};"
            f" {group['parked_count']} set aside"
        )
        for held in group["held"]:
            click.echo(f"    held       number {held['seq']} after {held['attempts']} attempts: {held['last_error']}")
    for found in one.get("exceptions", ()):
        numbers = str(found["seq"]) if found["seq"] == found["through"] else f"{found['seq']} to {found['through']}"
        click.echo(
            f"  {found['state']:<12} group {found['group_id']} number {numbers} since {written(found['seen_at_us'])}"
            + (f": {found['reason']}" if found["reason"] else "")
        )


def _queue_line(queue: dict[str, Any]) -> str:
    if not queue["is_there"]:
        return "is not there"
    line = f"about {queue['visible'] + queue['delayed']}"
    if queue["in_flight"]:
        line += f", {queue['in_flight']} in flight"
    if queue["move_task"]:
        line += f", a move task has moved {queue['move_task']['moved']}"
    return line


@dlq.command()
@click.option("--limit", "most", type=click.IntRange(1, 1_000), default=10, show_default=True, help="At most so many.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@at_dlq
def inspect(place: ConsumerPlace, queue: DeadLetterQueue, most: int, as_json: bool) -> None:
    """Show the first messages of each group, what they hold and, with --dsn, why they died; then give them back.

    A FIFO queue hands out at most the first ten of a group: how many are behind them, nobody sees.
    """
    with stoppable() as (stop, clock), Reading(queue, clock=clock) as reading:
        letters = dead_letters.peek(reading, most, is_stopped=stop.is_asked)
        groups: dict[str, list[dict[str, Any]]] = {}
        for letter in letters:
            groups.setdefault(letter.message_group_id, []).append(_letter_said(letter, _known(place, letter)))
    if as_json:
        said = [{"group": group, "first": len(rows), "messages": rows} for group, rows in groups.items()]
        click.echo(json.dumps({"queue": queue.name, "may_be_more": True, "groups": said}, indent=2, ensure_ascii=False))
    else:
        for group, rows in groups.items():
            _show_group(group, rows)
        if not groups:
            about = queue.counts
            flying = about["in_flight"]
            click.echo(f"nothing to be had in {queue.name}; SQS says about {about['visible']}, and in flight {flying}")
    if stop.is_asked():
        click.echo("stopped; what was seen is given back", err=True)
        sys.exit(PARTLY)


def _known(place: ConsumerPlace, letter: Letter) -> dict[str, Any] | None:
    if place.database is None:
        return None
    with databases.reading(place.database) as connection, databases.explaining_missing_tables():
        return inbox_operations.known_of(connection, place.consumer.name, letter)


def _letter_said(letter: Letter, known: dict[str, Any] | None) -> dict[str, Any]:
    said: dict[str, Any] = {
        "sqs_message_id": letter.sqs_message_id,
        "in_dlq_since": written(letter.sent_at_us),
        "receive_count": letter.receive_count,
        "attributes": {name: one.get("StringValue", "(binary)") for name, one in letter.attributes.items()},
        "known": known,
    }
    if letter.envelope is None:
        return said | {"undecodable": letter.fault, "body": letter.body}
    envelope = letter.envelope
    event = {"type": envelope.event.type, "seq": envelope.seq, "epoch": envelope.epoch, "event_id": envelope.event.id}
    return said | event | {"data": envelope.event.data}


def _show_group(group: str, rows: list[dict[str, Any]]) -> None:
    click.echo(f"first {len(rows)} of group {group}, more may be behind")
    for row in rows:
        if "undecodable" in row:
            click.echo(f"  message {row['sqs_message_id']} is no envelope: {row['undecodable']}")
        else:
            click.echo(f"  number {row['seq']} (epoch {row['epoch']}), {row['type']}, event {row['event_id']}")
            click.echo(f"    message {row['sqs_message_id']}")
        click.echo(f"    here since {row['in_dlq_since']}, received {row['receive_count']} times")
        if row["known"] is not None:
            known = row["known"]
            click.echo(f"    {known['state']} since {written(known['seen_at_us'])}: {known['reason']}")
        shown = row["body"] if "undecodable" in row else json.dumps(row["data"], ensure_ascii=False)
        cut = "" if len(shown) <= _SHOWN_CHARACTERS else f"… ({len(shown)} characters; --json shows all)"
        click.echo(f"    {shown[:_SHOWN_CHARACTERS]}{cut}")


for _command in (redrive, replace, purge_one, retry, skip, audit):
    dlq.add_command(_command)


@dlq.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@at_dlq
def status(place: ConsumerPlace, queue: DeadLetterQueue, as_json: bool) -> None:
    """Show the move tasks of the DLQ, which `redrive --engine native` and the console start, the latest first."""
    tasks = [
        _task_said(task) for task in MoveTasks(queue_client(place.environment, place.endpoint_url), queue.arn).listed()
    ]
    if as_json:
        click.echo(json.dumps({"queue": queue.name, "is_approximate": True, "tasks": tasks}, indent=2))
        return
    for task in tasks:
        of = "" if task["to_move"] is None else f" of about {task['to_move']}"
        why = f": {task['failure']}" if task["failure"] else ""
        click.echo(f"{task['status']:<10} started {task['started_at']}, moved about {task['moved']}{of}{why}")
    if not tasks:
        click.echo(f"no move tasks of {queue.name}")


@dlq.command()
@meant
@at_dlq
def cancel(place: ConsumerPlace, queue: DeadLetterQueue, is_meant: bool) -> None:
    """Cancel the move task that runs on the DLQ. What it has moved stays where it is."""
    tasks = MoveTasks(queue_client(place.environment, place.endpoint_url), queue.arn)
    running = tasks.running()
    if running is None:
        click.echo(f"no move task runs on {queue.name}; see `dlq status`", err=True)
        sys.exit(COULD_NOT)
    moved = tasks.cancel(running) if is_meant else running.moved
    say(f"cancel the move task of {queue.name}, which has moved about {moved}", is_meant=is_meant)


def _task_said(task: MoveTask) -> dict[str, Any]:
    return {
        "status": task.status,
        "started_at": written(task.started_at_us),
        "moved": task.moved,
        "to_move": task.to_move,
        "rate": task.rate,
        "destination_arn": task.destination_arn,
        "failure": task.failure,
    }
