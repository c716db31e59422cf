"""`sluice load`: offer a load to a deployed environment, record everything, judge the record."""

import click

from sluice.terminal.groups import CommandGroup, Lazy

_LAZY = {
    "plan": Lazy("spark_load.cli.planning:plan", "Show what a run of a profile will take."),
    "profile-from": Lazy("spark_load.cli.traces:profile_from", "Make a profile that replays recorded traffic."),
    "profiles": Lazy(
        "spark_load.cli.planning:profiles", "List the profiles that come with Sluice, and what each shows."
    ),
    "resume": Lazy("spark_load.cli.run:resume", "Continue a run that was broken off."),
    "run": Lazy("spark_load.cli.run:run", "Run the load test of a profile."),
    "trend": Lazy("spark_load.cli.trend:trend", "Compare a run with the runs of its profile before it."),
}


@click.group(cls=CommandGroup, lazy=_LAZY, context_settings={"help_option_names": ["-h", "--help"]})
def load() -> None:
    """Publish messages to a deployed environment, record every call, and judge the record.

    \b
    Exit codes: 0 valid, 1 invalid (with witnesses), 2 unknown or could not run,
    3 wrong usage or refused, 99 valid with a threshold crossed.
    """
