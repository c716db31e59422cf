"""`profiles`: what there is to run."""

import click

from spark_load import profile


@click.command()
def profiles() -> None:
    """List the profiles that come with Sluice."""
    for name in profile.names():
        found = profile.load(name).profile
        click.echo(
            f"{name:12} {found.message_count:,} messages at {found.messages_per_second:g}/s"
            f" in {found.group_count:,} groups, {found.duration_seconds:g} s"
        )
