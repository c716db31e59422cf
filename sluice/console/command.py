"""`sluice ui`: its options."""

from typing import Any

import click

from sluice.cli.overview.commands import source_options
from sluice.terminal.values import Whole


@click.command()
@click.option(
    "--port",
    type=Whole(0, 65_535),
    default=0,
    show_default=True,
    metavar="PORT",
    help="On 127.0.0.1; 0 takes a free one.",
)
@click.option("--allow-actions", "may_act", is_flag=True, help="Let the pages act. Without it they only show.")
@source_options
def ui(**options: Any) -> None:
    """Show an environment in the browser: overview, dead letters, parked groups, outbox, search, audit.

    \b
    Look, with your own AWS credentials and database:
      sluice ui --env production --dsn postgresql://you@host/shop
    Act as well: bring back, replace, give up, resend; each with a dry run, a reason, and a row of the audit:
      sluice ui --env production --dsn postgresql://you@host/shop --allow-actions
    On another machine:
      ssh -t -L 8642:127.0.0.1:8642 HOST sluice ui --port 8642

    It listens on 127.0.0.1 only, prints an address that opens one browser, once, and ends with Ctrl-C. Bodies of
    messages are shown only when you ask for them. What cannot be read is shown as ?, with the reason.
    """
    from sluice.console import server

    server.serve(**options)
