"""What is asked before a load test costs money: whether this account, this region and about so much is meant."""

import click

from sluice.declaration import Environment, prices
from sluice.errors import ConfigError
from spark_load.profiles.estimate import estimate_for
from spark_load.profiles.profile import NamedProfile
from spark_load.runtime.deployment import Deployment


def account_of(deployment: Deployment) -> str:
    """Return the account whose queues were found."""
    return deployment.topic_arn.split(":")[4]


def require_confirmation(
    deployment: Deployment, environment: Environment, named: NamedProfile, *, confirmed: bool, is_terminal: bool
) -> None:
    """Say what a run on AWS takes and costs, and go on only when somebody says so.

    Args:
        deployment: where it is to run.
        environment: what is deployed there.
        named: the profile.
        confirmed: whether somebody said so already; then nobody is asked.
        is_terminal: whether there is somebody to ask.

    Raises:
        ConfigError: the profile cannot work there, or nobody can be asked.
        click.Abort: the answer was no.
    """
    expected = estimate_for(named.profile, environment, "aws")
    if expected.refusals:
        raise ConfigError(f"profile {named.name!r} cannot work on AWS: {expected.refusals[0]}")
    calls = sum(expected.calls.values())
    click.echo(
        f"{named.name} on {environment.name}, account {account_of(deployment)}, region {environment.region}:"
        f" {named.profile.message_count:,} messages into {expected.queue_count} queue(s), about {calls:,} calls,"
        f" {expected.seconds / 60:,.0f} minutes, USD {expected.cost_usd:,.2f}"
        f" (list prices of {prices.PRICE_REGION}, {prices.PRICE_DATE})",
        err=True,
    )
    for warning in expected.warnings:
        click.echo(f"  {warning}", err=True)
    if confirmed:
        return
    if not is_terminal:
        raise ConfigError(
            f"a load test of {environment.name!r} costs about USD {expected.cost_usd:,.2f}, and there is no"
            " terminal to confirm it; add --yes to confirm (make load … YES=1)"
        )
    click.confirm("Is that meant?", abort=True, err=True)
