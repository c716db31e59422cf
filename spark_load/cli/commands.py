"""`sluice load`: offer a load to a deployed environment, record everything, judge the record."""

import click

from sluice.terminal.groups import Group
from spark_load.cli.planning import plan, profiles
from spark_load.cli.resume import resume
from spark_load.cli.run import run


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
def load() -> None:
    """Offer a load to a deployed environment, record everything, judge the record.

    \b
    Exit codes: 0 valid, 1 invalid (with witnesses), 2 unknown or could not run,
    3 wrong usage or refused, 99 valid with a threshold crossed.
    """


for _command in (run, resume, plan, profiles):
    load.add_command(_command)
