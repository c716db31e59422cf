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
    required=True,
    metavar="AGE|TIME",
    help="Events committed from then on: 15m, 2h, 7d, 2026-11-27T03:00.",
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
    type=click.Choice(["publish", "leave-out"]),
    help="What has to be handled after later numbers of its group: publish it again, so that the consumer handles it"
    " late, or leave it out. Without it such events are refused.",
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

    An event has one effect: what was handled is never handled again.

    \b
    Exit codes:
      0  done, or planned
      1  some groups changed meanwhile, and are left as they were: do the same again
      2  it could not be done or known
      3  refused: the consumer's inbox would drop, reject or not order an event
    """
    from sluice.cli.replay.outbox_events import replay_kept

    replay_kept(**options)
