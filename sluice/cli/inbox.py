"""`sluice inbox …`: the groups and tables of a consumer's inbox."""

from functools import partial
from typing import TYPE_CHECKING

import click

from sluice.cli.acts import act, actor, instant_text, print_intent
from sluice.cli.options import audit_options, choice_options, consumer_options, json_option, limit_option
from sluice.terminal import output
from sluice.terminal.groups import CommandGroup
from sluice.terminal.values import SEQ

if TYPE_CHECKING:
    from sluice.cli.targets import ConsumerTarget
    from sluice.messaging.database.choice import RowChoice

_COLUMNS = ("group", "epoch", "baseline", "last number", "parked", "last message")


@click.group(cls=CommandGroup)
def inbox() -> None:
    """Look after a consumer's inbox: its tables, its groups, and how many messages wait in it.

    To act on messages that wait: `sluice dlq`.
    """


@inbox.command()
@consumer_options
def check(target: "ConsumerTarget") -> None:
    """Compare the database's tables with what this version needs; exit code 1 and a line each where they differ."""
    from sluice.cli.schema.upgrading import report_drift
    from sluice.messaging.inbox import tables

    report_drift(target.engine, tables.metadata)


@inbox.command()
@json_option
@consumer_options
def status(target: "ConsumerTarget", as_json: bool) -> None:
    """Tell how many groups are parked, messages set aside or held, and numbers missing or dead."""
    from sluice.messaging.inbox import maintenance

    counts = maintenance.counts(target.engine, target.consumer.name)
    if as_json:
        output.as_json({"consumer": target.consumer.name, **counts})
        return
    output.line(", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items()))


@inbox.command()
@choice_options
@limit_option(100_000, default=50)
@json_option
@consumer_options
def ls(target: "ConsumerTarget", choice: "RowChoice", most: int, as_json: bool) -> None:
    """List groups: where each begins for this consumer (its baseline), and how far it is.

    --since is of the group's last message; --type and --died-of are of what is dead or set aside in it now.
    """
    from sluice.messaging.database import engines
    from sluice.messaging.inbox import operations

    name = target.consumer.name
    with engines.reading(target.engine) as connection, engines.explaining_missing_tables():
        found, count = operations.listed_groups(connection, name, choice=choice, most=most)
    if as_json:
        output.as_json({"consumer": name, "count": count, "groups": found})
        return
    rows = [
        (
            row["group_id"],
            row["epoch"],
            row["first_seq"],
            row["last_seq"],
            "" if row["parked_at_us"] is None else f"since {instant_text(row['parked_at_us'])}",
            instant_text(row["updated_at_us"]),
        )
        for row in found
    ]
    output.table(_COLUMNS, rows, title=name)
    output.line(f"{len(found)} of {count}", is_error=True)


@inbox.command("lower-baseline")
@click.argument("group_id", metavar="GROUP")
@click.argument("seq", metavar="SEQ", type=SEQ)
@audit_options
@consumer_options
def lower_baseline(target: "ConsumerTarget", group_id: str, seq: int, reason: str, confirmed: bool) -> None:
    """Expect the numbers of a group from SEQ on: those before its baseline are missing until they come.

    For a consumer that joined late, if a group's baseline is too high. A message from before the baseline is handled
    in any case, once, as late. Missing numbers are listed (`dlq ls`) and counted (`InboxOpenExceptions`).
    """
    from sluice.messaging.inbox.operations import InboxOperator

    operator = InboxOperator(consumer=target.consumer.name, actor=actor(), reason=reason)
    do = partial(operator.lower_baseline, group_id=group_id, seq=seq)
    act(target.engine, f"expect the numbers of group {group_id} from {seq} on", do, confirmed=confirmed)


@inbox.command()
@audit_options
@consumer_options
def pause(target: "ConsumerTarget", reason: str, confirmed: bool) -> None:
    """Let a consumer stand still: within seconds it receives nothing more, until `inbox resume`.

    Its workers finish what they have received; its parked messages wait. Its queue keeps what comes, for no longer than
    its retention. Of a Lambda function the event source mapping is disabled.
    """
    _change_pause(target, reason, is_paused=True, confirmed=confirmed)


@inbox.command()
@audit_options
@consumer_options
def resume(target: "ConsumerTarget", reason: str, confirmed: bool) -> None:
    """End the pause of a consumer: it goes on within seconds, each group where it was."""
    _change_pause(target, reason, is_paused=False, confirmed=confirmed)


def _change_pause(target: "ConsumerTarget", reason: str, *, is_paused: bool, confirmed: bool) -> None:
    from sluice.cli.consumer_pause import change_pause
    from sluice.messaging.inbox.pause import PauseOperator

    operator = PauseOperator(consumer=target.consumer.name, actor=actor(), reason=reason)
    described = change_pause(target, operator, is_paused=is_paused, confirmed=confirmed)
    print_intent(described, confirmed=confirmed)
