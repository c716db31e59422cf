"""The command `sluice replay`, with its options."""

from typing import Any

import click

from sluice.cli.options import audit_options, json_option
from sluice.cli.overview.commands import verify_options
from sluice.terminal.values import SINCE


@click.command()
@click.option("--consumer", "consumer_name", envvar="SLUICE_CONSUMER", metavar="NAME", help="Who gets it.")
@click.option(
    "--from",
    "from_us",
    type=SINCE,
    metavar="AGE|TIME",
    help="Events committed from then on: 15m, 2h, 7d, 2026-11-27T03:00. Needed to begin.",
)
@click.option("--to", "to_us", type=SINCE, metavar="AGE|TIME", help="And until then.  [default: all]")
@click.option("--group", "groups", multiple=True, help="Only this message group; may be repeated.")
@click.option("--topic-arn", envvar="SLUICE_TOPIC_ARN", metavar="ARN", help="The topic.  [default: by name]")
@click.option(
    "--unhandled",
    "leaves_out",
    is_flag=True,
    help="Leave out what the consumer's inbox would drop or reject. Without it such events are refused.",
)
@click.option(
    "--late",
    type=click.Choice(["handle", "leave-out"]),
    help="What comes behind later numbers of its group: publish it again and handle it late, or leave it out. Without"
    " it such events are refused.",
)
@click.option(
    "--archive",
    type=click.Choice(["start", "watch", "end"]),
    help="Use the topic's archive instead of the outbox: start its replay, watch it until it has ended, or end it.",
)
@json_option
@audit_options
@verify_options
def replay(**options: Any) -> None:
    """Hand events of the past to one consumer, in the order of each group, beside live traffic, each once.

    The events that the outbox still keeps are set aside in the consumer's inbox, and its workers handle them before
    newer ones. No queue is used, and no other consumer gets anything. The consumer has to be subscribed.

    \b
      sluice replay --consumer audit --from 7d --reason "audit is new" --yes
      sluice replay --consumer billing --from 2026-11-27T03:00 --unhandled --reason "restored to 03:00" --yes

    With --archive, SNS delivers what the topic has archived to the consumer's queue, and then what is new:

    \b
      sluice replay --consumer audit --archive start --from 90d --reason "audit is new" --yes
      sluice replay --consumer audit --archive watch --reason "audit is new"

    An event has one effect: what was handled is never handled again.

    \b
    Exit codes:
      0  done, or planned
      1  some groups changed meanwhile, and are left as they were: do the same again
      2  it could not be done or known, or the replay of the archive has failed
      3  refused: the consumer's inbox would drop, reject or not order an event
    """
    archive, from_us = options.pop("archive"), options["from_us"]
    if archive is not None:
        from sluice.cli.replay.archive import replay_archive

        if options.pop("to_us") is not None or options.pop("groups") or options["late"] == "leave-out":
            raise click.UsageError(
                "--archive goes with neither --to, which would stop the subscription, nor --group, nor --late"
                " leave-out: SNS replays a whole archive from an instant on"
            )
        replay_archive(archive=archive, **options)
        return
    if from_us is None:
        raise click.UsageError("give --from: from when on events are replayed, such as 7d")
    from sluice.cli.replay.outbox_events import replay_kept

    replay_kept(**options)
